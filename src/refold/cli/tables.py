"""Messages and edits as text for people."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console

from refold.cli.terminal import clean, short
from refold.core.breakdown import break_down
from refold.core.view import View, ViewItem
from refold.messages import Content, Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult


class Line(NamedTuple):
    """A line and how it looks where there are colours."""

    text: str
    style: str = ""


STYLES = {"user": "bold green", "assistant": "bold cyan", "tool": "bold yellow", "system": "bold magenta"}


def view_lines(view: View, most: int | None = None) -> Iterator[Line]:
    """What the model would see; of each message at most *most* lines."""
    if view.profile.fixed_tokens:
        yield Line(f"── system prompt and tools · {view.profile.fixed_tokens:,} tokens", "bold magenta")
    for item in view.iter_items():
        for message in item.messages:
            yield Line("")
            yield _title(view, item, message)
            yield from _limited(list(message_lines(message)), most)
        if not item.messages:
            yield Line("")
            yield Line(f"── {_span(item)} hidden, nothing shown instead · {_by(item)}", "dim")


def _title(view: View, item: ViewItem, message: Message) -> Line:
    count = f"{view.profile.count(message):,} tokens"
    told = f" · {_by(item)}" if item.edit else ""
    return Line(f"── {_span(item)} {message.role} · {count}{told}", STYLES.get(message.role, "bold"))


def _span(item: ViewItem) -> str:
    return f"#{item.start}" if item.stop == item.start + 1 else f"#{item.start}-{item.stop - 1}"


def _by(item: ViewItem) -> str:
    return f"edit {item.edit.id[:8]} by {short(item.edit.by, 80)}" if item.edit else ""


def _limited(lines: Sequence[Line], most: int | None) -> Iterator[Line]:
    if most is None or len(lines) <= most:
        yield from lines
        return
    yield from lines[:most]
    yield Line(f"  … {len(lines) - most:,} more lines", "dim")


def message_lines(message: Message) -> Iterator[Line]:
    """A message, part by part."""
    for part in message.parts:
        yield from part_lines(part)


def part_lines(part: Part) -> Iterator[Line]:
    """A part; everything that is no plain text begins with a mark."""
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
            yield Line(
                f"← {clean(name)}{' ' if name else ''}{clean(id)}{' failed' if error else ''}",
                "red" if error else "blue",
            )
            for one in content:
                yield from (Line(f"    {line}", style) for line, style in part_lines(one))
        case Media(kind, mime, ref, width, height, size):
            yield Line(f"▣ {kind} {mime} {_extent(width, height, size)}{short(ref, 60)}", "magenta")
        case Opaque(kind, text):
            yield Line(f"◇ {clean(kind)} {short(text, 160)}", "dim")


def _lines(text: str, style: str = "", mark: str = "") -> Iterator[Line]:
    return (Line(mark + line, style) for line in clean(text).split("\n"))


def _arguments(text: str) -> str:
    """Arguments as `name: value`, one line each where the value is short."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return text
    return "\n".join(
        f"{key}: {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}" for key, one in value.items()
    )


def _extent(width: int, height: int, size: int) -> str:
    return (f"{width}x{height} " if width else "") + (f"{size:,} bytes " if size else "")


# --- what was said against what is shown -----------------------------------------------------


def diff_lines(view: View) -> Iterator[Line]:
    """What the model would see against what was said, edit by edit."""
    said, at = view.transcript.messages, 0
    for item in view.iter_items():
        if item.edit is None:
            continue
        if item.start > at:
            yield Line(f"   {_run(at, item.start)} as said", "dim")
        at = item.stop
        before, after = view.base.tokens(item.start, item.stop), item.tokens
        yield Line(f"@@ {_span(item)} · {_by(item)} · {before:,} → {after:,} tokens", "bold cyan")
        if _alike(said[item.start : item.stop], item.messages):
            yield from _unified(said[item.start : item.stop], item.messages)
        else:
            yield from _replaced(view, item)
    if at < len(said):
        yield Line(f"   {_run(at, len(said))} as said", "dim")


def _run(start: int, stop: int) -> str:
    return f"#{start}" if stop == start + 1 else f"#{start}-{stop - 1}"


def _alike(said: Sequence[Message], shown: Sequence[Message]) -> bool:
    return len(said) == len(shown) and all(a.role == b.role for a, b in zip(said, shown, strict=True))


def _unified(said: Sequence[Message], shown: Sequence[Message]) -> Iterator[Line]:
    old, new = ([line.text for message in side for line in message_lines(message)] for side in (said, shown))
    for line in list(unified_diff(old, new, lineterm="", n=2))[2:]:
        yield Line(line, {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], ""))


def _replaced(view: View, item: ViewItem) -> Iterator[Line]:
    """One line for each message that is hidden, then all that is shown instead."""
    for at in range(item.start, item.stop):
        message = view.transcript.messages[at]
        yield Line(f"- #{at} {message.role} · {view.base.tokens(at, at + 1):,} tokens · {gist(message)}", "red")
    for shown in item.messages:
        yield from (Line(f"+ {line.text}", "green") for line in message_lines(shown))


def gist(message: Message, width: int = 90) -> str:
    """The beginning of what a message says or does."""
    if message.text.strip():
        return short(message.text, width)
    calls = [f"→ {part.name} {part.arguments}" for part in message.parts if isinstance(part, ToolCall)]
    results = [f"← {part.text}" for part in message.parts if isinstance(part, ToolResult)]
    others = [type(part).__name__.lower() for part in message.parts]
    return short("; ".join(calls or results or others), width)


def parts(view: View, largest: int) -> dict[str, Any]:
    """What of a view's tokens belongs to which role, tool and kind of part; its largest messages."""

    def count(part: Part | Content) -> int:
        return view.profile.count(Message("user", (part,))) - view.profile.count(Message("user"))

    whole = break_down(view, part=count)
    shown = [(item.start, message) for item in view.iter_items() for message in item.messages]
    counted = [(tokens, at, message) for tokens, (at, message) in zip(whole.messages, shown, strict=True)]
    top = sorted(counted, key=lambda row: (-row[0], row[1]))[:largest]
    return {
        "by_role": _rows(whole.roles),
        "by_tool": _rows({name: tokens for name, tokens in whole.names.items() if name}),
        "by_part": _rows(whole.kinds),
        "largest": [{"at": at, "role": m.role, "tokens": tokens, "begins": gist(m, 60)} for tokens, at, m in top],
    }


def _rows(named: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "tokens": tokens} for name, tokens in named.items()]


GAP = "  "


def columns(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] = ()) -> None:
    """Print *rows* under *names*; a column whose name ends in `>` is flush right. Only a terminal breaks
    the lines, where they are wider than it; what is copied from it is whole."""
    if not rows:
        return
    right = [name.endswith(">") for name in names]
    heads = [name.rstrip(">") for name in names]
    cells = [heads, *rows, *([total] if total else [])]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(names) - 1)]
    for at, row in enumerate(cells):
        style = "dim" if at == 0 else "bold" if total and at == len(cells) - 1 else None
        padded = (_padded(*cell) for cell in zip(row, widths, right, strict=False))
        console.out(GAP.join((*padded, row[-1])).rstrip(), style=style, highlight=False)


def _padded(text: str, width: int, right: bool) -> str:
    gap = " " * (width - cell_len(text))
    return gap + text if right else text + gap
