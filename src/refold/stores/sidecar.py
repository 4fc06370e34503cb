"""A store in one text file beside a session file: one line for each write, never rewritten.

A line is one whole `save`, `remove` or `record`, so a torn line is a write that never happened. No
lock is needed: each line is appended by one `write` on a descriptor opened with O_APPEND, which
local POSIX file systems do not interleave. If two processes may write on another file system
(Windows, NFS), use `SQLiteStore`.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, Self

from refold.edits import Edit
from refold.errors import StoreError
from refold.stores.edit_json import (
    FORMAT,
    NewerFormatError,
    dump,
    edit_fields,
    load,
    read_edit,
    read_row,
    row_fields,
)
from refold.stores.store import LedgerRow
from refold.text.json_values import JsonObject

_log = logging.getLogger("refold")
SUFFIX = ".refold"
"""Not `.jsonl`, because agents treat every `*.jsonl` in their folders as a session."""

TORN = b" <torn>\n"
"""Marker that the next writer appends to a torn line, so that nobody reads it as whole."""

START = b'{"refold":'


class SidecarStore:
    """Keeps edits and ledger as lines of JSON in the file at *path*, created by the first write.

    Saved edits survive a kill and a power cut. Unreadable lines are skipped and listed in
    `problems`. The whole file is read again after each change, so this is a store for one session,
    not for a service. Raises `StoreError`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.fsdecode(path))
        self._lock = RLock()
        self._read_version: int | None = None
        self._file_state: tuple[int, int] | None = None
        self.replacements = 0
        """How often the file was found deleted, replaced or truncated."""
        self._content = SidecarContent()

    @classmethod
    def beside(cls, session: str | os.PathLike[str]) -> Self:
        """Return the store of a session file: `session.jsonl.refold` beside `session.jsonl`."""
        return cls(os.fsdecode(session) + SUFFIX)

    def close(self) -> None:
        """Do nothing: no file stays open between two calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, like `close`."""

    @property
    def problems(self) -> tuple[str, ...]:
        """The skipped lines, each with its number and error. Raises `StoreError`."""
        return tuple(self._read().problems)

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Return every edit made for one of *tips*, in the order in which they were saved. Raises
        `StoreError`."""
        wanted = set(tips)
        return tuple(edit for edit in self._read().edits.values() if edit.tip in wanted)

    def save(self, edits: Iterable[Edit]) -> None:
        """Save *edits*, all or none. A later edit with the same id replaces the earlier one. Raises
        `StoreError`."""
        self._append("save", [edit_fields(edit) for edit in edits])

    def remove(self, ids: Iterable[str]) -> None:
        """Remove the edits with these full ids; unknown ids are ignored. Raises `StoreError`."""
        self._append("remove", list(ids))

    def version(self) -> int:
        """Return a number that changes with the file; 0 without one. Raises `StoreError`."""
        with self._lock:  # so that no older size is noted after a newer one
            try:
                status = self.path.stat()
            except FileNotFoundError:
                self._note_file(None)
                return 0
            except (OSError, ValueError) as error:
                raise self._error("read", error) from error
            self._note_file((status.st_ino, status.st_size))
        return hash((status.st_ino, status.st_size, status.st_mtime_ns))

    def _note_file(self, file: tuple[int, int] | None) -> None:
        """Record the file's inode and size, and count a replacement if the inode changed or it
        shrank, because our files only grow. A new file after a missing one does not count again."""
        before, self._file_state = self._file_state, file
        if before is not None and (file is None or before[0] != file[0] or before[1] > file[1]):
            self.replacements += 1
            _log.warning("%s was deleted or replaced; what is known is written again", self.path)

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Add *rows* to the ledger, all or none. Raises `StoreError`."""
        self._append("ledger", [row_fields(row) for row in rows])

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """Return all rows, or those about the edit with this full id, in the order of recording.
        Raises `StoreError`."""
        return tuple(row for row in self._read().rows if edit is None or row.edit == edit)

    def ledger_of(self, tips: Sequence[str]) -> Sequence[LedgerRow]:
        """Return the rows whose tip is one of *tips*, in the order of recording. Raises
        `StoreError`."""
        wanted = set(tips)
        return tuple(row for row in self._read().rows if row.tip in wanted)

    def _read(self) -> "SidecarContent":
        with self._lock:
            version = self.version()
            if version != self._read_version:
                self._content, self._read_version = self._replay(), version
            return self._content

    def _replay(self) -> "SidecarContent":
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return SidecarContent()
        except (OSError, ValueError) as error:
            raise self._error("read", error) from error
        try:
            return replay(data)
        except StoreError as error:
            raise StoreError(f"{self.path}: {error}") from error

    def _append(self, kind: str, items: Sequence[Any]) -> None:
        line = dump({"refold": FORMAT, kind: items}).encode() + b"\n"
        with self._lock:
            self._check_file()  # notices a missing file before a new one is created
            try:
                append(self.path, line)
            except (OSError, ValueError) as error:
                raise self._error("write", error) from error
            except StoreError as error:
                raise StoreError(f"{self.path}: {error}") from error
            self._check_file()

    def _check_file(self) -> None:
        """Record the current file. An error is ignored: the read or write reports it."""
        with suppress(StoreError):
            self.version()

    def _error(self, doing: str, error: OSError | ValueError) -> StoreError:
        """Return the error to raise. A ValueError is an impossible path, with a NUL or lone
        surrogate."""
        return StoreError(
            f"{self.path}: cannot {doing}: {getattr(error, 'strerror', None) or error}"
        )


