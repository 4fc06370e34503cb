"""What is known of models, as dated data: the longest pattern that a model's name matches counts.

A table in a library is never complete and soon old: a model that is not in it is unknown.
"""

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ModelTable(Generic[T]):
    """The table in the JSON file at *path*, read when it is first asked; *make* makes an entry of
    the fields of a row."""

    def __init__(self, path: Path, make: Callable[..., T]) -> None:
        self._path, self._make = path, make
        self.lookup = lru_cache(maxsize=1_000)(self._lookup)

    @property
    def date(self) -> str:
        """The day when it was checked, `YYYY-MM-DD`."""
        return str(self._data["date"])

    @cached_property
    def _data(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
        return data

    @cached_property
    def _rows(self) -> list[tuple[str, T]]:
        rows = (dict(row) for row in self._data["models"])
        return [(row.pop("model"), self._make(**row)) for row in rows]

    def _lookup(self, model: str) -> T | None:
        """Return the entry of *model*, with a provider's prefix (`anthropic/`, `models/`,
        `us.anthropic.`) or without; None if there is none."""
        name = model.lower()
        bare = name.rpartition("/")[2]
        spellings = name, bare, bare.rpartition("anthropic.")[2]
        rows = [row for row in self._rows if any(fnmatchcase(each, row[0]) for each in spellings)]
        return max(rows, key=lambda row: len(row[0]))[1] if rows else None
