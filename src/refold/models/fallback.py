"""Several tries, several models, one answer: what is done about failures of transport."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from threading import Lock
from typing import Any, NamedTuple

from refold.core.strategy import Answer, Ask, End, Failure, advance
from refold.models.callables import as_model
from refold.models.errors import answer_of_timeout
from refold.models.model import Model
from refold.tokens.usage import Usage


class CircuitBreaker:
    """Opens after so many failures in a row; a success closes it (conformance 50).

    While it is open no automatic run asks a model; what a user starts by hand still does. With
    *rest*, one automatic run is let through every so many seconds; without, it stays open until
    a success or `record_success()`. Ladders that share a breaker share its state; calls may come from
    several threads.
    """

    def __init__(
        self, failures: int = 3, cooldown: float = inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failures, self.cooldown = failures, cooldown
        self.failures_in_a_row = 0
        """Failures in a row until now."""
        self.last_error = ""
        """What the last one said."""
        self._clock, self._lock, self._since = clock, Lock(), 0.0

    def __repr__(self) -> str:
        return f"CircuitBreaker(failures={self.failures}, cooldown={self.cooldown:g})"

    @property
    def is_open(self) -> bool:
        """Did so many runs fail in a row?"""
        return self.failures_in_a_row >= self.failures

    def allows(self) -> bool:
        """May an automatic run ask now? Where the rest is over, that is said once a rest."""
        with self._lock:
            if not self.is_open:
                return True
            if self._clock() - self._since < self.cooldown:
                return False
            self._since = self._clock()
            return True

    def record_failure(self, error: str = "") -> None:
        """One more failure; also for what only the caller can judge, as a summary that was no good."""
        with self._lock:
            self.failures_in_a_row, self.last_error, self._since = (
                self.failures_in_a_row + 1,
                error,
                self._clock(),
            )

    def record_success(self) -> None:
        """A success: closed again."""
        with self._lock:
            self.failures_in_a_row, self.last_error = 0, ""


class Call(NamedTuple):
    """Ask this model, within so many seconds."""

    model: Model
    within: float


class Wait(NamedTuple):
    """Do nothing for so many seconds."""

    seconds: float


class Clock(NamedTuple):
    """Where time comes from; tests bring their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    asleep: Callable[[float], Awaitable[None]] = asyncio.sleep


CLOCK = Clock()
"""The real one."""

FallbackSteps = Generator[Call | Wait, Answer | None, Answer | None]


