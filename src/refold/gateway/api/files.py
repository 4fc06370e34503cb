"""The sessions that clients keep in files on this machine, and how they stand in one list with the
gateway's."""

import heapq
import json
import os
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from refold.errors import FormatError
from refold.gateway.ledger.calls import CallLog, Cursor, Filters
from refold.gateway.ledger.rows import (
    ListedSession,
    MessageBrief,
    describe_message,
    hash_client_name,
)
from refold.gateway.ledger.sessions import ShownEdit, describe_edit
from refold.gateway.ledger.transcripts import Transcripts
from refold.messages import Message
from refold.session_files import discover, read, read_bytes
from refold.session_files.client_files import NAMES, FoundSession, full_id, short_id
from refold.session_files.edited import EditedSession, open_edited
from refold.speakers import first_request
from refold.stores import SidecarStore

RELOAD_SECONDS = 10.0
"""Seconds after which the files are looked for again."""
TITLE_SECONDS = 0.1
"""Seconds that an answer waits for titles."""
HEAD = 65_536
"""Bytes of a file among which its title is looked for."""
TAIL = 600.0
"""Seconds after a session's latest call in which its client may write its file still."""
MOST_OPEN = 4
"""Sessions whose files are held in memory, the latest looked at."""


class FileRow(NamedTuple):
    """A session in a client's own file."""

    id: str
    """Of 32 hexadecimal digits, as a gateway's."""
    name: str
    """Names it on the command line."""
    client: str
    project: str
    latest: float
    """When the file was written, in seconds since 1970."""
    source: FoundSession
    client_name: str = ""
    """`hash_client_name` of what the client calls it."""


@dataclass(eq=False)
class OpenedFile:
    """A session in a client's file, with the edits that stand beside it."""

    row: FileRow
    edited: EditedSession
    state: object
    """Of the files that it was read from: another one after any change."""

    @property
    def messages(self) -> Sequence[Message]:
        """All of them, without edits."""
        return self.edited.view.transcript.messages

    @property
    def title(self) -> str:
        """The words that it begins with."""
        session = self.edited.session
        return session.title or " ".join(first_request(session.opening, session.format).split())

    @cached_property
    def briefs(self) -> list[MessageBrief]:
        """What rows of a timeline say of the messages."""
        base = self.edited.view.base
        return [
            describe_message(message)._replace(place=at, tokens=base.tokens(at, at + 1))
            for at, message in enumerate(self.messages)
        ]

    @cached_property
    def shown_edits(self) -> list[ShownEdit]:
        """The edits that show."""
        view = self.edited.view
        return [describe_edit(view, placed) for placed in view.visible_edits]


class ClientSessions:
    """The sessions of this user's clients, unread but for titles, and those that are looked at."""

    def __init__(self) -> None:
        self._lock, self._until = Lock(), 0.0
        self._rows: Sequence[FileRow] = ()
        self._titles = dict[str, str]()
        self._reading, self._opened = Lock(), OrderedDict[str, OpenedFile]()

    def open(self, id: str) -> OpenedFile | None:
        """Return the session of this id as its file and its edits are now; None if there is none.
        Raises `FormatError`, `StoreError`."""
        row = next((row for row in self._load() if row.id == id), None)
        if row is None:
            return None
        source = row.source
        with self._reading:
            try:
                state = _read_state(source.path)
                opened = self._opened.pop(id, None)
                if opened is None or opened.state != state:
                    session = read(source.path, source.id)
                    store = SidecarStore.beside(source.path)
                    edited = open_edited(session, None, store, place=store.path)
                    opened = OpenedFile(row, edited, state)
            except OSError as error:
                raise FormatError(
                    f"{row.name}: its file cannot be read: {error.strerror}"
                ) from error
            self._opened[id] = opened
            while len(self._opened) > MOST_OPEN:
                self._opened.popitem(last=False)
            return opened

    def find(self, filters: Filters) -> list[FileRow]:
        """Return those that *filters* let through, the latest first. None has a model. Words are looked
        for in titles as far as these can be read in `TITLE_SECONDS`."""
        begin, end, words = filters.since, filters.until or 2.0**40, filters.words.lower()
        if words:
            self.read_titles(self._load())
        return [
            row
            for row in self._load()
            if not filters.model
            and filters.client in ("", row.client)
            and filters.project in ("", row.project)
            and begin <= row.latest < end
            and words in f"{row.name} {self._title(row)} {row.client} {row.project}".lower()
        ]

    def list_values(self, name: str) -> set[str]:
        """Return the clients, or the projects, that there are."""
        return {value for row in self._load() if (value := getattr(row, name))}

    def read_titles(self, rows: Sequence[FileRow]) -> dict[str, str]:
        """Return the first words of sessions by their ids, as many as can be read in `TITLE_SECONDS`."""
        until = time.monotonic() + TITLE_SECONDS
        for row in rows:
            if not self._title(row) and time.monotonic() < until:
                self._titles[row.id] = _read_title(row.source)
        return {row.id: self._title(row) for row in rows}

    def _title(self, row: FileRow) -> str:
        return row.source.title or self._titles.get(row.id, "")

    def _load(self) -> Sequence[FileRow]:
        with self._lock:
            if time.monotonic() >= self._until:
                self._rows = [_make_row(source) for source in discover(Path.home(), os.environ)]
                self._until = time.monotonic() + RELOAD_SECONDS
            return self._rows


