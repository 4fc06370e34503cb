"""LangChain's messages as a wire format, and its chat models to answer an `Ask`.

The module is a codec (`refold.codecs.codec`): `Compactor(..., format=refold.adapters.langchain)`
takes and gives lists of `BaseMessage`. Messages that no edit touches are the same objects, with
their ids, `additional_kwargs` and `response_metadata`. Needs the extra `langchain`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from refold.adapters.hook import explain_missing, fits_types
from refold.adapters.langchain_reading import (
    SOURCE,
    ChatModel,
    Slot,
    as_message,
    call_id,
    call_ids,
    decode,
    echoes,
    read_block,
    role_of,
    slots_of,
)
from refold.codecs import anthropic
from refold.codecs.blocks import as_list, pair_with_old, parse_arguments, write_content
from refold.codecs.codec import Wire, no_system
from refold.errors import FormatError
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.rules.openai_chat import RULES
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import canonicalize, parse_or_text
from refold.text.summary_wrapper import summary_in

try:
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        FunctionMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
    )
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise ImportError(explain_missing("langchain-core", "langchain")) from error

NAME = "langchain"
"""The name of this format."""
FIELD = "messages"
"""Where a request body has the conversation."""


def rules(body: Body) -> Rules:
    """Return the rules of every provider behind LangChain: a result follows its call (OA-1).

    Messages do not say which provider it is; signed thinking may be bound (AN-7) or wanted (AN-6),
    unless *body* names a Claude model.
    """
    is_claude = "claude" in str(body.get("model", "")).lower()
    return Rules(RULES, thinking=anthropic.rules(body).thinking if is_claude else "unsure")


fits = fits_types(BaseMessage)
system = no_system


def is_system(item: Wire) -> bool:
    """Is it a system message?"""
    return isinstance(item, BaseMessage) and role_of(item) == "system"


def tools(body: Body) -> list[Any]:
    """Return each tool of a body (`{"messages": ..., "tools": ...}`)."""
    return [convert_to_openai_tool(tool) for tool in as_list(body.get("tools"))]


# --- writing --------------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message that has no wire form yet. Raises `FormatError` for what it cannot hold."""
    if message.role == "tool":
        if len(message.parts) != 1 or not isinstance(message.parts[0], ToolResult):
            raise FormatError("a tool message holds exactly one result")
        result = message.parts[0]
        return ToolMessage(
            content=write_content("", result.content, read_block, _write),
            tool_call_id=result.id,
            name=result.name or None,
            status="error" if result.error else "success",
        )
    kwargs = {"lc_source": SOURCE} if summary_in(message) is not None else {}
    kinds: dict[str, type[BaseMessage]] = {
        "user": HumanMessage,
        "assistant": AIMessage,
        "system": SystemMessage,
    }
    if message.role not in kinds:
        raise FormatError(f"LangChain has no message of the role {message.role!r}")
    return patch(kinds[message.role](content="", additional_kwargs=kwargs), message)


def patch(item: Wire, message: Message) -> Wire:
    """Copy *item* so that it says what *message* says; id, metadata and unchanged blocks stay."""
    whole = as_message(item)
    if isinstance(whole, ToolMessage | FunctionMessage):
        return _patch_result(whole, message)
    slots = list(slots_of(whole, 0))
    pairs = pair_with_old(slots, [slot.part for slot in slots], message.parts)
    return whole.model_copy(update=_update(whole, slots, pairs))


def _patch_result(item: ToolMessage | FunctionMessage, message: Message) -> BaseMessage:
    result = message.parts[0] if message.parts else ToolResult("")
    if not isinstance(result, ToolResult):
        raise FormatError("a tool message holds exactly one result")
    content = write_content(item.content, result.content, read_block, _write)
    named = {"tool_call_id": result.id} if isinstance(item, ToolMessage) and message.parts else {}
    return item.model_copy(update={"content": content, **named})


Pairs = Sequence[tuple[Slot | None, Part]]
"""Each part of the new message, and the slot of the old part that it is or replaces."""


def _update(whole: BaseMessage, slots: Sequence[Slot], pairs: Pairs) -> dict[str, Any]:
    """Return the fields of a message with the parts of *pairs*."""
    calls = [(slot, part) for slot, part in pairs if isinstance(part, ToolCall)]
    valid = [_call(slot, call) for slot, call in calls if slot is None or slot.place == "call"]
    invalid = [
        slot.block if slot.part == call else {**slot.block, "id": call.id, "args": call.arguments}
        for slot, call in calls
        if slot is not None and slot.place == "invalid"
    ]
    contents = [(slot, part) for slot, part in pairs if _is_content(slot, part)]
    by_id = {call["id"]: call for call in valid}
    out: dict[str, Any] = {"content": _content(whole, slots, contents, by_id)}
    if isinstance(whole, AIMessage):
        out |= {"tool_calls": valid, "invalid_tool_calls": invalid}
        out |= {"tool_call_chunks": []} if "tool_call_chunks" in type(whole).model_fields else {}
    call_ids = {call["id"] for call in (*valid, *invalid)}
    return out | {"additional_kwargs": _kwargs(whole, pairs, call_ids)}


