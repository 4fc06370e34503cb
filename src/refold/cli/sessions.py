"""Sessions on this machine, in files of clients or recorded by a gateway: search and list."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from refold import session_files
from refold.cli import terminal
from refold.cli.places import SESSIONS, data_directory
from refold.cli.terminal import plural, shorten
from refold.codecs.detect import rebuild_entries
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.errors import FormatError, RefoldError
from refold.gateway.ledger.accounting import as_usage, read_bill
from refold.gateway.ledger.calls import (
    CallLog,
    Filters,
    PastCall,
    remake_local_edits,
    show_past_call,
)
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.sql import NO_CALLS, Ledger
from refold.gateway.ledger.writer import has_ledger, open_ledger_database, open_transcripts
from refold.session_files import FoundSession, Session
from refold.session_files.edited import NO_COMPACTION, EditedSession, open_read_only, opening_words
from refold.session_files.source import (
    MIN_ID_PREFIX,
    ClientFiles,
    OnError,
    cwd_under,
    short_id,
)
from refold.stores import file_path, open_store
from refold.stores.store import Store
from refold.text.json_values import without_empty
from refold.text.plain import split_path
from refold.tokens.count import Counter, count_message

GATEWAY = "gateway"
"""Client name of a session that a gateway recorded."""
MAX_RECORDED = 10_000
"""Maximum number of recorded sessions that are searched, the latest first."""
LISTED_COUNT = 20
"""Number of sessions that `refold` shows."""
READ_SECONDS = 3.0
"""Seconds after which no further file of the list is read."""
COPIES = ClientFiles("claude_code", (SESSIONS,), ("*.jsonl",), cwd_under("cwd"))
"""Copies of sessions by `refold hook pre-compact`, in the user's data directory."""


def find_on_machine(name: str, store: str) -> FoundSession:
    """Return the session whose id is *name*, or the only one whose id begins with it, among the
    clients' files, or else among the sessions recorded by a gateway with this *store*. Raises
    `FormatError` for none or several."""
    for files in (list_files(), list_recorded(store)):
        matches = [
            session
            for session in files
            if name in (short_id(session), session.id, session.path.stem)
            or (len(name) >= MIN_ID_PREFIX and _begins_with(session, name))
        ]
        exact = [session for session in matches if name == short_id(session)]
        if len(matches) == 1 or len(exact) == 1:
            return (exact or matches)[0]
        if matches:
            raise FormatError(
                f"{len(matches)} sessions on this machine begin with {name}: say more"
            )
    raise FormatError(
        f"{name}: no such file, and no session of this id on this machine (refold lists them)"
    )


def ids_on_machine(begin: str) -> list[str]:
    """Return the short ids, sorted, of the sessions in clients' files that begin with *begin*."""
    ids = map(short_id, session_files.discover(Path.home(), os.environ))
    return sorted({id for id in ids if id.startswith(begin)})


def choose_on_machine(project: str | None, store: str, *, last: bool) -> list[FoundSession]:
    """Return the sessions of the directory *project* and below, or all if it is None. With *last*
    return only the latest. If no client's file matches, use a gateway's sessions whose messages are
    kept. Raises `FormatError`, `StoreError`."""
    folder = Path(os.path.realpath(project)) if project is not None else None
    files = [
        file for file in list_files() if folder is None or Path(file.cwd).is_relative_to(folder)
    ]
    if not files:
        recorded = list_readable(store)
        files = [file for file in recorded if folder is None or file.cwd == folder.name]
    if not files:
        where = f"of {folder}" if folder is not None else "of a coding agent"
        raise FormatError(f"no session {where} is on this machine (refold lists them)")
    return files[:1] if last else files


def list_files(on_error: OnError = str) -> list[FoundSession]:
    """Return the clients' sessions, latest first, then copies of deleted ones."""
    files = session_files.discover(Path.home(), os.environ, on_error)
    names = {file.path.name for file in files}
    copies = COPIES.find(data_directory(Path.home()), {}, on_error)
    return [*files, *(file for file in copies if file.path.name not in names)]


def _begins_with(session: FoundSession, name: str) -> bool:
    # A file name may have a time before the id.
    ids = short_id(session), session.name.rpartition("_")[2], session.name[-36:]
    return any(id.startswith(name) for id in ids)


# --- those that a gateway recorded ---------------------------------------------------------------


def list_recorded(store: str) -> list[FoundSession]:
    """Return the sessions that a gateway with this store recorded, latest first; none if there is
    no such store. Raises `StoreError`."""
    if not has_ledger(store):
        return []
    with closing(open_ledger_database(store)) as database:
        rows = CallLog(database).list_sessions(Filters(), "latest", MAX_RECORDED, 0)
    return [
        FoundSession(
            GATEWAY,
            Path(row.session),
            -1,
            datetime.fromtimestamp(row.latest, UTC),
            row.session,
            row.project,
        )
        for row, _ in rows
    ]


def list_readable(store: str) -> list[FoundSession]:
    """Return the recorded sessions whose messages are kept (see `list_recorded`)."""
    files = list_recorded(store)
    with closing(open_transcripts(store, None, time.time)) as transcripts:
        recorded = transcripts.titles(file.id for file in files)
    return [file for file in files if file.id in recorded]


