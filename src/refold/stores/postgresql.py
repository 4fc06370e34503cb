"""A store in a PostgreSQL database: shared by processes on many machines. Needs the extra `postgresql`."""

import weakref
from collections.abc import Callable, Iterable

from refold.stores import sql as tables
from refold.stores.postgresql_pool import PostgreSQLPool
from refold.stores.sqlite_connection import close_before_forks

NOW = "extract(epoch from clock_timestamp())"
"""Seconds since 1970 by the server's clock, which is the same for all."""


def _translated(statement: str) -> str:
    """A statement in PostgreSQL's words: tables begin with `refold_`, values are `%s`."""
    for table in ("edits", "ledger", "claims"):
        statement = statement.replace(f" {table} ", f" refold_{table} ").replace(
            f" {table}.", f" refold_{table}."
        )
    return statement.format(now=NOW).replace("?", "%s")


def text_array(names: Iterable[str]) -> str:
    """The different ones of *names* as an array in PostgreSQL's words: made here, it costs a fifth of what a list
    costs the driver."""
    asked = set(names)
    if tables.is_alphanumeric("".join(asked)):
        return '{"' + '","'.join(name or r"\"\"" for name in asked) + '"}'
    keys = (tables.to_key(name).replace("\\", "\\\\").replace('"', '\\"') for name in asked)
    return "{" + ",".join(f'"{name}"' for name in keys) + "}"


STATEMENTS = tables.Statements(
    load="SELECT json FROM refold_edits WHERE tip = ANY(%s::text[]) ORDER BY seq",
    save="INSERT INTO refold_edits (id, tip, json) VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE "
    "SET seq = excluded.seq, tip = excluded.tip, json = excluded.json",
    remove="DELETE FROM refold_edits WHERE id = ANY(%s::text[])",
    record=_translated(tables.RECORD),
    ledger=_translated(tables.LEDGER),
    ledger_by_edit=_translated(tables.LEDGER_BY_EDIT),
    # `OFFSET 0` keeps the server to looking each tip up: with `ANY` it reads the table where it has no statistics yet.
    ledger_by_tip="SELECT json FROM (SELECT found.seq, found.json FROM unnest(%s::text[]) AS asked (tip) CROSS JOIN "
    "LATERAL (SELECT seq, json FROM refold_ledger WHERE refold_ledger.tip = asked.tip OFFSET 0) AS found "
    "UNION ALL SELECT seq, json FROM refold_ledger WHERE tip IS NULL) AS rows ORDER BY seq",
    claim=_translated(tables.CLAIM),
    release=_translated(tables.RELEASE),
    keys=text_array,
)


class PostgreSQLStore(tables.SQLStore):
    """Keeps edits and ledger in the PostgreSQL database at *url*: `postgresql://user@host:5432/database`, or any
    other form that libpq knows, which also reads `PGPASSWORD`, `PGSERVICE` and `~/.pgpass`.

    What `save` acknowledged is as safe as the server makes it. *timeout* is how many seconds a call may wait
    for a connection, for the server, and for other writers; *connections* is how many there are at most.
    Usable from several threads, processes and forked children. Without *connect* the first call connects, so that a
    server that is down now can be up then. Raises `StoreError`, which never holds the password.
    """

    _link: PostgreSQLPool
    _say = STATEMENTS

    def __init__(
        self, url: str, *, timeout: float = 10.0, connections: int = 4, connect: bool = True
    ) -> None:
        self._link = PostgreSQLPool(url, timeout, connections)
        self.name = self._link.name
        if connect:
            self._link.version()
        close_before_forks(self._link)
        weakref.finalize(self, self._link.close)

    @property
    def replacements(self) -> int:
        """How often its tables were found to be others than before: then they are made anew where there are none."""
        return self._link.replacements

    def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        """What is kept by this *name* for all who share the database: of several who make it at once, the first
        has made it. Raises `StoreError`."""
        with self._link.connection("read") as connection:
            found = connection.execute(KEPT, (name,)).fetchone()
            if found is None:
                connection.execute(KEEP, (name, make()))
                found = connection.execute(KEPT, (name,)).fetchone()
            return bytes(found[0]) if found else b""


KEPT = "SELECT value FROM refold_kept WHERE name = %s"
KEEP = "INSERT INTO refold_kept (name, value) VALUES (%s, %s) ON CONFLICT DO NOTHING"
