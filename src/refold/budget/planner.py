"""When an edit pays: its savings on later calls against the cost of writing the cache again. Also
when a compaction is due, how far it goes, and how long the cache should last.

All figures are tokens, weighted by price: 1 is the price of a plain input token. *w*, *r* and *o*
are the prices of a cache write, a cache read and output in that unit. The formulas:

- An edit that removes D tokens and makes the provider write S tokens again saves
  p·(r·D·R - (w-r)·S) + (1-p)·(w·D + r·D·(R-1)) - F over R further calls. p is the probability
  that the cache is alive, F the cost of fetching some of the removed content again.
- So it pays after R* = ((w-r)·(p·S - (1-p)·D) + F) / (r·D) calls.
- Between two compactions a request that grows by g tokens a call should grow by √(2·g·K / r), where
  K = (w-r)·S + F. If the saving ends at any call with probability h (the session ends, or the cache
  lapses and the edit would be free), it should grow by more: by g·u/h, where
  u - 1 + e^-u = K·h² / (r·g).
- If a session ends at any call with probability 1/R, an edit is lost with probability
  1 - e^(-R*/R).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log, sqrt
from pathlib import Path
from typing import NamedTuple

from refold.tokens.model_table import Rates

# --- remaining calls and pauses -------------------------------------------------------------------
# Estimated from a gateway's own sessions (`CallCounts`), or from a dated prior of recorded sessions
# (`PRIOR`) while these are too few. In the prior, remaining calls do not depend on past calls.

EXACT_BUCKETS = 64
"""Number of calls up to which each number has its own bucket. Above, buckets grow by a tenth."""
MIN_BUCKET_COUNT = 30
"""Minimum count of a bucket for its figures to be used."""
PRIOR_PAUSES = 20
"""Weight of the prior's share beside a session's own pauses: that of as many pauses."""
MAX_EXPECTED_CALLS = 200
"""Maximum number of expected calls."""
PRIOR_PATH = Path(__file__).with_name("sessions.json")


@dataclass(frozen=True, slots=True)
class Prior:
    """Statistics of recorded sessions, used for sessions without history."""

    date: str
    """Day of the recordings' version, `YYYY-MM-DD`."""
    source: str
    remaining: tuple[tuple[float, float], ...]
    """Pairs (maximum tokens of a request, mean number of remaining calls, this one included)."""
    growth: float
    """Mean number of tokens that a call adds."""
    output: float
    """Mean number of tokens of an answer."""
    pauses: tuple[tuple[float, float], ...]
    """Pairs (seconds, share of the pauses between two calls that are longer)."""

    def remaining_calls(self, tokens: int) -> float:
        """Return the mean number of remaining calls for a request of *tokens*."""
        return next(calls for most, calls in self.remaining if tokens <= most)

    def lapse_share(self, lifetime: float) -> float:
        """Return the share of calls before which a cache with a *lifetime* in seconds has
        lapsed."""
        shares = [share for seconds, share in self.pauses if seconds <= lifetime]
        return shares[-1] if shares else 1.0


def lapse_share(pauses: Sequence[float], lifetime: float) -> float:
    """Return the probability that a cache with a *lifetime* in seconds lapses before the next call
    of a session with these *pauses*, in seconds."""
    lapses = sum(pause > lifetime for pause in pauses) + PRIOR_PAUSES * PRIOR.lapse_share(lifetime)
    return lapses / (len(pauses) + PRIOR_PAUSES)


def read_prior() -> Prior:
    """Return the prior from the file that `python -m benchmarks.fit_sessions` wrote."""
    data = json.loads(PRIOR_PATH.read_text("utf-8"))
    remaining = tuple((inf if most is None else most, calls) for most, calls in data["remaining"])
    pauses = tuple((seconds, share) for seconds, share in data["pauses"])
    return Prior(data["date"], data["source"], remaining, data["growth"], data["output"], pauses)


def bucket_of(calls: int) -> int:
    """Return the bucket of a number of calls: the first number in it."""
    return (
        calls
        if calls <= EXACT_BUCKETS
        else _bucket_start(int(log(calls / EXACT_BUCKETS) / log(1.1) + 1e-9))
    )


def _bucket_start(number: int) -> int:
    return int(EXACT_BUCKETS * 1.1**number) + 1


def _bucket_width(start: int) -> int:
    """Return how many numbers of calls belong to the bucket that begins at *start*."""
    if start < EXACT_BUCKETS:
        return 1
    return next(
        width for width in range(1, start + 2) if bucket_of(start + width) != bucket_of(start)
    )


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Counts of calls by `bucket_of` the number of earlier calls in their conversation.

    Every conversation passes each number once, so the decrease of the counts shows where
    conversations end.
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    def remaining_calls(self, past: int) -> float | None:
        """Return the mean number of remaining calls, this one included, of a conversation with
        *past* calls: the calls counted from here on per conversation that came this far. None if
        the bucket has fewer than `MIN_BUCKET_COUNT`."""
        here = bucket_of(past)
        if self.counts.get(here, 0) < MIN_BUCKET_COUNT:
            return None
        width = _bucket_width(here)
        each = self.counts[here] / width
        within = each * (here + width - past)
        later = sum(count for start, count in self.counts.items() if start > here)
        return (within + later) / each


