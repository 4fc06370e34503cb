"""Summarise so that a request comes down to a number of tokens, and not far below it."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from refold.core.strategy import (
    Answer,
    Ask,
    End,
    Steps,
    Summarizer,
    Summary,
    advance,
    full_repr,
)
from refold.core.view import View
from refold.errors import require_int, require_number
from refold.messages import Message
from refold.speakers import dialogue_share
from refold.strategies.summarize import Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.placement import Placement, Surroundings, summarize_span
from refold.summarizers.tail import count_shown, tail_within
from refold.text.summary_wrapper import wrap_summary

IN_CHATS = 0.9
"""The share that is set aside for a summary if a person answers each turn."""


@dataclass(frozen=True, slots=True, repr=False)
class SummarizeTo:
    """`Summarize` down to *tokens*, with a summary as long as the newest messages leave room for.

    Retrospective. The summary gets *share* of the tokens, at most *most*, and the newest messages
    the rest, from an assistant message or a request on. What these leave over the summary gets too,
    so that little of the budget goes unused (F30, F31). If the latest exchange leaves it
    no room at all, it gets half of its share all the same. Raises ValueError for figures that leave
    nothing to fill.
    """

    tokens: int
    """Tokens of the whole request to come down to; as a rule the budget's target."""
    share: float = 0.4
    """The share of them that is set aside for the summary."""
    most: int = 6_000
    """Tokens that are set aside for it at most."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
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
        goal = self._estimate(view) - view.profile.fixed_tokens
        room = self._summary_room(view, goal)
        least = max(1, room // 2)
        summarize = Summarize(0, 1, self.summarizer, self.place, self.pin)

        def surround(stop: int) -> Surroundings:
            return summarize.surround(view, stop, room // 2)

        stop = tail_within(view, max(0, goal - room))
        if not stop:
            return None
        surroundings = surround(stop)
        if (stay := surroundings.tokens(view)) > room // 2:
            room = self._summary_room(view, max(0, goal - stay))
            stop = tail_within(view, max(0, goal - room - stay))
            surroundings = surround(stop)
        if surroundings.omitted:  # what a person said goes before the oldest of the tail
            shorter = tail_within(view, max(0, goal - room) * 2 // 3)
            roomier = summarize.surround(view, shorter, (goal - count_shown(view, shorter)) // 2)
            if roomier.omitted < surroundings.omitted:
                stop, surroundings = shorter, roomier
        cap = goal - count_shown(view, stop) - surroundings.tokens(view)
        cap = cap if cap > 0 else least
        text = self._write_without_model(view, stop, cap)
        spare = cap - view.profile.count(wrap_summary(text)) if text else 0
        if spare > cap // 4:  # there is too little to say: the tail takes what is left
            longer = tail_within(view, count_shown(view, stop) + spare - cap // 8)
            if 0 < longer < stop:
                stop, surroundings, text = longer, surround(longer), ""
                cap = goal - count_shown(view, stop) - surroundings.tokens(view)

        def summarize_once(
            view: View, start: int, stop: int, max_tokens: int
        ) -> Generator[Ask, Answer | None, Summary]:
            """Return the text that is there, if it fits."""
            if text and view.profile.count(wrap_summary(text)) <= max_tokens:
                return Summary(text)
            return (yield from self.summarizer(view, start, stop, max_tokens))

        step = summarize_span(view, surroundings, summarize_once, cap, repr(self))
        return (yield from step).ending

    def _summary_room(self, view: View, goal: int) -> int:
        """Return the tokens that are set aside for the summary. In a chat they are more: there a
        summary keeps more of what was said than the same tokens of newest messages do."""
        dialogue = dialogue_share(view.transcript.messages)
        share = self.share + (IN_CHATS - self.share) * dialogue
        return int(min(share * goal, self.most + dialogue * goal))

    def _write_without_model(self, view: View, stop: int, cap: int) -> str:
        """Return the summary of everything before *stop*; empty if a model has to write it."""
        run = self.summarizer(view, 0, stop, cap)
        step = advance(run)
        run.close()
        return step.value.text if isinstance(step, End) else ""

    def _estimate(self, view: View) -> int:
        """Return `tokens` as the view's counter estimates them: what a provider reported may differ
        from that by a factor, and by what the caller did not pass."""
        unseen = view.profile.calibrate(0)
        reported = max(1, view.tokens - unseen)
        return max(0, self.tokens - unseen) * view.tokens_uncalibrated // reported
