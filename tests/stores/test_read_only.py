"""A store that is only read: no file is made, none is changed, and what is written meanwhile is seen."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from refold.edits import Edit
from refold.errors import StoreError
from refold.messages import user
from refold.stores import SidecarStore, SQLiteStore, open_store
from refold.stores.edit_json import dump_edit
from refold.stores.schema import SQLITE_MIGRATIONS
from refold.stores.sqlite import SQLiteDatabase
from refold.stores.store import LedgerRow

NOBODY = 65_534


def edit(name: str) -> Edit:
    return Edit(0, 1, (user(name),), "t1", by=name)


FIRST = edit("a")


@pytest.fixture
def file(tmp_path):
    with SQLiteStore(tmp_path / "edits.db") as store:
        store.save([edit("a")])
        store.record([LedgerRow(when=1.0, outcome="applied", tip="t1", edit=FIRST.id)])
    return tmp_path / "edits.db"


def list_summaries(store) -> list[str]:
    return [edit_loaded.insert[0].text for edit_loaded in store.load(["t1"])]


def beside(path: Path) -> list[str]:
    return sorted(neighbour.name for neighbour in path.parent.iterdir())


def test_a_read_only_store_reads_without_creating_or_changing_files(file) -> None:
    before = file.read_bytes()
    with SQLiteStore(file, read_only=True) as store:
        assert list_summaries(store) == ["a"]
        assert [row.when for row in store.ledger()] == [1.0]
        assert len(store.ledger_of(["t1"])) == 1
        assert beside(file) == ["edits.db"]
    assert beside(file) == ["edits.db"]
    assert file.read_bytes() == before


def test_writes_to_a_read_only_store_are_refused(file) -> None:
    with SQLiteStore(file, read_only=True) as store:
        for write in (lambda: store.save([edit("b")]), lambda: store.remove([FIRST.id]), lambda: store.record([LedgerRow(when=2.0, outcome="noop")])):  # fmt: skip
            with pytest.raises(StoreError, match="readonly database"):
                write()
        assert list_summaries(store) == ["a"]


@pytest.mark.parametrize("name", ["none.db", "none.refold"])
def test_opening_a_missing_file_read_only_is_an_error_and_creates_nothing(tmp_path, name) -> None:
    with pytest.raises(StoreError, match="there is no such store"):
        open_store(str(tmp_path / name), read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_opening_a_name_that_is_too_long_is_a_store_error(tmp_path) -> None:
    for is_read_only in (True, False):
        with pytest.raises(StoreError, match="n" * 300):
            open_store(str(tmp_path / ("n" * 300)), read_only=is_read_only)


def test_opening_a_missing_sqlite_store_read_only_creates_nothing(tmp_path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        SQLiteStore(tmp_path / "none.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_writes_of_another_connection_are_seen(file) -> None:
    with SQLiteStore(file, read_only=True) as store:
        versions = [store.version()]
        assert list_summaries(store) == ["a"]
        with SQLiteStore(file) as writer:
            writer.save([edit("b")])
            versions.append(store.version())
            assert list_summaries(store) == ["a", "b"]
            writer.save([edit("c")])
            versions.append(store.version())
            assert list_summaries(store) == ["a", "b", "c"]
        assert list_summaries(store) == ["a", "b", "c"]
    assert len(set(versions)) == 3
    with SQLiteStore(file) as writer:  # and it cleans up what the two left
        writer.save([edit("d")])
    assert beside(file) == ["edits.db"]


def test_a_write_during_a_read_of_an_idle_file_is_an_error(file) -> None:
    with SQLiteStore(file, read_only=True) as store:
        look = pytest.raises(StoreError, match="written to while it was read")
        with look, store._database.connection("read"), SQLiteStore(file) as writer:
            writer.save([edit("b")])
        assert list_summaries(store) == ["a", "b"]


def test_writes_of_a_process_that_was_killed_are_read(file) -> None:
    code = f"import os; from refold.stores import SQLiteStore; s = SQLiteStore({str(file)!r}); s.remove([{FIRST.id!r}]); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert "edits.db-wal" in beside(file)
    with SQLiteStore(file, read_only=True) as store:
        assert list_summaries(store) == []


def test_a_load_from_a_read_only_store_does_not_try_to_mark_edits_as_used(file) -> None:
    """Each load failed to, and then opened the file anew."""
    with SQLiteStore(file) as store, store._database.transaction() as connection:
        connection.execute("UPDATE edits SET used = used - 100")
    with SQLiteStore(file, read_only=True) as store:
        versions = {(tuple(list_summaries(store)), store.version()) for _ in range(3)}
        assert len(versions) == 1


def test_writes_of_an_older_version_to_an_open_file_are_seen(tmp_path) -> None:
    """The file is read from a copy in memory, which its writer does not change."""
    writer = SQLiteDatabase(str(tmp_path / "old.db"), 1.0, "FULL", SQLITE_MIGRATIONS[:4])
    insert = "INSERT INTO edits (id, tip, json) VALUES (?, ?, ?)"
    with SQLiteStore(tmp_path / "new.db") as new, closing(writer):
        for name in ("a", "b", "c"):
            with writer.transaction() as connection:
                connection.execute(insert, (edit(name).id, "t1", dump_edit(edit(name))))
            if name == "a":
                reader = SQLiteStore(tmp_path / "old.db", read_only=True)
            new.save([edit(name)])
            assert list_summaries(reader) == list_summaries(new)
        reader.close()


@pytest.mark.parametrize("version", range(len(SQLITE_MIGRATIONS)))
def test_a_file_of_an_older_schema_is_read_without_migration(tmp_path, version) -> None:
    path = tmp_path / "old.db"
    with SQLiteStore(path) as store:
        owner = store._database._application_id
    path.unlink()
    connection = sqlite3.connect(path, isolation_level=None)
    for step in SQLITE_MIGRATIONS[:version]:
        for statement in step:
            connection.execute(statement)
    if version:
        connection.execute(f"PRAGMA application_id = {owner}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = path.read_bytes()
    with SQLiteStore(path, read_only=True) as store:
        assert list_summaries(store) == []
        assert store.ledger() == ()
        with pytest.raises(StoreError, match="readonly"):
            store.save([edit("a")])
    assert path.read_bytes() == before
    assert beside(path) == ["old.db"]


@pytest.mark.parametrize("content", [b"no database at all" * 99, b"{}"])
def test_a_file_that_is_not_a_database_is_refused(tmp_path, content) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not an SQLite database"):
        SQLiteStore(path, read_only=True)


def test_a_database_of_another_program_is_refused(tmp_path) -> None:
    path = tmp_path / "a #1%20.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StoreError, match="not one of Refold's"):
        SQLiteStore(path, read_only=True)


def test_two_threads_read_an_open_read_only_store(file) -> None:
    with SQLiteStore(file, read_only=True) as store, ThreadPoolExecutor(2) as pool:
        at_once = Barrier(2)

        def read(_: int) -> list[str]:
            at_once.wait(60)
            return list_summaries(store)

        assert list(pool.map(read, range(2))) == [["a"], ["a"]]


def test_a_fork_can_read_an_open_read_only_store(file) -> None:
    with SQLiteStore(file, read_only=True) as store:
        child = os.fork()
        if not child:
            os._exit(list_summaries(store) != ["a"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert list_summaries(store) == ["a"]


# --- where nothing may be written ------------------------------------------------------------


def read_as_nobody(file: Path) -> str:
    """What is read by a user who may write neither the file nor its directory."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(NOBODY)
            with SQLiteStore(file, read_only=True) as store:
                os.write(writing, " ".join(list_summaries(store)).encode())
        except StoreError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        return stream.read().decode()


