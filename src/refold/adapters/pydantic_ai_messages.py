"""A codec for pydantic-ai's messages.

The module is a codec (`refold.codecs.codec`): `Compactor(format=pydantic_ai_messages)` takes and
returns lists of `ModelMessage`. Messages that no edit touches are the same objects. Needs the extra
`pydantic-ai`.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from refold.adapters.hook import explain_missing, fits_types, provider_rules
from refold.codecs.blocks import (
    as_list,
    is_link,
    kind_of_mime,
    pair_with_old,
    parse_arguments,
    read_media,
)
from refold.codecs.codec import Wire, read_tools
from refold.errors import FormatError
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.rules.request import Body, Request
from refold.rules.rule import Rule, Rules
from refold.text.json_values import canonicalize, canonicalize_text

with explain_missing("pydantic-ai-slim", "pydantic-ai"):
    from pydantic_ai.messages import (
        ERROR_OUTCOMES,
        BinaryContent,
        FileUrl,
        ImageUrl,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_core import to_jsonable_python

NAME = "pydantic_ai"
FIELD = "messages"

SETTINGS = frozenset(
    {
        "system-prompt",
        "instruction-baseline",
        "instruction-delta",
        "tool-availability-delta",
        "model-settings-delta",
        "compaction",
    }
)
"""Kinds of parts that configure the model. They are kept, with everything before them."""


class Slot(NamedTuple):
    """A `Part` and its place in the message."""

    place: tuple[int, int]
    """Index of the message's part, and of the item in a prompt with several."""
    value: Any
    part: Part


# --- rules ----------------------------------------------------------------------------------------


def rules(body: Body) -> Rules:
    """Return the rules that hold for every provider."""
    return provider_rules(body, KEPT_SETTINGS)


def join_settings(request: Request) -> Iterator[tuple[int, int]]:
    """Forbid cuts before the last message that configures the model (PA-1)."""
    for at in range(len(request.messages) - 1, -1, -1):
        if any(isinstance(p, Opaque) and p.kind in SETTINGS for p in request.messages[at].parts):
            yield -1, at
            return


KEPT_SETTINGS = Rule("PA-1", "what says how the model works stays", lambda _: (), join_settings)
"""Refold's own rule."""


# --- reading --------------------------------------------------------------------------------------


fits = fits_types(ModelRequest, ModelResponse)
tools = read_tools


def is_system(item: Wire) -> bool:
    """Return whether *item* only configures the model."""
    return isinstance(item, ModelRequest) and all(p.part_kind in SETTINGS for p in item.parts)


def system(body: Body) -> tuple[Part, ...]:
    """Return the instructions of a body."""
    return tuple(Text(text) for text in as_list(body.get("instructions")))


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - as in all codecs
    """Decode a message. Raises `FormatError` for other objects."""
    if not isinstance(item, ModelRequest | ModelResponse):
        raise FormatError(f"a message of pydantic-ai is no {type(item).__name__}")
    role = "assistant" if isinstance(item, ModelResponse) else "user"
    return Message(role, tuple(slot.part for slot in _slots(item)))


def _slots(item: Wire) -> Iterator[Slot]:
    for at, part in enumerate(item.parts):
        if part.part_kind == "user-prompt" and not isinstance(part.content, str):
            for n, value in enumerate(part.content):
                if getattr(value, "kind", "") != "cache-point":
                    yield Slot((at, n), value, _read_item(value))
        else:
            yield Slot((at, 0), part, _read(part))


def _read(part: Any) -> Part:
    kind, tool_kind = part.part_kind, getattr(part, "tool_kind", None)
    if kind == "tool-call" and not tool_kind:
        arguments = canonicalize_text(part.args_as_json_str())
        return ToolCall(part.tool_call_id, part.tool_name, arguments)
    if kind == "tool-return" and not tool_kind:
        text = part.model_response_str(wrap_if_error=False)
        content = (*([Text(text)] if text else []), *map(_read_item, part.files))
        is_error = part.outcome in ERROR_OUTCOMES
        return ToolResult(part.tool_call_id, content, is_error, part.tool_name)
    if kind == "retry-prompt" and part.tool_name:
        text = Text(part.model_response())
        return ToolResult(part.tool_call_id, (text,), error=True, name=part.tool_name)
    if kind in ("retry-prompt", "retry-feedback"):
        return Text(part.model_response())
    if kind in ("user-prompt", "text"):
        return Text(part.content)
    if kind == "thinking":
        return Thinking(part.content, part.signature or "")
    return _read_item(part.content) if kind == "file" else _carry(part)


