"""The salt file beside a gateway's store: whichever process comes first, there is one, on file
systems with and without hard links."""

import asyncio
import logging
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EOPNOTSUPP, EPERM
from pathlib import Path
from threading import Barrier, Timer

import pytest

from refold.gateway import Config, Incoming, Settings, Upstream
from refold.gateway.app import Gateway
from refold.gateway.serve import create_gateway, read_or_create_salt, restore_salt, run
from refold.stores import MemoryStore
from refold.tokens.model_table import Window
from tests.support.agent_requests import chat_request


def without_links(error: int) -> Callable[[Path, Path], None]:
    """Simulate a file system without hard links: FAT fails with EPERM, others with EOPNOTSUPP."""

    def link(_: Path, __: Path) -> None:
        raise OSError(error, os.strerror(error))

    return link


LINKS = [os.link, without_links(EPERM), without_links(EOPNOTSUPP)]


@pytest.mark.parametrize("link", LINKS, ids=["links", "EPERM", "EOPNOTSUPP"])
def test_concurrent_callers_get_the_same_salt(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    begin = Barrier(8)

    def come(path: Path) -> bytes:
        begin.wait(300)
        return read_or_create_salt(path, link)

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
    assert read_or_create_salt(path, wait_seconds=300) == b"theirs"


def test_a_salt_that_stays_empty_is_reported(tmp_path: Path) -> None:
    """Its writer has died. Without a salt no credential is hashed."""
    path = tmp_path / "salt"
    path.touch()
    with pytest.raises(OSError, match=r"salt is empty.*delete it"):
        read_or_create_salt(path, wait_seconds=0.05)


def test_an_unusable_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_or_create_salt(tmp_path / "gone" / "salt")


@pytest.mark.usefixtures("loggers")
def test_startup_errors_name_the_store_directory_or_the_listening_address(tmp_path: Path) -> None:
    """They name neither the temporary file beside the store nor a Python function."""
    upstreams = (Upstream(name="up", url="http://127.0.0.1:9"),)
    store = tmp_path / "gone" / "refold.db"
    with pytest.raises(FileNotFoundError, match=f"there is no directory {store.parent}: '{store}'"):
        run(Config(upstreams=upstreams, store=str(store), port=0))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=r"cannot listen there \(host, port\): [^()]+'") as caught:
            run(Config(upstreams=upstreams, store=":memory:", port=port))
    assert caught.value.filename == f"127.0.0.1:{port}"


async def compact_long(served: Gateway) -> None:
    """Decide about a conversation that is long enough to compact."""
    outgoing = await served.pipeline.prepare(
        Incoming("openai_chat", "up", "/v1/chat/completions", (), chat_request(60), "c")
    )
    assert outgoing.outcome == "edited"


@pytest.mark.parametrize("saves", [True, False])
def test_c12_a_gateway_restores_a_deleted_salt_file(tmp_path: Path, *, saves: bool) -> None:
    """It is restored with the next saved edits and at shutdown. Previously a restart made a new
    salt and found no edit."""
    file = tmp_path / "a.db.salt"

    async def story() -> bytes:
        settings = Settings(windows={"m": Window(8_000)}, economy=False, decide_timeout_seconds=60)
        served = create_gateway(
            Config(
                upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),),
                store=str(tmp_path / "a.db"),
                settings=settings,
            )
        )
        salt = file.read_bytes()
        file.unlink()
        if saves:
            await compact_long(served)
            assert file.read_bytes() == salt
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        await served.pipeline.aclose()
        return salt

    assert asyncio.run(story()) == file.read_bytes()


def test_c12_a_different_salt_file_is_kept_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(store=str(tmp_path / "a.db"), salt=b"ours", is_salt_stored=True)
    file = tmp_path / "a.db.salt"
    file.write_bytes(b"theirs")
    with caplog.at_level(logging.WARNING, "refold"):
        restore_salt(config, MemoryStore())
        assert file.read_bytes() == b"theirs"
        file.write_bytes(b"")
        restore_salt(config, MemoryStore())
    assert [record.event.partition(":")[0] for record in caplog.records] == [
        "another salt is kept with the store",
        "the salt cannot be kept",
    ]


def test_c12_a_salt_of_the_settings_is_never_written(tmp_path: Path) -> None:
    async def story() -> None:
        config = Config(
            upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),),
            store=str(tmp_path / "a.db"),
            salt=b"own",
        )
        await create_gateway(config).pipeline.aclose()

    asyncio.run(story())
    assert [path.name for path in tmp_path.glob("*salt*")] == []


FULL = """
import pathlib, resource, signal, sys
from refold.gateway.serve import read_or_create_salt
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    read_or_create_salt(pathlib.Path(sys.argv[1]))
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit for the size of files")
def test_a_full_disk_error_names_the_salt_file_and_leaves_no_file(tmp_path: Path) -> None:
    """The error used to be "No space left on device", without a path."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "a.salt")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert str(tmp_path / "a.salt") in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []
