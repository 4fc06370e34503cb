"""What the command line asks of sessions with their edits: whose an edit is, what strategies saved,
how edits are taken back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from refold.compactor.loading import make_local_edits
from refold.core.strategy import Strategy, is_local
from refold.core.view import View
from refold.core.view_lines import tokens_saved
from refold.errors import EditError
from refold.gateway.conversations.persistence import find_result_edits
from refold.session_files.client_files import OnError, files_below
from refold.session_files.edited import (
    EditedSession,
    find_edit,
    find_hiding,
    find_removed_edits,
    ledger_rows,
    make_edits,
    undo_edits,
)

SUFFIXES = (".jsonl", ".json", ".jsonl.zst", ".db")
"""The endings of session files; other files in a directory are left out."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one strategy's edits save in a view."""

    by: str
    edits: int
    saved: int
    """Estimated tokens."""
    outcome: str = "applied"
    reason: str = ""


def list_session_files(directory: Path, on_error: OnError) -> list[Path]:
    """Return the files below *directory* that may be session files, sorted by name.

    *on_error* gets the errors of directories that may not be read.
    """
    paths = files_below(directory, "**/*", on_error)
    return sorted(path for path in paths if path.name.endswith(SUFFIXES))


def with_client_compactions(edited: EditedSession) -> EditedSession:
    """Return a session that hides what its client's own compactions hid, too: to search in it."""
    edits = make_edits(edited.view, edited.session.compactions, edited.session.client)
    return replace(edited, view=edited.view.apply_valid(edits))


def take_back(
    edited: EditedSession, ids: Sequence[str], *, before: str, actor: str
) -> EditedSession:
    """Take edits back (`undo_edits`); in a gateway's store also what was decided with them. Raises as
    that does."""
    after = undo_edits(edited, ids, before=before, actor=actor)
    if edited.tenant is not None:
        gone = find_removed_edits(edited.view, after.view)
        edited.store.remove(edit.id for edit in find_result_edits(edited.tenant, edited.view, gone))
    return after


def first_of_last(edited: EditedSession) -> str:
    """Return the id of the first edit that the last compaction made, by the ledger; without one,
    that of the last edit; empty if there is no edit."""
    ids = [edit.id for edit in edited.view.edits]
    rows = [row for row in ledger_rows(edited) if row.edit in ids and row.action != "preview"]
    newest = {row.edit for row in rows if row.when == rows[-1].when}
    return next((id for id in ids if id in newest), ids[-1] if ids else "")


def find_owner(sessions: Iterable[EditedSession], id: str) -> EditedSession:
    """Return the session that has the edit *id* (`find_edit`). Raises `EditError` if none or several
    have it."""
    owners = [
        edited
        for edited in sessions
        if any(edit.id.startswith(id) for edit in edited.view.edits) or find_hiding(edited.view, id)
    ]
    if len(owners) > 1:
        raise EditError(f"more than one session has an edit that starts with {id!r}")
    if not owners:
        raise EditError(f"no edit starts with {id!r}")
    find_edit(owners[0].view, id)
    return owners[0]


def shares(before: View, after: View, strategies: Iterable[Strategy]) -> list[Share]:
    """Return what each strategy saved between two views, in the order in which they ran: together
    what lies between the views (F17). What a local edit saved counts for the edit that
    stands in its place."""
    new = {edit.id for edit in find_removed_edits(after, before)}
    local = [strategy for strategy in strategies if new and is_local(strategy)]
    rows = [_local_share(before, strategy, new) for strategy in local]
    rows += [
        Share(
            attempt.by,
            attempt.edits_applied,
            attempt.tokens_before - attempt.tokens_after,
            attempt.outcome,
            attempt.reason,
        )
        for attempt in after.attempts
    ]
    rest = before.tokens - after.tokens - sum(share.saved for share in rows)
    last = max((at for at, share in enumerate(rows) if share.edits), default=None)
    if last is not None:
        rows[last] = replace(rows[last], saved=rows[last].saved + rest)
    return rows


def _local_share(before: View, strategy: Strategy, new: set[str]) -> Share:
    """Return what a local strategy saves in the end: later edits may replace its own."""
    edits = make_local_edits(before, [strategy])
    savings = [tokens_saved(before, edit) for edit in edits if edit.id in new]
    reason = "" if savings else "later strategies took over" if edits else "nothing to do"
    return Share(repr(strategy), len(savings), sum(savings), "applied" if edits else "noop", reason)
