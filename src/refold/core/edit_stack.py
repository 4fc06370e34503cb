"""Edits on a transcript: which are visible, how many tokens remain, and what is sent."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from refold.core.profile import CountedTranscript
from refold.edits import Edit
from refold.errors import EditError
from refold.messages import Media, Message, Text, Thinking, user
from refold.rules.request import may_open

_BEFORE = user("what stands before an edit that begins with an answer")


class VisibleEdit(NamedTuple):
    """An edit that no other edit covers, with the tokens of its inserted messages."""

    edit: Edit
    tokens: int


class EditStack:
    """A mutable builder of views. Adding an edit that shows costs time for that edit only."""

    def __init__(
        self,
        base: CountedTranscript,
        edits: tuple[Edit, ...],
        visible_edits: tuple[VisibleEdit, ...],
        estimate: int,
    ) -> None:
        self.base, self.estimate = base, estimate
        self.edits, self.visible_edits = list(edits), list(visible_edits)
        self._starts = [visible.edit.start for visible in visible_edits]

    @property
    def tokens(self) -> int:
        """Tokens of the request, as in `View.tokens`."""
        return self.base.profile.calibrate(self.tokens_uncalibrated)

    @property
    def tokens_uncalibrated(self) -> int:
        """As in `View.tokens_uncalibrated`."""
        return self.base.profile.fixed_tokens + self.estimate

    def add(self, edit: Edit, tokens: int | None = None, *, smaller: bool = False) -> None:
        """Add *edit*, or raise `EditError` and change nothing. *tokens* are those of its insert; if
        given, the edit is not checked again. With *smaller*, an edit that does not make the view
        smaller is refused too."""
        if tokens is None:
            check_edit(self.base, edit)
        first = bisect_left(self._starts, edit.start)
        last = bisect_left(self._starts, edit.stop)
        if first and self.visible_edits[first - 1].edit.stop > edit.start:
            first -= 1
        covered = self.visible_edits[first:last]
        if len(covered) == 1 and _is_inside(edit, covered[0].edit):
            self._refuse_crossing(edit)
            _refuse_growth(edit, 0, smaller)
            self.edits.append(edit)
            return
        before = self.base.tokens(edit.start, edit.stop)
        for hidden, hidden_tokens in covered:
            if not _covers(edit, hidden):
                raise EditError(f"{_describe(edit)} cuts through another edit")
            before += hidden_tokens - self.base.tokens(hidden.start, hidden.stop)
        after = sum(map(self.base.profile.count, edit.insert)) if tokens is None else tokens
        _refuse_growth(edit, after - before, smaller)
        self.edits.append(edit)
        self.visible_edits[first:last] = [VisibleEdit(edit, after)]
        self._starts[first:last] = [edit.start]
        self.estimate += after - before

    def _refuse_crossing(self, edit: Edit) -> None:
        for below in self.edits if edit.stop - edit.start > 1 else ():  # no cut inside a message
            first, second = sorted((edit, below), key=lambda each: each.start)
            if first.start < second.start < first.stop < second.stop:
                raise EditError(f"{_describe(edit)} cuts through edit {below.id}")


def check_edit(base: CountedTranscript, edit: Edit) -> None:
    """Raise `EditError` unless the edit belongs to this history and keeps it valid."""
    if not base.transcript.matches(edit):
        raise EditError(f"{_describe(edit)} was made for another history")
    span = base.transcript.messages[edit.start : edit.stop]
    if base.profile.has_empty(edit.insert, span):
        raise EditError(f"edit {edit.id} shows an empty message or text")
    if len(span) == len(edit.insert) and all(map(has_same_shape, span, edit.insert)):
        return
    if not {edit.start, edit.stop} <= base.cuts:
        raise EditError(f"{_describe(edit)} parts what belongs together")
    _check_insert(base, edit)


def _check_insert(base: CountedTranscript, edit: Edit) -> None:
    rules, messages = base.profile.rules, base.transcript.messages
    if rules.alternate and edit.start == 0 and not may_open(edit.insert):
        raise EditError(f"edit {edit.id} hides the beginning and must show a user message instead")
    if any(message.calls or message.results for message in edit.insert):
        shown = base.compute_under(edit, "what it shows", partial(_render_edit, messages, edit))
        rendering = _Rendering(messages, rules.alternate)
        first = () if may_open(edit.insert) else (RenderedMessage(_BEFORE, None),)
        for rendered in (*first, *shown):
            rendering.add(rendered)
        sent = [*flatten(rendering.pieces, messages)]
        if not {0, len(sent)} <= rules.cuts(sent) or rules.check(sent):
            raise EditError(f"edit {edit.id} shows calls and results that do not pair")


def _refuse_growth(edit: Edit, growth: int, smaller: bool) -> None:
    if smaller and growth >= 0:
        raise EditError(f"{_describe(edit)} makes nothing smaller")


def _describe(edit: Edit) -> str:
    return f"edit {edit.id} ({edit.start}:{edit.stop})"


def _covers(outer: Edit, inner: Edit) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _is_inside(inner: Edit, outer: Edit) -> bool:
    """Return whether *inner* is strictly inside *outer*'s span."""
    return _covers(outer, inner) and (outer.start, outer.stop) != (inner.start, inner.stop)


