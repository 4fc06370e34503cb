"""The ledger's rows for what a compaction did, an accepted preview, and a revert."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from refold.compactor import late_edits
from refold.compactor.hooks import CompactionStarted
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.errors import EditError
from refold.messages import Message
from refold.stores.store import Action, Grade, LedgerRow
from refold.text.plain import readable_text


def build_rows(
    started: CompactionStarted, view: View, fresh: Sequence[Edit], attempts: Iterable[Attempt]
) -> list[LedgerRow]:
    """Return a row for each edit of *fresh*, made of *view* in this order, and for each attempt
    without one."""
    rows = list[LedgerRow]()
    stripping = [edit for edit in fresh if edit.by == late_edits.BY]
    by_id = {edit.id: edit for edit in fresh if edit not in stripping}
    for attempt in attempts:
        steps = list(_edits_with_tokens(attempt, by_id))
        rows.append(_row(started, view, attempt, *(steps[0] if steps else ())))
        rows += [_row(started, view, _without_cost(attempt), *step) for step in steps[1:]]
    before = view.apply_valid(by_id.values()) if stripping else view
    return rows + [
        _row(started, view, Attempt(step[0].by, "applied"), *step)
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
    out = list[LedgerRow]()
    for edit, before, after in steps:
        maker = _without_cost(makers.get(edit.by, Attempt(edit.by, "applied")))
        started = CompactionStarted(
            run="",
            when=when,
            action=action,
            actor=actor,
            trigger="",
            tokens=view.tokens_uncalibrated,
            goal=after,
            model=maker.model,
        )
        out.append(_row(started, view, maker, edit, before, after))
    return out


def _edits_with_tokens(
    attempt: Attempt, by_id: Mapping[str, Edit]
) -> Iterator[tuple[Edit, int, int]]:
    """Yield each edit of an attempt that was kept, with the tokens before and after it."""
    before = attempt.tokens_before
    for id, after in attempt.edit_tokens:
        if id in by_id:
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
    started: CompactionStarted,
    view: View,
    attempt: Attempt,
    edit: Edit | None = None,
    before: int | None = None,
    after: int | None = None,
) -> LedgerRow:
    return LedgerRow(
        when=started.when,
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
        action=started.action,
        actor=started.actor,
        trigger=started.trigger,
        run=started.run,
        tip=view.transcript.tips[-1],
    )


def _without_cost(attempt: Attempt) -> Attempt:
    """Return the same attempt for its further edits: what it cost stands with the first."""
    return Attempt(
        attempt.by, attempt.outcome, attempt.reason, model=attempt.model, prompt=attempt.prompt
    )
