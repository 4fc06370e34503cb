"""Strands Agents: its loop and file sessions over the Messages API, with thinking."""

import asyncio
from collections.abc import Sequence
from typing import Any

from strands import Agent, tool
from strands.agent import NullConversationManager, SlidingWindowConversationManager
from strands.models.anthropic import AnthropicModel
from strands.session import FileSessionManager

from adapters.framework import Job, Regression, Talk, Timing
from adapters.session import Turn, check_part, neutral_history, read_part
from refold import Budget, Compactor, check
from refold.adapters.strands import FORMAT, RefoldPlugin
from refold.codecs import bedrock

PACKAGE = "strands-agents"


def talk(job: Job) -> Talk:
    """Run the turns: the first by a call, one by `stream_async`, the rest by `invoke_async`."""
    refold = RefoldPlugin(job.compactor(format=FORMAT))
    agent = Agent(
        model=_model(job.url),
        system_prompt="You see to parts.",
        tools=[tool(read_part), tool(check_part)],
        plugins=[refold],
        conversation_manager=NullConversationManager(),
        session_manager=FileSessionManager("parts", storage_dir=str(job.place / "sessions")),
        callback_handler=None,
    )
    deltas = list[str]()
    for turn in job.turns:
        agent.model = _model(
            job.url
        )  # its client belongs to one event loop, and each turn has its own
        if turn.streams:
            deltas += asyncio.run(_stream(agent, turn))
        elif turn.image:
            asyncio.run(agent.invoke_async(_input(turn)))
        else:
            agent(_input(turn))
    return Talk(agent.messages, deltas, len(refold.compactor.settings.reports.newest))


def _model(url: str) -> AnthropicModel:
    return AnthropicModel(
        client_args={"base_url": url, "api_key": "none", "max_retries": 0},
        model_id="claude-opus-5-5",
        max_tokens=4_000,
        params={"thinking": {"type": "adaptive"}},
    )


def _input(turn: Turn) -> Any:
    image = {"image": {"format": "png", "source": {"bytes": turn.image}}}
    return [{"text": turn.text}, *([image] if turn.image else [])]


async def _stream(agent: Agent, turn: Turn) -> list[str]:
    return [event["data"] async for event in agent.stream_async(_input(turn)) if "data" in event]


# --- the sliding window ---------------------------------------------------------------------------


def _history(steps: int = 12) -> list[Any]:
    """Return one task without further user messages, in the format of Converse."""
    out = list[Any]()
    for wire in map(bedrock.encode, neutral_history(steps, every=steps)):
        if out and out[-1]["role"] == wire["role"]:
            out[-1] = bedrock.merge(out[-1], wire)
        else:
            out.append(wire)
    return out


def _slide(window: int) -> Any:
    agent = Agent(
        model=AnthropicModel(client_args={"api_key": "none"}, model_id="m", max_tokens=1),
        messages=_history(),
        conversation_manager=SlidingWindowConversationManager(window),
        callback_handler=None,
    )
    agent.conversation_manager.apply_management(agent)
    return agent.messages


def _compact(window: int) -> Any:
    return Compactor(budget=Budget(window * 700, window * 350), format=FORMAT)(_history()).payload


def _find_fault(messages: Sequence[Any]) -> Any:
    return check(messages, FORMAT) or not any(
        "text" in block for m in messages if m["role"] == "user" for block in m["content"]
    )


REGRESSIONS = (
    Regression(
        case="SlidingWindowConversationManager in one task: no user's message is left, and the "
        "assistant begins",
        settings=range(4, 22),
        own=_slide,
        ours=_compact,
        find_fault=_find_fault,
        broken=18,
        thread="harness-sdk#2173",
    ),
)


# --- timings --------------------------------------------------------------------------------------


def _messages(length: int) -> list[Any]:
    return _history(length)[:length]


def _time_slide(messages: Sequence[Any]) -> None:
    _IDLE.messages = list(messages)
    _IDLE.conversation_manager.apply_management(_IDLE)


_IDLE = Agent(
    model=AnthropicModel(client_args={"api_key": "none"}, model_id="m", max_tokens=1),
    conversation_manager=SlidingWindowConversationManager(40),
    callback_handler=None,
)
_COMPACTOR = Compactor(budget=Budget(100_000, 50_000), format=FORMAT)

TIMINGS = (
    Timing("SlidingWindowConversationManager", _messages, _time_slide),
    Timing("RefoldPlugin", _messages, lambda messages: _COMPACTOR({"messages": messages})),
)
