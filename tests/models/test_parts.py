"""Functions as models, removal of reasoning, classification of errors, and the scripted server
itself."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import models
from refold.core.strategy import Answer, Ask, Failure
from refold.messages import Message, Text
from refold.models import HTTPModel, Model, as_model, as_text_model
from refold.models.model import OPENING, alternating_turns, with_cost
from refold.models.responses import (
    failure_of_exception,
    failure_of_status,
    retry_after,
    shorten_error,
    strip_reasoning,
)
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Rates
from refold.tokens.usage import Usage

ASK = Ask(
    "Summarise.",
    system="Be brief.",
    messages=(Message("user", (Text("你好"),)), Message("assistant", (Text("Hi."),))),
)


def echo(text: str) -> str:
    return f"<think>hm</think>got {text}"


async def aecho(text: str) -> str:
    return echo(text)


def of_ask(ask: Ask) -> Answer:
    return Answer(ask.prompt, "length")


async def of_ask_async(ask: Ask) -> Answer:
    return of_ask(ask)


def broken(_: Any) -> str:
    raise ConnectionResetError("Bearer abc.def is no good")


async def abroken(_: Any) -> str:
    broken(_)
    return ""


@pytest.mark.parametrize("function", [echo, aecho])
def test_a_function_of_a_text_is_a_sync_and_async_model(function: Any) -> None:
    """S2-49 S3-23: any callable of a program can write summaries, without tools."""
    model = as_text_model(function)
    expected = Answer("got Be brief.\n\n[user]\n你好\n\n[assistant]\nHi.\n\nSummarise.")
    assert model(ASK) == expected
    assert asyncio.run(model.acall(ASK)) == expected
    assert isinstance(model, Model)


@pytest.mark.parametrize("function", [of_ask, of_ask_async])
def test_a_function_of_an_ask_is_a_sync_and_async_model(function: Any) -> None:
    model = as_model(function)
    assert model(ASK) == asyncio.run(model.acall(ASK)) == Answer("Summarise.", "length")


@pytest.mark.parametrize("function", [broken, abroken])
def test_an_exception_of_a_function_becomes_an_error_answer(function: Any) -> None:
    model = as_text_model(function)
    for answer in (model(ASK), asyncio.run(model.acall(ASK))):
        assert answer is not None
        assert (answer.finish, answer.failure) == ("error", Failure("connection"))
        assert answer.error == "ConnectionResetError: *** is no good"


def test_an_async_function_is_refused_in_sync_code_inside_an_event_loop() -> None:
    async def main() -> None:
        as_text_model(aecho)(ASK)

    with pytest.raises(TypeError, match="acompact"):
        asyncio.run(main())


def test_turns_alternate_and_the_user_begins() -> None:
    messages = [
        Message(role, (Text(text),))
        for role, text in (("assistant", "a"), ("user", "b"), ("user", "c"))
    ]
    assert alternating_turns(Ask("d", messages=tuple(messages))) == [
        ("user", OPENING),
        ("assistant", "a"),
        ("user", "b\n\nc\n\nd"),
    ]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("  <THINKING>a\n</THINKING>\n<reasoning>c</reasoning> b ", "b"),
        ("<think>never closed", ""),
        ("hidden opening\n</think>\n\nb", "b"),
        (
            "The parser strips `<think>x</think>` tags.",
            "The parser strips `<think>x</think>` tags.",
        ),
        ("Tags: <think>\nx\n</think>\nb", "Tags: <think>\nx\n</think>\nb"),
    ],
)
def test_conformance_32_reasoning_at_the_beginning_of_a_reply_is_removed(
    text: str, rest: str
) -> None:
    assert strip_reasoning(text) == rest


@given(st.text(), st.text())
def test_text_after_reasoning_is_kept(thought: str, text: str) -> None:
    if "<" not in thought + text:
        assert strip_reasoning(f"<think>{thought}</think>{text}") == text.strip()
        assert strip_reasoning(text) == text


SECRETS = [
    "sk-proj-abcDEF1234567890",
    "Authorization: Bearer eyJhbGciOi.x.y",
    "https://host/path?key=AIzaSyD-123&x=1",
    "postgres://me:hunter2@host/db",
    "api_key='0f9c'",
    "0123456789abcdef0123456789abcdef",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_error_texts_hide_strings_that_look_like_a_key(secret: str) -> None:
    shortened = shorten_error(f"before {secret} after")
    assert "***" in shortened
    assert shortened.startswith("before") and shortened.endswith("after")
    for part in ("abcDEF", "eyJ", "AIza", "hunter2", "0f9c", "0123456789"):
        assert part not in shortened


def test_ordinary_errors_are_not_changed() -> None:
    text = "NotFoundError: model claude-sonnet-4-5-20250929 does not exist (request req_011CQ)"
    assert shorten_error(text) == text
    assert len(shorten_error("x " * 9_000)) == 240


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": format_datetime(datetime(2000, 1, 1, tzinfo=UTC))}, 0),
        ({}, None),
    ],
)
def test_retry_after_is_read_from_the_headers(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    wait = retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(hours=1))})
    assert wait is not None and 3_000 < wait <= 3_600


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "This model's maximum context length is 8192 tokens", "overflow"),
        (
            400,
            "The input token count (1200000) exceeds the maximum number of tokens allowed",
            "overflow",
        ),
        (400, "request (9000 tokens) exceeds the available context size", "overflow"),
        (400, "prompt is too long: 205000 tokens > 200000 maximum", "overflow"),
        (400, "Input length 265330 exceeds the maximum allowed input length of 262144", "overflow"),
        (400, "maximum prompt length is 131072 but the request contains 537812", "overflow"),
        (400, "Your request exceeded model token limit: 131072", "overflow"),
        (400, "Range of input length should be [1, 129024]", "overflow"),
        (400, "Prompt exceeds max length", "overflow"),
        (400, "tokens in request more than max tokens allowed", "overflow"),
        (400, "The prompt is longer than the maximum model length of 32768.", "overflow"),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 8193", "overflow"),
        (422, "`inputs` must have less than 4096 tokens. Given: 5000", "overflow"),
        (400, "this model's context length of only 4096 tokens is too small", "overflow"),
        (400, "contains 9000 tokens, too large for model with 8192 maximum", "overflow"),
        (400, "Number of input tokens exceeds maximum length.", "overflow"),
        (400, "number of input tokens 9 cannot exceed the total tokens limit 8", "overflow"),
        (400, "Total tokens of image and text exceed max message tokens.", "overflow"),
        (400, "Prompt length (9000) exceeds maximum input length (8192).", "overflow"),
        (400, "The prompt (total length 9) is too long to fit into the model", "overflow"),
        (400, "`stop` exceeds the maximum number of 4 sequences", "request"),
        (400, "Too many tokens, please wait before trying again.", "rate"),
        (413, "", "overflow"),
        (400, "Range of max_tokens should be [1, 8192]", "request"),
        (
            400,
            "`max_tokens` must be at most `8192`, which is less than the `context_window`",
            "request",
        ),
        (400, "Throttling error: Too many tokens, please wait before trying again.", "rate"),
        (400, "temperature must be at most 2", "request"),
        (400, "Unknown field `throttle` in rate_limit.", "request"),
        (403, "no", "auth"),
        (402, "no", "quota"),
        (404, "no such model", "request"),
        (408, "", "timeout"),
        (503, "", "overload"),
    ],
)
def test_http_statuses_are_classified(status: int, text: str, kind: str) -> None:
    assert failure_of_status(status, text, {}).kind == kind


@pytest.mark.parametrize(
    ("limit", "wait", "failure"),
    [
        (10, "Please retry in 49.87s.", Failure("rate", 49.87)),
        (0, "Please retry in 20.04s.", Failure("quota")),
        (250, "Please retry in 11h2m3.5s.", Failure("quota")),
        (250, "", Failure("quota")),
    ],
)
def test_a_rate_limit_of_google_is_no_lack_of_money(
    limit: int, wait: str, failure: Failure
) -> None:
    text = (
        "You exceeded your current quota, please check your plan and billing details. \n* Quota "
        f"exceeded for metric: generate_content_requests, limit: {limit}, model: gemini-m\n{wait}"
    )
    assert failure_of_status(429, text, {}) == failure


def test_an_unknown_exception_is_permanent() -> None:
    assert failure_of_exception(ValueError("x")) == Failure("other")
    assert failure_of_exception(TimeoutError()).is_transient


def test_cache_writes_are_charged_at_their_own_price() -> None:
    answer = Answer("x", usage=Usage(1_000_000, 100_000, cached=500_000, written=200_000))
    assert with_cost(answer, (3.0, 15.0)).cost == pytest.approx(3 + 1.5)
    assert with_cost(answer, (3.0, 15.0, 0.3, 3.75)).cost == pytest.approx(0.9 + 1.5 + 0.15 + 0.75)
    assert with_cost(answer, None).cost == 0
    rates = Rates(3.0, 15.0, 0.3, 3.75, cliffs=((900_000, 2.0, 1.5),))
    above = 2 * (0.9 + 0.15 + 0.75) + 1.5 * 1.5
    assert with_cost(answer, rates).cost == pytest.approx(above), "of a request above the cliff"


def test_no_cost_is_negative_if_a_provider_counts_cached_tokens_beside_the_input() -> None:
    answer = Answer("x", usage=Usage(1_000_000, cached=9_000_000))
    assert with_cost(answer, (3.0, 15.0, 0.3)).cost == pytest.approx(2.7)


def test_the_scripted_provider_can_answer_with_a_function() -> None:
    def upper(received: Received) -> Reply:
        return Reply(received.json["messages"][-1]["content"].upper())

    with ScriptedProvider(upper, keep_alive=False) as server:
        model = HTTPModel(f"{server.url}/v1", model="m")
        assert [model(Ask(word)).text for word in ("one", "two")] == ["ONE", "TWO"]
    assert [received.path for received in server.received] == ["/v1/chat/completions"] * 2


def test_a_scripted_provider_without_replies_refuses_every_path() -> None:
    with ScriptedProvider([], keep_alive=False) as server:
        for url in (f"{server.url}/v1", f"{server.url}/else/chat/completions/no"):
            answer = HTTPModel(url, model="m")(Ask("x"))
            assert answer.failure == Failure("request")
            assert "the script has no replies" in answer.error


@pytest.mark.parametrize("name", models.__all__)
def test_every_public_name_of_models_has_a_docstring_and_is_in_dir(name: str) -> None:
    assert getattr(models, name).__doc__
    assert name in dir(models)


def test_provider_sdks_are_imported_only_when_used() -> None:
    code = "import sys, refold.models as m; m.HTTPModel; print({'openai', 'anthropic', 'litellm'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        models.Nothing  # noqa: B018 - reading it is the test


@pytest.mark.parametrize("name", ["OpenAI", "Anthropic", "LiteLLM"])
def test_a_missing_sdk_is_named_with_its_extra(name: str) -> None:
    sdk = name.lower()
    code = f"import sys; sys.modules[{sdk!r}] = None; from refold.models import {name}Model as M; M(model='m')"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install '.[{sdk}]'" in out.stderr
