"""What a compactor is given once: strategies, budget, store and listeners."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING

from refold.budget.budget import Budget, default_budget, default_goal
from refold.codecs.codec import Codec
from refold.compactor.calibration import Reports
from refold.compactor.hooks import After, Before, Event, OnEvent
from refold.core.strategy import Strategy, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_callable_or_none
from refold.models.driver import call_safely
from refold.stores.store import LedgerRow, LedgerStore, Store
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
    SummarizeTo,
)
from refold.tokens.count import Counter
from refold.tokens.model_table import find_window

if TYPE_CHECKING:  # a memory is seldom given, and takes long to import
    from refold.memory import MemoryFlush

_log = logging.getLogger("refold")

BY_HOOK = "refold hook"
"""The maker of an edit that shows what a client's model saw from the first."""


@dataclass(frozen=True)
class Settings:
    """The settings of a compactor; what each means is said there. Raises ValueError."""

    strategies: tuple[Strategy, ...]
    budget: Budget
    store: Store
    format: str | Codec | None
    model: str
    count: Counter
    reports: Reports
    salt: str
    ledger: LedgerStore | None
    before: Before | None
    after: After | None
    on_event: OnEvent | None
    memory: "MemoryFlush | None"
    clock: Callable[[], float]
    has_default_strategies: bool = False
    """Were no strategies given, so that they are made to fit each conversation?"""
    has_default_budget: bool = False
    """Was no budget given?"""

    def __post_init__(self) -> None:
        for strategy in self.strategies:
            _check_strategy(strategy)
        if not isinstance(self.budget, Budget):
            raise ValueError(  # noqa: TRY004 - as for all settings
                f"the budget must be a refold.Budget(trigger, target), not {self.budget!r}"
            )
        if not all(hasattr(self.store, name) for name in ("load", "save", "remove", "version")):
            raise ValueError(
                "the store must be one, such as refold.SQLiteStore('refold.db'), "
                f"not {self.store!r}"
            )
        require_callable_or_none(before=self.before, after=self.after, on_event=self.on_event)

    @cached_property
    def local(self) -> tuple[Strategy, ...]:
        """The strategies that edit each message at first sight."""
        return tuple(strategy for strategy in self.strategies if is_local(strategy))

    @cached_property
    def retrospective(self) -> tuple[Strategy, ...]:
        """The strategies that run when the budget says so, gentlest first."""
        return tuple(strategy for strategy in self.strategies if not is_local(strategy))

    @cached_property
    def local_names(self) -> frozenset[str]:
        """What the edits of local strategies have as `by`."""
        return frozenset(map(repr, self.local))

    def is_first_sight(self, edit: Edit) -> bool:
        """Was *edit* made before the model saw what it hides?"""
        return edit.by == BY_HOOK or edit.by in self.local_names

    def fit(self, view: View) -> "Settings":
        """Return these settings, with defaults that come down to what fits *view*."""
        if not (self.has_default_strategies or self.has_default_budget):
            return self
        given = None if self.has_default_budget else self.budget.target
        goal = given if isinstance(given, int) else default_goal(view)
        if goal not in self._fitting:
            strategies = (
                default_strategies(goal) if self.has_default_strategies else self.strategies
            )
            budget = default_budget(goal) if self.has_default_budget else self.budget
            self._fitting[goal] = replace(
                self,
                strategies=strategies,
                budget=budget,
                has_default_strategies=False,
                has_default_budget=False,
            )
        return self._fitting[goal]

    @cached_property
    def _fitting(self) -> dict[int, "Settings"]:
        """Settings that were made to fit, by their goal."""
        return {}

    def emit(self, event: Event) -> None:
        """Pass an event on to the listener."""
        if self.on_event is not None:
            call_safely(self.on_event, event)

    def record(self, rows: Sequence[LedgerRow]) -> None:
        """Write rows into the ledger; a ledger that fails is logged."""
        if self.ledger is not None:
            call_safely(self.ledger.record, rows)


def _check_strategy(strategy: Strategy) -> None:
    if isinstance(strategy, type) or not callable(strategy):
        raise ValueError(  # noqa: TRY004 - as for all settings
            "a strategy is given with its settings, such as ClearToolResults(keep=3), "
            f"not as {strategy!r}"
        )
    if is_local(strategy) and not _accepts_since(strategy):
        raise ValueError(
            "a local strategy takes a view and `since`, where new messages begin; "
            f"{strategy!r} does not"
        )


def _accepts_since(strategy: Strategy) -> bool:
    try:
        signature(strategy).bind(None, 0)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # builtins have no signature to look at
    return True


# --- the default strategies ---------------------------------------------------------------------


def budget_for(model: str) -> Budget:
    """Return the default budget. Logs a warning if it can do nothing for the *model* that is
    named."""
    if model and (table := find_window(model)).window is None:
        _log.warning("%s: give a budget, else nothing of it is compacted", table.reason)
    return default_budget()


def default_strategies(target: int | None = None) -> tuple[Strategy, ...]:
    """Return what `refold.compact` and the command line use by default, gentlest first.

    *target* is the number of tokens to come down to, by default the budget's. Two fifths of it, at
    most 6,000 tokens, go to a summary, the rest to the newest messages, so that little of it goes
    unused. Summaries come before the clearing of results: on recorded sessions that keeps more of
    what later calls use at the same size (docs/benchmarks.md).
    """
    return (
        DropDuplicates(),
        ClipResults(limit=50_000),
        ClearThinking(keep=2),
        SummarizeTo(None if target is None else max(1, target)),
        ClearToolResults(keep=3),
        ClearToolInputs(keep=3),
        Summarize(keep=8, max_tokens=summary_room(target)),
    )


def summary_room(target: int | None) -> int:
    """Return the cap of the last summary in a request of *target* tokens: a fifth of them, from 600
    to 3,000, as `SummarizeTo` takes at least."""
    return 3_000 if target is None else max(600, min(3_000, target // 5))
