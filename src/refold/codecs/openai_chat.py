"""OpenAI Chat Completions and compatible APIs. Messages have content, tool calls and reasoning in
separate fields; the codec treats them as one list of blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import is_
from typing import Any, Literal

from refold.codecs.blocks import (
    LIST,
    as_dict,
    as_list,
    as_opaque,
    block_fields,
    block_reader,
    expect_name,
    expect_text,
    intern_text,
    is_link,
    match_results,
    rate_entries,
    read_content,
    read_media,
    write_blocks,
    write_content,
    write_part,
)
from refold.codecs.codec import Wire, no_system
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
from refold.rules.anthropic_continuity import thinking_kind
from refold.rules.openai_chat import CONTINUITY, RULES, alternates_roles, fixes_thinking
from refold.rules.pairing import without_ids
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import (
    JsonObject,
    Record,
    canonicalize,
    canonicalize_text,
    dig,
    objects_at,
    parse_or_text,
    text_at,
    without_keys,
)

# --- the codec ------------------------------------------------------------------------------------

NAME = "openai_chat"
FIELD = "messages"

_SIGNED = ("reasoning_details", "thinking_blocks")
"""Fields with signed reasoning, of OpenRouter and LiteLLM."""
REASONING = ("reasoning_content", "reasoning", *_SIGNED)
"""Fields with a model's reasoning. Clients repeat one text in several of them."""
_FIELDS = frozenset({"tool_calls", "tool_call_id", "function_call", *REASONING})
_BLOCKS = frozenset({"image_url", "input_audio", "file", "video_url", "refusal"})


def rules(body: Body) -> Rules:
    """Return the rules of Chat Completions.

    Claude's thinking follows its own API's rules through any gateway. That of other models may be
    removed, unless they require it (DS-1, GE-3) or no model is named. Some require alternation.
    """
    model = body.get("model")
    if not isinstance(model, str) or not model or "claude" in model.lower():
        return Rules(RULES, thinking=thinking_kind(model), continuity=CONTINUITY)
    thinking: Literal["fixed", "free"] = "fixed" if fixes_thinking(model) else "free"
    return Rules(RULES, alternates_roles(model), thinking, CONTINUITY)


def fits(body: Body, items: Sequence[Wire]) -> int:
    """Rate the payload.

    Tool messages and `tool_calls` are sure signs, a system message is a weak one. An entry
    with `parts` instead of `content` is Gemini's, which this codec cannot read.
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
    """Return whether an entry is a system or developer message."""
    return isinstance(item, dict) and item.get("role") in ("system", "developer")


system = no_system


def tools(body: Body) -> Sequence[Any]:
    """Return the tool definitions, including legacy `functions`."""
    return [*as_list(body.get("tools")), *as_list(body.get("functions"))]


# --- blocks of a message --------------------------------------------------------------------------

_PART_FIELDS = ("content", "refusal", "audio", "function_call", "tool_calls")
"""Fields with parts, in reading order; reasoning comes before them."""
_LISTS = frozenset({"content", "tool_calls"})
"""Fields with several parts. Some clients send a single part without a list."""
_REASONING = frozenset(REASONING)

Slot = tuple[str, Any]
"""Field of a message and one of its blocks; for reasoning, one part for all its fields."""


def slots_of(item: JsonObject) -> list[Slot]:
    """Return all blocks of a message in reading order."""
    slots = list[Slot]()
    if not _REASONING.isdisjoint(item) and (thinking := _read_reasoning(item)) != Thinking():
        slots.append(("reasoning", thinking))
    for field in _PART_FIELDS:
        value = item.get(field)
        if value and field in _LISTS and isinstance(value, LIST):
            slots += [(field, block) for block in value]
        elif value:
            slots.append((field, value))
    return slots


# --- reading --------------------------------------------------------------------------------------

_ROLES = {"developer": "system", "function": "tool"}
_ORDINARY = frozenset({"role", "content", "name", "cache_control"})
"""Fields of a message with nothing but content."""


def read_slot(slot: Slot, legacy_id: str = "") -> Any:
    """Read a block as a part; a legacy call, which has no id, gets *legacy_id*."""
    field, block = slot
    match field:
        case "content":
            return _read_message_block(block)
        case "tool_calls":
            return _read_call(block)
        case "reasoning":
            return block
        case "function_call":
            return block_reader(partial(_read_function, id=legacy_id))(block)
        case "audio":
            return _read_audio(block)
    return Opaque("refusal", canonicalize({"refusal": block}))


def _read_reasoning(item: JsonObject) -> Thinking:
    """Read all reasoning fields as one part: the first text, and the signed fields as signature."""
    text = item.get("reasoning_content") or item.get("reasoning") or ""
    text = text if isinstance(text, str) else canonicalize(text)
    blocks = {field: item[field] for field in _SIGNED if item.get(field)}
    is_signed = any(map(_has_signature, chain.from_iterable(map(as_list, blocks.values()))))
    return Thinking(text or _text_of(blocks), canonicalize(blocks) if is_signed else "")


def _has_signature(block: Any) -> bool:
    """Return whether a block of reasoning has a signature or encrypted text."""
    return isinstance(block, dict) and bool(block.get("signature") or block.get("data"))


def _text_of(blocks: Record) -> str:
    """Return the text of the first field with signed reasoning."""
    first = as_list(next(iter(blocks.values()), ()))
    fields = [block for block in first if isinstance(block, dict)]
    texts = (block.get("thinking") or block.get("text") for block in fields)
    return "\n".join(text for text in texts if isinstance(text, str))


def _read_known_or_thinking(block: JsonObject) -> Part | None:
    """Read a block of a message's content, which may be thinking in LiteLLM."""
    match block["type"]:
        case "thinking":
            return Thinking(expect_text(block["thinking"]), block.get("signature") or "")
        case "redacted_thinking":
            return Thinking("", expect_text(block["data"]))
    return _read_known(block)


