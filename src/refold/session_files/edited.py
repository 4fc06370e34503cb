"""Session files with their edits, which are in a file beside them or in a store.

A session file is only read. Its edits are found by the content of the history, not by its name.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refold.budget.budget import Budget
from refold.codecs.codec import Codec
from refold.codecs.detect import open_payload
from refold.compactor.by_hand import Preview
from refold.compactor.calibration import Reports, no_prior
from refold.compactor.compactor import Compactor
from refold.compactor.hooks import build_manual_rows
from refold.compactor.settings import BY_HOOK
from refold.core.strategy import Strategy
from refold.core.tool_groups import find_answers
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError, FormatError
from refold.models.driver import Asker
from refold.session_files import FIELDS, Compaction, Problem, Session
from refold.speakers import first_request
from refold.stores import MemoryStore, SidecarStore
from refold.stores.store import Action, LedgerRow, Store, as_ledger_store, list_problems
from refold.tokens.count import Counter, count_message

NO_COMPACTION = Budget(sys.maxsize, 0)
"""Budget of a compactor that makes no edits."""


@dataclass(frozen=True, slots=True)
class EditedSession:
    """A session, the store of its edits, and its view."""

    name: str
    session: Session
    payload: Any
    """The conversation as a request: the file's bytes if it is a request itself, else a body."""
    store: Store
    view: View
    """The session with its stored edits applied."""
    count: Counter = count_message
    place: Path | None = None
    """File of the edits; None if they are in memory or on a database server."""
    salt: str = ""
    """Salt of the tips in a gateway's store."""
    tenant: str | None = None
    """Tenant of a gateway's session; None for other sessions."""
    typed: str = ""
    """The id prefix that the user typed to name it; empty if they typed its file."""
    typed_store: str = ""
    """Store that the user named for its edits."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the session file and of the edits' file. Raises `StoreError`."""
        of_edits = (Problem(0, f"{self.place}: {text}") for text in list_problems(self.store))
        return (*self.session.problems, *of_edits)

    @property
    def codec(self) -> str | Codec:
        """Codec of the view, or the name of the wire format."""
        return self.view.source.codec if self.view.source is not None else self.session.format

    @property
    def format(self) -> str:
        """Name of the wire format."""
        return self.codec if isinstance(self.codec, str) else self.codec.NAME


def open_edited(
    session: Session,
    data: bytes | None,
    store: Store | None,
    *,
    format: str | None = None,
    count: Counter = count_message,
    place: Path | None = None,
) -> EditedSession:
    """Return a session with its stored edits applied.

    *data* is the file's content if that may be a request itself. *format* overrides the reader's.
    *place* is the file of *store*. Without a store, the edits are in a file beside the session.
    Raises `FormatError`, `StoreError`.
    """
    if store is None:
        store = beside = SidecarStore.beside(session.path)
        place = beside.path
    compact = open_read_only(store, format or session.format, count)
    name, payload = str(session.path), session.payload
    if data is not None:
        with suppress(FormatError):
            return EditedSession(name, session, data, store, compact(data), count, place)
    edited = EditedSession(name, session, payload, store, compact(payload), count, place)
    return _show_first_sight(edited) if session.first_sight else edited


def _show_first_sight(edited: EditedSession) -> EditedSession:
    """Add what `refold hook` showed the model below the stored edits, unless it was reverted."""
    gone = {row.edit for row in ledger_rows(edited) if row.action == "revert"}
    edits = make_edits(edited.view, edited.session.first_sight, BY_HOOK)
    bare = edited.view.revert() if edited.view.edits else edited.view
    view = bare.apply_valid(edit for edit in edits if edit.id not in gone)
    stored = [edit for edit in edited.view.edits if edit not in view.edits]
    return replace(edited, view=view.apply_valid(stored))


