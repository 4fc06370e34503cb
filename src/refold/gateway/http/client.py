"""The HTTP client for upstreams, with connections that are kept alive and reused. Requests and
responses pass unchanged."""

import asyncio
import ssl
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from socket import AI_ADDRCONFIG, SOCK_STREAM
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

from aiohappyeyeballs import start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from refold.gateway.exchange import HTTPException
from refold.gateway.http.request import UpstreamRequest
from refold.gateway.settings import Limits, Upstream

# --- connections ----------------------------------------------------------------------------------
# One request and response at a time.

READ_BYTES = 32 * 1024
"""Maximum bytes of a response per read."""
BUFFER_BYTES = 32 * 1024
"""Maximum unread bytes of a response, above which reading from the upstream pauses."""
IDLE_SECONDS = 15.0
"""Seconds that an idle connection is kept: fewer than providers keep theirs, so that no request
meets a connection that is being closed."""


class BrokenError(ConnectionError):
    """The connection to an upstream, or to its proxy, closed early or brought no valid response."""


class Response:
    """The head of a response, and then its body piece by piece. `release` or `close` it."""

    def __init__(self, connection: "Connection", *, has_body: bool) -> None:
        self.status = 0
        """0 until the head has arrived."""
        self.headers: list[tuple[bytes, bytes]] = []
        """In order, repeats included, names in lower case."""
        self.buffered_bytes = 0
        """Bytes that are not read yet."""
        self.is_complete = self.is_reusable = False
        """Whether all of it has arrived, and whether its connection can be reused."""
        self._connection, self._has_body = connection, has_body
        self._parser = HttpResponseParser(self)
        self._pieces, self._head_bytes = list[bytes](), 0
        self._error: Exception | None = None
        self._has_news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self) -> None:
        """Wait for more data. Raises `BrokenError`, TimeoutError, and what the request's body
        raised."""
        if self._error is not None:
            raise self._error
        self._has_news.clear()
        self._timer = self._start_timer()
        try:
            await self._has_news.wait()
        finally:
            self._timer.cancel()
            self._timer = None

    async def read(self) -> bytes:
        """Return the data since the last read; empty at the end. Raises as `wait` does."""
        while not self._pieces:
            if self.is_complete:
                return b""
            await self.wait()
        piece = b"".join(self._pieces)  # a single piece is not copied
        self._pieces.clear()
        if self.buffered_bytes > BUFFER_BYTES and self._connection.is_open:
            self._connection.transport.resume_reading()
        self.buffered_bytes = 0
        return piece

    @property
    def is_exhausted(self) -> bool:
        """Whether everything was read."""
        return self.is_complete and not self._pieces

    def header(self, name: bytes) -> str:
        """Return the first header of this name; empty if there is none."""
        return next((value for key, value in self.headers if key == name), b"").decode("latin-1")

    @property
    def media_type(self) -> str:
        """Media type of the body, in lower case and without parameters; empty if there is none."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def release(self) -> None:
        """Return the connection for reuse if the response was read to its end; else close it, which
        tells the upstream to stop."""
        self._connection.release(self)

    def feed(self, data: bytes) -> None:
        """Parse received data."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._connection.fail(BrokenError("what came is no response"))
        self._head_bytes += 0 if self.status else len(data)
        if self._head_bytes > 2 * self._connection.limits.head_bytes:
            self._connection.fail(BrokenError("the head of the response is too large"))
        self._has_news.set()

    def end(self, error: Exception) -> None:
        """Have the reader raise *error*, unless the response is complete."""
        self._error = self._error or error
        self._has_news.set()

    def restart_timer(self) -> None:
        """Restart the silence timeout, if it is running."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._start_timer()

    def _start_timer(self) -> asyncio.TimerHandle:
        connection = self._connection
        seconds = connection.limits.silence_seconds
        return connection.loop.call_later(seconds, connection.fail, TimeoutError())

    def on_message_begin(self) -> None:
        """Refuse a second response. The parser stops at the exception."""
        if self.is_complete:
            raise BrokenError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers are ignored."""
        if not self.status:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Store the head, unless it is informational (1xx)."""
        size = sum(len(name) + len(value) for name, value in self.headers)
        status = self._parser.get_status_code()
        if size > self._connection.limits.head_bytes or status > 599:  # not an HTTP status
            raise BrokenError
        if status in (204, 304):  # content-length may be that of a body not sent (RFC 9110, 8.6)
            self.headers = [header for header in self.headers if header[0] != b"content-length"]
        if status >= 200:
            self.status, self.is_complete = status, not self._has_body
        else:
            self.headers = []

    def on_body(self, body: bytes) -> None:
        """Store a piece of the body."""
        if not self.is_complete:
            self._pieces.append(body)
            self.buffered_bytes += len(body)

    def on_message_complete(self) -> None:
        """Mark the response as complete."""
        if self.status:
            self.is_reusable = not self.is_complete and self._parser.should_keep_alive()
            self.is_complete = True


class Connection(asyncio.BufferedProtocol):
    """A connection for one request at a time, in *idle* while it is free. Reads go through
    *buffer*, which connections may share because its contents are used at once."""

    def __init__(self, limits: Limits, buffer: bytearray, idle: dict["Connection", None]) -> None:
        self.limits, self._buffer, self._idle = limits, buffer, idle
        self.loop, self._is_writable = asyncio.get_running_loop(), asyncio.Event()
        self._is_writable.set()
        self.transport: Any = None
        self._response: Response | None = None
        self._upload: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a response that are not read yet."""
        return self._response.buffered_bytes if self._response is not None else 0

    async def exchange(
        self, head: bytes, body: bytes | AsyncIterator[bytes] | None, *, has_body: bool = True
    ) -> Response:
        """Send a request and return its response once its head has arrived. *has_body*: the
        response may have a body. Raises as `Response.wait` does."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        response = self._response = Response(self, has_body=has_body)
        if body is None or isinstance(body, bytes):
            self.transport.writelines((head, body) if body else (head,))
        else:
            self.transport.write(head)
            is_chunked = b"\r\ntransfer-encoding: chunked\r\n" in head
            self._upload = self.loop.create_task(self._write_body(body, is_chunked=is_chunked))
        try:
            while not response.status:
                await response.wait()
        except BaseException:
            self.close()
            raise
        return response

    def release(self, response: Response) -> None:
        """Become idle after this response, or close."""
        if response is not self._response:
            return
        self._response = None
        is_done = response.is_exhausted and response.is_reusable and self._upload is None
        if not (is_done and self.is_open):
            self.close()
            return
        self._idle[self] = None
        self._idle_timer = self.loop.call_later(IDLE_SECONDS, self.close)

    def close(self) -> None:
        """Close the connection at once."""
        for pending in (self._idle_timer, self._upload):
            if pending is not None:
                pending.cancel()
        if self.transport is not None:
            self.transport.abort()

    def fail(self, error: Exception) -> None:
        """Close the connection, and have the response raise *error* unless it is complete."""
        if self._response is not None:
            self._response.end(error)
        self.close()

    def connection_made(self, transport: Any) -> None:
        """Store the open transport."""
        self.transport = transport
        if hasattr(transport, "set_read_buffer_limits"):  # TLS reads ahead
            transport.set_read_buffer_limits(high=READ_BYTES)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the event loop's signature
        """Return the read buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle this number of bytes of a response."""
        response = self._response
        if response is None or response.is_complete:  # unexpected data
            self.close()
            return
        response.feed(bytes(self._buffer[:nbytes]))
        if response.buffered_bytes > BUFFER_BYTES and self.is_open:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response. This is its regular end if its head declares no length."""
        response = self._response
        if response is not None and response.status and exc is None:
            framing = {b"content-length", b"transfer-encoding"}
            is_framed = any(name in framing for name, _ in response.headers)
            response.is_complete = response.is_complete or not is_framed
        self._idle.pop(self, None)
        self._is_writable.set()
        self.fail(BrokenError("the connection was closed"))

    def pause_writing(self) -> None:
        """Pause sending."""
        self._is_writable.clear()

    def resume_writing(self) -> None:
        """Resume sending."""
        self._is_writable.set()

    async def _write_body(self, pieces: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        try:
            async for piece in pieces:
                self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                await self._is_writable.wait()
                if self._response is not None:
                    self._response.restart_timer()  # the client is slow, not the upstream
            if is_chunked:
                self.transport.write(b"0\r\n\r\n")
        except Exception as error:  # noqa: BLE001 - it is raised where the response is awaited
            self.fail(error)
        finally:
            self._upload = None


# --- the client -----------------------------------------------------------------------------------


_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that are sent again if a kept connection proves to be closed (RFC 9110, 9.2.2)."""
_HAS_PROACTOR = sys.platform == "win32"
"""Whether the event loop gets the buffer long before it reads, so that no buffer can be shared."""


class HTTPClient:
    """A client with a connection pool, but without cookies, redirects or unconfigured proxies."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._buffer = limits, bytearray(READ_BYTES)
        self._endpoint_of = cache(_Endpoint)
        self._connections = WeakSet[Connection]()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of upstreams' responses that clients have not taken yet."""
        return sum(connection.buffered_bytes for connection in self._connections)

    async def send(self, request: UpstreamRequest) -> Response:
        """Return the upstream's response once its headers have arrived. Raises `HTTPException`
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
        except (OSError, ValueError) as error:  # its text may contain the address with a key in it
            why = str(error) if isinstance(error, BrokenError) else type(error).__name__
            raise HTTPException(502, f"The upstream {name} cannot be reached ({why}).") from error

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
    """The server of an upstream, and its idle connections."""

    def __init__(self, upstream: Upstream) -> None:
        url, proxy = urlsplit(upstream.url), urlsplit(upstream.proxy)
        self._is_tls, name = url.scheme == "https", url.hostname or ""
        self._host = name.encode("ascii" if ":" in name else "idna").decode()
        usual_port = 443 if self._is_tls else 80
        self._port = url.port or usual_port
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._place = f"{shown}:{self._port}"
        self.authority = shown if self._port == usual_port else self._place
        """Host and port for the `host` header."""
        self.base = url.path.rstrip("/")
        """Path prefix of every request."""
        self._proxy = (proxy.hostname or "", proxy.port or 80) if upstream.proxy else None
        self._proxy_lines = list[bytes]()
        """Credentials for the proxy, if its address names a user."""
        if proxy.username is not None:
            words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            self._proxy_lines = [b"proxy-authorization: Basic " + b64encode(words.encode())]
        if self._proxy and not self._is_tls:
            self.base = f"http://{self.authority}{self.base}"
        self.lines = [] if self._is_tls else self._proxy_lines
        """Headers added to every request."""
        self.idle: dict[Connection, None] = {}

    def take_idle(self) -> Connection | None:
        """Return the open idle connection that was used last; None if there is none."""
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
    """Return a TLS context with the system's certificates, loaded at the first use."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _strip_repeated_base(base: str, target: str) -> str:
    """Return *target* without a repetition of *base*, or of the version (`/v1`) that *base* ends
    with. Both are usual in the base URL of an API."""
    version = base[base.rfind("/") :]
    is_version = version.startswith("/v") and version[2:3].isdigit()
    repeated = version if is_version and not target.startswith(f"{base}/") else base
    return target.removeprefix(repeated) if target.startswith(f"{repeated}/") else target


def _encode_head(request: UpstreamRequest, endpoint: _Endpoint) -> bytes:
    """Return the request's head. Raises ValueError if a part of it contains a delimiter (header
    injection)."""
    lines = [
        f"{request.method} {endpoint.base}{_strip_repeated_base(endpoint.base, request.target)} HTTP/1.1".encode(),
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
