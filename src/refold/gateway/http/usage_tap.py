"""Usage read from answers on the side: bytes are neither changed nor kept waiting."""

from collections.abc import Iterator, Mapping
from typing import Any

from refold.gateway.http.encodings import create_decoder
from refold.gateway.http.sse import EventSplitter, event_data, parse_event
from refold.text.canonical_json import parse_or_none

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
        self._decoder = create_decoder(encoding)
        self._is_readable = self._decoder is not None
        """No more in an unknown or broken coding, and to an answer that is too large."""
        is_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._events = EventSplitter() if is_stream else None
        self._pieces, self._room = list[bytes](), MAX_STREAM_BYTES if is_stream else MAX_BODY_BYTES
        self._usage: Any = None
        self._is_final = False

    def feed(self, piece: bytes) -> Iterator[None]:
        """Listen to a piece of the body as it came, in steps; between two of them others may work.
        Never raises."""
        if self._decoder is None or not self._is_readable:
            return
        try:
            for step, plain in enumerate(self._decoder.feed(piece)):
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
    if not isinstance(value, Mapping):
        return None
    for holder in (value, value.get("response"), value.get("message")):
        if isinstance(holder, Mapping):
            for name in ("usage", "usageMetadata"):
                if isinstance(holder.get(name), Mapping):
                    return holder[name]  # type: ignore[no-any-return]  # checked one line above
    return None


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
