"""The ledger's tables, in SQL for SQLite (from 3.24) and PostgreSQL, and the removal of what is
unused from them and from the store."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from threading import Event, Thread
from time import time
from typing import Any, NamedTuple, get_args
from uuid import uuid4

from refold.budget.planner import CallCounts
from refold.edits import Edit
from refold.errors import StoreError
from refold.gateway.ledger.entry import FIGURES, Basis, Entry, EntryKey, Sums
from refold.gateway.logs import report_ledger_failure
from refold.gateway.metrics import Counters
from refold.stores.sql import Database, SQLStore
from refold.stores.store import Store

PAGE = 5_000
"""Lines read at a time, so that a ledger of any length can be read."""
MAX_CHARACTERS = 16_000_000
"""Maximum characters of cached texts about edits in a process."""
NAMES_PER_QUERY = 500
"""Sessions per query: every SQLite accepts that many parameters."""
_FIGURES = ", ".join(f"{name} BIGINT NOT NULL DEFAULT 0" for name in FIGURES)
_KEYS = ", ".join(EntryKey._fields)
_KEY_MARKS = ", ".join("?" * len(EntryKey._fields))
MIGRATIONS = (
    (
        (
            "CREATE TABLE IF NOT EXISTS refold_calls (hour BIGINT NOT NULL, tenant TEXT NOT NULL, "
            "session TEXT NOT NULL, model TEXT NOT NULL, basis TEXT NOT NULL, "
            f"{_FIGURES}, PRIMARY KEY ({_KEYS}))"
        ),
        (
            "CREATE TABLE IF NOT EXISTS refold_reached "
            "(step BIGINT NOT NULL PRIMARY KEY, calls BIGINT NOT NULL)"
        ),
    ),
    ("CREATE INDEX IF NOT EXISTS refold_calls_by_session ON refold_calls (session)",),
    (  # finds the sessions, and the latest of them, without reading figures
        "CREATE INDEX IF NOT EXISTS refold_calls_by_latest ON refold_calls (session, tenant, hour)",
        "DROP INDEX IF EXISTS refold_calls_by_session",
    ),
)
"""Step n brings the tables from version n to version n + 1. Steps are only ever added."""
BATCHES_MIGRATION = (
    (
        "CREATE TABLE IF NOT EXISTS refold_batches "
        "(id TEXT NOT NULL PRIMARY KEY, at DOUBLE PRECISION NOT NULL)"
    ),
)
"""A further step: the latest batch of each process."""
NOTE_BATCH = "INSERT INTO refold_batches (id, at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING"
FORGET_BATCH = "DELETE FROM refold_batches WHERE id = ?"
ADD_LENGTHS = (
    "INSERT INTO refold_reached (step, calls) VALUES (?, ?) "
    "ON CONFLICT (step) DO UPDATE SET calls = refold_reached.calls + excluded.calls"
)
READ_LENGTHS = "SELECT step, calls FROM refold_reached"
_ADDED = ", ".join(f"{name} = refold_calls.{name} + excluded.{name}" for name in FIGURES)
ADD = (
    f"INSERT INTO refold_calls ({_KEYS}, {', '.join(FIGURES)}) "  # noqa: S608 - names of ours
    f"VALUES ({_KEY_MARKS}, {', '.join('?' * len(FIGURES))}) "
    f"ON CONFLICT ({_KEYS}) DO UPDATE SET {_ADDED}"
)
READ = (
    f"SELECT {_KEYS}, {', '.join(FIGURES)} FROM refold_calls "  # noqa: S608 - names of ours
    f"WHERE ({_KEYS}) > ({_KEY_MARKS}) ORDER BY {_KEYS} LIMIT {PAGE}"
)
SUMMED = ", ".join(f"COALESCE(SUM({name}), 0)" for name in FIGURES)
"""Sums of all figures."""
BOOKED = (
    f"SELECT session, model, basis, MAX(hour), {SUMMED} FROM refold_calls "  # noqa: S608 - names of ours
    "WHERE session IN ({}) GROUP BY session, model, basis"
)
ENDED = "SELECT session FROM refold_listed WHERE latest < ? ORDER BY latest LIMIT ?"
_OF_ENDED = "session <> '' AND hour < ? AND session IN ({})"
FORGET = (
    (
        f"INSERT INTO refold_calls ({_KEYS}, {', '.join(FIGURES)}) "  # noqa: S608 - names of ours
        f"SELECT hour, tenant, '', model, basis, {', '.join(f'SUM({name})' for name in FIGURES)} "
        f"FROM refold_calls WHERE {_OF_ENDED} GROUP BY hour, tenant, model, basis "
        f"ON CONFLICT ({_KEYS}) DO UPDATE SET {_ADDED}"
    ),
    f"DELETE FROM refold_calls WHERE {_OF_ENDED}",  # noqa: S608 - names of ours
    (
        "DELETE FROM refold_client_names WHERE session IN "
        "(SELECT session FROM refold_listed WHERE latest < ? AND session IN ({}))"
    ),
    "DELETE FROM refold_listed WHERE latest < ? AND session IN ({})",
)
"""Moves some sessions' calls to no session and deletes the sessions."""


