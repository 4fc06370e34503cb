"""The memory of each agent: what the soft/hard preset takes out of messages before they are
hidden."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from refold.memory import Backlog, Extractor, FlushResult, Memory, MemoryFlush, MemorySink
from refold.presets.soft_hard_config import CompactionConfig


@dataclass(frozen=True, slots=True)
class AgentMemories:
    """Memories go to *memory*: a sink, a function from an agent's id to one, or none."""

    memory: MemorySink | Callable[[str], MemorySink] | None
    extract: Extractor
    _waiting: dict[str, Backlog] = field(default_factory=dict, init=False, repr=False)
    """By agent, what could not be stored yet."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    @contextmanager
    def flushing(
        self, agent_id: str, config: CompactionConfig
    ) -> Iterator[tuple[MemoryFlush | None, list[FlushResult]]]:
        """Lend what a compactor does for an agent's memory, and the list of what it reports. What
        could not be stored waits for the agent's next call."""
        memory, flushes = self.memory, list[FlushResult]()
        if memory is None or not config.memory_flush_enabled:
            yield None, flushes
            return
        sink = _LazySink(partial(memory, agent_id)) if callable(memory) else memory
        with self._lock:
            backlog = self._waiting.pop(agent_id, None) or Backlog()
        try:
            yield MemoryFlush(sink, self.extract, report=flushes.append, backlog=backlog), flushes
        finally:
            with self._lock:
                waiting = self._waiting.setdefault(agent_id, backlog) if backlog else backlog
            if waiting is not backlog:  # another call of this agent's left some meanwhile
                waiting.put_back(*backlog.take())


@dataclass(frozen=True, slots=True)
class _LazySink:
    """A sink that is opened when there is something to store, so that one that cannot be opened is
    one that fails."""

    open: Callable[[], MemorySink]

    def store(self, memories: Iterable[Memory]) -> int:
        return self.open().store(memories)

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        return self.open().search(query, limit)
