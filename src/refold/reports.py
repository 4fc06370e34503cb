"""What providers reported, and what it teaches of the requests to come."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from refold.budget import model_of
from refold.lens import as_estimated
from refold.tokens.anchor import Ratios, Report, anchor, is_current, report
from refold.tokens.lines import Key, Lines
from refold.tokens.usage import read_usage
from refold.view import View

MOST = 8
"""How many reports are held, the newest."""


class Reports:
    """The newest reports of usage, and each model's ratio. Calls may come from several threads."""

    def __init__(self) -> None:
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
        else by its model's line (`refold.tokens.lines`) or ratio, else as estimated."""
        ratio, constant = self._lines.of(_key(view)) or (self._ratios.of(model_of(view)), 0)
        last = next((made for made in self._newest if is_current(view, made)), None)
        if last is None and (ratio, constant) == (1.0, 0):
            return as_estimated
        return anchor(view, last, ratio, constant=constant)


def _key(view: View) -> Key:
    return model_of(view), view.lens.fixed
