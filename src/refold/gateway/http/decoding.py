"""Decoders for content codings and server-sent events, to inspect traffic that passes unchanged and
is never recompressed. Output comes in small steps, so that the reader can stop, or let others work,
before a small body has become a large one."""

import asyncio
import json
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from refold.text.json_values import dig, parse_or_none, without_keys

try:
    import zstandard
except ImportError:  # without the extra `zst` such bodies pass through unread
    zstandard = None  # type: ignore[assignment]
try:
    import brotli
except ImportError:  # without the extra `br`, too
    brotli = None

MAX_PARTS = 10_000
"""Maximum gzip members or zstd frames in a body."""
STEP_BYTES = 16 * 1024
"""Bytes decoded per step. Data after the end of a member is copied, so steps are small."""
ZSTD_STEP_BYTES = 128
"""Bytes of zstd decoded per step. Its output cannot be limited; for this input it is up to 4
MiB."""
MAX_OUTPUT_BYTES = 64 * 1024
"""Maximum output per step, except for zstd. Brotli treats it as approximate."""


@dataclass(frozen=True, slots=True)
class _Coding:
    """The decoder functions of one library."""

    begin: Callable[[], Any]
    step: Callable[[Any, bytes], tuple[bytes, bytes]]
    """Return the next output and the input that is left to decode."""
    is_over: Callable[[Any], bool]
    may_buffer_output: bool = False
    """Whether further output may follow without further input."""
    parts: int = 1


class Decoder:
    """An incremental decoder of one body in one coding."""

    def __init__(self, coding: _Coding) -> None:
        self._coding, self._reader = coding, coding.begin()
        self._left, self._is_filled = coding.parts - 1, False

    @property
    def is_complete(self) -> bool:
        """Whether the input so far is a whole body."""
        return self._coding.is_over(self._reader)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes of a piece in small steps. Raises the library's error for broken
        data, and ValueError for data after the end. Exhaust it before feeding the next piece."""
        coding = self._coding
        for at in range(0, len(piece), STEP_BYTES):
            rest, plain = piece[at : at + STEP_BYTES], b""
            while rest or (plain and coding.may_buffer_output):
                if coding.is_over(self._reader) and not (rest := self._behind(rest)):
                    break
                plain, rest = coding.step(self._reader, rest)
                if plain:
                    yield plain

    def _behind(self, rest: bytes) -> bytes:
        """Return what follows a member: another one, or zero padding up to the end (gzip's
        manual)."""
        following = rest.lstrip(b"\0")
        self._is_filled = self._is_filled or len(following) < len(rest)
        if following:
            if self._is_filled or not self._left:
                raise ValueError("more follows than a body")
            self._left -= 1
            self._reader = self._coding.begin()
        return following


class PlainDecoder:
    """A decoder for bodies without a coding. It yields the same objects."""

    is_complete = True

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the piece."""
        yield piece


def create_decoder(encoding: str) -> Decoder | PlainDecoder | None:
    """Return a decoder for this coding; None if there is none here."""
    if is_identity(encoding):
        return PlainDecoder()
    match encoding.strip().lower():
        case "gzip" | "x-gzip":
            return Decoder(_GZIP)
        case "deflate":
            return Decoder(_DEFLATE)
        case "zstd" if zstandard is not None:
            return Decoder(_ZSTD)
        case "br" if brotli is not None:
            return Decoder(_BROTLI)
    return None


def is_identity(encoding: str) -> bool:
    """Return whether there is nothing to decode."""
    return encoding.strip().lower() in {"", "identity"}


def decode_body(body: bytes, encoding: str, limit: int) -> bytes | None:
    """Return *body* decoded, the same object if no coding is named. None if the coding is unknown,
    the data is broken, truncated or longer than a body, or the output exceeds *limit* bytes."""
    reader = create_decoder(encoding)
    if reader is None:
        return None
    pieces, size = list[bytes](), 0
    try:
        for plain in reader.feed(body):
            pieces.append(plain)
            size += len(plain)
            if size > limit:
                return None
    except Exception:  # noqa: BLE001 - broken data, for which libraries have different errors
        return None
    return b"".join(pieces) if reader.is_complete else None


def decode_piece(reader: Decoder | PlainDecoder | None, piece: bytes, limit: int) -> bytes | None:
    """Return the decoded next piece of a body, or of broken data the part before the error. None if
    there is no such part, more than *limit* bytes, or no *reader*."""
    if reader is None:
        return None
    plain = bytearray()
    try:
        for part in reader.feed(piece):
            plain += part
            if len(plain) > limit:
                return None
    except Exception:  # noqa: BLE001 - broken data concerns only upstream and client
        return bytes(plain) or None
    return bytes(plain)


