"""Session files with their edits: what the command line works on.

A session file is only ever read. Its edits stand beside it (`FILE.refold`) or in a store of the
user's choice, and are found again by what was said, not by the file's name.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refold.budget.budget import Budget
from refold.codecs.codec import Codec
from refold.compactor.calibration import Reports
from refold.compactor.compactor import Compactor
from refold.compactor.engine import make_local_edits
from refold.core.strategy import Strategy, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError, FormatError
from refold.models.driver import Asker
from refold.session_files import Session
from refold.session_files.discover import OnError, files_below
from refold.stores import MemoryStore, SidecarStore
from refold.stores.store import LedgerRow, LedgerStore, Store
from refold.tokens.count import Counter, count_message
from refold.tokens.priors import no_prior

SUFFIXES = (".jsonl", ".json", ".jsonl.zst", ".db")
"""How session files end; nothing else in a directory is looked at."""
NEVER = Budget(sys.maxsize, 0)
"""The budget of who only looks."""


@dataclass(frozen=True, slots=True)
class EditedSession:
    """A session, where its edits are kept, and how they show it."""

    name: str
    session: Session
    payload: Any
    """The conversation as a request: the file's own bytes where the file is one, else a body."""
    store: Store
    view: View
    """With the stored edits."""
    count: Counter = count_message
    place: Path | None = None
    """The file that the edits are kept in; None where they are kept in memory alone."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one strategy's edits do in a view."""

    by: str
    edits: int
    saved: int
    """Estimated tokens."""
    outcome: str = "applied"
    reason: str = ""


def list_session_files(directory: Path, refused: OnError) -> list[Path]:
    """The files below *directory* that may be session files, in order of their names; *refused* is told which
    directories may not be looked into."""
    return sorted(
        path for path in files_below(directory, "**/*", refused) if path.name.endswith(SUFFIXES)
    )


def open_edited(
    session: Session,
    data: bytes | None,
    store: Store | None,
    *,
    format: str | None = None,
    count: Counter = count_message,
    place: Path | None = None,
) -> EditedSession:
    """Look at a session through its stored edits. *data* is the file's content where it may be a
    request itself; *format* overrides what the reader found; *place* is the file of *store* (without
    a store, the file beside the session). Raises `FormatError`, `StoreError`."""
    if store is None:
        store = beside = SidecarStore.beside(session.path)
        place = beside.path
    look = Compactor(
        (), NEVER, store, format=format or session.format, count=count, reports=Reports(no_prior)
    )
    for payload in (data, session.payload):
        if payload is not None:
            try:
                return EditedSession(
                    str(session.path), session, payload, store, look(payload), count, place
                )
            except FormatError:
                if payload is session.payload:
                    raise
    return EditedSession(
        str(session.path), session, session.payload, store, look(session.payload), count, place
    )


def read_only_compactor(edited: EditedSession) -> Compactor:
    """A compactor over the session's stored edits that makes none itself."""
    return Compactor(
        (),
        NEVER,
        edited.store,
        format=_codec(edited),
        count=edited.count,
        reports=Reports(no_prior),
    )


def scratch_compactor(
    edited: EditedSession,
    strategies: Iterable[Strategy],
    to: int,
    ask: Asker | None = None,
    ledger: LedgerStore | None = None,
) -> Compactor:
    """A compactor that starts from the session's edits and keeps new ones in memory alone."""
    memory = MemoryStore()
    memory.save(edited.view.edits)
    format, reports = (
        _codec(edited),
        Reports(no_prior),
    )  # one counter for one screen: as estimated (F15, F17)
    return Compactor(
        strategies,
        Budget(to, to),
        memory,
        ask=ask,
        format=format,
        count=edited.count,
        reports=reports,
        ledger=ledger,
    )


def _codec(edited: EditedSession) -> str | Codec:
    return edited.view.source.codec if edited.view.source is not None else edited.session.format


