"""A store in a PostgreSQL database: shared by processes on many machines. Needs the extra
`postgresql`."""

from collections.abc import Callable, Iterable

from refold.stores import sql
from refold.stores.postgresql_pool import PostgreSQLPool

NOW = "extract(epoch from clock_timestamp())"
"""Seconds since 1970 by the server's clock, which is the same for all."""
HOUR = sql.HOUR.format(now=NOW)
WHEN = """substring(json FROM '"when":([-+.eE0-9]+)')::double precision"""
"""When a row of the ledger is of: not by `::json`, which refuses some of our texts."""
SELECT_VALUE = "SELECT value FROM refold_values WHERE name = %s"
INSERT_VALUE = "INSERT INTO refold_values (name, value) VALUES (%s, %s) ON CONFLICT DO NOTHING"


def _translate(statement: str) -> str:
    """Return a statement in PostgreSQL's dialect: tables begin with `refold_`, values are `%s`."""
    for table in ("edits", "ledger", "claims"):
        statement = statement.replace(f" {table} ", f" refold_{table} ")
        statement = statement.replace(f" {table}.", f" refold_{table}.")
    return statement.format(now=NOW).replace("?", "%s")


def text_array(names: Iterable[str]) -> str:
    """Return the different *names* as a PostgreSQL array of keys: made here, it costs a fifth of
    what a list costs the driver."""
    distinct = set(names)
    if sql.is_alphanumeric("".join(distinct)):
        return '{"' + '","'.join(name or r"\"\"" for name in distinct) + '"}'
    keys = (sql.to_key(name).replace("\\", "\\\\").replace('"', '\\"') for name in distinct)
    return "{" + ",".join(f'"{key}"' for key in keys) + "}"


STATEMENTS = sql.Statements(
    load=f"SELECT json, id, used <= {HOUR} - {sql.NOTED_HOURS} "  # noqa: S608 - names of ours
    "FROM refold_edits WHERE tip = ANY(%s::text[]) ORDER BY seq",
    save="INSERT INTO refold_edits (id, tip, json) VALUES (%s, %s, %s) ON CONFLICT (id) "
    "DO UPDATE SET seq = excluded.seq, tip = excluded.tip, json = excluded.json, "
    "used = excluded.used",
    remove="DELETE FROM refold_edits WHERE id = ANY(%s::text[])",
    note_use=f"UPDATE refold_edits SET used = {HOUR} WHERE id = ANY(%s::text[])",  # noqa: S608 - names of ours
    note_unknown="",  # a row that an older version writes has the time of its writing
    page=_translate(sql.PAGE),
    find_unused=_translate(sql.FIND_UNUSED),
    remove_unused=f"DELETE FROM refold_edits WHERE used < {HOUR} - %s AND id = ANY(%s::text[])",  # noqa: S608 - names of ours
    page_of_ledger=_translate(sql.PAGE_OF_LEDGER),
    prune_ledger=_translate(sql.PRUNE_LEDGER.replace("{when}", WHEN)),
    record=_translate(sql.RECORD),
    ledger=_translate(sql.LEDGER),
    ledger_by_edit=_translate(sql.LEDGER_BY_EDIT),
    # `OFFSET 0` keeps the server to looking each tip up: with `ANY` it reads the whole table as
    # long as it has no statistics.
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

    What `save` acknowledged is as safe as the server makes it. *timeout* is how many seconds a call
    may wait for a connection, for the server, and for other writers; *connections* is how many
    there are at most. Usable from several threads, processes and forked children. Without *connect*
    the first call connects, so that a server that is down now can be up then. Raises `StoreError`,
    which never holds the password.
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
        """How often its tables were found to be others than before; missing ones are made anew."""
        return self._database.replacements

    def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the value of this *name* for all who share the database. Of several who make it at
        once, the first one's stays. Raises `StoreError`."""
        with self._database.connection("read") as connection:
            row = connection.execute(SELECT_VALUE, (name,)).fetchone()
            if row is None:
                connection.execute(INSERT_VALUE, (name, make()))
                row = connection.execute(SELECT_VALUE, (name,)).fetchone()
            return bytes(row[0]) if row else b""
