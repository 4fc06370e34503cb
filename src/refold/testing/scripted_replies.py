"""Replies of a scripted provider, as JSON or as stream events, in the formats of four APIs:
OpenAI's Chat Completions and Responses, Anthropic's Messages and Gemini's generateContent.

Standard library only.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from refold.text.json_values import JsonObject, dig, text_at


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model."""

    name: str = "read"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    """If empty, an id in the style of the API (`call_1`, `toolu_1`), or for Gemini none."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of the server, independent of the API's format."""

    text: str = ""
    finish: str = "stop"
    """`stop`, `length`, `filter`, `tool` (it calls a tool), or any other word."""
    usage: tuple[int, int, int] = (100, 20, 0)
    """Tokens of the whole input, of the output, and of the input read from a cache."""
    reasoning: str = ""
    """The model's reasoning, in formats that have a field for it."""
    signature: str = "c2ln"
    """Signature of the reasoning, in base64. A real model signs each thought differently."""
    status: int = 200
    """HTTP status. From 300 on the reply is an error with *text* as its message."""
    code: str = ""
    """Error code, such as `context_length_exceeded`."""
    calls: tuple[Call, ...] = ()
    """Tool calls. If empty and *finish* is `tool`, `read` is called without arguments."""
    id: str = "1"
    """Suffix of the ids of the answer and its parts. Some clients merge answers with equal ids."""
    body: str | Iterable[bytes] | None = None
    """Raw body to send instead: a text, or an iterable of chunks, each sent when it is produced."""
    retry_after: float | None = None
    """Seconds, for the header `retry-after`."""
    location: str = ""
    """Target of a redirect, for the header `location`."""
    headers: tuple[tuple[str, str], ...] = ()
    """Additional headers."""
    type: str = ""
    """Content type, if it differs from the usual one."""
    has_length: bool = False
    """Whether to send a content length instead of chunked encoding."""
    delay: float = 0.0
    """Seconds before the reply."""
    pause: float = 0.0
    """Seconds between the chunks of a body."""
    cut_after: int | None = None
    """Chunks after which the connection is closed. A reply that is not streamed is one."""

    @property
    def calls_made(self) -> tuple[Call, ...]:
        """The tool calls of the reply."""
        return self.calls or ((Call(),) if self.finish == "tool" else ())

    @property
    def finish_reason(self) -> str:
        """The finish reason: `tool` if the reply calls a tool."""
        return "tool" if self.calls and self.finish == "stop" else self.finish


def encode_reply(reply: Reply, path: str, body: Any) -> bytes:
    """Encode *reply* in the format of the request's path. *body* is the request's JSON.

    For the path of an unknown API the result is an empty object.
    """
    form = next((form for ending, form in _FORMS.items() if ending in path), None)
    if form is None:
        return b"{}"
    value = _error(reply) if reply.status >= 300 else form(reply, _model(path, body))
    return _write_json(value)


def _write_json(value: Any) -> bytes:
    """Return *value* as JSON in UTF-8. Lone surrogates, which UTF-8 lacks, are escaped."""
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")


def _model(path: str, body: Any) -> str:
    """Return the requested model. Gemini's is in the path."""
    return text_at(body, "model") or path.rpartition("/")[2].partition(":")[0]


def _error(reply: Reply) -> JsonObject:
    """Return an error with the fields of all four APIs."""
    kind = reply.code or _ERRORS.get(reply.status, "invalid_request_error")
    error = {
        "message": reply.text,
        "type": kind,
        "code": reply.code or reply.status,
        "status": kind.upper(),
    }
    return {"type": "error", "error": error}


_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def _chat(reply: Reply, model: str) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if calls := reply.calls_made:
        message["tool_calls"] = [_chat_call(at, call) for at, call in enumerate(calls, 1)]
    finish = {"filter": "content_filter", "tool": "tool_calls"}.get(
        reply.finish_reason, reply.finish_reason
    )
    read, wrote, cached = reply.usage
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": message, "logprobs": None}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": wrote,
            "total_tokens": read + wrote,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def _chat_call(at: int, call: Call) -> JsonObject:
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments))}
    return {"id": call.id or f"call_{at}", "type": "function", "function": function}


