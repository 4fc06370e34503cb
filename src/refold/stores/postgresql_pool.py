"""A few connections to one PostgreSQL database for all threads of a process."""

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from selectors import EVENT_READ, DefaultSelector
from threading import Condition, RLock
from time import monotonic
from typing import Any, TypeVar

from refold.errors import StoreError, install_hint
from refold.stores.postgresql_schema import MIGRATIONS, migrate

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as missing:
    raise ImportError(
        f"a PostgreSQL store needs psycopg: {install_hint('postgresql')}"
    ) from missing

T = TypeVar("T")
_log = logging.getLogger("refold")
Row = tuple[Any, ...]
BUMP = "UPDATE refold_version SET version = version + 1"
"""Begins each write of edits. Its lock makes writers wait for each other, so that who reads a version has
all edits up to it, and edits are ordered as they were committed."""
BEGIN = (
    "INSERT INTO refold_version SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint "
    "WHERE NOT EXISTS (SELECT FROM refold_version)"
)
"""A version where the table was emptied: beyond any that was there, so that nobody takes it for one that they know."""
VERSION = (
    "SELECT (SELECT version FROM refold_version LIMIT 1), "
    "'refold_version'::regclass::oid::bigint, pg_relation_filenode(to_regclass('refold_edits'))::bigint"
)
"""With which tables they are: TRUNCATE gives a table another file."""


class Connection(psycopg.Connection[Row]):
    """A connection that waits for its server no longer than `patience` seconds at a time.

    The server's own `statement_timeout` says nothing when the server, or the way to it, is dead.
    """

    patience = 30.0

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, *_: Any, **__: Any) -> T:
        """As psycopg's, to an end."""
        return super().wait(_bounded(gen, monotonic() + self.patience), interval)


