"""The scorer interface: how much each message of a conversation matters, for clearing, clipping and
retention."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat

from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message
from refold.text.plain import readable_text

Scorer = Callable[[View], Sequence[float]]
"""A function that returns a score for each position of the view's transcript, higher for messages
to keep. The scorers of `refold.scorers` return 0.0 to 1.0, so that weights are comparable.

It judges the original messages (`view.transcript`), not how they are shown, and is deterministic. A
strategy's repr names its edits, so a scorer's repr must contain its settings, as that of a frozen
dataclass with `__call__` does. That of a plain function has its address.
"""


def score_messages(scorer: Scorer, view: View) -> Sequence[float]:
    """Return the scores by *scorer*. Raises ValueError unless there is a number for each
    message."""
    given, length = scorer(view), len(view.transcript)
    scores = list(given) if isinstance(given, Iterable) else []
    if len(scores) != length or not all(isinstance(score, SupportsFloat) for score in scores):
        raise ValueError(f"{scorer!r} gave no number for each of {length} messages: {given!r:.80}")
    if any(score != score for score in scores):  # noqa: PLR0124 - only NaN differs from itself
        raise ValueError(f"{scorer!r} gave NaN, which has no order, for one of {length} messages")
    return scores


def order_least_first(scorer: Scorer | None, view: View, positions: Iterable[int]) -> list[int]:
    """Return *positions*, least important first, of equal ones the oldest; without a scorer oldest
    first. The scorer is not called if there is nothing to order."""
    order = sorted(positions)
    if scorer and len(order) > 1:
        scores = score_messages(scorer, view)
        order.sort(key=lambda at: scores[at])
    return order


def score_alone(scorer: Scorer, message: Message, profile: Profile) -> float:
    """Return the score of a message alone, clamped to 0.0 to 1.0. Local strategies use this,
    because they may not depend on later messages."""
    return min(1.0, max(0.0, score_messages(scorer, View.of([message], profile=profile))[0]))


@dataclass(frozen=True)
class Important:
    """A predicate for the important messages of one view, made by `choose_important`."""

    scorer: Scorer
    over: float
    max_tokens: int
    also: Callable[[Message], bool] | None = None
    messages: frozenset[Message] = field(default=frozenset(), repr=False)

    def __call__(self, message: Message) -> bool:
        """Return whether *message* is one of them."""
        return message in self.messages or bool(self.also and self.also(message))


def choose_important(
    scorer: Scorer,
    view: View,
    over: float,
    max_tokens: int,
    also: Callable[[Message], bool] | None = None,
) -> Important:
    """Return a predicate for the messages that *scorer* gives *over* or more, highest scores first,
    of equal ones the newest, up to the first that exceeds *max_tokens* in total. It also accepts
    equal messages, and what *also* accepts."""
    scores = score_messages(scorer, view)
    messages, rest = set[Message](), max_tokens
    matter = sorted((score, at) for at, score in enumerate(scores) if score >= over)
    for _, at in reversed(matter):
        rest -= view.base.tokens(at, at + 1)
        if rest < 0:
            break
        messages.add(view.transcript.messages[at])
    return Important(scorer, over, max_tokens, also, frozenset(messages))


@dataclass(frozen=True)
class Says:
    """A predicate of messages that contain any of *texts*, word for word except whitespace."""

    texts: tuple[str, ...]

    def __call__(self, message: Message) -> bool:
        """Return whether *message* contains one of them."""
        words = " ".join(readable_text(message).split())
        return any(" ".join(text.split()) in words for text in self.texts)
