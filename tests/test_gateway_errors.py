"""Context errors: recognised from every provider, and said in the caller's dialect."""

import json

import pytest

from refold.gateway.caps import Cap, cap_of, lowered, written
from refold.gateway.errors import Figures, context_error, figures, is_context_error

APIS = ("anthropic", "openai_chat", "openai_responses", "gemini")


@pytest.mark.parametrize("api", APIS)
def test_what_we_say_is_what_we_recognise(api: str):
    status, headers, body = context_error(api, 30_000, 16_000)
    assert status == 400
    assert dict(headers)["content-type"] == "application/json"
    assert is_context_error(api, status, body)
    said = figures(body)
    assert said == (Figures() if api == "openai_responses" else Figures(30_000, 0, 16_000))
    assert is_context_error(api, *context_error(api)[::2])


def test_dialects():
    assert json.loads(context_error("anthropic", 7, 5)[2]) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 7 tokens > 5 maximum"},
    }
    assert json.loads(context_error("gemini", 7, 5)[2])["error"]["status"] == "INVALID_ARGUMENT"
    for api, param in (("openai_chat", "messages"), ("openai_responses", "input")):
        error = json.loads(context_error(api, 7, 5)[2])["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)


SAID = [
    ("anthropic", 400, "prompt is too long: 205000 tokens > 200000 maximum", Figures(205_000, 0, 200_000)),
    (
        "anthropic",
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens`",
        Figures(190_000, 32_000, 200_000),
    ),
    ("anthropic", 413, "request_too_large: Request exceeds the maximum size", Figures()),
    (
        "openai_chat",
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130222 tokens (129000 in the messages, 1222 in the functions).",
        Figures(130_222, 0, 128_000),
    ),
    (
        "openai_chat",
        400,
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion).",
        Figures(8_000, 1_000, 8_192),
    ),
    (
        "openai_chat",
        400,
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        Figures(0, 0, 131_072),
    ),
    ("openai_chat", 500, "the request exceeds the available context size, try increasing it", Figures()),
    (
        "gemini",
        400,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        Figures(1_200_000, 0, 1_048_576),
    ),
    (
        "gemini",
        400,
        "The input token count 1200000 exceeds the maximum number of tokens allowed 1048576.",
        Figures(1_200_000, 0, 1_048_576),
    ),
]


@pytest.mark.parametrize(("api", "status", "message", "expected"), SAID)
def test_what_providers_say(api: str, status: int, message: str, expected: Figures):
    body = json.dumps({"error": {"message": message}}).encode()
    assert is_context_error(api, status, body)
    assert figures(body) == expected


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Rate limit reached: too many tokens per minute"),
        (401, "Incorrect API key provided"),
        (400, "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens"),
        (400, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after"),
        (400, "messages.3.content.0: Invalid `signature` in `thinking` block"),
        (404, "model not found"),
        (200, "maximum context length"),
    ],
)
def test_what_is_no_context_error(status: int, message: str):
    for api in APIS:
        assert not is_context_error(api, status, json.dumps({"error": {"message": message}}).encode())


def test_a_stream_of_responses_may_begin_with_it():
    event = b'event: response.failed\ndata: {"type":"response.failed","response":{"error":{"code":"context_length_exceeded"}}}\n\n'
    assert is_context_error("openai_responses", 200, event)
    assert not is_context_error("openai_chat", 200, event)
    assert not is_context_error("openai_responses", 200, b'data: {"type":"response.created"}')


# --- caps -----------------------------------------------------------------------------------------


def test_a_cap_is_lowered_where_it_stands_and_nowhere_else():
    source = b'\xef\xbb\xbf{ "max_tokens" : 5, "m": {"max_tokens": 7}, "max_tokens":32000 ,"x":"\xc3\xa9\\"max_tokens\\": 1"}'
    assert written(source, Cap(("max_tokens",), 99)) == source.replace(b"32000", b"99")
    nested = b'{"generationConfig":{"a":[1,2],"maxOutputTokens":8000},"contents":[]}'
    assert written(nested, Cap(("generationConfig", "maxOutputTokens"), 99)) == nested.replace(b"8000", b"99")
    with pytest.raises(ValueError, match="no field"):
        written(b'{"a": 1}', Cap(("max_tokens",), 99))


def test_a_cap_that_fits_or_cannot_is_left_alone():
    body = {"max_tokens": 1_500}
    assert lowered("anthropic", body, 5_000, 10_000) is None
    assert lowered("anthropic", body, 9_500, 10_000) is None  # what would be left is no answer
    assert lowered("anthropic", body, 8_900, 10_000) == Cap(("max_tokens",), 1_100)
    thinking = {"max_tokens": 9_000, "thinking": {"type": "enabled", "budget_tokens": 4_000}}
    assert lowered("anthropic", thinking, 4_000, 10_000) == Cap(("max_tokens",), 6_000)
    assert lowered("anthropic", thinking, 6_000, 10_000) is None  # less than was promised for thinking


@pytest.mark.parametrize("value", [None, True, "8", -1, 1.5, {}])
def test_caps_that_are_none(value: object):
    assert cap_of("anthropic", {"max_tokens": value}) is None
    assert cap_of("gemini", {"generationConfig": value}) is None
    assert cap_of("", {"max_tokens": 5}) is None
