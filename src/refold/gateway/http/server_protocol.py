"""What the server itself holds clients to, before there is a request that an ASGI application sees."""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from socket import AF_INET, AF_INET6, IPPROTO_TCP, TCP_NODELAY
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from refold.gateway.http.caller import ON_DISCONNECT, Stop
from refold.gateway.settings import Limits


class StallAbortingTransport:
    """A transport that sends what is left when it is closed, as long as the client takes some every *seconds*."""

    def __init__(self, transport: Any, loop: AbstractEventLoop, seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self.write, self.is_closing = transport.write, transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Send what is left, and close."""
        self._transport.close()
        self._abort_if_stalled(before=0)

    def _abort_if_stalled(self, before: int) -> None:
        """Abort if as much is left to send as *before* (bytes, 0 at first); look again later if anything is."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent == before:
            self._transport.abort()
        elif unsent:
            self._loop.call_later(self._seconds, self._abort_if_stalled, unsent)


_STOPPING_SECONDS = 2.0
"""Seconds that a request has to come whole once the gateway is stopping."""


class _RejectedError(Exception):
    """Thrown through the parser, which stops at it."""


WRITE_BUFFER_BYTES = 32 * 1024
"""Bytes that may wait for a client to take them; while more do, no more of an answer is written (C21)."""
_VERSIONS = ("1.0", "1.1")


class LimitedProtocol(HttpToolsProtocol):
    """The protocol of uvicorn with limits on the request's head: bytes, headers, seconds; without targets that
    name another server, without headers that come after the body, and without more than a little beside
    the body of a request (chunk extensions, trailers, chunks of a byte or two): one limit for all of it.

    An upgrade is ignored (RFC 9110, 7.8): Java's client offers `h2c` with every first request. The parser would take
    what follows such a head for another protocol, so another one goes on with the head without its `upgrade`."""

    _limits = Limits()
    _timer: TimerHandle | None = None
    _stall_timer: TimerHandle | None = None
    _bytes_beside = 0
    """Bytes that came since the last head or message ended and that are no body, less what honest chunks need."""
    _chunk_bytes = 0
    """Bytes of the body in this chunk."""
    _header_bytes = 0
    _is_reading_head = True
    _has_begun = False
    """Has part of a head come?"""
    _refused = (400, "Bad Request")
    _tell: Callable[[], None] | None = None
    """Who is told when the client leaves."""
    _is_lost = False
    _is_upgrade = False
    """Is the head that was read to be read again, without its `upgrade`?"""
    _upgrades: tuple[tuple[bytes, bytes], ...] = ()
    """What was left out of the head that is read again."""

    def connection_made(self, transport: Any) -> None:
        """The head is awaited from now on."""
        super().connection_made(transport)
        line = transport.get_extra_info("socket")
        if line is not None and line.family in (AF_INET, AF_INET6):
            line.setsockopt(
                IPPROTO_TCP, TCP_NODELAY, 1
            )  # asyncio leaves it off for some listening sockets
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._extensions = {ON_DISCONNECT: self.leaving}
        self._body_pieces = list[bytes]()
        self.transport = StallAbortingTransport(  # type: ignore[assignment]  # it is one but for `close`
            transport, self.loop, self._limits.silence_seconds
        )
        self._wait()

    def pause_writing(self) -> None:
        """Wait for the client to take what is written; not for ever."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self._limits.silence_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken enough."""
        self._stop_stall_timer()
        super().resume_writing()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._stop_waiting()
        self._stop_stall_timer()
        self._has_begun = False
        super().connection_lost(exc)
        self._is_lost, tell = True, self._tell
        if tell is not None:
            tell()

    def leaving(self, tell: Callable[[], None]) -> Stop:
        """Have *tell* called when the client leaves; the application needs no task of its own that waits for that.
        What is returned ends it."""
        self._tell = tell
        if self._is_lost:
            tell()
        else:
            self.flow.resume_reading()  # or nobody notices
        return partial(self._forget, tell)

    def _forget(self, tell: Callable[[], None]) -> None:
        if self._tell is tell:
            self._tell = None

    def data_received(self, data: bytes) -> None:
        """Close where much comes that is neither a whole head nor a body."""
        self._bytes_beside += len(data)
        self._unset_keepalive_if_required()
        while data:
            data = self._read(data)
        if (
            self._has_begun and self._timer is None
        ):  # as a rule a head comes whole, and needs no timer
            self._wait()
        if self._bytes_beside > 2 * self._limits.head_bytes and not self.transport.is_closing():
            self._refused = (431, "Request Header Fields Too Large")
            self.send_400_response("")

    def _read(self, data: bytes) -> bytes:
        """Read *data*. What is returned is to be read next: the head again and what follows, where an upgrade is ignored."""
        try:
            self.parser.feed_data(data)
            self._hand_over_body()
        except httptools.HttpParserUpgrade as found:
            return self._plain_head() + data[found.args[0] :]
        except httptools.HttpParserError:
            self.send_400_response("")
        return b""

    def _plain_head(self) -> bytes:
        """The head that was read, without its `upgrade`, for a new parser."""
        old, self.parser = self.parser, httptools.HttpRequestParser(self)
        with suppress(AttributeError):  # httptools before 0.6.3 is as lenient without being told
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._is_upgrade = False
        self._upgrades = tuple(header for header in self.headers if header[0] == b"upgrade")
        rest = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        start = b"%b %b HTTP/%b\r\n" % (old.get_method(), self.url, old.get_http_version().encode())
        return b"".join([start, *rest, b"\r\n"])

    def on_message_begin(self) -> None:
        """Another head."""
        self._is_reading_head, self._has_begun, self._header_bytes = True, True, 0
        if self._timer is not None:
            self._wait()
        super().on_message_begin()
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]  # one of our own

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header: counted, and left out where it is a trailer."""
        if not self._is_reading_head:
            return  # a trailer: it must not be taken for a header
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if (
            len(self.headers) > self._limits.headers
            or self._header_bytes + len(self.url) > self._limits.head_bytes
        ):
            self._refused = (431, "Request Header Fields Too Large")
            raise _RejectedError

    def on_headers_complete(self) -> None:
        """The head is whole: only a path of ours is a target, only HTTP/1.0 and 1.1 are spoken (RFC 9110, 15.6.6)."""
        self._is_reading_head, self._has_begun, self._bytes_beside = False, False, 0
        self._stop_waiting()
        if self.parser.get_http_version() not in _VERSIONS:
            self._refused = (505, "HTTP Version Not Supported")
            raise _RejectedError
        if (
            not self.url.startswith(b"/")
            or b"#" in self.url
            or self.parser.get_method() == b"CONNECT"
        ):
            raise _RejectedError  # an absolute target or CONNECT: this is no proxy
        self._is_upgrade = self.parser.should_upgrade()
        if not self._is_upgrade:
            self.headers += self._upgrades  # the application says that there is no WebSocket
            self._upgrades = ()
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._chunk_bytes = 0

    def on_chunk_complete(self) -> None:
        """A chunk is whole: its size and line ends are forgiven, up to as many bytes as it carries."""
        self._bytes_beside -= min(len(b"%x" % self._chunk_bytes) + 4, self._chunk_bytes)

    def on_body(self, body: bytes) -> None:
        """A piece of the body, which others count."""
        self._bytes_beside -= len(body)
        self._chunk_bytes += len(body)
        self._body_pieces.append(body)

    def on_message_complete(self) -> None:
        """The next that comes is a head."""
        self._hand_over_body()
        self._is_reading_head, self._bytes_beside = True, 0
        if not self._is_upgrade:
            super().on_message_complete()

    def _hand_over_body(self) -> None:
        """Pass on what was read of a body in one piece: the server copies all of it for each piece."""
        if self._body_pieces:
            body = b"".join(self._body_pieces)
            self._body_pieces.clear()
            super().on_body(body)

    def shutdown(self) -> None:
        """The gateway is stopping: a request that has not come whole has a little time for that."""
        super().shutdown()
        if self._is_unread():
            self.loop.call_later(_STOPPING_SECONDS, self._end_unread)

    def _end_unread(self) -> None:
        if self._is_unread():
            self._refused = (503, "Service Unavailable")
            self.send_400_response("")

    def _is_unread(self) -> bool:
        """Does the body of a request still come, with no answer begun?"""
        cycle = self.cycle
        return (
            cycle is not None
            and cycle.more_body
            and not (cycle.response_started or cycle.disconnected)
        )

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the server's signature
        """Refuse what is no request, and close. An answer that is under way is not written into."""
        if not self.transport.is_closing() and not self._is_answering():
            status, phrase = self._refused
            self.transport.write(
                f"HTTP/1.1 {status} {phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
            )
        self.transport.close()

    def _is_answering(self) -> bool:
        """Is part of an answer on its way, so that nothing else may be written?"""
        begun = (
            self.cycle is not None
            and self.cycle.response_started
            and not self.cycle.response_complete
        )
        return begun or bool(self.pipeline)

    def _wait(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(self._limits.head_seconds, self._too_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()  # a next request began while this one is answered
            return
        self._refused = (408, "Request Timeout")
        self.send_400_response("")


def create_protocol(limits: Limits) -> type[LimitedProtocol]:
    """The protocol with these limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"_limits": limits})
