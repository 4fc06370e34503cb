"""What takes memories out of messages: by rules or by a model."""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from refold.memory.port import Kind, Memory
from refold.memory.redact import redact
from refold.strategy import Answer, Ask
from refold.view import View


class Extract(NamedTuple):
    """What an extractor returns."""

    memories: tuple[Memory, ...]
    reason: str = ""
    """Why it did less than was asked for; empty if it did not."""


Extractor = Callable[[View, Sequence[int]], Generator[Ask, Answer | None, Extract]]
"""Takes memories out of the messages of a view's transcript at some positions. It may `yield Ask`."""


def memory(view: View, kind: Kind, text: str, at: int, by: str, concept: str = "") -> Memory:
    """A memory of what the message at *at* said, without secrets."""
    tip = view.transcript.tips[at + 1]
    return Memory(kind=kind, text=redact(text), concept=concept, start=at, stop=at + 1, tip=tip, by=by)
