"""Anthropic Messages: a list of messages whose content is a string or a list of blocks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal

from refold.codecs.blocks import (
    as_dict,
    as_list,
    as_opaque,
    canonical_all,
    intern_text,
    kind_of,
    parse_arguments,
    read_content,
    write_content,
)
from refold.codecs.codec import Wire
from refold.codecs.media import read_media
from refold.errors import FormatError
from refold.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.rules.anthropic import RULES
from refold.rules.anthropic_body import block_binding
from refold.rules.anthropic_continuity import GROWN
from refold.rules.rule import Rules
from refold.text.canonical_json import canonicalize, parse_or_text

NAME = "anthropic"
FIELD = "messages"

BOUND_FROM = {"opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5), "fable": (5, 1), "mythos": (5, 1)}
"""First version of each family that binds thinking to what came before it (AN-7), November 2026."""

_MODEL = re.compile(r"claude-(?:([a-z]+)-)?(\d+)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?")
_BLOCKS = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"),
        *(
            "server_tool_use",
            "mcp_tool_use",
            "mcp_tool_result",
            "search_result",
            "container_upload",
            "compaction",
        ),
    }
)
"""Blocks of this API alone; so are all that end in `_tool_result`."""
_CONTENT = (str, list, tuple, type(None))
_INNER = Text | Media | Opaque
_NOT_OURS = frozenset({"tool_calls", "tool_call_id", "function_call", "reasoning_content", "parts"})


def rules(body: Mapping[str, Any]) -> Rules:
    """Return what the Messages API refuses.

    A model not known to be older binds its thinking; without a name it may be either (AN-6, AN-7).
    """
    return Rules(RULES, alternate=True, thinking=_binding(body.get("model")), continuity=GROWN)


def _binding(model: Any) -> Literal["loop", "bound", "unsure"]:
    if not isinstance(model, str) or not model:
        return "unsure"
    return "loop" if _is_older(model) else "bound"


def older_rules(body: Mapping[str, Any]) -> Rules:
    """Return the rules of accounts created before 2026-08-31.

    Thinking is bound only in requests that ask for the check, by
    `thinking.block_binding.prefix_mismatch_behavior` (AN-8).
    """
    asks = (block_binding(body) or {}).get("prefix_mismatch_behavior")
    return rules(body) if asks else replace(rules(body), thinking="loop")


def _is_older(model: Any) -> bool:
    """Is this a Claude model from before preserved thinking (AN-7)?"""
    match = _MODEL.search(model.lower()) if isinstance(model, str) else None
    if match is None:
        return False
    family, major, minor, after = match.groups()
    version = (int(major), int(minor or 0))
    first = BOUND_FROM.get(family or after or "")
    return version < first if first else version < (5, 0)


def fits(body: Mapping[str, Any], items: Sequence[Wire]) -> int:
    """Rate the payload.

    Blocks, answers put back as they came, `system` and `input_schema` are sure signs; a `claude`
    model is a weak one.
    """
    if not all(isinstance(item, dict) or hasattr(item, "model_dump") for item in items):
        return 0
    score = (
        1 + 3 * ("system" in body) + 3 * _has_schema(body.get("tools")) + 2 * ("thinking" in body)
    )
    score += str(body.get("model", "")).startswith("claude") + ("anthropic_version" in body)
    for item in items:
        if isinstance(item, dict):
            if item.get("role") == "tool" or not _NOT_OURS.isdisjoint(item):
                return 0
            blocks = any(map(_is_ours, as_list(item.get("content"))))
            score += 3 * (blocks or "stop_reason" in item)
    return score


def _has_schema(tools: Any) -> bool:
    return any(isinstance(tool, dict) and "input_schema" in tool for tool in as_list(tools))


def _is_ours(block: Any) -> bool:
    kind = _type(block)
    return kind in _BLOCKS or (kind is not None and kind.endswith("_tool_result"))


def _type(block: Any) -> str | None:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return kind if isinstance(kind, str) else None


def is_system(item: Wire) -> bool:
    """Is it a system message before the first user message (Opus 4.8 and later, AN-4)?"""
    return isinstance(item, dict) and item.get("role") == "system"


def system(body: Mapping[str, Any], head: Sequence[Wire]) -> tuple[Part, ...]:
    """Return the field `system`, then leading system messages.

    Claude Code's billing header, which changes with the first message, is left out.
    """
    parts = chain(
        read_content(body.get("system"), _read), *(decode(item, ()).parts for item in head)
    )
    return tuple(
        p
        for p in parts
        if not (isinstance(p, Text) and p.text.startswith("x-anthropic-billing-header:"))
    )


def tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return each tool definition as canonical JSON, cache marks left out."""
    return tuple(canonical_all(body.get("tools")))


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - the protocol's
    """Decode a message. Raises `FormatError` when *item* is no object."""
    item = as_dict(item, "an Anthropic message")
    role = item.get("role")
    if not _is_message(item):
        return Message(role if isinstance(role, str) else "user", (as_opaque(item),))
    return Message(intern_text(role), read_content(item.get("content"), _read))


def _is_message(item: dict[str, Any]) -> bool:
    return isinstance(item.get("role"), str) and isinstance(item.get("content"), _CONTENT)


