"""Limits on clients that the server enforces before an ASGI application sees a request.

It uses internals of uvicorn, so uvicorn's version has an upper bound (decision 0014)."""

from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from socket import AF_INET, AF_INET6, IPPROTO_TCP, TCP_NODELAY
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from refold.gateway.http.response import ON_DISCONNECT, ON_STOP, StallAbortingTransport, Stop
from refold.gateway.settings import Limits

WRITE_BUFFER_BYTES = 32 * 1024
"""Maximum bytes waiting for a slow client, above which writing pauses."""
_STOPPING_SECONDS = 2.0
"""Seconds for a request to arrive in full once the gateway is stopping."""
_VERSIONS = ("1.0", "1.1")


class _RefusedError(Exception):
    """Raised in parser callbacks to stop the parser."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with limits on a request's head (bytes, headers, seconds) and one limit on
    all bytes outside its head and body (chunk extensions, trailers, overhead of tiny chunks). It
    refuses targets that name another server, and ignores trailers.

    Upgrades are ignored (RFC 9110, 7.8): Java's client offers `h2c` with every first request.
    Because the parser would treat the following data as another protocol, a new parser reads the
    head again without its `upgrade`.
    """

    _limits: Limits
    _note_refusal: Callable[[int], object]
    _head_timer: TimerHandle | None = None
    _stall_timer: TimerHandle | None = None
    _overhead_bytes = 0
    """Bytes outside bodies since the last head or message, minus the overhead of normal chunks."""
    _chunk_bytes = 0
    """Body bytes of the current chunk."""
    _header_bytes = 0
    _is_reading_head = False
    """Whether a head has begun and is not complete."""
    _disconnect_callback: Callable[[], None] | None = None
    _stop_callback: Callable[[], None] | None = None
    _is_lost = _is_stopping = False
    _is_upgrade = False
    """Whether the head must be read again without its `upgrade`."""
    _upgrades: tuple[tuple[bytes, bytes], ...] = ()
    """Headers removed from the head that is read again."""

    def connection_made(self, transport: Any) -> None:
        """Set up the connection and start the timer for a head."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection.family in (AF_INET, AF_INET6):  # asyncio does not for every listening socket
            connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._extensions = {ON_DISCONNECT: self.on_disconnect, ON_STOP: self.on_stop}
        self._outgoing = StallAbortingTransport(transport, self.loop, self._limits.silence_seconds)
        self._outgoing.is_sending = lambda: bool(
            (cycle := self.cycle) and cycle.more_body and cycle.response_complete
        )
        self.transport = self._outgoing  # type: ignore[assignment]  # but for `close`
        self._start_head_timer()

    def pause_writing(self) -> None:
        """Wait for the client to read, but abort if it stalls."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self._limits.silence_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Write again, now that the client has read enough."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers and notify the application."""
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._is_reading_head, self._is_lost = False, True
        super().connection_lost(exc)
        if self._disconnect_callback is not None:
            self._disconnect_callback()

    def on_disconnect(self, callback: Callable[[], None]) -> Stop:
        """Call *callback* when the client disconnects, so that the application needs no task to
        wait for that. Return a function that cancels this."""
        self._disconnect_callback = callback
        if self._is_lost:
            callback()
        else:
            self.flow.resume_reading()  # otherwise the disconnect is not noticed
        return partial(self._forget, callback)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call *callback* when the gateway is stopping, at once if it already is: for answers
        without an end."""
        self._stop_callback = callback
        if self._is_stopping:
            callback()

    def _forget(self, callback: Callable[[], None]) -> None:
        if self._disconnect_callback is callback:
            self._disconnect_callback = None

    def data_received(self, data: bytes) -> None:
        """Parse received data. Refuse too many bytes outside heads and bodies."""
        self._overhead_bytes += len(data)
        self._outgoing.has_received = True
        self._unset_keepalive_if_required()
        while data:
            data = self._read(data)
        if self._is_reading_head and self._head_timer is None:  # most heads arrive at once
            self._start_head_timer()
        if self._overhead_bytes > 2 * self._limits.head_bytes and not self.transport.is_closing():
            self._refuse(431)

    def _read(self, data: bytes) -> bytes:
        """Parse *data*. Return the data to parse next: for an ignored upgrade, the head again and
        the rest."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._head_without_upgrade() + data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause.status if isinstance(cause, _RefusedError) else 400)
        return b""

    def _head_without_upgrade(self) -> bytes:
        """Return the head without its `upgrade`, for a new parser."""
        old, self.parser = self.parser, httptools.HttpRequestParser(self)
        with suppress(AttributeError):  # httptools before 0.6.3 is as lenient by default
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._is_upgrade = False
        self._upgrades = tuple(header for header in self.headers if header[0] == b"upgrade")
        rest = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        start = b"%b %b HTTP/%b\r\n" % (old.get_method(), self.url, old.get_http_version().encode())
        return b"".join([start, *rest, b"\r\n"])

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._is_reading_head, self._header_bytes = True, 0
        if self._head_timer is not None:
            self._start_head_timer()
        super().on_message_begin()
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count and store a header. A trailer is ignored, because it must not pass for a header."""
        if not self._is_reading_head:
            return
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        size = self._header_bytes + len(self.url)
        if len(self.headers) > self._limits.headers or size > self._limits.head_bytes:
            raise _RefusedError(431)

    def on_headers_complete(self) -> None:
        """Begin a request if its target is a path and its version HTTP/1.0 or 1.1 (RFC 9110,
        15.6.6)."""
        self._is_reading_head, self._overhead_bytes = False, 0
        self._stop_head_timer()
        if self.parser.get_http_version() not in _VERSIONS:
            raise _RefusedError(505)
        is_path = self.url.startswith(b"/") and b"#" not in self.url
        if not is_path or self.parser.get_method() == b"CONNECT":
            raise _RefusedError(400)  # an absolute target or CONNECT, which are for proxies
        self._is_upgrade = self.parser.should_upgrade()
        if not self._is_upgrade:
            self.headers += self._upgrades  # the application then refuses a WebSocket
            self._upgrades = ()
            super().on_headers_complete()
            if self._is_stopping:
                self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        """Start to count the bytes of a chunk of the request's body."""
        self._chunk_bytes = 0

    def on_chunk_complete(self) -> None:
        """Deduct the chunk's size line and line ends, up to as many bytes as it carries."""
        self._overhead_bytes -= min(len(b"%x" % self._chunk_bytes) + 4, self._chunk_bytes)

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body, which is limited elsewhere."""
        self._overhead_bytes -= len(body)
        self._chunk_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._overhead_bytes = 0
        if self._outgoing.is_lingering:
            self._outgoing.close()
        elif not self._is_upgrade:
            super().on_message_complete()

    def shutdown(self) -> None:
        """Let requests arrive for a short time while the gateway is stopping. A request is lost if
        its connection is closed before it is read, and a load balancer must not send a POST
        twice."""
        self._is_stopping = True
        cycle = self.cycle
        if cycle and not cycle.response_started:
            cycle.keep_alive = False  # its response says `connection: close`
        elif cycle is None or cycle.response_complete:
            self._close_soon()
        if self._stop_callback is not None:
            self._stop_callback()
        self.loop.call_later(_STOPPING_SECONDS, self._end_unread)

    def on_response_complete(self) -> None:
        """Wait for the next request, only shortly if the gateway is stopping."""
        super().on_response_complete()
        if self._is_stopping and not self.transport.is_closing():
            self._close_soon()

    def _close_soon(self) -> None:
        """Close the connection soon unless a request arrives. The second timer is for an event loop
        that was blocked: it runs due timers before it reads what has arrived."""
        seconds = self._limits.parting_seconds
        again = partial(self.loop.call_later, seconds / 10, self._end_unused)
        self.loop.call_later(seconds, again)

    def _end_unused(self) -> None:
        is_unused = self.cycle is None or self.cycle.response_complete
        if is_unused and not self._is_reading_head:
            self.transport.close()

    def _end_unread(self) -> None:
        cycle = self.cycle
        if cycle is None:
            self.transport.close()
        elif cycle.more_body and not (cycle.response_started or cycle.disconnected):
            self._refuse(503)

    def _refuse(self, status: int) -> None:
        """Send an error status if no response is under way, and close."""
        cycle = self.cycle
        is_answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if not (self.transport.is_closing() or is_answering or self.pipeline):
            close = b"content-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + close)
            self._note_refusal(status)
        self.transport.close()

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(self._limits.head_seconds, self._end_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_head_timer()  # the next request began while this one is answered
        else:
            self._refuse(408)


def create_protocol(limits: Limits, note: Callable[[int], object]) -> type[LimitedProtocol]:
    """Return a protocol class with these limits. *note* is called with the status of each
    refusal."""
    fields = {"_limits": limits, "_note_refusal": staticmethod(note)}
    return type("LimitedProtocol", (LimitedProtocol,), fields)
