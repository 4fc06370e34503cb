"""The beginning of an upstream's answer: looked at before the client gets anything of it."""

import asyncio
from dataclasses import dataclass, field

from refold.gateway.http.connection import Response
from refold.gateway.http.encodings import create_decoder, decode_piece, is_identity
from refold.gateway.http.sse import EventSplitter, classify_event, error_body

MAX_ERROR_BYTES = 1024 * 1024
"""Bytes of an error's body that are read before it is passed on; unpacked, too."""
_MAX_HELD_BYTES = 256 * 1024


class _HoldExpiredError(Exception):
    """Events have been held for long enough."""


@dataclass(slots=True)
class ResponseStart:
    """What has been read of an answer so far."""

    pieces: list[bytes] = field(default_factory=list)
    """As they came; to be sent before the rest."""
    error: bytes | None = None
    """The body of the error that the answer is, in plain bytes; None where it is none."""
    is_stream_event: bool = False
    """Did the error come as an event of a stream that began well?"""
    is_unreadable: bool = False
    """Could it not be read, since it is too large or in a coding that is not known?"""

    def error_status(self, status: int) -> int:
        """Return the status of the error in an answer of this *status*: one that begins a stream
        has none itself."""
        return 400 if self.is_stream_event else status


async def peek(reply: Response, hold: float) -> ResponseStart:
    """Look at how an answer begins: the whole of an error with a status of its own, the first telling
    event of a stream, nothing of anything else.

    Events that tell nothing (`response.created`, comments) are held for at most *hold* seconds.
    """
    opening = ResponseStart()
    if reply.status >= 400:
        await _read_error(reply, opening)
    elif reply.media_type == "text/event-stream":
        await _read_events(reply, opening, hold)
    return opening


async def _read_error(reply: Response, opening: ResponseStart) -> None:
    size = 0
    while piece := await reply.read():
        opening.pieces.append(piece)
        size += len(piece)
        if size > MAX_ERROR_BYTES:
            opening.is_unreadable = True
            return
    plain = _decode_error(reply, b"".join(opening.pieces))
    opening.error, opening.is_unreadable = plain or b"", plain is None


def _decode_error(reply: Response, body: bytes) -> bytes | None:
    encoding = reply.header(b"content-encoding")
    if is_identity(encoding):
        return body
    reader = create_decoder(encoding)
    return None if reader is None else decode_piece(reader, body, MAX_ERROR_BYTES)


async def _read_events(reply: Response, opening: ResponseStart, hold: float) -> None:
    encoding, events = reply.header(b"content-encoding"), EventSplitter()
    reader = None if is_identity(encoding) else create_decoder(encoding)
    opening.is_unreadable = reader is None and not is_identity(encoding)
    clock = asyncio.get_running_loop().time
    until: float | None = None
    held, room = 0, MAX_ERROR_BYTES
    while not opening.is_unreadable and held < _MAX_HELD_BYTES:
        try:
            piece = await (reply.read() if until is None else _read_until(until, reply))
        except _HoldExpiredError:
            return
        if not piece:
            return
        until = until or clock() + hold
        held += len(piece)
        opening.pieces.append(piece)
        plain = piece if reader is None else decode_piece(reader, piece, room)
        opening.is_unreadable, room = plain is None, room - len(plain or b"")
        for event in events.feed(plain or b""):
            sort = classify_event(event)
            if sort == "error":
                opening.error, opening.is_stream_event = error_body(event), True
            if sort != "opening":
                return


async def _read_until(until: float, reply: Response) -> bytes:
    try:
        async with asyncio.timeout_at(until) as waiting:
            return await reply.read()
    except TimeoutError as error:
        if waiting.expired():
            raise _HoldExpiredError from error
        raise
