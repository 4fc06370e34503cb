"""Edits, ledger and claims in an SQL database: the common part of SQLite and PostgreSQL."""

import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from refold.edits import Edit
from refold.errors import StoreError
from refold.stores.edit_json import dump_edit, dump_row, load_edit, load_row
from refold.stores.store import LedgerRow


class ForkAware(Protocol):
    """An object that must be closed while a process forks."""

    def before_fork(self) -> None:
        """Close what a child cannot use, in the forking thread, and prevent reopening."""

    def after_fork(self) -> None:
        """Allow use again, in parent and child."""


class Database(ForkAware, Protocol):
    """Connections to one database. All errors are `StoreError`."""

    placeholder: str
    """Placeholder for a value in a statement: `?` or `%s`."""

    def connection(self, doing: str) -> AbstractContextManager[Any]:
        """Lend a connection to this thread only. *doing* (such as `read`) is used in errors."""

    def transaction(self, *, edits: bool = True) -> AbstractContextManager[Any]:
        """Lend a connection in a transaction, committed in full or not at all. *edits*: whether
        edits are written."""

    def version(self) -> int:
        """Return a number that changes with every write of edits, by any writer."""

    def close(self) -> None:
        """Disconnect permanently. Closing twice is fine."""


def close_before_forks(database: ForkAware) -> None:
    """Close *database* before each fork of this process, as long as it is alive."""
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
    """Uses a database until it is closed: by `close`, at the end of a `with` block, or at exit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        close_before_forks(database)
        weakref.finalize(self, database.close)

    def close(self) -> None:
        """Disconnect permanently. Closing twice is fine."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """A store's statements in one SQL dialect."""

    load: str
    """JSON and id of the edits of several tips, in order, and whether their use is due to be
    recorded. Takes the tips, encoded by *keys*."""
    save: str
    """Takes id, tip and JSON. An existing id moves to the end."""
    remove: str
    """Takes ids, encoded by *keys*."""
    record: str
    """Takes an edit's id or None, tip and JSON."""
    ledger: str
    ledger_by_edit: str
    ledger_by_tip: str
    """Rows of several tips and rows with an unknown tip, in order. Takes tips, encoded by
    *keys*."""
    claim: str
    """Takes name, owner and seconds. Changes one row if the claim succeeds, else none."""
    release: str
    keys: Callable[[Iterable[str]], Any]
    """Encodes several keys as one parameter."""
    note_use: str
    """Marks edits as used now. Takes ids, encoded by *keys*."""
    note_unknown: str
    """Marks edits without a time of use as used now. An empty string if there are none."""
    page: str
    """The `seq` at an offset after another one. Takes that `seq` and the offset."""
    find_unused: str
    """Ids of edits between two `seq` that were not used for a number of hours. Takes all three."""
    remove_unused: str
    """Takes hours, and ids, encoded by *keys*."""
    page_of_ledger: str
    prune_ledger: str
    """Removes rows between two `seq` that belong to no existing edit and are older than a number of
    seconds. Takes all three."""


class Pruned(NamedTuple):
    """Numbers of edits and ledger rows that were removed by age."""

    edits: int
    rows: int


