"""Events of a compactor, what hooks may answer, and the rows of the ledger for what happened: plain
frozen values."""

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
    """A compaction is about to run. Nothing was asked or changed yet."""

    run: str
    """Names this compaction, in events and ledger."""
    when: float
    """Seconds since 1970-01-01 UTC."""
    action: Action
    """`compact`, or `preview` for one whose edits are not kept."""
    actor: str
    """Who wanted it: `auto` for a trigger, `manual`, or the name that was given."""
    trigger: str
    """What the trigger read, in words."""
    tokens: int
    """Tokens of the request, system prompt and tools included."""
    goal: int
    """Tokens to come down to."""
    model: str
    """The model that the request names, if it names one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTried:
    """One strategy has run."""

    run: str
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEnded:
    """A compaction has ended: its edits are kept (or previewed), or there are none."""

    run: str
    started_at: float
    """Seconds since 1970-01-01 UTC."""
    ended_at: float
    action: Action
    actor: str
    before: int
    """Tokens of the request before, and `after`."""
    after: int
    edits: tuple[str, ...]
    """Ids of the edits that were made."""
    attempts: tuple[Attempt, ...]
    veto: str = ""
    """Why the hook refused it; empty if it did not."""

    @property
    def calls(self) -> int:
        """Model calls made."""
        return sum(attempt.calls for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """What they cost, in US dollars, if prices are known."""
        return sum(attempt.cost for attempt in self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewAccepted:
    """A preview's edits were kept."""

    when: float
    actor: str
    edits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditsReverted:
    """Edits were taken back for good."""

    when: float
    actor: str
    edits: tuple[str, ...]


Event = CompactionStarted | StrategyTried | CompactionEnded | PreviewAccepted | EditsReverted
"""What a compactor tells its listeners."""


@dataclass(frozen=True, slots=True)
class Veto:
    """What a `before` hook returns to have this compaction left out."""

    reason: str


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a `before` hook returns to have *text* added to every prompt of this compaction."""

    text: str


Before = Callable[[View, CompactionStarted], Veto | Instructions | None]
"""Called with the view as it is, before anything is asked. What it raises is raised, as is a
TypeError for any other reply."""
After = Callable[[View, CompactionEnded], None]
"""Called with the view that results, when its edits are kept."""
OnEvent = Callable[[Event], None]
"""What is called with each event, as `Compactor(on_event=...)`."""


# --- rows of the ledger -------------------------------------------------------------------------


def build_rows(
    started: CompactionStarted, view: View, fresh: Sequence[Edit], attempts: Iterable[Attempt]
) -> list[LedgerRow]:
    """Return a row for each edit of *fresh*, made of *view* in this order, and for each attempt
    without one."""
    head = LedgerRow(
        when=started.when,
        outcome="applied",
        action=started.action,
        actor=started.actor,
        trigger=started.trigger,
        run=started.run,
    )
    rows = list[LedgerRow]()
    stripping = [edit for edit in fresh if edit.by == late_edits.BY]
    by_id = {edit.id: edit for edit in fresh if edit not in stripping}
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

    `exact`: it shows its messages as they were said, as after a revert. `recoverable`: what it
    shows names the edit, so that the model can ask for what is hidden. `lossy`: other words or
    nothing stand in its place; only the transcript has it.
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

    They come in the order in which they were put on, or taken off from the last to the first, each
    with the tokens before and after it. *attempts* say with which model and prompt they were made.
    What that cost is booked already.
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
    """Yield each edit of an attempt that was kept, with the tokens before and after it.

    What those saved that a later one has hidden counts with the next, or the last: each begins
    where the one before it ends, and together they lead from the attempt's start to its end.
    """
    before, tokens = attempt.tokens_before, dict(attempt.edit_tokens)
    stays = [id for id in tokens if id in by_id]
    for id in stays:
        after = attempt.tokens_after if id == stays[-1] else tokens[id]
        yield by_id[id], before, after
        before = after


def _apply_in_turn(view: View, edits: Iterable[Edit]) -> Iterator[tuple[Edit, int, int]]:
    """Yield each edit with the tokens before and after it."""
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
    """Return *head*, which says when, by whom and in which run, with what an attempt, or one edit
    of it, came to."""
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
    """Return the same attempt for its further edits: what it cost stands with the first."""
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
