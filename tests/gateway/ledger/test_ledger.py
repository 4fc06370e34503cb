"""The net ledger: what calls were billed, what they would have cost without Refold, and that it
adds up."""

import asyncio
import itertools
import json
import sqlite3
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.budget.planner import (
    EXACT_BUCKETS,
    MIN_BUCKET_COUNT,
    CallCounts,
    bucket_of,
    estimate_remaining_calls,
)
from refold.core.strategy import Answer, Ask
from refold.errors import StoreError
from refold.gateway.exchange import Incoming, Outgoing
from refold.gateway.ledger.accounting import (
    Accounting,
    BilledCall,
    RatesOf,
    SummaryCost,
    compute_cost,
    has_hour_cache,
    read_billed_tokens,
)
from refold.gateway.ledger.calls import CallLog
from refold.gateway.ledger.entry import (
    DOLLAR,
    FIGURES,
    MONEY_FIELDS,
    Entry,
    EntryKey,
    Sums,
    Tokens,
    build_report,
    floor_to_hour,
    report_as_json,
)
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.sql import ADD, MIGRATIONS, PAGE, Ledger
from refold.gateway.ledger.writer import (
    LEDGER_ID,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    LedgerWriter,
    open_ledger,
    open_ledger_database,
    open_transcripts,
)
from refold.gateway.logs import JSONFormatter
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.compaction import find_request_rates
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.settings import Settings
from refold.stores.sql import Database
from refold.stores.store import MemoryStore
from refold.tokens.model_table import Rates, Window, find_rates
from refold.tokens.usage import Usage

RATES = Rates(2.0, 10.0, 0.2, 2.5)
WORDS = "one two three four five six seven eight nine ten " * 40


def chat(steps: int, *, again: Sequence[int] = (), words: str = WORDS, model: str = "m") -> bytes:
    """Return a session of this many calls. Those in *again* read the first file once more."""
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Fix the bug."},
    ]
    for i in range(steps):
        path = "f0.py" if i in again else f"f{i}.py"
        function = {"name": "read", "arguments": json.dumps({"path": path})}
        call = {"id": f"c{i}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i}\n{words}"})
    return json.dumps({"model": model, "messages": messages}).encode()


class Provider:
    """Bills like a provider with a prompt cache: it reads the longest prefix seen within *lifetime*
    seconds and writes the rest. It counts ten percent more tokens than characters over four."""

    def __init__(self, lifetime: float = 300.0) -> None:
        self.lifetime, self.written_at = lifetime, dict[int, float]()

    def usage(self, body: bytes, when: float) -> dict[str, Any]:
        messages = [str(message) for message in json.loads(body)["messages"]]
        sizes = [round(len(message) / 4 * 1.1) for message in messages]
        beginnings = list(itertools.accumulate(messages, lambda *texts: hash(texts), initial=0))[1:]
        alive = (
            n
            for n in range(len(messages), 0, -1)
            if self.written_at.get(beginnings[n - 1], -1e9) >= when - self.lifetime
        )
        hit = next(alive, 0)
        self.written_at |= dict.fromkeys(beginnings, when)
        read = sum(sizes[:hit])
        details = {"cached_tokens": read, "cache_write_tokens": sum(sizes) - read}
        return {
            "prompt_tokens": sum(sizes),
            "completion_tokens": 50,
            "prompt_tokens_details": details,
        }


class ByTime(Provider):
    """Reports cache writes by lifetime as Anthropic does: a quarter is for an hour."""

    def usage(self, body: bytes, when: float) -> dict[str, Any]:
        details = super().usage(body, when)["prompt_tokens_details"]
        written = details["cache_write_tokens"]
        hour = written // 4
        return {
            "input_tokens": 0,
            "cache_read_input_tokens": details["cached_tokens"],
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written - hour,
                "ephemeral_1h_input_tokens": hour,
            },
            "output_tokens": 50,
        }


def merge_entries(
    entries: Iterable[Entry], into: Mapping[EntryKey, Sums] | None = None
) -> dict[EntryKey, Sums]:
    """Add *entries* up by key, together with existing ones."""
    sums_by_key = dict(into or {})
    for key, sums in entries:
        sums_by_key[key] = sums_by_key[key] + sums if key in sums_by_key else sums
    return sums_by_key


