"""What a gateway does while its store fails or hangs, and what it writes when the store is back."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Compactor
from refold.edits import Edit
from refold.gateway.conversations.conversations import Conversation, Conversations
from refold.gateway.conversations.workers import Job, StoreWait
from refold.stores.store import LedgerRow, MemoryStore
from tests.support.agent_requests import (
    CONTEXT_ERRORS,
    anthropic_request,
    chat_request,
    entries,
    violations,
)
from tests.support.examples import examples_at_night
from tests.support.pipeline_driver import Driver, UnreliableStore, build_incoming

WINDOW = 20_000
ERROR = json.dumps(CONTEXT_ERRORS["anthropic"]).encode()


class Clocked(UnreliableStore):
    """A store that can also be down for rows of the ledger, and counts how many requests wait for
    it at once. Requests read first. Writes made meanwhile are retried by a timer and are not
    counted."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.waiting = 0
        self.most = 0
        self._counting = threading.Lock()

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        with self._count_read():
            return super().load(tips)

    def version(self) -> int:
        with self._count_read():
            return super().version()

    def record(self, rows: Iterable[LedgerRow]) -> None:
        self._check()
        super().record(rows)

    @contextmanager
    def _count_read(self) -> Iterator[None]:
        with self._counting:
            self.reads += 1
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        try:
            yield
        finally:
            with self._counting:
                self.waiting -= 1


def list_stored(store: MemoryStore) -> set[str]:
    return {edit.id for edit in store.load([*store._by_tip])}


def summaries(store: MemoryStore) -> list[Edit]:
    """Return the edits that hide more than one message."""
    return [edit for edit in store.load([*store._by_tip]) if edit.stop - edit.start > 1]


@pytest.mark.parametrize("signed", [False, True])
def test_c11_edits_made_in_memory_during_an_outage_are_saved_afterwards(signed: bool):
    """Previously a third to a half of the requests exceeded the window for up to 18 s after the
    database was back."""
    store = Clocked()
    with Driver(store) as driver:
        driver(anthropic_request(3, signed=signed))
        store.down = True
        outs = [driver(anthropic_request(steps, signed=signed)) for steps in range(60, 70)]
        assert {out.outcome for out in outs} == {"failed"}
        assert {out.reason for out in outs} == {"store", "resting"}
        assert all(out.tokens_after < WINDOW for out in outs)
        assert all(
            out.edits == outs[0].edits != () for out in outs
        )  # made once and shown from then on
        assert all(violations(out.body, "anthropic") == () for out in outs)
        store.down = False
        assert driver.run(driver.pipeline._outbox.flush())
        assert set(outs[0].edits) <= list_stored(store)
        assert any(
            row.edit in outs[0].edits for row in store.ledger()
        )  # and so are the ledger rows
        back = driver(anthropic_request(69, signed=signed))
        assert (back.outcome, back.reason) == ("edited", "shown")
        assert back.body == outs[-1].body
        assert len(summaries(store)) == 1  # no decision was made twice
    with Driver(store) as replica:  # another replica
        assert replica(anthropic_request(69, signed=signed)).body == outs[-1].body


def test_c11_a_conversation_that_begins_while_the_database_is_down_is_compacted_too():
    store = Clocked()
    store.down = True
    with Driver(store) as driver:
        out = driver(chat_request(60), "openai_chat")
        assert out.outcome == "failed" and 0 < out.tokens_after < WINDOW
        assert driver(chat_request(61), "openai_chat").edits == out.edits
        store.down = False
    assert set(out.edits) <= list_stored(store)  # a stopping gateway writes the waiting edits


def test_c11_unsaved_edits_are_written_without_a_request_once_the_store_is_back():
    """The next request may come to another replica."""
    store = Clocked()
    store.down = True
    with Driver(store) as driver:
        out = driver(chat_request(60), "openai_chat")
        store.down = False
        assert not list_stored(store)

        async def wait_until_written() -> None:
            while driver.pipeline.conversations.list_unsaved():  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)

        driver.run(asyncio.wait_for(wait_until_written(), 60))
        assert set(out.edits) <= list_stored(store)
        assert (
            driver(chat_request(61), "openai_chat").reason == "shown"
        )  # the store is asked again at once


