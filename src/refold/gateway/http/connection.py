"""One connection to an upstream: a request goes out on it, its answer comes in, then the next."""

import asyncio
from collections.abc import AsyncIterator, Callable
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from refold.gateway.http.response import BUFFER_BYTES, BrokenError, Response
from refold.gateway.settings import Limits


class _RejectedError(Exception):
    """Thrown through the parser, which stops at it."""


READ_BYTES = 32 * 1024
"""Bytes of an answer that are read at a time."""


class Connection(asyncio.BufferedProtocol):
    """A connection that is used by one request at a time. *idle* takes it back when it can be used again, *lost* is
    told when it is closed. What is read goes through *buffer*, which connections may share: it is used at once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        buffer: bytearray,
        idle: "ConnectionCallback",
        lost: "ConnectionCallback",
    ) -> None:
        self.loop, self._limits, self._buffer, self._idle, self._lost = (
            loop,
            limits,
            buffer,
            idle,
            lost,
        )
        self.transport: Any = None
        self.idle_since = 0.0
        """When it was used last, by the clock of the event loop."""
        self._parser = HttpResponseParser(self)
        self._reply: Response | None = None
        self._is_reusable = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._upload: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Can a request be sent on it?"""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def buffered(self) -> int:
        """Bytes of an answer that wait to be taken."""
        return self._reply.buffered if self._reply is not None else 0

    def send(self, head: bytes, body: bytes = b"", *, bodiless: bool = False) -> Response:
        """Send a request; its answer. *bodiless*: it will have no body whatever its headers say."""
        reply = self._reply = Response(self, bodiless=bodiless)
        self._is_reusable, self._head_bytes = False, 0
        self.transport.writelines((head, body) if body else (head,))
        if self._timer is None:
            self._timer = self.loop.call_later(self._limits.silence_seconds, self._check_silence)
        return reply

    def send_body(self, pieces: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Send a body behind the head, as it comes. What *pieces* raises, the answer raises."""
        self._upload = self.loop.create_task(self._write_body(pieces, chunked=chunked))

    def release(self, reply: Response) -> None:
        """This answer is done with."""
        if reply is not self._reply:
            return
        if not (reply.is_exhausted and self._is_reusable and self._upload is None and self.is_open):
            self.close()
            return
        self._reply, self.idle_since = None, self.loop.time()
        self._idle(self)

    def close(self) -> None:
        """Close it at once."""
        self._is_reusable = False
        self._cancel_pending()
        if self.transport is not None:
            self.transport.abort()

    def detach(self) -> None:
        """Another protocol has its transport now."""
        self.transport = None
        self._cancel_pending()

    def resume_reading(self) -> None:
        """Read on."""
        if self.is_open:
            self.transport.resume_reading()

    # --- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """It is open."""
        self.transport = transport
        line = transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        if hasattr(transport, "set_read_buffer_limits"):  # TLS reads ahead
            transport.set_read_buffer_limits(high=READ_BYTES)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the event loop's signature
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So much was read."""
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Something of an answer."""
        reply = self._reply
        if reply is None or reply.is_complete:  # nobody has asked for this
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._is_reusable = False
            self._fail(BrokenError("what came is no answer"))
            return
        if not reply.has_head:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * self._limits.head_bytes:
                self._fail(BrokenError("the head of the answer is too large"))
        if reply.buffered > BUFFER_BYTES:
            self.transport.pause_reading()
        reply.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed; some answers end so."""
        reply = self._reply
        self._cancel_pending()
        self.resume_writing()
        if reply is not None and exc is None and reply.has_head and not self._is_framed(reply):
            reply.is_complete = True
        self._fail(BrokenError("the connection was closed"))
        self._lost(self)

    def pause_writing(self) -> None:
        """Send no more for now."""
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """Send on."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # --- what the parser calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._reply is None or self._reply.is_complete:
            raise _RejectedError
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Trailers are left out."""
        if self._reply is not None and not self._reply.has_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole. Those of `100 Continue` and the like say nothing."""
        status, reply = self._parser.get_status_code(), self._reply
        if reply is None or status < 200:
            return
        if sum(len(name) + len(value) for name, value in self._headers) > self._limits.head_bytes:
            raise _RejectedError
        reply.status, reply.headers, reply.has_head = status, self._headers, True
        reply.is_complete = reply.has_no_body

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._reply is not None and not self._reply.is_complete:
            self._reply.feed(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._reply is not None and self._reply.has_head:
            self._is_reusable = not self._reply.is_complete and self._parser.should_keep_alive()
            self._reply.is_complete = True

    # --- inside -----------------------------------------------------------------------------------

    def _cancel_pending(self) -> None:
        """Nothing is awaited, and nothing sent, any more."""
        for running in (self._timer, self._upload):
            if running is not None:
                running.cancel()

    def _is_framed(self, reply: Response) -> bool:
        """Does the head say where the body ends?"""
        return any(name in {b"content-length", b"transfer-encoding"} for name, _ in reply.headers)

    def _fail(self, error: BaseException) -> None:
        reply = self._reply
        if reply is not None:
            if not reply.is_complete:
                reply.error = reply.error or error
            reply.wake()
        self.close()

    def _check_silence(self) -> None:
        """Has the upstream been silent for too long? One timer serves all requests, so that none has to set its own."""
        silence, reply = self._limits.silence_seconds, self._reply
        since = reply.waiting_since if reply is not None else None
        seconds = silence if since is None else since + silence - self.loop.time()
        if seconds <= 0:
            self._timer = None
            self._fail(TimeoutError())
        else:
            self._timer = self.loop.call_later(seconds, self._check_silence)

    async def _write_body(self, pieces: AsyncIterator[bytes], *, chunked: bool) -> None:
        try:
            async for piece in pieces:
                self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                if self._writable is not None:
                    await self._writable
                if self._reply is not None and self._reply.waiting_since is not None:
                    self._reply.waiting_since = self.loop.time()  # it is we who are slow
            if chunked:
                self.transport.write(b"0\r\n\r\n")
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
            self._upload = None
            self._fail(error)
        else:
            self._upload = None


ConnectionCallback = Callable[[Connection], None]
