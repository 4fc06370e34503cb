"""Edits, ledger and claims in the tables of an SQL database: what is the same whichever database it is."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from refold.edits import Edit
from refold.stores.edit_json import dump_edit, dump_row, load_edit, load_row
from refold.stores.store import LedgerRow


class Closable(Protocol):
    """Something to let go of."""

    def close(self) -> None:
        """Let go; twice is fine."""


class DatabaseClient:
    """Holds a link to a database, until it is closed: by `close`, at the end of a `with` block, or with the program."""

    _link: Closable

    def close(self) -> None:
        """Let go of the database. Nothing else can be done with it after; closing twice is fine."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Database(Protocol):
    """Connections to one database. Everything that goes wrong is a `StoreError`."""

    def connection(self, doing: str) -> AbstractContextManager[Any]:
        """A connection for this thread alone, to *doing* something with."""

    def transaction(self, *, edits: bool = True) -> AbstractContextManager[Any]:
        """A connection in a transaction, kept whole at the end or not at all. *edits*: are edits written?"""

    def version(self) -> int:
        """Changes with every write of edits, whoever wrote."""

    def close(self) -> None:
        """Let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """What a database is told, in its own words."""

    load: str
    """The edits of several tips, in order. Takes the tips as *keys* makes them."""
    save: str
    """Takes id, tip and JSON; an id that is there goes to the end."""
    remove: str
    """Takes ids as *keys* makes them."""
    record: str
    """Takes an edit's id or None, tip and JSON."""
    ledger: str
    ledger_by_edit: str
    ledger_by_tip: str
    """The rows of several tips, and those of which the tip is not known, in order. Takes the tips as *keys* makes them."""
    claim: str
    """Takes name, owner and seconds. Changes one row where the claim is had, none where somebody else has it."""
    release: str
    keys: Callable[[Iterable[str]], Any]
    """Several keys as one parameter."""


class SQLStore(DatabaseClient):
    """A store in an SQL database. What it is told to do and where is up to who makes it."""

    _link: Database
    _say: Statements

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Every edit made for one of *tips*, in the order in which they were saved. Raises `StoreError`."""
        wanted = self._say.keys(tips)
        with self._link.connection("read") as connection:
            found = connection.execute(self._say.load, (wanted,)).fetchall()
            return tuple(load_edit(text) for (text,) in found)

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits*, all or none; of one id the later counts. Raises `StoreError`."""
        rows = [(edit.id, to_key(edit.tip), dump_edit(edit)) for edit in edits]
        with self._link.transaction() as connection:
            connection.cursor().executemany(self._say.save, rows)

    def remove(self, ids: Iterable[str]) -> None:
        """Forget the edits with these full ids; unknown ids are passed over. Raises `StoreError`."""
        gone = self._say.keys(ids)
        with self._link.transaction() as connection:
            connection.execute(self._say.remove, (gone,))

    def version(self) -> int:
        """Changes with every write of edits, of this store object, another one, another process. Raises `StoreError`."""
        return self._link.version()

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Add *rows* to the ledger, all or none. Raises `StoreError`."""
        new = [
            (None if row.edit is None else to_key(row.edit), to_key(row.tip), dump_row(row))
            for row in rows
        ]
        with self._link.transaction(edits=False) as connection:
            connection.cursor().executemany(self._say.record, new)

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """All rows, or those about the edit with this full id, in the order of recording. Raises `StoreError`."""
        return (
            self._rows(self._say.ledger)
            if edit is None
            else self._rows(self._say.ledger_by_edit, to_key(edit))
        )

    def ledger_of(self, tips: Sequence[str]) -> Sequence[LedgerRow]:
        """The rows whose tip is one of *tips*, in the order of recording. Raises `StoreError`."""
        wanted = set(tips)
        found = self._rows(self._say.ledger_by_tip, self._say.keys(wanted)) if wanted else ()
        return tuple(row for row in found if row.tip in wanted)

    def _rows(self, query: str, *keys: Any) -> Sequence[LedgerRow]:
        with self._link.connection("read") as connection:
            return tuple(load_row(text) for (text,) in connection.execute(query, keys).fetchall())

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take *name* for so many seconds from now, or longer where *owner* has it already; False where somebody
        else has it. Raises `StoreError`."""
        with self._link.transaction(edits=False) as connection:
            return bool(
                connection.execute(self._say.claim, (to_key(name), to_key(owner), seconds)).rowcount
            )

    def release(self, name: str, owner: str) -> None:
        """Give *name* back, if *owner* has it. Raises `StoreError`."""
        with self._link.transaction(edits=False) as connection:
            connection.execute(self._say.release, (to_key(name), to_key(owner)))


LEDGER = "SELECT json FROM ledger ORDER BY seq"
LEDGER_BY_EDIT = "SELECT json FROM ledger WHERE edit = ? ORDER BY seq"
RECORD = "INSERT INTO ledger (edit, tip, json) VALUES (?, ?, ?)"
CLAIM = (
    "INSERT INTO claims (name, owner, until) VALUES (?, ?, {now} + ?) ON CONFLICT (name) DO UPDATE "
    "SET owner = excluded.owner, until = excluded.until WHERE claims.owner = excluded.owner OR claims.until <= {now}"
)
"""One statement, so that of two who try at once one has it: the row is locked by the first."""
RELEASE = "DELETE FROM claims WHERE (name = ? AND owner = ?) OR until < {now} - 3600"
"""With what was left behind by owners who were killed."""


def to_key(name: str) -> str:
    """A tip or id as a database can compare it: no NUL, no lone surrogate. Ours are hex and stay as they are."""
    return name if is_alphanumeric(name) else json.dumps(name)


def is_alphanumeric(text: str) -> bool:
    """Is it of letters and digits alone?"""
    return text.isascii() and text.isalnum()
