"""koog's history compression: strategies, sessions, and what every compression keeps (S3).

The strategies are Refold's own with koog's names, defaults and TLDR form (docs/presets/koog.md).
Sessions and the nodes for LangGraph (extra `langchain`) are imported when they are first used.
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
    """How a history is compressed. Write your own by extending it (S3-21)."""

    @abstractmethod
    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Set `llm_session.prompt` to what shall be left. *memory_messages* are those of its
        messages that are memory, to be kept if *preserve_memory* says so (S3-26)."""


def tldr(
    prompt: model.Prompt | str | None = None,
    instruction: model.Prompt | str | None = None,
    *,
    record: bool = True,
) -> model.ModelSummary:
    """A TLDR by a model: objectives, tools and results, findings, status, next steps (S3-14).
    *prompt* and *instruction* take the place of its system prompt and of the last message of its
    request; *record* keeps what must not be lost beside it."""
    return model.ModelSummary(
        prompt or model.load_prompt("summary"), form=TLDR, closing=instruction, record=record
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """Picks the messages that are given."""

    messages: tuple[Message, ...]

    def __call__(self, message: Message) -> bool:
        """Is *message* one of them?"""
        return message in self.messages

    def __repr__(self) -> str:
        return f"Listed({blake2b(b''.join(map(hash_message, self.messages)), digest_size=4).hexdigest()})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TldrStrategy(HistoryCompressionStrategy):
    """The settings that the strategies share which write TLDRs. Compressing raises ValueError for a
    *prompt* beside a *summarizer*, which has its own."""

    max_tokens: int = 2_000
    """Cap of one TLDR, in tokens."""
    summarizer: Summarizer | None = None
    """What writes it; None: `tldr`."""
    prompt: model.Prompt | str | None = None
    """How a model is to write it, in place of the package's system prompt."""
    record: ClassVar[bool] = True
    """Whether what must not be lost is recorded beside it."""

    @abstractmethod
    def strategy(self, **settings: Any) -> Strategy:
        """Return the strategy of Refold's that does it, with these settings of its."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Show TLDRs in place of messages."""
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
    """The whole history becomes one TLDR. For most cases: the context of everything that was done
    stays, in fewer tokens (S3-14)."""

    def strategy(self, **settings: Any) -> Strategy:
        """Return Refold's own of this name."""
        return strategies.WholeHistory(**settings)


@dataclass(frozen=True, slots=True)
class FromLastNMessages(TldrStrategy):
    """The last *n* messages become one TLDR; all before them goes. For when only the newest
    findings matter (S3-15)."""

    n: int

    def strategy(self, **settings: Any) -> Strategy:
        """Return `FromLastN`."""
        return strategies.FromLastN(self.n, **settings)


@dataclass(frozen=True, slots=True)
class Chunked(TldrStrategy):
    """Each *size* messages become a TLDR of their own. For when it matters how things went, and
    older findings too (S3-16)."""

    size: int
    max_tokens: int = field(default=500, kw_only=True)
    record: ClassVar[bool] = False

    def strategy(self, **settings: Any) -> Strategy:
        """Return Refold's own of this name."""
        return strategies.Chunked(self.size, **settings)


class RetrieveFactsFromHistory(HistoryCompressionStrategy):
    """The history becomes the facts under *concepts*. For when it is known which facts matter
    (S3-17).

    Without any facts the history stays, or *fallback*, a strategy of Refold's, takes over (C3-8).
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
        """Show one message with the facts, and a note on where things stand."""
        memory = Listed(tuple(memory_messages))
        await llm_session.compact(self._retrieve(preserve_memory=preserve_memory, memory=memory))


@dataclass(frozen=True, slots=True)
class NoCompression(HistoryCompressionStrategy):
    """The history stays as it is. For switching compression off where a strategy is expected."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Nothing."""


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
