"""Replace everything before the kept tail with one summary."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from types import FunctionType
from typing import Any, NamedTuple

from refold.core.refetched import refetched
from refold.core.strategy import Ending, Steps, Summarizer
from refold.core.view import View
from refold.errors import EditError, require_callable, require_callable_or_none, require_int, require_number
from refold.messages import Message
from refold.speakers import Staying, staying
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.placement import PLACEMENTS, Placement, placed
from refold.summarizers.tail import tail_start
from refold.text.summary_wrapper import belongs_to_summary, without_summary


@dataclass(frozen=True, slots=True)
class Summarize:
    """Fold everything from the first message to the kept tail into one summary.

    Retrospective. Earlier edits inside that span are hidden with it; what an earlier summary
    covers is merged, not summarised again. Proposes nothing when nothing is older than the tail,
    when the summarizer has nothing to offer, or when the fold would not be smaller.

    Raises ValueError for settings that are none.
    """

    keep: int | float = 8
    """What stays as it is: a number of newest messages, or as a float a share of the tokens
    (see `refold.summarizers.tail.tail_start`). Where no more than these is left and the target is still not reached, only the
    latest exchange stays (C14)."""
    max_tokens: int = 2_000
    """Cap of the summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    place: str | Placement = "user"
    """How the summary is carried: a `Placement` or the name of one (`refold.summarizers.placement.PLACEMENTS`)."""
    pin: Callable[[Message], bool] | None = None
    """Messages that it accepts stay as they are behind the summary, however often the conversation is
    compacted; a call or a result with all that belongs to it (conformance 41)."""

    def __post_init__(self) -> None:
        if isinstance(self.keep, float):
            require_number(0, 1, keep=self.keep)
        else:
            require_int(0, keep=self.keep)
        require_int(1, max_tokens=self.max_tokens)
        require_callable(summarizer=self.summarizer)
        require_callable_or_none(pin=self.pin)
        if not isinstance(self.place, Placement) and not (isinstance(self.place, str) and self.place in PLACEMENTS):
            raise ValueError(f"no placement is called {self.place!r}; there are {', '.join(PLACEMENTS)}")

    def __repr__(self) -> str:
        """Every setting; functions by their names, so that it says the same in every process."""
        return described(self)

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        return (yield from self.fold(view, tail_start(view, self.keep), repr(self)))

    def beside(self, view: View, stop: int, room: int | None = None) -> "Beside":
        """What stands beside the summary when what is before *stop* is folded, in about *room* tokens."""
        place = PLACEMENTS[self.place] if isinstance(self.place, str) else self.place
        return Beside(place, view, stop, self._pinned(view, stop), staying(view, stop, room))

    def fold(self, view: View, stop: int, by: str, beside: "Beside | None" = None) -> Steps:
        """Propose to fold what is before *stop*, in the name of *by*; nothing where *stop* is 0."""
        if not stop:
            return None
        beside = beside or self.beside(view, stop)
        shown = sum(item.tokens for item in view.each() if item.stop <= stop)
        hidden = shown - beside.tokens
        cap = min(self.max_tokens, hidden - hidden // 8)
        if cap <= 0:
            return Ending("noop", f"nothing but what stays word for word: {beside.tokens} of {shown} tokens")
        text, ending = yield from self.summarizer(view, 0, stop, cap)
        if not text.strip():
            return ending
        insert = beside.around(text)
        if sum(map(view.lens.count, insert)) >= shown:
            return Ending("rejected", "the summary is not smaller than what it stands for")
        try:
            yield view.fold(0, stop, *insert, by=by)
        except EditError as error:  # what is pinned holds calls and results that never paired
            return Ending("rejected", str(error))
        return ending or beside.ending

    def _pinned(self, view: View, stop: int) -> Sequence[int]:
        """Positions before *stop* that stay, each with what it cannot be parted from: what *pin* accepts, and results
        that were fetched again after they had been hidden (D3)."""
        said, cuts, found = view.transcript.messages, sorted(view.ground.cuts), set[int]()
        picked = {at for at in refetched(view) if at < stop}
        for at in range(stop) if self.pin is not None else ():
            own = without_summary(said[at])
            if own.parts and not belongs_to_summary(said, at) and self.pin is not None and self.pin(own):
                picked.add(at)
        for at in picked:
            after = bisect_right(cuts, at)
            found.update(range(cuts[after - 1], cuts[after]))
        return sorted(found)


class Beside(NamedTuple):
    """What stays word for word beside a summary of `messages[:stop]`."""

    place: Placement
    view: View
    stop: int
    pinned: Sequence[int]
    stays: Staying

    def around(self, text: str) -> tuple[Message, ...]:
        """The messages that are shown with a summary of this *text*."""
        return placed(self.place, self.view, self.stop, text, self.pinned, self.stays)

    @property
    def tokens(self) -> int:
        """Tokens of what stays."""
        frame = self.around("")
        return sum(
            self.view.lens.count(message) for at, message in enumerate(frame) if not belongs_to_summary(frame, at)
        )

    @property
    def ending(self) -> Ending | None:
        """How a fold ends that found no room for all of it."""
        if not self.stays.left_out:
            return None
        return Ending("degraded", f"{self.stays.left_out} texts that should stay word for word found no room")


def described(strategy: Any) -> str:
    """Every setting of a strategy that is a dataclass; functions by their names, so that it says the same in every process."""
    shown = (f"{f.name}={_named(getattr(strategy, f.name))}" for f in fields(strategy))
    return f"{type(strategy).__name__}({', '.join(shown)})"


def _named(value: object) -> str:
    return value.__qualname__ if isinstance(value, FunctionType) else repr(value)
