"""When to act, and how far: by numbers, triggers, or when that makes the session cheaper."""

from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal

from refold.budget.planner import GOAL, Figures, Plan, Survival, find_plan
from refold.budget.triggers import (
    Amount,
    Fraction,
    LastAttempt,
    Moment,
    Tokens,
    Trigger,
    TriggerResult,
)
from refold.core.tool_groups import find_refetched
from refold.core.view import View
from refold.speakers import is_request
from refold.tokens.model_table import Prices, Rates, Window, Windows, find_rates, find_window
from refold.tokens.usage import read_usage

Level = Literal["none", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class Check:
    """What is due for one request."""

    level: Level
    """`none`, `soft` (worth preparing) or `hard` (due)."""
    tokens: int
    """Tokens of the request, with what is about to be added."""
    threshold: int | None
    """The figure in tokens that was crossed; if none was, the lowest there is. None if the trigger
    is no number of tokens, or takes a window that is not known."""
    reason: str
    """What the trigger read, in words; for a trigger that cannot fire, why."""
    hold_reason: str = ""
    """Why a compaction that is due is not tried again; empty if it would be."""
    is_periodic: bool = False
    """Does what fired count from the last compaction?"""

    @property
    def is_due(self) -> bool:
        """Is compaction worth a thought: soft or hard?"""
        return self.level != "none"


@dataclass(frozen=True, slots=True)
class Budget:
    """Act when a request has at least *trigger* tokens; bring it down to *target*.

    `soft`, if given, is the figure from which compaction is worth preparing, though not yet due.
    Instead of numbers of tokens, *trigger* and *soft* take any trigger of `refold.budget.triggers`,
    and *target* one that is a number of tokens (`Tokens`, `Fraction`, `Reserve`). Raises ValueError
    for figures that contradict one another.
    """

    trigger: int | Trigger
    target: int | Amount
    soft: int | Trigger | None = None
    window: int | Window | Windows | None = None
    """The model's window in tokens, or a function from a model's name to its `Window`; without, the
    table of `refold.tokens.model_table` is asked. 0 switches triggers that take a window off."""
    progress: float = 0.05
    """A compaction that leaves a request at the trigger must make it smaller by this share at
    least; else there is no headroom."""
    hysteresis: float = 0.05
    """After a compaction the request grows by this share of the trigger, or of itself if it stayed
    above that, before the next one. 0 tries again every time."""
    floor: int = field(init=False, repr=False, compare=False)
    """Tokens below which nothing is due whatever else is true; 0 if a trigger is no number."""

    def __post_init__(self) -> None:
        if not (0 <= self.progress < 1 and 0 <= self.hysteresis < 1):
            raise ValueError(
                "progress and hysteresis are shares from 0 to below 1, "
                f"not {self.progress}, {self.hysteresis}"
            )
        for name, value in (("trigger", self.trigger), ("soft", self.soft)):
            if not isinstance(value, int | Trigger | None) or (value is None and name == "trigger"):
                raise ValueError(
                    f"{name} must be a number of tokens or a trigger, such as "
                    f"refold.budget.triggers.Fraction(0.8), not {value!r}"
                )
        if not isinstance(self.target, int | Amount):
            problem = f"the target must be a number of tokens, not {self.target!r}"
            raise ValueError(problem)  # noqa: TRY004 - as for all settings
        window = _window_if_fixed(self.window)
        trigger, target, soft = (
            _tokens_of(amount, window) for amount in (self.trigger, self.target, self.soft)
        )
        if target is not None and (target < 0 or (trigger is not None and target > trigger)):
            raise ValueError(
                f"the target ({target}) must lie between 0 and the trigger ({trigger})"
            )
        if soft is not None and trigger is not None and soft > trigger:
            raise ValueError(f"the soft level ({soft}) must not exceed the trigger ({trigger})")
        levels = [level for level in (self.trigger, self.soft) if level is not None]
        floor = min(level if isinstance(level, int) else 0 for level in levels)
        object.__setattr__(self, "floor", floor)

    @classmethod
    def of_window(cls, window: int, reserve: int = 20_000, target: float = 0.5) -> "Budget":
        """Return a budget for a model's window: act when less than *reserve* tokens are left for
        the answer, go down to the share *target* of what is usable. Raises ValueError."""
        usable = window - reserve
        if usable <= 0:
            raise ValueError(
                f"a reserve of {reserve} tokens leaves nothing of a window of {window}"
            )
        return cls(trigger=usable, target=int(usable * target))

    def check(self, view: View) -> Level:
        """Is compaction due? Exactly at a level counts as reached."""
        return "none" if view.tokens < self.floor else self.judge(self.observe(view)).level

    def observe(
        self,
        view: View,
        pending: int = 0,
        last: LastAttempt | None = None,
        now: float = 0.0,
        idle: float | None = None,
    ) -> Moment:
        """Return what this budget's triggers look at: *view* with *pending* estimated tokens that
        are about to be added. *last* is the latest compaction, *now* the time (seconds since
        1970-01-01 UTC), *idle* how many seconds ago the request before was."""
        tokens = view.profile.calibrate(view.tokens_uncalibrated + pending)
        window = find_window(view.profile.model, self.window)
        return Moment(view, tokens, window.window, window.reason, last or LastAttempt(), now, idle)

    def judge(self, moment: Moment) -> Check:
        """Return the level of a moment, with the figure that was crossed and the reason."""
        hard = _as_trigger(self.trigger)(moment)
        if hard.is_reached:
            return _build_check("hard", moment, hard)
        if self.soft is None:
            return _build_check("none", moment, hard)
        soft = _as_trigger(self.soft)(moment)
        return _build_check("soft" if soft.is_reached else "none", moment, soft)

    def check_usage(self, usage: Any, model: str = "") -> Check:
        """Return the level after a response, from the usage object that came with it, of any
        provider: its request and its answer are what the next request starts from.

        Cached tokens count once; a sum over several calls says nothing. Only
        triggers of tokens and of the window can fire.
        """
        usage_read = read_usage(usage)
        if usage_read is None or usage_read.calls != 1:
            is_absent = usage_read is None
            why = "there is no usage" if is_absent else "the usage is a sum over several calls"
            return Check("none", 0, None, f"{why}: nothing can be said")
        window = find_window(model, self.window)
        return self.judge(Moment(View.of(()), usage_read.context, window.window, window.reason))

    def compute_goal(self, moment: Moment, check: Check | None = None) -> int:
        """Return the tokens to come down to: the target, or half of what there is where the target
        is a share of a window that is not known.

        It is less than there is, too, where no number of tokens was crossed: the trigger is none,
        or the compaction is forced.
        """
        target = _tokens_of(self.target, moment.window)
        if target is None:
            target = moment.tokens // 2
        if check is not None and check.level == "hard" and check.threshold is not None:
            return target
        return max(0, min(target, moment.tokens - max(1, int(moment.tokens * self.progress))))


def _build_check(level: Level, moment: Moment, reading: TriggerResult) -> Check:
    return Check(level, moment.tokens, reading.threshold, reading.reason, "", reading.is_periodic)


def _as_trigger(amount: int | Trigger) -> Trigger:
    return Tokens(amount) if isinstance(amount, int) else amount


def _tokens_of(amount: int | Trigger | None, window: Window | None) -> int | None:
    """Return the figure in tokens, if there is one."""
    if isinstance(amount, Amount):
        return amount.tokens(window)
    return amount if isinstance(amount, int) else None


def _window_if_fixed(window: int | Window | Windows | None) -> Window | None:
    """Return the window that was stated as such."""
    return None if callable(window) else find_window("", window).window


# --- by the bill: `refold.budget.planner` over a view ----------------------------------------


GOAL_STEP = 1_000
"""Goals are multiples of so many tokens."""
FULL = 0.9
"""The share of the window at which it is compacted whether that pays or not."""


@dataclass(frozen=True, slots=True)
class Pays(Trigger):
    """When a compaction to the planner's goal is due for the bill's sake, by the prices of the
    view's model (docs/running.md). Never for a model without known prices."""

    prices: Rates | Prices | None = None
    """Prices, if the table of `refold.tokens.model_table` should not say them."""

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


def require_budget(budget: Any) -> None:
    """Raise ValueError unless *budget* is a `Budget`."""
    if not isinstance(budget, Budget):
        raise ValueError(  # noqa: TRY004 - as for all settings
            f"the budget must be a refold.Budget(trigger, target), not {budget!r}"
        )


def default_budget(goal: int = GOAL) -> Budget:
    """Return the budget used by default: when it pays, and when the window is nearly full."""
    return Budget(Pays() | Fraction(FULL), goal)
