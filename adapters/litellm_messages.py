"""LiteLLM's SDK, Anthropic's Messages with thinking. LiteLLM has no agent loop, so it is here."""

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import litellm
from litellm import anthropic_interface

from adapters.framework import Job, Regression, Talk, Timing
from adapters.litellm import TOOLS as CHAT_TOOLS
from adapters.litellm import count_reports, run_tool
from adapters.session import Turn
from refold.adapters.litellm import RefoldLogger

PACKAGE = "litellm"
TOOLS = [
    {
        "name": tool["function"]["name"],
        "description": tool["function"]["description"],
        "input_schema": tool["function"]["parameters"],
    }
    for tool in CHAT_TOOLS
]


def talk(job: Job) -> Talk:
    """Run the turns, one of them streamed too."""
    refold = RefoldLogger(**job.options)
    litellm.callbacks = [refold]
    path = job.place / "messages.json"
    messages = json.loads(path.read_text("utf-8")) if path.exists() else []
    deltas = list[str]()

    async def hold() -> int:
        for turn in job.turns:
            await _hold(job.url, turn, messages, deltas)
        return await count_reports(refold, "anthropic")

    reports = asyncio.run(hold())
    path.write_text(json.dumps(messages), "utf-8")
    return Talk(messages, deltas, reports)


async def _hold(url: str, turn: Turn, messages: list[Any], deltas: list[str]) -> None:
    messages.append({"role": "user", "content": _blocks(turn)})
    calls: Any = True
    while calls:
        answer = await anthropic_interface.messages.acreate(
            model="anthropic/claude-opus-5-5",
            api_base=url,
            api_key="none",
            max_tokens=4_000,
            thinking={"type": "adaptive"},
            messages=messages,
            tools=TOOLS,
            stream=turn.streams,
        )
        content = await _join(answer, deltas) if turn.streams else answer["content"]
        messages.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": run_tool(call["name"], **call["input"]),
            }
            for call in calls
        ]
        if results:
            messages.append({"role": "user", "content": results})


async def _join(stream: AsyncIterator[bytes], deltas: list[str]) -> list[dict[str, Any]]:
    """Return the streamed blocks, and add the pieces of text to *deltas*."""
    text = b"".join([piece async for piece in stream]).decode()
    blocks, pieces = dict[int, dict[str, Any]](), defaultdict[tuple[int, str], str](str)
    for line in text.splitlines():
        event = json.loads(line[6:]) if line.startswith("data: {") else {}
        match event:
            case {"type": "content_block_start", "index": at, "content_block": block}:
                blocks[at] = dict(block)
            case {"type": "content_block_delta", "index": at, "delta": {"type": _, **rest}}:
                ((name, piece),) = rest.items()
                pieces[at, name] += piece
                deltas += [piece] if name == "text" else []
    for (at, name), whole in pieces.items():
        blocks[at] |= {"input": json.loads(whole)} if name == "partial_json" else {name: whole}
    return list(blocks.values())


def _blocks(turn: Turn) -> list[dict[str, Any]]:
    data = base64.b64encode(turn.image).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    image = {"type": "image", "source": source}
    return [{"type": "text", "text": turn.text}, *([image] if turn.image else [])]


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
