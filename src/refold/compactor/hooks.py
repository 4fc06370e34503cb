"""Events of a compactor, and what hooks may answer: plain frozen values."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from refold.core.view import View
from refold.edits import Attempt
from refold.stores.store import Action

_log = logging.getLogger("refold")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStarted:
    """A compaction is about to run. Nothing was asked or changed yet."""

    run: str
    """Names this compaction, in events and ledger."""
    when: float
    """Seconds since 1970-01-01 UTC."""
    action: Action
    """`compact`, or `preview` for one whose edits are not kept."""
    actor: str
    """Who wanted it: `auto` for a trigger, `manual`, or the name that was given."""
    trigger: str
    """What the trigger read, in words."""
    tokens: int
    """Tokens of the request, system prompt and tools included."""
    goal: int
    """Tokens to come down to."""
    model: str
    """The model that the request names, if it names one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTried:
    """One strategy has run."""

    run: str
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEnded:
    """A compaction has ended: its edits are kept (or previewed), or there are none."""

    run: str
    started_at: float
    """Seconds since 1970-01-01 UTC."""
    ended_at: float
    action: Action
    actor: str
    before: int
    """Tokens of the request before, and `after`."""
    after: int
    edits: tuple[str, ...]
    """Ids of the edits that were made."""
    attempts: tuple[Attempt, ...]
    veto: str = ""
    """Why the hook refused it; empty if it did not."""

    @property
    def calls(self) -> int:
        """Model calls made."""
        return sum(attempt.calls for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """What they cost, in US dollars, if prices are known."""
        return sum(attempt.cost for attempt in self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewAccepted:
    """A preview's edits were kept."""

    when: float
    actor: str
    edits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditsReverted:
    """Edits were taken back for good."""

    when: float
    actor: str
    edits: tuple[str, ...]


Event = CompactionStarted | StrategyTried | CompactionEnded | PreviewAccepted | EditsReverted


@dataclass(frozen=True, slots=True)
class Veto:
    """What a `before` hook returns to have this compaction left out."""

    reason: str


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a `before` hook returns to have *text* added to every prompt of this compaction."""

    text: str


Before = Callable[[View, CompactionStarted], Veto | Instructions | None]
"""Called with the view as it is, before anything is asked. What it raises is raised."""
After = Callable[[View, CompactionEnded], None]
"""Called with the view that results, when its edits are kept."""
OnEvent = Callable[[Event], None]
