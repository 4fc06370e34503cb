"""Work that no request waits for: summaries that are prepared ahead, and what the API asks for."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from refold.compactor.by_hand import Preview
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.workers import Job, Workers
from refold.gateway.logs import LOGGER, error_fields
from refold.gateway.metrics import Counters

T = TypeVar("T")


class BackgroundJobs:
    """Jobs in the *workers*' background threads. A summary may take *summary_timeout* seconds, and
    twice as much ahead."""

    def __init__(self, workers: Workers, counters: Counters, summary_timeout: float) -> None:
        self._workers, self._counters, self._timeout = workers, counters, summary_timeout
        self.tasks = set[asyncio.Task[None]]()

    def start_prefetch(self, conversation: Conversation) -> None:
        """Start the summary that the turn has asked for, if it has."""
        prefetch = conversation.prefetch
        job, prefetch.job = prefetch.job, None
        if job is None or prefetch.is_running or prefetch.preview:
            return
        prefetch.is_running = True
        task = asyncio.get_running_loop().create_task(self._prefetch(conversation, job))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """Return the outcome of *work*. Raises `DeadlineExceeded` after *seconds*, models aside,
        and what *work* raises."""
        seconds = self._timeout if seconds is None else seconds
        return await self._workers.run(work, Job(seconds, is_background=True), seconds)

    async def aclose(self) -> None:
        """Stop all prefetching."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _prefetch(
        self, conversation: Conversation, job: Callable[[], Preview | None]
    ) -> None:
        prefetch, result = conversation.prefetch, "failed"
        try:
            prefetch.preview = await self.run(job, self._timeout * 2)
            result = "ready" if prefetch.preview else "nothing"
        except Exception as error:  # noqa: BLE001 - there will be another
            LOGGER.warning("no summary was prepared", extra={"fields": error_fields(error)})
        finally:
            prefetch.is_running = False
            self._counters.add("prepared", result=result)