def open_recorded(
    store: str,
    name: str,
    count: Counter,
    *,
    read_only: bool,
    request: int | None = None,
    as_sent: bool = False,
) -> EditedSession:
    """Return a gateway's session with its stored edits. With *as_sent*, add the local edits that
    the gateway makes again for each call. With *request*, return the session as sent in the request
    of this number, from 1. Raises `FormatError` if it was not recorded, `StoreError`."""
    with closing(open_ledger_database(store)) as database:
        calls = CallLog(database)
        listed, booked_calls = calls.find(name), calls.calls_of(name)
        latest = Sessions(database, time.time).find(name)
        booked = Ledger(database).sum_sessions([name]).get(name, NO_CALLS)
    recorded = past = None
    if listed is not None:
        with closing(open_transcripts(store, None, time.time)) as transcripts:
            who = listed.tenant, listed.session
            if request is not None:
                past = transcripts.past_calls.find_request(*who, booked_calls, request)
            elif as_sent and booked_calls:
                past = transcripts.past_calls.find(*who, booked_calls[max(booked_calls)].at)
            recorded = transcripts.load(*who)
    if listed is None or recorded is None or latest is None:
        raise FormatError(
            f"{name}: the gateway has no messages of this session (record keeps them)"
        )
    codec, entries = rebuild_entries(listed.api, recorded.messages)
    session = Session(
        path=Path(name),
        client=GATEWAY,
        format=listed.api,  # type: ignore[arg-type]  # the same names
        id=name,
        messages=entries,
        body=without_empty({"model": listed.model}),
        cwd=listed.project,
        started=datetime.fromtimestamp(listed.began, UTC),
        updated=datetime.fromtimestamp(listed.latest, UTC),
        usage=((0, as_usage(booked.reported)),),
    )
    edits = open_store(store, read_only=read_only)
    view = open_read_only(edits, codec, count, latest.salt)(session.payload)
    if tuple(view.transcript.messages) != recorded.messages:
        raise FormatError(f"{name}: its messages were not recorded word for word")
    if past is not None:
        view = _show_sent(past, view, edits) if request is not None else _show_local(past, view)
    return EditedSession(
        *(name, session, session.payload, edits, view, count, file_path(store)),
        salt=latest.salt,
        tenant=listed.tenant,
    )


def _show_sent(past: PastCall, view: View, edits: Store) -> View:
    """Return *view* as it was sent in a call. Warn of edits that are no longer stored."""
    stored = {edit.id: edit for edit in edits.load(view.transcript.tips)}
    stored |= {edit.id: edit for edit in remake_local_edits(past, view)}
    if gone := sum(shown.id not in stored for shown in past.edits):
        terminal.warn(f"not stored, {plural(gone, 'edit')} of it: shown is what is kept")
    return show_past_call(past, view, stored)


def _show_local(past: PastCall, view: View) -> View:
    """Return *view* with the local edits that a gateway made for the latest call."""
    hidden = [range(placed.edit.start, placed.edit.stop) for placed in view.visible_edits]
    return view.apply_valid(
        edit
        for edit in remake_local_edits(past, view)
        if not any(edit.start in span for span in hidden)
    )


# --- the list ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A session in the list."""

    file: FoundSession
    tokens: int | None = None
    """Provider's latest count, or our estimate; None if the file was not read."""
    dollars: float | None = None
    title: str = ""
    is_read: bool = True
    """Whether reading the file was tried."""

    @property
    def project(self) -> str:
        """Name of its working directory, or its title."""
        return split_path(self.file.cwd.rstrip("/\\"))[1] or self.file.title


def read_listed(
    sessions: Iterable[FoundSession], seconds: float | None, store: str
) -> Iterator[SessionEntry]:
    """Yield an entry for each session, read from its file or a gateway's *store*. After *seconds*
    (None: never) the rest are not read. If reading fails, the entry's title says why."""
    start = time.monotonic()
    for file in sessions:
        if seconds is not None and time.monotonic() - start > seconds:
            yield SessionEntry(file, title=file.title, is_read=False)
            continue
        try:
            yield _read_recorded(file, store) if file.client == GATEWAY else _read_file(file)
        except (RefoldError, OSError) as error:
            why = str(error).removeprefix(file.path.name).lstrip(": ")
            yield SessionEntry(file, title=f"(cannot be read: {shorten(why, 60)})")


def _read_file(file: FoundSession) -> SessionEntry:
    session = session_files.read(file.path, file.id)
    bill = read_bill(session)
    title = file.title or session.title or opening_words(session)
    size = bill.context or Compactor((), NO_COMPACTION).show(session.payload).tokens
    return SessionEntry(file, size, bill.dollars, title)


def _read_recorded(file: FoundSession, store: str) -> SessionEntry:
    edited = open_recorded(store, file.id, count_message, read_only=True, as_sent=True)
    dollars = read_bill(edited.session).dollars
    return SessionEntry(file, edited.view.tokens, dollars, opening_words(edited.session))


def group_projects(rows: Iterable[SessionEntry]) -> list[tuple[str, list[SessionEntry]]]:
    """Return the sessions of each folder, the most expensive folder first."""
    groups: dict[str, list[SessionEntry]] = {}
    for row in sorted(rows, key=lambda row: row.file.cwd):
        groups.setdefault(row.file.cwd, []).append(row)
    return sorted(groups.items(), key=lambda item: -(sum_listed(item[1])[1] or 0))


def sum_listed(rows: Iterable[SessionEntry]) -> tuple[int, float | None]:
    """Return total tokens and cost. The cost is None if no session has one."""
    listed = list(rows)
    priced = [row.dollars for row in listed if row.dollars is not None]
    return sum(row.tokens or 0 for row in listed), sum(priced) if priced else None


ORDERS: dict[str, Callable[[SessionEntry], float]] = {
    "age": lambda listed: -listed.file.modified.timestamp(),
    "tokens": lambda listed: -(listed.tokens or 0),
    "cost": lambda listed: -(listed.dollars or 0),
}
"""Sort keys of the list: the newest, or the largest, first."""