def test_c11_a_conversation_forgotten_during_an_outage_loses_no_edits():
    store = Clocked()
    store.down = True
    with Driver(store, conversations=1) as driver:
        first, second = (
            driver(chat_request(60), "openai_chat", credential=name) for name in ("a", "b")
        )
        assert len(driver.pipeline.conversations) == 1
        store.down = False
        assert driver.run(driver.pipeline._outbox.flush())
        assert {*first.edits, *second.edits} <= list_stored(store)
        assert not driver.pipeline.conversations.list_unsaved()


def test_c11_ledger_rows_that_fail_after_their_edits_are_written_later():
    """The store took the edits and failed again before their rows, which were lost."""

    class Relapsing(Clocked):
        relapses = False

        def save(self, edits: Iterable[Edit]) -> None:
            super().save(edits)
            self.down = self.relapses

    store = Relapsing()
    with Driver(store) as driver:
        store.down = True
        out = driver(chat_request(60), "openai_chat")
        store.down, store.relapses = False, True
        assert not driver.run(driver.pipeline._outbox.flush())
        assert store.down and not store.ledger()
        store.down = store.relapses = False
        assert set(out.edits) <= list_stored(store)
    assert any(row.edit in out.edits for row in store.ledger())


def test_c11_only_one_request_of_a_conversation_waits_for_a_hanging_store():
    """Its next requests do not wait for the one that hangs, and that one does nothing more when it
    gets its answer."""
    store = Clocked()
    with Driver(store, store_cooldown_seconds=0.0) as driver:
        driver(anthropic_request(3))
        store.slow.clear()
        with driver.with_timeout(5.0):  # deciding from memory takes less
            late = driver(anthropic_request(60))
        assert (late.outcome, late.reason) == ("failed", "deadline")
        assert 0 < late.tokens_after < WINDOW
        again = [driver(anthropic_request(60 + extra_steps)) for extra_steps in range(5)]
        assert {out.reason for out in again} == {"resting"}
        assert all(out.edits == late.edits for out in again)
        assert store.most == 1
        reads = store.reads
        store.slow.set()
        (conversation,) = driver.pipeline.conversations
        until(lambda: not conversation.is_stuck)
        assert store.reads == reads
        back = driver(anthropic_request(64))
        assert back.body == again[-1].body
        assert len(summaries(store)) == 1


def until(done: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(30_000):
        if done():
            return
        pause.wait(0.01)
    raise AssertionError


@pytest.mark.parametrize("call", ["shrink", "drop_thinking"])
def test_c5_a_retry_after_a_refusal_waits_for_a_hanging_store_until_the_deadline(call: str):
    """A client used to wait for `patience`, 60 seconds, instead of the configured two. With
    patience this test would time out."""
    store = Clocked()
    with Driver(store, summary_timeout_seconds=100_000.0) as driver:
        body = anthropic_request(60 if call == "shrink" else 20, signed=True)
        out = driver(body)
        store.slow.clear()
        error = (
            ERROR
            if call == "shrink"
            else b'{"error": {"message": "Invalid `signature` in `thinking` block"}}'
        )
        again = getattr(driver.pipeline, call)(build_incoming(body), out, error)
        try:
            with driver.with_timeout(2.0):
                retried = driver.run(asyncio.wait_for(again, 300))
            assert retried is not None  # from memory
            assert len(retried.body) < len(out.body)
            assert driver.count("failures", reason="deadline") == 1
            assert (
                driver.shrink(anthropic_request(61, signed=True), out, ERROR) is not None
            )  # and the next request does not wait
            assert store.most == 1
        finally:
            store.slow.set()


@pytest.mark.parametrize("trouble", ["deadline", "store", "resting"])
def test_a_token_count_from_memory_leaves_the_conversation_as_it_is(trouble: str):
    """It became the conversation's latest request, whose cached prefix and model decide when the
    next one is compacted; while the store failed it could be compacted itself."""
    store = Clocked()
    with Driver(store) as driver:
        driver(anthropic_request(60))
        (conversation,) = driver.pipeline.conversations
        shown = conversation.shown.ids.copy()
        latest, counted = conversation.latest, anthropic_request(90, model="claude-haiku-4-5")
        count = replace(build_incoming(counted), path="/v1/messages/count_tokens")
        store.down = trouble == "store"
        if trouble == "resting":
            for _ in range(3):
                driver.pipeline.resources.breaker.record_failure("store")
        is_busy = trouble == "deadline"
        held = conversation.lock if is_busy else nullcontext()
        with held, driver.with_timeout(2.0 if is_busy else 60.0):
            out = driver.run(driver.pipeline.prepare_count(count))
        assert (out.outcome, out.reason) == ("failed", trouble)
        assert out.edits and len(out.body) < len(counted)
        assert conversation.latest is latest and conversation.shown.ids == shown


def test_c5_all_waits_for_the_store_count_against_the_deadline():
    """Five waits of half a deadline each used to exceed two deadlines."""
    job = Job(60.0, store_wait=StoreWait(before=2.5))
    assert job.remaining_seconds(monotonic(), 2.0, 1_000.0) <= -0.5
    job.store_wait.began = monotonic() - 3.0
    assert job.remaining_seconds(monotonic(), 5.0, 1_000.0) <= -0.5
    job.end_store_call()
    assert job.remaining_seconds(monotonic(), 5.0, 1_000.0) <= -0.5


def test_c5_waiting_for_a_model_does_not_count_as_work_time():
    """After waiting an hour for a model, a job still has its full work time. An hour of its own
    work uses it up."""
    began = monotonic() - 3_600.0
    assert (
        Job(model_seconds=60.0, waited_seconds=3_600.0).remaining_seconds(began, 1_000.0, 1_000.0)
        > 0
    )
    assert Job(model_seconds=60.0).remaining_seconds(began, 1_000.0, 1_000.0) < 0


def test_c5_an_error_processed_twice_counts_once_as_evidence_of_a_window():
    """A limit below half of an answered request is believed only after two errors. Here there was
    one."""
    store = Clocked()
    error = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9000 tokens > 1000 maximum",
        },
    }
    with Driver(store, windows={}) as driver:
        body = anthropic_request(30, model="unheard")
        out = driver(body)
        driver.pipeline.record_answer(
            build_incoming(body), out, {"input_tokens": out.tokens_after, "output_tokens": 1}
        )
        assert out.tokens_after > 2_000
        store.slow.clear()
        with driver.with_timeout(2.0):
            driver.shrink(body, out, json.dumps(error).encode())
        assert (
            driver.count("failures", reason="deadline") == 1
        )  # it was processed again, without the store
        store.slow.set()
        assert (
            driver.pipeline.resources.model_limits.usable_tokens(
                build_incoming(anthropic_request(12, model="unheard")), "unheard"
            )
            is None
        )


