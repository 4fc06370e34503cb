"""`repair` fixes broken requests and changes nothing else."""

import json
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from refold.codecs.detect import CODECS, open_payload
from refold.codecs.repair import RepairResult, check, repair
from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, ToolResult, user
from refold.rules.rule import NO_CALL, NO_RESULT
from tests.support.recordings import read_bodies

# --- the four formats, in short ---------------------------------------------------------------


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": f"tool_{name}", "input": {}, **fields}


def result_of(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": f"done {name}", **fields}


def no_result(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": NO_RESULT, "is_error": True}


def claude(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def ask(*blocks: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "content": blocks[0] if len(blocks) == 1 and isinstance(blocks[0], str) else list(blocks),
    }


def chat_call(*names: str) -> dict[str, Any]:
    calls = [
        {"id": name, "type": "function", "function": {"name": f"tool_{name}", "arguments": "{}"}}
        for name in names
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_done(name: str, content: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content}


def item_call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": f"tool_{name}", "arguments": "{}"}


def item_done(name: str, output: str = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": output}


def item_said(role: str, value: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": role,
        "content": [{"type": "input_text" if role == "user" else "output_text", "text": value}],
    }


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def contents(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def fn(name: str) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}}}


def fn_done(name: str, output: str = "done") -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": output}}}


def mend(items: list[Any], format: str, *, unmended: int = 0) -> list[Any]:
    """Return the repaired entries. Assert that the remaining faults are as stated, and that a
    second repair does nothing."""
    before = json.dumps(items)
    fixed = repair(items, format)
    assert json.dumps(items) == before, "the caller's payload was changed"
    assert fixed.repairs
    assert all(0 <= step.at < len(items) and step.text for step in fixed.repairs)
    assert len(fixed.remaining) == unmended
    assert check(fixed.payload, format) == fixed.remaining
    again = repair(fixed.payload, format)
    assert (again.payload, again.repairs) == (fixed.payload, ())
    assert again.payload is fixed.payload
    return fixed.payload


# --- conformance.md, "Structural repair" ------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "before", "after"),
    [
        (
            "anthropic",
            [ask("1"), claude(use("a")), ask("2")],
            [ask("1"), claude(use("a")), ask(no_result("a"), text("2"))],
        ),
        (
            "openai_chat",
            [ask("1"), chat_call("a"), ask("2")],
            [ask("1"), chat_call("a"), chat_done("a", NO_RESULT), ask("2")],
        ),
        (
            "openai_responses",
            [item_said("user", "1"), item_call("a"), item_said("user", "2")],
            [
                item_said("user", "1"),
                item_call("a"),
                item_done("a", NO_RESULT),
                item_said("user", "2"),
            ],
        ),
        (
            "gemini",
            [contents({"text": "1"}), model(fn("a")), contents({"text": "2"})],
            [
                contents({"text": "1"}),
                model(fn("a")),
                contents(
                    {"functionResponse": {"name": "a", "response": {"error": NO_RESULT}}},
                    {"text": "2"},
                ),
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_conformance_13_a_call_without_result_gets_one_directly_after_it(
    format: str, before: list[Any], after: list[Any]
) -> None:
    assert mend(before, format) == after
    assert repair(before, format) == repair(before, format)


def test_conformance_13_unanswered_parallel_calls_get_results_too() -> None:
    before = [ask("1"), claude(use("a"), use("b"), use("c")), ask(result_of("b"), text("stop"))]
    after = [
        before[0],
        before[1],
        ask(no_result("a"), result_of("b"), no_result("c"), text("stop")),
    ]
    assert mend(before, "anthropic") == after
    chat = [ask("1"), chat_call("a", "b", "c"), chat_done("b"), ask("2")]
    assert mend(chat, "openai_chat") == [
        *chat[:2],
        chat_done("a", NO_RESULT),
        chat[2],
        chat_done("c", NO_RESULT),
        chat[3],
    ]


@pytest.mark.parametrize(
    ("call", "output"),
    [
        (
            {
                "type": "custom_tool_call",
                "call_id": "a",
                "name": "apply_patch",
                "input": "*** Begin Patch",
            },
            {"type": "custom_tool_call_output", "call_id": "a", "output": NO_RESULT},
        ),
        (
            {
                "type": "local_shell_call",
                "call_id": "a",
                "action": {"type": "exec", "command": ["ls"]},
            },
            {"type": "local_shell_call_output", "id": "a", "output": NO_RESULT},
        ),
    ],
)
def test_conformance_13_an_added_output_has_the_type_of_its_call(
    call: dict[str, Any], output: dict[str, Any]
) -> None:
    items = [item_said("user", "1"), call, item_said("user", "2")]
    assert mend(items, "openai_responses") == [items[0], call, output, items[2]]


def test_conformance_13_a_call_whose_output_cannot_be_written_is_removed() -> None:
    items = [
        item_said("user", "1"),
        {"type": "computer_call", "call_id": "a", "action": {}},
        item_said("user", "2"),
    ]
    assert mend(items, "openai_responses") == [items[0], items[2]]


def test_conformance_13_a_legacy_function_is_answered_by_its_name() -> None:
    legacy = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "ls", "arguments": "{}"},
    }
    answer = {"role": "function", "name": "ls", "content": NO_RESULT}
    assert mend([ask("1"), legacy, ask("2")], "openai_chat") == [
        ask("1"),
        legacy,
        answer,
        ask("2"),
    ]


def test_conformance_14_a_result_without_a_call_is_removed_and_other_blocks_stay() -> None:
    note, cached = text("and now?"), result_of("b", cache_control={"type": "ephemeral"})
    items = [ask("1"), claude(use("b")), ask(result_of("x"), cached, result_of("y"), note)]
    fixed = mend(items, "anthropic")
    assert fixed == [items[0], items[1], ask(cached, note)]
    assert fixed[2]["content"][0] is cached
    assert fixed[2]["content"][1] is note
    assert fixed[0] is items[0]


@pytest.mark.parametrize(
    ("format", "items", "gone"),
    [
        (
            "openai_chat",
            [ask("1"), chat_done("x"), chat_call("a"), chat_done("a"), chat_done("a"), ask("2")],
            (1, 4),
        ),
        (
            "openai_responses",
            [
                item_said("user", "1"),
                item_done("x"),
                item_call("a"),
                item_done("a"),
                item_done("a"),
            ],
            (1, 4),
        ),
        ("gemini", [contents({"text": "1"}), contents(fn_done("x"), {"text": "2"})], None),
    ],
    ids=["openai_chat", "openai_responses", "gemini"],
)
def test_conformance_14_a_result_without_a_call_is_removed_in_the_other_formats(
    format: str, items: list[Any], gone: tuple[int, ...] | None
) -> None:
    expected = (
        [item for at, item in enumerate(items) if at not in gone]
        if gone
        else [items[0], contents({"text": "2"})]
    )
    assert mend(items, format) == expected


def test_conformance_15_an_emptied_message_is_removed_and_roles_still_alternate() -> None:
    items = [
        ask("1"),
        claude(text("let me see")),
        ask(result_of("x")),
        claude(text("well")),
        ask("2"),
    ]
    assert mend(items, "anthropic") == [
        ask("1"),
        claude(text("let me see"), text("well")),
        ask("2"),
    ]


def test_conformance_15_the_first_message_remains_a_user_message() -> None:
    items = [ask(result_of("x")), claude(text("well")), ask("2")]
    assert mend(items, "anthropic") == [ask(f"{NO_CALL}\ndone x"), *items[1:]]


def test_conformance_16_responses_in_another_order_are_put_in_order() -> None:
    first, second = fn_done("a"), {**fn_done("b"), "thoughtSignature": "c2ln"}
    items = [
        contents({"text": "1"}),
        model(fn("a"), fn("b")),
        contents(second, first, {"text": "2"}),
    ]
    fixed = mend(items, "gemini")
    assert fixed == [*items[:2], contents(first, second, {"text": "2"})]
    assert fixed[2]["parts"][1] is second


def test_conformance_16_results_split_over_two_messages_are_merged() -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }
    shot = result_of("b", content=[image], cache_control={"type": "ephemeral"})
    items = [
        ask("1"),
        claude(use("a"), use("b")),
        ask(shot),
        ask(result_of("a"), text("both")),
        claude(text("ok")),
    ]
    fixed = mend(items, "anthropic")
    assert fixed == [*items[:2], ask(result_of("a"), shot), ask(text("both")), claude(text("ok"))]
    assert fixed[2]["content"][1] is shot
    parts = [
        contents({"text": "1"}),
        model(fn("a"), fn("b")),
        contents(fn_done("b")),
        contents(fn_done("a")),
    ]
    assert mend(parts, "gemini") == [*parts[:2], contents(fn_done("a"), fn_done("b"))]


def test_conformance_16_tool_messages_are_put_directly_after_their_calls() -> None:
    late = [ask("1"), chat_call("a", "b"), chat_done("b"), ask("2"), chat_done("a")]
    fixed = mend(late, "openai_chat")
    assert fixed == [late[0], late[1], chat_done("a"), chat_done("b"), late[3]]
    assert fixed[2] is late[4]
    twice = [ask("1"), chat_call("a"), chat_call("b"), chat_done("a"), chat_done("b")]
    assert mend(twice, "openai_chat") == [twice[0], twice[1], twice[3], twice[2], twice[4]]


def test_conformance_16_results_are_put_before_other_content() -> None:
    items = [ask("1"), claude(use("a")), ask(text("wait"), result_of("a"), text("now"))]
    assert mend(items, "anthropic") == [*items[:2], ask(result_of("a"), text("wait"), text("now"))]


def search(name: str) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": name, "name": "web_search", "input": {"query": "x"}}


def search_result(name: str) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": name, "content": []}


def test_conformance_17_unpaired_server_tool_blocks_are_removed_and_pairs_stay() -> None:
    whole = claude(text("look"), search("s1"), search_result("s1"))
    items = [
        ask("1"),
        whole,
        ask("2"),
        claude(search("s2"), text("hm")),
        ask("3"),
        claude(search_result("s3"), text("ok")),
        ask("4"),
    ]
    assert mend(items, "anthropic") == [
        ask("1"),
        whole,
        ask("2"),
        claude(text("hm")),
        ask("3"),
        claude(text("ok")),
        ask("4"),
    ]
    assert repair(items[:3], "anthropic").payload[1] is whole


def test_conformance_17_a_message_of_only_an_unpaired_block_is_removed() -> None:
    items = [ask("1"), claude(search("s1")), ask("2")]
    assert mend(items, "anthropic") == [ask(text("1"), text("2"))]


def test_conformance_18_a_boundary_inside_the_kept_window_leaves_no_orphan() -> None:
    items = [
        ask("1"),
        claude(use("a")),
        ask(result_of("a")),
        claude(use("b")),
        ask(result_of("b")),
        claude(use("c")),
        ask(result_of("c")),
    ]
    envelope = open_payload(items, "anthropic")
    view = View.of(
        envelope.decode(), profile=Profile(rules=envelope.codec.rules({})), source=envelope
    )
    view = view.apply(view.fold(0, 3, user("first summary")))
    for stop in sorted(cut for cut in view.cuts if cut > 3):
        nested = view.apply(view.fold(0, stop, user("second summary")))
        assert check(nested.payload, "anthropic") == ()
        assert (
            check(
                nested.apply(nested.fold(0, max(nested.cuts), user("third"))).payload, "anthropic"
            )
            == ()
        )
    assert not view.cuts & {1, 2, 4, 6}


def test_conformance_19_the_result_of_an_aborted_call_is_hidden_with_its_call() -> None:
    aborted = [
        ask("1"),
        claude(use("a"), use("b")),
        ask(result_of("a"), text("stop")),
        claude(text("ok")),
        ask("2"),
    ]
    fixed = repair(aborted, "anthropic").payload
    envelope = open_payload(fixed, "anthropic")
    view = View.of(
        envelope.decode(), profile=Profile(rules=envelope.codec.rules({})), source=envelope
    )
    assert not view.cuts & {2}
    shown = view.apply(view.fold(1, 3, user("they tried two things"))).payload
    assert check(shown, "anthropic") == ()
    assert NO_RESULT not in json.dumps(shown)


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_conformance_21_roles_still_alternate_after_a_compaction(format: str) -> None:
    codec = next(codec for codec in CODECS if format == codec.NAME)
    messages = [
        user("1"),
        Message("assistant", (Text("a"),)),
        user("2"),
        Message("assistant", (Text("b"),)),
        user("3"),
    ]
    items = [codec.encode(message) for message in messages]
    envelope = open_payload(items, format)
    view = View.of(envelope.decode(), profile=Profile(rules=codec.rules({})), source=envelope)
    for start in sorted(view.cuts):
        for stop in sorted(cut for cut in view.cuts if cut > start):
            shown = view.apply(view.fold(start, stop, user("summary"))).payload
            roles = [item["role"] for item in shown]
            assert roles[0] == "user"
            assert all(role != following for role, following in pairwise(roles))
            assert check(shown, format) == ()


# --- what is not changed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "items"),
    [
        ("anthropic", [ask("1"), claude(use("a"), use("b")), ask(result_of("a"))]),
        ("anthropic", [ask("1"), claude(search("s"))]),
        ("openai_chat", [ask("1"), chat_call("a", "b"), chat_done("b")]),
        (
            "openai_responses",
            [item_said("user", "1"), item_call("a"), item_call("b"), item_done("b")],
        ),
        ("gemini", [contents({"text": "1"}), model(fn("a"), fn("b"))]),
    ],
)
def test_conformance_20_calls_at_the_very_end_are_pending_and_not_repaired(
    format: str, items: list[Any]
) -> None:
    fixed = repair(items, format)
    assert fixed.payload is items
    assert fixed.repairs == fixed.remaining == ()


@pytest.mark.parametrize("payload", [[], {"messages": []}, "[ ]", b'{"input": "hi"}'])
def test_a_valid_payload_is_returned_as_the_same_object(payload: Any) -> None:
    assert repair(payload).payload is payload


def test_a_violation_that_cannot_be_repaired_is_reported() -> None:
    first = [claude(text("hello")), ask("1")]
    fixed = repair(first, "anthropic")
    assert (fixed.payload, fixed.repairs) == (first, ())
    assert [(violation.rule, violation.at) for violation in fixed.remaining] == [("AN-4", 0)]
    assert fixed.remaining[0].unmended.startswith("a user's message would have to be invented")
    assert check(first, "anthropic")[0].unmended == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("u s u a", "u u s a"),
        ("u a s u", "u a u s"),
        ("u a s a", "u s a a"),
        ("u s u s a s a u", "u u s s a a u s"),
        ("u s s a u", "u s s a u"),
    ],
)
def test_system_messages_are_moved_to_after_user_messages(before: str, after: str) -> None:
    """Their text stays, in order, where Claude accepts it (AN-4)."""
    roles = {"u": "user", "s": "system", "a": "assistant"}
    messages = [{"role": roles[role], "content": f"{n}"} for n, role in enumerate(before.split())]
    body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": messages}
    fixed = repair(body, "anthropic")
    new = fixed.payload["messages"]
    assert " ".join(message["role"][0] for message in new) == after
    assert fixed.remaining == () and sorted(message["content"] for message in new) == [
        message["content"] for message in messages
    ]
    systems = [message["content"] for message in new if message["role"] == "system"]
    assert systems == sorted(systems)
    text = repair(json.dumps(body), "anthropic").payload
    assert json.loads(text) == fixed.payload and not repair(text).repairs


