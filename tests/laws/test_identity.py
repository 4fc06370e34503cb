"""Canonical identity: one history has one tip, however a client encodes it (docs/formats.md)."""

import base64
import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refold.codecs.detect import open_payload
from refold.text.json_values import canonicalize, canonicalize_text
from refold.transcript import Transcript


class Links(NamedTuple):
    """Counts of consecutive main requests: pairs, and those where the later contains the earlier
    byte for byte and canonically."""

    pairs: int
    raw: int
    canon: int


def all_of(pairs: int) -> Links:
    return Links(pairs, pairs, pairs)


MOVES_MARKS = 0
"""Byte-for-byte matches if `cache_control` moves every turn."""

RECORDED = {
    # coding agents
    "codex": all_of(7),
    "codex_gpt6_lite": all_of(4),
    "codex_subagents": all_of(3),
    "codex_websocket": Links(4, 0, 0),  # a delta transport: nothing to match
    "opencode_chat": all_of(7),
    "opencode_responses": all_of(4),
    "opencode_anthropic": Links(7, MOVES_MARKS, 7),
    "opencode_gemini": all_of(4),
    "opencode_subagent": all_of(2),
    "claude_sonnet45": Links(7, MOVES_MARKS, 7),
    "claude_opus_multiturn": Links(5, MOVES_MARKS, 5),
    "claude_subagent": Links(4, MOVES_MARKS, 4),
    "gemini": all_of(4),
    "gemini gemini_resume": Links(7, 6, 6),  # resumed: every response sent twice
    "qwen": all_of(4),
    "qwen qwen_resume": Links(7, 6, 6),  # resumed: message 1 rewritten
    "qwen_multiturn_memory_agent": all_of(5),
    "pi_chat": all_of(7),
    "pi_responses": all_of(4),
    "pi_anthropic": Links(4, MOVES_MARKS, 4),
    "pi_gemini": all_of(4),
    "kimi_chat": all_of(7),
    "kimi_kimi": all_of(4),
    "kimi_responses": all_of(4),
    "kimi_anthropic": Links(4, MOVES_MARKS, 4),
    "kimi_gemini": all_of(4),
    "vibe_chat": all_of(4),
    "vibe_responses": all_of(4),
    "vibe_anthropic": Links(7, MOVES_MARKS, 7),
    "cline": all_of(4),
    "continue": all_of(4),
    "aider": Links(2, 0, 0),  # not append-only: file contents always stand before the last message
    "mini": all_of(4),
    "openhands": all_of(6),
    # SDKs and frameworks
    "sdk_openai_chat": all_of(6),
    "sdk_openai_responses_full": all_of(6),
    "sdk_openai_responses_prev": Links(6, 0, 0),  # previous_response_id: a delta transport
    "sdk_anthropic": all_of(6),
    "sdk_anthropic_threads": Links(4, 0, 0),  # message threads: a delta transport
    "sdk_anthropic_threads_refused": all_of(4),
    "sdk_genai": all_of(6),
    "lc_chat": all_of(6),
    "lc_responses": all_of(6),
    "lc_anthropic": all_of(6),
    "litellm_chat": all_of(6),
    "litellm_anthropic": all_of(6),
    "litellm_gemini": all_of(6),
    "pyd_chat": all_of(6),
    "pyd_responses": all_of(6),
    "pyd_anthropic": all_of(6),
    "pyd_google": all_of(6),
    "oaia_chat": all_of(6),
    "oaia_responses": all_of(6),
    "strands": all_of(6),
    "adk": all_of(6),
    "deepagents": all_of(6),
    "smol": all_of(15),
    # if a client compacts or truncates, the chain breaks and continues
    "claude_ctx400_compaction": Links(5, 0, 3),
    "opencode_ctx400_compaction": Links(4, 1, 1),
    "kimi_ctx400_compaction": Links(6, 3, 3),
    "qwen_ctx400_compaction": Links(5, 3, 3),
    "pi_ctx400_compaction": Links(3, 2, 2),
    "codex_own_compaction": Links(2, 1, 1),
    "codex_remote_compaction_trigger": all_of(2),
    "vibe_own_compaction": Links(6, 5, 5),
    "gemini_own_compaction": Links(3, 2, 2),
    "cline_ctx400": Links(3, 2, 2),
    "strands_ctx400": Links(5, 4, 4),
    "claude_tui_side_requests": Links(3, 0, 2),  # the last request was sent twice
}
"""Expected counts of the recordings. They are those of the clients' table if the file has its run,
and those of the file if it has fewer requests (codex gpt-6.1, qwen, claude big)."""

KEYS = ("thread-id", "x-claude-code-session-id", "x-claude-code-agent-id", "x-session-id")
"""Headers that tell a session from its sub-agents."""


