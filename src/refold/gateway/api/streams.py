"""What the API sends: JSON, and what is new as server-sent events."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Annotated, Any

from msgspec import to_builtins

from refold.gateway.api.answers import Answer
from refold.gateway.api.arguments import Arguments, SessionId, about
from refold.gateway.api.context import ApiContext, Problem, as_problem
from refold.gateway.http.caller import (
    ON_STOP,
    Caller,
    cancel_on_disconnect,
)
from refold.gateway.http.request import ClientDisconnected, Receive
from refold.gateway.messages import Headers

MAX_STREAMS = 32
"""Pages that one process keeps up to date."""
EVENTS_SECONDS = 1.0
"""Between two looks into the store."""
BEHIND_SECONDS = 10.0
"""Calls are booked a little after they were made."""
STREAM_SECONDS = 600.0
"""After these a stream ends, and the page asks for another one."""


class EventsArguments(Arguments):
    """Since when."""

    since: Annotated[float, about("In seconds since 1970.", ge=0)] = 0.0


class Change(Answer):
    """Something new of a session."""

    session: SessionId
    at: float
    kind: Annotated[str, about("`call`, `compact`, `accept`, `revert` or `fault`.")]


class EventsAnswer(Answer):
    """What is new."""

    now: float
    changes: list[Change]


def events(context: ApiContext, asked: EventsArguments) -> EventsAnswer:
    """Return what came since. Raises `StoreError`."""
    changes = context.call_log.list_changes(asked.since)
    return EventsAnswer(context.pipeline.settings.clock(), [Change(*change) for change in changes])


class EventStreams:
    """Pages that are kept up to date. Each looks into the store, since any process may have written
    to it."""

    def __init__(self, context: ApiContext) -> None:
        self._context, self._count = context, 0

    async def send(self, scope: Mapping[str, Any], receive: Receive, caller: Caller) -> None:
        """Send what is new until the client leaves or the gateway stops."""
        if self._count >= MAX_STREAMS:
            await send_problem(caller, Problem(503, "busy", "Too many pages are open."), "GET")
            return
        self._count += 1
        ended, extensions = asyncio.Event(), scope.get("extensions") or {}
        if ON_STOP in extensions:
            extensions[ON_STOP](ended.set)
        stop = cancel_on_disconnect(receive, caller, asyncio.current_task())
        try:
            await caller.start(
                200, [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            )
            await self._write(caller, ended)
            await caller.end()
        except ClientDisconnected:
            pass
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not caller.log_entry.client_disconnected or task is None:
                raise
            task.uncancel()
        finally:
            stop()
            self._count -= 1

    async def _write(self, caller: Caller, ended: asyncio.Event) -> None:
        since = self._context.pipeline.settings.clock()
        seen, until = set[tuple[str, float, str]](), monotonic() + STREAM_SECONDS
        while not ended.is_set() and monotonic() < until:
            asked = EventsArguments(max(0.0, since - BEHIND_SECONDS))
            try:
                work = partial(events, self._context, asked)
                answer = await self._context.run_in_thread(work)
            except Exception as error:
                if as_problem(error) is None:
                    raise
            else:
                changes = {(item.session, item.at, item.kind): item for item in answer.changes}
                fresh = [item for key, item in changes.items() if key not in seen]
                seen, since = set(changes), answer.now
                lines = b"data: " + as_json(fresh) if fresh else b":"
                await caller.write(lines + b"\n\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), EVENTS_SECONDS)


def takes_stream(scope: Mapping[str, Any]) -> bool:
    """Does the caller ask for server-sent events?"""
    accepted = (value for name, value in scope["headers"] if bytes(name).lower() == b"accept")
    return any(b"text/event-stream" in bytes(value) for value in accepted)


def as_json(answer: Any) -> bytes:
    """Return an answer as JSON."""
    return json.dumps(to_builtins(answer), allow_nan=False).encode()


async def send_problem(caller: Caller, problem: Problem, allowed_method: str) -> None:
    """Send why an operation was not done."""
    body = json.dumps({"error": {"code": problem.code, "message": problem.message}}).encode()
    headers: Mapping[int, Headers] = {
        405: (("allow", allowed_method),),
        409: (("connection", "close"),) if problem.code.endswith("_elsewhere") else (),
        408: (("connection", "close"),),
        413: (("connection", "close"),),
        503: (("retry-after", "1"),),
    }
    await send_json(caller, problem.status, body, headers.get(problem.status, ()))


async def send_json(caller: Caller, status: int, body: bytes, headers: Headers = ()) -> None:
    """Send JSON."""
    fixed = (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
    )
    await caller.respond(status, (*fixed, *headers), body)
