"""Server-sent events, read on the side of a stream that passes through as it is."""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from refold.text.json_values import dig, parse_or_none, without_keys

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