def _responses(reply: Reply, model: str) -> JsonObject:
    output: list[JsonObject] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        output.append(
            {
                "id": f"rs_{reply.id}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": reply.signature,
            }
        )
    if reply.text:
        block = {"type": "output_text", "text": reply.text, "annotations": []}
        output.append(
            {
                "id": f"msg_{reply.id}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [block],
            }
        )
    output += [_responses_call(at, call) for at, call in enumerate(reply.calls_made, 1)]
    why = {
        "length": "max_output_tokens",
        "filter": "content_filter",
        "stop": None,
        "tool": None,
    }.get(reply.finish_reason, reply.finish_reason)
    read, wrote, cached = reply.usage
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": 0,
        "model": model,
        "status": "incomplete" if why else "completed",
        "incomplete_details": {"reason": why} if why else None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": wrote,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + wrote,
        },
    }


def _responses_call(at: int, call: Call) -> JsonObject:
    arguments, call_id = json.dumps(dict(call.arguments)), call.id or f"call_{at}"
    place = {
        "id": f"fc_{call.id or at}",
        "type": "function_call",
        "call_id": call_id,
        "status": "completed",
    }
    return {**place, "name": call.name, "arguments": arguments}


def _anthropic(reply: Reply, model: str) -> JsonObject:
    content: list[JsonObject] = []
    if reply.reasoning:
        content.append(
            {"type": "thinking", "thinking": reply.reasoning, "signature": reply.signature}
        )
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for at, call in enumerate(reply.calls_made, 1):
        content.append(
            {
                "type": "tool_use",
                "id": call.id or f"toolu_{at}",
                "name": call.name,
                "input": dict(call.arguments),
            }
        )
    finishes = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal", "tool": "tool_use"}
    read, wrote, cached = reply.usage
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": finishes.get(reply.finish_reason, reply.finish_reason),
        "stop_sequence": None,
        "usage": {
            "input_tokens": read - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": wrote,
        },
    }


def _gemini(reply: Reply, model: str) -> JsonObject:
    parts: list[JsonObject] = (
        [{"text": reply.reasoning, "thought": True}] if reply.reasoning else []
    )
    if reply.text:
        parts.append({"text": reply.text})
    signed = {"thoughtSignature": reply.signature} if reply.reasoning else {}
    for call in reply.calls_made:
        id = {"id": call.id} if call.id else {}
        part = {"functionCall": {"name": call.name, "args": dict(call.arguments), **id}}
        parts.append(part | signed)
        signed = {}  # the first call carries it
    finishes = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "tool": "STOP"}
    read, wrote, cached = reply.usage
    return {
        "candidates": [
            {
                "index": 0,
                "content": {"role": "model", "parts": parts},
                "finishReason": finishes.get(reply.finish_reason, reply.finish_reason),
            }
        ],
        "modelVersion": model,
        "usageMetadata": {
            "promptTokenCount": read,
            "candidatesTokenCount": wrote,
            "totalTokenCount": read + wrote,
            "cachedContentTokenCount": cached,
        },
    }


_FORMS = {
    "/chat/completions": _chat,
    "/responses": _responses,
    "/messages": _anthropic,
    ":generateContent": _gemini,
}
"""Substrings of paths, and the format of each."""


# --- streams --------------------------------------------------------------------------------------


def events(path: str, answer: JsonObject, asked: Any) -> tuple[bytes, ...]:
    """Convert *answer*, a complete response of the API, into the events of its stream."""
    if "/chat/completions" in path:
        return tuple(_stream_chat(answer, dig(asked, "stream_options", "include_usage")))
    if "/responses" in path:
        return tuple(_stream_responses(answer))
    if "/messages" in path:
        return tuple(_stream_anthropic(answer))
    return tuple(_stream_gemini(answer))


