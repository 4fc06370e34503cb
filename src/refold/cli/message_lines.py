"""Messages, views and their differences as lines of text."""

import json
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from refold.cli.terminal import Line, clean, short
from refold.core.view import View, ViewItem
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.text.json_values import parse_or_none

STYLES = {
    "user": "bold green",
    "assistant": "bold cyan",
    "tool": "bold yellow",
    "system": "bold magenta",
}


def view_lines(view: View, most: int | None = None) -> Iterator[Line]:
    """Yield what the model would see; of each message at most *most* lines."""
    if view.profile.fixed_tokens:
        yield Line(
            f"── system prompt and tools · {view.profile.fixed_tokens:,} tokens", "bold magenta"
        )
    for item in view.iter_items():
        for message in item.messages:
            yield Line()
            yield _title(view, item, message)
            lines = list(message_lines(message))
            yield from lines[:most]
            if most is not None and len(lines) > most:
                yield Line(f"  … {len(lines) - most:,} more lines", "dim")
        if not item.messages:
            span = span_text(item.start, item.stop)
            yield Line()
            yield Line(f"── {span} hidden, nothing shown instead · {_edit_text(item)}", "dim")


def _title(view: View, item: ViewItem, message: Message) -> Line:
    edit = f" · {_edit_text(item)}" if item.edit else ""
    place, count = span_text(item.start, item.stop), view.profile.count(message)
    style = STYLES.get(message.role, "bold")
    return Line(f"── {place} {message.role} · {count:,} tokens{edit}", style)


def span_text(start: int, stop: int) -> str:
    """Return positions of messages as text: `#3`, `#3-7`."""
    return f"#{start}" if stop == start + 1 else f"#{start}-{stop - 1}"


def _edit_text(item: ViewItem) -> str:
    return f"edit {item.edit.id[:8]} by {short(item.edit.by, 80)}" if item.edit else ""


def message_lines(message: Message) -> Iterator[Line]:
    """Yield a message, part by part."""
    for part in message.parts:
        yield from part_lines(part)


def part_lines(part: Part) -> Iterator[Line]:
    """Yield a part; everything but plain text begins with a mark."""
    match part:
        case Text(text):
            yield from _lines(text)
        case Thinking(text, signature):
            yield from _lines(text or "(not readable)", "dim italic", "✻ ")
            if signature:
                yield Line("✻ signed", "dim")
        case ToolCall(id, name, arguments):
            yield Line(f"→ {clean(name)} {clean(id)}", "yellow")
            yield from _lines(_arguments(arguments), "yellow", "    ")
        case ToolResult(id, content, error, name):
            title = f"← {clean(name)}{' ' if name else ''}{clean(id)}{' failed' if error else ''}"
            yield Line(title, "red" if error else "blue")
            for inner in content:
                yield from (Line(f"    {line.plain}", line.style) for line in part_lines(inner))
        case Media(kind, mime, ref, width, height, size):
            extent = f"{width}x{height} " * bool(width) + f"{size:,} bytes " * bool(size)
            yield Line(f"▣ {kind} {mime} {extent}{short(ref, 60)}", "magenta")
        case Opaque(kind, text):
            yield Line(f"◇ {clean(kind)} {short(text, 160)}", "dim")


def _lines(text: str, style: str = "", mark: str = "") -> Iterator[Line]:
    return (Line(mark + line, style) for line in clean(text).split("\n"))


def _arguments(text: str) -> str:
    """Return a call's arguments as lines of `name: value`, or as they are if they are no object."""
    arguments = parse_or_none(text)
    if not isinstance(arguments, dict):
        return text
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )


def gist(message: Message, width: int = 90) -> str:
    """Return the beginning of a message's text, calls or results on one line."""
    if message.text.strip():
        return short(message.text, width)
    calls = [
        f"→ {part.name} {part.arguments}" for part in message.parts if isinstance(part, ToolCall)
    ]
    results = [f"← {part.text}" for part in message.parts if isinstance(part, ToolResult)]
    kinds = [type(part).__name__.lower() for part in message.parts]
    return short("; ".join(calls or results or kinds), width)


# --- differences -----------------------------------------------------------------------------


def diff_lines(view: View) -> Iterator[Line]:
    """Yield what the model would see against what was said, edit by edit."""
    messages, at = view.transcript.messages, 0
    for item in view.iter_items():
        if item.edit is None:
            continue
        if item.start > at:
            yield Line(f"   {span_text(at, item.start)} as said", "dim")
        at = item.stop
        place, before = span_text(item.start, item.stop), view.base.tokens(item.start, item.stop)
        sizes = f"{before:,} → {item.tokens:,} tokens"
        yield Line(f"@@ {place} · {_edit_text(item)} · {sizes}", "bold cyan")
        hidden = messages[item.start : item.stop]
        if [message.role for message in hidden] == [message.role for message in item.messages]:
            yield from _diff(hidden, item.messages)
        else:
            yield from _replacement(view, item)
    if at < len(messages):
        yield Line(f"   {span_text(at, len(messages))} as said", "dim")


def _diff(hidden: Sequence[Message], shown: Sequence[Message]) -> Iterator[Line]:
    old, new = (
        [line.plain for message in messages for line in message_lines(message)]
        for messages in (hidden, shown)
    )
    for line in list(unified_diff(old, new, lineterm="", n=2))[2:]:
        yield Line(line, {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], ""))


def _replacement(view: View, item: ViewItem) -> Iterator[Line]:
    """Yield one line for each hidden message, then everything that is shown instead."""
    for at in range(item.start, item.stop):
        message, count = view.transcript.messages[at], view.base.tokens(at, at + 1)
        yield Line(f"- #{at} {message.role} · {count:,} tokens · {gist(message)}", "red")
    for message in item.messages:
        yield from (Line(f"+ {line.plain}", "green") for line in message_lines(message))
