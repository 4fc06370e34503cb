"""Bad input gets a clear error or an unchanged result: never a crash, never a lost message."""

import asyncio
import json
from typing import Any

import pytest

import refold
from tests.support.examples import examples_at_night


def same(payload):
    """Compact *payload* as far as possible, and check that revert restores it."""
    view = refold.compact(payload, to=1)
    assert view.revert().payload == payload
    return view


def test_an_empty_history_is_returned_unchanged():
    for empty in ([], {"messages": []}, b"[]", '{"messages":[]}', {"contents": []}, {"input": []}):
        view = same(empty)
        assert view.payload == empty
        assert view.edits == ()
        assert refold.check(empty) == ()


def test_a_single_message_is_kept():
    for payload in (
        [{"role": "user", "content": "hi"}],
        {"input": "hi"},
        b'[{"role":"user","content":"hi"}]',
    ):
        assert same(payload).payload == payload


def test_a_history_of_only_system_messages_is_counted_and_kept():
    system = [{"role": "system", "content": "Be brief. " * 500}] * 3
    view = same(system)
    assert view.payload == system
    assert view.tokens > 1_000  # counted, though no edit may touch them
    assert len(view.transcript) == 0


@pytest.mark.parametrize(
    "broken",
    [
        b"", b"{", b"[1,", b"nonsense", b'{"messages"', b'[{"role":"user"}', b'{"messages":[]} and more', b"\x00\x01", b"\xff\xfe[",
        "[" * 100_000, '{"a":' * 50_000, b'{"messages":{}}', b'{"messages":7}', b'{"other":[]}', b"42", b"null", b"[[]]", b"[3]", b"[null]",
        None, 42, 4.5, {1, 2}, {"messages": None}, {"messages": 3}, {"model": "x"}, [1], [None], [[]], ["text", 3],
    ],
    ids=lambda b: repr(b)[:24],
)  # fmt: skip
def test_malformed_payloads_get_a_clear_error(broken):
    with pytest.raises(refold.FormatError) as error:
        refold.compact(broken, to=10)
    assert 10 < len(str(error.value)) < 400


@pytest.mark.parametrize(
    "odd",
    [
        [{}], [{"role": None}], [{"role": "user"}], [{"role": "user", "content": None}], [{"role": 3, "content": []}],
        [{"role": "user", "content": {"text": "x"}}], [{"role": "user", "content": [None, 1, "x", {}]}],
        [{"role": "assistant", "tool_calls": "no"}], [{"role": "assistant", "tool_calls": [None, {}]}],
        [{"role": "tool", "content": "x"}], [{"role": "user", "content": [{"type": "tool_result"}]}],
        [{"role": "user", "content": [{"type": "image", "source": {"data": "!!", "media_type": 4}}]}],
        [{"type": "function_call"}, {"type": "function_call_output"}], [{"role": "user", "parts": [None]}],
        [{"role": "user", "parts": "x"}], [{"role": "model", "parts": [{"functionCall": 3}]}],
    ],
    ids=repr,
)  # fmt: skip
def test_malformed_messages_are_passed_through_unchanged(odd):
    assert same(odd).payload == odd
    refold.check(odd)
    refold.repair(odd)


def call(id, name="read"):
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": id, "name": name, "input": {}}],
    }


def result(id, text="x" * 900):
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": id, "content": text}],
    }


@pytest.mark.parametrize(
    "messages",
    [
        [result("a"), call("a")],
        [call("a"), call("a"), result("a"), result("a")],
        [call("a"), result("b"), call("b"), result("a")] * 4,
        [call("a"), result("a")] * 30,
        [call(""), result(""), call(""), result("")],
        [call("a")] * 30,
        [result("a")] * 30,
    ],
    ids=[
        "result first",
        "twice each",
        "in a circle",
        "one id always",
        "empty ids",
        "never answered",
        "never called",
    ],
)
def test_inconsistent_tool_ids_lead_to_no_new_violation(messages):
    history = [
        {"role": "user", "content": "go"},
        *messages,
        {"role": "assistant", "content": "end"},
    ]
    before = {(v.rule, v.subject) for v in refold.check(history)}
    view = same(history)
    assert {(v.rule, v.subject) for v in refold.check(view.payload)} <= before
    mended = refold.repair(history)
    assert refold.repair(mended.payload).payload == mended.payload


def test_binary_data_can_be_compacted_and_restored():
    data = bytes(range(256)).decode("latin-1") * 200
    history = [
        {"role": "user", "content": "go"},
        call("a"),
        result("a", data),
        call("b"),
        result("b"),
        {"role": "user", "content": "on"},
    ]
    same(history)
    same(json.dumps(history).encode())
    same(b'[{"role":"user","content":"' + b"\xff\xfe\x80" * 5_000 + b'"}]')


