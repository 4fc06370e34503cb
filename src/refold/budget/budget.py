"""The budget: when to compact and down to how many tokens, by token counts, triggers or cost."""

from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any, Literal

from refold.budget.planner import DEFAULT_GOAL, CallCounts, Figures, Plan, find_plan
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
from refold.errors import is_number, require_int, require_number
from refold.speakers import is_request
from refold.tokens.model_table import Prices, Rates, Window, Windows, find_rates, find_window
from refold.tokens.usage import read_usage

Level = Literal["none", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class Check:
    """The state of one request against a budget."""

    level: Level
    """`none`, `soft` (worth preparing) or `hard` (due)."""
    tokens: int
    """Tokens of the request, pending tokens included."""
    threshold: int | None
    """Threshold in tokens that was crossed; if none was, the lowest one. None if the trigger is not
    a number of tokens, or needs a window that is not known."""
    reason: str
    """Figures that the trigger compared, as text; for a trigger that cannot fire, why."""
    hold_reason: str = ""
    """Why a due compaction is not tried again; empty if it is."""
    is_periodic: bool = False
    """Whether the trigger that fired counts from the last compaction."""

    @property
    def is_due(self) -> bool:
        """Whether the level is soft or hard."""
        return self.level != "none"


@dataclass(frozen=True, slots=True)
class Budget:
    """Compact when a request has at least *trigger* tokens, down to *target*.

    `soft`, if given, is the level from which a compaction is worth preparing, but not yet due.
    Instead of a number, *trigger* and *soft* take any trigger of `refold.budget.triggers`, and
    *target* a trigger that is a number of tokens (`Tokens`, `Fraction`, `Reserve`). Raises
    ValueError for figures that contradict one another.
    """

    trigger: int | Trigger
    target: int | Amount
    soft: int | Trigger | None = None
    window: int | Window | Windows | None = None
    """The model's window in tokens, or a function from a model's name to its `Window`. The default
    is the table of `refold.tokens.model_table`. 0 switches off triggers that need a window."""
    progress: float = 0.05
    """Minimum reduction, as a share of the request, by a compaction that leaves the request at or
    over the trigger. If it is less, the attempt is `no_headroom`."""
    hysteresis: float = 0.05
    """Growth of the request before the next compaction, as a share of the trigger, or of the
    request after the last one if that is larger. 0 tries again every time."""
    floor: int = field(init=False, repr=False, compare=False)
    """Tokens below which nothing can be due; 0 if a trigger is not a plain number."""

    def __post_init__(self) -> None:
        shares = (self.progress, self.hysteresis)
        if not all(is_number(share) and 0 <= share < 1 for share in shares):
            raise ValueError(
                "progress and hysteresis are shares from 0 to below 1, "
                f"not {self.progress}, {self.hysteresis}"
            )
        for name, value in (("trigger", self.trigger), ("soft", self.soft)):
            is_amount = isinstance(value, int | Trigger) and not isinstance(value, bool)
            if not is_amount and (value is not None or name == "trigger"):
                raise ValueError(
                    f"{name} must be a number of tokens or a trigger, such as "
                    f"refold.budget.triggers.Fraction(0.8), not {value!r}"
                )
            if isinstance(value, int):
                require_int(0, **{name: value})
        if isinstance(self.target, bool) or not isinstance(self.target, int | Amount):
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
        """Return a budget for a model's window: compact when less than *reserve* tokens are left
        for the answer, down to the share *target* of the rest of the window. Raises ValueError."""
        require_int(1, window=window)
        require_int(0, reserve=reserve)
        require_number(0, 1, target=target)
        usable = window - reserve
        if usable <= 0:
            raise ValueError(
                f"a reserve of {reserve} tokens leaves nothing of a window of {window}"
            )
        return cls(trigger=usable, target=int(usable * target))

    def check(self, view: View) -> Level:
        """Return the level of *view* alone, without time or earlier attempts. Reaching a level
        exactly counts."""
        return "none" if view.tokens < self.floor else self.judge(self.observe(view)).level

    def observe(
        self,
        view: View,
        pending: int = 0,
        last: LastAttempt | None = None,
        now: float = 0.0,
        idle: float | None = None,
    ) -> Moment:
        """Return the input of this budget's triggers: *view*, and *pending* estimated tokens that
        will be added to it. *last* is the latest compaction, *now* the time in seconds since
        1970-01-01 UTC, *idle* the seconds since the previous request (None: unknown)."""
        tokens = view.profile.calibrate(view.tokens_uncalibrated + pending)
        window = find_window(view.profile.model, self.window)
        return Moment(view, tokens, window.window, window.reason, last or LastAttempt(), now, idle)

    def judge(self, moment: Moment) -> Check:
        """Return the level of a moment, with the threshold and the reason: those of `soft`, if that
        is given and `trigger` is not reached."""
        hard = moment.ask(_as_trigger(self.trigger))
        if hard.is_reached:
            return _build_check("hard", moment, hard)
        if self.soft is None:
            return _build_check("none", moment, hard)
        soft = moment.ask(_as_trigger(self.soft))
        return _build_check("soft" if soft.is_reached else "none", moment, soft)

    def check_usage(self, usage: Any, model: str = "") -> Check:
        """Return the level after a response, from its usage object in the format of any provider.
        The next request starts with the request and answer that it counts.

        The level is `none` if there is no usage or it sums several calls. Triggers see no messages,
        so only those of tokens and of the window are of use.
        """
        usage_read = read_usage(usage)
        if usage_read is None or usage_read.calls != 1:
            is_absent = usage_read is None
            why = "there is no usage" if is_absent else "the usage is a sum over several calls"
            return Check("none", 0, None, f"{why}: nothing can be said")
        window = find_window(model, self.window)
        return self.judge(Moment(View.of(()), usage_read.context, window.window, window.reason))

    def compute_goal(self, moment: Moment, check: Check | None = None) -> int:
        """Return the target in tokens, or half of the request if the target needs a window that is
        not known.

        Unless *check* says that a threshold in tokens was crossed (hard), the goal is also smaller
        than the request by at least `progress`.
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
    """Return the number of tokens; None if the trigger is not one, or its window is not known."""
    if isinstance(amount, Amount):
        return amount.tokens(window)
    return amount if isinstance(amount, int) else None


def _window_if_fixed(window: int | Window | Windows | None) -> Window | None:
    """Return the window if it does not depend on the model's name, else None."""
    return None if callable(window) else find_window("", window).window


# --- by cost: `refold.budget.planner` applied to a view --------------------------------------


GOAL_STEP = 1_000
"""Default goals are rounded up to a multiple of this many tokens."""
WINDOW_SHARE = 0.9
"""Share of the window at which the default budget compacts even if that does not pay."""


@dataclass(frozen=True, slots=True)
class Pays(Trigger):
    """A trigger that fires when a compaction to the planner's goal saves money, by the prices of
    the view's model (docs/running.md). It never fires for a model without known prices."""

    prices: Rates | Prices | None = None
    """Prices to use before those of `refold.tokens.model_table`."""

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether compacting pays now, and why."""
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
    survival: CallCounts | None = None,
    *,
    floor: int = 0,
    is_cold: bool = False,
) -> Plan | None:
    """Return the compaction of *view* that pays now, or None. *floor* and *is_cold* are as in
    `Figures`, *survival* as for `estimate_remaining_calls`. Refetched results are counted only if a
    compaction would be due without them."""
    figures = replace(read_figures(view, floor), is_cold=is_cold)
    plan = find_plan(figures, rates, survival)
    refetched = count_refetched(view) if plan is not None and view.visible_edits else 0
    return find_plan(replace(figures, refetched=refetched), rates, survival) if refetched else plan


def count_refetched(view: View) -> int:
    """Return the tokens of results that were fetched again after an edit had hidden them."""
    messages, count = view.transcript.messages, view.profile.count
    return sum(count(messages[at]) for at in find_refetched(view, view.estimate))


def read_figures(view: View, floor: int = 0) -> Figures:
    """Return the figures of a view, except `refetched` and `is_cold`."""
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
    """Return the number of the model's answers in a conversation's history. In OpenAI Responses
    each is several messages, one after another."""
    roles = [message.role for message in view.transcript.messages]
    pairs = pairwise(["", *roles])
    return sum(role == "assistant" and before != "assistant" for before, role in pairs)


def default_goal(view: View) -> int:
    """Return the default goal in tokens: the planner's goal plus system prompt and tools, at most
    half of the model's window."""
    window = find_window(view.profile.model).window
    goal = DEFAULT_GOAL + view.profile.calibrate(view.profile.fixed_tokens)
    goal = -(-goal // GOAL_STEP) * GOAL_STEP
    return min(goal, window.room // 2) if window is not None else goal


def require_budget(budget: Any) -> None:
    """Raise ValueError unless *budget* is a `Budget`."""
    if not isinstance(budget, Budget):
        raise ValueError(  # noqa: TRY004 - as for all settings
            f"the budget must be a refold.Budget(trigger, target), not {budget!r}"
        )


def default_budget(goal: int = DEFAULT_GOAL) -> Budget:
    """Return the default budget: compact when it pays, or when the window is nearly full."""
    return Budget(Pays() | Fraction(WINDOW_SHARE), goal)
