"""The cache-friendly form: the conversation's own request with the prompt as its last message."""

import json
from typing import Any

import pytest

from refold import Budget, Compactor
from refold.core.strategy import Ask
from refold.messages import Message, Text
from refold.models import AnthropicModel, HTTPModel, LiteLLMModel, OpenAIModel
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.sdks import LazyModule

anthropic, openai = LazyModule("anthropic"), LazyModule("openai")

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
CHAT: dict[str, Any] = {
    "model": "gpt-x",
    "messages": [
        {"role": "system", "content": "You code."},
        {"role": "user", "content": "Fix the parser."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"p": 1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "def parse(): ..."},
    ],
    "tools": [TOOL],
    "temperature": 0.3,
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 9_000,
    "response_format": {"type": "json_object"},
    "prompt_cache_key": "k1",
}
CLAUDE: dict[str, Any] = {
    "model": "claude-x",
    "system": [{"type": "text", "text": "You code.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 4_000},
    "max_tokens": 32_000,
    "stream": True,
    "messages": [
        {"role": "user", "content": "Fix the parser."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {"p": 1}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": "def ...",
                    "cache_control": {"x": 1},
                }
            ],
        },
    ],
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-x",
    "instructions": "You code.",
    "input": [{"role": "user", "content": "Fix the parser."}],
    "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}],
    "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    "max_output_tokens": 9_000,
}


def ask_about(payload: Any, format: str | None = None) -> Ask:
    view = Compactor([], Budget(10**9, 10**9), format=format)(payload)
    plain = (Message("user", (Text("a rendering of the conversation"),)),)
    return Ask("Summarise the above.", 500, system="You summarise.", messages=plain, view=view)


def send_ask(kind: str, ask: Ask, **settings: Any) -> tuple[str, dict[str, Any]]:
    """Return path and body of the request that the model makes for an ask."""
    with ScriptedProvider(["a summary"], keep_alive=False) as server:
        make = {
            "openai": lambda: OpenAIModel(
                openai.OpenAI(api_key="k", base_url=f"{server.url}/v1"), model="m", **settings
            ),
            "anthropic": lambda: AnthropicModel(
                anthropic.Anthropic(api_key="k", base_url=server.url), model="m", **settings
            ),
            "http": lambda: HTTPModel(f"{server.url}/v1", model="m", **settings),
            "litellm": lambda: LiteLLMModel(
                model="openai/m",
                options={"api_key": "k", "api_base": f"{server.url}/v1", "model": "openai/gpt-x"},
                **settings,
            ),
        }[kind]
        assert make()(ask).text == "a summary"
    return server.received[0].path, server.received[0].json


@pytest.mark.parametrize("kind", ["openai", "http"])
@pytest.mark.parametrize("spelling", [dict, json.dumps, lambda body: json.dumps(body).encode()])
def test_chat_completions_requests_continue_the_conversation(kind: str, spelling: Any) -> None:
    _, body = send_ask(kind, ask_about(spelling(CHAT)), same_model=True)
    assert body["messages"] == [
        *CHAT["messages"],
        {"role": "user", "content": "Summarise the above."},
    ]
    fields = {"model", "tools", "temperature", "prompt_cache_key"}
    assert {name: body[name] for name in fields} == {name: CHAT[name] for name in fields}
    assert body["max_tokens"] == 500
    assert body["tool_choice"] == "none"
    assert set(body) == {*fields, "messages", "max_tokens", "tool_choice"}


@pytest.mark.filterwarnings(
    "ignore:Item '.*' on TypedDict class:UserWarning"
)  # LiteLLM's own types
def test_litellm_continues_the_conversation_too() -> None:
    _, body = send_ask("litellm", ask_about(CHAT), same_model=True)
    assert [message["role"] for message in body["messages"]] == [
        *("system", "user", "assistant", "tool", "user"),
    ]
    assert (body["tools"], body["tool_choice"], body["max_tokens"]) == (CHAT["tools"], "none", 500)


def test_anthropic_requests_continue_the_conversation_with_the_same_tool_choice() -> None:
    """The prompt joins the last user message, and roles alternate. Everything that affects the
    cache stays."""
    _, body = send_ask("anthropic", ask_about(CLAUDE), same_model=True)
    assert body["messages"][:-1] == CLAUDE["messages"][:-1]
    *before, last = body["messages"][-1]["content"]
    assert before == CLAUDE["messages"][-1]["content"]
    assert last == {"type": "text", "text": "Summarise the above."}
    for name in ("model", "system", "tools", "tool_choice", "thinking"):
        assert body[name] == CLAUDE[name]
    assert body["max_tokens"] == 4_500
    assert "stream" not in body


def test_anthropic_is_not_forced_to_call_a_tool() -> None:
    _, body = send_ask(
        "anthropic", ask_about(CLAUDE | {"tool_choice": {"type": "any"}}), same_model=True
    )
    assert body["tool_choice"] == {"type": "none"}


def test_responses_requests_continue_in_the_responses_api() -> None:
    path, body = send_ask("openai", ask_about(RESPONSES), same_model=True)
    assert path.endswith("/responses")
    assert body["input"][:-1] == RESPONSES["input"]
    assert "Summarise the above." in str(body["input"][-1])
    assert body["text"] == {"verbosity": "low"}
    assert body["max_output_tokens"] == 500
    assert body["tool_choice"] == "none"


def test_a_responses_request_with_a_plain_text_input_is_continued() -> None:
    _, body = send_ask(
        "openai", ask_about(RESPONSES | {"input": "Fix the parser."}), same_model=True
    )
    assert [item["role"] for item in body["input"]] == ["user", "user"]


OPEN = CHAT | {"messages": CHAT["messages"][:-1]}


@pytest.mark.parametrize(
    ("kind", "ask", "settings"),
    [
        ("openai", ask_about(CHAT), {}),
        ("openai", ask_about(CHAT), {"same_model": True, "window": 520}),
        ("openai", ask_about(CLAUDE), {"same_model": True}),
        ("openai", ask_about(CHAT["messages"]), {"same_model": True}),
        ("openai", ask_about(RESPONSES | {"previous_response_id": "r1"}), {"same_model": True}),
        (
            "openai",
            Ask("Summarise the above.", messages=ask_about(CHAT).messages),
            {"same_model": True},
        ),
        ("http", ask_about(OPEN), {"same_model": True}),
        ("http", ask_about(RESPONSES), {"same_model": True}),
        ("anthropic", ask_about(CHAT), {"same_model": True}),
    ],
    ids=[
        *(
            "not asked to",
            "too large",
            "another format",
            "no request body",
            "held by the server",
            "no view",
        ),
        *("an open call", "responses by http", "chat by anthropic"),
    ],
)
def test_the_ask_is_sent_on_its_own_if_the_request_cannot_be_continued(
    kind: str, ask: Ask, settings: dict[str, Any]
) -> None:
    """It has the ask's own system prompt and messages, and none of the conversation's tools."""
    _, body = send_ask(kind, ask, **settings)
    assert "a rendering of the conversation" in str(body["messages"])
    assert "tools" not in body
    assert body["model"] == "m"


def test_a_request_within_the_window_is_continued() -> None:
    _, body = send_ask("openai", ask_about(CHAT), same_model=True, window=100_000)
    assert body["tools"] == CHAT["tools"]


def test_the_payload_of_the_conversation_is_not_modified() -> None:
    before = json.dumps(CLAUDE)
    send_ask("anthropic", ask_about(CLAUDE), same_model=True)
    assert json.dumps(CLAUDE) == before
