"""One client while it is being answered, and what is noted of its request."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from refold.gateway.answers import Headers
from refold.gateway.intake import Gone, Receive

Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class Note:
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
    before: int = 0
    after: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    prepare_ms: float = 0.0
    first_byte_ms: float = 0.0
    total_ms: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)
    gone: bool = False
    """The client left before the answer was complete."""
    cut: bool = False
    """The upstream broke off."""
    fault: str = ""
    """Type and places of an error of our own."""

    def fields(self) -> dict[str, Any]:
        """What is worth a place in a log line: everything that is not empty."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        rounded = {name: round(what, 2) if isinstance(what, float) else what for name, what in values.items()}
        return {name: what for name, what in rounded.items() if what}


class Caller:
    """Where the answer goes."""

    def __init__(self, send: Send, note: Note, patience: float) -> None:
        self._send, self.note, self._patience = send, note, patience
        self.began = self.complete = False

    async def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Status and headers. Nothing can be taken back after this."""
        self.began, self.note.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def piece(self, data: bytes) -> None:
        """A piece of the body, at once. Raises `Gone` when the client takes nothing for too long."""
        self.note.sent_bytes += len(data)
        try:
            async with asyncio.timeout(self._patience):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError as error:
            raise Gone from error

    async def end(self, data: bytes = b"") -> None:
        """The body is complete."""
        self.complete = True
        self.note.sent_bytes += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """An answer of our own."""
        await self.begin(status, [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers])
        await self.end(body)


def watch(receive: Receive, caller: Caller, answering: "asyncio.Task[Any] | None") -> "asyncio.Task[None]":
    """Cancel *answering* when the client leaves before its answer is complete. Cancel what is returned when done."""

    async def wait() -> None:
        message: Mapping[str, Any] = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await receive()
        if answering is not None and not caller.complete:
            caller.note.gone = True
            answering.cancel()

    return asyncio.create_task(wait())


def clock() -> float:
    """Seconds, for differences."""
    return time.perf_counter()
