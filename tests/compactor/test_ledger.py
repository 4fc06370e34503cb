"""The ledger of every attempt, hooks, events and spans."""

import asyncio
import logging
from dataclasses import FrozenInstanceError
from itertools import pairwise

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import refold
from refold.adapters.opentelemetry import spans
from refold.compactor.hooks import (
    CompactionEnded,
    CompactionStarted,
    EditsReverted,
    Instructions,
    PreviewAccepted,
    StrategyTried,
    Veto,
)
from refold.core.strategy import Answer
from refold.stores.store import rows_about
from refold.strategies import ClearToolResults, ClipResults, Summarize
from refold.testing import ScriptedModel
from tests.support.compaction import ModelSummarizer, conversation

FAR = 10**9
SUMMARY = Summarize(keep=6, max_tokens=500, summarizer=ModelSummarizer())


def compactor(strategies=(SUMMARY,), trigger=3_000, target=1_000, **settings) -> refold.Compactor:
    return refold.Compactor(
        strategies, refold.Budget(trigger, target), clock=lambda: 1_700_000_000.0, **settings
    )


@pytest.fixture(params=["memory", "sqlite", "sidecar"])
def store(request, tmp_path):
    stores = {
        "memory": refold.MemoryStore,
        "sqlite": lambda: refold.SQLiteStore(tmp_path / "s.db"),
        "sidecar": lambda: refold.SidecarStore(tmp_path / "s.json"),
    }
    return stores[request.param]()


def test_a_compaction_is_recorded_in_the_ledger_with_all_its_details(store):
    """S2-53: records of each compaction with strategy, reason and cost."""
    answer = Answer("A summary.", model="small-1", calls=2, cost=0.03)
    compact, history = compactor(store=store, ask=ScriptedModel([answer])), conversation(40)
    view = compact(history)
    (row,) = compact.ledger_rows(history)
    assert (row.outcome, row.action, row.actor, row.edit) == (
        "applied",
        "compact",
        "auto",
        view.edits[0].id,
    )
    assert (row.calls, row.cost, row.model, row.prompt) == (2, 0.03, "small-1", "short@1#0a")
    assert (row.by, row.grade, row.when) == (repr(SUMMARY), "lossy", 1_700_000_000.0)
    assert row.before > 3_000 > row.after == view.tokens
    assert row.trigger == f"{row.before} of 3000 tokens"
    assert tuple(store.ledger()) == (row,)


def test_each_edit_has_a_ledger_row_and_its_savings_are_counted_once(store):
    compact, history = (
        compactor([ClearToolResults(keep=3), SUMMARY], target=2_500, store=store),
        conversation(40),
    )
    before, view = compact.check(history).tokens, compact(history)
    rows = compact.ledger_rows(history)
    assert [row.edit for row in rows] == [edit.id for edit in view.edits]
    assert sum(row.before - row.after for row in rows) == before - view.tokens
    assert {row.grade for row in rows if "Clear" in row.by} == {"recoverable"}
    assert len({row.run for row in rows}) == 1
    assert store.ledger(view.edits[1].id) == rows[1:2]


def test_f17_savings_of_edits_hidden_by_a_summary_are_counted_in_other_rows(store):
    """A history's first row once began 721 tokens below the session's tokens in `refold
    compact`."""
    steps = (ClearToolResults(keep=1), Summarize(keep=4))
    compact, history = compactor(steps, target=300, store=store), conversation(40)
    before, view = compact.check(history).tokens, compact(history)
    rows = compact.ledger_rows(history)
    tried = sum(len(attempt.edit_tokens) for attempt in view.attempts)
    assert 1 < len([row for row in rows if row.edit]) < tried, "some are hidden by the summary"
    assert sum(row.before - row.after for row in rows) == before - view.tokens
    assert all(row.after == following.before for row, following in pairwise(rows))


