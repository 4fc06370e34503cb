"""The gateway's core without sockets: what happens to a request."""

import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Budget
from refold.codecs.detect import open_payload
from refold.compactor.compactor import Compactor
from refold.core.strategy import Answer, Ask
from refold.gateway import Incoming, Outgoing, Pipeline, Settings
from refold.gateway.exchange import REASONS
from refold.gateway.metrics import Counters
from refold.stores.store import MemoryStore
from refold.strategies import ClearToolResults, ClipResults
from refold.tokens.model_table import Rates, Window
from refold.transcript import Transcript
from tests.support.agent_requests import (
    CONTEXT_ERRORS,
    FORMATS,
    anthropic_request,
    chat_request,
    entries,
    responses_request,
    violations,
)
from tests.support.pipeline_driver import (
    Driver,
    SummaryWriter,
    UnreliableStore,
    build_incoming,
)

# --- sessions in four formats ---------------------------------------------------------------------


# --- nothing to do --------------------------------------------------------------------------------


@pytest.mark.parametrize("api", FORMATS)
def test_a_request_that_needs_no_edit_is_sent_byte_for_byte(api: str):
    with Driver() as driver:
        for steps in range(4):
            body = FORMATS[api](steps)
            out = driver(body, api)
            assert out.body is body
            assert (out.outcome, out.reason, out.edits) == ("untouched", "", ())
            assert 0 < out.tokens_before == out.tokens_after


@pytest.mark.parametrize(
    ("api", "body", "outcome", "reason"),
    [
        ("", b'{"messages": []}', "untouched", "path"),
        ("embeddings", b'{"input": "x"}', "untouched", "path"),
        ("anthropic", b"\xff\x00 not json", "opaque", "unreadable"),
        ("anthropic", b"", "opaque", "unreadable"),
        ("anthropic", b'{"model": "m"}', "opaque", "unreadable"),
        ("anthropic", b'{"messages": 3}', "opaque", "unreadable"),
        ("anthropic", b'{"messages": []}', "untouched", "empty"),
        ("openai_chat", b'{"messages": [1, null]}', "opaque", "unreadable"),
        ("gemini", b'{"contents": [' + b"[" * 5000 + b"]" * 5000 + b"]}", "opaque", "unreadable"),
    ],
)
def test_an_unreadable_request_is_sent_unchanged_with_a_reason(
    api: str, body: bytes, outcome: str, reason: str
):
    with Driver() as driver:
        out = driver(body, api)
        assert out.body is body
        assert (out.outcome, out.reason) == (outcome, reason)
        assert driver.count("requests", outcome=outcome, reason=reason) == 1
        assert reason in REASONS


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages/count_tokens?beta=true",
        "/v1beta/models/g:countTokens",
        "/v1/responses/compact",
    ],
)
def test_requests_to_other_paths_are_sent_unchanged(path: str):
    with Driver() as driver:
        body = anthropic_request(40)
        out = driver.run(driver.pipeline.prepare(Incoming("anthropic", "up", path, (), body)))
        assert out.body is body and out.reason == "path"


# --- compaction in the path -----------------------------------------------------------------------


@pytest.mark.parametrize("api", FORMATS)
def test_a_session_beyond_its_window_is_compacted_to_fit(api: str):
    """AN-1 OA-1 OA-2 GE-2: nothing that is sent breaks a rule, and all of it fits."""
    with Driver() as driver:
        for steps in range(0, 120, 12):
            out = driver(FORMATS[api](steps), api)
            assert out.tokens_after < 20_000
            assert violations(out.body, api) == ()
        assert (out.outcome, out.tokens_before > 40_000) == ("edited", True)
        assert driver.count("requests", reason="hard") >= 2
        assert driver.count("failures") == 0


def test_the_compacted_prefix_is_sent_again_byte_for_byte():
    """The sent request of one call is the beginning of the next one's, until the next compaction."""
    with Driver() as driver:
        sent = [
            entries(driver(anthropic_request(steps, mark=False)).body) for steps in range(50, 60)
        ]
        same = [later[: len(first)] == first for first, later in pairwise(sent)]
        assert all(same)


