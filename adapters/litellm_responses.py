"""LiteLLM's SDK, OpenAI's Responses with encrypted reasoning, and an agent loop."""

import asyncio
import base64
import json
from typing import Any

import litellm

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.litellm import TOOLS as CHAT_TOOLS
from adapters.litellm import count_reports, run_tool
from adapters.session import Turn
from refold.adapters.litellm import RefoldLogger

PACKAGE = "litellm"
TOOLS = [{"type": "function", **tool["function"]} for tool in CHAT_TOOLS]


def talk(job: Job) -> Talk:
    """Run the turns: one that streams too, the last in sync code."""
    refold = RefoldLogger(**job.options)
    litellm.callbacks = [refold]
    path = job.place / "items.json"
    items = json.loads(path.read_text("utf-8")) if path.exists() else []
    deltas = list[str]()

    async def hold() -> int:
        for turn in job.turns:
            await _hold(job.url, turn, items, deltas, refold if len(job.turns) == 1 else None)
        return await count_reports(refold, "openai_responses")

    reports = asyncio.run(hold())
    path.write_text(json.dumps(items), "utf-8")
    return Talk(items, deltas, reports)


async def _hold(
    url: str, turn: Turn, items: list[Any], deltas: list[str], sync: RefoldLogger | None
) -> None:
    items.append({"role": "user", "content": _parts(turn)})
    calls: Any = True
    while calls:
        request = {
            "model": f"openai/{MODEL}",
            "api_base": f"{url}/v1",
            "api_key": "none",
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "input": items,
            "tools": TOOLS,
        }
        if sync is not None:
            output = await asyncio.to_thread(_ask, sync, request)
        elif turn.streams:
            output = await _join(await litellm.aresponses(**request, stream=True), deltas)
        else:
            output = (await litellm.aresponses(**request)).output
        entries = [_dump(item) for item in output]
        items += entries
        calls = [entry for entry in entries if entry["type"] == "function_call"]
        items += [
            {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": run_tool(call["name"], **json.loads(call["arguments"])),
            }
            for call in calls
        ]


def _ask(refold: RefoldLogger, request: dict[str, Any]) -> Any:
    return litellm.responses(**refold.compact(request)).output


async def _join(stream: Any, deltas: list[str]) -> Any:
    output: Any = ()
    async for event in stream:
        if event.type == "response.output_text.delta":
            deltas.append(event.delta)
        elif event.type == "response.completed":
            output = event.response.output
    return output


def _dump(item: Any) -> dict[str, Any]:
    entry = item if isinstance(item, dict) else item.model_dump(exclude_none=True)
    return {name: value for name, value in entry.items() if name != "status"}


def _parts(turn: Turn) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{base64.b64encode(turn.image).decode()}"
    image = {"type": "input_image", "image_url": url, "detail": "auto"}
    return [{"type": "input_text", "text": turn.text}, *([image] if turn.image else [])]


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
