"""Pins: messages, and words in messages, that stay visible whatever is compacted."""

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
"""Line above words that are quoted beside a summary."""


def pin_messages(strategy: Strategy, pin: Callable[[Message], bool]) -> Strategy:
    """Return *strategy* changed to keep messages accepted by *pin* visible. A summary has them
    beside it. Edits of other strategies that would hide them are dropped."""
    if isinstance(strategy, KeepImportant):
        inner: Strategy = replace(strategy, strategy=pin_messages(strategy.strategy, pin))
        return inner
    if hasattr(strategy, "pin"):
        pinned: Strategy = replace(strategy, pin=pin)  # type: ignore[type-var]
        return pinned

    def spare(view: View, edit: Edit) -> Edit | None:
        hidden = view.transcript.messages[edit.start : edit.stop]
        beside = map(without_summary, edit.insert)  # a summary's text is no pinned message
        return None if sum(map(pin, beside)) < sum(map(pin, hidden)) else edit

    return _changing(strategy, spare)


def pin_words(strategy: Strategy, words: Sequence[str]) -> Strategy:
    """Return *strategy* changed to keep *words* visible. An edit that would hide some of them
    quotes them, and is dropped if it has no place for a quotation."""
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
    """Return *strategy* with each edit replaced by *change*, or dropped."""

    def run(strategy: Any, view: View, *since: int) -> Steps:
        return change_edits(strategy(view, *since), partial(change, view))

    return Wrapped(strategy, run)


def add_words(edit: Edit, text: str) -> Edit | None:
    """Return *edit* with *text* added to the last user message without results that it shows; None
    if it shows none."""
    shown = list(edit.insert)
    for place in reversed(range(len(shown))):
        if shown[place].role == "user" and not shown[place].results:
            shown[place] = replace(shown[place], parts=(*shown[place].parts, Text(text)))
            return replace(edit, insert=tuple(shown))
    return None


# --- kept in a store ------------------------------------------------------------------------------


WHOLE_MESSAGE_BY = "pin message"
"""Prefix of `by` in pins of whole messages. Other pins are of words."""


def is_whole(pin: Edit) -> bool:
    """Return whether a pin is of a whole message."""
    return pin.by.startswith(WHOLE_MESSAGE_BY)


def find_pinned(pin: Edit, messages: Iterable[Message]) -> int | None:
    """Return the index of the first of *messages* that *pin* is for, or None."""
    (shown,) = pin.insert
    is_meant = partial(eq, shown) if is_whole(pin) else Says((shown.text,))
    return next((at for at, message in enumerate(messages) if is_meant(message)), None)


class Pins:
    """The pins of one conversation, in the store of its edits. Each is an edit whose insert is the
    pinned content, under a tip made from the conversation's name, so that every process finds it.
    They are read when a strategy runs, not with every request. Methods raise `StoreError`."""

    def __init__(self, store: Store, conversation: str) -> None:
        self._store = store
        self._tip = blake2b(f"pin {conversation}".encode(), digest_size=16).hexdigest()
        self.latest: Sequence[Edit] = ()
        """The pins as last read."""

    def load(self) -> Sequence[Edit]:
        """Return all pins, oldest first."""
        self.latest = tuple(self._store.load((self._tip,)))
        return self.latest

    def add(self, at: int, message: Message, words: str = "") -> Edit:
        """Pin *words* of the message at position *at*, or the whole message if *words* is empty.
        Return the pin."""
        shown = Message("user", (Text(words),)) if words else message
        by = f"{'pin' if words else WHOLE_MESSAGE_BY} {hash_message(shown).hex()}"
        pin = Edit(at, at + 1, (shown,), self._tip, by)
        self._store.save((pin,))
        return pin

    def remove(self, id: str) -> bool:
        """Remove the pin with this full id and return whether it existed."""
        is_there = any(pin.id == id for pin in self.load())
        if is_there:
            self._store.remove((id,))
        return is_there


def keep_pinned(
    strategies: Iterable[Strategy], pins: Pins | None, *, reads: bool = True
) -> tuple[Strategy, ...]:
    """Return *strategies* changed to keep pinned content visible; local ones, and all without
    *pins*, stay as they are. Without *reads* the pins as last read are used."""
    if pins is None:
        return tuple(strategies)
    run = partial(_keep_in_sight, pins.load if reads else lambda: pins.latest)
    return tuple(
        strategy if is_local(strategy) else Wrapped(strategy, run) for strategy in strategies
    )


def _keep_in_sight(load: Callable[[], Sequence[Edit]], strategy: Strategy, view: View) -> Steps:
    """Propose the edits of *strategy* that hide nothing pinned at the time it runs."""
    pins = load()
    if whole := frozenset(pin.insert[0] for pin in pins if is_whole(pin)):
        inner = getattr(strategy, "strategy", strategy)  # `KeepImportant` has one
        strategy = pin_messages(strategy, _IsPinned(whole, getattr(inner, "pin", None)))
    if words := [pin.insert[0].text for pin in pins if not is_whole(pin)]:
        strategy = pin_words(strategy, words)
    return (yield from strategy(view))


@dataclass(frozen=True)
class _IsPinned:
    """A predicate: the message is pinned, or *also* accepts it. Its repr quotes no message."""

    messages: frozenset[Message]
    also: Any

    def __repr__(self) -> str:
        return "is_pinned"

    def __call__(self, message: Message) -> bool:
        return message in self.messages or bool(self.also and self.also(message))
