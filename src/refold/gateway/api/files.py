"""Sessions that clients keep in files on this machine."""

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

from refold.compactor.conversations import put_lru
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
"""Seconds between two searches for files."""
TITLE_SECONDS = 0.1
"""Seconds for reading titles in one answer."""
TITLE_BYTES = 65_536
"""Bytes of a file that are searched for its title."""
WRITE_DELAY_SECONDS = 600.0
"""Seconds after a session's latest call in which its client may still write its file."""
FIGURES_SECONDS = 0.3
"""Seconds after which an answer reads no further files for figures."""
FIGURES_BYTES = 2**24
"""Size above which files are read only when they are opened."""
MOST_OPEN = 4
"""Sessions held in memory, the latest used."""


class FileRow(NamedTuple):
    """A session in a client's own file."""

    id: str
    """32 hexadecimal digits, as a gateway's."""
    name: str
    """Its name on the command line."""
    client: str
    project: str
    latest: float
    """When the file was modified, in seconds since 1970."""
    source: FoundSession
    client_name: str = ""
    """The client's own name for it (`hash_client_name`)."""

    def describe(self, title: str) -> ListRow:
        """Return its row in a list, with nothing read but its *title*."""
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
    """A session in a client's file, with its edits."""

    row: FileRow
    edited: EditedSession
    state: object
    """State of the files it was read from, which any change alters."""

    @property
    def messages(self) -> Sequence[Message]:
        """All messages, without edits."""
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
        """Timeline rows of the messages."""
        base = self.edited.view.base
        return [
            describe_message(message)._replace(place=at, tokens=base.tokens(at, at + 1))
            for at, message in enumerate(self.messages)
        ]

    @cached_property
    def visible_edits(self) -> list[ShownEdit]:
        """Edits that show."""
        view = self.edited.view
        return [describe_edit(view, placed) for placed in view.visible_edits]


class ClientSessions:
    """Sessions of this user's clients. A file is read only for its title, figures or messages."""

    def __init__(self) -> None:
        self._lock, self._until = Lock(), 0.0
        self._rows: Sequence[FileRow] = ()
        self._listed = dict[str, tuple[object, ListRow]]()
        """Row of each read file, and its state then; None if only the title was read."""
        self._reading, self._opened = Lock(), OrderedDict[str, OpenedFile]()

    def open(self, id: str) -> OpenedFile | None:
        """Return the session of this id with the current file and edits; None if unknown. Raises
        `FormatError`."""
        row = next((row for row in self._load() if row.id == id), None)
        if row is None:
            return None
        with self._reading:
            opened = self._read(row)
            put_lru(self._opened, id, opened, MOST_OPEN)
            return opened

    def _read(self, row: FileRow) -> OpenedFile:
        """Return the session, read again only if something changed. Raises `FormatError`."""
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
        """Return the rows of those *ids* that are known, and read their files: at least one, and as
        many as `FIGURES_SECONDS` allow. A file is not read again until it changes."""
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
        """Return what a session's file says; only the title if it is large or cannot be read."""
        title = row.source.title or _read_title(row.source)
        if row.source.size_bytes > FIGURES_BYTES:
            return row.describe(title)
        try:
            return self._read(row).list_row
        except RefoldError:
            return row.describe(title or "(cannot be read)")

    def list_rows(self, rows: Sequence[FileRow]) -> list[ListRow]:
        """Return the rows of sessions, with what is known so far."""
        self.read_titles(rows)
        return list(map(self._describe, rows))

    def _describe(self, row: FileRow) -> ListRow:
        """Return a session's row as last read, with its title if known, and whether it is up to
        date."""
        state, listed = self._listed.get(row.id, (None, row.describe("")))
        is_read = state == _read_listed_state(row)
        title = listed.title or row.source.title
        return replace(listed, title=title, latest=row.latest, is_read=is_read)

    def find(self, filters: Filters) -> list[FileRow]:
        """Return the sessions that match *filters*, the latest first; none if a model is asked for.
        Words are searched for in the titles that can be read in `TITLE_SECONDS`."""
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
        """Return all values of `client` or `project` that are not empty."""
        return {value for row in self._load() if (value := getattr(row, name))}

    def read_titles(self, rows: Sequence[FileRow]) -> None:
        """Read the first words of sessions, as many as `TITLE_SECONDS` allow."""
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
    """Return a state that changes with a session's file, its database's log, or its edits. Raises
    `OSError`."""
    path.stat()
    files = (path, path.with_name(f"{path.name}-wal"), SidecarStore.beside(path).path)
    states = [file.stat() if file.exists() else None for file in files]
    return [state and (state.st_ino, state.st_size, state.st_mtime_ns) for state in states]


def _read_listed_state(row: FileRow) -> object:
    """Return a state that changes with a session's list row or edits."""
    with suppress(OSError):
        edits = SidecarStore.beside(row.source.path).path.stat()
        return row.source, edits.st_ino, edits.st_mtime_ns, edits.st_size
    return row.source


def _read_title(source: FoundSession) -> str:
    """Return the first words of a file of lines; empty for other files."""
    with suppress(OSError, FormatError), source.path.open("rb") as stream:
        head = stream.read(TITLE_BYTES)
        whole = head if len(head) < TITLE_BYTES else head[: head.rfind(b"\n") + 1]
        return _shorten(opening_words(read_bytes(whole, source.path.name)))
    return ""


def _shorten(title: str) -> str:
    return " ".join(title.split())[:200]


def drop_recorded(
    log: CallLog, transcripts: Transcripts, files: Sequence[FileRow]
) -> list[FileRow]:
    """Return *files* without sessions that went through the gateway and are recorded whole: they
    are listed already. Raises `StoreError`."""
    named = log.find_named(row.client_name for row in files)
    recorded = transcripts.titles(session for _, session, _ in named)
    ordered = sorted(named, key=lambda row: row[2])
    ends = {name: latest for name, session, latest in ordered if session in recorded}
    return [
        row for row in files if row.latest > ends.get(row.client_name, 0.0) + WRITE_DELAY_SECONDS
    ]
