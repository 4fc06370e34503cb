"""Bodies as they come from clients, within limits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from refold.gateway.answers import Refused

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Gone(Exception):  # noqa: N818 - it is what happened, not an error
    """The client has closed its connection."""


async def read_body(receive: Receive, limit: int, silence: float, declared: int | None) -> bytes:
    """The whole body. Raises `Refused` (413 above *limit* bytes, 408 after *silence* seconds) and `Gone`."""
    pieces, size = list[bytes](), 0
    async for piece in body_pieces(receive, limit, silence, declared):
        pieces.append(piece)
        size += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def body_pieces(receive: Receive, limit: int, silence: float, declared: int | None) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises as `read_body` does."""
    if declared is not None and declared > limit:
        raise _too_large(limit)
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(silence):
                message = await receive()
        except TimeoutError as error:
            raise Refused(408, f"Nothing of the body came for {silence:g} seconds.", close=True) from error
        if message["type"] == "http.disconnect":
            raise Gone
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if piece:
            yield piece


def _too_large(limit: int) -> Refused:
    return Refused(413, f"The request is larger than the {limit:,} bytes that this gateway takes.", close=True)
