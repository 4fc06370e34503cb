"""When an edit pays: what it saves on the calls to come, against the cache that it breaks.

All figures are tokens, weighted by price: one is what a token of plain input costs. The formulas,
with *w*, *r* and *o* for writing, reading and output in units of input:

- an edit that removes D tokens and makes the provider write S tokens again saves
  p·(r·D·R - (w-r)·S) + (1-p)·(w·D + r·D·(R-1)) - asking, over R further calls, where p is the chance
  that the cache is alive;
- so it pays after R* = ((w-r)·(p·S - (1-p)·D) + asking + refetched) / (r·D) calls;
- between two compactions a request that grows by g tokens a call should grow by √(2·g·K / r), where
  K = (w-r)·S + asking. If an edit's saving ends at any call with the chance h (the session ends, or
  the cache lapses and the edit would be free), it should grow by more, by g·u/h where
  u - 1 + e^-u = K·h² / (r·g);
- if a session ends at any call with the chance 1/R, an edit is lost with the chance 1 - e^(-R*/R).
"""

from dataclasses import dataclass
from math import exp, inf, sqrt

from refold.economics.prices import Rates

RISK = 0.03
"""An edit must have paid for itself, but for what may be lost, within this share of the calls
expected: so at most one in thirty loses more because the session ends before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What an edit would do."""

    removed: int
    """Tokens that each further request is smaller by."""
    rewritten: int
    """Tokens behind the earliest change, which the provider has to write to its cache again."""
    tokens: int
    """Tokens of the request without the edit."""
    growth: float = 0.0
    """Tokens that a call adds."""
    summary_input: int = 0
    """Tokens that a model reads for a summary, at the price of cached input."""
    summary_output: int = 0
    """Tokens that it writes."""
    cache_alive: float = 1.0
    """The chance that the cache is alive: 0 after its lifetime."""
    refetched: float = 0.0
    """The share of what is removed that the agent fetches again."""
    ends: float = 0.0
    """The chance at each call that the edit saves no longer: the session ends, or the cache
    lapses."""
    risk: float = RISK
    """The share of the calls expected within which it must have paid for itself."""
    may_lose: float = 0.0
    """What of its cost need not have come in by then, in tokens of plain input."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Whether an edit pays, and how that was reckoned."""

    pays: bool
    after: float
    """Calls after which it has paid for itself; infinite if it never does."""
    expected: float
    """Calls that are expected."""
    tokens_saved: float
    """Tokens of plain input saved over the expected calls; negative for a loss."""
    reason: str


def summary_cost(offer: Offer, rates: Rates) -> float:
    """Return what a summary costs."""
    return rates.r * offer.summary_input + rates.o * offer.summary_output


def break_even(offer: Offer, rates: Rates) -> float:
    """Return the calls after which *offer* has paid for itself; 0 if it does at once."""
    if offer.removed <= 0:
        return inf
    broken = (rates.w - rates.r) * (
        offer.cache_alive * offer.rewritten - (1 - offer.cache_alive) * offer.removed
    )
    cost = broken + summary_cost(offer, rates) + offer.refetched * offer.removed * rates.w
    if cost <= 0:
        return 0.0
    return cost / (rates.r * offer.removed) if rates.r else inf


def tokens_saved(offer: Offer, rates: Rates, calls: float) -> float:
    """Return the tokens of plain input that *offer* saves over *calls* further calls; negative for
    a loss."""
    while_alive = rates.r * offer.removed * calls - (rates.w - rates.r) * offer.rewritten
    after_lapse = rates.w * offer.removed + rates.r * offer.removed * (calls - 1)
    fetched = offer.refetched * offer.removed * rates.w
    return (
        offer.cache_alive * while_alive
        + (1 - offer.cache_alive) * after_lapse
        - fetched
        - summary_cost(offer, rates)
    )


def best_growth(offer: Offer, rates: Rates) -> float:
    """Return the tokens by which a request should grow between two compactions; infinite if reading
    costs nothing."""
    broken = (rates.w - rates.r) * offer.rewritten * offer.cache_alive
    fetched = offer.refetched * offer.removed * rates.w
    price = max(0.0, broken + fetched + summary_cost(offer, rates))
    growth, chance = max(offer.growth, 1.0), offer.ends
    if not rates.r:
        return inf
    if not chance:
        return sqrt(2 * growth * price / rates.r)
    return growth * _solve(price * chance**2 / (rates.r * growth)) / chance


def _solve(value: float) -> float:
    """Return the u for which u - 1 + e^-u is *value*."""
    low, high = 0.0, value + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if middle - 1 + exp(-middle) > value else (middle, high)
    return high


def judge_offer(offer: Offer, rates: Rates, expected: float) -> Worth:
    """Does *offer* pay in a session that is *expected* to make so many calls more?"""
    after, gained = break_even(offer, rates), tokens_saved(offer, rates, expected)
    remaining = offer.tokens - offer.removed
    high = rates.factor(int(offer.tokens + offer.growth))
    if offer.removed > 0 and rates.factor(remaining) < high:
        gained += (high - rates.factor(remaining)) * offer.tokens * rates.r
        reason = f"pays at once: above a price cliff input costs {high:g} times as much"
        return Worth(True, 0.0, expected, gained, reason)
    when = "never pays" if after == inf else f"pays after {after:.1f} calls"
    why = f"{when}, expected {expected:.0f}"
    if not offer.cache_alive:
        why += "; the cache does not hold it"
    is_sure = tokens_saved(offer, rates, offer.risk * expected) >= -offer.may_lose
    return Worth(is_sure and gained > 0 and after < expected, after, expected, gained, why)
