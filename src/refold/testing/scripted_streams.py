"""Stream the replies of a scripted provider as events, for the four APIs."""

import json
import re
from collections.abc import Iterator
from typing import Any

from refold.text.json_values import JsonObject, dig


def events(path: str, answer: JsonObject, asked: Any) -> tuple[bytes, ...]:
    """Turn *answer*, which the API would give at once, into the events that it streams instead."""
    if "/chat/completions" in path:
        return tuple(_stream_chat(answer, dig(asked, "stream_options", "include_usage")))
    if "/responses" in path:
        return tuple(_stream_responses(answer))
    if "/messages" in path:
        return tuple(_stream_anthropic(answer))
    return tuple(_stream_gemini(answer))


def event(value: Any, name: str = "") -> bytes:
    """Encode one event with JSON data."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _words(text: str | None) -> list[str]:
    return re.findall(r"\S+\s*", text or "")


def _stream_chat(answer: JsonObject, with_usage: Any) -> Iterator[bytes]:
    message, finish = answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]
    fixed = {
        "id": answer["id"],
        "object": "chat.completion.chunk",
        "created": 0,
        "model": answer["model"],
    }

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        return event({**fixed, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
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
"""The fields of an item when it begins."""


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
            yield "response.function_call_arguments.done", {**place, "arguments": item["arguments"]}
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
    yield {
        "type": "message_delta",
        "delta": stop,
        "usage": {"output_tokens": answer["usage"]["output_tokens"]},
    }
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
        yield event({**answer, "candidates": [chunk]} if last else {"candidates": [chunk]})
