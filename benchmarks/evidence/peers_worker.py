"""Runs in the peers' environment and compacts sessions, a line of JSON in and a line out.

`{"peer": name, "window": tokens}` begins a session. `{"new": [messages]}` adds messages in the
format of Chat Completions and returns `{"send": [messages]}`. A peer is a function from all
messages of a session to those that are sent, or it keeps its edits in the messages that it is given
again.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from cliffcompaction.config import Config
from cliffcompaction.dialects import openai_chat
from cliffcompaction.engine import Engine
from headroom import compress
from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.middleware.types import ModelRequest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AnyMessage, RemoveMessage
from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
from pydantic_ai import RunContext, RunUsage
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import (
    ModelRequest as Request,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.compaction import ClearToolResults, SlidingWindowCompaction
from pydantic_ai_harness.compaction._shared import estimate_token_count

try:
    import refold
except ModuleNotFoundError:
    refold = None


Chat = dict[str, Any]
Compact = Callable[[list[Chat]], list[Chat]]
"""Function from the messages of a request to those that are sent."""
MODEL = FakeListChatModel(responses=["no model is asked"])


class Rewritten:
    """A peer that keeps a compacted history and only appends new messages to it."""

    def __init__(self, compact: Compact) -> None:
        self.compact, self.history, self.seen = compact, list[Chat](), 0

    def __call__(self, messages: list[Chat]) -> list[Chat]:
        """Compact the history with the new messages."""
        self.history = self.compact([*self.history, *messages[self.seen :]])
        self.seen = len(messages)
        return self.history


def text_of(message: AnyMessage) -> str:
    """Return the text of a message and the strings in its calls."""
    calls = [json.dumps(call["args"]) for call in getattr(message, "tool_calls", [])]
    return "\n".join([message.text, *calls])


def beginnings(size: int) -> Callable[[list[AnyMessage]], str]:
    """Return a mechanical summarizer: the beginning of each message, cut to equal length, as many
    of the newest as fit."""

    def summarize(messages: list[AnyMessage]) -> str:
        each = max(80, size // max(1, len(messages)))
        lines = [" ".join(text_of(message).split())[:each] for message in messages]
        return "\n".join(lines[-max(1, size // each) :])

    return summarize


def langchain_summary(window: int, keep: tuple[str, int]) -> Compact:
    """Return LangChain's summarization, with a mechanical summarizer of a tenth of what is left."""
    middleware = SummarizationMiddleware(
        MODEL, trigger=("tokens", window), keep=keep, summarizer=beginnings(4 * window // 20)
    )

    def compact(messages: list[Chat]) -> list[Chat]:
        history = convert_to_messages(messages)
        update = middleware.before_model({"messages": history}, None)
        remaining = (
            [m for m in update["messages"] if not isinstance(m, RemoveMessage)] if update else []
        )
        return convert_to_openai_messages(remaining) if update else messages

    return Rewritten(compact)


def langchain_editing(edit: ClearToolUsesEdit) -> Compact:
    """Return LangChain's context editing."""
    middleware = ContextEditingMiddleware(edits=[edit])

    def compact(messages: list[Chat]) -> list[Chat]:
        history = convert_to_messages(messages)
        request = ModelRequest(
            model=MODEL, messages=history, tools=[], state={"messages": history}, runtime=None
        )
        return convert_to_openai_messages(middleware.wrap_model_call(request, lambda r: r.messages))

    return compact


def pydantic_messages(messages: list[Chat]) -> list[ModelMessage]:
    """Return the messages in the classes of pydantic-ai."""
    names = {c["id"]: c["function"]["name"] for m in messages for c in m.get("tool_calls") or []}
    history = list[ModelMessage]()
    for message in messages:
        text = convert_to_messages([{**message, "tool_calls": []}])[0].text
        if message["role"] == "assistant":
            calls = [
                ToolCallPart(c["function"]["name"], c["function"]["arguments"], c["id"])
                for c in message.get("tool_calls") or []
            ]
            history.append(ModelResponse([*([TextPart(text)] if text else []), *calls]))
        elif message["role"] == "tool":
            name = names.get(message["tool_call_id"], "tool")
            history.append(Request([ToolReturnPart(name, text, message["tool_call_id"])]))
        else:
            history.append(Request([UserPromptPart(text)]))
    return history


def chat_messages(history: list[ModelMessage]) -> list[Chat]:
    """Return the messages of pydantic-ai as dictionaries."""
    messages = list[Chat]()
    for message in history:
        calls = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
            }
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        text = "\n".join(part.content for part in message.parts if isinstance(part, TextPart))
        if isinstance(message, ModelResponse):
            extra = {"tool_calls": calls} if calls else {}
            messages.append({"role": "assistant", "content": text, **extra})
            continue
        for part in message.parts:
            content = str(part.content)
            if isinstance(part, ToolReturnPart):
                id = part.tool_call_id
                messages.append({"role": "tool", "tool_call_id": id, "content": content})
            else:
                messages.append({"role": "user", "content": content})
    return messages


