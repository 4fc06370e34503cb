"""The sessions that clients keep in files on this machine."""

import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from msgspec.structs import replace

from refold.compactor.conversations import put_latest
from refold.errors import FormatError, RefoldError, StoreError
from refold.gateway.api.api_types import ListRow
from refold.gateway.ledger.accounting import read_bill
from refold.gateway.ledger.calls import CallLog, Filters
from refold.gateway.ledger.rows import MessageBrief, describe_message, hash_client_name
from refold.gateway.ledger.sessions import ShownEdit, describe_edit
from refold.gateway.ledger.transcripts import Transcripts
from refold.messages import Message
from refold.session_files import discover, read, read_bytes
from refold.session_files.edited import EditedSession, open_edited, opening_words
from refold.session_files.source import NAMES, FoundSession, full_id, short_id
from refold.stores import SidecarStore

RELOAD_SECONDS = 10.0
"""Seconds after which the files are looked for again."""
TITLE_SECONDS = 0.1
"""Seconds that an answer waits for titles."""
HEAD = 65_536
"""Bytes of a file among which its title is looked for."""
TAIL = 600.0
"""Seconds after a session's latest call in which its client may write its file still."""
FIGURES_SECONDS = 0.3
"""Seconds after which an answer reads no further file for its figures."""
FIGURES_BYTES = 2**24
"""Files of more are read only when they are opened."""
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

    def describe(self, title: str) -> ListRow:
        """Return its row in a list, unread but for its *title*."""
        return ListRow(
            id=self.id,
            file=self.name,
            title=title,
            client=self.client,
            project=self.project,
            model="",
            began=self.latest,
            latest=self.latest,
            calls=0,
            failed=0,
            original=0,
            sent=0,
            spent=None,
            saved=None,
            is_recorded=False,
            is_shadow=False,
            is_read=False,
        )


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

    @cached_property
    def list_row(self) -> ListRow:
        """Its row in a list."""
        session, view, bill = self.edited.session, self.edited.view, read_bill(self.edited.session)
        row = self.row.describe(_shorten(session.title or opening_words(session)))
        return replace(
            row,
            model=view.profile.model,
            began=session.started.timestamp() if session.started else row.began,
            calls=bill.calls,
            original=view.tokens_unedited,
            sent=view.tokens,
            spent=bill.dollars,
            is_read=True,
        )

    @cached_property
    def briefs(self) -> list[MessageBrief]:
        """What rows of a timeline say of the messages."""
        base = self.edited.view.base
        return [
            describe_message(message)._replace(place=at, tokens=base.tokens(at, at + 1))
            for at, message in enumerate(self.messages)
        ]

    @cached_property
    def visible_edits(self) -> list[ShownEdit]:
        """The edits that show."""
        view = self.edited.view
        return [describe_edit(view, placed) for placed in view.visible_edits]


