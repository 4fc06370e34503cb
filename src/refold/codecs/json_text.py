"""A conversation inside a JSON text, found without parsing the rest of it, and put back.

The text of a request is split into spans, so that entries and fields nobody touched keep their
spelling: numbers beyond 64 bits, duplicate keys, key order, lone surrogates, bytes that are no
UTF-8. Bytes are never decoded as a whole: they are scanned as Latin-1, in which a character is a
byte, and a span is decoded when its value is wanted.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain, islice
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Any, Protocol

from refold.codecs.json_spans import JsonList, Source, Span, scan
from refold.errors import FormatError
from refold.text.json_values import JsonObject, Record

_SEPARATOR = re.compile(r"[ \t\n\r]*+([,\]}])[ \t\n\r]*+")
"""What follows an element."""
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class KnownPrefix(Protocol):
    """The entries at the beginning of a list that a text before had too."""

    entries: JsonList

    def store(self, entries: JsonList) -> None:
        """Remember all *entries* of the list for the next text."""


PrefixLookup = Callable[[Source, int], KnownPrefix | None]
"""What `refold.codecs.json_spans` knows of the list that begins at a position of a text."""


def split_json(
    source: Source, fields: Sequence[str], lookup: PrefixLookup | None = None
) -> tuple[str, Record, JsonList]:
    """Return the field of the conversation, every other field, and the entries.

    The conversation is the list itself (its field is empty), or the value of the first of *fields*
    that is there. Raises `FormatError` for malformed JSON and for an object without one.
    """
    text = source if isinstance(source, str) else source.decode("latin-1")
    reader = _Reader(source, text, fields, lookup)
    start = reader.skip(reader.first)
    if text.startswith("[", start):
        field, body, entries = "", JsonObject(), reader.read_list(start)
        end = entries.stop
    elif text.startswith("{", start):
        body, end = reader.read_object(start)
        field = conversation_field(body, fields)
        entries = body.pop(field)
        if not isinstance(entries, JsonList):
            raise FormatError(f"{field!r} must be a list of messages, not {type(entries).__name__}")
        for name, value in body.items():
            if isinstance(value, JsonList):
                body[name] = reader.read_value(value.start)[0]
    else:
        raise FormatError("a payload is a JSON list of messages or a JSON object")
    if reader.skip(end) != len(text):
        problem = f"more text after the end of the payload, at character {end}"
        raise FormatError(f"malformed JSON: {problem}")
    return field, body, entries


@dataclass(frozen=True, slots=True)
class _Reader:
    source: Source
    text: str
    """The source as text whose positions are those of the source."""
    fields: Sequence[str]
    lookup: PrefixLookup | None
    is_exact: bool = field(init=False)
    """Whether *text* reads as the source does: Latin-1 does for ASCII."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_exact", self.text is self.source or self.text.isascii())

    @property
    def first(self) -> int:
        """Where the text begins, behind a byte order mark."""
        mark = "\ufeff" if isinstance(self.source, str) else "\xef\xbb\xbf"
        return len(mark) if self.text.startswith(mark) else 0

    def skip(self, at: int) -> int:
        """Return the next position that is no white space."""
        return WHITESPACE.match(self.text, at).end()  # type: ignore[no-any-return]

    def read_list(self, start: int) -> JsonList:
        prefix = self.lookup(self.source, start) if self.lookup else None
        entries = prefix.entries if prefix is not None else JsonList(self.source, start)
        if entries:
            at, has_next = self.next(entries.extent(slice(0, len(entries))).stop, "]")
        else:
            at, has_next = self.enter(start, "]")
        while has_next:
            stop = scan(self.text, at)[1]
            entries.add(at, stop)
            at, has_next = self.next(stop, "]")
        entries.stop = at
        if prefix is not None:
            prefix.store(entries)
        return entries

    def read_object(self, start: int) -> tuple[JsonObject, int]:
        """Return the fields of the object that begins at *start*, and where it ends."""
        body: JsonObject = {}
        at, has_next = self.enter(start, "}")
        while has_next:
            key, at = self.read_value(at)
            at = self.skip(at)
            if not isinstance(key, str) or not self.text.startswith(":", at):
                problem = f"a field name was expected before character {at}"
                raise FormatError(f"malformed JSON: {problem}")
            read = self.read_candidate if key in self.fields else self.read_value
            body[key], at = read(self.skip(at + 1))
            at, has_next = self.next(at, "}")
        return body, at

    def read_value(self, start: int) -> tuple[Any, int]:
        """Parse a value; return it and where it ends."""
        value, stop = scan(self.text, start)
        return (value if self.is_exact else Span(self.source, start, stop).load()), stop

    def read_candidate(self, start: int) -> tuple[Any, int]:
        """Read a value that may be the conversation: a list or a string is not parsed."""
        if self.text.startswith("[", start):
            entries = self.read_list(start)
            return entries, entries.stop
        value, stop = self.read_value(start)
        if isinstance(value, str):
            value = JsonList(self.source, start, [start], [stop])
            value.stop = stop
        return value, stop

    def enter(self, start: int, end: str) -> tuple[int, bool]:
        """Return where the first element starts or the whole ends, and whether there is one."""
        at = self.skip(start + 1)
        is_empty = self.text.startswith(end, at)
        return at + is_empty, not is_empty

    def next(self, at: int, end: str) -> tuple[int, bool]:
        """Return where the next element starts or the whole ends, and whether there is one."""
        match = _SEPARATOR.match(self.text, at)
        if match is not None and match[1] == ",":
            return match.end(), True
        if match is None or match[1] != end:
            problem = f"',' or {end!r} was expected at character {self.skip(at)}"
            raise FormatError(f"malformed JSON: {problem}")
        return match.end(1), False


