"""Which messages of a history are memory: they outlive a compaction word for word."""

from collections.abc import Callable
from dataclasses import dataclass

from refold.messages import Message, user

MEMORY, MEMORY_END = "<memory>", "</memory>"
KOOG_TEXTS = ("Here are the relevant facts from memory", "Memory feature is not enabled")
"""What marks koog's memory messages (S3-26)."""

MessageFilter = Callable[[Message], bool]


def remember(text: str) -> Message:
    """Return a user message that is tagged as memory, and so outlives compactions (S3-26)."""
    inside = text.replace(MEMORY_END, "<\\/memory>").strip()
    return user(f"{MEMORY}\n{inside}\n{MEMORY_END}")


@dataclass(frozen=True, slots=True)
class TaggedMemory:
    """Accept messages tagged as memory: their whole text stands in `<memory>`. A message that only
    mentions the tag, or quotes it, is none (C3-5)."""

    def __call__(self, message: Message) -> bool:
        """Is *message* memory?"""
        text = message.text.strip()
        return text.startswith(MEMORY) and text.endswith(MEMORY_END) and text.count(MEMORY_END) == 1


@dataclass(frozen=True, slots=True)
class MemoryContaining:
    """Accept messages that contain one of *texts*: for memory that carries no tag. Whoever writes
    such a text into a message makes it memory, so prefer `TaggedMemory` (C3-5)."""

    texts: tuple[str, ...] = KOOG_TEXTS

    def __call__(self, message: Message) -> bool:
        """Is one of the texts in *message*?"""
        return any(text in message.text for text in self.texts)


@dataclass(frozen=True, slots=True)
class TaggedOrBeginning:
    """Accept messages tagged as memory, and those that begin with one of *texts*, as koog's own do
    (S3-26). A text that only quotes one is none (C3-5)."""

    texts: tuple[str, ...] = KOOG_TEXTS

    def __call__(self, message: Message) -> bool:
        """Is *message* memory?"""
        return TaggedMemory()(message) or message.text.lstrip().startswith(self.texts)
