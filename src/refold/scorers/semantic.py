"""What is about the same as the present task matters more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt

from refold.core.view import View
from refold.messages import Message
from refold.speakers import is_request
from refold.text.plain import plain_text

Embedder = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""From texts to one vector each, all of one length. Called in the middle of a compaction, once for
all messages: one that asks a service should remember what it has embedded."""


@dataclass(frozen=True)
class Nearness:
    """The cosine of a message's vector and that of the present task, at least 0.0: 1.0 for what
    says the same. The task is the latest user request together with the latest message that says
    something. Of each message the first *chars* characters are embedded. *name* stands for the
    embedder in the repr, which names edits. Without an embedder every score is 0.0. Raises
    ValueError when the embedder does not return one vector for each text.
    """

    embed: Embedder | None = field(default=None, repr=False)
    name: str = ""
    chars: int = 2_000

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        messages = view.transcript.messages
        if self.embed is None or not messages:
            return [0.0] * len(messages)
        texts = [plain_text(message)[: self.chars] for message in messages]
        task = "\n".join(_task_texts(messages, texts))
        vectors = self.embed([task, *texts])
        if len(vectors) != len(texts) + 1:
            raise ValueError(f"the embedder gave {len(vectors)} vectors for {len(texts) + 1} texts")
        return [max(0.0, cosine(vectors[0], vector)) for vector in vectors[1:]]


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0.0 if one of them is nothing. Raises ValueError for two
    lengths."""
    size = sqrt(sum(x * x for x in first) * sum(y * y for y in second))
    return sum(x * y for x, y in zip(first, second, strict=True)) / size if size else 0.0


def _task_texts(messages: Sequence[Message], texts: Sequence[str]) -> Iterator[str]:
    request = next(
        (at for at in reversed(range(len(messages))) if is_request(messages[at]) and texts[at]), -1
    )
    latest = next((at for at in reversed(range(len(messages))) if texts[at]), -1)
    yield from (texts[at] for at in dict.fromkeys((request, latest)) if at >= 0)


Attend = Callable[[Sequence[str]], Sequence[float]]
"""From the texts of all messages, oldest first, to how much the last one attends to each, at least
0. With a local model: the attention from the last message's tokens, mean over heads and layers,
summed over the tokens of each text. Called in the middle of a compaction, once."""


@dataclass(frozen=True)
class Attention:
    """A model's attention to each message, as a share of the greatest: 1.0 for what the last
    message attends to most.

    Providers of models do not tell it, so *attend* is to be brought along; without, every score is
    0.0. Of each message the first *chars* characters are given to it. *name* stands for it in the
    repr, which names edits. Row S1-38. Raises ValueError when it does not return one weight of at
    least 0 for each text.
    """

    attend: Attend | None = field(default=None, repr=False)
    name: str = ""
    chars: int = 2_000

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        messages = view.transcript.messages
        if self.attend is None or not messages:
            return [0.0] * len(messages)
        weights = self.attend([plain_text(message)[: self.chars] for message in messages])
        if len(weights) != len(messages) or not all(weight >= 0 for weight in weights):
            raise ValueError(
                f"{self.name or 'attend'} gave no weight of at least 0 for each of {len(messages)} texts"
            )
        most = max(weights)
        return [weight / most if most else 0.0 for weight in weights]
