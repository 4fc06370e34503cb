"""Summarise so that a request comes down to a number of tokens, and not far below it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.evidence.selection import Selection
from refold.core.strategy import End, Ending, Steps, Summarizer, advance, full_repr
from refold.core.view import View
from refold.errors import require_int, require_number
from refold.messages import Message
from refold.strategies.summarize import Summarize
from refold.summarizers.placement import Placement, Surroundings, summarize_span
from refold.summarizers.tail import _conversation_start, _find_marks
from refold.summarizers.tail import _tokens_from as _tail_tokens
from refold.text.summary_wrapper import wrap_summary


@dataclass(frozen=True, slots=True, repr=False)
class SelectTo:
    """`Summarize` down to *tokens*, with a summary as long as the newest messages leave room for.

    Retrospective. The summary gets *share* of the tokens, at most *most*, and the newest messages
    the rest, from an assistant message or a request on. What these leave over the summary gets too,
    so that little of the budget goes unused (F30, F31). Raises ValueError for figures that leave
    nothing to fill.
    """

    tokens: int
    """Tokens of the whole request to come down to; as a rule the budget's target."""
    share: float = 0.4
    """The share of them that is set aside for the summary."""
    most: int = 6_000
    """Tokens that are set aside for it at most."""
    summarizer: Summarizer = field(default_factory=Selection)
    place: str | Placement = "user"
    """As for `Summarize`, and so is *pin*."""
    pin: Callable[[Message], bool] | None = None

    __repr__ = full_repr

    def __post_init__(self) -> None:
        require_int(1, tokens=self.tokens, most=self.most)
        require_number(0, 1, share=self.share)
        if not self.share:
            raise ValueError("share leaves no tokens for a summary: it is a share above 0")
        Summarize(
            summarizer=self.summarizer, place=self.place, pin=self.pin
        )  # checks what it is given

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        goal = estimate_for(view, self.tokens) - view.profile.fixed_tokens
        room = min(int(self.share * goal), self.most)
        summarize = Summarize(0, 1, self.summarizer, self.place, self.pin)

        def surround(stop: int) -> Surroundings:
            return summarize.surround(view, stop, room // 2)

        stop = tail_within(view, max(0, goal - room))
        if not stop:
            return None
        surroundings = surround(stop)
        if (stay := surroundings.tokens(view)) > room // 2:
            room = min(int(self.share * max(0, goal - stay)), self.most)
            stop = tail_within(view, max(0, goal - room - stay))
            surroundings = surround(stop)
        if surroundings.omitted:  # what a person said goes before the oldest of the tail
            shorter = tail_within(view, max(0, goal - room) * 2 // 3)
            roomier = summarize.surround(view, shorter, (goal - _tokens_from(view, shorter)) // 2)
            if roomier.omitted < surroundings.omitted:
                stop, surroundings = shorter, roomier
        cap = goal - _tokens_from(view, stop) - surroundings.tokens(view)
        if cap > 0 and (spare := cap - self._summary_tokens(view, stop, cap)) > cap // 4:
            longer = tail_within(view, _tokens_from(view, stop) + spare - cap // 8)
            if 0 < longer < stop:
                stop, surroundings = longer, surround(longer)
                cap = goal - _tokens_from(view, stop) - surroundings.tokens(view)
        if cap <= 0:
            stay = surroundings.tokens(view)
            return Ending(
                "noop", f"what stays ({stay} tokens word for word) leaves no room for a summary"
            )
        step = summarize_span(view, surroundings, self.summarizer, cap, repr(self))
        return (yield from step).ending

    def _summary_tokens(self, view: View, stop: int, cap: int) -> int:
        """Tokens of the summary of everything before *stop*; *cap* if a model would write it."""
        run = self.summarizer(view, 0, stop, cap)
        step = advance(run)
        run.close()
        text = step.value.text if isinstance(step, End) else ""
        return min(cap, view.profile.count(wrap_summary(text))) if text else cap


def estimate_for(view: View, tokens: int) -> int:
    """The estimate of a request that the model is expected to count as *tokens*."""
    calibrate, low, high = view.profile.calibrate, 0, tokens
    if calibrate(high) <= tokens:
        return high
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if calibrate(middle) <= tokens else (low, middle)
    return low


def _tokens_from(view: View, start: int) -> int:
    """Tokens that the view shows from *start* on."""
    return sum(item.tokens for item in view.iter_items() if item.start >= start)


def tail_within(view: View, tokens: int) -> int:
    """Return the earliest legal cut before an assistant message or a user's request from which at
    most *tokens* follow, else the latest such cut; 0 if there is none."""
    marks = _find_marks(view)
    first = _conversation_start(view)
    cuts = sorted(cut for cut in {*marks.turns, *marks.steps} if cut > first)
    fitting = (cut for cut in cuts if _tail_tokens(marks, cut) <= tokens)
    return next(fitting, cuts[-1] if cuts else 0)
