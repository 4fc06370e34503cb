"""Is it time to compact for the bill's sake, and how far? Figures alone, for gateway and library.

An edit saves until the session ends or its cache lapses, since then the same edit would have broken
nothing. One that has not paid for itself when the session ends is lost; most of what a session
saves does not depend on acting early, so the planner waits until that is unlikely
(`refold.economics.break_even.RISK`). It waits longer within a tool loop, where what was just read is
in use, than where a person has just asked for something.
"""

from dataclasses import dataclass
from typing import NamedTuple

from refold.economics.break_even import RISK, Offer, Worth, best_growth, judge_offer
from refold.economics.prices import Rates
from refold.economics.session_length import PRIOR, Prior, Survival, estimate_remaining_calls

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


def find_plan(
    figures: Figures, rates: Rates, survival: Survival | None = None, prior: Prior = PRIOR
) -> Plan | None:
    """Return the compaction that is due for a request of these *figures*; None while it is too
    early for one, or too likely that it is lost."""
    goal = find_goal(figures)
    least = max(goal, figures.floor)
    removed, rewritten = figures.tokens - least, least - figures.fixed
    if figures.past == 0 or removed < SMALLEST_REMOVAL * rewritten:
        return None
    expected = estimate_remaining_calls(figures.past, survival, figures.tokens, prior)
    hidden, grown = figures.unedited - figures.tokens, figures.unedited - figures.fixed
    offer = Offer(
        removed=removed,
        rewritten=rewritten,
        tokens=figures.tokens,
        growth=(grown + PRIOR_CALLS * prior.growth) / (figures.past + PRIOR_CALLS),
        refetched=min(1.0, REFETCHED_SHARE + figures.refetched / removed),
        cache_alive=0.0 if figures.is_cold else 1.0,
        may_lose=MAY_LOSE * estimate_spent(figures, rates, prior),
        risk=LATER_RISK if hidden > rewritten else RISK,
        ends=min(1.0, 1 / max(1.0, expected) + prior.lapse_share(rates.lifetime)),
    )
    worth = judge_offer(offer, rates, expected)
    patience = 1.0 if figures.is_turn_start else LOOP_PATIENCE
    is_steep = rates.factor(int(offer.tokens + offer.growth)) > rates.factor(goal)
    is_time = is_steep or figures.is_cold or removed >= patience * best_growth(offer, rates)
    return Plan(goal, offer, worth) if is_time and worth.pays else None


def estimate_spent(figures: Figures, rates: Rates, prior: Prior = PRIOR) -> float:
    """Return what a session has cost so far, in tokens of plain input: all of it written once, half
    of what is shown read by each call, and answers as long as recorded ones."""
    read = figures.fixed + (figures.tokens - figures.fixed) / 2
    return rates.w * figures.unedited + figures.past * (rates.r * read + rates.o * prior.output)
