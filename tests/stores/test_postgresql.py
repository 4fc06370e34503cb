"""The PostgreSQL store on a real server: protocol laws, several writers, a server that stops, and
secrets."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import psycopg
import pytest

from refold import Budget, Compactor
from refold.edits import Edit
from refold.errors import StoreError
from refold.messages import user
from refold.stores import MemoryStore, SidecarStore, SQLiteStore, file_path, open_store
from refold.stores.edit_json import dump_row
from refold.stores.postgresql import PostgreSQLPool, PostgreSQLStore
from refold.stores.schema import POSTGRESQL_MIGRATIONS, prepare_postgresql
from refold.stores.store import LedgerRow
from refold.strategies import Summarize
from refold.testing.store_laws import check_store
from tests.support.at_once import save_at_once
from tests.support.children import write_in_forked_children
from tests.support.ledger_rows import rows_of_odd_tips
from tests.support.raw_http import eventually


def edit(number, tip="t", text="summary"):
    return Edit(number, number + 1, (user(text),), tip, "test")


# --- the protocol ----------------------------------------------------------------------------


def test_a_postgresql_store_obeys_the_store_laws(server):
    places = {}

    def make():
        url = server.database()
        store = PostgreSQLStore(url)
        places[id(store)] = url, store
        return store

    check_store(make, lambda store: PostgreSQLStore(places[id(store)][0]))
    for _, store in places.values():
        store.close()


def test_edits_and_ledger_are_kept_after_reopening(url):
    rows = [
        LedgerRow(when=1.0, outcome="applied", edit="e1", reason="\ud800 中 \x00"),
        LedgerRow(when=2.0, outcome="noop"),
    ]
    with PostgreSQLStore(url) as store:
        store.save([edit(1), edit(2)])
        store.remove([edit(1).id])
        store.record(iter(rows))
    with PostgreSQLStore(url) as store:
        assert list(store.load(["t"])) == [edit(2)]
        assert list(store.ledger()) == rows
        assert list(store.ledger("e1")) == rows[:1]


def test_a_named_value_is_the_same_for_all_connections(url):
    with PostgreSQLStore(url) as first, PostgreSQLStore(url) as second:
        assert first.get_or_create("salt", lambda: b"first") == b"first"
        assert second.get_or_create("salt", lambda: b"second") == b"first"


def test_claims_and_ledger_rows_do_not_change_the_version(url):
    with PostgreSQLStore(url) as store:
        before = store.version()
        store.claim("a", "b", 1)
        store.record([LedgerRow(when=1.0, outcome="noop")])
        assert store.version() == before


def test_the_address_selects_the_kind_of_store(url, tmp_path):
    with open_store(url) as store:
        assert isinstance(store, PostgreSQLStore)
    with open_store(url.replace("postgresql://", "postgres://"), connect=False) as store:
        assert list(store.load(["t"])) == []
    assert isinstance(open_store(str(tmp_path / "a.refold")), SidecarStore)
    with open_store(str(tmp_path / "a.db")) as store:
        assert isinstance(store, SQLiteStore)
    assert (
        file_path(url) is None
        and file_path(":memory:") is None
        and file_path("a.db").name == "a.db"
    )


def test_two_schemas_of_one_database_are_two_stores(url, server):
    for name in ("team_a", "team_b"):
        server.execute(f"CREATE SCHEMA {name}", url)
    places = [f"{url}&options=-csearch_path%3D{name}" for name in ("team_a", "team_b")]
    with PostgreSQLStore(places[0]) as first, PostgreSQLStore(places[1]) as second:
        first.save([edit(1)])
        second.save([edit(2)])
        assert list(first.load(["t"])) == [edit(1)]
        assert list(second.load(["t"])) == [edit(2)]


# --- the schema ------------------------------------------------------------------------------


def test_many_connections_may_open_a_new_database_at_once(url):
    assert not save_at_once(lambda: PostgreSQLStore(url), [edit(n) for n in range(8)])
    with PostgreSQLStore(url) as store:
        assert sorted(e.start for e in store.load(["t"])) == list(range(8))


MORE = (*POSTGRESQL_MIGRATIONS, ("CREATE TABLE more (a integer)", "INSERT INTO more VALUES (1)"))


def test_a_database_of_an_older_schema_is_migrated_once(url, server):
    with PostgreSQLStore(url) as store:
        store.save([edit(1)])
    pools = [PostgreSQLPool(url, 10, 1, MORE) for _ in range(6)]
    threads = [Thread(target=pool.version) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pool in pools:
        pool.close()
    assert server.execute("SELECT a FROM more", url) == [(1,)]
    assert server.execute("SELECT version FROM refold_schema WHERE part = 'store'", url) == [
        (len(MORE),)
    ]
    assert server.execute("SELECT count(*) FROM refold_edits", url) == [(1,)]


def test_ledger_rows_of_the_first_schema_are_found_by_tip(url):
    rows = rows_of_odd_tips()
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_postgresql(connection, POSTGRESQL_MIGRATIONS[:1])
        dumped = [(dump_row(row),) for row in rows]
        connection.cursor().executemany(
            "INSERT INTO refold_ledger (edit, json) VALUES (NULL, %s)", dumped
        )
        with PostgreSQLStore(url) as store:
            assert list(store.ledger()) == rows
            for tips in ([tip] for tip in {row.tip for row in rows}):
                assert list(store.ledger_of(tips)) == [row for row in rows if row.tip in tips]
            # A process of the previous version keeps writing, without checking the schema again.
            connection.execute(
                "INSERT INTO refold_ledger (edit, json) VALUES (NULL, %s)", dumped[-1]
            )
            assert list(store.ledger_of(["b"])) == [rows[-1]] * 2
            assert not store.ledger_of(["0", "c", "tip"])


class Watched:
    """A connection that records the server's statement timeout for each statement."""

    def __init__(self, connection):
        self.connection, self.transaction, self.reply_timeout, self.given = (
            connection,
            connection.transaction,
            1.0,
            {},
        )

    def execute(self, statement, *values):
        self.given[statement] = self.reply_timeout
        return self.connection.execute(statement, *values)


