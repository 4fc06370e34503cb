"""Books calls after their answers: in a thread, in batches, while no request waits. The ledger is
beside the store's file, or in its database."""

import queue
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic, sleep, time
from uuid import uuid4

from refold.budget.budget import count_calls
from refold.budget.planner import CallCounts, bucket_of
from refold.errors import StoreError
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.ledger import calls, sessions, sql, transcripts
from refold.gateway.ledger.accounting import Accounting, BilledCall, RatesOf, SummaryCost
from refold.gateway.ledger.calls import ADD, KEPT_SECONDS, CallLog
from refold.gateway.ledger.entry import EntryKey, Sums, add_up
from refold.gateway.ledger.rows import (
    CallRow,
    ClientName,
    ListedSession,
    SessionEvent,
    client_name_of,
    client_of,
    describe_call,
    project_of,
)
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.sql import Batch, Ledger
from refold.gateway.ledger.transcripts import Transcripts
from refold.gateway.logs import report_ledger_failure
from refold.gateway.metrics import Counters
from refold.gateway.settings import MIB, parse_duration
from refold.stores import is_server
from refold.stores.sql import Database, close_before_forks
from refold.stores.sqlite import MEMORY, SQLiteDatabase

MAX_WAITING = 10_000
"""Maximum number of calls that wait to be booked, and of lines that wait for a failing store.
Others are lost."""
MAX_WAITING_BYTES = 256 * MIB
"""Maximum total size of waiting calls' requests, whose bodies are read when they are booked."""
CALLS_PER_BATCH = 8
"""Calls between pauses of PAUSE_SECONDS, in which requests take the interpreter's lock. A computing
thread gives it up only after 5 ms."""
PAUSE_SECONDS = 0.0002
REFRESH_SECONDS = 600.0
"""Seconds between two reads of what other processes wrote, and two deletions of what is old."""
LEDGER_ID = 0x52464C47
"""SQLite application id of a net ledger: `RFLG`."""
RECORDS_ID = 0x52464C52
"""That of transcripts: `RFLR`."""
LEDGER_MIGRATIONS = (
    *sql.MIGRATIONS,
    sessions.MIGRATION,
    calls.MIGRATION,
    calls.NAMES_MIGRATION,
    sessions.RATIO_MIGRATION,
    sql.BATCHES_MIGRATION,
)
SCRUB = ("PRAGMA secure_delete = ON", "PRAGMA wal_checkpoint(TRUNCATE)")
"""Pragmas that make SQLite overwrite what is deleted, in the file and in its log."""
TIMEOUT_SECONDS = 10.0
"""Seconds to wait for another process that writes."""

Row = ListedSession | CallRow | SessionEvent | ClientName
Item = BilledCall | SummaryCost | ListedSession | SessionEvent
"""What can be booked. A `ListedSession` is added to that session's row."""


