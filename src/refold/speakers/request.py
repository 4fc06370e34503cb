"""Tell who says what in a conversation, and which of it is the current request."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from refold.codecs.detect import open_payload
from refold.core.profile import CountedTranscript
from refold.core.view import View
from refold.errors import FormatError
from refold.messages import Message, Thinking
from refold.speakers.carriers import NEW_TASK, REPORTS, REQUEST_HEADINGS, TEXT_PREFIXES
from refold.speakers.segments import Segment, is_steering, own_words, segments
from refold.text.summary_wrapper import CONTINUE, QUESTION, belongs_to_summary

Segmented = Sequence[tuple[Segment, ...]]
"""The segments of each message."""
SegmentFilter = Callable[[Segment], bool]
CARRIERS = frozenset({QUESTION, CONTINUE})
"""What the user is made to say beside a summary."""
PERSON_PREFIXES = tuple(words for words, carrier in TEXT_PREFIXES if carrier.voice == "person")
LABELED_SHARE = 2 / 3
"""Of the texts after a task that are a tool's answers, if no client is known."""


def view_segments(view: View) -> Segmented:
    """Segment each message of a view's transcript; those seen before are cached."""
    return view.base.compute_once(_segment_transcript)


def _segment_transcript(base: CountedTranscript) -> Segmented:
    return _apply_labels(base.transcript.messages, base.map_cached(label_segments))


def segment_messages(messages: Sequence[Message]) -> Segmented:
    """Segment each of *messages*.

    If there are no tool results, and most texts after the first begin with the same line that ends
    in a colon, those are a tool's: clients label texts so. A person may do so now and then.
    """
    return _apply_labels(messages, list(map(label_segments, messages)))


class LabeledSegments(NamedTuple):
    """The segments of a message that was looked at by itself."""

    spoken: tuple[Segment, ...]
    labels: tuple[str, ...]
    """First lines of persons' texts that may be a client's."""


def label_segments(message: Message) -> LabeledSegments:
    """Segment a message by itself."""
    spoken = segments(message)
    return LabeledSegments(spoken, tuple(filter(None, map(_label, spoken))))


def _apply_labels(messages: Sequence[Message], labeled: Sequence[LabeledSegments]) -> Segmented:
    """Return the segments of each message: those under a client's label are a tool's, those of what
    carries a summary are left out."""
    labels = _find_client_labels(messages, labeled)
    segmented = [spoken for spoken, _ in labeled]
    for at, (spoken, own) in enumerate(labeled):
        if spoken and spoken[0].text in CARRIERS and belongs_to_summary(messages, at):
            segmented[at] = ()
        elif not labels.isdisjoint(own):
            segmented[at] = tuple(
                segment._replace(voice="tool") if _label(segment) in labels else segment
                for segment in spoken
            )
    return segmented


def _find_client_labels(
    messages: Sequence[Message], labeled: Sequence[LabeledSegments]
) -> frozenset[str]:
    """Return the labels under which a client without tool results sends what tools say: the first
    text has another beginning, and most texts after it have this one."""
    counts = Counter(chain.from_iterable(own for _, own in labeled))
    repeated = {label for label, count in counts.items() if count > 1}
    if not repeated or any(message.results for message in messages):
        return frozenset()
    first, *later = (own for spoken, own in labeled if has_person(spoken))
    least = max(2.0, LABELED_SHARE * len(later))
    return frozenset(label for label in repeated.difference(first) if counts[label] >= least)


def _label(segment: Segment) -> str:
    """Return the first line of a person's text if it ends in a colon and more follows."""
    text = segment.text.lstrip()
    if not _is_person(segment) or segment.is_lifted or is_steering(text) or _is_marked(text):
        return ""
    line, _, rest = text[:400].partition("\n")
    return line.rstrip() if rest.strip() and line.rstrip().endswith((":", "：")) else ""


def _is_marked(text: str) -> bool:
    """Is this an element, or does a client say that it is a person's text?"""
    return text.startswith(("<", *REQUEST_HEADINGS, *PERSON_PREFIXES)) or NEW_TASK in text


def is_request(message: Message) -> bool:
    """Does a person speak here, in the user's role?"""
    return message.role == "user" and has_person(segments(message))


