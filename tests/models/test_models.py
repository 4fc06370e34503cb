"""Every model against the scripted server, through its real client, sync and async."""

import asyncio
import gc
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from refold.core.strategy import Answer, Ask
from refold.messages import Message, Text
from refold.models import AnthropicModel, HTTPModel, LiteLLMModel, Model, OpenAIModel
from refold.models.model import ModelRequest, ProviderModel
from refold.testing.scripted_provider import Reply, ScriptedProvider
from refold.tokens.usage import Usage
from tests.support.sdks import LazyModule

anthropic, openai = LazyModule("anthropic"), LazyModule("openai")

pytestmark = pytest.mark.filterwarnings(
    "ignore:Item '.*' on TypedDict class:UserWarning"
)  # LiteLLM's own types

KEY = "squeamish-ossifrage"
"""A key without a recognisable form: it must be masked because it is the configured key."""
ASK = Ask("Summarise.", 300, system="You summarise.", messages=(Message("user", (Text("你好"),)),))


@pytest.fixture(scope="module", autouse=True)
def _loops_closed() -> Iterator[None]:
    """Close the event loops that LiteLLM creates in sync code and leaves open."""
    yield
    for loop in [thing for thing in gc.get_objects() if isinstance(thing, asyncio.BaseEventLoop)]:
        if not loop.is_running():
            loop.close()


def openai_chat(url: str, *, mode: str, **settings: Any) -> Model:
    kind = openai.AsyncOpenAI if mode == "async" else openai.OpenAI
    return OpenAIModel(kind(api_key=KEY, base_url=f"{url}/v1"), model="m-1", **settings)


def openai_responses(url: str, *, mode: str, **settings: Any) -> Model:
    kind = openai.AsyncOpenAI if mode == "async" else openai.OpenAI
    return OpenAIModel(
        kind(api_key=KEY, base_url=f"{url}/v1"), model="m-1", api="responses", **settings
    )


def anthropic_messages(url: str, *, mode: str, **settings: Any) -> Model:
    kind = anthropic.AsyncAnthropic if mode == "async" else anthropic.Anthropic
    return AnthropicModel(kind(api_key=KEY, base_url=url), model="m-1", **settings)


def http(url: str, *, mode: str, **settings: Any) -> Model:
    return HTTPModel(f"{url}/v1", model="m-1", key=KEY, **settings)


def litellm_openai(url: str, *, mode: str, **settings: Any) -> Model:
    return LiteLLMModel(
        model="openai/m-1", options={"api_key": KEY, "api_base": f"{url}/v1"}, **settings
    )


def litellm_anthropic(url: str, *, mode: str, **settings: Any) -> Model:
    return LiteLLMModel(
        model="anthropic/m-1", options={"api_key": KEY, "api_base": url}, **settings
    )


MODELS = [
    openai_chat,
    openai_responses,
    anthropic_messages,
    http,
    litellm_openai,
    litellm_anthropic,
]
every_model = pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])


def answer(make: Any, mode: str, reply: str | Reply, **settings: Any) -> tuple[Answer, Any]:
    """Return the model's answer and the request that the server received."""
    with ScriptedProvider([reply], keep_alive=False) as server:
        model = make(server.url, mode=mode, **settings)
        given = asyncio.run(model.acall(ASK)) if mode == "async" else model(ASK)
        received = server.received[0] if server.received else None
    return given, received


@every_model
@both_modes
def test_an_answer_has_text_usage_model_and_cost(make: Any, mode: str) -> None:
    """S0-30 S2-49 S4-12: any chosen model answers, and its cost is known."""
    given, received = answer(
        make, mode, Reply("总结: done.", usage=(1_000, 50, 400)), price=(2.0, 10.0, 0.5)
    )
    assert given.text == "总结: done."
    assert (given.finish, given.calls, given.failure) == ("stop", 1, None)
    assert given.model == "m-1"
    assert given.usage == Usage(1_000, 50, 400)
    assert given.cost == pytest.approx((600 * 2 + 400 * 0.5 + 50 * 10) / 1e6)
    assert received is not None
    assert "stream" not in received.json or not received.json["stream"]
    assert KEY in received.header("authorization") + received.header("x-api-key")