class Book:
    """A ledger in memory that fails a given number of times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.entries, self.closed = failures, dict[EntryKey, Sums](), False
        self.reached = Counter[int]()
        self.tables: Database | None = None

    def add(self, entries: dict[EntryKey, Sums], reached: Any = None, *_: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is full")
        self.entries = merge_entries(entries.items(), self.entries)
        self.reached.update(reached or {})

    def survival(self) -> CallCounts:
        return CallCounts(self.reached)

    def close(self) -> None:
        self.closed = True
        if self.tables is not None:
            self.tables.close()

    @property
    def total(self) -> Sums:
        return sum(self.entries.values(), Sums())


def make_writer(rates: RatesOf, book: Book, counters: Counters) -> LedgerWriter:
    """Return a writer of *book*, with tables of sessions that nobody reads."""
    database = book.tables = open_ledger_database(":memory:")
    parts = Sessions(database, time.time), CallLog(database), counters
    transcripts = open_transcripts(":memory:", None, time.time)
    return LedgerWriter(Accounting(rates), book, *parts, transcripts, pause=0.0)


class Gateway:
    """A pipeline with its ledger, and two providers: one gets the edited requests, the other the
    original ones."""

    def __init__(self, rates: Rates | None = RATES, **settings: Any) -> None:
        self.now = 1_000_000.0
        self.book, self.counters = Book(), Counters()
        prices = rates if rates is not None else lambda model: None
        base = {
            "windows": {"m": Window(20_000)},
            "economy": False,
            "prices": prices,
            "clock": lambda: self.now,
        }
        self.settings = Settings(**{**base, **settings})
        self.writer = make_writer(lambda model: rates, self.book, self.counters)
        self.pipeline = Pipeline(self.settings, MemoryStore(), self.counters, self.writer)
        self.sent, self.unedited, self.truth = Provider(), Provider(), Sums()
        self.rates = rates or RATES
        self.loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self.pipeline.aclose())
        self.loop.close()

    def call(
        self, body: bytes, *, seconds: float = 10.0, usage: bool = True, **fields: Any
    ) -> Outgoing:
        self.now += seconds
        incoming = Incoming(
            "openai_chat", "up", "/v1/chat/completions", (), body, "tenant", **fields
        )
        out = self.loop.run_until_complete(self.pipeline.prepare(incoming))
        reported = self.sent.usage(out.body, self.now)
        would_be = read_billed_tokens(self.unedited.usage(body, self.now))
        assert would_be is not None
        self.truth += Sums(
            would_fresh=would_be.fresh, would_read=would_be.read, would_written=would_be.written
        )
        self.truth += Sums(would_cost=sum(compute_cost(would_be, self.rates)))
        self.pipeline.record_answer(incoming, out, reported if usage else None)
        return out

    def idle(self) -> None:
        """Wait for background work."""

        async def settle() -> None:
            await asyncio.gather(*self.pipeline.background.tasks)

        self.loop.run_until_complete(settle())

    def close(self) -> Sums:
        self.loop.run_until_complete(self.pipeline.aclose())
        return self.book.total


# --- bills ----------------------------------------------------------------------------------------


def test_every_token_is_billed_once_and_a_call_with_a_long_prompt_costs_more():
    rates = Rates(2.0, 10.0, 0.2, 2.5, cliffs=((1_000, 5.0, 3.0),))
    low, high = Tokens(100, 200, 300, 50), Tokens(1_000, 2_000, 3_000, 50)
    assert compute_cost(low, rates) == (200_000_000, 40_000_000, 750_000_000, 500_000_000)
    assert compute_cost(high, rates) == (
        10_000_000_000,
        2_000_000_000,
        37_500_000_000,
        1_500_000_000,
    )
    assert compute_cost(Tokens(output=1_000_000), rates).output == 10 * DOLLAR


def test_all_iterations_of_a_call_are_billed():
    """Anthropic's top-level usage leaves out its own compaction."""
    first = {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}
    second = {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000}
    usage = {"input_tokens": 23_000, "output_tokens": 1_000, "iterations": [first, second]}
    assert read_billed_tokens(usage) == Tokens(203_000, 0, 0, 4_500)
    assert read_billed_tokens({"iterations": [], "input_tokens": 5, "output_tokens": 2}) == Tokens(
        5, 0, 0, 2
    )
    assert (
        read_billed_tokens(None)
        is read_billed_tokens({})
        is read_billed_tokens({"iterations": [None, {}]})
        is read_billed_tokens({"iterations": [{"input_tokens": 10**9}] * 2})
        is None
    )


SPLIT = {
    "cache_creation": {"ephemeral_5m_input_tokens": 100_000, "ephemeral_1h_input_tokens": 10_000}
}
WRITTEN = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 110_000,
    "cache_read_input_tokens": 0,
    "output_tokens": 10,
}
HOUR = {"type": "ephemeral", "ttl": "1h"}
FIVE = {"type": "ephemeral", "ttl": "5m"}


def mark_request(*marks: dict[str, str]) -> bytes:
    """Return a request with these cache marks, the first on the system prompt."""
    texts = [{"type": "text", "text": WORDS, "cache_control": mark} for mark in marks]
    messages = [{"role": "user", "content": texts[1:] or "hi"}]
    return json.dumps(
        {"model": "claude-opus-4-5", "messages": messages, "system": texts[:1]}
    ).encode()


