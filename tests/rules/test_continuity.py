"""What a request must keep of the previous one, judged from the two requests alone."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.codecs.detect import open_payload
from refold.codecs.repair import check
from refold.compactor.compactor import Compactor
from refold.core.strategy import Answer, Ask
from refold.messages import Message, Text, ToolCall, ToolResult
from refold.strategies import (
    ClearThinking,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
)
from tests.support.recordings import read_bodies
from tests.support.signed_histories import (
    BOUND,
    CODECS_BY_NAME,
    ENCODERS,
    LOOP,
    MODELS,
    ON,
    _anthropic,
    agent_histories,
)


def find_losses(after: Any, before: Any) -> list[tuple[str, int]]:
    """Return rule and position of what was not kept, equal for parsed requests and texts."""
    violations = check(after, before=before)
    assert check(json.dumps(after), before=json.dumps(before).encode()) == violations
    alone = check(after)
    return [(violation.rule, violation.at) for violation in violations if violation not in alone]


# --- Anthropic -------------------------------------------------------------------------------


def ask(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def thinking_block(name: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"about {name}", "signature": f"sig {name}"}


def turn(name: str, *, thinks: bool = True) -> list[dict[str, Any]]:
    """Return a call with thinking before it, and its result."""
    use = {"type": "tool_use", "id": name, "name": "read", "input": {"path": name, "all": True}}
    done = {"type": "tool_result", "tool_use_id": name, "content": f"content of {name}"}
    blocks = [thinking_block(name), use] if thinks else [use]
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": [done]}]


def claude(*messages: dict[str, Any], model: str = BOUND, **fields: Any) -> dict[str, Any]:
    tools = [{"name": "read", "input_schema": {}}, {"name": "write", "input_schema": {}}]
    return {
        "model": model,
        "system": "Be brief.",
        "tools": tools,
        "messages": list(messages),
        "thinking": ON,
        **fields,
    }


FIRST = ask("Find the bug.")
BEFORE = claude(FIRST, *turn("a"), *turn("b"))
GROWN = claude(FIRST, *turn("a"), *turn("b"), *turn("c"))


def test_a_request_that_only_grew_has_no_violation() -> None:
    assert find_losses(GROWN, BEFORE) == []
    assert find_losses(BEFORE, BEFORE) == []
    assert find_losses(claude(FIRST), claude()) == []


def test_an_7_cache_marks_key_order_and_spelling_make_no_difference() -> None:
    use = {"input": {"all": True, "path": "a"}, "name": "read", "id": "a", "type": "tool_use"}
    done = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "text", "text": "content of a"}],
    }
    done["cache_control"] = {"type": "ephemeral"}
    spelt = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Find the bug.", "cache_control": {"type": "ephemeral"}}
            ],
        },
        {"role": "assistant", "content": [thinking_block("a"), use]},
        {"role": "user", "content": [done]},
    ]
    after = claude(*spelt, *turn("b"), *turn("c"), system=[{"type": "text", "text": "Be brief."}])
    assert find_losses({**after, "tools": after["tools"][::-1]}, BEFORE) == []


@pytest.mark.parametrize("model", [BOUND, "claude-fable-5-1", "a model that nobody knows"])
def test_an_7_thinking_behind_a_changed_message_is_refused(model: str) -> None:
    after = claude(ask("Find it."), *turn("a"), *turn("b"), *turn("c"), model=model)
    assert find_losses(after, {**BEFORE, "model": model}) == [("AN-7", 1), ("AN-7", 3), ("AN-7", 5)]
    late = claude(FIRST, *turn("a"), turn("b")[0], turn("x")[1] | {"content": [{"type": "tool_result", "tool_use_id": "b", "content": "-"}]}, *turn("c"), model=model)  # fmt: skip
    assert find_losses(late, {**BEFORE, "model": model}) == [("AN-7", 5)]


def test_an_7_thinking_in_bare_lists_counts_as_bound() -> None:
    assert find_losses([ask("Find it."), *turn("a")], [FIRST, *turn("a")]) == [("AN-7", 1)]


def test_an_7_new_thinking_requires_the_whole_previous_request() -> None:
    summary = ask("Summary: a was read.")
    assert find_losses(claude(summary, *turn("c")), BEFORE) == [("AN-7", 1)]
    assert find_losses(claude(FIRST, *turn("a"), *turn("c")), BEFORE) == [("AN-10", 3), ("AN-7", 3)]
    assert find_losses(claude(FIRST, *turn("a"), ask("wait"), *turn("b"), *turn("c")), BEFORE) == [
        ("AN-7", 4),
        ("AN-7", 6),
    ]
    before = claude(FIRST, *turn("a"), ask("Only today: be quick."))
    assert find_losses(claude(FIRST, *turn("a"), *turn("b")), before) == [("AN-7", 3)]


def test_an_7_a_summary_without_thinking_behind_it_is_no_violation() -> None:
    summary = ask("Summary: a was read.")
    assert find_losses(claude(summary, *turn("b", thinks=False)), BEFORE) == []
    assert (
        find_losses(
            claude(summary, *turn("b", thinks=False), *turn("c")),
            claude(summary, *turn("b", thinks=False)),
        )
        == []
    )


@pytest.mark.parametrize("fields", [{"system": "Be quick."}, {"tools": []}, {"system": None}])
def test_an_14_another_system_prompt_or_other_tools_invalidate_thinking(
    fields: dict[str, Any],
) -> None:
    assert find_losses({**GROWN, **fields}, BEFORE) == [("AN-7", 1), ("AN-7", 3), ("AN-7", 5)]
    bare = claude(FIRST, *turn("a", thinks=False), **fields)
    assert find_losses(bare, BEFORE) == []


def test_an_14_tools_that_are_loaded_later_may_be_added() -> None:
    later = {"name": "search", "input_schema": {}, "defer_loading": True}
    assert find_losses({**GROWN, "tools": [*GROWN["tools"], later]}, BEFORE) == []


def test_an_14_a_leading_system_message_is_part_of_the_system_prompt() -> None:
    lead = {"role": "system", "content": "Today is Monday."}
    assert find_losses(claude(lead, FIRST, *turn("a")), claude(lead, FIRST)) == []
    assert find_losses(
        claude({**lead, "content": "Today is Tuesday."}, FIRST, *turn("a")), claude(lead, FIRST)
    ) == [("AN-7", 1)]


def test_an_8_models_that_do_not_bind_or_are_new_to_the_conversation_are_exempt() -> None:
    after = claude(ask("Find it."), *turn("a"), *turn("b"), *turn("c"))
    assert find_losses({**after, "model": LOOP}, {**BEFORE, "model": LOOP}) == []
    assert find_losses({**after, "model": "claude-fable-5-1"}, BEFORE) == []


def test_an_9_mismatched_thinking_is_accepted_with_drop_block() -> None:
    after = claude(ask("Find it."), *turn("a"), *turn("c"))
    drop = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert find_losses(after, BEFORE) != []
    assert find_losses({**after, "thinking": drop}, BEFORE) == []
    assert find_losses(
        {**after, "thinking": {"type": "adaptive", "block_binding": {}}}, BEFORE
    ) == find_losses(after, BEFORE)


def test_an_7_redacted_and_repeated_thinking_is_bound_too() -> None:
    hidden = {
        "role": "assistant",
        "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "1"}],
    }
    assert find_losses(claude(ask("2"), hidden), claude(FIRST, hidden)) == [("AN-7", 1)]
    assert find_losses(
        claude(FIRST, hidden, ask("2"), hidden), claude(FIRST, hidden, ask("2"))
    ) == [("AN-7", 3)]
    assert (
        find_losses(
            claude(FIRST, hidden, ask("2"), hidden), claude(FIRST, hidden, ask("2"), hidden)
        )
        == []
    )


def test_an_7_unsigned_thinking_is_bound_to_nothing() -> None:
    loose = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "1"}],
    }
    assert find_losses(claude(ask("2"), loose), claude(FIRST, loose)) == []


def test_an_7_messages_that_the_api_clears_are_not_part_of_the_prefix() -> None:
    note = {"role": "system", "content": "Be quick.", "clear_at": "next_user_message"}
    assert find_losses(claude(FIRST, *turn("a")), claude(FIRST, note)) == []
    assert find_losses(
        claude(FIRST, *turn("a")), claude(FIRST, {"role": "system", "content": "Be quick."})
    ) == [("AN-7", 1)]


def compaction(content: str | None = "What was done.") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "compaction", "content": content}]}


def test_an_11_turns_kept_after_an_api_compaction_must_be_unchanged() -> None:
    newest = (ask("And now b."), *turn("b"))
    before = claude(FIRST, *turn("a"), *newest)
    assert find_losses(claude(compaction(), *newest, *turn("c")), before) == []
    assert find_losses(claude(compaction(), ask("Or not."), *turn("b")), before) == [("AN-7", 2)]
    assert find_losses(claude(ask("What was done."), *newest), before) == [("AN-7", 2)]
    again = claude(compaction(), *newest)
    assert find_losses(claude(compaction(), *newest, *turn("c")), again) == []
    assert find_losses(claude(compaction("Other."), ask("b?"), *turn("b"), *turn("c")), again) == [
        ("AN-7", 2)
    ]
    assert find_losses(claude(*newest, *turn("c")), again) == [("AN-7", 1), ("AN-7", 3)]


def test_an_11_a_compaction_in_the_answer_or_a_failed_one_is_no_violation() -> None:
    answer = {
        "role": "assistant",
        "content": [*compaction()["content"], thinking_block("c"), {"type": "text", "text": "c"}],
    }
    assert find_losses(claude(*BEFORE["messages"], answer), BEFORE) == []
    assert (
        find_losses(
            claude(FIRST, *turn("a"), compaction(None), ask("2"), *turn("b")),
            claude(FIRST, *turn("a"), ask("2")),
        )
        == []
    )


def test_an_10_thinking_may_only_be_dropped_from_the_oldest_on_without_a_gap() -> None:
    def thinking_request(*thinks: bool) -> dict[str, Any]:
        return claude(
            FIRST,
            *(
                m
                for name, is_thinking in zip("abcd", thinks, strict=False)
                for m in turn(name, thinks=is_thinking)
            ),
        )

    before = thinking_request(True, True, True)
    assert find_losses(thinking_request(False, True, True, True), before) == []
    assert find_losses(thinking_request(False, False, False, True), before) == []
    assert find_losses(thinking_request(False, False, False), before) == []
    assert find_losses(thinking_request(True, False, False), before) == []
    assert find_losses(thinking_request(True, False, True), before) == [("AN-10", 5)]
    assert find_losses(thinking_request(True, True, False, True), before) == [("AN-10", 7)]
    assert find_losses(
        thinking_request(True, False, True, True), thinking_request(False, False, True)
    ) == [("AN-7", 1)]
    twice = claude(FIRST, *turn("a"), *turn("b"), *turn("a"))  # a client sent a turn again
    bare = turn("a", thinks=False)
    assert find_losses(claude(FIRST, *bare, *turn("b"), *bare), twice) == []


@pytest.mark.parametrize(
    "thinking", [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}]
)
def test_an_6_thinking_in_a_tool_loop_must_be_sent_back_unchanged(thinking: dict[str, Any]) -> None:
    def loop_request(*messages: dict[str, Any]) -> dict[str, Any]:
        return claude(*messages, model=LOOP, thinking=thinking)

    before = loop_request(ask("0"), *turn("z"), FIRST, *turn("a"), *turn("b"))
    assert (
        find_losses(
            loop_request(ask("0"), *turn("z"), FIRST, *turn("a"), *turn("b"), *turn("c")), before
        )
        == []
    )
    assert (
        find_losses(
            loop_request(ask("0"), *turn("z", thinks=False), FIRST, *turn("a"), *turn("b")), before
        )
        == []
    )
    assert find_losses(
        loop_request(ask("0"), *turn("z"), FIRST, *turn("a"), *turn("b", thinks=False)), before
    ) == [("AN-6", 6)]
    changed = turn("b")
    changed[0]["content"][0]["thinking"] = "changed"
    assert find_losses(loop_request(FIRST, *turn("a"), *changed), before) == [("AN-6", 3)]
    assert find_losses(
        loop_request(ask("Summary."), *turn("a", thinks=False), *turn("b")), before
    ) == [("AN-6", 1)]
    assert find_losses(loop_request(FIRST, *turn("a"), *changed, ask("Stop.")), before) == []


def test_an_6_disabled_thinking_and_models_that_bind_thinking_are_exempt() -> None:
    stripped = (FIRST, *turn("a"), *turn("b", thinks=False))
    for thinking in ({"type": "disabled"}, None):
        assert (
            find_losses(claude(*stripped, model=LOOP, thinking=thinking), {**BEFORE, "model": LOOP})
            == []
        )
    assert find_losses(claude(*stripped), BEFORE) == []


# --- Responses -------------------------------------------------------------------------------


def reasoning(name: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": f"rs_{name}",
        "summary": [],
        "encrypted_content": f"sealed {name}",
    }


def call(name: str, *, id: bool = True) -> dict[str, Any]:
    item = {"type": "function_call", "call_id": name, "name": "read", "arguments": "{}"}
    return {**item, "id": f"fc_{name}"} if id else item


def output(name: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": "done"}


def items(*input: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-6.1-sol", "store": False, "input": list(input), **fields}


USER = {"type": "message", "role": "user", "content": "Find the bug."}
REASONED = items(USER, reasoning("a"), call("a"), call("b"), output("a"), output("b"))


def test_oa_4_a_call_must_be_sent_with_its_reasoning() -> None:
    assert (
        find_losses(items(*REASONED["input"], reasoning("c"), call("c"), output("c")), REASONED)
        == []
    )
    assert find_losses(items(USER, call("a"), call("b"), output("a"), output("b")), REASONED) == [
        ("OA-4", 1),
        ("OA-4", 2),
    ]
    foreign = {**reasoning("a"), "id": "rs_other"}
    assert find_losses(items(USER, foreign, call("b"), output("b")), REASONED) == [("OA-4", 2)]
    assert find_losses(items(USER, reasoning("a"), call("b"), output("b")), REASONED) == []
    assert find_losses(items(USER), REASONED) == []


def test_oa_4_an_answer_with_an_id_must_be_sent_with_its_reasoning() -> None:
    answer = {"type": "message", "role": "assistant", "content": "Found.", "id": "msg_a"}
    before = items(USER, reasoning("a"), answer, USER)
    assert find_losses(items(*before["input"], call("b"), output("b")), before) == []
    assert find_losses(items(USER, answer, USER), before) == [("OA-4", 1)]
    unnamed = {key: value for key, value in answer.items() if key != "id"}
    assert find_losses(items(USER, unnamed, USER), before) == []


def test_oa_4_a_call_without_an_id_needs_no_reasoning() -> None:
    assert find_losses(items(USER, call("a", id=False), output("a")), REASONED) == []


def test_oa_4_no_reasoning_is_needed_if_the_server_holds_it() -> None:
    after = items(USER, call("a"), output("a"))
    assert find_losses(after, REASONED) == [("OA-4", 1)]
    assert find_losses({**after, "previous_response_id": "resp_1"}, REASONED) == []
    assert (
        find_losses(items({"type": "item_reference", "id": "rs_a"}, *after["input"]), REASONED)
        == []
    )
    assert (
        find_losses(
            items({"type": "compaction", "encrypted_content": "x"}, *after["input"]), REASONED
        )
        == []
    )


# --- Gemini ----------------------------------------------------------------------------------


def fn(name: str, signature: str | None = None, **fields: Any) -> dict[str, Any]:
    part = {"functionCall": {"name": name, "args": {"n": 1}}, **fields}
    return {**part, "thoughtSignature": signature} if signature else part


def step(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    done = [
        {"functionResponse": {"name": p["functionCall"]["name"], "response": {"output": "ok"}}}
        for p in parts
    ]
    return [{"role": "model", "parts": list(parts)}, {"role": "user", "parts": done}]


def gemini(*contents: dict[str, Any], model: str = "gemini-3-pro") -> dict[str, Any]:
    return {"model": model, "contents": list(contents)}


WANTS = {"role": "user", "parts": [{"text": "Find the bug."}]}
AGAIN = {"role": "user", "parts": [{"text": "Once more."}]}
SIGNED = gemini(WANTS, *step(fn("a", "s1"), fn("b")), *step(fn("a", "s2")))


def test_ge_3_signatures_stay_on_their_calls() -> None:
    assert find_losses(gemini(*SIGNED["contents"], *step(fn("a", "s3"))), SIGNED) == []
    for parts in ([fn("a", "s9"), fn("b")], [fn("a"), fn("b", "s1")], [fn("a"), fn("b")]):
        assert find_losses(gemini(WANTS, *step(*parts), *step(fn("a", "s2"))), SIGNED) == [
            ("GE-3", 1)
        ]
    assert find_losses(gemini(WANTS, *step(fn("a", "s1"), fn("b")), *step(fn("a"))), SIGNED) == [
        ("GE-3", 3)
    ]
    snake = {"function_call": {"name": "a", "args": {"n": 1}}, "thought_signature": "s2"}
    assert find_losses(gemini(WANTS, *step(fn("a", "s1"), fn("b")), {"role": "model", "parts": [snake]}, step(fn("a"))[1]), SIGNED) == []  # fmt: skip


def test_ge_3_in_past_turns_a_signature_may_be_missing_but_not_changed() -> None:
    assert find_losses(gemini(WANTS, *step(fn("a"), fn("b")), *step(fn("a")), AGAIN), SIGNED) == []
    assert find_losses(
        gemini(WANTS, *step(fn("a", "s9"), fn("b")), *step(fn("a")), AGAIN), SIGNED
    ) == [("GE-3", 1)]


def test_ge_3_older_models_and_substitute_signatures_are_exempt() -> None:
    stripped = (WANTS, *step(fn("a"), fn("b")), *step(fn("a")))
    assert find_losses(gemini(*stripped, model="gemini-2.5-pro"), SIGNED) == []
    bare = {"contents": list(stripped)}
    assert find_losses(bare, SIGNED) == [("GE-3", 1), ("GE-3", 3)]
    stand_in = "skip_thought_signature_validator"
    assert (
        find_losses(
            gemini(WANTS, *step(fn("a", stand_in), fn("b")), *step(fn("a", stand_in))), SIGNED
        )
        == []
    )


def test_ge_3_calls_after_a_summary_are_recognised_at_their_new_positions() -> None:
    before = gemini(WANTS, *step(fn("x", "s0")), AGAIN, *step(fn("a", "s1"), fn("b")))
    summary = {"role": "user", "parts": [{"text": "Summary."}]}
    assert find_losses(gemini(summary, *step(fn("a", "s1"), fn("b"))), before) == []
    assert find_losses(gemini(summary, *step(fn("a"), fn("b"))), before) == [("GE-3", 1)]


def test_ge_3_the_same_call_made_again_is_another_call() -> None:
    before = gemini(WANTS, *step(fn("a", "s1")), *step(fn("a", "s2")))
    assert find_losses(gemini(WANTS, *step(fn("a", "s2")), *step(fn("a", "s3"))), before) == []
    assert find_losses(gemini(*before["contents"], *step(fn("a", "s3"))), before) == []
    summary = {"role": "user", "parts": [{"text": "Summary."}]}
    assert find_losses(gemini(summary, *step(fn("a", "s3"))), before) == []


# --- DeepSeek --------------------------------------------------------------------------------


def chat(
    *turns: tuple[str, str | None], model: str = "deepseek-v4", **fields: Any
) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Find the bug."}]
    for id, text in turns:
        calls = [{"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}]
        answer = {"role": "assistant", "content": None, "tool_calls": calls}
        messages.append(answer if text is None else {**answer, "reasoning_content": text})
        messages.append({"role": "tool", "tool_call_id": id, "content": "done"})
    return {"model": model, "messages": messages, **fields}


THOUGHT = chat(("a", "hm"), ("b", ""))


def test_ds_1_turns_must_keep_their_reasoning_content() -> None:
    assert find_losses(chat(("a", "hm"), ("b", ""), ("c", "so")), THOUGHT) == []
    assert find_losses(chat(("a", None), ("b", "")), THOUGHT) == [("DS-1", 1)]
    assert find_losses(chat(("a", "hm"), ("b", None), ("c", "so")), THOUGHT) == [("DS-1", 3)]
    assert find_losses(chat(("a", ""), ("b", "")), THOUGHT) == []
    assert find_losses(chat(("a", "hm"), ("b", "")), chat(("a", None), ("b", None))) == []


def test_a_list_is_checked_for_the_given_model_and_a_body_for_its_own() -> None:
    """It was once judged as an unnamed model's, though `refold.compact` takes a model for it."""
    messages = chat(("a", None), ("b", ""))["messages"]
    before = THOUGHT["messages"]
    assert [v.rule for v in check(messages, before=before)] == ["DS-1"]
    assert check(messages, before=before, model="gpt-5") == ()
    body = {"model": "deepseek-v4", "messages": messages}
    assert [v.rule for v in check(body, before=before, model="gpt-5")] == ["DS-1"], "it names one"


