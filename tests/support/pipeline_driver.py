"""Run the gateway's pipeline without sockets, with a store and a model that a test controls."""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from refold import Edit, StoreError
from refold.core.strategy import Answer, Ask
from refold.gateway import Incoming, Outgoing, Pipeline, Settings
from refold.stores.store import MemoryStore
from refold.tokens.model_table import Window
from tests.support.agent_requests import PATHS

SMALL_WINDOWS = {"m": Window(20_000), "claude-opus-5-5": Window(20_000), "g": Window(20_000)}


def build_incoming(
    body: bytes,
    api: str = "anthropic",
    headers: Iterable[tuple[str, str]] = (),
    credential: str = "c",
) -> Incoming:
    """Wrap *body* as a request received over HTTP."""
    return Incoming(api, "up", PATHS.get(api, "/other"), tuple(headers), body, credential)


class Driver:
    """Run a pipeline on one event loop, as a server would."""

    def __init__(self, store: Any = None, **settings: Any) -> None:
        self.store = MemoryStore() if store is None else store
        settings = {
            "windows": SMALL_WINDOWS,
            "economy": False,
            "read_above_bytes": 0,
            "decide_timeout_seconds": 60,
            **settings,
        }
        self.pipeline = Pipeline(Settings(**settings), self.store)
        self.loop = (
            asyncio.new_event_loop()
        )  # last, since nothing closes it if the settings are refused

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self.pipeline.aclose())
        self.loop.close()

    def __call__(self, body: bytes, api: str = "anthropic", **options: Any) -> Outgoing:
        return self.run(self.pipeline.prepare(build_incoming(body, api, **options)))

    def shrink(
        self, body: bytes, out: Outgoing, error: bytes, api: str = "anthropic"
    ) -> Outgoing | None:
        return self.run(self.pipeline.shrink(build_incoming(body, api), out, error))

    def drop_thinking(
        self, body: bytes, out: Outgoing, error: bytes, api: str = "anthropic"
    ) -> Outgoing | None:
        return self.run(self.pipeline.drop_thinking(build_incoming(body, api), out, error))

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def finish_background_work(self) -> None:
        async def wait() -> None:
            await asyncio.gather(*self.pipeline.background.tasks)

        self.run(wait())

    @contextmanager
    def with_timeout(self, seconds: float) -> Iterator[None]:
        """Time out requests in this block after *seconds*. Elsewhere they have no tight timeout."""
        before = self.pipeline.settings
        self.pipeline.settings = replace(before, decide_timeout_seconds=seconds)
        try:
            yield
        finally:
            self.pipeline.settings = before

    def count(self, name: str, **labels: str) -> float:
        return self.pipeline.counters.get(name, **labels)


class UnreliableStore(MemoryStore):
    """A store that fails while `down` and waits while `slow` is cleared."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.slow = threading.Event()
        self.slow.set()
        self.calls = 0

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        self._check()
        return super().load(tips)

    def save(self, edits: Iterable[Edit]) -> None:
        self._check()
        super().save(edits)

    def version(self) -> int:
        self._check()
        return super().version()

    def _check(self) -> None:
        self.calls += 1
        self.slow.wait(300)
        if self.down:
            raise StoreError("database is locked")


SUMMARY = "\n".join(
    f"## {heading}\n- the bug is in add"
    for heading in ("Goal", "Constraints", "Done", "State", "Decisions", "Open", "Next", "Files")
)


class SummaryWriter:
    """A model that answers every prompt with a summary, and records its requests."""

    def __init__(self, delay: float = 0.0, text: str = SUMMARY) -> None:
        self.asked: list[Ask] = []
        self.delay, self.text = delay, text

    async def __call__(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        await asyncio.sleep(self.delay)
        return Answer(self.text, model="writer")
