"""From estimated to expected tokens: hold on to the last figure that the provider reported, and
learn how many tokens each model's provider counts for an estimated one.

Before the first report its model's family tells (`refold.tokens.model_table.prior_of`). A caller
that gives its messages alone sends a system prompt and tools that we never see. One report cannot
tell those from another tokenizer; two of one conversation can, since what is not seen stays as it
is while the conversation grows.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

from refold.core.profile import keep_estimate
from refold.core.view import View
from refold.edits import Edit
from refold.tokens.count import Counter, is_estimator
from refold.tokens.model_table import prior_of
from refold.tokens.usage import Usage, read_usage


@dataclass(frozen=True, slots=True)
class Anchor:
    """A reported figure to count from: `Profile(calibrate=anchor)`.

    Only what came or went since the report is estimated, so the error is that of the difference,
    not of the whole. Build it with `choose_calibration`, which refuses what does not fit the view.
    """

    reported: int
    """Input tokens the provider reported for a request."""
    estimated: int
    """What that same request was estimated at, system prompt and tools included."""
    ratio: float = 1.0
    """Provider's tokens for each estimated one, for this model (`Ratios.of`)."""

    def __call__(self, estimate: int) -> int:
        """Return the expected tokens of a request that is now estimated at *estimate*; at least
        0."""
        return max(0, round(self.reported + self.ratio * (estimate - self.estimated)))


@dataclass(frozen=True, slots=True)
class Scale:
    """Without a report, a line: an estimated token counts as *ratio* ones, beside a *constant*."""

    ratio: float = 1.0
    constant: int = 0
    """Tokens of a system prompt and tools that are sent and not given."""

    def __call__(self, estimate: int) -> int:
        """Return the expected tokens of a request estimated at *estimate*."""
        return max(0, round(self.ratio * estimate + self.constant))


@dataclass(frozen=True, slots=True)
class Report:
    """A usage and the request it was reported for (`make_report`)."""

    usage: Usage
    length: int
    """Messages of the transcript then."""
    tip: str
    """The transcript's tip then: names exactly that history."""
    edits: tuple[Edit, ...]
    """The edits that showed then."""
    estimated: int
    """Estimated tokens of the request, system prompt and tools included."""


def make_report(view: View, usage: Usage) -> Report:
    """Bind *usage* to the view that was sent: the one whose payload the call answered."""
    length, edits = len(view.transcript), tuple(edit for edit, _ in view.visible_edits)
    return Report(usage, length, view.transcript.tips[-1], edits, view.tokens_uncalibrated)


def is_current(view: View, last: Report) -> bool:
    """Is *last* about this view's beginning, as it shows now?

    True if the transcript still begins with the history that the usage was reported for, and
    exactly the edits that showed then show there now. After a compaction, a revert, a rewind or a
    fork the figure is stale and says nothing of the next request. Messages
    appended since make no difference, nor do edits of those alone.
    """
    tips = view.transcript.tips
    if not 0 < last.length < len(tips) or tips[last.length] != last.tip:
        return False
    # By what they show, not by their ids: an amended summary keeps its edit's id. One that reaches
    # across the end of that history is one more.
    return last.edits == tuple(e for e, _ in view.visible_edits if e.start < last.length)


def choose_calibration(
    view: View,
    last: Report | None,
    ratio: float = 1.0,
    window: int | None = None,
    constant: int = 0,
) -> Anchor | Scale:
    """Return what to calibrate *view*'s profile with.

    That is an `Anchor` if *last* is current and plausible for one request (a sum over several
    calls is not), else the `Scale` of *ratio* and *constant*. *window*, in tokens, is
    the model's.
    """
    scale = Scale(ratio, constant)
    if (
        last is None
        or not is_current(view, last)
        or not last.usage.is_plausible(scale(last.estimated), window)
    ):
        return scale
    return Anchor(last.usage.input, last.estimated, ratio)


# --- ratios and lines, learned from reports -----------------------------------------------------


