"""What providers reported, and what it teaches of the requests to come."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from refold.budget import model_of
from refold.lens import as_estimated
from refold.tokens.anchor import Ratios, Report, anchor, is_current, report
from refold.tokens.count import Counter, is_estimator
from refold.tokens.lines import Key, Lines
from refold.tokens.priors import no_prior, prior_of
from refold.tokens.usage import read_usage
from refold.view import View

MOST = 8
"""How many reports are held, the newest."""


class Reports:
    """The newest reports of usage, and each model's ratio. Calls may come from several threads.

    *prior* says what a model's provider counts for an estimated token until it reported something.
    """

    def __init__(self, prior: Callable[[str], float] = prior_of) -> None:
        self._prior = prior
        self._ratios, self._lines = Ratios(), Lines()
        self._newest: tuple[Report, ...] = ()
        self._lock = Lock()

    def add(self, view: View, usage: Any) -> None:
        """Take the usage object of the request that *view* made; one that says nothing is passed over."""
        if (found := read_usage(usage)) is None:
            return
        made = report(view, found)
        with self._lock:
            older = (one for one in reversed(self._newest) if one.length < made.length and is_current(view, one))
            before = next(older, None)  # the oldest: over a long way what small steps hide is seen
            if before is not None and found.calls == before.usage.calls == 1:
                pair = (before.estimated, before.usage.input), (made.estimated, found.input)
                self._lines = self._lines.learn(_key(view), *pair)
            if found.is_plausible(made.estimated):
                self._ratios = self._ratios.learn(model_of(view), made.estimated, found.input)
            self._newest = (made, *self._newest)[:MOST]

    def calibrate(self, view: View) -> Callable[[int], int]:
        """From estimated to expected tokens of *view*: from the last report that still speaks of it,
        else by its model's line (`refold.tokens.lines`) or ratio, else by the prior."""
        model = model_of(view)
        ratio, constant = self._lines.of(_key(view)) or (self._ratios.of(model, self._prior(model)), 0)
        last = next((made for made in self._newest if is_current(view, made)), None)
        if last is None and (ratio, constant) == (1.0, 0):
            return as_estimated
        return anchor(view, last, ratio, constant=constant)


def reports_by(count: Counter) -> Reports:
    """No reports yet, with the priors where *count* is the estimator: an exact counter has none."""
    return Reports(prior_of if is_estimator(count) else no_prior)


def _key(view: View) -> Key:
    return model_of(view), view.lens.fixed
