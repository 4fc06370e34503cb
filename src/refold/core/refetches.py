"""Results fetched again after an edit hid them: hiding them once more sends an agent in circles."""

from collections.abc import Sequence

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult

MAX_SHARE = 3
"""Refetched results may take one part in so many of the tokens that a view shows."""
LIKENESS = 0.9
"""Share of its characters, by lines, that a result has in common with one that it repeats."""


def find_refetched(view: View, max_tokens: int | None = None) -> set[int]:
    """Return positions of results that show and repeat a hidden result of the same call.

    They need not be equal: clients put counts and times beside what a tool says. The newest are
    returned that have *max_tokens* together (a third of what the view shows). A call that says
    something else each time, such as a test run, was not fetched again.
    """
    tokens_left = view.estimate // MAX_SHARE if max_tokens is None else max_tokens
    hidden = _find_hidden_results(view)
    if not hidden:
        return set()
    calls = dict[str, ToolCall]()
    by_call = dict[tuple[str, str], list[tuple[int, ToolResult]]]()
    for at, message in enumerate(view.transcript.messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult) and (call := calls.get(part.id)):
                by_call.setdefault((call.name, call.arguments), []).append((at, part))
    repeats = {_newest_repeat(results, hidden) for results in by_call.values() if len(results) > 1}
    positions = set[int]()
    for at in sorted(repeats - {-1}, reverse=True):
        tokens_left -= view.profile.count(view.transcript.messages[at])
        if tokens_left < 0:
            break
        positions.add(at)
    return positions


def _newest_repeat(results: Sequence[tuple[int, ToolResult]], hidden: set[int]) -> int:
    """Return where the newest of one call's *results* stands that repeats a hidden one, or -1."""
    hidden_lines, newest = set[str](), -1
    for at, result in results:
        lines = _lines(result)
        repeated = sum(len(line) for line in lines if line in hidden_lines)
        if at in hidden:
            hidden_lines.update(lines)
        elif repeated >= max(1.0, LIKENESS * sum(map(len, lines))):
            newest = at
    return newest


def _find_hidden_results(view: View) -> set[int]:
    """Return positions of results that a visible edit changes or leaves out."""
    messages, hidden = view.transcript.messages, set[int]()
    for edit, _ in view.visible_edits:
        shown = {result for message in edit.insert for result in _results(message)}
        span = range(edit.start, edit.stop)
        hidden.update(at for at in span if not _results(messages[at]) <= shown)
    return hidden


def _results(message: Message) -> set[ToolResult]:
    return {part for part in message.parts if isinstance(part, ToolResult)}


def _lines(result: ToolResult) -> list[str]:
    """Return the lines of a result, also if a client gives them as JSON."""
    texts = (part.text if isinstance(part, Text) else repr(part) for part in result.content)
    return "\n".join(texts).replace("\\n", "\n").split("\n")
