"""Retries, several models in turn, and a circuit breaker for when all of them fail."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from copy import copy
from dataclasses import replace
from math import inf
from random import Random
from threading import Lock
from typing import Any, NamedTuple

from refold.core.strategy import Answer, Ask, End, Failure, advance
from refold.models.driver import as_model
from refold.models.model import Model
from refold.models.responses import answer_of_timeout
from refold.tokens.usage import Usage


class CircuitBreaker:
    """Opens after *failures* failures in a row. A success closes it.

    While it is open, no automatic run asks a model, but runs that a user starts do. With
    *cooldown*, one automatic run is allowed each time these seconds pass; without it, none until a
    success or `record_success()`. Fallbacks can share a breaker. Thread-safe.
    """

    def __init__(
        self, failures: int = 3, cooldown: float = inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failures, self.cooldown = failures, cooldown
        self.failures_in_a_row = 0
        """Current number of failures in a row."""
        self.last_error = ""
        """Error of the last failure."""
        self._clock, self._lock, self._since = clock, Lock(), 0.0

    def __repr__(self) -> str:
        return f"CircuitBreaker(failures={self.failures}, cooldown={self.cooldown:g})"

    @property
    def is_open(self) -> bool:
        """Whether at least *failures* runs failed in a row."""
        return self.failures_in_a_row >= self.failures

    def allows(self) -> bool:
        """Return whether an automatic run may ask now. While the breaker is open, one may after
        each cooldown."""
        with self._lock:
            if not self.is_open:
                return True
            if self._clock() - self._since < self.cooldown:
                return False
            self._since = self._clock()
            return True

    def record_failure(self, error: str = "") -> None:
        """Count a failure; also for failures that only the caller detects, such as a useless
        summary."""
        with self._lock:
            self.failures_in_a_row += 1
            self.last_error, self._since = error, self._clock()

    def record_success(self) -> None:
        """Close the breaker."""
        with self._lock:
            self.failures_in_a_row, self.last_error = 0, ""


class ModelCall(NamedTuple):
    """Ask this model, with a limit in seconds."""

    model: Model
    within: float


class Wait(NamedTuple):
    """Wait for this number of seconds."""

    seconds: float


class Clock(NamedTuple):
    """Time functions, replaceable in tests."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    asleep: Callable[[float], Awaitable[None]] = asyncio.sleep


CLOCK = Clock()
"""The real clock."""

FallbackSteps = Generator[ModelCall | Wait, Answer | None, Answer | None]