class DecodingThreads:
    """Threads that decode whole bodies without blocking the event loop; two, to limit the memory
    used."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2, "refold-unpack")

    async def decode(self, body: bytes, encoding: str, limit: int) -> bytes | None:
        """Return the result of `decode_body`, or *body* at once and of any size if it is not
        coded."""
        if is_identity(encoding):
            return body
        work = partial(decode_body, body, encoding, limit)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _inflate(reader: Any, piece: bytes) -> tuple[bytes, bytes]:
    plain = reader.decompress(piece, MAX_OUTPUT_BYTES)
    return plain, reader.unused_data if reader.eof else reader.unconsumed_tail


def _zstd_step(reader: Any, piece: bytes) -> tuple[bytes, bytes]:
    plain = reader.decompress(piece[:ZSTD_STEP_BYTES])
    return plain, (reader.unused_data if reader.eof else b"") + piece[ZSTD_STEP_BYTES:]


def _is_over(reader: Any) -> bool:
    return bool(reader.eof)


_GZIP = _Coding(partial(zlib.decompressobj, wbits=31), _inflate, _is_over, parts=MAX_PARTS)
_DEFLATE = _Coding(zlib.decompressobj, _inflate, _is_over)
_ZSTD = _Coding(
    lambda: zstandard.ZstdDecompressor().decompressobj(), _zstd_step, _is_over, parts=MAX_PARTS
)
_BROTLI = _Coding(
    lambda: brotli.Decompressor(),  # noqa: PLW0108 - it may be missing
    lambda reader, piece: (reader.process(piece, output_buffer_limit=MAX_OUTPUT_BYTES), b""),
    lambda reader: bool(reader.is_finished()),
    may_buffer_output=True,
)


# --- server-sent events ---------------------------------------------------------------------------

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Maximum bytes of one event. Longer ones are skipped."""
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LINES = re.compile(rb"\r\n|\n|\r")

EventKind = Literal["opening", "error", "content"]


class EventSplitter:
    """Splits a stream, in pieces of any size, into events without their final blank lines."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._seen = 0
        self._skips = False

    def is_whole_events(self, piece: bytes) -> bool:
        """Return whether *piece* consists of whole events, and none is pending."""
        return not self._pending and not self._skips and piece.endswith(_EVENT_ENDS)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the events that *piece* completes."""
        if self.is_whole_events(piece) and b"\r" not in piece:  # as most servers write them
            yield from piece.split(b"\n\n")[:-1]
            return
        self._pending += piece
        start = 0
        for end in _END.finditer(self._pending, max(0, self._seen - 3)):
            if end.start() >= start:
                if not self._skips:
                    yield bytes(self._pending[start : end.start()])
                self._skips = False
                start = end.end()
        del self._pending[:start]
        self._skips = self._skips or len(self._pending) > MAX_EVENT_BYTES
        if self._skips:
            del self._pending[:-3]
        self._seen = len(self._pending)

    def remainder(self) -> bytes:
        """Return the incomplete event so far."""
        return b"" if self._skips else bytes(self._pending)


def event_data(event: bytes) -> bytes:
    """Return the data of an event; empty for a comment."""
    lines = (line for line in _LINES.split(event) if line.startswith(b"data:"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)


def parse_event(event: bytes) -> Any:
    """Return the parsed data of an event; None if it is not JSON."""
    return parse_or_none(event_data(event))


_OPENINGS = ("response.created", "response.queued", "response.in_progress", "ping")
"""Types of events at the beginning of a stream that show no result yet. A tuple, because a type
that is not a text may not be hashable."""


def classify_event(event: bytes) -> EventKind:
    """Return whether an event at the beginning of a stream is an error, content, or neither yet."""
    data = event_data(event)
    if not data:
        return "opening"
    if len(data) > 65_536 or not data.startswith(b"{"):
        return "content"
    value = parse_event(event)
    kind = dig(value, "type")
    if kind in ("error", "response.failed") or dig(value, "error"):
        return "error"
    return "opening" if kind in _OPENINGS else "content"


def error_body(event: bytes) -> bytes:
    """Return the body that an error event would have had as a response with its own status."""
    value = parse_event(event)
    if isinstance(dig(value, "response"), dict):
        value = {"error": dig(value, "response", "error")}
    elif dig(value, "type") == "error" and "error" not in value:
        value = {"error": without_keys(value, "sequence_number")}
    return json.dumps(value).encode()
