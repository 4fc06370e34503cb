"""When an edit pays: what it saves on the calls to come, against the cache that it breaks. How many
calls are to come is estimated from earlier sessions. The two say when a compaction is due, how far
it goes, and how long the cache should last.

All figures are tokens, weighted by price: one is what a token of plain input costs. The formulas,
with *w*, *r* and *o* for writing, reading and output in units of input:

- an edit that removes D tokens and makes the provider write S tokens again saves
  p·(r·D·R - (w-r)·S) + (1-p)·(w·D + r·D·(R-1)) - F, over R further calls, where p is the chance
  that the cache is alive, and F what it costs to fetch some of it again;
- so it pays after R* = ((w-r)·(p·S - (1-p)·D) + F) / (r·D) calls;
- between two compactions a request that grows by g tokens a call should grow by √(2·g·K / r), where
  K = (w-r)·S + F. If an edit's saving ends at any call with the chance h (the session ends, or
  the cache lapses and the edit would be free), it should grow by more, by g·u/h where
  u - 1 + e^-u = K·h² / (r·g);
- if a session ends at any call with the chance 1/R, an edit is lost with the chance 1 - e^(-R*/R).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log, sqrt
from pathlib import Path
from typing import NamedTuple

from refold.tokens.model_table import Rates

# --- calls to come and pauses ---------------------------------------------------------------------
# What a gateway's own sessions tell comes first (`Survival`); until they are enough, a dated prior
# of recorded ones (`PRIOR`). In those the calls still to come do not depend on how many there were.

EXACT = 64
"""Up to here each number of calls is counted for itself, above in buckets of a tenth."""
ENOUGH = 30
"""Calls that must have been counted at a place for it to be believed."""
PRIOR_PAUSES = 20
"""Pauses that those of recorded sessions count for, beside a session's own."""
LONGEST = 200
"""The most calls that are expected."""
PRIOR_PATH = Path(__file__).with_name("sessions.json")


@dataclass(frozen=True, slots=True)
class Prior:
    """What recorded sessions say of sessions that nothing is known of."""

    date: str
    """The day of the recordings' version, `YYYY-MM-DD`."""
    source: str
    remaining: tuple[tuple[float, float], ...]
    """Calls still to come on average, this one included, for requests of up to so many tokens."""
    growth: float
    """Tokens that a call adds on average."""
    output: float
    """Tokens of an answer on average."""
    pauses: tuple[tuple[float, float], ...]
    """The share of pauses between two calls that are longer than so many seconds."""

    def remaining_calls(self, tokens: int) -> float:
        """Return the calls that are still to come after a request of *tokens*."""
        return next(calls for most, calls in self.remaining if tokens <= most)

    def lapse_share(self, lifetime: float) -> float:
        """Return the share of calls before which a cache that lives *lifetime* seconds has
        lapsed."""
        shares = [share for seconds, share in self.pauses if seconds <= lifetime]
        return shares[-1] if shares else 1.0


def lapse_share(pauses: Sequence[float], lifetime: float) -> float:
    """Return the chance that a cache that lives *lifetime* seconds lapses before the next call of a
    session that has made these *pauses*, in seconds."""
    lapses = sum(pause > lifetime for pause in pauses) + PRIOR_PAUSES * PRIOR.lapse_share(lifetime)
    return lapses / (len(pauses) + PRIOR_PAUSES)


def read_prior() -> Prior:
    """Return the prior in the file that `python -m benchmarks.fit_sessions` wrote."""
    data = json.loads(PRIOR_PATH.read_text("utf-8"))
    remaining = tuple((inf if most is None else most, calls) for most, calls in data["remaining"])
    pauses = tuple((seconds, share) for seconds, share in data["pauses"])
    return Prior(data["date"], data["source"], remaining, data["growth"], data["output"], pauses)


def bucket_of(calls: int) -> int:
    """Return the bucket that so many calls belong to, named by its first."""
    return calls if calls <= EXACT else _bucket_start(int(log(calls / EXACT) / log(1.1) + 1e-9))


def _bucket_start(number: int) -> int:
    return int(EXACT * 1.1**number) + 1


