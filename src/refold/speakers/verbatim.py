"""What of a conversation stays word for word when a stretch of it is hidden, whatever hides it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from refold.core.view import View
from refold.messages import Media, Message, Opaque, Text, Thinking
from refold.speakers.carriers import NEW_TASK, TEXT_PREFIXES
from refold.speakers.segments import (
    LIFTED,
    Segment,
    is_steering,
    own_words,
    segments,
    without_numbers,
)
from refold.text.summary_wrapper import belongs_to_summary, without_summary
from refold.tokens.count import Counter

UNKNOWN_SHARE = 5
"""Of the room, context of unknown kinds may take one part in so many; the oldest of it goes first."""
EXAMPLE = "example"
"""The kind of orders that are told as a dialogue: the answers belong to them."""

Segmented = Sequence[tuple[Segment, ...]]
"""The segments of each message."""
SegmentFilter = Callable[[Segment], bool]


class Verbatim(NamedTuple):
    """What stands beside a summary."""

    messages: tuple[tuple[int, Message], ...] = ()
    """In the order of the transcript, each with its position."""
    dialogue: tuple[tuple[int, Message], ...] = ()
    """Orders told as a dialogue, with the answers: they stand at the beginning, before a summary."""
    request: frozenset[int] = frozenset()
    """Positions of the words of the current request."""
    omitted: int = 0
    """Segments that found no room: steering between an open task and the newest words, or context of unknown kinds."""


def view_segments(view: View) -> Segmented:
    """Who says what in each message of a view's transcript, worked out once for each while it grows."""
    return segment_messages(view.transcript.messages, view.base.map_cached(segments))


def segment_messages(messages: Sequence[Message], known: Segmented | None = None) -> Segmented:
    """Who says what in each of *messages*. A text that begins with a line of its own ending in a colon, as another does,
    is a tool's: so do clients label what is no person's, and people do not twice."""
    segmented = list(map(segments, messages)) if known is None else list(known)
    labels = dict[str, int]()
    for at, spoken in enumerate(segmented):
        if spoken and belongs_to_summary(messages, at):
            segmented[at] = ()
        for segment in spoken:
            if label := _label(segment):
                labels[label] = labels.get(label, 0) + 1
    if all(count == 1 for count in labels.values()):
        return segmented
    return [
        tuple(_apply_label(segment, labels) for segment in spoken) if spoken else ()
        for spoken in segmented
    ]


def is_request(message: Message) -> bool:
    """Does a person speak here, in the user's role?"""
    return message.role == "user" and has_person(segments(message))


def has_person(spoken: Sequence[Segment]) -> bool:
    """Is a person among those who speak?"""
    return any(map(_is_person, spoken))


def request_text(message: Message) -> str:
    """The person's own words in *message*, in whatever role and without the client's wrapper; empty where none are."""
    own = map(own_words, filter(_is_person, segments(message)))
    return "\n\n".join(filter(None, own))


def _is_person(segment: Segment) -> bool:
    return segment.voice == "person"


def current_request(
    messages: Sequence[Message], spoken: Segmented
) -> dict[int, tuple[Segment, ...]]:
    """Everything that a person has said since the model last ended a turn before it, by position.

    Where nobody surely has, the newest text that may be a person's; so too beside older words where a turn begins with
    none. Steering adds to a request and does not replace it.
    """
    is_sure: SegmentFilter = lambda segment: _is_person(segment) and segment.is_sure  # noqa: E731
    open_request = _open_request(messages, spoken, is_sure)
    open_request = open_request or _open_request(messages, spoken, _is_person)
    if not open_request:
        return _newest_text(messages, spoken, (_is_unknown, _is_no_summary))
    newest = _newest_text(messages, spoken, (_is_unknown,), max(open_request) + 1)
    begun = any(
        messages[at].role == "assistant" and _ends_turn(messages, at)
        for at in range(max(open_request), max(newest, default=0))
    )
    return open_request | newest if begun else open_request


def find_verbatim(view: View, stop: int, room: int | None = None) -> Verbatim:
    """What of `messages[:stop]` stays when it is hidden: the words of the current request, every order, and the newest
    context of each kind.

    Where the request was made in many messages, those between the task (the first) and the newest take at most *room*
    tokens (half of what the view shows), the newest first; context of kinds that nobody knows takes at most a fifth of
    that. What finds no room is counted.
    """
    room = view.estimate // 2 if room is None else max(0, room)
    counted = view.profile.count, room
    return find_verbatim_in(view.transcript.messages, stop, view_segments(view), counted)


