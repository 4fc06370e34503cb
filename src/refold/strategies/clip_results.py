"""Show head and tail of a long tool result."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from refold.core.message_slots import MessageSlot, map_parts, replace_if_smaller
from refold.core.strategy import Edits
from refold.core.view import View
from refold.errors import require_callable_or_none, require_int, require_number
from refold.messages import Content, Message, Part, Text, ToolResult
from refold.scorers.scorer import Scorer, score_alone
from refold.speakers import steering_texts
from refold.text.clip import Gap, gap
from refold.text.failures import failure_lines

MARK = 100
"""Characters set aside for the mark."""
LEAST = 400
"""Characters that leave room for head and tail."""


@dataclass(frozen=True)
class ClipResults:
    """Of a tool result longer than *limit* characters show the head and the tail.

    Local: it decides on each message at first sight, from that message alone, so the bytes sent are
    the same ever after and no prompt cache breaks. A mark in the middle says how much is left out
    and names the edit that brings it back. Lines of the middle that say what went wrong (exit
    codes, errors, the last line of a traceback) stay, up to an eighth of the limit. Media stay;
    several texts of one result are cut as one. A clipped JSON result is text, no longer JSON.

    *head* is the share of what stays that is taken from the start. *version* changes when the same
    settings would cut otherwise. With a *scorer* (docs/strategies.md) what matters more is cut
    less: the limit of a message is *limit* times 1 + its score, the scorer being shown that message
    alone. Raises ValueError for a limit under 400 and a *head* that is no share. Conformance cases
    28, 30, 31.
    """

    limit: int = 4_000
    head: float = 0.5
    version: int = 1
    scorer: Scorer | None = None
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_int(LEAST, limit=self.limit)
        require_number(0, 1, head=self.head)
        require_int(1, version=self.version)
        require_callable_or_none(scorer=self.scorer)

    def __call__(self, view: View, since: int = 0) -> Edits:
        """An edit for each message from position *since* on with a result over the limit."""
        for at, message in view.iter_unedited(since):
            if (
                ToolResult in map(type, message.parts)
                and max(map(_length, message.parts)) > self.limit
            ):
                by = repr(self)
                name = view.edit_name(at, at + 1, by)
                clipped = map_parts(
                    message, partial(self._clip, limit=self._limit(view, message), name=name)
                )
                yield from replace_if_smaller(
                    view, MessageSlot(at, message, view.base.tokens(at, at + 1), ""), clipped, by
                )

    def _limit(self, view: View, message: Message) -> int:
        return (
            self.limit + int(self.limit * score_alone(self.scorer, message, view.profile))
            if self.scorer
            else self.limit
        )

    def _clip(self, part: Part, limit: int, name: str) -> Part:
        if not isinstance(part, ToolResult) or _length(part) <= limit:
            return part
        room, own = limit // 8, steering_texts(part)
        text = part.text[: part.text.rfind(own[0])] if own else part.text
        size = max(0, limit - MARK - sum(map(len, own)))
        cut = gap(text, max(0, size - room), self.head)
        lines = failure_lines(text[cut.start : cut.stop], room)
        if not lines:
            cut = gap(text, size, self.head)
        if cut.start >= cut.stop:
            return part
        return replace(
            part, content=tuple(_splice(part.content, cut, _mark(text, cut, lines, name)))
        )


def _length(part: Part) -> int:
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
