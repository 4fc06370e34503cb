"""Several processes, one conversation: a summary is written once, on SQLite as on PostgreSQL."""

import asyncio
import json
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest

from refold import StoreError
from refold.core.strategy import Answer
from refold.gateway import Incoming, Pipeline, Settings
from refold.gateway.conversations.stores import hold_claim
from refold.stores import MemoryStore, SQLiteStore, open_store
from refold.summarizers.model import HEADINGS
from refold.tokens.model_table import Window
from tests.support.raw_http import eventually

WORDS = "one two three four five six seven eight nine ten " * 40


SUMMARY = "\n".join(f"## {title}\n- the bug is in file 3" for title in HEADINGS)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """An address that several stores can be opened at."""
    if request.param == "sqlite":
        return str(tmp_path / "refold.db")
    return request.getfixturevalue("server").database()


def session(steps, first="Fix the bug."):
    messages = [{"role": "user", "content": first}]
    for i in range(steps):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i}\n{WORDS}"})
    body = json.dumps({"model": "m", "messages": messages}).encode()
    return Incoming("openai_chat", "up", "/v1/chat/completions", (), body, "c")


class Writer:
    """Writes summaries, one after *seconds* and not before it *may*; counts how often it was asked."""

    def __init__(self, seconds=0.4, *, may=True):
        self.asked, self.seconds, self.may, self.called = 0, seconds, may, asyncio.Event()

    async def __call__(self, ask):
        self.asked += 1
        self.called.set()
        await asyncio.sleep(self.seconds)
        await until(lambda: self.may)
        return Answer(SUMMARY)


async def until(holds):
    """Wait for something, five minutes at most."""
    async with asyncio.timeout(300):
        while not holds():  # noqa: ASYNC110 - it may be another thread that makes it true
            await asyncio.sleep(0.01)


class Replicas:
    """Gateways that share a place and nothing else, as on so many machines."""

    def __init__(self, stores, writer, **settings):
        self.stores = stores
        defaults = {
            "windows": {"m": Window(20_000)},
            "economy": False,
            "ask": writer,
            "soft": 0.94,
            "decide_timeout_seconds": 60.0,
        }
        self.pipelines = [Pipeline(Settings(**{**defaults, **settings}), store) for store in stores]

    async def settle(self):
        for pipeline in self.pipelines:
            await asyncio.gather(*pipeline.background.tasks)

    async def close(self):
        for pipeline in self.pipelines:
            await pipeline.aclose()
        for store in self.stores:
            store.close()


def run(place, writer, story, count=2, **settings):
    async def play():
        replicas = Replicas([open_store(place) for _ in range(count)], writer, **settings)
        try:
            return await story(*replicas.pipelines, replicas.settle)
        finally:
            await replicas.close()

    return asyncio.run(play())


def test_concurrent_replicas_ask_the_model_for_a_summary_only_once(place):
    writer = Writer()

    async def story(first, second, third, _):
        return await asyncio.gather(
            *(pipeline.prepare(session(60)) for pipeline in (first, second, third))
        )

    outs = run(place, writer, story, count=3)
    assert writer.asked == 1
    assert len({out.body for out in outs}) == 1
    assert {out.outcome for out in outs} == {"edited"}
    assert sorted(out.reason for out in outs) == ["hard", "shown", "shown"]


def test_a_replica_one_turn_ahead_uses_the_same_summary(place):
    writer = Writer()

    async def story(pipeline, peer, _):
        return await asyncio.gather(pipeline.prepare(session(60)), peer.prepare(session(61)))

    first, second = run(place, writer, story)
    assert writer.asked == 1
    assert second.edits == first.edits


def test_two_sessions_do_not_wait_for_each_other(place):
    """Each writer's answer takes the other's question: a claim of one for both would have to end by patience."""
    both = asyncio.Barrier(2)

    async def writer(ask):
        await both.wait()
        return Answer(SUMMARY)

    async def story(pipeline, peer, _):
        return await asyncio.gather(
            pipeline.prepare(session(60)), peer.prepare(session(60, "Write the tests."))
        )

    outs = run(place, writer, story)
    assert [out.reason for out in outs] == ["hard", "hard"]
    assert both.n_waiting == 0


def test_a_summary_prepared_by_one_replica_is_used_by_another(place):
    writer = Writer(0.01)

    async def story(pipeline, peer, settle):
        early = await pipeline.prepare(session(28))
        await settle()
        late = await peer.prepare(session(50))
        assert pipeline.counters.get("prepared", result="ready") == 1
        assert peer.counters.get("prepared", result="used") == 1
        return early, late, await pipeline.prepare(session(51))

    early, late, again = run(place, writer, story, soft=0.5)
    assert writer.asked == 1
    assert (early.outcome, late.reason, again.reason) == ("untouched", "prepared", "shown")
    assert late.edits == again.edits