PRIOR = read_prior()


def estimate_remaining_calls(
    past: int, survival: CallCounts | None = None, tokens: int = 0
) -> float:
    """Return the expected remaining calls, this one included, of a session with *past* calls and a
    request of *tokens*: from *survival* or else `PRIOR`, at most `MAX_EXPECTED_CALLS`."""
    learned = survival.remaining_calls(past) if survival is not None else None
    return min(
        PRIOR.remaining_calls(tokens) if learned is None else learned, float(MAX_EXPECTED_CALLS)
    )


# --- the worth of an edit -------------------------------------------------------------------------

RISK = 0.03
"""Share of the expected calls within which an edit must have paid for itself, except for
`EditEffect.accepted_loss`. So at most one in thirty loses more because its session ends earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditEffect:
    """The effects of a proposed edit."""

    removed: int
    """Tokens that each later request is smaller by."""
    rewritten: int
    """Tokens after the earliest change, which the provider must write to its cache again."""
    tokens: int
    """Tokens of the request without the edit."""
    growth: float = 0.0
    """Tokens that a call adds."""
    cache_alive: float = 1.0
    """Probability that the cache is alive: 0 after its lifetime."""
    refetched: float = 0.0
    """Share of the removed tokens that the agent fetches again."""
    ends: float = 0.0
    """Probability per call that the saving ends: the session ends, or the cache lapses."""
    risk: float = RISK
    """Share of the expected calls within which the edit must have paid for itself."""
    accepted_loss: float = 0.0
    """Part of its cost that need not be recovered by then, in tokens of plain input."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an edit pays, with the figures behind it."""

    pays: bool
    after: float
    """Number of calls after which it has paid for itself; infinite if it never does."""
    expected: float
    """Expected number of calls."""
    tokens_saved: float
    """Tokens of plain input saved over the expected calls; negative for a loss."""
    reason: str


def refetch_cost(offer: EditEffect, rates: Rates) -> float:
    """Return the cost of fetching some of the removed content again, in tokens of plain input."""
    return offer.refetched * offer.removed * rates.w


def break_even(offer: EditEffect, rates: Rates) -> float:
    """Return the number of calls after which *offer* has paid for itself: 0 if it does at once,
    infinite if it never does."""
    if offer.removed <= 0:
        return inf
    broken = (rates.w - rates.r) * (
        offer.cache_alive * offer.rewritten - (1 - offer.cache_alive) * offer.removed
    )
    cost = broken + refetch_cost(offer, rates)
    if cost <= 0:
        return 0.0
    return cost / (rates.r * offer.removed) if rates.r else inf


def tokens_saved(offer: EditEffect, rates: Rates, calls: float) -> float:
    """Return the tokens of plain input that *offer* saves over *calls* later calls; negative for a
    loss."""
    while_alive = rates.r * offer.removed * calls - (rates.w - rates.r) * offer.rewritten
    after_lapse = rates.w * offer.removed + rates.r * offer.removed * (calls - 1)
    expected = offer.cache_alive * while_alive + (1 - offer.cache_alive) * after_lapse
    return expected - refetch_cost(offer, rates)


def best_growth(offer: EditEffect, rates: Rates) -> float:
    """Return the tokens by which a request should grow between two compactions; infinite if cache
    reads cost nothing."""
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


def judge_edit(offer: EditEffect, rates: Rates, expected: float) -> Verdict:
    """Return the verdict on *offer* in a session with *expected* remaining calls."""
    after, gained = break_even(offer, rates), tokens_saved(offer, rates, expected)
    low = rates.for_request(offer.tokens - offer.removed)
    high = rates.for_request(int(offer.tokens + offer.growth))
    if offer.removed > 0 and low.input < high.input:
        read, output = high.read - low.read, high.output - low.output
        gained += (read * offer.tokens + output * PRIOR.output) / rates.input
        times = f"{high.input / rates.input:g} times as much"
        reason = f"pays at once: above a price cliff input costs {times}"
        return Verdict(True, 0.0, expected, gained, reason)
    when = "never pays" if after == inf else f"pays after {after:.1f} calls"
    why = f"{when}, expected {expected:.0f}"
    if not offer.cache_alive:
        why += "; the cache does not hold it"
    is_sure = tokens_saved(offer, rates, offer.risk * expected) >= -offer.accepted_loss
    return Verdict(is_sure and gained > 0 and after < expected, after, expected, gained, why)


# --- the next compaction --------------------------------------------------------------------------

