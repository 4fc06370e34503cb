"""What a message is by itself says how much it matters: its age, length, role and words, and how
near it is to the present task."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt

from refold.core.view import View
from refold.messages import Message
from refold.scorers.scorer import Scorer, score_messages
from refold.speakers import Segment, is_request, request_text, view_segments
from refold.summarizers.heuristic.lexicon import STRESSING
from refold.text.plain import plain_text


@dataclass(frozen=True)
class Recency:
    """1.0 for the newest message, half of that for one that is *half* messages older, a third for
    one that is twice as much older. Raises ValueError for a *half* that is not positive."""

    half: float = 60.0

    def __post_init__(self) -> None:
        if self.half <= 0:
            raise ValueError("half must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        last = len(view.transcript) - 1
        return [1 / (1 + (last - at) / self.half) for at in range(last + 1)]


@dataclass(frozen=True)
class Brevity:
    """1.0 for nothing, a half for a message of *half* tokens, less for a longer one: with it the
    clearing of one long result comes before that of ten short ones. Raises ValueError for a *half*
    that is not positive."""

    half: float = 1_000.0

    def __post_init__(self) -> None:
        if self.half <= 0:
            raise ValueError("half must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        tokens = (view.base.tokens(at, at + 1) for at in range(len(view.transcript)))
        return [self.half / (self.half + count) for count in tokens]


MAX_SCANNED = 100_000
"""Characters of a text that are looked at."""


@dataclass(frozen=True)
class Emphasis:
    """1.0 for a message of one of *roles* whose text holds a word of emphasis, 0.0 for any other
    (what a tool answers is never emphasis, and of a user's message only a person's words count, in
    whichever role they are sent). *words*, if given, are looked for instead of the
    built-in ones of nine languages (`refold.summarizers.heuristic.lexicon`), as they are written or
    in another case. Raises ValueError for an empty word.
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
        """Does this message say that something matters? Also good as a predicate of messages to
        pin."""
        text = request_text(message) if "user" in self.roles else ""
        if message.role in self.roles and message.role != "user":
            text = f"{text}\n{message.text}"
        text = text[:MAX_SCANNED]
        if not self.words:
            return STRESSING.is_in(text)
        lower = text.lower()
        return any(word.lower() in lower for word in self.words)


@dataclass(frozen=True)
class Roles:
    """A score by who speaks, in whichever role it is sent: a person is the *user*, an order is of
    the *system*, results and what a client tells of the surroundings are of a *tool*. Who scores
    most in a message decides (`refold.speakers`)."""

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
    """The weighted sum of scorers, divided by the sum of the weights, so that it keeps to 0.0 to
    1.0 when they do: `Weighted(((1.0, Recency()), (0.5, Freshness())))`. Scorers of weight 0 are
    not asked. Raises ValueError for a negative weight, or when none is positive.
    """

    terms: tuple[tuple[float, Scorer], ...]
    """Weight and scorer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple((weight, scorer) for weight, scorer in self.terms))
        weights = [weight for weight, _ in self.terms]
        if min(weights, default=0) < 0 or not any(weights):
            raise ValueError("weights must not be negative, and one must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        terms = [(weight, score_messages(scorer, view)) for weight, scorer in self.terms if weight]
        total = sum(weight for weight, _ in terms)
        return [
            sum(weight * scores[at] for weight, scores in terms) / total
            for at in range(len(view.transcript))
        ]


# --- nearness to the present task ---------------------------------------------------------------


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
    repr, which names edits. Raises ValueError when it does not return one weight of at least 0 for
    each text.
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
