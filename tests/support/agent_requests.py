"""Build requests of an agent that reads files, in four formats, and inspect what is sent."""

import json
from collections.abc import Callable
from typing import Any

from refold.codecs.detect import open_payload
from refold.rules.rule import Violation

WORDS = "one two three four five six seven eight nine ten " * 40


def anthropic_request(
    steps: int,
    *,
    model: str = "claude-opus-5-5",
    signed: bool = False,
    mark: bool = True,
    repeat: int = 1,
    **fields: Any,
) -> bytes:
    """Build an Anthropic request with *steps* calls and results.

    signed: whether signed thinking precedes each call.
    mark: whether the last result has a cache mark.
    repeat: number of repetitions of each result's text.
    """
    messages: list[Any] = [{"role": "user", "content": "Find the bug in calc.py and fix it."}]
    for i in range(steps):
        thought = (
            [{"type": "thinking", "thinking": f"look at {i}", "signature": f"sig{i}"}]
            if signed
            else []
        )
        call = {"type": "tool_use", "id": f"t{i}", "name": "read", "input": {"path": f"f{i}.py"}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"t{i}",
            "content": f"file {i}\n{WORDS * repeat}",
        }
        messages += [
            {"role": "assistant", "content": [*thought, call]},
            {"role": "user", "content": [result]},
        ]
    if mark and steps:
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    return json.dumps(
        {"model": model, "max_tokens": 1000, "tools": tools, "messages": messages, **fields}
    ).encode()


def read_files(steps: int, text: str = "") -> list[Any]:
    """Build *steps* Chat Completions calls and results that read long files with *text* in each."""
    messages = list[Any]()
    for n in range(steps):
        function = {"name": "read", "arguments": "{}"}
        call = {"id": f"c{n}", "type": "function", "function": function}
        content = f"file {n}: {text}" + "text " * 500
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": content},
        ]
    return messages


def chat_request(steps: int, **fields: Any) -> bytes:
    """Build a request of OpenAI Chat Completions."""
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Fix the bug."},
    ]
    for i in range(steps):
        function = {"name": "read", "arguments": json.dumps({"path": f"f{i}.py"})}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{i}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i}\n{WORDS}"},
        ]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def responses_request(steps: int, **fields: Any) -> bytes:
    """Build a request of OpenAI Responses."""
    items: list[Any] = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Fix the bug."}],
        }
    ]
    for i in range(steps):
        items += [
            {
                "type": "function_call",
                "call_id": f"c{i}",
                "name": "read",
                "arguments": json.dumps({"path": f"f{i}.py"}),
            },
            {"type": "function_call_output", "call_id": f"c{i}", "output": f"file {i}\n{WORDS}"},
        ]
    return json.dumps({"model": "m", "input": items, "store": False, **fields}).encode()


def gemini_request(steps: int, **fields: Any) -> bytes:
    """Build a request of Gemini."""
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Fix the bug."}]}]
    for i in range(steps):
        call = {"functionCall": {"name": "read", "args": {"path": f"f{i}.py"}}}
        result = {
            "functionResponse": {"name": "read", "response": {"output": f"file {i}\n{WORDS}"}}
        }
        contents += [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    return json.dumps({"contents": contents, **fields}).encode()


PATHS = {
    "anthropic": "/v1/messages",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/g:generateContent",
}
FORMATS: dict[str, Callable[..., bytes]] = {
    "anthropic": anthropic_request,
    "openai_chat": chat_request,
    "openai_responses": responses_request,
    "gemini": gemini_request,
}
"""Builder of each format, by name. `PATHS` has the request paths."""


def violations(body: bytes, api: str) -> tuple[Violation, ...]:
    """Return the violations of the provider's rules in *body*."""
    envelope = open_payload(body, api)
    return envelope.codec.rules(envelope.body).check(envelope.decode(), envelope.body)


def entries(body: bytes) -> list[Any]:
    """Return the messages of a request in wire form."""
    value = json.loads(body)
    return next(value[name] for name in ("messages", "input", "contents") if name in value)


CONTEXT_ERRORS = {
    "anthropic": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 30000 tokens > 16000 maximum",
        },
    },
    "openai_chat": {
        "error": {
            "code": "context_length_exceeded",
            "message": "This model's maximum context length is 16000 tokens. "
            "However, your messages resulted in 30000 tokens.",
        }
    },
    "openai_responses": {
        "error": {
            "code": "context_length_exceeded",
            "message": "Your input exceeds the context window of this model.",
        }
    },
    "gemini": {
        "error": {
            "code": 400,
            "message": "The input token count (30000) exceeds "
            "the maximum number of tokens allowed (16000).",
            "status": "INVALID_ARGUMENT",
        }
    },
}
"""Each provider's error for a request that exceeds the window."""
