"""What was said lately matters more."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from refold.core.view import View
from refold.messages import Message
from refold.scorers.scorer import Scorer, score_messages
from refold.speakers import Segment, request_text, view_segments
from refold.summarizers.heuristic.lexicon import STRESSING


@dataclass(frozen=True)
class Recency:
    """1.0 for the newest message, half of that for one that is *half* messages older, a third for
    one that is twice as old again. Raises ValueError for a *half* that is not positive."""

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
    in another case; `Emphasis(("assistant",), ("important",))` finds the responses that seed row
    S3-25 keeps. Raises ValueError for an empty word.
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
