"""Memory given back to the system when many requests at once are over: the C library keeps it otherwise (C21)."""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable

PEAK_REQUESTS = 64
"""Requests under way at once that make a rush."""
RELEASE_DELAY_SECONDS = 1.0
"""Seconds from its end until memory is given back: connections are closed by then."""
RELEASE_INTERVAL_SECONDS = 60.0
"""Seconds between two times: it takes a moment, in which nothing else runs."""


class LoadPeaks:
    """Notices the end of a rush: a quarter is left of what was under way at its height. *release* is called in a thread then."""

    def __init__(
        self,
        release: Callable[[], object],
        pause: float = RELEASE_DELAY_SECONDS,
        every: float = RELEASE_INTERVAL_SECONDS,
    ) -> None:
        self._release, self._pause, self._every = release, pause, every
        self._height, self._next = 0, 0.0

    def update(self, under_way: int) -> None:
        """So many requests are under way now. Call it in the event loop."""
        self._height = max(self._height, under_way)
        if self._height < PEAK_REQUESTS or under_way * 4 > self._height:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next:
            self._height, self._next = under_way, loop.time() + self._every
            loop.call_later(self._pause, lambda: loop.run_in_executor(None, self._release))


def release_memory() -> None:
    """Free what answers that were broken off left behind, whose errors and frames hold one another, and have glibc give free
    memory back."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
