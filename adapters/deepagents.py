"""deepagents: `create_deep_agent` over Chat Completions, with Refold beside its own middleware."""

import asyncio
from functools import partial
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.langchain import THREAD, message_of
from adapters.langchain_cases import Unseen, make_history, tools
from adapters.session import Turn
from refold.adapters import langchain
from refold.adapters.langchain_agents import RefoldMiddleware, summarizer

PACKAGE = "deepagents"


def talk(job: Job) -> Talk:
    """Run the turns: one that streams in async code, the others in sync code."""
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


# --- the input of its summarizer ------------------------------------------------------------------


class Recorder(FakeListChatModel):
    """A model that records the last request."""

    sent: list[Any] = []  # noqa: RUF012 - pydantic copies it

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> Any:
        self.sent[:] = messages
        return super()._generate(messages, *arguments, **options)

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def _watch(keep: int, write: Any, **options: Any) -> Unseen:
    shown, model = list[BaseMessage](), Recorder(responses=["Done."], sent=[])

    def watch(messages: list[BaseMessage]) -> str:
        shown.extend(messages)
        return str(write(messages))

    middleware = SummarizationMiddleware(
        model,
        backend=StateBackend(),
        trigger=("messages", 10),
        keep=("messages", keep),
        summarizer=watch,
        **options,
    )
    history = [*make_history(), HumanMessage("Go on.", id="last")]
    create_deep_agent(model, [], middleware=[middleware]).invoke({"messages": history})
    sent = {message.id for message in model.sent}
    return Unseen(shown, [message for message in history if message.id not in sent])


REGRESSIONS = (
    Regression(
        case="SummarizationMiddleware: left out, and not shown to the summarizer",
        thread="deepagentsjs#846",
        settings=range(4, 24, 4),
        own=partial(_watch, write=lambda _: "They read the parts."),
        ours=partial(_watch, write=summarizer().invoke, trim_tokens_to_summarize=None),
        find_fault=Unseen.find,
        broken=5,
    ),
)
TIMINGS: tuple[Timing, ...] = ()
