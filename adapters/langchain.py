"""LangChain: `create_agent` over Anthropic's Messages with thinking, a checkpointer in SQLite."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from adapters.framework import Job, Regression, Talk, Timing
from adapters.session import ToolError, Turn, check_part, read_part
from refold.adapters import langchain
from refold.adapters.langchain_agents import RefoldMiddleware

PACKAGE = "langchain"
THREAD: Any = {"configurable": {"thread_id": "parts"}, "recursion_limit": 100}


def talk(job: Job) -> Talk:
    """Hold turns: one that streams in async code, the others in sync code."""
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


def make_model(url: str) -> ChatAnthropic:
    """Return a model that thinks."""
    return ChatAnthropic(
        model_name="claude-opus-5-5",
        base_url=url,
        api_key="none",
        max_tokens=2_000,
        max_retries=0,
        thinking={"type": "adaptive"},
    )


def tools() -> Sequence[BaseTool]:
    """Return the tools; an error of theirs is a result."""

    def check(part: str) -> str:
        try:
            return check_part(part)
        except ToolError as error:
            raise ToolException(str(error)) from error

    return (
        StructuredTool.from_function(read_part),
        StructuredTool.from_function(
            check, name="check_part", description="Check a part.", handle_tool_error=True
        ),
    )


def message_of(turn: Turn) -> HumanMessage:
    """Return what the person says."""
    blocks: list[Any] = [{"type": "text", "text": turn.text}]
    if turn.image:
        data = base64.b64encode(turn.image).decode()
        blocks.append({"type": "image", "base64": data, "mime_type": "image/png"})
    return HumanMessage(blocks)


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
