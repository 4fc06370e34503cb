"""A client's connection: a head and the body behind it in one piece, a system call less for each answer; and no wait
for ever for a client that takes nothing."""

from asyncio import AbstractEventLoop
from typing import Any


class Together:
    """A transport that keeps an answer's head back until what follows it is written, at most until the event loop turns.

    When it is closed, what was written is still sent, as long as the client takes some of it every *patience* seconds.
    """

    def __init__(self, transport: Any, loop: AbstractEventLoop, patience: float) -> None:
        self._transport, self._loop, self._patience, self._head = transport, loop, patience, b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Is it closed, or about to be?"""
        return bool(self._transport.is_closing())

    def write(self, data: bytes) -> None:
        """Send *data*, a head with what comes next."""
        if not self._head and data.startswith(b"HTTP/1.") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Send what is kept back, and close."""
        self._flush()
        self._transport.close()
        self._linger(before=0)

    def _linger(self, before: int) -> None:
        """Wait for the client to take what is left; less than there was *before*, 0 for the first look."""
        left = self._transport.get_write_buffer_size()
        if left and left == before:
            self._transport.abort()
        elif left:
            self._loop.call_later(self._patience, self._linger, left)

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)
