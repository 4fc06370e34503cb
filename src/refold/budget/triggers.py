"""When compaction is due, as an algebra: `Fraction(0.7) | Messages(100) & Elapsed(600)`.

A trigger is a value. Put it into a `Budget` as `trigger` (hard: compaction is due) or as `soft`
(worth preparing). Reaching a figure exactly counts as reached.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction as Exact
from itertools import chain
from math import ceil
from typing import NamedTuple

from refold.core.tool_groups import find_answers
from refold.core.view import View
from refold.speakers import has_person, segment_messages
from refold.tokens.model_table import Window


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """When a conversation was compacted last, or seen first."""

    length: int = 0
    """Messages of the transcript then."""
    when: float = 0.0
    """Seconds since 1970-01-01 UTC."""
    tokens: int | None = None
    """Tokens of the request after the last attempt; None before any."""
    estimate: int | None = None
    """The same before calibration, so that a report which corrects the count corrects this too."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a trigger looks at."""

    view: View
    tokens: int
    """Tokens of the request, with what is about to be added."""
    window: Window | None = None
    """The model's window; None if it is not known."""
    window_source: str = ""
    """Where the window comes from, or why there is none."""
    last: LastAttempt = LastAttempt()
    now: float = 0.0
    """Seconds since 1970-01-01 UTC."""
    idle: float | None = None
    """Seconds since the request before; None if that is not known."""


class TriggerResult(NamedTuple):
    """What a trigger says of one moment."""

    is_reached: bool
    reason: str
    threshold: int | None = None
    """The threshold in tokens, if it is one."""
    is_periodic: bool = False
    """Does the trigger count from the last compaction and so keep its own distance?"""


class Trigger:
    """A callable from a `Moment` to a `TriggerResult`. `a | b` fires when one of them does, `a & b`
    when both do."""

    __slots__ = ()

    def __call__(self, moment: Moment) -> TriggerResult:
        """Is it reached?"""
        raise NotImplementedError

    def __or__(self, trigger: "Trigger") -> "Any":
        return Any(self, trigger)

    def __and__(self, trigger: "Trigger") -> "All":
        return All(self, trigger)


class Amount(Trigger):
    """A trigger that is a number of tokens, and so can be a target too."""

    __slots__ = ()

    def tokens(self, window: Window | None) -> int | None:
        """Return the figure, or None if the window tells none."""
        raise NotImplementedError

    def __call__(self, moment: Moment) -> TriggerResult:
        """Has the request that many tokens?"""
        at = self.tokens(moment.window)
        if at is None:
            why = (
                f"nothing is left of {moment.window.room} tokens"
                if moment.window
                else moment.window_source
            )
            return TriggerResult(False, f"{self!r} never fires: {why}")
        return TriggerResult(moment.tokens >= at, f"{moment.tokens} of {at} tokens", at)


@dataclass(frozen=True, slots=True)
class Tokens(Amount):
    """At *count* tokens of the whole request. What fires only beyond a figure is
    `Tokens(figure + 1)`."""

    count: int

    def __post_init__(self) -> None:
        _refuse_if(self.count < 0, f"a number of tokens is not negative: {self.count}")

    def tokens(self, window: Window | None) -> int:  # noqa: ARG002 - as of every amount
        """Return the figure itself."""
        return self.count


@dataclass(frozen=True, slots=True)
class Fraction(Amount):
    """At this share of what the model's window lets a request have, from above 0 to 1."""

    share: float

    def __post_init__(self) -> None:
        _refuse_if(
            not 0 < self.share <= 1, f"a share of the window lies between 0 and 1, not {self.share}"
        )

    def tokens(self, window: Window | None) -> int | None:
        """Return the first whole number of tokens that is no less than the share."""
        return ceil(Exact(str(self.share)) * window.room) if window else None


@dataclass(frozen=True, slots=True)
class Reserve(Amount):
    """When at most so many tokens are left for the answer: the window minus the reserve.

    If the model limits the request on its own, the reserve is taken off that limit too, so that
    there is headroom whichever limit comes first.
    """

    count: int = 20_000

    def __post_init__(self) -> None:
        _refuse_if(self.count < 0, f"a reserve is not negative: {self.count}")

    def tokens(self, window: Window | None) -> int | None:
        """Return what the reserve leaves of the window; None if that is nothing."""
        return window.room - self.count if window and window.room > self.count else None


@dataclass(frozen=True, slots=True)
class Messages(Trigger):
    """At so many messages as they are shown, system prompt aside."""

    count: int

    def __post_init__(self) -> None:
        _refuse_if(self.count < 1, f"a number of messages is at least 1: {self.count}")

    def __call__(self, moment: Moment) -> TriggerResult:
        """Are so many shown?"""
        return _compare(len(moment.view.messages), self.count, "messages")