class ClientSessions:
    """The sessions of this user's clients, unread but for titles, and those that are looked at."""

    def __init__(self) -> None:
        self._lock, self._until = Lock(), 0.0
        self._rows: Sequence[FileRow] = ()
        self._listed = dict[str, tuple[object, ListRow]]()
        """What each file said when it was read, and its state then; None if only its title was."""
        self._reading, self._opened = Lock(), OrderedDict[str, OpenedFile]()

    def open(self, id: str) -> OpenedFile | None:
        """Return the session of this id as its file and its edits are now; None if there is none.
        Raises `FormatError`."""
        row = next((row for row in self._load() if row.id == id), None)
        if row is None:
            return None
        with self._reading:
            opened = self._read(row)
            put_latest(self._opened, id, opened, MOST_OPEN)
            return opened

    def _read(self, row: FileRow) -> OpenedFile:
        """Return the session as it was read before, if nothing changed since, else read it. Raises
        `FormatError`."""
        path, opened = row.source.path, self._opened.get(row.id)
        try:
            state = _read_state(path)
            if opened is not None and opened.state == state:
                return opened
            session, store = read(path, row.source.id), SidecarStore.beside(path)
            return OpenedFile(row, open_edited(session, None, store, place=store.path), state)
        except OSError as error:
            raise FormatError(f"{row.name}: its file cannot be read: {error.strerror}") from error
        except StoreError as error:  # of the file beside it, not of the gateway's store
            raise FormatError(f"{row.name}: its edits cannot be read: {error}") from error

    def read_figures(self, ids: Sequence[str]) -> list[ListRow]:
        """Return the rows of these sessions, as far as there are such, and read what their files
        say: of one of them at least and as many as can be read in `FIGURES_SECONDS`; what was read
        before is not read again until it changes."""
        rows = [row for row in self._load() if row.id in ids]
        until = time.monotonic() + FIGURES_SECONDS
        for row in rows:
            with self._reading:  # a file at a time, so that one may be opened in between
                if self._describe(row).is_read:
                    continue
                state = _read_listed_state(row)
                self._listed[row.id] = state, self._read_row(row)
            if time.monotonic() > until:
                break
        return self.list_rows(rows)

    def _read_row(self, row: FileRow) -> ListRow:
        """Return what a session's file says; of a large one, or one that cannot be read, its
        title."""
        title = row.source.title or _read_title(row.source)
        if row.source.size_bytes > FIGURES_BYTES:
            return row.describe(title)
        try:
            return self._read(row).list_row
        except RefoldError:
            return row.describe(title or "(cannot be read)")

    def list_rows(self, rows: Sequence[FileRow]) -> list[ListRow]:
        """Return the rows of sessions in a list, with what is known of them by now."""
        self.read_titles(rows)
        return list(map(self._describe, rows))

    def _describe(self, row: FileRow) -> ListRow:
        """Return what a session's file said when it was last read, its title at least as far as
        that is known, and whether it says so still."""
        state, listed = self._listed.get(row.id, (None, row.describe("")))
        is_read = state == _read_listed_state(row)
        title = listed.title or row.source.title
        return replace(listed, title=title, latest=row.latest, is_read=is_read)

    def find(self, filters: Filters) -> list[FileRow]:
        """Return those that *filters* let through, the latest first. None has a model. Words are
        looked for in titles as far as these can be read in `TITLE_SECONDS`."""
        begin, end, words = filters.since, filters.until, filters.words.lower()
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

    def read_titles(self, rows: Sequence[FileRow]) -> None:
        """Read the first words of sessions, as many as can be read in `TITLE_SECONDS`."""
        until = time.monotonic() + TITLE_SECONDS
        for row in rows:
            is_named = row.source.title or row.id in self._listed
            if not is_named and time.monotonic() < until:
                self._listed[row.id] = None, row.describe(_read_title(row.source))

    def _title(self, row: FileRow) -> str:
        _, listed = self._listed.get(row.id, (None, None))
        return row.source.title or (listed.title if listed else "")

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


def _read_listed_state(row: FileRow) -> object:
    """Return what is another after a change of a session as it is listed, or of its edits."""
    with suppress(OSError):
        edits = SidecarStore.beside(row.source.path).path.stat()
        return row.source, edits.st_ino, edits.st_mtime_ns, edits.st_size
    return row.source


def _read_title(source: FoundSession) -> str:
    """Return the first words in a file of lines; of others it says nothing."""
    with suppress(OSError, FormatError), source.path.open("rb") as stream:
        head = stream.read(HEAD)
        whole = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]
        return _shorten(opening_words(read_bytes(whole, source.path.name)))
    return ""


def _shorten(title: str) -> str:
    return " ".join(title.split())[:200]


def drop_recorded(
    log: CallLog, transcripts: Transcripts, files: Sequence[FileRow]
) -> list[FileRow]:
    """Return *files* without those whose session went through the gateway, which kept all of it:
    that stands in the list already. Raises `StoreError`."""
    named = log.find_named(row.client_name for row in files)
    recorded = transcripts.titles(session for _, session, _ in named)
    ordered = sorted(named, key=lambda row: row[2])
    ends = {name: latest for name, session, latest in ordered if session in recorded}
    return [row for row in files if row.latest > ends.get(row.client_name, 0.0) + TAIL]