def test_another_process_with_the_same_store_sends_the_same():
    store = MemoryStore()
    with Driver(store) as driver:
        first = driver(anthropic_request(60))
    with Driver(store) as driver:
        second = driver(anthropic_request(60))
    assert first.body == second.body
    assert (first.reason, second.reason) == ("hard", "shown")


def test_a_request_rewound_to_before_a_compaction_is_not_edited():
    with Driver() as driver:
        assert driver(anthropic_request(60)).edits
        early = driver(anthropic_request(3))  # rewound to before the compaction
        assert early.outcome == "untouched"
        assert driver(anthropic_request(61)).reason == "shown"


def test_local_strategies_edit_a_result_when_it_first_appears():
    with Driver(strategies=(ClipResults(limit=500),)) as driver:
        first, second = driver(anthropic_request(1)), driver(anthropic_request(2))
        assert first.outcome == "edited" and first.reason == "shown"
        assert entries(second.body)[:2] == entries(first.body)[:2]
        assert first.tokens_after < first.tokens_before


def test_token_estimates_follow_the_reported_usage():
    with Driver() as driver:
        out = driver(anthropic_request(10))
        driver.pipeline.record_answer(
            build_incoming(b""), out, {"input_tokens": out.tokens_after * 2, "output_tokens": 5}
        )
        again = driver(anthropic_request(10))
        assert again.tokens_after == out.tokens_after * 2
        driver.pipeline.record_answer(build_incoming(b""), Outgoing(b""), None)


def test_a_clients_own_compaction_request_is_sent_unchanged_if_it_fits():
    asked = {"role": "user", "content": "CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."}
    with Driver(strategies=(ClipResults(limit=500),)) as driver:
        edited = driver(chat_request(5), "openai_chat")
        body = json.loads(chat_request(5))
        body["messages"].append(asked)
        raw = json.dumps(body).encode()
        out = driver(raw, "openai_chat")
        assert edited.edits and out.body is raw
        assert (out.outcome, out.reason) == ("side", "compaction")
        assert driver(chat_request(6), "openai_chat").edits[: len(edited.edits)] == edited.edits


# --- signed thinking ------------------------------------------------------------------------------


def signatures(body: bytes) -> list[str]:
    blocks = (
        block
        for entry in entries(body)
        if isinstance(entry["content"], list)
        for block in entry["content"]
    )
    return [block["signature"] for block in blocks if block["type"] == "thinking"]


def test_conformance_56_signed_thinking_is_unchanged_or_absent():
    """AN-6 AN-7 AN-11: behind a late edit no thinking stays that was signed before it was made; what is thought afterwards stays."""
    with Driver() as driver:
        driver(anthropic_request(20, signed=True))
        out = driver(anthropic_request(60, signed=True))
        assert out.reason == "hard"
        assert signatures(out.body) == []
        later = driver(anthropic_request(62, signed=True))
        assert later.reason == "shown"
        assert signatures(later.body) == ["sig60", "sig61"]
        assert violations(later.body, "anthropic") == ()


def test_local_edits_are_not_made_late_before_signed_thinking():
    """AN-7: a history that was thought over without us is not clipped now; what comes new is, and stays so in another process."""
    store = MemoryStore()
    settings: dict[str, Any] = {"strategies": (ClipResults(limit=500),)}
    with Driver(store, **settings) as driver:
        late = driver(anthropic_request(5, signed=True))
        clipped = [
            len(str(entry["content"])) < 1000
            for entry in entries(late.body)
            if entry["role"] == "user"
        ][1:]
        assert clipped == [False, False, False, False, True]
        grown = driver(anthropic_request(6, signed=True))
    with Driver(store, **settings) as driver:
        again = driver(anthropic_request(6, signed=True))
    assert again.body == grown.body
    assert signatures(again.body) == [f"sig{i}" for i in range(6)]


def test_results_of_older_models_are_clipped_even_before_signed_thinking():
    with Driver(strategies=(ClipResults(limit=500),)) as driver:
        out = driver(anthropic_request(5, signed=True, model="claude-3-7-sonnet-20250219"))
        assert len(out.edits) == 5


# --- one result, one decision ---------------------------------------------------------------------


