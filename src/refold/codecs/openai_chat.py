"""OpenAI Chat Completions and the many APIs that speak it: content, tool calls and reasoning of
one message stand in fields of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from refold.codecs.blocks import (
    as_dict,
    as_list,
    as_opaque,
    intern_text,
    match_results,
    rate_entries,
    read_content,
    write_blocks,
    write_content,
)
from refold.codecs.codec import Wire, no_system
from refold.codecs.openai_chat_slots import (
    REASONING,
    calls_of,
    join_content,
    read_content_block,
    read_slot,
    slots_of,
    with_slots,
    write_content_block,
    write_slot,
)
from refold.errors import FormatError
from refold.messages import Content, Message, Text, ToolResult
from refold.rules.anthropic_continuity import thinking_kind
from refold.rules.openai_chat import CONTINUITY, RULES, fixes_thinking
from refold.rules.pairing import without_ids
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import JsonObject, dig, objects_at, text_at

NAME = "openai_chat"
FIELD = "messages"

_ROLES = {"developer": "system", "function": "tool"}
_FIELDS = frozenset({"tool_calls", "tool_call_id", "function_call", *REASONING})
_BLOCKS = frozenset({"image_url", "input_audio", "file", "video_url", "refusal"})
_ORDINARY = frozenset({"role", "content", "name", "cache_control"})
"""Fields of a message that is nothing but its content."""


def rules(body: Body) -> Rules:
    """Return what Chat Completions refuses.

    Claude's thinking is as in its own API, whoever stands before it; that of other models may go,
    unless they want it back (DS-1, GE-3) or no model is named.
    """
    model = body.get("model")
    if not isinstance(model, str) or not model or "claude" in model.lower():
        return Rules(RULES, thinking=thinking_kind(model), continuity=CONTINUITY)
    thinking: Literal["fixed", "free"] = "fixed" if fixes_thinking(model) else "free"
    return Rules(RULES, thinking=thinking, continuity=CONTINUITY)


def fits(body: Body, items: Sequence[Wire]) -> int:
    """Rate the payload.

    Tool messages and calls in their own field are sure signs, a leading system message a weak one.
    An entry with `parts` in place of `content` is Gemini's: what it holds cannot be read here.
    """
    score = rate_entries(items, _rate_entry)
    has_functions = any("function" in tool for tool in objects_at(body, "tools"))
    return score and score + 3 * has_functions


def _rate_entry(entry: JsonObject) -> int | None:
    if not _FIELDS.isdisjoint(entry):
        return 3
    if "parts" in entry and "content" not in entry:
        return None
    if entry.get("role") in ("tool", "function", "developer"):
        return 3
    blocks = objects_at(entry, "content")
    is_ours = any(text_at(block, "type") in _BLOCKS for block in blocks)
    return 3 * is_ours + (entry.get("role") == "system")


def is_system(item: Wire) -> bool:
    """Is it a system or developer message?"""
    return isinstance(item, dict) and item.get("role") in ("system", "developer")


system = no_system


def tools(body: Body) -> Sequence[Any]:
    """Return the tool definitions, legacy `functions` included."""
    return [*as_list(body.get("tools")), *as_list(body.get("functions"))]


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """Decode a message. Raises `FormatError` when *item* is no object."""
    item = as_dict(item, "a chat message")
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str):
        return Message("user", (as_opaque(item),))
    if role in ("tool", "function"):
        return Message("tool", (_read_result(item, role, prior),))
    role = _ROLES.get(role) or intern_text(role)
    if type(content) is str and _ORDINARY.issuperset(item):
        return Message(role, (Text(content),) if content else ())
    legacy_id = f"{len(prior)}.0" if "function_call" in item else ""
    return Message(role, tuple([read_slot(slot, legacy_id) for slot in slots_of(item)]))


def _read_result(item: JsonObject, role: str, prior: Sequence[Message]) -> ToolResult:
    content: tuple[Content, ...] = read_content(item.get("content"), read_content_block)
    link, name = item.get("tool_call_id"), item.get("name")
    link, name = link if isinstance(link, str) else "", name if isinstance(name, str) else ""
    result = ToolResult(intern_text(link), content, name=name)
    return result if role == "tool" else replace(result, id=match_results([result], prior)[0])


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message that came from no entry.

    Raises `FormatError` for what one chat message cannot hold.
    """
    if message.role != "tool":
        item = {"role": message.role, "content": None if message.calls else ""}
        return with_slots(item, [], [write_slot(None, part) for part in message.parts])
    if len(message.parts) != 1 or not isinstance(message.parts[0], ToolResult):
        raise FormatError("a chat message of role 'tool' holds exactly one result")
    result = message.parts[0]
    name = {"name": result.name} if result.name else {}
    content = write_content("", result.content, read_content_block, write_content_block)
    return {"role": "tool", "tool_call_id": result.id, **name, "content": content}


def encode_answer(item: Wire, result: ToolResult) -> Wire | None:
    """Encode the answer to a legacy function call, which has a name and no id."""
    call = dig(item, "function_call")
    if not isinstance(call, Mapping):
        return None
    ids = [dig(call, "id") for call in calls_of(item)]
    answer = {"role": "function", "name": call.get("name"), "content": result.text}
    return None if result.id in ids else answer


def patch(item: Wire, message: Message) -> Wire:
    """Make *item* say what *message* says; unchanged fields and blocks stay the same objects."""
    item = as_dict(item, "a chat message")
    old = decode(item, ())
    if item.get("function_call") or item.get("role") == "function":  # these have no ids
        old, message = without_ids(old), without_ids(message)
    if old == message:
        return item
    if old.role == "tool":
        return _patch_result(item, old, message)
    slots = slots_of(item)
    new = write_blocks(slots, list(map(read_slot, slots)), message.parts, write_slot)
    return with_slots(item, slots, new)


def _patch_result(item: JsonObject, old: Message, message: Message) -> JsonObject:
    result = message.parts[0] if message.parts else None
    answer = result if isinstance(result, ToolResult) else ToolResult(old.results[0])
    id = {"tool_call_id": answer.id} if (answer.id,) != old.results else {}
    read, write = read_content_block, write_content_block
    return {
        **item,
        **id,
        "content": write_content(item.get("content"), answer.content, read, write),
    }


def merge(first: Wire, second: Wire) -> Wire:
    """Join two messages of one role. Raises `FormatError` for tools' results."""
    first, second = as_dict(first, "a chat message"), as_dict(second, "a chat message")
    if first.get("role") in ("tool", "function"):
        raise FormatError("two results of tools cannot share one chat message")
    slots = (slot for item in (first, second) for slot in slots_of(item))
    contents = (first.get("content"), second.get("content"))
    value = next((content for content in contents if isinstance(content, list)), contents[0])
    blocks = [block for field, block in slots if field == "content"]
    calls = {"tool_calls": [*calls_of(first), *calls_of(second)]}
    return {
        **second,
        **first,
        "content": join_content(value, blocks, first.get("content")),
        **(calls if calls["tool_calls"] else {}),
    }
