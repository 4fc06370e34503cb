"""OpenAI Chat Completions and the many APIs that speak it: content, tool calls and reasoning of one
message stand in fields of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from refold.canonical import canonical, canonical_text, parsed
from refold.codec import Wire
from refold.codecs.blocks import (
    align,
    answer,
    canonical_all,
    content_block,
    contents,
    nameless,
    opaque,
    plain,
    reshape,
    shared,
)
from refold.errors import FormatError
from refold.media import media
from refold.messages import Content, Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.rules.openai_chat import RULES
from refold.rules.verdict import Rules

NAME = "openai_chat"
FIELD = "messages"

REASONING = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields that hold a model's reasoning. Clients echo one text in several of them."""

FIXED_THINKING = ("deepseek", "kimi")
"""Models that refuse a turn without its reasoning (DS-1), by a part of their name, November 2026."""

_ROLES = {"developer": "system", "function": "tool"}
_FIELDS = frozenset({"tool_calls", "tool_call_id", "function_call", *REASONING})
_BLOCKS = frozenset({"image_url", "input_audio", "file", "video_url", "refusal"})


def rules(body: Mapping[str, Any]) -> Rules:
    """What Chat Completions refuses. Reasoning may go, except where the model wants it back (DS-1)
    or no model is named.
    """
    model = body.get("model")
    fixed = not isinstance(model, str) or any(name in model.lower() for name in FIXED_THINKING)
    return Rules(RULES, thinking="fixed" if fixed else "free")


def fits(body: Mapping[str, Any], items: Sequence[Wire]) -> int:
    """Tool messages and calls in their own field are sure signs, a leading system message a weak one."""
    tools = body.get("tools")
    score = 1 + 3 * (isinstance(tools, list) and any(isinstance(t, dict) and "function" in t for t in tools))
    for item in items:
        if isinstance(item, dict):
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
    return 3 * any(isinstance(kind, str) and kind in _BLOCKS for kind in kinds) + (item.get("role") == "system")


def is_system(item: Wire) -> bool:
    """A system or developer message."""
    return isinstance(item, dict) and item.get("role") in ("system", "developer")


def system(body: Mapping[str, Any], head: Sequence[Wire]) -> tuple[Part, ...]:  # noqa: ARG001 - the protocol's
    """The leading system and developer messages."""
    return tuple(chain.from_iterable(decode(item, ()).parts for item in head))


def tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Each tool definition as canonical JSON, legacy `functions` included."""
    return (*canonical_all(body.get("tools")), *canonical_all(body.get("functions")))


# --- reading ---------------------------------------------------------------------------------


class Slot(NamedTuple):
    """A part, and where in its message it stands: a field, and a block of it."""

    field: str
    block: Any
    part: Part


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """One message. Raises `FormatError` when *item* is no object."""
    item = plain(item, "a chat message")
    role = item.get("role")
    if not isinstance(role, str):
        return Message("user", (opaque(item),))
    if role in ("tool", "function"):
        return Message("tool", (_result(item, role, prior),))
    content = item.get("content")
    if type(content) is str and _ORDINARY.issuperset(item):
        return Message(_role(role), (Text(content),) if content else ())
    return Message(_role(role), tuple([slot[2] for slot in _slots(item, len(prior))]))


_ORDINARY = frozenset({"role", "content", "name", "cache_control"})
"""Fields of a message that is nothing but its content."""


def _role(role: str) -> str:
    return _ROLES.get(role) or shared(role)


def _result(item: dict[str, Any], role: str, prior: Sequence[Message]) -> ToolResult:
    content: tuple[Content, ...] = contents(item.get("content"), _read)
    link, name = item.get("tool_call_id"), item.get("name")
    result = ToolResult(
        shared(link) if isinstance(link, str) else "", content, name=name if isinstance(name, str) else ""
    )
    if role == "tool":
        return result
    return ToolResult(answer([result], prior)[0], content, name=result.name)


def _slots(item: dict[str, Any], at: int) -> Iterator[Slot]:
    """Every part with its place, in reading order; *at* is the position that names legacy calls."""
    if not _REASONING.isdisjoint(item):
        yield from _reasoning(item)
    content = item.get("content")
    if isinstance(content, list | tuple):
        for block in content:
            yield Slot("content", block, _read(block))
    elif content or not isinstance(content, str | None):
        yield Slot("content", content, _read(content))
    if item.get("refusal"):
        yield Slot("refusal", item["refusal"], Opaque("refusal", canonical({"refusal": item["refusal"]})))
    if item.get("audio"):
        yield Slot("audio", item["audio"], _heard(item["audio"]))
    if item.get("function_call"):
        yield Slot("function_call", item["function_call"], _legacy(item["function_call"], at))
    if "tool_calls" in item:
        for call in _calls(item):
            yield Slot("tool_calls", call, _call(call))


_REASONING = frozenset(REASONING)


def _reasoning(item: dict[str, Any]) -> Iterator[Slot]:
    """All reasoning fields as one part: the first text, and the details as what must go back as it is."""
    text = item.get("reasoning_content") or item.get("reasoning") or ""
    text = text if isinstance(text, str) else canonical(text)
    details = item.get("reasoning_details")
    if text or details:
        yield Slot("reasoning", None, Thinking(text, canonical(details) if details else ""))


def _calls(item: dict[str, Any]) -> Sequence[Any]:
    calls = item.get("tool_calls")
    return calls if isinstance(calls, list | tuple) else () if calls is None else (calls,)


def _call(call: Any) -> Part:
    """A call; one without an id has an empty one (DS-2)."""
    try:
        id = "" if call.get("id") is None else call["id"]
        if "custom" in call:
            return _tool_call(id, call["custom"]["name"], call["custom"]["input"], free=True)
        return _tool_call(id, call["function"]["name"], call["function"].get("arguments", ""))
    except (KeyError, TypeError, AttributeError):
        return opaque(call, opens=call.get("id") if isinstance(call, dict) else "")


def _tool_call(id: Any, name: Any, arguments: Any, *, free: bool = False) -> ToolCall:
    """A call; some servers send arguments as an object. Raises `TypeError` for what is no text."""
    if not (isinstance(id, str) and isinstance(name, str)):
        raise TypeError
    id, name = shared(id), shared(name)
    if not isinstance(arguments, str):
        return ToolCall(id, name, canonical({} if arguments is None else arguments))
    return ToolCall(id, name, arguments if free else canonical_text(arguments))


def _legacy(call: Any, at: int) -> Part:
    try:
        return _tool_call(f"{at}.0", call["name"], call.get("arguments", ""))
    except (KeyError, TypeError, AttributeError):
        return opaque(call)


def _heard(audio: Any) -> Part:
    ref = audio.get("id") if isinstance(audio, dict) else None
    return media("audio", "", None, ref) if isinstance(ref, str) else opaque(audio)


def _read(block: Any) -> Content:
    return content_block(block, _media)


def _media(kind: Any, block: dict[str, Any]) -> Media | None:
    """Raises `KeyError`, `TypeError` or `AttributeError` for a block of another shape."""
    match kind:
        case "image_url" | "video_url":
            place = block[kind]
            return media(kind[:5], "", None, place if isinstance(place, str) else place["url"])
        case "input_audio":
            return media("audio", f"audio/{block[kind].get('format', '')}", block[kind]["data"], None)
        case "file":
            file = block["file"]
            return media("document", "", None, file.get("file_data") or file["file_id"])
    return None


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """A message of our own making. Raises `FormatError` for what one chat message cannot hold."""
    if message.role == "tool":
        if len(message.parts) != 1 or not isinstance(message.parts[0], ToolResult):
            raise FormatError("a chat message of role 'tool' holds exactly one result")
        result = message.parts[0]
        content = reshape("", result.content, _read, _write)
        return {
            "role": "tool",
            "tool_call_id": result.id,
            **({"name": result.name} if result.name else {}),
            "content": content,
        }
    return _fill({"role": message.role, "content": None if message.calls else ""}, [], message.parts)


def patch(item: Wire, message: Message) -> Wire:
    """*item*, saying what *message* says; fields and blocks that did not change stay the same objects."""
    item = plain(item, "a chat message")
    message, old = _comparable(item, message), _comparable(item, decode(item, ()))
    if old == message:
        return item
    if old.role == "tool":
        result = message.parts[0] if message.parts else None
        if not isinstance(result, ToolResult):
            return {**item, "content": reshape(item.get("content"), (), _read, _write)}
        named = {"tool_call_id": result.id} if (result.id,) != old.results else {}
        return {**item, **named, "content": reshape(item.get("content"), result.content, _read, _write)}
    return _fill(item, list(_slots(item, 0)), message.parts)


def _comparable(item: dict[str, Any], message: Message) -> Message:
    """Legacy calls have no ids on the wire."""
    return nameless(message) if item.get("function_call") or item.get("role") == "function" else message


def _fill(item: dict[str, Any], slots: list[Slot], parts: Sequence[Part]) -> dict[str, Any]:
    """*item*, whose parts stand in *slots*, made to say *parts*."""
    old = [_bare(slot.part, slot.field) for slot in slots]
    fields: dict[str, list[tuple[Slot | None, Part]]] = {slot.field: [] for slot in slots}
    for at, part in zip(align(old, parts), parts, strict=True):
        slot = None if at is None else slots[at]
        fields.setdefault(slot.field if slot else _home(part), []).append((slot, part))
    out = dict(item)
    for field, pairs in fields.items():
        if [slot and slot.part for slot, _ in pairs] != [s.part for s in slots if s.field == field] or any(
            slot is None or _bare(slot.part, field) != part for slot, part in pairs
        ):
            _set(out, field, pairs)
    return out


def _bare(part: Part, field: str) -> Part:
    return ToolCall("", part.name, part.arguments) if field == "function_call" and isinstance(part, ToolCall) else part


def _home(part: Part) -> str:
    match part:
        case Thinking():
            return "reasoning"
        case ToolCall():
            return "tool_calls"
        case ToolResult():
            raise FormatError("a chat message of role 'user' or 'assistant' cannot hold a tool's result")
    return "content"


def _set(out: dict[str, Any], field: str, pairs: list[tuple[Slot | None, Part]]) -> None:
    """Write one field's parts into *out*; a field that has none left goes."""
    match field:
        case "reasoning":
            _set_reasoning(out, [part for _, part in pairs])
        case "content":
            out["content"] = _content(out.get("content"), pairs, empty=None if out.get("tool_calls") else "")
        case "tool_calls" if pairs:
            out["tool_calls"] = [_write_call(slot.block if slot else None, part) for slot, part in pairs]
        case "function_call" if pairs:
            out["function_call"] = {**out["function_call"], "arguments": getattr(pairs[0][1], "arguments", "")}
        case _ if not pairs:
            out.pop(field, None)