def rewritten(body: bytes) -> bytes:
    """As clients do that change the beginning of their history: the date, an old output."""
    value = json.loads(body)
    value["messages"][1]["content"] = "Fix the bug. Today is another day."
    return json.dumps(value).encode()


def test_edits_of_results_survive_a_rewritten_beginning_of_the_history():
    store = MemoryStore()
    settings: dict[str, Any] = {
        "strategies": (ClearToolResults(keep=3),),
        "windows": {"m": Window(24_000)},
    }
    with Driver(store, **settings) as driver:
        first = driver(chat_request(60), "openai_chat")
        assert first.reason == "hard"
        broken = driver(rewritten(chat_request(61)), "openai_chat")
        assert broken.reason == "shown"
        assert entries(broken.body)[2:122] == entries(first.body)[2:]
        assert driver.count("prefix_breaks") == 1
        assert driver.count("decided_again") > 30
    with Driver(
        store, **settings
    ) as driver:  # another process, another session key, the same tenant
        continued = driver(
            rewritten(chat_request(61)), "openai_chat", headers=[("x-session-id", "new")]
        )
        assert entries(continued.body) == entries(broken.body)
    with Driver(store, **settings) as driver:  # another tenant knows nothing of it
        strange = driver(rewritten(chat_request(10)), "openai_chat", credential="d")
        assert strange.outcome == "untouched"


def test_a_result_with_a_known_id_but_other_text_is_not_edited():
    with Driver(strategies=(ClearToolResults(keep=3),)) as driver:
        driver(chat_request(60), "openai_chat")
        changed = rewritten(chat_request(5)).replace(b"file ", b"data ")
        assert driver(changed, "openai_chat").outcome == "untouched"


# --- the cap of output ----------------------------------------------------------------------------


def test_max_tokens_is_lowered_if_it_exceeds_the_window():
    caps = {
        "anthropic": ({"max_tokens": 19_000}, lambda b: b["max_tokens"]),
        "openai_chat": ({"max_completion_tokens": 19_000}, lambda b: b["max_completion_tokens"]),
        "openai_responses": ({"max_output_tokens": 19_000}, lambda b: b["max_output_tokens"]),
        "gemini": (
            {"generationConfig": {"temperature": 1, "maxOutputTokens": 19_000}},
            lambda b: b["generationConfig"]["maxOutputTokens"],
        ),
    }
    with Driver() as driver:
        for api, (cap, read) in caps.items():
            body = FORMATS[api](15, **cap)
            out = driver(body, api)
            assert (out.outcome, out.reason) == ("edited", "cap")
            assert read(json.loads(out.body)) == 20_000 - out.tokens_after
            assert out.body.replace(str(20_000 - out.tokens_after).encode(), b"19000") == body
    with Driver(lower_output_cap=False) as driver:
        assert driver(anthropic_request(15, max_tokens=19_000)).outcome == "untouched"


# --- after a context error ------------------------------------------------------------------------


@pytest.mark.parametrize("api", FORMATS)
def test_after_a_context_error_the_request_is_compacted_further_once(api: str):
    with Driver(windows={"claude-opus-5-5": Window(200_000)}) as driver:
        body = FORMATS[api](40)
        out = driver(body, api)
        assert out.outcome == "untouched"
        error = json.dumps(CONTEXT_ERRORS[api]).encode()
        retried = driver.shrink(body, out, error, api)
        assert retried is not None and (retried.outcome, retried.reason) == ("retried", "context")
        assert retried.tokens_after < 0.65 * out.tokens_after
        assert violations(retried.body, api) == ()
        assert driver.shrink(body, retried, error, api) is None
        grown = driver(FORMATS[api](41), api)
        assert grown.outcome == "edited" and grown.tokens_after < out.tokens_after
        assert driver.count("context_errors", result="retried") == 1


def test_the_window_that_an_upstream_stated_is_respected():
    with Driver(windows={"claude-opus-5-5": Window(200_000)}) as driver:
        body = anthropic_request(40)
        driver.shrink(body, driver(body), json.dumps(CONTEXT_ERRORS["anthropic"]).encode())
        for steps in range(41, 90, 4):
            out = driver(anthropic_request(steps))
            assert out.tokens_after < 16_000