def test_bedrock_system_messages_are_moved_and_the_turns_they_split_are_joined() -> None:
    turns = ("user", "a"), ("system", "b"), ("user", "c"), ("assistant", "d")
    messages = [{"role": role, "content": [{"text": words}]} for role, words in turns]
    fixed = repair({"modelId": "anthropic.claude-opus-5-5", "messages": messages}, "bedrock")
    spoken = [
        (message["role"], [block["text"] for block in message["content"]])
        for message in fixed.payload["messages"]
    ]
    assert spoken == [("user", ["a", "c"]), ("system", ["b"]), ("assistant", ["d"])]
    assert fixed.remaining == ()


@pytest.mark.parametrize(
    ("format", "payload", "rule"),
    [
        ("gemini", [model({"text": "hello"}), contents({"text": "1"})], "GE-4"),
        ("gemini", [model(fn("a")), contents(fn_done("a"))], "GE-1"),
        ("anthropic", [ask("1"), {"role": "developer", "content": "x"}], "AN-4"),
        ("anthropic", [ask("")], "AN-5"),
        ("anthropic", [claude(use("a"), use("a")), ask(result_of("a"))], "AN-1"),
        (
            "openai_responses",
            {
                "store": False,
                "input": [{"type": "reasoning", "summary": []}, item_said("assistant", "a")],
            },
            "OA-5",
        ),
    ],
)
def test_each_remaining_violation_states_why_it_was_not_repaired(
    format: str, payload: Any, rule: str
) -> None:
    fixed = repair(payload, format)
    assert fixed.payload is payload
    assert rule in {violation.rule for violation in fixed.remaining}
    assert all(violation.unmended for violation in fixed.remaining)


