"""Threads: a job that waits for a model blocks no other, and the number of computing jobs is
limited."""

import asyncio
import threading
from time import sleep

import pytest

from refold.core.strategy import Answer, Ask, Failure
from refold.gateway.conversations.workers import Job, Workers
from refold.gateway.metrics import Counters

QUESTION = Ask(prompt="a summary", max_tokens=100)


@pytest.mark.parametrize("is_background", [False, True])
def test_jobs_waiting_for_a_model_do_not_block_other_jobs(is_background):
    async def run():
        asked, answer = [], asyncio.Event()

        async def ask(question):
            asked.append(question)
            if len(asked) == 30:
                answer.set()
            await answer.wait()
            return Answer("done")

        workers = Workers(4, ask, Counters())
        jobs = (Job(60.0, is_background) for _ in range(30))
        waits = (workers.run(lambda: workers.ask(QUESTION), job, 60.0) for job in jobs)
        # With a thread for each of 4, or 1, the thirtieth would never be asked.
        answers = await asyncio.wait_for(asyncio.gather(*waits), 60)
        assert [each.text for each in answers] == ["done"] * 30
        workers.close()

    asyncio.run(run())


def test_concurrent_computation_is_limited_while_jobs_wait_for_a_model():
    async def run():
        async def ask(_):
            await asyncio.sleep(0.01)
            return Answer("done")

        lock, busy, most = threading.Lock(), 0, 0

        def compute():
            nonlocal busy, most
            with lock:
                busy += 1
                most = max(most, busy)
            sleep(0.002)
            with lock:
                busy -= 1

        def work():
            compute()
            workers.ask(QUESTION)
            compute()

        workers = Workers(3, ask, Counters())
        await asyncio.gather(*(workers.run(work, Job(60.0), 60.0) for _ in range(20)))
        assert 1 <= most <= 3
        workers.close()

    asyncio.run(run())


def test_a_model_failure_is_counted_and_logged_without_its_message(caplog):
    async def run(failure):
        async def ask(_):
            if failure is None:
                raise KeyError("a-key")
            return Answer("", "error", "HTTP 401: a-key", failure=failure)

        workers, job = Workers(1, ask, counters), Job(60.0)
        answer = await workers.run(lambda: workers.ask(QUESTION), job, 60.0)
        assert answer.finish == "error"
        workers.close()

    counters = Counters()
    for failure in (Failure("auth"), Failure("breaker"), None):
        asyncio.run(run(failure))
    assert counters.values() == {("failures", (("reason", "model"),)): 2}
    assert [record.fields for record in caplog.records] == [{"kind": "auth"}, {"kind": "other"}]
    assert "a-key" not in caplog.text
