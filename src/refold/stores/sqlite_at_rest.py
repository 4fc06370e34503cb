"""An SQLite file opened for reading alone: nothing is made or written, beside it neither.

A file in WAL mode is read through two others, `-wal` and `-shm`, which SQLite makes where they are missing and, of a
connection that may not write, leaves behind; on a medium that cannot be written it fails. So while a `-wal` holds
something the file is opened with `mode=ro`, as any reader beside a writer. Without one nobody has written to it since it
was closed, and it is whole: it is opened with `immutable=1`, which takes no locks and makes no files, and every look at
it ends by making sure that it is still the file it was (https://www.sqlite.org/wal.html#readonly).
"""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from refold.errors import StoreError
from refold.stores.sqlite_schema import upgrade_copy

Stamp = tuple[int, int, int]
"""Inode, size and time of the last change of a file: another one after each change."""

CHANGED = "it was written to while it was read; read it again"


def stamp(path: str) -> Stamp:
    """What is another one after each change of a file. Raises `StoreError` where there is none."""
    try:
        found = Path(path).stat()
    except OSError as error:
        raise StoreError(error.strerror or str(error)) from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def at_rest(path: str) -> Stamp | None:
    """The stamp of a file that nobody is writing to; None where somebody may be."""
    return None if any(_size(path + beside) for beside in ("-wal", "-journal")) else stamp(path)


def connect(
    path: str, timeout: float, migrations: Sequence[Sequence[str]], owner: int, *, resting: bool
) -> sqlite3.Connection:
    """A connection that reads a file; if that is of an older version, a copy of it in memory, brought forward.

    Raises `StoreError`, `sqlite3.Error`.
    """
    mode = "mode=ro&immutable=1" if resting else "mode=ro"
    address = f"{Path(path).absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(
        address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection = upgrade_copy(connection, time.monotonic() + timeout, migrations, owner)
        connection.execute("PRAGMA query_only = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
