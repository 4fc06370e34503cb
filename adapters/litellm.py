"""LiteLLM's SDK, sync and async: LiteLLM has no loop and no memory, so both are here."""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import litellm

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.session import ToolError, Turn, check_part, read_part
from refold.adapters.litellm import RefoldLogger

PACKAGE = "litellm"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{what} a part.",
            "parameters": {
                "type": "object",
                "properties": {"part": {"type": "string"}},
                "required": ["part"],
            },
        },
    }
    for name, what in (("read_part", "Read the log of"), ("check_part", "Check"))
]


def talk(job: Job) -> Talk:
    """Hold turns: the first in async code, one that streams too, the last in sync code."""
    refold = RefoldLogger(**job.options)
    litellm.callbacks = [refold]
    server = {"model": f"openai/{MODEL}", "api_base": f"{job.url}/v1", "api_key": "none"}
    with asyncio.Runner() as runner:

        def ask(**kwargs: Any) -> Any:
            return runner.run(litellm.acompletion(**server, **kwargs))

        def ask_sync(**kwargs: Any) -> Any:
            return litellm.completion(**refold.compact({**server, **kwargs}))

        def stream(**kwargs: Any) -> list[Any]:
            return runner.run(_collect(litellm.acompletion(**server, **kwargs, stream=True)))

        loop = Loop(job.place / "messages.json", ask, stream)
        for turn in job.turns:
            is_last = len(job.turns) == 1
            (Loop(loop.path, ask_sync, stream) if is_last else loop).hold(turn)
        runner.run(asyncio.sleep(1))  # usage is reported in the background
    newest = refold.compactors["openai_chat"].settings.reports.newest
    return Talk(loop.read(), loop.deltas, len(newest))


async def _collect(call: Any) -> list[Any]:
    return [chunk async for chunk in await call]


@dataclass
class Loop:
    """The loop of an agent over Chat Completions, its messages in a JSON file."""

    path: Path
    ask: Callable[..., Any]
    stream: Callable[..., list[Any]]
    deltas: list[str] = field(default_factory=list)

    def read(self) -> list[dict[str, Any]]:
        """Read the messages."""
        if not self.path.exists():
            return []
        messages: list[dict[str, Any]] = json.loads(self.path.read_text(encoding="utf-8"))
        return messages

    def hold(self, turn: Turn) -> None:
        """Go on until the model calls no tool."""
        messages = [*self.read(), {"role": "user", "content": list(_blocks(turn))}]
        while True:
            answer = self._answer(messages, streams=turn.streams)
            messages.append(answer)
            for call in answer.get("tool_calls") or ():
                function = call["function"]
                text = _run(function["name"], **json.loads(function["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            self.path.write_text(json.dumps(messages), encoding="utf-8")
            if not answer.get("tool_calls"):
                return

    def _answer(self, messages: list[dict[str, Any]], *, streams: bool) -> dict[str, Any]:
        if streams:
            chunks = self.stream(messages=messages, tools=TOOLS)
            deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
            self.deltas += filter(None, deltas)
            return _join(chunks)
        answer = self.ask(messages=messages, tools=TOOLS)
        message: dict[str, Any] = answer.choices[0].message.model_dump(exclude_none=True)
        return message


def _join(chunks: list[Any]) -> dict[str, Any]:
    """Return the message that was streamed."""
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    calls = dict[int, dict[str, Any]]()
    for piece in (piece for delta in deltas for piece in delta.tool_calls or ()):
        function = calls.setdefault(
            piece.index,
            {"id": piece.id, "type": "function", "function": {"name": "", "arguments": ""}},
        )["function"]
        function["name"] += piece.function.name or ""
        function["arguments"] += piece.function.arguments or ""
    text = "".join(delta.content or "" for delta in deltas)
    message = {"role": "assistant", "content": text or None}
    return message | ({"tool_calls": list(calls.values())} if calls else {})


def _run(name: str, part: str) -> str:
    try:
        return {"read_part": read_part, "check_part": check_part}[name](part)
    except ToolError as error:
        return f"Error: {error}"


def _blocks(turn: Turn) -> Any:
    yield {"type": "text", "text": turn.text}
    if turn.image:
        url = f"data:image/png;base64,{base64.b64encode(turn.image).decode()}"
        yield {"type": "image_url", "image_url": {"url": url}}


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