@pytest.mark.parametrize(
    ("usage", "marks", "dollars"),
    [
        ({**WRITTEN, **SPLIT}, (HOUR, FIVE), 0.725),
        ({**WRITTEN, **SPLIT}, (HOUR, HOUR), 0.725),
        ({**WRITTEN, **SPLIT}, (), 0.725),
        (WRITTEN, (HOUR, HOUR), 1.1),
        (WRITTEN, (HOUR, FIVE), 0.6875),
        (WRITTEN, (HOUR, {"type": "ephemeral"}), 0.6875),
        (WRITTEN, (), 0.6875),
    ],
)
def test_five_minute_and_one_hour_cache_writes_have_their_own_prices(
    usage: dict[str, Any], marks: Any, dollars: float
):
    """The usage decides. Without it the request's marks do: a mark for an hour never follows one
    for five minutes."""
    rates = find_rates("claude-opus-4-5")
    assert rates is not None and (rates.write, rates.hour) == (6.25, 10)
    incoming = Incoming("anthropic", "up", "/v1/messages", (), mark_request(*marks), "t")
    _, sums = Accounting(find_rates).book(BilledCall(0.0, incoming, Outgoing(b""), usage, "t"))
    assert sums.cost_written == dollars * DOLLAR
    assert sums.written == sums.would_written == 110_000 and sums.would_cost == sums.cost


def test_one_hour_cache_writes_without_their_own_price_cost_the_write_price():
    assert compute_cost(Tokens(written=1_000, written_for_hour=400), RATES).written == 2_500_000_000
    assert (
        compute_cost(
            Tokens(written=1_000, written_for_hour=400), Rates(2.0, 10.0, 0.2, 2.5, hour=4.0)
        ).written
        == 3_100_000_000
    )


@pytest.mark.parametrize(
    ("body", "hour"),
    [
        (mark_request(HOUR), True),
        (mark_request(HOUR, HOUR), True),
        (mark_request(HOUR, FIVE), False),
        (mark_request(HOUR, {"type": "ephemeral"}), False),
        (mark_request(), False),
        (
            json.dumps(
                {"messages": [{"role": "user", "content": json.dumps({"cache_control": HOUR})}]}
            ).encode(),
            False,
        ),
    ],
)
def test_rates_for_compaction_follow_the_cache_lifetime_of_the_request(body: bytes, hour: bool):
    """A compaction rewrites the end of the request, where a five-minute mark applies."""
    assert has_hour_cache(body) is hour
    rates = find_request_rates(Settings(), "claude-opus-4-5", body)
    assert rates is not None
    assert (rates.write, rates.lifetime) == ((10, 3_600.0) if hour else (6.25, 300.0))


# --- the counterfactual -----------------------------------------------------------------------------

USAGES = st.builds(
    lambda fresh, read, written, output: {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": output,
    },
    *(st.integers(0, 200_000) for _ in range(4)),
).filter(lambda usage: sum(usage.values()) > usage["output_tokens"])


@given(
    st.lists(st.tuples(USAGES, st.integers(0, 12), st.floats(0, 1_000)), min_size=1, max_size=12)
)
def test_without_edits_the_counterfactual_equals_the_bill(calls):
    """This holds for any usage, rewind and pause."""
    accounts, when, total = Accounting(lambda model: RATES), 0.0, Sums()
    for usage, steps, pause in calls:
        when += pause
        pipeline = Pipeline(
            Settings(windows={"m": Window(10**7)}, economy=False, decide_timeout_seconds=60),
            MemoryStore(),
        )
        incoming = Incoming(
            "openai_chat", "up", "/v1/chat/completions", (), chat(steps, words="x"), "t"
        )
        out = asyncio.run(pipeline.prepare(incoming))
        ticket = out.ticket
        call = BilledCall(
            when, incoming, out, usage, "t", "s", "m", ticket.view if ticket else None, 10**7
        )
        total += accounts.book(call)[1]
        asyncio.run(pipeline.aclose())
    assert total.would_fresh == total.fresh
    assert (total.would_read, total.would_written) == (total.read, total.written)
    assert total.would_cost == total.cost and total.saved == 0
    assert total.avoided == total.refetches == total.edited == 0
    assert total.input == sum(u["input_tokens"] + u["cache_read_input_tokens"] + u["cache_creation_input_tokens"] for u, _, _ in calls)  # fmt: skip


@pytest.mark.parametrize("pause", [10.0, 1_000.0])
def test_the_counterfactual_is_what_a_provider_would_have_billed(pause: float):
    """A provider that got the unedited requests would bill our estimate, within three percent,
    whether the cache is always warm or always expired."""
    with Gateway() as gateway:
        for steps in range(1, 90, 2):
            out = gateway.call(chat(steps), seconds=pause)
        assert out.outcome == "edited"
        total, truth = gateway.close(), gateway.truth
    assert total.calls == 45 and 0 < total.edited < 45
    for name in ("would_input", "would_cost"):
        assert getattr(total, name) == pytest.approx(getattr(truth, name), rel=0.03)
    if pause < 300:
        assert total.would_read == pytest.approx(truth.would_read, rel=0.03)
        assert total.would_written == pytest.approx(truth.would_written, rel=0.1)
    else:
        assert total.would_read == truth.would_read == 0
    assert total.saved == total.would_cost - total.cost > 0