@pytest.mark.parametrize(
    ("format", "before", "after"),
    [
        (
            "anthropic",
            [
                ask("1"),
                ask(result_of("a"), text("2")),
                claude(use("a"), use("b")),
                ask(result_of("b"), text("3")),
            ],
            [
                ask("1"),
                ask(text("2")),
                claude(use("a"), use("b")),
                ask(result_of("a"), result_of("b"), text("3")),
            ],
        ),
        (
            "openai_chat",
            [ask("1"), chat_done("a"), chat_call("a", "b"), chat_done("b"), ask("2")],
            [ask("1"), chat_call("a", "b"), chat_done("a"), chat_done("b"), ask("2")],
        ),
        (
            "openai_responses",
            [
                item_done("a"),
                item_said("user", "1"),
                item_call("a"),
                item_call("b"),
                item_done("b"),
            ],
            [
                item_said("user", "1"),
                item_call("a"),
                item_call("b"),
                item_done("a"),
                item_done("b"),
            ],
        ),
        (
            "gemini",
            [
                contents({"text": "1"}),
                contents(early := fn_done("a", "x")),
                model(fn("a")),
                contents({"text": "2"}),
            ],
            [contents({"text": "1"}), model(fn("a")), contents(early, {"text": "2"})],
        ),
    ],
    ids=["anthropic", "openai_chat", "openai_responses", "gemini"],
)
def test_conformance_14_a_result_before_its_call_is_moved_after_it(
    format: str, before: list[Any], after: list[Any]
) -> None:
    assert mend(before, format) == after


