"""Replace everything before the kept tail with one summary."""

from dataclasses import dataclass, field

from refold.split import tail_start
from refold.strategy import Ending, Steps
from refold.summarizer import Summarizer
from refold.summarizers.rules import RuleSummary
from refold.summary import wrap
from refold.view import View


@dataclass(frozen=True, slots=True)
class Summarize:
    """Fold everything from the first message to the kept tail into one summary.

    Retrospective. Earlier edits inside that span are hidden with it; what an earlier summary
    covers is merged, not summarised again. Proposes nothing when nothing is older than the tail,
    when the summarizer has nothing to offer, or when the fold would not be smaller.
    """

    keep: int | float = 8
    """What stays as it is: a number of newest messages, or as a float a share of the tokens
    (see `refold.split.tail_start`)."""
    max_tokens: int = 2_000
    """Cap of the summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = tail_start(view, self.keep)
        if not stop:
            return None
        hidden = _tokens(view, stop)
        text, ending = yield from self.summarizer(view, 0, stop, min(self.max_tokens, hidden - hidden // 8))
        if not text.strip():
            return ending
        summary = wrap(text)
        if view.lens.count(summary) >= hidden:
            return Ending("rejected", "the summary is not smaller than what it stands for")
        yield view.fold(0, stop, summary, by=repr(self))
        return ending


def _tokens(view: View, stop: int) -> int:
    """Tokens of what the view shows before *stop*."""
    return sum(view.lens.count(message) for item in view.items if item.stop <= stop for message in item.shown)
