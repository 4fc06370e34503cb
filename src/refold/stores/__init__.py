"""Stores of edits: in memory, in an SQLite file, in a text file beside a session, in a PostgreSQL
database (docs/stores.md)."""

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
    for SQLite (`:memory:`: in memory). Without *connect* a server is first connected to when the
    store is used. With *read_only* a file must exist, and an SQLite file and its directory are not
    written to. Raises `StoreError`, and ImportError without the extra `postgresql`."""
    if is_server(address):
        store_class = import_module("refold.stores.postgresql").PostgreSQLStore
        return cast("SQLStore", store_class(address, connect=connect))
    if read_only:
        require_file(address)
    if address.endswith(SUFFIX):
        return SidecarStore(address)
    return SQLiteStore(address, read_only=read_only)


def require_file(address: str) -> None:
    """Raise `StoreError` if *address* names a file that is missing or cannot be looked up."""
    file = file_path(address)
    try:
        is_missing = file is not None and not file.exists()
    except OSError as error:  # such as a name that is too long
        raise StoreError(f"{address}: cannot read: {error.strerror}") from error
    if is_missing:
        raise StoreError(f"{address}: there is no such store")


def is_server(address: str) -> bool:
    """Return whether *address* names a PostgreSQL database."""
    return address.startswith(("postgres://", "postgresql://"))


def file_path(address: str) -> Path | None:
    """Return the file that *address* names; None for a server or a store in memory."""
    return None if is_server(address) or address == MEMORY else Path(address)
