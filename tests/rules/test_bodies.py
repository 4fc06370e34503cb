"""Rules about the rest of a request: fields beside the conversation, and cache marks."""

import json
from typing import Any

import pytest

from refold.codecs.detect import open_payload
from refold.codecs.repair import check, repair

TRIGGER = {"type": "compaction_trigger"}
MESSAGE = {"type": "message", "role": "user", "content": "Go on."}


def claude(**fields: Any) -> dict[str, Any]:
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Go on."}],
        **fields,
    }


def responses(*items: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-6.1-sol", "input": list(items or [MESSAGE]), **fields}


def list_violations(body: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return rule, position and subject of each violation, equal for a parsed request and its
    text."""
    violations = check(body)
    assert check(json.dumps(body)) == violations
    assert all(violation.text for violation in violations)
    remaining = repair(body).remaining
    assert all(violation.unmended for violation in remaining)
    return [(violation.rule, violation.at, violation.subject) for violation in violations]


# --- AN-9 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adaptive", "enabled"])
@pytest.mark.parametrize("behaviour", ["drop_block", "error", None])
def test_an_9_known_prefix_mismatch_behaviors_are_accepted(
    kind: str, behaviour: str | None
) -> None:
    assert (
        list_violations(
            claude(
                thinking={"type": kind, "block_binding": {"prefix_mismatch_behavior": behaviour}}
            )
        )
        == []
    )
    assert list_violations(claude(thinking={"type": kind, "block_binding": {}})) == []
    assert list_violations(claude(thinking={"type": kind, "block_binding": None})) == []


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop"}},
        {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": ["drop_block"]}},
        {"type": "disabled", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    ],
)
def test_an_9_unknown_values_and_disabled_thinking_are_refused(thinking: dict[str, Any]) -> None:
    assert list_violations(claude(thinking=thinking)) == [("AN-9", 0, "thinking.block_binding")]


# --- AN-CE -----------------------------------------------------------------------------------

THINKING, TOOLS, COMPACT = "clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112"


@pytest.mark.parametrize(
    ("edits", "wrong"),
    [
        ([{"type": THINKING, "keep": {"type": "thinking_turns", "value": 1}}, {"type": TOOLS}], 0),
        ([{"type": THINKING, "keep": "all"}, {"type": COMPACT}], 0),
        ([{"type": THINKING, "keep": {"type": "all"}}], 0),
        ([{"type": TOOLS, "keep": {"type": "tool_uses", "value": 0}}], 0),
        ([{"type": COMPACT, "trigger": {"type": "input_tokens", "value": 50_000}}], 0),
        ([{"type": COMPACT, "trigger": None}], 0),
        ([{"type": COMPACT, "trigger": {"type": "input_tokens", "value": 10**400}}], 0),
        ([{"type": TOOLS}, {"type": THINKING}], 1),
        ([{"type": THINKING, "keep": {"type": "thinking_turns", "value": 0}}], 1),
        ([{"type": COMPACT, "trigger": {"type": "input_tokens", "value": 49_999}}], 1),
        (
            [{"type": COMPACT}, {"type": THINKING, "keep": {"type": "thinking_turns", "value": 0}}],
            2,
        ),
    ],
)
def test_an_ce_invalid_context_editing_is_refused(edits: list[Any], wrong: int) -> None:
    assert (
        list_violations(claude(context_management={"edits": edits}))
        == [("AN-CE", 0, "context_management.edits")] * wrong
    )


# --- AN-CC -----------------------------------------------------------------------------------


def mark(ttl: str | None = None) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


def mark_request(
    *ttls: str | None, tool: str | None = "", system: str | None = ""
) -> dict[str, Any]:
    """Return a request with marks on a tool, the system prompt and a block of each user message, or
    without for empty ones."""
    blocks = [{"type": "text", "text": "x", **({} if ttl == "" else mark(ttl))} for ttl in ttls]
    messages = [
        message
        for block in blocks
        for message in ({"role": "user", "content": [block]}, {"role": "assistant", "content": "y"})
    ]
    tools = [{"name": "t", "input_schema": {}, **({} if tool == "" else mark(tool))}]
    head = [{"type": "text", "text": "s", **({} if system == "" else mark(system))}]
    return claude(messages=[*messages, {"role": "user", "content": "?"}], tools=tools, system=head)


def test_an_cc_four_cache_marks_are_allowed_and_a_fifth_is_refused() -> None:
    assert list_violations(mark_request(None, None, "5m", "5m")) == []
    assert list_violations(mark_request(None, None, tool=None, system="5m")) == []
    assert list_violations(mark_request("", None, None, None, tool=None, system=None)) == [
        ("AN-CC", 6, "messages")
    ]
    assert list_violations({**mark_request(None, None, None, None), **mark()}) == []


def test_an_cc_cache_marks_inside_a_result_are_counted() -> None:
    use = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {}}],
    }
    blocks = [{"type": "text", "text": str(n), **mark()} for n in range(5)]
    done = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a", "content": blocks}],
    }
    assert list_violations(claude(messages=[{"role": "user", "content": "?"}, use, done])) == [
        ("AN-CC", 2, "messages")
    ]


def test_an_cc_cache_marks_with_a_longer_ttl_must_come_first() -> None:
    assert list_violations(mark_request("1h", "5m", tool="1h")) == []
    assert list_violations(mark_request("5m", "1h")) == [("AN-CC", 2, "messages 1h")]
    assert list_violations(mark_request("1h", system=None)) == [("AN-CC", 0, "messages 1h")]
    assert list_violations(mark_request(system="1h", tool="5m")) == [("AN-CC", 0, "system 1h")]


def test_an_cc_leading_system_messages_are_not_counted_in_positions() -> None:
    body = mark_request(None, None, None, None, None)
    assert list_violations(body) == [("AN-CC", 8, "messages")]
    lead = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert list_violations({**body, "messages": [lead, *body["messages"]]}) == [
        ("AN-CC", 8, "messages")
    ]


# --- AN-CB -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "refused"), [("A summary.", False), (None, False), ("", True)])
def test_an_cb_a_compaction_block_holds_a_non_empty_text_or_null(
    content: str | None, *, refused: bool
) -> None:
    block = {"type": "compaction", "content": content}
    messages = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": "2"},
    ]
    assert list_violations(claude(messages=messages)) == [("AN-CB", 1, "compaction")] * refused


def test_an_cb_a_signed_compaction_block_must_come_first() -> None:
    """The API answers `compaction_block_misplaced` if anything precedes it."""
    block = {"type": "compaction", "content": "It was so.", "signature": "EuYB"}
    compacted, asked = {"role": "assistant", "content": [block]}, {"role": "user", "content": "1"}
    assert list_violations(claude(messages=[compacted, asked])) == []
    assert list_violations(claude(messages=[asked, compacted])) == [("AN-CB", 1, "compaction")]
    assert list_violations(claude(messages=[compacted, compacted, asked])) == [
        ("AN-CB", 1, "compaction")
    ]


# --- OA-6, OA-10 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ([{"type": "compaction", "compact_threshold": 100_000}], False),
        ([{"type": "compaction"}], False),
        ([{"type": "compaction", "compact_threshold": None}], False),
        ([], False),
        (None, False),
        ([{"type": "clear_tool_uses"}], True),
        ([{"type": "compaction", "compact_threshold": 0}], True),
        ([{"type": "compaction", "compact_threshold": "100k"}], True),
        ([{"type": "compaction", "compact_threshold": True}], True),
        (["compaction"], True),
        ({"type": "compaction"}, True),
    ],
)
def test_oa_6_context_management_accepts_only_compaction(value: Any, *, refused: bool) -> None:
    assert (
        list_violations(responses(context_management=value))
        == [("OA-6", 0, "context_management")] * refused
    )


@pytest.mark.parametrize(
    ("value", "refused"),
    [("auto", False), ("disabled", False), (None, False), ("on", True), (["auto"], True)],
)
def test_oa_10_truncation_is_auto_or_disabled(value: Any, *, refused: bool) -> None:
    assert list_violations(responses(truncation=value)) == [("OA-10", 0, "truncation")] * refused


# --- OA-9 ------------------------------------------------------------------------------------


def test_oa_9_a_compaction_trigger_must_be_the_last_item() -> None:
    assert list_violations(responses(MESSAGE, TRIGGER)) == []
    assert list_violations(responses(MESSAGE, TRIGGER, MESSAGE)) == [
        ("OA-9", 1, "compaction_trigger")
    ]
    assert list_violations(responses(TRIGGER, MESSAGE, TRIGGER)) == [
        ("OA-9", 0, "compaction_trigger")
    ]


def test_oa_9_is_repaired_by_moving_the_compaction_trigger_to_the_end() -> None:
    body = responses(MESSAGE, TRIGGER, MESSAGE)
    fixed = repair(body)
    assert fixed.payload["input"] == [MESSAGE, MESSAGE, TRIGGER]
    assert fixed.payload["input"][2] is TRIGGER
    assert [(mend.rule, mend.at) for mend in fixed.repairs] == [("OA-9", 1)]
    assert repair(fixed.payload).payload is fixed.payload
    assert json.loads(repair(json.dumps(body)).payload) == fixed.payload


def test_oa_9_only_one_of_several_compaction_triggers_is_kept() -> None:
    fixed = repair(responses(TRIGGER, MESSAGE, TRIGGER, MESSAGE))
    assert fixed.payload["input"] == [MESSAGE, MESSAGE, TRIGGER]
    assert [(mend.rule, mend.at) for mend in fixed.repairs] == [("OA-9", 0), ("OA-9", 2)]
    assert repair(responses(TRIGGER, MESSAGE, TRIGGER)).payload["input"] == [MESSAGE, TRIGGER]


def test_oa_9_there_is_no_cut_after_a_final_compaction_trigger() -> None:
    envelope = open_payload(responses(MESSAGE, MESSAGE, TRIGGER))
    rules = envelope.codec.rules(envelope.body)
    assert rules.cuts(envelope.decode()) == {0, 1, 2}
    assert rules.cuts(open_payload(responses(MESSAGE, TRIGGER, MESSAGE)).decode()) == {0, 1, 2, 3}


# --- a bare list, and values of any shape ----------------------------------------------------


@pytest.mark.parametrize(
    "field", ["thinking", "context_management", "truncation", "tools", "system", "metadata"]
)
@pytest.mark.parametrize(
    "value",
    [None, 7, "x", [], [1], {}, {"edits": 3}, {"edits": [{"keep": 1}]}, {"block_binding": 1}],
)
def test_fields_of_any_shape_are_checked_without_an_exception(field: str, value: Any) -> None:
    for body in (claude(**{field: value}), responses(**{field: value})):
        assert {
            violation.rule
            for violation in check(body, "anthropic" if "messages" in body else "openai_responses")
        } <= {
            "OA-6",
            "OA-10",
        }