class Fallback:
    """A model made of several, best first. If one fails, the next answers.

    A transient failure (rate limit, overload, timeout, connection) is retried with growing pauses;
    any other goes to the next model at once. Any answer is final: the summarizer judges whether a
    truncated or filtered one is good enough. The final `Answer` counts all calls, tokens and
    dollars. Of several failures it reports the last, or that the request was too large if any model
    said so, because that can be fixed.

    A function among *models* takes an `Ask` (see `refold.models.as_model`). Raises ValueError
    without models.
    """

    def __init__(
        self,
        *models: Model | Callable[[Ask], Any],
        tries: int = 3,
        max_calls: int = 6,
        deadline: float = 300.0,
        first_pause: float = 1.0,
        longest_pause: float = 60.0,
        seed: int | None = None,
        breaker: CircuitBreaker | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        """Allow *tries* for each model, *max_calls* in all, and *deadline* seconds for one ask.

        The first pause is half to once *first_pause* seconds, each further one twice as long, and
        at least as long as the server says. If that is more than *longest_pause* seconds, or more
        than remains until the deadline, the next model is asked instead. *seed* makes the pauses
        the same for every ask.
        """
        if not models:
            raise ValueError("a fallback needs at least one model")
        self.models = tuple(m if isinstance(m, Model) else as_model(m) for m in models)
        self.tries, self.max_calls, self.deadline = tries, max_calls, deadline
        self.first_pause, self.longest_pause, self.seed = first_pause, longest_pause, seed
        self.breaker = CircuitBreaker(clock=clock.now) if breaker is None else breaker
        self._clock, self._manual = clock, False

    def __repr__(self) -> str:
        models = ", ".join(map(repr, self.models))
        settings = f"tries={self.tries}, max_calls={self.max_calls}, deadline={self.deadline:g}"
        return f"Fallback({models}, {settings})"

    @property
    def manual(self) -> "Fallback":
        """A copy for runs that a user starts, which asks even if the breaker is open."""
        manual = copy(self)
        manual._manual = True  # noqa: SLF001 - its own kind
        return manual

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Answer the ask; None if every model returns None. A model that runs longer than *within*
        seconds is not interrupted."""
        run = self._answer(within)
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Wait):
                self._clock.sleep(step.seconds)
                step = advance(run)
            else:
                step = advance(run, step.model(ask, step.within))
        return step.value

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Async version of `__call__`. A model that is too slow is cancelled."""
        run = self._answer(within)
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Wait):
                await self._clock.asleep(step.seconds)
                step = advance(run)
            else:
                step = advance(run, await _call_in_time(step, ask))
        return step.value

    # --- one ask --------------------------------------------------------------------------------

    def _answer(self, within: float | None) -> FallbackSteps:
        if not (self._manual or self.breaker.allows()):
            failures, error = self.breaker.failures_in_a_row, self.breaker.last_error
            reason = f"not asked: {failures} failures in a row, the last: {error}"
            return Answer("", "error", reason, calls=0, failure=Failure("breaker"))
        answer = yield from self._ask_models(
            self.deadline if within is None else min(within, self.deadline)
        )
        if answer is not None and answer.finish != "error":
            self.breaker.record_success()
        elif answer is not None and not _is_overflow(answer):  # the request's fault
            self.breaker.record_failure(answer.error)
        return answer

    def _ask_models(self, seconds: float) -> FallbackSteps:
        """Ask each model in turn, with retries, until one answers."""
        answers, end = list[Answer](), self._clock.now() + seconds
        random = Random(self.seed)  # noqa: S311 - for pauses
        for model in self.models:
            wait: float | None = 0.0
            for attempt in range(self.tries):
                calls = sum(answer.calls for answer in answers)
                if wait is None or calls >= self.max_calls or self._clock.now() + wait >= end:
                    break
                if wait:
                    yield Wait(wait)
                within = end - self._clock.now()
                if within <= 0:  # the pause took longer than it should
                    break
                answer = yield ModelCall(model, within)
                answers += [answer] if answer is not None else []
                if answer is not None and answer.finish != "error":
                    return _total(answers)
                wait = self._pause(answer, attempt, random)
        return _total(answers) if answers else None

    def _pause(self, answer: Answer | None, attempt: int, random: Random) -> float | None:
        """Return the seconds until the next try; None if a retry makes no sense."""
        failure = answer.failure if answer is not None else None
        if failure is None or not failure.is_transient:
            return None
        grown = min(self.first_pause * 2**attempt, self.longest_pause) * random.uniform(0.5, 1)
        wait = max(grown, failure.retry_after or 0.0)
        return wait if wait <= self.longest_pause else None


def _total(answers: Sequence[Answer]) -> Answer:
    """Return the last answer, or the failure to report, with the totals of all calls."""
    last = answers[-1]
    answer = next(filter(_is_overflow, answers), last) if last.finish == "error" else last
    usages = [answer.usage for answer in answers if answer.usage is not None]
    calls, cost = sum(answer.calls for answer in answers), sum(answer.cost for answer in answers)
    return replace(answer, calls=calls, cost=cost, usage=_sum(usages))


def _is_overflow(answer: Answer) -> bool:
    return answer.failure is not None and answer.failure.kind == "overflow"


def _sum(usages: Sequence[Usage]) -> Usage | None:
    if len(usages) < 2:
        return usages[0] if usages else None
    figures = ((u.input, u.output, u.cached, u.written, u.calls) for u in usages)
    hours = [usage.hour for usage in usages if usage.hour is not None]
    total = Usage(*map(sum, zip(*figures, strict=True)))
    return replace(total, hour=sum(hours) if hours else None)


async def _call_in_time(call: ModelCall, ask: Ask) -> Answer | None:
    try:
        async with asyncio.timeout(call.within):
            return await call.model.acall(ask, call.within)
    except TimeoutError:
        return answer_of_timeout(call.within)
