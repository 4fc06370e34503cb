"""Where the kept tail of a conversation begins, in the words of other systems: turns, messages,
what is unanswered."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from refold.core.strategy import Ending, Steps, Strategy
from refold.core.view import View
from refold.messages import Message
from refold.summarizers.tail import (
    count_shown,
    find_requests,
    find_unanswered,
    find_unsummarized,
    tail_start,
)

Start = Callable[[View], int]
"""The position where the kept tail of a view begins, a legal cut; 0 where nothing is older."""


@dataclass(frozen=True)
class KeepFrom:
    """Run *strategy*, which has a setting `keep` (`Summarize()`), with everything from
    `start(view)` on kept.

    *pin* is passed on to it, so that `KeepImportant(KeepFrom(...), scorer)` can be said.
    """

    strategy: Any
    start: Start
    pin: Callable[[Message], bool] | None = None

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy does."""
        start = self.start(view)
        if not find_unsummarized(view, start):
            return Ending("noop", "everything older than what is kept is summarised already")
        keep = len(view.transcript) - start
        strategy: Strategy = replace(self.strategy, keep=keep, pin=self.pin or self.strategy.pin)
        return (yield from strategy(view))


@dataclass(frozen=True)
class OnlyBeyond:
    """Run *strategy* only where gentler ones have left more than *tokens* tokens."""

    strategy: Strategy
    tokens: int

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy does, or nothing."""
        if view.tokens <= self.tokens:
            return Ending("noop", f"{view.tokens} of {self.tokens} tokens are left")
        return (yield from self.strategy(view))


@dataclass(frozen=True)
class LastTurns:
    """The newest *turns* requests of the user with all that followed, while they hold at most the
    share *most* of the tokens shown; else as much of the end as is nearest to that share (C1-7)."""

    turns: int
    most: float = 0.5

    def __call__(self, view: View) -> int:
        """Return where they begin."""
        requests = find_requests(view)
        if 0 < self.turns <= len(requests):
            start = requests[-self.turns]
            if count_shown(view, start) <= self.most * count_shown(view):
                return start
        return tail_start(view, self.most)


@dataclass(frozen=True)
class LastMessages:
    """The newest *count* messages, more where a call would be parted from its result, fewer where
    they hold more than *max_tokens* tokens; what the model has not answered yet stays whatever it
    holds (C2-10)."""

    count: int
    max_tokens: int

    def __call__(self, view: View) -> int:
        """Return where they begin."""
        end = len(view.transcript)
        whole = max((cut for cut in view.cuts if cut <= end - self.count), default=0)
        cuts = sorted(cut for cut in view.cuts if whole <= cut < end)
        waits = find_unanswered(view)
        fitting = (cut for cut in cuts if count_shown(view, cut) <= self.max_tokens)
        return min(next(fitting, waits), waits) if whole < waits else whole


@dataclass(frozen=True)
class Unanswered:
    """Only what the model has not answered yet: a request, results it has not read, open calls
    (C4-11)."""

    def __call__(self, view: View) -> int:
        """Return where it begins."""
        return find_unanswered(view)
