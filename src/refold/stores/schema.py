"""The tables of a store in SQLite and PostgreSQL, and their creation and migration."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from refold.errors import StoreError

APPLICATION_ID = 0x52464C44
"""`RFLD` in the file's header (`PRAGMA application_id`) marks a file of ours."""
MEMORIES_ID = 0x52464C4D
"""`RFLM`: a file of memories (`refold.memory`)."""
INDEX_ID = 0x52464C49
"""`RFLI`: a full-text index (`refold.retrieval`)."""
OURS = frozenset({APPLICATION_ID, MEMORIES_ID, INDEX_ID})

SQLITE_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        (
            "CREATE TABLE edits (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, "
            "tip TEXT NOT NULL, json TEXT NOT NULL)"
        ),
        "CREATE INDEX edits_by_tip ON edits (tip)",
    ),
    (
        "CREATE TABLE ledger (seq INTEGER PRIMARY KEY, edit TEXT, json TEXT NOT NULL)",
        "CREATE INDEX ledger_by_edit ON ledger (edit)",
    ),
    (
        (
            "CREATE TABLE claims (name TEXT PRIMARY KEY, owner TEXT NOT NULL, "
            "until REAL NOT NULL) WITHOUT ROWID"
        ),
    ),
    (
        "ALTER TABLE ledger ADD COLUMN tip TEXT",
        # In a row's JSON `"tip":` can only be the field: in texts, quotation marks are escaped.
        """UPDATE ledger SET tip = CASE WHEN instr(json, '"tip":') = 0 THEN '""'
            WHEN instr(json, '"tip":"') > 0 THEN
            substr(json, instr(json, '"tip":"') + 7,
            instr(substr(json, instr(json, '"tip":"') + 7), '"') - 1) END""",
        """UPDATE ledger SET tip = NULL
            WHERE tip <> '""' AND (tip = '' OR tip GLOB '*[^0-9A-Za-z]*')""",
        "CREATE INDEX ledger_by_tip ON ledger (tip)",
    ),
    ("ALTER TABLE edits ADD COLUMN used INTEGER",),
)
"""Step n migrates a file from version n to version n + 1 (`PRAGMA user_version`). Steps are only
ever added.

A row's tip is NULL if the key that a lookup would use is unknown: for tips with characters other
than letters and digits in rows written by schema 3, and for rows written by a process that opened
the file as schema 3. Every lookup reads these rows (`refold.stores.sql`).

`used` is the last use of an edit in hours since 1970; NULL in rows of an older version until they
are first loaded or pruned. No index contains it, so that recording it writes one row only."""


def prepare_sqlite(
    connection: sqlite3.Connection,
    timeout: float,
    migrations: Sequence[Sequence[str]] = SQLITE_MIGRATIONS,
    application_id: int = APPLICATION_ID,
) -> None:
    """Create the tables of *migrations* and our settings in the database of *connection*
    (autocommit, with a busy timeout of *timeout* seconds). Several processes may do so at once.

    Raises `StoreError`, `sqlite3.Error`.
    """
    deadline = time.monotonic() + timeout
    newest = len(migrations)
    _retry_while_locked(deadline, lambda: _inspect(connection, newest, application_id))
    # If two connections change the journal mode, SQLite ignores the busy timeout and raises "locked"
    # at once.
    _retry_while_locked(
        deadline, lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone()
    )
    if _pragma(connection, "user_version") < newest:
        _retry_while_locked(deadline, lambda: _migrate(connection, migrations, application_id))


def upgrade_copy(
    connection: sqlite3.Connection,
    timeout: float,
    migrations: Sequence[Sequence[str]],
    application_id: int,
) -> sqlite3.Connection:
    """Return *connection*, or if its database has an older version, close it and return a
    connection to an upgraded copy in memory. Nothing is written to the file. Raises `StoreError`,
    `sqlite3.Error`."""
    deadline, newest = time.monotonic() + timeout, len(migrations)
    _retry_while_locked(deadline, lambda: _inspect(connection, newest, application_id))
    if _pragma(connection, "user_version") == newest:
        return connection
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.backup(copy)
        _migrate(copy, migrations, application_id)
    except BaseException:
        copy.close()
        raise
    connection.close()
    return copy


def _retry_while_locked(deadline: float, act: Callable[[], object]) -> None:
    """Call *act*, again while the database is locked, until *deadline* (`time.monotonic`). Then
    raise its error."""
    while True:
        try:
            act()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.002)
        else:
            return


