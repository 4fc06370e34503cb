"""A store in a PostgreSQL database, shared by processes on many machines. A small pool of
connections serves all threads of a process. Needs the extra `postgresql`."""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from selectors import EVENT_READ, DefaultSelector
from threading import Condition, RLock
from time import monotonic
from typing import Any, TypeVar

from refold.errors import StoreError, install_hint
from refold.stores import sql
from refold.stores.schema import POSTGRESQL_MIGRATIONS, prepare_postgresql

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as missing:
    raise ImportError(
        f"a PostgreSQL store needs psycopg: {install_hint('postgresql')}"
    ) from missing


# --- connections ----------------------------------------------------------------------------------
# Why not `psycopg_pool`: docs/decisions/0021-postgresql-pool.md.

T = TypeVar("T")
_log = logging.getLogger("refold")
Row = tuple[Any, ...]
INCREMENT_VERSION = "UPDATE refold_version SET version = version + 1"
"""First statement of each write of edits. Its lock makes writers wait for each other, so that a
reader of a version sees all edits up to it, and edits are ordered by commit."""
INSERT_VERSION = (
    "INSERT INTO refold_version SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint "
    "WHERE NOT EXISTS (SELECT FROM refold_version)"
)
"""Version for an emptied table: above any earlier one, so that it is not mistaken for one."""
SELECT_VERSION = (
    "SELECT (SELECT version FROM refold_version LIMIT 1), 'refold_version'::regclass::oid::bigint, "
    "pg_relation_filenode(to_regclass('refold_edits'))::bigint"
)
"""The version, and the identity of the tables: TRUNCATE gives a table another file."""


class Connection(psycopg.Connection[Row]):
    """A connection that waits at most `reply_timeout` seconds for each answer of its server, also
    within a batch of statements.

    The server's `statement_timeout` does not help if the server or the network is down. libpq's
    `tcp_user_timeout` does not help if the server accepts data but does not answer.
    """

    reply_timeout = 30.0

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, *_: Any, **__: Any) -> T:
        """Wait as psycopg does, but with a timeout."""
        return super().wait(_give_up_after(self.reply_timeout, gen), interval)