@every_model
@both_modes
def test_a_request_has_the_system_prompt_messages_prompt_and_max_tokens(
    make: Any, mode: str
) -> None:
    _, received = answer(make, mode, "ok", spare=50)
    body = received.json
    caps = {body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")}
    assert 350 in caps
    text = str(body)
    assert "You summarise." in text
    turns = body.get("input") or body["messages"]
    assert [turn["role"] for turn in turns if turn["role"] != "system"] == ["user"]
    assert "你好" in str(turns[-1]) and "Summarise." in str(turns[-1])
    assert not body.get("tools")


@every_model
@both_modes
@pytest.mark.parametrize("finish", ["length", "filter", "tool"])
def test_conformance_33_finish_reasons_of_all_providers_have_the_same_names(
    make: Any, mode: str, finish: str
) -> None:
    """The summarizer sees our name for each provider's cut-off, filter or tool call."""
    given, _ = answer(make, mode, Reply("half a summ", finish=finish))
    assert given.finish == finish
    assert given.failure is None


@pytest.mark.parametrize(
    "make", [openai_chat, http, anthropic_messages], ids=lambda make: make.__name__
)
def test_conformance_33_an_unknown_finish_reason_is_kept_as_the_provider_wrote_it(
    make: Any,
) -> None:
    given, _ = answer(make, "sync", Reply("text", finish="pause_turn"))
    assert given.finish == "pause_turn"


@every_model
@both_modes
def test_conformance_32_reasoning_alone_is_an_empty_text(make: Any, mode: str) -> None:
    given, _ = answer(make, mode, Reply("<think>what was it about?</think>\n", reasoning="hm"))
    assert given.text == ""
    given, _ = answer(make, mode, Reply("<think>hm</think>\n\nIt was about a parser."))
    assert given.text == "It was about a parser."


REFUSALS = [
    (Reply("slow down", status=429, retry_after=2), "rate", True),
    (
        Reply("You exceeded your current quota", status=429, code="insufficient_quota"),
        "quota",
        False,
    ),
    (Reply("oops", status=500), "overload", True),
    (Reply("Overloaded", status=529), "overload", True),
    (Reply(f"Incorrect API key provided: {KEY}", status=401), "auth", False),
    (Reply("prompt is too long: 210000 tokens > 200000 maximum", status=400), "overflow", False),
    (
        Reply("maximum context length is 8192 tokens", status=400, code="context_length_exceeded"),
        "overflow",
        False,
    ),
    (Reply("unknown field", status=400), "request", False),
]


@every_model
@both_modes
@pytest.mark.parametrize(
    ("reply", "kind", "passes"), REFUSALS, ids=[f"{r[0].status}-{r[1]}" for r in REFUSALS]
)
def test_error_responses_are_classified_and_the_key_is_hidden(
    make: Any, mode: str, reply: Reply, kind: str, passes: bool
) -> None:
    """S2-10: transient errors are distinguished from permanent ones, and neither message contains
    the key."""
    given, received = answer(make, mode, reply)
    assert (given.text, given.finish, given.usage) == ("", "error", None)
    assert given.failure is not None
    assert (given.failure.kind, given.failure.is_transient) == (kind, passes)
    assert given.failure.retry_after == reply.retry_after
    assert received is not None
    assert given.error and len(given.error) <= 240 and "\n" not in given.error
    assert KEY not in given.error


@every_model
@both_modes
def test_a_cut_connection_is_a_transient_failure(make: Any, mode: str) -> None:
    given, _ = answer(make, mode, Reply("a long summary " * 100, cut_after=0))
    assert given.finish == "error"
    assert given.failure is not None and given.failure.is_transient


@every_model
@both_modes
def test_a_refused_connection_is_a_transient_failure(make: Any, mode: str) -> None:
    with ScriptedProvider([], keep_alive=False) as server:
        model = make(server.url, mode=mode)
    given = asyncio.run(model.acall(ASK)) if mode == "async" else model(ASK)
    assert given.failure.is_transient


@every_model
@both_modes
def test_a_response_without_an_answer_is_an_error(make: Any, mode: str) -> None:
    given, _ = answer(make, mode, Reply(body='{"surprise": true}'))
    assert given.finish == "error"
    assert given.text == ""


@every_model
@both_modes
def test_a_slow_server_is_a_timeout(make: Any, mode: str) -> None:
    given, _ = answer(make, mode, Reply("late", delay=30), timeout=0.2)
    assert given.failure is not None and given.failure.kind == "timeout"


@every_model
@both_modes
def test_the_remaining_time_of_a_deadline_limits_a_call(make: Any, mode: str) -> None:
    with ScriptedProvider([Reply("late", delay=30)], keep_alive=False) as server:
        model = make(server.url, mode=mode, timeout=60)
        given = asyncio.run(model.acall(ASK, 0.2)) if mode == "async" else model(ASK, 0.2)
    assert given.failure.kind == "timeout"


ASYNC = [openai_chat, openai_responses, anthropic_messages, http, litellm_openai]


@pytest.mark.parametrize("make", ASYNC, ids=lambda make: make.__name__)
def test_conformance_37_cancelling_ends_a_call_at_once(make: Any) -> None:
    """The event loop ends even though the server would answer in an hour."""

    async def cancel_call() -> bool:
        task = asyncio.create_task(model.acall(ASK))
        while not server.received:  # noqa: ASYNC110 - the server is in another thread
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    with ScriptedProvider([Reply("late", delay=3_600)], keep_alive=False) as server:
        model = make(server.url, mode="async", timeout=3_600)
        assert asyncio.run(cancel_call())


@every_model
@both_modes
def test_no_repr_holds_a_key(make: Any, mode: str) -> None:
    model = make("http://user:password@localhost:1", mode=mode)
    assert KEY not in repr(model)
    assert "password" not in repr(model)
    assert "m-1" in repr(model)


@both_modes
def test_litellm_models_can_use_the_gemini_api(mode: str) -> None:
    def make(url: str, *, mode: str) -> Model:
        return LiteLLMModel(
            model="gemini/m-1", options={"api_key": KEY, "api_base": f"{url}/v1beta/models/m-1"}
        )

    given, received = answer(make, mode, Reply("a summary", usage=(90, 10, 0)))
    assert (given.text, given.finish, given.usage) == ("a summary", "stop", Usage(90, 10))
    assert "generateContent" in received.path


def test_litellm_reports_the_cost_of_a_call_if_it_knows_the_price() -> None:
    def make(url: str, *, mode: str) -> Model:
        return LiteLLMModel(
            model="openai/gpt-4o-mini", options={"api_key": KEY, "api_base": f"{url}/v1"}
        )

    given, _ = answer(make, "sync", Reply("a summary", usage=(1_000, 100, 0)))
    assert given.cost > 0


@pytest.mark.parametrize(
    "make", [openai_chat, openai_responses, anthropic_messages], ids=lambda make: make.__name__
)
def test_a_sync_client_serves_async_code_in_a_thread(make: Any) -> None:
    with ScriptedProvider(["a summary"], keep_alive=False) as server:
        assert asyncio.run(make(server.url, mode="sync").acall(ASK)).text == "a summary"


@pytest.mark.parametrize("make", [openai_chat, anthropic_messages], ids=lambda make: make.__name__)
def test_an_async_client_refuses_sync_code(make: Any) -> None:
    with pytest.raises(TypeError, match="async client: use `acompact`"):
        make("http://localhost:1", mode="async")(ASK)


@both_modes
def test_without_a_client_one_is_made_from_the_environment(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(["one", "two"], keep_alive=False) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        models = OpenAIModel(model="m-1"), AnthropicModel(model="m-1")
        given = [asyncio.run(m.acall(ASK)) if mode == "async" else m(ASK) for m in models]
    assert [reply.text for reply in given] == ["one", "two"]


@both_modes
def test_a_missing_api_key_gives_an_error_answer_that_names_the_variable(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = OpenAIModel(model="m-1")
    given = asyncio.run(model.acall(ASK)) if mode == "async" else model(ASK)
    assert given.finish == "error"
    assert "OPENAI_API_KEY" in given.error


@dataclass(frozen=True)
class Queue(ProviderModel):
    """A custom provider: the required attributes and `send`."""

    replies: list[Any] = field(default_factory=list)

    def send(self, request: ModelRequest, seconds: float) -> Any:
        """Answer with the next reply, which quotes the request."""
        assert seconds == 9
        reply, text = self.replies.pop(0), request.body["messages"][-1]["content"]
        choice = {"message": {"content": f"{request.body['model']}: {text}"}}
        return {**reply, "choices": [choice | {"finish_reason": "stop"}]}


@both_modes
def test_a_custom_provider_needs_only_a_send_method(mode: str) -> None:
    """`ProviderModel` handles request, price, timeout and failures."""
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    model = Queue([{"usage": usage}], model="m-1", price=(2.0, 8.0), timeout=9)

    def call(within: float | None = None) -> Answer:
        return asyncio.run(model.acall(ASK, within)) if mode == "async" else model(ASK, within)

    first, second = call(99), call()
    assert isinstance(model, Model)
    assert (first.text, first.finish, first.cost) == ("m-1: 你好\n\nSummarise.", "stop", 2.0)
    assert (second.finish, second.error) == ("error", "IndexError: pop from empty list")


def test_http_accepts_a_full_url_headers_and_options() -> None:
    with ScriptedProvider(["ok"], keep_alive=False) as server:
        model = HTTPModel(
            f"{server.url}/v1/chat/completions",
            model="m-1",
            headers={"X-Team": "core"},
            options={"temperature": 0},
        )
        assert model(ASK).text == "ok"
    received = server.received[0]
    assert received.path == "/v1/chat/completions"
    assert received.header("x-team") == "core"
    assert not received.header("authorization")
    assert received.json["temperature"] == 0


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/chat/completions"])
def test_http_keeps_the_query_of_a_url(path: str) -> None:
    with ScriptedProvider(["ok"], keep_alive=False) as server:
        model = HTTPModel(f"{server.url}{path}?api-version=2026-10-21", model="m-1")
        assert model(ASK).text == "ok"
    assert server.received[0].target == "/v1/chat/completions?api-version=2026-10-21"


def test_an_error_shows_no_key_that_ends_with_a_line_break() -> None:
    model = HTTPModel("http://127.0.0.1:9/v1", model="m-1", headers={"api-key": f"{KEY}\n"})
    assert model(ASK).error == r"ValueError: Invalid header value b'***\n'"


def test_an_error_keeps_its_letters_beside_a_short_header() -> None:
    headers = {"X-Team": "a", "api-key": "hunter22"}
    reply = Reply(status=400, body='{"error": "an unavailable parameter for hunter22"}')
    with ScriptedProvider([reply]) as server:
        model = HTTPModel(f"{server.url}/v1", model="m-1", headers=headers)
        assert model(ASK).error == 'HTTP 400: {"error": "an unavailable parameter for ***"}'


def test_http_refuses_urls_that_are_not_http() -> None:
    with pytest.raises(ValueError, match="http"):
        HTTPModel("file:///etc/passwd", model="m-1")


def test_http_does_not_follow_a_redirect_to_another_address() -> None:
    with (
        ScriptedProvider(["stolen"], keep_alive=False) as elsewhere,
        ScriptedProvider([], keep_alive=False) as server,
    ):
        server.script = [
            Reply(status=302, body="", location=f"{elsewhere.url}/v1/chat/completions")
        ]
        given = HTTPModel(f"{server.url}/v1", model="m-1", key=KEY)(ASK)
    assert elsewhere.received == []
    assert given.finish == "error"


def test_an_error_in_a_200_response_is_a_failure() -> None:
    """Routers return the error of their provider in a reply with status 200."""
    given, _ = answer(
        http, "sync", Reply(body='{"error": {"code": 429, "message": "upstream is busy"}}')
    )
    assert given.failure is not None and given.failure.kind == "rate"
    given, _ = answer(http, "sync", Reply(body="<html>"))
    assert given.failure is not None and given.failure.kind == "reply"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ({"error": {"code": 502, "message": "provider disconnected"}}, ("overload", True)),
        ({}, ("reply", True)),
    ],
)
def test_a_choice_that_ended_in_an_error_is_a_failure_with_its_usage(
    error: dict[str, Any], failure: tuple[str, bool]
) -> None:
    choice = {"finish_reason": "error", "message": {"role": "assistant", "content": "The"}, **error}
    body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
    given, _ = answer(http, "sync", Reply(body=body))
    assert (given.text, given.finish, given.usage) == ("", "error", Usage(9, 1))
    assert given.error and given.failure is not None
    assert (given.failure.kind, given.failure.is_transient) == failure


@pytest.mark.parametrize("code", ["401", '"invalid_key"'])
def test_an_error_in_a_200_response_shows_no_key(code: str) -> None:
    body = f'{{"error": {{"code": {code}, "message": "there is no key {KEY}"}}}}'
    given, _ = answer(http, "sync", Reply(body=body))
    assert given.error.endswith("there is no key ***")
