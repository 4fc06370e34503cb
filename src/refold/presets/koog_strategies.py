"""koog's strategies for compressing a history, out of Refold's own (S3-14 to S3-21)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from refold import strategies
from refold.core.strategy import Strategy, Summarizer
from refold.messages import Message
from refold.summarizers.facts import FACTS_PROMPT
from refold.summarizers.forms import TLDR
from refold.summarizers.forms.facts import Concept
from refold.summarizers.model import ModelSummary, Prompt
from refold.summarizers.model import load_prompt as named_prompt
from refold.transcript import hash_message

if TYPE_CHECKING:
    from refold.presets.koog_sessions import WriteSession


class HistoryCompressionStrategy(ABC):
    """How a history is compressed. Write your own by extending it (S3-21)."""

    @abstractmethod
    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Set `llm_session.prompt` to what shall be left. *memory_messages* are those of its messages
        that are memory, to be kept if *preserve_memory* says so (S3-26)."""


def tldr(
    prompt: Prompt | str | None = None,
    instruction: Prompt | str | None = None,
    *,
    record: bool = True,
) -> ModelSummary:
    """A TLDR by a model: objectives, tools and results, findings, status, next steps (S3-14). *prompt* and *instruction*
    take the place of its system prompt and of the last message of its request; *record* keeps what must not be lost
    beside it."""
    return ModelSummary(
        prompt or named_prompt("summary"), form=TLDR, closing=instruction, record=record
    )


def _writer(
    summarizer: Summarizer | None, prompt: Prompt | str | None, *, record: bool = True
) -> Summarizer:
    """What writes TLDRs. Raises ValueError for a prompt that nobody would read."""
    if summarizer is None:
        return tldr(prompt, record=record)
    if prompt is not None:
        raise ValueError("give a prompt, or a summarizer that has one")
    return summarizer


@dataclass(frozen=True, slots=True)
class Listed:
    """Picks the messages that are given."""

    messages: tuple[Message, ...]

    def __call__(self, message: Message) -> bool:
        """Is *message* one of them?"""
        return message in self.messages

    def __repr__(self) -> str:
        return f"Listed({blake2b(b''.join(map(hash_message, self.messages)), digest_size=4).hexdigest()})"


@dataclass(frozen=True, slots=True)
class WholeHistory(HistoryCompressionStrategy):
    """The whole history becomes one TLDR. For most cases: the context of everything that was done stays,
    in fewer tokens (S3-14)."""

    max_tokens: int = 2_000
    """Cap of the TLDR, in tokens."""
    summarizer: Summarizer | None = None
    """What writes it; None: `tldr`."""
    prompt: Prompt | str | None = None
    """How a model is to write it, in place of the package's system prompt."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """One TLDR."""
        memory = Listed(tuple(memory_messages))
        writer = _writer(self.summarizer, self.prompt)
        await llm_session.compact(
            strategies.WholeHistory(
                max_tokens=self.max_tokens,
                summarizer=writer,
                preserve_memory=preserve_memory,
                memory=memory,
            )
        )


@dataclass(frozen=True, slots=True)
class FromLastNMessages(HistoryCompressionStrategy):
    """The last *n* messages become one TLDR; all before them goes. For when only the newest findings
    matter (S3-15)."""

    n: int
    max_tokens: int = 2_000
    summarizer: Summarizer | None = None
    """What writes it; None: `tldr`."""
    prompt: Prompt | str | None = None
    """How a model is to write it, in place of the package's system prompt."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """One TLDR of the newest messages."""
        memory = Listed(tuple(memory_messages))
        writer = _writer(self.summarizer, self.prompt)
        await llm_session.compact(
            strategies.FromLastN(
                self.n,
                max_tokens=self.max_tokens,
                summarizer=writer,
                preserve_memory=preserve_memory,
                memory=memory,
            )
        )


@dataclass(frozen=True, slots=True)
class Chunked(HistoryCompressionStrategy):
    """Each *size* messages become a TLDR of their own. For when it matters how things went, and older
    findings too (S3-16)."""

    size: int
    max_tokens: int = 500
    """Cap of each TLDR, in tokens."""
    summarizer: Summarizer | None = None
    """What writes each; None: `tldr`."""
    prompt: Prompt | str | None = None
    """How a model is to write it, in place of the package's system prompt."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Several TLDRs."""
        memory = Listed(tuple(memory_messages))
        writer = _writer(self.summarizer, self.prompt, record=False)
        await llm_session.compact(
            strategies.Chunked(
                self.size,
                max_tokens=self.max_tokens,
                summarizer=writer,
                preserve_memory=preserve_memory,
                memory=memory,
            )
        )


@dataclass(frozen=True, slots=True, init=False)
class RetrieveFactsFromHistory(HistoryCompressionStrategy):
    """The history becomes the facts under *concepts*. For when it is known which facts matter (S3-17).

    Without any facts the history stays, or *fallback*, a strategy of Refold's, takes over (C3-8).
    """

    concepts: tuple[Concept, ...]
    max_tokens: int
    fallback: Strategy | None
    prompt: Prompt | str

    def __init__(
        self,
        *concepts: Concept,
        max_tokens: int = 2_000,
        fallback: Strategy | None = None,
        prompt: Prompt | str = FACTS_PROMPT,
    ) -> None:
        object.__setattr__(self, "concepts", concepts)
        object.__setattr__(self, "prompt", prompt)
        object.__setattr__(self, "max_tokens", max_tokens)
        object.__setattr__(self, "fallback", fallback)

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """One message with the facts, and a note on where things stand."""
        memory = Listed(tuple(memory_messages))
        await llm_session.compact(
            strategies.RetrieveFacts(
                self.concepts,
                self.max_tokens,
                fallback=self.fallback,
                preserve_memory=preserve_memory,
                memory=memory,
                prompt=self.prompt,
            )
        )


@dataclass(frozen=True, slots=True)
class NoCompression(HistoryCompressionStrategy):
    """The history stays as it is. For switching compression off where a strategy is expected."""

    async def compress(
        self, llm_session: "WriteSession", preserve_memory: bool, memory_messages: Sequence[Message]
    ) -> None:
        """Nothing."""
