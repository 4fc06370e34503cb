"""Waiting within limits."""

import asyncio

import pytest

from refold.gateway.http.timeout import within


async def answer(*waits: float, fault: Exception | None = None) -> str:
    for seconds in waits:
        await asyncio.sleep(seconds)
    if fault is not None:
        raise fault
    return "done"


@pytest.mark.parametrize("waits", [(), (0,), (0, 0.001, 0, 0.001)])
def test_what_comes_in_time_is_told(waits) -> None:
    assert asyncio.run(within(5, answer(*waits))) == "done"


@pytest.mark.parametrize("waits", [(), (0, 0.001)])
def test_what_is_raised_is_raised(waits) -> None:
    with pytest.raises(KeyError):
        asyncio.run(within(5, answer(*waits, fault=KeyError())))


def test_what_takes_too_long_is_cancelled() -> None:
    ended = []

    async def slow() -> None:
        try:
            await answer(0, 60)
        finally:
            ended.append(True)

    with pytest.raises(TimeoutError):
        asyncio.run(within(0.01, slow()))
    assert ended == [True]


def test_what_waits_can_be_cancelled_and_may_clean_up() -> None:
    async def run() -> list[str]:
        told = []

        async def slow() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told.append(await answer(0.001))
                raise

        task = asyncio.create_task(within(60, slow()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return told

    assert asyncio.run(run()) == ["done"]


def test_any_awaitable_will_do() -> None:
    async def run() -> None:
        future = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await within(0.01, future)

    asyncio.run(run())
