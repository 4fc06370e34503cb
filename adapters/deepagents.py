"""deepagents: `create_deep_agent` over Chat Completions, with Refold beside its own middleware."""

import asyncio
from typing import Any

from deepagents import create_deep_agent
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.langchain import THREAD, message_of, tools
from adapters.session import Turn
from refold.adapters import langchain
from refold.adapters.langchain_agents import RefoldMiddleware

PACKAGE = "deepagents"


def talk(job: Job) -> Talk:
    """Hold turns: one that streams in async code, the others in sync code."""
    refold = RefoldMiddleware(job.compactor(format=langchain))
    path = str(job.place / "checkpoints.db")
    deltas = list[str]()
    for turn in job.turns:
        if turn.streams:
            deltas += asyncio.run(_stream(job.url, refold, path, turn))
        else:
            with SqliteSaver.from_conn_string(path) as saver:
                _agent(job.url, refold, saver).invoke({"messages": [message_of(turn)]}, THREAD)
    with SqliteSaver.from_conn_string(path) as saver:
        history = _agent(job.url, refold, saver).get_state(THREAD).values["messages"]
    return Talk(history, deltas, len(refold.compactor.settings.reports.newest))


async def _stream(url: str, refold: RefoldMiddleware, path: str, turn: Turn) -> list[str]:
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        stream = _agent(url, refold, saver).astream(
            {"messages": [message_of(turn)]}, THREAD, stream_mode="messages"
        )
        return [
            chunk.text
            async for chunk, _ in stream
            if isinstance(chunk, AIMessageChunk) and chunk.text
        ]


def _agent(url: str, refold: RefoldMiddleware, saver: Any) -> Any:
    model = ChatOpenAI(
        model=MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0, use_responses_api=False
    )
    return create_deep_agent(model, tools(), middleware=[refold], checkpointer=saver)


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
