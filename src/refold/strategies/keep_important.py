"""Let what matters stand as it is when the rest is summarised."""

import math
from dataclasses import dataclass, replace
from typing import Any

from refold.core.strategy import Steps, Strategy
from refold.core.view import View
from refold.errors import require_callable, require_int, require_number
from refold.scorers.scorer import Scorer, choose_important


@dataclass(frozen=True)
class KeepImportant:
    """Run *strategy*, such as `Summarize()`, with the messages pinned that *scorer* gives *over* or
    more: they stay as they are beside the summary. At most *max_tokens* tokens of them stay, those
    with the highest scores, of equals the newest.

    *strategy* is a dataclass with a setting `pin`, a predicate of messages; what its own `pin`
    accepts stays too, whatever it scores. What stays is chosen anew each time: with a scorer that
    depends on what comes later, such as `References`, a message that has stayed once may be
    summarised next time; with `Emphasis` or `Roles` it stays. Rows S1-38, S2-52, S3-25. Raises
    TypeError for a strategy without `pin`, ValueError for a negative *max_tokens*.
    """

    strategy: Any
    scorer: Scorer
    over: float = 0.5
    max_tokens: int = 4_000

    def __post_init__(self) -> None:
        if not hasattr(self.strategy, "pin"):
            raise TypeError(f"{self.strategy!r} has no setting `pin`")
        require_int(0, max_tokens=self.max_tokens)
        require_number(-math.inf, math.inf, over=self.over)
        require_callable(strategy=self.strategy, scorer=self.scorer)

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy does when the important messages are pinned."""
        pin = choose_important(
            self.scorer, view, self.over, self.max_tokens, also=self.strategy.pin
        )
        strategy: Strategy = replace(self.strategy, pin=pin)
        return (yield from strategy(view))
