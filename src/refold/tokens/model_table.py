"""What is known of models, as dated data: the pattern counts that spells most of a model's name.

A table in a library is never complete and soon old: a model that is not in it is unknown, and
nothing is decided by a guess. There are three: the windows of models (`windows.json`), what their
providers count for an estimated token (`priors.json`), and what tokens cost (`prices.json`).
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from math import inf
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from refold.errors import require_int, require_number

LONGEST_NAME = 500
"""Characters of a model's name that count: names that clients make up are remembered."""

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
        """Patterns and their entries: those first that spell most of a name."""
        rows = (dict(row) for row in self._data["models"])
        entries = [(row.pop("model"), self._make(**row)) for row in rows]
        return sorted(entries, key=lambda entry: _rank_pattern(entry[0]), reverse=True)

    def _lookup(self, model: str) -> T | None:
        """Return the entry of *model*; None if there is none.

        A host before the name (`anthropic/`, `models/`, `us.anthropic.`) does not matter, unless
        the model is one that many hosts serve (`open`), each in its own way; a tag behind such a
        name (`:4b`) is Ollama's, unless a host stands before it.
        """
        name = _OWN.sub("", model.lower())
        bare = _HOST.sub("", name)
        is_open = self._is_listed(bare, "open")
        if self._is_listed(bare, "excluded") or (is_open and name == bare and ":" in name):
            return None
        spellings = {name} if is_open else {name, bare}
        return next((entry for pattern, entry in self._rows if _fits(spellings, pattern)), None)

    def _is_listed(self, name: str, key: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._data.get(key, ()))


_HOST = re.compile(r"^(?:.*/)?(?:[a-z-]+\.)*")
"""What stands before the name that a maker gave: a path, and Bedrock's regions and makers."""
_OWN = re.compile(r"^(?:dashscope|moonshot)/")
"""By what LiteLLM calls the own APIs of makers whose models others serve as well."""
_WILD = re.compile(r"\[[^][]*\]|\*")


def _rank_pattern(pattern: str) -> tuple[int, int]:
    """Return the characters that a pattern spells out, then its length."""
    return len(_WILD.sub("", pattern)), len(pattern)


def _fits(spellings: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in spellings)


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
            limit = "" if self.input is None else f" with an input limit of {self.input}"
            raise ValueError(f"a window of {self.context} tokens{limit} cannot be")

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


# --- prices: what tokens cost, and what you state instead -----------------------------------------


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of one model, in US dollars per million tokens."""

    input: float
    output: float
    read: float
    """Input that the provider's cache holds."""
    write: float
    """Input that is written to the cache; equal to *input* if that costs nothing."""
    lifetime: float = 300.0
    """Seconds that a cached prefix lives after it was used last."""
    cliffs: tuple[tuple[int, float], ...] = ()
    """Above so many tokens the whole request's input costs so many times as much."""
    hour: float | None = None
    """What writing costs if it is kept for an hour; None if it costs the same."""
    block_tokens: int = 1
    """Tokens of a block of the cache, which is kept whole or not at all."""

    def __post_init__(self) -> None:
        if self.input <= 0 or min(self.output, self.read, self.write, self.lifetime) < 0:
            raise ValueError("input must cost something, and nothing less than nothing")
        require_int(1, block_tokens=self.block_tokens)

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
        """Return the prices of what is kept for an hour, as marks of the cache with `ttl: 1h`
        ask."""
        return self if self.hour is None else replace(self, write=self.hour, lifetime=3600.0)

    def factor(self, tokens: int) -> float:
        """Return how many times as much the input of a request of *tokens* costs."""
        return max((factor for above, factor in self.cliffs if tokens > above), default=1.0)

    def in_blocks(self, tokens: int) -> int:
        """Return the tokens of the blocks that *tokens* take."""
        return -(-tokens // self.block_tokens) * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """What an engine of one's own has to spend: seconds of prefill, and blocks of its cache.

    Raises ValueError for figures that cannot be.
    """

    prefill_rate: float
    """Tokens of input that it computes in a second."""
    cache_blocks: int
    """Blocks of its cache."""
    block_tokens: int = 16
    """Tokens of a block, which is kept whole or not at all."""
    call_seconds: float = 10.0
    """Seconds for which a call holds its blocks."""
    lifetime: float = 300.0
    """Seconds after which other sessions have taken the blocks of one that makes no calls."""

    def __post_init__(self) -> None:
        require_number(0.001, inf, prefill_rate=self.prefill_rate)
        require_number(0, inf, call_seconds=self.call_seconds, lifetime=self.lifetime)
        require_int(1, cache_blocks=self.cache_blocks, block_tokens=self.block_tokens)

    @property
    def rates(self) -> Rates:
        """What tokens cost in seconds of the whole engine, per million tokens.

        Prefill takes all of it; a block that is held takes its share of the cache for
        *call_seconds*, the answer's time included, and never more than computing it anew.
        """
        prefill = 1e6 / self.prefill_rate
        held = 1e6 * self.call_seconds / (self.cache_blocks * self.block_tokens)
        return Rates(
            prefill,
            0.0,
            min(held, prefill),
            prefill,
            self.lifetime,
            block_tokens=self.block_tokens,
        )


Prices = Callable[[str], Rates | None]
"""Your own table: from a model's name to its prices, None to look them up in ours."""


def find_rates(model: str, given: Rates | Prices | None = None) -> Rates | None:
    """Return the prices of *model*: what is *given*, else what the table says; None if nothing is
    known."""
    if isinstance(given, Rates):
        return given
    rates = given(model) if given is not None else None
    return rates if rates is not None else PRICES.lookup(model)


def _make_rates(*, cliffs: Iterable[Sequence[float]] = (), **prices: Any) -> Rates:
    return Rates(**prices, cliffs=tuple((int(above), float(factor)) for above, factor in cliffs))


PRICES = ModelTable(Path(__file__).with_name("prices.json"), _make_rates)
"""Prices of models, as they were on the day that the table names."""
