"""What is about the same as the present task matters more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt

from refold.messages import Message
from refold.readable import plain_text
from refold.speakers import is_request
from refold.view import View

Embedder = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""From texts to one vector each, all of one length. Called in the middle of a compaction, once for
all messages: one that asks a service should remember what it has embedded."""


@dataclass(frozen=True)
class Nearness:
    """The cosine of a message's vector and that of the present task, at least 0.0: 1.0 for what says
    the same. The task is the latest user request together with the latest message that says
    something. Of each message the first *chars* characters are embedded. *name* stands for the
    embedder in the repr, which names edits. Without an embedder every score is 0.0.
    Raises ValueError when the embedder does not return one vector for each text.
    """

    embed: Embedder | None = field(default=None, repr=False)
    name: str = ""
    chars: int = 2_000

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        said = view.transcript.messages
        if self.embed is None or not said:
            return [0.0] * len(said)
        texts = [plain_text(message)[: self.chars] for message in said]
        task = "\n".join(_task(said, texts))
        vectors = self.embed([task, *texts])
        if len(vectors) != len(texts) + 1:
            raise ValueError(f"the embedder gave {len(vectors)} vectors for {len(texts) + 1} texts")
        return [max(0.0, cosine(vectors[0], vector)) for vector in vectors[1:]]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors; 0.0 if one of them is nothing. Raises ValueError for two lengths."""
    size = sqrt(sum(x * x for x in one) * sum(y * y for y in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / size if size else 0.0


def _task(said: Sequence[Message], texts: Sequence[str]) -> Iterator[str]:
    request = next((at for at in reversed(range(len(said))) if is_request(said[at]) and texts[at]), -1)
    latest = next((at for at in reversed(range(len(said))) if texts[at]), -1)
    yield from (texts[at] for at in dict.fromkeys((request, latest)) if at >= 0)
