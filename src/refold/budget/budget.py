"""When to act, and how far."""

from dataclasses import dataclass, field
from typing import Any, Literal

from refold.budget.triggers import Amount, LastAttempt, Moment, Tokens, Trigger, TriggerResult
from refold.core.view import View
from refold.tokens.usage import read_usage
from refold.tokens.windows import Window, Windows, find_window

Level = Literal["none", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class Check:
    """What is due for one request (S2-11 to S2-14)."""

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
        """Is compaction worth a thought: soft or hard? (C2-8)"""
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
    table of `refold.tokens.windows` is asked. 0 switches triggers that take a window off."""
    progress: float = 0.05
    """A compaction that leaves a request at the trigger must make it smaller by this share at
    least; else there is no headroom (conformance 49)."""
    hysteresis: float = 0.05
    """After a compaction the request grows by this share of the trigger, or of itself if it stayed
    above that, before the next one (conformance 49, 51). 0 tries again every time."""
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
                raise ValueError(f"{name} must be a number of tokens or a trigger, not {value!r}")
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
        are about to be added, *last* compacted then, at *now* (seconds since 1970-01-01 UTC), *idle*
        seconds after the request before."""
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
        provider: its request and its answer are what the next request starts from (S4-14 to S4-16).

        Cached tokens count once; a sum over several calls says nothing (conformance 45). Only
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
        """Return the tokens to come down to: the target, or half of what there is if no window
        tells the share; less than there is if the trigger is no number of tokens, or none fired (a
        forced compaction)."""
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
