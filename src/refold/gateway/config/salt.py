"""The salt of a gateway whose store is a file: in a file beside it, made once, however many processes start at once."""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

WAIT_SECONDS = 5.0
"""Seconds that another process may take to write the salt that it is making."""


def random_salt() -> bytes:
    """32 random bytes."""
    return secrets.token_bytes(32)


def read_or_create_salt(
    path: Path,
    link: Callable[[Path, Path], None] = os.link,
    wait_seconds: float = WAIT_SECONDS,
    make: Callable[[], bytes] = random_salt,
) -> bytes:
    """The salt at *path*, made where there is none, for only the owner to read. *link* makes a hard link. Raises OSError,
    also where the file stays empty for *wait_seconds* seconds."""
    if not path.exists():
        _make(path, link, make())
    return _read(path, wait_seconds)


def _make(path: Path, link: Callable[[Path, Path], None], salt: bytes) -> None:
    """*salt* at *path*, unless another process was faster. It appears with its content, where there are hard links."""
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
    """*salt* in a new file; nothing is done where there is one."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        return
    try:
        with file:
            file.write(salt)
    except OSError as error:
        path.unlink()
        raise OSError(
            error.errno, error.strerror, str(path)
        ) from error  # a full disk does not say where


def _read(path: Path, wait_seconds: float) -> bytes:
    """What the file holds, once it holds anything: another process may just be writing it."""
    until = time.monotonic() + wait_seconds
    while not (salt := path.read_bytes()):
        if time.monotonic() > until:
            raise OSError(
                f"{path} is empty, so that no salt can be read from it: delete it, and a new one is made"
            )
        time.sleep(0.01)
    return salt