def pydantic(window: int, strategy: Any) -> Compact:
    """Return a strategy of pydantic-ai-harness, which rewrites the history beyond the window."""
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())

    def compact(messages: list[Chat]) -> list[Chat]:
        history = pydantic_messages(messages)
        if estimate_token_count(history) <= window:
            return messages
        return chat_messages(asyncio.run(strategy.compact(history, context)))

    return Rewritten(compact)


def cliff(window: int) -> Compact:
    """Return CliffCompaction: the text of all turns in full, results only if they are short."""
    engine = Engine(Config(threshold_tokens=window))
    dialect = openai_chat.DIALECT
    return lambda messages: engine.prepare({"messages": messages}, dialect).outgoing_body()[
        "messages"
    ]


def headroom(window: int) -> Compact:
    """Return Headroom's compression of single messages beyond the window, without its model, which
    it would download."""

    def compact(messages: list[Chat]) -> list[Chat]:
        if sum(len(json.dumps(message, ensure_ascii=False)) for message in messages) < 4 * window:
            return messages
        return compress(messages, kompress_model="disabled").messages

    return compact


def first_refold(window: int) -> Compact:
    """Return Refold 0.1 of this environment: half of its summary is a list of names."""
    budget = refold.Budget(window, window // 2)
    compact = refold.Compactor(refold.default_strategies(window // 2), budget)
    return lambda messages: compact({"messages": messages}).payload["messages"]


PEERS: dict[str, Callable[[int], Compact]] = {
    **({"Refold 0.1": first_refold} if refold else {}),
    "LangChain summarization, defaults": lambda w: langchain_summary(w, ("messages", 20)),
    "LangChain summarization, keeps half": lambda w: langchain_summary(w, ("tokens", w // 2)),
    "LangChain context editing, defaults": lambda w: langchain_editing(
        ClearToolUsesEdit(trigger=w)
    ),
    "LangChain context editing, inputs too": lambda w: langchain_editing(
        ClearToolUsesEdit(trigger=w, clear_tool_inputs=True)
    ),
    "pydantic-ai-harness sliding window, defaults": lambda w: pydantic(
        w, SlidingWindowCompaction(max_tokens=w)
    ),
    "pydantic-ai-harness sliding window, keeps half": lambda w: pydantic(
        w, SlidingWindowCompaction(max_tokens=w, keep_tokens=w // 2)
    ),
    "pydantic-ai-harness clears results": lambda w: pydantic(w, ClearToolResults(max_tokens=w)),
    "CliffCompaction": cliff,
    "Headroom": headroom,
}


def main() -> None:
    """Answer line by line until the input ends; return the names of the peers for an empty
    object."""
    compact, messages = PEERS["Headroom"](1), list[Chat]()
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        match json.loads(line):
            case {"peer": name, "window": window}:
                compact, messages = PEERS[name](window), []
                answer: dict[str, Any] = {}
            case {"new": new}:
                messages += new
                answer = {"send": compact(list(messages))}
            case _:
                answer = {"peers": [*PEERS]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