def test_a_conversation_stays_below_a_size_that_was_refused_without_figures():
    """By this conversation: another one may be of another window, and an error need not mean what it says."""
    error = json.dumps(CONTEXT_ERRORS["openai_responses"]).encode()
    with Driver(windows={}) as driver:
        body = responses_request(40)
        refused = driver(body, "openai_responses")
        assert refused.outcome == "untouched"
        assert driver.shrink(body, refused, error, "openai_responses") is not None
        for steps in range(41, 120, 4):
            assert (
                driver(responses_request(steps), "openai_responses").tokens_after
                < refused.tokens_after
            )
        assert (
            driver(responses_request(60), "openai_responses", credential="another").outcome
            == "untouched"
        )


def refuse_too_long(limit: int) -> bytes:
    message = f"prompt is too long: 300000 tokens > {limit} maximum"
    return json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    ).encode()


@given(st.integers(1, 200_000), st.sampled_from(["claude-opus-5-5", "nobody-knows"]))
def test_one_callers_errors_do_not_shrink_the_window_of_another(limit: int, model: str):
    with Driver(windows={"claude-opus-5-5": Window(200_000)}) as driver:
        body = anthropic_request(40, model=model)
        driver.shrink(body, driver(body), refuse_too_long(limit))
        assert driver(body, credential="another").outcome == "untouched"
        assert (
            driver(anthropic_request(41, model=model), credential="another").outcome == "untouched"
        )


@pytest.mark.parametrize("limit", [0, 1, 2, 499])
def test_a_window_in_which_nothing_fits_is_not_believed(limit: int):
    with Driver(windows={}) as driver:
        body = chat_request(40)
        driver.shrink(body, driver(body, "openai_chat"), refuse_too_long(limit), "openai_chat")
        elsewhere = driver(chat_request(12), "openai_chat", headers=[("x-session-id", "other")])
        assert (elsewhere.outcome, elsewhere.reason) == ("untouched", "")


def test_a_window_smaller_than_an_answered_request_is_believed_the_second_time():
    """A server may have been started anew with a smaller one."""
    usage, headers = {"prompt_tokens": 20_000, "completion_tokens": 5}, [("x-session-id", "other")]
    with Driver(windows={}) as driver:
        body, elsewhere = (
            chat_request(40),
            chat_request(40).replace(b"Fix the bug.", b"Write the page."),
        )
        out = driver(body, "openai_chat")
        driver.pipeline.record_answer(build_incoming(body, "openai_chat"), out, usage)
        retried = driver.shrink(body, out, refuse_too_long(2_000), "openai_chat")
        assert retried is not None and 2_000 < retried.tokens_after < out.tokens_after
        assert driver(elsewhere, "openai_chat", headers=headers).outcome == "untouched"
        again = driver.shrink(body, out, refuse_too_long(2_000), "openai_chat")
        assert again is not None and again.tokens_after < retried.tokens_after
        assert driver(chat_request(41), "openai_chat", headers=headers).tokens_after < 2_000


def test_only_max_tokens_is_lowered_if_that_is_enough():
    message = "input length and `max_tokens` exceed context limit: 10000 + 8000 > 16000, decrease input length or `max_tokens`"
    error = json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    ).encode()
    with Driver() as driver:
        body = anthropic_request(5, max_tokens=8000)
        retried = driver.shrink(body, driver(body), error)
        assert retried is not None
        assert json.loads(retried.body) == {
            **json.loads(body),
            "max_tokens": 5700,
        }  # and a twentieth less


def test_no_retry_is_made_if_nothing_is_left_to_cut():
    with Driver() as driver:
        body = anthropic_request(0)
        assert (
            driver.shrink(body, driver(body), json.dumps(CONTEXT_ERRORS["anthropic"]).encode())
            is None
        )
        assert driver.shrink(b"no json", Outgoing(b"no json"), b"") is None
        assert driver.count("context_errors", result="given_up") == 2


# --- failing open ---------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [object(), MemoryStore, "refold.db"])
def test_a_store_without_its_methods_is_refused_at_once(store: Any):
    with pytest.raises(ValueError, match="the store must be one"):
        Pipeline(Settings(), store)


