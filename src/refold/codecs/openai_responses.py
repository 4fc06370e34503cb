"""OpenAI Responses: a flat list of items; messages, calls, outputs and reasoning are items."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from refold.codecs.blocks import (
    as_dict,
    as_list,
    as_opaque,
    block_fields,
    block_reader,
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
from refold.codecs.codec import Wire, read_tools
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
from refold.rules.anthropic_continuity import rules_behind
from refold.rules.openai_responses import CONTINUITY, RULES
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import (
    JsonObject,
    canonicalize,
    canonicalize_text,
    dig,
    parse_or_text,
    text_at,
)

NAME = "openai_responses"
FIELD = "input"

MOVED = ("id", "status", "cache_control")
"""Fields of an item that clients add, drop or change; `call_id` links calls and outputs."""

_ENDINGS = ("_call", "_output", "_request", "_response")
_KINDS = frozenset(
    {"reasoning", "item_reference", "compaction", "compaction_trigger", "additional_tools"}
)
_USERS = frozenset({"compaction_trigger", "mcp_approval_response"})
_LINKS = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
"""Field of the link, if it is not `call_id`."""
_HOSTED = dict.fromkeys(("tool_search_call", "tool_search_output"), "hosted search")
"""Link between a tool search and its output if the API itself runs it, without a `call_id`."""


def rules(body: Body) -> Rules:
    """Return the rules of the Responses API; reasoning stays with what it led to (OA-3, OA-4)."""
    return rules_behind(body, Rules(RULES, thinking="fixed", continuity=CONTINUITY))


def fits(body: Body, items: Sequence[Wire]) -> int:
    """Rate the payload: typed items are a sure sign; so is `instructions` beside them."""
    score = rate_entries([item for item in items if not isinstance(item, str)], _rate_item)
    return score and score + 2 * ("instructions" in body)


def _rate_item(item: JsonObject) -> int | None:
    """Rate an item. A message may come from another API, so its blocks decide."""
    if "parts" in item and "content" not in item:
        return None
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        return 0
    if kind != "message":
        return 3 * (kind in _KINDS or kind.endswith(_ENDINGS))
    kinds = (text_at(block, "type") for block in as_list(item.get("content")))
    is_ours = any(kind in ("input_text", "output_text") for kind in kinds)
    return 3 * is_ours or int("type" in item)


def is_system(item: Wire) -> bool:
    """Return whether an item is a system or developer message, or their `additional_tools`."""
    if not isinstance(item, dict) or item.get("role") not in ("system", "developer"):
        return False
    return item.get("type", "message") in ("message", "additional_tools")


def system(body: Body) -> tuple[Part, ...]:
    """Return the field `instructions`."""
    return read_content(body.get("instructions"), _read)


tools = read_tools


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - the protocol's
    """Decode an item; a string is a user message.

    Raises `FormatError` if *item* is neither a string nor an object.
    """
    if isinstance(item, str):
        return Message("user", read_content(item, _read))
    item = as_dict(item, "a Responses item")
    if _is_message(item):
        return Message(_role(item), read_content(item.get("content"), _read))
    try:
        return _read_item(item) or _read_unknown(item)
    except (KeyError, TypeError, AttributeError):
        return _read_unknown(item)


def _is_message(item: JsonObject) -> bool:
    return item.get("type") == "message" or (item.get("type") is None and "content" in item)


def _role(item: JsonObject) -> str:
    role = item.get("role")
    if not isinstance(role, str):
        return "user"
    return "system" if role == "developer" else intern_text(role)


def _read_item(item: JsonObject) -> Message | None:
    """Read an item of a known type. Raise `KeyError` or `TypeError` for an unexpected shape."""
    kind = item.get("type")
    match kind:
        case "reasoning":
            return Message("assistant", (_read_reasoning(item),))
        case "function_call":
            return _read_call(item, item["name"], canonicalize_text(item["arguments"]))
        case "custom_tool_call":
            return _read_call(item, item["name"], item["input"])
        case "local_shell_call":
            return _read_call(item, "local_shell", canonicalize(item["action"]))
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            content: tuple[Content, ...] = read_content(item["output"], _read)
            link = item.get("call_id") or (kind == "local_shell_call_output" and item.get("id"))
            return Message("tool", (ToolResult(expect_name(link), content),))
    return None


def _read_reasoning(item: JsonObject) -> Thinking:
    blocks = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    text = "\n".join(text for text in texts if isinstance(text, str))
    return Thinking(text, text_at(item, "encrypted_content"))


def _read_call(item: JsonObject, name: Any, arguments: Any) -> Message:
    id = expect_name(item.get("call_id") or None)
    caller = text_at(item, "caller", "caller_id")
    call = ToolCall(id, expect_name(name), expect_text(arguments), caller)
    return Message("assistant", (call,))


def _read_unknown(item: JsonObject) -> Message:
    """Carry other items as opaque, with the links of server tools and approvals."""
    kind = str(item.get("type"))
    answers = kind.endswith(("_output", "_response"))
    link = item.get(_LINKS.get(kind, "call_id")) or _HOSTED.get(kind)
    moved = () if kind in ("item_reference", "mcp_approval_request") else MOVED
    part = as_opaque(item, moved, opens="" if answers else link, closes=link if answers else "")
    if isinstance(item.get("role"), str) or "type" not in item or kind in _USERS:
        return Message(_role(item), (part,))
    is_hosted = kind == "program_output" or link in _HOSTED.values()
    return Message("tool" if answers and not is_hosted else "assistant", (part,))


def _read_known(block: JsonObject) -> Content | None:
    """Read a block of a known type.

    Raises `KeyError`, `TypeError` or `AttributeError` for an unexpected shape.
    """
    match block["type"]:
        case "text" | "input_text" | "output_text":
            return Text(expect_text(block["text"]))
        case "input_image" | "computer_screenshot":
            return read_media("image", "", None, block.get("image_url") or block["file_id"])
        case "input_file":
            place = block.get("file_data") or block.get("file_url") or block["file_id"]
            return read_media("document", "", None, place)
        case "input_audio":
            sound = block["input_audio"]
            return read_media("audio", f"audio/{sound.get('format', '')}", sound["data"], None)
    return None


_read = block_reader(_read_known)


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a new message. Raise `FormatError` if it does not fit in one item."""
    only = message.parts[0] if len(message.parts) == 1 else None
    match only:
        case Thinking():
            return {"type": "reasoning", **_write_fields({}, only)}
        case ToolCall(id):
            return {"type": "function_call", "call_id": id, **_write_fields({}, only)}
        case ToolResult(id):
            return {"type": "function_call_output", "call_id": id, **_write_fields({}, only)}
        case Opaque():
            return parse_or_text(only.json)
    if any(isinstance(part, Thinking | ToolCall | ToolResult) for part in message.parts):
        raise FormatError(
            "a Responses item is one call, one result, one piece of reasoning or one message"
        )
    write = _writer(message.role)
    content = [write(None, part) for part in message.parts]
    return {"type": "message", "role": message.role, "content": content}


