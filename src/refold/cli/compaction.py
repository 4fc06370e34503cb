"""What `compact` and `accept` do with one session, and what each strategy saved in it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import click

from refold.cli import drafts
from refold.cli.options import ModelOptions
from refold.compactor.by_hand import Preview
from refold.compactor.loading import make_local_edits
from refold.compactor.pins import pin_messages
from refold.compactor.settings import parse_strategy
from refold.core.strategy import Strategy, is_local
from refold.core.view import View
from refold.core.view_lines import Saving, tokens_saved
from refold.edits import Edit
from refold.models.driver import Asker
from refold.scorers.scorer import Says
from refold.session_files.edited import (
    EditedSession,
    read_only_compactor,
    record_rows,
    subtract_edits,
    try_strategies,
)
from refold.session_files.export import Exported
from refold.stores.store import Action
from refold.strategies import Summarize, SummarizeTo
from refold.tokens.model_table import find_window

WINDOW_SHARE = 0.5
"""The share of the model's window that a session may have if nobody says how large it may be."""
DETAIL = {"brief": 0.4, "normal": 1.0, "full": 2.0}
"""How long summaries are, beside what the strategies give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """The options of `refold compact`. Raises `click.UsageError` if some exclude one another."""

    to: int | None
    """Tokens; None for a share of the model's window (`WINDOW_SHARE`)."""
    strategies: tuple[Strategy, ...] = ()
    dry_run: bool = False
    preview: bool = False
    edit: bool = False
    price: float | None = None
    actor: str = ""
    detail: str = "normal"
    """A key of `DETAIL`."""
    pins: tuple[str, ...] = ()
    """Words that stay in sight."""
    verbose: bool = False
    output: str | None = None
    """Where the request is written too; `-` is standard output."""
    resume: bool = False
    """Is a new file written that the client goes on with?"""

    def __post_init__(self) -> None:
        if self.dry_run and self.preview:
            raise click.UsageError(
                "--dry-run and --preview exclude one another: a preview keeps a draft"
            )
        if (self.edit or self.price is not None) and not self.preview:
            raise click.UsageError("--edit and --price go with --preview")
        if self.resume and (self.dry_run or self.preview):
            raise click.UsageError(
                "--resume goes on with what is kept: not with --dry-run or --preview"
            )
        if self.dry_run and self.output and self.output != "-":
            raise click.UsageError(
                "--dry-run writes no file: leave out --output, "
                "or have the request on standard output with -o -"
            )

    def target(self, edited: EditedSession) -> int:
        """Return the tokens that a session may have. Raises `click.UsageError` if nothing says."""
        if self.to is not None:
            return self.to
        model = edited.view.profile.model
        window = find_window(model).window
        if window is None:
            why = f"no window is known of {model}" if model else "its file names no model"
            raise click.UsageError(f"{edited.name}: {why}: say how large it may be, as in --to 60k")
        return int(WINDOW_SHARE * window.room)

    def check_pins(self, views: Sequence[View]) -> None:
        """Raise `click.UsageError` for a pin that no message says, in any of *views*."""
        messages = [message for view in views for message in view.transcript.messages]
        for text in self.pins:
            if not any(map(Says((text,)), messages)):
                raise click.UsageError(
                    f"--pin {text!r}: no message says this word for word, so it would keep nothing"
                )

    def adapt(self, strategies: Iterable[Strategy], view: View) -> tuple[Strategy, ...]:
        """Return strategies that write as much as `detail` says and spare what is pinned, now or
        by an earlier compaction."""
        factor = DETAIL[self.detail]
        adapted = (_with_room(strategy, factor) for strategy in strategies)
        pins = tuple(dict.fromkeys((*_earlier_pins(view), *self.pins)))
        return tuple(pin_messages(each, Says(pins)) if pins else each for each in adapted)


def _with_room(strategy: Strategy, factor: float) -> Strategy:
    if factor != 1 and isinstance(strategy, SummarizeTo):
        share = min(0.9, strategy.share * factor)
        return replace(strategy, share=share, most=int(strategy.most * factor))
    if factor != 1 and isinstance(strategy, Summarize):
        return replace(strategy, max_tokens=int(strategy.max_tokens * factor))
    return strategy


def _earlier_pins(view: View) -> Iterator[str]:
    """Yield what earlier compactions pinned: their edits say it."""
    for edit in view.edits:
        if "Says(" in edit.by:
            with suppress(ValueError):
                pin = getattr(parse_strategy(edit.by), "pin", None)
                yield from pin.texts if isinstance(pin, Says) else ()


