"""A store in one SQLite file: survives kills and power loss, shared by threads and processes."""

import json
import os
from collections.abc import Iterable
from typing import Literal

from refold.errors import StoreError
from refold.stores import sql
from refold.stores.sqlite_connection import SQLiteDatabase

NOW = "((julianday('now') - 2440587.5) * 86400.0)"
"""Seconds since 1970."""
HOUR = sql.HOUR.format(now=NOW)
WHEN = """CAST(substr(json, instr(json, '"when":') + 7) AS REAL)"""
"""When a row of the ledger is of."""


def json_array(names: Iterable[str]) -> str:
    """Return the different *names* as a JSON list of keys."""
    distinct = set(names)
    if sql.is_alphanumeric("".join(distinct)):
        return '["' + '","'.join(name or r"\"\"" for name in distinct) + '"]'
    return json.dumps([sql.to_key(name) for name in distinct])


STATEMENTS = sql.Statements(
    # Each tip, without repeats, is looked up in the index; `CROSS` keeps SQLite to that order.
    load=f"SELECT edits.json, edits.id, COALESCE(edits.used, 0) <= {HOUR} - {sql.NOTED_HOURS} "  # noqa: S608 - names of ours
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
    """Keeps edits and ledger in the SQLite file at *path* (`:memory:` for none).

    What `save` acknowledged survives a kill of the process and, with *synchronous* `FULL`, a power
    cut; `NORMAL` saves an fsync a write and may lose the last writes to a power cut (figures:
    docs/decisions/0003-stores.md). *timeout* is how many seconds to wait for other writers.
    With *read_only* the file must be there, and neither it nor its directory is written to: what
    would write raises. Usable from several threads, processes and forked children.
    Raises `StoreError`.
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
        self._database.open()

    @property
    def replacements(self) -> int:
        """How often the file was found deleted or replaced while it was open: then another was
        opened or made in its place."""
        return self._database.replacements
