"""Strategies that replace everything before a tail with one summary: before so many newest
messages, or so that the request has a number of tokens. Important messages may stay beside the
summary."""

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
from refold.summarizers.tail import count_shown, find_tail_start, find_tail_within
from refold.text.summary_wrapper import beside_summary, summary_in, wrap_summary


@dataclass(frozen=True, slots=True, repr=False)
class Summarize:
    """Replace everything from the first message to the tail with one summary.

    It is retrospective. Earlier edits in the span are hidden with it, and an earlier summary is
    merged, not summarised again. Nothing is proposed if nothing is older than the tail, the
    summarizer returns nothing, or the result would not be smaller. Raises ValueError for invalid
    settings.
    """

    keep: int | float = 8
    """What is kept: a number of newest messages, or as a float a share of the tokens (see
    `refold.summarizers.tail.find_tail_start`). If no more than these are left and the target is not
    reached, only the latest exchange is kept."""
    max_tokens: int = 2_000
    """Maximum tokens of the summary message."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    place: str | Placement = "user"
    """Role that carries the summary: a `Placement` or the name of one
    (`refold.summarizers.placement.PLACEMENTS`)."""
    pin: Callable[[Message], bool] | None = None
    """Predicate of messages that stay verbatim behind the summary through all compactions. Calls
    and results stay together."""

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
        stop = find_tail_start(view, self.keep)
        if not stop:
            return None
        surroundings = self.surround(view, stop)
        result = yield from summarize_span(
            view, surroundings, self.summarizer, self.max_tokens, repr(self)
        )
        return result.ending

    def surround(self, view: View, stop: int, room: int | None = None) -> Surroundings:
        """Return what is kept beside the summary of everything before *stop*; if about *room*
        tokens are given for it, also the answer before the current request."""
        placement = PLACEMENTS[self.place] if isinstance(self.place, str) else self.place
        stays = find_verbatim(view, stop, room, with_answer=room is not None)
        beside = dict(stays.messages)
        for at, message in keep_loads(view, stop):
            words = beside[at].parts if at in beside else ()
            beside[at] = replace(message, parts=(*message.parts, *words))
        stays = stays._replace(messages=tuple(sorted(beside.items())))
        return keep_behind(view, stop, placement, self._find_pinned(view, stop), stays)

    def _find_pinned(self, view: View, stop: int) -> Sequence[int]:
        """Return positions before *stop* that are kept, with everything that belongs to them:
        messages that *pin* accepts, content that only the provider can read, and results that were
        fetched again after an edit had hidden them."""
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
"""Share of the target for the summary in a chat."""


@dataclass(frozen=True, slots=True, repr=False)
class SummarizeTo:
    """`Summarize` down to *tokens*: the summary and the newest messages share them.

    It is retrospective. The summary gets *share* of the tokens, at most *most*, and the newest
    messages the rest, starting with an assistant message or a request. Tokens that these do not use
    go to the summary. If the latest exchange leaves no room, the summary still gets half of its
    share; if very little, a twentieth of the tokens. Raises ValueError for invalid settings.
    """

    tokens: int | None = None
    """Target for the whole request in tokens, unless the compaction's goal is lower. The default is
    that goal, or half of the request without one."""
    share: float = 0.4
    """Share of the target that is reserved for the summary."""
    most: int = 6_000
    """Maximum tokens that are reserved for it."""
    summarizer: Summarizer = field(default_factory=RuleSummary)
    place: str | Placement = "user"
    """As in `Summarize`, like *pin*."""
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
        """Return a copy with *goal* as its target, unless its own is lower."""
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
            longer = find_tail_within(view, count_shown(view, around.stop) + spare - cap // 8)
            is_longer = 0 < longer < around.stop
            if is_longer or around.omitted:
                stop, extra = (longer, 0) if is_longer else (around.stop, spare)
                around, draft = self._surround(view, stop, room // 2 + extra), Summary("")
                cap = self._cap(view, goal, around)

        def summarize_once(view: View, start: int, stop: int, max_tokens: int) -> Asking[Summary]:
            """Return the summary that is already written, if it fits."""
            if draft.text and view.profile.count(wrap_summary(draft.text)) <= max_tokens:
                return draft
            write = tell_beside(self.summarizer, around)
            return (yield from write(view, start, stop, max_tokens))

        step = summarize_span(view, around, summarize_once, cap, repr(self))
        return (yield from step).ending

    def _divide(self, view: View, goal: int) -> tuple[Surroundings, int] | None:
        """Choose where the tail begins. Return what is kept beside the summary of everything before
        it, and the tokens reserved for the summary; None if nothing is before it."""
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
            shorter = find_tail_within(view, max(0, goal - room) * 2 // 3)
            spare = goal - count_shown(view, shorter)
            roomier = self._surround(view, shorter, spare // 2)
            around = roomier if roomier.omitted < around.omitted else around
        return around, room

    def _surround(self, view: View, stop: int, room: int) -> Surroundings:
        return Summarize(0, 1, self.summarizer, self.place, self.pin).surround(view, stop, room)

    def _cap(self, view: View, goal: int, around: Surroundings) -> int:
        """Return the tokens that the tail and the kept messages leave for the summary. It is at
        least 0, a twentieth of the goal if the tail leaves very little, and a fifth if the summary
        has to carry an earlier one whose messages are gone."""
        spare = goal - count_shown(view, around.stop)
        is_given = any(view.base.map_cached(summary_in)[: around.stop])
        least = goal // (5 if is_given else 20)
        needs_least = is_given or 0 < spare < least
        return max(spare - around.tokens(view), least if needs_least else 0)

    def _summary_room(self, view: View, goal: int) -> int:
        """Return the tokens reserved for the summary. In a chat they are more, because there a
        summary keeps more of the content than the newest messages do."""
        dialogue = view_dialogue_share(view)
        share = self.share + (IN_CHATS - self.share) * dialogue
        return int(min(share * goal, self.most + dialogue * goal))

    def _write_without_model(self, view: View, around: Surroundings, cap: int) -> Summary:
        """Return the summary of all before `around.stop`; empty if the summarizer asks a model."""
        run = tell_beside(self.summarizer, around)(view, 0, around.stop, cap)
        step = advance(run)
        run.close()
        return step.value if isinstance(step, End) else Summary("")

    def _estimate(self, view: View) -> int:
        """Return `tokens` in units of the view's own counter. The provider's count may differ by a
        factor, and by content that the caller did not pass."""
        unseen = view.profile.calibrate(0)
        reported = max(1, view.tokens - unseen)
        tokens = view.tokens // 2 if self.tokens is None else self.tokens
        return max(0, tokens - unseen) * view.tokens_uncalibrated // reported


def _divide_at(view: View, goal: int, room: int) -> int:
    """Return the start of the tail that fits best beside a summary of *room* tokens in *goal*. The
    summary keeps at least half of its room."""
    return find_tail_within(view, max(0, goal - room // 2), max(0, goal - room))


# --- with what matters beside it ----------------------------------------------------------------


@dataclass(frozen=True)
class KeepImportant:
    """Run *strategy*, such as `Summarize()`, with important messages pinned beside the summary.

    Pinned are messages that *scorer* gives *over* or more, at most *max_tokens* tokens of them: the
    highest scores first, of equal ones the newest. *strategy* is a dataclass with a setting `pin`,
    a predicate of messages; messages that its own `pin` accepts stay whatever their score. The
    choice is made anew each time. With a scorer that depends on later messages, such as
    `References`, a message may be kept once and summarised the next time; with `Emphasis` or
    `Roles` it is always kept. Raises TypeError for a strategy without `pin`, ValueError for a
    negative *max_tokens*.
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
        """Return a copy whose strategy is aimed at *goal* tokens, if it can be."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy proposes with the important messages pinned."""
        pin = choose_important(
            self.scorer, view, self.over, self.max_tokens, also=self.strategy.pin
        )
        strategy: Strategy = replace(self.strategy, pin=pin)
        return (yield from strategy(view))