class LedgerWriter:
    """Books calls *pause* seconds after their answers. `book` and `note_session` neither wait nor
    raise."""

    def __init__(
        self,
        accounts: Accounting,
        ledger: Ledger,
        sessions: Sessions,
        calls: CallLog,
        counters: Counters,
        transcripts: Transcripts,
        *,
        pause: float = 1.0,
    ) -> None:
        self.ledger, self.transcripts = ledger, transcripts
        self.sessions, self.calls = sessions, calls
        self._accounts, self._counters, self._pause = accounts, counters, pause
        self._queue, self._waiting_bytes = queue.SimpleQueue[Item | None](), 0
        self.survival = CallCounts()
        self.unwritten = 0
        """Calls that the ledger could not take yet."""
        self._pending: dict[EntryKey, list[Sums]] = {}
        self._rows = list[Row]()
        self._batch: Batch | None = None
        self._names, self._last = dict[str, tuple[str, str]](), ""
        self._lengths = Counter[int]()
        self._refreshed_at = float("-inf")
        self._closing, self._lock = Flag(), Lock()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, which deletes old data first. A second call does nothing."""
        with self._lock:
            if (self._thread is None or not self._thread.is_alive()) and not self._closing.is_set():
                self._thread = Thread(target=self._run, name="refold-ledger", daemon=True)
                self._thread.start()

    def book(self, item: Item | None) -> None:
        """Queue *item*, or count it as lost if too many wait. With None, noted sessions are
        written."""
        if self._thread is None or not self._thread.is_alive():  # a forked child has no thread yet
            self.start()
        with self._lock:
            size = self._waiting_bytes + _count_bytes(item)
            if self._queue.qsize() >= MAX_WAITING or size > MAX_WAITING_BYTES:
                self._counters.add("ledger_lost")
            else:
                self._waiting_bytes = size
                self._queue.put(item)

    def note_session(self, conversation: Conversation) -> None:
        """Have the latest request of *conversation* written to the table of sessions."""
        self.sessions.note(conversation)
        if self._queue.empty():
            self.book(None)

    def close(self, timeout: float = 5.0) -> None:
        """Book waiting items and stop, within *timeout* seconds."""
        self._closing.set()
        self._queue.put(None)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    # --- in its thread --------------------------------------------------------------------------

    def _run(self) -> None:
        self._run_guarded("purge", self._purge)
        self._run_guarded("learn", self._refresh)
        while True:
            with suppress(queue.Empty):
                self._process(self._queue.get(timeout=REFRESH_SECONDS))
                self._closing.wait(self._pause)
            for number in range(self._queue.qsize()):
                self._process(self._queue.get_nowait())
                if number % CALLS_PER_BATCH == 0 and not self._closing.is_set():
                    sleep(PAUSE_SECONDS)
            self._run_guarded("write", self._write)
            waiting = [*self._pending.values(), self._batch.entries.values() if self._batch else ()]
            self.unwritten = sum(sums.calls for parts in waiting for sums in parts)
            self._run_guarded("sessions", self.sessions.save)
            self._run_guarded("purge", self._purge)
            self._run_guarded("learn", self._refresh)
            if self._closing.is_set() and self._queue.empty():
                break
        self._run_guarded("close", self.ledger.close)
        self._run_guarded("close", self.transcripts.close)

    def _process(self, item: Item | None) -> None:
        with self._lock:
            self._waiting_bytes -= _count_bytes(item)
        if isinstance(item, BilledCall | SummaryCost):
            self._run_guarded("reckon", partial(self._reckon, item))
        elif item is not None and len(self._rows) < MAX_WAITING:
            self._rows.append(item)
        if isinstance(item, BilledCall) and item.view is not None:
            self._lengths[bucket_of(count_calls(item.view))] += 1
            self._run_guarded("record", partial(self.transcripts.record, item))

    def _reckon(self, item: BilledCall | SummaryCost) -> None:
        key, sums = entry = self._accounts.book(item)
        if key in self._pending or len(self._pending) < MAX_WAITING:
            self._pending.setdefault(key, []).append(sums)
        else:
            self._counters.add("ledger_lost")
        if isinstance(item, BilledCall) and item.session and len(self._rows) < MAX_WAITING:
            self._rows += describe_call(item, entry, self._names_of(item))

    def _names_of(self, call: BilledCall) -> tuple[str, str]:
        """Return client and project of a call's session, as its first request names them."""
        if call.session not in self._names:
            if len(self._names) >= MAX_WAITING:
                self._names.clear()
            self._names[call.session] = client_of(call.incoming), project_of(call.incoming)
            if name := client_name_of(call.incoming):
                self._rows.append(ClientName(call.session, name))
        return self._names[call.session]

    def _write(self) -> None:
        """Write what waits. A failed batch is retried unchanged, since it may have been written;
        lines with an invalid value are lost."""
        self._pending = {key: [add_up(parts)] for key, parts in self._pending.items()}
        while self._batch or self._pending or self._rows:
            if self._batch is None:
                entries = {key: sums for key, (sums,) in self._pending.items()}
                rows = [(ADD[type(row)], row) for row in self._rows]
                self._batch = Batch(entries, self._lengths, rows, uuid4().hex, self._last)
                self._pending, self._rows, self._lengths = {}, [], Counter()
            lose = partial(report_ledger_failure, self._counters, "write")
            sql.add_batch(self.ledger, self._batch, lose)
            self._last, self._batch = self._batch.name, None

    def _refresh(self) -> None:
        """Reread the lengths of sessions from time to time, since other processes write too, and
        delete what is old."""
        if monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = monotonic()
            self.survival = self.ledger.survival()
            self.sessions.purge()
            self.calls.purge(time() - KEPT_SECONDS)

    def _purge(self) -> None:
        if count := self.transcripts.purge():
            self._counters.add("records_purged", count)

    def _run_guarded(self, doing: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a ledger must not stop requests
            report_ledger_failure(self._counters, doing, error)


def _count_bytes(item: Item | None) -> int:
    return len(item.incoming.body) if isinstance(item, BilledCall) else 0


# --- its place: beside the store's file, or in its database ---------------------------------------


def open_ledger(store: str, *, create: bool = True) -> Ledger:
    """Return the ledger of the store at *store*: in a file beside it, or in its database. A missing
    one is created; without *create* it raises `StoreError`. Raises ImportError without the extra
    `postgresql`."""
    if not create and not has_ledger(store):
        reason = (
            f"{store}.ledger: there is no net ledger, which has what a gateway's calls cost; "
            "a gateway with this store makes it"
        )
        own = f". What was compacted is in the store itself: refold history FILE --store {store}"
        raise StoreError(reason + own if Path(store).exists() else reason)
    return Ledger(open_ledger_database(store))


def has_ledger(store: str) -> bool:
    """Return whether there is a ledger beside a store's file. A database, which would have to be
    queried, is assumed to have one."""
    return is_server(store) or Path(f"{store}.ledger").exists()


def open_ledger_database(store: str) -> Database:
    """Return the database of the ledger, the sessions and their calls."""
    return _open_database(store, ".ledger", LEDGER_MIGRATIONS, LEDGER_ID)


def open_transcripts(store: str, seconds: float | None, clock: Callable[[], float]) -> Transcripts:
    """Return the transcripts of a store, kept for *seconds*. Without *seconds* no file is created.
    Raises as `open_ledger` does."""
    if not is_server(store) and store != MEMORY:
        path = Path(f"{store}.transcripts")
        if seconds is None and not path.exists():
            store = MEMORY
        else:
            with suppress(OSError):  # its first use will raise the error
                path.touch(mode=0o600)
    database = _open_database(store, ".transcripts", transcripts.MIGRATIONS, RECORDS_ID)
    return Transcripts(database, seconds, clock, scrub=("", "") if is_server(store) else SCRUB)


def create_writer(
    store: str, record: str, rates: RatesOf, counters: Counters, clock: Callable[[], float]
) -> LedgerWriter:
    """Return a writer of the ledger of a gateway's *store*. It also keeps transcripts for *record*
    (`7d`; empty: not at all). Raises ValueError for an invalid *record*."""
    transcripts = open_transcripts(store, parse_duration(record) if record else None, clock)
    database = open_ledger_database(store)
    sessions, calls = Sessions(database, clock), CallLog(database)
    return LedgerWriter(Accounting(rates), Ledger(database), sessions, calls, counters, transcripts)


def _open_database(
    store: str, suffix: str, migrations: Sequence[Sequence[str]], owner: int
) -> Database:
    database: Database
    if is_server(store):
        create_pool = import_module("refold.stores.postgresql").PostgreSQLPool
        database = create_pool(store, TIMEOUT_SECONDS, 2, migrations, suffix[1:])
    else:
        path = store if store == MEMORY else store + suffix
        database = SQLiteDatabase(path, TIMEOUT_SECONDS, "NORMAL", migrations, owner)
    close_before_forks(database)
    return database