def _bounded(gen: Generator[Any, Any, T], deadline: float) -> Generator[Any, Any, T]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and monotonic() > deadline:
                raise psycopg.OperationalError("the server does not answer")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class PostgreSQLPool:
    """At most *most* connections, made when they are needed and kept. *timeout* is how many seconds to wait
    for one, for a server to let us in, and for a statement. A server that went away is noticed before
    a connection is used again. Raises `StoreError`, which never holds a password."""

    def __init__(
        self,
        url: str,
        timeout: float,
        most: int,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
        part: str = "store",
    ) -> None:
        self._said = _parsed(url)
        self.name = _name(self._said)
        self._timeout, self._most, self._migrations, self._part = timeout, most, migrations, part
        self._free = Condition(RLock())
        self._idle = list[Connection]()
        self._busy, self._closed, self._ready, self._process = 0, False, False, os.getpid()
        self._tables: tuple[int | None, ...] | None = None
        self.replacements = 0
        """How often the tables were found to be others than before: dropped, emptied by TRUNCATE, or of another database (C12)."""

    @contextmanager
    def connection(self, doing: str) -> Iterator[Connection]:
        """A connection for this thread alone; what goes wrong becomes a `StoreError`."""
        try:
            with self._lent() as connection:
                yield connection
        except psycopg.Error as error:
            raise StoreError(f"{self.name}: cannot {doing}: {self._reason(error)}") from None
        except StoreError as error:
            raise StoreError(f"{self.name}: {error}") from None

    @contextmanager
    def transaction(self, *, edits: bool = True) -> Iterator[Connection]:
        """A connection in a transaction: kept whole at the end, or not at all. The version changes with *edits*."""
        with self.connection("write") as connection, connection.transaction():
            if edits and not connection.execute(BUMP).rowcount:
                connection.execute(BEGIN)
            yield connection

    def version(self) -> int:
        """How often edits were written."""
        with self.connection("read") as connection:
            version, *tables = connection.execute(VERSION).fetchone() or (None,)
            self._notice(tuple(tables))
            return int(version or 0)

    def _notice(self, tables: tuple[int | None, ...]) -> None:
        before, self._tables = self._tables, tables
        if before is not None and before != tables:
            self.replacements += 1
            _log.warning(
                "the tables of %s were dropped, emptied or replaced; what is known is written again",
                self.name,
            )

    def close(self) -> None:
        """Let go of the database for good."""
        with self._free:
            self._closed = True
            self._drop_idle()

    def before_fork(self) -> None:
        """Before a fork: parent and child must not speak over one connection."""
        self._free.acquire()
        self._drop_idle()

    def after_fork(self) -> None:
        """After a fork. What other threads were using stays with the parent, who has those threads."""
        if self._process != os.getpid():
            self._process, self._busy = os.getpid(), 0
        self._free.release()

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        process, connection = os.getpid(), self._take()
        try:
            yield connection
        except psycopg.Error as error:
            connection.close()
            if isinstance(
                error, psycopg.errors.UndefinedTable
            ):  # they were dropped: the next connection makes them
                with self._free:
                    self._ready = False
                    self._drop_idle()
            raise
        finally:
            if process == os.getpid():
                self._give(connection)

    def _take(self) -> Connection:
        with self._free:
            if not self._free.wait_for(
                lambda: self._busy < self._most or self._closed, self._timeout
            ):
                raise StoreError(
                    f"all {self._most} connections were in use for {self._timeout:g} seconds"
                )
            if self._closed:
                raise StoreError("the store is closed")
            self._busy += 1
            while self._idle:
                if _is_alive(connection := self._idle.pop()):
                    return connection
                connection.close()
        try:
            return self._connect()
        except BaseException:
            with self._free:
                self._busy -= 1
                self._free.notify()
            raise

    def _give(self, connection: Connection) -> None:
        with self._free:
            self._busy -= 1
            if self._closed or connection.closed:
                connection.close()
            else:
                self._idle.append(connection)
            self._free.notify()

    def _connect(self) -> Connection:
        milliseconds = round(self._timeout * 1000)
        options = (
            f"{self._said.get('options', '')} -c statement_timeout={milliseconds} "
            f"-c idle_in_transaction_session_timeout={milliseconds}"
        )
        said = {
            "application_name": "refold",
            "connect_timeout": max(2, round(self._timeout)),
            **self._said,
        }
        connection = Connection.connect(
            make_conninfo(**{**said, "options": options.strip()}), autocommit=True
        )
        connection.patience, connection.prepare_threshold = self._timeout + 1.0, None
        try:
            if not self._ready:
                migrate(connection, self._migrations, self._part)
                connection.patience, self._ready = self._timeout + 1.0, True
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _reason(self, error: psycopg.Error) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        password = self._said.get("password")
        return text.replace(str(password), "***") if password else text


def _is_alive(connection: Connection) -> bool:
    """Has the server nothing to say on an idle connection? When it ends or restarts, it says so."""
    if connection.closed:
        return False
    with DefaultSelector() as selector:
        selector.register(connection.fileno(), EVENT_READ)
        return not selector.select(0)


def _parsed(url: str) -> dict[str, Any]:
    """The parts of an address. What libpq says of one that it cannot read quotes it, so that is not passed on;
    and of a password that is not encoded it takes pieces for port, host or database."""
    try:
        said = dict(conninfo_to_dict(url))
    except psycopg.Error:
        said = {"port": "unreadable"}
    host, port, database = (str(said.get(part) or "") for part in ("host", "port", "dbname"))
    if port.replace(",", "").strip("0123456789") or "@" in host[1:] or set("@/") & set(database):
        raise StoreError(
            "the address of the PostgreSQL database cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with %XX for characters that mean something in an address"
        )
    return said


def _name(said: dict[str, Any]) -> str:
    """The address without its secrets."""
    user = f"{said['user']}@" if said.get("user") else ""
    port = f":{said['port']}" if said.get("port") else ""
    return f"postgresql://{user}{said.get('host', '')}{port}/{said.get('dbname', '')}"
