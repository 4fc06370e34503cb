"""Counts of what happened: plain values that any exporter can render."""

from collections.abc import Mapping
from functools import lru_cache
from threading import Lock

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


@lru_cache(maxsize=4_096)
def key_of(name: str, **labels: str) -> tuple[str, Labels]:
    """The key of a count or of a measurement: there are few, and each is needed again and again."""
    return name, tuple(sorted(labels.items()))


class Counters:
    """Numbers that only grow, by name and labels. Calls may come from several threads."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Labels], float] = {}
        self._lock = Lock()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count *amount* more of *name* with these labels. Never a key, a session or text in a label."""
        key = key_of(name, **labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def values(self) -> Mapping[tuple[str, Labels], float]:
        """Every count, as it is now."""
        with self._lock:
            return dict(self._values)

    def get(self, name: str, **labels: str) -> float:
        """The sum of *name* over all label sets that include *labels*."""
        wanted = labels.items()
        found = (count for (key, own), count in self.values().items() if key == name and wanted <= dict(own).items())
        return sum(found)
