"""Reading a message of Chat Completions: its parts, and the field in which each stands."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from refold.codecs.blocks import (
    as_dict,
    as_opaque,
    intern_text,
    match_results,
    read_content,
    read_content_block,
)
from refold.codecs.codec import Wire
from refold.codecs.media import read_media
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
from refold.text.canonical_json import canonicalize, canonicalize_text

REASONING = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields that hold a model's reasoning. Clients echo one text in several of them."""

_ROLES = {"developer": "system", "function": "tool"}


class Slot(NamedTuple):
    """A part, and where in its message it stands: a field, and a block of it."""

    field: str
    block: Any
    part: Part


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """Decode a message. Raises `FormatError` when *item* is no object."""
    item = as_dict(item, "a chat message")
    role = item.get("role")
    if not isinstance(role, str):
        return Message("user", (as_opaque(item),))
    if role in ("tool", "function"):
        return Message("tool", (_read_result(item, role, prior),))
    content = item.get("content")
    if type(content) is str and _ORDINARY.issuperset(item):
        return Message(_role(role), (Text(content),) if content else ())
    return Message(_role(role), tuple([slot[2] for slot in iter_slots(item, len(prior))]))


_ORDINARY = frozenset({"role", "content", "name", "cache_control"})
"""Fields of a message that is nothing but its content."""


def _role(role: str) -> str:
    return _ROLES.get(role) or intern_text(role)


def _read_result(item: dict[str, Any], role: str, prior: Sequence[Message]) -> ToolResult:
    content: tuple[Content, ...] = read_content(item.get("content"), read_block)
    link, name = item.get("tool_call_id"), item.get("name")
    result = ToolResult(
        intern_text(link) if isinstance(link, str) else "",
        content,
        name=name if isinstance(name, str) else "",
    )
    if role == "tool":
        return result
    return ToolResult(match_results([result], prior)[0], content, name=result.name)


def iter_slots(item: dict[str, Any], at: int) -> Iterator[Slot]:
    """Yield every part with its place; *at* is the position that names legacy calls."""
    if not _REASONING.isdisjoint(item):
        yield from _iter_reasoning(item)
    content = item.get("content")
    if isinstance(content, list | tuple):
        for block in content:
            yield Slot("content", block, read_block(block))
    elif content or not isinstance(content, str | None):
        yield Slot("content", content, read_block(content))
    if item.get("refusal"):
        yield Slot(
            "refusal",
            item["refusal"],
            Opaque("refusal", canonicalize({"refusal": item["refusal"]})),
        )
    if item.get("audio"):
        yield Slot("audio", item["audio"], _read_audio(item["audio"]))
    if item.get("function_call"):
        yield Slot(
            "function_call", item["function_call"], _read_legacy_call(item["function_call"], at)
        )
    if "tool_calls" in item:
        for call in tool_call_blocks(item):
            yield Slot("tool_calls", call, read_call(call))


_REASONING = frozenset(REASONING)


def _iter_reasoning(item: dict[str, Any]) -> Iterator[Slot]:
    """Read all reasoning fields as one part: the first text, and the details to send back."""
    text = item.get("reasoning_content") or item.get("reasoning") or ""
    text = text if isinstance(text, str) else canonicalize(text)
    details = item.get("reasoning_details")
    if text or details:
        yield Slot("reasoning", None, Thinking(text, canonicalize(details) if details else ""))


def tool_call_blocks(item: dict[str, Any]) -> Sequence[Any]:
    """Return the blocks of `tool_calls`; some send a lone one as it is."""
    calls = item.get("tool_calls")
    return calls if isinstance(calls, list | tuple) else () if calls is None else (calls,)


def read_call(call: Any) -> Part:
    """Read a call; one without an id has an empty one (DS-2)."""
    try:
        id = "" if call.get("id") is None else call["id"]
        if "custom" in call:
            return _tool_call(id, call["custom"]["name"], call["custom"]["input"], free=True)
        return _tool_call(id, call["function"]["name"], call["function"].get("arguments", ""))
    except (KeyError, TypeError, AttributeError):
        return as_opaque(call, opens=call.get("id") if isinstance(call, dict) else "")


def _tool_call(id: Any, name: Any, arguments: Any, *, free: bool = False) -> ToolCall:
    """Build a call; some servers send arguments as an object. Raises `TypeError` for no text."""
    if not (isinstance(id, str) and isinstance(name, str)):
        raise TypeError
    id, name = intern_text(id), intern_text(name)
    if not isinstance(arguments, str):
        return ToolCall(id, name, canonicalize({} if arguments is None else arguments))
    return ToolCall(id, name, arguments if free else canonicalize_text(arguments))


def _read_legacy_call(call: Any, at: int) -> Part:
    try:
        return _tool_call(f"{at}.0", call["name"], call.get("arguments", ""))
    except (KeyError, TypeError, AttributeError):
        return as_opaque(call)


def _read_audio(audio: Any) -> Part:
    ref = audio.get("id") if isinstance(audio, dict) else None
    return read_media("audio", "", None, ref) if isinstance(ref, str) else as_opaque(audio)


def read_block(block: Any) -> Content:
    """Read one block of a content."""
    return read_content_block(block, _read_media)


def _read_media(kind: Any, block: dict[str, Any]) -> Media | None:
    """Raises `KeyError`, `TypeError` or `AttributeError` for a block of another shape."""
    match kind:
        case "image_url" | "video_url":
            place = block[kind]
            return read_media(kind[:5], "", None, place if isinstance(place, str) else place["url"])
        case "input_audio":
            return read_media(
                "audio", f"audio/{block[kind].get('format', '')}", block[kind]["data"], None
            )
        case "file":
            file = block["file"]
            return read_media("document", "", None, file.get("file_data") or file["file_id"])
    return None
