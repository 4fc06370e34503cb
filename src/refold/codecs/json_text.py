"""A conversation inside a JSON text, found without parsing the rest of it, and put back.

The text of a request is split into spans, so that entries and fields nobody touched keep their
spelling: numbers beyond 64 bits, duplicate keys, key order, lone surrogates, bytes that are no
UTF-8. Bytes are never decoded as a whole: they are scanned as Latin-1, in which a character is a
byte, and a span is decoded when its value is wanted.
"""

import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from io import BytesIO
from itertools import chain, islice, repeat
from json.decoder import WHITESPACE, JSONDecoder  # type: ignore[attr-defined]
from math import isinf
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, overload

from refold.errors import FormatError
from refold.text.json_values import JsonObject, Record

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

# --- values that keep their spelling --------------------------------------------------------------

Source = str | bytes
"""JSON as it came: text, or the bytes of one in UTF-8."""


def _parse_float(text: str) -> float:
    """Refuse a number beyond Python's range: it would come out as `Infinity`, no JSON."""
    value = float(text)
    if isinf(value):
        raise ValueError("the value is beyond the range of a double")
    return value


def _refuse(constant: str) -> NoReturn:
    """Raise `FormatError`: providers refuse `NaN` and `Infinity` too."""
    raise FormatError(f"malformed JSON: {constant} is no JSON value (RFC 8259)")


