"""The beginning of an upstream's answer: looked at before the client gets anything of it."""

import asyncio
from dataclasses import dataclass, field

from refold.gateway.http.connection import Response
from refold.gateway.http.encodings import create_decoder, decode_piece
from refold.gateway.http.sse import EventSplitter, classify_event, error_body

MAX_ERROR_BYTES = 1024 * 1024
"""Bytes of an error's body that are read before it is passed on; unpacked, too."""
_MAX_HELD_BYTES = 256 * 1024


@dataclass(slots=True)
class ResponseStart:
    """What has been read of an answer so far."""

    pieces: list[bytes] = field(default_factory=list)
    """As they came; to be sent before the rest."""
    error: bytes | None = None
    """The body of the error that the answer is, in plain bytes; None if it is none."""
    is_stream_event: bool = False
    """Did the error come as an event of a stream that began well?"""
    is_unreadable: bool = False
    """Could it not be read, since it is too large or in a coding that is not known?"""

    def error_status(self, status: int) -> int:
        """Return the status of the error in an answer of this *status*: one that begins a stream
        has none itself."""
        return 400 if self.is_stream_event else status


async def peek(response: Response, hold_seconds: float) -> ResponseStart:
    """Look at how an answer begins: the whole of an error with a status of its own, the first
    telling event of a stream, nothing of anything else.

    Events that tell nothing (`response.created`, comments) are held for at most *hold_seconds*.
    """
    start = ResponseStart()
    if response.status >= 400:
        await _read_error(response, start)
    elif response.media_type == "text/event-stream":
        try:
            async with asyncio.timeout(None) as held:
                await _read_events(response, start, held, hold_seconds)
        except TimeoutError:
            if not held.expired():
                raise
    return start


async def _read_error(response: Response, start: ResponseStart) -> None:
    size = 0
    while size <= MAX_ERROR_BYTES and (piece := await response.read()):
        start.pieces.append(piece)
        size += len(piece)
    if size <= MAX_ERROR_BYTES:
        reader = create_decoder(response.header(b"content-encoding"))
        start.error = decode_piece(reader, b"".join(start.pieces), MAX_ERROR_BYTES)
    start.is_unreadable = start.error is None


async def _read_events(
    response: Response, start: ResponseStart, held: asyncio.Timeout, hold_seconds: float
) -> None:
    """Read until an event tells something; *held* begins with the first piece."""
    reader, events = create_decoder(response.header(b"content-encoding")), EventSplitter()
    start.is_unreadable = reader is None
    size, room = 0, MAX_ERROR_BYTES
    while not start.is_unreadable and size < _MAX_HELD_BYTES and (piece := await response.read()):
        if not start.pieces:
            held.reschedule(asyncio.get_running_loop().time() + hold_seconds)
        start.pieces.append(piece)
        size += len(piece)
        plain = decode_piece(reader, piece, room)
        start.is_unreadable, room = plain is None, room - len(plain or b"")
        for event in events.feed(plain or b""):
            kind = classify_event(event)
            if kind == "error":
                start.error, start.is_stream_event = error_body(event), True
            if kind != "opening":
                return
