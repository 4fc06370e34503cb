"""The ledger's table, in SQL that SQLite (from 3.24) and PostgreSQL both speak."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, get_args

from refold.economics.session_length import Survival
from refold.gateway.ledger.entry import FIGURES, Basis, Entry, EntryKey, Sums

PAGE = 5_000
"""Lines that are read at a time, so that a ledger of any length can be gone through."""
SESSIONS_PER_QUERY = 500
"""Sessions that are asked for at a time: every SQLite takes so many values."""
_FIGURES = ", ".join(f"{name} BIGINT NOT NULL DEFAULT 0" for name in FIGURES)
_KEYS = ", ".join(EntryKey._fields)
_CREATE = (
    "CREATE TABLE IF NOT EXISTS refold_calls (hour BIGINT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, "
    f"model TEXT NOT NULL, basis TEXT NOT NULL, {_FIGURES}, PRIMARY KEY ({_KEYS}))"
)
_REACHED = "CREATE TABLE IF NOT EXISTS refold_reached (step BIGINT NOT NULL PRIMARY KEY, calls BIGINT NOT NULL)"
MIGRATIONS = (
    (_CREATE, _REACHED),
    ("CREATE INDEX IF NOT EXISTS refold_calls_by_session ON refold_calls (session)",),
    (  # which sessions there are, and which are the latest, without a look at their figures
        "CREATE INDEX IF NOT EXISTS refold_calls_by_latest ON refold_calls (session, tenant, hour)",
        "DROP INDEX IF EXISTS refold_calls_by_session",
    ),
)
"""Step n brings the tables from version n to version n + 1. Steps are only ever added."""
ADD_LENGTHS = (
    "INSERT INTO refold_reached (step, calls) VALUES (?, ?) "
    "ON CONFLICT (step) DO UPDATE SET calls = refold_reached.calls + excluded.calls"
)
READ_LENGTHS = "SELECT step, calls FROM refold_reached"
_ADDED = ", ".join(f"{name} = refold_calls.{name} + excluded.{name}" for name in FIGURES)
ADD = (
    f"INSERT INTO refold_calls ({_KEYS}, {', '.join(FIGURES)}) VALUES ({', '.join('?' * (len(EntryKey._fields) + len(FIGURES)))}) "  # noqa: S608 - names of ours
    f"ON CONFLICT ({_KEYS}) DO UPDATE SET {_ADDED}"
)
READ = (
    f"SELECT {_KEYS}, {', '.join(FIGURES)} FROM refold_calls WHERE ({_KEYS}) > ({', '.join('?' * len(EntryKey._fields))}) "  # noqa: S608 - likewise
    f"ORDER BY {_KEYS} LIMIT {PAGE}"
)
_SUMMED = ", ".join(f"COALESCE(SUM({name}), 0)" for name in FIGURES)
BOOKED = (
    f"SELECT session, model, basis, MAX(hour), {_SUMMED} FROM refold_calls "  # noqa: S608 - likewise
    "WHERE session IN ({}) GROUP BY session, model, basis"
)
NEWEST = (
    "SELECT session, MAX(hour) AS latest FROM refold_calls WHERE session <> '' "
    "GROUP BY session ORDER BY latest DESC, session LIMIT ?"
)
SESSIONS = (
    "SELECT COUNT(*) FROM (SELECT DISTINCT session, tenant FROM refold_calls WHERE session <> '' AND hour >= ?) "
    "AS sessions"
)
"""Hour by hour, since a sum over all may be more than 64 bits hold; and by no index, since all
lines are read."""
TOTALS = f"SELECT basis, {_SUMMED} FROM refold_calls WHERE hour + 0 >= ? GROUP BY basis, hour"  # noqa: S608 - likewise


class BookedCalls(NamedTuple):
    """What the books hold of a session, or of all."""

    reported: Sums
    """Of calls whose usage the upstream reported."""
    unreported: Sums
    """Of the others: our estimates, and no money."""
    model: str = ""
    """The latest."""
    hour: int = 0
    """The beginning of the hour of the latest call, in seconds since 1970."""

    @property
    def calls(self) -> int:
        """Answered calls."""
        return self.reported.calls + self.unreported.calls

    @property
    def saved_tokens(self) -> int:
        """Tokens that those were smaller by than what was said."""
        return sum(sums.would_input - sums.input for sums in (self.reported, self.unreported))

    @property
    def saved(self) -> int | None:
        """Picodollars saved net; None where of no call a price is known."""
        return self.reported.saved if self.reported.calls > self.reported.unpriced else None


class DatabaseConnections(Protocol):
    """Connections to a database, as `refold.stores.sqlite_connection.SQLiteDatabase` gives them.
    What goes wrong is a `StoreError`."""

    def connection(self, doing: str) -> AbstractContextManager[Any]:
        """A connection (DB-API, autocommit) for this thread alone."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection in a transaction, kept whole at the end or not at all."""

    def close(self) -> None:
        """Let go."""