def has_person(spoken: Sequence[Segment]) -> bool:
    """Is a person among those who speak?"""
    return any(map(_is_person, spoken))


def is_report(message: Message) -> bool:
    """Is this the output of a command that the model wrote as text, in the user's role?"""
    if message.role != "user" or not message.text.lstrip().startswith(REPORTS):
        return False
    return all(segment.voice == "tool" for segment in segments(message))


def request_text(message: Message) -> str:
    """Return the person's own words in *message*, in any role, without the client's wrapper."""
    own = map(own_words, filter(_is_person, segments(message)))
    return "\n\n".join(filter(None, own))


def first_request(payload: Any, format: str) -> str:
    """Return the first words of a person in a conversation; empty if there are none, and if it
    cannot be read."""
    with suppress(FormatError):
        spoken = segment_messages(open_payload(payload, format).decode())
        words = [own_words(s) for segments in spoken for s in segments if _is_person(s)]
        requests = (text for text in words if text and not text.startswith("/"))
        return next(chain(requests, words), "")
    return ""


def dialogue_share(messages: Sequence[Message], spoken: Segmented) -> float:
    """Return the share of the model's turns that a person answers: 1 in a chat, near 0 where the
    model works with tools. *spoken* are the segments of *messages*, and of more behind them."""
    answers = sum(message.role == "assistant" for message in messages)
    people = sum(map(has_person, spoken[: len(messages)]))
    return min(1.0, people / answers) if answers else 0.0


def view_dialogue_share(view: View) -> float:
    """Return the `dialogue_share` of a view's transcript."""
    return view.base.compute_once(_share_dialogue)


def _share_dialogue(base: CountedTranscript) -> float:
    return dialogue_share(base.transcript.messages, base.compute_once(_segment_transcript))


def current_request(
    messages: Sequence[Message], spoken: Segmented
) -> dict[int, tuple[Segment, ...]]:
    """Return what a person has said since the model last ended a turn before it, by position.

    If no text is surely a person's, it is the newest text that may be; that one is added if a turn
    began after the older words. Steering adds to a request and does not replace it.
    """
    open_request = _open_request(messages, spoken, _is_surely_person)
    open_request = open_request or _open_request(messages, spoken, _is_person)
    if not open_request:
        return _newest_text(
            messages, spoken, (is_unknown_context, lambda segment: segment.voice != "summary")
        )
    newest = _newest_text(messages, spoken, (is_unknown_context,), max(open_request) + 1)
    begun = any(
        messages[at].role == "assistant" and _ends_turn(messages, at)
        for at in range(max(open_request), max(newest, default=0))
    )
    return open_request | newest if begun else open_request


def _open_request(
    messages: Sequence[Message], spoken: Segmented, is_own: SegmentFilter
) -> dict[int, tuple[Segment, ...]]:
    request, seen = dict[int, tuple[Segment, ...]](), set[str]()
    for at in reversed(range(len(messages))):
        if messages[at].role == "assistant":
            if request and _ends_turn(messages, at):
                break
            continue
        own = list[Segment]()
        for segment in filter(is_own, spoken[at]):
            if not segment.text or segment.text not in seen:  # nothing later repeats it
                own.append(segment)
                seen.add(segment.text)
        if own:
            request[at] = tuple(own)
    return request


def _newest_text(
    messages: Sequence[Message], spoken: Segmented, picks: Sequence[SegmentFilter], first: int = 0
) -> dict[int, tuple[Segment, ...]]:
    """Find the newest text in the user's role from *first* on that one of *picks* takes.

    What is in the same part comes with it.
    """
    for fits in picks:
        for at in reversed(range(first, len(messages))):
            if messages[at].role == "user" and (own := tuple(filter(fits, spoken[at]))):
                return {at: tuple(segment for segment in own if segment.part == own[-1].part)}
    return {}


def _is_person(segment: Segment) -> bool:
    return segment.voice == "person"


def _is_surely_person(segment: Segment) -> bool:
    return _is_person(segment) and segment.is_sure


def is_unknown_context(segment: Segment) -> bool:
    """Is this context that does not replace earlier context of its kind?"""
    return segment.voice == "context" and not segment.is_whole


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