def test_b12_events_count_calibrated_tokens_and_the_ledger_stores_estimates(store):
    """A view once had 9,902 tokens and its last attempt 6,248: one expected, the other
    estimated."""
    events, history = [], conversation(40)
    steps = (ClearToolResults(keep=3), Summarize(keep=4, max_tokens=300))
    compact = compactor(steps, model="claude-opus-5-5", store=store, on_event=events.append)
    before = compact.check(history).tokens
    view = compact(history)
    assert view.tokens == round(1.6 * view.tokens_uncalibrated)

    def have_its_unit(steps) -> bool:
        ends = [(step.tokens_before, step.tokens_after) for step in steps]
        return (ends[0][0], ends[-1][1]) == (before, view.tokens)

    started, *tried, ended = events
    assert have_its_unit(view.attempts) and have_its_unit(ended.attempts)
    assert have_its_unit([event.attempt for event in tried])
    assert (started.tokens, ended.before, ended.after) == (before, before, view.tokens)
    (*_, last), rows = view.attempts, compact.ledger_rows(history)
    assert last.edit_tokens[-1] == (view.edits[-1].id, view.tokens)
    assert (rows[0].before, rows[-1].after) == (before, view.tokens)
    assert store.ledger()[-1].after == view.tokens_uncalibrated < view.tokens
    compact.report(view, {"input_tokens": 2 * view.tokens, "output_tokens": 1})
    assert compact.ledger_rows(history)[-1].after == compact(history).tokens == 2 * view.tokens
    assert store.ledger()[-1].after == view.tokens_uncalibrated, "comparable at any time"


def test_attempts_without_an_edit_are_recorded_too():
    compact, history = compactor(), conversation(40)  # nobody answers
    compact(history)
    rows = compact.ledger_rows(history)
    assert [(row.outcome, row.edit) for row in rows] == [("noop", None), ("no_headroom", None)]
    assert "less than 5%" in rows[-1].reason
    for _ in range(3):
        compact(history)
    assert compact.ledger_rows(history) == rows


def test_a_turn_below_the_trigger_writes_no_ledger_row():
    compact, history = compactor(trigger=FAR), conversation(40)
    talk = compact.session(history)
    talk.append({"role": "assistant", "content": "ok"})
    compact(history)
    compact.check(history)
    assert compact.ledger_rows(history) == ()


def test_the_ledger_records_who_previewed_accepted_and_reverted(store):
    """S2-53: the history of compactions, and reverting."""
    compact = compactor(
        trigger=FAR, store=store, ask=ScriptedModel([Answer("A summary.", cost=0.5)])
    )
    history = conversation(40)
    preview = compact.preview(history, actor="wei")
    compact.accept(preview, actor="anna")
    id = preview.edits[0].id
    compact.revert(history, id, actor="otto")
    rows = compact.ledger_rows(history)
    assert [(row.action, row.actor, row.edit) for row in rows] == [
        ("preview", "wei", id), ("accept", "anna", id), ("revert", "otto", id),
    ]  # fmt: skip
    assert [row.cost for row in rows] == [0.5, 0, 0]
    assert rows[1].before - rows[1].after == rows[2].after - rows[2].before > 0
    assert rows[1].prompt == "short@1#0a"
    assert compact(history).payload == history


def test_after_a_revert_the_same_history_is_not_compacted_again_at_once():
    compact, history = compactor([Summarize(keep=6)]), conversation(40)
    view = compact(history)
    compact.revert(history, view.edits[0].id)
    assert compact(history).payload == history
    assert compact.check(history).hold_reason
    assert compact([*history, {"role": "user", "content": "word " * 900}]).edits


def test_each_conversation_has_its_own_records():
    store = refold.MemoryStore()
    compact = compactor([Summarize(keep=6)], store=store)
    first, second = conversation(40), conversation(41)
    second[0]["content"] = "Another task."
    compact(first)
    compact(second)
    assert len(store.ledger()) == 2
    assert [len(compact.ledger_rows(history)) for history in (first, second, conversation(3))] == [
        1,
        1,
        0,
    ]


def test_a_custom_ledger_without_an_index_is_read_in_full():
    """A custom ledger without an index."""

    class Plain:
        def __init__(self):
            self.rows = []

        def record(self, rows):
            self.rows.extend(rows)

        def ledger(self, edit=None):
            return [row for row in self.rows if edit in {None, row.edit}]

    book = Plain()
    compact, first, second = (
        compactor([Summarize(keep=6)], ledger=book),
        conversation(40),
        conversation(41),
    )
    second[0]["content"] = "Another task."
    compact(first)
    compact(second)
    assert [compact.ledger_rows(history) for history in (first, second)] == [
        (book.rows[0],),
        (book.rows[1],),
    ]
    assert rows_about(book, [book.rows[1].tip] * 2) == (book.rows[1],)
    assert rows_about(book, []) == ()


