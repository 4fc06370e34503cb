"""Work that no request waits for: summaries that are prepared ahead, and what is asked beside requests."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from refold.compactor.preview import Preview
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.workers import Job, Workers
from refold.gateway.ops.logs import LOGGER, error_fields
from refold.gateway.ops.metrics import Counters
from refold.gateway.settings import Settings

T = TypeVar("T")


class BackgroundJobs:
    """Threads of its own, so that requests never wait for one of these."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._patience, self._counters = settings.summary_timeout_seconds, counters
        self.workers = Workers(max(1, settings.compute_threads // 4), settings.ask, "refold-ahead")
        self.tasks = set[asyncio.Task[None]]()

    def start_prefetch(self, conversation: Conversation) -> None:
        """Have a summary written in the background, where the turn has asked for one."""
        wish, conversation.prefetch.job = conversation.prefetch.job, None
        if wish is None or conversation.prefetch.is_running or conversation.prefetch.preview:
            return
        conversation.prefetch.is_running = True
        task = asyncio.get_running_loop().create_task(self._prefetch(conversation, wish))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self, work: Callable[[], T], patience: float) -> T:
        """The outcome of *work*. Raises `Late` after so many seconds, models aside, and what *work* raises."""
        return await self.workers.run(work, Job(patience), patience)

    async def aclose(self) -> None:
        """Stop."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.workers.close()

    async def _prefetch(
        self, conversation: Conversation, wish: Callable[[], Preview | None]
    ) -> None:
        result = "failed"
        try:
            conversation.prefetch.preview = await self.run(wish, self._patience * 2)
            result = "ready" if conversation.prefetch.preview else "nothing"
        except Exception as error:  # noqa: BLE001 - there will be another
            LOGGER.warning("no summary was prepared", extra={"fields": error_fields(error)})
        finally:
            conversation.prefetch.is_running = False
            self._counters.add("prepared", result=result)
