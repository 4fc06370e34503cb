"""A few connections to one PostgreSQL database for all threads of a process.

Why not `psycopg_pool`: docs/decisions/0021-postgresql-pool.md.
"""

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from selectors import EVENT_READ, DefaultSelector
from threading import Condition, RLock
from time import monotonic
from typing import Any, TypeVar

from refold.errors import StoreError, install_hint
from refold.stores.schema import POSTGRESQL_MIGRATIONS, prepare_postgresql

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
INCREMENT_VERSION = "UPDATE refold_version SET version = version + 1"
"""Begins each write of edits. Its lock makes writers wait for each other, so that who reads a
version has all edits up to it, and edits are ordered as they were committed."""
INSERT_VERSION = (
    "INSERT INTO refold_version SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint "
    "WHERE NOT EXISTS (SELECT FROM refold_version)"
)
"""A version for a table that was emptied: beyond any before, so that nobody takes it for an old
one."""
SELECT_VERSION = (
    "SELECT (SELECT version FROM refold_version LIMIT 1), 'refold_version'::regclass::oid::bigint, "
    "pg_relation_filenode(to_regclass('refold_edits'))::bigint"
)
"""With which tables they are: TRUNCATE gives a table another file."""


class Connection(psycopg.Connection[Row]):
    """A connection that waits for its server no longer than `reply_timeout` seconds at a time: for
    some thousand statements that it is sent together, from one answer to the next.

    The server's own `statement_timeout` does not help if the server, or the way to it, is dead, and
    libpq's `tcp_user_timeout` does not if a server takes what is sent and does not answer.
    """

    reply_timeout = 30.0

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, *_: Any, **__: Any) -> T:
        """Wait as psycopg does, but not without end."""
        return super().wait(_give_up_after(self.reply_timeout, gen), interval)


