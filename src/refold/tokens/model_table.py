"""Dated tables of models: windows (`windows.json`), the tokens that providers count per estimated
token (`priors.json`), and prices (`prices.json`).

Of the patterns that match a model's name, the one with the most literal characters applies. A model
that is not in a table is unknown, and nothing is guessed.
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
"""Characters read of a model's name. Clients can invent names, and they are cached."""

T = TypeVar("T")


class ModelTable(Generic[T]):
    """A table in the JSON file at *path*, read on first use. *make* creates an entry from the
    fields of a row."""

    def __init__(self, path: Path, make: Callable[..., T]) -> None:
        self._path, self._make = path, make
        self.lookup = lru_cache(maxsize=1_000)(self._lookup)

    @property
    def date(self) -> str:
        """Day when the table was checked, `YYYY-MM-DD`."""
        return str(self._data["date"])

    @cached_property
    def _data(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
        return data

    @cached_property
    def _rows(self) -> list[tuple[str, T]]:
        """Patterns and their entries, those with the most literal characters first."""
        rows = (dict(row) for row in self._data["models"])
        entries = [(row.pop("model"), self._make(**row)) for row in rows]
        return sorted(entries, key=lambda entry: _rank_pattern(entry[0]), reverse=True)

    def _lookup(self, model: str) -> T | None:
        """Return the entry of *model*; None if there is none.

        Case and a host prefix (`anthropic/`, `models/`, `us.anthropic.`) are ignored, the prefix
        not for models that many hosts serve in different ways (`open`). Without a prefix, such a
        name with a tag (`:4b`) is Ollama's, which is unknown.
        """
        name = _VENDOR_PREFIX.sub("", model.lower())
        bare = _HOST_PREFIX.sub("", name)
        is_open = self._is_listed(bare, "open")
        if self._is_listed(bare, "excluded") or (is_open and name == bare and ":" in name):
            return None
        spellings = {name} if is_open else {name, bare}
        return next((entry for pattern, entry in self._rows if _fits(spellings, pattern)), None)

    def _is_listed(self, name: str, key: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._data.get(key, ()))


_HOST_PREFIX = re.compile(r"^(?:.*/)?(?:[a-z-]+\.)*")
"""Host prefix of a name: a path, and Bedrock's regions and vendors."""
_VENDOR_PREFIX = re.compile(r"^(?:dashscope|moonshot)/")
"""LiteLLM's prefixes for the vendors' own APIs, for models that other hosts serve too."""
_WILDCARD = re.compile(r"\[[^][]*\]|\*")


def _rank_pattern(pattern: str) -> tuple[int, int]:
    """Return the number of characters of a pattern outside of wildcards, then its length."""
    return len(_WILDCARD.sub("", pattern)), len(pattern)


def _fits(spellings: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in spellings)


# --- windows ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """The window of one model, in tokens. Raises ValueError for impossible figures."""

    context: int
    """Maximum of request and answer together."""
    input: int | None = None
    """Maximum of the request alone, if the provider has one; never more than *context*."""
    output: int | None = None
    """Maximum of the answer."""

    def __post_init__(self) -> None:
        output = 1 if self.output is None else self.output
        require_int(1, context=self.context, input=self.room, output=output)
        if self.room > self.context:
            limit = f"with an input limit of {self.input}"
            raise ValueError(f"a window of {self.context} tokens {limit} cannot be")

    @property
    def room(self) -> int:
        """Maximum tokens of a request, with nothing reserved for the answer."""
        return self.context if self.input is None else self.input


Windows = Callable[[str], Window | None]
"""Your own table: from a model's name to its window, or to None to use the built-in table."""


class WindowLookup(NamedTuple):
    """A window, or None, and a reason."""

    window: Window | None
    reason: str


def find_window(model: str, given: int | Window | Windows | None = None) -> WindowLookup:
    """Return the window of *model*: *given*, or else from the table.

    *given* is a number of tokens, a `Window`, or a function of the name that returns either or
    None; 0 switches the window off. The reason says where it comes from or why there is none."""
    if callable(given):
        given = given(model)
    if isinstance(given, Window):
        return WindowLookup(given, f"given as {given.room} tokens")
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
        raise ValueError(f"a window is a number of tokens, a Window or a function, not {given!r}")
    if given == 0:
        return WindowLookup(None, "the window is switched off")
    if given is not None:
        return WindowLookup(Window(given), f"given as {given} tokens")
    if not model:
        return WindowLookup(None, "the request names no model and no window is given")
    window = lookup_window(model)
    if window is None:
        return WindowLookup(
            None, f"no window is known for the model {model!r} (table of {table_date()})"
        )
    return WindowLookup(window, f"{model}: {window.room} tokens (table of {table_date()})")


def lookup_window(model: str) -> Window | None:
    """Return the table's entry for *model*; None if it is unknown."""
    return _TABLE.lookup(model)


def table_date() -> str:
    """Return the day when the table was checked, `YYYY-MM-DD`."""
    return _TABLE.date


_TABLE = ModelTable(Path(__file__).with_name("windows.json"), Window)


# --- ratio of counted to estimated tokens -------------------------------------------------------


PRIORS = ModelTable(Path(__file__).with_name("priors.json"), lambda *, ratio: float(ratio))
"""Tokens that providers count per estimated token, by model family."""


def prior_of(model: str) -> float:
    """Return the expected factor from estimated tokens to those that the provider of *model*
    counts; 1.0 for a family that was not measured."""
    return PRIORS.lookup(model) or 1.0


# --- prices -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of one model, in US dollars per million tokens. Raises ValueError for impossible
    figures."""

    input: float
    output: float
    read: float
    """Price of input read from the provider's cache."""
    write: float
    """Price of input written to the cache; equal to *input* if writing costs nothing extra."""
    lifetime: float = 300.0
    """Seconds that a cached prefix lives after its last use."""
    cliffs: tuple[tuple[float, ...], ...] = ()
    """Each (tokens, factor of input prices, factor of the output price) for requests with more
    input than that. Without the last, output costs the same."""
    hour: float | None = None
    """Price of input written to the cache for an hour; None without such a price."""
    block_tokens: int = 1
    """Tokens of a cache block, which is kept whole or not at all."""

    def __post_init__(self) -> None:
        if self.input <= 0 or min(self.output, self.read, self.write, self.lifetime) < 0:
            raise ValueError("input must cost something, and nothing less than nothing")
        if not all(len(cliff) in (2, 3) for cliff in self.cliffs):
            raise ValueError("cliffs are (tokens, factor of input, factor of output)")
        require_int(1, block_tokens=self.block_tokens)

    @property
    def r(self) -> float:
        """Price of a cache read in units of an input token."""
        return self.read / self.input

    @property
    def w(self) -> float:
        """Price of a cache write in units of an input token."""
        return self.write / self.input

    @property
    def o(self) -> float:
        """Price of output in units of an input token."""
        return self.output / self.input

    def for_an_hour(self) -> "Rates":
        """Return the prices for a cache lifetime of an hour (cache marks with `ttl: 1h`); the same
        object without such a price."""
        return self if self.hour is None else replace(self, write=self.hour, lifetime=3600.0)

    def for_request(self, tokens: int) -> "Rates":
        """Return the prices of a request with *tokens* of input; the same object below cliffs."""
        above = [factors for least, *factors in sorted(self.cliffs) if tokens > least]
        if not above:
            return self
        factor, output = (*above[-1], 1.0)[:2]
        prices = {name: getattr(self, name) * factor for name in ("input", "read", "write")}
        hour = self.hour and self.hour * factor
        return replace(self, **prices, output=self.output * output, hour=hour)

    def in_blocks(self, tokens: int) -> int:
        """Return *tokens* rounded up to whole cache blocks."""
        return -(-tokens // self.block_tokens) * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """A self-hosted inference engine: its prefill rate and cache blocks.

    Raises ValueError for impossible figures.
    """

    prefill_rate: float
    """Input tokens processed per second."""
    cache_blocks: int
    """Number of blocks in its cache."""
    block_tokens: int = 16
    """Tokens of a block, which is kept whole or not at all."""
    call_seconds: float = 10.0
    """Seconds for which a call holds its blocks."""
    lifetime: float = 300.0
    """Seconds after which other sessions have taken the blocks of an idle one."""

    def __post_init__(self) -> None:
        require_number(0.001, inf, prefill_rate=self.prefill_rate)
        require_number(0, inf, call_seconds=self.call_seconds, lifetime=self.lifetime)
        require_int(1, cache_blocks=self.cache_blocks, block_tokens=self.block_tokens)

    @property
    def rates(self) -> Rates:
        """Costs in seconds of the whole engine, per million tokens.

        Prefill occupies the whole engine. A held block occupies its share of the cache for
        *call_seconds*, the answer included, but never costs more than computing it again.
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
"""Your own table: from a model's name to its prices, or to None to use the built-in table."""


def find_rates(model: str, given: Rates | Prices | None = None) -> Rates | None:
    """Return the prices of *model*: *given*, or else from the table; None if they are unknown."""
    if isinstance(given, Rates):
        return given
    rates = given(model) if given is not None else None
    return rates if rates is not None else PRICES.lookup(model)


def _make_rates(*, cliffs: Iterable[Sequence[float]] = (), **prices: Any) -> Rates:
    return Rates(**prices, cliffs=tuple(map(tuple, cliffs)))


PRICES = ModelTable(Path(__file__).with_name("prices.json"), _make_rates)
"""Prices of models on the day of the table."""
