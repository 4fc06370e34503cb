"""Where a view's tokens are: by role, by tool, by kind of part, by message."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from refold.cli.show import gist
from refold.messages import Message, Opaque, Part, ToolCall, ToolResult
from refold.view import View

WORDS = {
    "ToolCall": "tool calls",
    "ToolResult": "tool results",
    "Text": "text",
    "Thinking": "thinking",
    "Media": "media",
    "Opaque": "other",
}


@dataclass(slots=True)
class Sum:
    """Tokens and how many things they are of."""

    tokens: int = 0
    count: int = 0


def parts(view: View, largest: int) -> dict[str, Any]:
    """What of the tokens that a view shows belongs to what (seed S4-02). Roles add up to all messages;
    tools and kinds of parts leave out what a message takes beside its parts."""
    shown = [(item.start, message) for item in view.items for message in item.shown]
    counted = [(view.lens.count(message), at, message) for at, message in shown]
    top = sorted(counted, key=lambda row: (-row[0], row[1]))[:largest]
    names = dict(_names(view))
    pieces = [(part, _tokens(view, message, part)) for _, message in shown for part in message.parts]
    return {
        "by_role": _rows((message.role, tokens) for tokens, _, message in counted),
        "by_tool": _rows((name, tokens) for part, tokens in pieces if (name := _tool(part, names))),
        "by_part": _rows((WORDS[type(part).__name__], tokens) for part, tokens in pieces),
        "largest": [{"at": at, "role": m.role, "tokens": tokens, "begins": gist(m, 60)} for tokens, at, m in top],
    }


def _rows(named: Iterator[tuple[str, int]]) -> list[dict[str, Any]]:
    sums = dict[str, Sum]()
    for name, tokens in named:
        row = sums.setdefault(name, Sum())
        row.tokens += tokens
        row.count += 1
    ordered = sorted(sums.items(), key=lambda row: (-row[1].tokens, row[0]))
    return [{"name": name, "tokens": row.tokens, "count": row.count} for name, row in ordered]


def _names(view: View) -> Iterator[tuple[str, str]]:
    """Tool names by call id."""
    for message in view.transcript.messages:
        yield from ((part.id, part.name) for part in message.parts if isinstance(part, ToolCall))


def _tool(part: Part, names: dict[str, str]) -> str:
    if isinstance(part, ToolCall):
        return part.name
    if isinstance(part, ToolResult):
        return part.name or names.get(part.id, "(no call)")
    return part.kind if isinstance(part, Opaque) and (part.opens or part.closes) else ""


def _tokens(view: View, message: Message, part: Part) -> int:
    """Tokens of one part, without those of the message around it."""
    return max(0, view.lens.count(Message(message.role, (part,))) - view.lens.count(Message(message.role)))
