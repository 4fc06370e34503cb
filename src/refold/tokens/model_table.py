"""What is known of models, as dated data: the longest pattern that a model's name matches counts.

A table in a library is never complete and soon old: a model that is not in it is unknown. There are
two: the windows of models (`windows.json`), and what their providers count for an estimated token
(`priors.json`).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

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


# --- windows ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """What one model can take, in tokens. Raises ValueError for figures that cannot be."""

    context: int
    """Request and answer together."""
    input: int | None = None
    """A limit of the request alone, if the provider has one; never more than *context*."""
    output: int | None = None
    """The longest answer."""

    def __post_init__(self) -> None:
        if self.context <= 0 or not 0 < self.room <= self.context:
            raise ValueError(
                f"a window of {self.context} tokens with an input limit of {self.input} cannot be"
            )

    @property
    def room(self) -> int:
        """Tokens that a request may have, nothing kept back for the answer."""
        return self.context if self.input is None else self.input


Windows = Callable[[str], Window | None]
"""Your own table: from a model's name to its window, None to look it up in ours."""


class Found(NamedTuple):
    """A window, or why there is none."""

    window: Window | None
    reason: str


def find_window(model: str, given: int | Window | Windows | None = None) -> Found:
    """Return the window of *model*: what is *given*, else what the table says.

    *given* is a number of tokens, a `Window` or a function; 0 switches it off. The reason says
    where the window comes from, or why there is none.
    """
    if callable(given):
        given = given(model)
    if isinstance(given, Window):
        return Found(given, f"given as {given.room} tokens")
    if given is not None:
        return (
            Found(Window(given), f"given as {given} tokens")
            if given > 0
            else Found(None, "the window is switched off")
        )
    if not model:
        return Found(None, "the request names no model and no window is given")
    window = lookup(model)
    if window is None:
        return Found(None, f"no window is known for the model {model!r} (table of {table_date()})")
    return Found(window, f"{model}: {window.room} tokens (table of {table_date()})")


def lookup(model: str) -> Window | None:
    """Return the table's entry for *model*; None if it is not in the table."""
    return _TABLE.lookup(model)


def table_date() -> str:
    """Return the day when the table was checked, `YYYY-MM-DD`."""
    return _TABLE.date


_TABLE = ModelTable(Path(__file__).with_name("windows.json"), Window)


# --- tokens that a provider counts for an estimated one -----------------------------------------


PRIORS = ModelTable(Path(__file__).with_name("priors.json"), lambda *, ratio: float(ratio))
"""Tokens that providers count for an estimated one, by the families of their models."""


def prior_of(model: str) -> float:
    """Return the tokens that the provider of *model* is expected to count for an estimated one; 1.0
    for a family of which nothing was measured."""
    return PRIORS.lookup(model) or 1.0