# --- reading ---------------------------------------------------------------------------------


@dataclass(slots=True)
class SidecarContent:
    """The combined contents of a file's lines."""

    edits: dict[str, Edit] = field(default_factory=dict)
    rows: list[LedgerRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def apply(self, line: bytes) -> None:
        """Apply a line, all or nothing. Raises `StoreError`."""
        document = load(line)
        saved = [read_edit(item) for item in _items(document, "save")]
        rows = [read_row(item) for item in _items(document, "ledger")]
        removed = _items(document, "remove")
        for edit in saved:
            self.edits.pop(edit.id, None)
            self.edits[edit.id] = edit
        for id in removed:
            self.edits.pop(str(id), None)
        self.rows.extend(rows)


def replay(data: bytes) -> SidecarContent:
    """Read all contents of a sidecar file. Raises `StoreError` for other files and newer
    versions."""
    refuse_foreign(data)
    content = SidecarContent()
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.endswith(TORN[:-1]) or (line and number == len(lines)):
            if line != TORN[:-1]:
                content.problems.append(f"line {number}: cut off; its write was never acknowledged")
        elif line:
            try:
                content.apply(line)
            except NewerFormatError as error:
                raise StoreError(f"line {number}: {error}") from error
            except StoreError as error:
                content.problems.append(f"line {number}: {error}")
    return content


def refuse_foreign(data: bytes) -> None:
    """Raise `StoreError` unless *data* begins as a sidecar, as far as it goes."""
    head = data.partition(TORN[:-1])[0][: len(START)]
    if not START.startswith(head):
        raise StoreError("not a Refold sidecar: its first line is not that of one")


def _items(document: JsonObject, kind: str) -> list[Any]:
    items = document.get(kind, [])
    if not isinstance(items, list):
        raise StoreError(f"field {kind!r} is of the wrong type")
    return items


# --- writing ---------------------------------------------------------------------------------


def open_private(path: str | Path, flags: int) -> int:
    """Open a file; a new one is readable by its owner only, because sessions are private. An
    `opener` for `open`."""
    return os.open(path, flags, 0o600)


def write_new(path: Path, data: bytes) -> None:
    """Write a private new file, in full or not at all. Raises OSError with its name."""
    file = open(path, "xb", opener=open_private)  # noqa: SIM115 - closing may fail, too
    try:
        with file:
            file.write(data)
    except OSError as error:  # the error of a full disk has no file name
        path.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def append(path: Path, line: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    """Append *line* to the file, as a line of its own, and sync it to disk. Raises `OSError`,
    `StoreError`."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    descriptor = open_private(path, flags)
    try:
        is_new = not os.fstat(descriptor).st_size
        refuse_foreign(_read(descriptor, 0, len(START + TORN)))
        while not _write_line(descriptor, line, write):
            pass
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        _sync_directory(path.parent)


def _write_line(descriptor: int, line: bytes, write: Callable[[int, bytes], int]) -> bool:
    """Write *line* in one piece, and return whether the line before it was whole.

    A writer killed during a write leaves a line without an end, which the next writer first marks
    as torn. If that happened after this writer had checked, the two lines have become one, and this
    one must be written again.
    """
    size = os.fstat(descriptor).st_size
    whole = not size or _read(descriptor, size - 1, 1) == b"\n"
    data = line if whole else TORN + line
    if (written := write(descriptor, data)) < len(data):
        raise StoreError(f"cannot write: only {written} of {len(data)} bytes found room")
    start = os.lseek(descriptor, 0, os.SEEK_CUR) - len(data)
    return not whole or not start or _read(descriptor, start - 1, 1) == b"\n"


def _read(descriptor: int, at: int, count: int) -> bytes:
    os.lseek(descriptor, at, os.SEEK_SET)
    return os.read(descriptor, count)


def _sync_directory(path: Path) -> None:
    """Sync the directory of a new file, without which its name is not on disk. Windows has no such
    call."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
