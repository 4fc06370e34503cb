"""Gives memory back to the system after a peak of requests; the C library keeps it otherwise
(C21)."""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable

PEAK_REQUESTS = 64
"""Requests in progress at once that make a peak."""
RELEASE_DELAY_SECONDS = 1.0
"""From a peak's end until memory is given back: connections are closed by then."""
RELEASE_INTERVAL_SECONDS = 60.0
"""Between two releases: one takes a moment, in which nothing else runs."""


class LoadPeaks:
    """Calls *release* in a thread at the end of a peak: when a quarter of its requests is still in
    progress."""

    def __init__(
        self,
        release: Callable[[], object],
        pause: float = RELEASE_DELAY_SECONDS,
        every: float = RELEASE_INTERVAL_SECONDS,
    ) -> None:
        self._release, self._pause, self._every = release, pause, every
        self._height, self._next = 0, 0.0

    def update(self, in_progress: int) -> None:
        """Note how many requests are in progress now. Call it in the event loop."""
        self._height = max(self._height, in_progress)
        if self._height < PEAK_REQUESTS or in_progress * 4 > self._height:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next:
            self._height, self._next = in_progress, loop.time() + self._every
            loop.call_later(self._pause, lambda: loop.run_in_executor(None, self._release))


def release_memory() -> None:
    """Collect what broken-off answers left behind, whose errors and frames hold one another; have
    glibc return free memory."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