BOUNDS = 0.5, 3.0
"""What a provider may count for each estimated token: a ratio beyond is a fault of measurement, or
a sum over several calls."""
LEAST = 200
"""Estimated tokens that must have come between two reports for these to tell anything."""
ENOUGH = 1_000
"""Estimated tokens that must have come, all together, before a line is drawn."""
ALIKE = 1.6
"""How far a step's ratio may be from the middle one to count: beyond is a wrong report, or a prompt
that was changed."""
MOST = 200
"""Steps that are held of one line, the newest."""
MAX_WEIGHT = 200_000
"""Estimated tokens after which a new observation weighs as much as all before it."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """How many tokens each model's provider counts for an estimated one, learned as you go.

    Immutable: `learn` returns another. Claude, for example, counts 1.1 to 1.5 times o200k.
    """

    by_model: Mapping[str, tuple[float, int]] = field(default_factory=lambda: MappingProxyType({}))
    """By model: the ratio, and the estimated tokens it was learned from (at most MAX_WEIGHT)."""

    def of(self, model: str, prior: float = 1.0) -> float:
        """Return the ratio of *model*; *prior* if nothing was learned."""
        return self.by_model.get(model, (prior, 0))[0]

    def learn(self, model: str, estimated: int, reported: int) -> "Ratios":
        """Return these ratios after one more request of *model*.

        They are running means weighted by tokens, so that short requests with their hidden prompts
        count little; figures outside BOUNDS, and empty ones, teach nothing.
        """
        if estimated <= 0 or not BOUNDS[0] <= reported / estimated <= BOUNDS[1]:
            return self
        ratio, weight = self.by_model.get(model, (1.0, 0))
        mean = (ratio * weight + reported) / (weight + estimated)
        return Ratios(
            MappingProxyType({**self.by_model, model: (mean, min(MAX_WEIGHT, weight + estimated))})
        )


Key = tuple[str, int]
"""A model, and the estimated tokens of the system prompt and tools that are given."""


class Increment(NamedTuple):
    """From one report of a conversation to a later one."""

    estimated: int
    """Of the later one."""
    reported: int
    came: int
    """Estimated tokens that came between them."""
    ratio: float
    """Reported tokens for each of those."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of all models. Immutable: `learn` returns another."""

    by_key: Mapping[Key, tuple[tuple[Increment, ...], Scale | None]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The increments of each line, and the line, if they tell enough."""

    def of(self, key: Key) -> Scale | None:
        """Return the line of *key*; None if too little is known."""
        return self.by_key[key][1] if key in self.by_key else None

    def learn(self, key: Key, before: tuple[int, int], now: tuple[int, int]) -> "Lines":
        """Return these lines after two reports of one conversation, each as estimated and as
        reported tokens."""
        came, grown = now[0] - before[0], now[1] - before[1]
        if came < LEAST or not BOUNDS[0] <= grown / came <= BOUNDS[1]:
            return self
        earlier = self.by_key[key][0] if key in self.by_key else ()
        increments = (*earlier, Increment(*now, came, grown / came))[-MOST:]
        return Lines(MappingProxyType({**self.by_key, key: (increments, _fit(increments))}))


def _fit(increments: tuple[Increment, ...]) -> Scale | None:
    """Draw the line of *increments*, if they are enough. One wrong report among several moves it
    little."""
    if sum(increment.came for increment in increments) < ENOUGH:
        return None
    middle = _middle((increment.ratio, increment.came) for increment in increments)
    lowest, highest = middle / ALIKE, middle * ALIKE
    alike = [increment for increment in increments if lowest <= increment.ratio <= highest]
    came = sum(increment.came for increment in alike)
    ratio = sum(increment.ratio * increment.came for increment in alike) / came
    beside = median(increment.reported - ratio * increment.estimated for increment in increments)
    if beside >= 0:
        return Scale(ratio, round(beside))
    # nothing is hidden, so the line begins at nothing
    through = median(increment.reported / max(1, increment.estimated) for increment in increments)
    return Scale(min(max(through, BOUNDS[0]), BOUNDS[1]))


def _middle(weighed: Iterable[tuple[float, int]]) -> float:
    """Return the weighted median."""
    ordered = sorted(weighed)
    sums = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(sums, sums[-1] / 2)][0]


# --- the newest reports -------------------------------------------------------------------------


MAX_REPORTS = 8
"""How many reports are held, the newest."""


class Reports:
    """The newest reports of usage, and each model's ratio. Calls may come from several threads.

    *prior* says what a model's provider counts for an estimated token until it reported something.
    """

    def __init__(self, prior: Callable[[str], float] = prior_of) -> None:
        self._prior = prior
        self._ratios, self._lines = Ratios(), Lines()
        self.newest: tuple[Report, ...] = ()
        """The reports that are held, the latest first; empty until there is one."""
        self._lock = Lock()

    def add(self, view: View, usage: Any) -> None:
        """Take the usage object of the request that *view* made; an empty one is passed over."""
        if (usage_read := read_usage(usage)) is None:
            return
        report = make_report(view, usage_read)
        with self._lock:
            older = (
                earlier
                for earlier in reversed(self.newest)
                if earlier.length < report.length and is_current(view, earlier)
            )
            # the oldest: over a long way what small increments hide is seen
            before = next(older, None)
            if before is not None and usage_read.calls == before.usage.calls == 1:
                pair = (before.estimated, before.usage.input), (report.estimated, usage_read.input)
                key = view.profile.model, view.profile.fixed_tokens
                self._lines = self._lines.learn(key, *pair)
            if usage_read.is_plausible(report.estimated):
                self._ratios = self._ratios.learn(
                    view.profile.model, report.estimated, usage_read.input
                )
            self.newest = (report, *self.newest)[:MAX_REPORTS]

    def calibrate(self, view: View) -> Callable[[int], int]:
        """Return what makes expected tokens of *view* out of estimated ones: the last report that
        is about it, else its model's line (`Lines`) or ratio, else the prior."""
        model, fixed_tokens = view.profile.model, view.profile.fixed_tokens
        line = self._lines.of((model, fixed_tokens))
        scale = line or Scale(self._ratios.of(model, self._prior(model)))
        last = next((report for report in self.newest if is_current(view, report)), None)
        if last is None and scale == Scale():
            return keep_estimate
        return choose_calibration(view, last, scale.ratio, constant=scale.constant)


def reports_for(count: Counter) -> Reports:
    """Return no reports yet, with the priors if *count* is the estimator: an exact counter has
    none."""
    return Reports(prior_of if is_estimator(count) else no_prior)


def no_prior(model: str) -> float:  # noqa: ARG001 - as `prior_of`
    """Return 1.0: a token that is counted by the model's own tokenizer, or only compared, is one
    token."""
    return 1.0
