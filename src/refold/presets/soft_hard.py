"""Soft and hard: compaction is suggested from one threshold on, forced from another (S2).

The parts are Refold's own. This module says which, with their settings (docs/presets/soft-hard.md).
Names are those of the original system. The four commands, their dispatcher and its client are in
`refold.presets.soft_hard_commands`.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from threading import Lock
from typing import Any, Literal, TypedDict
from weakref import WeakKeyDictionary

from refold.budget.budget import Budget, Level
from refold.budget.triggers import Never
from refold.codecs.codec import Codec
from refold.compactor.by_hand import Preview
from refold.compactor.compactor import Compactor
from refold.compactor.hooks import OnEvent
from refold.core.strategy import Strategy, Summarizer
from refold.core.view import View
from refold.errors import EditError
from refold.memory import (
    Backlog,
    Extractor,
    FlushResult,
    Memory,
    MemoryFlush,
    MemorySink,
    RuleExtractor,
)
from refold.models.driver import Asker, drive
from refold.presets.in_place import Conversation, Conversations
from refold.presets.measures import KeepFrom, LastMessages, OnlyBeyond, rather_over
from refold.presets.soft_hard_summary import Language, TopicSummary
from refold.scorers.scorer import Scorer
from refold.stores.store import LedgerRow, MemoryStore, Store
from refold.strategies import ClearToolResults, KeepImportant, Summarize
from refold.summarizers.model import ModelSummary, Prompt, load_prompt
from refold.text.summary_wrapper import summary_in
from refold.tokens.count import Counter as TokenCounter
from refold.tokens.count import counter

# --- settings -------------------------------------------------------------------------------------


_log = logging.getLogger("refold")


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """Eight settings (S2-03 to S2-10). The defaults are those of production (C2-7). Raises
    ValueError for contradictory figures."""

    soft_threshold_tokens: int = 15_000
    """Compaction is suggested from here on."""
    hard_threshold_tokens: int = 20_000
    """Compaction is forced from here on."""
    reserve_tokens: int = 4_000
    """Tokens of the model's window kept free for the answer."""
    memory_flush_enabled: bool = True
    """Whether memories are extracted from messages before they are hidden."""
    keep_recent_messages: int = 6
    """Number of newest messages that stay, more if a call would be separated from its result."""
    summary_max_tokens: int = 800
    use_llm: bool = False
    """Whether a model writes the summary."""
    llm_fallback_to_rules: bool = True
    """Whether rules write it if the model does not. If False, nothing is changed then."""

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
"""For long conversations (S2-43)."""
DEVELOPMENT = CompactionConfig(5_000, 8_000, 2_000, keep_recent_messages=4, summary_max_tokens=400)
"""Compacts often, for observation (S2-42)."""
LARGE_CONTEXT = CompactionConfig(
    25_000, 30_000, 6_000, keep_recent_messages=10, summary_max_tokens=1_200, use_llm=True
)
"""For a model with 32K tokens (S2-44), as documented, see `clamp_config`."""
LARGE_CONTEXT_WINDOW = 32_768

Overrides = CompactionConfig | Mapping[str, Any] | None
"""A whole configuration, some settings by name, or None."""


def merge_config(base: CompactionConfig, given: Overrides) -> CompactionConfig:
    """Return *base* overridden by *given* (S2-39, C2-6). Raises ValueError for unknown names and
    for contradictory figures."""
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
    """Return *config* with the hard threshold lowered, if needed, to leave the reserve free in a
    *window* of tokens (C2-3, C2-4). A warning is logged then. Raises ValueError if the reserve
    takes the whole window."""
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


# --- messages, checks and results -----------------------------------------------------------------


