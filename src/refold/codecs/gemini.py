"""Gemini generateContent: contents of parts, in either case; calls are known by their place."""

from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

from refold.codecs.blocks import (
    as_dict,
    as_list,
    as_opaque,
    canonical_all,
    intern_text,
    match_results,
    parse_arguments,
    text_of,
    write_blocks,
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
from refold.rules.gemini import GROWN, RULES
from refold.rules.pairing import without_ids
from refold.rules.rule import Rules
from refold.text.canonical_json import canonicalize, parse_or_text

NAME = "gemini"
FIELD = "contents"

MAIN = ("output", "result", "content", "error")
"""Fields of a response that hold what a tool said, in the SDKs and clients we know."""

MOVED = ("thoughtSignature", "thought_signature", "id")
"""Fields of a part that clients drop, replace and re-encode."""

_ROLES = {"model": "assistant", "function": "user", "tool": "user"}


def rules(body: Mapping[str, Any]) -> Rules:  # noqa: ARG001 - the protocol's
    """Return what generateContent refuses; thought signatures go back as they came (GE-3)."""
    return Rules(RULES, alternate=True, thinking="fixed", continuity=GROWN)


def fits(body: Mapping[str, Any], items: Sequence[Wire]) -> int:
    """Rate the payload: `parts` and the role `model` are sure signs."""
    score = 1 + 3 * any(
        key in body for key in ("systemInstruction", "system_instruction", "generationConfig")
    )
    for item in items:
        if isinstance(item, dict):
            if "parts" not in item and ("content" in item or "type" in item):
                return 0
            score += 3 * ("parts" in item or item.get("role") == "model")
        elif not hasattr(item, "model_dump"):
            return 0
    return score


def is_system(item: Wire) -> bool:
    """Is it a system entry? The API has none; some proxies put them here."""
    return isinstance(item, dict) and item.get("role") == "system"


def system(body: Mapping[str, Any], head: Sequence[Wire]) -> tuple[Part, ...]:
    """Return `systemInstruction`, in either spelling, then leading system entries."""
    instruction = body.get("systemInstruction") or body.get("system_instruction")
    own = (
        (Text(instruction),)
        if isinstance(instruction, str)
        else decode(instruction, ()).parts
        if isinstance(instruction, dict)
        else ()
    )
    return (*own, *chain.from_iterable(decode(item, ()).parts for item in head))


def tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return each function declaration, and each other tool, as canonical JSON."""
    return tuple(chain.from_iterable(_read_tool(tool) for tool in as_list(body.get("tools"))))


def _read_tool(tool: Any) -> Sequence[str]:
    names = ("functionDeclarations", "function_declarations")
    if not isinstance(tool, dict):
        return (canonicalize(tool),)
    functions = chain.from_iterable(canonical_all(tool.get(name)) for name in names)
    rest = {key: value for key, value in tool.items() if key not in names}
    return (*functions, *([canonicalize(rest)] if rest else ()))


# --- reading ---------------------------------------------------------------------------------


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """Decode a content; one that calls functions is the model's, whatever role it names.

    A call's id is its position and its place among the message's calls; a response has the id of
    the call that it answers. Raises `FormatError` when *item* is no object.
    """
    item = as_dict(item, "a Gemini content")
    role, blocks = item.get("role", "user"), item.get("parts", [])
    if (
        not isinstance(role, str | None)
        or not isinstance(blocks, list | tuple | None)
        or not ("role" in item or blocks)
    ):
        return Message(_role(role), (as_opaque(item),))
    parts = tuple(map(_read, blocks or ()))
    speaker = _role(role)
    if speaker == "user" and any(isinstance(part, ToolCall) for part in parts):
        speaker = "assistant"
    return Message(speaker, _with_ids(parts, prior))


def _role(role: Any) -> str:
    return _ROLES.get(role) or intern_text(role) if isinstance(role, str) else "user"


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


def _read(block: Any) -> Part:
    if isinstance(block, str):
        return Text(block)
    if hasattr(block, "model_dump"):
        block = as_dict(block, "a part")
    try:
        return _read_known(block) or as_opaque(block, MOVED)
    except (KeyError, TypeError, AttributeError):
        return as_opaque(block, MOVED)


def _read_known(block: dict[str, Any]) -> Part | None:
    """Read a part of a known kind.

    Raises `KeyError`, `TypeError` or `AttributeError` for another shape.
    """
    if "text" in block:
        return _read_text(block)
    if call := block.get("functionCall") or block.get("function_call"):
        return ToolCall(
            "", intern_text(_expect_text(call["name"])), canonicalize(call.get("args") or {})
        )
    if response := block.get("functionResponse") or block.get("function_response"):
        return _read_result(response)
    if data := block.get("inlineData") or block.get("inline_data"):
        mime = data.get("mimeType") or data.get("mime_type") or ""
        return read_media(_media_kind(mime), mime, _expect_text(data["data"]), None)
    if file := block.get("fileData") or block.get("file_data"):
        mime = file.get("mimeType") or file.get("mime_type") or ""
        return read_media(
            _media_kind(mime), mime, None, _expect_text(file.get("fileUri") or file.get("file_uri"))
        )
    return None


def _expect_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _read_text(block: dict[str, Any]) -> Part:
    text = _expect_text(block["text"])
    signature = block.get("thoughtSignature") or block.get("thought_signature")
    if block.get("thought") is True or (signature and not text):
        return Thinking(text, signature if isinstance(signature, str) else "")
    return Text(text)


def _media_kind(mime: str) -> str:
    kind = mime.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def _main_field(name: Any, response: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the field of a response that holds its text, and the other fields.

    A repeated name is no other field.
    """
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


def _read_result(answer: dict[str, Any]) -> ToolResult:
    name, response = _expect_text(answer.get("name", "")), answer.get("response")
    main = _main_field(name, response)
    media_parts = tuple(map(_read_inner, as_list(answer["parts"]))) if "parts" in answer else ()
    if main is None:
        texts: tuple[Content, ...] = (Text(canonicalize(response)),) if response else ()
        return ToolResult("", (*texts, *media_parts), name=name)
    key, rest_fields = main
    text = (Text(response[key]),) if response[key] else ()  # type: ignore[index]  # an object
    rest = (Opaque("response", canonicalize(rest_fields)),) if rest_fields else ()
    return ToolResult("", (*text, *rest, *media_parts), key == "error", name)


def _read_inner(block: Any) -> Content:
    part = _read(block)
    return part if isinstance(part, Text | Media | Opaque) else as_opaque(block, MOVED)


# --- writing ---------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a message that came from no entry.

    Raises `FormatError` for embedded media, whose bytes are not here.
    """
    role = {"assistant": "model", "tool": "user"}.get(message.role, message.role)
    return {"role": role, "parts": [_write(None, part) for part in message.parts]}


def patch(item: Wire, message: Message) -> Wire:
    """Make *item* say what *message* says; signatures and unknown fields stay."""
    item = as_dict(item, "a Gemini content")
    old, new = without_ids(decode(item, ())), without_ids(message)
    if old == new:
        return item
    blocks = item.get("parts") if len(as_list(item.get("parts"))) == len(old.parts) else None
    return {
        **item,
        "parts": write_blocks(blocks or [None] * len(old.parts), old.parts, new.parts, _write),
    }


def _write(block: Any, part: Part) -> Any:
    """Write a block that says *part*, from *block* if there is one."""
    old = as_dict(block, "a part") if block is not None and not isinstance(block, str) else {}
    match part:
        case Text(text):
            return {**old, "text": text}
        case Thinking(text, signature):
            return {
                **old,
                "text": text,
                "thought": True,
                **({"thoughtSignature": signature} if signature else {}),
            }
        case ToolCall(_, name):
            key = "function_call" if "function_call" in old else "functionCall"
            return {**old, key: {**old.get(key, {}), "name": name, "args": parse_arguments(part)}}
        case ToolResult():
            key = "function_response" if "function_response" in old else "functionResponse"
            return {**old, key: _write_result(old.get(key) or {}, part)}
        case Opaque():
            return parse_or_text(part.json)
        case Media(_, mime, ref) if "://" in ref:
            return {"fileData": {"mimeType": mime, "fileUri": ref}}
    raise FormatError(f"the bytes of an embedded {part.kind} are only in its original entry")


def _write_result(old: dict[str, Any], part: ToolResult) -> dict[str, Any]:
    """Write the response, its text in the field it stood in."""
    was = _read_result(old) if old else ToolResult("")
    rest = [p for p in part.content if isinstance(p, Opaque) and p.kind == "response"]
    media_parts = [p for p in part.content if not isinstance(p, Text) and p not in rest]
    texts = [p for p in part.content if isinstance(p, Text)]
    out = {**old, "name": part.name or old.get("name") or part.id}
    if (
        texts != [p for p in was.content if isinstance(p, Text)]
        or part.error != was.error
        or bool(rest) != _has_rest(was)
    ):
        out["response"] = _write_response(old, text_of(texts), rest, error=part.error)
    out.setdefault("response", {"error" if part.error else "output": ""})
    blocks = as_list(old.get("parts"))
    before = [_read_inner(block) for block in blocks]
    if before != media_parts:
        out["parts"] = write_blocks(blocks, before, media_parts, _write)
    return out


def _has_rest(result: ToolResult) -> bool:
    return any(isinstance(part, Opaque) and part.kind == "response" for part in result.content)


def _write_response(
    old: dict[str, Any], text: str, rest: Sequence[Opaque], *, error: bool
) -> dict[str, Any]:
    main = _main_field(old.get("name"), old.get("response"))
    key, rest_fields = main or ("output", {})
    key = "error" if error else "output" if key == "error" else key
    name = (
        {"name": old["name"]}
        if main and "name" in old["response"] and "name" not in rest_fields
        else {}
    )
    return {**name, **(rest_fields if rest else {}), key: text}


def merge(first: Wire, second: Wire) -> Wire:
    """Join two contents of one role: the parts of both, in order."""
    first, second = as_dict(first, "a Gemini content"), as_dict(second, "a Gemini content")
    return {**first, "parts": [*as_list(first.get("parts")), *as_list(second.get("parts"))]}
