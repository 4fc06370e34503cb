"""Bodies as they come from clients, within limits."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from refold.gateway.http.timeout import within
from refold.gateway.messages import Refused

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Gone(Exception):  # noqa: N818 - it is what happened, not an error
    """The client has closed its connection."""


async def read_body(receive: Receive, limit: int, silence: float, declared: int | None) -> bytes:
    """The whole body. Raises `Refused` (413 above *limit* bytes, 408 after *silence* seconds) and `Gone`."""
    _check(declared or 0, limit)
    pieces, size, more = list[bytes](), 0, True
    while more:
        piece, more = await _received(receive, silence)
        size += len(piece)
        _check(size, limit)
        if piece:
            pieces.append(piece)
    return b"".join(pieces)  # of one piece it is that very piece


async def body_pieces(receive: Receive, limit: int, silence: float, declared: int | None) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises as `read_body` does."""
    _check(declared or 0, limit)
    size, more = 0, True
    while more:
        piece, more = await _received(receive, silence)
        size += len(piece)
        _check(size, limit)
        if piece:
            yield piece


async def _received(receive: Receive, silence: float) -> tuple[bytes, bool]:
    """A piece, and whether more follows."""
    try:
        message = await within(silence, receive())
    except TimeoutError as error:
        raise Refused(408, f"Nothing of the body came for {silence:g} seconds.", close=True) from error
    if message["type"] == "http.disconnect":
        raise Gone
    return message.get("body", b""), message.get("more_body", False)


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise Refused(413, f"The request is larger than the {limit:,} bytes that this gateway takes.", close=True)
