"""A payload taken apart without losing a byte: what surrounds the conversation, and its entries.

Three kinds of payload, each given back as it came: a list of messages, a request body, or the
JSON text of either (`str` or `bytes`). JSON text is split into spans, so that entries and fields
nobody touched keep their spelling: numbers beyond 64 bits, duplicate keys, key order, lone
surrogates, bytes that are no UTF-8.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.decoder import WHITESPACE, JSONDecoder  # type: ignore[attr-defined]
from operator import is_
from typing import Any

from refold.codec import Codec, Wire
from refold.errors import FormatError
from refold.messages import Part

FIELDS = ("messages", "input", "contents")
"""Fields that hold a conversation, in the formats we know."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """A value inside a JSON text, not parsed. Spans are equal when they are spelled alike."""

    text: str
    start: int
    stop: int
    order: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and self.spelling == other.spelling

    def __hash__(self) -> int:
        return hash(self.spelling)

    @property
    def spelling(self) -> str:
        """The value as it is written."""
        return self.text[self.start : self.stop]

    def load(self) -> Any:
        """The parsed value."""
        return _scan(self.text, self.start)[0]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A payload of any kind, opened, before its format is known."""

    field: str
    """The field that holds the entries; empty for a bare list."""
    body: Mapping[str, Any]
    """Every other field, parsed."""
    wires: Sequence[Any]
    """The entries: parsed objects, or spans of a JSON text."""
    close: Callable[[list[Any]], Any]
    """Puts entries back where they came from."""


@dataclass(frozen=True, slots=True)
class Envelope:
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

    def item(self, index: int) -> Wire:
        """The entry at *index*, parsed."""
        return _load(self.parcel.wires[self.head + index])

    def items(self, start: int = 0) -> Iterator[Wire]:
        """The entries from *start* on, parsed one at a time."""
        return (_load(self.parcel.wires[i]) for i in range(self.head + start, len(self.parcel.wires)))

    @property
    def system(self) -> tuple[Part, ...]:
        """The system prompt, wherever the format keeps it."""
        return self.codec.system(self.body, [_load(wire) for wire in self.parcel.wires[: self.head]])

    @property
    def tools(self) -> tuple[str, ...]:
        """Each tool definition as canonical JSON."""
        return self.codec.tools(self.body)

    def seal(self, pieces: Iterable[slice | Wire]) -> Any:
        """The payload with these entries: a slice stands for untouched ones, anything else for itself."""
        wires, out = self.parcel.wires, list(self.parcel.wires[: self.head])
        for piece in pieces:
            if isinstance(piece, slice):
                out += wires[piece.start + self.head : piece.stop + self.head]
            else:
                out.append(piece)
        return self.parcel.close(out)


def unpack(payload: Any) -> Parcel:
    """Open a payload of any kind. Raises `FormatError` when it holds no conversation."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return _of_json(bytes(payload).decode("utf-8", "surrogateescape"), _to_bytes)
    if isinstance(payload, str):
        return _of_json(payload, str)
    if isinstance(payload, Mapping):
        return _of_body(payload)
    if isinstance(payload, Sequence):
        return Parcel("", {}, payload, _as_it_is)
    raise FormatError(f"a payload is a list of messages, a request body or JSON text, not {type(payload).__name__}")


def _as_it_is(wires: list[Any]) -> list[Any]:
    return wires


def _of_body(payload: Mapping[str, Any]) -> Parcel:
    field = _field(payload)
    value = payload[field]
    if isinstance(value, str):
        return Parcel(field, _without(payload, field), [value], lambda wires: {**payload, field: _lone(wires)})
    if not isinstance(value, Sequence):
        raise FormatError(f"{field!r} must be a list of messages, not {type(value).__name__}")
    return Parcel(field, _without(payload, field), value, lambda wires: {**payload, field: wires})


def _field(payload: Mapping[str, Any]) -> str:
    for field in FIELDS:
        if field in payload:
            return field
    raise FormatError(f"no conversation in this object: it has none of {', '.join(FIELDS)}")


def _without(payload: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    return {key: value for key, value in payload.items() if key != field}


def _lone(wires: list[Any]) -> Any:
    return wires[0] if len(wires) == 1 and isinstance(wires[0], str) else wires


# --- JSON text -------------------------------------------------------------------------------

_decoder = JSONDecoder(strict=False)
"""Python's own scanner: it says where a value ends, keeps big integers and accepts lone surrogates."""


