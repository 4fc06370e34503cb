"""Stores: laws of the protocol, several writers, and damaged or unusual files."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from refold.edits import Edit
from refold.errors import StoreError
from refold.messages import user
from refold.stores import MemoryStore, SidecarStore, SQLiteStore
from refold.stores.edit_json import dump_edit, dump_row
from refold.stores.schema import APPLICATION_ID, SQLITE_MIGRATIONS, prepare_sqlite
from refold.stores.sidecar import append
from refold.stores.store import LedgerRow
from refold.testing.store_laws import check_store
from tests.support.at_once import save_at_once
from tests.support.children import act_as_nobody, write_in_forked_children
from tests.support.examples import examples_at_night
from tests.support.ledger_rows import rows_of_odd_tips

KINDS = {"memory": lambda _: MemoryStore(), "sqlite": SQLiteStore, "sidecar": SidecarStore}
FILES = {"sqlite": SQLiteStore, "sidecar": SidecarStore}
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def edit(number, tip="t", text="summary"):
    return Edit(number, number + 1, (user(text),), tip, "test")


def closing_at_end(store):
    """Return a context manager that closes the store if it has `close`."""
    return store if isinstance(store, SQLiteStore) else nullcontext(store)


# --- the protocol ----------------------------------------------------------------------------


def test_the_memory_store_obeys_the_store_laws():
    check_store(MemoryStore)


def test_sqlite_in_memory_obeys_the_store_laws():
    check_store(lambda: SQLiteStore(":memory:"))


@pytest.mark.parametrize("kind", FILES)
def test_file_stores_obey_the_store_laws(kind, tmp_path):
    paths, where = count(), {}

    def make():
        path = tmp_path / str(next(paths))
        store = FILES[kind](path)
        where[id(store)] = path
        return store

    check_store(make, lambda store: FILES[kind](where[id(store)]))


class Forgetful(MemoryStore):
    def save(self, edits):
        super().save(list(edits)[:1])


class Unsorted(MemoryStore):
    def load(self, tips):
        return sorted(super().load(tips), key=lambda edit: edit.start)


class Standing(MemoryStore):
    def version(self):
        return 1


class Halfway(MemoryStore):
    def save(self, edits):
        for edit_to_save in edits:
            super().save([edit_to_save])


class Disordered(MemoryStore):
    def ledger_of(self, tips):
        return tuple(row for tip in tips for row in super(Disordered, self).ledger_of([tip]))


class Whole(MemoryStore):
    def ledger_of(self, tips):
        return self.ledger()


class Cut(MemoryStore):
    """A store that truncates a text at its first NUL, as a database might."""

    def ledger_of(self, tips):
        wanted = {tip.partition("\0")[0] for tip in tips}
        return tuple(row for row in self.ledger() if row.tip.partition("\0")[0] in wanted)


class Prefixed(MemoryStore):
    def remove(self, ids):
        ids = tuple(ids)
        super().remove([edit.id for edit in self.load(["a"]) if edit.id.startswith(ids)])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (Forgetful, "load gives the edits of the tips asked for"),
        (Unsorted, "in the order of saving"),
        (Standing, "version changes with every write"),
        (Halfway, "a save that fails keeps nothing"),
        (Prefixed, "remove takes full ids only"),
        (Disordered, "the rows of all tips, each once, as recorded"),
        (Whole, "the rows of the tip '', exactly"),
        (Cut, "the rows of the tip 'a', exactly"),
    ],
)
def test_check_store_reports_which_law_is_broken(broken, says):
    with pytest.raises(AssertionError, match=says):
        check_store(broken)


def test_check_store_notices_edits_that_are_lost_when_reopened():
    with pytest.raises(AssertionError, match="when the place is opened again"):
        check_store(MemoryStore, lambda _: MemoryStore())


TIPS = st.sampled_from(["", "t0", "t1", "0f"]) | st.text(st.characters(), max_size=3)
"""Lone surrogates and NUL are among them."""


class SameAsMemory(RuleBasedStateMachine):
    """After any operations in any order, the file stores return what the memory store returns."""

    numbers = st.lists(st.integers(0, 5), max_size=4)

    def __init__(self):
        super().__init__()
        self.memory, self.sqlite = MemoryStore(), SQLiteStore(":memory:")

    @rule(numbers=numbers, text=st.sampled_from("ab"))
    def save(self, numbers, text):
        for store in (self.memory, self.sqlite):
            store.save(edit(n, f"t{n % 3}", text) for n in numbers)

    @rule(numbers=numbers)
    def remove(self, numbers):
        for store in (self.memory, self.sqlite):
            store.remove(edit(n, f"t{n % 3}").id for n in numbers)

    @rule(tips=st.lists(TIPS, max_size=4), when=st.floats(0, 9))
    def record(self, tips, when):
        for store in (self.memory, self.sqlite):
            store.record(LedgerRow(when=when, outcome="noop", tip=tip) for tip in tips)

    @rule(tips=st.lists(TIPS, max_size=4))
    def rows_by_tips_are_all_rows_filtered(self, tips):
        wanted = tuple(row for row in self.memory.ledger() if row.tip in tips)
        assert self.memory.ledger_of(tips) == self.sqlite.ledger_of(tips) == wanted

    @invariant()
    def same(self):
        for tips in (["t0"], ["t2", "t1"], ["t0", "t1", "t2", "no"]):
            assert self.memory.load(tips) == self.sqlite.load(tips)
        assert self.memory.ledger() == self.sqlite.ledger()

    def teardown(self):
        self.sqlite.close()


TestSameAsMemory = SameAsMemory.TestCase


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_keeps_rows_in_order(kind, tmp_path):
    first = LedgerRow(
        when=1.0,
        outcome="applied",
        edit="e1",
        before=90,
        after=10,
        grade="lossy",
        reason="\ud800 中",
    )
    second = LedgerRow(
        when=2.0, outcome="failed", reason="empty answer", calls=2, cost=0.01, model="m"
    )
    with closing_at_end(KINDS[kind](tmp_path / "s")) as store:
        store.record(iter([first, second]))
        store.record([])
        assert list(store.ledger()) == [first, second]
        assert list(store.ledger("e1")) == [first]
        assert not store.ledger("e2")
        odd = LedgerRow(when=3.0, outcome="applied", edit="\ud800\x00")
        store.record([odd])
        assert list(store.ledger("\ud800\x00")) == [odd]


@pytest.mark.parametrize("kind", FILES)
def test_edits_and_ledger_are_kept_after_reopening(kind, tmp_path):
    row = LedgerRow(when=1.0, outcome="noop")
    with closing_at_end(FILES[kind](tmp_path / "s")) as store:
        store.save([edit(1), edit(2)])
        store.remove([edit(1).id])
        store.record([row])
    with closing_at_end(FILES[kind](tmp_path / "s")) as store:
        assert list(store.load(["t"])) == [edit(2)]
        assert list(store.ledger()) == [row]


# --- several writers -------------------------------------------------------------------------

SAVE_MANY = """
import sys
from refold.edits import Edit
from refold.messages import user
from refold.stores import SidecarStore, SQLiteStore
kind, path, writer, saves = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
store = {"sqlite": SQLiteStore, "sidecar": SidecarStore}[kind](path)
for n in range(int(saves)):
    store.save([Edit(n, n + k, (user("x" * 500),), f"w{writer}", "test") for k in (1, 2)])