def test_the_counterfactual_has_the_same_share_of_one_hour_cache_writes():
    rates = Rates(2.0, 10.0, 0.2, 2.5, hour=4.0)
    with Gateway(rates) as gateway:
        gateway.sent, gateway.unedited = ByTime(), ByTime()
        for steps in range(1, 60):
            gateway.call(chat(steps))
        total, truth = gateway.close(), gateway.truth
    assert total.edited > 0
    assert total.would_cost == pytest.approx(truth.would_cost, rel=0.03)
    assert total.cost_written == pytest.approx(total.written * 2.875 * 1e6, rel=0.001)


def test_a_session_that_compaction_made_dearer_is_shown_as_a_loss():
    """The cache was broken, and the session ended before the saving made up for it."""
    with Gateway() as gateway:
        for steps in range(1, 90):
            if gateway.call(chat(steps)).edits:
                break
        total, truth = gateway.close(), gateway.truth
        report = build_report(gateway.book.entries.items(), "session")
    assert total.edited == 1 and total.saved < 0
    assert total.would_cost == pytest.approx(truth.would_cost, rel=0.03)
    assert report_as_json(report)["rows"][0]["saved"] < 0


def test_after_a_restart_the_counterfactual_keeps_the_share_of_cached_tokens():
    """After a restart the calls before are unknown."""
    with Gateway() as gateway:
        for steps in range(1, 60, 2):
            gateway.call(chat(steps))
        gateway.writer.close()
        accounts = Accounting(lambda model: RATES)
        incoming = Incoming("openai_chat", "up", "/v1/chat/completions", (), chat(60), "tenant")
        out = gateway.loop.run_until_complete(gateway.pipeline.prepare(incoming))
        usage = gateway.sent.usage(out.body, gateway.now)
        _, sums = accounts.book(
            BilledCall(gateway.now, incoming, out, usage, "t", "s", "m", out.ticket.view)
        )
    assert out.edits and sums.would_input > 1.5 * sums.input
    assert sums.would_read / sums.would_input == pytest.approx(sums.read / sums.input, abs=0.01)


def test_calls_that_would_have_exceeded_the_window_are_counted_separately():
    with Gateway() as gateway:
        for steps in range(1, 46):
            gateway.call(chat(steps))
        total = gateway.close()
    assert 0 < total.avoided < total.edited
    assert total.avoided_saved != 0


def test_shadow_mode_changes_nothing_and_estimates_the_bill_with_edits():
    """The estimate equals the bill of the same session with its edits, within three percent."""
    with Gateway() as real, Gateway(shadow=True) as shadow:
        for steps in range(1, 64, 2):
            body = chat(steps)
            real.call(body)
            assert shadow.call(body).body is body
        sent, total = real.close(), shadow.close()
        (line,) = build_report(shadow.book.entries.items(), "model").lines
    assert {key.basis for key in shadow.book.entries} <= {"shadow", "reported"}
    assert line.shadow.edited == sent.edited > 0
    assert total.would_cost == shadow.truth.would_cost
    for name in ("input", "read", "cost"):
        assert getattr(total, name) == pytest.approx(getattr(sent, name), rel=0.03)
    shadow_total = report_as_json(build_report(shadow.book.entries.items(), "model"))["total"][
        "shadow"
    ]
    assert shadow_total["cost"] > shadow_total["cost_with_edits"] > 0


def test_a_context_error_in_shadow_mode_is_not_retried():
    body = chat(60)
    with Gateway(shadow=True) as gateway:
        incoming = Incoming("openai_chat", "up", "/v1/chat/completions", (), body, "tenant")
        out = gateway.call(body)
        retried = gateway.loop.run_until_complete(
            gateway.pipeline.shrink(incoming, out, b"context_length_exceeded")
        )
    assert out.outcome == "shadow" and out.body is body and retried is None


# --- refetches ------------------------------------------------------------------------------------


def test_a_hidden_result_that_is_fetched_again_is_charged_as_a_refetch():
    with Gateway() as gateway:
        steps = 0
        while not gateway.call(chat(steps := steps + 1)).edits:
            pass
        again = (steps, steps + 1)
        gateway.call(chat(steps + 1, again=again))
        gateway.call(
            chat(steps + 2, again=again)
        )  # now it is visible, so the request is unnecessary
        total = gateway.close()
    assert total.refetches == 1 and total.refetched > 300
    assert 0 < total.refetch_cost < total.would_cost
    assert total.saved == total.would_cost - total.refetch_cost - total.cost


def test_repeated_calls_whose_results_are_visible_are_not_refetches():
    with Gateway() as gateway:
        for steps in range(1, 9):
            gateway.call(chat(steps, again=range(1, 9)))
        assert gateway.close().refetches == 0


# --- unknown usage ------------------------------------------------------------------------------


