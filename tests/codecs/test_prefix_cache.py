"""JSON texts that extend one another are read like new texts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.codecs.codec import split_payload
from refold.codecs.detect import open_payload
from refold.codecs.json_text import MAX_ENTRIES, MOVING, PrefixCache
from refold.errors import FormatError

ENTRIES = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.integers(),
        st.lists(st.text(max_size=3), max_size=3),
        st.dictionaries(st.text(max_size=4), st.text('ab\\"[]{},é你😀', max_size=9), max_size=3),
    ),
    max_size=20,
)
CHANGES = st.sampled_from(["grow", "grow", "again", "rewind", "change", "break", "head"])


def write_body(entries: list[Any], head: str, ascii: bool) -> bytes:
    spelled_entries = ", ".join(json.dumps(entry, ensure_ascii=ascii) for entry in entries)
    return f'{{"model": {json.dumps(head)}, "messages": [ {spelled_entries}], "stream": true}}'.encode()


def read(source: bytes, **options: Any) -> Any:
    try:
        payload = split_payload(source, **options)
    except FormatError as error:
        return str(error)
    entries = payload.raw_entries
    return (
        payload.field,
        payload.body,
        [(entry.start, entry.stop, entry.load()) for entry in entries],
        entries.fingerprints(),
        entries.fingerprints(1),
    )


@given(
    ENTRIES,
    st.lists(st.tuples(CHANGES, ENTRIES, st.integers(0, 30)), max_size=12),
    st.booleans(),
    st.text("m", max_size=2),
)
def test_reading_with_the_cache_gives_the_same_as_without_it(entries, changes, ascii, head):
    cache = PrefixCache(max_lists=3, min_bytes=0)
    for change, added, at in [("again", [], 0), *changes]:
        source = write_body(entries, head, ascii)
        match change:
            case "grow":
                entries = [*entries, *added]
            case "rewind":
                entries = entries[:at]
            case "change" if at < len(entries):
                entries = [*entries[:at], "other", *entries[at + 1 :]]
            case "head":
                head += "m"
            case "break":
                source = source[: len(source) - at]
        if change != "break":
            source = write_body(entries, head, ascii)
        assert read(source, lookup=cache.lookup) == read(source)
        assert len(cache) <= 6


def write_long_body(turns: int) -> bytes:
    messages = [{"role": "user", "content": f"{turn} " + "word " * 2_000} for turn in range(turns)]
    return json.dumps({"model": "m", "messages": messages}).encode()


def test_only_entries_after_the_cached_prefix_are_parsed() -> None:
    cache = PrefixCache()
    open_payload(write_long_body(10), lookup=cache.lookup)
    reading = cache.lookup(write_long_body(11), write_long_body(11).index(b"["))
    assert reading is not None and len(reading.entries) == 10
    open_payload(write_long_body(11), lookup=cache.lookup)
    assert len(cache) == 1, "the longer list has taken the place of the one that it goes on from"
    for turns in (16, 17, 20):
        open_payload(write_long_body(turns), lookup=cache.lookup)
        assert len(cache) == 2, "whole, and without what moves"
    moved = write_long_body(20).replace(b"18 word", b"18 w0rd")
    reading = cache.lookup(moved, moved.index(b"["))
    assert reading is not None and len(reading.entries) == 20 - MOVING
    assert cache.lookup(write_long_body(2), 0) is None, "a short text is as soon read"
    assert cache.lookup(write_long_body(11).decode(), 0) is None


def test_a_cached_prefix_of_one_tenant_is_not_used_for_another() -> None:
    cache, source = PrefixCache(), write_long_body(10)
    at = source.index(b"[")
    reading = cache.lookup(source, at, b"one")
    assert reading is not None
    reading.store(split_payload(source).raw_entries)
    counts = [
        len(reading_of_scope.entries)
        for scope in (b"one", b"two")
        if (reading_of_scope := cache.lookup(source, at, scope))
    ]
    assert counts == [10, 0]


@pytest.mark.parametrize("tail", [b"", b"]", b"]}", b",", b', {"role": "user"', b"]} x"])
def test_malformed_json_after_a_cached_prefix_gives_the_same_error(tail: bytes) -> None:
    cache, source = PrefixCache(), write_long_body(10)
    open_payload(source, lookup=cache.lookup)
    broken = source[:-2] + tail
    expected = read(broken)
    assert read(broken, lookup=cache.lookup) == expected
    assert isinstance(expected, str) or tail == b"]}"


def test_a_compactor_gives_the_same_view_with_and_without_a_cached_prefix() -> None:
    budget = refold.Budget(trigger=30_000, target=15_000)
    compactor = refold.Compactor(refold.default_strategies(15_000), budget)
    for turns in range(8, 30, 3):
        shown = compactor(write_long_body(turns)).payload
        stranger = refold.Compactor(
            refold.default_strategies(15_000), budget, store=compactor.settings.store
        )
        assert stranger(write_long_body(turns)).payload == shown


def test_a_number_at_the_end_of_the_prefix_may_have_more_digits() -> None:
    cache = PrefixCache(min_bytes=0)
    for text in (
        b'{"input": ["a", 1]}',
        b'{"input": ["a", 12]}',
        b'{"input": ["a", 12, "b"]}',
        b'{"input": ["a", 123, "b"]}',
    ):
        assert read(text, lookup=cache.lookup) == read(text)


def test_the_number_of_cached_entries_is_limited() -> None:
    """A body with very many small entries evicts the others and is not cached itself."""
    cache = PrefixCache(min_bytes=0)
    open_payload(write_long_body(10), lookup=cache.lookup)
    many = b'{"messages": [' + b",".join([b"{}"] * (MAX_ENTRIES // 2 + MOVING + 1)) + b"]}"
    split_payload(many, lookup=cache.lookup)
    assert cache.entries <= MAX_ENTRIES and len(cache) == 1
