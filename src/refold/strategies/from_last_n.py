"""Replace the history with a summary of its newest messages (S3-15)."""

from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Summarizer, full_repr
from refold.core.view import View
from refold.errors import require_callable, require_int
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.memory_messages import MessageFilter, TaggedMemory
from refold.summarizers.placement import keep_before, summarize_span
from refold.summarizers.tail import unanswered_from, unsummarized_runs


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
    memory: MessageFilter = field(default_factory=TaggedMemory)
    """Which messages are memory."""

    __repr__ = full_repr

    def __post_init__(self) -> None:
        require_int(1, n=self.n, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer, memory=self.memory)

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = unanswered_from(view)
        if not unsummarized_runs(view, stop):
            return Ending("noop", "nothing new to summarise")
        since = max((cut for cut in view.cuts if cut <= stop - self.n), default=0)
        memory = self.memory if self.preserve_memory else None
        surroundings = keep_before(view, 0, stop, memory)
        result = yield from summarize_span(
            view, surroundings, self.summarizer, self.max_tokens, repr(self), since
        )
        return result.ending