DEFAULT_GOAL = 10_000
"""Tokens of the conversation that a compaction leaves. Fewer would be cheaper, since fetching again
costs little. This is the least that keeps 95 % of the names that later calls of recorded sessions
need (docs/benchmarks.md)."""
SMALLEST_REMOVAL = 0.5
"""Minimum tokens to remove, as a share of the conversation's tokens that are left."""
LOOP_PATIENCE = 1.25
"""Factor by which the best growth is exceeded within a tool loop. The cost is flat around it: a
quarter more adds about 3 % to the cost of compactions."""
PRIOR_CALLS = 10
"""Weight of the recorded sessions' growth beside a session's own: that of as many calls."""
ACCEPTED_LOSS_SHARE = 0.02
"""Share of a session's cost so far that a compaction may lose if the session ends too soon."""
LATER_RISK = 0.3
"""`RISK` for a session in which more is hidden than would be written again: it has already saved
more than another compaction can lose."""
REFETCHED_SHARE = 0.03
"""Expected share of removed tokens that are fetched again, beside those seen so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a request that determine its cost, in tokens."""

    tokens: int
    """The whole request with its current edits."""
    unedited: int
    """The whole request without edits."""
    fixed: int
    """System prompt and tools, which cannot be removed."""
    past: int
    """Number of calls of the session so far."""
    floor: int = 0
    """Size of the request after the last compaction or attempt. Only tokens that were added since
    count as removable."""
    refetched: int = 0
    """Tokens that were fetched again after an edit had hidden them."""
    is_cold: bool = False
    """Whether the cache holds nothing of the conversation."""
    is_turn_start: bool = False
    """Whether a person has just made a request."""


class Plan(NamedTuple):
    """A compaction that is due."""

    goal: int
    """Goal for the whole request, in tokens."""
    offer: EditEffect
    """Its expected effects."""
    worth: Verdict


def find_goal(figures: Figures) -> int:
    """Return the goal for the whole request, in tokens. Refetched content shows that the agent
    needs more at once, so its tokens are added."""
    return figures.fixed + DEFAULT_GOAL + figures.refetched


def find_plan(figures: Figures, rates: Rates, survival: CallCounts | None = None) -> Plan | None:
    """Return the compaction that is due for these *figures*; None if it is too early, or the risk
    of a loss is too high."""
    goal = rates.in_blocks(find_goal(figures))  # a partly used block costs as much as a full one
    least = rates.in_blocks(max(goal, figures.floor))
    removed = rates.in_blocks(figures.tokens) - least
    rewritten = least - figures.fixed // rates.block_tokens * rates.block_tokens
    if figures.past == 0 or removed < SMALLEST_REMOVAL * rewritten:
        return None
    expected = estimate_remaining_calls(figures.past, survival, figures.tokens)
    hidden, grown = figures.unedited - figures.tokens, figures.unedited - figures.fixed
    offer = EditEffect(
        removed=removed,
        rewritten=rewritten,
        tokens=figures.tokens,
        growth=(grown + PRIOR_CALLS * PRIOR.growth) / (figures.past + PRIOR_CALLS),
        refetched=min(1.0, REFETCHED_SHARE + figures.refetched / removed),
        cache_alive=0.0 if figures.is_cold else 1.0,
        accepted_loss=ACCEPTED_LOSS_SHARE * estimate_spent(figures, rates),
        risk=LATER_RISK if hidden > rewritten else RISK,
        ends=min(1.0, 1 / max(1.0, expected) + PRIOR.lapse_share(rates.lifetime)),
    )
    worth = judge_edit(offer, rates, expected)
    patience = 1.0 if figures.is_turn_start else LOOP_PATIENCE
    high = rates.for_request(int(offer.tokens + offer.growth))
    is_steep = high.input > rates.for_request(goal).input
    is_time = is_steep or figures.is_cold or removed >= patience * best_growth(offer, rates)
    return Plan(goal, offer, worth) if is_time and worth.pays else None


def estimate_spent(figures: Figures, rates: Rates) -> float:
    """Return an estimate of a session's cost so far, in tokens of plain input: everything written
    once; per call a read of the fixed part and half of the rest, and an answer of `PRIOR`'s
    length."""
    read = figures.fixed + (figures.tokens - figures.fixed) / 2
    return rates.w * figures.unedited + figures.past * (rates.r * read + rates.o * PRIOR.output)


# --- the cache's lifetime -------------------------------------------------------------------------


def is_hour_cheaper(tokens: int, pauses: Sequence[float], rates: Rates, expected: float) -> bool:
    """Return whether a cache lifetime of an hour costs less than the provider's shorter one. False
    if the provider has none of an hour.

    All *tokens* of the request are written now, *expected* calls remain, and the session has made
    these *pauses*, in seconds.
    """

    def cost_of_call(rates: Rates) -> float:
        """Return the mean cost of a call, in tokens of plain input."""
        lapses = lapse_share(pauses, rates.lifetime)
        written = PRIOR.growth + lapses * tokens + tokens / max(1.0, expected)
        return rates.r * (1 - lapses) * tokens + rates.w * written

    return rates.hour is not None and cost_of_call(rates.for_an_hour()) < cost_of_call(rates)
