"""Where entries stand in JSON texts that continue one another, so that they are not sought again.

A history is sent whole each turn. Nothing that was said is kept of a text: only where its entries
begin and end, a hash of each, and one of all up to there.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from refold.codecs.json_spans import JsonList

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

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
                before = max((m for m in self._matches if m[0].stop <= stop), key=_match_stop)
                self._matches.append(self._extend(before, stop))
                new.append((self._matches[-1][0], Offsets(size, starts, stops, fingerprints)))
        self._cache.store(old, new)

    def _extend(self, match: "tuple[Prefix, Hash]", stop: int) -> "tuple[Prefix, Hash]":
        prefix, digest = match[0], match[1].copy()
        digest.update(self._view[prefix.stop : stop])
        return Prefix(prefix.start, stop, digest.digest()), digest


def _match_stop(match: "tuple[Prefix, Hash]") -> int:
    return match[0].stop
