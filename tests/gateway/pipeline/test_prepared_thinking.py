"""A summary that was prepared ahead is used later: the thinking in between was made without it."""

import asyncio
import json

from refold.core.strategy import Answer
from refold.gateway import Incoming, Pipeline, Settings
from refold.stores import MemoryStore
from refold.tokens.model_table import Window
from tests.support.compaction import thinking_steps

MODEL = "claude-opus-5-5"
HEADINGS = ("Goal", "Constraints", "Done", "State", "Decisions", "Open", "Next", "Files")


async def summary(question) -> Answer:
    return Answer(
        "\n".join(f"## {heading}\n- the bug is in add" for heading in HEADINGS), model="writer"
    )


def request(steps: int) -> Incoming:
    """Return one request with this many thinking blocks, each with a call and its result."""
    body = json.dumps(
        {"model": MODEL, "max_tokens": 99, "messages": thinking_steps(steps, words=400)}
    ).encode()
    return Incoming("anthropic", "up", "/v1/messages", (), body, "hash")


def test_thinking_since_a_summary_was_prepared_loses_its_signature() -> None:
    """AN-7, AN-11: the provider refuses a signature if anything before it has changed."""

    async def run() -> None:
        settings = Settings(
            windows={MODEL: Window(16_000)},
            ask=summary,
            decide_timeout_seconds=60,
            soft=0.5,
            hard=0.9,
            economy=False,
        )
        pipeline = Pipeline(settings, MemoryStore())
        prepared = 0
        for steps in range(1, 60):
            outgoing = await pipeline.prepare(request(steps))
            await asyncio.gather(*pipeline.background.tasks)
            prepared = prepared or next(
                (steps for conversation in pipeline.conversations if conversation.prefetch.preview),
                0,
            )
            if outgoing.outcome == "edited":
                break
        assert outgoing.reason == "prepared" and 0 < prepared < steps - 3
        assert b"signature" not in outgoing.body
        grown = await pipeline.prepare(request(steps + 1))
        assert grown.body.count(b"signature") == 1, (
            "what is thought with the summary in sight keeps its own"
        )
        await pipeline.aclose()

    asyncio.run(run())
