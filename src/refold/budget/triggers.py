"""When compaction is due: triggers, which combine (`Fraction(0.7) | Messages(100) & Elapsed(600)`).

A trigger is a value. A `Budget` takes it as `trigger` (hard: compaction is due) or as `soft` (worth
preparing). Reaching a threshold exactly counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction as Exact
from itertools import chain
from math import ceil
from typing import NamedTuple

from refold.core.tool_groups import find_answers
from refold.core.view import View
from refold.errors import is_number, require_callable, require_int
from refold.speakers import has_person, segment_messages
from refold.tokens.model_table import Window


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """The last compaction or attempt of a conversation; before any, when it was first seen."""

    length: int = 0
    """Number of messages in the transcript then."""
    when: float = 0.0
    """Seconds since 1970-01-01 UTC."""
    tokens: int | None = None
    """Tokens of the request after the last attempt; None before any."""
    estimate: int | None = None
    """The same before calibration, so that a later calibration corrects it too."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The input of a trigger."""

    view: View
    tokens: int
    """Tokens of the request, pending tokens included."""
    window: Window | None = None
    """The model's window; None if unknown."""
    window_source: str = ""
    """Source of the window, or why there is none."""
    last: LastAttempt = LastAttempt()
    now: float = 0.0
    """Seconds since 1970-01-01 UTC."""
    idle: float | None = None
    """Seconds since the previous request; None if unknown."""

    def ask(self, trigger: "Trigger") -> "TriggerResult":
        """Return the result of *trigger* for this moment. Raises TypeError if it is none."""
        result = trigger(self)
        if not isinstance(result, TriggerResult):
            raise TypeError(f"a trigger returns a TriggerResult, not {result!r:.80}: {trigger!r}")
        return result


class TriggerResult(NamedTuple):
    """The result of a trigger for one moment."""

    is_reached: bool
    reason: str
    threshold: int | None = None
    """Threshold in tokens, for triggers that have one."""
    is_periodic: bool = False
    """Whether the trigger counts from the last compaction, so that hysteresis does not apply."""


class Trigger:
    """A callable from a `Moment` to a `TriggerResult`. `a | b` fires when either does, `a & b` when
    both do."""

    __slots__ = ()

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether the trigger is reached, and why."""
        raise NotImplementedError

    def __or__(self, trigger: "Trigger") -> "Any":
        return Any(self, trigger)

    def __and__(self, trigger: "Trigger") -> "All":
        return All(self, trigger)


class Amount(Trigger):
    """A trigger that is a number of tokens, and so can also be a target."""

    __slots__ = ()

    def tokens(self, window: Window | None) -> int | None:
        """Return the number of tokens; None if it depends on a window that is unknown or too
        small."""
        raise NotImplementedError

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether the request has at least that many tokens."""
        at = self.tokens(moment.window)
        if at is None:
            used_up = moment.window and f"nothing is left of {moment.window.room} tokens"
            return TriggerResult(False, f"{self!r} never fires: {used_up or moment.window_source}")
        return TriggerResult(moment.tokens >= at, f"{moment.tokens} of {at} tokens", at)


@dataclass(frozen=True, slots=True)
class Tokens(Amount):
    """Reached at *count* tokens of the whole request. To fire only above a number, use
    `Tokens(number + 1)`."""

    count: int

    def __post_init__(self) -> None:
        require_int(0, count=self.count)

    def tokens(self, window: Window | None) -> int:  # noqa: ARG002 - the signature of `Amount`
        """Return the number itself."""
        return self.count


@dataclass(frozen=True, slots=True)
class Fraction(Amount):
    """Reached at this share, above 0 and at most 1, of the tokens that the model's window allows a
    request."""

    share: float

    def __post_init__(self) -> None:
        is_share = is_number(self.share) and 0 < self.share <= 1
        _refuse_if(not is_share, f"a share of the window lies between 0 and 1, not {self.share}")

    def tokens(self, window: Window | None) -> int | None:
        """Return the share in tokens, rounded up; None without a window."""
        return ceil(Exact(str(self.share)) * window.room) if window else None


@dataclass(frozen=True, slots=True)
class Reserve(Amount):
    """Reached when at most *count* tokens of the window, or of the model's separate input limit,
    are left for the answer."""

    count: int = 20_000

    def __post_init__(self) -> None:
        require_int(0, count=self.count)

    def tokens(self, window: Window | None) -> int | None:
        """Return the window minus the reserve; None without a window or if nothing is left."""
        return window.room - self.count if window and window.room > self.count else None