class CompactableMessage(TypedDict, total=False):
    """A Chat Completions message (S2-22). Other fields pass through unchanged."""

    role: str
    content: Any
    tool_calls: list[dict[str, Any]]
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class CompactionCheck:
    """What is due (S2-11 to S2-14)."""

    should_compact: bool
    """True if soft or hard (C2-8)."""
    current_tokens: int
    threshold: int
    """The threshold that was crossed, or the soft one if none was."""
    urgency: Level


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction (S2-15 to S2-21)."""

    compacted_messages: list[Any]
    summary: str
    """Text without its wrapper. Empty if nothing was summarised."""
    original_count: int
    retained_count: int
    """Number of original messages that stay unchanged."""
    flushed_memories: int
    """Number of new memories."""
    tokens_before_compaction: int
    tokens_after_compaction: int
    memory_failure: str = ""
    """Why memories could not be stored. They wait for the agent's next compaction (C2-9)."""


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """The effect of a compaction (S2-51) in wire form. Nothing is saved until it is accepted."""

    preview_id: str
    """Id to accept it by, once."""
    compacted_messages: list[Any]
    summaries: Mapping[str, str]
    """Text of each summary by edit id, for the user to change."""
    original_count: int
    tokens_before_compaction: int
    tokens_after_compaction: int


# --- memories of agents ---------------------------------------------------------------------------
# Extracted from messages before those are hidden.


@dataclass(frozen=True, slots=True)
class AgentMemories:
    """Memories of agents. *memory* is a sink, a function from an agent's id to one, or None."""

    memory: MemorySink | Callable[[str], MemorySink] | None
    extract: Extractor
    _waiting: dict[str, Backlog] = field(default_factory=dict, init=False, repr=False)
    """Memories that could not be stored yet, by agent."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    @contextmanager
    def flushing(
        self, agent_id: str, config: CompactionConfig
    ) -> Iterator[tuple[MemoryFlush | None, list[FlushResult]]]:
        """Provide the memory flush for an agent's compactor, and the list of its reports. What
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
            if waiting is not backlog:  # another call of this agent left some meanwhile
                waiting.put_back(*backlog.take())


@dataclass(frozen=True, slots=True)
class _LazySink:
    """A sink that is opened only to store or search, so that an error on opening is an error of the
    sink."""

    open: Callable[[], MemorySink]

    def store(self, memories: Iterable[Memory]) -> int:
        return self.open().store(memories)

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        return self.open().search(query, limit)


# --- the compactor --------------------------------------------------------------------------------


PROMPT = load_prompt("summary")
"""Default prompt of the summary."""
COUNT = counter(rather_over)
"""Counts rather too many tokens than too few (S2-24, S2-25), overhead included (C2-2)."""