@dataclass(frozen=True, slots=True)
class CompactedSession:
    """A session, and the outcome of compacting it."""

    edited: EditedSession
    """As it was before."""
    options: CompactOptions
    to: int
    """Tokens that it may have."""
    preview: Preview
    savings: Sequence[Saving]
    file: str = ""
    """The file that the edits went into; empty if nothing was kept."""
    draft: str | None = None
    """The file of the draft, empty if there is nothing to keep; None without --preview."""
    aborted: bool = False
    """Was the summary left empty?"""
    exported: Exported | None = None
    """The file that its client goes on with, if one was written."""

    @property
    def fits(self) -> bool:
        """Is the target met?"""
        return self.preview.view.tokens <= self.to

    @property
    def prices(self) -> tuple[float, float] | None:
        """US dollars for the input of one request, before and after."""
        if self.options.price is None:
            return None
        before, after = self.edited.view.tokens, self.preview.view.tokens
        return before * self.options.price / 1e6, after * self.options.price / 1e6


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A session, and the draft of it that was accepted."""

    before: EditedSession
    after: EditedSession
    edits: tuple[Edit, ...]
    file: str
    grown: int
    """Messages that were said since the preview."""


def compact_session(
    edited: EditedSession, options: CompactOptions, model: ModelOptions, ask: Asker | None
) -> CompactedSession:
    """Compact one session, or try to, as *options* says."""
    to = options.target(edited)
    strategies = options.adapt(model.strategies(options.strategies, to), edited.view)
    action: Action = "preview" if options.preview else "compact"
    preview, rows = try_strategies(
        edited, strategies, to, ask=ask, actor=options.actor, action=action
    )
    savings = find_savings(edited.view, preview.view, strategies)
    compaction = CompactedSession(edited, options, to, preview, savings)
    if options.dry_run:
        return compaction
    if preview.edits and not options.preview:
        edited.store.save(preview.edits)
    record_rows(edited, rows)
    if options.preview:
        return _keep_draft(compaction)
    return replace(compaction, file=str(edited.place or "") if preview.edits else "")


def _keep_draft(compaction: CompactedSession) -> CompactedSession:
    """Write the draft, first as it was made, since that may have cost something, then as edited."""
    edited, preview, options = compaction.edited, compaction.preview, compaction.options
    if not preview.edits:
        drafts.delete_draft(edited)
        return replace(compaction, draft="")
    path = str(drafts.write_draft(edited, preview))
    amended = drafts.edit_summaries(edited, preview, options.actor) if options.edit else preview
    if amended is None:
        return replace(compaction, draft=path, aborted=True)
    if amended is not preview:
        drafts.write_draft(edited, amended)
    return replace(compaction, preview=amended, draft=path)


def accept_draft(
    before: EditedSession, preview: Preview, grown: int, *, edit: bool, actor: str
) -> Acceptance | None:
    """Keep a draft's edits and delete the draft; None if its summary was left empty."""
    amended = drafts.edit_summaries(before, preview, actor) if edit else preview
    if amended is None:
        return None
    view = read_only_compactor(before).accept(amended, actor=actor)
    after = replace(before, view=view)
    drafts.delete_draft(before)
    return Acceptance(before, after, amended.edits, str(before.place or ""), grown)


def find_savings(before: View, after: View, strategies: Iterable[Strategy]) -> list[Saving]:
    """Return what each strategy saved between two views, in the order in which they ran: together
    what lies between the views. What a local edit saved counts for the edit that
    stands in its place."""
    new = {edit.id for edit in subtract_edits(after, before)}
    local = [strategy for strategy in strategies if new and is_local(strategy)]
    rows = [_local_saving(before, strategy, new) for strategy in local]
    rows += [
        Saving(
            attempt.by,
            attempt.edits_applied,
            attempt.tokens_before - attempt.tokens_after,
            attempt.outcome,
            attempt.reason,
        )
        for attempt in after.attempts
    ]
    rest = before.tokens - after.tokens - sum(saving.saved for saving in rows)
    last = max((at for at, saving in enumerate(rows) if saving.edits), default=None)
    if last is not None:
        rows[last] = rows[last]._replace(saved=rows[last].saved + rest)
    return rows


def _local_saving(before: View, strategy: Strategy, new: set[str]) -> Saving:
    """Return what a local strategy saves in the end: later edits may replace its own."""
    edits = make_local_edits(before, [strategy])
    savings = [tokens_saved(before, edit) for edit in edits if edit.id in new]
    reason = "" if savings else "later strategies took over" if edits else "nothing to do"
    return Saving(
        repr(strategy), len(savings), sum(savings), "applied" if edits else "noop", reason
    )
