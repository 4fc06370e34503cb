"""Signed thinking is bound to what stood before it; a late edit changes that, and so does a revert."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from refold.compactor.unanswered import is_premature
from refold.core.tool_groups import latest_turn_start
from refold.core.view import View, ViewItem
from refold.edits import Edit
from refold.messages import Message, Part, Thinking

BY = "settle"
"""What made the edits of this module."""


def drop_invalidated_thinking(after: View, before: View) -> View:
    """*after* without the signed thinking that the edits made since *before* have unbound (AN-7, AN-11).

    A provider that binds thinking to its prefix refuses a kept block when anything before it was
    changed later. So all signed thinking behind the earliest new edit goes. An edit made on time,
    before the model thought, unbinds nothing; nor does taking away the oldest thinking (AN-10).
    """
    fresh = after.edits[len(before.edits) :]
    if not after.profile.rules.binds or not fresh:
        return after
    changing = (edit.stop for edit in sorted(fresh, key=_stop) if _changes(edit, before))
    return after.apply_valid(strip_signed_thinking(after, next(changing, len(after.transcript))))


def edits_dropping_thinking(before: View, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits that take signed thinking out of *before* which *edits* unbind, made ahead and put on now: what was
    thought since they were made was thought without them (AN-7)."""
    present = {edit.id for edit in before.edits}
    after = before.apply_valid(edit for edit in edits if edit.id not in present)
    return drop_invalidated_thinking(after, before).edits[len(after.edits) :]


def edits_after_revert(after: View, before: View) -> list[Edit]:
    """The edits that take out of *after* the signed thinking that a revert has unbound (AN-7, AN-11).

    What was thought while an edit showed is bound to a prefix with that edit in it; what the edit hid
    may be bound to a prefix that an edit further up has changed since. So, where what shows differs
    from *before*, all signed thinking from the first difference on goes. `View.revert` does not do
    this: it shows what was said. `Compactor.revert`, after which the conversation goes on, does.
    """
    if not after.profile.rules.binds:
        return []
    changed = {placed.edit for placed in before.visible_edits} ^ {
        placed.edit for placed in after.visible_edits
    }
    return list(
        strip_signed_thinking(
            after, min((edit.start for edit in changed), default=len(after.transcript))
        )
    )


def edits_dropping_late_thinking(view: View, edits: Sequence[Edit]) -> list[Edit]:
    """The edits that take out of *view* the signed thinking that came while one of *edits*, which show, was held back:
    it was thought without that one (AN-7). What the store has says so by itself, so every process does the same."""
    if not view.profile.rules.binds or not edits:
        return []
    end = _removable_until(view)
    signed = [
        item
        for item in view.iter_items()
        if item.start < end and any(map(_is_signed, item.messages))
    ]
    if not signed:
        return []
    messages, late = view.transcript.messages, set[int]()
    for edit in edits:
        if edit.by != BY and _changes(edit, view):
            late.update(_positions_of_late_thinking(edit, messages))
    return [_strip(view, item) for item in signed if item.start in late]


def _positions_of_late_thinking(edit: Edit, messages: Sequence[Message]) -> Iterable[int]:
    """Where the model speaks behind *edit* while that would hide what it was to answer."""
    began = edit.stop
    for at in range(edit.stop, len(messages)):
        if messages[at].role != "assistant":
            began = at + 1
        elif is_premature(edit, messages, began):
            yield at
        else:
            return


def find_thinking_copies(view: View, gone: Sequence[Edit]) -> list[Edit]:
    """The edits of this module that show what edits of *gone* show, without its thinking: when those
    are reverted, these must be too."""
    spans = {(edit.start, edit.stop) for edit in gone}
    return [edit for edit in view.edits if edit.by == BY and (edit.start, edit.stop) in spans]


def _stop(edit: Edit) -> int:
    return edit.stop


def _changes(edit: Edit, before: View) -> bool:
    """Does the edit change anything but thinking?"""
    shown = before.transcript.messages[edit.start : edit.stop]
    return list(map(_without_thinking, edit.insert)) != list(map(_without_thinking, shown))


def _without_thinking(message: Message) -> tuple[str, tuple[Part, ...]]:
    return message.role, tuple(part for part in message.parts if not isinstance(part, Thinking))


def strip_signed_thinking(view: View, first: int) -> Iterable[Edit]:
    """The edits that take signed thinking out of what *view* shows from the position *first* on."""
    end = _removable_until(view)
    for item in view.iter_items():
        if first <= item.start < end and any(map(_is_signed, item.messages)):
            yield _strip(view, item)


def is_unsure(view: View) -> bool:
    """Is signed thinking left behind an edit, of which nobody can tell whether it is bound to what that hides (AN-7) or
    wanted back (AN-6)? Then the request should name its model."""
    first = min((placed.edit.stop for placed in view.visible_edits), default=len(view.transcript))
    if view.profile.rules.thinking != "unsure":
        return False
    return any(
        item.start >= first and any(map(_is_signed, item.messages)) for item in view.iter_items()
    )


def _removable_until(view: View) -> int:
    """Up to where thinking may be taken out: where no model is named, to where its current turn begins (AN-6, F14)."""
    messages = view.transcript.messages
    return latest_turn_start(messages) if view.profile.rules.thinking == "unsure" else len(messages)


def _strip(view: View, item: ViewItem) -> Edit:
    """An edit that shows an item without its thinking; a message of nothing else is hidden."""
    bare = [
        replace(m, parts=tuple(p for p in m.parts if not isinstance(p, Thinking)))
        for m in item.messages
    ]
    shown = tuple(message for message in bare if message.parts)
    return Edit(item.start, item.stop, shown, view.transcript.tips[item.stop], BY)


def _is_signed(message: Message) -> bool:
    if Thinking not in map(type, message.parts):  # as nearly always, and far sooner known
        return False
    return any(isinstance(part, Thinking) and part.signature for part in message.parts)