def encode_answer(item: Wire, result: ToolResult) -> Wire | None:
    """Encode the output of a call other than a function call, whose type depends on the call's."""
    kind = dig(item, "type")
    if kind == "custom_tool_call":
        return {"type": "custom_tool_call_output", "call_id": result.id, "output": result.text}
    if kind == "local_shell_call":
        return {"type": "local_shell_call_output", "id": result.id, "output": result.text}
    return None


def patch(item: Wire, message: Message) -> Wire:
    """Update *item* to *message*; unknown fields and unchanged blocks stay the same."""
    old = decode(item, ())
    if old == message:
        return item
    if isinstance(item, str):
        is_text = all(isinstance(part, Text) for part in message.parts)
        return message.text if is_text else encode(message)
    item = as_dict(item, "a Responses item")
    if _is_message(item):
        content = write_content(item.get("content"), message.parts, _read, _writer(old.role))
        return {**item, "content": content}
    if len(message.parts) != 1 or type(message.parts[0]) is not type(old.parts[0]):
        return encode(message)
    return {**item, **_write_fields(item, message.parts[0])}


def _write_fields(item: JsonObject, part: Part) -> JsonObject:
    """Return the new fields of a call, output or reasoning item."""
    match part:
        case ToolCall() if item.get("type") == "local_shell_call":
            return {"action": parse_arguments(part)}
        case ToolCall(_, name, arguments):
            key = "input" if item.get("type") == "custom_tool_call" else "arguments"
            return {"name": name, key: arguments}
        case ToolResult():
            return {"output": write_content(item.get("output", ""), part.content, _read, _write)}
        case Thinking(text, signature):
            summary = [{"type": "summary_text", "text": text}] if text else []
            sealed = {"encrypted_content": signature} if signature else {}
            content = {"content": None} if "content" in item else {}
            return {"summary": summary, **sealed, **content}
    return dict(write_part(None, part, "a Responses item"))


def _write(block: Any, part: Part, kind: str = "input_text") -> Any:
    """Write a content block, over *block* if there is one; a new text has the type *kind*."""
    match part:
        case Text():
            return write_part(block_fields(block) or {"type": kind}, part, "a Responses message")
        case Media("image", _, url) if is_link(part):
            return {"type": "input_image", "image_url": url}
    return write_part(block, part, "a Responses message")


def _writer(role: str) -> Any:
    return partial(_write, kind="output_text") if role == "assistant" else _write


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one role. Raise `FormatError` for other items."""
    first, second = (
        {"role": "user", "content": item}
        if isinstance(item, str)
        else as_dict(item, "a Responses item")
        for item in (first, second)
    )
    if not (_is_message(first) and _is_message(second)):
        raise FormatError("only messages can be merged: every other Responses item stands alone")
    contents = first.get("content"), second.get("content")
    return {**first, "content": join_contents(*contents, _writer(first.get("role")))}