def take_back(
    edited: EditedSession, ids: Sequence[str] = (), *, before: str = "", actor: str = "manual"
) -> EditedSession:
    """The session without the edits of *ids*; without *before* and all edits made after it; without any,
    if nothing is named (S2-53). They leave the store, and the ledger says so (`Compactor.revert`).

    Thinking that was signed while an edit showed is bound to it and goes (AN-7). Where all edits from
    one on are taken back and nothing was said since they were made, nothing is bound to them: then
    the session is exactly as it was before. Raises `EditError` for an id that is none of its edits, `StoreError`.
    """
    edits = edited.view.edits
    if not edits:
        return edited
    first = edits.index(edited.view.find(before)) if before else 0
    named = [edit.id for edit in edited.view.find_all(ids) or edits[first:]]
    untouched = not ids and _is_unseen(edited, named)
    view = read_only_compactor(edited).revert(edited.payload, *named, actor=actor)
    if untouched and view.edits != edits[:first]:
        stay = {edit.id for edit in edits[:first]}
        edited.store.remove(edit.id for edit in view.edits if edit.id not in stay)
        view = read_only_compactor(edited)(edited.payload)
    return replace(edited, view=view)


def find_removed_edits(before: View, after: View) -> list[Edit]:
    """The edits of one view that another has no longer."""
    ids = {edit.id for edit in after.edits}
    return [edit for edit in before.edits if edit.id not in ids]


def _is_unseen(edited: EditedSession, ids: Iterable[str]) -> bool:
    """Was nothing said since these edits were kept, as far as the ledger knows?"""
    now = edited.view.transcript.tips[-1]
    saved = [row for row in ledger_rows(edited) if row.action in ("compact", "accept")]
    late, early = (
        {row.edit for row in saved if (row.tip == now) is is_late} for is_late in (True, False)
    )
    return set(ids) <= late - early


def ledger_rows(edited: EditedSession) -> tuple[LedgerRow, ...]:
    """What the ledger says of the session, oldest first. Raises `StoreError`."""
    return read_only_compactor(edited).ledger_rows(edited.payload)


def find_owner(sessions: Iterable[EditedSession], id: str) -> EditedSession:
    """The one among *works* that has the edit *id*. Raises `EditError` when none or several do."""
    owners = [
        edited for edited in sessions if any(edit.id.startswith(id) for edit in edited.view.edits)
    ]
    if len(owners) > 1:
        raise EditError(f"more than one session has an edit that starts with {id!r}")
    if not owners:
        raise EditError(f"no edit starts with {id!r}")
    owners[0].view.find(id)
    return owners[0]


def shares(before: View, after: View, strategies: Iterable[Strategy] = ()) -> list[Share]:
    """What each strategy did on the way from one view to the next, in the order in which they ran."""
    new = {edit.id for edit in after.edits} - {edit.id for edit in before.edits}
    local = (
        [_local_share(before, strategy, new) for strategy in strategies if is_local(strategy)]
        if new
        else []
    )
    return local + [
        Share(
            attempt.by,
            attempt.edits_applied,
            attempt.tokens_before - attempt.tokens_after,
            attempt.outcome,
            attempt.reason,
        )
        for attempt in after.attempts
    ]


def _local_share(before: View, strategy: Strategy, new: set[str]) -> Share:
    """A local strategy's edits that are left at the end: later ones replace what they hide too."""
    edits = make_local_edits(before, [strategy])
    savings = [tokens_saved(before, edit) for edit in edits if edit.id in new]
    reason = "" if savings else "later strategies took over" if edits else "nothing to do"
    return Share(repr(strategy), len(savings), sum(savings), "applied" if edits else "noop", reason)


def tokens_saved(view: View, edit: Edit) -> int:
    """Tokens between what was said and what the edit shows."""
    return view.base.tokens(edit.start, edit.stop) - sum(map(view.profile.count, edit.insert))


def savings_by_strategy(view: View) -> list[Share]:
    """What the edits that show save now, by strategy; the largest saving first."""
    by = dict[str, list[int]]()
    for edit, _ in view.visible_edits:
        by.setdefault(edit.by, []).append(tokens_saved(view, edit))
    return sorted(
        (Share(name, len(savings), sum(savings)) for name, savings in by.items()),
        key=lambda share: -share.saved,
    )
