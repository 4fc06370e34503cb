"""OpenAI's Agents SDK: Runner and SQLiteSession over the Responses API."""

import asyncio
import base64
from typing import Any

from agents import Agent, ModelSettings, RunConfig, Runner, SQLiteSession, function_tool
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.session import ANSWERS, Turn, check_part, read_part
from refold.adapters.openai_agents import FORMAT, RefoldFilter

PACKAGE = "openai-agents"


def talk(job: Job) -> Talk:
    """Hold turns: the first by `run_sync`, one that streams by `run_streamed`, the rest by `run`."""
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


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
