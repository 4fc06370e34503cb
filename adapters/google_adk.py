"""Google's Agent Development Kit: Runner and SqliteSessionService over generateContent."""

import asyncio
from collections.abc import Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from adapters.framework import Job, Regression, Talk, Timing
from adapters.session import ToolError, Turn, check_part, read_part
from refold.adapters.google_adk import FORMAT, RefoldPlugin

PACKAGE = "google-adk"
PERSON = {"app_name": "parts", "user_id": "person", "session_id": "parts"}


def talk(job: Job) -> Talk:
    """Hold turns."""
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


REGRESSIONS: tuple[Regression, ...] = ()
TIMINGS: tuple[Timing, ...] = ()