@pytest.mark.parametrize(
    ("format", "items", "after"),
    [
        (
            "anthropic",
            [ask("1"), ask(result_of("a")), claude(use("a"))],
            [ask("1"), claude(use("a")), ask(result_of("a"))],
        ),
        (
            "openai_chat",
            [ask("1"), chat_done("a"), chat_call("a")],
            [ask("1"), chat_call("a"), chat_done("a")],
        ),
        ("openai_responses", [item_done("a"), item_call("a")], [item_call("a"), item_done("a")]),
    ],
)
def test_conformance_14_a_result_before_a_call_at_the_end_is_moved_after_it(
    format: str, items: list[Any], after: list[Any]
) -> None:
    assert mend(items, format) == after


def test_conformance_14_a_late_response_is_moved_to_its_call() -> None:
    items = [contents({"text": "1"}), model(fn("a")), contents({"text": "2"}), model({"text": "?"})]
    late = contents(fn_done("a", "x"))
    assert mend([*items, late], "gemini") == [
        *items[:2],
        contents(fn_done("a", "x"), {"text": "2"}),
        items[3],
    ]


def test_conformance_14_a_result_is_not_moved_if_the_user_would_not_be_first() -> None:
    items = [ask(result_of("a")), claude(use("a")), ask("2")]
    assert mend(items, "anthropic") == [
        ask(f"{NO_CALL}\ndone a"),
        items[1],
        ask(no_result("a"), text("2")),
    ]


def test_conformance_14_an_earlier_response_is_not_used_for_a_pending_call() -> None:
    items = [contents({"text": "1"}), contents(fn_done("a")), model(fn("a"))]
    assert mend(items, "gemini") == [items[0], items[2]]


def test_conformance_14_results_of_a_stored_response_are_not_moved() -> None:
    payload = {
        "previous_response_id": "r",
        "input": [item_done("a"), item_call("a"), item_said("user", "2")],
    }
    assert repair(payload).payload["input"][0] is payload["input"][0]


