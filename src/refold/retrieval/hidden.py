"""Find the messages that a view does not show in full."""

from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.text.plain import readable_text


def find_hidden(view: View) -> dict[int, str]:
    """Return the positions of hidden messages, each with the short id of the edit that hides it.

    A message that lost only its thinking is not hidden.
    """
    return {
        at: name
        for placed in view.visible_edits
        if not _still_shown(view, placed)
        for name in (placed.edit.id[:8],)
        for at in range(placed.edit.start, placed.edit.stop)
    }


def newly_hidden_positions(before: View | None, after: View) -> list[int]:
    """Return the positions, in order, that *after* hides and *before*, if given, does not."""
    hidden_before = find_hidden(before) if before is not None else {}
    return sorted(find_hidden(after).keys() - hidden_before.keys())


def _still_shown(view: View, placed: VisibleEdit) -> bool:
    """Is one message shown instead of one, with all its readable text?"""
    edit = placed.edit
    if edit.stop - edit.start > 1 or len(edit.insert) != 1:
        return False
    return readable_text(view.transcript.messages[edit.start]) in readable_text(edit.insert[0])
