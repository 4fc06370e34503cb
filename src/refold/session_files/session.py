"""The content of a session file: the whole conversation, and its client's compactions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from refold.text.json_fields import Record

Entry = Any
"""One entry of a request's list of messages, as parsed from JSON."""

Format = Literal["anthropic", "openai_chat", "openai_responses", "gemini"]

FIELDS: Mapping[Format, str] = {
    "anthropic": "messages",
    "openai_chat": "messages",
    "openai_responses": "input",
    "gemini": "contents",
}
"""The request field that holds the conversation, by format."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the file that cannot be read as it stands."""

    line: int
    """Counted from 1; 0 for the file as a whole."""
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True, slots=True)
class Compaction:
    """The client showed its model *insert* instead of `messages[start:stop]`."""

    start: int
    stop: int
    insert: tuple[Entry, ...]
    trigger: str = ""
    """The trigger in the client's word: `auto`, `manual`, `microcompact`, `prune` ..."""
    meta: Record | None = None
    """What else the client recorded about it, unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One recorded conversation, in the wire format nearest to what its client sent."""

    path: Path
    """Where it was read from; a bare name for bytes and standard input."""
    client: str
    """`claude_code`, `codex`, `gemini_cli`, `qwen`, `pi`, `opencode`, `plain`, `tau` ..."""
    format: Format
    id: str = ""
    messages: list[Entry]
    """The active branch in order, with no compaction applied."""
    body: Record
    """The rest of the request as far as the file has it: model, system prompt, tools."""
    compactions: tuple[Compaction, ...] = ()
    """Recorded compactions, oldest first."""
    usage: tuple[tuple[int, Record], ...] = ()
    """(position, the provider's report): prompt and answer together were `messages[:position]`, as
    the model saw them then."""
    problems: tuple[Problem, ...] = ()
    title: str = ""
    cwd: str = ""
    started: datetime | None = None
    updated: datetime | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """A request body with the full transcript."""
        return {**self.body, FIELDS[self.format]: self.messages}

    @property
    def effective(self) -> list[Entry]:
        """The entries that the client's own model saw last: every compaction applied."""
        out, at = list[Entry](), 0
        for compaction in _outermost(self.compactions):
            out += [*self.messages[at : compaction.start], *compaction.insert]
            at = compaction.stop
        return out + self.messages[at:]

    @property
    def effective_payload(self) -> dict[str, Any]:
        """A request body with the effective context."""
        return {**self.body, FIELDS[self.format]: self.effective}


def _outermost(compactions: Iterable[Compaction]) -> list[Compaction]:
    """Those that show: of nested ones the outer, of two on one span the later."""
    ordered = sorted(
        enumerate(compactions), key=lambda pair: (pair[1].start, -pair[1].stop, -pair[0])
    )
    top = list[Compaction]()
    for _, compaction in ordered:
        if not top or (
            compaction.start >= top[-1].stop
            and (compaction.start, compaction.stop) != (top[-1].start, top[-1].stop)
        ):
            top.append(compaction)
    return top