def test_a_store_that_is_down_stops_no_request(caplog: pytest.LogCaptureFixture):
    store = UnreliableStore()
    store.down = True
    with Driver(store) as driver, caplog.at_level(logging.WARNING, "refold.gateway"):
        body = anthropic_request(3)
        out = driver(body)
        assert out.body is body
        assert (out.outcome, out.reason) == ("failed", "store")
        assert driver.count("failures", reason="store") == 1
        (line,) = (
            record.fields
            for record in caplog.records
            if getattr(record, "event", "") == "a request was not handled as usual"
        )
        assert (line["reason"], line["error"], line["api"]) == (
            "store",
            "StoreError",
            "anthropic",
        ) and line["at"]
        assert line["message"] == "database is locked"
        assert not any(
            word in f"{caplog.text}{line}" for word in ("secret", "calc.py", "credential")
        )
        store.down = False
        assert driver(anthropic_request(60)).outcome == "edited"


def test_edits_are_shown_from_memory_while_the_store_is_down():
    """AN-7: signed thinking stands behind what it was signed over, store or no store."""
    store = UnreliableStore()
    with Driver(store) as driver:
        first = driver(anthropic_request(60, signed=True))
        assert first.reason == "hard"
        store.down = True
        held = driver(anthropic_request(61, signed=True))
        assert (held.outcome, held.reason) == ("failed", "store")
        assert held.edits == first.edits
        assert held.tokens_after < 20_000
        assert violations(held.body, "anthropic") == ()
        retried = driver.shrink(
            anthropic_request(61, signed=True),
            held,
            json.dumps(CONTEXT_ERRORS["anthropic"]).encode(),
        )
        assert retried is not None and retried.tokens_after < held.tokens_after
        store.down = False
        back = driver(anthropic_request(61, signed=True))
        assert back.body == retried.body  # what was made in memory is stored by then


def test_a_slow_store_is_waited_for_until_the_deadline_and_then_skipped():
    store = UnreliableStore()
    with Driver(store, store_cooldown_seconds=100_000.0) as driver:
        store.slow.clear()
        bodies = [anthropic_request(1, model=f"m{i}") for i in range(5)]
        asked = [build_incoming(body, credential=str(i)) for i, body in enumerate(bodies)]

        async def three() -> list[Outgoing]:
            return await asyncio.gather(*map(driver.pipeline.prepare, asked[:3]))

        with driver.with_timeout(2.0):
            outs = driver.run(three())
        outs += [driver.run(driver.pipeline.prepare(incoming)) for incoming in asked[3:]]
        assert [out.reason for out in outs] == [
            "deadline",
            "deadline",
            "deadline",
            "resting",
            "resting",
        ]
        assert all(out.body is body for out, body in zip(outs, bodies, strict=True))
        assert store.calls == 3
        store.slow.set()


def test_a_second_request_of_a_busy_conversation_gives_up_waiting():
    store = UnreliableStore()
    with Driver(store, decide_timeout_seconds=0.5) as driver:

        async def both() -> list[Outgoing]:
            store.slow.clear()
            with driver.with_timeout(
                300.0
            ):  # whoever has the conversation keeps it; the other waits for half of 0.5
                first = asyncio.ensure_future(
                    driver.pipeline.prepare(build_incoming(anthropic_request(2)))
                )
                while not store.calls:  # noqa: ASYNC110 - it is another thread that makes it true
                    await asyncio.sleep(0.01)
                second = await driver.pipeline.prepare(build_incoming(anthropic_request(2)))
            store.slow.set()
            return [await first, second]

        assert [out.reason for out in driver.run(both())] == ["", "busy"]


def test_an_error_of_our_own_stops_no_request(caplog: pytest.LogCaptureFixture):
    class Broken:
        local = False

        def __call__(self, view: object) -> Any:
            raise RuntimeError("quotes the user's words")
            yield

    with (
        Driver(strategies=(Broken(),)) as driver,
        caplog.at_level(logging.WARNING, "refold.gateway"),
    ):
        body = anthropic_request(60)
        out = driver(body)
        assert out.body is body and out.reason == "internal"
        assert "user's words" not in caplog.text
        assert driver.shrink(body, out, b"prompt is too long") is None


