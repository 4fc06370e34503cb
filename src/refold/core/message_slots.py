"""Messages that a strategy may replace one by one, and the edits that make them smaller."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from refold.core.tool_groups import ToolGroup, group_calls
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Part, Text

EMPTY_TEXT = Text("")


class MessageSlot(NamedTuple):
    """A message of the transcript that the view still shows as one message."""

    at: int
    message: Message
    """What is shown: the message itself, or what an edit shows instead."""
    tokens: int
    by: str
    """What made the edit that shows it; empty for an unedited message."""


def iter_slots(view: View) -> Iterator[MessageSlot]:
    """Yield what stands after the last fold: a summary is done with (conformance case 26)."""
    start = last_fold_end(view)
    visible = {v.edit.start: v for v in view.visible_edits if v.edit.start >= start}
    sums = pairwise(view.base.token_sums[start:])
    messages = zip(view.transcript.messages[start:], sums, strict=True)
    for at, (message, (before, after)) in enumerate(messages, start):
        if at not in visible:
            yield MessageSlot(at, message, after - before, "")
            continue
        edit, tokens = visible[at]
        if len(edit.insert) == 1:
            yield MessageSlot(at, edit.insert[0], tokens, edit.by)


def last_fold_end(view: View) -> int:
    """Return where the last fold of several messages ends, such as a summary; 0 without one."""
    edits = (visible.edit for visible in reversed(view.visible_edits))
    return next((edit.stop for edit in edits if edit.stop - edit.start > 1), 0)


def find_tool_groups(view: View) -> list[ToolGroup]:
    """Return the tool groups after the last fold, oldest first."""
    start = last_fold_end(view)
    return group_calls(view.transcript.messages[start:], start)


def map_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    """Change each part of a message; empty texts go, which no edit may show."""
    parts = map(change, message.parts)
    return Message(message.role, tuple([part for part in parts if part != EMPTY_TEXT]))


def replace_if_smaller(view: View, slot: MessageSlot, message: Message, by: str) -> Iterable[Edit]:
    """Yield the edit that shows *message* in *slot*, if that takes fewer tokens."""
    if message.parts and view.profile.count(message) < slot.tokens:
        yield view.replace(slot.at, message, by)