class Fallback:
    """Models, the best first. A failure that may pass (rate limit, overload, timeout, connection) is
    tried again, with growing pauses; any other goes to the next model at once.

    An answer that was given is never asked again, however it ended: whether one that is cut off or
    filtered is good enough is the summarizer's to judge. The final `Answer` counts all calls,
    tokens and dollars; of several failures it tells the last, or that the request was too large
    where any model said so, since that can be helped. `by_hand` is the same ladder for what a user
    starts: it asks though the breaker is open.

    A function among *models* is one of `Ask` (see `refold.models.as_model`). Raises ValueError without models.
    """

    def __init__(
        self,
        *models: Model | Callable[[Ask], Any],
        tries: int = 3,
        calls: int = 6,
        deadline: float = 300.0,
        pause: float = 1.0,
        longest: float = 60.0,
        seed: int | None = None,
        breaker: CircuitBreaker | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        """*tries* for each model, *calls* for all of them together, *deadline* seconds for one ask.

        The first pause is half to once *pause* seconds, each further one twice as long; where the
        server says how long to wait, that is waited. Where this is more than *longest* seconds, or
        more than is left until the deadline, the next model is asked instead. *seed* makes the
        pauses the same for every ask.
        """
        if not models:
            raise ValueError("a fallback needs at least one model")
        self.models = tuple(m if isinstance(m, Model) else as_model(m) for m in models)
        self.tries, self.calls, self.deadline = tries, calls, deadline
        self.pause, self.longest, self.seed = pause, longest, seed
        self.breaker = CircuitBreaker(clock=clock.now) if breaker is None else breaker
        self._clock, self._manual = clock, False

    def __repr__(self) -> str:
        models = ", ".join(map(repr, self.models))
        return f"Fallback({models}, tries={self.tries}, calls={self.calls}, deadline={self.deadline:g})"

    @property
    def by_hand(self) -> "Fallback":
        """This ladder, breaker included, for runs that a user starts: an open breaker does not stop it."""
        other = copy(self)
        other._manual = True  # noqa: SLF001 - its own kind
        return other

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Ask. What a model was doing when it is interrupted ends with it."""
        run = self._climb(within)
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Wait):
                self._clock.sleep(step.seconds)
                step = advance(run)
            else:
                step = advance(run, step.model(ask, step.within))
        return step.value

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """As calling it, for async code; a model that is too slow is cancelled."""
        run = self._climb(within)
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Wait):
                await self._clock.asleep(step.seconds)
                step = advance(run)
            else:
                step = advance(run, await _timed(step, ask))
        return step.value

    # --- one ask --------------------------------------------------------------------------------

    def _climb(self, within: float | None) -> FallbackSteps:
        if not (self._manual or self.breaker.allows()):
            told = f"not asked: {self.breaker.failures_in_a_row} failures in a row, the last: {self.breaker.last_error}"
            return Answer("", "error", told, calls=0, fault=Failure("breaker"))
        answer = yield from self._all(
            self.deadline if within is None else min(within, self.deadline)
        )
        if answer is not None and answer.finish == "error":
            self.breaker.record_failure(answer.error)
        elif answer is not None:
            self.breaker.record_success()
        return answer

    def _all(self, seconds: float) -> FallbackSteps:
        """Every model in turn, until one answers."""
        tally, end, random = CallTotals(), self._clock.now() + seconds, Random(self.seed)  # noqa: S311 - pauses
        for model in self.models:
            answer = yield from self._one(model, tally, end, random)
            if answer is not None and answer.finish != "error":
                return tally.total(answer)
        return tally.total(tally.worst) if tally.worst else None

    def _one(self, model: Model, tally: "CallTotals", end: float, random: Random) -> FallbackSteps:
        """One model, tried as often as it is worth."""
        answer = None
        for past in range(self.tries):
            left = end - self._clock.now()
            if tally.calls >= self.calls or left <= 0:
                break
            answer = yield Call(model, left)
            tally.add(answer)
            wait = self._pause(answer, past, random)
            if (
                wait is None
                or past + 1 == self.tries
                or tally.calls >= self.calls
                or self._clock.now() + wait >= end
            ):
                break
            yield Wait(wait)
        return answer

    def _pause(self, answer: Answer | None, past: int, random: Random) -> float | None:
        """Seconds until the next try; None where there is no sense in one."""
        if (
            answer is None
            or answer.finish != "error"
            or answer.fault is None
            or not answer.fault.passes
        ):
            return None
        grown = min(self.pause * 2**past, self.longest) * random.uniform(0.5, 1)
        wait = max(grown, answer.fault.retry_after or 0.0)
        return wait if wait <= self.longest else None


@dataclass
class CallTotals:
    """What the calls for one ask came to."""

    calls: int = 0
    cost: float = 0.0
    usages: list[Usage] = field(default_factory=list)
    worst: Answer | None = None
    """The failure to tell of."""

    def add(self, answer: Answer | None) -> None:
        """One more answer, if it was one."""
        if answer is None:
            return
        self.calls, self.cost = self.calls + answer.calls, self.cost + answer.cost
        self.usages += [answer.usage] if answer.usage else []
        if answer.finish == "error" and not (
            self.worst and self.worst.fault and self.worst.fault.kind == "overflow"
        ):
            self.worst = answer

    def total(self, answer: Answer) -> Answer:
        """The answer with what all calls came to."""
        return replace(answer, calls=self.calls, cost=self.cost, usage=_sum(self.usages))


def _sum(usages: list[Usage]) -> Usage | None:
    if len(usages) < 2:
        return usages[0] if usages else None
    figures = ((u.input, u.output, u.cached, u.written, u.calls) for u in usages)
    return Usage(*map(sum, zip(*figures, strict=True)))


async def _timed(call: Call, ask: Ask) -> Answer | None:
    try:
        async with asyncio.timeout(call.within):
            return await call.model.acall(ask, call.within)
    except TimeoutError:
        return answer_of_timeout(call.within)
