"""Anthropic Messages: a list of messages whose content is a string or a list of blocks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from refold.codecs.blocks import (
    as_dict,
    as_list,
    as_opaque,
    block_fields,
    block_reader,
    content_reader,
    expect_name,
    expect_text,
    intern_text,
    is_link,
    join_contents,
    parse_arguments,
    rate_entries,
    read_content,
    read_media,
    write_content,
    write_part,
)
from refold.codecs.codec import Wire, has_system_role, read_tools
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
from refold.rules.anthropic import CITATIONS, DIRECTIVE, RULES, block_binding
from refold.rules.anthropic_continuity import CONTINUITY, thinking_kind
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import JsonObject, canonicalize, dig, text_at

NAME = "anthropic"
FIELD = "messages"

_BILLING = "x-anthropic-billing-header:"
_BLOCKS = frozenset(
    [
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "image",
        "document",
        "server_tool_use",
        "mcp_tool_use",
        "mcp_tool_result",
        "search_result",
        "container_upload",
        "compaction",
    ]
)
"""Types of blocks that only this API has, besides those that end in `_tool_result`."""
_CONTENT = (str, list, tuple, type(None))
_NOT_OURS = frozenset(
    [
        "tool_calls",
        "tool_call_id",
        "function_call",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "thinking_blocks",
        "parts",
    ]
)


def rules(body: Body) -> Rules:
    """Return the rules of the Messages API.

    A model not known to be older binds its thinking. Without a name it may be either (AN-6, AN-7).
    """
    thinking = thinking_kind(body.get("model"))
    return Rules(RULES, True, thinking, CONTINUITY, CITATIONS)


def older_rules(body: Body) -> Rules:
    """Return the rules of accounts created before 2026-08-31.

    Thinking is bound only in requests that enable the check with
    `thinking.block_binding.prefix_mismatch_behavior` (AN-8).
    """
    asks = (block_binding(body) or {}).get("prefix_mismatch_behavior")
    return rules(body) if asks else replace(rules(body), thinking="loop")


def fits(body: Body, items: Sequence[Wire]) -> int:
    """Rate the payload.

    Block types, unmodified API responses, `system` and `input_schema` are sure signs. A `claude`
    model is a weak one.
    """
    score = rate_entries(items, _rate_entry)
    tools = as_list(body.get("tools"))
    has_schema = any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)
    signs = 3 * ("system" in body) + 3 * has_schema + 2 * ("thinking" in body)
    signs += str(body.get("model", "")).startswith("claude") + ("anthropic_version" in body)
    return score and score + signs


def _rate_entry(entry: JsonObject) -> int | None:
    if entry.get("role") == "tool" or not _NOT_OURS.isdisjoint(entry):
        return None
    return 3 * (any(map(_is_ours, as_list(entry.get("content")))) or "stop_reason" in entry)


def _is_ours(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return isinstance(kind, str) and (kind in _BLOCKS or kind.endswith("_tool_result"))


is_system = has_system_role
"""A system message before the first user message is legal for Opus 4.8 and later (AN-4)."""
tools = read_tools


def system(body: Body) -> tuple[Part, ...]:
    """Return the field `system` without Claude Code's billing header, which changes with the first
    message."""
    parts = read_content(body.get("system"), _read)
    return tuple(p for p in parts if not (isinstance(p, Text) and p.text.startswith(_BILLING)))


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - the protocol's
    """Decode a message. Raise `FormatError` if *item* is not an object."""
    item = as_dict(item, "an Anthropic message")
    role = item.get("role")
    if not _is_message(item):
        kind = DIRECTIVE if DIRECTIVE in item else "unknown"
        role = role if isinstance(role, str) else "user"
        return Message(role, (replace(as_opaque(item), kind=kind),))
    return Message(intern_text(role), read_content(item.get("content"), _read))


def _is_message(item: JsonObject) -> bool:
    """Return whether an entry has blocks. One that only sets `output_config` is carried as a
    whole."""
    content = item.get("content")
    is_typed = isinstance(item.get("role"), str) and isinstance(content, _CONTENT)
    is_directive = item.get("role") == "system" and not content and bool(item.get(DIRECTIVE))
    return is_typed and not is_directive


def _read_known(block: JsonObject) -> Part | None:
    """Read a block of a known type. Raise `KeyError` or `TypeError` for an unexpected shape."""
    match block.get("type"):
        case "text" if isinstance(block["text"], str):
            return Text(block["text"])
        case "tool_use":
            id, name = expect_name(block["id"]), expect_name(block["name"])
            arguments = canonicalize(block.get("input", {}))
            return ToolCall(id, name, arguments, text_at(block, "caller", "tool_id"))
        case "tool_result":
            content: tuple[Content, ...] = read_content(block.get("content"), _read_inner)
            id = expect_name(block["tool_use_id"])
            return ToolResult(id, content, block.get("is_error") is True)
        case "thinking":
            text, signature = block.get("thinking", ""), block.get("signature", "")
            return Thinking(expect_text(text), expect_text(signature))
        case "redacted_thinking":
            return Thinking("", expect_text(block.get("data", "")))
        case "image" | "document" as kind:
            return _read_media(kind, block["source"])
    return None


def _read_media(kind: str, source: JsonObject) -> Media | None:
    match source["type"]:
        case "base64":
            mime = expect_text(source.get("media_type", ""))
            return read_media(kind, mime, expect_text(source["data"]), None)
        case "url":
            return read_media(kind, "", None, expect_text(source["url"]))
        case "file":
            return read_media(kind, "", None, expect_text(source["file_id"]))
    return None


def _carry(block: Any) -> Opaque:
    """Carry a block as opaque, with the ids that link calls and results of server tools (AN-3)."""
    opens = dig(block, "id") if text_at(block, "type").endswith("tool_use") else ""
    return as_opaque(block, opens=opens, closes=dig(block, "tool_use_id"))


_read = block_reader(_read_known, _carry)
_read_inner = content_reader(_read)


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message without an original entry.

    Raises `FormatError` for embedded media, whose bytes are not available.
    """
    role = "user" if message.role == "tool" else message.role
    only = message.parts[0] if len(message.parts) == 1 else None
    content = (
        only.text if isinstance(only, Text) else [_write(None, part) for part in message.parts]
    )
    return {"role": role, "content": content}


