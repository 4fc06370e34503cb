"""How much the messages of a conversation matter: the port that clearing, clipping and retention
use."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message
from refold.text.plain import readable_text

Scorer = Callable[[View], Sequence[float]]
"""How much each message matters: one score for each position of the view's transcript, higher for
what should rather stay. The scorers of `refold.scorers` keep to 0.0 to 1.0, so that weights
compare.

A scorer judges what was said (`view.transcript`), not how it is shown, and gives the same scores
for the same transcript. A strategy's repr names its edits, so a scorer's repr must state its
settings: a frozen dataclass with `__call__` does by itself, a bare function has its address there.
"""


def score_messages(scorer: Scorer, view: View) -> Sequence[float]:
    """Return what *scorer* says. Raises ValueError unless it is one score for each message."""
    scores = scorer(view)
    if len(scores) != len(view.transcript):
        raise ValueError(
            f"{scorer!r} gave {len(scores)} scores for {len(view.transcript)} messages"
        )
    return scores


def order_least_first(scorer: Scorer | None, view: View, positions: Iterable[int]) -> list[int]:
    """Return *positions*, least important first and of equals the oldest; without a scorer oldest
    first. The scorer is not asked where there is nothing to choose."""
    order = sorted(positions)
    if scorer and len(order) > 1:
        scores = score_messages(scorer, view)
        order.sort(key=lambda at: scores[at])
    return order


def score_alone(scorer: Scorer, message: Message, profile: Profile) -> float:
    """Return the score of a message seen alone, at most 1.0 and at least 0.0: for local strategies,
    which may not depend on what comes later."""
    return min(1.0, max(0.0, score_messages(scorer, View.of([message], profile=profile))[0]))


@dataclass(frozen=True)
class Important:
    """A predicate of messages: those that matter, out of one view. Made by `choose_important`."""

    scorer: Scorer
    over: float
    max_tokens: int
    also: Callable[[Message], bool] | None = None
    messages: frozenset[Message] = field(default=frozenset(), repr=False)

    def __call__(self, message: Message) -> bool:
        """Is this one of them?"""
        return message in self.messages or bool(self.also and self.also(message))


def choose_important(
    scorer: Scorer,
    view: View,
    over: float,
    max_tokens: int,
    also: Callable[[Message], bool] | None = None,
) -> Important:
    """Return the messages that *scorer* gives *over* or more, at most *max_tokens* tokens of them:
    those with the highest scores, of equals the newest. And whatever *also* accepts."""
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
    """A predicate of messages: those that hold any of *texts*, word for word but for spaces."""

    texts: tuple[str, ...]

    def __call__(self, message: Message) -> bool:
        """Does it say one of them?"""
        words = " ".join(readable_text(message).split())
        return any(" ".join(text.split()) in words for text in self.texts)