def _read_item(item: Any) -> Any:
    """Read an item of a prompt, or a file of a result."""
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, BinaryContent):
        data = b64encode(item.data).decode("ascii")
        return read_media(kind_of_mime(item.media_type), item.media_type, data, None)
    if isinstance(item, FileUrl):
        return read_media(item.kind.removesuffix("-url"), "", None, item.url)
    text = getattr(item, "content", None)
    return Text(text) if isinstance(text, str) else _carry(item)


def _carry(part: Any) -> Opaque:
    """Return an opaque part. Ids link the calls and results of the provider's and the framework's
    own tools."""
    kind = str(getattr(part, "part_kind", getattr(part, "kind", "unknown")))
    value = to_jsonable_python(part, bytes_mode="base64", fallback=repr)
    fields = {k: v for k, v in value.items() if k != "timestamp"} if type(value) is dict else value
    id = getattr(part, "tool_call_id", None) or ""
    opens, closes = (id if kind.endswith(end) else "" for end in ("tool-call", "tool-return"))
    return Opaque(kind, canonicalize(fields), opens, closes)


# --- writing --------------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a new message. Raises `FormatError` for parts that the format does not support."""
    if message.role == "assistant":
        return ModelResponse([_write(part, "assistant") for part in message.parts])
    return ModelRequest([_write(part, message.role) for part in message.parts])


def patch(item: Wire, message: Message) -> Wire:
    """Return a copy of *item* with the parts of *message*. Unchanged parts are the same objects."""
    slots = list(_slots(item))
    pairs = pair_with_old(slots, [slot.part for slot in slots], message.parts)
    out = list[Any]()
    for at, group in groupby(pairs, lambda pair: -1 if pair[0] is None else pair[0].place[0]):
        run = list(group)
        before = [slot.part for slot in slots if slot.place[0] == at]
        if at < 0:
            out += [_write(part, message.role) for _, part in run]
        elif before == [part for _, part in run]:
            out.append(item.parts[at])
        else:
            out.append(_rewrite(item.parts[at], [(s.value, s.part, p) for s, p in run if s]))
    return replace(item, parts=out)


def _rewrite(part: Any, run: Sequence[tuple[Any, Part, Part]]) -> Any:
    """Return *part* with changed items. *run* has the value, the old part and the new part of
    each."""
    if part.part_kind == "user-prompt" and not isinstance(part.content, str):
        items = [value if old == new else _text_of(new) for value, old, new in run]
        return replace(part, content=items)
    if part.part_kind in ("retry-prompt", "retry-feedback"):
        return _write(run[0][2], "user")  # such a part would show its content with words around it
    match run[0][2]:
        case ToolCall() as call:
            is_text = isinstance(part.args, str)
            return replace(part, args=call.arguments if is_text else parse_arguments(call))
        case ToolResult(_, content) as result:
            files = [file for file in getattr(part, "files", ()) if _read_item(file) in content]
            return replace(part, content=[result.text, *files] if files else result.text)
        case Text(text):
            return replace(part, content=text)
    raise FormatError(f"a {part.part_kind} of pydantic-ai cannot be edited")


def _text_of(part: Part) -> str:
    if not isinstance(part, Text):
        raise FormatError(f"a prompt of pydantic-ai cannot hold this {type(part).__name__}")
    return part.text


def _write(part: Part, role: str) -> Any:
    """Return a new part of pydantic-ai."""
    match part:
        case Text(text):
            kinds: dict[str, Any] = {"assistant": TextPart, "system": SystemPromptPart}
            return kinds.get(role, UserPromptPart)(text)
        case ToolCall(id, name):
            return ToolCallPart(name, parse_arguments(part), id)
        case ToolResult(id, _, is_error, name):
            outcome = "failed" if is_error else "success"
            return ToolReturnPart(name or "tool", part.text, id, outcome=outcome)
        case Thinking(text, signature):
            return ThinkingPart(text, signature=signature or None)
        case Media("image") if is_link(part):
            return UserPromptPart([ImageUrl(part.ref)])
    raise FormatError(f"a new message of pydantic-ai cannot hold this {type(part).__name__}")


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one kind: the parts of both, in order."""
    return replace(first, parts=[*first.parts, *second.parts])
