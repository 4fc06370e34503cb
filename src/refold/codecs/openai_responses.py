"""OpenAI Responses: a flat list of items; messages, calls, outputs and reasoning are items."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from refold.codecs.blocks import (
    as_dict,
    as_list,
    as_opaque,
    canonical_all,
    intern_text,
    parse_arguments,
    read_content,
    read_content_block,
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
from refold.rules.openai_responses import GROWN, RULES
from refold.rules.rule import Rules
from refold.text.canonical_json import canonicalize, canonicalize_text, parse_or_text

NAME = "openai_responses"
FIELD = "input"

MOVED = ("id", "status", "cache_control")
"""Fields of an item that clients make, drop and change; `call_id` is what links."""

_ENDINGS = ("_call", "_output", "_request", "_response")
_KINDS = frozenset(
    {"reasoning", "item_reference", "compaction", "compaction_trigger", "additional_tools"}
)
_USERS = frozenset({"compaction_trigger", "mcp_approval_response"})


def rules(body: Mapping[str, Any]) -> Rules:  # noqa: ARG001 - the protocol's
    """Return what the Responses API refuses; reasoning stays with what it led to (OA-3, OA-4)."""
    return Rules(RULES, thinking="fixed", continuity=GROWN)


def fits(body: Mapping[str, Any], items: Sequence[Wire]) -> int:
    """Rate the payload: typed items are a sure sign; so is `instructions` beside them."""
    score = 1 + 2 * ("instructions" in body)
    for item in items:
        if isinstance(item, str):
            continue
        if isinstance(item, dict):
            score += _item_fits(item)
        elif not hasattr(item, "model_dump"):
            return 0
    return score


def _item_fits(item: dict[str, Any]) -> int:
    """Rate an item: a message may be another API's answer, so its blocks decide."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return 0
    if kind != "message":
        return 3 * (kind in _KINDS or kind.endswith(_ENDINGS))
    blocks = (
        block.get("type") for block in as_list(item.get("content")) if isinstance(block, dict)
    )
    return 1 + 2 * any(block in ("input_text", "output_text") for block in blocks)


def is_system(item: Wire) -> bool:
    """Is it a system or developer message, or the tools that lead a lite request's head?"""
    if not isinstance(item, dict) or item.get("role") not in ("system", "developer"):
        return False
    return item.get("type", "message") in ("message", "additional_tools")


def system(body: Mapping[str, Any], head: Sequence[Wire]) -> tuple[Part, ...]:
    """Return the field `instructions`, then leading system and developer messages."""
    parts = (decode(item, ()).parts for item in head)
    return (*read_content(body.get("instructions"), _read), *chain.from_iterable(parts))


def tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return each tool definition as canonical JSON."""
    return tuple(canonical_all(body.get("tools")))


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - the protocol's
    """Decode an item; a string is a user message.

    Raises `FormatError` when *item* is neither string nor object.
    """
    if isinstance(item, str):
        return Message("user", read_content(item, _read))
    item = as_dict(item, "a Responses item")
    kind, role = item.get("type"), item.get("role")
    if _is_message(item):
        return Message(_role(role), read_content(item.get("content"), _read))
    if kind == "reasoning":
        return Message("assistant", (_read_reasoning(item),))
    try:
        return _read_tool_item(item, kind)
    except (KeyError, TypeError, AttributeError):
        return _read_unknown(item)


def _is_message(item: dict[str, Any]) -> bool:
    return item.get("type") == "message" or (item.get("type") is None and "content" in item)


def _role(role: Any) -> str:
    if not isinstance(role, str):
        return "user"
    return "system" if role == "developer" else intern_text(role)


def _read_reasoning(item: dict[str, Any]) -> Thinking:
    blocks = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    sealed = item.get("encrypted_content")
    text = "\n".join(text for text in texts if isinstance(text, str))
    return Thinking(text, sealed if isinstance(sealed, str) else "")


def _read_tool_item(item: dict[str, Any], kind: Any) -> Message:
    """Read calls and outputs we know. Raises `KeyError` or `TypeError` for another shape."""
    match kind:
        case "function_call":
            return _read_call(item, item["name"], canonicalize_text(item["arguments"]))
        case "custom_tool_call":
            return _read_call(item, item["name"], item["input"])
        case "local_shell_call":
            return _read_call(item, "local_shell", canonicalize(item["action"]))
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            content: tuple[Content, ...] = read_content(item["output"], _read)
            return Message("tool", (ToolResult(_call_id(item), content),))
    raise TypeError


def _read_call(item: dict[str, Any], name: Any, given: Any) -> Message:
    if not (isinstance(name, str) and isinstance(given, str)):
        raise TypeError
    return Message("assistant", (ToolCall(_call_id(item), intern_text(name), given),))


def _call_id(item: dict[str, Any]) -> str:
    """Return `call_id`, or the `id` by which a local shell's output names its call.

    Raises `TypeError` when there is none.
    """
    link = item.get("call_id") or (
        item.get("id") if item.get("type") == "local_shell_call_output" else None
    )
    if not isinstance(link, str):
        raise TypeError
    return intern_text(link)


def _read_unknown(item: dict[str, Any]) -> Message:
    """Carry any other item; a server's tools and approvals show what they open and close."""
    kind, role = str(item.get("type")), item.get("role")
    answers = kind.endswith(("_output", "_response"))
    link = item.get("call_id")
    if kind == "mcp_approval_request":
        link = item.get("id")
    elif kind == "mcp_approval_response":
        link = item.get("approval_request_id")
    moved = () if kind in ("item_reference", "mcp_approval_request") else MOVED
    part = as_opaque(item, moved, opens="" if answers else link, closes=link if answers else "")
    if isinstance(role, str) or "type" not in item or kind in _USERS:
        return Message(_role(role), (part,))
    return Message("tool" if answers else "assistant", (part,))