@dataclass(frozen=True, slots=True)
class Messages(Trigger):
    """Reached at *count* visible messages, without the system prompt."""

    count: int

    def __post_init__(self) -> None:
        require_int(1, count=self.count)

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether that many are visible."""
        return _compare(len(moment.view.messages), self.count, "messages")


@dataclass(frozen=True, slots=True)
class Turns(Trigger):
    """Reached at *count* visible user messages that contain text by a person."""

    count: int

    def __post_init__(self) -> None:
        require_int(1, count=self.count)

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether that many are visible."""
        messages = moment.view.messages
        spoken = zip(messages, segment_messages(messages), strict=True)
        turns = sum(message.role == "user" and has_person(own) for message, own in spoken)
        return _compare(turns, self.count, "turns")


@dataclass(frozen=True, slots=True)
class EveryN(Trigger):
    """Reached every *steps* steps (answers with their tool calls) of the model since the last
    compaction, for snapshots."""

    steps: int

    def __post_init__(self) -> None:
        require_int(1, steps=self.steps)

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether the model has taken that many steps since."""
        steps = len(find_answers(moment.view.transcript.messages, moment.last.length))
        return _compare(steps, self.steps, "steps since the last compaction", is_periodic=True)


@dataclass(frozen=True, slots=True)
class Elapsed(Trigger):
    """Reached *seconds* after the last compaction, or after the conversation was first seen."""

    seconds: float

    def __post_init__(self) -> None:
        _refuse_if(not self.seconds > 0, f"a number of seconds is above 0: {self.seconds}")

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether that many seconds have passed."""
        passed = moment.now - moment.last.when
        return _compare(passed, self.seconds, "seconds since the last compaction", is_periodic=True)


@dataclass(frozen=True, slots=True)
class Predicate(Trigger):
    """Reached when your function of the view returns true. Its exceptions are not caught."""

    test: Callable[[View], bool]
    name: str = "the predicate"

    def __post_init__(self) -> None:
        require_callable(test=self.test)

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether the function returns true."""
        is_true = bool(self.test(moment.view))
        return TriggerResult(is_true, f"{self.name} says {'yes' if is_true else 'no'}")


@dataclass(frozen=True, slots=True)
class Never(Trigger):
    """Never reached: compaction is left to `Compactor.compact_now`, `preview` and `accept`."""

    def __call__(self, moment: Moment) -> TriggerResult:  # noqa: ARG002 - as all triggers
        """Return that the trigger is not reached."""
        return TriggerResult(False, "automatic compaction is switched off")


@dataclass(frozen=True, init=False)
class _Combination(Trigger):
    """Several *terms*. Terms of the same class are flattened. Raises ValueError without any, and
    for a number of tokens, which is `Tokens(number)` here."""

    terms: tuple[Trigger, ...]

    def __init__(self, *terms: Trigger) -> None:
        _refuse_if(not terms, f"{type(self).__name__} takes at least one trigger")
        for term in terms:
            _refuse_if(not callable(term), f"{term!r} is no trigger, as Tokens(100_000) is")
        flat = (term.terms if isinstance(term, type(self)) else (term,) for term in terms)
        object.__setattr__(self, "terms", tuple(chain.from_iterable(flat)))


@dataclass(frozen=True, init=False)
class Any(_Combination):
    """Reached when at least one of *terms* is."""

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether one is reached."""
        results = [moment.ask(term) for term in self.terms]
        hits = [result for result in results if result.is_reached]
        return _combine(bool(hits), hits or results, hits)


@dataclass(frozen=True, init=False)
class All(_Combination):
    """Reached when all of *terms* are."""

    def __call__(self, moment: Moment) -> TriggerResult:
        """Return whether all are reached."""
        results = [moment.ask(term) for term in self.terms]
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
    """Return the combined result. *periodic* are the results that can make it periodic. The
    threshold in tokens is the lowest, which is reached first."""
    reason = "; ".join(result.reason for result in results)
    thresholds = [result.threshold for result in results if result.threshold is not None]
    is_periodic = any(result.is_periodic for result in periodic)
    return TriggerResult(reached, reason, min(thresholds, default=None), is_periodic)