def test_lone_surrogates_can_be_compacted_and_restored():
    history = [
        {"role": "user", "content": "\ud800 go"},
        call("a"),
        result("a", "\udfff" * 9_000),
        {"role": "user", "content": "on"},
    ]
    same(history)
    data = json.dumps(history).encode()
    assert refold.compact(data, to=1).revert().payload == data


@pytest.mark.slow
def test_a_line_of_megabytes_can_be_compacted_and_restored():
    line = "value=0x7fff; " * examples_at_night(750_000, 7_500_000)
    history = [
        {"role": "user", "content": "go"},
        call("a"),
        result("a", line),
        call("b"),
        result("b"),
        {"role": "assistant", "content": "ok"},
    ]
    view = same(history)
    assert view.tokens < 30_000


@pytest.mark.slow
def test_thousands_of_empty_messages_can_be_compacted_and_restored():
    history = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": []},
    ] * examples_at_night(4_000, 100_000)
    view = refold.compact(history, to=1_000)
    assert view.revert().payload == history


def test_a_message_that_contains_itself_raises_format_error() -> None:
    history: list[dict[str, object]] = [{"role": "user", "content": "x"}]
    history[0]["self"] = history
    with pytest.raises(refold.FormatError, match="holds itself, or is nested too deeply"):
        refold.compact(history, to=10)


def test_the_error_for_a_number_too_large_for_python_says_so() -> None:
    text = '[{"role": "user", "content": "x", "a": ' + "9" * 4_301 + "}]"
    with pytest.raises(
        refold.FormatError, match="a number in this JSON is larger than Python reads"
    ):
        refold.compact(text, to=10)


def test_a_tuple_of_messages_is_returned_as_a_tuple() -> None:
    history = (
        {"role": "user", "content": "x " * 500},
        {"role": "assistant", "content": "y " * 500},
    ) * 20
    for payload in (history, {"messages": history}):
        view = refold.compact(payload, to=4_000)
        assert view.edits and view.revert().payload == payload
        assert type(view.payload) is type(payload)


DEEP: Any = "x"
for _ in range(3_000):
    DEEP = {"a": [DEEP]}
ASKED = {"role": "user", "content": "Hello"}
TOO_DEEP = {
    "a field": {"model": "m", "metadata": DEEP, "messages": [ASKED]},
    "the system prompt": {"model": "claude-opus-5-5", "system": DEEP, "messages": [ASKED]},
    "a leading system message": {
        "model": "m",
        "messages": [{"role": "system", "content": "s", "x": DEEP}, ASKED],
    },
    "a tool": {
        "model": "m",
        "tools": [{"type": "function", "function": {"parameters": DEEP}}],
        "messages": [ASKED],
    },
    "an entry": {"model": "m", "messages": [{**ASKED, "x": DEEP}]},
    "a part": {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "t", "x": DEEP}]}],
    },
    "Gemini's system prompt": {
        "systemInstruction": DEEP,
        "contents": [{"role": "user", "parts": [{"text": "t"}]}],
    },
    "a call of Gemini's": {
        "contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": DEEP}}]}]
    },
}


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("place", TOO_DEEP)
def test_c15_deep_nesting_is_refused_with_a_message_at_any_place(
    place: str, is_known: bool
) -> None:
    """From 500 levels on, every call used to raise RecursionError."""
    body, compact = TOO_DEEP[place], refold.Compactor([], refold.Budget(10**6, 10**6))
    if is_known:
        compact({"model": "m", "messages": [ASKED]})
    calls = [
        compact,
        compact.check,
        compact.preview,
        compact.compact_now,
        compact.revert,
        compact.ledger_rows,
        lambda history: asyncio.run(compact.acompact(history)),
    ]
    if "messages" in body:
        calls.append(
            lambda history: compact.session().append(*history["messages"], {**ASKED, "x": DEEP})
        )
    for call in calls:
        with pytest.raises(refold.FormatError, match="nested too deeply"):
            call(body)


@pytest.mark.parametrize("place", ["{}", '{{"n": {}}}', '[{{"n": [{}]}}]'])
def test_a_result_with_a_number_of_many_digits_can_be_compacted(place: str) -> None:
    """A result with a number of more than 200 digits made each compaction fail with a TypeError."""
    output = place.format("7" * 300)
    call = {"type": "tool_use", "id": "t1", "name": "get", "input": {"key": int("3" * 300)}}
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [call]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": output}],
        },
        {"role": "assistant", "content": "The key is there. " * 200},
        {"role": "user", "content": "On."},
    ]
    assert refold.compact(history, to=1).edits
