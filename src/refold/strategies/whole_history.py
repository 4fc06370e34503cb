"""Replace the whole history with one summary (S3-14)."""

from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Summarizer, full_repr
from refold.core.view import View
from refold.errors import require_callable, require_int
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.memory_messages import MessageFilter, TaggedMemory
from refold.summarizers.placement import keep_before, summarize_span
from refold.summarizers.tail import unanswered_from, unsummarized_runs


@dataclass(frozen=True, slots=True, repr=False)
class WholeHistory:
    """Show one summary instead of everything that the model has answered.

    Retrospective. System messages, the first request, the current one, memory and whatever waits for
    an answer stay as they are (`refold.summarizers.placement`). An earlier summary is merged into the new one.
    Raises ValueError for *max_tokens* under 1.
    """

    max_tokens: int = 2_000
    """Cap of the summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    preserve_memory: bool = True
    """Whether memory messages stay."""
    memory: MessageFilter = field(default_factory=TaggedMemory)
    """Which messages are memory."""

    __repr__ = full_repr

    def __post_init__(self) -> None:
        require_int(1, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer, memory=self.memory)

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = unanswered_from(view)
        if not unsummarized_runs(view, stop):
            return Ending("noop", "nothing new to summarise")
        memory = self.memory if self.preserve_memory else None
        surroundings = keep_before(view, 0, stop, memory)
        return (
            yield from summarize_span(
                view, surroundings, self.summarizer, self.max_tokens, repr(self)
            )
        ).ending