def requests(shared: Path, names: str) -> Iterator[dict]:
    for name in names.split():
        for line in (
            (shared / "fixtures/requests" / f"{name}.jsonl").read_text("utf-8").splitlines()
        ):
            request = json.loads(line)
            if isinstance(request["body"], dict):
                yield request


def main_bodies(shared: Path, names: str) -> list[dict]:
    """Return requests of the main session: same tools, same key, no prewarming, no refused
    thread."""
    main_requests = list(requests(shared, names))
    if "refused" in names:
        main_requests = [r for r in main_requests if "thread" not in r["body"]]
    elif "threads" in names or names == "aider":
        return [
            r["body"] for r in main_requests if len(r["body"]["messages"]) != 2
        ]  # aider: summaries aside
    main_requests = [r for r in main_requests if r["body"].get("generate") is not False]
    keys = [
        (frozenset(open_payload(r["body"]).tools), *(r["headers"].get(k) for k in KEYS))
        for r in main_requests
    ]
    most = max([key for key in keys if key[0]] or keys, key=keys.count)
    return [r["body"] for r, key in zip(main_requests, keys, strict=True) if key == most]


def links(bodies: list[dict]) -> Links:
    envelopes = [open_payload(body) for body in bodies]
    entries = [[json.dumps(item) for item in envelope.iter_entries()] for envelope in envelopes]
    chains = [Transcript.of(envelope.decode()).tips for envelope in envelopes]
    raw = sum(len(a) < len(b) and b[: len(a)] == a for a, b in pairwise(entries))
    canon = sum(len(a) < len(b) and a[-1] in b for a, b in pairwise(chains))
    return Links(len(bodies) - 1, raw, canon)


@pytest.mark.parametrize("names", RECORDED)
def test_recorded_requests_continue_the_previous_one_as_often_as_expected(shared: Path, names: str):
    assert links(main_bodies(shared, names)) == RECORDED[names]


def test_every_recording_has_an_expected_count(shared: Path):
    files = {path.stem for path in (shared / "fixtures/requests").glob("*.jsonl")}
    assert files == {name for names in RECORDED for name in names.split()}


# --- what changes no tip ----------------------------------------------------------------------


def tips(body: object) -> list[str]:
    return list(Transcript.of(open_payload(body).decode()).tips)


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | WORDS
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(WORDS, v, max_size=3), max_leaves=6
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=4)
SYSTEM = {"system": "be brief"}


def respell(value: object, draw: st.DrawFn) -> object:
    """Return the same JSON value with another key order, and integers as whole floats."""
    if isinstance(value, dict):
        return {key: respell(value[key], draw) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [respell(item, draw) for item in value]
    if type(value) is int and float(value) == value and draw(st.booleans()):
        return float(value)
    return value


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """Draw two JSON texts of one object."""
    value = draw(ARGUMENTS)
    respelled_value = respell(value, draw)
    space = draw(st.sampled_from([None, 0, 2]))
    return json.dumps(value), json.dumps(
        respelled_value, indent=space, ensure_ascii=draw(st.booleans())
    )


@given(spellings())
def test_reserialised_arguments_change_no_tip(pair: tuple[str, str]):
    first, second = pair

    def chat(text: str) -> dict:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": text}}
        return {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}

    def responses(text: str) -> dict:
        return {
            "input": [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": text}]
        }

    def blocks(text: str) -> dict:
        use = {"type": "tool_use", "id": "c1", "name": "f", "input": json.loads(text)}
        return SYSTEM | {"messages": [{"role": "assistant", "content": [use]}]}

    def gemini(text: str) -> dict:
        return {
            "contents": [
                {
                    "role": "model",
                    "parts": [{"functionCall": {"name": "f", "args": json.loads(text)}}],
                }
            ]
        }

    for body in (chat, responses, blocks, gemini):
        assert tips(body(first)) == tips(body(second))
        assert tips(body(first)) != tips(body('{"another":1}'))


@given(VALUES)
def test_canonical_json_is_a_fixed_point(value: object):
    text = canonicalize(value)
    assert canonicalize(json.loads(text)) == text == canonicalize_text(text)
    assert canonicalize_text(json.dumps(value)) == text


@given(st.dictionaries(st.text(max_size=5), st.text(), min_size=1, max_size=1))
def test_canonicalize_text_agrees_with_canonicalize_for_one_text_argument(value: dict):
    for ascii_only in (True, False):
        for colon in (":", ": "):
            text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", colon))
            assert canonicalize_text(text) == canonicalize(json.loads(text))


def test_arguments_that_are_not_json_are_kept_unchanged():
    for text in ('{"a":', "ls -la", "{'a': 1}", "[" * 100_000, '{"x": 1e400}', "[-2.5E309]"):
        assert canonicalize_text(text) == text
    assert canonicalize_text("") == canonicalize_text("{ }") == "{}"


BLOCKS = [
    {"type": "text", "text": "read it"},
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "done"}]},
]
HISTORY = SYSTEM | {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "fix it"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}],
        },
        {"role": "user", "content": BLOCKS},
        {
            "role": "assistant",
            "content": [
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "x"}]}
            ],
        },
        {"role": "user", "content": "go on"},
    ]
}


