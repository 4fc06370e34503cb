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

from refold.core.strategy import Answer, Ask, Failure
from refold.models.driver import AsyncAsker

T = TypeVar("T")


@dataclass(eq=False)
class Job:
    """One piece of work, as those outside of its thread see it."""

    model_seconds: float
    """Seconds left for asking models."""
    loop: asyncio.AbstractEventLoop | None = None
    is_waiting: bool = False
    """Is it waiting for a model, or for another process that does?"""
    waited_seconds: float = 0.0
    """Seconds that it has waited so."""
    store_asked_at: float | None = None
    """Since when it is waiting for the store; None where it is not."""
    store_seconds: float = 0.0
    """Seconds that it has waited for the store before."""
    is_stuck: bool = False
    """Was it given up while it waited for the store? Then it goes no further when the store answers at last."""
    has_ended: bool = False
    figures: Any = None
    """What an upstream's error has said."""
    is_abandoned: bool = False
    """Nobody waits for it any more: no model is asked."""
    conversation: Any = None
    """The conversation that it turned out to be about."""
    questions: list["Future[Answer | None]"] = field(default_factory=list)

    @property
    def is_asking_store(self) -> bool:
        """Is it waiting for the store?"""
        return self.store_asked_at is not None

    def begin_store_call(self) -> None:
        """It asks the store."""
        self.store_asked_at = monotonic()

    def end_store_call(self) -> None:
        """The store has answered. Raises `DeadlineExceeded` where nobody waits for that any more: what the answer was wanted for is
        decided by now, without it."""
        began, self.store_asked_at = self.store_asked_at, None
        self.store_seconds += monotonic() - (began or monotonic())
        if self.is_stuck:
            raise DeadlineExceeded

    def remaining_seconds(self, began: float, deadline: float, longest: float) -> float:
        """Seconds that it has left, of *longest* to work and of *deadline* to wait for the store."""
        now = monotonic()
        stored = self.store_seconds + (
            now - self.store_asked_at if self.store_asked_at is not None else 0.0
        )
        return min(longest - (now - began - self.waited_seconds), deadline - stored)


class DeadlineExceeded(TimeoutError):  # noqa: N818 - it says what it is
    """It was not done in time."""


class Workers:
    """Threads. Models are asked on the loop that the work was given from."""

    def __init__(self, count: int, ask: AsyncAsker | None, name: str = "refold") -> None:
        self._pool, self._ask = ThreadPoolExecutor(count, name), ask
        self._local = threading.local()

    async def run(
        self, work: Callable[[], T], job: Job, deadline: float, longest: float | None = None
    ) -> T:
        """The outcome of *work*. Raises `DeadlineExceeded` when it takes longer than *deadline* seconds, not counting
        what it waits for models; with *longest* it may compute for so long, and wait for the store until the
        deadline. When the caller is cancelled, what it asked is cancelled too."""
        longest = deadline if longest is None else longest
        job.loop, began = asyncio.get_running_loop(), monotonic()
        done = asyncio.wrap_future(self._pool.submit(self._run_job, job, work))
        try:
            left = deadline
            while not (await asyncio.wait((done,), timeout=left))[0]:
                left = (
                    deadline if job.is_waiting else job.remaining_seconds(began, deadline, longest)
                )
                if left <= 0:
                    raise DeadlineExceeded
            return done.result()
        finally:
            job.is_abandoned = not done.done()
            if job.is_abandoned:
                done.add_done_callback(_consume_error)
                for wait in job.questions:
                    wait.cancel()

    def ask(self, ask: Ask) -> Answer | None:
        """Ask from within a thread of these, as long as its job's patience lasts."""
        job = self.current_job()
        if self._ask is None or job is None or job.loop is None or job.is_abandoned:
            return None
        if job.model_seconds <= 0:
            return _timeout_answer()
        wait = asyncio.run_coroutine_threadsafe(_await(self._ask, ask), job.loop)
        job.questions.append(wait)
        try:
            with _count_waiting(job):
                if job.is_abandoned:  # it was abandoned between asking and saying so
                    wait.cancel()
                return wait.result(job.model_seconds)
        except TimeoutError:
            wait.cancel()
            return _timeout_answer()
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop a request
            return Answer("", "error", type(error).__name__, fault=Failure("other"))
        finally:
            job.questions.remove(wait)

    @contextmanager
    def allow_waiting(self) -> Iterator[Callable[[float], bool]]:
        """Within it, the job of this thread may wait as it may for a model. Gives what sleeps for so many seconds
        and tells whether that could be: not when patience is over, or nobody waits for the job any more."""
        job = self.current_job()
        if job is None:
            yield lambda _: False
            return
        patience = job.model_seconds
        with _count_waiting(job) as began:
            yield partial(_sleep, job, began + patience)

    def current_job(self) -> Job | None:
        """The job of this thread, if it is one of these."""
        return getattr(self._local, "job", None)

    def close(self) -> None:
        """Take no more work; what runs is left to end by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run_job(self, job: Job, work: Callable[[], T]) -> T:
        try:
            if job.is_abandoned:
                raise DeadlineExceeded
            self._local.job = job
            return work()
        finally:
            self._local.job, job.has_ended = None, True


@contextmanager
def _count_waiting(job: Job) -> Iterator[float]:
    """What happens within it counts as patience, not as work. Gives when it began."""
    began, job.is_waiting = monotonic(), True
    try:
        yield began
    finally:
        job.model_seconds -= monotonic() - began
        job.waited_seconds += monotonic() - began
        job.is_waiting = False


def _sleep(job: Job, until: float, seconds: float) -> bool:
    left = until - monotonic()
    if job.is_abandoned or left <= 0:
        return False
    sleep(min(seconds, left))
    return True


async def _await(ask: AsyncAsker, question: Ask) -> Answer | None:
    return await ask(question)


def _timeout_answer() -> Answer:
    return Answer("", "error", "the model took too long", calls=1, fault=Failure("timeout"))


def _consume_error(done: "asyncio.Future[Any]") -> None:
    """Nobody waits for it: what it raised has been told by then, or does not matter."""
    with suppress(Exception, asyncio.CancelledError):
        done.result()