class BookedCalls(NamedTuple):
    """Booked calls of one session, or of all."""

    reported: Sums
    """With usage reported by the upstream."""
    unreported: Sums
    """Without: our estimates, and no money."""
    model: str = ""
    """Of the latest call."""
    hour: int = 0
    """Beginning of the latest call's hour, in seconds since 1970."""
    shadow: Sums = Sums()
    """In shadow: estimates with edits, and in `would_...` what was billed."""

    @property
    def calls(self) -> int:
        """Number of answered calls, without those in shadow."""
        return self.reported.calls + self.unreported.calls

    @property
    def tokens_saved(self) -> int:
        """Tokens that edits removed from these calls' requests."""
        return sum(sums.would_input - sums.input for sums in (self.reported, self.unreported))

    @property
    def money_saved(self) -> int | None:
        """Net savings in picodollars; None if no call has a known price."""
        return self.reported.saved if self.reported.calls > self.reported.unpriced else None


NO_CALLS = BookedCalls(Sums(), Sums())


class Tables:
    """Tables in a database. Statements have `?` for each value. Methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._database.connection("read") as connection:
            return self._rows(connection, statement, values)

    def _read_by_name(self, statement: str, names: Iterable[str]) -> Iterator[Any]:
        """Yield the rows of *names*, which replace `{}` in the statement."""
        wanted = sorted({*names} - {""})
        for first in range(0, len(wanted), NAMES_PER_QUERY):
            some = wanted[first : first + NAMES_PER_QUERY]
            yield from self._read(statement.format(", ".join("?" * len(some))), some)

    def _rows(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        cursor = connection.cursor().execute(self._sql(statement), tuple(values))
        return list(cursor.fetchall())

    def _execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement and return the number of changed rows."""
        return int(connection.cursor().execute(self._sql(statement), tuple(values)).rowcount)

    def _execute_many(self, connection: Any, statement: str, rows: Iterable[Any]) -> None:
        connection.cursor().executemany(self._sql(statement), list(rows))

    def _sql(self, statement: str) -> str:
        return statement.replace("?", self._database.placeholder)


class Batch(NamedTuple):
    """What is added at once, and retried unchanged if that fails."""

    entries: Mapping[EntryKey, Sums]
    lengths: Mapping[int, int]
    rows: Sequence[tuple[str, Sequence[Any]]]
    name: str
    last: str
    """Name of the same process's previous batch; empty for the first."""

    def split(self) -> list["Batch"]:
        """Return a batch for each line, with names by which each is added once, too."""
        parts: list[tuple[Any, Any, Any]] = [
            ({key: sums}, {}, ()) for key, sums in self.entries.items()
        ]
        parts += [({}, {step: calls}, ()) for step, calls in self.lengths.items()]
        parts += [({}, {}, (row,)) for row in self.rows]
        return [Batch(*part, f"{self.name}.{at}", "") for at, part in enumerate(parts)]