@pytest.fixture
def read_only_file(file):
    """The file in a directory that anybody may look into and only its owner may write to."""
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    place = Path(tempfile.mkdtemp())
    shutil.copy(file, place)
    place.chmod(0o755)
    (place / "edits.db").chmod(0o444)
    yield place / "edits.db"
    shutil.rmtree(place)


def test_a_file_on_a_read_only_file_system_is_read(read_only_file) -> None:
    assert read_as_nobody(read_only_file) == "a"
    assert beside(read_only_file) == ["edits.db"]


def test_a_read_only_file_with_an_active_writer_is_read(read_only_file) -> None:
    with SQLiteStore(read_only_file) as writer:
        writer.save([edit("b")])
        for neighbour in read_only_file.parent.iterdir():
            neighbour.chmod(0o444)
        assert read_as_nobody(read_only_file) == "a b"


def test_a_file_whose_last_writes_cannot_be_recovered_is_reported(read_only_file) -> None:
    code = f"import os; from refold.stores import SQLiteStore; s = SQLiteStore({str(read_only_file)!r}); s.remove([{FIRST.id!r}]); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    (read_only_file.parent / "edits.db-shm").unlink()
    (read_only_file.parent / "edits.db-wal").chmod(0o444)
    assert "its last writes are in its -wal file still" in read_as_nobody(read_only_file)


def test_every_kind_of_store_is_a_context_manager_and_can_be_closed(tmp_path):
    """A text file was no context manager: `with open_store("a.refold")` raised TypeError."""
    for name, store_class in (("a.refold", SidecarStore), ("a.db", SQLiteStore)):
        with open_store(str(tmp_path / name)) as store:
            assert isinstance(store, store_class)
        store.close()
