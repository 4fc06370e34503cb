"""Several processes that answer on one socket, one that looks after them, and the memory that each
gives back."""

import asyncio
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import Thread, current_thread, main_thread
from types import FrameType

from refold.gateway.ops.logs import LOGGER

RESTART_SECONDS = 1.0
"""Seconds before a process takes the place of one that has died."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)

can_fork = hasattr(os, "fork")


@contextmanager
def ignore_hangup() -> Iterator[None]:
    """Ignore SIGHUP within it, in this process and in those that it forks: a terminal that is
    closed ends nothing (C19).

    Outside the main thread, and where the system has no such signal, nothing is changed.
    """
    if not hasattr(signal, "SIGHUP") or current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Supervisor:
    """*count* processes that *work*, each forked from this one, which does nothing else.

    One that dies is replaced. SIGINT and SIGTERM are passed on, after *stop* is called, and waited
    for. When this process is killed, the others end as they do on SIGTERM.
    """

    def __init__(
        self, count: int, work: Callable[[], None], stop: Callable[[], None] = lambda: None
    ) -> None:
        self._work, self._count, self._stop = work, count, stop
        self._context = get_context("fork")
        self._alive, self._life = os.pipe()
        self._running, self._signals = list[BaseProcess](), list[int]()
        self._stopping = False

    def run(self) -> None:
        """Go on until a signal stops it and all have ended. Call it in the main thread."""
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            while self._running or not self._stopping:
                self._start_missing()
                wait([process.sentinel for process in self._running], timeout=0.2)
                self._forward_signals()
                self._drop_dead()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._alive)
            os.close(self._life)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._stopping = True
        self._signals.append(number)

    def _forward_signals(self) -> None:
        if self._signals:
            self._stop()
        while self._signals:
            number = self._signals.pop(0)
            for process in self._running:
                if process.pid is not None and process.exitcode is None:
                    os.kill(
                        process.pid, number
                    )  # one that has ended was not waited for yet, so its id is its own

    def _start_missing(self) -> None:
        while len(self._running) < self._count and not self._stopping:
            process = self._context.Process(target=self._run_child)
            signal.pthread_sigmask(
                signal.SIG_BLOCK, SIGNALS
            )  # what comes now waits until there is who minds it
            process.start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._running.append(process)

    def _drop_dead(self) -> None:
        dead = [process for process in self._running if process.exitcode is not None]
        self._running = [process for process in self._running if process.exitcode is None]
        for process in dead if not self._stopping else ():
            LOGGER.error(
                "a worker is replaced",
                extra={"fields": {"pid": process.pid, "exit": process.exitcode}},
            )
        if dead and not self._stopping:
            time.sleep(RESTART_SECONDS)

    def _run_child(self) -> None:
        """Work in a group of its own, so that Ctrl-C comes once: from the process that looks after
        it."""
        os.setpgrp()
        os.close(self._life)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        Thread(target=_stop_with_parent, args=(self._alive,), daemon=True).start()
        with suppress(KeyboardInterrupt):
            self._work()


def _stop_with_parent(alive: int) -> None:
    """Stop this process when the one that looks after it is gone: only that one holds the pipe's
    other end."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


# --- memory after a peak: the C library keeps it unless it is asked (C21) ----------------------

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