def test_ds_2_calls_and_results_without_ids_get_them() -> None:
    """DS-2: by the tool's name if the results have one, else in order; nothing else changes."""
    call, second = (chat_call("")["tool_calls"][0] for _ in range(2))
    second = {"type": "function", "function": {"name": "ls", "arguments": '{"a" : 1}'}, "x": 1}
    results = [
        {"role": "tool", "name": "ls", "content": "one"},
        {"role": "tool", "content": "two", "y": 2},
    ]
    items = [
        ask("1"),
        {"role": "assistant", "content": None, "tool_calls": [call, second]},
        *results,
        ask("2"),
    ]
    fixed = mend(items, "openai_chat")
    assert fixed[1]["tool_calls"] == [{**call, "id": "call_1_0"}, {**second, "id": "call_1_1"}]
    assert fixed[2:4] == [
        {**results[0], "tool_call_id": "call_1_1"},
        {**results[1], "tool_call_id": "call_1_0"},
    ]
    assert "DS-2" in {step.rule for step in repair(items, "openai_chat").repairs}


def test_ds_2_a_result_gets_the_id_of_its_call_and_new_ids_are_unique() -> None:
    items = [
        chat_call("call_0_0"),
        {"role": "tool", "content": "x"},
        chat_call(""),
        {"role": "tool", "content": "y"},
    ]
    fixed = mend(items, "openai_chat")
    assert [m.get("tool_call_id") for m in fixed] == [None, "call_0_0", None, "call_2_0"]
    taken = [chat_call("", "call_0_0"), chat_done(""), chat_done("call_0_0")]
    assert mend(taken, "openai_chat")[0]["tool_calls"][0]["id"] == "call_0_1"


def test_an_5_empty_texts_and_empty_messages_are_removed() -> None:
    items = [
        ask("1"),
        claude(text(""), use("a")),
        ask(result_of("a"), text(" \n")),
        claude(),
        ask("2"),
    ]
    assert mend(items, "anthropic") == [ask("1"), claude(use("a")), ask(result_of("a"), text("2"))]
    alone = repair([ask(""), claude(text("well"))], "anthropic")
    assert [violation.rule for violation in alone.remaining] == ["AN-5"]


def test_oa_3_reasoning_without_a_following_answer_is_removed() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    items = [
        item_said("user", "1"),
        thought,
        item_said("user", "2"),
        thought,
        item_said("assistant", "b"),
    ]
    assert mend(items, "openai_responses") == [items[0], *items[2:]]


def test_ge_2_a_response_that_matches_no_call_by_name_stays_in_its_place() -> None:
    items = [
        contents({"text": "1"}),
        model(fn("b"), fn("a")),
        contents(fn_done("a", "x"), fn_done("a", "y")),
    ]
    assert repair(items, "gemini").payload is items


def test_ge_2_a_turn_of_the_model_in_two_contents_is_joined_before_its_response() -> None:
    items = [contents({"text": "1"}), model(fn("a")), model({"text": "hm"}), contents(fn_done("a"))]
    assert mend(items, "gemini") == [items[0], model(fn("a"), {"text": "hm"}), items[3]]


def test_ge_1_two_turns_of_the_model_become_one() -> None:
    items = [contents({"text": "1"}), model({"text": "hm"}), model(fn("a")), contents(fn_done("a"))]
    assert mend(items, "gemini") == [items[0], model({"text": "hm"}, fn("a")), items[3]]


def test_repaired_json_text_keeps_the_spelling_of_untouched_parts() -> None:
    start = '{"model" : "claude-x","n":1.0E+2, "messages":[{"role":"user","content":"\\u4f60\\u597d","n":123456789012345678901} ,\n '
    calls = '{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"ls","input":{"k":1,"k":2}}]}'
    end = ', {"role":"user","content":"2"} , {"role":"assistant" ,"content":"3"}], "metadata":{ }}'
    fixed = repair((start + calls + end).encode(), "anthropic").payload
    assert fixed.startswith((start + calls).encode())
    assert fixed.endswith(b',{"role":"assistant" ,"content":"3"}], "metadata":{ }}')
    assert json.loads(fixed)["messages"][2] == ask(no_result("a"), text("2"))
    assert check(fixed) == ()


def test_repairs_report_positions_in_the_original_payload() -> None:
    items = [
        {"role": "system", "content": "s"},
        ask("1"),
        chat_call("a"),
        ask("2"),
        chat_call("b"),
        ask("3"),
        chat_done("x"),
        ask("4"),
    ]
    fixed = repair(items, "openai_chat")
    assert [(step.rule, step.at) for step in fixed.repairs] == [
        ("OA-1", 1),
        ("OA-1", 3),
        ("OA-1", 5),
    ]
    assert fixed.payload[0] is items[0]


