"""One connection to an SQLite file for all threads of a process, that survives forks and speaks clearly."""

import logging
import os
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import NamedTuple, Protocol

from refold.errors import StoreError
from refold.stores import sqlite_at_rest as reading
from refold.stores.sqlite_schema import APPLICATION_ID, MIGRATIONS, prepare_schema

MEMORY = ":memory:"
FAILURES = (sqlite3.Error, OSError, ValueError)
"""What comes of a file that cannot be used. A ValueError is a path that no file can have (NUL, half a character), or a
text that damage made unreadable where Python's own module reads it (C16)."""
_log = logging.getLogger("refold")


class SQLiteDatabase:
    """A connection, its lock and its count of writes. With *read_only* the file is there already, and stays as it is."""

    def __init__(
        self,
        path: str,
        timeout: float,
        synchronous: str,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
        owner: int = APPLICATION_ID,
        *,
        read_only: bool = False,
    ) -> None:
        self.path, self._timeout, self._synchronous = path, timeout, synchronous
        self._migrations, self._owner = migrations, owner
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._closed = self._paused = self._is_gone = False
        self._writes = 0
        self._read_only = read_only and path != MEMORY
        self._rests: reading.Stamp | None = None
        self._files: _Files | None = None
        self.replacements = 0
        """How often another file, or none, was found in the place of the one that was open (C12)."""

    @contextmanager
    def connection(self, doing: str) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; what goes wrong becomes a `StoreError`."""
        with self._lock:
            try:
                yield self._current()
                self._insist_on_rest()
            except FAILURES as error:
                raise StoreError(f"{self.path}: cannot {doing}: {self._reason(error)}") from error
            except StoreError as error:
                raise StoreError(f"{self.path}: {error}") from error

    @contextmanager
    def transaction(self, *, edits: bool = True) -> Iterator[sqlite3.Connection]:
        """The connection in a transaction: kept whole at the end, or not at all. Own writes of other things
        than *edits* do not change the version.

        The write lock is taken at the start, where SQLite waits for other writers; a transaction that
        begins by reading could only fail when it comes to write.
        """
        with self.connection("write") as connection:
            self._writes += edits
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def version(self) -> int:
        """Own writes, and SQLite's count of what other connections have committed: both only grow."""
        with self.connection("read") as connection:
            return self._writes + int(connection.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Let go of the file for good."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def before_fork(self) -> None:
        """Before a fork: SQLite's locks and its idea of them do not survive in a child, so none are open."""
        self._lock.acquire()
        self._paused = True
        if self.path != MEMORY:
            self._disconnect()

    def after_fork(self) -> None:
        """After a fork, in parent and child: the next use connects again."""
        if self._paused:
            self._paused = False
            self._lock.release()

    def _current(self) -> sqlite3.Connection:
        """The connection; another one after what was read at rest has changed, and where the file is not the one that was
        opened: it was deleted or replaced, and what is written to the old one is lost."""
        if (
            self._connection
            and self._files
            and not self._connection.in_transaction
            and self._files.are_gone(self.path)
        ):
            self._disconnect()
            self._is_gone = True  # the inode of the new one may be the same again from now on
            if not self._read_only:
                self._files.leave(self.path)
        if self._read_only and self._connection and reading.at_rest(self.path) != self._rests:
            self._disconnect()
        if self._connection is None:
            if self._closed:
                raise StoreError("the store is closed")
            self._connection = self._to_read() if self._read_only else self._to_write()
            self._arrive()
            # A new connection counts others' commits from its own beginning: stay clear of the old count.
            self._writes += 1 << 32
        return self._connection

    def _arrive(self) -> None:
        """Remember which file it is, and tell where it is another than before."""
        before, self._files = self._files, None if self.path == MEMORY else _Files.at(self.path)
        if before and self._files and (self._is_gone or before.main != self._files.main):
            self.replacements, self._is_gone = self.replacements + 1, False
            _log.warning(
                "%s was deleted or replaced while it was open; what is known is written again",
                self.path,
            )

    def _insist_on_rest(self) -> None:
        """Raise `StoreError` if what was read without locks has changed meanwhile."""
        if self._rests and reading.stamp(self.path) != self._rests:
            raise StoreError(reading.CHANGED)

    def _reason(self, error: Exception) -> str:
        if self._rests and reading.stamp(self.path) != self._rests:
            return reading.CHANGED
        return _reason(self.path, error)

    def _to_read(self) -> sqlite3.Connection:
        self._rests = reading.at_rest(self.path)
        return reading.connect(
            self.path, self._timeout, self._migrations, self._owner, resting=self._rests is not None
        )

    def _to_write(self) -> sqlite3.Connection:
        if self.path != MEMORY:
            _make_private(self.path)
        connection = sqlite3.connect(
            self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            prepare_schema(connection, self._timeout, self._migrations, self._owner)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Files(NamedTuple):
    """The files of an open store, by device and inode; None for those that are not there."""

    main: tuple[int, int] | None
    wal: tuple[int, int] | None
    shm: tuple[int, int] | None

    @classmethod
    def at(cls, path: str) -> "_Files":
        """Those at *path*."""
        return cls(_inode(path), _inode(f"{path}-wal"), _inode(f"{path}-shm"))

    def are_gone(self, path: str) -> bool:
        """Is another file at *path*, or none?"""
        return _inode(path) != self.main

    def leave(self, path: str) -> None:
        """Take away the log and the index of a file that is gone: they must not be taken for those of another."""
        for beside, inode in ((f"{path}-wal", self.wal), (f"{path}-shm", self.shm)):
            if inode is not None and _inode(beside) == inode:
                Path(beside).unlink(missing_ok=True)


def _inode(path: str) -> tuple[int, int] | None:
    """Device and inode; None where there is no file. Raises OSError where that cannot be told."""
    try:
        found = os.stat(path)  # noqa: PTH116 - with every use: half the time of a Path
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _make_private(path: str) -> None:
    """Make a new file that is its owner's alone: summaries hold what was said. SQLite gives its other files the same rights."""
    with suppress(OSError):  # it is there already, or SQLite will say better what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


class ForkAware(Protocol):
    """What must know of forks."""

    def before_fork(self) -> None:
        """Before a fork, in the thread that forks."""

    def after_fork(self) -> None:
        """After it, in parent and child."""


def close_before_forks(link: ForkAware) -> None:
    """Have *link* closed before each fork of this process, for as long as it lives."""
    if not hasattr(os, "register_at_fork"):
        return
    known = weakref.ref(link)

    def pause() -> None:
        if (alive := known()) is not None:
            alive.before_fork()

    def resume() -> None:
        if (alive := known()) is not None:
            alive.after_fork()

    os.register_at_fork(before=pause, after_in_parent=resume, after_in_child=resume)


def _reason(path: str, error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN:
        return _unopened(Path(path))
    if code == sqlite3.SQLITE_NOTADB:
        return "it is not an SQLite database"
    return str(error)


def _unopened(path: Path) -> str:
    if os.path.isdir(path):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
        return "it is a directory"
    if not os.path.isdir(path.parent):  # noqa: PTH112 - likewise
        return f"there is no directory {path.parent}"
    if os.path.exists(path) and os.path.exists(f"{path}-wal"):  # noqa: PTH110 - likewise
        return "its last writes are in its -wal file still, which can be read only where files may be made beside it"
    return "the file cannot be opened or created"
