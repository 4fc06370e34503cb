"""Calls that were made again although their results were there, had we not hidden them.

An upper bound: an agent may call a tool again for reasons of its own.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from refold.core.view import View
from refold.edits import Edit
from refold.gateway.ledger.cost import Shared, covering
from refold.messages import Message, ToolCall, ToolResult


class Again(NamedTuple):
    """Results that were fetched again."""

    results: int = 0
    tokens: int = 0
    """As estimated."""
    share: float = 0.0
    """Of all that is new in the request: 1 where it was made for nothing else."""


@dataclass(slots=True)
class Fetched:
    """What a conversation's calls were, and where their latest results stand."""

    length: int = 0
    tip: str = ""
    asked: dict[str, bytes] = field(default_factory=dict)
    """Calls by their ids: a hash of name and arguments."""
    results: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Message and part of the latest result of each."""

    def read(self, view: View, before: Shared | None) -> Again:
        """Read what is new in *view*; what of it the edits that showed *before* had hidden."""
        tips, messages = view.transcript.tips, view.transcript.messages
        if self.length >= len(tips) or (self.length and tips[self.length] != self.tip):
            self.length, self.asked, self.results = 0, {}, {}
        since = before.length if before is not None else len(messages)
        found = tokens = new = 0
        for at in range(self.length, len(messages)):
            again = self._message(view, at, before)
            if at >= since:
                new += messages[at].is_request + len(messages[at].results)
                found += len(again)
                tokens += sum(view.profile.count(Message("tool", (part,))) for part in again)
        self.length, self.tip = len(messages), tips[-1]
        return Again(found, tokens, found / new if new else 0.0)

    def _message(self, view: View, at: int, before: Shared | None) -> list[ToolResult]:
        """Take in a message; its results that were hidden when they were asked for again."""
        again = []
        for place, part in enumerate(view.transcript.messages[at].parts):
            if isinstance(part, ToolCall):
                self.asked[part.id] = _key(part)
            elif isinstance(part, ToolResult) and (key := self.asked.get(part.id)):
                if before is not None and key in self.results and _was_hidden(view, self.results[key], before):
                    again.append(part)
                self.results[key] = (at, place)
        return again


def _was_hidden(view: View, where: tuple[int, int], before: Shared) -> bool:
    at, place = where
    edit = covering(before.seen.top, at) if at < before.length else None
    return edit is not None and not _shows(edit, view.transcript.messages[at].parts[place])


def _shows(edit: Edit, part: object) -> bool:
    return any(part in message.parts for message in edit.insert)


def _key(call: ToolCall) -> bytes:
    said = f"{call.name}\n{call.arguments}".encode("utf-8", "surrogatepass")
    return blake2b(said, digest_size=12).digest()
