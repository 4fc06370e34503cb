"""What a view sends: unedited runs of the transcript, and what edits show between them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from refold.edits import Edit
from refold.messages import Message


class RenderedMessage(NamedTuple):
    """A message to send, and the position of the message it stands for, if it stands for one."""

    message: Message
    origin: int | None


Segment = slice | list[RenderedMessage]
"""An unedited run; or one entry to send, made of one message or of neighbours of one role."""


def render(
    messages: Sequence[Message], edits: Iterable[Edit], *, alternate: bool
) -> Iterator[Segment]:
    """Yield what to send of *messages* under *edits*, which stand apart and come in order.

    With *alternate*, neighbours of one role that an edit brought together become one entry
    (AN-4); those that stood side by side in the transcript stay as they are.
    """
    segments: list[Segment] = []  # the last may still become longer
    at = 0
    for edit in edits:
        _add_run(segments, messages, slice(at, edit.start), alternate)
        for rendered in _render_edit(messages, edit):
            _add(segments, messages, rendered, alternate)
        at = edit.stop
        yield from segments[:-1]
        del segments[:-1]
    _add_run(segments, messages, slice(at, len(messages)), alternate)
    yield from segments


def join_messages(entry: Sequence[RenderedMessage]) -> Message:
    """Join the messages of one entry."""
    if len(entry) == 1:
        return entry[0].message
    parts = chain.from_iterable(rendered.message.parts for rendered in entry)
    return Message(entry[0].message.role, tuple(parts))


def has_same_shape(first: Message, second: Message) -> bool:
    """Do two messages make and answer the same calls, in the same role?"""
    return (
        first.role == second.role
        and first.calls == second.calls
        and first.results == second.results
    )


def _add_run(
    segments: list[Segment], messages: Sequence[Message], run: slice, alternate: bool
) -> None:
    """Add an unedited run; its first message joins an edited neighbour of its role."""
    if run.start < run.stop and segments and alternate:
        first = RenderedMessage(messages[run.start], run.start)
        if _meet(_last(segments[-1], messages), first):
            _add(segments, messages, first, alternate)
            run = slice(run.start + 1, run.stop)
    if run.start < run.stop:
        segments.append(run)


def _add(
    segments: list[Segment],
    messages: Sequence[Message],
    rendered: RenderedMessage,
    alternate: bool,
) -> None:
    """Add a message as an entry, or to the entry before it."""
    if not (alternate and segments and _meet(last := _last(segments[-1], messages), rendered)):
        segments.append([rendered])
        return
    before = segments.pop()
    if isinstance(before, slice):
        if before.start < before.stop - 1:
            segments.append(slice(before.start, before.stop - 1))
        before = [last]
    segments.append([*before, rendered])


def _last(segment: Segment, messages: Sequence[Message]) -> RenderedMessage:
    if isinstance(segment, slice):
        return RenderedMessage(messages[segment.stop - 1], segment.stop - 1)
    return segment[-1]


def _meet(first: RenderedMessage, second: RenderedMessage) -> bool:
    """Did an edit bring two messages of one role together?"""
    apart_before = first.origin is None or second.origin != first.origin + 1
    return apart_before and first.message.role == second.message.role


def _render_edit(messages: Sequence[Message], edit: Edit) -> list[RenderedMessage]:
    """Return each inserted message with the position of the one it stands for."""
    span, start = messages[edit.start : edit.stop], edit.start
    if len(edit.insert) == len(span) and all(map(has_same_shape, edit.insert, span)):
        return [RenderedMessage(message, start + k) for k, message in enumerate(edit.insert)]
    origins = (start + span.index(message) if message in span else None for message in edit.insert)
    return list(map(RenderedMessage, edit.insert, origins))
