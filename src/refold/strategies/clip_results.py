"""Show head and tail of a long tool result."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from refold.core.message_slots import MessageSlot, map_parts, replace_if_smaller
from refold.core.strategy import Edits
from refold.core.view import View
from refold.errors import require_callable_or_none, require_int, require_number
from refold.messages import Message, ToolResult
from refold.scorers.scorer import Scorer, score_alone
from refold.strategies.clipping import LEAST, clip_part, text_length


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
                and max(map(text_length, message.parts)) > self.limit
            ):
                by = repr(self)
                name = view.edit_name(at, at + 1, by)
                clipped = map_parts(
                    message,
                    partial(clip_part, limit=self._limit(view, message), head=self.head, name=name),
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
