"""Does it pay to compact this conversation now? A request's prices, and what its cache holds, for
`refold.economics.planner`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from refold.budget.budget import plan_view
from refold.core.view import View
from refold.economics.planner import GOAL, SMALLEST_REMOVAL, Plan, Worth, judge_offer
from refold.economics.prices import Rates, find_rates
from refold.economics.session_length import Survival
from refold.edits import Edit
from refold.gateway.settings import Settings

_CACHE_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*\}')
_HOUR_MARK = re.compile(rb'"ttl"\s*:\s*"1h"')


class Case(NamedTuple):
    """A compaction that should pay."""

    plan: Plan
    rates: Rates

    def judge(self, view: View, edits: Sequence[Edit], after: View) -> Worth:
        """Does it pay to make *after* of *view* by *edits*?"""
        first = min((edit.start for edit in edits), default=len(view.transcript))
        rewritten = sum(item.tokens for item in after.iter_items() if item.start >= first)
        calibrate, fixed = view.profile.calibrate, view.profile.fixed_tokens
        removed = view.tokens - calibrate(fixed + after.estimate)
        offer = replace(self.plan.offer, removed=removed, rewritten=calibrate(rewritten))
        return judge_offer(offer, self.rates, self.plan.worth.expected)


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


def find_case(
    view: View,
    settings: Settings,
    model: str,
    source: bytes,
    *,
    floor: int | None,
    idle: float | None,
    is_broken: bool,
    survival: Survival | None = None,
) -> Case | None:
    """Return the compaction of the request *source* that is due for the bill's sake; None while it
    is too early for one, and for a model without prices.

    *floor* is what the request had after the last compaction, *idle* the seconds since the cache
    was used, None if unknown. *is_broken*: the cache holds another history, or is another model's.
    """
    conversation = view.tokens - view.profile.calibrate(view.profile.fixed_tokens)
    if conversation < (1 + SMALLEST_REMOVAL) * GOAL:
        return None
    rates = find_request_rates(settings, model, source)
    if rates is None:
        return None
    is_cold = is_broken or (idle is not None and idle > rates.lifetime)
    plan = plan_view(view, rates, survival, floor=floor or 0, is_cold=is_cold)
    return Case(plan, rates) if plan is not None else None
