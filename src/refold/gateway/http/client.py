"""The client that sends requests to upstreams: they go out as they are told, responses come in as
they were sent."""

import asyncio
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable
from functools import cache, partial
from socket import AI_ADDRCONFIG, SOCK_STREAM
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

from aiohappyeyeballs import start_connection

from refold.gateway.http.connection import READ_BYTES, BrokenError, Connection, Response
from refold.gateway.http.request import UpstreamRequest
from refold.gateway.messages import HTTPException
from refold.gateway.settings import Limits
from refold.gateway.upstreams import Upstream

_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Sent once more if a kept connection proves to be closed; nothing else is (RFC 9110, 9.2.2)."""
_HAS_PROACTOR = sys.platform == "win32"
"""Does the event loop ask long before it reads where to read to? Then no buffer is shared."""


class HTTPClient:
    """Connections that are kept and used again. No cookies, no redirects, no proxies but those that
    are configured."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._buffer = limits, bytearray(READ_BYTES)
        self._endpoint_of = cache(_Endpoint)
        self._connections = WeakSet[Connection]()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of responses that wait for their clients, on the side of the upstreams."""
        return sum(connection.buffered for connection in self._connections)

    async def send(self, request: UpstreamRequest) -> Response:
        """Return the upstream's response as soon as its headers are there. Raises `HTTPException`
        (502, 504), and what the body raises."""
        name, body, has_body = request.upstream.name, request.body, request.method != "HEAD"
        try:
            endpoint = self._endpoint_of(request.upstream)
            head = _encode_head(request, endpoint)
            if (idle := endpoint.take_idle()) is not None:
                try:
                    return await idle.exchange(head, body, has_body=has_body)
                except BrokenError:
                    if request.method not in _REPEATABLE_METHODS or body is not None:
                        raise
            connection = await self._connect(endpoint)
            return await connection.exchange(head, body, has_body=has_body)
        except TimeoutError as error:
            raise HTTPException(504, f"The upstream {name} did not answer in time.") from error
        except (OSError, ValueError) as error:  # its own text may hold the address with a key in it
            words = f"The upstream {name} cannot be reached ({type(error).__name__})."
            raise HTTPException(502, words) from error

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            connection.close()

    async def _connect(self, endpoint: "_Endpoint") -> Connection:
        buffer = bytearray(READ_BYTES) if _HAS_PROACTOR else self._buffer
        make = partial(Connection, self._limits, buffer, endpoint.idle)
        async with asyncio.timeout(self._limits.connect_seconds):
            connection = await endpoint.connect(make)
        self._connections.add(connection)
        return connection


class _Endpoint:
    """The server of an upstream, and the connections to it that are not used."""

    def __init__(self, upstream: Upstream) -> None:
        url, proxy = urlsplit(upstream.url), urlsplit(upstream.proxy)
        self._is_tls, name = url.scheme == "https", url.hostname or ""
        self._host = name.encode("ascii" if ":" in name else "idna").decode()
        usual_port = 443 if self._is_tls else 80
        self._port = url.port or usual_port
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._place = f"{shown}:{self._port}"
        self.authority = shown if self._port == usual_port else self._place
        """Host and port as a request names them."""
        self.base = url.path.rstrip("/")
        """What stands before the path of every request."""
        self._proxy = (proxy.hostname or "", proxy.port or 80) if upstream.proxy else None
        self._proxy_lines = list[bytes]()
        """What the proxy asks for, if its address names a user."""
        if proxy.username is not None:
            words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            self._proxy_lines = [b"proxy-authorization: Basic " + b64encode(words.encode())]
        if self._proxy and not self._is_tls:
            self.base = f"http://{self.authority}{self.base}"
        self.lines = [] if self._is_tls else self._proxy_lines
        """Headers of every request."""
        self.idle: dict[Connection, None] = {}

    def take_idle(self) -> Connection | None:
        """Return the connection that was used last, of those that are open."""
        while self.idle:
            connection, _ = self.idle.popitem()
            if connection.is_open:
                return connection
        return None

    async def connect(self, make: Callable[[], Connection]) -> Connection:
        """Return a new connection. Raises OSError, `BrokenError` if the proxy refuses."""
        loop = asyncio.get_running_loop()
        host, port = self._proxy or (self._host, self._port)
        places = await loop.getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_ADDRCONFIG)
        line = await start_connection(places, happy_eyeballs_delay=0.25, loop=loop)  # RFC 8305
        _, connection = await loop.create_connection(make, sock=line)
        if not self._is_tls:
            return connection
        try:
            if self._proxy is not None:
                await self._open_tunnel(connection)
            secure = make()
            transport = await loop.start_tls(
                connection.transport, secure, _tls_context(), server_hostname=self._host
            )
        except BaseException:
            connection.close()
            raise
        secure.connection_made(transport)
        return secure

    async def _open_tunnel(self, connection: Connection) -> None:
        lines = [f"CONNECT {self._place} HTTP/1.1", f"host: {self._place}"]
        head = b"\r\n".join([*(line.encode() for line in lines), *self._proxy_lines, b"", b""])
        response = await connection.exchange(head, None, has_body=False)
        if response.status != 200:
            raise BrokenError(f"the proxy answers {response.status}")


@cache
def _tls_context() -> ssl.SSLContext:
    """Trust whom this machine trusts. Read when it is first needed."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _encode_head(request: UpstreamRequest, endpoint: _Endpoint) -> bytes:
    """Return the request's head. Raises ValueError if a part of it could be taken for two."""
    lines = [
        f"{request.method} {endpoint.base}{request.target} HTTP/1.1".encode(),
        f"host: {endpoint.authority}".encode(),
        *[name + b": " + value for name, value in request.headers],
        *endpoint.lines,
    ]
    if isinstance(request.body, bytes):
        lines.append(b"content-length: %d" % len(request.body))
    elif request.body is None:
        if request.method not in {*_REPEATABLE_METHODS, "TRACE", "DELETE"}:
            lines.append(b"content-length: 0")
    elif not any(name == b"content-length" for name, _ in request.headers):
        lines.append(b"transfer-encoding: chunked")
    head = b"\r\n".join([*lines, b"", b""])
    ends = len(lines) + 1
    is_split = head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head
    if is_split or " " in request.target:
        raise ValueError("a part of the head holds what ends it")
    return head
