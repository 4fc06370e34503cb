"""Amazon Bedrock's Converse: contents are blocks whose only field is their type.

Bytes of media and redacted reasoning are `bytes`, as in boto3, or base64 text, as in JSON. A
`cachePoint` is a block that clients move each turn. It is not part of a message and keeps its
place.
"""

from collections.abc import Sequence
from typing import Any, Literal

from refold.codecs.blocks import (
    LIST,
    align,
    as_base64,
    as_dict,
    as_list,
    block_fields,
    block_reader,
    content_reader,
    expect_name,
    expect_text,
    intern_text,
    join_contents,
    parse_arguments,
    rate_entries,
    read_content,
    read_media,
    write_content,
    write_part,
)
from refold.codecs.codec import Wire, has_system_role
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
from refold.rules.bedrock import CONTINUITY, RULES
from refold.rules.openai_chat import fixes_thinking
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import JsonObject, canonicalize, dig, object_at, text_at

NAME = "bedrock"
FIELD = "messages"

_ROLES = frozenset({"user", "assistant", "system"})
_MEDIA = ("image", "document", "video", "audio")
_BLOCKS = frozenset({"text", "toolUse", "toolResult", "cachePoint", *_MEDIA}) | {
    f"{name}Content" for name in ("guard", "reasoning", "citations")
}
_SIGNS = frozenset({"modelId", "inferenceConfig", "toolConfig", "additionalModelRequestFields"})
"""Body fields that only this API has."""


def rules(body: Body) -> Rules:
    """Return the rules of Converse.

    Claude's thinking follows the rules of its own API. That of other named models may be removed,
    unless they require it (DS-1). An ARN may stand for any model.
    """
    thinking = _thinking_of(body.get("modelId") or body.get("model"))
    return Rules(RULES, alternate=True, thinking=thinking, continuity=CONTINUITY)


def _thinking_of(model: Any) -> Literal["free", "fixed", "loop", "bound", "unsure"]:
    if not isinstance(model, str) or "claude" in model or "anthropic" in model:
        return thinking_kind(model)
    if model.startswith("arn:") and "." not in model.rpartition("/")[2]:
        return "unsure"
    return "fixed" if fixes_thinking(model) else "free"


def fits(body: Body, items: Sequence[Wire]) -> int:
    """Rate the payload: blocks named by their field, without a `type`, are sure signs."""
    score = rate_entries(items, _rate_entry)
    system = as_list(body.get("system"))
    has_system = any(isinstance(block, dict) and "type" not in block for block in system)
    return score and score + 3 * has_system + 3 * (not _SIGNS.isdisjoint(body))


def _rate_entry(entry: JsonObject) -> int | None:
    content = entry.get("content")
    role = entry.get("role")
    if not isinstance(role, str) or role not in _ROLES or not isinstance(content, LIST):
        return None
    if not all(isinstance(block, dict) and "type" not in block for block in content):
        return None
    return 3 * any(not _BLOCKS.isdisjoint(block) for block in content)


is_system = has_system_role


def system(body: Body) -> tuple[Part, ...]:
    """Return the field `system`."""
    return read_content(_without_marks(body.get("system")), _read)


def tools(body: Body) -> Sequence[Any]:
    """Return the tool definitions."""
    return as_list(_without_marks(dig(body, "toolConfig", "tools")))


def _is_mark(block: Any) -> bool:
    return isinstance(block, dict) and "cachePoint" in block


def _without_marks(value: Any) -> Any:
    """Return a content without its cache points."""
    return [block for block in value if not _is_mark(block)] if isinstance(value, LIST) else value


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - the protocol's
    """Decode a message. Raise `FormatError` if *item* is not an object."""
    item = as_dict(item, "a Converse message")
    role, content = item.get("role"), item.get("content")
    if not _is_message(item):
        return Message(role if isinstance(role, str) else "user", (_carry(item),))
    return Message(intern_text(role), read_content(_without_marks(content), _read))


def _is_message(item: JsonObject) -> bool:
    content = item.get("content")
    return isinstance(item.get("role"), str) and isinstance(content, (str, *LIST, type(None)))


def _read_known(block: JsonObject) -> Part | None:
    """Read a block of a known type.

    Raises `KeyError`, `TypeError` or `AttributeError` for an unexpected shape.
    """
    match block:
        case {"text": str(text)}:
            return Text(text)
        case {"json": value}:
            return Text(canonicalize(value))
        case {"toolUse": call} if call.get("type") is None:
            id, name = expect_name(call["toolUseId"]), expect_name(call["name"])
            return ToolCall(id, name, canonicalize(call.get("input", {})))
        case {"toolResult": result} if result.get("type") is None:
            content: tuple[Content, ...] = read_content(result.get("content"), _read_inner)
            id = expect_name(result["toolUseId"])
            return ToolResult(id, content, result.get("status") == "error")
        case {"reasoningContent": {"reasoningText": thought}}:
            signature = thought.get("signature") or ""
            return Thinking(expect_text(thought["text"]), expect_text(signature))
        case {"reasoningContent": {"redactedContent": str() | bytes() as data}}:
            return Thinking("", as_base64(data))
        case {"guardContent": {"text": {"text": str(text)}}}:
            return Text(text)
        case {"citationsContent": {"content": [*passages]}}:
            return Text("".join([expect_text(passage["text"]) for passage in passages]))
    kind = next((name for name in _MEDIA if name in block), None)
    return _read_media(kind, block[kind]) if kind else None


