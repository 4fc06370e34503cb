"""Writing a message of Chat Completions: anew, over the one that it stands for, or two as one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from refold.codecs.blocks import align, as_dict, write_content
from refold.codecs.codec import Wire
from refold.codecs.openai_chat_reading import (
    REASONING,
    Slot,
    decode,
    iter_slots,
    read_block,
    read_call,
    tool_call_blocks,
)
from refold.errors import FormatError
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.rules.pairing import without_ids
from refold.text.canonical_json import parse_or_text


def encode(message: Message) -> Wire:
    """Encode a message that came from no entry.

    Raises `FormatError` for what one chat message cannot hold.
    """
    if message.role == "tool":
        if len(message.parts) != 1 or not isinstance(message.parts[0], ToolResult):
            raise FormatError("a chat message of role 'tool' holds exactly one result")
        result = message.parts[0]
        content = write_content("", result.content, read_block, _write)
        return {
            "role": "tool",
            "tool_call_id": result.id,
            **({"name": result.name} if result.name else {}),
            "content": content,
        }
    return _write_parts(
        {"role": message.role, "content": None if message.calls else ""}, [], message.parts
    )


def patch(item: Wire, message: Message) -> Wire:
    """Make *item* say what *message* says; unchanged fields and blocks stay the same objects."""
    item = as_dict(item, "a chat message")
    message, old = _comparable(item, message), _comparable(item, decode(item, ()))
    if old == message:
        return item
    if old.role == "tool":
        result = message.parts[0] if message.parts else None
        if not isinstance(result, ToolResult):
            return {**item, "content": write_content(item.get("content"), (), read_block, _write)}
        named = {"tool_call_id": result.id} if (result.id,) != old.results else {}
        return {
            **item,
            **named,
            "content": write_content(item.get("content"), result.content, read_block, _write),
        }
    return _write_parts(item, list(iter_slots(item, 0)), message.parts)


def _comparable(item: dict[str, Any], message: Message) -> Message:
    """Leave out ids, which legacy calls do not have on the wire."""
    return (
        without_ids(message)
        if item.get("function_call") or item.get("role") == "function"
        else message
    )


def _write_parts(item: dict[str, Any], slots: list[Slot], parts: Sequence[Part]) -> dict[str, Any]:
    """Make *item*, whose parts stand in *slots*, say *parts*."""
    old = [_without_id(slot.part, slot.field) for slot in slots]
    fields: dict[str, list[tuple[Slot | None, Part]]] = {slot.field: [] for slot in slots}
    for at, part in zip(align(old, parts), parts, strict=True):
        slot = None if at is None else slots[at]
        fields.setdefault(slot.field if slot else _field_for(part), []).append((slot, part))
    out = dict(item)
    for field, pairs in fields.items():
        if [slot and slot.part for slot, _ in pairs] != [
            s.part for s in slots if s.field == field
        ] or any(slot is None or _without_id(slot.part, field) != part for slot, part in pairs):
            _set_field(out, field, pairs)
    return out


def _without_id(part: Part, field: str) -> Part:
    return (
        ToolCall("", part.name, part.arguments)
        if field == "function_call" and isinstance(part, ToolCall)
        else part
    )


def _field_for(part: Part) -> str:
    match part:
        case Thinking():
            return "reasoning"
        case ToolCall():
            return "tool_calls"
        case ToolResult():
            raise FormatError(
                "a chat message of role 'user' or 'assistant' cannot hold a tool's result"
            )
    return "content"


def _set_field(out: dict[str, Any], field: str, pairs: list[tuple[Slot | None, Part]]) -> None:
    """Write one field's parts into *out*; a field that has none left goes."""
    match field:
        case "reasoning":
            _set_reasoning(out, [part for _, part in pairs])
        case "content":
            out["content"] = _write_blocks(
                out.get("content"), pairs, empty=None if out.get("tool_calls") else ""
            )
        case "tool_calls" if pairs:
            out["tool_calls"] = [
                _write_call(slot.block if slot else None, part) for slot, part in pairs
            ]
        case "function_call" if pairs:
            out["function_call"] = {
                **out["function_call"],
                "arguments": getattr(pairs[0][1], "arguments", ""),
            }
        case _ if not pairs:
            out.pop(field, None)


def _set_reasoning(out: dict[str, Any], parts: list[Part]) -> None:
    present = [field for field in REASONING if field in out]
    for field in present:
        del out[field]
    for part in parts:
        if isinstance(part, Thinking):
            texts = [field for field in present if field != "reasoning_details"] or [
                "reasoning_content"
            ]
            out.update(dict.fromkeys(texts, part.text))
            if part.signature:
                out["reasoning_details"] = parse_or_text(part.signature)


def _write_blocks(value: Any, pairs: list[tuple[Slot | None, Part]], empty: Any) -> Any:
    if not pairs:
        return [] if isinstance(value, list) and empty is not None else empty
    if len(pairs) == 1 and isinstance(pairs[0][1], Text) and not isinstance(value, list):
        return pairs[0][1].text
    return [
        _write_changed(slot.block if slot else None, slot.part if slot else None, part)
        for slot, part in pairs
    ]


def _write_changed(block: Any, old: Part | None, part: Part) -> Any:
    return block if old == part and not isinstance(block, str) else _write(block, part)


def _write_call(block: Any, part: Part) -> Any:
    if not isinstance(part, ToolCall):
        return parse_or_text(part.json) if isinstance(part, Opaque) else block
    if block is None:
        function = {"name": part.name, "arguments": part.arguments}
        return {"id": part.id, "type": "function", "function": function}
    was = read_call(block)
    if was == part:
        return block
    if isinstance(was, ToolCall) and replace(was, id=part.id) == part:
        return {**block, "id": part.id}
    if "custom" in block:
        return {**block, "custom": {**block["custom"], "name": part.name, "input": part.arguments}}
    text = isinstance(block["function"].get("arguments", ""), str)
    value = part.arguments if text else parse_or_text(part.arguments)
    return {**block, "function": {**block["function"], "name": part.name, "arguments": value}}


def _write(block: Any, part: Part) -> Any:
    """Write a content block that says *part*, from *block* if there is one."""
    match part:
        case Text(text):
            return {**(block if isinstance(block, dict) else {"type": "text"}), "text": text}
        case Media(kind, _, ref) if kind == "image" and ref.startswith(("http://", "https://")):
            return {"type": "image_url", "image_url": {"url": ref}}
        case Opaque():
            return parse_or_text(part.json)
    raise FormatError(f"a chat message cannot hold this {type(part).__name__} anew")


def merge(first: Wire, second: Wire) -> Wire:
    """Join two messages of one role. Raises `FormatError` for tools' results."""
    first, second = as_dict(first, "a chat message"), as_dict(second, "a chat message")
    if first.get("role") in ("tool", "function"):
        raise FormatError("two results of tools cannot share one chat message")
    slots = [*iter_slots(first, 0), *iter_slots(second, 0)]
    pairs: list[tuple[Slot | None, Part]] = [
        (slot, slot.part) for slot in slots if slot.field == "content"
    ]
    value = next(
        (item["content"] for item in (first, second) if isinstance(item.get("content"), list)),
        first.get("content"),
    )
    out = {**second, **first, "content": _write_blocks(value, pairs, empty=first.get("content"))}
    calls = [*tool_call_blocks(first), *tool_call_blocks(second)]
    return {**out, "tool_calls": calls} if calls else out
