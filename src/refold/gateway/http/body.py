"""Bodies as they come from clients, within limits."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from refold.gateway.messages import HTTPException

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


def parse_json(body: bytes) -> Any:
    """Return what a JSON text holds; None if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


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
