"""Where the books lie: beside the store's file, or in its database."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import cast

from refold.errors import StoreError
from refold.gateway.config.durations import parse_duration
from refold.gateway.ledger.accounting import Accounts, RatesOf
from refold.gateway.ledger.sql import MIGRATIONS, Ledger, Linked
from refold.gateway.ledger.transcripts import MIGRATIONS as KEEP
from refold.gateway.ledger.transcripts import Transcripts
from refold.gateway.ledger.writer import Clerk
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
PATIENCE = 10.0
"""Seconds to wait for another process that writes."""


def open_ledger(store: str, *, fresh: bool = True) -> Ledger:
    """The ledger of the store at *store*: in a file beside it, or in its database. Made where there is none and *fresh*
    allows it. Raises `StoreError`, and ImportError where the extra `postgresql` is missing."""
    path = "" if is_server(store) else f"{store}.ledger"
    if path and not fresh and not Path(path).exists():
        raise StoreError(f"{path}: there is no ledger; a gateway with this store makes it")
    return Ledger(_link(store, ".ledger", MIGRATIONS, LEDGER_ID), _mark(store))


def open_transcripts(store: str, seconds: float | None, clock: Callable[[], float]) -> Transcripts | None:
    """The transcripts of a store, kept for *seconds*; None where none are to be kept and none can be left to be deleted.
    Raises as `open_ledger` does."""
    path = Path(f"{store}.transcripts") if not is_server(store) and store != MEMORY else None
    if seconds is None and (store == MEMORY or (path is not None and not path.exists())):
        return None
    if path is not None:
        with suppress(OSError):  # its first use will say what is wrong
            path.touch(mode=0o600)
    link = _link(store, ".transcripts", KEEP, RECORDS_ID)
    return Transcripts(link, seconds, clock, mark=_mark(store), scrub=("", "") if is_server(store) else SCRUB)


def clerk(store: str, record: str, rates: RatesOf, counters: Counters, clock: Callable[[], float]) -> Clerk:
    """Who keeps the books of the gateway with this store; transcripts for *record* (`7d`), none where it is empty.
    Raises ValueError for a *record* that is no time."""
    transcripts = open_transcripts(store, parse_duration(record) if record else None, clock)
    return Clerk(Accounts(rates), open_ledger(store), counters, transcripts)


def _mark(store: str) -> str:
    return "%s" if is_server(store) else "?"


def _link(store: str, suffix: str, migrations: Sequence[Sequence[str]], owner: int) -> Linked:
    """Connects when it is first used."""
    if is_server(store):
        served = import_module("refold.gateway.ledger.postgresql").Served
        return cast("Linked", served(store, migrations, suffix[1:], PATIENCE))
    link = SQLiteDatabase(store if store == MEMORY else store + suffix, PATIENCE, "NORMAL", migrations, owner)
    close_before_forks(link)
    return link