# --- anything ---------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
SOME = st.sampled_from(["a", "b", "c", ""])
TEXTS = st.sampled_from([text("one"), text("two"), text("")])
CLAUDE = st.lists(
    st.one_of(
        st.builds(claude, NAMES.map(use)),
        st.lists(
            NAMES.map(use)
            | TEXTS
            | st.sampled_from([search("s"), search_result("s"), search("t")]),
            max_size=3,
        ).map(lambda b: claude(*b)),
        st.lists(NAMES.map(result_of) | TEXTS, max_size=3).map(lambda b: ask(*b)),
        st.just({"role": "user", "content": "go on"}),
        st.just({"role": "system", "content": "brief, please"}),
    ),
    max_size=8,
)
CHAT = st.lists(
    st.one_of(
        st.lists(SOME, min_size=1, max_size=3).map(lambda names: chat_call(*names)),
        SOME.map(chat_done),
        st.sampled_from(
            [ask("1"), {"role": "assistant", "content": "ok"}, {"role": "system", "content": "s"}]
        ),
        st.sampled_from(
            [
                {
                    "role": "assistant",
                    "content": None,
                    "function_call": {"name": "a", "arguments": "{}"},
                },
                {"role": "function", "name": "a", "content": "done"},
            ]
        ),
    ),
    max_size=8,
)
ITEMS = st.lists(
    st.one_of(
        NAMES.map(item_call),
        NAMES.map(item_done),
        st.just({"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        st.just({"type": "custom_tool_call", "call_id": "a", "name": "p", "input": "x"}),
        st.just({"type": "computer_call", "call_id": "b", "action": {}}),
        st.sampled_from([item_said("user", "1"), item_said("assistant", "ok")]),
    ),
    max_size=8,
)
GEMINI = st.lists(
    st.one_of(
        st.lists(NAMES.map(fn) | st.just({"text": "hm"}), max_size=3).map(
            lambda parts: model(*parts)
        ),
        st.lists(
            st.builds(fn_done, NAMES, st.sampled_from(["x", "y", "z"])) | st.just({"text": "2"}),
            max_size=3,
        ).map(lambda parts: contents(*parts)),
        st.just(contents({"text": "go on"})),
    ),
    max_size=8,
)
CONVERSE_CALL = {"toolUse": {"toolUseId": "a", "name": "t", "input": {}}}
CONVERSE_RESULT = {"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}
CONVERSE_OTHER_CALL = {"toolUse": {**CONVERSE_CALL["toolUse"], "toolUseId": "b"}}
CONVERSE_OTHER_RESULT = {"toolResult": {**CONVERSE_RESULT["toolResult"], "toolUseId": "b"}}
CONVERSE = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant"]),
        st.lists(
            NAMES.map(lambda id: {"toolUse": {"toolUseId": id, "name": "t", "input": {}}})
            | NAMES.map(lambda id: {"toolResult": {"toolUseId": id, "content": [{"text": "x"}]}})
            | st.sampled_from([{"text": "one"}, {"text": ""}, {"cachePoint": {"type": "default"}}]),
            max_size=3,
        ),
    ).map(lambda turn: {"role": turn[0], "content": turn[1]}),
    max_size=8,
)
ANY = st.one_of(
    st.tuples(st.just("anthropic"), CLAUDE),
    st.tuples(st.just("openai_chat"), CHAT),
    st.tuples(st.just("openai_responses"), ITEMS),
    st.tuples(st.just("gemini"), GEMINI),
    st.tuples(st.just("bedrock"), CONVERSE),
)
UNMENDABLE = {"AN-4", "GE-4", "GE-1", "OA-5", "BR-4", "BR-6"}


def repeats(format: str, items: list[Any]) -> bool:
    """Return whether a turn has two calls with one id."""
    return any("two calls of one turn" in violation.text for violation in check(items, format))


def has_users_calls(format: str, items: list[Any]) -> bool:
    """Return whether a user message has a call, to which no result can belong."""
    return format == "bedrock" and any(
        item["role"] == "user" and any("toolUse" in block for block in item["content"])
        for item in items
    )


@given(ANY)
@example(
    (
        "anthropic",
        [{"role": "system", "content": "brief"}, claude(search_result("s")), ask(result_of("a"))],
    )
)
@example(("bedrock", [{"role": "user", "content": []}, {"role": "user", "content": []}]))
@example(
    (
        "bedrock",
        [
            {"role": "user", "content": []},
            {"role": "assistant", "content": [CONVERSE_CALL]},
            {"role": "user", "content": [CONVERSE_CALL, CONVERSE_RESULT]},
        ],
    )
)
@example(
    (
        "bedrock",
        [
            {
                "role": role,
                "content": [{"toolUse": {"toolUseId": role, "name": "t", "input": {}}}],
            }
            for role in ("user", "assistant")
        ],
    )
)
def test_repair_fixes_all_pairs_and_a_second_repair_changes_nothing(
    case: tuple[str, list[Any]],
) -> None:
    format, items = case
    fixed = repair(items, format)
    unmended = {violation.rule for violation in fixed.remaining} - UNMENDABLE
    if unmended:
        users = {"BR-1", "BR-2"} if has_users_calls(format, items) else set()
        may_stay = {"AN-5", "BR-5", "GE-EP", *users}
        assert repeats(format, fixed.payload) or unmended <= may_stay or _is_all(fixed, format)
    again = repair(fixed.payload, format)
    assert again.payload is fixed.payload
    assert again.repairs == ()
    assert again.remaining == fixed.remaining
    if not check(items, format):
        assert fixed.payload is items


ASTRAY = st.one_of(
    st.tuples(
        st.just("anthropic"),
        st.lists(
            st.tuples(
                st.sampled_from([claude, ask]),
                st.lists(NAMES.map(use) | NAMES.map(result_of) | TEXTS, min_size=1, max_size=4),
            ).map(lambda turn: turn[0](*turn[1])),
            max_size=6,
        ),
    ),
    st.tuples(
        st.just("gemini"),
        st.lists(
            st.tuples(
                st.sampled_from([model, contents]),
                st.lists(
                    NAMES.map(fn)
                    | st.builds(fn_done, NAMES, st.sampled_from("xyz"))
                    | st.just({"text": "hm"}),
                    min_size=1,
                    max_size=4,
                ),
            ).map(lambda turn: turn[0](*turn[1])),
            max_size=6,
        ),
    ),
)
"""Calls and results in turns of either role."""


@given(ASTRAY)
def test_c10_law_a_second_repair_changes_nothing_for_calls_in_any_role(
    case: tuple[str, list[Any]],
) -> None:
    """A Gemini turn with a call and its result was once repaired for ever: 32 repairs, none of them
    needed."""
    format, items = case
    fixed = repair(items, format)
    again = repair(fixed.payload, format)
    assert (again.payload is fixed.payload, again.repairs, again.remaining) == (
        True,
        (),
        fixed.remaining,
    )
    assert {violation.rule for violation in check(fixed.payload, format)} == {
        violation.rule for violation in fixed.remaining
    }
    if not check(items, format):
        assert fixed.payload is items
        assert fixed.repairs == ()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_c10_a_gemini_model_turn_with_a_call_and_its_result_is_split(
    order: tuple[int, int],
) -> None:
    parts = [fn("a"), fn_done("a", "x")]
    items = [contents({"text": "1"}), model(*(parts[at] for at in order)), contents({"text": "2"})]
    fixed = repair(items, "gemini")
    assert fixed.payload == [items[0], model(fn("a")), contents(fn_done("a", "x"), {"text": "2"})]
    assert len(fixed.repairs) <= 2
    assert check(fixed.payload, "gemini") == ()


def test_c10_an_assistant_message_with_a_call_and_its_result_is_split() -> None:
    """The answer's own fields (`id`, `usage`) are not copied."""
    answer = {**claude(use("a"), result_of("a")), "id": "msg_1", "usage": {"input_tokens": 3}}
    fixed = repair([ask("1"), answer, ask("2")], "anthropic")
    assert fixed.payload[1] == {**claude(use("a")), "id": "msg_1", "usage": {"input_tokens": 3}}
    assert set(fixed.payload[2]) == {"role", "content"}
    assert check(fixed.payload, "anthropic") == ()


def test_contents_without_parts_are_removed() -> None:
    items = [contents({"text": "1"}), model(), contents({"text": "2"}), {"role": "model"}]
    assert [(fault.rule, fault.at) for fault in check(items)] == [("GE-EP", 1), ("GE-EP", 3)]
    assert repair(items).payload == [contents({"text": "1"}, {"text": "2"})]
    first = [contents(), model({"text": "Hello."})]
    (stays,) = repair(first).remaining
    assert (stays.rule, stays.at, repair(first).payload) == ("GE-EP", 0, first)


def test_c10_a_call_in_a_user_turn_is_repaired_only_once() -> None:
    """Responses were once made for it again and again, and all but the last removed: 62 needless
    repairs, then 64 in the next run."""
    items = [
        contents(fn("a")),
        model(fn("a")),
        contents(),
        contents(fn_done("a", "x")),
        model(fn("a")),
    ]
    fixed = repair(items, "gemini")
    again = repair(fixed.payload, "gemini")
    assert [step.rule for step in fixed.repairs] == ["GE-2", "GE-1", "GE-EP"]
    assert (again.payload is fixed.payload, again.repairs, again.remaining) == (
        True,
        (),
        fixed.remaining,
    )
    assert {violation.rule for violation in fixed.remaining} >= {"GE-1"}


def _is_all(fixed: RepairResult, format: str) -> bool:
    """Return whether everything in the conversation is broken."""
    return len({violation.at for violation in fixed.remaining}) >= len(
        open_payload(fixed.payload, format)
    )


@given(ANY)
@example(("anthropic", [claude(text("a")), {"role": "system", "content": "b"}, ask("c")]))
def test_repair_neither_invents_nor_loses_text(case: tuple[str, list[Any]]) -> None:
    """Texts of users and models stay in order, and so do those of system messages, which may be
    moved (AN-4)."""
    format, items = case
    fixed = repair(items, format).payload
    assert list_texts(fixed, format) == list_texts(items, format)


@given(ANY)
@example(
    (
        "anthropic",
        [
            {"role": "user", "content": []},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b"}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "b", "name": "t", "input": {}}],
            },
        ],
    )
)
@example(
    (
        "bedrock",
        [
            {"role": "user", "content": [CONVERSE_RESULT, CONVERSE_CALL]},
            {"role": "assistant", "content": [CONVERSE_CALL]},
        ],
    )
)
@example(
    (
        "bedrock",
        [
            {"role": "user", "content": [CONVERSE_RESULT]},
            {"role": "user", "content": [CONVERSE_OTHER_RESULT]},
            {"role": "assistant", "content": [CONVERSE_CALL, CONVERSE_OTHER_CALL]},
        ],
    )
)
@example(("anthropic", [ask(result_of("a")), claude(), ask("go on"), claude(use("a"))]))
@example(("anthropic", [claude(), ask(result_of("a")), claude(use("a"))]))
def test_repairing_loses_no_result_of_a_call(case: tuple[str, list[Any]]) -> None:
    """A single result of an existing call of the model stays, wherever it was.

    If calls of one message share an id, nothing tells which of them a result without ids
    answers.
    """
    format, items = case
    envelope = open_payload(items, format)
    messages = envelope.decode()
    assume(all(len({*message.calls}) == len(message.calls) for message in messages))
    calls = Counter(id for m in messages if m.role == "assistant" for id in m.calls)
    results_sent = [
        (part.id, json.dumps(f"said {at}.{n}"))
        for at, message in enumerate(messages, envelope.head)
        for n, part in enumerate(message.parts)
        if isinstance(part, ToolResult)
    ]
    marked = [mark(item, at) for at, item in enumerate(items)]
    fixed = json.dumps(repair(marked, format).payload)
    results = Counter(id for id, _ in results_sent)
    for id, words in results_sent:
        if calls[id] == results[id] == 1 and id:
            assert words.strip('"') in fixed


