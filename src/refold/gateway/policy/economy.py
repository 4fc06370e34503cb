"""Does it pay to compact this conversation now? Figures of a view, for
`refold.economics.break_even`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from refold.core.view import View
from refold.economics.break_even import Offer, Worth, best_growth, judge_offer
from refold.economics.prices import Rates, find_rates
from refold.economics.session_length import Survival
from refold.edits import Edit
from refold.gateway.settings import Settings

TAIL_SHARE = 0.25
"""Share of the conversation that a compaction which is not due leaves."""
SMALLEST_TAIL = 30_000
"""The least that it leaves, in tokens."""
REFETCHED_SHARE = 0.05
"""The share of what is removed that agents are taken to fetch again."""
SUMMARY_TOKENS = 3_000
"""Tokens of a summary, as long as there is none."""
SMALLEST_SHARE = 0.1
"""The share of a request that must go for the trouble to be worth it."""

_CACHE_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*\}')
_HOUR_MARK = re.compile(rb'"ttl"\s*:\s*"1h"')


class Case(NamedTuple):
    """A compaction that might pay."""

    offer: Offer
    rates: Rates
    past: int
    """Calls that the session has made so far."""
    goal: int
    """Tokens to come down to."""

    survival: Survival | None = None
    """What is known of how long sessions are."""

    def judge(self) -> Worth:
        """Does it pay?"""
        return judge_offer(self.offer, self.rates, self.past, self.survival)

    def with_edits(self, view: View, edits: Sequence[Edit], removed: int) -> "Case":
        """Return the case with what *edits* of *view* really remove and rewrite."""
        first = min((edit.start for edit in edits), default=len(view.transcript))
        behind = view.profile.calibrate(view.base.tokens(first, len(view.transcript)))
        return self._replace(
            offer=replace(self.offer, removed=removed, rewritten=max(0, behind - removed))
        )


def find_request_rates(settings: Settings, model: str, source: bytes) -> Rates | None:
    """Return what tokens of this request's conversation cost. It reads all of *source*."""
    rates = find_rates(model, settings.prices)
    return rates.for_an_hour() if rates is not None and has_hour_cache(source) else rates


def has_hour_cache(source: bytes) -> bool:
    """Does this request ask the cache to keep its end, the conversation, for an hour?

    Anthropic takes marks of an hour only before those of five minutes: if there is one of five
    minutes, the end is kept for five minutes, whatever is before it.
    """
    marks = _CACHE_MARK.findall(source)
    return bool(marks) and all(map(_HOUR_MARK.search, marks))


def count_calls(view: View) -> int:
    """Return how many calls a conversation has made, by its history."""
    return sum(message.role == "assistant" for message in view.transcript.messages)


def find_case(
    view: View,
    settings: Settings,
    model: str,
    source: bytes,
    *,
    base: int | None,
    idle: float | None,
    survival: Survival | None = None,
) -> Case | None:
    """Return the compaction of the request *source* to consider; None while it is too early for
    one, and for a model without prices.

    *base* is what the request had after the last compaction, *idle* the seconds since the cache was
    used, None if unknown. It is time when the request has grown by what is best between
    two compactions, when the cache has lapsed, and before a price cliff.
    """
    past, asks = count_calls(view), settings.ask is not None
    fixed, tokens = view.profile.calibrate(view.profile.fixed_tokens), view.tokens
    goal = fixed + max(SMALLEST_TAIL, int(TAIL_SHARE * (tokens - fixed)))
    answered = SUMMARY_TOKENS if asks else 0
    removed, grown = tokens - goal - answered, tokens - (fixed if base is None else base)
    if past == 0 or min(removed, grown) < SMALLEST_SHARE * tokens:
        return None
    rates = find_request_rates(settings, model, source)
    if rates is None:
        return None
    offer = Offer(
        removed=removed,
        rewritten=goal - fixed + answered,
        tokens=tokens,
        growth=(view.tokens_unedited - fixed) / past,
        summary_input=tokens if asks else 0,
        summary_output=answered,
        refetched=REFETCHED_SHARE,
        cache_alive=0.0 if idle is not None and idle > rates.lifetime else 1.0,
    )
    is_steep = rates.factor(int(offer.tokens + offer.growth)) > rates.factor(goal)
    is_time = is_steep or not offer.cache_alive or grown >= best_growth(offer, rates)
    return Case(offer, rates, past, goal, survival) if is_time else None
