"""What providers reported, and what it teaches of the requests to come."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from refold.budget import model_of
from refold.lens import as_estimated
from refold.tokens.anchor import Ratios, Report, anchor, is_current, report
from refold.tokens.usage import read_usage
from refold.view import View

MOST = 8
"""How many reports are held, the newest."""


class Reports:
    """The newest reports of usage, and each model's ratio. Calls may come from several threads."""

    def __init__(self) -> None:
        self._ratios = Ratios()
        self._newest: tuple[Report, ...] = ()
        self._lock = Lock()

    def add(self, view: View, usage: Any) -> None:
        """Take the usage object of the request that *view* made; one that says nothing is passed over."""
        if (found := read_usage(usage)) is None:
            return
        made = report(view, found)
        with self._lock:
            if found.is_plausible(made.estimated):
                self._ratios = self._ratios.learn(model_of(view), made.estimated, found.input)
            self._newest = (made, *self._newest)[:MOST]

    def calibrate(self, view: View) -> Callable[[int], int]:
        """From estimated to expected tokens of *view*: from the last report that still speaks of it,
        else by its model's ratio, else as estimated."""
        ratio = self._ratios.of(model_of(view))
        last = next((made for made in self._newest if is_current(view, made)), None)
        return as_estimated if last is None and ratio == 1.0 else anchor(view, last, ratio)