def mark(item: dict[str, Any], at: int) -> dict[str, Any]:
    """Return an entry whose results state their original position."""
    if item.get("role") == "tool":
        return {**item, "content": f"said {at}.0"}
    if item.get("type") == "function_call_output":
        return {**item, "output": f"said {at}.0"}
    if "parts" in item:
        return {
            **item,
            "parts": [_mark_result(part, at, n) for n, part in enumerate(item["parts"])],
        }
    if isinstance(item.get("content"), list):
        parts = accumulate(("cachePoint" not in block for block in item["content"]), initial=0)
        content = [
            _mark_result(block, at, n) for n, block in zip(parts, item["content"], strict=False)
        ]
        return {**item, "content": content}
    return item if item.get("role") != "function" else {**item, "content": f"said {at}.0"}


def _mark_result(block: dict[str, Any], at: int, n: int) -> dict[str, Any]:
    if block.get("type") == "tool_result":
        return {**block, "content": f"said {at}.{n}"}
    if "toolResult" in block:
        return {"toolResult": {**block["toolResult"], "content": [{"text": f"said {at}.{n}"}]}}
    if "functionResponse" in block:
        return {
            "functionResponse": {
                **block["functionResponse"],
                "response": {"output": f"said {at}.{n}"},
            }
        }
    return block


