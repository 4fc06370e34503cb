"""What the presets share: the start of the kept tail, and lists that keep all their originals."""

from dataclasses import dataclass

import refold
from refold.core.strategy import Summary
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.presets.measures import KeepFrom, LastMessages, LastTurns, OnlyBeyond
from refold.strategies import Summarize
from refold.testing import proposals
from refold.text.summary_wrapper import wrap_summary
from tests.support.messages import assistant


@dataclass(frozen=True)
class Fills:
    """A summarizer that uses all of its token limit."""

    def __call__(self, view, start, stop, max_tokens):
        yield from ()
        text = "word"
        while view.profile.count(wrap_summary(f"{text} word")) <= max_tokens:
            text += " word"
        return Summary(text)


def turns(count: int, size: int = 20) -> View:
    return View.of(
        [m for n in range(count) for m in (user(f"question {n}"), assistant("word " * size))]
    )


def test_the_last_turns_are_kept_unless_they_hold_too_many_tokens():
    """S1-26 X-3: a number of turns, or half of the tokens."""
    assert LastTurns(2)(turns(8)) == 12
    assert LastTurns(8)(turns(8)) == LastTurns(0)(turns(8)) == 8
    heavy = View.of([*turns(6).messages, user("one more"), assistant("word " * 2_000)])
    assert LastTurns(2)(heavy) >= 12


def test_the_last_messages_stay_up_to_a_number_of_tokens():
    """S2-07 X-3: a number of messages, or as many as fit."""
    view = turns(8)
    assert LastMessages(4, 10_000)(view) == 12
    assert LastMessages(99, 10_000)(view) == 0
    assert 12 < LastMessages(4, 40)(view) < 16
    waiting = View.of([*view.messages, user("word " * 500)])
    assert LastMessages(4, 60)(waiting) == 16
    assert LastMessages(0, 60)(waiting) == 16, "what is not answered stays (C2-10)"
    assert LastMessages(0, 60)(view) == 16
    calls = Message("assistant", tuple(ToolCall(f"c{n}", "make", "{}") for n in range(3)))
    results = [Message("tool", (ToolResult(f"c{n}", (Text("made"),)),)) for n in range(3)]
    unread = View.of([*view.messages, calls, *results])
    assert LastMessages(0, 10_000)(unread) == LastMessages(2, 10_000)(unread) == 16


def test_nothing_is_proposed_if_all_older_messages_are_summarised():
    """S1-27: there is no summary of an empty list."""
    strategy = KeepFrom(Summarize(max_tokens=200), LastMessages(4, 10_000))
    view = proposals(turns(8, 200), strategy)
    assert [(edit.start, edit.stop) for edit in view.edits] == [(0, 12)]
    assert proposals(view, strategy).edits == view.edits


def test_only_beyond_applies_a_strategy_only_above_the_given_tokens():
    view = turns(8, 200)
    assert proposals(view, OnlyBeyond(Summarize(keep=2), view.tokens)).edits == ()
    assert proposals(view, OnlyBeyond(Summarize(keep=2), view.tokens - 1)).edits


def test_a_long_unfinished_request_does_not_prevent_a_summary():
    """The request stays word for word beside the summary, which gets the remaining tokens (C1-9).
    This also holds for a summary that uses all of them."""
    task = "Migrate the module as follows. " * 120
    history = View.of(
        [user(task), *(assistant(f"Step {n}: " + "done so far. " * 12) for n in range(12))]
    )
    view = proposals(history, Summarize(keep=2, max_tokens=4_000, summarizer=Fills()))
    assert view.edits
    assert task.strip() in "".join(message.text for message in view.messages)


def test_a_hysteresis_of_0_never_delays_an_attempt():
    """Two compactors share a store: the saving of one does not delay the other."""
    store, history = refold.MemoryStore(), turns(8, 200)
    wire = [{"role": m.role, "content": m.text} for m in history.messages]
    each = refold.Compactor(
        [Summarize(keep=4)], refold.Budget(0, 0, progress=0, hysteresis=0), store
    )
    each(wire[:6])
    refold.Compactor([Summarize(keep=2)], refold.Budget(0, 0), store)(wire[:12])
    assert each(wire[:13]).attempts