def find_verbatim_in(
    messages: Sequence[Message],
    stop: int,
    spoken: Segmented | None = None,
    room: tuple[Counter, int] | None = None,
) -> Verbatim:
    """As `find_verbatim`, of a list of messages. *room*: how tokens are counted, and how many there are; without it all."""
    spoken = segment_messages(messages) if spoken is None else spoken
    asked = {} if _is_over(messages, stop) else current_request(messages, spoken)
    count, most = room or (lambda _: 0, 1)
    request_room, omitted = _TokenRoom(count, most), 0
    context_room = _TokenRoom(count, most // UNKNOWN_SHARE if room else 1)
    chosen = dict[int, list[Segment]]()
    for at in sorted((at for at in asked if at < stop), reverse=True):
        if at not in (min(asked), max(asked)) and not request_room.takes(asked[at]):
            omitted += len(asked[at])
        else:
            chosen[at] = list(asked[at])
    states, bodies = set[str](), set[str]()
    for at in reversed(range(len(messages))):
        for segment in reversed(spoken[at]):
            stays = _is_standing(segment, states, bodies)  # what stands behind *stop* counts, too
            if not stays or at >= stop or segment in chosen.get(at, ()):
                continue
            if _is_unknown(segment) and not context_room.takes((segment,)):
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
    """Tokens that are left."""

    count: Counter
    remaining: int

    def takes(self, spoken: Sequence[Segment]) -> bool:
        """Is there room for these? They take it; what is older than one that finds none has none, either."""
        texts = (Message("user", (Text(segment.text),)) for segment in spoken)
        self.remaining -= sum(map(self.count, texts))
        return self.remaining >= 0


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not message.calls


def _is_standing(segment: Segment, states: set[str], bodies: set[str]) -> bool:
    """Is this something that stays, and was not said later: in the same words, or anew of a kind that is whole?"""
    is_order = segment.voice == "instruction"
    if segment.voice in ("person", "tool") or (not is_order and segment.kind in states):
        return False
    body = segment.text if is_order else without_numbers(segment.text)
    if segment.is_whole:
        states.add(segment.kind)
    new = body not in bodies
    bodies.add(body)
    return new


def _reduce_message(message: Message, chosen: Sequence[Segment]) -> Message:
    """*message* as far as it stays; itself where all of it does."""
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
    """What stays of one part, in the order in which it stood."""
    ordered = sorted(chosen, key=lambda segment: whole.find(segment.text))
    texts = [
        f"{LIFTED}\n{segment.text}" if segment.is_lifted else segment.text for segment in ordered
    ]
    as_said = len("".join("".join(texts).split())) == len("".join(whole.split()))
    return [Text(whole)] if as_said else [Text("\n\n".join(text.strip("\n") for text in texts))]


# --- the request ------------------------------------------------------------------------------


def _open_request(
    messages: Sequence[Message], spoken: Segmented, is_own: SegmentFilter
) -> dict[int, tuple[Segment, ...]]:
    request, seen = dict[int, tuple[Segment, ...]](), set[str]()
    for at in reversed(range(len(messages))):
        if messages[at].role == "assistant":
            if request and _ends_turn(messages, at):
                break
        elif own := tuple(
            segment for segment in spoken[at] if is_own(segment) and _is_new(segment, seen)
        ):
            request[at] = own
    return request


def _is_new(segment: Segment, seen: set[str]) -> bool:
    """Is this said in words that no later segment repeats?"""
    new = not segment.text or segment.text not in seen
    seen.add(segment.text)
    return new


def _newest_text(
    messages: Sequence[Message], spoken: Segmented, picks: Sequence[SegmentFilter], first: int = 0
) -> dict[int, tuple[Segment, ...]]:
    """The newest text in the user's role from *first* on that one of *picks* takes, with what stands in the same part."""
    for fits in picks:
        for at in reversed(range(first, len(messages))):
            if messages[at].role == "user" and (own := tuple(filter(fits, spoken[at]))):
                return {at: tuple(segment for segment in own if segment.part == own[-1].part)}
    return {}


def _is_unknown(segment: Segment) -> bool:
    return segment.voice == "context" and not segment.is_whole


def _is_no_summary(segment: Segment) -> bool:
    return segment.voice != "summary"


def _ends_turn(messages: Sequence[Message], at: int) -> bool:
    """Does the model say something here, the last of its step, and call nothing in it?"""
    if at + 1 < len(messages) and messages[at + 1].role == "assistant":
        return False
    speaks = False
    while at >= 0 and messages[at].role == "assistant":
        if messages[at].calls:
            return False
        speaks = speaks or any(not isinstance(part, Thinking) for part in messages[at].parts)
        at -= 1
    return speaks


def _is_over(messages: Sequence[Message], stop: int) -> bool:
    """Has the model answered all that there is, and does nothing of it stand behind *stop*?"""
    return stop == len(messages) and bool(stop) and _is_answer(messages[-1])


# --- labels -----------------------------------------------------------------------------------


def _label(segment: Segment) -> str:
    """The first line of a text that may be a person's, where it ends in a colon and is not all of it."""
    text = segment.text.lstrip()
    if not _is_person(segment) or segment.is_lifted or text.startswith("<") or is_steering(text):
        return ""
    line, _, rest = text[:400].partition("\n")
    return line.rstrip() if rest.strip() and line.rstrip().endswith((":", "：")) else ""


def _apply_label(segment: Segment, labels: dict[str, int]) -> Segment:
    is_tool = labels.get(_label(segment), 0) > 1
    return segment._replace(voice="tool") if is_tool and not _is_marked_person(segment) else segment


def _is_marked_person(segment: Segment) -> bool:
    """Do a client's own words say that this is a person's?"""
    text = segment.text.lstrip()
    return NEW_TASK in text or any(
        text.startswith(words) for words, carrier in TEXT_PREFIXES if carrier.voice == "person"
    )
