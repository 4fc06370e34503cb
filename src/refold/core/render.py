"""What a view sends: untouched runs of the transcript, and what edits show between them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from refold.edits import Edit
from refold.messages import Message


class RenderedMessage(NamedTuple):
    """A message to send, and the position of the one it stands for, if it stands for one."""

    message: Message
    origin: int | None


Segment = slice | list[RenderedMessage]
"""An untouched run; or one entry to send, made of one message or of neighbours of one role."""


def render(said: Sequence[Message], edits: Iterable[Edit], *, alternate: bool) -> Iterator[Segment]:
    """What to send of *said* under *edits*, which stand apart and come in order.

    With *alternate*, neighbours of one role that an edit brought together become one entry
    (AN-4); those that stood side by side in the transcript stay as they are.
    """
    pieces: list[Segment] = []  # what may still become longer: the last, while the next is laid
    at = 0
    for edit in edits:
        _lay(pieces, said, slice(at, edit.start), alternate)
        for one in _shown(said, edit):
            _add(pieces, said, one, alternate)
        at = edit.stop
        yield from pieces[:-1]
        del pieces[:-1]
    _lay(pieces, said, slice(at, len(said)), alternate)
    yield from pieces


def join_messages(shown: Sequence[RenderedMessage]) -> Message:
    """An entry's messages as one."""
    if len(shown) == 1:
        return shown[0].message
    return Message(shown[0].message.role, tuple(chain.from_iterable(one.message.parts for one in shown)))


def has_same_shape(one: Message, other: Message) -> bool:
    """Do two messages make and answer the same calls, in the same role?"""
    return one.role == other.role and one.calls == other.calls and one.results == other.results


def _lay(pieces: list[Segment], said: Sequence[Message], run: slice, alternate: bool) -> None:
    """Add an untouched run; its first message joins an edited neighbour of its role."""
    if run.start < run.stop and pieces and alternate:
        first = RenderedMessage(said[run.start], run.start)
        if _meet(_last(pieces[-1], said), first):
            _add(pieces, said, first, alternate)
            run = slice(run.start + 1, run.stop)
    if run.start < run.stop:
        pieces.append(run)


def _add(pieces: list[Segment], said: Sequence[Message], one: RenderedMessage, alternate: bool) -> None:
    """Add a message of its own, or to the entry before it."""
    if not (alternate and pieces and _meet(last := _last(pieces[-1], said), one)):
        pieces.append([one])
        return
    before = pieces.pop()
    if isinstance(before, slice):
        if before.start < before.stop - 1:
            pieces.append(slice(before.start, before.stop - 1))
        before = [last]
    pieces.append([*before, one])


def _last(piece: Segment, said: Sequence[Message]) -> RenderedMessage:
    return RenderedMessage(said[piece.stop - 1], piece.stop - 1) if isinstance(piece, slice) else piece[-1]


def _meet(left: RenderedMessage, right: RenderedMessage) -> bool:
    """Did an edit bring two messages of one role together?"""
    apart_before = left.origin is None or right.origin != left.origin + 1
    return apart_before and left.message.role == right.message.role


def _shown(said: Sequence[Message], edit: Edit) -> list[RenderedMessage]:
    """Each inserted message, with the position of the one it stands for."""
    span = said[edit.start : edit.stop]
    if len(edit.insert) == len(span) and all(map(has_same_shape, edit.insert, span)):
        return [RenderedMessage(message, edit.start + k) for k, message in enumerate(edit.insert)]
    return [
        RenderedMessage(message, edit.start + span.index(message) if message in span else None)
        for message in edit.insert
    ]
