"""Waiting within limits: only what really has to wait is given a timer."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType, coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Awaitable[T]) -> T:
    """The outcome of *work*. Raises TimeoutError where it takes longer than so many *seconds*."""
    if not isinstance(work, CoroutineType):
        async with asyncio.timeout(seconds):
            return await work
    try:
        awaited = work.send(None)
    except StopIteration as done:  # as nearly always: what is asked for is there
        return done.value  # type: ignore[no-any-return]  # a coroutine's value is what it returns
    async with asyncio.timeout(seconds):
        return await _rest(work, awaited)


@coroutine
def _rest(work: "CoroutineType[Any, Any, T]", awaited: Any) -> Generator[Any, Any, T]:
    """The rest of a coroutine whose first step has been taken, and which waits for *awaited*."""
    step: Callable[[Any], Any]
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
            step, value = work.throw, error
        else:
            step, value = work.send, sent
        try:
            awaited = step(value)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # likewise