def test_ledger_rows_does_not_read_the_whole_ledger_if_it_has_an_index():
    class Indexed(refold.MemoryStore):
        def ledger(self, edit=None):
            raise AssertionError("the whole ledger is read")

    compact, history = compactor([Summarize(keep=6)], store=Indexed()), conversation(40)
    compact(history)
    assert len(compact.ledger_rows(history)) == 1


def test_a_failing_ledger_or_listener_does_not_lose_a_compaction(caplog):
    class Broken(refold.MemoryStore):
        def record(self, rows):
            raise refold.StoreError("disk full")

    def broken(*_):
        raise ValueError("a listener's own fault")

    compact = compactor([Summarize(keep=6)], store=Broken(), after=broken, on_event=broken)
    history = conversation(40)
    with caplog.at_level(logging.ERROR, "refold"):
        view = compact(history)
    assert view.edits
    assert compact(history).payload == view.payload
    assert "disk full" in caplog.text
    assert "a listener's own fault" in caplog.text
    assert compact.preview(history, to=10).view.tokens <= view.tokens
    compact.accept(compact.preview(history, to=10))
    compact.revert(history)


def test_the_ledger_may_be_separate_from_the_store():
    book = refold.MemoryStore()
    compact, history = (
        compactor([Summarize(keep=6)], store=refold.MemoryStore(), ledger=book),
        conversation(40),
    )
    compact(history)
    assert len(book.ledger()) == len(compact.ledger_rows(history)) == 1
    assert compact.settings.store.ledger() == ()


def test_a_ledger_that_is_an_empty_list_is_used():
    class Rows(list):
        def record(self, rows):
            self.extend(rows)

        def ledger(self, edit=None):
            return [row for row in self if edit in {None, row.edit}]

    book = Rows()
    compactor([Summarize(keep=6)], ledger=book)(conversation(40))
    assert [row.outcome for row in book] == ["applied"]


def test_a_store_without_ledger_methods_can_be_used():
    class Bare:
        def __init__(self):
            inner = refold.MemoryStore()
            self.load, self.save, self.remove, self.version = (
                inner.load,
                inner.save,
                inner.remove,
                inner.version,
            )

    compact, history = compactor([Summarize(keep=6)], store=Bare()), conversation(40)
    assert compact(history).edits
    assert compact.ledger_rows(history) == ()


def test_a_veto_prevents_the_compaction_and_is_recorded():
    seen = []

    def veto(view, started):
        seen.append((view.tokens, started.tokens, started.actor))
        return Veto("a deploy is running")

    model = ScriptedModel(["A summary."])
    compact, history = compactor(ask=model, before=veto), conversation(40)
    view = compact(history)
    assert view.payload == history
    assert model.asked == []
    assert [(a.outcome, a.reason) for a in view.attempts] == [
        ("rejected", "vetoed: a deploy is running")
    ]
    assert [row.reason for row in compact.ledger_rows(history)] == ["vetoed: a deploy is running"]
    compact(history)
    assert seen == [(view.tokens, view.tokens, "auto")]  # not asked again for the same request


@pytest.mark.parametrize("reply", [False, "a deploy is running"])
def test_a_before_hook_that_returns_another_type_raises_type_error(reply):
    """It was once a veto, and the compaction went on."""
    with pytest.raises(TypeError, match="`before` returns Veto, Instructions or None, not"):
        compactor(before=lambda *_: reply)(conversation(40))


def test_instructions_of_a_before_hook_are_added_to_the_prompt():
    model = ScriptedModel(["A summary."])
    compact = compactor(
        ask=model, before=lambda view, started: Instructions("Keep every ticket number.")
    )
    assert compact(conversation(40)).edits
    assert [ask.prompt for ask in model.asked] == ["Summarise.\n\nKeep every ticket number."]


def test_an_exception_in_a_before_hook_is_raised_and_nothing_is_done():
    def broken(view, started):
        raise KeyError("mine")

    model = ScriptedModel(["A summary."])
    compact, history = compactor(ask=model, before=broken), conversation(40)
    with pytest.raises(KeyError, match="mine"):
        compact(history)
    assert (model.asked, compact.ledger_rows(history)) == ([], ())


