"""Haystack: its agent over Chat Completions; the messages are kept as JSON."""

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent, StreamingChunk
from haystack.hooks.compaction import SlidingWindowCompactor
from haystack.token_counters import ApproximateTokenCounter
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.session import Turn, check_part, neutral_history, read_part
from refold import Budget, Compactor
from refold.adapters import haystack
from refold.adapters.haystack import RefoldChatGenerator

PACKAGE = "haystack-ai"
FILE = "messages.json"


def talk(job: Job, place: Callable[[Any, Compactor], dict[str, Any]] | None = None) -> Talk:
    """Run the turns: one that streams and the one with the image by `run_async`, the rest by `run`.

    *place* turns a generator and a compactor into the options of an agent with Refold.
    """
    compactor = job.compactor(format=haystack)
    path = job.place / FILE
    saved = json.loads(path.read_text("utf-8")) if path.exists() else []
    history = list(map(ChatMessage.from_dict, saved))
    deltas = list[str]()
    for turn in job.turns:
        agent = _agent(job.url, compactor, place or _stand_before)
        messages = [*history, _input(turn)]
        if turn.streams:

            async def note(chunk: StreamingChunk) -> None:
                if chunk.content and chunk.meta.get("model"):
                    deltas.append(chunk.content)

            result = asyncio.run(agent.run_async(messages, streaming_callback=note))
        else:
            result = agent.run(messages)
        history = [m for m in result["messages"] if not haystack.is_system(m)]
        path.write_text(json.dumps([m.to_dict() for m in history]), "utf-8")
    return Talk(history, deltas, len(compactor.settings.reports.newest))


def _stand_before(generator: Any, compactor: Compactor) -> dict[str, Any]:
    return {"chat_generator": RefoldChatGenerator(generator, compactor=compactor)}


def _agent(
    url: str, compactor: Compactor, place: Callable[[Any, Compactor], dict[str, Any]]
) -> Agent:
    generator = OpenAIChatGenerator(
        api_key=Secret.from_token("none"), model=MODEL, api_base_url=f"{url}/v1", max_retries=0
    )
    return Agent(
        **place(generator, compactor),
        system_prompt="You see to parts.",
        tools=[create_tool_from_function(read_part), create_tool_from_function(check_part)],
        raise_on_tool_invocation_failure=False,
    )


def _input(turn: Turn) -> ChatMessage:
    if not turn.image:
        return ChatMessage.from_user(turn.text)
    image = ImageContent(base64.b64encode(turn.image).decode(), "image/png")
    return ChatMessage.from_user(content_parts=[turn.text, image])


REGRESSIONS: tuple[Regression, ...] = ()


class _Recorder:
    """A generator that returns its arguments."""

    def run(self, messages: list[ChatMessage], **options: Any) -> dict[str, Any]:
        return {"replies": [], "messages": messages, **options}


def _check_options() -> None:
    """All arguments reach the generator, and so do messages with tools that cannot be read."""
    refold, messages = haystack.RefoldChatGenerator(_Recorder()), [ChatMessage.from_user("Go on.")]
    assert refold.run(messages, tools_strict=True)["tools_strict"] is True
    assert refold.run(messages, tools=[object()])["messages"] == messages


CHECKS = (_check_options,)


# --- timings --------------------------------------------------------------------------------------


def _history(length: int) -> list[ChatMessage]:
    return [haystack.encode(message) for message in neutral_history(length // 3 + 1)][:length]


def _slide(messages: Sequence[Any]) -> None:
    SlidingWindowCompactor().compact(list(messages), 50_000, ApproximateTokenCounter())


TIMINGS = (
    Timing("SlidingWindowCompactor", _history, _slide),
    Timing("RefoldChatGenerator", _history, lambda messages: _COMPACTOR(list(messages))),
)
_COMPACTOR = Compactor(budget=Budget(100_000, 50_000), format=haystack, model=MODEL)