class Ledger(Tables):
    """The net ledger in a database."""

    def add(
        self,
        entries: Mapping[EntryKey, Sums],
        lengths: Mapping[int, int] | None = None,
        rows: Iterable[tuple[str, Sequence[Any]]] = (),
        name: str = "",
        last: str = "",
    ) -> None:
        """Add in one transaction: *entries*, *lengths* (numbers of calls, by the number of calls
        before them in their history: `refold.budget.planner`) and *rows*, each with its statement.
        Raises `StoreError`, but may have written if only the database's answer was lost: a batch
        with a *name* is added once, however often it is tried (`Batch`)."""
        lines = [(*key, *sums.values()) for key, sums in sorted(entries.items())]
        kinds = dict[str, list[Sequence[Any]]]()
        for statement, values in rows:
            kinds.setdefault(statement, []).append(values)
        with self._database.transaction(edits=False) as connection:
            if name:
                self._execute(connection, FORGET_BATCH, (last,))
                if not self._execute(connection, NOTE_BATCH, (name, time())):
                    return
            self._execute_many(connection, ADD, lines)
            self._execute_many(connection, ADD_LENGTHS, sorted((lengths or {}).items()))
            for statement, each in kinds.items():  # not one round trip per row
                each.sort(key=itemgetter(0))  # in one order, so that writers do not deadlock
                self._execute_many(connection, statement, each)

    def forget_batches(self, names: Iterable[str]) -> None:
        """Forget that batches of these names were added. Raises `StoreError`."""
        with self._database.transaction(edits=False) as connection:
            self._execute_many(connection, FORGET_BATCH, [(name,) for name in names])

    def entries(self, since: int = 0) -> Iterator[Entry]:
        """Yield every line from the hour *since* (seconds since 1970) on, in the order of keys.

        They are read in pages, so lines booked meanwhile may be among them. Raises `StoreError`."""
        last: Sequence[Any] = (since, "", "", "", "")  # before the first: every line has a basis
        while True:
            rows = self._read(READ, last)
            yield from map(_entry, rows)
            if len(rows) < PAGE:
                return
            last = rows[-1][: len(EntryKey._fields)]

    def sum_sessions(self, sessions: Iterable[str]) -> dict[str, BookedCalls]:
        """Return the booked calls of *sessions* that have any. Reads only their lines. Raises
        `StoreError`."""
        calls = dict[str, BookedCalls]()
        for name, model, basis, hour, *figures in self._read_by_name(BOOKED, sessions):
            calls[name] = add_sums(calls.get(name, NO_CALLS), model, basis, hour, figures)
        return calls

    def forget_sessions(self, before: float) -> int:
        """Book the calls of sessions without calls since *before* (seconds since 1970) under no
        session, hour by hour, so that sums stay; return the number of sessions. Handles some
        hundred at a time, so that others can write. Raises `StoreError`."""
        count = 0
        while True:
            names = [name for (name,) in self._read(ENDED, (before, NAMES_PER_QUERY))]
            marks = ", ".join("?" * len(names))
            with self._database.transaction(edits=False) as connection:
                for statement in FORGET if names else ():
                    self._execute(connection, statement.format(marks), (before, *names))
            count += len(names)
            if len(names) < NAMES_PER_QUERY:
                return count

    def survival(self) -> CallCounts:
        """Return the statistics of how long sessions are. Raises `StoreError`."""
        return CallCounts(dict(self._read(READ_LENGTHS)))


def add_batch(ledger: Ledger, batch: Batch, report: Callable[[Exception], None]) -> None:
    """Add a batch. If the database takes one of its values for invalid, the lines are added one by
    one, and *report* is called with the error of each that is lost. Raises `StoreError`."""
    try:
        ledger.add(*batch)
    except (StoreError, OverflowError) as error:
        if not _is_invalid(error):
            raise
        lines = batch.split()
        for line in lines:
            try:
                ledger.add(*line)
            except (StoreError, OverflowError) as lost:
                if not _is_invalid(lost):
                    raise
                report(lost)
        ledger.forget_batches(line.name for line in lines)


_INVALID = {"DataError", "OverflowError", "UnicodeEncodeError"}
"""Names of errors about a value, by PEP 249 and Python."""


def _is_invalid(error: BaseException) -> bool:
    """Return whether an error is about a value, so that the same write can never succeed."""
    cause = (error.__context__ or error) if isinstance(error, StoreError) else error
    return any(kind.__name__ in _INVALID for kind in type(cause).__mro__)


def add_sums(
    booked: BookedCalls, model: str, basis: str, hour: int, figures: Iterable[Any]
) -> BookedCalls:
    """Return *booked* with the sums of one more model and basis."""
    place = {"reported": "reported", "shadow": "shadow"}.get(basis, "unreported")
    return booked._replace(
        **{place: getattr(booked, place) + Sums(*map(int, figures))},
        model=model if hour >= booked.hour else booked.model,
        hour=max(hour, booked.hour),
    )


def _entry(row: Iterable[Any]) -> Entry:
    hour, tenant, session, model, basis, *figures = row
    checked: Basis = basis if basis in get_args(Basis) else "estimated"
    return EntryKey(hour, tenant, session, model, checked), Sums(*figures)


