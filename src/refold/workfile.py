"""Session files with their edits: what the command line works on.

A session file is only ever read. Its edits stand beside it (`FILE.refold`) or in a store of the
user's choice, and are found again by what was said, not by the file's name.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refold.budget import Budget
from refold.compactor import Compactor
from refold.edits import Edit
from refold.errors import EditError, FormatError
from refold.ledger import Row
from refold.loop import first_sight
from refold.store import Store
from refold.stores import MemoryStore, SidecarStore
from refold.strategy import Strategy, is_local
from refold.tokens.count import Counter, count_message
from refold.transcripts import Session
from refold.view import View

SUFFIXES = (".jsonl", ".json", ".jsonl.zst", ".db")
"""How session files end; nothing else in a directory is looked at."""
NEVER = Budget(sys.maxsize, 0)
"""The budget of who only looks."""


@dataclass(frozen=True, slots=True)
class WorkFile:
    """A session, where its edits are kept, and how they show it."""

    name: str
    session: Session
    payload: Any
    """The conversation as a request: the file's own bytes where the file is one, else a body."""
    store: Store
    view: View
    """With the stored edits."""
    count: Counter = count_message


@dataclass(frozen=True, slots=True)
class Share:
    """What one strategy's edits do in a view."""

    by: str
    edits: int
    saved: int
    """Estimated tokens."""
    outcome: str = "applied"
    reason: str = ""


def session_files(directory: Path) -> list[Path]:
    """The files below *directory* that may be session files, in order of their names."""
    return sorted(path for path in directory.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def open_work(
    session: Session,
    data: bytes | None,
    store: Store | None,
    *,
    format: str | None = None,
    count: Counter = count_message,
) -> WorkFile:
    """Look at a session through its stored edits. *data* is the file's content where it may be a
    request itself; *format* overrides what the reader found. Raises `FormatError`, `StoreError`."""
    store = store or SidecarStore.beside(session.path)
    looker = Compactor((), NEVER, store, format=format or session.format, count=count)
    for payload in (data, session.payload):
        if payload is not None:
            try:
                return WorkFile(str(session.path), session, payload, store, looker(payload), count)
            except FormatError:
                if payload is session.payload:
                    raise
    return WorkFile(str(session.path), session, session.payload, store, looker(session.payload), count)


def preview(work: WorkFile, strategies: Iterable[Strategy], to: int, *, format: str | None = None) -> View:
    """The view that fits *to* tokens, as far as *strategies* can make it fit; nothing is saved.

    A session that fits already is left as it is.
    """
    if work.view.tokens <= to:
        return work.view
    memory = MemoryStore()
    memory.save(work.view.edits)
    compactor = Compactor(strategies, Budget(to, to), memory, format=format or work.session.format, count=work.count)
    return compactor(work.payload)


def accept(work: WorkFile, view: View) -> WorkFile:
    """Keep the edits of a preview, and what is known about them. Raises `StoreError`."""
    known = {edit.id for edit in work.view.edits}
    work.store.save(edit for edit in view.edits if edit.id not in known)
    if record := getattr(work.store, "record", None):
        now = time.time()
        record(
            Row(
                when=now,
                outcome=one.outcome,
                by=one.by,
                reason=one.reason,
                before=one.before,
                after=one.after,
                calls=one.asks,
            )
            for one in view.attempts
        )
    return replace(work, view=view)


def take_back(work: WorkFile, ids: Sequence[str]) -> list[Edit]:
    """Remove edits (all, without *ids*) from the view and its store, and say which.

    Raises `EditError` for an id that is none of its edits.
    """
    gone = [work.view.find(id) for id in ids] if ids else list(work.view.edits)
    if gone:
        work.store.remove(edit.id for edit in gone)
    return gone


def holder(works: Iterable[WorkFile], id: str) -> WorkFile:
    """The one among *works* that has the edit *id*. Raises `EditError` when none or several do."""
    found = [work for work in works if any(edit.id.startswith(id) for edit in work.view.edits)]
    if len(found) > 1:
        raise EditError(f"more than one session has an edit that starts with {id!r}")
    if not found:
        raise EditError(f"no edit starts with {id!r}")
    found[0].view.find(id)
    return found[0]


def shares(before: View, after: View, strategies: Iterable[Strategy] = ()) -> list[Share]:
    """What each strategy did on the way from one view to the next, in the order in which they ran."""
    new = {edit.id for edit in after.edits} - {edit.id for edit in before.edits}
    told = [_local_share(before, one, new) for one in strategies if is_local(one)] if new else []
    return told + [Share(one.by, one.edits, one.before - one.after, one.outcome, one.reason) for one in after.attempts]


def _local_share(before: View, strategy: Strategy, new: set[str]) -> Share:
    """A local strategy's edits that are left at the end: later ones replace what they hide too."""
    made = first_sight(before, [strategy])
    left = [saving(before, edit) for edit in made if edit.id in new]
    reason = "" if left else "later strategies took over" if made else "nothing to do"
    return Share(repr(strategy), len(left), sum(left), "applied" if made else "noop", reason)


def saving(view: View, edit: Edit) -> int:
    """Tokens between what was said and what the edit shows."""
    return view.ground.tokens(edit.start, edit.stop) - sum(map(view.lens.count, edit.insert))


def standing(view: View) -> list[Share]:
    """What the edits that show save now, by strategy; the largest saving first."""
    by = dict[str, list[int]]()
    for edit, _ in view.top:
        by.setdefault(edit.by, []).append(saving(view, edit))
    return sorted((Share(name, len(saved), sum(saved)) for name, saved in by.items()), key=lambda one: -one.saved)
