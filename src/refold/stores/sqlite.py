"""A store in one SQLite file, which survives kills and power loss and is shared by threads and
processes. One connection serves all threads of a process. It is closed while the process forks."""

import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Literal

from refold.errors import StoreError
from refold.stores import sql
from refold.stores.schema import (
    APPLICATION_ID,
    SQLITE_MIGRATIONS,
    prepare_sqlite,
    upgrade_copy,
)
from refold.text.plain import Run, fold, run_terms, runs

# --- the connection -------------------------------------------------------------------------------


MEMORY = ":memory:"
FAILURES = (sqlite3.Error, OSError, ValueError)
"""Errors of unusable files. A ValueError is an impossible path (NUL, lone surrogate), or a damaged
text that Python's module cannot decode."""
CHANGED = "it was written to while it was read; read it again"
_log = logging.getLogger("refold")

Inode = tuple[int, int]
"""Device and inode of a file."""
Stamp = tuple[int, int, int]
"""Inode, size and modification time of a file, which differ after each change."""


class SQLiteDatabase:
    """A connection to the file at *path*, its lock and its count of writes.

    With *read_only* the file must exist, and no file is created or written, not even beside it.
    SQLite reads a file in WAL mode through two others, `-wal` and `-shm`, which it creates if they
    are missing. On a read-only medium that fails. So if the `-wal` is not empty, the file is opened
    with `mode=ro`, like any reader beside a writer. Otherwise nobody has written to it since it was
    closed, and it is opened with `immutable=1`, which takes no locks and creates no files. Each use
    then ends with a check that the file is unchanged (https://www.sqlite.org/wal.html#readonly).
    """

    placeholder = "?"

    def __init__(
        self,
        path: str,
        timeout: float,
        synchronous: str,
        migrations: Sequence[Sequence[str]] = SQLITE_MIGRATIONS,
        application_id: int = APPLICATION_ID,
        *,
        read_only: bool = False,
    ) -> None:
        self.path, self._timeout, self._synchronous = path, timeout, synchronous
        self._migrations, self._application_id = migrations, application_id
        self._read_only = read_only and path != MEMORY
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = self._is_copy = False
        self._writes = 0
        self._rest_stamp: Stamp | None = None
        self._inodes: dict[str, Inode | None] = {}
        self.replacements = 0
        """How often the open file was found deleted or replaced."""

    def open(self) -> None:
        """Connect now instead of at the first use. Raises `StoreError`."""
        with self.connection("open"):
            pass

    @contextmanager
    def connection(self, doing: str) -> Iterator[sqlite3.Connection]:
        """Lend the connection to this thread only. Errors become `StoreError`."""
        with self._lock:
            try:
                yield self._current()
                self._refuse_changed()
            except FAILURES as error:
                if _code(error) == sqlite3.SQLITE_READONLY and _may_write(self.path):
                    self._disconnect()  # it was opened read-only, but may be written by now
                reason = CHANGED if self._has_changed_at_rest() else _reason(self.path, error)
                raise StoreError(f"{self.path}: cannot {doing}: {reason}") from error
            except StoreError as error:
                raise StoreError(f"{self.path}: {error}") from error

    @contextmanager
    def transaction(self, *, edits: bool = True) -> Iterator[sqlite3.Connection]:
        """Lend the connection in a transaction, committed in full at the end or not at all. The
        version changes only if *edits* are written.

        The write lock is taken at the start, where SQLite waits for other writers. A transaction
        that begins with a read could only fail at its first write.
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
        """Return our writes plus SQLite's count of commits by other connections. Both only grow."""
        with self.connection("read") as connection:
            return self._writes + int(connection.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Disconnect permanently."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def before_fork(self) -> None:
        """Disconnect and block other uses, because SQLite's locks and their state do not survive in
        a child. A database in memory stays connected."""
        self._lock.acquire()
        if self.path != MEMORY:
            self._disconnect()

    def after_fork(self) -> None:
        """Allow the next use to connect again, in parent and child."""
        self._lock.release()

    def _current(self) -> sqlite3.Connection:
        """Return the connection; a new one if the file was deleted, replaced, or changed while read
        without locks."""
        if self._connection is not None and self._is_replaced(self._connection):
            self._disconnect()
            if not self._read_only:
                self._remove_leftovers()
            self._inodes[""] = None  # the new file may get the same inode
        if self._read_only and self._connection and self._may_be_stale():
            self._disconnect()
        if self._connection is None:
            if self._is_closed:
                raise StoreError("the store is closed")
            self._connection = self._connect()
            self._note_files()
            # A new connection counts others' commits from zero: avoid earlier versions.
            self._writes += 1 << 32
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        address = self.path
        if self._read_only:
            self._rest_stamp = _stamp_at_rest(self.path)
            mode = "mode=ro&immutable=1" if self._rest_stamp else "mode=ro"
            address = f"{Path(self.path).absolute().as_uri()}?{mode}"
        elif self.path != MEMORY:
            _make_private(self.path)
        connection = sqlite3.connect(
            address,
            uri=self._read_only,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        schema = (self._timeout, self._migrations, self._application_id)
        # SQLite's own LOWER handles only A to Z.
        connection.create_function("LOWER", 1, str.lower, deterministic=True)
        connection.create_function("FOLD", 1, fold, deterministic=True)
        try:
            if self._read_only:
                upgraded = upgrade_copy(connection, *schema)
                self._is_copy, connection = upgraded is not connection, upgraded
                connection.execute("PRAGMA query_only = 1")
            else:
                connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                prepare_sqlite(connection, *schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- replaced files ---------------------------------------------------------------------------

    def _is_replaced(self, connection: sqlite3.Connection) -> bool:
        """Return whether the open file was replaced or deleted, so that writes to it are lost."""
        if not self._inodes or connection.in_transaction:
            return False
        return _inode(self.path) != self._inodes[""]

    def _note_files(self) -> None:
        """Record which files are open, and report if they were replaced."""
        if self.path == MEMORY:
            return
        before = self._inodes
        self._inodes = {suffix: _inode(self.path + suffix) for suffix in ("", "-wal", "-shm")}
        if before and before[""] != self._inodes[""]:
            self.replacements += 1
            _log.warning(
                "%s was deleted or replaced while it was open; what is known is written again",
                self.path,
            )

    def _remove_leftovers(self) -> None:
        """Remove `-wal` and `-shm` of a deleted file, so that no other file uses them."""
        for suffix in ("-wal", "-shm"):
            inode = self._inodes[suffix]
            if inode is not None and _inode(self.path + suffix) == inode:
                Path(self.path + suffix).unlink(missing_ok=True)

    def _may_be_stale(self) -> bool:
        """Return whether the file may have changes that the read-only connection does not see."""
        stamp = _stamp_at_rest(self.path)
        return stamp != self._rest_stamp or (stamp is None and self._is_copy)

    def _refuse_changed(self) -> None:
        if self._has_changed_at_rest():
            raise StoreError(CHANGED)

    def _has_changed_at_rest(self) -> bool:
        """Return whether a file that is read without locks has changed since it was opened."""
        return self._rest_stamp is not None and _stamp(self.path) != self._rest_stamp


def _inode(path: str) -> Inode | None:
    """Return device and inode; None if there is no file or *path* is impossible. Raises OSError if
    it cannot be checked."""
    try:
        status = os.stat(path)  # noqa: PTH116 - with every use: half the time of a Path
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _stamp(path: str) -> Stamp:
    """Return the stamp of a file. Raises `StoreError` if there is none."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise StoreError(error.strerror or str(error)) from error
    return status.st_ino, status.st_size, status.st_mtime_ns


def _stamp_at_rest(path: str) -> Stamp | None:
    """Return the stamp of a file that has no writer; None if it may have one. Raises `StoreError`
    if there is no file."""
    for suffix in ("-wal", "-journal"):
        with suppress(OSError):
            if Path(path + suffix).stat().st_size:
                return None
    return _stamp(path)


def _make_private(path: str) -> None:
    """Create a file readable by its owner only, because summaries are private. SQLite gives its
    other files the same permissions."""
    with suppress(OSError):  # it exists, or SQLite reports the error better
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _code(error: Exception) -> int:
    """Return an error's primary SQLite code; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _may_write(path: str) -> bool:
    """Return whether this process may write the file, and others beside it."""
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


def _reason(path: str, error: Exception) -> str:
    """Return the cause of an error, if possible in better words than SQLite's."""
    code = _code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return "it is not an SQLite database"
    if code != sqlite3.SQLITE_CANTOPEN:  # Python's module quotes texts that it cannot decode
        return str(error).partition(" with text '")[0]
    # With `os.path`, because `Path.is_dir` raises if a name is too long.
    if os.path.isdir(path):  # noqa: PTH112
        return "it is a directory"
    if not os.path.isdir(Path(path).parent):  # noqa: PTH112
        return f"there is no directory {Path(path).parent}"
    if os.path.exists(path) and os.path.exists(f"{path}-wal"):  # noqa: PTH110
        return (
            "its last writes are in its -wal file still, "
            "which can be read only where files may be made beside it"
        )
    if not os.access(Path(path).parent, os.W_OK):
        return f"nothing may be written in {Path(path).parent.absolute()}"
    return "the file cannot be opened or created"


# --- the store ------------------------------------------------------------------------------------


NOW = "((julianday('now') - 2440587.5) * 86400.0)"
"""Seconds since 1970."""
HOUR = sql.HOUR.format(now=NOW)
WHEN = """CAST(substr(json, instr(json, '"when":') + 7) AS REAL)"""
"""Time of a ledger row."""


def json_array(names: Iterable[str]) -> str:
    """Return the distinct *names* as a JSON list of keys."""
    distinct = set(names)
    if sql.is_alphanumeric("".join(distinct)):
        return '["' + '","'.join(name or r"\"\"" for name in distinct) + '"]'
    return json.dumps([sql.to_key(name) for name in distinct])


STATEMENTS = sql.Statements(
    # Each distinct tip is looked up in the index. `CROSS` makes SQLite keep that order.
    load=f"SELECT edits.json, edits.id, COALESCE(edits.used, 0) <= {HOUR} - {sql.USE_RECORD_HOURS} "  # noqa: S608 - names of ours
    "FROM json_each(?) AS asked CROSS JOIN edits ON edits.tip = asked.value ORDER BY edits.seq",
    save=f"INSERT OR REPLACE INTO edits (id, tip, json, used) VALUES (?, ?, ?, {HOUR})",  # noqa: S608 - names of ours
    remove="DELETE FROM edits WHERE id IN (SELECT value FROM json_each(?))",
    note_use=f"UPDATE edits SET used = {HOUR} WHERE id IN (SELECT value FROM json_each(?))",  # noqa: S608 - names of ours
    note_unknown=f"UPDATE edits SET used = {HOUR} WHERE used IS NULL",  # noqa: S608 - names of ours
    page=sql.PAGE,
    find_unused=sql.FIND_UNUSED.format(now=NOW),
    remove_unused=f"DELETE FROM edits WHERE used < {HOUR} - ? "  # noqa: S608 - names of ours
    "AND id IN (SELECT value FROM json_each(?))",
    page_of_ledger=sql.PAGE_OF_LEDGER,
    prune_ledger=sql.PRUNE_LEDGER.format(now=NOW, when=WHEN),
    record=sql.RECORD,
    ledger=sql.LEDGER,
    ledger_by_edit=sql.LEDGER_BY_EDIT,
    ledger_by_tip="SELECT json FROM (SELECT ledger.seq, ledger.json FROM json_each(?) AS asked "
    "CROSS JOIN ledger ON ledger.tip = asked.value "
    "UNION ALL SELECT seq, json FROM ledger WHERE tip IS NULL) ORDER BY seq",
    claim=sql.CLAIM.format(now=NOW),
    release=sql.RELEASE.format(now=NOW),
    keys=json_array,
)


class SQLiteStore(sql.SQLStore):
    """Keeps edits and ledger in the SQLite file at *path* (`:memory:`: in memory).

    Saved edits survive a kill of the process and, with *synchronous* `FULL`, a power cut. `NORMAL`
    saves an fsync per write, but may lose the last writes in a power cut (figures:
    docs/decisions/0003-stores.md). *timeout* is the seconds to wait for other writers. With
    *read_only* the file must exist, neither it nor its directory is written to, and writes raise.
    Usable from several threads, processes and forked children. Raises `StoreError`.
    """

    _database: SQLiteDatabase
    _statements = STATEMENTS

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = 30.0,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        read_only: bool = False,
    ) -> None:
        if not os.fspath(path):
            raise StoreError("a store needs the path of a file (or ':memory:')")
        super().__init__(
            SQLiteDatabase(os.fsdecode(path), timeout, synchronous, read_only=read_only)
        )
        self._notes_use = not read_only
        self._database.open()

    @property
    def replacements(self) -> int:
        """How often the file was found deleted or replaced while open. Another was then opened or
        created."""
        return self._database.replacements


# --- full-text queries -----------------------------------------------------------------------------


MAX_QUERY_CHARS = 2_000
"""Maximum characters of a query that are read."""
MAX_QUERY_TERMS = 128
"""Maximum number of words and pairs of a query that are searched for."""


def phrase_query(text: str) -> str:
    """Return an FTS5 query for all terms of *text* in sequence; empty if it has none.

    *text* cannot inject query syntax: terms are letters and digits in quotes.
    """
    *first, last = [*runs(text[:MAX_QUERY_CHARS])] or [Run("", dense=False)]
    single = last.dense and len(last.text) == 1
    ending = run_terms(last)[:-1] if last.dense and not single else [last.text]
    wanted = " ".join([*(term for run in first for term in run_terms(run)), *ending])
    return f'"{wanted}"' + "*" * single if wanted else ""


def any_word_query(text: str) -> str:
    """Return an FTS5 query for any word of *text*; empty if it has none.

    It searches for the words as phrases, for their runs, and for the characters at the edges of
    runs (`5月6日`: `5月`, `月6`, `6日`).
    """
    words = text[:MAX_QUERY_CHARS].split()
    inner = (term for word in words for run in runs(word) for term in _inner(run))
    touching = (_touching(a, b) for w in words for a, b in pairwise(runs(w)))
    queries = dict.fromkeys(map(phrase_query, (*words, *inner, *touching)))
    return " OR ".join([query for query in queries if query][:MAX_QUERY_TERMS])


def _touching(before: Run, after: Run) -> str:
    if before.dense == after.dense:
        return ""
    return (before.text[-1:] if before.dense else before.text) + (
        after.text[:1] if after.dense else after.text
    )


def _inner(run: Run) -> list[str]:
    return run_terms(run)[:-1] or [run.text] if run.dense else [run.text]
