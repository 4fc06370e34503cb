"""Replace everything before the kept tail with one summary: what is older than so many messages, or
so much that a request comes down to a number of tokens; what matters may stand as it is beside
it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from refold.core.strategy import (
    Asking,
    End,
    Steps,
    Strategy,
    Summarizer,
    Summary,
    advance,
    full_repr,
    with_goal,
)
from refold.core.tool_groups import find_refetched
from refold.core.view import View
from refold.errors import require_callable, require_callable_or_none, require_int, require_number
from refold.messages import Message
from refold.rules.request import is_sealed
from refold.scorers.scorer import Scorer, choose_important
from refold.speakers import find_verbatim, view_dialogue_share
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.placement import (
    PLACEMENTS,
    Placement,
    Surroundings,
    keep_behind,
    keep_loads,
    summarize_span,
    tell_beside,
    whole_groups,
)
from refold.summarizers.tail import count_shown, tail_start, tail_within
from refold.text.summary_wrapper import beside_summary, summary_in, wrap_summary


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
    not reached, only the latest exchange stays."""
    max_tokens: int = 2_000
    """Cap of the summary message, in tokens."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    place: str | Placement = "user"
    """How the summary is carried: a `Placement` or the name of one
    (`refold.summarizers.placement.PLACEMENTS`)."""
    pin: Callable[[Message], bool] | None = None
    """Messages that it accepts stay as they are behind the summary, however often the conversation
    is compacted; a call or a result with all that belongs to it."""

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
        """Return what stays around the summary of everything before *stop*; if that may take about
        *room* tokens, with the answer that the current request follows."""
        placement = PLACEMENTS[self.place] if isinstance(self.place, str) else self.place
        stays = find_verbatim(view, stop, room, with_answer=room is not None)
        beside = dict(stays.messages)
        for at, message in keep_loads(view, stop):
            words = beside[at].parts if at in beside else ()
            beside[at] = replace(message, parts=(*message.parts, *words))
        stays = stays._replace(messages=tuple(sorted(beside.items())))
        return keep_behind(view, stop, placement, self._find_pinned(view, stop), stays)

    def _find_pinned(self, view: View, stop: int) -> Sequence[int]:
        """Return positions before *stop* that stay, each with what it cannot be parted from: what
        *pin* accepts, what the provider alone can read, and results that were fetched again after
        they had been hidden."""
        messages = view.transcript.messages
        chosen = {at for at in find_refetched(view) if at < stop}
        chosen.update(at for at in range(stop) if is_sealed(messages[at]))
        for at in range(stop) if self.pin is not None else ():
            own = beside_summary(messages, at)
            if own.parts and self.pin is not None and self.pin(own):
                chosen.add(at)
        return whole_groups(view, chosen)


# --- down to a number of tokens -----------------------------------------------------------------


IN_CHATS = 0.9
"""The share that is set aside for a summary if a person answers each turn."""


@dataclass(frozen=True, slots=True, repr=False)
class SummarizeTo:
    """`Summarize` down to *tokens*, with a summary as long as the newest messages leave room for.

    Retrospective. The summary gets *share* of the tokens, at most *most*, and the newest messages
    the rest, from an assistant message or a request on. What these leave over the summary gets too,
    so that little of the budget goes unused. If the latest exchange leaves it no room at all, it
    gets half of its share all the same; if next to none, a twentieth of the tokens. Raises
    ValueError for figures that leave nothing to fill.
    """

    tokens: int | None = None
    """Tokens of the whole request to come down to if the compaction's goal is not lower; by default
    that goal, and half of the request if there is none."""
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
        require_int(1, most=self.most, **({} if self.tokens is None else {"tokens": self.tokens}))
        require_number(0, 1, share=self.share)
        if not self.share:
            raise ValueError("share leaves no tokens for a summary: it is a share above 0")
        Summarize(
            summarizer=self.summarizer, place=self.place, pin=self.pin
        )  # checks what it is given

    def aim_at(self, goal: int) -> "SummarizeTo":
        """Return it with *goal* tokens to come down to, unless its own are fewer."""
        has_fewer = self.tokens is not None and self.tokens <= goal
        return self if has_fewer else replace(self, tokens=max(1, goal))

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        goal = self._estimate(view) - view.profile.fixed_tokens
        least = max(1, self._summary_room(view, goal) // 2)
        divided = self._divide(view, goal)
        if divided is None:
            return None
        around, room = divided
        cap = self._cap(view, goal, around) or least
        draft = self._write_without_model(view, around, cap)
        spare = cap - view.profile.count(wrap_summary(draft.text)) if draft.text else 0
        if spare > cap // 4:  # there is too little to say: the tail, or what stays, takes the rest
            longer = tail_within(view, count_shown(view, around.stop) + spare - cap // 8)
            is_longer = 0 < longer < around.stop
            if is_longer or around.omitted:
                stop, extra = (longer, 0) if is_longer else (around.stop, spare)
                around, draft = self._surround(view, stop, room // 2 + extra), Summary("")
                cap = self._cap(view, goal, around)

        def summarize_once(view: View, start: int, stop: int, max_tokens: int) -> Asking[Summary]:
            """Return the summary that is there, if it fits."""
            if draft.text and view.profile.count(wrap_summary(draft.text)) <= max_tokens:
                return draft
            write = tell_beside(self.summarizer, around)
            return (yield from write(view, start, stop, max_tokens))

        step = summarize_span(view, around, summarize_once, cap, repr(self))
        return (yield from step).ending

    def _divide(self, view: View, goal: int) -> tuple[Surroundings, int] | None:
        """Choose where the tail begins. Return what stays around a summary of all before it, and
        the tokens that are set aside for the summary; None if nothing is before it."""
        room = self._summary_room(view, goal)
        stop = _divide_at(view, goal, room)
        if not stop:
            return None
        around = self._surround(view, stop, room // 2)
        if (stay := around.tokens(view)) > room // 2:  # then both get less of what it leaves
            room = self._summary_room(view, max(0, goal - stay))
            stop = _divide_at(view, goal - stay, room)
            around = self._surround(view, stop, room // 2)
        if around.omitted:  # what a person said goes before the oldest of the tail
            shorter = tail_within(view, max(0, goal - room) * 2 // 3)
            spare = goal - count_shown(view, shorter)
            roomier = self._surround(view, shorter, spare // 2)
            around = roomier if roomier.omitted < around.omitted else around
        return around, room

    def _surround(self, view: View, stop: int, room: int) -> Surroundings:
        return Summarize(0, 1, self.summarizer, self.place, self.pin).surround(view, stop, room)

    def _cap(self, view: View, goal: int, around: Surroundings) -> int:
        """Return the tokens that the tail and what stays leave to the summary; at least 0, and if
        it is the tail that leaves it next to nothing, a twentieth of the goal. What an earlier
        summary that came as history says stands nowhere else: then a fifth in any case."""
        spare = goal - count_shown(view, around.stop)
        is_given = any(view.base.map_cached(summary_in)[: around.stop])
        least = goal // (5 if is_given else 20)
        needs_least = is_given or 0 < spare < least
        return max(spare - around.tokens(view), least if needs_least else 0)

    def _summary_room(self, view: View, goal: int) -> int:
        """Return the tokens that are set aside for the summary. In a chat they are more: there a
        summary keeps more of what was said than the same tokens of newest messages do."""
        dialogue = view_dialogue_share(view)
        share = self.share + (IN_CHATS - self.share) * dialogue
        return int(min(share * goal, self.most + dialogue * goal))

    def _write_without_model(self, view: View, around: Surroundings, cap: int) -> Summary:
        """Return the summary of what *around* surrounds; empty if a model has to write it."""
        run = tell_beside(self.summarizer, around)(view, 0, around.stop, cap)
        step = advance(run)
        run.close()
        return step.value if isinstance(step, End) else Summary("")

    def _estimate(self, view: View) -> int:
        """Return `tokens` as the view's counter estimates them: what a provider reported may differ
        from that by a factor, and by what the caller did not pass."""
        unseen = view.profile.calibrate(0)
        reported = max(1, view.tokens - unseen)
        tokens = view.tokens // 2 if self.tokens is None else self.tokens
        return max(0, tokens - unseen) * view.tokens_uncalibrated // reported


def _divide_at(view: View, goal: int, room: int) -> int:
    """Return where the tail begins that comes nearest to what a summary of *room* tokens leaves of
    *goal*; the summary keeps half of its room at least."""
    return tail_within(view, max(0, goal - room // 2), max(0, goal - room))


# --- with what matters beside it ----------------------------------------------------------------


@dataclass(frozen=True)
class KeepImportant:
    """Run *strategy*, such as `Summarize()`, with the messages pinned that *scorer* gives *over* or
    more: they stay as they are beside the summary. At most *max_tokens* tokens of them stay, those
    with the highest scores, of equals the newest.

    *strategy* is a dataclass with a setting `pin`, a predicate of messages; what its own `pin`
    accepts stays too, whatever it scores. What stays is chosen anew each time: with a scorer that
    depends on what comes later, such as `References`, a message that has stayed once may be
    summarised next time; with `Emphasis` or `Roles` it stays. Raises TypeError for
    a strategy without `pin`, ValueError for a negative *max_tokens*.
    """

    strategy: Any
    scorer: Scorer
    over: float = 0.5
    max_tokens: int = 4_000

    def __post_init__(self) -> None:
        if not hasattr(self.strategy, "pin"):
            raise TypeError(f"{self.strategy!r} has no setting `pin`")
        require_int(0, max_tokens=self.max_tokens)
        require_number(-math.inf, math.inf, over=self.over)
        require_callable(strategy=self.strategy, scorer=self.scorer)

    def aim_at(self, goal: int) -> "KeepImportant":
        """Return it with a strategy that comes down to *goal* tokens, if that takes a goal."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy does when the important messages are pinned."""
        pin = choose_important(
            self.scorer, view, self.over, self.max_tokens, also=self.strategy.pin
        )
        strategy: Strategy = replace(self.strategy, pin=pin)
        return (yield from strategy(view))