def _give_up_after(seconds: float, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run *gen*; raise OperationalError once nothing was received or sent for this number of
    seconds."""
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
    """A pool of at most *size* connections, opened on demand.

    *timeout* is the maximum seconds to wait for a free connection, for the server to connect, and
    for a statement. *part* names the purpose of the tables that *migrations* create. A lost server
    is noticed before a connection is used again. Raises `StoreError`, which contains no password.
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
        """How often the tables were found dropped, emptied by TRUNCATE, or of another database."""

    @contextmanager
    def connection(self, doing: str) -> Iterator[Connection]:
        """Lend a connection to this thread only. Errors become `StoreError`."""
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
        """Lend a connection in a transaction, committed in full at the end or not at all. The
        version changes only if *edits* are written."""
        with self.connection("write") as connection, connection.transaction():
            if edits and not connection.execute(INCREMENT_VERSION).rowcount:
                connection.execute(INSERT_VERSION)
            yield connection

    def version(self) -> int:
        """Return a number that grows with each write of edits, and note whether the tables were
        replaced."""
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
        """Disconnect permanently."""
        with self._returned:
            self._is_closed = True
            self._close_idle()

    def before_fork(self) -> None:
        """Close idle connections, because parent and child must not share one, and lend none."""
        self._returned.acquire()
        self._close_idle()

    def after_fork(self) -> None:
        """Allow use again. Connections in use by other threads stay with the parent, which has
        those threads."""
        if self._process != os.getpid():
            self._process, self._in_use = os.getpid(), 0
        self._returned.release()

    @contextmanager
    def _borrow(self) -> Iterator[Connection]:
        process, connection = os.getpid(), self._take()
        try:
            yield connection
        except psycopg.errors.UndefinedTable:  # dropped; the next connection creates them
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
        # Under stricter levels, a writer that has waited for another one would fail.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
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
        text = error.diag.message_primary or str(error)  # details may quote the written data
        text = " ".join(text.split()) or type(error).__name__
        password = self._address.get("password")
        return text.replace(str(password), "***") if password else text


def _is_alive(connection: Connection) -> bool:
    """Return whether an idle connection is open and has no data to read, which a server sends when
    it stops or restarts."""
    if connection.closed:
        return False
    with DefaultSelector() as selector:
        selector.register(connection.fileno(), EVENT_READ)
        return not selector.select(0)


def _parse_address(url: str) -> dict[str, Any]:
    """Return the parts of an address. Raises `StoreError` without libpq's words, which quote the
    address. In a password that is not percent-encoded libpq finds a port, host or database."""
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
    """Return the address as a URL of user, host, port and database, without the password."""
    user = f"{address['user']}@" if address.get("user") else ""
    port = f":{address['port']}" if address.get("port") else ""
    return f"postgresql://{user}{address.get('host', '')}{port}/{address.get('dbname', '')}"


# --- the store ------------------------------------------------------------------------------------


NOW = "extract(epoch from clock_timestamp())"
"""Seconds since 1970 by the server's clock, which all clients share."""
HOUR = sql.HOUR.format(now=NOW)
WHEN = """substring(json FROM '"when":([-+.eE0-9]+)')::double precision"""
"""Time of a ledger row. Not read by `::json`, which refuses some of our texts."""
SELECT_VALUE = "SELECT value FROM refold_values WHERE name = %s"
INSERT_VALUE = "INSERT INTO refold_values (name, value) VALUES (%s, %s) ON CONFLICT DO NOTHING"


def _translate(statement: str) -> str:
    """Return a statement in PostgreSQL's dialect: tables prefixed with `refold_`, values as
    `%s`."""
    for table in ("edits", "ledger", "claims"):
        statement = statement.replace(f" {table} ", f" refold_{table} ")
        statement = statement.replace(f" {table}.", f" refold_{table}.")
    return statement.format(now=NOW).replace("?", "%s")


def text_array(names: Iterable[str]) -> str:
    """Return the distinct *names* as a PostgreSQL array of keys. Building it here takes a fifth of
    the driver's time for a list."""
    distinct = set(names)
    if sql.is_alphanumeric("".join(distinct)):
        return '{"' + '","'.join(name or r"\"\"" for name in distinct) + '"}'
    keys = (sql.to_key(name).replace("\\", "\\\\").replace('"', '\\"') for name in distinct)
    return "{" + ",".join(f'"{key}"' for key in keys) + "}"


STATEMENTS = sql.Statements(
    load=f"SELECT json, id, used <= {HOUR} - {sql.USE_RECORD_HOURS} "  # noqa: S608 - names of ours
    "FROM refold_edits WHERE tip = ANY(%s::text[]) ORDER BY seq",
    save="INSERT INTO refold_edits (id, tip, json) VALUES (%s, %s, %s) ON CONFLICT (id) "
    "DO UPDATE SET seq = excluded.seq, tip = excluded.tip, json = excluded.json, "
    "used = excluded.used",
    remove="DELETE FROM refold_edits WHERE id = ANY(%s::text[])",
    note_use=f"UPDATE refold_edits SET used = {HOUR} WHERE id = ANY(%s::text[])",  # noqa: S608 - names of ours
    note_unknown="",  # rows written by an older version have the time of writing as default
    page=_translate(sql.PAGE),
    find_unused=_translate(sql.FIND_UNUSED),
    remove_unused=f"DELETE FROM refold_edits WHERE used < {HOUR} - %s AND id = ANY(%s::text[])",  # noqa: S608 - names of ours
    page_of_ledger=_translate(sql.PAGE_OF_LEDGER),
    prune_ledger=_translate(sql.PRUNE_LEDGER.replace("{when}", WHEN)),
    record=_translate(sql.RECORD),
    ledger=_translate(sql.LEDGER),
    ledger_by_edit=_translate(sql.LEDGER_BY_EDIT),
    # `OFFSET 0` makes the server look up each tip in the index: with `ANY` it scans the whole table
    # as long as it has no statistics.
    ledger_by_tip="SELECT json FROM (SELECT matches.seq, matches.json "
    "FROM unnest(%s::text[]) AS asked (tip) CROSS JOIN LATERAL (SELECT seq, json "
    "FROM refold_ledger WHERE refold_ledger.tip = asked.tip OFFSET 0) AS matches "
    "UNION ALL SELECT seq, json FROM refold_ledger WHERE tip IS NULL) AS rows ORDER BY seq",
    claim=_translate(sql.CLAIM),
    release=_translate(sql.RELEASE),
    keys=text_array,
)


class PostgreSQLStore(sql.SQLStore):
    """Keeps edits and ledger in the PostgreSQL database at *url*:
    `postgresql://user@host:5432/database`, or any other form that libpq knows, which also reads
    `PGPASSWORD`, `PGSERVICE` and `~/.pgpass`.

    Saved edits are as durable as the server makes them. *timeout* is the maximum seconds that a
    call waits for a connection, for the server, and for other writers; *connections* is the maximum
    number of connections. Usable from several threads, processes and forked children. Without
    *connect* the first call connects, so that the server may be down now. Raises `StoreError`,
    which never contains the password.
    """

    _database: PostgreSQLPool
    _statements = STATEMENTS

    def __init__(
        self, url: str, *, timeout: float = 10.0, connections: int = 4, connect: bool = True
    ) -> None:
        super().__init__(PostgreSQLPool(url, timeout, connections))
        self.name = self._database.name
        if connect:
            self._database.version()

    @property
    def replacements(self) -> int:
        """How often its tables were found dropped, emptied or replaced. Missing ones are
        created."""
        return self._database.replacements

    def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the value of this *name*, shared by all users of the database; if there is none,
        save that of *make*. If several do so at once, the first one's is kept and returned to all.
        Raises `StoreError`."""
        with self._database.connection("read") as connection:
            row = connection.execute(SELECT_VALUE, (name,)).fetchone()
            if row is None:
                connection.execute(INSERT_VALUE, (name, make()))
                row = connection.execute(SELECT_VALUE, (name,)).fetchone()
            return bytes(row[0]) if row else b""
