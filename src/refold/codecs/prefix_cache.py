"""JSON texts that go on from one another, as a history does that is sent whole each turn: what stands where it stood in the
text before is not looked for again.

Nothing that was said is kept of a text: where its entries begin and end, a hash of each, and one of all up to there.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from refold.codecs.json_spans import Spans

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

LEAST = 32_768
"""Bytes of a text from which on it is worth while."""
ROOM = 500_000
"""Entries that are known of all texts together: of so many a text of a million small ones is not worth it."""
MOVING = 12
"""Entries at the end that may be spelled otherwise in the next text: clients move `cache_control` every turn."""


_CLOSED = b'}]"'
"""How an entry ends that no further byte belongs to: of a number one may."""


class Place(NamedTuple):
    """Where a list of entries begins in a text, where its last entry ends, and a hash of what stands between."""

    start: int
    stop: int
    digest: bytes


class Known(NamedTuple):
    """The entries of such a list: the first *size* of these."""

    size: int
    starts: "array[int]"
    stops: "array[int]"
    marks: list[bytes]

    def inside(self, source: bytes) -> Spans:
        """These entries in a text that has them at the same places."""
        return Spans(source, self.starts[: self.size], self.stops[: self.size], self.marks[: self.size])


class Beginnings:
    """The latest *most* lists of entries, each whole and without those that move, of texts with *least* bytes.

    What is known in one scope (of a tenant, say) is not known in another. Calls may come from several threads.
    """

    def __init__(self, most: int = 256, least: int = LEAST) -> None:
        self._most, self._least, self._known, self._lock = 2 * most, least, OrderedDict[Place, Known](), Lock()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def entries(self) -> int:
        """Entries that are known, all together."""
        return sum(known.size for known in self._known.values())

    def begin(self, source: Any, start: int, scope: bytes = b"") -> "Reading | None":
        """What is known of the list that begins at *start*; None for a text that is short, or no bytes."""
        if not isinstance(source, bytes) or len(source) - start < self._least:
            return None
        with self._lock:
            stops = sorted({place.stop for place in self._known if place.start == start and place.stop <= len(source)})
        reading = Reading(self, source, start, scope)
        reading.look(stops)
        return reading

    def find(self, place: Place) -> Known | None:
        """The entries of a list that is known."""
        return self._known.get(place)

    def learn(self, old: Iterable[Place], new: Iterable[tuple[Place, Known]]) -> None:
        """Know the *new* lists, in place of the *old* ones that they go on from."""
        with self._lock:
            for place in old:
                self._known.pop(place, None)
            self._known.update(new)
            entries = self.entries
            while self._known and (len(self._known) > self._most or entries > ROOM):
                entries -= self._known.popitem(last=False)[1].size


class Reading:
    """A list of entries that is being read."""

    def __init__(self, beginnings: Beginnings, source: bytes, start: int, scope: bytes) -> None:
        self._beginnings, self._source, self._view = beginnings, source, memoryview(source)
        self._reached = [(Place(start, start, b""), sha256(scope))]
        """Where something is known, with the hash up to there; first where the list begins."""
        self.wires = Spans(source)
        """The entries that need not be looked for."""

    def look(self, stops: Iterable[int]) -> None:
        """See up to which of *stops*, in order, the list is known."""
        passed = self._reached[0]
        for stop in stops:
            passed = self._after(passed, stop)
            if known := self._beginnings.find(passed[0]):
                self.wires = known.inside(self._source)
                self._reached.append(passed)

    def done(self, wires: Spans) -> None:
        """All entries are found."""
        starts, stops, marks = wires.table
        old, new = [place for place, _ in self._reached], list[tuple[Place, Known]]()
        for count in (len(wires) - MOVING, len(wires)):
            if count > 0 and self._source[stops[count - 1] - 1] in _CLOSED:
                reached = max((one for one in self._reached if one[0].stop <= stops[count - 1]), key=_stop)
                self._reached.append(self._after(reached, stops[count - 1]))
                new.append((self._reached[-1][0], Known(count, starts, stops, marks)))
        self._beginnings.learn(old, new)

    def _after(self, reached: "tuple[Place, Hash]", stop: int) -> "tuple[Place, Hash]":
        place, total = reached[0], reached[1].copy()
        total.update(self._view[place.stop : stop])
        return Place(place.start, stop, total.digest()), total


def _stop(reached: "tuple[Place, Hash]") -> int:
    return reached[0].stop
