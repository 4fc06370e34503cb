"""Usage of every provider, with every input token counted once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.tokens.usage import Usage, read_usage

ANTHROPIC = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 7_883,
    "cache_read_input_tokens": 17_915,
    "output_tokens": 50,
}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (ANTHROPIC, Usage(25_801, 50, 17_915, 7_883)),
        (
            {
                "input_tokens": 9,
                "output_tokens": 2,
                "cache_creation": {"ephemeral_5m_input_tokens": 40},
            },
            Usage(49, 2, 0, 40, hour=0),
        ),
        (
            {
                **ANTHROPIC,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 7_000,
                    "ephemeral_1h_input_tokens": 883,
                },
            },
            Usage(25_801, 50, 17_915, 7_883, hour=883),
        ),
        (
            {
                **ANTHROPIC,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            },
            Usage(25_801, 50, 17_915, 7_883),
        ),
        (
            {**ANTHROPIC, "cache_creation": {"ephemeral_1h_input_tokens": 9_999}},
            Usage(25_801, 50, 17_915, 7_883, hour=7_883),
        ),
        ({"input_tokens": 9, "output_tokens": 2}, Usage(9, 2)),
        (
            {
                "prompt_tokens": 1_000,
                "completion_tokens": 70,
                "prompt_tokens_details": {"cached_tokens": 900},
            },
            Usage(1_000, 70, 900),
        ),
        (
            {"prompt_tokens": 1_000, "completion_tokens": 70, "prompt_tokens_details": None},
            Usage(1_000, 70),
        ),
        (
            {
                "input_tokens": 1_000,
                "output_tokens": 70,
                "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 300},
            },
            Usage(1_000, 70, 600, 300),
        ),
        (
            {
                "promptTokenCount": 500,
                "cachedContentTokenCount": 400,
                "candidatesTokenCount": 20,
                "thoughtsTokenCount": 30,
            },
            Usage(500, 50, 400),
        ),
        ({"prompt_token_count": 500, "candidates_token_count": None}, Usage(500)),
        (
            {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36, "completion_tokens": 5},
            Usage(100, 5, 64),
        ),
        (
            {
                "prompt_tokens": 100,
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
                "completion_tokens": 5,
            },
            Usage(100, 5, 64),
        ),
        ({"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 64}, Usage(100, 5, 64)),
        ({"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 135}, Usage(100, 35)),
        (
            {"input": 10, "output": 5, "cacheRead": 90, "cacheWrite": 20, "cost": {"total": 0.1}},
            Usage(120, 5, 90, 20),
        ),
        (
            {
                "inputTokens": 10,
                "outputTokens": 5,
                "totalTokens": 125,
                "cacheReadInputTokens": 90,
                "cacheWriteInputTokens": 20,
            },
            Usage(120, 5, 90, 20),
        ),
        (
            {"inputTokens": 120, "outputTokens": 5, "totalTokens": 125, "cacheReadInputTokens": 90},
            Usage(120, 5, 90),
        ),
        (
            {"input_tokens": 90, "cached_input_tokens": 80, "output_tokens": 5},
            Usage(90, 5, cached=80),
        ),
        (
            {"input": 90, "output": 5, "cached": 80, "thoughts": 2, "tool": 0, "total": 97},
            Usage(90, 7, cached=80),
        ),
        (
            {"input": 9, "output": 5, "reasoning": 2, "cache": {"read": 80, "write": 1}},
            Usage(90, 5, cached=80, written=1),
        ),
        (
            {"total": 97, "input": 10, "output": 5, "reasoning": 2, "cache": {"read": 80}},
            Usage(90, 7, cached=80),
        ),
    ],
    ids=[
        "anthropic",
        "by ttl",
        "two ttls",
        "ttls left empty",
        "more for an hour than in all",
        "plain",
        "chat",
        "no details",
        "responses",
        "gemini",
        "python",
        "hit and miss",
        "both",
        "moonshot",
        "xai",
        "pi",
        "converse",
        "strands",
        "codex",
        "gemini cli",
        "opencode",
        "opencode with a sum",
    ],
)
def test_usage_is_read_in_the_form_of_every_provider(usage, expected):
    assert read_usage(usage) == expected


LITELLM = {
    "prompt_tokens": 25_801,
    "completion_tokens": 50,
    "total_tokens": 25_851,
    "cache_creation_input_tokens": 7_883,
    "cache_read_input_tokens": 17_915,
}
"""ANTHROPIC as LiteLLM writes it for the Chat Completions API."""


@pytest.mark.parametrize(
    ("fields", "hour"),
    [
        ({}, None),
        ({"prompt_tokens_details": {"cached_tokens": 17_915}}, None),
        (
            {
                "prompt_tokens_details": {
                    "cached_tokens": 17_915,
                    "cache_creation_tokens": 7_883,
                    "cache_creation_token_details": {
                        "ephemeral_5m_input_tokens": 7_000,
                        "ephemeral_1h_input_tokens": 883,
                    },
                }
            },
            883,
        ),
        ({"input_tokens": 0, "output_tokens": 0, "input_tokens_details": None}, None),
    ],
    ids=["plain", "read", "by term", "empty fields of another API"],
)
def test_litellms_cache_fields_are_inside_its_prompt_tokens(fields, hour):
    """Read as Anthropic's, no usage was once found: neither cost nor window was known."""
    assert read_usage({**LITELLM, **fields}) == Usage(25_801, 50, 17_915, 7_883, hour=hour)


