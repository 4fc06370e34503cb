"""Replace the history with several summaries, one for each stretch of it (S3-16)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Summarizer, full_repr
from refold.core.view import View
from refold.errors import require_callable, require_int
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.memory_messages import MessageFilter, TaggedMemory
from refold.summarizers.placement import keep_before, summarize_span
from refold.summarizers.tail import unanswered_from, unsummarized_runs


@dataclass(frozen=True, slots=True, repr=False)
class Chunked:
    """Show a summary for each *size* messages, oldest first, until the view fits.

    Retrospective; one edit a chunk. A chunk that would end inside a tool group takes the rest of the
    group in (C3-2). What is summarised stays as it is; the next run goes on behind it. Stays as it
    is what `WholeHistory` leaves too. A chunk whose summary would not be smaller is left alone.

    Raises ValueError for a *size* or *max_tokens* under 1.
    """

    size: int = 10
    """Messages of one chunk, at least."""
    max_tokens: int = 500
    """Cap of one summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    preserve_memory: bool = True
    """Whether memory messages stay."""
    memory: MessageFilter = field(default_factory=TaggedMemory)
    """Which messages are memory."""

    __repr__ = full_repr

    def __post_init__(self) -> None:
        require_int(1, size=self.size, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer, memory=self.memory)

    def __call__(self, view: View) -> Steps:
        """Propose an edit for each chunk; give up when nobody answers."""
        memory = self.memory if self.preserve_memory else None
        worst: Ending | None = None
        for start, stop in self.chunks(view):
            surroundings = keep_before(view, start, stop, memory)
            _, ending = yield from summarize_span(
                view, surroundings, self.summarizer, self.max_tokens, repr(self)
            )
            worst = ending if ending and ending.outcome != "noop" else worst
            if ending and ending.outcome == "failed":
                break
        return worst

    def chunks(self, view: View) -> Iterator[tuple[int, int]]:
        """Where the chunks of what is not summarised yet begin and end."""
        cuts = sorted(view.cuts)
        for first, last in unsummarized_runs(view, unanswered_from(view)):
            start = first
            while start < last:
                stop = next((cut for cut in cuts if start + self.size <= cut <= last), last)
                yield start, stop
                start = stop
