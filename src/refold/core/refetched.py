"""Results that were fetched again after an edit had hidden them: hiding them once more would put an agent into a circle."""

from collections.abc import Sequence

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult

SHARE = 3
"""Of the tokens that a view shows, what was fetched again may take one part in so many; the newest first to stay."""
LIKE = 0.9
"""The share of its characters, by lines, that a result has in common with one that it repeats."""


def find_refetched(view: View, room: int | None = None) -> set[int]:
    """Positions of results that stand in the view, and whose like, of the same call and nearly in the same words, an
    edit hides: clients put counts and times beside what a tool says.

    Together they have at most *room* tokens (a third of what the view shows). A call that says something else each time,
    as a test run does, was not fetched again.
    """
    left = view.estimate // SHARE if room is None else room
    hidden = _hidden(view)
    if not hidden:
        return set()
    calls, alike = dict[str, ToolCall](), dict[tuple[str, str], list[tuple[int, ToolResult]]]()
    for at, message in enumerate(view.transcript.messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and (call := calls.get(part.id)):
                alike.setdefault((call.name, call.arguments), []).append((at, part))
    again = {_newest_again(results, hidden) for results in alike.values() if len(results) > 1} - {-1}
    found = set[int]()
    for at in sorted(again, reverse=True):
        left -= view.profile.count(view.transcript.messages[at])
        if left < 0:
            break
        found.add(at)
    return found


def _newest_again(results: Sequence[tuple[int, ToolResult]], hidden: set[int]) -> int:
    """Where, of the *results* of one call, the newest stands that says what a hidden one before it said; -1 if nowhere."""
    known, found = set[str](), -1
    for at, result in results:
        lines = _lines(result)
        if at in hidden:
            known.update(lines)
        elif sum(len(line) for line in lines if line in known) >= max(1.0, LIKE * sum(map(len, lines))):
            found = at
    return found


def _hidden(view: View) -> set[int]:
    """Positions of results that an edit which shows says otherwise, or not at all."""
    said, hidden = view.transcript.messages, set[int]()
    for edit, _ in view.visible_edits:
        shown = {part for message in edit.insert for part in message.parts if isinstance(part, ToolResult)}
        hidden.update(at for at in range(edit.start, edit.stop) if not _results(said[at]) <= shown)
    return hidden


def _results(message: Message) -> set[ToolResult]:
    return {part for part in message.parts if isinstance(part, ToolResult)}


def _lines(result: ToolResult) -> list[str]:
    """What a result says by lines, also where a client gives them as JSON."""
    text = "\n".join(part.text if isinstance(part, Text) else repr(part) for part in result.content)
    return text.replace("\\n", "\n").split("\n")