def save_first_sight(edited: EditedSession) -> None:
    """Save the edits of `refold hook`, so that they can be reverted. Raises `StoreError`."""
    if edited.session.first_sight:
        saved = {edit.id for edit in edited.store.load(edited.view.transcript.tips)}
        edits = [edit for edit in edited.view.edits if edit.by == BY_HOOK and edit.id not in saved]
        if edits:
            edited.store.save(edits)


def opening_words(session: Session) -> str:
    """Return the first request of a session, from its first twelve entries; empty without one."""
    opening = {**session.body, FIELDS[session.format]: session.messages[:12]}
    return first_request(opening, session.format)


def make_edits(view: View, compactions: Iterable[Compaction], by: str) -> Iterator[Edit]:
    """Yield recorded *compactions* as edits of *view*, without those that are not valid."""
    codec = view.source.codec if view.source is not None else None
    for shown in compactions:
        insert = open_payload(list(shown.insert), codec).decode()
        with suppress(EditError):
            if shown.stop == shown.start + 1 and len(insert) == 1:
                yield view.replace(shown.start, insert[0], by)
            else:
                yield view.fold(shown.start, shown.stop, *insert, by=by)


def read_only_compactor(edited: EditedSession) -> Compactor:
    """Return a compactor over the session's stored edits that makes no edits."""
    return open_read_only(edited.store, edited.codec, edited.count, edited.salt)


def open_read_only(store: Store, format: str | Codec, count: Counter, salt: str = "") -> Compactor:
    """Return a compactor over the edits in *store* that makes no edits."""
    reports = Reports(no_prior)
    return Compactor(
        (), NO_COMPACTION, store, format=format, count=count, reports=reports, salt=salt
    )


def ledger_rows(edited: EditedSession) -> tuple[LedgerRow, ...]:
    """Return the ledger rows of the session, oldest first. Raises `StoreError`."""
    return read_only_compactor(edited).ledger_rows(edited.payload)


def subtract_edits(view: View, other: View) -> list[Edit]:
    """Return the edits of *view* that *other* does not have."""
    ids = {edit.id for edit in other.edits}
    return [edit for edit in view.edits if edit.id not in ids]


def try_strategies(
    edited: EditedSession,
    strategies: Iterable[Strategy],
    to: int,
    *,
    ask: Asker | None,
    actor: str,
    action: Action,
) -> tuple[Preview, tuple[LedgerRow, ...]]:
    """Return a preview of *strategies* reducing a session to *to* tokens, and the ledger rows.

    *ask* answers strategies that need a model. Nothing is written. A session that fits already is
    unchanged, and no model is asked. Unlike a compactor's, these edits include those of local
    strategies: later readers of the file have no strategies.
    """
    if edited.view.tokens <= to:
        return Preview(edited.view, edited.view, ()), ()
    store, ledger = MemoryStore(), MemoryStore()
    store.save(edited.view.edits)
    compactor = Compactor(
        strategies,
        Budget(to, to),
        store,
        ask=ask,
        format=edited.codec,
        count=edited.count,
        reports=Reports(no_prior),  # all figures on a screen are estimates
        ledger=ledger,
        salt=edited.salt,
    )
    preview = compactor.preview(edited.payload, to=to, actor=actor)
    edits = tuple(subtract_edits(preview.view, edited.view))
    new = {edit.id for edit in preview.edits}
    local = [edit for edit in edits if edit.id not in new]
    recorded = [replace(row, action=action) for row in ledger.ledger()]
    when = recorded[0].when if recorded else time.time()
    with_local = edited.view.apply_valid(local)  # local edits come first
    rows = (*build_manual_rows(action, when, actor, with_local, local), *recorded)
    return Preview(edited.view, preview.view, edits), rows


def record_rows(edited: EditedSession, rows: Sequence[LedgerRow]) -> None:
    """Add rows to the session's ledger, if its store has one. Raises `StoreError`."""
    if rows and (ledger := as_ledger_store(edited.store)):
        ledger.record(rows)


