"""Rules for edits that are made or shown later than the messages they replace.

No edit may hide what the model has not answered yet. After a regenerate, a retry or time travel, a
history may end earlier than the one that an edit was made for. Messages that were answered then are
to be answered again.

Signed thinking is bound to its prefix, which a late edit or a revert changes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from refold.core.profile import ViewItem
from refold.core.tool_groups import EMPTY_TEXT, first_unseen, latest_turn_start
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, Text, Thinking
from refold.rules.request import is_signed
from refold.speakers import Segment, current_request, own_words, segment_messages, view_segments
from refold.speakers.carriers import split_marker
from refold.text.summary_wrapper import belongs_to_summary, without_summary


def would_hide_unanswered(
    edit: Edit,
    messages: Sequence[Message],
    end: int | None = None,
    find_request: "Callable[[], OpenRequest] | None" = None,
) -> bool:
    """Return whether *edit* would hide, of `messages[:end]`, a tool result that the model has not
    read or the request that it is working on.

    What the edit shows word for word is not hidden. Once false, this stays false as the history
    grows, unless the model continues after it had ended its turn (`continues_assistant_message`).
    *find_request* is a cached `find_open_request` for several edits.
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
    if find_request is None:
        at, words = find_open_request(messages[:end], segment_messages(messages[:end]))
    else:
        at, words = find_request()
    return edit.start <= at < edit.stop and not all(
        _is_segment_shown(segment, messages[at], edit) for segment in words
    )


def continues_assistant_message(view: View, since: int) -> bool:
    """Return whether the message at position *since* and the one before it are both the
    assistant's. The earlier one may then not have been its answer."""
    pair = view.transcript.messages[max(0, since - 1) : since + 1]
    return len(pair) == 2 and all(message.role == "assistant" for message in pair)


def make_premature_test(view: View) -> Callable[[Edit], bool]:
    """Return a predicate of edits: `would_hide_unanswered` at the end of *view*. The speakers are
    determined once for all edits."""
    messages = view.transcript.messages
    find_request = cache(lambda: find_open_request(messages, view_segments(view)))
    return lambda edit: would_hide_unanswered(edit, messages, find_request=find_request)


OpenRequest = tuple[int, tuple[Segment, ...]]


def find_open_request(
    messages: Sequence[Message], spoken: Sequence[tuple[Segment, ...]]
) -> OpenRequest:
    """Return the position of the user's latest request in *messages* and its segments, taken from
    *spoken*, while the model works on it. The position is -1 once the model has ended its turn
    without a tool call, or if there is no request."""
    words = current_request(messages, spoken)
    at = max(words, default=-1)
    return (at, words[at]) if at >= 0 and not _is_answered(messages, at) else (-1, ())


def _is_answered(messages: Sequence[Message], request_at: int) -> bool:
    """Return whether the model has ended a turn since, with text and without a tool call."""
    calls = speaks = False
    for at in range(request_at + 1, len(messages)):
        if messages[at].role == "assistant":
            calls = calls or bool(messages[at].calls)
            speaks = speaks or _is_answer(messages, at)
            continue
        if speaks and not calls:
            return True
        calls = speaks = False
    return speaks and not calls


def _is_answer(messages: Sequence[Message], at: int) -> bool:
    """Return whether the message has parts besides thinking and is not part of a summary."""
    return any(
        not isinstance(part, Thinking) for part in messages[at].parts
    ) and not belongs_to_summary(messages, at)


def _is_shown(message: Message, edit: Edit) -> bool:
    """Return whether *edit* shows all content of *message* word for word."""
    shown = {part for inserted in edit.insert for part in inserted.parts}
    wanted = without_summary(message).parts
    return all(part in shown for part in wanted if not isinstance(part, Thinking))


