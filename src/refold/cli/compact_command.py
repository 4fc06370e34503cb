"""What `compact`, `accept` and `discard` do with one session."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from refold.cli.editor import edited
from refold.cli.model_options import ModelOptions
from refold.compactor.preview import Preview
from refold.core.strategy import Strategy
from refold.edits import Edit
from refold.errors import EditError
from refold.models.driver import Asker
from refold.session_files import drafts
from refold.session_files.edited_session import EditedSession, Share, shares
from refold.stores.store import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the command line wants of `refold compact`."""

    to: int
    strategies: tuple[Strategy, ...]
    dry_run: bool
    preview: bool
    edit: bool
    price: float | None
    actor: str

    def __post_init__(self) -> None:
        if self.dry_run and self.preview:
            raise click.UsageError("--dry-run and --preview exclude one another: a preview keeps a draft")
        if (self.edit or self.price is not None) and not self.preview:
            raise click.UsageError("--edit and --price go with --preview")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A session, and what compacting it came to."""

    work: EditedSession
    """As it was before."""
    made: Preview
    shares: Sequence[Share]
    to: int
    dry_run: bool = False
    kept: str = ""
    """The file that the edits went into; empty if nothing was kept."""
    draft: str | None = None
    """The file of the draft, empty where there is nothing to keep; None without --preview."""
    prices: tuple[float, float] | None = None
    """US dollars for the input of one request, before and after."""
    aborted: bool = False
    """Was the summary left empty?"""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A session, and the draft of it that was accepted."""

    work: EditedSession
    after: EditedSession
    edits: tuple[Edit, ...]
    kept: str
    grown: int
    """Messages that were said since the preview."""


def compacted(work: EditedSession, plan: Plan, model: ModelOptions, ask: Asker | None) -> Compacted:
    """Compact one session, or try to, as *plan* says."""
    chosen = model.strategies(plan.strategies, work.view, plan.to)
    action: Action = "preview" if plan.preview else "compact"
    made, rows = drafts.try_strategies(work, chosen, plan.to, ask=ask, actor=plan.actor, action=action)
    done = Compacted(
        work=work, made=made, shares=shares(work.view, made.view, chosen), to=plan.to, dry_run=plan.dry_run
    )
    if plan.preview:
        drafts.record_rows(work, rows)
        return _drafted(done, plan)
    if plan.dry_run:
        return done
    drafts.save_compaction(work, made, rows)
    return replace(done, kept=str(work.place or "") if made.edits else "")


def _drafted(done: Compacted, plan: Plan) -> Compacted:
    """With its draft on disk: first as it was made, since that may have cost something, then as it was edited."""
    work, made = done.work, done.made
    if plan.price is not None:
        costs = (work.view.tokens * plan.price / 1e6, made.view.tokens * plan.price / 1e6)
        done = replace(done, prices=costs)
    if not made.edits:
        drafts.delete_draft(work)
        return replace(done, draft="")
    path = drafts.write_draft(work, drafts.make_draft(work, made, plan.to))
    other = edited(work, made, plan.actor) if plan.edit else made
    if other is None:
        return replace(done, draft=str(path), aborted=True)
    if other is not made:
        drafts.write_draft(work, drafts.make_draft(work, other, plan.to))
    return replace(done, made=other, draft=str(path))


def ready(works: Sequence[EditedSession]) -> list[tuple[EditedSession, Preview, int]]:
    """The sessions of which there is a draft, with it, and how many messages were said since. Raises
    `EditError` when there is none, or one that does not fit any more."""
    found = [(work, draft) for work in works if (draft := drafts.find_draft(work))]
    if not found:
        name = works[0].name
        raise EditError(f"there is no draft of {name}: refold compact {name} --to TOKENS --preview makes one")
    return [(work, drafts.resume_draft(work, draft), _grown(work, draft)) for work, draft in found]


def _grown(work: EditedSession, draft: drafts.Draft) -> int:
    said = work.view.transcript
    return len(said) - said.tips.index(draft.tip)


def accepted(work: EditedSession, made: Preview, grown: int, *, edit: bool, actor: str) -> Accepted | None:
    """Keep a draft and forget that it was one; None where its summary was left empty."""
    chosen = edited(work, made, actor) if edit else made
    if chosen is None:
        return None
    after = drafts.accept_preview(work, chosen, actor)
    drafts.delete_draft(work)
    return Accepted(work, after, chosen.edits, str(work.place or ""), grown)


def guard_draft(paths: Sequence[str], store: str | None) -> None:
    """Refuse a preview that has no file for its draft. Raises `click.UsageError`."""
    if "-" in paths and not store:
        raise click.UsageError("a preview of standard input has no place for its draft: name a --store")


def guard_output(output: str | None, works: Iterable[EditedSession]) -> None:
    """Refuse to write a request over edits or drafts. Raises `click.UsageError`."""
    if not output or output == "-":
        return
    target = Path(output).resolve()
    for work in works:
        if target in {path.resolve() for path in (work.place, drafts.draft_path(work)) if path}:
            raise click.UsageError(f"{output} is where edits or drafts are kept")


def dollars(amount: float) -> str:
    """An amount of US dollars, with the digits that say something."""
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}" if amount >= 0.001 else f"${amount:.2g}"
