"""Calibration of estimated tokens: by the last figure that the provider reported, and by each
model's learned ratio of provider tokens to estimated ones.

Before the first report the model's family decides (`refold.tokens.model_table.prior_of`). A caller
that gives only messages sends a system prompt and tools that Refold never sees. One report cannot
tell those from another tokenizer. Two reports of one conversation can, since the unseen part stays
constant.
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
    """A calibration from a reported figure: `Profile(calibrate=anchor)`.

    Only the difference since the report is estimated, so only that has an error. Use
    `choose_calibration`, which rejects a report that does not fit the view.
    """

    reported: int
    """Input tokens that the provider reported for a request."""
    estimated: int
    """Estimated tokens of the same request, system prompt and tools included."""
    ratio: float = 1.0
    """Provider tokens per estimated token, for this model (`Ratios.of`)."""

    def __call__(self, estimate: int) -> int:
        """Return the expected tokens of a request now estimated at *estimate*, at least 0."""
        return max(0, round(self.reported + self.ratio * (estimate - self.estimated)))


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear calibration without a report: *ratio* times the estimate, plus a *constant*."""

    ratio: float = 1.0
    constant: int = 0
    """Tokens of a system prompt and tools that are sent but not known here."""

    def __call__(self, estimate: int) -> int:
        """Return the expected tokens of a request estimated at *estimate*, at least 0."""
        return max(0, round(self.ratio * estimate + self.constant))


@dataclass(frozen=True, slots=True)
class Report:
    """Usage, and the request it was reported for (`make_report`)."""

    usage: Usage
    length: int
    """Number of messages in the transcript."""
    tip: str
    """Tip of the transcript, which identifies exactly that history."""
    edits: tuple[Edit, ...]
    """The visible edits of the request."""
    estimated: int
    """Estimated tokens of the request, system prompt and tools included."""


def make_report(view: View, usage: Usage) -> Report:
    """Return a report of *usage* for the view that was sent."""
    length, edits = len(view.transcript), tuple(edit for edit, _ in view.visible_edits)
    return Report(usage, length, view.transcript.tips[-1], edits, view.tokens_uncalibrated)


def is_current(view: View, last: Report) -> bool:
    """Return whether *last* is about a prefix of this view as it shows now.

    True if the transcript still begins with the history of the report and shows exactly the same
    edits there. After a compaction, a revert, a rewind or a fork the report is stale. Messages
    appended since, and edits of those alone, make no difference.
    """
    tips = view.transcript.tips
    if not 0 < last.length < len(tips) or tips[last.length] != last.tip:
        return False
    # Edits are compared by content, not id: an amended summary keeps its edit's id. An edit that
    # reaches across the end of that history counts as another.
    return last.edits == tuple(e for e, _ in view.visible_edits if e.start < last.length)