def list_texts(items: list[Any], format: str) -> tuple[list[str], list[str]]:
    """Return the texts of users and models, and those of system messages."""
    envelope = open_payload(items, format)
    messages = (Message("system", envelope.system), *envelope.decode())
    texts: tuple[list[str], list[str]] = ([], [])
    for message in messages:
        words = (part.text for part in message.parts if isinstance(part, Text))
        texts[message.role == "system"].extend(
            text for text in words if text and not text.startswith(NO_CALL)
        )
    return texts


@given(ANY)
def test_entries_that_were_not_mended_are_the_same_objects(case: tuple[str, list[Any]]) -> None:
    """Of several repairs, a later one may undo an earlier one: an empty text is merged with an
    entry, then removed; a result replaces an equal one. Such an entry is only equal."""
    format, items = case
    marked = [{**item, "mark": at} for at, item in enumerate(items)]
    originals = {id(item) for item in marked}
    fixed = repair(marked, format)
    for item in fixed.payload:
        assert id(item) in originals or item not in marked or len(fixed.repairs) > 1


def test_repairs_keep_original_positions_if_a_system_message_becomes_first() -> None:
    items = [
        ask(result_of("x")),
        {"role": "system", "content": "brief"},
        ask("1"),
        claude(text("")),
        ask("2"),
    ]
    fixed = repair(items, "anthropic")
    assert [(repair.rule, repair.at) for repair in fixed.repairs] == [("AN-2", 0), ("AN-5", 3)]


@given(ANY)
def test_json_text_is_repaired_like_the_parsed_list(case: tuple[str, list[Any]]) -> None:
    format, items = case
    assert json.loads(repair(json.dumps(items), format).payload) == repair(items, format).payload


def test_every_recording_is_repaired_fully_and_valid_ones_are_unchanged(shared: Path) -> None:
    for file in sorted((shared / "fixtures" / "requests").glob("*.jsonl")):
        for _, _, body in read_bodies(file):
            fixed = repair(body)
            assert fixed.remaining == ()
            assert (fixed.payload is body) == (not fixed.repairs)


def test_a_response_that_was_sent_twice_is_kept_once(shared: Path) -> None:
    _, _, body = next(read_bodies(shared / "fixtures" / "requests" / "gemini_resume.jsonl"))
    fixed = repair(body).payload
    for before, after in zip(body["contents"], fixed["contents"], strict=True):
        calls = [part for part in before["parts"] if "functionResponse" in part]
        assert [part for part in after["parts"] if "functionResponse" in part] == calls[
            : len(calls) // 2
        ]
    assert isinstance(fixed, Mapping)
