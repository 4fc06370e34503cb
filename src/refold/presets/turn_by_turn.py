"""A summary of its own for each turn: a chain that grows at its end and is never written again (S1-36)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from refold.core.strategy import Ending, Steps, Summarizer
from refold.core.view import View
from refold.presets.keeping import LastTurns, Start, requests
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.placement import keep_before, summarize_span
from refold.summarizers.tail import unsummarized_runs


@dataclass(frozen=True)
class SummarizeTurns:
    """Fold each old turn into a summary of its own, oldest first, until the request fits.

    A turn is a request of the user with all that followed. What was summarised once is not
    summarised again; put `Summarize` behind it for the day when the chain itself is too long.
    """

    start: Start = field(default_factory=lambda: LastTurns(2))
    """Where the kept tail begins."""
    max_tokens: int = 300
    """Cap of one turn's summary, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)

    def __call__(self, view: View) -> Steps:
        """Propose an edit for each turn; give up when nobody answers."""
        worst: Ending | None = None
        for start, stop in self._turns(view):
            surroundings = keep_before(view, start, stop, None)
            _, ending = yield from summarize_span(
                view, surroundings, self.summarizer, self.max_tokens, repr(self)
            )
            worst = ending if ending and ending.outcome != "noop" else worst
            if ending and ending.outcome == "failed":
                break
        return worst or Ending("noop", "no older turn is left")

    def _turns(self, view: View) -> Iterator[tuple[int, int]]:
        """Where the old turns begin and end that nothing stands for yet."""
        asked = set(requests(view))
        for first, last in unsummarized_runs(view, self.start(view)):
            yield from pairwise(
                [first, *(at for at in range(first + 1, last) if at in asked), last]
            )
