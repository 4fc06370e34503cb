"""Work in threads, with a deadline, that may ask a model on the event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from refold.loop import AsyncAsker
from refold.strategy import Answer, Ask, Fault

T = TypeVar("T")


@dataclass(eq=False)
class Job:
    """One piece of work, as those outside of its thread see it."""

    patience: float
    """Seconds left for asking models."""
    loop: asyncio.AbstractEventLoop | None = None
    asking: bool = False
    """Is it waiting for a model?"""
    storing: bool = False
    """Is it waiting for the store?"""
    gone: bool = False
    """Nobody waits for it any more: no model is asked."""
    thread: Any = None
    """The conversation that it turned out to be about."""
    waits: list["Future[Answer | None]"] = field(default_factory=list)


class Late(TimeoutError):  # noqa: N818 - it says what it is
    """It was not done in time."""


class Workers:
    """Threads. Models are asked on the loop that the work was given from."""

    def __init__(self, count: int, ask: AsyncAsker | None, name: str = "refold") -> None:
        self._pool, self._ask = ThreadPoolExecutor(count, name), ask
        self._mine = threading.local()

    async def run(self, work: Callable[[], T], job: Job, deadline: float) -> T:
        """The outcome of *work*. Raises `Late` when it takes longer than *deadline* seconds, not counting
        what it waits for models. When the caller is cancelled, what it asked is cancelled too."""
        job.loop = asyncio.get_running_loop()
        done = asyncio.wrap_future(self._pool.submit(self._within, job, work))
        try:
            while not (await asyncio.wait((done,), timeout=deadline))[0]:
                if not job.asking:
                    raise Late
            return done.result()
        finally:
            job.gone = not done.done()
            if job.gone:
                done.add_done_callback(_look)
                for wait in job.waits:
                    wait.cancel()

    def ask(self, ask: Ask) -> Answer | None:
        """Ask from within a thread of these, as long as its job's patience lasts."""
        job = self.mine()
        if self._ask is None or job is None or job.loop is None or job.gone:
            return None
        if job.patience <= 0:
            return _late()
        began, wait = monotonic(), asyncio.run_coroutine_threadsafe(_awaited(self._ask, ask), job.loop)
        job.asking = True
        job.waits.append(wait)
        if job.gone:  # it was abandoned between asking and saying so
            wait.cancel()
        try:
            return wait.result(job.patience)
        except TimeoutError:
            wait.cancel()
            return _late()
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop a request
            return Answer("", "error", type(error).__name__, fault=Fault("other"))
        finally:
            job.waits.remove(wait)
            job.patience -= monotonic() - began
            job.asking = False

    def mine(self) -> Job | None:
        """The job of this thread, if it is one of these."""
        return getattr(self._mine, "job", None)

    def close(self) -> None:
        """Take no more work; what runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _within(self, job: Job, work: Callable[[], T]) -> T:
        if job.gone:
            raise Late
        self._mine.job = job
        try:
            return work()
        finally:
            self._mine.job = None


async def _awaited(ask: AsyncAsker, question: Ask) -> Answer | None:
    return await ask(question)


def _late() -> Answer:
    return Answer("", "error", "the model took too long", calls=1, fault=Fault("timeout"))


def _look(done: "asyncio.Future[Any]") -> None:
    """Nobody waits for it: what it raised has been told by then, or does not matter."""
    with suppress(Exception, asyncio.CancelledError):
        done.result()
