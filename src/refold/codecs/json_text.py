"""A conversation inside JSON text, found without parsing what is not asked for, and put back.

The text of a request is split into spans, so that entries and fields nobody touched keep their
spelling: numbers beyond 64 bits, duplicate keys, key order, lone surrogates, bytes that are no
UTF-8. Bytes are never decoded as a whole: they are scanned as Latin-1, in which a character is a
byte, and a span is decoded when its value is wanted.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain, islice
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Any, Protocol

from refold.codecs.json_spans import Source, Span, Spans, scan
from refold.errors import FormatError

_BEHIND = re.compile(r"[ \t\n\r]*+([,\]}])[ \t\n\r]*+")
"""What follows an element."""
_spelled = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Reading(Protocol):
    """What is known of a list of entries before it is read (`refold.codecs.prefix_cache`)."""

    wires: Spans

    def done(self, wires: Spans) -> None:
        """All entries are found."""


Begin = Callable[[Source, int], Reading | None]
"""What is known of the list that begins at a position of a text."""


def no_beginning(source: Source, start: int) -> None:
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The list of entries inside a JSON text; a lone string is its own only entry."""

    start: int
    stop: int
    wires: Spans


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON text opened: a list of entries, or an object with one in a field."""

    field: str
    """The field that holds the entries; empty for a bare list."""
    body: Mapping[str, Any]
    """Every other field, parsed."""
    found: Conversation


def open_json(source: Source, fields: Sequence[str], begin: Begin = no_beginning) -> Document:
    """Find the conversation: the list itself, or the value of one of *fields*, the first that is
    there. *begin* knows lists that were read before. Raises `FormatError` for malformed JSON and where there is none."""
    reader = _Reader(source, source if isinstance(source, str) else source.decode("latin-1"), fields, begin)
    start = reader.skip(reader.first)
    if reader.at(start, "["):
        found = reader.array(start)
        document, end = Document("", {}, found), found.stop
    elif reader.at(start, "{"):
        document, end = reader.object(start)
    else:
        raise FormatError("a payload is a JSON list of messages or a JSON object")
    if reader.skip(end) != len(reader.text):
        raise FormatError(f"malformed JSON: more text after the end of the payload, at character {end}")
    return document


@dataclass(frozen=True, slots=True)
class _Reader:
    source: Source
    text: str
    """The source as text whose positions are those of the source."""
    fields: Sequence[str]
    begin: Begin
    exact: bool = field(init=False)
    """Does *text* say what the source says? Latin-1 does for ASCII."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact", self.text is self.source or self.text.isascii())

    @property
    def first(self) -> int:
        """Where the text begins, behind a byte order mark."""
        mark = "\ufeff" if isinstance(self.source, str) else "\xef\xbb\xbf"
        return len(mark) if self.text.startswith(mark) else 0

    def at(self, at: int, sign: str) -> bool:
        return self.text.startswith(sign, at)

    def skip(self, at: int) -> int:
        """The next position that is no white space."""
        return WHITESPACE.match(self.text, at).end()  # type: ignore[no-any-return]

    def array(self, start: int) -> Conversation:
        reading = self.begin(self.source, start)
        wires = reading.wires if reading is not None else Spans(self.source)
        if wires:
            at, more = self.next(wires.reach(slice(0, len(wires))).stop, "]")
        else:
            at = self.skip(start + 1)
            more = not self.at(at, "]")
            at += not more
        while more:
            stop = scan(self.text, at)[1]
            wires.add(at, stop)
            at, more = self.next(stop, "]")
        if reading is not None:
            reading.done(wires)
        return Conversation(start, at, wires)

    def object(self, at: int) -> tuple[Document, int]:
        """The object that begins at *at*, and where it ends."""
        body: dict[str, Any] = {}
        at = self.skip(at + 1)
        more = not self.at(at, "}")
        at += not more
        while more:
            key, at = self.value(at)
            at = self.skip(at)
            if not isinstance(key, str) or not self.at(at, ":"):
                raise FormatError(f"malformed JSON: a field name was expected before character {at}")
            body[key], at = self.held(self.skip(at + 1), key)
            at, more = self.next(at, "}")
        return self.document(body), at

    def document(self, body: dict[str, Any]) -> Document:
        """The object with these fields, of which the first that may hold the conversation does."""
        name = conversation_field(body, self.fields)
        found = body.pop(name)
        if not isinstance(found, Conversation):
            raise FormatError(f"{name!r} must be a list of messages, not {type(found).__name__}")
        others = {k: self.value(v.start)[0] if isinstance(v, Conversation) else v for k, v in body.items()}
        return Document(name, others, found)

    def value(self, start: int) -> tuple[Any, int]:
        """A value, parsed, and where it ends."""
        value, stop = scan(self.text, start)
        return (value if self.exact else Span(self.source, start, stop).load()), stop

    def held(self, start: int, key: str) -> tuple[Any, int]:
        """A field's value and where it ends; lists and strings that may be the conversation are not parsed."""
        if key in self.fields and self.at(start, "["):
            found = self.array(start)
            return found, found.stop
        value, stop = self.value(start)
        if key in self.fields and isinstance(value, str):
            return Conversation(start, stop, Spans(self.source, [start], [stop])), stop
        return value, stop

    def next(self, at: int, end: str) -> tuple[int, bool]:
        """Where the next element starts or the whole ends, and whether there is a next one."""
        found = _BEHIND.match(self.text, at)
        if found is not None and found[1] == ",":
            return found.end(), True
        if found is None or found[1] != end:
            raise FormatError(f"malformed JSON: ',' or {end!r} was expected at character {self.skip(at)}")
        return found.end(1), False


def conversation_field(body: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The first of *fields* that *body* has. Raises `FormatError` where it has none."""
    for name in fields:
        if name in body:
            return name
    raise FormatError(f"no conversation in this object: it has none of {', '.join(fields)}")


def rejoin(source: Source, found: Conversation, pieces: Iterable[slice | Any]) -> Source:
    """*source* with other entries: a slice stands for those of its own, anything else for itself.
    Between two that were neighbours stands what stood there; all of them give back *source* itself."""
    runs = merged(pieces)
    first = list(islice(runs, 2))
    if first == ([slice(0, len(found.wires))] if found.wires else []):
        return source
    whole = chain(first, runs)
    if isinstance(source, str):
        return "".join(_parts(source, found, whole, str))
    out = BytesIO()
    for part in _parts(memoryview(source), found, whole, str.encode):  # a view's slices copy nothing
        out.write(part)
    return out.getvalue()


def merged(pieces: Iterable[slice | Any]) -> Iterator[slice | Any]:
    """The same pieces, with slices that follow one another as one, and without empty ones."""
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


def _parts(source: Any, found: Conversation, runs: Iterable[Any], spell: Callable[[str], Any]) -> Iterator[Any]:
    """The pieces of *source* and, between them, what is new."""
    yield source[: found.start]
    mark = "["
    for run in runs:
        yield spell(mark)
        mark = ","
        if isinstance(run, slice):
            yield source[found.wires.reach(run)]
        else:
            yield spell(dump(run))
    yield spell("]" if mark == "," else "[]")
    yield source[found.stop :]


def dump(value: Any) -> str:
    """Compact JSON; characters stay as they are unless UTF-8 has no form for one of them."""
    text = _spelled(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text