class SoftHardCompactor:
    """The core (S2-32): checks, compactions, previews and reverts.

    *model* writes summaries if the configuration says so. A light one will do (S2-49). *memory* is
    a sink, or a function from an agent's id to one. *window* is the model's, in tokens, for the
    reserve. *scorer* selects the messages that stay word for word (S2-52). *language* is that of
    rule summaries. *store* keeps the edits of each agent and conversation apart. *conversations*
    remembers the originals of named conversations. *prompt* and *instruction* are the system prompt
    and the last message of a summary request. *on_event* receives all events: other engines may
    listen (S2-54).
    """

    def __init__(  # noqa: PLR0913 - everything optional is by keyword
        self,
        config: Overrides = PRODUCTION,
        *,
        model: Asker | None = None,
        memory: MemorySink | Callable[[str], MemorySink] | None = None,
        extract: Extractor | None = None,
        window: int | None = None,
        scorer: Scorer | None = None,
        language: Language | Literal["auto"] = "auto",
        store: Store | None = None,
        count: TokenCounter = COUNT,
        format: str | Codec | None = None,
        on_event: OnEvent | None = None,
        conversations: Conversations | None = None,
        prompt: Prompt | str | None = None,
        instruction: Prompt | str | None = None,
    ) -> None:
        self.config, self.window = clamp_config(merge_config(PRODUCTION, config), window), window
        self.model, self.memory = model, AgentMemories(memory, extract or RuleExtractor())
        self.rules, self.scorer = TopicSummary(language), scorer
        self.store: Store = MemoryStore() if store is None else store
        self.count, self.format, self.on_event = count, format, on_event
        self.prompt, self.instruction = prompt or PROMPT, instruction
        self._talks = Conversations() if conversations is None else conversations
        self._previewed = WeakKeyDictionary[View, CompactionConfig]()
        """Configuration of each preview, by the view before it, which amendments keep."""

    def resolve_config(self, config: Overrides = None) -> CompactionConfig:
        """Return the configuration with *config* applied, within the window. Raises ValueError."""
        return clamp_config(merge_config(self.config, config), self.window)

    def strategies(self, config: CompactionConfig) -> list[Strategy]:
        """Return a summary for all but the newest messages, and stubs for the tool results among
        those if they alone have too many tokens (S2-23, C2-10)."""
        soft = config.soft_threshold_tokens
        summarize = Summarize(
            max_tokens=config.summary_max_tokens, summarizer=self.summarizer(config)
        )
        whole: Any = KeepFrom(summarize, LastMessages(config.keep_recent_messages, soft // 2))
        if self.scorer is not None:
            whole = KeepImportant(whole, self.scorer, max_tokens=soft // 4)
        return [whole, OnlyBeyond(ClearToolResults(keep=1), soft)]

    def summarizer(self, config: CompactionConfig) -> Summarizer:
        """Return the rules, or the model with rules as its fallback (S2-09, S2-10)."""
        if not config.use_llm:
            return self.rules
        fallback = self.rules if config.llm_fallback_to_rules else None
        return ModelSummary(self.prompt, headings=(), closing=self.instruction, fallback=fallback)

    # --- checks and compactions -------------------------------------------------------------------

    def check_threshold(self, messages: Any, config: Overrides = None) -> CompactionCheck:
        """Return what is due for *messages*. Exactly at a threshold counts as reached. Raises
        `FormatError`."""
        settled = self.resolve_config(config)
        check = self._compactor(settled, store=MemoryStore()).check(messages)
        crossed = check.level == "hard"
        threshold = settled.hard_threshold_tokens if crossed else settled.soft_threshold_tokens
        return CompactionCheck(check.is_due, check.tokens, threshold, check.level)

    def compact(
        self,
        messages: Any,
        agent_id: str = "",
        conversation_id: str | None = None,
        config: Overrides = None,
    ) -> CompactionResult:
        """Compact *messages*, whatever the thresholds say. The list itself is not changed. Memories
        are flushed first, each content once. A failure there stops nothing, is reported in the
        result and retried at the agent's next compaction (C2-9). Raises `FormatError`,
        `StoreError`, and ValueError for the configuration."""
        settled, talk = self.resolve_config(config), (agent_id, conversation_id)
        originals = self._talks.full_history(talk, messages)
        with self.memory.flushing(agent_id, settled) as (memory, flushes):
            compactor = self._compactor(settled, *talk, memory=memory)
            before = compactor.check(originals).tokens
            view = compactor.compact_now(originals)
        return self._result(talk, messages, originals, before, view, flushes)

    # --- previews, history and reverts ------------------------------------------------------------

    def preview(
        self,
        messages: Any,
        agent_id: str = "",
        conversation_id: str | None = None,
        config: Overrides = None,
    ) -> Preview:
        """Return what `compact` would do, without saving (S2-51). `amend` changes its summary,
        `accept` saves it."""
        settled, talk = self.resolve_config(config), (agent_id, conversation_id)
        originals = self._talks.full_history(talk, messages)
        preview = self._compactor(settled, *talk).preview(originals)
        self._previewed[preview.before] = settled
        return preview

    def accept(
        self, preview: Preview, agent_id: str = "", conversation_id: str | None = None
    ) -> CompactionResult:
        """Save exactly what *preview* shows. Memories are flushed first, if the configuration that
        it was made with says so. No model is asked for a summary."""
        talk, before = (agent_id, conversation_id), preview.before
        config = self._previewed.get(before, self.config)
        with self.memory.flushing(agent_id, config) as (memory, flushes):
            view = self._compactor(config, *talk, memory=memory).accept(preview)
        originals = before.revert().payload
        return self._result(talk, before.payload, originals, before.tokens, view, flushes)

    def history(
        self, messages: Any, agent_id: str = "", conversation_id: str | None = None
    ) -> Sequence[LedgerRow]:
        """Return every attempt on *messages*, oldest first, with reason, tokens and model (S2-53).
        *messages* is the whole history or the compacted list of a named conversation."""
        talk = (agent_id, conversation_id)
        originals = self._talks.full_history(talk, messages)
        return self._compactor(self.config, *talk).ledger_rows(originals)

    def revert(
        self, messages: Any, *ids: str, agent_id: str = "", conversation_id: str | None = None
    ) -> list[Any]:
        """Revert compactions of *messages* (all, without *ids*) and return the messages to continue
        with (S2-53). *messages* is the whole history or the compacted list of a named conversation.
        Raises `EditError`, also if no compaction of it is known."""
        talk = (agent_id, conversation_id)
        originals = self._talks.full_history(talk, messages)
        compactor = self._compactor(self.config, *talk)
        if not compactor.show(originals).edits:
            raise EditError(
                "no compaction of these messages is known: give the whole history, or a list that "
                "was compacted here under this agent_id and a conversation_id"
            )
        payload: list[Any] = compactor.revert(originals, *ids).payload
        self._talks.record(talk, originals, payload)
        return payload

    # --- parts ------------------------------------------------------------------------------------

    def _compactor(
        self,
        config: CompactionConfig,
        agent_id: str = "",
        conversation_id: str | None = None,
        store: Store | None = None,
        memory: MemoryFlush | None = None,
    ) -> Compactor:
        soft, hard = config.soft_threshold_tokens, config.hard_threshold_tokens
        return Compactor(
            self.strategies(config),
            Budget(trigger=hard, target=soft, soft=soft),
            store or self.store,
            ask=self.model,
            count=self.count,
            format=self.format,
            salt=_salt(agent_id, conversation_id or ""),
            on_event=self.on_event,
            memory=memory,
        )

    def _result(
        self,
        talk: Conversation,
        messages: Any,
        originals: Any,
        before: int,
        view: View,
        flushes: Sequence[FlushResult],
    ) -> CompactionResult:
        """Return the result: *messages* stand for *originals*, had *before* tokens, now show
        *view*."""
        texts = (
            summary_in(message) for placed in view.visible_edits for message in placed.edit.insert
        )
        shown, whole = view.payload, len(messages) == len(originals)
        self._talks.record(talk, originals, shown)
        return CompactionResult(
            compacted_messages=list(shown),
            summary="\n\n".join(text for text in texts if text),
            original_count=len(messages),
            retained_count=(Counter(map(repr, messages)) & Counter(map(repr, shown))).total(),
            flushed_memories=sum(flush.count for flush in flushes),
            tokens_before_compaction=view.revert().tokens if whole else before,
            tokens_after_compaction=view.tokens,
            memory_failure="; ".join(flush.reason for flush in flushes if flush.failed),
        )


def _salt(agent_id: str, conversation_id: str) -> str:
    """Return the salt of a conversation: the first NUL ends the agent's id. If that id has a NUL of
    its own, the salt is JSON, which has none."""
    if "\0" in agent_id:
        return json.dumps([agent_id, conversation_id])
    return f"{agent_id}\0{conversation_id}"


def extract_memories(messages: Any) -> Sequence[Memory]:
    """Return the memories in *messages*, to be stored by hand (S2-40). `compact` does this
    itself."""
    view = Compactor([], Budget(Never(), 0))(messages)
    return drive(RuleExtractor()(view, range(len(view.transcript)))).memories


__all__ = [
    "DEVELOPMENT",
    "LARGE_CONTEXT",
    "LARGE_CONTEXT_WINDOW",
    "PRODUCTION",
    "CompactableMessage",
    "CompactionCheck",
    "CompactionConfig",
    "CompactionResult",
    "SoftHardCompactor",
    "TopicSummary",
    "clamp_config",
    "extract_memories",
    "merge_config",
    "rather_over",
]