# --- what is sent: unedited runs of the transcript, and what edits show between them ------------


class RenderedMessage(NamedTuple):
    """A message to send, with the position of the transcript message that it stands for, if any."""

    message: Message
    origin: int | None


Piece = slice | list[RenderedMessage]
"""An unedited run of the transcript, or one entry to send: a message, or neighbours of one role."""


def render(base: CountedTranscript, edits: Iterable[Edit]) -> Iterator[Piece]:
    """Yield the pieces to send of a transcript under *edits*, which are disjoint and sorted.

    If roles alternate, messages of one role that an edit made neighbours become one entry, and a
    system message that it moved stands between the user's and the model's next message (AN-4).
    Neighbours in the transcript itself stay separate.
    """
    messages = base.transcript.messages
    rendering, at = _Rendering(messages, base.profile.rules.alternate), 0
    for edit in edits:
        rendering.add_run(at, edit.start)
        shown = base.compute_under(edit, "what it shows", partial(_render_edit, messages, edit))
        for rendered in shown:
            rendering.add(rendered)
        at = edit.stop
        yield from rendering.take_settled()
    rendering.add_run(at, len(messages))
    yield from rendering.pieces
    yield from map(rendering.as_piece, rendering.waiting)


def flatten(pieces: Iterable[Piece], messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages of *pieces*, the messages of one entry joined."""
    for piece in pieces:
        if isinstance(piece, slice):
            yield from messages[piece]
        else:
            first, *rest = (rendered.message for rendered in piece)
            parts = chain(first.parts, *(message.parts for message in rest))
            yield Message(first.role, tuple(parts)) if rest else first


def has_same_shape(first: Message, second: Message) -> bool:
    """Return whether two messages have the same role, calls and results."""
    return (first.role, first.calls, first.results) == (second.role, second.calls, second.results)


class _Rendering:
    """Pieces under construction. The last one may still grow."""

    def __init__(self, messages: Sequence[Message], alternate: bool) -> None:
        self.pieces = list[Piece]()
        self.waiting = list[RenderedMessage]()
        """System messages moved by an edit. They wait for the model's message after the user's."""
        self._messages, self._alternate = messages, alternate

    def add_run(self, start: int, stop: int) -> None:
        """Add an unedited run. Messages at the seam with an edit are added one by one."""
        while start < stop:
            first = RenderedMessage(self._messages[start], start)
            if not (self.waiting or self._is_met(first)):
                self.pieces.append(slice(start, stop))
                return
            self.add(first, slice(start, start + 1))
            start += 1

    def add(self, rendered: RenderedMessage, piece: Piece | None = None) -> None:
        """Add a message: to the last entry, as a new one (*piece*, if given), or to the waiting."""
        role, is_met = rendered.message.role, self._is_met(rendered)
        if role == "user" and is_met and self._end_of().message.role == "system":
            self._lift_system()
            is_met = self._is_met(rendered)
        if role == "system" and (is_met or self.waiting):
            self.waiting.append(rendered)
            return
        if role == "assistant" and self.waiting and self._end_of().message.role != role:
            self.pieces += map(self.as_piece, self.waiting)
            self.waiting.clear()
        if not is_met:
            self.pieces.append(piece or [rendered])
            return
        self.pieces.append([*self._take_last(), rendered])

    def as_piece(self, rendered: RenderedMessage) -> Piece:
        """Return a message as a slice of the transcript if it is unchanged there, else a list."""
        message, at = rendered
        return [rendered] if at is None or self._messages[at] != message else slice(at, at + 1)

    def _is_met(self, rendered: RenderedMessage) -> bool:
        """Return whether an edit moved the message next to one that it must join or not follow."""
        if not (self._alternate and self.pieces):
            return False
        last, role = self._end_of(), rendered.message.role
        apart_before = last.origin is None or rendered.origin != last.origin + 1
        is_led = last.message.role == "system" and role == "user"
        return apart_before and (role in (last.message.role, "system") or is_led)

    def _lift_system(self) -> None:
        """Make the system messages at the end wait, because a user message follows."""
        lifted = list[RenderedMessage]()
        while self.pieces and self._end_of().message.role == "system":
            lifted[:0] = self._take_last()
        self.waiting[:0] = lifted

    def _take_last(self) -> list[RenderedMessage]:
        """Remove the last entry and return its messages."""
        last, piece = self._end_of(), self.pieces.pop()
        if not isinstance(piece, slice):
            return piece
        if piece.start < piece.stop - 1:
            self.pieces.append(slice(piece.start, piece.stop - 1))
        return [last]

    def take_settled(self) -> list[Piece]:
        """Remove and return the final pieces: all before the last that is no system message."""
        open_count = 1
        while open_count < len(self.pieces) and self._end_of(-open_count).message.role == "system":
            open_count += 1
        settled, self.pieces = self.pieces[:-open_count], self.pieces[-open_count:]
        return settled

    def _end_of(self, place: int = -1) -> RenderedMessage:
        piece = self.pieces[place]
        if isinstance(piece, slice):
            return RenderedMessage(self._messages[piece.stop - 1], piece.stop - 1)
        return piece[-1]


def _render_edit(messages: Sequence[Message], edit: Edit) -> list[RenderedMessage]:
    """Return each inserted message with the position of the message it stands for, or None."""
    span, start = messages[edit.start : edit.stop], edit.start
    if len(edit.insert) == len(span) and all(map(has_same_shape, edit.insert, span)):
        return [RenderedMessage(message, start + k) for k, message in enumerate(edit.insert)]
    places = dict[Message, int]()
    for at in _find_repeated(span, frozenset(edit.insert)):
        places.setdefault(span[at], start + at)
    rendered, place = list[RenderedMessage](), None
    for message in edit.insert:
        if place is not None and place + 1 < edit.stop and messages[place + 1] == message:
            place += 1  # of equal messages, the one of the same turn, which has its ids (OA-4)
        else:
            place = places.get(message, _find_media(message, span, start))
        rendered.append(RenderedMessage(message, place))
    return rendered


def _find_repeated(span: Sequence[Message], inserted: frozenset[Message]) -> Iterator[int]:
    """Yield the positions in *span* of messages equal to those *inserted*. An answer without its
    reasoning is not equal: by its id the API knows that it had some (OA-4)."""
    roles, is_bare = {message.role for message in inserted}, False
    for at, message in enumerate(span):
        kinds = {type(part) for part in message.parts}
        if message.role != "assistant":
            is_bare = False
        elif kinds == {Thinking}:
            is_bare = message not in inserted
        if message.role in roles and message in inserted and not (is_bare and kinds <= {Text}):
            yield at


def _find_media(message: Message, span: Sequence[Message], start: int) -> int | None:
    """Return the position of the first message that has all media of *message*, such as a request
    that shared an entry with a summary, or None. Only that entry has their bytes."""
    media = {part for part in message.parts if isinstance(part, Media)}
    places = enumerate(span if media else (), start)
    return next((at for at, whole in places if media.issubset(whole.parts)), None)
