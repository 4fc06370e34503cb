"""What the model has not answered yet: no edit may hide that (F1).

A history may end earlier than the one that an edit was made for: after regenerate, retry or time travel it ends
where the edit does. What was long answered when the edit was made is then what the model is to answer now.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from refold.edits import Edit
from refold.groups import unseen
from refold.messages import Message, Part, Thinking
from refold.speakers import is_request, own_words, segments
from refold.summary import carried, without_summary


def is_premature(edit: Edit, said: Sequence[Message], end: int | None = None) -> bool:
    """Would *edit* hide, of `messages[:end]`, a result that the model has not read or the request that it is at?

    What the edit shows word for word is not hidden. Once false, it is false for whatever the history grows to.
    """
    end = len(said) if end is None else end
    unread = range(max(edit.start, unseen(said, end)), min(edit.stop, end))
    if any(said[at].results and not _is_shown(said[at], edit) for at in unread):
        return True
    if not any(said[at].is_request for at in range(edit.start, min(edit.stop, end))):
        return False
    at = open_request(said, end)
    return at is not None and edit.start <= at < edit.stop and not _is_asked(said[at], edit)


def open_request(said: Sequence[Message], end: int) -> int | None:
    """Where in `messages[:end]` the user's latest request is, while the model is still at it; None once it was
    answered without a call, and where nobody asked."""
    calls, speaks = False, False
    for at in range(end - 1, -1, -1):
        message = said[at]
        if message.role == "assistant":
            calls = calls or bool(message.calls)
            speaks = speaks or _is_answer(said, at)
            continue
        if speaks and not calls:
            return None
        if is_request(message) and not carried(said, at):
            return at
        calls = speaks = False
    return None


def _is_answer(said: Sequence[Message], at: int) -> bool:
    """Does the model say something here, in its own words?"""
    return any(not isinstance(part, Thinking) for part in said[at].parts) and not carried(said, at)


def _is_asked(message: Message, edit: Edit) -> bool:
    """Does *edit* show all that a person says in *message*, word for word? What a client put beside it need not be."""
    shown = set(chain.from_iterable(map(_own, edit.insert)))
    return all(own in shown for own in _own(message))


def _own(message: Message) -> Iterator[Part | str]:
    """What a person says in *message*: words, or a medium that is all of it."""
    own = (segment for segment in segments(message) if segment.voice == "person")
    return (own_words(segment) if segment.text else message.parts[segment.part] for segment in own)


def _is_shown(message: Message, edit: Edit) -> bool:
    """Does *edit* show all that *message* says, word for word?"""
    shown = {part for other in edit.insert for part in other.parts}
    wanted = without_summary(message).parts
    return all(part in shown for part in wanted if not isinstance(part, Thinking))
