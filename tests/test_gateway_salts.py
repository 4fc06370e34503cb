"""The salt beside a gateway's store: one, whoever comes first, on file systems with hard links and without."""

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EOPNOTSUPP, EPERM
from pathlib import Path
from threading import Barrier, Timer

import pytest

from refold.gateway.salts import salt_of


def without_links(error: int) -> Callable[[Path, Path], None]:
    """How a file system answers that has no hard links: FAT with EPERM, others with EOPNOTSUPP."""

    def link(_: Path, __: Path) -> None:
        raise OSError(error, os.strerror(error))

    return link


LINKS = [os.link, without_links(EPERM), without_links(EOPNOTSUPP)]


@pytest.mark.parametrize("link", LINKS, ids=["links", "EPERM", "EOPNOTSUPP"])
def test_all_who_come_at_once_get_one_salt(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    begin = Barrier(8)

    def come(path: Path) -> bytes:
        begin.wait(300)
        return salt_of(path, link)

    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            path = tmp_path / f"{turn}.salt"
            salts = set(pool.map(come, [path] * 8))
            assert len(salts) == 1 and len(salts.pop()) == 32
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(list(tmp_path.iterdir())) == 20, "no draft stays"


def test_a_salt_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "salt"
    path.touch()
    Timer(0.1, path.write_bytes, [b"theirs"]).start()
    assert salt_of(path, patience=300) == b"theirs"


def test_a_salt_that_stays_empty_is_told(tmp_path: Path) -> None:
    """Its writer has died; no credential is hashed without a salt."""
    path = tmp_path / "salt"
    path.touch()
    with pytest.raises(OSError, match=r"salt is empty.*delete it"):
        salt_of(path, patience=0.05)


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        salt_of(tmp_path / "gone" / "salt")