def test_calls_without_usage_are_listed_separately_and_without_cost():
    with Gateway() as gateway:
        for steps in range(1, 60, 2):
            gateway.call(chat(steps), usage=steps % 3 > 0)
        gateway.close()
        report = build_report(gateway.book.entries.items())
    line = report.total
    assert line.sums.calls == 20 and line.unreported.calls == 10
    assert line.unreported.fresh > 0 and line.unreported.would_fresh > line.unreported.fresh
    assert line.unreported.cost == line.unreported.would_cost == line.unreported.output == 0
    assert {key.basis for key in gateway.book.entries} == {"reported", "estimated"}


def test_calls_of_models_without_a_price_have_tokens_but_no_cost():
    with Gateway(None) as gateway:
        for steps in range(1, 60, 2):
            gateway.call(chat(steps))
        total = gateway.close()
    assert total.unpriced == total.calls == 30
    assert total.would_input > total.input > 0
    assert total.cost == total.would_cost == total.saved == 0


def test_calls_outside_conversations_are_billed_and_save_nothing():
    """These are titles, deltas and unreadable requests. The bill must be complete."""
    title = {"model": "m", "messages": [{"role": "system", "content": "You are a title generator"}, {"role": "user", "content": "x"}]}  # fmt: skip
    with Gateway() as gateway:
        assert gateway.call(json.dumps(title).encode()).ticket is None
        total = gateway.close()
        ((key, _),) = gateway.book.entries.items()
    assert (key.session, key.model) == ("", "m") and key.tenant
    assert total.calls == 1 and total.cost == total.would_cost > 0


def test_only_the_model_is_read_of_a_request_that_passed_unread():
    """Booking 25 MB of small values held up all requests of a process for eight seconds."""
    body = b'{"messages": [%s], "model": "m"}' % b",".join([b"{}"] * 700_000)
    incoming = Incoming("openai_chat", "up", "/v1/chat/completions", (), body, "tenant")
    call = BilledCall(0.0, incoming, Outgoing(body), None, "tenant")
    tracemalloc.start()
    try:
        key, _ = Accounting(lambda _: RATES).book(call)
        assert tracemalloc.get_traced_memory()[1] < len(body)  # 24 times as many if parsed
    finally:
        tracemalloc.stop()
    assert key.model == "m"


@pytest.mark.parametrize("status", [301, 400, 429, 500, 0])
def test_a_failed_call_is_not_billed(status: int):
    with Gateway() as gateway:
        incoming = Incoming("openai_chat", "up", "/v1/chat/completions", (), chat(2), "tenant")
        out = gateway.loop.run_until_complete(gateway.pipeline.prepare(incoming))
        gateway.pipeline.record_answer(incoming, out, None, status)
        assert gateway.close() == Sums()


# --- summaries --------------------------------------------------------------------------------------


async def summary(question: Ask) -> Answer:
    return Answer(
        "Everything so far was read and nothing was found.",
        usage=Usage(9_000, 100),
        calls=1,
        cost=0.25,
        model="small",
    )


def test_summaries_are_booked_with_the_conversation_they_were_for():
    with Gateway(ask=summary, soft=0.5) as gateway:
        for steps in range(1, 60, 2):
            gateway.call(chat(steps))
        gateway.idle()  # an interrupted one is requested and costs nothing
        total = gateway.close()
        sessions = {key.session for key in gateway.book.entries}
        models = {key.model for key in gateway.book.entries}
    assert total.summaries > 0 and total.summary_cost == total.summaries * DOLLAR // 4
    assert total.saved == total.would_cost - total.refetch_cost - total.cost - total.summary_cost
    assert len(sessions) == 1 and models == {"m"}


def test_a_summary_without_a_price_is_counted_as_unpriced():
    done = SummaryCost(0.0, "t", "s", "m", 3, 0.0)
    assert Accounting(lambda model: RATES).book(done)[1] == Sums(summaries=3, summaries_unpriced=3)


# --- sums ---------------------------------------------------------------------------------------------

KEYS = st.builds(
    EntryKey,
    st.integers(0, 400_000).map(lambda when: floor_to_hour(float(when))),
    st.sampled_from("ab"),
    st.sampled_from(["", "s", "t"]),
    st.sampled_from(["", "m", "n"]),
    st.sampled_from(["reported", "estimated"]),
)
SUMS = st.builds(Sums, **{name: st.integers(-(10**12), 10**12) for name in FIGURES})
ENTRIES = st.lists(st.tuples(KEYS, SUMS), max_size=8)


@given(ENTRIES, st.sampled_from(["session", "model", "day"]))
def test_rows_add_up_to_the_total_and_parts_to_the_row(entries, by):
    report = build_report(entries, by)
    for name in (*FIGURES, "saved", "cost", "input", "would_input"):
        assert sum(getattr(line.sums, name) for line in report.lines) == getattr(
            report.total.sums, name
        )
        whole = sum(getattr(sums, name) for key, sums in entries if key.basis == "reported")
        assert getattr(report.total.sums, name) == whole
    for line in (*report.lines, report.total):
        sums = line.sums
        assert sums.cost == sums.cost_fresh + sums.cost_read + sums.cost_written + sums.cost_output
        assert sums.saved + sums.cost + sums.summary_cost + sums.refetch_cost == sums.would_cost
    assert sum(line.unreported.calls for line in report.lines) == report.total.unreported.calls
    assert {row["name"] for row in report_as_json(report)["rows"]} == {
        line.name for line in report.lines
    }
    assert set(MONEY_FIELDS) <= set(report_as_json(report)["total"])


