"""What there is to summarise in a span of a view."""

from typing import NamedTuple

from refold.messages import Message
from refold.summarizers.rules.collect import answers
from refold.summary import carried, opening, previous, without_summary
from refold.view import View


class Material(NamedTuple):
    """Earlier summaries, and what was said outside of what they cover."""

    earlier: tuple[str, ...]
    """Texts of earlier summaries, oldest first."""
    said: tuple[tuple[int, Message], ...]
    """Messages as they were said, with their positions; without what only carries a summary."""
    answered: bool = False
    """Whether what was asked in it is answered behind it."""


def material(view: View, start: int, stop: int) -> Material:
    """The material of `messages[start:stop]`: what was said rather than what the view shows of it,
    except where an earlier summary covers it. A summary is told apart also where a caller fed it
    back as history, alone or merged with the user's words."""
    said, earlier, messages = view.transcript.messages, list[str](), list[tuple[int, Message]]()
    begins = opening(said)
    for item in view.each():
        if item.start < start or item.stop > stop:
            continue
        covered = [text for text in map(previous, item.shown) if text is not None] if item.edit else []
        earlier += covered
        if covered:
            continue
        for at in range(item.start, item.stop):
            text = previous(said[at])
            earlier += [] if text is None else [text]
            if at >= begins and not carried(said, at) and (rest := without_summary(said[at])).parts:
                messages.append((at, rest))
    behind = (at for at in range(stop, len(said)) if not carried(said, at) and previous(said[at]) is None)
    return Material(tuple(earlier), tuple(messages), any(answers(said[at]) for at in behind))
