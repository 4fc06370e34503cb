"""What is done to one conversation: its limits, its budget and its strategies."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from refold.budget.budget import Budget
from refold.budget.triggers import Never
from refold.compactor.settings import summary_room
from refold.core.strategy import Edits, Strategy, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.settings import Settings
from refold.messages import Message, Opaque, Thinking
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
    SummarizeTo,
)
from refold.summarizers.model import ModelSummary
from refold.tokens.model_table import Window

PINNED = frozenset(
    {
        "compaction",
        "compaction_summary",
        "context_compaction",
        "additional_tools",
        "compaction_trigger",
    }
)
"""Kinds of entries that a provider reads and nobody else can: a summary of them would lose them
(OA-7, OA-8)."""
NEVER = 10**15


class TokenLevels(NamedTuple):
    """Tokens of requests to one model at which something is due; None if its window is not
    known."""

    window: Window | None
    hard: int | None
    soft: int | None
    target: int


def levels_for(settings: Settings, window: Window | None) -> TokenLevels:
    """Return what *settings* say for a window."""
    if window is None:
        return TokenLevels(None, None, None, 60_000)
    usable = window.room - min(settings.reserve_tokens, window.room // 5)
    return TokenLevels(
        window,
        int(usable * settings.hard),
        int(usable * settings.soft),
        int(usable * min(settings.target, settings.hard)),
    )


@lru_cache(maxsize=256)
def never(limits: TokenLevels) -> Budget:
    """Return a budget under which nothing runs by itself."""
    return Budget(NEVER, limits.target, window=limits.window)


@lru_cache(maxsize=256)
def at_limits(limits: TokenLevels) -> Budget:
    """Return the budget of the hard and the soft level."""
    if limits.hard is None:
        return Budget(Never(), limits.target)
    return Budget(limits.hard, limits.target, limits.soft, window=limits.window)


def strategies_for(settings: Settings, target: int) -> tuple[Strategy, ...]:
    """Return the strategies, gentlest first; local ones run only on time."""
    chosen = (
        default_strategies(target, asks=settings.ask is not None)
        if settings.strategies is None
        else settings.strategies
    )
    return tuple(OnTime(strategy) if is_local(strategy) else strategy for strategy in chosen)


def default_strategies(target: int, *, asks: bool) -> tuple[Strategy, ...]:
    """Return the strategies used by default. A model is asked once; if that is not enough, rules do
    the rest."""
    room = summary_room(target)
    first = (DropDuplicates(), ClipResults(limit=50_000), ClearThinking(keep=2))
    last = (
        ClearToolResults(keep=3),
        ClearToolInputs(keep=3),
        Summarize(keep=8, max_tokens=room, pin=is_pinned),
        Summarize(keep=2, max_tokens=room, pin=is_pinned),
    )
    summarize = SummarizeTo(max(1, target), pin=is_pinned)
    return *first, replace(summarize, summarizer=ModelSummary()) if asks else summarize, *last


def rule_strategies(settings: Settings, target: int) -> tuple[Strategy, ...]:
    """Return the strategies for compaction that is not due: rules alone, gentlest first. Of
    strategies that *settings* name, those that leave the words of user and model alone."""
    if settings.strategies is None:
        return strategies_for(replace(settings, ask=None), target)
    return tuple(
        strategy
        for strategy in strategies_for(settings, target)
        if is_local(strategy)
        or isinstance(strategy, ClearThinking | ClearToolResults | ClearToolInputs)
    )


def is_pinned(message: Message) -> bool:
    """Must this entry stay as it is?"""
    return any(isinstance(part, Opaque) and part.kind in PINNED for part in message.parts)


@dataclass(frozen=True, slots=True, repr=False)
class OnTime:
    """A local strategy, kept from changing what signed thinking was bound to before it came (AN-7).

    It is on time for a message that no signed thinking follows. What it does then is stored, since
    after a restart it would be late.
    """

    strategy: Any
    local: ClassVar[bool] = True

    def __repr__(self) -> str:
        return repr(self.strategy)

    def __call__(self, view: View, since: int = 0) -> Edits:
        """Yield the strategy's edits that are on time."""
        first = _after_signed_thinking(view) if view.profile.rules.binds else 0
        yield from (
            edit
            for edit in self.strategy(view, since)
            if isinstance(edit, Edit) and edit.start >= first
        )


def _after_signed_thinking(view: View) -> int:
    """Return the position behind the last message with signed thinking."""
    messages = view.transcript.messages
    backwards = range(len(messages) - 1, -1, -1)
    signed = (at for at in backwards if any(map(_is_signed, messages[at].parts)))
    return next(signed, -1) + 1


def _is_signed(part: Any) -> bool:
    return isinstance(part, Thinking) and bool(part.signature)