def test_a_client_that_disconnects_cancels_the_model_call():
    asked, ended = asyncio.Event(), asyncio.Event()

    async def ask(_: Ask) -> Answer:
        asked.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set()
        return Answer("too late")

    with Driver(ask=ask, summary_timeout_seconds=60.0) as driver:

        async def leave() -> None:
            task = asyncio.ensure_future(
                driver.pipeline.prepare(build_incoming(anthropic_request(60)))
            )
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()

        driver.run(leave())


# --- summaries by a model -------------------------------------------------------------------------


def test_a_summary_is_prepared_at_the_soft_level_and_used_at_the_hard_one():
    writer = SummaryWriter()
    with Driver(ask=writer, soft=0.5, hard=0.9) as driver:
        steps = next(n for n in range(60) if driver(anthropic_request(n)).tokens_after >= 8_000)
        soft = driver(anthropic_request(steps))
        assert soft.outcome == "untouched"
        driver.finish_background_work()
        assert driver.count("prepared", result="ready") == 1
        asked = len(writer.asked)
        assert asked > 0
        assert driver(anthropic_request(steps + 1)).outcome == "untouched"  # not due yet
        outs = [driver(anthropic_request(n)) for n in range(steps + 2, steps + 12)]
        used = next(out for out in outs if out.outcome == "edited")
        assert used.reason == "prepared"
        assert driver.count("prepared", result="used") == 1
        assert violations(used.body, "anthropic") == ()


def test_a_prepared_summary_of_a_rewritten_history_is_not_used():
    with Driver(ask=SummaryWriter(), soft=0.3, hard=0.9) as driver:
        driver(chat_request(20), "openai_chat")
        driver.finish_background_work()
        assert driver.count("prepared", result="ready") == 1
        out = driver(rewritten(chat_request(40)), "openai_chat")
        assert out.reason == "hard"
        assert driver.count("prepared", result="stale") == 1


def test_compaction_proceeds_without_a_summary_that_takes_too_long():
    writer = SummaryWriter(delay=3_600.0)
    with Driver(ask=writer, summary_timeout_seconds=1.0) as driver:
        out = driver(anthropic_request(60))
        assert out.reason == "hard" and out.tokens_after < 20_000
        assert len(writer.asked) == 1


# --- what pays ------------------------------------------------------------------------------------

CHEAP = Rates(1.0, 5.0, 0.1, 1.25, lifetime=300.0)
DEAR = Rates(1.0, 5.0, 0.01, 1.25, lifetime=300.0)
WIDE = {"claude-opus-5-5": Window(1_000_000)}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def sum_bill(outs: Sequence[Outgoing], rates: Rates) -> float:
    """What requests cost whose cache is alive, in characters of plain input: what begins as the one before is read."""
    total, last = 0.0, list[Any]()
    for out in outs:
        now = entries(out.body)
        same = next(
            (at for at, (a, b) in enumerate(zip(last, now, strict=False)) if a != b),
            min(len(last), len(now)),
        )
        total += rates.r * len(json.dumps(now[:same])) + rates.w * len(json.dumps(now[same:]))
        last = now
    return total


def session(steps: int, driver: Driver) -> list[Outgoing]:
    return [driver(anthropic_request(n, mark=False, repeat=5)) for n in range(0, steps, 3)]


def test_below_the_hard_level_a_session_is_compacted_if_that_pays():
    """A long session costs less, with few breaks of the cache; the decision says why."""
    with Driver(windows=WIDE, economy=True, prices=CHEAP) as driver:
        outs = session(60, driver)
        paid = [out for out in outs if out.reason == "pays"]
        rows = driver.store.ledger()
    with Driver(windows=WIDE, economy=False) as driver:
        plain = session(60, driver)
    assert 1 <= len(paid) <= 10
    assert sum_bill(outs, CHEAP) < 0.75 * sum_bill(plain, CHEAP)
    assert any("pays after" in row.actor and "expected" in row.actor for row in rows)
    assert all(
        economic.body is unedited.body or economic.body == unedited.body
        for economic, unedited in zip(outs[:4], plain[:4], strict=True)
    )