class Ledger:
    """The net ledger in a database. *mark* is what its driver writes for a value: `?` or `%s`."""

    def __init__(self, link: DatabaseConnections, mark: str = "?") -> None:
        self._link = link
        self._mark = mark
        self._add, self._read, self._reach = (
            text.replace("?", mark) for text in (ADD, READ, ADD_LENGTHS)
        )
        self._newest, self._sessions, self._totals = (
            text.replace("?", mark) for text in (NEWEST, SESSIONS, TOTALS)
        )

    def add(
        self, entries: Mapping[EntryKey, Sums], reached: Mapping[int, int] | None = None
    ) -> None:
        """Add *entries* to what is there, and how many calls were made with how many before them
        (`refold.economics.session_length`); all or none. Raises `StoreError`."""
        rows = [
            (*key, *sums.values())
            for key, sums in sorted(entries.items(), key=lambda entry: entry[0])
        ]
        with self._link.transaction() as connection:
            connection.cursor().executemany(self._add, rows)
            connection.cursor().executemany(self._reach, sorted((reached or {}).items()))

    def entries(self, since: int = 0) -> Iterator[Entry]:
        """Every line from the hour *since* (seconds since 1970) on, in the order of their keys.
        They are read a page at a time: lines that are booked meanwhile may be among them. Raises
        `StoreError`."""
        last: Sequence[Any] = (
            since,
            "",
            "",
            "",
            "",
        )  # before the first: no line is without a basis
        while True:
            with self._link.connection("read") as connection:
                rows = connection.cursor().execute(self._read, last).fetchall()
            yield from map(_entry, rows)
            if len(rows) < PAGE:
                return
            last = rows[-1][: len(EntryKey._fields)]

    def booked(self, sessions: Iterable[str]) -> dict[str, BookedCalls]:
        """What is booked of these *sessions*, for each of which there is something. Costs what they
        have. Raises `StoreError`."""
        asked, calls = sorted({*sessions} - {""}), dict[str, BookedCalls]()
        for first in range(0, len(asked), SESSIONS_PER_QUERY):
            names = asked[first : first + SESSIONS_PER_QUERY]
            query = BOOKED.format(", ".join([self._mark] * len(names)))
            with self._link.connection("read") as connection:
                rows = connection.cursor().execute(query, tuple(names)).fetchall()
            for name, model, basis, hour, *figures in rows:
                calls[name] = _add_sums(calls.get(name, NO_CALLS), model, basis, hour, figures)
        return calls

    def latest_sessions(self, most: int) -> list[tuple[str, int]]:
        """The *most* sessions that were booked last, the latest first, each with the hour of its
        latest call. Goes through an index over all. Raises `StoreError`."""
        with self._link.connection("read") as connection:
            return [
                tuple(row) for row in connection.cursor().execute(self._newest, (most,)).fetchall()
            ]

    def count_sessions(self, since: int = 0) -> int:
        """How many sessions calls are booked of, from the hour *since* on. Goes through an index.
        Raises `StoreError`."""
        with self._link.connection("read") as connection:
            ((count,),) = connection.cursor().execute(self._sessions, (since,)).fetchall()
        return int(count)

    def totals(self, since: int = 0) -> BookedCalls:
        """What is booked of all calls from the hour *since* on. Goes through all of them. Raises
        `StoreError`."""
        calls = NO_CALLS
        with self._link.connection("read") as connection:
            for basis, *figures in connection.cursor().execute(self._totals, (since,)).fetchall():
                calls = _add_sums(calls, "", basis, 0, figures)
        return calls

    def survival(self) -> Survival:
        """What is known of how long sessions are. Raises `StoreError`."""
        with self._link.connection("read") as connection:
            return Survival(dict(connection.cursor().execute(READ_LENGTHS).fetchall()))

    def close(self) -> None:
        """Let go of the database."""
        self._link.close()


NO_CALLS = BookedCalls(Sums(), Sums())


def _add_sums(
    booked: BookedCalls, model: str, basis: str, hour: int, figures: Iterable[Any]
) -> BookedCalls:
    """*booked* with sums of one more model and basis."""
    sums = Sums(**dict(zip(FIGURES, map(int, figures), strict=True)))
    reported, unreported = (sums, Sums()) if basis == "reported" else (Sums(), sums)
    newer = hour >= booked.hour
    return BookedCalls(
        booked.reported + reported,
        booked.unreported + unreported,
        model if newer else booked.model,
        max(hour, booked.hour),
    )


def _entry(row: Iterable[Any]) -> Entry:
    hour, tenant, session, model, basis, *figures = row
    checked: Basis = basis if basis in get_args(Basis) else "estimated"
    return EntryKey(hour, tenant, session, model, checked), Sums(
        **dict(zip(FIGURES, figures, strict=True))
    )
