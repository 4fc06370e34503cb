"""What a model is to the rest of Refold: a question in, an answer out, in both colours."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol, runtime_checkable

from refold.core.strategy import Answer, Ask


@runtime_checkable
class Model(Protocol):
    """What answers an `Ask`. It never raises for what a provider does: a failed call is an `Answer`
    whose `finish` is `error`. Cancelling and `KeyboardInterrupt` pass through."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """Answer, if possible within so many seconds. Raises TypeError for a model that is async only."""

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer | None:
        """As calling it, for async code."""


Price = tuple[float, ...]
"""US dollars per million tokens: input, output, and, where they differ, cached input and input
that is written to the cache."""

TIMEOUT = 120.0
"""Seconds that a call may take unless told otherwise."""


def with_cost(answer: Answer, price: Price | None) -> Answer:
    """The answer with what it cost."""
    usage = answer.usage
    if price is None or usage is None:
        return answer
    new, out, cached, written = (*price, *(price[0],) * (4 - len(price)))
    fresh = usage.input - usage.cached - usage.written
    dollars = fresh * new + usage.output * out + usage.cached * cached + usage.written * written
    return replace(answer, cost=dollars / 1_000_000)


def effective_timeout(timeout: float, within: float | None) -> float:
    """Seconds that a call may take: its own limit, or what is left where that is less."""
    return timeout if within is None else min(timeout, within)


def as_async(ask: Callable[[Ask], Any]) -> Callable[[Ask], Awaitable[Answer | None]]:
    """*ask* for async code: a model by its `acall`, an async function as it is, any other in a thread."""
    acall = getattr(ask, "acall", None)
    if acall is not None:
        return acall  # type: ignore[no-any-return]
    return ask if _is_async(ask) else _in_thread(ask)


def _is_async(ask: Any) -> bool:
    return iscoroutinefunction(ask) or iscoroutinefunction(getattr(ask, "__call__", None))  # noqa: B004 - its kind


def _in_thread(ask: Callable[[Ask], Any]) -> Callable[[Ask], Awaitable[Answer | None]]:
    async def answer(question: Ask) -> Answer | None:
        reply = await asyncio.to_thread(_crossing, ask, question)
        answer: Answer | None = await reply if isawaitable(reply) else reply
        return answer

    return answer


def _crossing(ask: Callable[[Ask], Any], question: Ask) -> Any:
    """The reply. A StopIteration, as of `next` on answers that ran out, cannot leave a thread: whoever awaits it waits
    for ever."""
    try:
        return ask(question)
    except StopIteration as error:
        raise RuntimeError("the model raised StopIteration") from error