def conversation_field(body: Record, fields: Sequence[str]) -> str:
    """Return the first of *fields* that *body* has. Raises `FormatError` if it has none."""
    for name in fields:
        if name in body:
            return name
    raise FormatError(f"no conversation in this object: it has none of {', '.join(fields)}")


def join_json(entries: JsonList, pieces: Iterable[slice | Any]) -> Source:
    """Return the source of *entries* with *pieces* as its entries.

    A slice stands for entries as they are, anything else for itself. Between neighbours stands
    what stood there; all entries give back the source itself.
    """
    source, runs = entries.source, _join_runs(pieces)
    first = list(islice(runs, 2))
    if first == ([slice(0, len(entries))] if entries else []):
        return source
    pieces = chain(first, runs)
    if isinstance(source, str):
        return "".join(_write(source, entries, pieces, str))
    out = BytesIO()
    out.writelines(_write(memoryview(source), entries, pieces, str.encode))  # slices copy nothing
    return out.getvalue()


def _join_runs(pieces: Iterable[slice | Any]) -> Iterator[slice | Any]:
    """Join slices that follow one another, and drop empty ones."""
    run = slice(0, 0)
    for piece in pieces:
        if isinstance(piece, slice) and piece.start == run.stop:
            run = slice(run.start, piece.stop)
            continue
        if run.start < run.stop:
            yield run
        run = piece if isinstance(piece, slice) else slice(-1, -1)
        if not isinstance(piece, slice):
            yield piece
    if run.start < run.stop:
        yield run


def _write(
    source: Any, entries: JsonList, pieces: Iterable[Any], encode: Callable[[str], Any]
) -> Iterator[Any]:
    """Yield what stands around the entries, and the entries."""
    yield source[: entries.start]
    mark = "["
    for piece in pieces:
        yield encode(mark)
        mark = ","
        if isinstance(piece, slice):
            yield source[entries.extent(piece)]
        else:
            yield encode(dump(piece))
    yield encode("]" if mark == "," else "[]")
    yield source[entries.stop :]


def dump(value: Any) -> str:
    """Return compact JSON, in ASCII if UTF-8 has no form for one of its characters."""
    text = _to_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text