def patch(item: Wire, message: Message) -> Wire:
    """Update *item* to *message*; unchanged blocks stay the same objects."""
    old = as_dict(item, "an Anthropic message")
    if not _is_message(old) and decode(old, ()) == message:
        return item
    content = write_content(old.get("content"), message.parts, _read, _write)
    return item if content is old.get("content") else {**old, "content": content}


def _write(block: Any, part: Part) -> Any:
    """Write *part* as a block, over *block* if there is one."""
    old = block_fields(block)
    match part:
        case Thinking(text, signature):
            return old | _write_thinking(text, signature, old.get("type"))
        case ToolCall(id, name):
            new = old or {"type": "tool_use", "id": id}
            return {**new, "name": name, "input": parse_arguments(part)}
        case ToolResult():
            return _write_result(old, part)
        case Media(kind, _, url) if is_link(part):
            return {"type": kind, "source": {"type": "url", "url": url}}
    return write_part(old, part, "an Anthropic message")


def _write_thinking(text: str, signature: str, kind: Any) -> JsonObject:
    if kind == "redacted_thinking" or (kind is None and not text):
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": text, "signature": signature}


def _write_result(old: JsonObject, part: ToolResult) -> JsonObject:
    block = dict(old or {"type": "tool_result", "tool_use_id": part.id, "content": ""})
    content = write_content(block.get("content"), part.content, _read_inner, _write)
    if content is not block.get("content"):
        block["content"] = content
    if part.error != (block.get("is_error") is True):
        block["is_error"] = part.error
    return block


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one role: the blocks of both, in order."""
    first, second = as_dict(first, "an Anthropic message"), as_dict(second, "an Anthropic message")
    contents = first.get("content"), second.get("content")
    return {**first, "content": join_contents(*contents, _write)}