_scan_once = JSONDecoder(  # type: ignore[attr-defined]
    strict=False, parse_float=_parse_float, parse_constant=_refuse
).scan_once
"""Python's scanner: it says where a value ends, keeps big integers and lone surrogates."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """A value inside a JSON text, not parsed.

    Spans are equal when they are spelled alike, and a span equals its own fingerprint: an entry is
    recognised without keeping its text.
    """

    source: Source
    start: int
    stop: int

    def __eq__(self, other: object) -> bool:
        if isinstance(other, bytes):
            return self.fingerprint == other
        return isinstance(other, Span) and self.spelling == other.spelling

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def spelling(self) -> Source:
        """The value as it is written."""
        return self.source[self.start : self.stop]

    @property
    def fingerprint(self) -> bytes:
        """Hash of the spelling: 15 bytes, a Python object of 48 (one byte more would take 64)."""
        return _fingerprint(self.spelling)

    def load(self) -> Any:
        """Parse the value."""
        text = self.spelling
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        return scan(text, 0)[0]


class JsonList(Sequence[Span]):
    """The entries of a list inside a JSON text, in the space of two numbers each.

    `source[start:stop]` is the list. A string in place of a list is its own only entry.
    """

    __slots__ = ("_fingerprints", "_starts", "_stops", "source", "start", "stop")

    def __init__(
        self,
        source: Source,
        start: int,
        starts: Iterable[int] = (),
        stops: Iterable[int] = (),
        fingerprints: Iterable[bytes] = (),
    ) -> None:
        """*fingerprints*: those of the first entries, as far as they are known."""
        self.source, self.start, self.stop = source, start, start
        self._starts, self._stops = array("q", starts), array("q", stops)
        self._fingerprints = list(fingerprints)

    def fingerprints(self, start: int = 0) -> list[bytes]:
        """Hash the spellings of the entries from position *start* on, each only once."""
        first, source = len(self._fingerprints), self.source
        if first < len(self):
            spans = zip(self._starts[first:], self._stops[first:], strict=True)
            self._fingerprints[first:] = [_fingerprint(source[at:end]) for at, end in spans]
        return self._fingerprints[start:]

    @property
    def offsets(self) -> tuple["array[int]", "array[int]", list[bytes]]:
        """Where entries begin and end, and their fingerprints as they become known."""
        return self._starts, self._stops, self._fingerprints

    def add(self, start: int, stop: int) -> None:
        """Add the entry `source[start:stop]`."""
        self._starts.append(start)
        self._stops.append(stop)

    def extent(self, run: slice) -> slice:
        """Return where in the source the entries of *run*, which is not empty, stand."""
        return slice(self._starts[run.start], self._stops[run.stop - 1])

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        if isinstance(index, slice):
            return list(map(Span, repeat(self.source), self._starts[index], self._stops[index]))
        return Span(self.source, self._starts[index], self._stops[index])

    def __iter__(self) -> Iterator[Span]:
        return map(Span, repeat(self.source), self._starts, self._stops)


def _fingerprint(spelling: Source) -> bytes:
    data = spelling if isinstance(spelling, bytes) else spelling.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=15).digest()


def scan(text: str, at: int) -> tuple[Any, int]:
    """Parse the value that begins at *at*; return it and where it ends. Raises `FormatError`."""
    try:
        return _scan_once(text, at)  # type: ignore[no-any-return]  # as its documentation says
    except StopIteration as stop:
        problem = json.JSONDecodeError("Expecting value", text, stop.value)
        raise FormatError(f"malformed JSON: {problem}") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"malformed JSON: {error}") from error
    except FormatError:
        raise
    except ValueError as error:  # JSON, with an integer of thousands of digits or a huge float
        raise FormatError(f"a number in this JSON is larger than Python reads: {error}") from error
    except RecursionError as error:
        raise FormatError("malformed JSON: nested too deeply to read") from error


# --- texts that continue one another --------------------------------------------------------------
# A history is sent whole each turn. Where its entries stand is remembered, so that they are not
# sought again. Nothing that was said is kept of a text: only where its entries begin and end, a
# hash of each, and one of all up to there.

MIN_BYTES = 32_768
"""Length of a text from which on it is worth remembering."""
MAX_ENTRIES = 500_000
"""Entries remembered of all texts together; a text of a million small ones is not worth it."""
MOVING = 12
"""Entries at the end that may be spelled anew: clients move `cache_control` every turn."""

_CLOSING = b'}]"'
"""Last bytes of an entry to which no further byte belongs, as it may to a number."""


class Prefix(NamedTuple):
    """Where a list begins in a text, where its last entry ends, and a hash of what is between."""

    start: int
    stop: int
    digest: bytes


class Offsets(NamedTuple):
    """The entries of a prefix: the first *size* of these."""

    size: int
    starts: "array[int]"
    stops: "array[int]"
    fingerprints: list[bytes]


class PrefixCache:
    """The latest *max_lists* lists of entries, each whole and without those that move.

    Texts shorter than *min_bytes* are not remembered. What is known in one scope (of a tenant, say)
    is not known in another. Calls may come from several threads.
    """

    def __init__(self, max_lists: int = 256, min_bytes: int = MIN_BYTES) -> None:
        self._max_prefixes, self._min_bytes = 2 * max_lists, min_bytes
        self._known, self._lock = OrderedDict[Prefix, Offsets](), Lock()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def entries(self) -> int:
        """Entries that are remembered, all together."""
        return sum(offsets.size for offsets in self._known.values())

    def lookup(self, source: Any, start: int, scope: bytes = b"") -> "ListPrefix | None":
        """Return what is known of the list at *start*; None for a short text or no bytes."""
        if not isinstance(source, bytes) or len(source) - start < self._min_bytes:
            return None
        with self._lock:
            starting = [prefix for prefix in self._known if prefix.start == start]
        prefix = ListPrefix(self, source, start, scope)
        stops = {prefix.stop for prefix in starting if prefix.stop <= len(source)}
        prefix.match(sorted(stops))
        return prefix

    def find(self, prefix: Prefix) -> Offsets | None:
        """Return the entries of *prefix*, if it is known."""
        return self._known.get(prefix)

    def store(self, old: Iterable[Prefix], new: Iterable[tuple[Prefix, Offsets]]) -> None:
        """Remember the *new* prefixes in place of the *old* ones that they continue."""
        with self._lock:
            for prefix in old:
                self._known.pop(prefix, None)
            self._known.update(new)
            entries = self.entries
            while self._known and (len(self._known) > self._max_prefixes or entries > MAX_ENTRIES):
                entries -= self._known.popitem(last=False)[1].size


class ListPrefix:
    """The known beginning of a list that is being read."""

    def __init__(self, cache: PrefixCache, source: bytes, start: int, scope: bytes) -> None:
        self._cache, self._source, self._view = cache, source, memoryview(source)
        self._matches = [(Prefix(start, start, b""), sha256(scope))]
        """Each prefix that is known, with the hash up to its end; the empty one first."""
        self.entries = JsonList(source, start)
        """The entries that need not be sought."""

    def match(self, stops: Iterable[int]) -> None:
        """Find out up to which of *stops*, in rising order, the list is known."""
        match = self._matches[0]
        for stop in stops:
            match = self._extend(match, stop)
            if offsets := self._cache.find(match[0]):
                size = offsets.size
                self.entries = JsonList(
                    self._source,
                    self.entries.start,
                    offsets.starts[:size],
                    offsets.stops[:size],
                    offsets.fingerprints[:size],
                )
                self._matches.append(match)

    def store(self, entries: JsonList) -> None:
        """Remember all *entries* of the list for the next text."""
        starts, stops, fingerprints = entries.offsets
        old, new = [prefix for prefix, _ in self._matches], list[tuple[Prefix, Offsets]]()
        for size in (len(entries) - MOVING, len(entries)):
            if size > 0 and self._source[stops[size - 1] - 1] in _CLOSING:
                stop = stops[size - 1]
                before = max(
                    (m for m in self._matches if m[0].stop <= stop), key=lambda m: m[0].stop
                )
                self._matches.append(self._extend(before, stop))
                new.append((self._matches[-1][0], Offsets(size, starts, stops, fingerprints)))
        self._cache.store(old, new)

    def _extend(self, match: "tuple[Prefix, Hash]", stop: int) -> "tuple[Prefix, Hash]":
        prefix, digest = match[0], match[1].copy()
        digest.update(self._view[prefix.stop : stop])
        return Prefix(prefix.start, stop, digest.digest()), digest


# --- a conversation in a text ---------------------------------------------------------------------

_SEPARATOR = re.compile(r"[ \t\n\r]*+([,\]}])[ \t\n\r]*+")
"""What follows an element."""


class KnownPrefix(Protocol):
    """The entries at the beginning of a list that a text before had too."""

    entries: JsonList

    def store(self, entries: JsonList) -> None:
        """Remember all *entries* of the list for the next text."""


PrefixLookup = Callable[[Source, int], KnownPrefix | None]
"""What is known of the list that begins at a position of a text."""


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


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def dump(value: Any) -> str:
    """Return compact JSON, in ASCII if UTF-8 has no form for one of its characters."""
    text = _to_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text
