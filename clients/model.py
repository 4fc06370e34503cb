"""The scripted model: it knows only its current request, and its window is small."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple, Protocol

from refold.testing.scripted_provider import Received, Reply
from refold.tokens.count import exact

WINDOW = 40_000
"""The window in tokens, which includes the output cap, as Anthropic and OpenAI count it."""


class Asked(NamedTuple):
    """What the model sees of a request."""

    text: str
    """All text of its messages, the newest last."""
    has_tools: bool


class Script(Protocol):
    """The behaviour of the model."""

    reads: list[str]
    """Files read, in order."""
    reread: int
    """Number of reads of files whose codes an earlier request contained: what a compaction lost."""

    def answer_aside(self, asked: Asked) -> str | None:
        """Answer a request outside the conversation, such as one for a title or a client's summary,
        else return None."""
        ...

    def answer(self, asked: Asked) -> Reply:
        """Take the next step."""
        ...


@dataclass
class Model:
    """The script of a `ScriptedProvider`: refuses requests over its window in the words of their
    API, and leaves the rest to *script*."""

    script: Script
    requests: list[Received] = field(default_factory=list)
    """Answered requests of the conversation."""
    refused: int = 0
    """Number of context errors."""
    aside: int = 0
    """Number of requests outside the conversation: titles, summaries."""
    tokens: int = 0
    """Tokens of the answered requests."""
    asked_at: float = field(default_factory=time.monotonic)
    """Time of the newest request, or of the start before the first."""

    def __post_init__(self) -> None:
        self._count, self._lock = exact("o200k_base"), Lock()

    def __call__(self, received: Received) -> Reply:
        """Answer one request."""
        with self._lock:
            self.asked_at = time.monotonic()
            return self._answer(received)

    def _answer(self, received: Received) -> Reply:
        body = received.json
        if not is_for_an_answer(received):
            return Reply("The model answers, and does nothing else.", status=404)
        size = self._size(body)
        if size + _cap(body) > WINDOW:
            self.refused += 1
            return refuse(received.target, size, _cap(body))
        asked = Asked(history_text(body), bool(body.get("tools")))
        if (words := self.script.answer_aside(asked)) is not None:
            self.aside += 1
            return Reply(words, usage=(size, 20, 0), id=f"aside{self.aside:04}")
        self.requests.append(received)
        self.tokens += size
        reply = self.script.answer(asked)
        return replace(
            reply,
            usage=(size, 40, 0),
            reasoning="What is next?" if reply.calls and _thinks(body) else "",
            id=f"{len(self.requests):04}",
        )

    def _size(self, body: dict[str, Any]) -> int:
        """Return the tokens of the texts and of the tools as JSON."""
        tools = body.get("tools")
        rest = {name: value for name, value in body.items() if name != "tools"}
        return self._count("\n".join(_texts(rest))) + (
            self._count(json.dumps(tools)) if tools else 0
        )


def is_for_an_answer(received: Received) -> bool:
    """Return whether the request asks one of the four APIs for an answer."""
    return received.method == "POST" and received.path.endswith(
        (
            "/chat/completions",
            "/responses",
            "/messages",
            ":generateContent",
            ":streamGenerateContent",
        )
    )


def refuse(target: str, size: int, cap: int) -> Reply:
    """Return a context error in the words of the API at *target*."""
    if "/messages" in target:
        words = f"prompt is too long: {size} tokens > {WINDOW} maximum"
        if size <= WINDOW:
            words = f"input length and `max_tokens` exceed context limit: {size} + {cap} > {WINDOW}, decrease input length or `max_tokens` and try again"
        error: dict[str, Any] = {"type": "invalid_request_error", "message": words}
        return Reply(status=400, body=json.dumps({"type": "error", "error": error}))
    if "enerateContent" in target:
        words = f"The input token count ({size}) exceeds the maximum number of tokens allowed ({WINDOW})."
        error = {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}
        return Reply(status=400, body=json.dumps({"error": error}))
    words = "Your input exceeds the context window of this model. Please adjust your input and try again."
    if "/chat/completions" in target:
        words = (
            f"This model's maximum context length is {WINDOW} tokens. However, you requested {size + cap} tokens "
            f"({size} in the messages, {cap} in the completion). Please reduce the length of the messages or completion."
        )
    error = {
        "message": words,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return Reply(status=400, body=json.dumps({"error": error}))


def history_text(body: dict[str, Any]) -> str:
    """Return the text of all messages of a request."""
    return "\n".join(
        _texts(body.get("messages") or body.get("input") or body.get("contents") or [])
    )


def _cap(body: dict[str, Any]) -> int:
    """Return the requested output tokens, 0 for Gemini and Responses, which count only input."""
    return int(body.get("max_tokens") or body.get("max_completion_tokens") or 0)


def _thinks(body: dict[str, Any]) -> bool:
    """Return whether thinking is requested. Anthropic's is signed, that of Responses encrypted."""
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        return True
    return (body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _texts(inner)
