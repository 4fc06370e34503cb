"""Gemini generateContent: contents with parts, in camel or snake case, and calls without ids."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

from refold.codecs.blocks import (
    as_base64,
    as_dict,
    as_list,
    as_opaque,
    block_fields,
    block_reader,
    content_reader,
    expect_name,
    expect_text,
    intern_text,
    kind_of_mime,
    match_results,
    parse_arguments,
    rate_entries,
    read_media,
    write_blocks,
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
from refold.rules.anthropic_continuity import rules_behind
from refold.rules.gemini import CONTINUITY, RULES
from refold.rules.pairing import without_ids
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import JsonObject, Record, canonicalize

NAME = "gemini"
FIELD = "contents"

MAIN = ("output", "result", "content", "error")
"""Fields with the text of a function response in known SDKs and clients."""

MOVED = ("thoughtSignature", "thought_signature", "id")
"""Fields of a part that clients drop, replace or re-encode."""

_TEXT, _LIST = (str, type(None)), (list, tuple, type(None))
_ROLES = {"model": "assistant", "function": "user", "tool": "user"}
_SNAKE = {
    "systemInstruction": "system_instruction",
    "functionDeclarations": "function_declarations",
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "thoughtSignature": "thought_signature",
    "inlineData": "inline_data",
    "fileData": "file_data",
    "fileUri": "file_uri",
    "mimeType": "mime_type",
}
"""Field names in snake case, as in the Python SDK."""


def _get(fields: Record, name: str) -> Any:
    """Return a field under either of its names."""
    return fields.get(name) or fields.get(_SNAKE[name])


def rules(body: Body) -> Rules:
    """Return the rules of generateContent; thought signatures must be returned (GE-3).

    Google's SDK converts Claude's messages to this format, but their thinking follows Claude's
    rules.
    """
    own = Rules(RULES, alternate=True, thinking="fixed", continuity=CONTINUITY)
    return rules_behind(body, own)


def fits(body: Body, items: Sequence[Wire]) -> int:
    """Rate the payload: `parts` and the role `model` are sure signs."""
    score = rate_entries(items, _rate_entry)
    signs = ("systemInstruction", "system_instruction", "generationConfig")
    return score and score + 3 * any(key in body for key in signs)


def _rate_entry(entry: JsonObject) -> int | None:
    if "parts" not in entry and ("content" in entry or "type" in entry):
        return None
    return 3 * ("parts" in entry or entry.get("role") == "model")


is_system = has_system_role
"""The API has no system entries, but some proxies use them."""


def system(body: Body) -> tuple[Part, ...]:
    """Return `systemInstruction` in either spelling."""
    instruction = _get(body, "systemInstruction")
    if isinstance(instruction, str):
        return (Text(instruction),)
    return decode(instruction, ()).parts if isinstance(instruction, dict) else ()


def tools(body: Body) -> Sequence[Any]:
    """Return all function declarations and other tools."""
    out = list[Any]()
    for tool in as_list(body.get("tools")):
        rest = dict(tool) if isinstance(tool, dict) else tool
        for name in ("functionDeclarations", "function_declarations"):
            out += as_list(rest.pop(name, ())) if isinstance(rest, dict) else ()
        out += [rest] if rest or not isinstance(rest, dict) else []
    return out


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """Decode a content; one with function calls is the model's, whatever its role.

    A call's id is made from the positions of the message and the call; a response has the id of the
    call that it answers. Raises `FormatError` if *item* is not an object.
    """
    item = as_dict(item, "a Gemini content")
    role, blocks = item.get("role", "user"), item.get("parts", [])
    speaker = _ROLES.get(role) or intern_text(role) if isinstance(role, str) else "user"
    is_typed = isinstance(role, _TEXT) and isinstance(blocks, _LIST)
    if not is_typed or not ("role" in item or blocks):
        return Message(speaker, (as_opaque(item),))
    parts = tuple(map(_read, blocks or ()))
    if speaker == "user" and any(isinstance(part, ToolCall) for part in parts):
        speaker = "assistant"
    return Message(speaker, _with_ids(parts, prior))


def _with_ids(parts: tuple[Part, ...], prior: Sequence[Message]) -> tuple[Part, ...]:
    """Give ids to calls and results."""
    results = [part for part in parts if isinstance(part, ToolResult)]
    answers = iter(match_results(results, prior) if results else ())
    calls = count()
    return tuple(
        ToolCall(f"{len(prior)}.{next(calls)}", part.name, part.arguments)
        if isinstance(part, ToolCall)
        else ToolResult(next(answers), part.content, part.error, part.name)
        if isinstance(part, ToolResult)
        else part
        for part in parts
    )


def _read_known(block: JsonObject) -> Part | None:
    """Read a part of a known kind.

    Raises `KeyError`, `TypeError` or `AttributeError` for an unexpected shape.
    """
    if "text" in block:
        text, signature = expect_text(block["text"]), _get(block, "thoughtSignature")
        if block.get("thought") is True or (signature and not text):
            return Thinking(text, signature if isinstance(signature, str) else "")
        return Text(text)
    if call := _get(block, "functionCall"):
        return ToolCall("", expect_name(call["name"]), canonicalize(call.get("args") or {}))
    if response := _get(block, "functionResponse"):
        return _read_result(response)
    if data := _get(block, "inlineData"):
        return _read_media(data, as_base64(data["data"]), None)
    if file := _get(block, "fileData"):
        return _read_media(file, None, expect_text(_get(file, "fileUri")))
    if block.get("thought") is True:  # redacted thinking of Claude
        return Thinking("", expect_text(_get(block, "thoughtSignature")))
    return None


def _read_media(source: JsonObject, data: str | None, url: str | None) -> Media:
    mime = _get(source, "mimeType") or ""
    return read_media(kind_of_mime(mime), mime, data, url)


def _main_field(name: Any, response: Any) -> tuple[str, JsonObject] | None:
    """Return the field of a response with its text, and the other fields except a repeated name;
    None if no field is the text."""
    if not isinstance(response, dict):
        return None
    if len(response) == 1:
        [(key, value)] = response.items()
        return (key, {}) if isinstance(value, str) and key != "name" else None
    fields = {
        key: value for key, value in response.items() if not (key == "name" and value == name)
    }
    main = next(
        (k for k in (MAIN if len(fields) != 1 else fields) if isinstance(fields.get(k), str)), None
    )
    return None if main is None else (main, {k: v for k, v in fields.items() if k != main})


def _read_result(answer: JsonObject) -> ToolResult:
    name, response = expect_text(answer.get("name", "")), answer.get("response")
    main = _main_field(name, response)
    media_parts = tuple(map(_read_inner, as_list(answer["parts"]))) if "parts" in answer else ()
    if main is None:
        texts: tuple[Content, ...] = (Text(canonicalize(response)),) if response else ()
        return ToolResult("", (*texts, *media_parts), name=name)
    key, rest_fields = main
    text = (Text(response[key]),) if response[key] else ()  # type: ignore[index]  # an object
    rest = (Opaque("response", canonicalize(rest_fields)),) if rest_fields else ()
    return ToolResult("", (*text, *rest, *media_parts), key == "error", name)


_carry = partial(as_opaque, moved=MOVED)
_read = block_reader(_read_known, _carry)
_read_inner = content_reader(_read, _carry)


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message without an original entry.

    Raises `FormatError` for embedded media, whose bytes are not available.
    """
    role = {"assistant": "model", "tool": "user"}.get(message.role, message.role)
    return {"role": role, "parts": [_write(None, part) for part in message.parts]}


