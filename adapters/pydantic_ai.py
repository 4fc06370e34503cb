"""pydantic-ai: its agent over the Messages API, with thinking; the history is kept as JSON."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anthropic import AsyncAnthropic
from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    RetryFeedbackPart,
    RetryInfo,
    RetryPromptPart,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.usage import RunUsage
from pydantic_ai_harness.compaction import SlidingWindowCompaction

from adapters.framework import Job, Regression, Talk, Timing
from adapters.session import ToolError, Turn, check_part, neutral_history, read_part
from refold import Budget, Compactor, Message, Text, ToolResult, check
from refold.adapters import pydantic_ai_messages
from refold.adapters.pydantic_ai import RefoldCapability

PACKAGE = "pydantic-ai-slim"
FILE = "history.json"


def talk(job: Job, wrap: Callable[[Any], Any] = lambda refold: refold) -> Talk:
    """Run the turns: the first by `run_sync`, one that streams by `run_stream_events`, the rest by
    `run`.

    *wrap* turns Refold's capability into the agent's.
    """
    refold = RefoldCapability(job.compactor(format=pydantic_ai_messages))
    path = job.place / FILE
    history = ModelMessagesTypeAdapter.validate_json(path.read_bytes()) if path.exists() else []
    deltas = list[str]()
    for turn in job.turns:
        agent = _agent(job.url, wrap(refold))  # its client belongs to one event loop
        if turn.streams:
            history, pieces = asyncio.run(_stream(agent, turn, history))
            deltas += pieces
        elif turn.image:
            history = asyncio.run(agent.run(_input(turn), message_history=history)).all_messages()
        else:
            history = agent.run_sync(_input(turn), message_history=history).all_messages()
        path.write_bytes(ModelMessagesTypeAdapter.dump_json(history))
    return Talk(history, deltas, len(refold.compactor.settings.reports.newest))


def _agent(url: str, capability: Any) -> Agent[Any, Any]:
    client = AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
    model = AnthropicModel("claude-opus-5-5", provider=AnthropicProvider(anthropic_client=client))
    return Agent(
        model,
        system_prompt="You see to parts.",
        instructions="Answer in a sentence.",
        tools=[read_part, _check_part],
        capabilities=[capability],
        model_settings={"anthropic_thinking": {"type": "adaptive"}, "max_tokens": 4_000},
        retries=3,
    )


def _check_part(part: str) -> str:
    try:
        return check_part(part)
    except ToolError as error:
        raise ModelRetry(str(error)) from error


_check_part.__name__ = "check_part"


def _input(turn: Turn) -> Any:
    if not turn.image:
        return turn.text
    return [turn.text, BinaryContent(turn.image, media_type="image/png")]


async def _stream(
    agent: Agent[Any, Any], turn: Turn, history: list[ModelMessage]
) -> tuple[list[ModelMessage], list[str]]:
    pieces = list[str]()
    async with agent.iter(_input(turn), message_history=history) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                            pieces.append(event.part.content)
                        elif isinstance(event, PartDeltaEvent) and isinstance(
                            event.delta, TextPartDelta
                        ):
                            pieces.append(event.delta.content_delta)
    assert run.result is not None
    return run.result.all_messages(), pieces


# --- the harness's sliding window -----------------------------------------------------------------


def _history(calls: int) -> list[ModelMessage]:
    """Return one turn with many parallel calls, each answered by its own request."""
    ids = [f"call_{n}" for n in range(calls)]
    parts = [f"part-{n:02}" for n in range(calls)]
    calls_made = [
        ToolCallPart("read_part", {"part": p}, i) for i, p in zip(ids, parts, strict=True)
    ]
    returns = [
        ToolReturnPart("read_part", read_part(p), i) for i, p in zip(ids, parts, strict=True)
    ]
    return [
        ModelRequest.user_text_prompt("Please see to the parts."),
        ModelResponse(calls_made),
        *(ModelRequest([part]) for part in returns),
    ]


def _slide(setting: tuple[int, int]) -> Any:
    calls, keep = setting
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    strategy = SlidingWindowCompaction(max_messages=1, keep_messages=keep)
    return asyncio.run(strategy.compact(_history(calls), context))


def _compact(setting: tuple[int, int]) -> Any:
    calls, keep = setting
    later = [
        ModelResponse([TextPart("All are read.")]),
        ModelRequest.user_text_prompt("And which is the heaviest?"),
    ]
    history = [*_history(calls), *later]
    compactor = Compactor(budget=Budget(400 * keep, 200 * keep), format=pydantic_ai_messages)
    return compactor({"messages": history, "model": "claude-opus-5-5"}).payload["messages"]


def _find_orphan(messages: Sequence[Any]) -> Any:
    return [v for v in check(messages, pydantic_ai_messages) if "has no call" in v.text]


REGRESSIONS = (
    Regression(
        case="SlidingWindowCompaction, results of one turn in requests of their own: results "
        "without their call",
        settings=[(calls, keep) for calls in (6, 12, 20) for keep in range(1, calls + 2)],
        own=_slide,
        ours=_compact,
        find_fault=_find_orphan,
        broken=23,
    ),
)


def _check_edited_retries() -> None:
    """What is shown in place of a retry is all that the model reads."""
    parts = (
        RetryPromptPart("No such part.", tool_name="check_part", tool_call_id="1"),
        RetryPromptPart("No such part."),
        RetryFeedbackPart("No such part.", retry=RetryInfo(cause="model_retry")),
    )
    for part in parts:
        item = ModelRequest([part])
        message = pydantic_ai_messages.decode(item, ())
        (retry,), text = message.parts, Text("[cleared]")
        new = replace(retry, content=(text,)) if isinstance(retry, ToolResult) else text
        edited = Message(message.role, (new,))
        item = pydantic_ai_messages.patch(item, edited)
        assert pydantic_ai_messages.decode(item, ()) == edited, item


CHECKS = (_check_edited_retries,)


# --- timings --------------------------------------------------------------------------------------


def _messages(length: int) -> list[Any]:
    return [pydantic_ai_messages.encode(m) for m in neutral_history(length // 3 + 1)][:length]


_CONTEXT = RunContext(deps=None, model=TestModel(), usage=RunUsage())
_WINDOW = SlidingWindowCompaction(max_messages=40, keep_messages=40)
_COMPACTOR = Compactor(budget=Budget(100_000, 50_000), format=pydantic_ai_messages)

TIMINGS = (
    Timing(
        "SlidingWindowCompaction",
        _messages,
        lambda messages: asyncio.run(_WINDOW.compact(list(messages), _CONTEXT)),
    ),
    Timing(
        "RefoldCapability",
        _messages,
        lambda messages: asyncio.run(
            _COMPACTOR.acompact({"messages": list(messages), "model": "gpt-5.2"})
        ),
    ),
)