def _is_segment_shown(segment: Segment, message: Message, edit: Edit) -> bool:
    """Return whether *edit* shows a person's words outside of a summary, or the media sent without
    words."""
    shown = [part for inserted in edit.insert for part in without_summary(inserted).parts]
    if not (words := split_marker(own_words(segment))[1].strip()):
        return all(part in shown for part in message.parts if not isinstance(part, Thinking | Text))
    return any(words in part.text for part in shown if isinstance(part, Text))


# --- signed thinking ----------------------------------------------------------------------------


STRIP_THINKING_BY = "settle"
"""`by` of the edits that remove signed thinking."""


def drop_invalidated_thinking(after: View, before: View) -> View:
    """Return *after* without the signed thinking that edits made since *before* invalidate (AN-7,
    AN-11).

    A provider that binds thinking to its prefix refuses a block if anything before it was changed
    later. So all signed thinking after the earliest new edit is removed. An edit made before the
    model thought invalidates nothing. Nor does removing the oldest thinking, and only that may go
    alone (AN-10).
    """
    fresh = after.edits[len(before.edits) :]
    if not after.profile.rules.binds or not fresh:
        return after
    in_order = sorted(fresh, key=lambda edit: edit.stop)
    size = len(after.transcript)
    oldest = next((item.start for item in _iter_signed(after, 0, size)), size)
    changing = (edit.stop for edit in in_order if edit.start > oldest or _changes(edit, before))
    first = next(changing, size)
    return after.apply_valid(strip_signed_thinking(after, first, _removable_until(after)))