@settings(max_examples=examples_at_night(8, 100), deadline=None)
@given(downs=st.lists(st.booleans(), min_size=8, max_size=8))
def test_c11_requests_fit_and_edits_stay_while_the_store_fails_and_recovers(downs: list[bool]):
    """Hidden content stays hidden, no request exceeds the window, and in the end the store alone
    gives the same view."""
    store = Clocked()
    with Driver(store, store_cooldown_seconds=0.0) as driver:
        shown: set[str] = set()
        for at, down in enumerate(downs):
            store.down = down
            out = driver(chat_request(40 + 4 * at), "openai_chat")
            assert 0 < out.tokens_after < WINDOW
            assert len(entries(out.body)) < len(entries(chat_request(40 + 4 * at)))
            assert not shown or shown & set(out.edits) or len(out.edits) <= len(shown)
            shown = set(out.edits)
        store.down = False
        last = driver(chat_request(68), "openai_chat")
    with Driver(store) as fresh:
        assert fresh(chat_request(68), "openai_chat").body == last.body


def test_c11_a_conversation_with_unsaved_edits_is_kept_until_they_are_saved():
    conversations = Conversations(1, 10**9)
    first = conversations.get_or_create("a", 1, lambda: Conversation("a", "", "", Compactor()))
    first.shown.unsaved.append(Edit(0, 1, (), "tip", "by"))
    conversations.get_or_create("b", 1, lambda: Conversation("b", "", "", Compactor()))
    assert [conversation.name for conversation in conversations.list_unsaved()] == ["a"]
    conversations.list_unsaved()[0].shown.unsaved.clear()
    conversations.drop_saved()
    assert not conversations.list_unsaved()


def test_d6_an_edit_that_a_fork_replaces_is_still_shown_in_its_parent():
    """A process that had not read the store before an outage used to delete such an edit when the
    store was back."""
    store = Clocked()
    with Driver(store) as first, Driver(store) as second, Driver(store) as third:
        shown = first(anthropic_request(60, signed=True))
        store.down = True
        second(anthropic_request(75, signed=True), headers=[("x-session-id", "fork")])
        store.down = False
        later = second(anthropic_request(76, signed=True), headers=[("x-session-id", "fork")])
        assert set(later.edits).isdisjoint(shown.edits)
        assert shown.edits[0] in third(anthropic_request(61, signed=True)).edits