def test_without_known_prices_nothing_is_compacted_below_the_hard_level():
    with Driver(windows={"other": Window(1_000_000)}, economy=True) as driver:
        assert driver(anthropic_request(100, model="other", repeat=5)).outcome == "untouched"


def test_a_session_is_compacted_once_its_cache_has_lapsed():
    clock = Clock()
    with Driver(windows=WIDE, economy=True, prices=DEAR, clock=clock) as driver:
        for steps in range(30, 34):
            out = driver(anthropic_request(steps, repeat=5))
            driver.pipeline.record_answer(
                build_incoming(b""), out, {"input_tokens": out.tokens_after, "output_tokens": 1}
            )
            clock.now += 100
        assert out.outcome == "untouched"
        clock.now += 301
        out = driver(anthropic_request(34, repeat=5))
        assert out.reason == "pays"
        assert any("the cache does not hold it" in row.actor for row in driver.store.ledger())


# --- a provider's own clearing --------------------------------------------------------------------

CLEARING = {
    "edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}]
}


def test_native_context_management_is_requested_if_configured():
    with Driver(native={"anthropic": {"context_management": CLEARING}}) as driver:
        body = anthropic_request(2)
        out = driver(body, headers=[("anthropic-beta", "a-2025")])
        assert (out.outcome, out.reason) == ("edited", "native")
        assert json.loads(out.body) == {**json.loads(body), "context_management": CLEARING}
        assert out.body.endswith(body[1:])
        assert out.headers == (("anthropic-beta", "a-2025,context-management-2025-06-27"),)
        own = anthropic_request(2, context_management={"edits": []})
        assert driver(own).body is own  # the client asks for it itself
        assert driver(chat_request(2), "openai_chat").outcome == "untouched"
        again = driver(body, headers=[("anthropic-beta", "context-management-2025-06-27")])
        assert again.headers == ()
        several = driver(
            body, headers=[("anthropic-beta", "a, b"), ("other", "x"), ("anthropic-beta", "c")]
        )
        assert several.headers == (("anthropic-beta", "a,b,c,context-management-2025-06-27"),)
        long = driver(anthropic_request(60))
        assert long.reason == "hard" and b"context_management" in long.body


# --- many at once ---------------------------------------------------------------------------------


def test_parallel_conversations_do_not_disturb_one_another():
    """A parent and its sub-agents, and other tenants, at the same time: each is sent what it would be sent alone."""
    callers = [
        {
            "credential": credential,
            "headers": [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", agent)],
        }
        for credential in "ab"
        for agent in ("", "one", "two")
    ]

    def alone(caller: dict[str, Any]) -> list[bytes]:
        with Driver() as driver:
            return [driver(anthropic_request(steps), **caller).body for steps in (10, 45, 46)]

    with Driver() as driver:

        async def together_with(caller: dict[str, Any]) -> list[bytes]:
            asked = (build_incoming(anthropic_request(steps), **caller) for steps in (10, 45, 46))
            return [(await driver.pipeline.prepare(each)).body for each in asked]

        async def all_of_them() -> list[list[bytes]]:
            return await asyncio.gather(*map(together_with, callers))

        together = driver.run(all_of_them())
    assert together == [alone(caller) for caller in callers]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "parts", "tool_calls", "id", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
NAMES = [
    "messages",
    "input",
    "contents",
    "tools",
    "system",
    "thread",
    "max_tokens",
    "metadata",
    "generationConfig",
]


@given(
    st.sampled_from(list(FORMATS)), st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6) | JSON
)
def test_arbitrary_json_is_sent_unchanged_and_causes_no_failure(api: str, body: Any):
    """Whatever a client sends goes through as it came; never as an error of our own."""
    raw = json.dumps(body).encode()
    with Driver() as driver:
        out = driver(raw, api)
        assert out.body is raw
        assert out.reason in REASONS
        assert driver.count("failures") == 0


# --- non-destructive, cache: conformance 53 to 57 -------------------------------------------------


