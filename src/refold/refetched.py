"""Results that were fetched again after an edit had hidden them: hiding them once more would put an agent into a circle."""

from hashlib import blake2b

from refold.messages import Message, ToolCall, ToolResult
from refold.view import View

SHARE = 3
"""Of the tokens that a view shows, what was fetched again may take one part in so many; the newest first to stay."""


def refetched(view: View, room: int | None = None) -> set[int]:
    """Positions of results that stand in the view, and whose like, of the same call and in the same words, an edit hides.

    Together they have at most *room* tokens (a third of what the view shows). A call that says something else each time,
    as a test run does, was not fetched again.
    """
    left = view.estimate // SHARE if room is None else room
    hidden = _hidden(view)
    if not hidden:
        return set()
    known, again = set[bytes](), dict[bytes, int]()
    calls = dict[str, ToolCall]()
    for at, message in enumerate(view.transcript.messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and part.id in calls:
                key = _key(calls[part.id], part)
                if at in hidden:
                    known.add(key)
                elif key in known:
                    again[key] = at
    found = set[int]()
    for at in sorted(set(again.values()), reverse=True):
        left -= view.lens.count(view.transcript.messages[at])
        if left < 0:
            break
        found.add(at)
    return found


def _hidden(view: View) -> set[int]:
    """Positions of results that an edit which shows says otherwise, or not at all."""
    said, hidden = view.transcript.messages, set[int]()
    for edit, _ in view.top:
        shown = {part for message in edit.insert for part in message.parts if isinstance(part, ToolResult)}
        hidden.update(at for at in range(edit.start, edit.stop) if not _results(said[at]) <= shown)
    return hidden


def _results(message: Message) -> set[ToolResult]:
    return {part for part in message.parts if isinstance(part, ToolResult)}


def _key(call: ToolCall, result: ToolResult) -> bytes:
    """A hash of what was asked and what came."""
    said = f"{call.name}\n{call.arguments}\n{result.content}".encode("utf-8", "surrogatepass")
    return blake2b(said, digest_size=16).digest()
