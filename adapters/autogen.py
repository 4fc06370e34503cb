"""AutoGen's own model contexts. docs/frameworks.md has the code to write for Refold's."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    TokenLimitedChatCompletionContext,
)
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient

from adapters.framework import Regression, Timing
from adapters.session import neutral_history
from refold import Budget, Compactor, check
from refold.codecs import openai_chat
from refold.messages import ToolCall, ToolResult

PACKAGE = "autogen-core"


def _history() -> list[Any]:
    return [_to_autogen(message) for message in neutral_history()]


def _to_autogen(message: Any) -> Any:
    calls = [
        FunctionCall(id=p.id, name=p.name, arguments=p.arguments)
        for p in message.parts
        if isinstance(p, ToolCall)
    ]
    results = [
        FunctionExecutionResult(content=p.text, name=p.name, call_id=p.id)
        for p in message.parts
        if isinstance(p, ToolResult)
    ]
    if calls:
        return AssistantMessage(content=calls, source="assistant")
    if results:
        return FunctionExecutionResultMessage(content=results)
    return UserMessage(content=message.text, source="user")


def _to_chat(message: Any) -> list[dict[str, Any]]:
    if isinstance(message, FunctionExecutionResultMessage):
        return [
            {"role": "tool", "tool_call_id": r.call_id, "content": r.content}
            for r in message.content
        ]
    if isinstance(message, AssistantMessage):
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.content
            if isinstance(c, FunctionCall)
        ]
        return [{"role": "assistant", "content": None, "tool_calls": calls}]
    return [{"role": "user", "content": message.content}]


class _Counter(ReplayChatCompletionClient):
    """A model client that estimates tokens, including calls and results."""

    def __init__(self) -> None:
        super().__init__([])

    def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        """Estimate tokens."""
        return len(json.dumps([entry for each in messages for entry in _to_chat(each)])) // 4


def _show(context: ChatCompletionContext) -> list[dict[str, Any]]:
    async def run() -> list[Any]:
        for message in _history():
            await context.add_message(message)
        return await context.get_messages()

    return [entry for message in asyncio.run(run()) for entry in _to_chat(message)]


def _compact(tokens: int) -> Any:
    chat = [openai_chat.encode(message) for message in neutral_history()]
    return Compactor(budget=Budget(tokens, tokens // 2), format="openai_chat")(chat).payload


def _begins_wrongly(chat: Sequence[dict[str, Any]]) -> Any:
    return not chat or chat[0]["role"] != "user" or check(list(chat), "openai_chat")


REGRESSIONS = (
    Regression(
        case="BufferedChatCompletionContext: the assistant begins, or a result without its call",
        settings=range(2, 30),
        own=lambda size: _show(BufferedChatCompletionContext(size)),
        ours=lambda size: _compact(size * 250),
        find_fault=_begins_wrongly,
        broken=24,
        thread="autogen#7955",
    ),
    Regression(
        case="TokenLimitedChatCompletionContext: a result without its call, or a call without its result",
        settings=range(250, 7_250, 250),
        own=lambda tokens: _show(TokenLimitedChatCompletionContext(_Counter(), token_limit=tokens)),
        ours=_compact,
        find_fault=_begins_wrongly,
        broken=21,
        thread="autogen#7955",
    ),
)
TIMINGS: tuple[Timing, ...] = ()
