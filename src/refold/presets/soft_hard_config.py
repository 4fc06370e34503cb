"""What the soft/hard preset takes and gives, under the names of the system that it follows:
settings, messages, checks, results; and the memory of each agent."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from threading import Lock
from typing import Any, Literal, TypedDict

from refold.memory import Backlog, Extractor, FlushResult, Memory, MemoryFlush, MemorySink

_log = logging.getLogger("refold")


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """Eight figures and switches (S2-03 to S2-10). What is not said is as in production (C2-7).
    Raises ValueError for figures that contradict one another."""

    soft_threshold_tokens: int = 15_000
    """From here on compaction is suggested."""
    hard_threshold_tokens: int = 20_000
    """From here on it is forced."""
    reserve_tokens: int = 4_000
    """Kept free of the model's window for the answer."""
    memory_flush_enabled: bool = True
    """Whether memories are taken out of messages before they are hidden."""
    keep_recent_messages: int = 6
    """Newest messages that stay; more where a call would be parted from its result."""
    summary_max_tokens: int = 800
    use_llm: bool = False
    """Whether a model writes the summary."""
    llm_fallback_to_rules: bool = True
    """Whether rules write it where the model does not; if not, nothing is changed then."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if type(value) is not setting.type or value < 0:
                raise ValueError(f"{setting.name} is {setting.type}, not {value!r}")
        if self.soft_threshold_tokens > self.hard_threshold_tokens:
            raise ValueError(
                f"the soft threshold ({self.soft_threshold_tokens}) must not exceed the hard one "
                f"({self.hard_threshold_tokens})"
            )


PRODUCTION = CompactionConfig()
"""Long conversations (S2-43)."""
DEVELOPMENT = CompactionConfig(5_000, 8_000, 2_000, keep_recent_messages=4, summary_max_tokens=400)
"""Compacts often, to be watched (S2-42)."""
LARGE_CONTEXT = CompactionConfig(
    25_000, 30_000, 6_000, keep_recent_messages=10, summary_max_tokens=1_200, use_llm=True
)
"""For a model of 32K tokens (S2-44), as documented: see `clamp_config`."""
LARGE_CONTEXT_WINDOW = 32_768


Overrides = CompactionConfig | Mapping[str, Any] | None
"""A whole configuration, some of its settings by name, or none."""


def merge_config(base: CompactionConfig, given: Overrides) -> CompactionConfig:
    """Return *base* with what is *given* in place of its own (S2-39, C2-6). Raises ValueError for
    names that there are not, and for figures that contradict one another."""
    if given is None or isinstance(given, CompactionConfig):
        return given or base
    unknown = given.keys() - asdict(base).keys()
    if unknown:
        raise ValueError(
            f"no such setting: {', '.join(sorted(map(str, unknown)))}; "
            f"there are {', '.join(asdict(base))}"
        )
    return replace(base, **given)


def clamp_config(config: CompactionConfig, window: int | None) -> CompactionConfig:
    """Return *config* with a hard threshold that leaves the reserve free in a *window* of so many
    tokens (C2-3, C2-4); a warning is logged where it is lowered. Raises ValueError where the
    reserve is all there is."""
    if window is None:
        return config
    most = window - config.reserve_tokens
    if most <= 0:
        raise ValueError(
            f"a reserve of {config.reserve_tokens} tokens leaves nothing of a window of {window}"
        )
    if config.hard_threshold_tokens <= most:
        return config
    _log.warning(
        "the hard threshold of %d tokens and a reserve of %d exceed the window of %d: %d it is",
        config.hard_threshold_tokens,
        config.reserve_tokens,
        window,
        most,
    )
    soft = min(config.soft_threshold_tokens, most)
    return replace(config, hard_threshold_tokens=most, soft_threshold_tokens=soft)


# --- what it is given, and what it answers -----------------------------------------------------

Urgency = Literal["none", "soft", "hard"]


class CompactableMessage(TypedDict, total=False):
    """A message of Chat Completions (S2-22). Any other field goes through untouched."""

    role: str
    content: Any
    tool_calls: list[dict[str, Any]]
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class CompactionCheck:
    """What is due (S2-11 to S2-14)."""

    should_compact: bool
    """Soft or hard (C2-8)."""
    current_tokens: int
    threshold: int
    """The threshold that was crossed; of none the soft one."""
    urgency: Urgency


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What was done (S2-15 to S2-21)."""

    compacted_messages: list[Any]
    summary: str
    """Its text without the wrapper; empty where nothing was summarised."""
    original_count: int
    retained_count: int
    """Messages of the original that stay as they were."""
    flushed_memories: int
    """Memories that were not known before."""
    tokens_before_compaction: int
    tokens_after_compaction: int
    memory_failure: str = ""
    """Why memories could not be stored; they wait for the next compaction of this agent (C2-9)."""


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """What a compaction would do (S2-51), as it crosses a wire; nothing of it is kept until it is
    accepted."""

    preview_id: str
    """What to accept it by, once."""
    compacted_messages: list[Any]
    summaries: Mapping[str, str]
    """The text of each summary, by the edit that shows it, for the user to change."""
    original_count: int
    tokens_before_compaction: int
    tokens_after_compaction: int


# --- memories: what is taken out of messages before they are hidden --------------------------


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
