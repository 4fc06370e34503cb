"""Reading and writing the conversation in a JSON text without parsing the rest.

The text is split into spans, so that untouched entries and fields keep their exact bytes: numbers
beyond 64 bits, duplicate keys, key order, lone surrogates, invalid UTF-8. Bytes are never decoded
as a whole: they are scanned as Latin-1, in which a character is a byte, and a span is decoded when
its value is needed.
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

# --- values that keep their exact text -----------------------------------------------------------

Source = str | bytes
"""JSON as received: text, or UTF-8 bytes."""


def _parse_float(text: str) -> float:
    """Refuse a number beyond Python's range, which would be written as `Infinity`, invalid JSON."""
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
"""Python's scanner, which returns the end of a value and keeps big integers and lone surrogates."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Unparsed value in a JSON text.

    Spans are equal if their text is. A span also equals its own fingerprint, so an entry can be
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
        """Text of the value."""
        return self.source[self.start : self.stop]

    @property
    def fingerprint(self) -> bytes:
        """Hash of the text: 15 bytes, a Python object of 48 bytes (16 would take 64)."""
        return _fingerprint(self.spelling)

    def load(self) -> Any:
        """Parse the value."""
        text = self.spelling
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        return scan(text, 0)[0]


class JsonList(Sequence[Span]):
    """Entries of a list in a JSON text, stored as two numbers each.

    `source[start:stop]` is the list. A string in place of a list is its only entry.
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
        """*fingerprints*: those of the first entries, as far as known."""
        self.source, self.start, self.stop = source, start, start
        self._starts, self._stops = array("q", starts), array("q", stops)
        self._fingerprints = list(fingerprints)

    def fingerprints(self, start: int = 0) -> list[bytes]:
        """Return the fingerprints of the entries from *start* on, computing each only once."""
        first, source = len(self._fingerprints), self.source
        if first < len(self):
            spans = zip(self._starts[first:], self._stops[first:], strict=True)
            self._fingerprints[first:] = [_fingerprint(source[at:end]) for at, end in spans]
        return self._fingerprints[start:]

    @property
    def offsets(self) -> tuple["array[int]", "array[int]", list[bytes]]:
        """Start and end offsets of the entries, and the fingerprints known so far."""
        return self._starts, self._stops, self._fingerprints

    def add(self, start: int, stop: int) -> None:
        """Add the entry `source[start:stop]`."""
        self._starts.append(start)
        self._stops.append(stop)

    def extent(self, run: slice) -> slice:
        """Return the slice of the source with the entries of *run*, which is not empty."""
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
    """Parse the value at *at*; return it and its end. Raise `FormatError` if malformed."""
    try:
        return _scan_once(text, at)  # type: ignore[no-any-return]  # as its documentation says
    except StopIteration as stop:
        problem = json.JSONDecodeError("Expecting value", text, stop.value)
        raise FormatError(f"malformed JSON: {problem}") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"malformed JSON: {error}") from error
    except FormatError:
        raise
    except ValueError as error:  # valid JSON with a huge integer or float
        raise FormatError(f"a number in this JSON is larger than Python reads: {error}") from error
    except RecursionError as error:
        raise FormatError("malformed JSON: nested too deeply to read") from error


# --- texts that share a prefix --------------------------------------------------------------------
# Each request repeats the whole history. The offsets of its entries are cached, so that they need
# not be scanned again. No content is kept of a text, only the offsets, a hash of each entry, and a
# hash of the prefix up to the last one.

MIN_BYTES = 32_768
"""Minimum length in bytes of a text that is cached."""
MAX_ENTRIES = 500_000
"""Maximum number of cached entries of all texts together."""
MOVING = 12
"""Number of last entries whose bytes may change: clients move `cache_control` every turn."""

_CLOSING = b'}]"'
"""Last bytes of entries that cannot continue, as a number can."""


class Prefix(NamedTuple):
    """Start of a list in a text, end of its last entry, and hash of the bytes between them."""

    start: int
    stop: int
    digest: bytes


class Offsets(NamedTuple):
    """Offsets and fingerprints of the entries of a prefix, the first *size* of the arrays."""

    size: int
    starts: "array[int]"
    stops: "array[int]"
    fingerprints: list[bytes]