def find_edits(view: View, ids: Sequence[str]) -> list[Edit]:
    """Return the edits with these ids or unique id prefixes. The id of a call names the edit that
    hides its result. Raises `EditError`."""
    hiding = find_hiding(view)
    edits = iter(view.find_all(id for id in ids if id not in hiding))
    return [hiding[id] if id in hiding else next(edits) for id in ids]


def find_hiding(view: View) -> dict[str, Edit]:
    """Return the edits that hide tool results, by call id."""
    return {
        call: edit
        for edit, _ in reversed(view.visible_edits)
        for message in view.transcript.messages[edit.start : edit.stop]
        for call in message.results
    }


def undo_edits(
    edited: EditedSession, ids: Sequence[str], *, before: str, actor: str
) -> EditedSession:
    """Revert the edits *ids*, or *before* and all edits made after it, or all edits.

    They are removed from the store, and the ledger records it (`Compactor.revert`). Thinking that
    was signed while an edit showed is bound to it and is hidden (AN-7). If all edits from one on
    are reverted and there are no newer messages, nothing is bound to them, and the session is
    exactly as before. A session without edits is returned as it is. Raises `EditError` for an
    unknown id, `StoreError`.
    """
    edits = edited.view.edits
    if not edits:
        return edited
    first = edits.index(find_edits(edited.view, [before])[0]) if before else 0
    gone = find_edits(edited.view, ids) or list(edits[first:])
    named, compact = [edit.id for edit in gone], read_only_compactor(edited)
    if ids or not _is_unseen(edited, named):
        return replace(edited, view=compact.revert(edited.payload, *named, actor=actor))
    edited.store.remove(named)
    record_rows(edited, build_manual_rows("revert", time.time(), actor, edited.view, gone))
    return replace(edited, view=compact(edited.payload))


def _is_unseen(edited: EditedSession, ids: Iterable[str]) -> bool:
    """Return whether, by the ledger, no message followed since these edits were saved."""
    now = edited.view.transcript.tips[-1]
    saved = [row for row in ledger_rows(edited) if row.action in ("compact", "accept")]
    late = {row.edit for row in saved if row.tip == now}
    return set(ids) <= late - {row.edit for row in saved if row.tip != now}


def show_request(edited: EditedSession, number: int) -> EditedSession:
    """Return a session as it was sent in request *number*, counted from 1 by its answers: with what
    its client or a hook had hidden, and the edits saved by then according to the ledger. Raises
    `FormatError` if there is no such request."""
    view, session = edited.view, edited.session
    answers = [at for at in find_answers(view.transcript.messages) if at]
    if not 0 < number <= len(answers):
        raise FormatError(f"there is no request {number}: {len(answers):,} were answered")
    length = answers[number - 1]
    tips = {*view.transcript.tips[: length + 1]}
    saved = {row.edit for row in ledger_rows(edited) if row.tip in tips}
    hidden = [item for item in session.compactions if item.at is not None and item.at <= length]
    then = view.before(length)
    then = then.apply_valid(make_edits(then, hidden, session.client))
    edits = [edit for edit in view.edits if edit.id in saved or edit.by == BY_HOOK]
    return replace(edited, view=then.apply_valid(edits))


def with_client_compactions(edited: EditedSession) -> EditedSession:
    """Return a session that also hides what its client's own compactions hid, for searching."""
    edits = make_edits(edited.view, edited.session.compactions, edited.session.client)
    return replace(edited, view=edited.view.apply_valid(edits))


def find_owner(sessions: Iterable[EditedSession], id: str) -> EditedSession:
    """Return the only session with the edit *id* (see `find_edits`). Raises `EditError`."""
    owners = [
        edited
        for edited in sessions
        if id in find_hiding(edited.view) or any(e.id.startswith(id) for e in edited.view.edits)
    ]
    if len(owners) > 1:
        raise EditError(f"more than one session has an edit that starts with {id!r}")
    if not owners:
        raise EditError(f"no edit starts with {id!r}")
    find_edits(owners[0].view, [id])
    return owners[0]
