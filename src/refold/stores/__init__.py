"""Where edits are kept: in memory, in an SQLite file, in a text file beside a session, in a
PostgreSQL database (docs/stores.md)."""

from importlib import import_module
from pathlib import Path
from typing import cast

from refold.errors import StoreError
from refold.stores.sidecar import SUFFIX, SidecarStore
from refold.stores.sql import SQLStore
from refold.stores.sqlite import MEMORY, SQLiteStore
from refold.stores.store import MemoryStore

__all__ = ["MemoryStore", "SQLiteStore", "SidecarStore", "open_store"]


def open_store(
    address: str, *, connect: bool = True, read_only: bool = False
) -> SidecarStore | SQLStore:
    """Open the store at *address*: `postgresql://...`, a text file `NAME.refold`, or any other file
    for SQLite, of which `:memory:` is none. Without *connect* a server is asked for by the first
    call only. With *read_only* a file must be there, and an SQLite file and its directory are not
    written to. Raises `StoreError`, and ImportError where the extra `postgresql` is missing."""
    if is_server(address):
        store_class = import_module("refold.stores.postgresql").PostgreSQLStore
        return cast("SQLStore", store_class(address, connect=connect))
    if read_only:
        require_file(address)
    if address.endswith(SUFFIX):
        return SidecarStore(address)
    return SQLiteStore(address, read_only=read_only)


def require_file(address: str) -> None:
    """Raise `StoreError` for the address of a file that is not there."""
    file = file_path(address)
    if file is not None and not file.exists():
        raise StoreError(f"{address}: there is no such store")


def is_server(address: str) -> bool:
    """Does *address* name a database on a server?"""
    return address.startswith(("postgres://", "postgresql://"))


def file_path(address: str) -> Path | None:
    """Return the file that *address* names, if it names one."""
    return None if is_server(address) or address == MEMORY else Path(address)
