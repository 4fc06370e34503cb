"""The connections to upstreams: requests go out as they are told, answers come in as they were sent."""

import asyncio
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

from refold.gateway.http.connection import READ_BYTES, Connection
from refold.gateway.http.endpoint import Endpoint, parse_endpoint
from refold.gateway.http.response import BrokenError, Response
from refold.gateway.messages import HTTPException
from refold.gateway.settings import Limits
from refold.gateway.upstreams import Upstream

IDLE_SECONDS = 15.0
"""Seconds that a connection is kept while nobody uses it: shorter than the servers of providers keep theirs, so that a
request does not meet one that is being closed."""
_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Sent once more where a kept connection turns out to have been closed; nothing else is (RFC 9110, 9.2.2)."""

_HAS_PROACTOR = sys.platform == "win32"
"""Does the event loop ask where to read to long before it reads? Then connections share nothing."""

RawHeaders = list[tuple[bytes, bytes]]


class UpstreamRequest(NamedTuple):
    """A request to an upstream."""

    upstream: Upstream
    method: str
    target: str
    """Path and query, exactly as they go out."""
    headers: RawHeaders
    body: bytes | AsyncIterator[bytes] | None


class HTTPClient:
    """Connections that are kept and used again. No cookies, no redirects, no proxies but configured ones."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._open = set[Connection]()
        self._buffer = bytearray(READ_BYTES)
        self._is_sweep_scheduled = False

    @property
    def is_open(self) -> bool:
        """Can it send requests?"""
        return self._loop is not None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of answers that wait for their clients, on the side of the upstreams."""
        return sum(connection.buffered for connection in self._open)

    def open(self) -> asyncio.AbstractEventLoop:
        """Begin, inside the event loop that uses it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    async def send(self, order: UpstreamRequest) -> Response:
        """The upstream's answer as soon as its headers are there. Raises `HTTPException` (502, 504), and what the body raises."""
        try:
            origin = self._endpoint(order.upstream)
            head = _encode_head(order, origin)
            idle = self._take_idle(origin)
            connection = idle or await self._connect(origin)
            try:
                return await _send_on(connection, head, order)
            except BrokenError:
                if (
                    idle is None
                    or order.method not in _REPEATABLE_METHODS
                    or order.body is not None
                ):
                    raise
            return await _send_on(await self._connect(origin), head, order)
        except TimeoutError as error:
            raise HTTPException(
                504, f"The upstream {order.upstream.name} did not answer in time."
            ) from error
        except (
            OSError,
            ValueError,
        ) as error:  # not its own text: that may hold the address with a key in it
            raise _unreachable(order.upstream, error) from error

    async def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open):
            connection.close()
        self._loop = None

    def _endpoint(self, upstream: Upstream) -> Endpoint:
        key = upstream.url, upstream.proxy
        origin = self._endpoints.get(key)
        if origin is None:
            origin = self._endpoints[key] = parse_endpoint(upstream)
        return origin

    def _take_idle(self, origin: Endpoint) -> Connection | None:
        """The connection that was used last, as long as it is surely open."""
        while origin.idle:
            connection = origin.idle.pop()
            if connection.is_open and self.open().time() - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self, origin: Endpoint) -> Connection:
        buffer = bytearray(READ_BYTES) if _HAS_PROACTOR else self._buffer
        make = partial(
            Connection,
            self.open(),
            self._limits,
            buffer,
            partial(self._store_idle, origin),
            self._open.discard,
        )
        async with asyncio.timeout(self._limits.connect_seconds):
            connection = await origin.connect(make)
        if connection.is_open:
            self._open.add(connection)
        return connection

    def _store_idle(self, origin: Endpoint, connection: Connection) -> None:
        origin.idle.append(connection)
        if not self._is_sweep_scheduled:
            self._is_sweep_scheduled = True
            self.open().call_later(IDLE_SECONDS, self._close_expired)

    def _close_expired(self) -> None:
        """Close what nobody uses any more."""
        now = self.open().time()
        for origin in self._endpoints.values():
            for connection in [
                connection
                for connection in origin.idle
                if not connection.is_open or now - connection.idle_since >= IDLE_SECONDS
            ]:
                origin.idle.remove(connection)
                connection.close()
        self._is_sweep_scheduled = any(origin.idle for origin in self._endpoints.values())
        if self._is_sweep_scheduled:
            self.open().call_later(IDLE_SECONDS, self._close_expired)


async def _send_on(connection: Connection, head: bytes, order: UpstreamRequest) -> Response:
    body, bodiless = order.body, order.method == "HEAD"
    try:
        if body is None or isinstance(body, bytes):
            reply = connection.send(head, body or b"", bodiless=bodiless)
        else:
            reply = connection.send(head, bodiless=bodiless)
            connection.send_body(body, chunked=b"\r\ntransfer-encoding: chunked\r\n" in head)
        await reply.wait_for_head()
    except BaseException:
        connection.close()
        raise
    return reply


def _encode_head(order: UpstreamRequest, origin: Endpoint) -> bytes:
    """The request's head. Raises ValueError where a part of it could be taken for two."""
    lines = [name + b": " + value for name, value in order.headers]
    if origin.proxy is not None and not origin.tls:
        lines += [name + b": " + value for name, value in origin.proxy_headers]
    if isinstance(order.body, bytes):
        lines.append(b"content-length: %d" % len(order.body))
    elif order.body is not None and not any(name == b"content-length" for name, _ in order.headers):
        lines.append(b"transfer-encoding: chunked")
    elif order.body is None and order.method not in {*_REPEATABLE_METHODS, "TRACE", "DELETE"}:
        lines.append(b"content-length: 0")
    head = b"\r\n".join([origin.encode_request_line(order.method, order.target), *lines, b"", b""])
    breaks = len(lines) + 3
    if (
        head.count(b"\n") != breaks
        or head.count(b"\r") != breaks
        or b"\0" in head
        or " " in order.target
    ):
        raise ValueError("a part of the head holds what ends it")
    return head


def _unreachable(upstream: Upstream, error: Exception) -> HTTPException:
    return HTTPException(
        502, f"The upstream {upstream.name} cannot be reached ({type(error).__name__})."
    )
