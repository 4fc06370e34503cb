"""A payload taken apart without losing a byte: what surrounds the conversation, and its entries.

Three kinds of payload, each given back as it came: a list of messages, a request body, or the
JSON text of either (`str` or `bytes`), which keeps its spelling (`refold.codecs.json_spans`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from refold.codecs.codec import Codec, Wire
from refold.codecs.json_spans import Source, Span, Spans
from refold.codecs.json_text import Begin, conversation_field, no_beginning, open_json, rejoin
from refold.errors import FormatError
from refold.messages import Part

FIELDS = ("messages", "input", "contents")
"""Fields that hold a conversation, in the formats we know."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A payload of any kind, opened, before its format is known."""

    field: str
    """The field that holds the entries; empty for a bare list."""
    body: Mapping[str, Any]
    """Every other field, parsed."""
    wires: Sequence[Any]
    """The entries: parsed objects, or spans of a JSON text."""
    close: Callable[[Iterable[slice | Any]], Any]
    """Puts entries back where they came from; a slice stands for those that were there."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload of a known format. Positions count from the first entry after the head."""

    codec: Codec
    parcel: Parcel
    head: int
    """Number of leading system entries, which are no part of the transcript."""

    @property
    def body(self) -> Mapping[str, Any]:
        """Every field of the request but the conversation."""
        return self.parcel.body

    def __len__(self) -> int:
        return len(self.parcel.wires) - self.head

    def entry(self, index: int) -> Wire:
        """The entry at *index*, parsed."""
        return _load(self.parcel.wires[self.head + index])

    def iter_entries(self, start: int = 0) -> Iterator[Wire]:
        """The entries from *start* on, parsed one at a time."""
        return map(_load, self.parcel.wires[self.head + start :])

    @property
    def full_body(self) -> Mapping[str, Any]:
        """The request with its conversation, all of it parsed; of a bare list, the conversation."""
        return {**self.body, self.codec.FIELD: list(map(_load, self.parcel.wires))}

    @property
    def system(self) -> tuple[Part, ...]:
        """The system prompt, wherever the format keeps it."""
        return self.codec.system(self.body, [_load(wire) for wire in self.parcel.wires[: self.head]])

    @property
    def tools(self) -> tuple[str, ...]:
        """Each tool definition as canonical JSON."""
        return self.codec.tools(self.body)

    def without_entries(self) -> "Payload":
        """The same without entries of a JSON text, which would keep all of it in memory; nothing can be sealed in it."""
        parcel = self.parcel
        if not isinstance(parcel.wires, Spans):
            return self
        return Payload(self.codec, Parcel(parcel.field, parcel.body, (), _gone), 0)

    def join(self, pieces: Iterable[slice | Wire]) -> Any:
        """The payload with these entries: a slice stands for untouched ones, anything else for itself."""
        head = self.head
        moved = (slice(p.start + head, p.stop + head) if isinstance(p, slice) else p for p in pieces)
        return self.parcel.close(chain([slice(0, head)], moved))


def unpack(payload: Any, fields: Sequence[str] = FIELDS, begin: Begin = no_beginning) -> Parcel:
    """Open a payload of any kind. *begin* knows JSON texts that were opened before (`refold.codecs.prefix_cache`). Raises `FormatError` when it holds no conversation, in an object in one of *fields*."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return _of_json(bytes(payload), fields, begin)
    if isinstance(payload, str):
        return _of_json(payload, fields, begin)
    if isinstance(payload, Mapping):
        return _of_body(payload, fields)
    if isinstance(payload, Sequence):
        return Parcel("", {}, payload, partial(_laid, payload))
    raise FormatError(f"a payload is a list of messages, a request body or JSON text, not {type(payload).__name__}")


def _gone(_: Iterable[slice | Any]) -> Any:
    raise FormatError("the text that this came from is gone")


def _laid(wires: Sequence[Any], pieces: Iterable[slice | Any]) -> Any:
    """A list, or a tuple where *wires* are one."""
    out = list[Any]()
    for piece in pieces:
        if isinstance(piece, slice):
            out += wires[piece]
        else:
            out.append(piece)
    return tuple(out) if isinstance(wires, tuple) else out


def _of_body(payload: Mapping[str, Any], fields: Sequence[str]) -> Parcel:
    field = conversation_field(payload, fields)
    value = payload[field]
    if isinstance(value, str):
        lone = [value]
        return Parcel(field, _without(payload, field), lone, lambda out: {**payload, field: _lone(_laid(lone, out))})
    if not isinstance(value, Sequence):
        raise FormatError(f"{field!r} must be a list of messages, not {type(value).__name__}")
    return Parcel(field, _without(payload, field), value, lambda out: {**payload, field: _laid(value, out)})


def _without(payload: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    return {key: value for key, value in payload.items() if key != field}


def _lone(wires: list[Any]) -> Any:
    return wires[0] if len(wires) == 1 and isinstance(wires[0], str) else wires


def _of_json(source: Source, fields: Sequence[str], begin: Begin) -> Parcel:
    document = open_json(source, fields, begin)
    found = document.found
    return Parcel(document.field, document.body, found.wires, lambda out: rejoin(source, found, out))


def _load(wire: Any) -> Wire:
    return wire.load() if isinstance(wire, Span) else wire
