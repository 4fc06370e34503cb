"""What stays in sight in a conversation, whatever is compacted: messages, and words in messages."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from operator import eq
from typing import Any

from refold.core.strategy import Steps, Strategy, Wrapped, change_edits, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Text
from refold.scorers.scorer import Says
from refold.stores.store import Store
from refold.strategies import KeepImportant
from refold.text.summary_wrapper import without_summary
from refold.transcript import hash_message

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
        beside = map(without_summary, edit.insert)  # a summary's own words stand for no message
        return None if sum(map(pin, beside)) < sum(map(pin, hidden)) else edit

    return _changing(strategy, spare)


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

    return _changing(strategy, quote)


def _changing(strategy: Strategy, change: Callable[[View, Edit], Edit | None]) -> Strategy:
    """Return *strategy* with other edits in place of its own, or none."""

    def run(strategy: Any, view: View, *since: int) -> Steps:
        return change_edits(strategy(view, *since), partial(change, view))

    return Wrapped(strategy, run)


def add_words(edit: Edit, text: str) -> Edit | None:
    """Return *edit* with *text* in the last of its messages that may carry it; None if none may."""
    shown = list(edit.insert)
    for place in reversed(range(len(shown))):
        if shown[place].role == "user" and not shown[place].results:
            shown[place] = replace(shown[place], parts=(*shown[place].parts, Text(text)))
            return replace(edit, insert=tuple(shown))
    return None


# --- kept in a store ------------------------------------------------------------------------------


WHOLE = "pin message"
"""Begins the maker of edits that stand for whole messages; others are for words."""


def is_whole(pin: Edit) -> bool:
    """Does a pin stand for a whole message, not for words?"""
    return pin.by.startswith(WHOLE)


def find_pinned(pin: Edit, messages: Iterable[Message]) -> int | None:
    """Return the place of the first of *messages* that *pin* stands for; None if there is none."""
    (shown,) = pin.insert
    is_meant = partial(eq, shown) if is_whole(pin) else Says((shown.text,))
    return next((at for at, message in enumerate(messages) if is_meant(message)), None)


class Pins:
    """The pins of one conversation, in the store of its edits: each an edit whose insert is what
    stays, under a tip of their own, so that every process finds them in any store. They are read
    when a strategy runs, not with every request. Methods raise `StoreError`."""

    def __init__(self, store: Store, conversation: str) -> None:
        self._store = store
        self._tip = blake2b(f"pin {conversation}".encode(), digest_size=16).hexdigest()
        self.latest: Sequence[Edit] = ()
        """As they were read last."""

    def load(self) -> Sequence[Edit]:
        """Return them, the oldest first."""
        self.latest = tuple(self._store.load((self._tip,)))
        return self.latest

    def add(self, at: int, message: Message, words: str = "") -> Edit:
        """Keep *words* of the message at *at* in sight; the whole message if they are empty."""
        shown = Message("user", (Text(words),)) if words else message
        by = f"{'pin' if words else WHOLE} {hash_message(shown).hex()}"
        pin = Edit(at, at + 1, (shown,), self._tip, by)
        self._store.save((pin,))
        return pin

    def remove(self, id: str) -> bool:
        """Take one back; return whether there was such a pin."""
        is_there = any(pin.id == id for pin in self.load())
        if is_there:
            self._store.remove((id,))
        return is_there


def keep_pinned(
    strategies: Iterable[Strategy], pins: Pins | None, *, reads: bool = True
) -> tuple[Strategy, ...]:
    """Return *strategies* as they keep what is pinned in sight; local ones as they are. Without
    *reads* the pins that were read last count."""
    if pins is None:
        return tuple(strategies)
    run = partial(_keep_in_sight, pins.load if reads else lambda: pins.latest)
    return tuple(
        strategy if is_local(strategy) else Wrapped(strategy, run) for strategy in strategies
    )


def _keep_in_sight(load: Callable[[], Sequence[Edit]], strategy: Strategy, view: View) -> Steps:
    """Propose what *strategy* does, if nothing goes that is pinned when it runs."""
    pins = load()
    if whole := frozenset(pin.insert[0] for pin in pins if is_whole(pin)):
        inner = getattr(strategy, "strategy", strategy)  # `KeepImportant` has one
        strategy = pin_messages(strategy, _IsPinned(whole, getattr(inner, "pin", None)))
    if words := [pin.insert[0].text for pin in pins if not is_whole(pin)]:
        strategy = pin_words(strategy, words)
    return (yield from strategy(view))


@dataclass(frozen=True)
class _IsPinned:
    """Is a message pinned, or does what pins besides accept it? No name quotes it."""

    messages: frozenset[Message]
    also: Any

    def __repr__(self) -> str:
        return "is_pinned"

    def __call__(self, message: Message) -> bool:
        return message in self.messages or bool(self.also and self.also(message))
