"""Tokens of calls and what they cost. Money is whole picodollars (10^-12 US dollars), so that sums are exact."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from refold.pricing import Rates
from refold.tokens.usage import Usage, read_usage

DOLLAR = 10**12
"""Picodollars of a US dollar."""


class Tokens(NamedTuple):
    """Tokens of one or more calls; every token of the request is in one of the first three."""

    fresh: int = 0
    """Input that was neither read from a cache nor written to one."""
    read: int = 0
    written: int = 0
    output: int = 0
    hour: int = 0
    """The share of *written* that the cache keeps for an hour."""

    @property
    def input(self) -> int:
        """All tokens of the request."""
        return self.fresh + self.read + self.written


class Cost(NamedTuple):
    """What each of these tokens cost, in picodollars."""

    fresh: int = 0
    read: int = 0
    written: int = 0
    output: int = 0


def cost(tokens: Tokens, rates: Rates) -> Cost:
    """What one call of *tokens* costs: above a price cliff all of its input costs more."""
    factor = rates.factor(tokens.input)
    short, long = tokens.written - tokens.hour, rates.for_an_hour().write
    return Cost(
        _money(tokens.fresh, rates.input * factor),
        _money(tokens.read, rates.read * factor),
        _money(short, rates.write * factor) + _money(tokens.hour, long * factor),
        _money(tokens.output, rates.output),
    )


def _money(tokens: int, price: float) -> int:
    """*price* is US dollars per million tokens."""
    return round(tokens * price * 1e6)


def billed(usage: Any, *, hour: bool = False) -> Tokens | None:
    """What a provider's usage object bills; None where it says nothing. *hour*: does the request ask the cache to
    keep it for an hour? That counts where the usage does not say what was written for how long.

    Where a call was made of several (server tools, a compaction by the provider), their sum: Anthropic's
    top level leaves the compaction out.
    """
    parts = usage.get("iterations") if isinstance(usage, Mapping) else None
    found = [read_usage(part) for part in parts] if isinstance(parts, list) and parts else [read_usage(usage)]
    known = [_tokens(one, hour=hour) for one in found if one is not None]
    return Tokens(*map(sum, zip(*known, strict=True))) if known else None


def _tokens(usage: Usage, *, hour: bool) -> Tokens:
    fresh, asked = max(0, usage.input - usage.cached - usage.written), usage.written if hour else 0
    return Tokens(fresh, usage.cached, usage.written, usage.output, asked if usage.hour is None else usage.hour)
