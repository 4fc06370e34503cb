"""Lists that are compacted in place, with everything they ever said kept beside them."""

from collections.abc import Sequence
from typing import Any

REMEMBERED = 8
"""How many lists are known again."""


class Unabridged:
    """Knows what a list said before it was compacted in place, by how it begins now (C1-10, S4-24, X-5).

    A list that its owner changed otherwise than by adding to it is another list: what it says now is
    then all that is known. In this process only; give the whole history and a store to a
    `refold.Compactor` where that is not enough.
    """

    def __init__(self) -> None:
        self._known: tuple[tuple[list[Any], list[Any]], ...] = ()

    def said(self, messages: Sequence[Any]) -> list[Any]:
        """Everything that *messages* said, what was compacted away included."""
        for shown, said in self._known:
            if messages[: len(shown)] == shown:
                return [*said, *messages[len(shown) :]]
        return list(messages)

    def show(self, messages: list[Any], said: list[Any], payload: Sequence[Any]) -> None:
        """Let *messages*, which said *said*, show *payload* from now on."""
        before = next((one for one in self._known if messages[: len(one[0])] == one[0]), None)
        messages[:] = payload
        if len(payload) == len(said) and all(map(_same, payload, said)):
            return
        others = (one for one in self._known if one is not before)
        self._known = ((list(payload), said), *others)[:REMEMBERED]


def _same(one: Any, other: Any) -> bool:
    return one is other
