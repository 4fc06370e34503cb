"""What the soft/hard preset takes and gives: messages, checks, results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

Urgency = Literal["none", "soft", "hard"]


class CompactableMessage(TypedDict, total=False):
    """A message of Chat Completions (S2-22). Any other field goes through untouched."""

    role: str
    content: Any
    tool_calls: list[dict[str, Any]]
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class CompactionCheck:
    """What is due (S2-11 to S2-14)."""

    should_compact: bool
    """Soft or hard (C2-8)."""
    current_tokens: int
    threshold: int
    """The threshold that was crossed; of none the soft one."""
    urgency: Urgency


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What was done (S2-15 to S2-21)."""

    compacted_messages: list[Any]
    summary: str
    """Its text without the wrapper; empty where nothing was summarised."""
    original_count: int
    retained_count: int
    """Messages of the original that stay as they were."""
    flushed_memories: int
    """Memories that were not known before."""
    tokens_before_compaction: int
    tokens_after_compaction: int
    memory_failure: str = ""
    """Why memories could not be stored; they wait for the next compaction of this agent (C2-9)."""


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """What a compaction would do (S2-51), as it crosses a wire; nothing of it is kept until it is accepted."""

    preview_id: str
    """What to accept it by, once."""
    compacted_messages: list[Any]
    summaries: Mapping[str, str]
    """The text of each summary, by the edit that shows it, for the user to change."""
    original_count: int
    tokens_before_compaction: int
    tokens_after_compaction: int
