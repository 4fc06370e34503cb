"""The beginning of an upstream's answer: looked at before the client gets anything of it."""

import asyncio
from dataclasses import dataclass, field

from refold.gateway.encodings import Decoder, decoder
from refold.gateway.reply import Reply
from refold.gateway.sse import Events, error_of, sort_of

LARGEST_ERROR = 1024 * 1024
"""Bytes of an error's body that are read before it is passed on."""
_MOST_HELD = 256 * 1024


class _HeldError(Exception):
    """Events have been held for long enough."""


@dataclass(slots=True)
class Opening:
    """What has been read of an answer so far."""

    pieces: list[bytes] = field(default_factory=list)
    """As they came; to be sent before the rest."""
    error: bytes | None = None
    """The body of the error that the answer is, in plain bytes; None where it is none."""
    streamed: bool = False
    """Did the error come as an event of a stream that began well?"""


async def read_opening(reply: Reply, hold: float) -> Opening:
    """Look at how an answer begins: the whole of an error with a status of its own, the first telling
    event of a stream, nothing of anything else.

    Events that tell nothing (`response.created`, comments) are held for at most *hold* seconds.
    """
    opening = Opening()
    if reply.status >= 400:
        await _read_error(reply, opening)
    elif reply.media == "text/event-stream":
        await _read_events(reply, opening, hold)
    return opening


async def _read_error(reply: Reply, opening: Opening) -> None:
    size = 0
    while piece := await reply.piece():
        opening.pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ERROR:
            return
    decode = decoder(reply.header(b"content-encoding"))
    opening.error = _plain(decode, b"".join(opening.pieces)) if decode else b""


async def _read_events(reply: Reply, opening: Opening, hold: float) -> None:
    events, decode = Events(), decoder(reply.header(b"content-encoding"))
    clock = asyncio.get_running_loop().time
    until: float | None = None
    held = 0
    while decode is not None and held < _MOST_HELD:
        try:
            piece = await (reply.piece() if until is None else _until(until, reply))
        except _HeldError:
            return
        if not piece:
            return
        until = until or clock() + hold
        held += len(piece)
        opening.pieces.append(piece)
        for event in events.feed(_plain(decode, piece)):
            sort = sort_of(event)
            if sort == "error":
                opening.error, opening.streamed = error_of(event), True
            if sort != "opening":
                return


async def _until(until: float, reply: Reply) -> bytes:
    try:
        async with asyncio.timeout_at(until) as waiting:
            return await reply.piece()
    except TimeoutError as error:
        if waiting.expired():
            raise _HeldError from error
        raise


def _plain(decode: Decoder, piece: bytes) -> bytes:
    try:
        return decode(piece)
    except Exception:  # noqa: BLE001 - a broken coding is between upstream and client
        return b""
