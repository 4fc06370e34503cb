"""What stands at a position of a view, and whether showing something else is smaller."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Part, Text

EMPTY_TEXT = Text("")


class MessageSlot(NamedTuple):
    """A message of the transcript that the view still shows as one message."""

    at: int
    message: Message
    """What is shown: the message as it was said, or what an edit swapped in."""
    tokens: int
    by: str
    """What made the edit that shows it; empty for a message as it was said."""


def iter_unedited(view: View, since: int) -> Iterator[tuple[int, Message]]:
    """Positions from *since* on that no edit covers, with their messages, in the time of what is there."""
    said, at = view.transcript.messages, since
    for index in range(
        bisect_right(view.visible_edits, since, key=lambda placed: placed.edit.stop), len(view.visible_edits)
    ):
        edit = view.visible_edits[index].edit
        if at < edit.start:
            yield from enumerate(said[at : edit.start], at)
        at = max(at, edit.stop)
    yield from enumerate(said[at:], at)


def iter_slots(view: View) -> Iterator[MessageSlot]:
    """What stands after the last fold of several messages: what a summary hides or shows is done
    with (conformance case 26)."""
    start = last_fold_end(view)
    placed = {p.edit.start: p for p in view.visible_edits if p.edit.start >= start}
    sums = pairwise(view.base.token_sums[start:])
    for at, (message, (before, after)) in enumerate(zip(view.transcript.messages[start:], sums, strict=True), start):
        swap = placed.get(at)
        if swap is None:
            yield MessageSlot(at, message, after - before, "")
        elif len(swap.edit.insert) == 1:
            yield MessageSlot(at, swap.edit.insert[0], swap.tokens, swap.edit.by)


def last_fold_end(view: View) -> int:
    """Where the last fold of several messages ends, such as a summary; 0 without one."""
    return next((p.edit.stop for p in reversed(view.visible_edits) if p.edit.stop - p.edit.start > 1), 0)


def map_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    """A message with each part changed, and without empty texts, which no edit may show."""
    changed = map(change, message.parts)
    return Message(message.role, tuple([part for part in changed if part != EMPTY_TEXT]))


def replace_if_smaller(view: View, stand: MessageSlot, message: Message, by: str) -> Iterable[Edit]:
    """The edit that shows *message* instead, if that takes fewer tokens."""
    if message.parts and view.profile.count(message) < stand.tokens:
        yield view.replace(stand.at, message, by)
