"""Edits, ledger and claims in an SQL database: what is the same in SQLite and PostgreSQL."""

import json
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from refold.edits import Edit
from refold.stores.edit_json import dump_edit, dump_row, load_edit, load_row
from refold.stores.store import LedgerRow


class ForkAware(Protocol):
    """Something that must not be open while a process forks."""

    def before_fork(self) -> None:
        """Close what a child cannot use, in the thread that forks, and let nobody open it again."""

    def after_fork(self) -> None:
        """Allow its use again, in parent and child."""


class Database(ForkAware, Protocol):
    """Connections to one database. Everything that goes wrong is a `StoreError`."""

    placeholder: str
    """What a statement has for each value: `?` or `%s`."""

    def connection(self, doing: str) -> AbstractContextManager[Any]:
        """Lend a connection to this thread alone. *doing* (`read`, `write`) is for errors."""

    def transaction(self, *, edits: bool = True) -> AbstractContextManager[Any]:
        """Lend a connection in a transaction, kept whole or not at all. *edits*: are edits
        written?"""

    def version(self) -> int:
        """Return a number that changes with every write of edits, whoever wrote."""

    def close(self) -> None:
        """Disconnect for good; closing twice is fine."""


def close_before_forks(database: ForkAware) -> None:
    """Have *database* closed before each fork of this process, as long as it lives."""
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.ref(database)
    paused: list[ForkAware] = []

    def pause() -> None:
        if (alive := reference()) is not None:
            alive.before_fork()
            paused.append(alive)

    def resume() -> None:
        if paused:
            paused.pop().after_fork()

    os.register_at_fork(before=pause, after_in_parent=resume, after_in_child=resume)


class DatabaseClient:
    """Uses a database until it is closed: by `close`, at the end of a `with` block, or with the
    program."""

    def __init__(self, database: Database) -> None:
        self._database = database
        close_before_forks(database)
        weakref.finalize(self, database.close)

    def close(self) -> None:
        """Disconnect. Nothing else can be done with it after; closing twice is fine."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements of a store in one dialect of SQL."""

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
    """The rows of several tips, and those of unknown tip, in order. Takes tips as *keys* makes
    them."""
    claim: str
    """Takes name, owner and seconds. Changes one row if the claim succeeds, else none."""
    release: str
    keys: Callable[[Iterable[str]], Any]
    """Several keys as one parameter."""


class SQLStore(DatabaseClient):
    """A store in an SQL database; a subclass says which database and which statements."""

    _statements: Statements

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Return every edit made for one of *tips*, in the order in which they were saved.

        Raises `StoreError`."""
        wanted = self._statements.keys(tips)
        with self._database.connection("read") as connection:
            rows = connection.execute(self._statements.load, (wanted,)).fetchall()
            return tuple(load_edit(text) for (text,) in rows)

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits*, all or none; of one id the later counts. Raises `StoreError`."""
        rows = [(edit.id, to_key(edit.tip), dump_edit(edit)) for edit in edits]
        with self._database.transaction() as connection:
            connection.cursor().executemany(self._statements.save, rows)

    def remove(self, ids: Iterable[str]) -> None:
        """Forget the edits with these full ids; unknown ids are passed over. Raises
        `StoreError`."""
        keys = self._statements.keys(ids)
        with self._database.transaction() as connection:
            connection.execute(self._statements.remove, (keys,))

    def version(self) -> int:
        """Return a number that changes with every write of edits, of this store object, another
        one, another process. Raises `StoreError`."""
        return self._database.version()

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Add *rows* to the ledger, all or none. Raises `StoreError`."""
        values = [
            (None if row.edit is None else to_key(row.edit), to_key(row.tip), dump_row(row))
            for row in rows
        ]
        with self._database.transaction(edits=False) as connection:
            connection.cursor().executemany(self._statements.record, values)

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """Return all rows, or those about the edit with this full id, in the order of recording.

        Raises `StoreError`."""
        if edit is None:
            return self._rows(self._statements.ledger)
        return self._rows(self._statements.ledger_by_edit, to_key(edit))

    def ledger_of(self, tips: Sequence[str]) -> Sequence[LedgerRow]:
        """Return the rows whose tip is one of *tips*, in the order of recording.

        Raises `StoreError`."""
        wanted = set(tips)
        if not wanted:
            return ()
        rows = self._rows(self._statements.ledger_by_tip, self._statements.keys(wanted))
        return tuple(row for row in rows if row.tip in wanted)

    def _rows(self, query: str, *keys: Any) -> Sequence[LedgerRow]:
        with self._database.connection("read") as connection:
            return tuple(load_row(text) for (text,) in connection.execute(query, keys).fetchall())

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take *name* for so many seconds from now, or longer if *owner* has it already.

        Return False if somebody else has it. Raises `StoreError`."""
        values = (to_key(name), to_key(owner), seconds)
        with self._database.transaction(edits=False) as connection:
            return bool(connection.execute(self._statements.claim, values).rowcount)

    def release(self, name: str, owner: str) -> None:
        """Give *name* back, if *owner* has it. Raises `StoreError`."""
        with self._database.transaction(edits=False) as connection:
            connection.execute(self._statements.release, (to_key(name), to_key(owner)))


LEDGER = "SELECT json FROM ledger ORDER BY seq"
LEDGER_BY_EDIT = "SELECT json FROM ledger WHERE edit = ? ORDER BY seq"
RECORD = "INSERT INTO ledger (edit, tip, json) VALUES (?, ?, ?)"
CLAIM = (
    "INSERT INTO claims (name, owner, until) VALUES (?, ?, {now} + ?) "
    "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until "
    "WHERE claims.owner = excluded.owner OR claims.until <= {now}"
)
"""One statement, so that of two who try at once one has it: the row is locked by the first."""
RELEASE = "DELETE FROM claims WHERE (name = ? AND owner = ?) OR until < {now} - 3600"
"""Also removes what was left behind by owners who were killed."""


def to_key(name: str) -> str:
    """Return a tip or id as a database can compare it: no NUL, no lone surrogate. Ours are hex and
    stay as they are."""
    return name if is_alphanumeric(name) else json.dumps(name)


def is_alphanumeric(text: str) -> bool:
    """Is *text* made of ASCII letters and digits alone, and not empty?"""
    return text.isascii() and text.isalnum()
