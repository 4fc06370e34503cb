"""What tokens cost: a small dated table as data (`prices.json`), and what you state instead.

A model that is not in the table has no known price, and nothing is decided by a guess.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from refold.errors import require_int, require_number
from refold.tokens.model_table import ModelTable


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
