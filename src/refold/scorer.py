"""How much the messages of a conversation matter: the port that clearing, clipping and retention use."""

from collections.abc import Callable, Iterable, Sequence

from refold.lens import Lens
from refold.messages import Message
from refold.view import View

Scorer = Callable[[View], Sequence[float]]
"""How much each message matters: one score for each position of the view's transcript, higher for
what should rather stay. The scorers of `refold.scorers` keep to 0.0 to 1.0, so that weights compare.

A scorer judges what was said (`view.transcript`), not how it is shown, and gives the same scores
for the same transcript. A strategy's repr names its edits, so a scorer's repr must state its
settings: a frozen dataclass with `__call__` does by itself, a bare function has its address there.
"""


def scores(scorer: Scorer, view: View) -> Sequence[float]:
    """What *scorer* says. Raises ValueError unless it is one score for each message."""
    found = scorer(view)
    if len(found) != len(view.transcript):
        raise ValueError(f"{scorer!r} gave {len(found)} scores for {len(view.transcript)} messages")
    return found


def least_first(scorer: Scorer | None, view: View, positions: Iterable[int]) -> list[int]:
    """*positions*, least important first and of equals the oldest; without a scorer oldest first."""
    found = scores(scorer, view) if scorer else None
    return sorted(positions, key=lambda at: (found[at] if found else 0.0, at))


def score_alone(scorer: Scorer, message: Message, lens: Lens) -> float:
    """The score of a message seen alone, at most 1.0 and at least 0.0: for local strategies, which
    may not depend on what comes later."""
    return min(1.0, max(0.0, scores(scorer, View.of([message], lens=lens))[0]))