def _bucket_width(start: int) -> int:
    """Return how many numbers of calls the bucket from *start* on has."""
    if start < EXACT:
        return 1
    return next(
        width for width in range(1, start + 2) if bucket_of(start + width) != bucket_of(start)
    )


@dataclass(frozen=True, slots=True)
class Survival:
    """How many calls were counted, by `bucket_of`.

    Every call of a conversation that had *t* calls before it is counted under *t*. Conversations go
    through each *t* once, so how these counts fall is how conversations end.
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    def remaining_calls(self, past: int) -> float | None:
        """Return the calls that a conversation of *past* calls has still to come, this one
        included, on average: those counted from here on, for each that came this far. None if too
        few have been seen."""
        here = bucket_of(past)
        if self.counts.get(here, 0) < ENOUGH:
            return None
        width = _bucket_width(here)
        each = self.counts[here] / width
        within = each * (here + width - past)
        later = sum(count for start, count in self.counts.items() if start > here)
        return (within + later) / each


PRIOR = read_prior()


def estimate_remaining_calls(past: int, survival: Survival | None = None, tokens: int = 0) -> float:
    """Return how many calls a session of *past* calls, whose request has *tokens*, has still to
    come, this one included: what *survival* has learned, else what `PRIOR` says; at most
    `LONGEST`."""
    learned = survival.remaining_calls(past) if survival is not None else None
    return min(PRIOR.remaining_calls(tokens) if learned is None else learned, float(LONGEST))


# --- the worth of an edit -------------------------------------------------------------------------

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


def refetch_cost(offer: Offer, rates: Rates) -> float:
    """Return what it costs that the agent fetches some of what is removed again."""
    return offer.refetched * offer.removed * rates.w


def break_even(offer: Offer, rates: Rates) -> float:
    """Return the calls after which *offer* has paid for itself; 0 if it does at once."""
    if offer.removed <= 0:
        return inf
    broken = (rates.w - rates.r) * (
        offer.cache_alive * offer.rewritten - (1 - offer.cache_alive) * offer.removed
    )
    cost = broken + refetch_cost(offer, rates)
    if cost <= 0:
        return 0.0
    return cost / (rates.r * offer.removed) if rates.r else inf


def tokens_saved(offer: Offer, rates: Rates, calls: float) -> float:
    """Return the tokens of plain input that *offer* saves over *calls* further calls; negative for
    a loss."""
    while_alive = rates.r * offer.removed * calls - (rates.w - rates.r) * offer.rewritten
    after_lapse = rates.w * offer.removed + rates.r * offer.removed * (calls - 1)
    expected = offer.cache_alive * while_alive + (1 - offer.cache_alive) * after_lapse
    return expected - refetch_cost(offer, rates)


def best_growth(offer: Offer, rates: Rates) -> float:
    """Return the tokens by which a request should grow between two compactions; infinite if reading
    costs nothing."""
    broken = (rates.w - rates.r) * offer.rewritten * offer.cache_alive
    price = max(0.0, broken + refetch_cost(offer, rates))
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


# --- the next compaction --------------------------------------------------------------------------

GOAL = 10_000
"""Tokens of the conversation that a compaction leaves. The bill alone would have fewer: what is
fetched again costs little. So this is the least that keeps 95 % of the names that later calls of
recorded sessions need (docs/benchmarks.md)."""
SMALLEST_REMOVAL = 0.5
"""The least that must go, as a share of what is left."""
LOOP_PATIENCE = 1.25
"""How many times the best growth is awaited within a tool loop. The bill is flat around it: a
quarter more costs some 3 % of what compactions cost."""
PRIOR_CALLS = 10
"""Calls that the growth of recorded sessions counts for, beside a session's own."""
MAY_LOSE = 0.02
"""The share of what a session has cost so far that a compaction may lose if it ends too soon."""
LATER_RISK = 0.3
"""As `RISK`, for a session that has more hidden than it shows: what it has saved by then is more
than another compaction can lose."""
REFETCHED_SHARE = 0.03
"""The share of what is removed that an agent fetches again, until it is seen to fetch more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A request as far as the bill goes, in tokens."""

    tokens: int
    """The whole request, as it is shown now."""
    unedited: int
    """The same without any edits."""
    fixed: int
    """System prompt and tools, which stay."""
    past: int
    """Calls that the session has made so far."""
    floor: int = 0
    """What the last compaction left, or the request when one was considered last: only what came
    since is taken to be removable."""
    refetched: int = 0
    """What was fetched again after an edit had hidden it."""
    is_cold: bool = False
    """Does the cache hold nothing of the conversation?"""
    is_turn_start: bool = False
    """Has a person just asked for something?"""


