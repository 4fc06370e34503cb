"""A store in one SQLite file: survives kills and power loss, shared by threads and processes."""

import json
import os
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Literal, Self

from refold.edits import Edit
from refold.errors import StoreError
from refold.ledger import Row
from refold.serial import dump_edit, dump_row, load_edit, load_row
from refold.stores.link import Link, close_over_forks

LOAD = "SELECT edits.json FROM json_each(?) AS asked CROSS JOIN edits ON edits.tip = asked.value ORDER BY edits.seq"
"""The tips asked for, without repeats, each looked up in the index; `CROSS` keeps SQLite to that order."""

SAVE = "INSERT OR REPLACE INTO edits (id, tip, json) VALUES (?, ?, ?)"
REMOVE = "DELETE FROM edits WHERE id IN (SELECT value FROM json_each(?))"
RECORD = "INSERT INTO ledger (edit, json) VALUES (?, ?)"
LEDGER = "SELECT json FROM ledger ORDER BY seq"
LEDGER_OF = "SELECT json FROM ledger WHERE edit = ? ORDER BY seq"


class SQLiteStore:
    """Keeps edits and ledger in the SQLite file at *path* (`:memory:` for none).

    What `save` acknowledged survives a kill of the process and, with *synchronous* `FULL`, a power
    cut; `NORMAL` saves an fsync a write and may lose the last writes to a power cut (figures:
    docs/decisions/0003-stores.md). *timeout* is how many seconds to wait for other writers.
    Usable from several threads, processes and forked children. Raises `StoreError`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, timeout: float = 30.0, synchronous: Literal["FULL", "NORMAL"] = "FULL"
    ) -> None:
        if not os.fspath(path):
            raise StoreError("a store needs the path of a file (or ':memory:')")
        self._link = Link(os.fspath(path), timeout, synchronous)
        with self._link.at("open"):
            close_over_forks(self._link)
        weakref.finalize(self, self._link.close)

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Every edit made for one of *tips*, in the order in which they were saved. Raises `StoreError`."""
        wanted = _array(tips)
        with self._link.at("read") as connection:
            found = connection.execute(LOAD, (wanted,)).fetchall()
            return tuple(load_edit(text) for (text,) in found)

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits*, all or none; of one id the later counts. Raises `StoreError`."""
        rows = [(edit.id, _key(edit.tip), dump_edit(edit)) for edit in edits]
        with self._link.writing() as connection:
            connection.executemany(SAVE, rows)

    def remove(self, ids: Iterable[str]) -> None:
        """Forget the edits with these full ids; unknown ids are passed over. Raises `StoreError`."""
        gone = _array(ids)
        with self._link.writing() as connection:
            connection.execute(REMOVE, (gone,))

    def version(self) -> int:
        """Grows with every write, of this store object, another one, another process. Raises `StoreError`."""
        return self._link.version()

    def record(self, rows: Iterable[Row]) -> None:
        """Add *rows* to the ledger, all or none. Raises `StoreError`."""
        new = [(None if row.edit is None else _key(row.edit), dump_row(row)) for row in rows]
        with self._link.writing() as connection:
            connection.executemany(RECORD, new)

    def ledger(self, edit: str | None = None) -> Sequence[Row]:
        """All rows, or those about the edit with this full id, in the order of recording. Raises `StoreError`."""
        query, keys = (LEDGER, ()) if edit is None else (LEDGER_OF, (_key(edit),))
        with self._link.at("read") as connection:
            return tuple(load_row(text) for (text,) in connection.execute(query, keys).fetchall())

    def close(self) -> None:
        """Let go of the file. The store cannot be used after; closing twice is fine."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _array(keys: Iterable[str]) -> str:
    """The different ones of *keys* as a JSON list."""
    asked = set(keys)
    if _is_plain("".join(asked)) and "" not in asked:
        return '["' + '","'.join(asked) + '"]'
    return json.dumps([_key(key) for key in asked])


def _key(name: str) -> str:
    """A tip or id as SQLite can compare it: no NUL, no lone surrogate. Ours are hex and stay as they are."""
    return name if _is_plain(name) else json.dumps(name)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isalnum()
