"""What stands at a position of a view, and whether showing something else is smaller."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Part, Text

NOTHING = Text("")


class Stand(NamedTuple):
    """A message of the transcript that the view still shows as one message."""

    at: int
    message: Message
    """What is shown: the message as it was said, or what an edit swapped in."""
    tokens: int
    by: str
    """What made the edit that shows it; empty for a message as it was said."""


def untouched(view: View, since: int) -> Iterator[tuple[int, Message]]:
    """Positions from *since* on that no edit covers, with their messages, in the time of what is there."""
    said, at = view.transcript.messages, since
    for index in range(bisect_right(view.top, since, key=lambda placed: placed.edit.stop), len(view.top)):
        edit = view.top[index].edit
        if at < edit.start:
            yield from enumerate(said[at : edit.start], at)
        at = max(at, edit.stop)
    yield from enumerate(said[at:], at)


def standing(view: View) -> Iterator[Stand]:
    """What stands after the last fold of several messages: what a summary hides or shows is done
    with (conformance case 26)."""
    start = folded(view)
    placed = {p.edit.start: p for p in view.top if p.edit.start >= start}
    sums = pairwise(view.ground.sums[start:])
    for at, (message, (before, after)) in enumerate(zip(view.transcript.messages[start:], sums, strict=True), start):
        swap = placed.get(at)
        if swap is None:
            yield Stand(at, message, after - before, "")
        elif len(swap.edit.insert) == 1:
            yield Stand(at, swap.edit.insert[0], swap.tokens, swap.edit.by)


def folded(view: View) -> int:
    """Where the last fold of several messages ends, such as a summary; 0 without one."""
    return next((p.edit.stop for p in reversed(view.top) if p.edit.stop - p.edit.start > 1), 0)


def with_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    """A message with each part changed, and without empty texts, which no edit may show."""
    changed = map(change, message.parts)
    return Message(message.role, tuple([part for part in changed if part != NOTHING]))


def smaller(view: View, stand: Stand, message: Message, by: str) -> Iterable[Edit]:
    """The edit that shows *message* instead, if that takes fewer tokens."""
    if message.parts and view.lens.count(message) < stand.tokens:
        yield view.swap(stand.at, message, by)
