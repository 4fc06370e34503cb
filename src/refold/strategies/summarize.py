"""Replace everything before the kept tail with one summary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from refold.core.refetches import find_refetched
from refold.core.strategy import Steps, Summarizer, full_repr
from refold.core.view import View
from refold.errors import require_callable, require_callable_or_none, require_int, require_number
from refold.messages import Message
from refold.speakers import find_verbatim
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.placement import (
    PLACEMENTS,
    Placement,
    Surroundings,
    keep_behind,
    summarize_span,
    whole_groups,
)
from refold.summarizers.tail import tail_start
from refold.text.summary_wrapper import beside_summary


@dataclass(frozen=True, slots=True, repr=False)
class Summarize:
    """Fold everything from the first message to the kept tail into one summary.

    Retrospective. Earlier edits inside that span are hidden with it; what an earlier summary
    covers is merged, not summarised again. Proposes nothing when nothing is older than the tail,
    when the summarizer has nothing to offer, or when the fold would not be smaller.

    Raises ValueError for settings that are none.
    """

    keep: int | float = 8
    """What stays as it is: a number of newest messages, or as a float a share of the tokens (see
    `refold.summarizers.tail.tail_start`). Where no more than these is left and the target is still
    not reached, only the latest exchange stays (C14)."""
    max_tokens: int = 2_000
    """Cap of the summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    place: str | Placement = "user"
    """How the summary is carried: a `Placement` or the name of one
    (`refold.summarizers.placement.PLACEMENTS`)."""
    pin: Callable[[Message], bool] | None = None
    """Messages that it accepts stay as they are behind the summary, however often the conversation
    is compacted; a call or a result with all that belongs to it (conformance 41)."""

    __repr__ = full_repr

    def __post_init__(self) -> None:
        if isinstance(self.keep, float):
            require_number(0, 1, keep=self.keep)
        else:
            require_int(0, keep=self.keep)
        require_int(1, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer)
        require_callable_or_none(pin=self.pin)
        if not isinstance(self.place, Placement) and not (
            isinstance(self.place, str) and self.place in PLACEMENTS
        ):
            raise ValueError(
                f"no placement is called {self.place!r}; there are {', '.join(PLACEMENTS)}"
            )

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        stop = tail_start(view, self.keep)
        if not stop:
            return None
        surroundings = self.surround(view, stop)
        result = yield from summarize_span(
            view, surroundings, self.summarizer, self.max_tokens, repr(self)
        )
        return result.ending

    def surround(self, view: View, stop: int, room: int | None = None) -> Surroundings:
        """Return what stays around the summary of everything before *stop*, in about *room*
        tokens."""
        placement = PLACEMENTS[self.place] if isinstance(self.place, str) else self.place
        return keep_behind(
            view, stop, placement, self._find_pinned(view, stop), find_verbatim(view, stop, room)
        )

    def _find_pinned(self, view: View, stop: int) -> Sequence[int]:
        """Return positions before *stop* that stay, each with what it cannot be parted from: what
        *pin* accepts, and results that were fetched again after they had been hidden (D3)."""
        messages = view.transcript.messages
        chosen = {at for at in find_refetched(view) if at < stop}
        for at in range(stop) if self.pin is not None else ():
            own = beside_summary(messages, at)
            if own.parts and self.pin is not None and self.pin(own):
                chosen.add(at)
        return whole_groups(view, chosen)
