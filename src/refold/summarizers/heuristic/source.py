"""What a summary is made of: the messages as they were said, and what earlier summaries say."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from refold.core.view import View
from refold.messages import Message
from refold.speakers import has_person, view_segments
from refold.text.summary_wrapper import beside_summary, opening_length, summary_in

LONGEST = 1_000_000
"""Tokens of a hidden history that are read, the newest; of what is older, what people say."""


class Source(NamedTuple):
    """What a summary is made of."""

    older: Sequence[Message]
    """What people say further back than all of a long history is read."""
    hidden: Sequence[Message]
    """The original messages that it stands for, behind those."""
    shown: Sequence[Message]
    """The messages that stay before and behind it."""
    later: Sequence[Message]
    """Those behind it."""
    edited: Sequence[str]
    """Earlier summaries, made by edits, of messages that are in *hidden*."""
    given: Sequence[str]
    """Earlier summaries that a caller sent as messages; what they stand for is not here."""


def read_source(view: View, start: int, stop: int) -> Source:
    """Return the original messages of a span, and what earlier summaries of it say."""
    messages = view.transcript.messages
    given = [text for message in messages[start:stop] if (text := summary_in(message))]
    edited = [
        text
        for item in view.iter_items()
        if item.edit and start <= item.start and item.stop <= stop
        for message in item.messages
        if (text := summary_in(message))
    ]
    begins = opening_length(messages)  # a first request among these stands in the summary
    first = bisect_left(range(stop), -LONGEST, start, key=lambda at: -view.base.tokens(at, stop))
    spoken = view_segments(view) if first > start else ()

    def read_own(positions: Iterable[int]) -> list[Message]:
        return [
            Message(messages[at].role) if at < begins else beside_summary(messages, at)
            for at in positions
        ]

    older = read_own(at for at in range(start, first) if has_person(spoken[at]))
    later = read_own(range(stop, len(messages)))
    shown = [*read_own(range(start)), *later]
    return Source(older, read_own(range(first, stop)), shown, later, edited, given)


class SourceSpan(NamedTuple):
    """Earlier summaries, and what was said outside of what they cover."""

    earlier: tuple[str, ...]
    """Texts of earlier summaries, oldest first."""
    messages: tuple[tuple[int, Message], ...]
    """Messages as they were said, with their positions; without what only carries a summary."""


def read_span(view: View, start: int, stop: int) -> SourceSpan:
    """Return what a model has to read of `messages[start:stop]`: what was said, except where an
    earlier summary covers it. A summary is recognised also if a caller fed it back as history,
    alone or merged with the user's words."""
    transcript = view.transcript.messages
    begins = opening_length(transcript)
    earlier, own_messages = list[str](), list[tuple[int, Message]]()
    for item in view.iter_items():
        if item.start < start or item.stop > stop:
            continue
        shown = item.messages if item.edit else ()
        if covered := [text for text in map(summary_in, shown) if text is not None]:
            earlier += covered
            continue
        for at in range(item.start, item.stop):
            text = summary_in(transcript[at])
            earlier += [] if text is None else [text]
            if at >= begins and (rest := beside_summary(transcript, at)).parts:
                own_messages.append((at, rest))
    return SourceSpan(tuple(earlier), tuple(own_messages))
