"""OpenAI's Agents SDK: Runner and SQLiteSession over the Responses API."""

import asyncio
import base64
import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from agents import (
    Agent,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from agents.extensions import ToolOutputTrimmer
from agents.mcp import MCPServerStdio
from agents.models.openai_responses import OpenAIResponsesModel
from agents.run import CallModelData, ModelInputData
from mcp.types import Tool
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from adapters.framework import BUSY, IDLE, MODEL, Job, Regression, Talk, Timing
from adapters.session import (
    ANSWERS,
    TARGET,
    TRIGGER,
    WINDOW,
    Turn,
    check_part,
    neutral_history,
    read_part,
)
from refold import Budget, Compactor, Message, View
from refold.adapters.hook import latest_view
from refold.adapters.openai_agents import FORMAT, RefoldFilter
from refold.codecs import openai_responses
from refold.tokens.usage import Usage as ReadUsage

PACKAGE = "openai-agents"


def talk(job: Job) -> Talk:
    """Run the turns: the first by `run_sync`, one by `run_streamed`, the rest by `run`."""
    session = SQLiteSession("parts", job.place / "sessions.db")
    refold = RefoldFilter(job.compactor(format=FORMAT))
    deltas = list[str]()
    for turn in job.turns:
        agent = _agent(job.url)  # its client belongs to one event loop, and each turn has its own
        options: dict[str, Any] = {
            "session": session,
            "run_config": RunConfig(call_model_input_filter=refold, tracing_disabled=True),
            "hooks": refold,
            "max_turns": ANSWERS,
        }
        if turn.streams:
            deltas += asyncio.run(_stream(agent, turn, options))
        elif turn.image:
            asyncio.run(Runner.run(agent, _input(turn), **options))
        else:
            Runner.run_sync(agent, _input(turn), **options)
    history = asyncio.run(session.get_items())
    return Talk(history, deltas, len(refold.compactor.settings.reports.newest))


def _agent(url: str) -> Agent[Any]:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    tools = [function_tool(read_part), function_tool(check_part)]
    settings = ModelSettings(response_include=["reasoning.encrypted_content"], store=False)
    model = OpenAIResponsesModel(MODEL, client)
    return Agent(
        "mechanic",
        instructions="You see to parts.",
        model=model,
        tools=tools,
        model_settings=settings,
    )


def _input(turn: Turn) -> Any:
    blocks: list[Any] = [{"type": "input_text", "text": turn.text}]
    if turn.image:
        url = f"data:image/png;base64,{base64.b64encode(turn.image).decode()}"
        blocks.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return [{"role": "user", "content": blocks}]


async def _stream(agent: Agent[Any], turn: Turn, options: dict[str, Any]) -> list[str]:
    result = Runner.run_streamed(agent, _input(turn), **options)
    return [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]


# --- what requests count, and what answers report -------------------------------------------------


class ListedServer(MCPServerStdio):
    """A server whose tools a run has listed."""

    def __init__(self) -> None:
        super().__init__({"command": "none"})

    @property
    def cached_tools(self) -> list[Tool]:
        """One tool with a long description."""
        fields = {"name": "search", "description": "word " * 500, "inputSchema": {"type": "object"}}
        return [Tool.model_validate(fields)]


def _check_tools() -> None:
    """Hand-offs and the tools of MCP servers are sent, so they count."""
    refold = RefoldFilter(Compactor(format=FORMAT))

    def count(**fields: Any) -> int:
        data = CallModelData(ModelInputData([_input_item()], ""), Agent("a", **fields), None)
        return _view_of(refold, data).tokens

    own = count()
    helper = Agent("helper", handoff_description="word " * 500)
    assert count(handoffs=[helper]) > own + 400, "a hand-off is not counted"
    assert count(mcp_servers=[ListedServer()]) > own + 400, "a tool of a server is not counted"


def _check_usage() -> None:
    """The usage of an answer, cached tokens included, is reported for its view."""
    refold = RefoldFilter(Compactor(format=FORMAT))
    data = CallModelData(ModelInputData([_input_item()], ""), Agent("a"), None)
    details = InputTokensDetails(cached_tokens=60, cache_write_tokens=10)
    usage = Usage(1, 100, details, 20, OutputTokensDetails(reasoning_tokens=0), 120)

    async def run() -> None:
        await refold(data)
        await refold.on_llm_end(None, data.agent, ModelResponse([], usage, None))

    asyncio.run(run())
    (report,) = refold.compactor.settings.reports.newest
    assert report.usage == ReadUsage(100, 20, 60, 10), report.usage


def _input_item() -> Any:
    return {"role": "user", "content": "Look at part 7."}


def _view_of(refold: RefoldFilter, data: CallModelData[Any]) -> View:
    async def run() -> View | None:
        await refold(data)
        return latest_view.get()

    view = asyncio.run(run())
    assert view is not None, "the filter failed"
    return view


CHECKS = (_check_tools, _check_usage)


# --- the SDK's own trimmer, and timings -----------------------------------------------------------


def make_history(steps: int, every: int, lines: int = 36) -> list[Any]:
    """Return a history of items, with a user message before each *every*-th step."""
    messages = neutral_history(steps, every, lines)
    return [
        openai_responses.encode(Message(message.role, (part,)))
        for message in messages
        for part in message.parts
    ]


def _show(filter: Any, items: Sequence[Any]) -> list[Any]:
    """Return the items that a filter sends for *items*."""
    data = CallModelData(ModelInputData(list(items), "You see to parts."), Agent("a"), None)
    shown = filter(data)
    return list((_RUNNER.run(shown) if inspect.isawaitable(shown) else shown).input)


_RUNNER = asyncio.Runner()


def _is_too_long(items: Sequence[Any]) -> bool:
    """Return whether *items* exceed the model's window."""
    return Compactor(format=FORMAT)(list(items)).tokens > WINDOW


def _refold(options: dict[str, Any]) -> RefoldFilter:
    return RefoldFilter(Compactor(**options, format=FORMAT))


REGRESSIONS = (
    Regression(
        case="ToolOutputTrimmer(recent_turns=...) in one long task: longer than the window",
        settings=range(1, 6),
        own=lambda turns: _show(ToolOutputTrimmer(recent_turns=turns), make_history(30, every=30)),
        ours=lambda _: _show(
            _refold({"budget": Budget(TRIGGER, TARGET)}), make_history(30, every=30)
        ),
        find_fault=_is_too_long,
        broken=5,
    ),
)


def _long_history(length: int) -> list[Any]:
    return make_history(length, every=4, lines=4)[:length]


TIMINGS = (
    Timing("ToolOutputTrimmer", _long_history, partial(_show, ToolOutputTrimmer())),
    Timing("RefoldFilter", _long_history, partial(_show, _refold(IDLE))),
    Timing("RefoldFilter, history shortened", _long_history, partial(_show, _refold(BUSY))),
)
