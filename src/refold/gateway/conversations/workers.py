"""Worker threads with deadlines, which may ask a model on the event loop, and background jobs that
no request waits for: summaries made ahead, and work for the API."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import Any, TypeVar

from refold.compactor.by_hand import Preview
from refold.core.strategy import Answer, Ask, Failure
from refold.gateway.logs import error_fields, log, report_model_failure
from refold.gateway.metrics import Counters
from refold.models.driver import AsyncAsker
from refold.models.responses import answer_of_timeout

T = TypeVar("T")

MODEL_WAITS = 256
"""Jobs of each kind that may wait for models at once, in addition to those that compute."""


@dataclass(slots=True)
class StoreWait:
    """Time that a job waits for the store."""

    began: float | None = None
    """Start of the current wait; None if it is not waiting."""
    before: float = 0.0
    """Seconds of earlier waits."""

    @property
    def seconds(self) -> float:
        """Seconds of all waits."""
        began = self.began  # another thread may change it
        return self.before + (monotonic() - began if began is not None else 0.0)

    def end(self) -> None:
        """End the current wait."""
        self.began, self.before = None, self.seconds


@dataclass(eq=False)
class Job:
    """One piece of work and its state, as seen from other threads."""

    model_seconds: float
    """Seconds left for asking models."""
    is_background: bool = False
    """Whether no request waits for it."""
    loop: asyncio.AbstractEventLoop | None = None
    is_waiting: bool = False
    """Whether it waits for a model, or for another process that does."""
    waited_seconds: float = 0.0
    """Seconds of such waits."""
    store_wait: StoreWait = field(default_factory=StoreWait)
    is_stuck: bool = False
    """Whether it was abandoned while it waited for the store. Then it ends when the store
    answers."""
    has_ended: bool = False
    slots: threading.Semaphore = field(default_factory=threading.Semaphore, repr=False)
    """One slot is held while it computes."""
    is_abandoned: bool = False
    """Whether its caller has stopped waiting. Then no model is asked."""
    questions: list["Future[Answer | None]"] = field(default_factory=list)

    @property
    def is_asking_store(self) -> bool:
        """Whether it waits for the store."""
        return self.store_wait.began is not None

    def end_store_call(self) -> None:
        """Count the time as work again. Raises `DeadlineExceeded` if the job was abandoned
        meanwhile."""
        self.store_wait.end()
        if self.is_stuck:
            raise DeadlineExceeded

    def remaining_seconds(self, began: float, deadline: float, longest: float) -> float:
        """Return the seconds left of *longest* for work, or of *deadline* for the store if that is
        less."""
        worked = monotonic() - began - self.waited_seconds
        return min(longest - worked, deadline - self.store_wait.seconds)


class DeadlineExceeded(TimeoutError):  # noqa: N818 - it says what it is
    """The work was not done in time."""


class Workers:
    """Threads for requests, *count* of which compute at a time, and for background jobs, a quarter
    as many. Requests never wait for a background job, nor for a job that waits for a model.

    Models are asked on the event loop that called `run`. *counters* count failures.
    """

    def __init__(self, count: int, ask: AsyncAsker | None, counters: Counters) -> None:
        fewer, waiting = max(1, count // 4), 0 if ask is None else MODEL_WAITS
        self._ask, self._counters = ask, counters
        self._pool = ThreadPoolExecutor(count + waiting, "refold")
        self._background_pool = ThreadPoolExecutor(fewer + waiting, "refold-background")
        self._slots = threading.Semaphore(count)
        self._background_slots = threading.Semaphore(fewer)
        self._local = threading.local()

    async def run(
        self, work: Callable[[], T], job: Job, deadline: float, longest: float | None = None
    ) -> T:
        """Return the result of *work*.

        Raises `DeadlineExceeded` if it takes longer than *deadline* seconds, not counting waits for
        models. With *longest*, it may compute for that long, and wait for the store until the
        deadline. If the caller is cancelled, the model calls are cancelled too.
        """
        longest = deadline if longest is None else longest
        pool = self._background_pool if job.is_background else self._pool
        job.loop, began = asyncio.get_running_loop(), monotonic()
        done = asyncio.wrap_future(pool.submit(self._run_job, job, work))
        try:
            seconds = deadline
            while not (await asyncio.wait((done,), timeout=seconds))[0]:
                if not job.is_waiting:
                    seconds = job.remaining_seconds(began, deadline, longest)
                else:
                    seconds = deadline
                if seconds <= 0:
                    raise DeadlineExceeded
            return done.result()
        finally:
            job.is_abandoned = not done.done()
            if job.is_abandoned:
                done.add_done_callback(_consume_error)
                for question in job.questions:
                    question.cancel()

    def ask(self, ask: Ask, other: AsyncAsker | None = None) -> Answer | None:
        """Ask the model, or *other*, from one of these threads, as long as its job may wait for
        models. Return None without a model or a job that is wanted; a failure is an `Answer`."""
        job, asker = self.current_job(), other or self._ask
        if asker is None or job is None or job.loop is None or job.is_abandoned:
            return None
        if job.model_seconds <= 0:
            return answer_of_timeout(0)
        question = asyncio.run_coroutine_threadsafe(_await(asker, ask), job.loop)
        job.questions.append(question)
        try:
            with _count_waiting(job):
                if job.is_abandoned:  # between asking and counting
                    question.cancel()
                answer = question.result(job.model_seconds)
        except TimeoutError:
            question.cancel()
            answer = answer_of_timeout(job.model_seconds)
        except Exception as error:  # noqa: BLE001 - a model that fails must not stop a request
            answer = Answer("", "error", type(error).__name__, failure=Failure("other"))
        finally:
            job.questions.remove(question)
        if not job.is_abandoned:
            report_model_failure(self._counters, answer)
        return answer

    @contextmanager
    def allow_waiting(self) -> Iterator[Callable[[float], bool]]:
        """Let the current job wait in this context, within its time for models.

        Yields a function that sleeps for some seconds and returns True, or returns False at once if
        the job may wait no longer or was abandoned.
        """
        job = self.current_job()
        if job is None:
            yield lambda _: False
            return
        seconds = job.model_seconds
        with _count_waiting(job) as began:
            yield partial(_sleep, job, began + seconds)

    def current_job(self) -> Job | None:
        """Return the job of this thread; None in any other thread."""
        return getattr(self._local, "job", None)

    def mark_store_call(self, begins: bool) -> None:
        """Count the time of a request's job as waiting for the store, until the call ends."""
        job = self.current_job()
        if job is None or job.is_background:
            return
        if begins:
            job.store_wait.began = monotonic()
        else:
            job.end_store_call()

    def close(self) -> None:
        """Accept no more work. Running jobs end by themselves."""
        for pool in (self._pool, self._background_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run_job(self, job: Job, work: Callable[[], T]) -> T:
        job.slots = self._background_slots if job.is_background else self._slots
        try:
            with job.slots:
                if job.is_abandoned:
                    raise DeadlineExceeded
                self._local.job = job
                return work()
        finally:
            self._local.job, job.has_ended = None, True


@contextmanager
def _count_waiting(job: Job) -> Iterator[float]:
    """Count the time in this context as waiting, and free the job's slot meanwhile. Yields the
    start time."""
    began, job.is_waiting = monotonic(), True
    job.slots.release()
    try:
        yield began
    finally:
        job.slots.acquire()
        job.model_seconds -= monotonic() - began
        job.waited_seconds += monotonic() - began
        job.is_waiting = False


def _sleep(job: Job, until: float, seconds: float) -> bool:
    rest = until - monotonic()
    if job.is_abandoned or rest <= 0:
        return False
    sleep(min(seconds, rest))
    return True


async def _await(ask: AsyncAsker, question: Ask) -> Answer | None:
    return await ask(question)


def _consume_error(done: "asyncio.Future[Any]") -> None:
    """Ignore the error of an abandoned job, which was reported or does not matter."""
    with suppress(Exception, asyncio.CancelledError):
        done.result()


# --- in the background ----------------------------------------------------------------------------


@dataclass(eq=False)
class Prefetch:
    """A compaction made in the background, before it is due."""

    preview: Preview | None = None
    """The compaction, until it is used."""
    is_running: bool = False
    job: Callable[[], Preview | None] | None = None
    """Makes one. It starts when the request is under way."""


class BackgroundJobs:
    """Runs jobs in background threads of *workers*. Each may work for *summary_timeout* seconds and
    wait as long for models; twice that if it prepares a summary ahead."""

    def __init__(self, workers: Workers, counters: Counters, summary_timeout: float) -> None:
        self._workers, self._counters, self._timeout = workers, counters, summary_timeout
        self.tasks = set[asyncio.Task[None]]()

    def start_prefetch(self, prefetch: Prefetch) -> None:
        """Start the summary that the turn has requested, if any."""
        job, prefetch.job = prefetch.job, None
        if job is None or prefetch.is_running or prefetch.preview:
            return
        prefetch.is_running = True
        task = asyncio.get_running_loop().create_task(self._prefetch(prefetch, job))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """Return the result of *work*. Raises what *work* raises, and `DeadlineExceeded` after
        *seconds*, not counting waits for models."""
        seconds = self._timeout if seconds is None else seconds
        return await self._workers.run(work, Job(seconds, is_background=True), seconds)

    async def aclose(self) -> None:
        """Cancel all prefetches."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _prefetch(self, prefetch: Prefetch, job: Callable[[], Preview | None]) -> None:
        result = "failed"
        try:
            prefetch.preview = await self.run(job, self._timeout * 2)
            result = "ready" if prefetch.preview else "nothing"
        except Exception as error:  # noqa: BLE001 - a later turn will try again
            log("no summary was prepared", **error_fields(error))
        finally:
            prefetch.is_running = False
            self._counters.add("prepared", result=result)