def blocks_of(value: object) -> Iterator[dict]:
    """Yield every typed block inside *value*."""
    if isinstance(value, dict):
        if "type" in value:
            yield value
        for item in value.values():
            yield from blocks_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from blocks_of(item)


@given(st.data())
def test_moved_cache_marks_change_no_tip(data: st.DataObject):
    body = deepcopy(HISTORY)
    for block in blocks_of(body["messages"]):
        if data.draw(st.booleans()):
            block["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    assert tips(body) == tips(HISTORY)


@given(WORDS, st.sampled_from(["user", "assistant", "system", "tool"]))
def test_a_string_and_a_list_of_one_text_have_the_same_tip(text: str, role: str):
    block = [{"type": "text", "text": text}]
    extra = {"tool_call_id": "c1"} if role == "tool" else {}
    first = {"role": "developer", "content": "x"}  # exists only in chats
    assert tips(
        [first, {"role": "user", "content": "q"}, {"role": role, "content": text, **extra}]
    ) == tips([first, {"role": "user", "content": "q"}, {"role": role, "content": block, **extra}])
    assert (
        tips({"input": [text]})
        == tips({"input": text})
        == tips({"input": [{"role": "user", "content": text}]})
    )

    def blocks(content: object) -> dict:
        use = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": content}
        messages = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
        return SYSTEM | {"messages": messages}

    assert tips(blocks(text)) == tips(blocks(block))


@given(st.binary(min_size=1, max_size=40), st.booleans())
def test_reencoded_signatures_and_data_change_no_tip(data: bytes, snake: bool):
    def contents(encode: object, *, snake: bool) -> dict:
        text = encode(data).decode()
        mark, call, inline, mime = (
            ("thought_signature", "function_call", "inline_data", "mime_type")
            if snake
            else ("thoughtSignature", "functionCall", "inlineData", "mimeType")
        )
        media = {inline: {mime: "image/png", "data": text}}
        parts = [
            {"text": "hm", "thought": True},
            {call: {"name": "f", "args": {}}, mark: text},
            {"text": "", mark: text},
        ]
        return {"contents": [{"role": "user", "parts": [media]}, {"role": "model", "parts": parts}]}

    standard, url = (
        contents(base64.b64encode, snake=False),
        contents(base64.urlsafe_b64encode, snake=snake),
    )
    assert tips(standard) == tips(url)


@given(st.uuids(), st.sampled_from(["completed", "in_progress", None]))
def test_ids_and_status_of_items_change_no_tip(id: object, status: object):
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "abc"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {"type": "web_search_call", "action": {"query": "x"}},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": []}],
        },
    ]
    renamed = [{**item, "id": str(id), **({"status": status} if status else {})} for item in items]
    renamed[1]["encrypted_content"] = "another"
    assert tips({"input": items}) == tips({"input": renamed})


def test_call_ids_of_gemini_change_no_tip():
    def contents(first: dict, second: dict) -> dict:
        calls = [
            {"functionCall": {"name": "f", "args": {}, **first}},
            {"functionCall": {"name": "f", "args": {}, **second}},
        ]
        answers = [
            {"functionResponse": {"name": "f", "response": {"output": x}, **y}}
            for x, y in (("a", first), ("b", second))
        ]
        return {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": answers}]}

    assert tips(contents({}, {})) == tips(contents({"id": "x"}, {"id": "y"}))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m[0]["content"][0].update(text="fix that"),
        lambda m: m[1]["content"][0].update(id="c2"),
        lambda m: m[1]["content"][0].update(input={"a": 1}),
        lambda m: m[2]["content"][1].update(content="failed"),
        lambda m: m[2]["content"][1].update(is_error=True),
        lambda m: m[3]["content"][0].update(content=[]),
        lambda m: m[4].update(role="assistant"),
        lambda m: m.pop(0),
    ],
)
def test_a_change_of_content_changes_the_tip(change: object):
    body = deepcopy(HISTORY)
    change(body["messages"])
    assert tips(body)[-1] != tips(HISTORY)[-1]


@given(WORDS, WORDS)
def test_different_texts_have_different_tips(first: str, second: str):
    assume(first != second)
    assert tips([{"role": "user", "content": first}]) != tips([{"role": "user", "content": second}])


def test_system_prompts_do_not_change_the_tips():
    messages = [{"role": "user", "content": "q"}]
    assert tips([{"role": "system", "content": "a"}, *messages]) == tips(
        [{"role": "developer", "content": "b"}, *messages]
    )
    billing = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1.a"},
        {"type": "text", "text": "be brief"},
    ]
    assert (
        open_payload({"system": billing, "messages": messages}).system
        == open_payload(SYSTEM | {"messages": messages}).system
    )