def event(value: Any, name: str = "") -> bytes:
    """Encode a server-sent event with JSON data."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: ".encode() + _write_json(value) + b"\n\n"


def _words(text: str | None) -> list[str]:
    return re.findall(r"\S*+\s++|\S++", text or "")


def _stream_chat(answer: JsonObject, with_usage: Any) -> Iterator[bytes]:
    message, finish = answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]
    fixed = {
        "id": answer["id"],
        "object": "chat.completion.chunk",
        "created": 0,
        "model": answer["model"],
        **({"usage": None} if with_usage else {}),
    }

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        return event({**fixed, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for word in _words(message.get("reasoning_content")):
        yield chunk({"reasoning_content": word})
    for word in _words(message["content"]):
        yield chunk({"content": word})
    for at, call in enumerate(message.get("tool_calls", ())):
        yield chunk({"tool_calls": [{"index": at, **call}]})
    yield chunk({}, finish)
    if with_usage:
        yield event({**fixed, "choices": [], "usage": answer["usage"]})
    yield b"data: [DONE]\n\n"


def _stream_responses(answer: JsonObject) -> Iterator[bytes]:
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    for number, (kind, rest) in enumerate(_response_events(answer, begun)):
        yield event({"type": kind, "sequence_number": number, **rest}, kind)


_EMPTY_FIELDS: dict[str, JsonObject] = {
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
}
"""Fields of an output item at its start."""


def _response_events(answer: JsonObject, begun: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for at, item in enumerate(answer["output"]):
        empty = _EMPTY_FIELDS.get(item["type"], {})
        yield "response.output_item.added", {"output_index": at, "item": {**item, **empty}}
        if item["type"] == "message":
            yield from _response_text(at, item)
        elif item["type"] == "function_call":
            place = {"item_id": item["id"], "output_index": at}
            yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
            whole = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", {**place, **whole}
        yield "response.output_item.done", {"output_index": at, "item": item}
    yield f"response.{answer['status']}", {"response": answer}


def _response_text(at: int, item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    place = {"item_id": item["id"], "output_index": at, "content_index": 0}
    block = item["content"][0]
    yield "response.content_part.added", {**place, "part": {**block, "text": ""}}
    for word in _words(block["text"]):
        yield "response.output_text.delta", {**place, "delta": word, "logprobs": []}
    yield "response.output_text.done", {**place, "text": block["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": block}


def _stream_anthropic(answer: JsonObject) -> Iterator[bytes]:
    for value in _message_events(answer):
        yield event(value, value["type"])


def _message_events(answer: JsonObject) -> Iterator[JsonObject]:
    begun = {
        **answer,
        "content": [],
        "stop_reason": None,
        "usage": {**answer["usage"], "output_tokens": 1},
    }
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for at, block in enumerate(answer["content"]):
        yield {"type": "content_block_start", "index": at, "content_block": _without_content(block)}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    stop = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": answer["usage"]}
    yield {"type": "message_stop"}


def _without_content(block: JsonObject) -> JsonObject:
    empty = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def _deltas(block: JsonObject) -> Iterator[JsonObject]:
    if block["type"] == "text":
        yield from ({"type": "text_delta", "text": word} for word in _words(block["text"]))
    elif block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}


def _stream_gemini(answer: JsonObject) -> Iterator[bytes]:
    candidate = answer["candidates"][0]
    parts = candidate["content"]["parts"]
    pieces = [
        {**part, "text": word} for part in parts if "text" in part for word in _words(part["text"])
    ]
    pieces += [part for part in parts if "text" not in part]
    for at, piece in enumerate(pieces or [{"text": ""}]):
        last = at >= len(pieces) - 1
        chunk: JsonObject = {"index": 0, "content": {"role": "model", "parts": [piece]}}
        chunk |= {"finishReason": candidate["finishReason"]} if last else {}
        rest = answer if last else {"modelVersion": answer["modelVersion"]}
        yield event({**rest, "candidates": [chunk]})
