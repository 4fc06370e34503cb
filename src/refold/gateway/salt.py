"""The salt of a gateway, made once however many processes start at once: in a file beside its
store, or in its database."""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from refold.errors import StoreError
from refold.gateway.config import SALT, Config
from refold.gateway.logs import log
from refold.stores import file_path, is_server, open_store
from refold.stores.store import Store

if TYPE_CHECKING:
    from refold.stores.postgresql import PostgreSQLStore

WAIT_SECONDS = 5.0
"""Seconds that another process may take to write the salt that it is making."""


def with_salt(config: Config) -> Config:
    """Return *config* with a salt: its own, else that of its store, which is made when it is first
    needed: in a file beside it, or in its database, which must answer then. Without a place for the
    store the salt is new each time, as the store is. Raises `StoreError`, OSError."""
    if config.salt:
        return config
    try:
        salt = _keep_salt(config.store, random_salt)
    except StoreError as error:
        raise StoreError(f"{error}; with {SALT} set the gateway can start without it") from error
    return replace(config, salt=salt or random_salt(), is_salt_stored=salt is not None)


def restore_salt(config: Config, store: Store) -> None:
    """Put the salt back where it was deleted with the store, or alone: nobody finds an edit again
    without it. Says in the log if that fails, and if another salt is there."""
    if not config.is_salt_stored:
        return
    stored: bytes | None = config.salt
    try:
        stored = _keep_salt(config.store, lambda: config.salt, 0.0, store)
    except (OSError, StoreError) as error:
        log("the salt cannot be kept", error=str(error))
    if stored != config.salt:
        log("another salt stands beside the store: what is saved now is not found after a restart")


def _keep_salt(
    address: str,
    make: Callable[[], bytes],
    wait_seconds: float = WAIT_SECONDS,
    store: Store | None = None,
) -> bytes | None:
    """Return the salt that is kept with the store at *address*, made if there is none; None if it
    has no place. *store* is that store, if it is open. Raises as `with_salt` does."""
    if is_server(address):
        database = cast("PostgreSQLStore", open_store(address) if store is None else store)
        with database if store is None else nullcontext():
            return database.get_or_create("salt", make)
    file = file_path(address)
    if file is None:
        return None
    path = file.with_name(f"{file.name}.salt")
    return read_or_create_salt(path, wait_seconds=wait_seconds, make=make)


def random_salt() -> bytes:
    """Return 32 random bytes."""
    return secrets.token_bytes(32)


def read_or_create_salt(
    path: Path,
    link: Callable[[Path, Path], None] = os.link,
    wait_seconds: float = WAIT_SECONDS,
    make: Callable[[], bytes] = random_salt,
) -> bytes:
    """Return the salt at *path*, made if there is none, for only the owner to read. *link* makes a
    hard link. Raises OSError, also if the file stays empty for *wait_seconds* seconds."""
    if not path.exists():
        _make(path, link, make())
    until = time.monotonic() + wait_seconds
    while not (salt := path.read_bytes()):  # another process may just be writing it
        if time.monotonic() > until:
            raise OSError(
                f"{path} is empty, so that no salt can be read from it: delete it, and a new one "
                "is made"
            )
        time.sleep(0.01)
    return salt


def _make(path: Path, link: Callable[[Path, Path], None], salt: bytes) -> None:
    """Write *salt* at *path*, unless another process was faster. It appears with its content, where
    there are hard links."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    _write(draft, salt)
    try:
        link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without them, as those of memory cards
        _write(path, salt)
    finally:
        draft.unlink()


def _write(path: Path, salt: bytes) -> None:
    """Write *salt* to a new file; do nothing if there is one."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        return
    try:
        with file:
            file.write(salt)
    except OSError as error:
        path.unlink()
        # A full disk does not say where.
        raise OSError(error.errno, error.strerror, str(path)) from error