def _is_content(slot: Slot | None, part: Part) -> bool:
    if isinstance(part, ToolResult):
        raise FormatError("only a tool message holds a tool's result")
    return not isinstance(part, ToolCall) and (slot is None or slot.place == "content")


def _call(slot: Slot | None, call: ToolCall) -> dict[str, Any]:
    if slot is not None and slot.part == call:
        return cast("dict[str, Any]", slot.block)
    args = {"name": call.name, "args": parse_arguments(call), "id": call.id, "type": "tool_call"}
    return {**slot.block, **args} if slot is not None else args


def _content(
    whole: BaseMessage, slots: Sequence[Slot], contents: Pairs, calls: Mapping[str, Any]
) -> Any:
    """Return the content with *contents*, and with the echoes of *calls*."""
    parts = [part for _, part in contents]
    blocks = [
        slot.block if slot and slot.part == part else _write(slot.block if slot else None, part)
        for slot, part in contents
    ]
    if not isinstance(whole.content, list):
        if len(parts) <= 1 and all(isinstance(part, Text) for part in parts):
            return cast("Text", parts[0]).text if parts else ""
        return blocks
    ids = call_ids(whole)
    if parts == [slot.part for slot in slots if slot.place == "content"]:
        blocks = whole.content
    else:
        blocks += [block for block in whole.content if echoes(block, ids)]
    removed = ids - calls.keys()
    return [_echo(block, calls) for block in blocks if not echoes(block, removed)]


def _echo(block: Any, calls: Mapping[str, Any]) -> Any:
    """Update a block that repeats a call; return any other as it is."""
    if not echoes(block, calls):
        return block
    args = calls[call_id(block)]["args"]
    for key in ("input", "args", "arguments"):
        if key in block and canonicalize(
            parse_or_text(block[key]) if isinstance(block[key], str) else block[key]
        ) != canonicalize(args):
            return {**block, key: canonicalize(args) if isinstance(block[key], str) else args}
    return block


def _kwargs(whole: BaseMessage, pairs: Pairs, calls: set[Any]) -> dict[str, Any]:
    """Return the provider's own fields without what no longer holds."""
    out = dict(whole.additional_kwargs)
    rest = [part for slot, part in pairs if slot and slot.place == "kwargs"]
    if not any(isinstance(part, Thinking) for part in rest):
        out.pop("reasoning_content", None)
    if isinstance(out.get("tool_calls"), list):
        out["tool_calls"] = [call for call in out["tool_calls"] if call.get("id") in calls]
        if not out["tool_calls"]:
            del out["tool_calls"]
    if not any(isinstance(part, ToolCall) for part in rest):
        out.pop("function_call", None)
    return whole.additional_kwargs if out == whole.additional_kwargs else out


def _write(block: Any, part: Part) -> Any:
    """Return a block with *part*, made from *block* if there is one."""
    match part:
        case Text(text):
            return {**(block if isinstance(block, dict) else {"type": "text"}), "text": text}
        case Thinking(text, signature) if signature:
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Thinking(text):
            return {"type": "reasoning", "reasoning": text}
        case Media(kind, _, ref) if ref.startswith(("http://", "https://")):
            return {"type": kind, "url": ref}
        case Opaque():
            return parse_or_text(part.json)
    raise FormatError(f"a LangChain message cannot hold this {type(part).__name__} anew")


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one role into a message like *first*.

    Raises `FormatError` for results of tools, which stay apart.
    """
    first_message, second_message = as_message(first), as_message(second)
    if isinstance(first_message, ToolMessage | FunctionMessage):
        raise FormatError("two results of tools cannot share one message")
    both = [*_blocks(first_message), *_blocks(second_message)]
    update: dict[str, Any] = {
        "content": "\n\n".join(both) if all(isinstance(b, str) for b in both) else both
    }
    if isinstance(first_message, AIMessage) and isinstance(second_message, AIMessage):
        update["tool_calls"] = [*first_message.tool_calls, *second_message.tool_calls]
        update["invalid_tool_calls"] = [
            *first_message.invalid_tool_calls,
            *second_message.invalid_tool_calls,
        ]
    return first_message.model_copy(update=update)


def _blocks(message: BaseMessage) -> list[Any]:
    content = message.content
    return list(content) if isinstance(content, list) else [content] if content else []


__all__ = [
    "FIELD",
    "NAME",
    "ChatModel",
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