def test_ds_1_other_models_and_disabled_thinking_are_exempt() -> None:
    stripped = (("a", None), ("b", None))
    assert find_losses(chat(*stripped, model="gpt-5.1"), THOUGHT) == []
    assert find_losses(chat(*stripped, thinking={"type": "disabled"}), THOUGHT) == []
    assert find_losses(chat(*stripped)["messages"], THOUGHT["messages"]) == [
        ("DS-1", 1),
        ("DS-1", 3),
    ]


# --- the law ---------------------------------------------------------------------------------


def answer_summary(_: Ask) -> Answer:
    return Answer("A summary.")


def compactor(trigger: int) -> Compactor:
    """Return a compactor with everything that may change a history, and often."""
    strategies = (
        ClipResults(limit=1_000),
        DropDuplicates(),
        ClearToolResults(keep=1),
        ClearThinking(),
        Summarize(keep=2),
    )
    return Compactor(
        strategies, Budget(trigger, trigger // 2, progress=0, hysteresis=0), ask=answer_summary
    )


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(agent_histories(), st.integers(30, 600), st.data())
def test_consecutive_compacted_requests_break_no_continuity_rule(
    bodies: list[dict[str, Any]], trigger: int, data: st.DataObject
) -> None:
    """AN-6, AN-7, AN-10, AN-11, OA-4, GE-3, DS-1: for any strategies and reverts."""
    compact, sent = compactor(trigger), None
    for body in bodies:
        view = compact(body)
        if view.edits and data.draw(st.integers(0, 4)) == 0:
            view = compact.revert(body)
        if sent is not None:
            assert check(view.payload, before=sent) == check(view.payload)
        sent = view.payload


@pytest.mark.parametrize("name", MODELS)
def test_a_heavily_compacted_request_breaks_no_continuity_rule_in_any_format(name: str) -> None:
    """The history is long enough to break the law if unbound thinking were not dropped."""
    wires = [wire for at, message in enumerate(_long()) for wire in ENCODERS[name](at, message)]
    body = {"model": MODELS[name][0], "system": "Be brief.", "thinking": ON, "store": False}
    before = {**body, CODECS_BY_NAME[name].FIELD: wires}
    view = compactor(300)(before)
    assert view.edits
    assert view.tokens < 500
    assert check(view.payload, before=before) == check(view.payload) == ()


def _long() -> Iterator[Message]:
    for n in range(12):
        yield Message("user", (Text(f"Read file {n}."),))
        yield Message("assistant", (ToolCall(f"c{n}", "read", f'{{"n":{n}}}'),))
        yield Message("user", (ToolResult(f"c{n}", (Text(f"line {n} " * 90),)),))
        yield Message("assistant", (Text(f"Done with {n}."),))
    yield Message("user", (Text("And now?"),))


def test_thinking_that_is_kept_after_a_summary_is_reported() -> None:
    """The same compaction with the thinking left in place."""
    wires = [wire for at, message in enumerate(_long()) for wire in _anthropic(at, message)]
    summary = {"role": "user", "content": "A summary."}
    newest = wires[-5:]
    assert [rule for rule, _ in find_losses(claude(summary, *newest[1:]), claude(*wires))] == [
        "AN-7",
        "AN-7",
    ]


# --- recorded clients ------------------------------------------------------------------------


def conversations(file: Path) -> Iterator[list[dict[str, Any]]]:
    """Group the requests of a recording into conversations by system prompt and first message."""
    by_start = dict[str, list[dict[str, Any]]]()
    for _, _, body in read_bodies(file):
        envelope = open_payload(body)
        first = envelope.decode()[:1]
        by_start.setdefault(repr((envelope.system, first)), []).append(body)
    yield from by_start.values()


def test_recorded_clients_break_no_continuity_rule(shared: Path) -> None:
    """The recordings are checked as if for the model with the strictest rules."""
    strict = {"anthropic": BOUND, "gemini": "gemini-3-pro", "openai_chat": "deepseek-v4", "openai_responses": "gpt-6.1-sol"}  # fmt: skip
    pairs, wrong = Counter[str](), list[Any]()
    for file in sorted((shared / "fixtures" / "requests").glob("*.jsonl")):
        for before, after in chain.from_iterable(map(pairwise, conversations(file))):
            name = open_payload(after).codec.NAME
            both = [{**body, "model": strict[name]} for body in (before, after)]
            pairs[name] += 1
            wrong += [(file.stem, *loss) for loss in find_losses(both[1], both[0])]
    assert wrong == []
    assert min(pairs.values()) > 30, pairs


def test_a_recorded_request_with_altered_thinking_or_prefix_is_reported(shared: Path) -> None:
    for name, rule in (
        ("claude_opus_multiturn", "AN-7"),
        ("sdk_genai", "GE-3"),
        ("codex", "OA-4"),
        ("qwen", "DS-1"),
    ):
        last = max(conversations(shared / "fixtures" / "requests" / f"{name}.jsonl"), key=len)[-1]
        strict = {
            "model": BOUND
            if rule == "AN-7"
            else "deepseek-v4"
            if rule == "DS-1"
            else last.get("model")
        }
        spoilt = json.loads(SPOIL[rule](json.dumps(last)))
        assert {broken_rule for broken_rule, _ in find_losses(spoilt | strict, last | strict)} == {
            rule
        }, name


SPOIL: dict[str, Callable[[str], str]] = {
    "AN-7": lambda text: text.replace(
        '"messages": [', '"messages": [{"role": "user", "content": "Hello."}, ', 1
    ),
    "GE-3": lambda text: re.sub('"thoughtSignature": "', '"thoughtSignature": "x', text),
    "OA-4": lambda text: text.replace('"id": "rs_', '"id": "rs_x').replace(
        '"type": "function_call",', '"type": "function_call", "id": "fc_1",'
    ),
    "DS-1": lambda text: text.replace('"reasoning_content"', '"lost"'),
}
"""Functions that remove from a recorded request what it must keep."""
