"""The JSON form of edits and ledger rows: exact, stable, and tolerant of future fields."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.edits import Edit
from refold.errors import StoreError
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, user
from refold.stores.edit_json import (
    dump_edit,
    dump_row,
    edit_fields,
    load_edit,
    load_row,
    read_edit,
)
from refold.stores.store import LedgerRow

chars = st.characters() | st.sampled_from('\ud83d\ude00\ud800\udfff\x00\u2028\u0085\\"\n😀中')
texts = st.text(chars, max_size=12)
naturals = st.integers(0, 2**70)
plain = st.one_of(
    st.builds(Text, texts),
    st.builds(Media, texts, texts, texts, naturals, naturals, naturals),
    st.builds(Opaque, texts, texts, texts, texts),
)
results = st.builds(ToolResult, texts, st.lists(plain, max_size=3).map(tuple), st.booleans(), texts)
parts = st.one_of(
    plain, results, st.builds(Thinking, texts, texts), st.builds(ToolCall, texts, texts, texts)
)
messages = st.builds(Message, texts, st.lists(parts, max_size=4).map(tuple))
edits = st.builds(Edit, naturals, naturals, st.lists(messages, max_size=3).map(tuple), texts, texts)
numbers = st.floats(allow_nan=False, allow_infinity=False)
rows = st.builds(
    LedgerRow,
    when=numbers,
    outcome=st.sampled_from(["applied", "noop", "rejected", "degraded", "failed"]),
    edit=st.none() | texts,
    by=texts,
    reason=texts,
    before=naturals,
    after=naturals,
    calls=naturals,
    cost=numbers,
    model=texts,
    prompt=texts,
    grade=st.sampled_from(["", "exact", "recoverable", "lossy"]),
)


@given(edits)
def test_an_edit_round_trips_exactly(edit):
    line = dump_edit(edit)
    assert "\n" not in line
    assert load_edit(line) == load_edit(line.encode()) == edit
    assert dump_edit(load_edit(line)) == line


@given(rows)
def test_a_ledger_row_round_trips_exactly(row):
    line = dump_row(row)
    assert load_row(line.encode()) == row
    assert dump_row(load_row(line)) == line


def test_the_json_of_an_edit_is_the_documented_one():
    call, result = (
        ToolCall("c", "read", "{}"),
        ToolResult("c", (Text("中文"), Media("image", width=3)), error=True),
    )
    edit = Edit(
        2, 4, (Message("assistant", (call,)), Message("tool", (result,))), "ab12", "Clip(4)"
    )
    assert dump_edit(edit) == (
        '{"refold":1,"id":"ID","start":2,"stop":4,"tip":"ab12","by":"Clip(4)","insert":['
        '{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"read","arguments":"{}"}]},'
        '{"role":"tool","parts":[{"type":"tool_result","id":"c","content":[{"type":"text","text":"中文"},'
        '{"type":"media","kind":"image","width":3}],"error":true}]}]}'.replace("ID", edit.id)
    )


@given(st.text(st.sampled_from("\ud83d\ude00a\\")))
def test_lone_surrogates_round_trip(text):
    edit = Edit(0, 1, (user(text),), "t")
    assert load_edit(dump_edit(edit)).insert[0].text == text
    assert json.loads(dump_edit(edit))["refold"] == 1


def dump_with(edit, **changes):
    return json.dumps({**json.loads(dump_edit(edit)), **changes})


EDIT = Edit(0, 1, (Message("user", (Text("x"),)),), "t", "b")


def test_unknown_fields_are_ignored():
    line = dump_with(
        EDIT,
        colour="blue",
        insert=[{"role": "user", "mood": 1, "parts": [{"type": "text", "text": "x", "n": []}]}],
    )
    assert load_edit(line) == EDIT


def test_a_newer_format_is_refused_with_a_clear_error():
    with pytest.raises(
        StoreError, match="written in format 2; this version of Refold reads formats up to 1"
    ):
        load_edit(dump_with(EDIT, refold=2))


def test_an_edit_with_an_amended_text_keeps_its_id():
    amended = dump_with(
        EDIT, insert=[{"role": "user", "parts": [{"type": "text", "text": "better"}]}]
    )
    assert load_edit(amended).id == EDIT.id


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "malformed JSON"),
        ("{", "malformed JSON"),
        ("[" * 100_000, "malformed JSON"),
        (b"\xff\xfe\xfd", "malformed JSON"),
        ("[]", "a JSON object was expected, not list"),
        ("{}", "field 'refold' is missing"),
        ('{"refold":true}', "field 'refold' is of the wrong type"),
        (dump_with(EDIT, start="0"), "field 'start' is of the wrong type"),
        (dump_with(EDIT, tip=None), "field 'tip' is missing"),
        (dump_with(EDIT, by=["a", 1]), "field 'by' is of the wrong type"),
        (dump_with(EDIT, insert=["x"]), "a JSON object was expected, not str"),
        (
            dump_with(EDIT, insert=[{"role": "user", "parts": [{"type": "smell"}]}]),
            "unknown type of part 'smell'",
        ),
        (dump_with(EDIT, stop=2), "damaged: it says edit"),
        (
            dump_with(
                EDIT,
                insert=[
                    {
                        "role": "t",
                        "parts": [
                            {"type": "tool_result", "id": "", "content": [{"type": "thinking"}]}
                        ],
                    }
                ],
            ),
            "cannot hold a part of type 'thinking'",
        ),
    ],
)
def test_a_broken_edit_is_refused_with_a_clear_error(line, says):
    with pytest.raises(StoreError, match=says):
        load_edit(line)


def test_results_nested_in_results_without_end_are_refused():
    """They ended in a RecursionError, so that the whole file could not be read."""
    part = {"type": "text", "text": "x"}
    for _ in range(5_000):
        part = {"type": "tool_result", "id": "t", "content": [part]}
    document = {**edit_fields(EDIT), "insert": [{"role": "user", "parts": [part]}]}
    with pytest.raises(StoreError, match="cannot hold a part of type 'tool_result'"):
        read_edit(document)


def test_every_field_of_a_row_is_written():
    row = LedgerRow(
        when=1.5, outcome="applied", edit="e", by="b", reason="r", before=9, after=3, calls=1, cost=0.25,
        model="m", prompt="p", grade="lossy", action="revert", actor="a", trigger="t", run="n", tip="h",
    )  # fmt: skip
    assert list(json.loads(dump_row(row))) == [
        "refold",
        *(field.name for field in fields(LedgerRow)),
    ]
