"""Events of a compactor, replies of hooks, and rows of the ledger. All are frozen values."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from refold.compactor import late_edits
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.errors import EditError
from refold.messages import Message
from refold.stores.store import Action, Grade, LedgerRow
from refold.text.plain import readable_text

_log = logging.getLogger("refold")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStarted:
    """A compaction is about to run. No model was asked and nothing was changed yet."""

    run: str
    """Id of this compaction in events and ledger."""
    when: float
    """Seconds since 1970-01-01 UTC."""
    action: Action
    """`compact`, or `preview` if the edits are not saved."""
    actor: str
    """Who started it: `auto` for a trigger, `manual`, or a given name."""
    trigger: str
    """The trigger's reason, in words."""
    tokens: int
    """Tokens of the request, system prompt and tools included."""
    goal: int
    """Number of tokens to reach."""
    model: str
    """The model of the request. Empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTried:
    """A strategy has run."""

    run: str
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEnded:
    """A compaction has ended, or was vetoed. Its edits, if any, are saved (or previewed)."""

    run: str
    started_at: float
    """Seconds since 1970-01-01 UTC."""
    ended_at: float
    action: Action
    actor: str
    before: int
    """Tokens of the request before the compaction. `after` has those after it."""
    after: int
    edits: tuple[str, ...]
    """Ids of the new edits."""
    attempts: tuple[Attempt, ...]
    veto: str = ""
    """The hook's reason for a veto. Empty without one."""

    @property
    def calls(self) -> int:
        """Number of model calls made."""
        return sum(attempt.calls for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """Cost of those calls in US dollars, as far as prices are known."""
        return sum(attempt.cost for attempt in self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewAccepted:
    """The edits of a preview were saved."""

    when: float
    actor: str
    edits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditsReverted:
    """Edits were permanently reverted."""

    when: float
    actor: str
    edits: tuple[str, ...]


Event = CompactionStarted | StrategyTried | CompactionEnded | PreviewAccepted | EditsReverted
"""An event passed to `on_event`."""


@dataclass(frozen=True, slots=True)
class Veto:
    """Reply of a `before` hook that skips this compaction."""

    reason: str


@dataclass(frozen=True, slots=True)
class Instructions:
    """Reply of a `before` hook that adds *text* to every prompt of this compaction."""

    text: str


Before = Callable[[View, CompactionStarted], Veto | Instructions | None]
"""Hook called with the current view before any model is asked. Its exceptions propagate, and other
replies raise TypeError."""
After = Callable[[View, CompactionEnded], None]
"""Hook called with the resulting view after each compaction, even if vetoed or a preview. Its
exceptions are logged."""
OnEvent = Callable[[Event], None]
"""Listener called with each event, see `Compactor(on_event=...)`. Its exceptions are logged."""


# --- rows of the ledger -------------------------------------------------------------------------


def build_rows(
    started: CompactionStarted, view: View, fresh: Sequence[Edit], attempts: Iterable[Attempt]
) -> list[LedgerRow]:
    """Return a row for each edit of *fresh*, applied to *view* in this order, and for each attempt
    without an edit."""
    head = LedgerRow(
        when=started.when,
        outcome="applied",
        action=started.action,
        actor=started.actor,
        trigger=started.trigger,
        run=started.run,
    )
    rows = list[LedgerRow]()
    stripping = [edit for edit in fresh if edit.by == late_edits.STRIP_THINKING_BY]
    by_id = {edit.id: edit for edit in fresh if edit.by != late_edits.STRIP_THINKING_BY}
    for attempt in attempts:
        steps = list(_edits_with_tokens(attempt, by_id))
        rows.append(_row(head, view, attempt, *(steps[0] if steps else ())))
        rows += [_row(head, view, _without_cost(attempt), *step) for step in steps[1:]]
    before = view.apply_valid(by_id.values()) if stripping else view
    return rows + [
        _row(head, view, Attempt(step[0].by, "applied"), *step)
        for step in _apply_in_turn(before, stripping)
    ]


def grade_edit(edit: Edit, messages: Sequence[Message]) -> Grade:
    """Return what an edit of *messages* costs in content.

    `exact`: it shows the original messages, as after a revert. `recoverable`: it shows its own id,
    so the model can ask for the hidden messages. `lossy`: other words or nothing are shown, and
    only the transcript has the originals.
    """
    if edit.insert == tuple(messages[edit.start : edit.stop]):
        return "exact"
    is_named = any(edit.id[:8] in readable_text(message) for message in edit.insert)
    return "recoverable" if is_named else "lossy"


def build_manual_rows(
    action: Action,
    when: float,
    actor: str,
    view: View,
    edits: Iterable[Edit],
    attempts: Iterable[Attempt] = (),
) -> list[LedgerRow]:
    """Return rows for edits of *view* that were accepted or reverted.

    Rows are in the order of application, or for a revert in reverse, each with the tokens before
    and after the edit. *attempts* supply model and prompt. Their cost is already in the ledger.
    """
    edits, makers = list(edits), {attempt.by: attempt for attempt in attempts}
    bare = view.revert(*(edit.id for edit in edits)) if edits else view
    steps = list(_apply_in_turn(bare, edits))
    if action == "revert":
        steps = [(edit, after, before) for edit, before, after in reversed(steps)]
    head = LedgerRow(when=when, outcome="applied", action=action, actor=actor)
    return [
        _row(
            head, view, _without_cost(makers.get(step[0].by, Attempt(step[0].by, "applied"))), *step
        )
        for step in steps
    ]


def _edits_with_tokens(
    attempt: Attempt, by_id: Mapping[str, Edit]
) -> Iterator[tuple[Edit, int, int]]:
    """Yield each saved edit of an attempt with the tokens before and after it.

    Savings of edits that a later edit has hidden are added to the next saved edit, or to the last.
    So each edit starts where the one before ends, from the attempt's start to its end.
    """
    before, tokens = attempt.tokens_before, dict(attempt.edit_tokens)
    stays = [id for id in tokens if id in by_id]
    for id in stays:
        after = attempt.tokens_after if id == stays[-1] else tokens[id]
        yield by_id[id], before, after
        before = after


def _apply_in_turn(view: View, edits: Iterable[Edit]) -> Iterator[tuple[Edit, int, int]]:
    """Yield each edit with the estimated tokens before and after it; equal ones if it does not
    apply."""
    stack = view.edit_stack()
    for edit in edits:
        before = stack.tokens_uncalibrated
        with suppress(EditError):
            stack.add(edit)
        yield edit, before, stack.tokens_uncalibrated


def _row(
    head: LedgerRow,
    view: View,
    attempt: Attempt,
    edit: Edit | None = None,
    before: int | None = None,
    after: int | None = None,
) -> LedgerRow:
    """Return *head*, which has time, actor and run, completed with an attempt or one of its
    edits."""
    return replace(
        head,
        outcome=attempt.outcome,
        edit=edit.id if edit else None,
        by=attempt.by,
        reason=attempt.reason,
        before=attempt.tokens_before if before is None else before,
        after=attempt.tokens_after if after is None else after,
        calls=attempt.calls,
        cost=attempt.cost,
        model=attempt.model,
        prompt=attempt.prompt,
        grade=grade_edit(edit, view.transcript.messages) if edit else "",
        tip=view.transcript.tips[-1],
    )


def _without_cost(attempt: Attempt) -> Attempt:
    """Return the attempt without calls and cost, which only the row of its first edit has."""
    return replace(attempt, calls=0, cost=0.0)


__all__ = [
    "After",
    "Before",
    "CompactionEnded",
    "CompactionStarted",
    "EditsReverted",
    "Event",
    "Instructions",
    "OnEvent",
    "PreviewAccepted",
    "StrategyTried",
    "Veto",
]
