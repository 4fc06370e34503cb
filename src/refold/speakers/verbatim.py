"""What of a conversation stays word for word when a part of it is hidden."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from refold.core.view import View
from refold.messages import Media, Message, Opaque, Text
from refold.speakers.carriers import OF_REQUEST
from refold.speakers.request import (
    Segmented,
    current_request,
    has_person,
    is_unknown_context,
    view_segments,
)
from refold.speakers.segments import LIFTED, Segment, without_numbers
from refold.text.summary_wrapper import without_summary
from refold.tokens.count import Counter as TokenCounter

UNKNOWN_SHARE = 5
"""Context of unknown kinds may take one part in so many of the room, the newest first."""
EXAMPLE = "example"
"""The kind of orders in the form of a dialogue: the answers belong to them."""


class Verbatim(NamedTuple):
    """What is shown beside a summary."""

    messages: tuple[tuple[int, Message], ...] = ()
    """In the order of the transcript, each with its position."""
    dialogue: tuple[tuple[int, Message], ...] = ()
    """Orders in the form of a dialogue, with the answers: they are shown before a summary."""
    request: frozenset[int] = frozenset()
    """Positions of the words of the current request."""
    omitted: int = 0
    """Segments that found no room: steering after the task, or context of unknown kinds."""


def find_verbatim(view: View, stop: int, room: int | None = None) -> Verbatim:
    """Find what of `messages[:stop]` stays word for word when it is hidden.

    That is the current request, every order, and the newest context of each kind. If the request
    was made in many messages, those between the task (the first) and the newest take at most *room*
    tokens (by default half of what the view shows), the newest first; what the person's editor
    showed beside it takes what they leave, and context of unknown kinds at most a fifth of the
    room. What a person or client says that finds no room is counted.
    """
    messages, spoken = view.transcript.messages, view_segments(view)
    room = view.estimate // 2 if room is None else max(0, room)
    asked = {} if _is_over(messages, stop) else current_request(messages, spoken)
    request_room, omitted = _TokenRoom(view.profile.count, room), 0
    context_room = _TokenRoom(view.profile.count, room // UNKNOWN_SHARE)
    chosen = dict[int, list[Segment]]()
    for at in sorted((at for at in asked if at < stop), reverse=True):
        if at not in (min(asked), max(asked)) and not request_room.takes(asked[at]):
            omitted += len(asked[at])
        else:
            chosen[at] = list(asked[at])
    for at in sorted(chosen, reverse=True):
        in_editor = [segment for segment in spoken[at] if segment.kind in OF_REQUEST]
        if in_editor and request_room.takes(in_editor):
            chosen[at] += in_editor
    for at, segment in _iter_standing(spoken):  # what is behind *stop* replaces, too
        if at >= stop or segment in chosen.get(at, ()):
            continue
        if is_unknown_context(segment) and not context_room.takes((segment,)):
            omitted += 1
        else:
            chosen.setdefault(at, []).append(segment)
    reduced = {at: _reduce_message(messages[at], own) for at, own in sorted(chosen.items())}
    examples = {at for at, own in chosen.items() if any(segment.kind == EXAMPLE for segment in own)}
    beside = tuple((at, message) for at, message in reduced.items() if at not in examples)
    dialogue = [(at, reduced[at]) for at in examples]
    answers = (at + 1 for at in examples if at + 1 < stop)
    dialogue += [(at, messages[at]) for at in answers if _is_answer(messages[at])]
    request = frozenset(asked) & chosen.keys()
    return Verbatim(beside, tuple(sorted(dialogue, key=itemgetter(0))), request, omitted)


@dataclass(slots=True)
class _TokenRoom:
    """Tokens that can still be used."""

    count: TokenCounter
    remaining: int

    def takes(self, spoken: Sequence[Segment]) -> bool:
        """Is there room for these? They use it; once there is none, older ones find none either."""
        texts = (Message("user", (Text(segment.text),)) for segment in spoken)
        self.remaining -= sum(map(self.count, texts))
        return self.remaining >= 0


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not message.calls


def _iter_standing(spoken: Segmented) -> Iterator[tuple[int, Segment]]:
    """Yield orders and context that nothing later repeats or replaces, with the positions of their
    messages, the latest first."""
    states, bodies = set[str](), set[str]()
    for at in reversed(range(len(spoken))):
        for segment in reversed(spoken[at]):
            is_order = segment.voice == "instruction"
            if segment.voice in ("person", "tool") or (not is_order and segment.kind in states):
                continue
            if segment.is_whole:
                states.add(segment.kind)
            body = segment.text if is_order else without_numbers(segment.text)
            if body not in bodies:
                bodies.add(body)
                yield at, segment


def _reduce_message(message: Message, chosen: Sequence[Segment]) -> Message:
    """Return *message* as far as it stays; itself if all of it does."""
    message = without_summary(message)
    by_part = dict[int, list[Segment]]()
    for segment in sorted(chosen, key=lambda segment: segment.part):
        by_part.setdefault(segment.part, []).append(segment)
    asks = has_person(chosen)
    parts = list[Text | Media | Opaque]()
    for at, part in enumerate(message.parts):
        if isinstance(part, Media) or (
            isinstance(part, Opaque) and not part.opens and not part.closes
        ):
            parts += [part] if asks or not message.text else []
        elif at in by_part:
            parts += _reduce_part(part.text if isinstance(part, Text) else "", by_part[at])
    reduced = Message("user" if message.results else message.role, tuple(parts))
    return message if reduced == message else reduced


def _reduce_part(whole: str, chosen: Sequence[Segment]) -> list[Text]:
    """Return what stays of one part, in its order."""
    ordered = sorted(chosen, key=lambda segment: whole.find(segment.text))
    texts = [
        f"{LIFTED}\n{segment.text}" if segment.is_lifted else segment.text for segment in ordered
    ]
    as_said = len("".join("".join(texts).split())) == len("".join(whole.split()))
    return [Text(whole)] if as_said else [Text("\n\n".join(text.strip("\n") for text in texts))]


def _is_over(messages: Sequence[Message], stop: int) -> bool:
    """Has the model answered everything, with nothing after *stop*?"""
    return stop == len(messages) and bool(stop) and _is_answer(messages[-1])
