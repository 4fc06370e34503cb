"""An upstream's answer: its beginning, looked at before the client gets anything of it, its way to
the client, and its usage, read on the side. Bytes are neither changed nor kept waiting."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from refold.gateway.http.caller import Caller
from refold.gateway.http.connection import Response
from refold.gateway.http.decoding import (
    EventSplitter,
    classify_event,
    create_decoder,
    decode_piece,
    error_body,
    event_data,
    parse_event,
)
from refold.text.json_values import object_at, parse_or_none

# --- its beginning -----------------------------------------------------------------------------

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


# --- its way to the client ---------------------------------------------------------------------


async def copy_body(
    response: Response,
    caller: Caller,
    start: ResponseStart | None = None,
    tap: "UsageTap | None" = None,
) -> None:
    """Copy a body to the client as it arrives. If the upstream breaks off, so does this, and it is
    logged."""
    try:
        for piece in start.pieces if start else ():
            await caller.write(piece)
            await _feed(tap, piece)
        while not response.is_exhausted:
            piece = await response.read()
            if not response.is_exhausted:
                await caller.write(piece)
                await _feed(tap, piece)
            else:  # the end goes with the last piece
                await caller.end(piece)
                await _feed(tap, piece)
                return
    except OSError:
        caller.log_entry.upstream_broke_off = True
    else:
        await caller.end()


async def _feed(tap: "UsageTap | None", piece: bytes) -> None:
    """Feed the tap in steps, between which others are served: a small piece may unpack to a large
    one."""
    if tap is not None:
        for _ in tap.feed(piece):
            await asyncio.sleep(0)


# --- its usage ---------------------------------------------------------------------------------

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Plain bytes of an answer that is no stream; a larger one's usage is not read."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Plain bytes of a stream; no usage is read behind them."""
MAX_JSON_SIGNS = 250_000
"""Commas, brackets and escapes that a text may have to be parsed: its time is theirs, whatever its
size is."""

_USAGE = b'"usage'
"""What stands in every event and answer that has usage: only those are parsed."""
_DONE = b"[DONE]"
"""The last event of Chat Completions."""
_OPENINGS = ("message_start", "response.created", "response.queued", "response.in_progress")
"""Events whose usage, if they have one, is of what was done so far."""


class UsageTap:
    """Listens to one answer. `feed` it every piece once that has been sent, then ask for
    `usage`."""

    def __init__(self, content_type: str, encoding: str = "") -> None:
        self._decoder = create_decoder(encoding) if encoding else None
        self._is_readable = self._decoder is not None or not encoding
        """No more in an unknown or broken coding, and to an answer that is too large."""
        is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._events = EventSplitter() if is_stream else None
        self._pieces, self._room = list[bytes](), MAX_STREAM_BYTES if is_stream else MAX_BODY_BYTES
        self._usage: Any = None
        self._is_final = False

    def feed(self, piece: bytes) -> Iterator[None]:
        """Listen to a piece of the body as it came, in steps; between two of them others may work.
        Never raises."""
        if not self._is_readable:
            return
        try:
            for step, plain in enumerate(self._decoder.feed(piece) if self._decoder else (piece,)):
                if step:
                    yield
                self._read_plain(plain)
                if not self._is_readable:
                    return
        except Exception:  # noqa: BLE001 - a broken coding is not our affair
            self._is_readable = False

    def _read_plain(self, plain: bytes) -> None:
        self._room -= len(plain)
        if self._room < 0:
            self._is_readable = False
            self._pieces.clear()
        elif self._events is None:
            self._pieces.append(plain)
        elif _USAGE in plain or _DONE in plain or not self._events.is_whole_events(plain):
            for event in self._events.feed(plain):
                self._read_event(event)

    def usage(self) -> Any:
        """Return the usage object as the provider sent it; None if there was none, or only one of
        the beginning: a stream that the client left or the upstream broke off has not said what it
        used."""
        if self._events is None and self._pieces:
            self._usage = _parse_usage(b"".join(self._pieces))
            self._pieces.clear()
        elif self._events is not None:
            self._read_event(self._events.remainder())
        return self._usage if self._events is None or self._is_final else None

    def _read_event(self, event: bytes) -> None:
        if _USAGE in event:
            value = parse_event(event) if is_cheap_to_parse(event) else None
            if value and (usage := find_usage(value)):
                self._usage = _merge_usage(self._usage, usage)
                self._is_final = self._is_final or is_final_usage(value)
        elif _DONE in event:
            self._is_final = self._is_final or event_data(event) == _DONE


def is_cheap_to_parse(body: bytes) -> bool:
    """Is a JSON text parsed in a moment? Nothing else runs meanwhile, in whatever thread it is
    done."""
    return sum(map(body.count, (b",", b"[", b"{", b"\\"))) <= MAX_JSON_SIGNS


def find_usage(value: Any) -> Mapping[str, Any] | None:
    """Return the usage object in an answer or an event of one of the four APIs."""
    holders = ((), ("response",), ("message",))
    places = ((*holder, name) for holder in holders for name in ("usage", "usageMetadata"))
    return next((usage for place in places if (usage := object_at(value, *place))), None)


def is_final_usage(event: Mapping[str, Any]) -> bool:
    """Is the usage in this event of a stream that of the whole answer? Anthropic's first event says
    one token of output for a start; Gemini and some servers of Chat Completions count on from event
    to event."""
    if "type" in event:
        return event["type"] not in _OPENINGS
    parts = event.get("choices") or event.get("candidates") or ()
    if not parts or not isinstance(parts, list):
        return True
    return any(
        part.get("finish_reason") or part.get("finishReason")
        for part in parts
        if isinstance(part, Mapping)
    )


def _merge_usage(earlier: Any, later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of both: Anthropic says the input when a stream begins and the output when
    it ends; others say it all last."""
    figures = {name: value for name, value in later.items() if value is not None}
    return {**(earlier or {}), **figures}


def _parse_usage(body: bytes) -> Any:
    if _USAGE not in body or not is_cheap_to_parse(body):
        return None
    value = parse_or_none(body)  # Gemini streams a list without alt=sse
    for candidate in reversed(value if isinstance(value, list) else [value]):
        if usage := find_usage(candidate):
            return dict(usage)
    return None
