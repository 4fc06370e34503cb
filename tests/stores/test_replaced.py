"""A store whose file or tables are deleted or replaced while it is open."""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Budget, Compactor
from refold.edits import Edit
from refold.messages import user
from refold.stores import SidecarStore, SQLiteStore
from refold.strategies import Summarize
from tests.support.agent_requests import chat_request
from tests.support.pipeline_driver import Driver

FILES = {"sqlite": ("a.db", SQLiteStore), "sidecar": ("a.refold", SidecarStore)}
FILLER = "Here are the details of this step. " * 10


def edit(name: str) -> Edit:
    return Edit(0, 1, (user(f"summary {name}"),), tip=f"tip{name}", by="test")


def delete(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def main_deleted(path: Path) -> None:
    """Delete the main file only, like `rm refold.db`: the log and its index stay."""
    path.unlink()


def replace_file(path: Path) -> None:
    """Replace the file by another store, as from a backup."""
    backup = path.with_name(f"other{path.suffix}")
    store = SQLiteStore(backup) if path.suffix == ".db" else SidecarStore(backup)
    store.save([edit("of the backup")])
    if isinstance(store, SQLiteStore):
        store.close()
    backup.replace(path)


WAYS = [delete, main_deleted, replace_file]


def close(store: object) -> None:
    if isinstance(store, SQLiteStore):
        store.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", FILES)
def test_c12_edits_saved_after_the_file_is_deleted_are_in_the_new_file(tmp_path, kind, way, caplog):
    """They used to go into the unlinked file, without an error, and were lost with the process."""
    name, make = FILES[kind]
    path, store = tmp_path / name, make(tmp_path / name)
    store.save([edit("before")])
    assert store.load([edit("before").tip])
    version = store.version()
    with caplog.at_level(logging.WARNING, "refold"):
        way(path)
        store.version()
        store.save([edit("after")])
    assert store.replacements == 1
    assert store.version() != version
    assert [record.getMessage().partition(" ")[2][:11] for record in caplog.records] == [
        "was deleted"
    ]
    again = make(path)
    assert again.load([edit("after").tip]) == (edit("after"),) == store.load([edit("after").tip])
    assert not again.load([edit("before").tip])  # and nothing of the old file is in the new one
    assert bool(again.load([edit("of the backup").tip])) == (way is replace_file)
    close(again)
    close(store)
    assert not list(tmp_path.glob("*-wal"))


def test_c12_two_open_stores_share_the_new_file_after_the_old_one_is_deleted(tmp_path):
    """The workers of a gateway do this. The later one to notice removes nothing of the first."""
    first, second = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")
    first.save([edit("0")])
    second.save([edit("1")])
    delete(tmp_path / "a.db")
    first.save([edit("2")])
    second.save([edit("3")])
    first.save([edit("4")])
    for store in (first, second):
        assert {loaded.id for loaded in store.load([edit(str(n)).tip for n in range(5)])} == {
            edit(str(n)).id for n in (2, 3, 4)
        }
    first.close()
    second.close()
    with SQLiteStore(tmp_path / "a.db") as third:
        assert len(third.load([edit(str(n)).tip for n in range(5)])) == 3


def test_c12_a_deleted_directory_is_an_error_until_it_is_recreated(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    store = SQLiteStore(place / "a.db")
    store.save([edit("0")])
    shutil.rmtree(place)
    with pytest.raises(Exception, match="there is no directory"):
        store.save([edit("1")])
    place.mkdir()
    store.save([edit("2")])
    assert store.replacements == 1
    store.close()


def test_c12_a_file_that_is_not_replaced_causes_no_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "refold"):
        for name, make in FILES.values():
            store = make(tmp_path / name)
            for n in range(3):
                store.save([edit(str(n))])
                store.version()
            second = make(tmp_path / name)
            second.save([edit("other")])
            close(second)
            assert store.load([edit("other").tip])
            assert store.replacements == 0
            close(store)
    assert not caplog.records


def test_c12_rows_deleted_by_others_disappear_from_an_open_store(tmp_path):
    with SQLiteStore(tmp_path / "a.db") as store:
        compact = Compactor([Summarize(keep=4)], Budget(trigger=2_000, target=1_000), store)
        assert compact(history(30)).visible_edits
        with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
            connection.execute("DELETE FROM edits")
        assert not compact.show(history(30)).edits
        assert store.replacements == 0
        assert compact(history(30)).visible_edits


# --- known edits are written again ---------------------------------------------------------------


def history(steps: int) -> list[dict]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"Step {n}. {FILLER}"}
        for n in range(steps)
    ]


@settings(max_examples=12, deadline=None)
@given(
    ways=st.lists(st.sampled_from([None, *WAYS]), min_size=4, max_size=4),
    kind=st.sampled_from(sorted(FILES)),
    late=st.booleans(),
)
def test_c12_a_compactor_keeps_its_edits_and_writes_them_to_a_replaced_file(
    tmp_path_factory, ways, kind, late
):
    """This holds whatever happens to the file between two turns, sync or async."""
    place = tmp_path_factory.mktemp("place")
    name, make = FILES[kind]
    store = make(place / name)
    budget = Budget(trigger=2_000, target=1_000)
    compact = Compactor([Summarize(keep=4)], budget, store)
    shown = compact(history(30))
    assert shown.visible_edits
    for turn, way in enumerate(ways, 31):
        if way is not None and (place / name).exists():
            way(place / name)
        before = {edit.id for edit in shown.edits}
        shown = asyncio.run(compact.acompact(history(turn))) if late else compact(history(turn))
        assert before <= {edit.id for edit in shown.edits}
    again = make(place / name)
    assert Compactor([Summarize(keep=4)], budget, again)(history(34)).payload == shown.payload
    close(again)
    close(store)


@pytest.mark.parametrize("way", WAYS)
def test_d7_a_gateway_reports_a_replaced_store_and_writes_its_edits_to_the_new_one(
    tmp_path, caplog, way: Callable[[Path], None]
):
    """It used to go unnoticed: everything continued from memory, and a restart lost it."""
    path = tmp_path / "a.db"
    store = SQLiteStore(path)
    with Driver(store) as driver, caplog.at_level(logging.WARNING, "refold"):
        first, second = (
            driver(chat_request(60), "openai_chat", credential=name) for name in ("a", "b")
        )
        way(path)
        assert driver(chat_request(61), "openai_chat", credential="a").edits == first.edits
        assert driver.count("store_replaced") == 1
        messages = [record.event for record in caplog.records if record.name == "refold.gateway"]
        assert messages == ["the store was deleted or replaced"]
        assert driver.run(driver.pipeline._outbox.flush())
    store.close()
    with SQLiteStore(path) as fresh, Driver(fresh) as after:
        assert after(chat_request(61), "openai_chat", credential="a").edits == first.edits
        assert (
            after(chat_request(61), "openai_chat", credential="b").edits == second.edits
        )  # which had sent nothing since


def test_a_sidecar_that_threads_write_and_check_at_once_was_not_replaced(tmp_path) -> None:
    store, written = SidecarStore(tmp_path / "a.refold"), Event()

    def check() -> None:
        while not written.is_set():
            store.version()

    with ThreadPoolExecutor() as pool:
        checks = [pool.submit(check) for _ in range(4)]
        try:
            for number in range(100):
                store.save([edit(str(number))])
        finally:
            written.set()
        for each in checks:
            each.result()
    assert store.replacements == 0