def _give_up_after(seconds: float, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Go on with *gen* until nothing has come, and nothing could be sent, for so long."""
    try:
        wanted, latest = next(gen), monotonic()
        while True:
            ready = yield wanted
            now = monotonic()
            if ready:
                latest = now
            elif now > latest + seconds:
                raise psycopg.OperationalError("the server does not answer")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class PostgreSQLPool:
    """At most *size* connections, made when they are needed and kept.

    *timeout* is how many seconds to wait for one, for a server to let us in, and for a statement.
    *part* names the tables that *migrations* make. A server that went away is noticed before a
    connection is used again. Raises `StoreError`, which never holds a password.
    """

    placeholder = "%s"

    def __init__(
        self,
        url: str,
        timeout: float,
        size: int,
        migrations: Sequence[Sequence[str]] = POSTGRESQL_MIGRATIONS,
        part: str = "store",
    ) -> None:
        self._address = _parse_address(url)
        self.name = _public_name(self._address)
        self._timeout, self._size, self._migrations, self._part = timeout, size, migrations, part
        self._returned = Condition(RLock())
        self._idle = list[Connection]()
        self._in_use, self._process = 0, os.getpid()
        self._is_closed = self._has_tables = False
        self._tables: tuple[int | None, ...] | None = None
        self.replacements = 0
        """How often the tables were found to be others than before: dropped, emptied by TRUNCATE,
        or of another database."""

    @contextmanager
    def connection(self, doing: str) -> Iterator[Connection]:
        """Lend a connection to this thread alone; what goes wrong becomes a `StoreError`."""
        try:
            with self._borrow() as connection:
                yield connection
        except psycopg.Error as error:
            reason = self._reason(error)
            raise StoreError(f"{self.name}: cannot {doing}: {reason}") from None
        except StoreError as error:
            raise StoreError(f"{self.name}: {error}") from None

    @contextmanager
    def transaction(self, *, edits: bool = True) -> Iterator[Connection]:
        """Lend a connection in a transaction, kept whole at the end or not at all. The version
        changes only if *edits* are written."""
        with self.connection("write") as connection, connection.transaction():
            if edits and not connection.execute(INCREMENT_VERSION).rowcount:
                connection.execute(INSERT_VERSION)
            yield connection

    def version(self) -> int:
        """Return a number that grows with each write of edits."""
        with self.connection("read") as connection:
            version, *tables = connection.execute(SELECT_VERSION).fetchone() or (None,)
            self._note_tables(tuple(tables))
            return int(version or 0)

    def _note_tables(self, tables: tuple[int | None, ...]) -> None:
        before, self._tables = self._tables, tables
        if before is not None and before != tables:
            self.replacements += 1
            _log.warning(
                "the tables of %s were dropped, emptied or replaced; "
                "what is known is written again",
                self.name,
            )

    def close(self) -> None:
        """Disconnect for good."""
        with self._returned:
            self._is_closed = True
            self._close_idle()

    def before_fork(self) -> None:
        """Close what is idle: parent and child must not speak over one connection."""
        self._returned.acquire()
        self._close_idle()

    def after_fork(self) -> None:
        """Go on. Connections that other threads use stay with the parent, which has those
        threads."""
        if self._process != os.getpid():
            self._process, self._in_use = os.getpid(), 0
        self._returned.release()

    @contextmanager
    def _borrow(self) -> Iterator[Connection]:
        process, connection = os.getpid(), self._take()
        try:
            yield connection
        except psycopg.errors.UndefinedTable:  # they were dropped: the next connection makes them
            connection.close()
            with self._returned:
                self._has_tables = False
                self._close_idle()
            raise
        except psycopg.Error:
            connection.close()
            raise
        finally:
            if process == os.getpid():
                self._give_back(connection)

    def _take(self) -> Connection:
        with self._returned:
            if not self._returned.wait_for(self._may_take, self._timeout):
                raise StoreError(
                    f"all {self._size} connections were in use for {self._timeout:g} seconds"
                )
            if self._is_closed:
                raise StoreError("the store is closed")
            self._in_use += 1
            while self._idle:
                if _is_alive(connection := self._idle.pop()):
                    return connection
                connection.close()
        try:
            return self._connect()
        except BaseException:
            self._give_back(None)
            raise

    def _may_take(self) -> bool:
        return self._in_use < self._size or self._is_closed

    def _give_back(self, connection: Connection | None) -> None:
        with self._returned:
            self._in_use -= 1
            if connection is not None and not connection.closed:
                if self._is_closed:
                    connection.close()
                else:
                    self._idle.append(connection)
            self._returned.notify()

    def _connect(self) -> Connection:
        limit = round(self._timeout * 1000)
        options = (
            f"{self._address.get('options', '')} -c statement_timeout={limit} "
            f"-c idle_in_transaction_session_timeout={limit}"
        )
        defaults = {"application_name": "refold", "connect_timeout": max(2, round(self._timeout))}
        address = make_conninfo(**{**defaults, **self._address, "options": options.strip()})
        connection = Connection.connect(address, autocommit=True)
        connection.reply_timeout, connection.prepare_threshold = self._timeout + 1.0, None
        try:
            if not self._has_tables:
                prepare_postgresql(connection, self._migrations, self._part)
                connection.reply_timeout, self._has_tables = self._timeout + 1.0, True
        except BaseException:
            connection.close()
            raise
        return connection

    def _close_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _reason(self, error: psycopg.Error) -> str:
        text = " ".join(str(error).split()) or type(error).__name__
        password = self._address.get("password")
        return text.replace(str(password), "***") if password else text


def _is_alive(connection: Connection) -> bool:
    """Does the server say nothing on an idle connection? When it ends or restarts, it says so."""
    if connection.closed:
        return False
    with DefaultSelector() as selector:
        selector.register(connection.fileno(), EVENT_READ)
        return not selector.select(0)


def _parse_address(url: str) -> dict[str, Any]:
    """Return the parts of an address. libpq's error about an unreadable one quotes it, so that is
    not passed on; of a password that is not encoded it takes pieces for port, host or database."""
    try:
        address = dict(conninfo_to_dict(url))
    except psycopg.Error:
        address = {"port": "unreadable"}
    host, port, database = (str(address.get(part) or "") for part in ("host", "port", "dbname"))
    if port.replace(",", "").strip("0123456789") or "@" in host[1:] or set("@/") & set(database):
        raise StoreError(
            "the address of the PostgreSQL database cannot be read: "
            "it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with %XX for characters that mean something in an address"
        )
    return address


def _public_name(address: dict[str, Any]) -> str:
    """Return the address without its secrets."""
    user = f"{address['user']}@" if address.get("user") else ""
    port = f":{address['port']}" if address.get("port") else ""
    return f"postgresql://{user}{address.get('host', '')}{port}/{address.get('dbname', '')}"
