"""Work in threads, with a deadline, that may ask a model on the event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import Any, TypeVar

from refold.core.strategy import Answer, Ask, Fault
from refold.models.driver import AsyncAsker

T = TypeVar("T")


@dataclass(eq=False)
class Job:
    """One piece of work, as those outside of its thread see it."""

    patience: float
    """Seconds left for asking models."""
    loop: asyncio.AbstractEventLoop | None = None
    asking: bool = False
    """Is it waiting for a model, or for another process that does?"""
    waited: float = 0.0
    """Seconds that it has waited so."""
    asked_store: float | None = None
    """Since when it is waiting for the store; None where it is not."""
    stored: float = 0.0
    """Seconds that it has waited for the store before."""
    is_stuck: bool = False
    """Was it given up while it waited for the store? Then it goes no further when the store answers at last."""
    ended: bool = False
    told: Any = None
    """What an upstream's error has said."""
    gone: bool = False
    """Nobody waits for it any more: no model is asked."""
    thread: Any = None
    """The conversation that it turned out to be about."""
    waits: list["Future[Answer | None]"] = field(default_factory=list)

    @property
    def storing(self) -> bool:
        """Is it waiting for the store?"""
        return self.asked_store is not None

    def storing_begins(self) -> None:
        """It asks the store."""
        self.asked_store = monotonic()

    def storing_ends(self) -> None:
        """The store has answered. Raises `DeadlineExceeded` where nobody waits for that any more: what the answer was wanted for is
        decided by now, without it."""
        began, self.asked_store = self.asked_store, None
        self.stored += monotonic() - (began or monotonic())
        if self.is_stuck:
            raise DeadlineExceeded

    def left(self, began: float, deadline: float, longest: float) -> float:
        """Seconds that it has left, of *longest* to work and of *deadline* to wait for the store."""
        now = monotonic()
        stored = self.stored + (now - self.asked_store if self.asked_store is not None else 0.0)
        return min(longest - (now - began - self.waited), deadline - stored)


class DeadlineExceeded(TimeoutError):  # noqa: N818 - it says what it is
    """It was not done in time."""


class Workers:
    """Threads. Models are asked on the loop that the work was given from."""

    def __init__(self, count: int, ask: AsyncAsker | None, name: str = "refold") -> None:
        self._pool, self._ask = ThreadPoolExecutor(count, name), ask
        self._mine = threading.local()

    async def run(
        self, work: Callable[[], T], job: Job, deadline: float, longest: float | None = None
    ) -> T:
        """The outcome of *work*. Raises `DeadlineExceeded` when it takes longer than *deadline* seconds, not counting
        what it waits for models; with *longest* it may compute for so long, and wait for the store until the
        deadline. When the caller is cancelled, what it asked is cancelled too."""
        longest = deadline if longest is None else longest
        job.loop, began = asyncio.get_running_loop(), monotonic()
        done = asyncio.wrap_future(self._pool.submit(self._within, job, work))
        try:
            left = deadline
            while not (await asyncio.wait((done,), timeout=left))[0]:
                left = deadline if job.asking else job.left(began, deadline, longest)
                if left <= 0:
                    raise DeadlineExceeded
            return done.result()
        finally:
            job.gone = not done.done()
            if job.gone:
                done.add_done_callback(_consume_error)
                for wait in job.waits:
                    wait.cancel()

    def ask(self, ask: Ask) -> Answer | None:
        """Ask from within a thread of these, as long as its job's patience lasts."""
        job = self.mine()
        if self._ask is None or job is None or job.loop is None or job.gone:
            return None
        if job.patience <= 0:
            return _timeout_answer()
        wait = asyncio.run_coroutine_threadsafe(_await(self._ask, ask), job.loop)
        job.waits.append(wait)
        try:
            with _count_waiting(job):
                if job.gone:  # it was abandoned between asking and saying so
                    wait.cancel()
                return wait.result(job.patience)
        except TimeoutError:
            wait.cancel()
            return _timeout_answer()
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop a request
            return Answer("", "error", type(error).__name__, fault=Fault("other"))
        finally:
            job.waits.remove(wait)

    @contextmanager
    def patient(self) -> Iterator[Callable[[float], bool]]:
        """Within it, the job of this thread may wait as it may for a model. Gives what sleeps for so many seconds
        and tells whether that could be: not when patience is over, or nobody waits for the job any more."""
        job = self.mine()
        if job is None:
            yield lambda _: False
            return
        patience = job.patience
        with _count_waiting(job) as began:
            yield partial(_sleep, job, began + patience)

    def mine(self) -> Job | None:
        """The job of this thread, if it is one of these."""
        return getattr(self._mine, "job", None)

    def close(self) -> None:
        """Take no more work; what runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _within(self, job: Job, work: Callable[[], T]) -> T:
        try:
            if job.gone:
                raise DeadlineExceeded
            self._mine.job = job
            return work()
        finally:
            self._mine.job, job.ended = None, True


@contextmanager
def _count_waiting(job: Job) -> Iterator[float]:
    """What happens within it counts as patience, not as work. Gives when it began."""
    began, job.asking = monotonic(), True
    try:
        yield began
    finally:
        job.patience -= monotonic() - began
        job.waited += monotonic() - began
        job.asking = False


def _sleep(job: Job, until: float, seconds: float) -> bool:
    left = until - monotonic()
    if job.gone or left <= 0:
        return False
    sleep(min(seconds, left))
    return True


async def _await(ask: AsyncAsker, question: Ask) -> Answer | None:
    return await ask(question)


def _timeout_answer() -> Answer:
    return Answer("", "error", "the model took too long", calls=1, fault=Fault("timeout"))


def _consume_error(done: "asyncio.Future[Any]") -> None:
    """Nobody waits for it: what it raised has been told by then, or does not matter."""
    with suppress(Exception, asyncio.CancelledError):
        done.result()