def test_f27_a_replica_waits_for_a_summary_that_another_is_preparing(place):
    """The summary comes once the other one waits, however long either takes to get there."""
    writer = Writer(0, may=False)

    async def story(pipeline, peer, settle):
        early = await pipeline.prepare(session(28))
        await until(lambda: writer.asked)
        late = asyncio.create_task(peer.prepare(session(50)))
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert not late.done(), "it waits for what the first prepares"
        writer.may = True
        out = await late
        await settle()
        return early, out

    early, late = run(place, writer, story, soft=0.5)
    assert writer.asked == 1
    assert (early.outcome, late.reason) == ("untouched", "prepared")


def test_a_replica_does_not_prepare_a_summary_that_another_is_preparing(place):
    writer = Writer(0, may=False)

    async def story(pipeline, peer, settle):
        await pipeline.prepare(session(28))
        await until(lambda: writer.asked)
        await peer.prepare(session(29))
        await until(lambda: peer.counters.get("prepared", result="nothing") == 1)
        writer.may = True
        await settle()
        await peer.prepare(session(30))  # by now it is there
        await settle()
        assert peer.counters.get("prepared", result="nothing") == 1
        assert peer.counters.get("prepared", result="ready") == 1

    run(place, writer, story, soft=0.5)
    assert writer.asked == 1


def test_a_rewound_session_does_not_use_a_summary_of_removed_messages(place):
    writer = Writer(0.01)

    async def story(pipeline, peer, settle):
        await pipeline.prepare(session(28))
        await settle()
        return await peer.prepare(session(8))

    assert run(place, writer, story, soft=0.5).outcome == "untouched"


class Killed(SQLiteStore):
    """The store of a process that is killed once it has its claim: no word from it after."""

    def claim(self, name, owner, seconds):
        if self.__dict__.setdefault("dead", False):
            raise StoreError("dead")
        self.dead = super().claim(name, owner, 0.5)
        return self.dead

    def save(self, edits):
        raise StoreError("dead")

    def release(self, name, owner):
        raise StoreError("dead")


def test_the_claim_of_a_killed_replica_expires(tmp_path):
    writer = Writer(60)

    async def story():
        with ExitStack() as stack:
            stores = [stack.enter_context(kind(tmp_path / "s")) for kind in (Killed, SQLiteStore)]
            replicas = Replicas(stores, writer)
            dying, living = replicas.pipelines
            lost = asyncio.create_task(dying.prepare(session(60)))
            await writer.called.wait()
            writer.seconds = 0.01
            out = await living.prepare(session(60))
            lost.cancel()
            await replicas.close()
            return out

    out = asyncio.run(story())
    assert (out.outcome, out.reason, writer.asked) == ("edited", "hard", 2)


def test_a_request_waits_for_another_replica_no_longer_than_for_a_model(place):
    """Then rules summarise: it must fit whatever others do."""
    writer = Writer(30)

    async def story(pipeline, peer, _):
        lost = asyncio.create_task(pipeline.prepare(session(60)))
        await writer.called.wait()
        peer.settings = replace(peer.settings, summary_timeout_seconds=0.5)
        out = await peer.prepare(session(60))
        lost.cancel()
        return out

    out = run(place, writer, story)
    assert (out.outcome, out.reason) == ("edited", "hard")
    assert out.tokens_after < 20_000


class Counted:
    """The claims of a store, which last for an hour however short they are wanted; how often they were made."""

    def __init__(self, store):
        self.store, self.claims, self.release = store, [], store.release

    def claim(self, name, owner, seconds):
        self.claims.append((name, owner, seconds, self.store.claim(name, owner, 3_600)))
        return self.claims[-1][-1]


def test_a_claim_is_renewed_until_its_owner_releases_it(place):
    """Longer than it would last by itself: it is renewed again and again, and given back at the end."""
    with open_store(place) as owner, open_store(place) as rival:
        store = Counted(owner)
        with hold_claim(store, "a", None, wait=False, lease=0.03) as had:
            assert had == (True, False)
            assert eventually(lambda: len(store.claims) > 5)
            assert not rival.claim("a", "other", 0.01)
        assert len(set(store.claims)) == 1, "always the same claim, and always had"
        assert eventually(
            lambda: rival.claim("a", "other", 1)
        )  # given back, at once or with the last renewal


def test_an_owner_can_renew_its_claim_and_a_rival_cannot_take_it(place):
    """Though the first time was for a moment only."""
    with open_store(place) as owner, open_store(place) as rival:
        assert owner.claim("a", "mine", 0.5) and owner.claim("a", "mine", 3_600)
        time.sleep(0.6)
        assert not rival.claim("a", "other", 60)


def test_summaries_are_written_with_a_store_that_has_no_claims():
    writer = Writer(0.01)

    async def story():
        pipeline = Pipeline(
            Settings(
                windows={"m": Window(20_000)}, economy=False, ask=writer, decide_timeout_seconds=60
            ),
            MemoryStore(),
        )
        out = await pipeline.prepare(session(60))
        await pipeline.aclose()
        return out

    assert asyncio.run(story()).reason == "hard"
    assert writer.asked == 1