def edits_dropping_thinking(before: View, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return the edits that remove from *before* the signed thinking which *edits* invalidate. The
    model thought without *edits*, although they had been made before (AN-7)."""
    present = {edit.id for edit in before.edits}
    after = before.apply_valid(edit for edit in edits if edit.id not in present)
    return drop_invalidated_thinking(after, before).edits[len(after.edits) :]


def edits_after_revert(after: View, before: View) -> list[Edit]:
    """Return the edits that remove from *after* the signed thinking that a revert has invalidated
    (AN-7, AN-11).

    Thinking produced while an edit was shown is bound to a prefix with that edit. Thinking that the
    edit hid may be bound to a prefix that another edit has changed since. So all signed thinking is
    removed from the first position at which *after* and *before* differ. `Compactor.revert` does
    this, since the conversation goes on, and `View.revert` does not.
    """
    if not after.profile.rules.binds:
        return []
    edits_before, edits_after = ({v.edit for v in view.visible_edits} for view in (before, after))
    starts = (edit.start for edit in edits_before ^ edits_after)
    first = min(starts, default=len(after.transcript))
    return list(strip_signed_thinking(after, first, _removable_until(after)))


def edits_dropping_late_thinking(view: View, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits that remove from *view* the signed thinking produced while one of *edits*,
    which are now shown, had to wait (AN-7). This depends only on stored data, so every process does
    the same."""
    if not view.profile.rules.binds or not edits:
        return []
    if not (signed := list(_iter_signed(view, 0, _removable_until(view)))):
        return []
    messages, late = view.transcript.messages, set[int]()
    for edit in edits:
        if edit.by != STRIP_THINKING_BY and _changes(edit, view):
            late.update(_positions_of_late_thinking(edit, messages))
    return [_strip(view, item) for item in signed if item.start in late]


def may_drop_more_thinking(view: View, since: int) -> bool:
    """Return whether `edits_dropping_late_thinking` may remove more from *view* since the messages
    from *since* on arrived: if a turn has ended whose signed thinking had to stay (AN-6), or if the
    model continues after a message of its own."""
    rules, messages, size = view.profile.rules, view.transcript.messages, len(view.transcript)
    if not rules.binds or since >= size:
        return False
    if continues_assistant_message(view, since):
        return True
    if rules.thinking == "bound" or not latest_turn_start(messages, start=since):
        return False
    return any(is_signed(messages[at]) for at in range(latest_turn_start(messages, since), since))


def edits_dropping_answer(view: View, at: int) -> list[Edit]:
    """Return the edits that remove signed thinking from the model's answer at position *at*,
    produced before edits of its prefix were made or reverted (AN-7)."""
    if not view.profile.rules.binds:
        return []
    roles = [message.role for message in view.transcript.messages[at:]]
    stop = at + next((n for n, role in enumerate(roles) if role != "assistant"), len(roles))
    return list(strip_signed_thinking(view, at, min(stop, _removable_until(view))))


def irreversible_thinking_edits(view: View) -> list[Edit]:
    """Return the edits of *view* that remove signed thinking which the provider would refuse. They
    cannot be reverted."""
    return [edit for edit in view.edits if edit.by == STRIP_THINKING_BY]


def find_thinking_copies(view: View, gone: Sequence[Edit]) -> list[Edit]:
    """Return the edits besides *gone* that show the same spans without thinking. They must be
    reverted together with *gone*."""
    spans, ids = {(edit.start, edit.stop) for edit in gone}, {edit.id for edit in gone}
    late = (edit for edit in view.edits if edit.by == STRIP_THINKING_BY and edit.id not in ids)
    return [edit for edit in late if (edit.start, edit.stop) in spans]


def strip_signed_thinking(view: View, first: int, stop: int | None = None) -> Iterator[Edit]:
    """Yield the edits that remove the signed thinking that *view* shows from position *first* up to
    *stop* (default: the end)."""
    stop = len(view.transcript) if stop is None else stop
    return (_strip(view, item) for item in _iter_signed(view, first, stop))


def has_uncertain_thinking(view: View) -> bool:
    """Return whether signed thinking stays behind an edit although it may be bound to what that
    hides (AN-7), because it may also be required (AN-6). Then the request should name its model."""
    if view.profile.rules.thinking != "unsure":
        return False
    size = len(view.transcript)
    first = min((visible.edit.stop for visible in view.visible_edits), default=size)
    return any(_iter_signed(view, first, size))


def _positions_of_late_thinking(edit: Edit, messages: Sequence[Message]) -> Iterator[int]:
    """Yield the positions of the assistant messages after *edit* that came while it had to wait."""
    began = edit.stop
    for at in range(edit.stop, len(messages)):
        if messages[at].role != "assistant":
            began = at + 1
        elif would_hide_unanswered(edit, messages, began):
            yield at
        else:
            return


def _changes(edit: Edit, before: View) -> bool:
    """Return whether the edit changes anything but thinking."""
    if len(edit.insert) != edit.stop - edit.start:  # such as a summary
        return True
    hidden = before.transcript.messages[edit.start : edit.stop]
    return list(map(_without_thinking, edit.insert)) != list(map(_without_thinking, hidden))


def _without_thinking(message: Message) -> Message:
    """Return a message without thinking and without empty texts, which no edit may show."""
    parts = [p for p in message.parts if not isinstance(p, Thinking) and p != EMPTY_TEXT]
    return replace(message, parts=tuple(parts))


def _iter_signed(view: View, first: int, end: int) -> Iterator[ViewItem]:
    """Yield the items that show signed thinking and start between two positions."""
    shown = (visible.edit.insert for visible in view.visible_edits)
    if not any(map(is_signed, chain(view.transcript.messages, *shown))):  # most histories have none
        return
    for item in view.iter_items():
        if first <= item.start < end and any(map(is_signed, item.messages)):
            yield item


def _removable_until(view: View) -> int:
    """Return the position before which thinking may be removed: the start of the current turn if
    the model may require its thinking (AN-6), else the end."""
    messages, kind = view.transcript.messages, view.profile.rules.thinking
    return latest_turn_start(messages) if kind in ("unsure", "free") else len(messages)


def _strip(view: View, item: ViewItem) -> Edit:
    """Return an edit that shows an item without thinking. Messages with nothing else are hidden."""
    bare = tuple(message for message in map(_without_thinking, item.messages) if message.parts)
    return Edit(item.start, item.stop, bare, view.transcript.tips[item.stop], STRIP_THINKING_BY)
