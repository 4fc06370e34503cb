"""What somebody wants kept in sight in a conversation, whatever is compacted: messages, and words
in messages.

It stands in the store of edits, under a tip of its own, so that every process finds it in any
store. It is read when a strategy runs, not with every request.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from refold.compactor.pins import pin_messages, pin_words
from refold.core.strategy import Steps, Strategy, is_local, with_goal
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Text
from refold.stores.store import Store
from refold.transcript import hash_message

WHOLE = "pin message"
"""Makes the edits that stand for whole messages; others are for words."""


class Pins:
    """The pins of one conversation: each an edit whose insert is what stays. Methods raise
    `StoreError`."""

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
        by = f"pin {hash_message(shown).hex()}" if words else WHOLE
        pin = Edit(at, at + 1, (shown,), self._tip, by)
        self._store.save((pin,))
        return pin

    def remove(self, id: str) -> bool:
        """Take one back; return whether there was such a pin."""
        is_there = any(pin.id == id for pin in self.load())
        if is_there:
            self._store.remove((id,))
        return is_there


def heed_pins(
    strategies: Iterable[Strategy], pins: Pins | None, *, reads: bool = True
) -> tuple[Strategy, ...]:
    """Return *strategies* as they spare what is pinned; local ones as they are. Unless it *reads*
    they use what was read last."""
    return tuple(
        strategy if is_local(strategy) or pins is None else _Heeding(strategy, pins, reads)
        for strategy in strategies
    )


@dataclass(frozen=True)
class _Heeding:
    """A strategy that spares what is pinned when it runs; named as it is."""

    strategy: Any
    pins: Pins = field(compare=False)
    reads: bool

    def __repr__(self) -> str:
        return repr(self.strategy)

    def aim_at(self, goal: int) -> "_Heeding":
        """Return the same with a strategy that comes down to *goal* tokens, if it can."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy does, if nothing pinned goes."""
        pins = self.pins.load() if self.reads else self.pins.latest
        strategy: Strategy = self.strategy
        if whole := frozenset(pin.insert[0] for pin in pins if pin.by == WHOLE):
            inner = getattr(strategy, "strategy", strategy)  # `KeepImportant` has one
            strategy = pin_messages(strategy, _IsPinned(whole, getattr(inner, "pin", None)))
        if words := [pin.insert[0].text for pin in pins if pin.by != WHOLE]:
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
