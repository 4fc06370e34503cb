"""Where the ledger and transcripts are kept: beside the store's file, or in its database."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from refold.errors import StoreError
from refold.gateway.config import parse_duration
from refold.gateway.ledger import sessions, sql, transcripts
from refold.gateway.ledger.accounting import Accounting, RatesOf
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.sql import Ledger
from refold.gateway.ledger.transcripts import Transcripts
from refold.gateway.ledger.writer import LedgerWriter
from refold.gateway.metrics import Counters
from refold.stores import is_server
from refold.stores.sql import Database, close_before_forks
from refold.stores.sqlite_connection import MEMORY, SQLiteDatabase

LEDGER_ID = 0x52464C47
"""`RFLG` in the file's header: a net ledger."""
RECORDS_ID = 0x52464C52
"""`RFLR`: transcripts."""
LEDGER_MIGRATIONS = (*sql.MIGRATIONS, sessions.MIGRATION)
SCRUB = ("PRAGMA secure_delete = ON", "PRAGMA wal_checkpoint(TRUNCATE)")
"""So that SQLite overwrites what is deleted, in the file and in its log."""
TIMEOUT_SECONDS = 10.0
"""Seconds to wait for another process that writes."""


def open_ledger(store: str, *, fresh: bool = True) -> Ledger:
    """Return the ledger of the store at *store*: in a file beside it, or in its database. It is
    made if there is none and *fresh* allows it. Raises `StoreError`, and ImportError if the extra
    `postgresql` is missing."""
    path = "" if is_server(store) else f"{store}.ledger"
    if path and not fresh and not Path(path).exists():
        raise StoreError(f"{path}: there is no ledger; a gateway with this store makes it")
    return Ledger(_open_database(store, ".ledger", LEDGER_MIGRATIONS, LEDGER_ID))


def open_transcripts(
    store: str, seconds: float | None, clock: Callable[[], float]
) -> Transcripts | None:
    """Return the transcripts of a store, kept for *seconds*; None if none are to be kept and none
    can be left to be deleted. Raises as `open_ledger` does."""
    path = Path(f"{store}.transcripts") if not is_server(store) and store != MEMORY else None
    if seconds is None and (store == MEMORY or (path is not None and not path.exists())):
        return None
    if path is not None:
        with suppress(OSError):  # its first use will say what is wrong
            path.touch(mode=0o600)
    database = _open_database(store, ".transcripts", transcripts.MIGRATIONS, RECORDS_ID)
    return Transcripts(database, seconds, clock, scrub=("", "") if is_server(store) else SCRUB)


def create_writer(
    store: str, record: str, rates: RatesOf, counters: Counters, clock: Callable[[], float]
) -> LedgerWriter:
    """Return what keeps the ledger of the gateway with this store, and transcripts for *record*
    (`7d`), none if it is empty. Raises ValueError for a *record* that is no time."""
    recorder = open_transcripts(store, parse_duration(record) if record else None, clock)
    database = _open_database(store, ".ledger", LEDGER_MIGRATIONS, LEDGER_ID)
    return LedgerWriter(
        Accounting(rates), Ledger(database), counters, recorder, Sessions(database, clock)
    )


def _open_database(
    store: str, suffix: str, migrations: Sequence[Sequence[str]], owner: int
) -> Database:
    """Return a database that connects when it is first used."""
    database: Database
    if is_server(store):
        create_pool = import_module("refold.stores.postgresql_pool").PostgreSQLPool
        database = create_pool(store, TIMEOUT_SECONDS, 2, migrations, suffix[1:])
    else:
        path = store if store == MEMORY else store + suffix
        database = SQLiteDatabase(path, TIMEOUT_SECONDS, "NORMAL", migrations, owner)
    close_before_forks(database)
    return database
