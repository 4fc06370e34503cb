"""A real gateway server in a thread, and a pipeline made of functions, for tests."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any, Self, cast

import uvicorn

from refold.gateway.app import Gateway
from refold.gateway.config import Config
from refold.gateway.exchange import Incoming, Outgoing
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.serve import create_server


def _as_it_is(incoming: Incoming) -> Outgoing:
    return Outgoing(incoming.body)


def _no_smaller(incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:  # noqa: ARG001 - the pipeline's signature
    return None


@dataclass
class ScriptedPipeline:
    """A `Pipeline` for tests: functions decide what to send, and all input is recorded."""

    on_prepare: Callable[[Incoming], Outgoing] = _as_it_is
    on_shrink: Callable[[Incoming, Outgoing, bytes], Outgoing | None] = _no_smaller
    on_drop_thinking: Callable[[Incoming, Outgoing, bytes], Outgoing | None] = _no_smaller
    counters: Counters = field(default_factory=Counters)
    incoming: list[Incoming] = field(default_factory=list)
    finishes: list[tuple[Outgoing, Any]] = field(default_factory=list)
    errors: list[bytes] = field(default_factory=list)

    async def prepare(self, incoming: Incoming) -> Outgoing:
        """Return the result of `on_prepare`."""
        self.incoming.append(incoming)
        return self.on_prepare(incoming)

    async def prepare_tentatively(self, incoming: Incoming) -> Outgoing:
        """Return the result of `on_prepare`."""
        return await self.prepare(incoming)

    async def commit(self, outgoing: Outgoing) -> None:
        """Do nothing, because nothing is pending."""

    async def prepare_count(self, incoming: Incoming) -> Outgoing:
        """Return the request unchanged."""
        return Outgoing(incoming.body)

    async def shrink(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """Return the result of `on_shrink`."""
        self.errors.append(error)
        return self.on_shrink(incoming, outgoing, error)

    async def drop_thinking(
        self, incoming: Incoming, outgoing: Outgoing, error: bytes
    ) -> Outgoing | None:
        """Return the result of `on_drop_thinking`."""
        self.errors.append(error)
        return self.on_drop_thinking(incoming, outgoing, error)

    def record_answer(
        self,
        incoming: Incoming,  # noqa: ARG002 - the pipeline's signature
        outgoing: Outgoing,
        usage: Any,
        status: int = 200,  # noqa: ARG002 - the pipeline's signature
    ) -> None:
        """Record the report."""
        self.finishes.append((outgoing, usage))

    async def aclose(self) -> None:
        """Do nothing, because there is no background work."""


class Serving:
    """A server for a gateway on a free port: `with Serving(gateway) as served: served.url`.

    It is the server of `refold serve`, in a thread with its own event loop. When it is stopped,
    idle connections are closed at once.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        limits = replace(gateway.config.limits, parting_seconds=0.001)
        self.server: uvicorn.Server = create_server(replace(gateway.config, limits=limits), gateway)
        self._thread = Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """The base URL for clients, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Ask the server to stop. Open streams are finished first."""
        self.server.should_exit = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.run(self.server.serve(sockets=[self._socket]))


def serving(config: Config, pipeline: Pipeline | ScriptedPipeline | None = None) -> Serving:
    """Return a server for a gateway with *pipeline*, by default one that changes nothing."""
    return Serving(Gateway(config, cast("Pipeline", pipeline or ScriptedPipeline())))


__all__ = ["ScriptedPipeline", "Serving", "serving"]
