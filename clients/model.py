"""The model, which alone is not real: it knows what stands in its request and nothing else, and its window is small."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from clients import task
from refold.testing.scripted_provider import Call, Received, Reply
from refold.tokens.exact import exact

WINDOW = 40_000
"""Tokens that it takes, its answer's cap included, as Anthropic and OpenAI count it."""
STEPS = 120
"""Answers after which it gives up."""


@dataclass
class Model:
    """The script of a `ScriptedProvider`.

    It reads the first file whose code its request does not tell, and says with each call which codes it knows; with
    all of them it writes the result. So what a compaction loses is read once more. Requests without tools are
    answered with those notes: that does for a title and for a client's own summary. It gives up when a
    file cannot be read three times in a row.
    """

    read: Callable[[str], Call]
    shell: Callable[[str], Call]
    requests: list[Received] = field(default_factory=list)
    """Those for an answer of the conversation that it answered."""
    refused: int = 0
    """How many it refused with a context error."""
    aside: int = 0
    """How many had no tools: titles, summaries."""
    reads: list[str] = field(default_factory=list)
    tokens: int = 0
    """Of the requests that it answered."""

    def __post_init__(self) -> None:
        self._count, self._lock = exact("o200k_base"), Lock()

    def __call__(self, asked: Received) -> Reply:
        """The answer to one request."""
        with self._lock:
            return self._answer(asked)

    def _answer(self, asked: Received) -> Reply:
        body = asked.json
        if not is_for_an_answer(asked):
            return Reply("The model answers, and does nothing else.", status=404)
        size = self._size(body)
        if size + _cap(body) > WINDOW:
            self.refused += 1
            return refusal(asked.target, size, _cap(body))
        if not body.get("tools"):
            self.aside += 1
            codes = task.found("\n".join(_texts(_history(body))))
            return Reply(f"{task.PROMPT}\n{task.notes(codes)}", usage=(size, 20, 0))
        self.requests.append(asked)
        self.tokens += size
        return self._step(body, (size, 40, 0))

    def _step(self, body: dict[str, Any], usage: tuple[int, int, int]) -> Reply:
        said = "\n".join(_texts(_history(body)))
        if task.is_written(said):
            return Reply("All codes are written.", usage=usage)
        codes = task.found(said)
        missing = [part for part in task.parts() if part not in codes]
        if len(self.requests) > STEPS or self.reads[-3:] == missing[:1] * 3:
            return Reply("I give up.", usage=usage)
        call = self.read(missing[0]) if missing else self.shell(task.writing(codes))
        self.reads += missing[:1]
        call = Call(call.name, call.arguments, id=f"call_{len(self.requests):04}")
        return Reply(
            task.notes(codes),
            calls=(call,),
            usage=usage,
            reasoning="What is next?" if _thinks(body) else "",
        )

    def _size(self, body: dict[str, Any]) -> int:
        """Tokens: of the texts, and of the tools as JSON."""
        tools = body.get("tools")
        rest = {name: value for name, value in body.items() if name != "tools"}
        return self._count("\n".join(_texts(rest))) + (
            self._count(json.dumps(tools)) if tools else 0
        )


def is_for_an_answer(asked: Received) -> bool:
    """Is it one of the four APIs' requests for an answer?"""
    path = asked.target.partition("?")[0]
    return asked.method == "POST" and path.endswith(
        (
            "/chat/completions",
            "/responses",
            "/messages",
            ":generateContent",
            ":streamGenerateContent",
        )
    )


def refusal(target: str, size: int, cap: int) -> Reply:
    """A context error as the API at *target* says it."""
    if "/messages" in target:
        said = f"prompt is too long: {size} tokens > {WINDOW} maximum"
        if size <= WINDOW:
            said = f"input length and `max_tokens` exceed context limit: {size} + {cap} > {WINDOW}, decrease input length or `max_tokens` and try again"
        error: dict[str, Any] = {"type": "invalid_request_error", "message": said}
        return Reply(status=400, body=json.dumps({"type": "error", "error": error}))
    if "enerateContent" in target:
        said = f"The input token count ({size}) exceeds the maximum number of tokens allowed ({WINDOW})."
        error = {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}
        return Reply(status=400, body=json.dumps({"error": error}))
    said = "Your input exceeds the context window of this model. Please adjust your input and try again."
    if "/chat/completions" in target:
        said = (
            f"This model's maximum context length is {WINDOW} tokens. However, you requested {size + cap} tokens "
            f"({size} in the messages, {cap} in the completion). Please reduce the length of the messages or completion."
        )
    error = {
        "message": said,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return Reply(status=400, body=json.dumps({"error": error}))


def _cap(body: dict[str, Any]) -> int:
    """Output tokens that were asked for; Gemini and Responses count the input alone."""
    return int(body.get("max_tokens") or body.get("max_completion_tokens") or 0)


def _thinks(body: dict[str, Any]) -> bool:
    """Was thinking asked for? Anthropic's comes signed, that of Responses encrypted."""
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        return True
    return (body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}


def _history(body: dict[str, Any]) -> Any:
    return body.get("messages") or body.get("input") or body.get("contents") or []


def _texts(value: Any) -> Iterator[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _texts(inner)