def _read(block: Any) -> Content:
    return read_content_block(block, _read_media)


def _read_media(kind: Any, block: dict[str, Any]) -> Media | None:
    """Raises `KeyError`, `TypeError` or `AttributeError` for a block of another shape."""
    match kind:
        case "input_image" | "computer_screenshot":
            return read_media("image", "", None, block.get("image_url") or block["file_id"])
        case "input_file":
            return read_media(
                "document",
                "",
                None,
                block.get("file_data") or block.get("file_url") or block["file_id"],
            )
        case "input_audio":
            sound = block["input_audio"]
            return read_media("audio", f"audio/{sound.get('format', '')}", sound["data"], None)
    return None


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message that came from no entry. Raises `FormatError` for no single item."""
    only = message.parts[0] if len(message.parts) == 1 else None
    match only:
        case Text(text):
            return {
                "type": "message",
                "role": message.role,
                "content": [_text_block(message.role, text)],
            }
        case Thinking(text, signature):
            return {"type": "reasoning", **_write_reasoning(text, signature)}
        case ToolCall(id, name):
            return {
                "type": "function_call",
                "call_id": id,
                "name": name,
                "arguments": only.arguments,
            }
        case ToolResult(id):
            output = write_content("", only.content, _read, _write)
            return {"type": "function_call_output", "call_id": id, "output": output}
        case Opaque():
            return parse_or_text(only.json)
    if any(isinstance(part, Thinking | ToolCall | ToolResult) for part in message.parts):
        raise FormatError(
            "a Responses item is one call, one result, one piece of reasoning or one message"
        )
    write = _write_output if message.role == "assistant" else _write
    return {
        "type": "message",
        "role": message.role,
        "content": [write(None, part) for part in message.parts],
    }


def patch(item: Wire, message: Message) -> Wire:
    """Make *item* say what *message* says; unknown fields and unchanged blocks stay the same."""
    old = decode(item, ())
    if old == message:
        return item
    if isinstance(item, str):
        return (
            message.text
            if all(isinstance(part, Text) for part in message.parts)
            else encode(message)
        )
    item = as_dict(item, "a Responses item")
    if _is_message(item):
        write = _write_output if old.role == "assistant" else _write
        return {**item, "content": write_content(item.get("content"), message.parts, _read, write)}
    if len(message.parts) != 1 or type(message.parts[0]) is not type(old.parts[0]):
        return encode(message)
    return {**item, **_write_fields(item, message.parts[0])}


def _write_fields(item: dict[str, Any], part: Part) -> dict[str, Any]:
    """Write the fields of a call, an output or reasoning that say *part*."""
    match part:
        case ToolCall() if item["type"] == "local_shell_call":
            return {"action": parse_arguments(part)}
        case ToolCall(_, name, given):
            return {
                "name": name,
                "input" if item["type"] == "custom_tool_call" else "arguments": given,
            }
        case ToolResult():
            return {"output": write_content(item["output"], part.content, _read, _write)}
        case Thinking(text, signature):
            return _write_reasoning(text, signature) | (
                {"content": None} if "content" in item else {}
            )
        case Opaque():
            return dict(parse_or_text(part.json))
    raise FormatError(f"a Responses item cannot hold this {type(part).__name__}")


def _write_reasoning(text: str, signature: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"summary": summary, **({"encrypted_content": signature} if signature else {})}


def _text_block(role: str, text: str) -> dict[str, Any]:
    return {"type": "output_text" if role == "assistant" else "input_text", "text": text}


def _write(block: Any, part: Part) -> Any:
    """Write a content block that says *part*, from *block* if there is one."""
    match part:
        case Text(text):
            return {**(block if isinstance(block, dict) else {"type": "input_text"}), "text": text}
        case Media(kind, _, ref) if kind == "image" and ref.startswith(("http://", "https://")):
            return {"type": "input_image", "image_url": ref}
        case Opaque():
            return parse_or_text(part.json)
    raise FormatError(f"a Responses message cannot hold this {type(part).__name__} anew")


def _write_output(block: Any, part: Part) -> Any:
    """Write a block of what the model said."""
    return (
        _write(block or {"type": "output_text"}, part)
        if isinstance(part, Text)
        else _write(block, part)
    )


def merge(first: Wire, second: Wire) -> Wire:
    """Join two messages of one role. Raises `FormatError` for items that are no messages."""
    first = (
        {"role": "user", "content": first}
        if isinstance(first, str)
        else as_dict(first, "a Responses item")
    )
    second = (
        {"role": "user", "content": second}
        if isinstance(second, str)
        else as_dict(second, "a Responses item")
    )
    if not (_is_message(first) and _is_message(second)):
        raise FormatError("only messages can be merged: every other Responses item stands alone")
    write = _write_output if first.get("role") == "assistant" else _write
    return {
        **first,
        "content": [*_blocks(first.get("content"), write), *_blocks(second.get("content"), write)],
    }


def _blocks(content: Any, write: Any) -> Sequence[Any]:
    return (
        [write(None, Text(content))] if isinstance(content, str) and content else as_list(content)
    )
