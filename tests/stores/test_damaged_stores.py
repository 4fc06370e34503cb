"""Damaged store files, and impossible paths, raise a `StoreError` (C16)."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import SidecarStore, SQLiteStore, StoreError
from refold.edits import Edit
from refold.messages import user
from refold.stores.store import LedgerRow

EDITS = [Edit(0, n + 1, (user("a text, 你好 " * 30),), f"tip{n}", "Summarize()") for n in range(20)]
ROWS = [
    LedgerRow(
        when=1.0,
        outcome="applied",
        edit=edit.id,
        by="x",
        reason="你",
        before=1,
        after=1,
        tip=edit.tip,
    )
    for edit in EDITS
]
STORES = (SQLiteStore, SidecarStore)


def uses(store: Any) -> list[Callable[[], object]]:
    """Return a call of every operation of a store."""
    return [
        store.version,
        store.ledger,
        lambda: store.load([edit.tip for edit in EDITS]),
        lambda: store.ledger_of(["tip1"]),
        lambda: store.save(EDITS[:2]),
        lambda: store.remove([EDITS[0].id]),
        lambda: store.record(ROWS[:1]),
    ]


def write_bytes(kind: Any, path: Path) -> bytes:
    """Write a store with edits and rows, and return the bytes of its file."""
    store = kind(path)
    store.save(EDITS)
    store.record(ROWS)
    if isinstance(store, SQLiteStore):
        store.close()
    return path.read_bytes()


def use(kind: Any, path: Any) -> list[str]:
    """Run every operation of a store at *path*, and return the messages of its store errors."""
    try:
        store = kind(path)
    except StoreError as error:
        return [str(error)]
    reasons = []
    for call in uses(store):
        try:
            call()
        except StoreError as error:
            reasons.append(str(error))
    if isinstance(store, SQLiteStore):
        store.close()
    return reasons


@pytest.mark.parametrize("kind", STORES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=60)),
        min_size=1,
        max_size=9,
    )
)
def test_c16_law_damage_anywhere_in_a_file_raises_at_most_a_store_error(
    tmp_path: Path, kind: Any, damage: Sequence[tuple[float, bytes]]
) -> None:
    """A store with a damaged file used to raise UnicodeDecodeError and TypeError."""
    whole = tmp_path / "whole"
    data = bytearray(whole.read_bytes() if whole.exists() else write_bytes(kind, whole))
    for share, damage_bytes in damage:
        at = int(share * len(data))
        data[at : at + len(damage_bytes)] = damage_bytes
    for file in tmp_path.glob("damaged*"):
        file.unlink()
    path = tmp_path / "damaged"
    path.write_bytes(data)
    use(kind, path)


@pytest.mark.parametrize("word", [b"CREATE", b"TABLE", b"edits", b"tip", b"Summarize", b"applied"])
@pytest.mark.parametrize("kind", STORES)
def test_c16_words_overwritten_with_invalid_utf8_raise_at_most_a_store_error(
    tmp_path: Path, kind: Any, word: bytes
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(write_bytes(kind, tmp_path / "whole").replace(word, b"\x88" * len(word)))
    use(kind, path)


def test_c16_a_row_whose_value_is_not_text_raises_a_store_error(tmp_path: Path) -> None:
    """The type of a value is one byte of the file. Damage turns a text into a number or NULL."""
    path = tmp_path / "damaged"
    write_bytes(SQLiteStore, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "PRAGMA writable_schema = ON;"
            "UPDATE sqlite_schema SET sql = replace(sql, 'json TEXT NOT NULL', 'json');"
            "PRAGMA writable_schema = RESET;"
            "UPDATE edits SET json = 7; UPDATE ledger SET json = NULL;"
        )
    assert len([reason for reason in use(SQLiteStore, path) if "malformed JSON" in reason]) >= 2


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    "name", ["a\0b", "half \ud800", "x" * 5_000, "no/such/folder", "whole/below", b"a\0b"]
)
def test_c16_an_impossible_path_raises_a_store_error(tmp_path: Path, kind: Any, name: Any) -> None:
    write_bytes(kind, tmp_path / "whole")
    path = os.path.join(os.fsencode(tmp_path) if isinstance(name, bytes) else str(tmp_path), name)  # noqa: PTH118 - bytes too
    assert use(kind, path)


@pytest.mark.parametrize("kind", STORES)
def test_c16_a_directory_as_the_path_raises_a_clear_store_error(tmp_path: Path, kind: Any) -> None:
    assert all("directory" in reason.lower() for reason in use(kind, tmp_path))
    assert use(kind, tmp_path)


def test_c16_a_path_may_be_given_in_bytes(tmp_path: Path) -> None:
    for kind in STORES:
        assert use(kind, os.fsencode(tmp_path / kind.__name__)) == []
        reasons = use(kind, os.fsencode(tmp_path))
        assert reasons and all(reason.startswith(f"{tmp_path}: ") for reason in reasons)


def test_an_error_does_not_quote_stored_text(tmp_path: Path) -> None:
    """The gateway logs the message. Python's module quotes text that it cannot decode."""
    path = tmp_path / "edits.db"
    with SQLiteStore(path) as store:
        store.save(EDITS[:1])
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE edits SET json = CAST(json || x'ff' AS TEXT)")
        database.commit()
    with SQLiteStore(path) as store, pytest.raises(StoreError, match="Could not decode") as caught:
        store.load([EDITS[0].tip])
    assert "a text" not in str(caught.value) and "你好" not in str(caught.value)
