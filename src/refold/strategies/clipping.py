"""Head and tail of a tool result, which strategies that look at it at first sight show."""

from collections.abc import Iterator
from dataclasses import replace

from refold.messages import Content, Part, Text, ToolResult
from refold.speakers import steering_texts
from refold.text.clip import Gap, gap
from refold.text.failures import failure_lines

MARK = 100
"""Characters set aside for the mark."""
LEAST = 400
"""Characters that leave room for head and tail."""


def clip_part(part: Part, limit: int, head: float, name: str) -> Part:
    """Return a result of over *limit* characters with its middle left out; other parts as they are.

    *head* is the share taken from the start, *name* that of the edit that brings the middle back.
    """
    if not isinstance(part, ToolResult) or text_length(part) <= limit:
        return part
    room, own = limit // 8, steering_texts(part)
    text = part.text[: part.text.rfind(own[0])] if own else part.text
    size = max(0, limit - MARK - sum(map(len, own)))
    cut = gap(text, max(0, size - room), head)
    lines = failure_lines(text[cut.start : cut.stop], room)
    if not lines:
        cut = gap(text, size, head)
    if cut.start >= cut.stop:
        return part
    return replace(part, content=tuple(_splice(part.content, cut, _mark(text, cut, lines, name))))


def text_length(part: Part) -> int:
    """Return characters of a result's text, as `ToolResult.text` joins it; of any other part
    none."""
    return (
        sum([len(item.text) + 1 for item in part.content if isinstance(item, Text)]) - 1
        if isinstance(part, ToolResult)
        else 0
    )


def _mark(text: str, cut: Gap, lines: list[str], name: str) -> str:
    """Return the line that stands for what is left out, and those lines of it that stay."""
    before = "" if text[: cut.start].endswith("\n") or cut.start == 0 else "\n"
    after = "" if text.startswith("\n", cut.stop) else "\n"
    note = f"{cut.stop - cut.start:,} characters left out (edit {name})"
    body = "\n".join((f"[… {note}, among them:", *lines, "…]")) if lines else f"[… {note} …]"
    return f"{before}{body}{after}"


def _splice(content: tuple[Content, ...], cut: Gap, mark: str) -> Iterator[Content]:
    """Yield content with the text of *cut* left out; the mark stands where the cut begins."""
    at, marked = 0, False
    for part in content:
        if not isinstance(part, Text):
            yield part
            continue
        first, last = at, at + len(part.text)
        at = last + 1
        before, after = (
            part.text[: max(0, cut.start - first)],
            part.text[max(0, cut.stop - first) :],
        )
        if not marked and last >= cut.start:
            before, marked = before + mark, True
        if text := before + after:
            yield Text(text)
