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


def _finite(text: str) -> float:
    """A number that Python can write again: one beyond its range would come out as `Infinity`, which is no JSON (C22)."""
    value = float(text)
    if isinf(value):
        raise ValueError("the value is beyond the range of a double")
    return value


def _refuse(constant: str) -> NoReturn:
    """Raise `FormatError`: what would be edited beside it is no JSON either, and providers refuse it (C22)."""
    raise FormatError(f"malformed JSON: {constant} is no JSON value (RFC 8259)")


_scan_once = JSONDecoder(strict=False, parse_float=_finite, parse_constant=_refuse).scan_once  # type: ignore[attr-defined]
"""Python's own scanner: it says where a value ends, keeps big integers and accepts lone surrogates."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """A value inside a JSON text, not parsed. Spans are equal when they are spelled alike, and a span
    equals its own fingerprint: so what was seen is known again without keeping it."""

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
        """Hash of the spelling: 15 bytes, which as a Python object take 48, and one more would take 64."""
        return _mark(self.spelling)

    def load(self) -> Any:
        """The parsed value."""
        return scan(_text(self.spelling), 0)[0]


class Spans(Sequence[Span]):
    """Values inside one JSON text, in order, in the space of two numbers each. *marks* are the fingerprints of the first, as
    far as they are known."""

    __slots__ = ("_marks", "_source", "_starts", "_stops")

    def __init__(
        self, source: Source, starts: Iterable[int] = (), stops: Iterable[int] = (), marks: Iterable[bytes] = ()
    ) -> None:
        self._source, self._starts, self._stops = source, array("q", starts), array("q", stops)
        self._marks = list(marks)

    def marks(self, start: int = 0) -> list[bytes]:
        """The fingerprints from the position *start* on."""
        have, source = len(self._marks), self._source
        if have < len(self):
            spans = zip(self._starts[have:], self._stops[have:], strict=True)
            self._marks[have:] = [_mark(source[at:end]) for at, end in spans]
        return self._marks[start:]

    @property
    def table(self) -> tuple["array[int]", "array[int]", list[bytes]]:
        """Where they begin and end, and their fingerprints as far as they will be known. For `refold.codecs.prefix_cache`."""
        return self._starts, self._stops, self._marks

    def add(self, start: int, stop: int) -> None:
        """One more value."""
        self._starts.append(start)
        self._stops.append(stop)

    def reach(self, run: slice) -> slice:
        """Where in the source the values of a run, which is not empty, begin and end."""
        return slice(self._starts[run.start], self._stops[run.stop - 1])

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> "Spans": ...
    def __getitem__(self, index: int | slice) -> "Span | Spans":
        if isinstance(index, slice):
            return Spans(self._source, self._starts[index], self._stops[index])
        return Span(self._source, self._starts[index], self._stops[index])

    def __iter__(self) -> Iterator[Span]:
        return map(Span, repeat(self._source), self._starts, self._stops)


def _mark(spelling: Source) -> bytes:
    data = spelling if isinstance(spelling, bytes) else spelling.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=15).digest()


def _text(spelling: Source) -> str:
    return spelling if isinstance(spelling, str) else spelling.decode("utf-8", "surrogateescape")


def scan(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at *at*, and where it ends."""
    try:
        return _scan_once(text, at)  # type: ignore[no-any-return]  # as its documentation says
    except StopIteration as stop:
        raise FormatError(f"malformed JSON: {json.JSONDecodeError('Expecting value', text, stop.value)}") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"malformed JSON: {error}") from error
    except FormatError:
        raise
    except ValueError as error:  # it is JSON, with an integer of thousands of digits or a float of hundreds
        raise FormatError(f"a number in this JSON is larger than Python reads: {error}") from error
    except RecursionError as error:
        raise FormatError("malformed JSON: nested too deeply to read") from error
