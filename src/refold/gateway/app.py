"""The gateway as an ASGI application: any server can run it, in as many processes as you like."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from refold.gateway.admin import Admin
from refold.gateway.config.config import Config
from refold.gateway.config.sites import find_stranger, sites_of
from refold.gateway.http.body import Gone, Receive
from refold.gateway.http.caller import LEAVING, Caller, Note, Send, clock
from refold.gateway.http.client import Client
from refold.gateway.http.request import Head, dialect, read_head
from refold.gateway.http.tracing import Traces
from refold.gateway.messages import Refused, refusal
from refold.gateway.ops.logs import LOGGER, places
from refold.gateway.ops.metrics import Timings, render
from refold.gateway.pipeline.rushes import LoadPeaks, release_memory
from refold.gateway.proxy.port import Core
from refold.gateway.proxy.relay import Relay
from refold.gateway.upstreams import is_own

Application = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
"""An ASGI 3 application."""


class Gateway:
    """Passes requests on to their upstreams, compacted where that is due.

    *inner* answers the paths below `/refold/` that this does not answer itself; it is asked only
    after the admin check. *traces* makes spans, with the tracer provider of the process unless told otherwise.
    `under_way` is how many requests are being answered.
    """

    def __init__(
        self, config: Config, pipeline: Core, inner: Application | None = None, traces: Traces | None = None
    ) -> None:
        self.config, self.pipeline = config, pipeline
        self.timings, self.under_way, self.stopping = Timings(), 0, False
        self._client = Client(config.limits)
        self._relay = Relay(config, pipeline, self._client, self.timings, traces or Traces())
        self._admin, self._rushes = Admin(self, inner), LoadPeaks(release_memory)
        self.scrape: Callable[[], bytes] = self.metrics
        """What `/metrics` says: of this process, or of several."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, connection or lifespan."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "websocket":
                await _refuse_websocket(scope, send)
            case "lifespan":
                await self._lifespan(receive, send)

    @property
    def is_ready(self) -> bool:
        """Can it take requests?"""
        return self._client.is_open and not self.stopping

    @property
    def held_bytes(self) -> int:
        """Bytes of upstreams' answers that wait because clients are slow."""
        return self._client.held_bytes

    def metrics(self) -> bytes:
        """Everything that this process has counted, for one scrape."""
        gauges = (("http_under_way", self.under_way), ("http_held_bytes", self.held_bytes))
        return render(self.pipeline.counters, self.timings, gauges)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            match (await receive())["type"]:
                case "lifespan.startup":
                    self._client.open()
                    await send({"type": "lifespan.startup.complete"})
                case "lifespan.shutdown":
                    self.stopping = True
                    await self.pipeline.aclose()
                    await self._client.close()
                    await send({"type": "lifespan.shutdown.complete"})
                    return

    async def _http(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if is_own(scope["path"]):
            await self._admin(scope, receive, send)
            return
        note, started = Note(method=scope["method"]), clock()
        leaving = (scope.get("extensions") or {}).get(LEAVING)
        caller = Caller(send, note, self.config.limits.silence_seconds, leaving)
        self.under_way += 1
        self._rushes.update(self.under_way)
        try:
            await self._answer(scope, receive, caller)
        finally:
            self.under_way -= 1
            self._rushes.update(self.under_way)
            note.total_ms = (clock() - started) * 1000
            self._tell(note)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, caller: Caller) -> None:
        """Answer, or say in the caller's words why not."""
        api, note = "openai_chat", caller.note
        try:
            head = read_head(scope, self.config.limits)
            note.path, api = head.path[:200], dialect(head, head.path)
            self._check_room()
            self._check_site(head, scope)
            await self._relay.answer(head, receive, caller)
        except Refused as error:
            await self._refuse(api, error, caller)
        except Gone:
            note.gone = True
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not note.gone or task is None:
                raise
            task.uncancel()
        except Exception as error:  # noqa: BLE001 - one request's bug is not the next one's
            note.fault = f"{type(error).__name__} at {' '.join(places(error.__traceback__))}"
            await self._refuse(api, Refused(500, "The gateway failed.", reason="fault"), caller)

    def _check_room(self) -> None:
        if self.under_way > self.config.limits.requests:
            raise Refused(503, "The gateway is busy.", headers=(("retry-after", "1"),), reason="busy")

    def _check_site(self, head: Head, scope: Mapping[str, Any]) -> None:
        stranger = find_stranger(head.first, sites_of(self.config, scope))
        if stranger is not None:
            raise stranger

    async def _refuse(self, api: str, error: Refused, caller: Caller) -> None:
        """The server closes the connection where an answer has begun. Never raises `Gone`."""
        self.pipeline.counters.add("http_refused", reason=error.reason)
        caller.note.reason = caller.note.reason or error.reason
        if caller.began:
            caller.note.cut = True
            return
        try:
            await caller.whole(*refusal(api, error))
        except Gone:
            caller.note.gone = True

    def _tell(self, note: Note) -> None:
        """One line and one count a request."""
        add = self.pipeline.counters.add
        add("http_requests", api=note.api or "other", upstream=note.upstream, status=str(note.status))
        if note.gone:
            add("http_gone", upstream=note.upstream)
        if note.cut:
            add("http_cut", upstream=note.upstream)
        level = logging.ERROR if note.fault else logging.WARNING if note.cut or note.status >= 500 else logging.INFO
        if LOGGER.isEnabledFor(level):
            LOGGER.log(level, "request", extra={"fields": note.fields()})


async def _refuse_websocket(scope: Mapping[str, Any], send: Send) -> None:
    """Clients that try WebSocket first go on with HTTP after 426; servers that cannot say so send 403."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    status, headers, body = refusal("openai_responses", Refused(426, "Use HTTP: this gateway takes no WebSocket."))
    raw = [(name.encode(), value.encode()) for name, value in (*headers, ("upgrade", "HTTP/1.1"))]
    await send({"type": "websocket.http.response.start", "status": status, "headers": raw})
    await send({"type": "websocket.http.response.body", "body": body})