def _read_media(kind: str, media: JsonObject) -> Media | None:
    """Read embedded media or an S3 location; None for a document that is text."""
    family = "application" if kind == "document" else kind
    mime = f"{family}/{expect_text(media.get('format') or '')}"
    match media["source"]:
        case {"bytes": str() | bytes() as data}:
            return read_media(kind, mime, as_base64(data), None)
        case {"s3Location": {"uri": str(uri)}}:
            return read_media(kind, mime, None, uri)
    return None


def _carry(block: Any) -> Opaque:
    """Carry a block as opaque, with the ids that link calls and results of server tools (BR-3)."""
    kind = next(iter(object_at(block)), "unknown")
    link, text = text_at(block, kind, "toolUseId"), canonicalize(block)
    opens, closes = (link if kind == name else "" for name in ("toolUse", "toolResult"))
    return Opaque(str(kind), text, opens, closes)


_read = block_reader(_read_known, _carry)
_read_inner = content_reader(_read, _carry)


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message without an original entry.

    Raises `FormatError` for embedded media, whose bytes are not available.
    """
    role = "user" if message.role == "tool" else message.role
    return {"role": role, "content": [_write(None, part) for part in message.parts]}


def patch(item: Wire, message: Message) -> Wire:
    """Update *item* to *message*; unchanged blocks and cache points stay."""
    item = as_dict(item, "a Converse message")
    content = item.get("content")
    if not _is_message(item) or not isinstance(content, LIST):
        if decode(item, ()) == message:
            return item
        return {**item, "content": [_write(None, part) for part in message.parts]}
    blocks = _without_marks(content)
    old = [_read(block) for block in blocks]
    if old == list(message.parts):
        return item
    out, marks = list[Any](), _places_of_marks(content)
    for at, part in zip(align(old, message.parts), message.parts, strict=True):
        while marks and at is not None and marks[0][0] <= at:
            _, mark = marks.pop(0)
            out += [mark] if out else []
        is_same = at is not None and old[at] == part
        out.append(blocks[at] if is_same else _write(None if at is None else blocks[at], part))
    return {**item, "content": [*out, *(mark for _, mark in marks if out)]}


def _places_of_marks(content: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return each cache point with the number of blocks before it."""
    places = list[tuple[int, Any]]()
    for at, block in enumerate(content):
        if _is_mark(block):
            places.append((at - len(places), block))
    return places


def _write(block: Any, part: Part) -> Any:
    """Write *part* as a block, over *block* if there is one."""
    old = block_fields(block)
    match part:
        case Text(text):
            return _write_text(old, text)
        case Thinking(text, signature):
            return _write_thinking(old, text, signature)
        case ToolCall(id, name):
            call = {"toolUseId": id, **old.get("toolUse", {})}
            return {**old, "toolUse": {**call, "name": name, "input": parse_arguments(part)}}
        case ToolResult():
            return {**old, "toolResult": _write_result(old.get("toolResult", {}), part)}
    return write_part(old, part, "a Converse message")


def _write_text(old: JsonObject, text: str) -> JsonObject:
    """Write a text. A guarded text stays guarded; citations, which no longer fit, are removed."""
    if "guardContent" in old:
        guarded = old["guardContent"]
        return {**old, "guardContent": {**guarded, "text": {**guarded["text"], "text": text}}}
    rest = {key: value for key, value in old.items() if key not in ("json", "citationsContent")}
    return {**rest, "text": text}


def _write_thinking(old: JsonObject, text: str, signature: str) -> JsonObject:
    if not text and signature:
        return {**old, "reasoningContent": {"redactedContent": signature}}
    signed = {"signature": signature} if signature else {}
    return {**old, "reasoningContent": {"reasoningText": {"text": text, **signed}}}


def _write_result(old: JsonObject, part: ToolResult) -> JsonObject:
    result = {"toolUseId": part.id, "content": [], **old}
    content = write_content(as_list(result["content"]), part.content, _read_inner, _write)
    if content is not old.get("content"):
        result["content"] = content
    if part.error != (result.get("status") == "error"):
        result["status"] = "error" if part.error else "success"
    return result


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one role: the blocks of both, in order."""
    first, second = as_dict(first, "a Converse message"), as_dict(second, "a Converse message")
    contents = first.get("content"), second.get("content")
    return {**first, "content": join_contents(*contents, _write)}