"""


def run_writers(kind, path, writers, saves):
    """Run processes that start at the same time, with the first opening of the store, and return
    their stderr."""
    command = [sys.executable, "-c", SAVE_MANY, kind, str(path)]
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    running = [subprocess.Popen([*command, str(w), str(saves)], **pipes) for w in range(writers)]
    assert {process.stdout.readline() for process in running} == {"ready\n"}
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate()[1] for process in running]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_four_processes_write_to_one_file_and_lose_nothing(kind, tmp_path):
    assert run_writers(kind, tmp_path / "s", 4, 200) == [""] * 4
    with closing_at_end(FILES[kind](tmp_path / "s")) as store:
        for writer in range(4):
            expected = [(n, n + k) for n in range(200) for k in (1, 2)]
            assert [(e.start, e.stop) for e in store.load([f"w{writer}"])] == expected


@pytest.mark.slow
def test_processes_may_open_a_new_file_at_once(tmp_path):
    for attempt in range(examples_at_night(3, 12)):
        assert run_writers("sqlite", tmp_path / str(attempt), 4, 1) == [""] * 4


def test_threads_may_open_a_new_file_at_once(tmp_path):
    for attempt in range(20):
        path = tmp_path / str(attempt)
        assert not save_at_once(lambda path=path: SQLiteStore(path), [edit(n) for n in range(4)])
        with SQLiteStore(path) as store:
            assert sorted(e.start for e in store.load(["t"])) == [0, 1, 2, 3]


@forks
def test_a_store_works_in_forked_children(tmp_path):
    place = "refold.stores", f"SQLiteStore({str(tmp_path / 's')!r})"
    assert write_in_forked_children(*place) == ("85\n", "")
    with closing(sqlite3.connect(tmp_path / "s")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_writer_raises_an_error_if_another_holds_the_lock_too_long(tmp_path):
    with (
        SQLiteStore(tmp_path / "s", timeout=0.05) as store,
        closing(sqlite3.connect(tmp_path / "s")) as writer,
    ):
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"s: cannot write: database is locked"):
            store.save([edit(1)])
        assert not store.load(["t"])
        writer.rollback()
        store.save([edit(1)])
        assert list(store.load(["t"])) == [edit(1)]


# --- the SQLite file -------------------------------------------------------------------------


def execute(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_file_of_the_first_schema_is_migrated(tmp_path):
    path = tmp_path / "s"
    execute(
        path,
        *SQLITE_MIGRATIONS[0],
        f"PRAGMA application_id = {APPLICATION_ID}",
        "PRAGMA user_version = 1",
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO edits (id, tip, json) VALUES (?, ?, ?)",
            (edit(1).id, "t", dump_edit(edit(1))),
        )
    with SQLiteStore(path) as store:
        assert list(store.load(["t"])) == [edit(1)]
        store.record([LedgerRow(when=0.0, outcome="noop")])
        assert len(store.ledger()) == 1


def third_schema(path, rows):
    """Return a file as written by schema version 3."""
    steps = [statement for step in SQLITE_MIGRATIONS[:3] for statement in step]
    execute(path, *steps, f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 3")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO ledger (edit, json) VALUES (NULL, ?)", [(dump_row(row),) for row in rows]
        )


def test_ledger_rows_of_the_third_schema_are_found_by_tip(tmp_path):
    rows, path = rows_of_odd_tips(), tmp_path / "s"
    third_schema(path, rows)
    with SQLiteStore(path) as store:
        assert list(store.ledger()) == rows
        for tips in ([tip] for tip in {row.tip for row in rows}):
            assert list(store.ledger_of(tips)) == [row for row in rows if row.tip in tips]
        assert not store.ledger_of(["0", "c", "tip"])
        store.record(rows[-1:])
        assert list(store.ledger_of(["b"])) == [rows[-1]] * 2


def test_rows_written_by_a_process_of_an_older_version_are_found(tmp_path):
    """That process opened the file as schema 3 and does not check the schema again."""
    path, late = tmp_path / "s", LedgerRow(when=1.0, outcome="noop", tip="a1")
    third_schema(path, [])
    with closing(sqlite3.connect(path, isolation_level=None)) as older, SQLiteStore(path) as store:
        store.record([LedgerRow(when=0.0, outcome="noop", tip="b2")])
        older.execute("INSERT INTO ledger (edit, json) VALUES (NULL, ?)", (dump_row(late),))
        assert list(store.ledger_of(["a1"])) == [late]
        assert not store.ledger_of(["c3"])


def test_a_damaged_row_of_the_third_schema_does_not_keep_a_file_from_opening(tmp_path):
    path, good = tmp_path / "s", LedgerRow(when=1.0, outcome="noop", tip="a1")
    third_schema(path, [good])
    execute(path, "INSERT INTO ledger (json) VALUES ('nonsense')")
    with SQLiteStore(path) as store:
        assert list(store.ledger_of(["a1"])) == [good]


@pytest.mark.parametrize("rows", [0, 3_000])
def test_the_work_to_look_up_ledger_rows_does_not_grow_with_the_ledger(rows, tmp_path):
    """The work is counted in steps of SQLite's virtual machine."""
    with SQLiteStore(tmp_path / "s") as store:
        store.record(LedgerRow(when=0.0, outcome="noop", tip=f"{n:032x}") for n in range(rows))
        steps = count()
        connection = store._database._connection
        connection.set_progress_handler(lambda: next(steps) and None, 10)
        assert not store.ledger_of([f"{n:032x}" for n in range(rows, rows + 50)])
        assert next(steps) < 300


