"""OpenCode: `~/.local/share/opencode/opencode.db` (SQLite), opened for reading only."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from refold.errors import FormatError
from refold.session_files.opencode_messages import CLIENT, Row, Said, told
from refold.session_files.session import Problem, Session
from refold.session_files.shape import mapping, text
from refold.session_files.source import Reader, Source, Stored

TABLES = frozenset({"session", "message", "part"})


def refuses(source: Source) -> str:
    """Why this is no OpenCode database; empty if it is one."""
    if not source.database:
        return "not an SQLite file"
    try:
        with closing(connect(source)) as base:
            missing = TABLES - {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        return f"an SQLite file that cannot be read: {error}"
    return f"no table {', '.join(sorted(missing))}" if missing else ""


def sessions(source: Source) -> Sequence[Stored]:
    """Every session of a database, the one updated last at the end. Raises `FormatError`."""
    rows = _query(source, "SELECT id FROM session ORDER BY time_updated, id")
    return [Stored(row["id"], partial(read, source, row["id"])) for row in rows if isinstance(row["id"], str)]


def connect(source: Source) -> sqlite3.Connection:
    """A connection that cannot write. Raises `sqlite3.Error`."""
    if not source.path.is_file():
        return _in_memory(source)
    where = source.path.resolve().as_uri()
    base = sqlite3.connect(f"{where}?mode=ro", uri=True)
    try:
        base.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        base.close()
        if Path(f"{source.path}-wal").exists():
            raise
        # A database in WAL mode in a directory that cannot be written to, and nothing in its log.
        return sqlite3.connect(f"{where}?immutable=1", uri=True)
    return base


def _in_memory(source: Source) -> sqlite3.Connection:
    """A database that came as bytes. Its header may say that a log is beside it: there is none."""
    with source.open() as stream:
        data = bytearray(stream.read())
    data[18:20] = b"\1\1"
    base = sqlite3.connect(":memory:")
    base.deserialize(bytes(data))
    return base


def _query(source: Source, sql: str, *values: str) -> list[Row]:
    try:
        with closing(connect(source)) as base:
            base.row_factory = sqlite3.Row
            base.text_factory = _text
            return [dict(row) for row in base.execute(sql, values)]
    except (sqlite3.Error, OverflowError) as error:
        raise FormatError(f"{source.path.name}: the database cannot be read: {error}") from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# --- a session -------------------------------------------------------------------------------


def read(source: Source, id: str) -> Session:
    """Read one session of a database. Raises `FormatError`."""
    problems = list[Problem]()
    row = _query(source, "SELECT * FROM session WHERE id = ?", id)[0]
    return told(source.path, {**row, "revert": _revert(row)}, list(_messages(source, id, problems)), problems)


def _messages(source: Source, id: str, problems: list[Problem]) -> Iterator[Said]:
    parts = _query(source, "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id", id)
    held = {
        key: [{**_load(row, problems), "id": row["id"]} for row in rows]
        for key, rows in groupby(parts, lambda row: row["message_id"])
    }
    for row in _query(source, "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", id):
        yield Said(text(row, "id"), _load(row, problems), held.get(row["id"], []))


def _load(row: Row, problems: list[Problem]) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(row["data"], strict=False))
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(Problem(0, f"{row['id']}: its data are no JSON ({error})"))
        return {}


def _revert(row: Row) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(row.get("revert") or "{}"))
    except (TypeError, ValueError, RecursionError):
        return {}


READER = Reader(CLIENT, refuses, sessions)
