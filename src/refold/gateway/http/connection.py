"""One connection to an upstream: a request goes out on it, its response comes in, then the next."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from refold.gateway.settings import Limits

READ_BYTES = 32 * 1024
"""Bytes of a response that are read at a time."""
BUFFER_BYTES = 32 * 1024
"""Bytes that may wait to be taken; while more do, nothing is read from the upstream."""
IDLE_SECONDS = 15.0
"""Seconds that an unused connection is kept: fewer than providers keep theirs, so that a request
does not meet one that is being closed."""


class BrokenError(ConnectionError):
    """The upstream broke off, or what it sent is no response."""


class Response:
    """The head of a response, and then its body piece by piece. `release` it or `close` it."""

    def __init__(self, connection: "Connection", *, has_body: bool) -> None:
        self.status = 0
        """0 until the head has come."""
        self.headers: list[tuple[bytes, bytes]] = []
        """In order, repeats included, names in lower case."""
        self.buffered = 0
        """Bytes that wait to be taken."""
        self.is_complete = self.is_reusable = False
        """Has all of it come, and may another follow on its connection?"""
        self._connection, self._has_body = connection, has_body
        self._parser = HttpResponseParser(self)
        self._pieces, self._head_bytes = list[bytes](), 0
        self._error: Exception | None = None
        self._has_news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self) -> None:
        """Wait for more of it. Raises `BrokenError`, TimeoutError, and what the request's body
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
        """Return what has come since the last time; empty at the end. Raises as `wait` does."""
        while not self._pieces:
            if self.is_complete:
                return b""
            await self.wait()
        piece = b"".join(self._pieces)  # a single piece is not copied
        self._pieces.clear()
        if self.buffered > BUFFER_BYTES and self._connection.is_open:
            self._connection.transport.resume_reading()
        self.buffered = 0
        return piece

    @property
    def is_exhausted(self) -> bool:
        """Was everything taken?"""
        return self.is_complete and not self._pieces

    def header(self, name: bytes) -> str:
        """Return the first header of this name; empty if there is none."""
        return next((value for key, value in self.headers if key == name), b"").decode("latin-1")

    @property
    def media_type(self) -> str:
        """The type of the body, without parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def release(self) -> None:
        """Let the connection be used again if the response was read to its end; else close it,
        which tells the upstream to stop."""
        self._connection.release(self)

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._connection.fail(BrokenError("what came is no response"))
        self._head_bytes += 0 if self.status else len(data)
        if self._head_bytes > 2 * self._connection.limits.head_bytes:
            self._connection.fail(BrokenError("the head of the response is too large"))
        self._has_news.set()

    def end(self, error: Exception) -> None:
        """Raise *error* to the reader, unless the response is complete."""
        self._error = self._error or error
        self._has_news.set()

    def restart_timer(self) -> None:
        """Give the upstream its whole time again, if it is waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._start_timer()

    def _start_timer(self) -> asyncio.TimerHandle:
        connection = self._connection
        seconds = connection.limits.silence_seconds
        return connection.loop.call_later(seconds, connection.fail, TimeoutError())

    def on_message_begin(self) -> None:
        """Refuse another response: nobody has asked for it. The parser stops at what is raised."""
        if self.is_complete:
            raise BrokenError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header. Trailers are left out."""
        if not self.status:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the head, unless it is that of `100 Continue` or the like, which says nothing."""
        size = sum(len(name) + len(value) for name, value in self.headers)
        if size > self._connection.limits.head_bytes:
            raise BrokenError
        if (status := self._parser.get_status_code()) >= 200:
            self.status, self.is_complete = status, not self._has_body
        else:
            self.headers = []

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if not self.is_complete:
            self._pieces.append(body)
            self.buffered += len(body)

    def on_message_complete(self) -> None:
        """End the response."""
        if self.status:
            self.is_reusable = not self.is_complete and self._parser.should_keep_alive()
            self.is_complete = True


class Connection(asyncio.BufferedProtocol):
    """A connection that is used by one request at a time. It is in *idle* while it can be used.
    What is read goes through *buffer*, which connections may share: it is used at once."""

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
        """Can a request be sent on it?"""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def buffered(self) -> int:
        """Bytes of a response that wait to be taken."""
        return self._response.buffered if self._response is not None else 0

    async def exchange(
        self, head: bytes, body: bytes | AsyncIterator[bytes] | None, *, has_body: bool = True
    ) -> Response:
        """Send a request and return its response once its head has come. *has_body*: the response
        may have one, if its headers say so. Raises as `Response.wait` does."""
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
        """Be used again after this response, or close."""
        if response is not self._response:
            return
        is_done = response.is_exhausted and response.is_reusable and self._upload is None
        if not (is_done and self.is_open):
            self.close()
            return
        self._response, self._idle[self] = None, None
        self._idle_timer = self.loop.call_later(IDLE_SECONDS, self.close)

    def close(self) -> None:
        """Close it at once."""
        for pending in (self._idle_timer, self._upload):
            if pending is not None:
                pending.cancel()
        if self.transport is not None:
            self.transport.abort()

    def fail(self, error: Exception) -> None:
        """Close it, and have the response raise *error* unless it is complete."""
        if self._response is not None:
            self._response.end(error)
        self.close()

    def connection_made(self, transport: Any) -> None:
        """Take the transport, which is open."""
        self.transport = transport
        if hasattr(transport, "set_read_buffer_limits"):  # TLS reads ahead
            transport.set_read_buffer_limits(high=READ_BYTES)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the event loop's signature
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take so many bytes of a response."""
        response = self._response
        if response is None or response.is_complete:  # nobody has asked for this
            self.close()
            return
        response.feed(bytes(self._buffer[:nbytes]))
        if response.buffered > BUFFER_BYTES and self.is_open:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response: well, if its head says no length, so that only this can end it."""
        response = self._response
        if response is not None and response.status and exc is None:
            framing = {b"content-length", b"transfer-encoding"}
            is_framed = any(name in framing for name, _ in response.headers)
            response.is_complete = response.is_complete or not is_framed
        self._idle.pop(self, None)
        self._is_writable.set()
        self.fail(BrokenError("the connection was closed"))

    def pause_writing(self) -> None:
        """Send no more for now."""
        self._is_writable.clear()

    def resume_writing(self) -> None:
        """Send on."""
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