class Plan(NamedTuple):
    """A compaction that is due."""

    goal: int
    """Tokens of the whole request to come down to."""
    offer: Offer
    """What it is expected to do."""
    worth: Worth


def find_goal(figures: Figures) -> int:
    """Return the tokens of the whole request to come down to.

    What was fetched again after it was hidden is part of a larger working set, so more is left.
    """
    return figures.fixed + GOAL + figures.refetched


def find_plan(figures: Figures, rates: Rates, survival: Survival | None = None) -> Plan | None:
    """Return the compaction that is due for a request of these *figures*; None while it is too
    early for one, or too likely that it is lost."""
    goal = rates.in_blocks(find_goal(figures))  # the rest of the last block costs nothing
    least = rates.in_blocks(max(goal, figures.floor))
    removed = rates.in_blocks(figures.tokens) - least
    rewritten = least - figures.fixed // rates.block_tokens * rates.block_tokens
    if figures.past == 0 or removed < SMALLEST_REMOVAL * rewritten:
        return None
    expected = estimate_remaining_calls(figures.past, survival, figures.tokens)
    hidden, grown = figures.unedited - figures.tokens, figures.unedited - figures.fixed
    offer = Offer(
        removed=removed,
        rewritten=rewritten,
        tokens=figures.tokens,
        growth=(grown + PRIOR_CALLS * PRIOR.growth) / (figures.past + PRIOR_CALLS),
        refetched=min(1.0, REFETCHED_SHARE + figures.refetched / removed),
        cache_alive=0.0 if figures.is_cold else 1.0,
        may_lose=MAY_LOSE * estimate_spent(figures, rates),
        risk=LATER_RISK if hidden > rewritten else RISK,
        ends=min(1.0, 1 / max(1.0, expected) + PRIOR.lapse_share(rates.lifetime)),
    )
    worth = judge_offer(offer, rates, expected)
    patience = 1.0 if figures.is_turn_start else LOOP_PATIENCE
    is_steep = rates.factor(int(offer.tokens + offer.growth)) > rates.factor(goal)
    is_time = is_steep or figures.is_cold or removed >= patience * best_growth(offer, rates)
    return Plan(goal, offer, worth) if is_time and worth.pays else None


def estimate_spent(figures: Figures, rates: Rates) -> float:
    """Return what a session has cost so far, in tokens of plain input: all of it written once, half
    of what is shown read by each call, and answers as long as recorded ones."""
    read = figures.fixed + (figures.tokens - figures.fixed) / 2
    return rates.w * figures.unedited + figures.past * (rates.r * read + rates.o * PRIOR.output)


# --- the cache's lifetime -------------------------------------------------------------------------


def is_hour_cheaper(tokens: int, pauses: Sequence[float], rates: Rates, expected: float) -> bool:
    """Does it cost less to keep the cache for an hour than for the provider's shorter lifetime?

    The request has so many *tokens*, all of which are written now; so many calls are *expected*,
    and the session has made these *pauses*, in seconds.
    """

    def cost_of_call(rates: Rates) -> float:
        """Return what a call costs on average, in tokens of plain input."""
        lapses = lapse_share(pauses, rates.lifetime)
        written = PRIOR.growth + lapses * tokens + tokens / max(1.0, expected)
        return rates.r * (1 - lapses) * tokens + rates.w * written

    return rates.hour is not None and cost_of_call(rates.for_an_hour()) < cost_of_call(rates)