def test_conformance_53_a_projection_holds_for_the_prefix_it_was_made_for():
    """Rejected when the source prefix was edited; accepted when only ids and marks were regenerated."""
    with Driver() as driver:
        first = driver(responses_request(60), "openai_responses")
        assert first.reason == "hard"
        value = json.loads(responses_request(60))
        for at, item in enumerate(value["input"]):
            item.update({"id": f"item_{at}", "status": "completed"})
        again = driver(json.dumps(value).encode(), "openai_responses")
        assert (again.reason, again.edits) == ("shown", first.edits)
        value["input"][0]["content"][0]["text"] = "Another task."
        del value["input"][7:]
        assert driver(json.dumps(value).encode(), "openai_responses").outcome == "untouched"


def test_conformance_54_a_rewind_before_the_compaction_shows_the_original():
    with Driver() as driver:
        out = driver(anthropic_request(60))
        (edit,) = out.ticket.view.edits
        before = anthropic_request(20, mark=False)
        shown = driver(before)
        assert shown.body is before and (shown.outcome, shown.reason) == ("untouched", "")
        longer = driver(anthropic_request(edit.stop // 2 - 2, mark=False))
        assert longer.reason == "hard" and not {*longer.edits} & {*out.edits}
        assert driver(anthropic_request(60)).edits == out.edits


def test_conformance_55_two_runs_send_the_same_bytes():
    def run() -> list[bytes]:
        with Driver(MemoryStore()) as driver:
            return [driver(anthropic_request(steps)).body for steps in range(0, 90, 10)]

    assert run() == run()


def test_conformance_57_one_pass_breaks_the_cached_prefix_once():
    with Driver() as driver:
        last, breaks = list[Any](), 0
        for steps in range(60):
            out = driver(anthropic_request(steps, mark=False))
            now = entries(out.body)
            breaks += now[: len(last)] != last
            last = now
        hard = driver.count("requests", reason="hard")
        assert 1 <= hard <= 6
        assert breaks == hard


# --- books ----------------------------------------------------------------------------------------


def test_counters_are_added_up_by_name_and_labels():
    counters = Counters()
    counters.add("requests", api="gemini", reason="")
    counters.add("requests", 2, reason="hard", api="gemini")
    assert counters.get("requests") == 3
    assert counters.get("requests", reason="hard") == 2
    assert counters.values()["requests", (("api", "gemini"), ("reason", "hard"))] == 2


def test_conversations_that_are_not_used_are_forgotten_and_found_again_in_the_store():
    with Driver(conversations=2) as driver:
        first = driver(anthropic_request(60), credential="a")
        for credential in "bcd":
            driver(anthropic_request(1), credential=credential)
        assert len(driver.pipeline.conversations) == 2
        again = driver(anthropic_request(60), credential="a")
        assert (again.reason, again.body) == ("shown", first.body)


def test_a_compactor_keeps_only_fingerprints_of_request_entries():
    """A span of a request would keep the whole request alive: what is remembered are fingerprints."""
    compactor = Compactor((), Budget(10**9, 10))
    for steps in range(3):
        compactor(anthropic_request(steps))
    (state,) = compactor._cache._states
    assert all(isinstance(entry, bytes) and len(entry) <= 32 for entry in state.entries)


def test_moved_cache_marks_do_not_change_the_identity_of_messages():
    compactor = Compactor((), Budget(10**9, 10))
    first, second = compactor(anthropic_request(5)), compactor(anthropic_request(6))
    assert second.transcript.messages[10] is first.transcript.messages[10]
    assert (
        second.transcript.tips
        == Transcript.of(open_payload(anthropic_request(6, mark=False)).decode()).tips
    )


@pytest.mark.parametrize(
    ("reason", "fields"),
    [("delta", {"previous_response_id": "r", "input": "Go on."}), ("empty", {"input": []})],
)
def test_a_request_that_passes_once_read_names_its_model(reason: str, fields: dict[str, Any]):
    """The access log lacked it."""
    body = json.dumps({"model": "gpt-5.1", **fields}).encode()
    with Driver() as driver:
        out = driver(body, "openai_responses")
        assert (out.reason, out.model, out.body) == (reason, "gpt-5.1", body)
