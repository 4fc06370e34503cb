"""From estimated to expected tokens: hold on to the last figure that the provider reported."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from refold.core.profile import keep_estimate
from refold.core.view import View
from refold.edits import Edit
from refold.tokens.count import Counter, is_estimator
from refold.tokens.ratios import Lines, Ratios, no_prior, prior_of
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
    """Without a report: an estimated token counts as *ratio* ones, beside a *constant*."""

    ratio: float = 1.0
    constant: int = 0
    """Tokens of a system prompt and tools that are sent and not given (F15)."""

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
    fork the figure is stale and says nothing of the next request (conformance 48). Messages
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

    That is an `Anchor` if *last* is current and plausible for one request (conformance 45: a sum
    over several calls is not), else the `Scale` of *ratio* and *constant*. *window*, in tokens, is
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
            before = next(older, None)  # the oldest: over a long way what small steps hide is seen
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
        is about it, else its model's line (`refold.tokens.ratios`) or ratio, else the prior."""
        model, fixed_tokens = view.profile.model, view.profile.fixed_tokens
        line = self._lines.of((model, fixed_tokens))
        ratio, constant = line or (self._ratios.of(model, self._prior(model)), 0)
        last = next((report for report in self.newest if is_current(view, report)), None)
        if last is None and (ratio, constant) == (1.0, 0):
            return keep_estimate
        return choose_calibration(view, last, ratio, constant=constant)


def reports_for(count: Counter) -> Reports:
    """Return no reports yet, with the priors if *count* is the estimator: an exact counter has
    none."""
    return Reports(prior_of if is_estimator(count) else no_prior)
