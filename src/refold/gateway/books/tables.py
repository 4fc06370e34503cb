"""The ledger's table, in SQL that SQLite (from 3.24) and PostgreSQL both speak."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, get_args

from refold.gateway.books.entry import NAMES, Basis, Entry, Key, Sums
from refold.survival import Survival

_FIGURES = ", ".join(f"{name} BIGINT NOT NULL DEFAULT 0" for name in NAMES)
_KEYS = ", ".join(Key._fields)
_CREATE = (
    "CREATE TABLE IF NOT EXISTS refold_calls (hour BIGINT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, "
    f"model TEXT NOT NULL, basis TEXT NOT NULL, {_FIGURES}, PRIMARY KEY ({_KEYS}))"
)
_REACHED = "CREATE TABLE IF NOT EXISTS refold_reached (step BIGINT NOT NULL PRIMARY KEY, calls BIGINT NOT NULL)"
CREATE = (_CREATE, _REACHED)
"""What makes the tables where there are none."""
REACH = (
    "INSERT INTO refold_reached (step, calls) VALUES (?, ?) "
    "ON CONFLICT (step) DO UPDATE SET calls = refold_reached.calls + excluded.calls"
)
REACHED = "SELECT step, calls FROM refold_reached"
_ADDED = ", ".join(f"{name} = refold_calls.{name} + excluded.{name}" for name in NAMES)
ADD = (
    f"INSERT INTO refold_calls ({_KEYS}, {', '.join(NAMES)}) VALUES ({', '.join('?' * (len(Key._fields) + len(NAMES)))}) "  # noqa: S608 - names of ours
    f"ON CONFLICT ({_KEYS}) DO UPDATE SET {_ADDED}"
)
READ = f"SELECT {_KEYS}, {', '.join(NAMES)} FROM refold_calls WHERE hour >= ? ORDER BY {_KEYS}"  # noqa: S608 - likewise


class Linked(Protocol):
    """Connections to a database, as `refold.stores.link.Link` gives them. What goes wrong is a `StoreError`."""

    def at(self, doing: str) -> AbstractContextManager[Any]:
        """A connection (DB-API, autocommit) for this thread alone."""

    def writing(self) -> AbstractContextManager[Any]:
        """A connection in a transaction, kept whole at the end or not at all."""

    def close(self) -> None:
        """Let go."""


class Ledger:
    """The net ledger in a database. *mark* is what its driver writes for a value: `?` or `%s`."""

    def __init__(self, link: Linked, mark: str = "?") -> None:
        self._link = link
        self._add, self._read, self._reach = (text.replace("?", mark) for text in (ADD, READ, REACH))

    def add(self, entries: Mapping[Key, Sums], reached: Mapping[int, int] | None = None) -> None:
        """Add *entries* to what is there, and how many calls were made with how many before them (`refold.survival`);
        all or none. Raises `StoreError`."""
        rows = [(*key, *sums.values()) for key, sums in sorted(entries.items(), key=lambda entry: entry[0])]
        with self._link.writing() as connection:
            connection.cursor().executemany(self._add, rows)
            connection.cursor().executemany(self._reach, sorted((reached or {}).items()))

    def entries(self, since: int = 0) -> Iterator[Entry]:
        """Every line from the hour *since* (seconds since 1970) on. Raises `StoreError`."""
        with self._link.at("read") as connection:
            rows = connection.cursor().execute(self._read, (since,)).fetchall()
        yield from map(_entry, rows)

    def survival(self) -> Survival:
        """What is known of how long sessions are. Raises `StoreError`."""
        with self._link.at("read") as connection:
            return Survival(dict(connection.cursor().execute(REACHED).fetchall()))

    def close(self) -> None:
        """Let go of the database."""
        self._link.close()


def _entry(row: Iterable[Any]) -> Entry:
    hour, tenant, session, model, basis, *figures = row
    known: Basis = basis if basis in get_args(Basis) else "estimated"
    return Key(hour, tenant, session, model, known), Sums(**dict(zip(NAMES, figures, strict=True)))