def _scan(text: str, at: int) -> tuple[Any, int]:
    try:
        return _decoder.raw_decode(text, _skip(text, at))
    except ValueError as error:
        raise FormatError(f"malformed JSON: {error}") from error
    except RecursionError as error:
        raise FormatError("malformed JSON: nested too deeply to read") from error


def _skip(text: str, at: int) -> int:
    return WHITESPACE.match(text, at).end()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Array:
    """The conversation inside a JSON text; a lone string is its own only entry."""

    start: int
    stop: int
    wires: list[Span]


def _of_json(text: str, give: Callable[[str], Any]) -> Parcel:
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    if text.startswith("[", start):
        field, body, array = "", dict[str, Any](), _array(text, start)
        end = array.stop
    elif text.startswith("{", start):
        field, body, array, end = _object(text, start)
    else:
        raise FormatError("a payload is a JSON list of messages or a JSON object")
    if _skip(text, end) != len(text):
        raise FormatError(f"malformed JSON: more text after the end of the payload, at character {end}")
    return Parcel(field, body, array.wires, lambda out: give(_replaced(text, array, out)))


def _array(text: str, start: int) -> _Array:
    wires, at = list[Span](), _skip(text, start + 1)
    if text.startswith("]", at):
        return _Array(start, at + 1, wires)
    more = True
    while more:
        stop = _scan(text, at)[1]
        wires.append(Span(text, at, stop, len(wires)))
        at, more = _next(text, stop, "]")
    return _Array(start, at, wires)


def _object(text: str, at: int) -> tuple[str, dict[str, Any], _Array, int]:
    """Field name, other fields, the conversation, and where the object ends."""
    body: dict[str, Any] = {}
    at = _skip(text, at + 1)
    more = not text.startswith("}", at)
    at += not more
    while more:
        key, at = _scan(text, at)
        at = _skip(text, at)
        if not isinstance(key, str) or not text.startswith(":", at):
            raise FormatError(f"malformed JSON: a field name was expected before character {at}")
        body[key], at = _value(text, _skip(text, at + 1), key)
        at, more = _next(text, at, "}")
    field = _field(body)
    array = body.pop(field)
    if not isinstance(array, _Array):
        raise FormatError(f"{field!r} must be a list of messages, not {type(array).__name__}")
    return field, {k: _scan(text, v.start)[0] if isinstance(v, _Array) else v for k, v in body.items()}, array, at


def _value(text: str, start: int, key: str) -> tuple[Any, int]:
    """A field's value and where it ends; lists and strings that may be the conversation are not parsed."""
    if key in FIELDS and text.startswith("[", start):
        array = _array(text, start)
        return array, array.stop
    value, stop = _scan(text, start)
    if key in FIELDS and isinstance(value, str):
        return _Array(start, stop, [Span(text, start, stop)]), stop
    return value, stop


def _next(text: str, at: int, end: str) -> tuple[int, bool]:
    """Where the next element starts or the whole ends, and whether there is a next one."""
    at = _skip(text, at)
    if text.startswith(",", at):
        return _skip(text, at + 1), True
    if not text.startswith(end, at):
        raise FormatError(f"malformed JSON: ',' or {end!r} was expected at character {at}")
    return at + 1, False


def _replaced(text: str, array: _Array, out: Sequence[Any]) -> str:
    """*text* with other entries: between two that were neighbours stands what stood there."""
    if len(array.wires) == len(out) and all(map(is_, array.wires, out)):
        return text
    parts = [text[: array.start], "["]
    for before, wire in zip([None, *out], out, strict=False):
        if before is not None:
            parts.append(_between(before, wire))
        parts.append(wire.spelling if isinstance(wire, Span) else dump(wire))
    return "".join([*parts, "]", text[array.stop :]])


def _between(before: Any, wire: Any) -> str:
    if isinstance(before, Span) and isinstance(wire, Span) and wire.order == before.order + 1:
        return before.text[before.stop : wire.start]
    return ","


def dump(value: Any) -> str:
    """Compact JSON; characters stay as they are unless UTF-8 has no form for one of them."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _load(wire: Any) -> Wire:
    return wire.load() if isinstance(wire, Span) else wire
