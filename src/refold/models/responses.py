"""Replies of OpenAI's two APIs and of Anthropic's, as answers."""

import re
from collections.abc import Mapping
from typing import Any

from refold.core.strategy import Answer, Failure
from refold.models.errors import answer_of_status, shorten_error
from refold.models.requests import CHAT, MESSAGES, RESPONSES
from refold.text.json_fields import dig, object_at, objects_at, objects_in, text_at
from refold.tokens.usage import read_usage

_TAGS = r"(?:think|thinking|thought|thoughts|reasoning)"
_LEADING = re.compile(rf"\s*+<({_TAGS})>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_HEADLESS = re.compile(rf"^[^\S\n]*+</{_TAGS}>[ \t]*+(?:\n|\Z)", re.IGNORECASE | re.MULTILINE)
"""A closing tag alone on its line."""
_OPENING = re.compile(rf"<{_TAGS}>", re.IGNORECASE)


def strip_reasoning(text: str) -> str:
    """Return *text* without the reasoning that it begins with: `<think>…</think>`, such a block
    that never closes (then nothing is left), or one whose opening tag the chat template swallowed.
    Tags further down, as in a summary that speaks of them, stay. Without reasoning the text comes
    back as it is."""
    at = 0
    while match := _LEADING.match(text, at):
        at = match.end()
    if at == 0 and (match := _HEADLESS.search(text)) and not _OPENING.search(text, 0, match.end()):
        at = match.end()
    return text[at:].strip() if at else text


_WORDS = {
    "stop": "stop end_turn stop_sequence eos eos_token completed",
    "length": "length max_tokens max_output_tokens model_context_window_exceeded model_length",
    "filter": "content_filter refusal safety recitation blocklist prohibited_content",
    "tool": "tool_calls function_call tool_use",
}
_FINISHES = {word: finish for finish, words in _WORDS.items() for word in words.split()}


def read_finish(word: str) -> str:
    """Return why a model stopped, from its provider's word; one that is unknown stays."""
    return _FINISHES.get(word.lower(), word)


def as_mapping(reply: Any) -> Mapping[str, Any]:
    """Return an SDK's reply as parsed JSON; empty if it is no object."""
    if isinstance(reply, Mapping):
        return reply
    return reply.model_dump(warnings=False) if hasattr(reply, "model_dump") else {}


def read_chat(reply: Mapping[str, Any]) -> Answer:
    """Read a reply of Chat Completions."""
    choice = next(objects_at(reply, "choices"), {})
    message = object_at(choice, "message")
    if not message:
        return _unreadable(reply)
    return _answer(
        reply,
        _text(message.get("content"), "text"),
        choice.get("finish_reason"),
        calls=message.get("tool_calls") or message.get("function_call"),
        refused=message.get("refusal"),
    )


def read_responses(reply: Mapping[str, Any]) -> Answer:
    """Read a reply of the Responses API."""
    status, output = reply.get("status"), reply.get("output")
    if not isinstance(output, list) or status not in ("completed", "incomplete"):
        return _unreadable(reply)
    items = list(objects_in(output))
    blocks = [block for item in items for block in objects_at(item, "content")]
    return _answer(
        reply,
        _text(blocks, "output_text"),
        status if status == "completed" else dig(reply, "incomplete_details", "reason"),
        calls=any(str(item.get("type")).endswith("_call") for item in items),
        refused=any(block.get("type") == "refusal" for block in blocks),
    )


def read_messages(reply: Mapping[str, Any]) -> Answer:
    """Read a reply of Anthropic's Messages."""
    blocks = reply.get("content")
    if not isinstance(blocks, list):
        return _unreadable(reply)
    calls = any(block.get("type") == "tool_use" for block in objects_in(blocks))
    return _answer(reply, _text(blocks, "text"), reply.get("stop_reason"), calls=calls)


READERS = {CHAT: read_chat, RESPONSES: read_responses, MESSAGES: read_messages}


def _answer(
    reply: Mapping[str, Any], text: str, word: Any, *, calls: object, refused: object = False
) -> Answer:
    """Return an answer; *word* is the provider's for why the model stopped."""
    finish = read_finish(word) if isinstance(word, str) and word else "unknown"
    finish = "tool" if calls else "filter" if refused else finish
    model, usage = str(reply.get("model") or ""), read_usage(reply.get("usage"))
    return Answer(strip_reasoning(text).strip(), finish, model=model, usage=usage)


def _text(content: Any, kind: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(text_at(b, "text") for b in objects_in(content) if b.get("type") == kind)


def _unreadable(reply: Mapping[str, Any]) -> Answer:
    """A reply that came with a good status and holds no answer; some routers put errors there."""
    error = object_at(reply, "error")
    code, text = error.get("code"), str(error.get("message") or "the reply holds no answer")
    if isinstance(code, int) and code >= 400:
        return answer_of_status(code, text, {})
    return Answer("", "error", shorten_error(text), failure=Failure("reply"))
