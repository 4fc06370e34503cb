"""What a model is to the rest of Refold: a question in, an answer out, sync and async."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

from refold.core.strategy import Answer, Ask


@runtime_checkable
class Model(Protocol):
    """What answers an `Ask`. It never raises for what a provider does: a failed call is an `Answer`
    whose `finish` is `error`. Cancelling and `KeyboardInterrupt` pass through."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Answer, if possible within so many seconds. Raises TypeError for a model that is async
        only."""

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """As calling it, for async code."""


Price = tuple[float, ...]
"""US dollars per million tokens: input, output, and, where they differ, cached input and input
that is written to the cache."""

TIMEOUT = 120.0
"""Seconds that a call may take unless told otherwise."""


def with_cost(answer: Answer, price: Price | None) -> Answer:
    """Return the answer with what it cost."""
    usage = answer.usage
    if price is None or usage is None:
        return answer
    new, out, cached, written = (*price, *(price[0],) * (4 - len(price)))
    fresh = usage.input - usage.cached - usage.written
    dollars = fresh * new + usage.output * out + usage.cached * cached + usage.written * written
    return replace(answer, cost=dollars / 1_000_000)
