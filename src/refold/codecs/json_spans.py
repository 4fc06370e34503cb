"""Values inside a JSON text that keep their spelling, and are parsed when they are wanted."""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from json.decoder import JSONDecoder
from math import isinf
from typing import Any, NoReturn, overload

from refold.errors import FormatError

Source = str | bytes
"""JSON as it came: text, or the bytes of one in UTF-8."""


def _parse_float(text: str) -> float:
    """Refuse a number beyond Python's range: it would come out as `Infinity`, no JSON (C22)."""
    value = float(text)
    if isinf(value):
        raise ValueError("the value is beyond the range of a double")
    return value


def _refuse(constant: str) -> NoReturn:
    """Raise `FormatError`: providers refuse `NaN` and `Infinity` too (C22)."""
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