class PrefixCache:
    """Cache of the latest *max_lists* lists, each with all its entries and without the moving ones.

    Texts shorter than *min_bytes* are not cached. Scopes, such as tenants, share nothing. Methods
    may be called from several threads.
    """

    def __init__(self, max_lists: int = 256, min_bytes: int = MIN_BYTES) -> None:
        self._max_prefixes, self._min_bytes = 2 * max_lists, min_bytes
        self._known, self._lock = OrderedDict[Prefix, Offsets](), Lock()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def entries(self) -> int:
        """Total number of cached entries."""
        return sum(offsets.size for offsets in self._known.values())

    def lookup(self, source: Any, start: int, scope: bytes = b"") -> "ListPrefix | None":
        """Return the cached prefix of the list at *start*, empty if unknown; None for a short text
        or a `str`."""
        if not isinstance(source, bytes) or len(source) - start < self._min_bytes:
            return None
        with self._lock:
            starting = [prefix for prefix in self._known if prefix.start == start]
        prefix = ListPrefix(self, source, start, scope)
        stops = {prefix.stop for prefix in starting if prefix.stop <= len(source)}
        prefix.match(sorted(stops))
        return prefix

    def find(self, prefix: Prefix) -> Offsets | None:
        """Return the entries of *prefix*, or None if it is not cached."""
        return self._known.get(prefix)

    def store(self, old: Iterable[Prefix], new: Iterable[tuple[Prefix, Offsets]]) -> None:
        """Cache the *new* prefixes in place of the *old* ones that they extend."""
        with self._lock:
            for prefix in old:
                self._known.pop(prefix, None)
            self._known.update(new)
            entries = self.entries
            while self._known and (len(self._known) > self._max_prefixes or entries > MAX_ENTRIES):
                entries -= self._known.popitem(last=False)[1].size


class ListPrefix:
    """Cached prefix of a list that is being read."""

    def __init__(self, cache: PrefixCache, source: bytes, start: int, scope: bytes) -> None:
        self._cache, self._source, self._view = cache, source, memoryview(source)
        self._matches = [(Prefix(start, start, b""), sha256(scope))]
        """Cached prefixes, each with the hash state at its end; the empty one first."""
        self.entries = JsonList(source, start)
        """Entries that are known from the cache."""

    def match(self, stops: Iterable[int]) -> None:
        """Find the cached prefixes of the list that end at *stops*, which are in rising order."""
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
        """Cache all *entries* of the list for the next text."""
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
"""Separator after an element, or the end of its list or object."""


class KnownPrefix(Protocol):
    """Entries at the beginning of a list that an earlier text had too."""

    entries: JsonList

    def store(self, entries: JsonList) -> None:
        """Cache all *entries* of the list for the next text."""


PrefixLookup = Callable[[Source, int], KnownPrefix | None]
"""Function that returns the cached prefix of the list at a position of a text."""


def split_json(
    source: Source, fields: Sequence[str], lookup: PrefixLookup | None = None
) -> tuple[str, Record, JsonList]:
    """Return the field of the conversation, all other fields, and the entries.

    The conversation is the list itself, with an empty field, or the value of the first of *fields*
    that exists. Raises `FormatError` for malformed JSON and for an object without one.
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
    """The source as a string with the same positions."""
    fields: Sequence[str]
    lookup: PrefixLookup | None
    is_exact: bool = field(init=False)
    """Whether *text* is equal to the source, which Latin-1 is for ASCII."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_exact", self.text is self.source or self.text.isascii())

    @property
    def first(self) -> int:
        """Start of the text after a byte order mark."""
        mark = "\ufeff" if isinstance(self.source, str) else "\xef\xbb\xbf"
        return len(mark) if self.text.startswith(mark) else 0

    def skip(self, at: int) -> int:
        """Return the next position that is not whitespace."""
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
        """Return the fields of the object that begins at *start*, and its end."""
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
        """Parse a value; return it and its end."""
        value, stop = scan(self.text, start)
        return (value if self.is_exact else Span(self.source, start, stop).load()), stop

    def read_candidate(self, start: int) -> tuple[Any, int]:
        """Read a value that may be the conversation: lists and strings are not parsed."""
        if self.text.startswith("[", start):
            entries = self.read_list(start)
            return entries, entries.stop
        value, stop = self.read_value(start)
        if isinstance(value, str):
            value = JsonList(self.source, start, [start], [stop])
            value.stop = stop
        return value, stop

    def enter(self, start: int, end: str) -> tuple[int, bool]:
        """Return the start of the first element and True, or the end of an empty list and False."""
        at = self.skip(start + 1)
        is_empty = self.text.startswith(end, at)
        return at + is_empty, not is_empty

    def next(self, at: int, end: str) -> tuple[int, bool]:
        """Return the start of the next element and True, or the end of the list and False."""
        match = _SEPARATOR.match(self.text, at)
        if match is not None and match[1] == ",":
            return match.end(), True
        if match is None or match[1] != end:
            problem = f"',' or {end!r} was expected at character {self.skip(at)}"
            raise FormatError(f"malformed JSON: {problem}")
        return match.end(1), False


def conversation_field(body: Record, fields: Sequence[str]) -> str:
    """Return the first of *fields* in *body*. Raise `FormatError` if there is none."""
    for name in fields:
        if name in body:
            return name
    raise FormatError(f"no conversation in this object: it has none of {', '.join(fields)}")


def join_json(entries: JsonList, pieces: Iterable[slice | Any]) -> Source:
    """Return the source of *entries* with *pieces* as its entries.

    A slice stands for original entries. The text between neighbouring ones is kept, and if all
    entries are original, the source itself is returned.
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
    """Merge adjacent slices, and drop empty ones."""
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
    """Yield the new text: what is around the entries, and the entries."""
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
    """Return compact JSON, in ASCII if one of its characters cannot be encoded as UTF-8."""
    text = _to_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text