def test_events_report_start_attempts_end_and_revert_as_frozen_values():
    events, after = [], []
    compact = compactor(
        ask=ScriptedModel([Answer("A summary.", calls=2, cost=0.1)]),
        on_event=events.append,
        after=lambda view, ended: after.append((view.tokens, ended)),
    )
    history = conversation(40)
    view = compact(history)
    started, tried, ended = events
    assert (
        isinstance(started, CompactionStarted)
        and isinstance(tried, StrategyTried)
        and isinstance(ended, CompactionEnded)
    )
    assert started.run == tried.run == ended.run
    assert (started.tokens, started.goal) == (ended.before, 1_000)
    assert (ended.after, ended.edits, ended.calls, ended.cost) == (
        view.tokens,
        (view.edits[0].id,),
        2,
        0.1,
    )
    assert after == [(view.tokens, ended)]
    with pytest.raises(FrozenInstanceError):
        ended.before = 3
    compact(history)
    assert len(events) == 3  # a turn without changes sends no event
    compact.revert(history, view.edits[0].id)
    assert events[-1] == EditsReverted(
        when=1_700_000_000.0, actor="manual", edits=(view.edits[0].id,)
    )


def test_previews_and_acceptances_are_reported_as_events():
    events = []
    compact = compactor(trigger=FAR, ask=ScriptedModel(["A summary."]), on_event=events.append)
    preview = compact.preview(conversation(40))
    assert {event.action for event in events if not isinstance(event, StrategyTried)} == {"preview"}
    compact.accept(preview, actor="anna")
    assert events[-1] == PreviewAccepted(
        when=1_700_000_000.0, actor="anna", edits=(preview.edits[0].id,)
    )


def test_acompact_writes_the_same_ledger_rows_as_a_sync_call():
    history, twins = conversation(40), [compactor([ClearToolResults(keep=3)]) for _ in range(2)]
    twins[0](history)
    asyncio.run(twins[1].acompact(history))
    assert twins[0].ledger_rows(history) == twins[1].ledger_rows(history) != ()


def test_local_edits_are_not_recorded_as_attempts():
    compact, history = compactor([ClipResults(2_000)], trigger=FAR), conversation(6, size=4_000)
    view = compact(history)
    assert view.edits
    assert compact.ledger_rows(history) == ()


def test_a_compaction_is_an_opentelemetry_span():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    compact = compactor(ask=ScriptedModel(["A summary."]), on_event=spans(tracer))
    with tracer.start_as_current_span("turn") as turn:
        view = compact(conversation(40))
    span, outer = exporter.get_finished_spans()
    assert (span.name, outer.name) == ("refold.compact", "turn")
    assert span.parent.span_id == turn.get_span_context().span_id
    assert span.attributes["refold.tokens.after"] == view.tokens
    assert (span.attributes["refold.edits"], span.attributes["refold.calls"]) == (1, 1)
    assert [event.attributes["outcome"] for event in span.events] == ["applied"]
    provider.shutdown()


def test_half_a_character_in_the_text_of_a_span_is_escaped():
    """No exporter could encode the span, and those sent with it were lost, too."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    listen = spans(provider.get_tracer("test"))
    compactor(on_event=listen, before=lambda *_: Veto("not \udcff"))(conversation(40))
    (span,) = exporter.get_finished_spans()
    assert span.attributes["refold.vetoed"] == "not \\udcff"
    provider.shutdown()


def test_spans_without_a_tracer_provider_do_not_fail():
    assert compactor([Summarize(keep=6)], on_event=spans())(conversation(40)).edits


def test_an_edit_that_restores_the_original_message_has_the_grade_exact(store):
    """Reverting a local edit stores the original message, so that edit loses no content."""
    clip, history = ClipResults(limit=400), conversation(4, 2_000)
    compact = compactor([clip], trigger=FAR, store=store)
    clipped = compact(history).edits[0]
    assert compact.ledger_rows(history) == ()
    as_said = next(
        edit for edit in compact.revert(history, clipped.id).edits if edit.by.startswith("as said")
    )
    after = compact.revert(history, as_said.id)
    assert [(row.edit, row.grade) for row in compact.ledger_rows(history)] == [
        (clipped.id, "recoverable"),
        (as_said.id, "exact"),
    ]
    assert after.edits[0].id == clipped.id