def test_a_failed_migration_leaves_the_file_unchanged(tmp_path):
    path = tmp_path / "s"
    SQLiteStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        before = list(connection.iterdump())
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            prepare_sqlite(
                connection,
                1.0,
                (*SQLITE_MIGRATIONS, ("CREATE TABLE more (a)", "INSERT INTO missing VALUES (1)")),
            )
        assert list(connection.iterdump()) == before
        assert connection.execute("PRAGMA user_version").fetchone() == (len(SQLITE_MIGRATIONS),)


def test_a_newer_schema_is_refused(tmp_path):
    path = tmp_path / "s"
    SQLiteStore(path).close()
    execute(path, "PRAGMA user_version = 99")
    with pytest.raises(
        StoreError,
        match=f"s: written with schema 99; this version of Refold knows schemas up to {len(SQLITE_MIGRATIONS)}",
    ):
        SQLiteStore(path)


def test_a_database_of_another_program_is_refused_and_left_unchanged(tmp_path):
    path = tmp_path / "s"
    execute(path, "CREATE TABLE mine (a)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="an SQLite database, but not one of Refold's"):
        SQLiteStore(path)
    assert path.read_bytes() == before


def test_a_damaged_row_raises_an_error_that_names_the_file(tmp_path):
    with SQLiteStore(tmp_path / "s") as store:
        store.save([edit(1)])
        execute(tmp_path / "s", "UPDATE edits SET json = '{'")
        with pytest.raises(StoreError, match="s: malformed JSON"):
            store.load(["t"])


def test_a_closed_store_raises_an_error(tmp_path):
    store = SQLiteStore(tmp_path / "s")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.load(["t"])


# --- the sidecar -----------------------------------------------------------------------------


def test_a_sidecar_is_a_file_beside_its_session(tmp_path):
    store = SidecarStore.beside(tmp_path / "session.jsonl")
    assert store.path == tmp_path / "session.jsonl.refold"
    assert not store.load(["t"])
    assert not store.path.exists()
    store.save([edit(1)])
    assert store.path.exists()


def test_a_sidecar_grows_by_one_line_per_write(tmp_path):
    store, path = SidecarStore(tmp_path / "s"), tmp_path / "s"
    before = b""
    for n, write in enumerate(
        [
            lambda: store.save([edit(1), edit(2)]),
            lambda: store.remove([edit(1).id]),
            lambda: store.save([]),
        ]
    ):
        write()
        data = path.read_bytes()
        assert data.startswith(before)
        assert data.count(b"\n") == n + 1
        before = data


def test_a_sidecar_torn_at_any_byte_loses_only_the_torn_write(tmp_path):
    store, path = SidecarStore(tmp_path / "s"), tmp_path / "s"
    store.save([edit(1)])
    whole = path.stat().st_size
    store.save([edit(2), edit(3)])
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        store = SidecarStore(path)
        whole_edits = [edit(1)] if end >= whole else []
        assert list(store.load(["t"])) == whole_edits
        store.save([edit(4)])
        assert list(SidecarStore(path).load(["t"])) == [*whole_edits, edit(4)]
        assert len(SidecarStore(path).problems) == (end not in {0, whole})


def test_a_line_that_ran_into_a_torn_one_is_written_again(tmp_path):
    """The earlier writer was killed between our check of the end of the file and our write."""
    store = SidecarStore(tmp_path / "s")
    store.save([edit(1)])
    torn = [b'{"refold":1,"save":[{"id"']

    def write_after_another(descriptor, data):
        if torn:
            os.write(descriptor, torn.pop())
        return os.write(descriptor, data)

    append(store.path, b'{"refold":1,"remove":["%s"]}\n' % edit(1).id.encode(), write_after_another)
    assert not store.load(["t"])
    assert len(store.problems) == 1
    assert store.problems[0].startswith("line 2: malformed JSON")


def test_a_line_that_cannot_be_read_is_skipped_and_reported(tmp_path):
    store, path = SidecarStore(tmp_path / "s"), tmp_path / "s"
    store.save([edit(1)])
    with path.open("ab") as file:
        file.write(b'nonsense\n\n{"refold":1,"save":{}}\n{"refold":1,"praise":[1]}\n\xff\n')
    store.save([edit(2)])
    assert list(store.load(["t"])) == [edit(1), edit(2)]
    assert [problem.partition(":")[0] for problem in store.problems] == [
        "line 2",
        "line 4",
        "line 6",
    ]


def test_a_newer_line_in_a_sidecar_is_refused(tmp_path):
    (tmp_path / "s").write_text('{"refold":7,"save":[]}\n')
    with pytest.raises(
        StoreError,
        match=r"s: line 1: written in format 7; this version of Refold reads formats up to 1",
    ):
        SidecarStore(tmp_path / "s").load(["t"])


def test_a_session_file_is_never_read_or_overwritten_as_a_sidecar(tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_text('{"type":"user","message":"hello"}\n')
    for use in (lambda s: s.load(["t"]), lambda s: s.save([edit(1)]), lambda s: s.remove(["a"])):
        with pytest.raises(StoreError, match="not a Refold sidecar") as raised:
            use(SidecarStore(path))
        assert "hello" not in str(raised.value), "the gateway logs the message"
    assert path.read_text() == '{"type":"user","message":"hello"}\n'


# --- damaged and unusual files --------------------------------------------------------------


@pytest.mark.parametrize("kind", FILES)
def test_an_unusable_path_is_named_in_the_error(kind, tmp_path):
    (tmp_path / "file").write_text('{"refold":1,"save":[]}\n')
    for path in (tmp_path, tmp_path / "missing" / "s", tmp_path / "file" / "s"):
        with pytest.raises(StoreError) as raised, closing_at_end(FILES[kind](path)) as store:
            store.save([edit(1)])
        assert str(raised.value).startswith(f"{path}: cannot ")
        assert "\n" not in str(raised.value)


def test_a_directory_without_write_permission_is_named_in_the_error():
    """As on a read-only file system."""
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def open_store() -> str:
            with pytest.raises(StoreError) as raised:
                SQLiteStore(f"{folder}/s.db")
            return str(raised.value)

        refusal = f"{folder}/s.db: cannot open: nothing may be written in {folder}"
        assert act_as_nobody(open_store) == refusal


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("missing/s", "there is no directory"),
        (".", "it is a directory"),
        ("file", "it is not an SQLite database"),
    ],
)
def test_sqlite_reports_why_it_cannot_open_a_file(path, says, tmp_path):
    (tmp_path / "file").write_text("not a database, and long enough to be sure of it" * 20)
    with pytest.raises(StoreError, match=says):
        SQLiteStore(tmp_path / path)


