"""What the store could not take goes there as soon as it takes anything again: whichever process gets the next request of
a conversation finds it."""

import asyncio
from collections.abc import Callable

from refold.gateway.conversations.conversations import Conversations
from refold.gateway.conversations.failures import report_failure
from refold.gateway.conversations.persistence import flush_unsaved
from refold.gateway.conversations.workers import Job, Workers
from refold.gateway.ops.metrics import Counters
from refold.stores.store import Store

RETRY_SECONDS = 1.0
"""Seconds between two attempts."""


class Outbox:
    """Tries every second, in a thread of its own, as long as anything waits. *done* is called when all is written."""

    def __init__(
        self,
        conversations: Conversations,
        store: Store,
        counters: Counters,
        deadline: float,
        done: Callable[[], None],
    ) -> None:
        self._conversations, self._store, self._counters = conversations, store, counters
        self._deadline, self._done = deadline, done
        self._workers = Workers(1, None, "refold-outbox")
        self._task: asyncio.Task[None] | None = None
        self._job = Job(0.0, has_ended=True)

    def wake(self) -> None:
        """Something waits."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """A last attempt, if anything waits, and an end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._conversations.list_unsaved():
            await self.flush()
        self._workers.close()

    async def flush(self) -> bool:
        """Write all that waits. Did that succeed? Never raises; a store that hangs is not asked twice at once."""
        if not self._job.has_ended:
            return False
        self._job = Job(0.0)
        try:
            await self._workers.run(self._write, self._job, self._deadline)
        except Exception as error:  # noqa: BLE001 - there will be another attempt
            report_failure(self._counters, "", "store", error)
            return False
        self._done()
        return True

    async def _run(self) -> None:
        while self._conversations.list_unsaved():
            await asyncio.sleep(RETRY_SECONDS)
            await self.flush()

    def _write(self) -> None:
        for conversation in self._conversations.list_unsaved():
            flush_unsaved(conversation, self._store)
        self._conversations.drop_saved()
