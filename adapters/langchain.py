"""LangChain: `create_agent` over Anthropic's Messages with thinking, a checkpointer in SQLite."""

import asyncio
import base64
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from adapters.framework import Job, Talk
from adapters.langchain_cases import REGRESSIONS, TIMINGS, make_model, tools
from adapters.session import Turn
from refold.adapters import langchain
from refold.adapters.langchain_agents import RefoldMiddleware

__all__ = ["PACKAGE", "REGRESSIONS", "TIMINGS", "talk"]

PACKAGE = "langchain"
THREAD: Any = {"configurable": {"thread_id": "parts"}, "recursion_limit": 100}


def talk(job: Job) -> Talk:
    """Run the turns: one that streams in async code, the others in sync code."""
    refold = RefoldMiddleware(job.compactor(format=langchain))
    path = str(job.place / "checkpoints.db")
    deltas = list[str]()
    for turn in job.turns:
        model = make_model(job.url)
        if turn.streams:
            deltas += asyncio.run(_stream(model, refold, path, turn))
        else:
            with SqliteSaver.from_conn_string(path) as saver:
                agent = create_agent(model, tools(), middleware=[refold], checkpointer=saver)
                agent.invoke({"messages": [message_of(turn)]}, THREAD)
    with SqliteSaver.from_conn_string(path) as saver:
        agent = create_agent(make_model(job.url), tools(), checkpointer=saver)
        history = agent.get_state(THREAD).values["messages"]
    return Talk(history, deltas, len(refold.compactor.settings.reports.newest))


async def _stream(model: Any, refold: RefoldMiddleware, path: str, turn: Turn) -> list[str]:
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        agent = create_agent(model, tools(), middleware=[refold], checkpointer=saver)
        question = {"messages": [message_of(turn)]}
        return [
            chunk.text
            async for chunk, _ in agent.astream(question, THREAD, stream_mode="messages")
            if isinstance(chunk, AIMessageChunk) and chunk.text
        ]


def message_of(turn: Turn) -> HumanMessage:
    """Return the user message of a turn."""
    blocks: list[Any] = [{"type": "text", "text": turn.text}]
    if turn.image:
        data = base64.b64encode(turn.image).decode()
        blocks.append({"type": "image", "base64": data, "mime_type": "image/png"})
    return HumanMessage(blocks)