def patch(item: Wire, message: Message) -> Wire:
    """Update *item* to *message*; signatures and unknown fields stay."""
    item = as_dict(item, "a Gemini content")
    old, new = without_ids(decode(item, ())), without_ids(message)
    if old == new:
        return item
    blocks = as_list(item.get("parts"))
    if len(blocks) != len(old.parts):
        blocks = [None] * len(old.parts)
    return {**item, "parts": write_blocks(blocks, old.parts, new.parts, _write)}


def _write(block: Any, part: Part) -> Any:
    """Write *part*, over the part *block* if there is one."""
    old = block_fields(block)
    match part:
        case Text(text):
            return {**old, "text": text}
        case Thinking(text, signature):
            signed = {"thoughtSignature": signature} if signature else {}
            return {**old, "text": text, "thought": True, **signed}
        case ToolCall(_, name):
            key = "function_call" if "function_call" in old else "functionCall"
            return {**old, key: {**old.get(key, {}), "name": name, "args": parse_arguments(part)}}
        case ToolResult():
            key = "function_response" if "function_response" in old else "functionResponse"
            return {**old, key: _write_result(old.get(key) or {}, part)}
        case Media(_, mime, ref) if "://" in ref:
            return {"fileData": {"mimeType": mime, "fileUri": ref}}
    return write_part(old, part, "a Gemini content")


def _write_result(old: JsonObject, part: ToolResult) -> JsonObject:
    """Write the response, with its text in the original field."""
    was = _read_result(old) if old else ToolResult("")
    rest = {p for p in part.content if _is_rest(p)}
    has_rest = any(map(_is_rest, was.content))
    out = {**old, "name": part.name or old.get("name") or part.id}
    if part.text != was.text or part.error != was.error or bool(rest) != has_rest:
        out["response"] = _write_response(old, part, keeps_rest=bool(rest))
    out.setdefault("response", {"error" if part.error else "output": ""})
    blocks = as_list(old.get("parts"))
    before = [_read_inner(block) for block in blocks]
    media_parts = [p for p in part.content if not isinstance(p, Text) and p not in rest]
    if before != media_parts:
        out["parts"] = write_blocks(blocks, before, media_parts, _write)
    return out


def _is_rest(part: Content) -> bool:
    """Return whether a part holds the other fields of a response."""
    return isinstance(part, Opaque) and part.kind == "response"


def _write_response(old: JsonObject, part: ToolResult, *, keeps_rest: bool) -> JsonObject:
    main = _main_field(old.get("name"), old.get("response"))
    key, rest = main or ("output", {})
    key = "error" if part.error else "output" if key == "error" else key
    is_named = main is not None and "name" in old["response"] and "name" not in rest
    name = {"name": old["name"]} if is_named else {}
    return {**name, **(rest if keeps_rest else {}), key: part.text}


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two contents of one role: the parts of both, in order."""
    first, second = as_dict(first, "a Gemini content"), as_dict(second, "a Gemini content")
    return {**first, "parts": [*as_list(first.get("parts")), *as_list(second.get("parts"))]}
