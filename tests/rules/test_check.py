"""`check` on requests as clients send them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.codecs.repair import check
from refold.errors import FormatError
from tests.support.recordings import read_bodies

REFUSED_BY_DESIGN = {
    ("gemini_resume", "GE-2"): "Gemini CLI, resumed, sends every functionResponse twice",
    (
        "gemini_own_compaction",
        "GE-2",
    ): "the recording resumes a session: every functionResponse is sent twice",
}
"""Recordings that break a rule, and why the client does so."""


def test_recorded_requests_break_only_the_rules_that_are_known(shared: Path) -> None:
    rules, seen = Counter[tuple[str, str]](), 0
    for file in sorted((shared / "fixtures" / "requests").glob("*.jsonl")):
        for _, _, body in read_bodies(file):
            seen += 1
            rules.update((file.stem, violation.rule) for violation in check(body))
    assert seen > 400
    assert set(rules) == set(REFUSED_BY_DESIGN), rules


def test_every_response_that_is_sent_twice_is_reported(shared: Path) -> None:
    _, _, body = next(read_bodies(shared / "fixtures" / "requests" / "gemini_resume.jsonl"))
    responses = sum(
        "functionResponse" in part for content in body["contents"] for part in content["parts"]
    )
    doubled = [violation for violation in check(body) if violation.rule == "GE-2"]
    assert len(doubled) * 2 == responses > 0


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "List the files."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        ],
    },
    {"role": "user", "content": "Well?"},
]


@pytest.mark.parametrize(
    "payload",
    [
        MESSAGES,
        {"model": "gpt-5.1", "messages": MESSAGES},
        json.dumps(MESSAGES),
        json.dumps({"messages": MESSAGES}).encode(),
    ],
    ids=["list", "body", "text", "bytes"],
)
def test_any_payload_is_checked_and_the_system_message_is_not_counted(payload: Any) -> None:
    (violation,) = check(payload)
    assert (violation.rule, violation.at, violation.subject) == ("OA-1", 1, "c1")
    assert check(payload, "openai_chat") == (violation,)


def test_fields_of_the_body_are_checked_too() -> None:
    items = [
        {"type": "message", "role": "user", "content": "Why?"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": "Because."},
    ]
    assert [violation.rule for violation in check({"input": items, "store": False})] == ["OA-5"]
    assert check({"input": items, "store": True}) == ()


def test_violations_come_in_order_of_position() -> None:
    violations = check(
        [
            {"role": "assistant", "content": [{"type": "text", "text": ""}]},
            {"role": "user", "content": ""},
        ],
        "anthropic",
    )
    assert [(violation.at, violation.rule) for violation in violations] == [
        (0, "AN-4"),
        (0, "AN-5"),
        (1, "AN-5"),
    ]


@pytest.mark.parametrize(
    "payload",
    [
        [],
        {"messages": []},
        "[]",
        [{"role": "system", "content": "x"}],
        [{"role": "user", "content": "x"}],
    ],
)
def test_empty_and_single_message_conversations_have_no_violation(payload: Any) -> None:
    assert check(payload) == ()


@pytest.mark.parametrize(
    "payload", [7, None, "{", b"\xff", {"model": "x"}, [1, 2], {"messages": 3}]
)
def test_a_payload_that_is_not_a_conversation_raises_format_error(payload: Any) -> None:
    with pytest.raises(FormatError, match=r"\w+ \w+"):
        check(payload)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "id",
                    "tool_use_id",
                    "tool_calls",
                    "parts",
                    "text",
                    "call_id",
                    "toolUse",
                    "toolResult",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(JSON, max_size=4),
    st.sampled_from([None, "anthropic", "openai_chat", "openai_responses", "gemini", "bedrock"]),
)
def test_any_json_is_checked_or_raises_format_error(items: list[Any], format: str | None) -> None:
    try:
        violations = check(items, format)
    except FormatError:
        return
    assert all(0 <= violation.at < len(items) for violation in violations)
