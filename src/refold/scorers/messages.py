"""Scorers of messages by age, length, role and words, and by nearness to the current task."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt

from refold.core.view import View
from refold.messages import Message
from refold.scorers.scorer import Scorer, score_messages
from refold.speakers import Segment, is_request, request_text, view_segments
from refold.summarizers.heuristic.lexicon import STRESSING
from refold.text.plain import plain_text


@dataclass(frozen=True)
class Recency:
    """1.0 for the newest message, a half for one that is *half* messages older, a third for one
    that is twice as much older. Raises ValueError for a *half* that is not positive."""

    half: float = 60.0

    def __post_init__(self) -> None:
        if not self.half > 0:
            raise ValueError("half must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        last = len(view.transcript) - 1
        return [1 / (1 + (last - at) / self.half) for at in range(last + 1)]


@dataclass(frozen=True)
class Brevity:
    """1.0 for an empty message, a half for one of *half* tokens, less for longer ones, so that one
    long result is cleared before ten short ones. Raises ValueError for a *half* that is not
    positive or not finite."""

    half: float = 1_000.0

    def __post_init__(self) -> None:
        if not 0 < self.half < inf:
            raise ValueError("half must be positive and finite")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        tokens = (view.base.tokens(at, at + 1) for at in range(len(view.transcript)))
        return [self.half / (self.half + count) for count in tokens]


MAX_SCANNED = 100_000
"""Maximum characters of a text to search."""


@dataclass(frozen=True)
class Emphasis:
    """1.0 for a message of one of *roles* whose text has a word of emphasis, 0.0 for any other.

    Tool output is never emphasis. Of user messages only the text of a person counts, whichever role
    carries it. *words* replace the built-in words of nine languages
    (`refold.summarizers.heuristic.lexicon`) and match in any case. Raises ValueError for an empty
    word.
    """

    roles: Collection[str] = ("user",)
    words: Collection[str] = ()

    def __post_init__(self) -> None:
        for name in ("roles", "words"):  # sorted, so that the repr is always the same
            value = getattr(self, name)
            object.__setattr__(
                self, name, (value,) if isinstance(value, str) else tuple(sorted(set(value)))
            )
        if "" in self.words:
            raise ValueError("an empty word is in every text")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        return [float(self.is_emphatic(message)) for message in view.transcript.messages]

    def is_emphatic(self, message: Message) -> bool:
        """Return whether *message* says that something matters. Also usable as a predicate of
        messages to pin."""
        text = request_text(message) if "user" in self.roles else ""
        if message.role in self.roles and message.role != "user":
            text = f"{text}\n{message.text}"
        text = text[:MAX_SCANNED]
        if not self.words:
            return STRESSING.is_in(text)
        folded = text.casefold()
        return any(word.casefold() in folded for word in self.words)


@dataclass(frozen=True)
class Roles:
    """A score by speaker, whichever role carries the message: *user* for a person, *system* for an
    instruction, *tool* for tool output and context that a client adds. The highest score in a
    message counts (`refold.speakers`)."""

    user: float = 1.0
    system: float = 1.0
    assistant: float = 0.5
    tool: float = 0.2

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        return list(map(self._score, view.transcript.messages, view_segments(view)))

    def _score(self, message: Message, spoken: Sequence[Segment]) -> float:
        if message.role == "assistant":
            return self.assistant
        scores = {"person": self.user, "instruction": self.system}
        return max((scores.get(segment.voice, self.tool) for segment in spoken), default=self.tool)


@dataclass(frozen=True)
class Weighted:
    """The weighted mean of scorers: `Weighted(((1.0, Recency()), (0.5, Freshness())))`. It is from
    0.0 to 1.0 if their scores are. Scorers of weight 0 are not run. Raises ValueError for a
    weight that is negative or not finite, or if none is positive."""

    terms: tuple[tuple[float, Scorer], ...]
    """Pairs of weight and scorer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple((weight, scorer) for weight, scorer in self.terms))
        weights = [weight for weight, _ in self.terms]
        if not (all(0 <= weight < inf for weight in weights) and any(weights)):
            raise ValueError("weights must be finite and not negative, and one must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        terms = [(weight, score_messages(scorer, view)) for weight, scorer in self.terms if weight]
        total = sum(weight for weight, _ in terms)
        return [
            sum(weight * scores[at] for weight, scores in terms) / total
            for at in range(len(view.transcript))
        ]


# --- nearness to the current task ---------------------------------------------------------------


Embedder = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""A function from texts to vectors of equal length, one each. Called once per scoring, during a
compaction, with all messages: cache embeddings if they come from a service."""


@dataclass(frozen=True)
class Nearness:
    """The cosine of the embeddings of a message and of the current task, at least 0.0.

    The task is the latest user request with the latest message that has text. The first *chars*
    characters of each message are embedded. *name* stands for the embedder in the repr, which names
    edits. Without an embedder every score is 0.0. Raises ValueError unless the embedder returns one
    vector per text.
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
    """Return the cosine of two vectors; 0.0 if one of them is zero. Raises ValueError if their
    lengths differ."""
    size = sqrt(sum(x * x for x in first) * sum(y * y for y in second))
    return sum(x * y for x, y in zip(first, second, strict=True)) / size if size else 0.0


def _task_texts(messages: Sequence[Message], texts: Sequence[str]) -> Iterator[str]:
    request = next(
        (at for at in reversed(range(len(messages))) if is_request(messages[at]) and texts[at]), -1
    )
    latest = next((at for at in reversed(range(len(messages))) if texts[at]), -1)
    yield from (texts[at] for at in dict.fromkeys((request, latest)) if at >= 0)


Attend = Callable[[Sequence[str]], Sequence[float]]
"""A function from the texts of all messages, oldest first, to the attention that the last message
pays to each, at least 0. For a local model this is the attention from the last message's tokens,
mean over heads and layers, summed over the tokens of each text. Called once per scoring, during a
compaction."""


@dataclass(frozen=True)
class Attention:
    """A model's attention to each message, as a share of the maximum.

    Model APIs do not return attention, so *attend* must be provided. Without it every score is 0.0.
    It gets the first *chars* characters of each message. *name* stands for it in the repr, which
    names edits. Raises ValueError unless it returns one finite weight of at least 0 per text.
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
        if len(weights) != len(messages) or not all(0 <= weight < inf for weight in weights):
            raise ValueError(
                f"{self.name or 'attend'} gave no weight of at least 0 for each of {len(messages)} texts"
            )
        most = max(weights)
        return [weight / most if most else 0.0 for weight in weights]
