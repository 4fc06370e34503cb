"""Compact when that makes the session cheaper: `refold.economics.planner` over a view."""

from dataclasses import dataclass, replace
from itertools import takewhile

from refold.budget.budget import Budget
from refold.budget.triggers import Fraction, Moment, Trigger, TriggerResult
from refold.core.refetches import find_refetched
from refold.core.view import View
from refold.economics.planner import GOAL, Figures, Plan, find_plan
from refold.economics.prices import Prices, Rates, find_rates
from refold.economics.session_length import Survival
from refold.speakers import is_request
from refold.tokens.windows import find_window

GOAL_STEP = 1_000
"""Goals are multiples of so many tokens."""
FULL = 0.9
"""The share of the window at which it is compacted whether that pays or not."""


@dataclass(frozen=True, slots=True)
class Pays(Trigger):
    """When a compaction to the planner's goal is due for the bill's sake, by the prices of the
    view's model (docs/running.md). Never for a model without known prices."""

    prices: Rates | Prices | None = None
    """Prices, if the table of `refold.economics.prices` should not say them."""

    def __call__(self, moment: Moment) -> TriggerResult:
        """Does it pay to compact now?"""
        view = moment.view
        rates = find_rates(view.profile.model, self.prices)
        if rates is None:
            why = f"no prices are known of {view.profile.model or 'a model without a name'}"
            return TriggerResult(False, f"{why}: nothing pays", is_periodic=True)
        is_cold = moment.idle is not None and moment.idle > rates.lifetime
        plan = plan_view(view, rates, floor=moment.last.tokens or 0, is_cold=is_cold)
        why = plan.worth.reason if plan is not None else "no compaction pays yet"
        return TriggerResult(plan is not None, why, is_periodic=True)


def plan_view(
    view: View,
    rates: Rates,
    survival: Survival | None = None,
    *,
    floor: int = 0,
    is_cold: bool = False,
) -> Plan | None:
    """Return the compaction of *view* that is due for the bill's sake; *floor* and *is_cold* as for
    `Figures`. What was fetched again is looked for only if one is."""
    figures = replace(read_figures(view, floor), is_cold=is_cold)
    plan = find_plan(figures, rates, survival)
    refetched = count_refetched(view) if plan is not None and view.visible_edits else 0
    return find_plan(replace(figures, refetched=refetched), rates, survival) if refetched else plan


def count_refetched(view: View) -> int:
    """Return the tokens of results that show again what an edit hides."""
    messages, count = view.transcript.messages, view.profile.count
    return sum(count(messages[at]) for at in find_refetched(view, view.estimate))


def read_figures(view: View, floor: int = 0) -> Figures:
    """Return the figures of a view, but what was fetched again and whether its cache is cold."""
    newest = takewhile(
        lambda message: message.role != "assistant", reversed(view.transcript.messages)
    )
    return Figures(
        tokens=view.tokens,
        unedited=view.tokens_unedited,
        fixed=view.profile.calibrate(view.profile.fixed_tokens),
        past=count_calls(view),
        floor=floor,
        is_turn_start=any(map(is_request, newest)),
    )


def count_calls(view: View) -> int:
    """Return how many calls a conversation has made, by its history."""
    return sum(message.role == "assistant" for message in view.transcript.messages)


def default_goal(view: View) -> int:
    """Return the tokens that *view* comes down to by default: the planner's goal beside system
    prompt and tools, at most half of the model's window."""
    window = find_window(view.profile.model).window
    goal = GOAL + view.profile.calibrate(view.profile.fixed_tokens)
    goal = -(-goal // GOAL_STEP) * GOAL_STEP
    return min(goal, window.room // 2) if window is not None else goal


def default_budget(goal: int = GOAL) -> Budget:
    """Return the budget used by default: when it pays, and when the window is nearly full."""
    return Budget(Pays() | Fraction(FULL), goal)
