"""The beginning of an upstream's answer: looked at before the client gets anything of it."""

import asyncio
from dataclasses import dataclass, field

from refold.gateway.http.encodings import is_plain, opening_of, unpacker
from refold.gateway.http.response import Reply
from refold.gateway.http.sse import Events, error_of, sort_of

LARGEST_ERROR = 1024 * 1024
"""Bytes of an error's body that are read before it is passed on; unpacked, too."""
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
    unread: bool = False
    """Could it not be read, since it is too large or in a coding that is not known?"""


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
            opening.unread = True
            return
    plain = _plain(reply, b"".join(opening.pieces))
    opening.error, opening.unread = plain or b"", plain is None


def _plain(reply: Reply, body: bytes) -> bytes | None:
    encoding = reply.header(b"content-encoding")
    if is_plain(encoding):
        return body
    reader = unpacker(encoding)
    return None if reader is None else opening_of(reader, body, LARGEST_ERROR)


async def _read_events(reply: Reply, opening: Opening, hold: float) -> None:
    encoding, events = reply.header(b"content-encoding"), Events()
    reader = None if is_plain(encoding) else unpacker(encoding)
    opening.unread = reader is None and not is_plain(encoding)
    clock = asyncio.get_running_loop().time
    until: float | None = None
    held, room = 0, LARGEST_ERROR
    while not opening.unread and held < _MOST_HELD:
        try:
            piece = await (reply.piece() if until is None else _until(until, reply))
        except _HeldError:
            return
        if not piece:
            return
        until = until or clock() + hold
        held += len(piece)
        opening.pieces.append(piece)
        plain = piece if reader is None else opening_of(reader, piece, room)
        opening.unread, room = plain is None, room - len(plain or b"")
        for event in events.feed(plain or b""):
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