def _read_known(block: JsonObject) -> Content | None:
    """Read a block of a known type.

    Raises `KeyError`, `TypeError` or `AttributeError` for an unexpected shape.
    """
    match block["type"]:
        case "text" | "input_text" | "output_text":
            return Text(expect_text(block["text"]))
        case "image_url" | "video_url" as kind:
            place = block[kind]
            return read_media(kind[:5], "", None, place if isinstance(place, str) else place["url"])
        case "input_audio":
            sound = block["input_audio"]
            return read_media("audio", f"audio/{sound.get('format', '')}", sound["data"], None)
        case "file":
            file = block["file"]
            return read_media("document", "", None, file.get("file_data") or file["file_id"])
    return None


def _read_known_call(call: JsonObject) -> ToolCall:
    """Read a call; a missing id becomes an empty one (DS-2)."""
    id = call.get("id")
    id = "" if id is None else id
    if "custom" in call:
        custom = call["custom"]
        return ToolCall(expect_name(id), expect_name(custom["name"]), expect_text(custom["input"]))
    return _read_function(call["function"], id)


def _read_function(function: JsonObject, id: Any) -> ToolCall:
    """Read a name and arguments, which some servers send as an object."""
    value, name = function.get("arguments", ""), expect_name(function["name"])
    if isinstance(value, str):
        return ToolCall(expect_name(id), name, canonicalize_text(value))
    return ToolCall(expect_name(id), name, canonicalize({} if value is None else value))


def _carry_call(call: Any) -> Opaque:
    return as_opaque(call, opens=dig(call, "id"))


read_content_block = block_reader(_read_known)
_read_message_block = block_reader(_read_known_or_thinking)
_read_call = block_reader(_read_known_call, _carry_call)
_read_audio = block_reader(lambda audio: read_media("audio", "", None, expect_text(audio["id"])))


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """Decode a message. Raise `FormatError` if *item* is not an object."""
    item = as_dict(item, "a chat message")
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str):
        return Message("user", (as_opaque(item),))
    if role in ("tool", "function"):
        return Message("tool", (_read_result(item, role, prior),))
    role = _ROLES.get(role) or intern_text(role)
    sender = item.get("name", "") if role == "user" else ""
    sender = sender if isinstance(sender, str) else ""
    if type(content) is str and _ORDINARY.issuperset(item):
        return Message(role, (Text(content),) if content else (), sender)
    legacy_id = f"{len(prior)}.0" if "function_call" in item else ""
    return Message(role, tuple([read_slot(slot, legacy_id) for slot in slots_of(item)]), sender)


def _read_result(item: JsonObject, role: str, prior: Sequence[Message]) -> ToolResult:
    content: tuple[Content, ...] = read_content(item.get("content"), read_content_block)
    link, name = item.get("tool_call_id"), item.get("name")
    link, name = link if isinstance(link, str) else "", name if isinstance(name, str) else ""
    result = ToolResult(intern_text(link), content, name=name)
    return result if role == "tool" else replace(result, id=match_results([result], prior)[0])


# --- writing --------------------------------------------------------------------------------------


def write_slot(slot: Slot | None, part: Part) -> Slot:
    """Write *part* as a block, over that of *slot* if there is one."""
    field, block = slot or (_field_of(part), None)
    match field:
        case "content":
            return (field, write_content_block(block, part))
        case "reasoning":
            return (field, part)
        case "tool_calls":
            return (field, _write_call(block, part))
        case "function_call":
            return (field, {**block_fields(block), "arguments": getattr(part, "arguments", "")})
    return (field, block)


