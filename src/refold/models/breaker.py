"""A breaker: what failed again and again is not tried again by itself."""

import time
from collections.abc import Callable
from math import inf
from threading import Lock


class Breaker:
    """Opens after so many failures in a row; a success closes it (conformance 50).

    While it is open no automatic run asks a model; what a user starts by hand still does. With
    *rest*, one automatic run is let through every so many seconds; without, it stays open until
    a success or `succeeded()`. Ladders that share a breaker share its state; calls may come from
    several threads.
    """

    def __init__(self, failures: int = 3, rest: float = inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures, self.rest = failures, rest
        self.row = 0
        """Failures in a row until now."""
        self.why = ""
        """What the last one said."""
        self._clock, self._lock, self._since = clock, Lock(), 0.0

    def __repr__(self) -> str:
        return f"Breaker(failures={self.failures}, rest={self.rest:g})"

    @property
    def is_open(self) -> bool:
        """Did so many runs fail in a row?"""
        return self.row >= self.failures

    def allows(self) -> bool:
        """May an automatic run ask now? Where the rest is over, that is said once a rest."""
        with self._lock:
            if not self.is_open:
                return True
            if self._clock() - self._since < self.rest:
                return False
            self._since = self._clock()
            return True

    def failed(self, why: str = "") -> None:
        """One more failure; also for what only the caller can judge, as a summary that was no good."""
        with self._lock:
            self.row, self.why, self._since = self.row + 1, why, self._clock()

    def succeeded(self) -> None:
        """A success: closed again."""
        with self._lock:
            self.row, self.why = 0, ""
