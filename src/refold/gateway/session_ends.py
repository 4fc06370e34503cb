"""Tells engines of one's own that a session has ended, or that a part of it is of no more use."""

import asyncio
import json
from collections.abc import Callable
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
        request = _REQUESTS[engine.protocol](upstream, engine, model, id)
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


def _close_request(upstream: Upstream, engine: Engine, _: str, id: str) -> UpstreamRequest:
    """Return what SGLang lets go of a session's blocks on."""
    return _build_request(upstream, engine, "/close_session", {"session_id": id})


def _final_request(upstream: Upstream, engine: Engine, model: str, id: str) -> UpstreamRequest:
    """Return the least request that Dynamo takes for a session's last."""
    body = {"model": model, "messages": [{"role": "user", "content": "."}], "max_tokens": 1}
    request = _build_request(upstream, engine, "/v1/chat/completions", body)
    names = (b"x-dynamo-session-id", id.encode()), (b"x-dynamo-session-final", b"true")
    return request._replace(headers=[*request.headers, *names])


def _build_request(upstream: Upstream, engine: Engine, path: str, body: Any) -> UpstreamRequest:
    headers = [(b"content-type", b"application/json")]
    if engine.key:
        headers.append((b"authorization", f"Bearer {engine.key}".encode()))
    root = replace(upstream, url=upstream.url.rstrip("/").removesuffix("/v1"))
    return UpstreamRequest(root, "POST", path, headers, json.dumps(body).encode())


_REQUESTS: dict[str, Callable[[Upstream, Engine, str, str], UpstreamRequest]] = {
    "sglang": _close_request,
    "dynamo": _final_request,
}
