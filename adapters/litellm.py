"""LiteLLM's SDK, sync and async. LiteLLM has no agent loop and no memory, so both are here."""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import litellm
from litellm.llms.anthropic.pass_through.context_management.editors.clear_tool_uses import (
    apply_clear_tool_uses_20250919,
)
from litellm.types.utils import CallTypes
from litellm.utils import trim_messages

from adapters.framework import BUSY, IDLE, MODEL, Job, Regression, Talk, Timing
from adapters.session import ToolError, Turn, check_part, neutral_history, read_part
from refold import Budget, Compactor, check, compact
from refold.adapters.litellm import RefoldLogger
from refold.codecs import anthropic, openai_chat
from refold.codecs.blocks import as_list
from refold.strategies import ClearToolInputs, ClearToolResults

PACKAGE = "litellm"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{task} a part.",
            "parameters": {
                "type": "object",
                "properties": {"part": {"type": "string"}},
                "required": ["part"],
            },
        },
    }
    for name, task in (("read_part", "Read the log of"), ("check_part", "Check"))
]


def talk(job: Job) -> Talk:
    """Run the turns: the first in async code, then one that streams too, the last in sync code."""
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
        reports = runner.run(count_reports(refold, "openai_chat"))
    return Talk(loop.read(), loop.deltas, reports)


async def count_reports(refold: RefoldLogger, api: str) -> int:
    """Return the number of usage reports received. LiteLLM reports them in the background."""
    for _ in range(100):
        await asyncio.sleep(0.2)
        if newest := refold.compactors[api].settings.reports.newest:
            return len(newest)
    return 0


async def _collect(call: Any) -> list[Any]:
    return [chunk async for chunk in await call]


@dataclass
class Loop:
    """An agent loop over Chat Completions with its messages in a JSON file."""

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
        """Continue until the model calls no tool."""
        messages = [*self.read(), {"role": "user", "content": list(_blocks(turn))}]
        while True:
            answer = self._answer(messages, streams=turn.streams)
            messages.append(answer)
            for call in answer.get("tool_calls") or ():
                function = call["function"]
                text = run_tool(function["name"], **json.loads(function["arguments"]))
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
    """Return the streamed message."""
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


def run_tool(name: str, part: str) -> str:
    """Return the output or the error of a tool."""
    try:
        return {"read_part": read_part, "check_part": check_part}[name](part)
    except ToolError as error:
        return f"Error: {error}"


def _blocks(turn: Turn) -> Any:
    yield {"type": "text", "text": turn.text}
    if turn.image:
        url = f"data:image/png;base64,{base64.b64encode(turn.image).decode()}"
        yield {"type": "image_url", "image_url": {"url": url}}


# --- faults of LiteLLM's own compaction -----------------------------------------------------------

BUDGETS = range(500, 10_500, 500)


def make_history(codec: Any = openai_chat) -> list[dict[str, Any]]:
    """Return the history to compact."""
    return [codec.encode(message) for message in neutral_history()]


def _trim(budget: int) -> list[Any]:
    return list(trim_messages(make_history(), MODEL, max_tokens=budget))


def _compact(budget: int) -> list[Any]:
    return list(compact(make_history(), budget, format="openai_chat").payload)


def _find_fault(messages: list[Any]) -> Any:
    """Return what a provider refuses when the user goes on."""
    return check([*messages, {"role": "user", "content": "Go on."}], "openai_chat")


class Cleared(NamedTuple):
    """A history after its old results were cleared, and the setting for what to keep or clear."""

    messages: list[Any]
    setting: str

    def is_ignored(self) -> bool:
        """Return whether the setting was ignored."""
        blocks = [block for message in self.messages for block in as_list(message["content"])]
        results = [str(b["content"]) for b in blocks if b["type"] == "tool_result"]
        inputs = [str(b["input"]) for b in blocks if b["type"] == "tool_use"]
        if self.setting == "clear_tool_inputs":
            return all(LONG in text for text in inputs)
        return not all("has the code" in text for text in results)


LONG = "and its neighbours " * 60


def _messages_api() -> list[Any]:
    messages = make_history(anthropic)
    for message in messages:
        for block in as_list(message["content"]):
            if block["type"] == "tool_use":
                block["input"] = {**block["input"], "why": LONG}
    return messages


def _clear(setting: str) -> Cleared:
    given = {"clear_at_least": {"type": "input_tokens", "value": 10**6}}
    given |= {"exclude_tools": ["read_part"], "clear_tool_inputs": True}
    edit = {"keep": {"type": "tool_uses", "value": 3}, setting: given[setting]}
    messages, _ = apply_clear_tool_uses_20250919(
        model=MODEL,
        messages=_messages_api(),
        tools=None,
        system=None,
        edit_spec={"trigger": {"type": "input_tokens", "value": 1_000}, **edit},
    )
    return Cleared(messages, setting)


def _clear_refold(setting: str) -> Cleared:
    strategies: dict[str, Any] = {
        "clear_at_least": ClearToolResults(keep=3, at_least=10**6),
        "exclude_tools": ClearToolResults(keep=3, protect=["read_part"]),
        "clear_tool_inputs": ClearToolInputs(keep=3),
    }
    compactor = Compactor([strategies[setting]], Budget(1_000, 0), format="anthropic")
    return Cleared(list(compactor(_messages_api()).payload), setting)


REGRESSIONS = (
    Regression(
        case="trim_messages: a result without its call, or a call without its result",
        thread="litellm#10696",
        settings=BUDGETS,
        own=_trim,
        ours=_compact,
        find_fault=_find_fault,
        broken=20,
    ),
    Regression(
        case="context_management for other providers: settings passed over",
        settings=("clear_at_least", "exclude_tools", "clear_tool_inputs"),
        own=_clear,
        ours=_clear_refold,
        find_fault=Cleared.is_ignored,
        broken=3,
    ),
)

# --- timings --------------------------------------------------------------------------------------


def _time_refold(refold: RefoldLogger) -> Callable[[Any], object]:
    runner = asyncio.Runner()

    def run(messages: Any) -> object:
        kwargs = {"model": f"openai/{MODEL}", "messages": list(messages), "tools": TOOLS}
        return runner.run(refold.async_pre_call_deployment_hook(kwargs, CallTypes.acompletion))

    return run


def _long_history(length: int) -> list[Any]:
    return [openai_chat.encode(m) for m in neutral_history(length, lines=4)][:length]


TIMINGS = (
    Timing(
        "trim_messages",
        _long_history,
        lambda messages: trim_messages(list(messages), MODEL, max_tokens=10**6),
    ),
    Timing("RefoldLogger", _long_history, _time_refold(RefoldLogger(**IDLE))),
    Timing("RefoldLogger, history shortened", _long_history, _time_refold(RefoldLogger(**BUSY))),
)
