"""What a memory is, and where memories go."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, Protocol

Kind = Literal["fact", "preference", "decision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One thing worth knowing after the messages that said it are hidden, or after the conversation is over."""

    kind: Kind
    """`fact`: what is so; `preference`: what the user wants or forbids; `decision`: what was decided or found."""
    text: str
    """A sentence, in the language in which it was said, without secrets (`refold.memory.redact`)."""
    concept: str = ""
    """Keyword of the concept it belongs to, where a model was asked for one."""
    start: int = 0
    """It was said in `messages[start:stop]`."""
    stop: int = 0
    tip: str = ""
    """Hash of `messages[:stop]`: names the conversation and the place in it."""
    when: float = 0.0
    """When it was taken down, in seconds since 1970-01-01 UTC."""
    by: str = ""
    """The repr of what extracted it."""

    @property
    def id(self) -> str:
        """16 hex digits of kind, concept and text: the same content is one memory, wherever it was said. Case,
        width and spaces make no difference."""
        same = " ".join(unicodedata.normalize("NFKC", self.text).casefold().split())
        body = f"{self.kind}\0{self.concept}\0{same}".encode("utf-8", "surrogatepass")
        return blake2b(body, digest_size=8).hexdigest()


class MemorySink(Protocol):
    """Where memories are kept. Two methods make a sink."""

    def store(self, memories: Iterable[Memory]) -> int:
        """Keep *memories*, all or none, one of each id: what is known stays as it is. How many were new.
        Whatever it raises is reported by `flush` and stops nothing."""

    def search(self, query: str, limit: int = 10) -> Sequence[Memory]:
        """The *limit* memories that match best, best first."""