def _make_row(source: FoundSession) -> FileRow:
    place = f"{source.path}\0{source.id}".encode("utf-8", "surrogateescape")
    return FileRow(
        blake2b(place, digest_size=16).hexdigest(),
        short_id(source),
        NAMES.get(source.client, source.client),
        Path(source.cwd).name,
        source.modified.timestamp(),
        source,
        hash_client_name(full_id(source)),
    )


def _read_state(path: Path) -> object:
    """Return what is another after any change of a session's file, of its database's log, or of its
    edits. Raises `OSError`."""
    path.stat()
    files = (path, path.with_name(f"{path.name}-wal"), SidecarStore.beside(path).path)
    states = [file.stat() if file.exists() else None for file in files]
    return [state and (state.st_ino, state.st_size, state.st_mtime_ns) for state in states]


def _read_title(source: FoundSession) -> str:
    """Return the first words in a file of lines; of others it says nothing."""
    with suppress(OSError, FormatError), source.path.open("rb") as stream:
        head = stream.read(HEAD)
        whole = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]
        session = read_bytes(whole, source.path.name)
        return " ".join(first_request(session.opening, session.format).split())[:200]
    return ""


# --- one list ----------------------------------------------------------------------------------


class Page(NamedTuple):
    """A page of sessions in their order."""

    rows: list[ListedSession | FileRow]
    total: int
    next: str
    """Where the next one begins; empty at the end."""


Place = tuple[Cursor | None, int]
"""Where a page begins: after which session of the gateway, and how many files stand before."""


def list_page(
    log: CallLog,
    filters: Filters,
    files: Sequence[FileRow],
    sort: str,
    window: tuple[int, int],
    *,
    descending: bool,
    place: Place | None,
) -> Page:
    """Return the page at *window* (limit, offset) from *place*, or from the beginning. In the order
    of their latest calls *files*, the latest first, stand among the gateway's sessions, in others
    behind them: nothing is known of them that these go by. Raises `StoreError`."""
    limit, skip = window
    if sort == "latest" and not descending:
        files = files[::-1]
    after, taken = place or (None, 0)
    offset = 0
    if place is None or not files:
        taken = taken or _count_before(log, filters, files, sort, skip, descending=descending)
        skip, offset = 0, skip - taken if place is None else skip
    listed, total, end = log.list_sessions(
        filters, sort, limit + skip, offset, descending=descending, after=after
    )
    rest = files[taken:]
    rows: list[ListedSession | FileRow]
    if sort == "latest":
        pair = (listed, rest) if descending else (rest, listed)
        merged = heapq.merge(*pair, key=lambda row: row.latest, reverse=descending)
        rows = list(islice(merged, limit + skip))
    else:
        rows = list(islice(chain(listed, rest), limit + skip))
    used = [row for row in rows if isinstance(row, ListedSession)]
    if len(used) < len(listed):
        end = (used[-1].latest, used[-1].latest, used[-1].session) if used else None
    taken += len(rows) - len(used)
    is_last = len(used) == len(listed) < limit + skip and taken == len(files)
    return Page(
        rows[skip:],
        total + len(files),
        "" if is_last else json.dumps([end or after, taken]),
    )


def drop_recorded(
    log: CallLog, recorder: Transcripts | None, files: Sequence[FileRow]
) -> list[FileRow]:
    """Return *files* without those whose session went through the gateway, which kept all of it: that
    stands in the list already. Raises `StoreError`."""
    if recorder is None or not files:
        return list(files)
    named = log.find_named(row.client_name for row in files)
    recorded = recorder.titles(session for _, session, _ in named)
    ordered = sorted(named, key=lambda row: row[2])
    ends = {name: latest for name, session, latest in ordered if session in recorded}
    return [row for row in files if row.latest > ends.get(row.client_name, 0.0) + TAIL]


def _count_before(
    log: CallLog,
    filters: Filters,
    files: Sequence[FileRow],
    sort: str,
    count: int,
    *,
    descending: bool,
) -> int:
    """Return how many *files* are among the first *count* rows. Raises `StoreError`."""

    def place(at: int) -> int:
        if sort != "latest":
            return at + log.count_sessions(filters)
        latest = files[at].latest
        if descending:
            return at + log.count_sessions(filters._replace(since=max(filters.since, latest)))
        until = latest if filters.until is None else min(filters.until, latest)
        return at + log.count_sessions(filters._replace(until=until))

    return bisect_left(range(len(files)), count, key=place) if count else 0