def test_a_migration_step_has_no_statement_timeout(url):
    """A ledger of millions of rows has to be read once. Other calls keep their timeout."""
    limit = "current_setting('statement_timeout')"
    pool = PostgreSQLPool(
        url, 2.5, 1, ((f"CREATE TABLE refold_version AS SELECT 7 AS version, {limit} AS during",),)
    )
    assert pool.version() == 7
    with pool.connection("read") as connection:
        assert connection.execute(f"SELECT during, {limit} FROM refold_version").fetchone() == (
            "0",
            "2500ms",
        )
        assert connection.reply_timeout == 3.5
    pool.close()
    step = "CREATE TABLE more (a integer)"
    with psycopg.connect(url, autocommit=True) as real:
        prepare_postgresql(watched := Watched(real), ((step,),), "more")
    assert watched.given[step] == 3_600


def test_ledger_rows_are_looked_up_by_an_index(url, server):
    """Even though the server has no statistics yet and would scan the table."""
    with PostgreSQLStore(url) as store:
        store.record(LedgerRow(when=0.0, outcome="noop", tip=f"{n:032x}") for n in range(3_000))
        with store._database.connection("read") as connection:
            asked = store._statements.keys(f"{n:032x}" for n in range(2_990, 3_010))
            plan = connection.execute(
                f"EXPLAIN {store._statements.ledger_by_tip}", (asked,)
            ).fetchall()
        assert len(store.ledger_of([f"{n:032x}" for n in range(2_990, 3_010)])) == 10
    assert "refold_ledger_by_tip" in str(plan) and "Seq Scan" not in str(plan)