def _set_reasoning(out: dict[str, Any], parts: list[Part]) -> None:
    present = [field for field in REASONING if field in out]
    for field in present:
        del out[field]
    for part in parts:
        if isinstance(part, Thinking):
            texts = [field for field in present if field != "reasoning_details"] or ["reasoning_content"]
            out.update(dict.fromkeys(texts, part.text))
            if part.signature:
                out["reasoning_details"] = parsed(part.signature)


def _content(value: Any, pairs: list[tuple[Slot | None, Part]], empty: Any) -> Any:
    if not pairs:
        return [] if isinstance(value, list) and empty is not None else empty
    if len(pairs) == 1 and isinstance(pairs[0][1], Text) and not isinstance(value, list):
        return pairs[0][1].text
    return [_keep(slot.block if slot else None, slot.part if slot else None, part) for slot, part in pairs]


def _keep(block: Any, old: Part | None, part: Part) -> Any:
    return block if old == part and not isinstance(block, str) else _write(block, part)


def _write_call(block: Any, part: Part) -> Any:
    if not isinstance(part, ToolCall):
        return parsed(part.json) if isinstance(part, Opaque) else block
    if block is None:
        function = {"name": part.name, "arguments": part.arguments}
        return {"id": part.id, "type": "function", "function": function}
    was = _call(block)
    if was == part:
        return block
    if isinstance(was, ToolCall) and replace(was, id=part.id) == part:
        return {**block, "id": part.id}
    if "custom" in block:
        return {**block, "custom": {**block["custom"], "name": part.name, "input": part.arguments}}
    text = isinstance(block["function"].get("arguments", ""), str)
    value = part.arguments if text else parsed(part.arguments)
    return {**block, "function": {**block["function"], "name": part.name, "arguments": value}}


def _write(block: Any, part: Part) -> Any:
    """A content block that says *part*, made from *block* where there is one."""
    match part:
        case Text(text):
            return {**(block if isinstance(block, dict) else {"type": "text"}), "text": text}
        case Media(kind, _, ref) if kind == "image" and ref.startswith(("http://", "https://")):
            return {"type": "image_url", "image_url": {"url": ref}}
        case Opaque():
            return parsed(part.json)
    raise FormatError(f"a chat message cannot hold this {type(part).__name__} anew")


def merge(first: Wire, second: Wire) -> Wire:
    """Two messages of one role as one. Raises `FormatError` for tools' results, which stay apart."""
    one, two = plain(first, "a chat message"), plain(second, "a chat message")
    if one.get("role") in ("tool", "function"):
        raise FormatError("two results of tools cannot share one chat message")
    slots = [*_slots(one, 0), *_slots(two, 0)]
    pairs: list[tuple[Slot | None, Part]] = [(slot, slot.part) for slot in slots if slot.field == "content"]
    value = next((item["content"] for item in (one, two) if isinstance(item.get("content"), list)), one.get("content"))
    out = {**two, **one, "content": _content(value, pairs, empty=one.get("content"))}
    calls = [*_calls(one), *_calls(two)]
    return {**out, "tool_calls": calls} if calls else out
