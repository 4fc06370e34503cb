"""What `compact` and `accept` do with one session: draft, let the user edit the summary, keep."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from refold.cli import drafts, terminal
from refold.cli.edited_session import EditedSession, Share, shares
from refold.cli.model_options import ModelOptions
from refold.compactor.by_hand import Preview
from refold.core.strategy import Strategy
from refold.edits import Edit
from refold.errors import EditError, RefoldError
from refold.models.driver import Asker
from refold.stores.store import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of `refold compact`. Raises `click.UsageError` if some exclude one another."""

    to: int
    strategies: tuple[Strategy, ...]
    dry_run: bool
    preview: bool
    edit: bool
    price: float | None
    actor: str

    def __post_init__(self) -> None:
        if self.dry_run and self.preview:
            raise click.UsageError(
                "--dry-run and --preview exclude one another: a preview keeps a draft"
            )
        if (self.edit or self.price is not None) and not self.preview:
            raise click.UsageError("--edit and --price go with --preview")


@dataclass(frozen=True, slots=True)
class Compaction:
    """A session, and the outcome of compacting it."""

    edited: EditedSession
    """As it was before."""
    plan: Plan
    preview: Preview
    shares: Sequence[Share]
    file: str = ""
    """The file that the edits went into; empty if nothing was kept."""
    draft: str | None = None
    """The file of the draft, empty if there is nothing to keep; None without --preview."""
    aborted: bool = False
    """Was the summary left empty?"""

    @property
    def fits(self) -> bool:
        """Is the target met?"""
        return self.preview.view.tokens <= self.plan.to

    @property
    def prices(self) -> tuple[float, float] | None:
        """US dollars for the input of one request, before and after."""
        if self.plan.price is None:
            return None
        before, after = self.edited.view.tokens, self.preview.view.tokens
        return before * self.plan.price / 1e6, after * self.plan.price / 1e6


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
    edited: EditedSession, plan: Plan, model: ModelOptions, ask: Asker | None
) -> Compaction:
    """Compact one session, or try to, as *plan* says."""
    strategies = model.strategies(plan.strategies, edited.view, plan.to)
    action: Action = "preview" if plan.preview else "compact"
    preview, rows = drafts.try_strategies(
        edited, strategies, plan.to, ask=ask, actor=plan.actor, action=action
    )
    compaction = Compaction(edited, plan, preview, shares(edited.view, preview.view, strategies))
    if plan.preview:
        drafts.record_rows(edited, rows)
        return _keep_draft(compaction)
    if plan.dry_run:
        return compaction
    drafts.save_compaction(edited, preview, rows)
    return replace(compaction, file=str(edited.place or "") if preview.edits else "")


def _keep_draft(compaction: Compaction) -> Compaction:
    """Write the draft, first as it was made, since that may have cost something, then as edited."""
    edited, preview, plan = compaction.edited, compaction.preview, compaction.plan
    if not preview.edits:
        drafts.delete_draft(edited)
        return replace(compaction, draft="")
    path = str(drafts.write_draft(edited, preview))
    amended = edit_summaries(edited, preview, plan.actor) if plan.edit else preview
    if amended is None:
        return replace(compaction, draft=path, aborted=True)
    if amended is not preview:
        drafts.write_draft(edited, amended)
    return replace(compaction, preview=amended, draft=path)


def find_drafts(sessions: Sequence[EditedSession]) -> list[tuple[EditedSession, Preview, int]]:
    """Return the sessions that have a draft, with it, and how many messages were said since.

    Raises `EditError` if there is none, or one that does not fit any more.
    """
    ready = [(edited, *draft) for edited in sessions if (draft := drafts.find_draft(edited))]
    if not ready:
        name = sessions[0].name
        raise EditError(
            f"there is no draft of {name}: refold compact {name} --to TOKENS --preview makes one"
        )
    return ready


def accept_draft(
    before: EditedSession, preview: Preview, grown: int, *, edit: bool, actor: str
) -> Acceptance | None:
    """Keep a draft's edits and delete the draft; None if its summary was left empty."""
    amended = edit_summaries(before, preview, actor) if edit else preview
    if amended is None:
        return None
    after = drafts.accept_preview(before, amended, actor)
    drafts.delete_draft(before)
    return Acceptance(before, after, amended.edits, str(before.place or ""), grown)


def dollars(amount: float) -> str:
    """Return an amount of US dollars, with its significant digits."""
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.001 else f"${amount:.2g}"


# --- the user's editor -----------------------------------------------------------------------


def summaries(preview: Preview) -> dict[str, str]:
    """Return the summaries of a preview that show, by the ids of their edits."""
    shown = {placed.edit.id for placed in preview.view.visible_edits}
    return {id: text for id, text in preview.summaries().items() if id in shown}


def edit_summaries(edited: EditedSession, preview: Preview, actor: str) -> Preview | None:
    """Open the summaries in the user's editor, one after another; None once one is left empty.

    An unchanged one stays as it is. Raises `EditError` for a text that is no summary (it stays in
    its file then) and if there is none to edit, `click.ClickException` if the editor fails.
    """
    texts = summaries(preview)
    if not texts:
        raise EditError(f"{edited.name}: nothing to edit: no summary is among these edits")
    path = _editor_file(edited)
    for id, text in texts.items():
        before = text.encode("utf-8", "backslashreplace").strip()
        after = _open_editor(path, before)
        if after and after != before:
            try:
                preview = drafts.amend_summary(preview, id, after.decode("utf-8", "replace"), actor)
            except RefoldError as error:
                raise EditError(f"{error}; your text is in {path}") from error
        path.unlink(missing_ok=True)
        if not after:
            return None
    return preview


def _open_editor(path: Path, text: bytes) -> bytes:
    drafts.write_private(path, text + b"\n")
    click.edit(filename=str(path))
    return path.read_bytes().strip() if path.exists() else b""


def _editor_file(edited: EditedSession) -> Path:
    """Return the file for the editor. Raises `click.UsageError` if no editor could be used."""
    path = drafts.draft_path(edited)
    if path is None:
        raise click.UsageError(
            "a session from standard input has no place for what is edited: name a --store"
        )
    has_editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not (has_editor or (sys.stdin and sys.stdin.isatty())):
        raise click.UsageError("--edit needs a terminal, or an editor in $VISUAL or $EDITOR")
    if terminal.err().is_terminal:
        terminal.warn("opening the summary; leave it empty to keep nothing")
    return path.with_name(path.name + ".md")
