"""Summarise so that a request comes down to a number of tokens, and not far below it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from refold.core.strategy import Ending, Steps, Summarizer, full_repr
from refold.core.view import View
from refold.errors import require_int, require_number
from refold.messages import Message
from refold.strategies.summarize import Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.placement import Placement, Surroundings, summarize_span
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
        tokens = self._estimate(view)
        share = self.keep * min(1.0, tokens / max(1, view.tokens_uncalibrated))
        stop = tail_start(view, share)
        if not stop:
            return None
        summarize = Summarize(share, 1, self.summarizer, self.place, self.pin)
        most = int(tokens * self.at_most)

        def surround(stop: int) -> tuple[Surroundings, int]:
            """Return what stays around a summary up to *stop*, and the tokens that it leaves."""
            room = tokens - view.profile.fixed_tokens - count_shown(view, stop)
            surroundings = summarize.surround(view, stop, room // 2)
            return surroundings, room - surroundings.tokens(view)

        surroundings, room = surround(stop)
        if surroundings.omitted:  # what a person said goes before the oldest of the tail
            shorter = tail_start(view, share * 2 / 3)
            roomier, more_room = surround(shorter)
            if roomier.omitted < surroundings.omitted:
                stop, surroundings, room = shorter, roomier, more_room
        least = min(most, int(tokens * (1 - self.keep))) // 2
        if room < least:  # a long request beside the summary takes room from the tail, not from it
            tail = max(0, count_shown(view, stop) + room - least)
            shorter = tail_start(view, tail / max(1, count_shown(view)))
            roomier, more_room = surround(shorter)
            if more_room > room:
                stop, surroundings, room = shorter, roomier, more_room
        if room <= 0 or not most:
            stay = surroundings.tokens(view)
            return Ending(
                "noop", f"what stays ({stay} tokens word for word) leaves no room for a summary"
            )
        if not stop:
            return None
        cap = min(room, most)
        return (
            yield from summarize_span(view, surroundings, self.summarizer, cap, repr(self))
        ).ending

    def _estimate(self, view: View) -> int:
        """Return `tokens` as the view's counter estimates them: what a provider reported may differ
        from that by a factor, and by what the caller did not pass."""
        unseen = view.profile.calibrate(0)
        reported = max(1, view.tokens - unseen)
        return max(0, self.tokens - unseen) * view.tokens_uncalibrated // reported
