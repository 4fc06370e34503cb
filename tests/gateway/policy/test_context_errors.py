"""Context errors: recognised from every provider, and said in the caller's dialect."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway.policy.body_fields import Cap, lower_cap, read_cap, write_cap
from refold.gateway.policy.upstream_errors import (
    ErrorFigures,
    is_context_error,
    read_figures,
)
from refold.gateway.proxy.call import context_error

APIS = ("anthropic", "openai_chat", "openai_responses", "gemini")


@pytest.mark.parametrize("api", APIS)
def test_what_we_say_is_what_we_recognise(api: str):
    status, headers, body = context_error(api, 30_000, 16_000)
    assert status == 400
    assert dict(headers)["content-type"] == "application/json"
    assert is_context_error(api, status, body)
    said = read_figures(body)
    assert said == (
        ErrorFigures() if api == "openai_responses" else ErrorFigures(30_000, 0, 16_000)
    )
    assert is_context_error(api, *context_error(api)[::2])


def test_dialects():
    assert json.loads(context_error("anthropic", 7, 5)[2]) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 7 tokens > 5 maximum",
        },
    }
    assert json.loads(context_error("gemini", 7, 5)[2])["error"]["status"] == "INVALID_ARGUMENT"
    for api, param in (("openai_chat", "messages"), ("openai_responses", "input")):
        error = json.loads(context_error(api, 7, 5)[2])["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)


SAID = [
    (
        "anthropic",
        400,
        "prompt is too long: 205000 tokens > 200000 maximum",
        ErrorFigures(205_000, 0, 200_000),
    ),
    (
        "anthropic",
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens`",
        ErrorFigures(190_000, 32_000, 200_000),
    ),
    ("anthropic", 413, "request_too_large: Request exceeds the maximum size", ErrorFigures()),
    (
        "openai_chat",
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130222 tokens (129000 in the messages, 1222 in the functions).",
        ErrorFigures(130_222, 0, 128_000),
    ),
    (
        "openai_chat",
        400,
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion).",
        ErrorFigures(8_000, 1_000, 8_192),
    ),
    (
        "openai_chat",
        400,
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        ErrorFigures(0, 0, 131_072),
    ),
    (
        "openai_chat",
        500,
        "the request exceeds the available context size, try increasing it",
        ErrorFigures(),
    ),
    (
        "gemini",
        400,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        ErrorFigures(1_200_000, 0, 1_048_576),
    ),
    (
        "gemini",
        400,
        "The input token count 1200000 exceeds the maximum number of tokens allowed 1048576.",
        ErrorFigures(1_200_000, 0, 1_048_576),
    ),
]


@pytest.mark.parametrize(("api", "status", "message", "expected"), SAID)
def test_what_providers_say(api: str, status: int, message: str, expected: ErrorFigures):
    body = json.dumps({"error": {"message": message}}).encode()
    assert is_context_error(api, status, body)
    assert read_figures(body) == expected


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Rate limit reached: too many tokens per minute"),
        (401, "Incorrect API key provided"),
        (400, "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens"),
        (
            400,
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after",
        ),
        (400, "messages.3.content.0: Invalid `signature` in `thinking` block"),
        (404, "model not found"),
        (200, "maximum context length"),
    ],
)
def test_what_is_no_context_error(status: int, message: str):
    for api in APIS:
        assert not is_context_error(
            api, status, json.dumps({"error": {"message": message}}).encode()
        )


def test_a_stream_of_responses_may_begin_with_it():
    event = b'event: response.failed\ndata: {"type":"response.failed","response":{"error":{"code":"context_length_exceeded"}}}\n\n'
    assert is_context_error("openai_responses", 200, event)
    assert not is_context_error("openai_chat", 200, event)
    assert not is_context_error("openai_responses", 200, b'data: {"type":"response.created"}')


# --- what an error quotes -------------------------------------------------------------------------

TOLD = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
LONG = {
    "error": {"message": TOLD, "type": "invalid_request_error", "code": "context_length_exceeded"}
}
HANDED_ON = [
    [LONG],
    {"errors": [LONG["error"]]},
    {"object": "error", **LONG["error"]},
    {"error": TOLD},
    {"detail": TOLD},
    {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps(LONG)}}},
    {"error": {"message": f"Error code: 400 - {LONG}"}},
    {
        "error": {
            "message": f"litellm.ContextWindowExceededError: OpenAIException - {json.dumps(LONG)}\nmodel=m"
        }
    },
    {"message": f"The upstream said {json.dumps({'raw': json.dumps(LONG)})}"},
]


@pytest.mark.parametrize("error", HANDED_ON, ids=range(len(HANDED_ON)))
def test_errors_are_recognised_however_they_were_handed_on(error: object):
    body = json.dumps(error).encode()
    assert is_context_error("openai_chat", 400, body)
    assert read_figures(body) == ErrorFigures(9_000, 0, 8_192)


@pytest.mark.parametrize("text", [TOLD, f"data: {json.dumps(LONG)}\n\n", f"400 {json.dumps(LONG)}"])
def test_errors_that_are_no_json_are_recognised(text: str):
    assert is_context_error("openai_chat", 400, text.encode())
    assert read_figures(text.encode()) == ErrorFigures(9_000, 0, 8_192)


PLAIN = st.text(st.characters(exclude_characters="'\"`“”‘’{}\\"), max_size=30).map(
    lambda text: f"{text} "
)
WRONG = st.one_of(st.sampled_from([message for *_, message, _ in SAID]), st.just(TOLD))
QUOTES = st.sampled_from(["''", '""', "``", "“”", "‘’"])


@given(
    PLAIN,
    WRONG,
    QUOTES,
    st.sampled_from(["", ". Supported values are: 'a' and 'b'."]),
    st.booleans(),
)
def test_what_an_error_quotes_does_not_count(
    before: str, wrong: str, quotes: str, after: str, whole: bool
):
    """Providers quote a wrong value, which is text of the request; a long one they cut off."""
    if quotes[0] in "`“‘":
        wrong = wrong.replace(quotes[0], " ")
    quoted = f"{quotes[0]}{wrong}{quotes[1]}{after}" if whole else f"{quotes[0]}{wrong[:-1]}"
    for error in (
        {"message": f"Invalid value: {before}{quoted}"},
        f"Invalid value: {before}{quoted}",
    ):
        body = json.dumps({"error": error}).encode()
        assert not is_context_error("openai_chat", 400, body)
        assert read_figures(body) == ErrorFigures()


@pytest.mark.parametrize(
    "error",
    [
        {
            "detail": [
                {
                    "type": "string_type",
                    "loc": ["body", "messages", 0],
                    "msg": "No string",
                    "input": TOLD,
                }
            ]
        },
        {
            "error": {"message": "Bad request"},
            "request": {"messages": [{"role": "user", "content": TOLD}]},
        },
        {"error": {"message": f"1 validation error: {{'msg': 'No string', 'input': {TOLD!r}}}"}},
        {"error": {"message": "No such model", "param": TOLD}},
    ],
)
def test_a_request_that_an_error_shows_does_not_count(error: object):
    body = json.dumps(error).encode()
    assert not is_context_error("openai_chat", 400, body)
    assert read_figures(body) == ErrorFigures()


VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=30)
    | st.sampled_from([TOLD, json.dumps(LONG), "\ud800", "9" * 5_000]),
    lambda one: (
        st.lists(one, max_size=4)
        | st.dictionaries(
            st.sampled_from(["error", "message", "raw", "detail", "code", "x"]), one, max_size=4
        )
    ),
    max_leaves=12,
)


@given(VALUES, st.binary(max_size=60))
def test_any_error_can_be_read(value: object, rest: bytes):
    for body in (
        json.dumps(value).encode(),
        json.dumps(value).encode() + rest,
        rest,
        b"[" * 100_000,
    ):
        assert is_context_error("openai_chat", 400, body) in {True, False}
        assert read_figures(body).limit >= 0


# --- caps -----------------------------------------------------------------------------------------


def test_a_cap_is_lowered_where_it_stands_and_nowhere_else():
    source = b'\xef\xbb\xbf{ "max_tokens" : 5, "m": {"max_tokens": 7}, "max_tokens":32000 ,"x":"\xc3\xa9\\"max_tokens\\": 1"}'
    assert write_cap(source, Cap(("max_tokens",), 99)) == source.replace(b"32000", b"99")
    nested = b'{"generationConfig":{"a":[1,2],"maxOutputTokens":8000},"contents":[]}'
    assert write_cap(nested, Cap(("generationConfig", "maxOutputTokens"), 99)) == nested.replace(
        b"8000", b"99"
    )
    with pytest.raises(ValueError, match="no field"):
        write_cap(b'{"a": 1}', Cap(("max_tokens",), 99))


def test_a_cap_that_fits_or_cannot_is_left_alone():
    body = {"max_tokens": 1_500}
    assert lower_cap("anthropic", body, 5_000, 10_000) is None
    assert lower_cap("anthropic", body, 9_500, 10_000) is None  # what would be left is no answer
    assert lower_cap("anthropic", body, 8_900, 10_000) == Cap(("max_tokens",), 1_100)
    thinking = {"max_tokens": 9_000, "thinking": {"type": "enabled", "budget_tokens": 4_000}}
    assert lower_cap("anthropic", thinking, 4_000, 10_000) == Cap(("max_tokens",), 6_000)
    assert (
        lower_cap("anthropic", thinking, 6_000, 10_000) is None
    )  # less than was promised for thinking


@pytest.mark.parametrize("value", [None, True, "8", -1, 1.5, {}])
def test_caps_that_are_none(value: object):
    assert read_cap("anthropic", {"max_tokens": value}) is None
    assert read_cap("gemini", {"generationConfig": value}) is None
    assert read_cap("", {"max_tokens": 5}) is None
