"""Google's Agent Development Kit: Runner and SqliteSessionService over generateContent."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from adapters.framework import BUSY, IDLE, Job, Regression, Talk, Timing
from adapters.session import (
    TARGET,
    TRIGGER,
    WINDOW,
    ToolError,
    Turn,
    check_part,
    neutral_history,
    read_part,
)
from refold import Budget, Compactor
from refold.adapters.google_adk import FORMAT, RefoldPlugin, content_filter
from refold.codecs import gemini

PACKAGE = "google-adk"
PERSON = {"app_name": "parts", "user_id": "person", "session_id": "parts"}


def talk(job: Job) -> Talk:
    """Run the turns."""
    return asyncio.run(_talk(job))


async def _talk(job: Job) -> Talk:
    refold = RefoldPlugin(job.compactor(format=FORMAT))
    sessions = SqliteSessionService(str(job.place / "sessions.db"))
    agent = LlmAgent(
        name="mechanic",
        model=Gemini(model="gemini-3-pro-preview", base_url=job.url),
        instruction="You see to parts.",
        tools=[_read_part, _check_part],
    )
    app = App(name="parts", root_agent=agent, plugins=[refold])
    if await sessions.get_session(**PERSON) is None:
        await sessions.create_session(**PERSON)
    runner = Runner(app=app, session_service=sessions)
    deltas = list[str]()
    for turn in job.turns:
        mode = StreamingMode.SSE if turn.streams else StreamingMode.NONE
        async for event in runner.run_async(
            user_id=PERSON["user_id"],
            session_id=PERSON["session_id"],
            new_message=_content(turn),
            run_config=RunConfig(streaming_mode=mode),
        ):
            deltas += _texts(event) if event.partial else ()
    session = await sessions.get_session(**PERSON)
    return Talk(session.events, deltas, len(refold.compactor.settings.reports.newest))


def _read_part(part: str) -> dict[str, Any]:
    """Read the log of a part."""
    return {"result": read_part(part)}


def _check_part(part: str) -> dict[str, Any]:
    """Check a part."""
    try:
        return {"result": check_part(part)}
    except ToolError as error:
        return {"error": str(error)}


_read_part.__name__, _check_part.__name__ = "read_part", "check_part"


def _content(turn: Turn) -> types.Content:
    parts = [types.Part(text=turn.text)]
    if turn.image:
        parts.append(types.Part.from_bytes(data=turn.image, mime_type="image/png"))
    return types.Content(role="user", parts=parts)


def _texts(event: Any) -> Sequence[str]:
    parts = event.content.parts if event.content else ()
    return [part.text for part in parts or () if part.text and not part.thought]


# --- the kit's own filter, and timings ------------------------------------------------------------


def make_history(steps: int, every: int, lines: int = 36) -> list[types.Content]:
    """Return a history of contents, with a user message before each *every*-th step."""
    wires = list[Any]()
    for message in neutral_history(steps, every, lines):
        wire = gemini.encode(message)
        is_more = wires and wires[-1]["role"] == wire["role"] == "user"
        wires[-1:] = [gemini.merge(wires[-1], wire)] if is_more else [*wires[-1:], wire]
    return [types.Content.model_validate_json(json.dumps(wire)) for wire in wires]


def _show(plugin: Any, contents: Sequence[types.Content]) -> list[types.Content]:
    """Return the contents that a plugin sends for *contents*."""
    request = LlmRequest(model="gemini-3-pro-preview", contents=list(contents))
    _RUNNER.run(plugin.before_model_callback(callback_context=None, llm_request=request))
    return request.contents


_RUNNER = asyncio.Runner()


def _is_too_long(contents: Sequence[Any]) -> bool:
    """Return whether *contents* exceed the model's window."""
    return Compactor(format=FORMAT)(list(contents)).tokens > WINDOW


def _refold(options: dict[str, Any]) -> RefoldPlugin:
    return RefoldPlugin(Compactor(**options, format=FORMAT))


REGRESSIONS = (
    Regression(
        case="ContextFilterPlugin(num_invocations_to_keep=...) in one long task: longer than the "
        "window",
        settings=range(1, 6),
        own=lambda keep: _show(ContextFilterPlugin(keep), make_history(30, every=30)),
        ours=lambda _: _show(
            ContextFilterPlugin(
                custom_filter=content_filter(
                    Compactor(budget=Budget(TRIGGER, TARGET), format=FORMAT)
                )
            ),
            make_history(30, every=30),
        ),
        find_fault=_is_too_long,
        broken=5,
    ),
)


def _long_history(length: int) -> list[types.Content]:
    return make_history(length, every=4, lines=4)[:length]


TIMINGS = (
    Timing("ContextFilterPlugin", _long_history, partial(_show, ContextFilterPlugin(10**6))),
    Timing("RefoldPlugin", _long_history, partial(_show, _refold(IDLE))),
    Timing("RefoldPlugin, history shortened", _long_history, partial(_show, _refold(BUSY))),
)