class EditTextCache:
    """Cache of two texts about each edit, as long as the edit is unchanged. The latest used are
    kept, up to *most* characters: a text may be a summary of thousands of tokens, and the edit
    holds as much again."""

    def __init__(self, most: int = MAX_CHARACTERS) -> None:
        self._most, self._size = most, 0
        self._texts = OrderedDict[str, tuple[Edit, tuple[str, str]]]()

    def get(self, edit: Edit, make: Callable[[], tuple[str, str]]) -> tuple[str, str]:
        """Return the texts about *edit*, from *make* unless cached."""
        before = self._texts.get(edit.id)
        if before is not None and before[0] == edit:
            self._texts.move_to_end(edit.id)
            return before[1]
        self._size -= _characters(self._texts.pop(edit.id)[1]) if before is not None else 0
        texts = make()
        self._texts[edit.id], self._size = (edit, texts), self._size + _characters(texts)
        while self._size > self._most:
            self._size -= _characters(self._texts.popitem(last=False)[1][1])
        return texts


def _characters(texts: tuple[str, str]) -> int:
    return sum(map(len, texts)) + 500


def like_pattern(words: str) -> str:
    """Return the pattern of SQL's LIKE, with `!` as the escape, for texts that contain *words*. The
    database's LOWER around both decides which letters are equal."""
    escaped = re.sub(r"([!%_])", r"!\1", words)
    return f"%{escaped}%"


def narrowing_pattern(words: str) -> str:
    """Return a pattern of LIKE, as `like_pattern`, for the JSON of all texts that contain *words*.
    What JSON escapes or puts elsewhere (`path: a` is `"path":"a"` there), and letters whose other
    case not every database knows, may be anything."""
    plain = (letter if _is_spelled_alike(letter) else "\0" for letter in words)
    return "".join(map(like_pattern, "".join(plain).split("\0")))


def _is_spelled_alike(letter: str) -> bool:
    if letter.isascii():
        return letter.isprintable() and letter not in '"\\: '
    return letter.isprintable() and letter.lower() == letter.upper()


# --- retention ------------------------------------------------------------------------------------
# Removes what was not used for long: edits, and ended sessions in the ledger.
#
# Edits of a continued session stay, however old: the store records when each was last used
# (`refold.stores.sql.SQLStore.prune`). An ended session's calls are kept by the hour as calls of no
# session, so that the totals spent and saved do not change.

EVERY_SECONDS = 6 * 3_600.0
"""Seconds between two prunings of a store by any process of a gateway."""
CLAIM = "retention"


class Removed(NamedTuple):
    """Numbers of what was removed."""

    edits: int
    attempts: int
    """Rows of the store's ledger."""
    sessions: int
    """Ended sessions in the net ledger."""


def prune(store: Store, ledger: Ledger | None, seconds: float, now: float) -> Removed:
    """Remove from *store*, and from the net *ledger*, what no session has used for *seconds*.

    Raises ValueError for less than a day, and for stores other than SQLite and PostgreSQL, which
    end with their process or their session's file. Raises `StoreError`."""
    if not isinstance(store, SQLStore):
        raise ValueError("only stores in SQLite and PostgreSQL are pruned")  # noqa: TRY004
    edits, attempts = store.prune(seconds)
    sessions = ledger.forget_sessions(now - seconds) if ledger is not None else 0
    return Removed(edits, attempts, sessions)


class Retention:
    """Prunes a gateway's store from time to time, in its own thread. Only one process does at a
    time."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger | None,
        seconds: float,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._ledger, self._seconds = store, ledger, seconds
        self._counters, self._clock, self._closing = counters, clock, Event()
        self._thread = Thread(target=self._run, name="refold-retention", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop. Waits at most 5 seconds for a pruning in progress."""
        self._closing.set()
        self._thread.join(5.0)

    def prune_if_due(self) -> None:
        """Prune a store in SQLite or PostgreSQL, if no process has for `EVERY_SECONDS`. Raises
        `StoreError`."""
        store = self._store
        if not isinstance(store, SQLStore) or not store.claim(CLAIM, uuid4().hex, EVERY_SECONDS):
            return
        removed = prune(store, self._ledger, self._seconds, self._clock())
        for name, count in removed._asdict().items():
            self._counters.add("pruned", count, what=name)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self.prune_if_due()
            except StoreError as error:  # tried again next time
                report_ledger_failure(self._counters, "prune", error)
            self._closing.wait(EVERY_SECONDS / 6)