def test_an_empty_path_is_refused():
    with pytest.raises(StoreError, match="needs the path of a file"):
        SQLiteStore("")


FILL = """
import resource, sys
from refold.edits import Edit
from refold.errors import StoreError
from refold.messages import user
from refold.stores import SidecarStore, SQLiteStore
kind, path = sys.argv[1:]
store = {"sqlite": SQLiteStore, "sidecar": SidecarStore}[kind](path)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
for n in range(1000):
    try:
        store.save([Edit(n, n + k, (user("x" * 1000),), "t", "test") for k in (1, 2, 3)])
    except StoreError as error:
        print(n)
        print(error)
        break
print(len(store.load(["t"])))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits a file's size")
@pytest.mark.parametrize("kind", FILES)
def test_a_full_disk_is_reported_in_one_line_and_loses_nothing(kind, tmp_path):
    path = tmp_path / "s"
    run = subprocess.run(
        [sys.executable, "-c", FILL, kind, str(path)], capture_output=True, text=True, check=True
    )
    saves, error, rows = run.stdout.splitlines()
    assert error.startswith(f"{path}: cannot write: ")
    assert 0 < int(saves) < 1000
    assert int(rows) == 3 * int(saves)
    with closing_at_end(FILES[kind](path)) as store:
        assert len(store.load(["t"])) == 3 * int(saves)
        store.save([edit(5_000)])
        assert len(store.load(["t"])) == 3 * int(saves) + 1


def test_a_refused_write_is_reported_and_the_next_one_reconnects(tmp_path):
    with SQLiteStore(tmp_path / "s") as store:
        store.save([edit(1)])
        store._database._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(
            StoreError, match="s: cannot write: attempt to write a readonly database"
        ):
            store.save([edit(2)])
        assert list(store.load(["t"])) == [edit(1)]
        store.save([edit(2)])  # a read-only connection is reopened once the file is writable
        assert list(store.load(["t"])) == [edit(1), edit(2)]


def test_the_version_changes_for_every_connection_after_a_write(tmp_path):
    with SQLiteStore(tmp_path / "s") as first, SQLiteStore(tmp_path / "s") as second:
        seen = first.version(), second.version()
        assert (first.version(), second.version()) == seen
        first.save([edit(1)])
        assert first.version() != seen[0]
        assert second.version() != seen[1]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_new_file_is_private_to_its_owner_and_an_old_one_keeps_its_mode(tmp_path):
    """Edits contain summaries of conversations."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    old.touch(mode=0o644)
    old.chmod(0o644)
    for path in (new, old):
        with SQLiteStore(path) as store:
            store.save([edit(1)])
            modes = {
                file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob(f"{path.name}*")
            }
            assert set(modes.values()) == {0o600 if path == new else 0o644}, modes
