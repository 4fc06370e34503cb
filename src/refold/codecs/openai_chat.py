"""OpenAI Chat Completions and the many APIs that speak it: content, tool calls and reasoning of one
message stand in fields of their own.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from refold.codecs.blocks import canonical_all
from refold.codecs.codec import Wire
from refold.codecs.openai_chat_reading import REASONING, decode
from refold.codecs.openai_chat_writing import encode, merge, patch
from refold.messages import Part
from refold.rules.openai_chat import GROWN, RULES
from refold.rules.rule import Rules

__all__ = [
    "FIELD",
    "NAME",
    "decode",
    "encode",
    "fits",
    "is_system",
    "merge",
    "patch",
    "rules",
    "system",
    "tools",
]

NAME = "openai_chat"
FIELD = "messages"

FIXED_THINKING = ("deepseek", "kimi")
"""Models that refuse a turn without its reasoning (DS-1), by part of a name, November 2026."""

_FIELDS = frozenset({"tool_calls", "tool_call_id", "function_call", *REASONING})
_BLOCKS = frozenset({"image_url", "input_audio", "file", "video_url", "refusal"})


def rules(body: Mapping[str, Any]) -> Rules:
    """Return what Chat Completions refuses.

    Reasoning may go, unless the model wants it back (DS-1) or no model is named.
    """
    model = body.get("model")
    fixed = not isinstance(model, str) or any(name in model.lower() for name in FIXED_THINKING)
    return Rules(RULES, thinking="fixed" if fixed else "free", continuity=GROWN)


def fits(body: Mapping[str, Any], items: Sequence[Wire]) -> int:
    """Rate the payload.

    Tool messages and calls in their own field are sure signs, a leading system message a weak one.
    An entry with `parts` in place of `content` is Gemini's: what it holds cannot be read here.
    """
    tools = body.get("tools")
    score = 1 + 3 * (
        isinstance(tools, list) and any(isinstance(t, dict) and "function" in t for t in tools)
    )
    for item in items:
        if isinstance(item, dict):
            if "parts" in item and "content" not in item and _FIELDS.isdisjoint(item):
                return 0
            score += _item_fits(item)
        elif not hasattr(item, "model_dump"):
            return 0
    return score


def _item_fits(item: dict[str, Any]) -> int:
    if not _FIELDS.isdisjoint(item) or item.get("role") in ("tool", "function", "developer"):
        return 3
    content = item.get("content")
    blocks = content if isinstance(content, list) else ()
    kinds = (block.get("type") if isinstance(block, dict) else None for block in blocks)
    return 3 * any(isinstance(kind, str) and kind in _BLOCKS for kind in kinds) + (
        item.get("role") == "system"
    )


def is_system(item: Wire) -> bool:
    """Is it a system or developer message?"""
    return isinstance(item, dict) and item.get("role") in ("system", "developer")


def system(body: Mapping[str, Any], head: Sequence[Wire]) -> tuple[Part, ...]:  # noqa: ARG001
    """Return the leading system and developer messages."""
    return tuple(chain.from_iterable(decode(item, ()).parts for item in head))


def tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return each tool definition as canonical JSON, legacy `functions` included."""
    return (*canonical_all(body.get("tools")), *canonical_all(body.get("functions")))
