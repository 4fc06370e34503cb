"""Where the books lie: beside the store's file, or in its database."""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from refold.errors import StoreError
from refold.gateway.books.accounts import Accounts, RatesOf
from refold.gateway.books.clerk import Clerk
from refold.gateway.books.durations import seconds_of
from refold.gateway.books.tables import CREATE, Ledger, Linked
from refold.gateway.books.transcripts import CREATE as KEEP
from refold.gateway.books.transcripts import Transcripts
from refold.gateway.counters import Counters
from refold.stores.link import MEMORY, Link, close_over_forks
from refold.stores.places import is_server

if TYPE_CHECKING:
    from refold.stores.pool import Pool

LEDGER_ID = 0x52464C47
"""`RFLG` in the file's header: a net ledger."""
RECORDS_ID = 0x52464C52
"""`RFLR`: transcripts."""
SCRUB = ("PRAGMA secure_delete = ON", "PRAGMA wal_checkpoint(TRUNCATE)")
"""So that SQLite overwrites what is deleted, in the file and in its log."""
PATIENCE = 10.0
"""Seconds to wait for another process that writes."""


def ledger_path(store: str) -> str:
    """The file of the ledger of a store."""
    return store if store == MEMORY else f"{store}.ledger"


def records_path(store: str) -> str:
    """The file of the transcripts of a store."""
    return store if store == MEMORY else f"{store}.transcripts"


def open_ledger(store: str, *, fresh: bool = True) -> Ledger:
    """The ledger of the store at *store*, made where there is none and *fresh* allows it. Raises `StoreError`."""
    if is_server(store):
        return Ledger(_pooled(store, CREATE, "ledger"), "%s")
    path = ledger_path(store)
    if not fresh and not Path(path).exists():
        raise StoreError(f"{path}: there is no ledger; a gateway with this store makes it")
    return Ledger(_linked(path, CREATE, LEDGER_ID))


def open_transcripts(store: str, seconds: float | None, clock: Callable[[], float]) -> Transcripts | None:
    """The transcripts of a store; None where none are to be kept and none are left to be deleted."""
    if is_server(store):
        return Transcripts(_pooled(store, KEEP, "transcripts"), seconds, clock, mark="%s")
    path = records_path(store)
    if seconds is None and (path == MEMORY or not Path(path).exists()):
        return None
    if path != MEMORY:
        with suppress(OSError):  # its first use will say what is wrong
            Path(path).touch(mode=0o600)
    return Transcripts(_linked(path, KEEP, RECORDS_ID), seconds, clock, scrub=SCRUB)


def clerk(store: str, record: str, rates: RatesOf, counters: Counters, clock: Callable[[], float]) -> Clerk:
    """Who keeps the books of the gateway with this store; transcripts for *record* (`7d`), none where it is empty.
    Raises ValueError for a *record* that is no time."""
    transcripts = open_transcripts(store, seconds_of(record) if record else None, clock)
    return Clerk(Accounts(rates), open_ledger(store), counters, transcripts)


def _pooled(store: str, tables: tuple[str, ...], part: str) -> Linked:
    pool: Pool = import_module("refold.stores.pool").Pool(store, PATIENCE, 1, (tables,), part)
    close_over_forks(pool)
    return pool


def _linked(path: str, tables: tuple[str, ...], owner: int) -> Link:
    link = Link(path, PATIENCE, "NORMAL", (tables,), owner)
    close_over_forks(link)
    return link
