"""Tells engines of one's own that a session has ended, or that a part of it is of no more use."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from typing import Any

from refold.gateway.http.client import HTTPClient, UpstreamRequest
from refold.gateway.messages import HTTPException
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.engines import EngineSession
from refold.gateway.settings import Engine
from refold.gateway.upstreams import Upstream


class SessionEnds:
    """Sessions that engines are told about. One event loop, one process.

    What is not told in time, since the gateway stops or the engine does not answer, the engine
    forgets by itself.
    """

    def __init__(self, client: HTTPClient, counters: Counters) -> None:
        self._client, self._counters = client, counters
        self._timers = dict[tuple[str, str], asyncio.TimerHandle]()
        self._tasks = set[asyncio.Task[None]]()

    def note(self, session: EngineSession, upstream: Upstream, model: str) -> None:
        """Note that a request of *session* was answered: what it made useless is given up now, all
        of it once `Engine.end_seconds` have passed without another."""
        engine = session.engine
        tell = partial(self._start, upstream, engine, model)
        for name in session.dead:
            self._drop(upstream.name, name)
            tell(name)
        session.give_up()
        if engine.end_seconds is not None:
            self._drop(upstream.name, session.id)
            loop = asyncio.get_running_loop()
            self._timers[upstream.name, session.id] = loop.call_later(
                engine.end_seconds, tell, session.id
            )

    async def aclose(self) -> None:
        """Tell nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._timers.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _drop(self, upstream: str, id: str) -> None:
        if timer := self._timers.pop((upstream, id), None):
            timer.cancel()

    def _start(self, upstream: Upstream, engine: Engine, model: str, id: str) -> None:
        self._timers.pop((upstream.name, id), None)
        request = _end_request(upstream, engine, model, id)
        task = asyncio.get_running_loop().create_task(self._send(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, request: UpstreamRequest) -> None:
        try:
            response = await self._client.send(request)
            is_taken = response.status < 300
            response.release()
        except HTTPException:
            is_taken = False
        result = "told" if is_taken else "failed"
        self._counters.add("engine_ends", upstream=request.upstream.name, result=result)


def _end_request(upstream: Upstream, engine: Engine, model: str, id: str) -> UpstreamRequest:
    """Return what SGLang lets go of a session's blocks on, or the least request that Dynamo takes
    for a session's last."""
    headers, body = [(b"content-type", b"application/json")], dict[str, Any]()
    if engine.protocol == "sglang":
        path, body = "/close_session", {"session_id": id}
    else:
        path = "/v1/chat/completions"
        body = {"model": model, "messages": [{"role": "user", "content": "."}], "max_tokens": 1}
        headers += [(b"x-dynamo-session-id", id.encode()), (b"x-dynamo-session-final", b"true")]
    if engine.key:
        headers.append((b"authorization", f"Bearer {engine.key}".encode()))
    root = replace(upstream, url=upstream.url.rstrip("/").removesuffix("/v1"))
    return UpstreamRequest(root, "POST", path, headers, json.dumps(body).encode())