@given(ENTRIES, ENTRIES)
def test_entries_of_several_writes_are_added_up(first, second):
    with_both = open_ledger(":memory:")
    for entries in (first, second):
        with_both.add(merge_entries(entries))
    assert dict(with_both.entries()) == merge_entries([*first, *second])
    late = dict(with_both.entries(200_000))
    assert late == {key: sums for key, sums in with_both.entries() if key.hour >= 200_000}
    with_both.close()


@given(ENTRIES, st.lists(st.sampled_from(["", "s", "t", "unknown", "' OR 1=1 --"]), max_size=6))
def test_sum_sessions_returns_the_sums_of_the_sessions_entries(entries, asked):
    ledger = open_ledger(":memory:")
    ledger.add(merge_entries(entries))
    wanted = dict[str, dict[str, Sums]]()
    for key, sums in entries:
        if key.session and key.session in asked:
            by_basis = wanted.setdefault(key.session, {"reported": Sums(), "estimated": Sums()})
            by_basis[key.basis] += sums
    booked = ledger.sum_sessions(iter(asked))
    assert {
        name: {"reported": calls.reported, "estimated": calls.unreported}
        for name, calls in booked.items()
    } == wanted
    ledger.close()


def lines(count: int) -> dict[EntryKey, Sums]:
    """Return this many ledger lines of an hour each, of several tenants and models, with a thousand
    sessions among them."""
    keys = (
        EntryKey(n % 7 * 3_600, f"t{n % 3}", f"s{n % 1_000}", f"m{n}", "reported")
        for n in range(count)
    )
    return {key: Sums(calls=1, would_cost=n) for n, key in enumerate(keys)}


@pytest.mark.parametrize("count", [PAGE - 1, PAGE, 2 * PAGE + 1])
def test_a_ledger_of_many_pages_is_read_once_and_in_order(count):
    ledger, booked = open_ledger(":memory:"), lines(count)
    ledger.add(booked)
    assert list(ledger.entries()) == sorted(booked.items(), key=lambda entry: entry[0])
    assert [key for key, _ in ledger.entries(7_200)] == sorted(
        key for key in booked if key.hour >= 7_200
    )
    asked = [f"s{n}" for n in range(1_200)]
    assert (
        sum(calls.reported.would_cost for calls in ledger.sum_sessions(asked).values())
        == count * (count - 1) // 2
    )
    ledger.close()


def test_a_report_is_made_without_the_whole_ledger_in_memory():
    """Entries are added up one after another, and none is kept."""
    alive = set[int]()

    class Counted(Sums):
        __slots__ = ("__weakref__",)

    def entries():
        for n in range(500):
            sums = Counted(calls=1)
            alive.add(n)
            weakref.finalize(sums, alive.discard, n)
            yield EntryKey(n * 3_600, "t", f"s{n % 5}", "m", "reported"), sums
            del sums
            assert len(alive) < 5

    report = build_report(entries(), "model")
    assert (report.total.sums.calls, report.total.sessions, len(report.lines)) == (500, 5, 1)


@pytest.mark.parametrize("count", [0, 4_000])
def test_summing_a_session_does_not_depend_on_the_size_of_the_ledger(count):
    """The work is counted in steps of SQLite's virtual machine."""
    ledger, steps = open_ledger(":memory:"), itertools.count()
    ledger.add(lines(count) | {EntryKey(0, "t", "mine", "m", "reported"): Sums(calls=3)})
    with ledger._database.connection("read") as connection:
        connection.set_progress_handler(lambda: next(steps) and None, 10)
    assert ledger.sum_sessions(["mine"])["mine"].reported == Sums(calls=3)
    assert next(steps) < 100
    ledger.close()