def _read(block: Any) -> Part:
    if type(block) is not dict:
        return _read_object(block)
    kind = block.get("type")
    try:
        if kind == "text":
            text = block["text"]
            return Text(text) if isinstance(text, str) else as_opaque(block)
        if kind == "tool_use":
            return ToolCall(
                _expect_name(block["id"]),
                _expect_name(block["name"]),
                canonicalize(block.get("input", {})),
            )
        if kind == "tool_result":
            return _read_result(block)
        if kind == "thinking":
            return Thinking(
                _expect_text(block.get("thinking", "")), _expect_text(block.get("signature", ""))
            )
        if kind == "redacted_thinking":
            return Thinking("", _expect_text(block.get("data", "")))
        if kind in {"image", "document"}:
            return _read_media(block, kind)
    except (KeyError, TypeError):
        pass
    return _read_unknown(block)


def _expect_text(value: Any) -> str:
    """Return *value* if it is a string; `TypeError` sends the block to the unknown ones."""
    if not isinstance(value, str):
        raise TypeError(kind_of(value))
    return value


def _expect_name(value: Any) -> str:
    return intern_text(_expect_text(value))


def _read_object(block: Any) -> Part:
    if isinstance(block, str):
        return Text(block)
    if isinstance(block, Mapping) or hasattr(block, "model_dump"):
        return _read(as_dict(block, "a content block"))
    return as_opaque(block)


def _read_result(block: dict[str, Any]) -> ToolResult:
    content: tuple[Content, ...] = read_content(block.get("content"), _read_inner)
    return ToolResult(_expect_name(block["tool_use_id"]), content, block.get("is_error") is True)


def _read_inner(block: Any) -> Content:
    """Read a block inside a result: calls and thinking have no meaning there."""
    part = _read(block)
    return part if isinstance(part, _INNER) else as_opaque(block)


def _read_media(block: dict[str, Any], kind: str) -> Part:
    source = block["source"]
    form = source["type"]
    if form == "base64":
        return read_media(
            kind, _expect_text(source.get("media_type", "")), _expect_text(source["data"]), None
        )
    if form in {"url", "file"}:
        return read_media(
            kind, "", None, _expect_text(source["url" if form == "url" else "file_id"])
        )
    return _read_unknown(block)


def _read_unknown(block: dict[str, Any]) -> Opaque:
    """Carry a block; ids show what server-side tools open and close (AN-3)."""
    kind = str(block.get("type"))
    closes = block.get("tool_use_id") or ""
    return as_opaque(
        block, opens=block.get("id") if kind.endswith("tool_use") else "", closes=closes
    )


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message that came from no entry.

    Raises `FormatError` for embedded media, whose bytes are not here.
    """
    role = "user" if message.role == "tool" else message.role
    only = message.parts[0] if len(message.parts) == 1 else None
    content = (
        only.text if isinstance(only, Text) else [_write(None, part) for part in message.parts]
    )
    return {"role": role, "content": content}


def patch(item: Wire, message: Message) -> Wire:
    """Make *item* say what *message* says; unchanged blocks stay the same objects."""
    old = as_dict(item, "an Anthropic message")
    if not _is_message(old) and decode(old, ()) == message:
        return item
    content = write_content(old.get("content"), message.parts, _read, _write)
    return item if content is old.get("content") else {**old, "content": content}


def _write(block: Any, part: Part) -> Any:
    """Write a block that says *part*, from *block* if there is one."""
    old = (
        as_dict(block, "a content block")
        if block is not None and not isinstance(block, str)
        else {}
    )
    match part:
        case Text(text):
            return {**(old or {"type": "text"}), "text": text}
        case Thinking(text, signature):
            return old | _write_thinking(text, signature, old.get("type"))
        case ToolCall(id, name):
            return {
                **(old or {"type": "tool_use", "id": id}),
                "name": name,
                "input": parse_arguments(part),
            }
        case ToolResult():
            return _write_result(old, part)
        case Opaque():
            return parse_or_text(part.json)
        case Media():
            return _write_media(part)


def _write_thinking(text: str, signature: str, kind: Any) -> dict[str, Any]:
    if kind == "redacted_thinking" or (kind is None and not text):
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": text, "signature": signature}


def _write_result(old: dict[str, Any], part: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = (
        dict(old) if old else {"type": "tool_result", "tool_use_id": part.id, "content": ""}
    )
    content = write_content(block.get("content"), part.content, _read_inner, _write)
    if content is not block.get("content"):
        block["content"] = content
    if part.error != (block.get("is_error") is True):
        block["is_error"] = part.error
    return block


def _write_media(part: Media) -> dict[str, Any]:
    if part.ref.startswith(("http://", "https://")):
        return {"type": part.kind, "source": {"type": "url", "url": part.ref}}
    raise FormatError(f"the bytes of an embedded {part.kind} are only in its original entry")


def merge(first: Wire, second: Wire) -> Wire:
    """Join two messages of one role: the blocks of both, in order."""
    first, second = as_dict(first, "an Anthropic message"), as_dict(second, "an Anthropic message")
    return {**first, "content": [*_blocks(first.get("content")), *_blocks(second.get("content"))]}


def _blocks(content: Any) -> Sequence[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return as_list(content)
