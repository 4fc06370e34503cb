"""Where the books lie: beside the store's file, or in its database."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from refold.errors import StoreError
from refold.gateway.config.durations import parse_duration
from refold.gateway.ledger.accounting import Accounting, RatesOf
from refold.gateway.ledger.sql import MIGRATIONS, DatabaseConnections, Ledger
from refold.gateway.ledger.transcripts import MIGRATIONS as KEEP
from refold.gateway.ledger.transcripts import Transcripts
from refold.gateway.ledger.writer import LedgerWriter
from refold.gateway.ops.metrics import Counters
from refold.stores.open import is_server
from refold.stores.sql import close_before_forks
from refold.stores.sqlite_connection import MEMORY, SQLiteDatabase

LEDGER_ID = 0x52464C47
"""`RFLG` in the file's header: a net ledger."""
RECORDS_ID = 0x52464C52
"""`RFLR`: transcripts."""
SCRUB = ("PRAGMA secure_delete = ON", "PRAGMA wal_checkpoint(TRUNCATE)")
"""So that SQLite overwrites what is deleted, in the file and in its log."""
TIMEOUT_SECONDS = 10.0
"""Seconds to wait for another process that writes."""


def open_ledger(store: str, *, fresh: bool = True) -> Ledger:
    """The ledger of the store at *store*: in a file beside it, or in its database. Made where there
    is none and *fresh* allows it. Raises `StoreError`, and ImportError where the extra `postgresql`
    is missing."""
    path = "" if is_server(store) else f"{store}.ledger"
    if path and not fresh and not Path(path).exists():
        raise StoreError(f"{path}: there is no ledger; a gateway with this store makes it")
    return Ledger(_open_connections(store, ".ledger", MIGRATIONS, LEDGER_ID), _placeholder(store))


def open_transcripts(
    store: str, seconds: float | None, clock: Callable[[], float]
) -> Transcripts | None:
    """The transcripts of a store, kept for *seconds*; None where none are to be kept and none can
    be left to be deleted. Raises as `open_ledger` does."""
    path = Path(f"{store}.transcripts") if not is_server(store) and store != MEMORY else None
    if seconds is None and (store == MEMORY or (path is not None and not path.exists())):
        return None
    if path is not None:
        with suppress(OSError):  # its first use will say what is wrong
            path.touch(mode=0o600)
    link = _open_connections(store, ".transcripts", KEEP, RECORDS_ID)
    return Transcripts(
        link,
        seconds,
        clock,
        mark=_placeholder(store),
        scrub=("", "") if is_server(store) else SCRUB,
    )


def create_writer(
    store: str, record: str, rates: RatesOf, counters: Counters, clock: Callable[[], float]
) -> LedgerWriter:
    """Who keeps the books of the gateway with this store; transcripts for *record* (`7d`), none
    where it is empty. Raises ValueError for a *record* that is no time."""
    transcripts = open_transcripts(store, parse_duration(record) if record else None, clock)
    return LedgerWriter(Accounting(rates), open_ledger(store), counters, transcripts)


def _placeholder(store: str) -> str:
    return "%s" if is_server(store) else "?"


def _open_connections(
    store: str, suffix: str, migrations: Sequence[Sequence[str]], owner: int
) -> DatabaseConnections:
    """Connects when it is first used."""
    if is_server(store):
        create_pool = import_module("refold.stores.postgresql_pool").PostgreSQLPool
        pool = create_pool(store, TIMEOUT_SECONDS, 2, migrations, suffix[1:])
        close_before_forks(pool)
        return PostgreSQLConnections(pool)
    database = SQLiteDatabase(
        store if store == MEMORY else store + suffix, TIMEOUT_SECONDS, "NORMAL", migrations, owner
    )
    close_before_forks(database)
    return database


class PostgreSQLConnections:
    """Connections of a `PostgreSQLPool`. Edits do not change in their transactions, so their
    version does not."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.connection: Callable[[str], AbstractContextManager[Any]] = pool.connection
        self.close: Callable[[], None] = pool.close

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a connection in a transaction."""
        transaction: AbstractContextManager[Any] = self._pool.transaction(edits=False)
        return transaction
