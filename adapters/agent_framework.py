"""Microsoft Agent Framework: its loop over Chat Completions; the session is kept as JSON."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    ChatContext,
    Content,
    FunctionTool,
    InMemoryHistoryProvider,
    Message,
    SlidingWindowStrategy,
    TruncationStrategy,
    apply_compaction,
)
from agent_framework.openai import OpenAIChatCompletionClient

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.session import Turn, check_part, neutral_history, read_part
from refold import Budget, Compactor
from refold.adapters import agent_framework
from refold.adapters.agent_framework import RefoldStrategy
from refold.compactor.hooks import CompactionEnded, Event

PACKAGE = "agent-framework-core"
FILE = "session.json"


def talk(job: Job) -> Talk:
    """Run the turns: one that streams by `run(stream=True)`, the rest by `run`."""
    refold = RefoldStrategy(job.compactor(format=agent_framework))
    path = job.place / FILE
    session = (
        AgentSession.from_dict(json.loads(path.read_text("utf-8")))
        if path.exists()
        else AgentSession()
    )
    deltas = asyncio.run(_hold(job, refold, session))
    path.write_text(json.dumps(session.to_dict()), "utf-8")
    history = session.state[InMemoryHistoryProvider.DEFAULT_SOURCE_ID]["messages"]
    return Talk(history, deltas, len(refold.compactor.settings.reports.newest))


async def _hold(job: Job, refold: RefoldStrategy, session: AgentSession) -> list[str]:
    client = OpenAIChatCompletionClient(model=MODEL, base_url=f"{job.url}/v1", api_key="none")
    agent = Agent(
        client,
        "You see to parts.",
        tools=[read_part, check_part],
        compaction_strategy=refold,
        middleware=[refold],
        context_providers=[InMemoryHistoryProvider()],
    )
    deltas = list[str]()
    for turn in job.turns:
        if turn.streams:
            stream = agent.run(_input(turn), stream=True, session=session)
            deltas += [update.text async for update in stream if update.text]
            await stream.get_final_response()
        else:
            await agent.run(_input(turn), session=session)
    return deltas


def _input(turn: Turn) -> Any:
    image = [Content.from_data(turn.image, "image/png")] if turn.image else []
    return Message("user", [turn.text, *image])


# --- the framework's own strategies ---------------------------------------------------------------


def _history(steps: int = 12) -> list[Message]:
    return [agent_framework.encode(message) for message in neutral_history(steps)]


def _apply(strategy: Any, messages: Sequence[Message] | None = None) -> list[Message]:
    working = list(_history() if messages is None else messages)
    return asyncio.run(apply_compaction(working, strategy=strategy))


def _compact(size: int) -> list[Message]:
    budget = Budget(size * 500, size * 250)
    return _apply(RefoldStrategy(Compactor(budget=budget, format=agent_framework)))


def _find_fault(messages: Sequence[Message]) -> Any:
    return not messages or messages[0].role != "user"


async def _check_streams() -> None:
    """A stream's options count for its own call only, and tools that cannot be read stop none."""
    compactions = list[CompactionEnded]()

    def listen(event: Event) -> None:
        compactions.extend([event] if isinstance(event, CompactionEnded) else [])

    compactor = Compactor(budget=Budget(20_000, 10_000), format=agent_framework, on_event=listen)
    refold = RefoldStrategy(compactor)

    async def stream() -> None:
        await asyncio.sleep(0)

    broken = FunctionTool(name="broken")
    broken.parameters = broken
    for options in ({"instructions": "word " * 40_000}, {"tools": [broken]}):
        context = ChatContext(client=None, messages=[], options=options, stream=True)
        await refold.process(context, stream)
        await refold(_history(3))
        await refold([Message("user", ["See to the parts."]), *_history(3)])
    assert len(compactions) == 1, compactions


CHECKS = (lambda: asyncio.run(_check_streams()),)


REGRESSIONS = (
    Regression(
        case="SlidingWindowStrategy: the assistant begins, or nobody's request is left",
        settings=range(1, 21),
        own=lambda keep: _apply(SlidingWindowStrategy(keep_last_groups=keep)),
        ours=_compact,
        find_fault=_find_fault,
        broken=12,
        thread="MAF#7224",
    ),
    Regression(
        case="TruncationStrategy: the assistant begins, or nobody's request is left",
        settings=range(1, 40),
        own=lambda size: _apply(TruncationStrategy(max_n=size, compact_to=size)),
        ours=_compact,
        find_fault=_find_fault,
        broken=32,
        thread="MAF#7224",
    ),
)

TIMINGS = (
    Timing(
        "SlidingWindowStrategy",
        lambda length: _history(length // 3 + 1)[:length],
        lambda messages: _apply(SlidingWindowStrategy(keep_last_groups=20), messages),
    ),
    Timing(
        "RefoldStrategy",
        lambda length: _history(length // 3 + 1)[:length],
        lambda messages: _apply(_REFOLD, messages),
    ),
)
_REFOLD = RefoldStrategy(Compactor(budget=Budget(100_000, 50_000), format=agent_framework))
