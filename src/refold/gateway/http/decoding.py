"""Content codings and server-sent events, read on the side: what goes through passes as it is, and
is never recompressed. All that comes out comes in small steps, so that whoever reads can stop, or
let others work, before a small body has become a large one."""

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
"""Members of gzip, or frames of zstd, that a body may consist of."""
STEP_BYTES = 16 * 1024
"""Bytes that are read at a time. What is behind the end of a part is copied, so it should not be
much."""
ZSTD_STEP_BYTES = 128
"""Bytes of zstd that are read at a time: it is not told how much may come out, which is at most 4
MiB of so many."""
MAX_OUTPUT_BYTES = 64 * 1024
"""Bytes that come out at a time, but for zstd; Brotli takes it for about that."""


@dataclass(frozen=True, slots=True)
class _Coding:
    """How one library reads."""

    begin: Callable[[], Any]
    step: Callable[[Any, bytes], tuple[bytes, bytes]]
    """What comes out of a piece next, and what of the piece is left to be read."""
    is_over: Callable[[Any], bool]
    holds_back: bool = False
    """May more come out of what went in before, until nothing does?"""
    parts: int = 1


class Decoder:
    """Reads one body as it comes, in one coding."""

    def __init__(self, coding: _Coding) -> None:
        self._coding, self._reader = coding, coding.begin()
        self._left, self._is_filled = coding.parts - 1, False

    @property
    def is_complete(self) -> bool:
        """Is what was fed a whole body?"""
        return self._coding.is_over(self._reader)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the plain bytes of a piece, a little at a time. Raises what the library raises for
        broken data, ValueError for more than a body; take all before the next piece."""
        coding = self._coding
        for at in range(0, len(piece), STEP_BYTES):
            rest, plain = piece[at : at + STEP_BYTES], b""
            while rest or (plain and coding.holds_back):
                if coding.is_over(self._reader) and not (rest := self._behind(rest)):
                    break
                plain, rest = coding.step(self._reader, rest)
                if plain:
                    yield plain

    def _behind(self, rest: bytes) -> bytes:
        """Return what follows a part: another, or zeros up to the end, which are filling (gzip's
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
    """Reads a body that is not packed: the very pieces."""

    is_complete = True

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the piece."""
        yield piece


def create_decoder(encoding: str) -> Decoder | PlainDecoder | None:
    """Return what reads a body in this coding; None if no body in it can be read here."""
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
    """Is nothing to be unpacked?"""
    return encoding.strip().lower() in {"", "identity"}


def decode_body(body: bytes, encoding: str, limit: int) -> bytes | None:
    """Return *body* in plain bytes, the very object if no coding is named; None if the coding is
    unknown, the data is broken, cut short or more than a body, or more than *limit* bytes come
    out."""
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
    except Exception:  # noqa: BLE001 - broken data, in the words of several libraries
        return None
    return b"".join(pieces) if reader.is_complete else None


def decode_piece(reader: Decoder | PlainDecoder | None, piece: bytes, limit: int) -> bytes | None:
    """Return what comes out of the next piece of a body, of broken data what came before; None if
    that is nothing or more than *limit* bytes, or there is no *reader*."""
    if reader is None:
        return None
    plain = bytearray()
    try:
        for part in reader.feed(piece):
            plain += part
            if len(plain) > limit:
                return None
    except Exception:  # noqa: BLE001 - a broken coding is between upstream and client
        return bytes(plain) or None
    return bytes(plain)


class DecodingThreads:
    """Threads that unpack whole bodies, so that the event loop goes on meanwhile; few, so that no
    more than so many are large."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2, "refold-unpack")

    async def decode(self, body: bytes, encoding: str, limit: int) -> bytes | None:
        """Return what `decode_body` returns."""
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
    holds_back=True,
)


# --- server-sent events ---------------------------------------------------------------------------

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of one event; a longer one is not read."""
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_WHOLE = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LINES = re.compile(rb"\r\n|\n|\r")

EventKind = Literal["opening", "error", "content"]


class EventSplitter:
    """Cuts a stream, however its pieces fall, into events without their final blank lines."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._seen = 0
        self._skips = False

    def is_whole_events(self, piece: bytes) -> bool:
        """Is *piece* whole events, and nothing of another pending?"""
        return not self._pending and not self._skips and piece.endswith(_WHOLE)

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
        """Return what has come of an event that is not complete."""
        return b"" if self._skips else bytes(self._pending)


def event_data(event: bytes) -> bytes:
    """Return the data of an event; empty for a comment."""
    lines = (line for line in _LINES.split(event) if line.startswith(b"data:"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)


def parse_event(event: bytes) -> Any:
    """Return the data of an event as parsed; None if it is no JSON."""
    return parse_or_none(event_data(event))


_OPENINGS = ("response.created", "response.queued", "response.in_progress", "ping")
"""Events with which a stream begins and that tell nothing yet. A tuple, since a type that is no
text cannot be hashed."""


def classify_event(event: bytes) -> EventKind:
    """Return what an event at the beginning of a stream is: an error, the stream's answer, or
    neither yet."""
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
    """Return the body that an error event would have been, had it come with a status of its own."""
    value = parse_event(event)
    if isinstance(dig(value, "response"), dict):
        value = {"error": dig(value, "response", "error")}
    elif dig(value, "type") == "error" and "error" not in value:
        value = {"error": without_keys(value, "sequence_number")}
    return json.dumps(value).encode()
