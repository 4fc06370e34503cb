"""Messages and words that stay in sight whatever is compacted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from refold.core.strategy import Steps, Strategy, change_edits, is_local, with_goal
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Text
from refold.scorers.scorer import Says
from refold.strategies import KeepImportant

QUOTED = "To be kept in sight, word for word:"
"""Stands before words that are quoted beside a summary."""


def pin_messages(strategy: Strategy, pin: Callable[[Message], bool]) -> Strategy:
    """Return *strategy*, which then leaves what *pin* accepts in sight: a summary has it beside it,
    another strategy proposes no edit that would hide it."""
    if isinstance(strategy, KeepImportant):
        inner: Strategy = replace(strategy, strategy=pin_messages(strategy.strategy, pin))
        return inner
    if hasattr(strategy, "pin"):
        pinned: Strategy = replace(strategy, pin=pin)  # type: ignore[type-var]
        return pinned

    def spare(view: View, edit: Edit) -> Edit | None:
        hidden = view.transcript.messages[edit.start : edit.stop]
        return None if any(map(pin, hidden)) and not any(map(pin, edit.insert)) else edit

    return _Changed(strategy, spare)


def pin_words(strategy: Strategy, words: Sequence[str]) -> Strategy:
    """Return *strategy*, which then leaves *words* in sight: an edit that would hide
    some quotes them; one that has no place for a quotation is left out."""
    pins = [(text, Says((text,))) for text in words]

    def quote(view: View, edit: Edit) -> Edit | None:
        hidden = view.transcript.messages[edit.start : edit.stop]
        missing = [
            text
            for text, says in pins
            if any(map(says, hidden)) and not any(map(says, edit.insert))
        ]
        return add_words(edit, "\n".join([QUOTED, *missing])) if missing else edit

    return _Changed(strategy, quote)


@dataclass(frozen=True)
class _Changed:
    """A strategy with other edits in place of its own, or none; named as it is."""

    strategy: Any
    change: Callable[[View, Edit], Edit | None]

    def __repr__(self) -> str:
        return repr(self.strategy)

    @property
    def local(self) -> bool:
        """As the strategy's own."""
        return is_local(self.strategy)

    def aim_at(self, goal: int) -> "_Changed":
        """Return the same with a strategy that comes down to *goal* tokens, if it can."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View, *since: int) -> Steps:
        """Propose what the strategy does, changed."""
        return change_edits(self.strategy(view, *since), partial(self.change, view))


def add_words(edit: Edit, text: str) -> Edit | None:
    """Return *edit* with *text* in the last of its messages that may carry it; None if none may."""
    shown = list(edit.insert)
    for place in reversed(range(len(shown))):
        if shown[place].role == "user" and not shown[place].results:
            shown[place] = replace(shown[place], parts=(*shown[place].parts, Text(text)))
            return replace(edit, insert=tuple(shown))
    return None