def _field_of(part: Part) -> str:
    if isinstance(part, ToolResult):
        raise FormatError(
            "a chat message of role 'user' or 'assistant' cannot hold a tool's result"
        )
    fields = {Thinking: "reasoning", ToolCall: "tool_calls"}
    return fields.get(type(part), "content")


def write_content_block(block: Any, part: Part) -> Any:
    """Write *part* as a content block, over *block* if there is one."""
    if isinstance(part, Media) and part.kind == "image" and is_link(part):
        return {"type": "image_url", "image_url": {"url": part.ref}}
    return write_part(block, part, "a chat message")


def _write_call(block: Any, part: Part) -> Any:
    """Write *part* as a call, over *block* if there is one."""
    old = block_fields(block)
    if not isinstance(part, ToolCall):
        return write_part(block, part, "a chat message")
    if not old:
        function = {"name": part.name, "arguments": part.arguments}
        return {"id": part.id, "type": "function", "function": function}
    was = _read_call(old)
    if isinstance(was, ToolCall) and replace(was, id=part.id) == part:
        return {**old, "id": part.id}
    if "custom" in old:
        return {**old, "custom": {**old["custom"], "name": part.name, "input": part.arguments}}
    is_text = isinstance(old["function"].get("arguments", ""), str)
    arguments = part.arguments if is_text else parse_or_text(part.arguments)
    return {**old, "function": {**old["function"], "name": part.name, "arguments": arguments}}


def with_slots(item: JsonObject, old: Sequence[Slot], new: Sequence[Slot]) -> JsonObject:
    """Return *item* with the *new* blocks in place of the *old* ones. Fields that become empty are
    removed, except `content`."""
    out = dict(item)
    for field in dict.fromkeys(field for field, _ in (*old, *new)):
        before, after = ([slot for slot in slots if slot[0] == field] for slots in (old, new))
        if len(before) == len(after) and all(map(is_, before, after)):
            continue
        blocks = [block for _, block in after]
        if field == "content":
            empty = None if item.get("tool_calls") else ""
            out[field] = join_content(item.get(field), blocks, empty)
        elif field == "reasoning":
            out = _with_reasoning(out, blocks)
        elif blocks:
            out[field] = blocks if field in _LISTS else blocks[0]
        else:
            del out[field]
    return out


def _with_reasoning(item: JsonObject, parts: Sequence[Thinking]) -> JsonObject:
    """Write the text of reasoning to all fields that had one, and its signed fields."""
    texts = [field for field in REASONING if field in item and field not in _SIGNED]
    out = without_keys(item, *REASONING)
    for part in parts:
        signed = parse_or_text(part.signature) if part.signature else {}
        signed = signed if isinstance(signed, dict) else {"reasoning_details": signed}
        out |= dict.fromkeys(texts or ["reasoning_content"], part.text) | signed
    return out


def join_content(value: Any, blocks: list[Any], empty: str | None) -> Any:
    """Return *blocks* as a content in place of *value*: one text becomes a string unless *value* is
    a list. *empty* is the content without blocks."""
    if not blocks:
        return [] if isinstance(value, list) and empty is not None else empty
    texts = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    is_text = len(texts) == 1 and isinstance(read_content_block(texts[0]), Text)
    return texts[0]["text"] if is_text and not isinstance(value, list) else texts


def encode(message: Message) -> Wire:
    """Encode a message without an original entry.

    Raises `FormatError` for anything that one chat message cannot hold.
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
    ids = [dig(block, "id") for field, block in slots_of(item) if field == "tool_calls"]
    answer = {"role": "function", "name": call.get("name"), "content": result.text}
    return None if result.id in ids else answer


def patch(item: Wire, message: Message) -> Wire:
    """Update *item* to *message*; unchanged fields and blocks stay the same objects."""
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
    """Merge two messages of one role. Names that differ become texts before what each says. Raise
    `FormatError` for tool results."""
    first, second = as_dict(first, "a chat message"), as_dict(second, "a chat message")
    if first.get("role") in ("tool", "function"):
        raise FormatError("two results of tools cannot share one chat message")
    both = [*slots_of(first), *slots_of(second)]
    contents = (first.get("content"), second.get("content"))
    lists = (content for content in contents if content and isinstance(content, list))
    joined = {**second, **first, "content": next(lists, contents[0])}
    if first.get("name") != second.get("name"):
        both = [*_slots_with_name(first), *_slots_with_name(second)]
        joined = without_keys(joined, "name")
    return with_slots(joined, [], [slot for slot in both if slot[0] in _LISTS])


def _slots_with_name(item: JsonObject) -> list[Slot]:
    slots, name = slots_of(item), item.get("name")
    return [("content", f"{name}:"), *slots] if slots and name and isinstance(name, str) else slots