@dataclass(frozen=True, slots=True)
class Turns(Trigger):
    """At so many messages of the user in which a person speaks, as they are shown."""

    count: int

    def __post_init__(self) -> None:
        _refuse_if(self.count < 1, f"a number of turns is at least 1: {self.count}")

    def __call__(self, moment: Moment) -> TriggerResult:
        """Are so many shown?"""
        messages = moment.view.messages
        spoken = zip(messages, segment_messages(messages), strict=True)
        turns = sum(message.role == "user" and has_person(own) for message, own in spoken)
        return _compare(turns, self.count, "turns")


@dataclass(frozen=True, slots=True)
class EveryN(Trigger):
    """Every so many steps of the model since the last compaction, for snapshots.

    A step is one answer of the model, its calls included.
    """

    steps: int

    def __post_init__(self) -> None:
        _refuse_if(self.steps < 1, f"a number of steps is at least 1: {self.steps}")

    def __call__(self, moment: Moment) -> TriggerResult:
        """Has the model taken so many steps since?"""
        steps = len(find_answers(moment.view.transcript.messages, moment.last.length))
        return _compare(steps, self.steps, "steps since the last compaction", is_periodic=True)


@dataclass(frozen=True, slots=True)
class Elapsed(Trigger):
    """So many seconds after the last compaction, or after the conversation was first seen."""

    seconds: float

    def __post_init__(self) -> None:
        _refuse_if(not self.seconds > 0, f"a number of seconds is above 0: {self.seconds}")

    def __call__(self, moment: Moment) -> TriggerResult:
        """Have they passed?"""
        passed = moment.now - moment.last.when
        return _compare(passed, self.seconds, "seconds since the last compaction", is_periodic=True)


@dataclass(frozen=True, slots=True)
class Predicate(Trigger):
    """When your function is true of the view. What it raises is raised."""

    test: Callable[[View], bool]
    name: str = "the predicate"

    def __call__(self, moment: Moment) -> TriggerResult:
        """Is it true?"""
        is_true = bool(self.test(moment.view))
        return TriggerResult(is_true, f"{self.name} says {'yes' if is_true else 'no'}")


@dataclass(frozen=True, slots=True)
class Never(Trigger):
    """Not by itself: compaction is left to `Compactor.compact_now`, `preview` and `accept`."""

    def __call__(self, moment: Moment) -> TriggerResult:  # noqa: ARG002 - as of every trigger
        """Return that it is not reached."""
        return TriggerResult(False, "automatic compaction is switched off")


@dataclass(frozen=True, init=False)
class _Combination(Trigger):
    """Several *terms*; a term of the same kind stands for its own terms. Raises ValueError without
    one."""

    terms: tuple[Trigger, ...]

    def __init__(self, *terms: Trigger) -> None:
        _refuse_if(not terms, f"{type(self).__name__} takes at least one trigger")
        flat = (term.terms if isinstance(term, type(self)) else (term,) for term in terms)
        object.__setattr__(self, "terms", tuple(chain.from_iterable(flat)))


@dataclass(frozen=True, init=False)
class Any(_Combination):
    """When at least one of *terms* is reached."""

    def __call__(self, moment: Moment) -> TriggerResult:
        """Is one reached?"""
        results = [term(moment) for term in self.terms]
        hits = [result for result in results if result.is_reached]
        return _combine(bool(hits), hits or results, hits)


@dataclass(frozen=True, init=False)
class All(_Combination):
    """When every one of *terms* is reached."""

    def __call__(self, moment: Moment) -> TriggerResult:
        """Are all reached?"""
        results = [term(moment) for term in self.terms]
        missed = [result for result in results if not result.is_reached]
        return _combine(not missed, missed or results, results)


def _refuse_if(wrong: bool, text: str) -> None:
    if wrong:
        raise ValueError(text)


def _compare(
    value: float, threshold: float, unit: str, *, is_periodic: bool = False
) -> TriggerResult:
    return TriggerResult(
        value >= threshold, f"{value:.10g} of {threshold:.10g} {unit}", None, is_periodic
    )


def _combine(
    reached: bool, results: list[TriggerResult], periodic: list[TriggerResult]
) -> TriggerResult:
    """Return one result for several; *periodic* are those that may make it so. The threshold in
    tokens is the lowest: what comes first."""
    reason = "; ".join(result.reason for result in results)
    thresholds = [result.threshold for result in results if result.threshold is not None]
    is_periodic = any(result.is_periodic for result in periodic)
    return TriggerResult(reached, reason, min(thresholds, default=None), is_periodic)