def test_a_failed_migration_leaves_the_database_unchanged(url, server):
    PostgreSQLStore(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            prepare_postgresql(
                connection,
                (
                    *POSTGRESQL_MIGRATIONS,
                    ("CREATE TABLE more (a integer)", "INSERT INTO missing VALUES (1)"),
                ),
            )
        assert connection.execute("SELECT to_regclass('more')").fetchone() == (None,)
    assert server.execute("SELECT version FROM refold_schema WHERE part = 'store'", url) == [
        (len(POSTGRESQL_MIGRATIONS),)
    ]
    PostgreSQLStore(url).close()


def test_a_newer_schema_is_refused(url, server):
    PostgreSQLStore(url).close()
    server.execute("UPDATE refold_schema SET version = 99", url)
    with pytest.raises(
        StoreError, match=f"written with schema 99; .* up to {len(POSTGRESQL_MIGRATIONS)}"
    ):
        PostgreSQLStore(url)


# --- several processes -----------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_store_works_in_forked_children(url):
    place = "refold.stores.postgresql", f"PostgreSQLStore({url!r}, connections=2)"
    assert write_in_forked_children(*place) == ("85\n", "")


def test_threads_wait_for_a_free_connection(url):
    with PostgreSQLStore(url, connections=2) as store:
        threads = [Thread(target=store.save, args=([edit(n)],)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.load(["t"])) == 12
        assert len(store._database._idle) <= 2


def test_a_killed_writer_leaves_no_partial_write_and_no_lock(url, server):
    """Its transaction ends with its connection, and so does its lock."""
    with PostgreSQLStore(url, timeout=5) as store:
        writer = psycopg.connect(url)
        writer.execute("UPDATE refold_version SET version = version + 1")
        writer.execute("INSERT INTO refold_edits (id, tip, json) VALUES ('half', 't', '{}')")
        server.execute(f"SELECT pg_terminate_backend({writer.info.backend_pid})")
        store.save([edit(1)])
        assert list(store.load(["t"])) == [edit(1)]
        writer.close()


# --- a server that stops ---------------------------------------------------------------------


def test_a_store_reconnects_after_the_server_restarts(url, server):
    with PostgreSQLStore(url) as store:
        store.save([edit(1)])
        server.stop()
        with pytest.raises(StoreError, match=r"cannot (read|write)"):
            store.save([edit(2)])
        server.start()
        assert list(store.load(["t"])) == [edit(1)]
        server.stop()
        server.start()
        store.save([edit(3)])  # even the first call works: dead connections are not used
        assert list(store.load(["t"])) == [edit(1), edit(3)]


def test_a_store_may_be_opened_before_the_server_is_up(url, server):
    server.stop()
    with pytest.raises(StoreError, match=r"postgresql://postgres@/.*: cannot read: .*failed"):
        PostgreSQLStore(url)
    store = PostgreSQLStore(url, connect=False)
    server.start()
    assert list(store.load(["t"])) == []
    store.close()


def test_a_hanging_server_raises_an_error_after_the_timeout(url, server):
    with PostgreSQLStore(url, timeout=1) as store:
        store.save([edit(1)])
        with server.frozen(), pytest.raises(StoreError, match="the server does not answer"):
            store.load(["t"])  # while it still hangs
        assert list(store.load(["t"])) == [edit(1)]


def test_a_server_that_keeps_answering_is_waited_for(url):
    """Statements that are sent together may take longer in sum than the timeout of one."""
    pool = PostgreSQLPool(url, 0.3, 1)
    with pool.transaction(edits=False) as connection:
        connection.reply_timeout = 0.4
        statement = "SELECT repeat('x', 9000), pg_sleep(%s)"  # the server sends 8 kB at a time
        connection.cursor().executemany(statement, [(0.2,)] * 4)
    pool.close()


def test_waiting_for_another_writer_ends_after_the_timeout(url):
    with PostgreSQLStore(url, timeout=1) as store, psycopg.connect(url) as writer:
        writer.execute("UPDATE refold_version SET version = version + 1")
        with pytest.raises(
            StoreError, match="cannot write: canceling statement due to statement timeout"
        ):
            store.save([edit(1)])
        writer.rollback()
        store.save([edit(2)])
        assert list(store.load(["t"])) == [edit(2)]


def test_another_writer_is_waited_for_if_the_default_isolation_is_serializable(url, server):
    """If transactions were serializable by default, a waiting writer used to fail."""
    name = url.split("/")[3].partition("?")[0]
    server.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with PostgreSQLStore(url) as store, psycopg.connect(url) as writer:
        writer.execute("UPDATE refold_version SET version = version + 1")
        with ThreadPoolExecutor(1) as thread:
            saving = thread.submit(store.save, [edit(1)])
            assert eventually(lambda: saving.done() or server.execute(waits) == [(1,)])
            writer.commit()
            saving.result()
        assert list(store.load(["t"])) == [edit(1)]


def test_a_writer_that_hangs_in_a_transaction_loses_its_lock(url):
    with PostgreSQLStore(url, timeout=1) as hanging, PostgreSQLStore(url) as waiting:
        held = hanging._database.transaction()
        held.__enter__()
        waiting.save([edit(1)])
        with pytest.raises(StoreError, match="terminating connection"):
            held.__exit__(None, None, None)
        assert list(waiting.load(["t"])) == [edit(1)]


def test_a_closed_store_raises_an_error(url):
    store = PostgreSQLStore(url)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.load(["t"])


# --- secrets ---------------------------------------------------------------------------------

SECRET = "s3cr3t/pass:word@x"


def test_no_error_or_repr_contains_the_password(server):
    """Neither raw nor URL-encoded, and not in the errors below."""
    url = server.url("nothing_there", password=SECRET)
    with pytest.raises(StoreError, match="nothing_there") as caught:
        PostgreSQLStore(url)
    assert "s3cr3t" not in str(caught.value) and caught.value.__suppress_context__
    store = PostgreSQLStore(url, connect=False)
    assert "s3cr3t" not in store.name + repr(store) + repr(store._database)
    store.close()


@pytest.mark.parametrize("secret", ["s3cr3t/word", "12/s3cr3t", "12@s3cr3t", SECRET, "%s3cr3t"])
def test_a_password_that_is_not_url_encoded_is_refused_without_showing_it(secret):
    """libpq's error would be: no host s3cr3t, no port s3cr3t, no database s3cr3t."""
    with pytest.raises(StoreError, match="cannot be read") as caught:
        PostgreSQLStore(f"postgresql://user:{secret}@host/database")
    assert "s3cr3t" not in str(caught.value)


def test_a_postgresql_store_behaves_like_a_memory_store(url):
    memory = MemoryStore()
    with PostgreSQLStore(url) as store:
        for n in range(60):
            for each in (memory, store):
                each.save(edit(k % 7, f"t{k % 3}", "ab"[n % 2]) for k in range(n % 5, n % 9))
                each.remove([edit(n % 7, f"t{n % 3}").id])
                each.record([LedgerRow(when=float(n), outcome="noop", tip=f"t{n % 3}")])
            for tips in (["t0"], ["t2", "t1"], ["t0", "t1", "t2", "no"]):
                assert memory.load(tips) == store.load(tips)
                assert memory.ledger_of(tips) == store.ledger_of(tips)


HISTORY = [
    {"role": ("user", "assistant")[n % 2], "content": f"Step {n}. " + "word " * 100}
    for n in range(30)
]


def test_c12_tables_dropped_while_a_store_is_open_are_recreated_and_reported(url):
    """Every call used to fail until a restart, because each process created the tables only
    once."""
    store = PostgreSQLStore(url)
    compact = Compactor([Summarize(keep=4)], Budget(trigger=2_000, target=1_000), store)
    shown = compact(HISTORY)
    assert shown.visible_edits
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'refold_%'"
        ).fetchall()
        connection.execute(f"DROP TABLE {', '.join(name for (name,) in tables)} CASCADE")
    with pytest.raises(StoreError):
        compact(HISTORY)
    assert {edit.id for edit in shown.edits} <= {edit.id for edit in compact(HISTORY).edits}
    assert store.replacements == 1
    again = PostgreSQLStore(url)
    assert (
        Compactor([Summarize(keep=4)], Budget(trigger=2_000, target=1_000), again)(HISTORY).payload
        == shown.payload
    )
    again.close()
    store.close()


def empty_tables(url, *tables):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {', '.join(tables)}")


@pytest.mark.parametrize(
    "tables", [("refold_edits",), ("refold_edits", "refold_version", "refold_ledger")]
)
def test_c12_tables_emptied_while_a_store_is_open_are_reported_and_refilled(url, tables):
    """TRUNCATE used to go unnoticed: a compactor showed its edits from memory, and a restart lost
    them."""
    with PostgreSQLStore(url) as store:
        compact = Compactor([Summarize(keep=4)], Budget(trigger=2_000, target=1_000), store)
        shown = compact(HISTORY)
        assert shown.visible_edits
        empty_tables(url, *tables)
        assert {edit.id for edit in shown.edits} <= {edit.id for edit in compact(HISTORY).edits}
        assert store.replacements == 1
    with PostgreSQLStore(url) as again:
        assert (
            Compactor([Summarize(keep=4)], Budget(trigger=2_000, target=1_000), again)(
                HISTORY
            ).payload
            == shown.payload
        )


def test_c12_rows_deleted_by_others_disappear_from_an_open_store(url, server):
    """DELETE did not change the version: a compactor showed the edits from memory until a
    restart."""
    with PostgreSQLStore(url) as store:
        compact = Compactor([Summarize(keep=4)], Budget(trigger=2_000, target=1_000), store)
        history = [
            {"role": ("user", "assistant")[n % 2], "content": f"Step {n}. " + "word " * 100}
            for n in range(30)
        ]
        assert compact(history).visible_edits
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET search_path = pg_catalog")
            connection.execute("DELETE FROM public.refold_edits")
        assert not compact.show(history).edits
        assert store.replacements == 0
        assert compact(history).visible_edits


def test_c12_writes_are_seen_by_others_even_after_the_version_table_was_emptied(url):
    """Without its row the version stayed 0, so no process saw the writes of another."""
    with PostgreSQLStore(url) as store, PostgreSQLStore(url) as second:
        store.save([edit(1)])
        versions = [second.version()]
        empty_tables(url, "refold_version")
        for number in range(2, 5):
            store.save([edit(number)])
            versions.append(second.version())
        assert len(set(versions)) == 4
        assert versions == sorted(versions)