def choose_calibration(
    view: View,
    last: Report | None,
    ratio: float = 1.0,
    window: int | None = None,
    constant: int = 0,
) -> Anchor | Scale:
    """Return the calibration for *view*'s profile.

    That is an `Anchor` if *last* is current and plausible for a single request (a sum over several
    calls is not), else the `Scale` of *ratio* and *constant*. *window* is the model's, in tokens.
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
"""Plausible ratios of provider tokens to estimated ones. Others are measuring errors or sums over
several calls."""
MIN_INCREMENT_TOKENS = 200
"""Minimum of estimated tokens between two reports that are compared."""
MIN_TOTAL_TOKENS = 1_000
"""Minimum of estimated tokens in all increments before a line is fitted."""
MAX_RATIO_DEVIATION = 1.6
"""Maximum factor between an increment's ratio and the median. Others come from wrong reports or
changed prompts."""
MAX_INCREMENTS = 200
"""Number of increments kept of one line, the newest."""
MAX_WEIGHT = 200_000
"""Maximum weight of earlier observations, in estimated tokens."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Provider tokens per estimated token of each model, learned from reports.

    Immutable: `learn` returns a new object. Claude, for example, counts 1.1 to 1.5 times o200k.
    """

    by_model: Mapping[str, tuple[float, int]] = field(default_factory=lambda: MappingProxyType({}))
    """By model: the ratio, and the estimated tokens it was learned from (at most MAX_WEIGHT)."""

    def of(self, model: str, prior: float = 1.0) -> float:
        """Return the ratio of *model*, or *prior* if none was learned."""
        return self.by_model.get(model, (prior, 0))[0]

    def learn(self, model: str, estimated: int, reported: int) -> "Ratios":
        """Return these ratios updated with one more request of *model*.

        They are means weighted by tokens, so that short requests with hidden prompts count little.
        Ratios outside BOUNDS and empty requests are ignored.
        """
        if estimated <= 0 or not BOUNDS[0] <= reported / estimated <= BOUNDS[1]:
            return self
        ratio, weight = self.by_model.get(model, (1.0, 0))
        mean = (ratio * weight + reported) / (weight + estimated)
        return Ratios(
            MappingProxyType({**self.by_model, model: (mean, min(MAX_WEIGHT, weight + estimated))})
        )


Key = tuple[str, int]
"""A model, and the estimated tokens of the known system prompt and tools."""


class Increment(NamedTuple):
    """The step from one report of a conversation to a later one."""

    estimated: int
    """Estimated tokens of the later report."""
    reported: int
    came: int
    """Estimated tokens added between them."""
    ratio: float
    """Reported tokens per added token."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of all models. Immutable: `learn` returns a new object."""

    by_key: Mapping[Key, tuple[tuple[Increment, ...], Scale | None]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Increments by key, and the line fitted to them, if there are enough."""

    def of(self, key: Key) -> Scale | None:
        """Return the line of *key*, or None if too little is known."""
        return self.by_key[key][1] if key in self.by_key else None

    def learn(self, key: Key, before: tuple[int, int], now: tuple[int, int]) -> "Lines":
        """Return these lines updated with two reports of one conversation, each a pair of estimated
        and reported tokens."""
        came, grown = now[0] - before[0], now[1] - before[1]
        if came < MIN_INCREMENT_TOKENS or not BOUNDS[0] <= grown / came <= BOUNDS[1]:
            return self
        earlier = self.by_key[key][0] if key in self.by_key else ()
        increments = (*earlier, Increment(*now, came, grown / came))[-MAX_INCREMENTS:]
        return Lines(MappingProxyType({**self.by_key, key: (increments, _fit(increments))}))


def _fit(increments: tuple[Increment, ...]) -> Scale | None:
    """Return the line fitted to *increments*; None if they are too few. One wrong report moves it
    little."""
    if sum(increment.came for increment in increments) < MIN_TOTAL_TOKENS:
        return None
    middle = _find_weighted_median((increment.ratio, increment.came) for increment in increments)
    lowest, highest = middle / MAX_RATIO_DEVIATION, middle * MAX_RATIO_DEVIATION
    alike = [increment for increment in increments if lowest <= increment.ratio <= highest]
    came = sum(increment.came for increment in alike)
    ratio = sum(increment.ratio * increment.came for increment in alike) / came
    constant = median(increment.reported - ratio * increment.estimated for increment in increments)
    if constant >= 0:
        return Scale(ratio, round(constant))
    # no hidden prompt: the line goes through the origin
    ratio = median(increment.reported / max(1, increment.estimated) for increment in increments)
    return Scale(min(max(ratio, BOUNDS[0]), BOUNDS[1]))


def _find_weighted_median(pairs: Iterable[tuple[float, int]]) -> float:
    """Return the median of the first figures of *pairs*, weighted by the second ones."""
    ordered = sorted(pairs)
    sums = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(sums, sums[-1] / 2)][0]


# --- the newest reports -------------------------------------------------------------------------


MAX_REPORTS = 8
"""Number of reports kept, the newest."""


class Reports:
    """The newest usage reports, and each model's ratio. Thread-safe.

    *prior* returns the ratio of a model before its first report.
    """

    def __init__(self, prior: Callable[[str], float] = prior_of) -> None:
        self._prior = prior
        self._ratios, self._lines = Ratios(), Lines()
        self.newest: tuple[Report, ...] = ()
        """The reports kept, latest first."""
        self._lock = Lock()

    def add(self, view: View, usage: Any) -> None:
        """Add the usage object of the request that *view* produced. One without figures is
        ignored."""
        if (usage_read := read_usage(usage)) is None:
            return
        report = make_report(view, usage_read)
        with self._lock:
            older = (
                earlier
                for earlier in reversed(self.newest)
                if earlier.length < report.length and is_current(view, earlier)
            )
            # the oldest: a long distance shows what small increments do not
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
        """Return the function from estimated to expected tokens of *view*. It is based on the last
        report that is current for the view, else on its model's line (`Lines`) or ratio, else on
        the prior."""
        model, fixed_tokens = view.profile.model, view.profile.fixed_tokens
        line = self._lines.of((model, fixed_tokens))
        scale = line or Scale(self._ratios.of(model, self._prior(model)))
        last = next((report for report in self.newest if is_current(view, report)), None)
        if last is None and scale == Scale():
            return keep_estimate
        return choose_calibration(view, last, scale.ratio, constant=scale.constant)


def reports_for(count: Counter) -> Reports:
    """Return empty reports. Priors are used if *count* is the estimator, not if it is exact."""
    return Reports(prior_of if is_estimator(count) else no_prior)


def no_prior(model: str) -> float:  # noqa: ARG001 - as `prior_of`
    """Return 1.0, for exact counts, and for estimates that are only compared with each other."""
    return 1.0
