"""What tokens cost: a small dated table as data (`prices.json`), and what you say instead.

A model that is not in the table has no known price, and nothing is decided by a guess.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of one model, in US dollars per million tokens."""

    input: float
    output: float
    read: float
    """Input that the provider's cache holds."""
    write: float
    """Input that is written to the cache; equal to *input* where that costs nothing."""
    lifetime: float = 300.0
    """Seconds that a cached prefix lives after it was used last."""
    cliffs: tuple[tuple[int, float], ...] = ()
    """Above so many tokens the whole request's input costs so many times as much."""
    hour: float | None = None
    """What writing costs where it is kept for an hour; None where nothing else than *write*."""

    def __post_init__(self) -> None:
        if self.input <= 0 or min(self.output, self.read, self.write, self.lifetime) < 0:
            raise ValueError("input must cost something, and nothing less than nothing")

    @property
    def r(self) -> float:
        """What a cached token costs in units of an input token."""
        return self.read / self.input

    @property
    def w(self) -> float:
        """What writing a token to the cache costs in units of an input token."""
        return self.write / self.input

    @property
    def o(self) -> float:
        """What an output token costs in units of an input token."""
        return self.output / self.input

    def for_an_hour(self) -> "Rates":
        """The prices of what is kept for an hour, as marks of the cache with `ttl: 1h` ask."""
        return self if self.hour is None else replace(self, write=self.hour, lifetime=3600.0)

    def factor(self, tokens: int) -> float:
        """How many times as much the input of a request of *tokens* costs."""
        return max((factor for above, factor in self.cliffs if tokens > above), default=1.0)


Prices = Callable[[str], Rates | None]
"""Your own table: from a model's name to its prices, None to look them up in ours."""


def find_rates(model: str, given: Rates | Prices | None = None) -> Rates | None:
    """The prices of *model*: what is *given*, else what the table says; None where nothing is known."""
    if isinstance(given, Rates):
        return given
    rates = given(model) if given is not None else None
    return rates if rates is not None else _lookup(model)


def prices_date() -> str:
    """The day when the table was checked, `YYYY-MM-DD`."""
    return _table()[0]


@cache
def _lookup(model: str) -> Rates | None:
    """The entry with the longest pattern that the name matches, with a provider's prefix or without."""
    low = model.lower()
    bare = low.rpartition("/")[2]
    names = (low, bare, bare.rpartition("anthropic.")[2])
    rows = [row for row in _table()[1] if any(fnmatchcase(name, row[0]) for name in names)]
    return max(rows, key=lambda row: len(row[0]))[1] if rows else None


@cache
def _table() -> tuple[str, tuple[tuple[str, Rates], ...]]:
    data = json.loads(files("refold.economics").joinpath("prices.json").read_text(encoding="utf-8"))
    return data["date"], tuple((row.pop("model"), _rates(row)) for row in data["models"])


def _rates(row: dict[str, Any]) -> Rates:
    cliffs = tuple((int(above), float(factor)) for above, factor in row.pop("cliffs", ()))
    return Rates(**row, cliffs=cliffs)