def _is_busy(error: sqlite3.Error) -> bool:
    """Return whether *error* is due only to another connection's current work."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def _inspect(connection: sqlite3.Connection, newest: int, application_id: int) -> None:
    """Raise as `_refuse_foreign`, but read in one transaction, because another process may be
    creating tables."""
    connection.execute("BEGIN")
    try:
        _refuse_foreign(connection, newest, application_id)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _refuse_foreign(connection: sqlite3.Connection, newest: int, application_id: int) -> None:
    """Raise `StoreError` for a database of another kind or a newer version. Nothing is written."""
    version = _pragma(connection, "user_version")
    actual_id = _pragma(connection, "application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if actual_id != application_id and (actual_id or version or tables):
        raise StoreError(
            "an SQLite database, but not one of Refold's" + " of this kind" * (actual_id in OURS)
        )
    _refuse_newer(version, newest)


def _refuse_newer(version: int, newest: int) -> None:
    """Raise `StoreError` for a newer schema."""
    if version > newest:
        raise StoreError(
            f"written with schema {version}; this version of Refold knows schemas up to {newest}"
        )


def _migrate(
    connection: sqlite3.Connection, migrations: Sequence[Sequence[str]], application_id: int
) -> None:
    """Run the missing steps in one transaction, under the write lock."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _refuse_foreign(connection, len(migrations), application_id)
        for step in migrations[_pragma(connection, "user_version") :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


# --- PostgreSQL ---------------------------------------------------------------------------------


POSTGRESQL_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE refold_edits (
            seq bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
            id text COLLATE "C" NOT NULL UNIQUE,
            tip text COLLATE "C" NOT NULL, json text NOT NULL)""",
        "CREATE INDEX refold_edits_by_tip ON refold_edits (tip)",
        """CREATE TABLE refold_ledger (
            seq bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
            edit text COLLATE "C", json text NOT NULL)""",
        "CREATE INDEX refold_ledger_by_edit ON refold_ledger (edit)",
        """CREATE TABLE refold_claims (
            name text COLLATE "C" PRIMARY KEY,
            owner text NOT NULL, until double precision NOT NULL)""",
        "CREATE TABLE refold_values (name text PRIMARY KEY, value bytea NOT NULL)",
        "CREATE TABLE refold_version (version bigint NOT NULL)",
        "INSERT INTO refold_version VALUES (1)",
    ),
    (
        'ALTER TABLE refold_ledger ADD COLUMN tip text COLLATE "C"',
        # Not by UPDATE, which leaves a dead row without a tip for each row, and every lookup has to
        # skip them until a vacuum.
        """ALTER TABLE refold_ledger ALTER COLUMN tip TYPE text COLLATE "C" USING
            CASE WHEN position('"tip":' IN json) = 0 THEN '""'
            ELSE substring(
            split_part(split_part(json, '"tip":"', 2), '"', 1) FROM '^[0-9A-Za-z]+$') END""",
        "CREATE INDEX refold_ledger_by_tip ON refold_ledger (tip)",
    ),
    (
        # The version is locked before the rows, as in our own writes, to avoid deadlocks.
        """CREATE OR REPLACE FUNCTION refold_note_deletion() RETURNS trigger
            LANGUAGE plpgsql AS $$ BEGIN
            EXECUTE format('UPDATE %I.refold_version SET version = version + 1', TG_TABLE_SCHEMA);
            RETURN NULL; END $$""",
        """CREATE TRIGGER refold_deletion BEFORE DELETE ON refold_edits
            FOR EACH STATEMENT EXECUTE FUNCTION refold_note_deletion()""",
    ),
    # `now()` is the same for all rows, so that PostgreSQL rewrites none of them.
    (
        (
            "ALTER TABLE refold_edits ADD COLUMN used integer NOT NULL "
            "DEFAULT CAST(extract(epoch FROM now()) / 3600 AS integer)"
        ),
    ),
)
"""Step n migrates a database from version n to version n + 1 (`refold_schema`). Steps are only ever
added. The tip of a ledger row is NULL in the same cases as in `SQLITE_MIGRATIONS`."""

SCHEMA_EXISTS = (
    "SELECT EXISTS (SELECT FROM pg_class "
    "WHERE relname = 'refold_schema' AND pg_table_is_visible(oid))"
)
"""Not `to_regclass`, which may use a cached result from before the lock."""
LOCK = "SELECT pg_advisory_xact_lock(%s)"
NO_TIMEOUT = "SET LOCAL statement_timeout = 0"
STEP_SECONDS = 3_600.0
"""Maximum seconds of a step, which may have to read a ledger of millions of rows. Processes that
wait for it keep their own timeout."""
CREATE = (
    "CREATE TABLE IF NOT EXISTS refold_schema (part text PRIMARY KEY, version integer NOT NULL)"
)
GET_VERSION = "SELECT version FROM refold_schema WHERE part = %s"
SET_VERSION = (
    "INSERT INTO refold_schema (part, version) VALUES (%s, %s) "
    "ON CONFLICT (part) DO UPDATE SET version = excluded.version"
)


def prepare_postgresql(
    connection: Any,
    migrations: Sequence[Sequence[str]] = POSTGRESQL_MIGRATIONS,
    part: str = "store",
) -> None:
    """Create the tables of *migrations*, for the purpose *part*, in the database of *connection*
    (autocommit). If several processes do so at once, one does it and the others wait. Raises
    `StoreError`, `psycopg.Error`."""
    if _version(connection, len(migrations), part) == len(migrations):
        return
    with connection.transaction():
        connection.execute(LOCK, (APPLICATION_ID,))
        connection.execute(NO_TIMEOUT)
        connection.reply_timeout = STEP_SECONDS  # the pool resets it
        connection.execute(CREATE)
        for step in migrations[_version(connection, len(migrations), part) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(SET_VERSION, (part, len(migrations)))


def _version(connection: Any, newest: int, part: str) -> int:
    """Return the version of a database; 0 for none. Raises `StoreError` for a newer one."""
    if not connection.execute(SCHEMA_EXISTS).fetchone()[0]:
        return 0
    row = connection.execute(GET_VERSION, (part,)).fetchone()
    version = int(row[0]) if row else 0
    _refuse_newer(version, newest)
    return version
