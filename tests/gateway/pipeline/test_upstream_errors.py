"""Upstream errors: which mean that a request is too long, in each provider's wording, and their
figures."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway.pipeline.upstream_errors import ErrorFigures, is_context_error, read_figures
from refold.gateway.relay import context_error
from refold.gateway.settings import load_providers

APIS = ("anthropic", "openai_chat", "openai_responses", "gemini")
TABLE = tomllib.loads(Path(__file__).with_name("upstream_errors.toml").read_text("utf-8"))
TOO_LONG: list[tuple[str, int, str, str]] = TABLE["too_long"]
SHAPES = {
    "an object": lambda error: {"error": error if isinstance(error, dict) else {"message": error}},
    "its fields": lambda error: (
        error if isinstance(error, dict) else {"object": "error", "message": error}
    ),
    "a string": lambda error: {"error": json.dumps(error) if isinstance(error, dict) else error},
}


def figures_of(text: str) -> ErrorFigures:
    """Return the figures of a row of the table: `tokens + output > limit`."""
    tokens, output, limit = map(int, re.findall(r"\d+", text))
    return ErrorFigures(tokens, output, limit, is_minimum="at least" in text)


# --- wording of providers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "status", "words", "figures"),
    TOO_LONG,
    ids=[f"{row[0]}-{at}" for at, row in enumerate(TOO_LONG)],
)
def test_the_context_error_of_each_provider_is_recognised(
    provider: str, status: int, words: str, figures: str
) -> None:
    error = json.loads(words) if words.startswith("{") else words
    for shape, wrap in SHAPES.items():
        body = json.dumps(wrap(error)).encode()
        for api in {provider if provider in APIS else "openai_chat", "openai_chat"}:
            assert is_context_error(api, status, body), shape
        assert read_figures(body) == figures_of(figures), shape


def test_every_provider_preset_has_a_context_error_example() -> None:
    assert set(load_providers()) <= {provider for provider, *_ in TOO_LONG}


@pytest.mark.parametrize(("status", "message"), TABLE["others"])
def test_errors_that_fewer_tokens_would_not_fix_are_not_context_errors(
    status: int, message: str
) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    assert not any(is_context_error(api, status, body) for api in APIS)


def test_an_empty_error_body_is_a_context_error_only_with_status_413() -> None:
    for body in (b"", b" \n"):
        assert is_context_error("openai_chat", 413, body)
        assert not is_context_error("openai_chat", 400, body)


def test_a_responses_stream_may_begin_with_a_context_error():
    event = b'event: response.failed\ndata: {"type":"response.failed","response":{"error":{"code":"context_length_exceeded"}}}\n\n'
    assert is_context_error("openai_responses", 200, event)
    assert not is_context_error("openai_chat", 200, event)
    assert not is_context_error("openai_responses", 200, b'data: {"type":"response.created"}')


# --- our own errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_our_own_context_errors_are_recognised_as_such(api: str):
    status, headers, body = context_error(api, 30_000, 16_000)
    assert status == 400
    assert dict(headers)["content-type"] == "application/json"
    assert is_context_error(api, status, body)
    figures = read_figures(body)
    assert figures == (
        ErrorFigures() if api == "openai_responses" else ErrorFigures(30_000, 0, 16_000)
    )
    assert is_context_error(api, *context_error(api)[::2])


def test_context_errors_are_written_in_the_dialect_of_the_caller():
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


@pytest.mark.parametrize("api", APIS)
def test_a_context_error_without_a_known_limit_contains_no_figures(api: str) -> None:
    body = context_error(api, 30_000)[2]
    assert is_context_error(api, 400, body)
    assert read_figures(body) == ErrorFigures()
    assert not any(digit in json.loads(body)["error"]["message"] for digit in "0123456789")


# --- quoted text --------------------------------------------------------------------------------

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
def test_context_errors_are_recognised_in_every_wrapping(error: object):
    body = json.dumps(error).encode()
    assert is_context_error("openai_chat", 400, body)
    assert read_figures(body) == ErrorFigures(9_000, 0, 8_192)


@pytest.mark.parametrize("text", [TOLD, f"data: {json.dumps(LONG)}\n\n", f"400 {json.dumps(LONG)}"])
def test_context_errors_that_are_not_json_are_recognised(text: str):
    assert is_context_error("openai_chat", 400, text.encode())
    assert read_figures(text.encode()) == ErrorFigures(9_000, 0, 8_192)


PLAIN = st.text(st.characters(exclude_characters="'\"`“”‘’{}\\"), max_size=30).map(
    lambda text: f"{text} "
)
WRONG = st.one_of(
    st.sampled_from([words for _, _, words, _ in TOO_LONG if not words.startswith("{")]),
    st.just(TOLD),
)
QUOTES = st.sampled_from(["''", '""', "``", "“”", "‘’"])


@given(
    PLAIN,
    WRONG,
    QUOTES,
    st.sampled_from(["", ". Supported values are: 'a' and 'b'."]),
    st.booleans(),
)
def test_quoted_text_in_an_error_is_not_taken_for_a_context_error(
    before: str, wrong: str, quotes: str, after: str, whole: bool
):
    """Providers quote a wrong value, which is text of the request, and truncate long ones."""
    wrong = (  # a quotation mark of the same kind ends the quote, an apostrophe inside a word does not
        re.sub(r"\B'|'\B", " ", wrong) if quotes[0] == "'" else wrong.replace(quotes[0], " ")
    )
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
def test_request_text_echoed_in_an_error_is_not_taken_for_a_context_error(error: object):
    body = json.dumps(error).encode()
    assert not is_context_error("openai_chat", 400, body)
    assert read_figures(body) == ErrorFigures()


VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=30)
    | st.sampled_from([TOLD, json.dumps(LONG), "\ud800", "9" * 5_000]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["error", "message", "raw", "detail", "code", "x"]), inner, max_size=4
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


# --- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "sent", "room"),
    [
        (ErrorFigures(2_900, 30_000, 32_768), 2_000, 32_768 - 2_900 - 1_000),
        (ErrorFigures(8_000, 0, 10_000), 1, 1_900),
        (ErrorFigures(24_577, 8_192, 32_768, is_minimum=True), 24_000, 32_768 - 30_000 - 138),
        (ErrorFigures(24_577, 8_192, 32_768, is_minimum=True), 1_000, 8_191 - 409),
        (ErrorFigures(9_000, 0, 8_000), 1, 0),
        (ErrorFigures(0, 0, 8_000), 1, 0),
        (ErrorFigures(), 1, 0),
    ],
)
def test_answer_room_is_computed_from_the_figures_of_an_error(
    figures: ErrorFigures, sent: int, room: int
) -> None:
    assert figures.answer_room(sent) == room
