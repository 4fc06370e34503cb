"""What the model has not answered yet: no edit may hide that (F1).

A history may end earlier than the one that an edit was made for: after regenerate, retry or time
travel it ends where the edit does. What was answered long before the edit was made is then what the
model is to answer now.
"""

from collections.abc import Callable, Sequence

from refold.core.tool_groups import first_unseen
from refold.edits import Edit
from refold.messages import Message, Text, Thinking
from refold.speakers import Segment, current_request, own_words, segment_messages
from refold.text.summary_wrapper import belongs_to_summary, without_summary

Heard = Sequence[tuple[Segment, ...]]


def is_premature(
    edit: Edit,
    messages: Sequence[Message],
    end: int | None = None,
    spoken: Callable[[], Heard] | None = None,
) -> bool:
    """Would *edit* hide, of `messages[:end]`, a result that the model has not read or the request
    that it is working on?

    What the edit shows word for word is not hidden. Once false, it is false for whatever the
    history grows to. *spoken* tells who says what (`refold.speakers.segment_messages`), if that is
    known.
    """
    end = len(messages) if end is None else end
    unread = range(max(edit.start, first_unseen(messages, end)), min(edit.stop, end))
    if any(messages[at].results and not _is_shown(messages[at], edit) for at in unread):
        return True
    covered = range(edit.start, min(edit.stop, end))
    if all(
        messages[at].role == "assistant" or (messages[at].results and at < end - 1)
        for at in covered
    ):
        return False
    at, words = open_request(messages, end, spoken)
    return edit.start <= at < edit.stop and not all(
        _is_said(segment, messages[at], edit) for segment in words
    )


def open_request(
    messages: Sequence[Message], end: int, spoken: Callable[[], Heard] | None = None
) -> tuple[int, tuple[Segment, ...]]:
    """Return where in `messages[:end]` the person's latest words are, and which, while the model is
    still working on them; -1 once it has ended its turn without a call, or if nobody asked."""
    before = messages[:end]
    words = current_request(before, segment_messages(before) if spoken is None else spoken()[:end])
    at = max(words, default=-1)
    return (at, words[at]) if at >= 0 and not _is_answered(messages, at, end) else (-1, ())


def _is_answered(messages: Sequence[Message], asked: int, end: int) -> bool:
    """Has the model ended a turn since, in words and without a call?"""
    calls = speaks = False
    for at in range(asked + 1, end):
        if messages[at].role == "assistant":
            calls = calls or bool(messages[at].calls)
            speaks = speaks or _is_answer(messages, at)
            continue
        if speaks and not calls:
            return True
        calls = speaks = False
    return speaks and not calls


def _is_answer(messages: Sequence[Message], at: int) -> bool:
    """Does the model say something here, in its own words?"""
    return any(
        not isinstance(part, Thinking) for part in messages[at].parts
    ) and not belongs_to_summary(messages, at)


def _is_shown(message: Message, edit: Edit) -> bool:
    """Does *edit* show all that *message* says, word for word?"""
    shown = {part for inserted in edit.insert for part in inserted.parts}
    wanted = without_summary(message).parts
    return all(part in shown for part in wanted if not isinstance(part, Thinking))


def _is_said(segment: Segment, message: Message, edit: Edit) -> bool:
    """Does *edit* show a person's words outside of a summary, or the medium that stands for
    them?"""
    shown = [part for inserted in edit.insert for part in without_summary(inserted).parts]
    if not (words := own_words(segment).strip()):
        return all(part in shown for part in message.parts if not isinstance(part, Thinking | Text))
    return any(words in part.text for part in shown if isinstance(part, Text))
