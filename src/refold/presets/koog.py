"""koog's history compression: strategies, sessions, and what every compression keeps (S3).

The strategies are Refold's with koog's names, defaults and TLDR form (docs/presets/koog.md).
Sessions and the nodes for LangGraph (extra `langchain`) are imported on first use.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

from refold import lazy_names, strategies
from refold.core.strategy import Strategy, Summarizer
from refold.messages import Message
from refold.summarizers import model
from refold.summarizers.forms import TLDR
from refold.summarizers.forms.facts import FACTS_PROMPT, Concept, FactType
from refold.summarizers.placement import (
    MemoryContaining,
    TaggedMemory,
    TaggedOrBeginning,
    remember,
)
from refold.transcript import hash_message

if TYPE_CHECKING:
    from refold.presets.koog_graph import (
        AgentState,
        execute_with_history_compression,
        history_is_too_long,
        node_execute_tool,
        node_llm_compress_history,
        node_llm_request,
        node_llm_send_tool_result,
    )
    from refold.presets.koog_sessions import (
        LLM,
        NoAnswer,
        Prompt,
        ReadSession,
        WriteSession,
        compose_prompt_with_required_messages,
    )


class HistoryCompressionStrategy(ABC):
    """Base class of strategies that compress a history. Extend it to write your own (S3-21)."""

    @abstractmethod
    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Set `llm_session.prompt` to the compressed history. *memory_messages* are its memory,
        kept if *preserve_memory* is true (S3-26)."""


def tldr(
    prompt: model.Prompt | str | None = None,
    instruction: model.Prompt | str | None = None,
    *,
    record: bool = True,
) -> model.ModelSummary:
    """Return a summarizer whose model writes a TLDR: objectives, tools and results, findings,
    status, next steps (S3-14). *prompt* replaces its system prompt, *instruction* the last message
    of its request. With *record*, what must not be lost is kept beside it."""
    return model.ModelSummary(
        prompt or model.load_prompt("summary"), form=TLDR, closing=instruction, record=record
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """Predicate that accepts the given messages."""

    messages: tuple[Message, ...]

    def __call__(self, message: Message) -> bool:
        return message in self.messages

    def __repr__(self) -> str:
        return f"Listed({blake2b(b''.join(map(hash_message, self.messages)), digest_size=4).hexdigest()})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TldrStrategy(HistoryCompressionStrategy):
    """Base class of the strategies that write TLDRs. Compressing raises ValueError for a *prompt*
    beside a *summarizer*, which has its own."""

    max_tokens: int = 2_000
    """Maximum tokens of one TLDR."""
    summarizer: Summarizer | None = None
    """Writes the TLDR. None: `tldr`."""
    prompt: model.Prompt | str | None = None
    """Prompt for the model, instead of the package's system prompt."""
    record: ClassVar[bool] = True
    """Whether what must not be lost is kept beside the TLDR."""

    @abstractmethod
    def strategy(self, **settings: Any) -> Strategy:
        """Return the corresponding strategy of Refold with these settings."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Replace messages by TLDRs."""
        if self.summarizer is not None and self.prompt is not None:
            raise ValueError("give a prompt, or a summarizer that has one")
        await llm_session.compact(
            self.strategy(
                max_tokens=self.max_tokens,
                summarizer=self.summarizer or tldr(self.prompt, record=self.record),
                preserve_memory=preserve_memory,
                memory=Listed(tuple(memory_messages)),
            )
        )


@dataclass(frozen=True, slots=True)
class WholeHistory(TldrStrategy):
    """Replaces the whole history by one TLDR. For most cases: the context of all work so far stays,
    in fewer tokens (S3-14)."""

    def strategy(self, **settings: Any) -> Strategy:
        """Return `refold.strategies.WholeHistory`."""
        return strategies.WholeHistory(**settings)


@dataclass(frozen=True, slots=True)
class FromLastNMessages(TldrStrategy):
    """Replaces the last *n* messages by one TLDR and drops all before them. For when only the
    newest findings matter (S3-15)."""

    n: int

    def strategy(self, **settings: Any) -> Strategy:
        """Return `refold.strategies.FromLastN`."""
        return strategies.FromLastN(self.n, **settings)


@dataclass(frozen=True, slots=True)
class Chunked(TldrStrategy):
    """Replaces every *size* messages by a TLDR of their own. For when the course of events and
    older findings matter (S3-16)."""

    size: int
    max_tokens: int = field(default=500, kw_only=True)
    record: ClassVar[bool] = False

    def strategy(self, **settings: Any) -> Strategy:
        """Return `refold.strategies.Chunked`."""
        return strategies.Chunked(self.size, **settings)


class RetrieveFactsFromHistory(HistoryCompressionStrategy):
    """Replaces the history by facts about *concepts*. For when it is known which facts matter
    (S3-17).

    Without any facts the history stays, or *fallback*, a strategy of Refold, takes over (C3-8).
    """

    def __init__(
        self,
        *concepts: Concept,
        max_tokens: int = 2_000,
        fallback: Strategy | None = None,
        prompt: model.Prompt | str = FACTS_PROMPT,
    ) -> None:
        self._retrieve = partial(
            strategies.RetrieveFacts, concepts, max_tokens, fallback=fallback, prompt=prompt
        )

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Replace the history by one message with the facts and a note on the current state."""
        memory = Listed(tuple(memory_messages))
        await llm_session.compact(self._retrieve(preserve_memory=preserve_memory, memory=memory))


@dataclass(frozen=True, slots=True)
class NoCompression(HistoryCompressionStrategy):
    """Leaves the history unchanged, to disable compression if a strategy is required."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Do nothing."""


__getattr__ = lazy_names(
    __name__,
    {
        "koog_graph": (
            "AgentState",
            "execute_with_history_compression",
            "history_is_too_long",
            "node_execute_tool",
            "node_llm_compress_history",
            "node_llm_request",
            "node_llm_send_tool_result",
        ),
        "koog_sessions": (
            "LLM",
            "NoAnswer",
            "Prompt",
            "ReadSession",
            "WriteSession",
            "compose_prompt_with_required_messages",
        ),
    },
    "refold.presets",
)[1]

__all__ = [
    "LLM",
    "AgentState",
    "Chunked",
    "Concept",
    "FactType",
    "FromLastNMessages",
    "HistoryCompressionStrategy",
    "MemoryContaining",
    "NoAnswer",
    "NoCompression",
    "Prompt",
    "ReadSession",
    "RetrieveFactsFromHistory",
    "TaggedMemory",
    "TaggedOrBeginning",
    "WholeHistory",
    "WriteSession",
    "compose_prompt_with_required_messages",
    "execute_with_history_compression",
    "history_is_too_long",
    "node_execute_tool",
    "node_llm_compress_history",
    "node_llm_request",
    "node_llm_send_tool_result",
    "remember",
    "tldr",
]
