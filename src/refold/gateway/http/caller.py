"""One client: the body that it sends, the answer that it gets, and what is noted of its request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from refold.gateway.messages import Headers, HTTPException

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class ClientDisconnected(Exception):  # noqa: N818 - it is what happened, not an error
    """The client has closed its connection."""


async def read_body(
    receive: Receive, limit: int, silence_seconds: float, declared: int | None
) -> bytes:
    """Return the whole body. Raises `HTTPException` (413 above *limit* bytes, 408 after *silence*
    seconds) and `ClientDisconnected`."""
    pieces = [piece async for piece in iter_body(receive, limit, silence_seconds, declared)]
    return b"".join(pieces)  # of one piece it is that very piece


async def iter_body(
    receive: Receive, limit: int, silence_seconds: float, declared: int | None
) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raises as `read_body` does."""
    _check_size(declared or 0, limit)
    size, has_more = 0, True
    while has_more:
        piece, has_more = await _receive_piece(receive, silence_seconds)
        size += len(piece)
        _check_size(size, limit)
        if piece:
            yield piece


async def _receive_piece(receive: Receive, silence_seconds: float) -> tuple[bytes, bool]:
    """Return a piece, and whether more follows."""
    try:
        async with asyncio.timeout(silence_seconds):
            message = await receive()
    except TimeoutError as error:
        raise HTTPException(
            408, f"Nothing of the body came for {silence_seconds:g} seconds.", close=True
        ) from error
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise HTTPException(
            413,
            f"The request is larger than the {limit:,} bytes that this gateway takes.",
            close=True,
        )


Send = Callable[[dict[str, Any]], Awaitable[None]]
Stop = Callable[[], object]
"""Ends what goes on until then."""
OnDisconnect = Callable[[Callable[[], None]], Stop]
"""Has a function called when the client leaves, unless that is stopped before."""
ON_DISCONNECT = "refold.leaving"
"""The ASGI extension under which our own server hands over its `OnDisconnect`."""


@dataclass(slots=True)
class AccessLogEntry:
    """What is logged and counted of one request. No content, no key."""

    method: str = ""
    path: str = ""
    api: str = ""
    upstream: str = ""
    model: str = ""
    """As the request names it."""
    status: int = 0
    outcome: str = ""
    reason: str = ""
    edits: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    prepare_ms: float = 0.0
    first_byte_ms: float = 0.0
    total_ms: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)
    client_disconnected: bool = False
    """The client left before the answer was complete."""
    upstream_broke_off: bool = False
    """The upstream broke off."""
    internal_error: str = ""
    """Type and places of an error of our own."""

    def as_fields(self) -> dict[str, Any]:
        """Return what is worth a place in a log line: everything that is not empty."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        rounded = {
            name: round(value, 2) if isinstance(value, float) else value
            for name, value in values.items()
        }
        return {name: value for name, value in rounded.items() if value}


class Caller:
    """Where the answer goes."""

    def __init__(
        self,
        send: Send,
        log_entry: AccessLogEntry,
        silence_seconds: float,
        on_disconnect: OnDisconnect | None = None,
    ) -> None:
        self._send, self.log_entry, self._silence_seconds, self.on_disconnect = (
            send,
            log_entry,
            silence_seconds,
            on_disconnect,
        )
        self.has_started = self.is_complete = False

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send status and headers. Nothing can be taken back after this. Raises
        `ClientDisconnected`, as all of these do, when the client takes nothing for too long."""
        self.has_started, self.log_entry.status = True, status
        await self._send_message(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def write(self, data: bytes) -> None:
        """Send a piece of the body, at once."""
        self.log_entry.sent_bytes += len(data)
        await self._send_message({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the end of the body, which is complete with it."""
        self.is_complete = True
        self.log_entry.sent_bytes += len(data)
        await self._send_message({"type": "http.response.body", "body": data, "more_body": False})

    async def _send_message(self, message: dict[str, Any]) -> None:
        if self.on_disconnect is not None:  # our own server aborts a client that takes nothing
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._silence_seconds):
                await self._send(message)
        except TimeoutError as error:
            raise ClientDisconnected from error

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send an answer of our own."""
        await self.start(
            status, [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
        )
        await self.end(body)


def cancel_on_disconnect(
    receive: Receive, caller: Caller, answering: "asyncio.Task[Any] | None"
) -> Stop:
    """Cancel *answering* when the client leaves before its answer is complete. Call what is
    returned when done."""

    def cancel() -> None:
        if answering is not None and not caller.is_complete:
            caller.log_entry.client_disconnected = True
            answering.cancel()

    if caller.on_disconnect is not None:
        return caller.on_disconnect(cancel)
    return asyncio.create_task(_wait_for_disconnect(receive, cancel)).cancel


async def _wait_for_disconnect(receive: Receive, tell: Callable[[], None]) -> None:
    """Call *tell* when a message says that the client has left: any other server says so."""
    while (await receive())["type"] != "http.disconnect":
        pass
    tell()