@pytest.mark.parametrize("name", ["prompt_tokens", "prompt_cache_hit_tokens"])
def test_a_zero_field_of_another_api_does_not_hide_the_usage(name):
    assert read_usage({name: 0, "completion_tokens": 0, **ANTHROPIC}) == read_usage(ANTHROPIC)


def test_the_last_of_several_iterations_is_the_usage_of_the_request():
    """Compaction on the server: the top level omits its tokens, or sums more than any one request
    had."""
    iterations = [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {
            "type": "message",
            "input_tokens": 23_000,
            "output_tokens": 1_000,
            "cache_read_input_tokens": 500,
        },
    ]
    usage = {"input_tokens": 203_500, "output_tokens": 4_500, "iterations": iterations}
    assert read_usage(usage) == Usage(23_500, 1_000, 500)
    compaction_only = {"input_tokens": 180_000, "output_tokens": 1, "iterations": iterations[:1]}
    assert read_usage(compaction_only) == Usage(180_000, 1, calls=0)
    assert not Usage(180_000, 1, calls=0).is_plausible(180_000)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        3,
        [],
        {},
        {"output_tokens": 3},
        {"input": 0, "output": 0},
        {"prompt_tokens": "12"},
        {"input_tokens": 10**16},
    ],
)
def test_invalid_or_empty_usage_is_read_as_none(usage):
    assert read_usage(usage) is None


KEYS = st.sampled_from(
    [
        "input_tokens",
        "iterations",
        "cache_creation",
        "prompt_tokens",
        "promptTokenCount",
        "input",
        "input_tokens_details",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(JSON)
def test_read_usage_does_not_raise_for_any_json(usage):
    reading = read_usage(usage)
    assert reading is None or reading.input > 0


def test_conformance_45_cached_tokens_count_once_and_sums_over_calls_are_recognised():
    usage = read_usage(ANTHROPIC)
    assert usage is not None
    assert usage.input == 3 + 7_883 + 17_915
    assert usage.context == usage.input + 50
    assert usage.is_plausible(estimated=22_000)
    summed = Usage(usage.input * 6, cached=usage.cached * 6)
    assert not summed.is_plausible(estimated=22_000)
    assert not usage.is_plausible(estimated=22_000, window=20_000)


@pytest.mark.parametrize(
    ("reported", "estimated", "plausible"),
    [
        (1_800, 10, True),
        (0, 10, False),
        (30_000, 10_000, True),
        (30_001, 10_000, False),
        (3_334, 10_000, True),
        (3_000, 10_000, False),
    ],
)
def test_only_plausible_usage_is_trusted(reported, estimated, plausible):
    assert Usage(reported).is_plausible(estimated) is plausible


def test_recorded_usages_are_read(shared):
    count = 0
    for path in sorted(shared.glob("datasets/claude_code_spotter/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            usage = (json.loads(line).get("message") or {}).get("usage")
            if usage:
                reading = read_usage(usage)
                parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
                total = sum(usage.get(part) or 0 for part in parts)
                assert (reading.input if reading else 0) == total
                count += 1
    assert count > 100