def test_a_ledger_of_an_older_version_is_migrated(tmp_path):
    path, booked = tmp_path / "refold.db.ledger", lines(3)
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in (
            *MIGRATIONS[0],
            f"PRAGMA application_id = {LEDGER_ID}",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
        rows = [(*key, *sums.values()) for key, sums in booked.items()]
        connection.executemany(ADD, rows)
    ledger = open_ledger(str(tmp_path / "refold.db"))
    assert dict(ledger.entries()) == booked
    assert ledger.sum_sessions(["s1"])["s1"].reported == Sums(calls=1, would_cost=1)
    with ledger._database.connection("read") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (8,)
        assert connection.execute("PRAGMA index_info(refold_calls_by_latest)").fetchall()
    ledger.close()


def test_several_writers_add_to_one_ledger_file(tmp_path):
    """Two gateways with one store write at the same time, and a report may be read meanwhile."""
    store, key, one_call = (
        str(tmp_path / "refold.db"),
        EntryKey(0, "t", "s", "m", "reported"),
        Sums(calls=1, fresh=3),
    )

    def work() -> None:
        ledger = open_ledger(store)
        for _ in range(50):
            ledger.add({key: one_call})
        ledger.close()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    reader = open_ledger(store)
    seen = [sum(sums.calls for _, sums in reader.entries()) for _ in range(20)]
    for worker in workers:
        worker.join()
    assert seen == sorted(seen)
    assert dict(reader.entries()) == {key: Sums(calls=150, fresh=450)}
    reader.close()


# --- no blocking --------------------------------------------------------------------------------------


def test_a_failing_ledger_loses_no_entry_and_stops_no_request(caplog):
    with Gateway() as gateway:
        gateway.book.failures = 3
        for steps in range(1, 9):
            assert gateway.call(chat(steps)).outcome == "untouched"
        while gateway.book.failures:
            gateway.call(chat(9))
        total = gateway.close()
    assert total.calls >= 8 and total.cost == total.would_cost
    assert gateway.counters.get("ledger_failures", doing="write") == 3
    assert gateway.book.closed
    lines = [
        json.loads(JSONFormatter().format(record))
        for record in caplog.records
        if record.name == "refold.gateway"
    ]
    assert [(line["event"], line["doing"], line["error"]) for line in lines] == [
        ("the net ledger failed", "write", "StoreError")
    ] * 3
    assert all(line["at"] for line in lines)
    assert {line["message"] for line in lines} == {"the disk is full"} and "bug" not in str(lines)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_batch_whose_commit_reply_is_lost_is_booked_once(tmp_path, kind, request):
    """The connection broke between a commit and its reply, and the retry added tokens and money
    again."""

    class Unanswered(Ledger):
        times = 0

        def add(self, *batch: Any) -> None:
            super().add(*batch)
            self.times += 1
            if self.times < 4:
                writer.book(cost)  # entries that arrive meanwhile are booked, too
                raise StoreError("the server does not answer")

    place = request.getfixturevalue("url") if kind == "postgresql" else str(tmp_path / "a.db")
    database, counters = open_ledger_database(place), Counters()
    ledger, parts = Unanswered(database), (Sessions(database, time.time), CallLog(database))
    transcripts = open_transcripts(":memory:", None, time.time)
    writer = LedgerWriter(
        Accounting(lambda _: RATES), ledger, *parts, counters, transcripts, pause=0.0
    )
    cost = SummaryCost(0.0, "t", "s", "m", 1, 0.5)
    writer.book(cost)
    writer.close(300)
    assert counters.get("ledger_failures", doing="write") == 3
    with closing(open_ledger(place)) as reader:
        assert sum((sums for _, sums in reader.entries()), Sums()).summaries == 4


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_line_with_an_invalid_value_does_not_stop_the_lines_behind_it(tmp_path, kind, request):
    """Its batch was tried again for ever, and nothing more was booked."""
    place = request.getfixturevalue("url") if kind == "postgresql" else str(tmp_path / "a.db")
    database, counters = open_ledger_database(place), Counters()
    parts = Ledger(database), Sessions(database, time.time), CallLog(database)
    transcripts = open_transcripts(":memory:", None, time.time)
    writer = LedgerWriter(Accounting(lambda _: RATES), *parts, counters, transcripts, pause=0.0)
    for name, dollars in (("a", 0.5), ("b", 1e9), ("c", 0.5)):
        writer.book(SummaryCost(0.0, "t", "s", name, 1, dollars))
    writer.book(SummaryCost(3_600.0, "t", "s", "d", 1, 0.5))
    writer.close(300)
    assert counters.get("ledger_failures", doing="write") == 1
    with closing(open_ledger(place)) as reader:
        assert [key.model for key, _ in reader.entries()] == ["a", "c", "d"]
        assert not [
            name for (name,) in reader._read("SELECT id FROM refold_batches") if "." in name
        ]


def test_a_call_that_cannot_be_accounted_for_is_counted_and_skipped():
    book, counters = Book(), Counters()

    def broken(model: str) -> Rates:
        raise RuntimeError(model)

    writer = make_writer(broken, book, counters)
    incoming = Incoming("openai_chat", "up", "/v1", (), chat(1), "t")
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    writer.book(BilledCall(0.0, incoming, Outgoing(b""), usage, "t", "s", "m"))
    writer.book(SummaryCost(0.0, "t", "s", "m", 1, 0.5))
    writer.close()
    assert book.total == Sums(summaries=1, summary_cost=DOLLAR // 2)
    assert counters.get("ledger_failures", doing="reckon") == 1


LARGE = Incoming("openai_chat", "up", "/v1", (), b" " * (MAX_WAITING_BYTES // 20), "t")


@pytest.mark.parametrize(
    ("item", "most"),
    [
        (SummaryCost(0.0, "t", "s", "m", 1, 0.5), MAX_WAITING),
        (BilledCall(0.0, LARGE, Outgoing(b""), None, "t", "s", "m"), 20),
    ],
)
def test_entries_beyond_the_queue_limit_are_counted_as_lost(
    item: BilledCall | SummaryCost, most: int
):
    """Only the number of calls used to be limited, and each keeps its request while it waits."""
    counters, going = Counters(), threading.Event()

    class Slow(Book):
        def add(self, entries: dict[EntryKey, Sums], reached: Any = None, *_: Any) -> None:
            going.wait(300)
            super().add(entries, reached)

    book = Slow()
    writer = make_writer(lambda model: RATES, book, counters)
    for _ in range(most + 500):
        writer.book(item)
    lost = counters.get("ledger_lost")
    going.set()
    writer.close(300)
    assert 0 < lost <= 500
    assert book.total.summaries + book.total.calls + lost == most + 500


def test_the_ledger_contains_no_conversation_text(tmp_path):
    store = str(tmp_path / "refold.db")
    ledger = open_ledger(store)
    with Gateway() as gateway:
        for steps in range(1, 46):
            gateway.call(chat(steps, words="geheimnis " * 300))
        gateway.close()
        ledger.add(gateway.book.entries)
    ledger.close()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"geheimnis" not in raw and b"f0.py" not in raw and b"tenant" not in raw.replace(b"tenant TEXT", b"").replace(b"tenant, session", b"").replace(b"session, tenant", b"")  # fmt: skip


def test_a_model_name_is_shortened_and_cleaned_for_the_database():
    name = "m\0\ud800" + "x" * 500
    incoming = Incoming("openai_chat", "up", "/v1", (), json.dumps({"model": name}).encode(), "t")
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    key, sums = Accounting(lambda model: None).book(
        BilledCall(0.0, incoming, Outgoing(b""), usage, "t")
    )
    ledger = open_ledger(":memory:")
    ledger.add({key: sums})
    assert dict(ledger.entries()) == {key: sums} and len(key.model) < 210
    ledger.close()


def test_each_fork_of_a_conversation_is_accounted_for_by_its_own_past():
    """Two alternating branches each read from the cache what their own last call wrote."""
    with Gateway() as gateway:
        for steps in range(1, 42, 2):
            gateway.call(chat(steps))
            gateway.call(chat(steps, words=WORDS + "another"))
        total, truth = gateway.close(), gateway.truth
    assert total.edited > 0
    assert total.would_cost == pytest.approx(truth.would_cost, rel=0.05)


# --- session lengths -----------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
def test_session_length_buckets_are_exact_at_first_and_proportional_later(calls: int):
    start = bucket_of(calls)
    assert start <= calls and bucket_of(start) == start
    assert start == calls if calls <= EXACT_BUCKETS else calls < 1.2 * start


@given(st.lists(st.integers(1, 300), min_size=MIN_BUCKET_COUNT, max_size=80), st.integers(0, 300))
def test_the_expected_remaining_calls_are_the_mean_of_sessions_this_long(
    lengths: list[int], past: int
):
    counts = Counter(bucket_of(t) for length in lengths for t in range(length))
    expected = CallCounts(counts).remaining_calls(past)
    remaining = [length - past for length in lengths if length > past]
    if past < EXACT_BUCKETS and len(remaining) >= MIN_BUCKET_COUNT:
        assert expected == pytest.approx(sum(remaining) / len(remaining))
    elif past < EXACT_BUCKETS:
        assert expected is None


def test_learned_session_lengths_replace_those_of_recorded_sessions():
    short = CallCounts(Counter(bucket_of(t) for _ in range(MIN_BUCKET_COUNT) for t in range(12)))
    assert estimate_remaining_calls(10, short) == 2
    assert estimate_remaining_calls(40, short) == estimate_remaining_calls(40) > 50
    assert (
        estimate_remaining_calls(
            10, CallCounts({10: MIN_BUCKET_COUNT, 5_000: MIN_BUCKET_COUNT * 500})
        )
        == 200
    )


def test_the_gateway_learns_how_long_its_sessions_are():
    with Gateway() as gateway:
        for user in range(MIN_BUCKET_COUNT):
            for steps in range(1, 7):
                body = json.loads(chat(steps, words="x"))
                body["messages"][1]["content"] = f"Fix bug {user}."
                gateway.call(json.dumps(body).encode())
        gateway.writer.close()
        learned = gateway.book.survival()
        again = make_writer(lambda model: RATES, gateway.book, Counters())
        again.start()
        again.close()
    assert learned.counts == dict.fromkeys(range(1, 7), MIN_BUCKET_COUNT)
    assert again.survival.remaining_calls(2) == 5 and again.survival.remaining_calls(20) is None


def test_learned_session_lengths_are_stored_and_added_up():
    ledger = open_ledger(":memory:")
    ledger.add({}, {1: 5, 2: 3})
    ledger.add({}, {2: 4})
    assert ledger.survival() == CallCounts({1: 5, 2: 7})
    ledger.close()