class SQLStore(DatabaseClient):
    """A store in an SQL database. Subclasses define the database and the statements."""

    _statements: Statements
    _notes_use = True
    """Whether a load marks edits as used; False if the store is only read."""

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Return every edit made for one of *tips*, in the order in which they were saved.

        Raises `StoreError`."""
        wanted = self._statements.keys(tips)
        with self._database.connection("read") as connection:
            rows = connection.execute(self._statements.load, (wanted,)).fetchall()
            edits = tuple(load_edit(text) for text, *_ in rows)
        unnoted = [id for _, id, is_due in rows if is_due and self._notes_use]
        return self._note_use(unnoted, wanted, edits) if unnoted else edits

    def _note_use(self, ids: Sequence[str], wanted: Any, edits: Sequence[Edit]) -> Sequence[Edit]:
        """Mark the edits with these *ids* as used; return *edits*, or if some were pruned
        meanwhile, the remaining ones. If marking fails, a later load does it."""
        statements = self._statements
        with suppress(StoreError), self._database.transaction(edits=False) as connection:
            noted = connection.execute(statements.note_use, (statements.keys(ids),)).rowcount
            if noted != len(ids):
                rows = connection.execute(statements.load, (wanted,)).fetchall()
                return tuple(load_edit(text) for text, *_ in rows)
        return edits

    def save(self, edits: Iterable[Edit]) -> None:
        """Save *edits*, all or none. A later edit with the same id replaces the earlier one. Raises
        `StoreError`."""
        rows = [(edit.id, to_key(edit.tip), dump_edit(edit)) for edit in edits]
        with self._database.transaction() as connection:
            connection.cursor().executemany(self._statements.save, rows)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove the edits with these full ids; unknown ids are ignored. Raises `StoreError`."""
        keys = self._statements.keys(ids)
        with self._database.transaction() as connection:
            connection.execute(self._statements.remove, (keys,))

    def version(self) -> int:
        """Return a number that changes with every write of edits, by this object or any other, in
        any process. Raises `StoreError`."""
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

    def prune(self, seconds: float) -> Pruned:
        """Remove edits that were not used for this number of seconds, and older ledger rows that
        belong to no remaining edit.

        An edit is used when it is saved and when a `load` finds it. The latter is recorded every
        few hours, so the minimum is `MIN_SECONDS`. Removes some thousands at a time, so that others
        can write in between. Raises ValueError, `StoreError`.
        """
        if seconds < MIN_SECONDS:
            raise ValueError(f"edits are kept for {MIN_SECONDS / 3600:g} hours at least")
        statements, hours, edits, rows = self._statements, int(seconds // 3600), 0, 0
        if statements.note_unknown:
            with self._database.transaction(edits=False) as connection:
                connection.execute(statements.note_unknown)
        for first, last in self._pages(statements.page):
            with self._database.connection("read") as connection:
                place = first, last, hours
                ids = [id for (id,) in connection.execute(statements.find_unused, place).fetchall()]
            if ids:
                with self._database.transaction() as connection:  # skips those used by now
                    values = hours, statements.keys(ids)
                    edits += connection.execute(statements.remove_unused, values).rowcount
        for first, last in self._pages(statements.page_of_ledger):
            with self._database.transaction(edits=False) as connection:
                bounds = first, last, seconds
                rows += connection.execute(statements.prune_ledger, bounds).rowcount
        return Pruned(edits, rows)

    def _pages(self, statement: str) -> Iterator[tuple[int, int]]:
        """Yield bounds of `seq` (start exclusive) with at most `PAGE_ROWS` rows between them."""
        first = -1
        while True:
            with self._database.connection("read") as connection:
                row = connection.execute(statement, (first, PAGE_ROWS - 1)).fetchone()
            last = row[0] if row else MAX_SEQ
            yield first, last
            if row is None:
                return
            first = last

    def _rows(self, query: str, *keys: Any) -> Sequence[LedgerRow]:
        with self._database.connection("read") as connection:
            return tuple(load_row(text) for (text,) in connection.execute(query, keys).fetchall())

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Claim *name* for this number of seconds from now, or renew the claim of *owner*.

        Return False if another owner has it. Raises `StoreError`."""
        values = (to_key(name), to_key(owner), seconds)
        with self._database.transaction(edits=False) as connection:
            return bool(connection.execute(self._statements.claim, values).rowcount)

    def release(self, name: str, owner: str) -> None:
        """Release *name*, if *owner* has it. Raises `StoreError`."""
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
"""One statement, so that only one of two simultaneous claims succeeds: the first locks the row."""
HOUR = "CAST({now} / 3600 AS INTEGER)"
"""Hours since 1970, from {now} in seconds."""
USE_RECORD_HOURS = 6
"""Hours after which the use of an edit is recorded again, so that many loads cause one write."""
MIN_SECONDS = 86_400.0
"""Minimum time that edits are kept: long compared with `USE_RECORD_HOURS`, and with the interval at
which a known conversation is loaded (`refold.compactor.loading.RELOAD_SECONDS`)."""
PAGE_ROWS = 5_000
MAX_SEQ = 2**62
PAGE = "SELECT seq FROM edits WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?"
PAGE_OF_LEDGER = "SELECT seq FROM ledger WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?"
FIND_UNUSED = f"SELECT id FROM edits WHERE seq > ? AND seq <= ? AND used < {HOUR} - ?"  # noqa: S608 - names of ours
PRUNE_LEDGER = (
    "DELETE FROM ledger WHERE seq > ? AND seq <= ? AND {when} < {now} - ? "
    "AND NOT EXISTS (SELECT 1 FROM edits WHERE edits.id = ledger.edit)"
)
RELEASE = "DELETE FROM claims WHERE (name = ? AND owner = ?) OR until < {now} - 3600"
"""Also removes old claims of owners that were killed."""


def to_key(name: str) -> str:
    """Return a tip or id without NUL and lone surrogates, as a database needs it. Hex, as ours are,
    is unchanged."""
    return name if is_alphanumeric(name) else json.dumps(name)


def is_alphanumeric(text: str) -> bool:
    """Return whether *text* consists of ASCII letters and digits only and is not empty."""
    return text.isascii() and text.isalnum()
