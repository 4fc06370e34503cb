"""Summarise so that a request comes down to a number of tokens, and not far below it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Summarizer, full_repr
from refold.core.view import View
from refold.errors import require_int, require_number
from refold.messages import Message
from refold.strategies.summarize import Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.placement import Placement, summarize_span
from refold.summarizers.tail import count_shown, tail_start


@dataclass(frozen=True, slots=True, repr=False)
class SummarizeTo:
    """`Summarize` with the cap that the kept tail leaves of *tokens*, so that little of the budget
    goes unused.

    Retrospective. For chats, where what was said is what counts: the longer the summary may be, the
    more of it is kept in its own words (docs/summaries.md). Raises ValueError for figures that
    leave nothing to fill.
    """

    tokens: int
    """Tokens of the whole request to come down to; as a rule the budget's target."""
    keep: float = 0.5
    """The share of them for the newest messages, which stay as they are."""
    at_most: float = 0.7
    """The share of them that the summary may take at most."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    place: str | Placement = "user"
    """As for `Summarize`, and so is *pin*."""
    pin: Callable[[Message], bool] | None = None

    __repr__ = full_repr

    def __post_init__(self) -> None:
        require_int(1, tokens=self.tokens)
        require_number(0, 1, keep=self.keep, at_most=self.at_most)
        if self.keep == 1 or not self.at_most:
            raise ValueError(
                "keep and at_most leave no tokens for a summary: "
                "keep is a share below 1, at_most one above 0"
            )
        Summarize(
            summarizer=self.summarizer, place=self.place, pin=self.pin
        )  # looks at what it is given

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        share = self.keep * min(1.0, self.tokens / max(1, view.tokens))
        stop = tail_start(view, share)
        if not stop:
            return None
        summarize = Summarize(share, 1, self.summarizer, self.place, self.pin)
        room = self._room(view, stop)
        surroundings = summarize.surround(view, stop, room // 2)
        if surroundings.omitted:  # what a person said goes before the oldest of the tail
            shorter = tail_start(view, share * 2 / 3)
            roomier = summarize.surround(view, shorter, self._room(view, shorter) // 2)
            if roomier.omitted < surroundings.omitted:
                stop, room, surroundings = shorter, self._room(view, shorter), roomier
        stay = surroundings.tokens(view)
        cap = min(room - stay, int(self.tokens * self.at_most))
        if cap <= 0:
            return Ending(
                "noop", f"what stays ({stay} tokens word for word) leaves no room for a summary"
            )
        if not stop:
            return None
        return (
            yield from summarize_span(view, surroundings, self.summarizer, cap, repr(self))
        ).ending

    def _room(self, view: View, stop: int) -> int:
        """Return tokens that the tail from *stop* on leaves for what stands before it."""
        return self.tokens - view.profile.fixed_tokens - count_shown(view, stop)
