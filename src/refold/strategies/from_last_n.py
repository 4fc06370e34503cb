"""Replace the history with a summary of its newest messages (S3-15)."""

from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Summarizer
from refold.core.view import View
from refold.errors import require_callable, require_int
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.kept_words import Picks, Tagged, Telling, pending, spelled, tell, untold


@dataclass(frozen=True, slots=True, repr=False)
class FromLastN:
    """Show a summary of the last *n* messages, and nothing of what was before them.

    Retrospective. Stays as it is what `WholeHistory` leaves too. At least *n* messages are
    summarised, from the latest legal cut on; those that wait for an answer do not count. What is
    before them is hidden without a word, an earlier summary too; it comes back when the edit is reverted.

    Raises ValueError for *n* or *max_tokens* under 1.
    """

    n: int = 5
    max_tokens: int = 2_000
    """Cap of the summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    preserve_memory: bool = True
    """Whether memory messages stay."""
    memory: Picks = field(default_factory=Tagged)
    """Which messages are memory."""

    __repr__ = spelled

    def __post_init__(self) -> None:
        require_int(1, n=self.n, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer, memory=self.memory)

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = pending(view)
        if not untold(view, stop):
            return Ending("noop", "nothing new to summarise")
        since = max((cut for cut in view.cuts if cut <= stop - self.n), default=0)
        memory = self.memory if self.preserve_memory else None
        told = yield from tell(view, 0, stop, since, Telling(self.summarizer, self.max_tokens, memory, repr(self)))
        return told.ending
