"""Tokens of messages and their parts."""

from collections.abc import Callable, Iterable

from refold.messages import Message, Part

Counter = Callable[[Message], int]


def count_message(message: Message) -> int:
    """Tokens of one message (for the time being by length)."""
    return len(repr(message.parts)) // 4 + 4


def count_fixed(system: Iterable[Part], tools: Iterable[str]) -> int:
    """Tokens of the system prompt and the tools."""
    return sum(len(repr(part)) // 4 for part in system) + sum(len(tool) // 4 for tool in tools)
