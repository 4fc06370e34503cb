"""An upstream's answer as it arrives."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.gateway.http.connection import Connection

BUFFER_BYTES = 32 * 1024
"""Bytes that may wait to be taken; while more do, nothing is read from the upstream."""


class BrokenError(ConnectionError):
    """The upstream broke off, or what it sent is no answer."""


class Response:
    """Status and headers, once `begin` is over, and then the body piece by piece. `release` it or `close` it."""

    __slots__ = (
        "_connection",
        "_pieces",
        "_waiter",
        "buffered",
        "error",
        "has_head",
        "has_no_body",
        "headers",
        "is_complete",
        "status",
        "waiting_since",
    )

    def __init__(self, connection: "Connection", *, bodiless: bool) -> None:
        self._connection = connection
        self._pieces = list[bytes]()
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """In order, repeats included, names in lower case."""
        self.has_no_body, self.has_head, self.is_complete = bodiless, False, False
        self.error: BaseException | None = None
        self.buffered = 0
        """Bytes that wait to be taken."""
        self.waiting_since: float | None = None
        """Since when the upstream is waited for, by the clock of the event loop; None while it is not."""

    async def wait_for_head(self) -> None:
        """Wait for status and headers. Raises `BrokenError`, TimeoutError, and whatever the request's body raised."""
        while not self.has_head:
            await self._wait_for_data()

    async def read(self) -> bytes:
        """What has come since the last time; empty at the end. Raises as `begin` does."""
        while not self._pieces:
            if self.is_complete:
                return b""
            await self._wait_for_data()
        return self._take_buffered()

    @property
    def is_exhausted(self) -> bool:
        """Was everything taken?"""
        return self.is_complete and not self._pieces

    def header(self, name: bytes) -> str:
        """The first header of this name; empty where there is none."""
        return next((value for key, value in self.headers if key == name), b"").decode("latin-1")

    @property
    def media_type(self) -> str:
        """The type of the body, without parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def release(self) -> None:
        """Let the connection be used again where the answer was read to its end; else close it, which tells the
        upstream to stop."""
        self._connection.release(self)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # --- what the connection calls ----------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """A piece of the body has come."""
        self._pieces.append(piece)
        self.buffered += len(piece)

    def wake(self) -> None:
        """Something has come, or nothing will any more."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- inside -----------------------------------------------------------------------------------

    async def _wait_for_data(self) -> None:
        if self.error is not None:
            raise self.error
        loop = self._connection.loop
        self._waiter, self.waiting_since = loop.create_future(), loop.time()
        try:
            await self._waiter
        finally:
            self._waiter = self.waiting_since = None

    def _take_buffered(self) -> bytes:
        piece = b"".join(self._pieces)  # of one piece it is that very piece
        self._pieces.clear()
        if self.buffered > BUFFER_BYTES:
            self._connection.resume_reading()
        self.buffered = 0
        return piece
