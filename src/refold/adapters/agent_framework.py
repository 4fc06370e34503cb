"""Microsoft Agent Framework: a compaction strategy that excludes the messages hidden by edits, and
a codec for its messages.

`Agent(client, compaction_strategy=refold, middleware=[refold])` with `refold = RefoldStrategy()`.
The history keeps every message. The module is a codec (`refold.codecs.codec`). Needs the extra
`agent-framework`.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from sys import modules
from typing import Any

from refold.adapters.hook import (
    UNCOUNTED,
    explain_missing,
    fail_open,
    fits_types,
    provider_rules,
    require_format,
)
from refold.codecs.blocks import (
    as_list,
    is_link,
    kind_of_mime,
    parse_arguments,
    read_media,
    write_blocks,
)
from refold.codecs.codec import Wire, read_tools
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.errors import FormatError
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.rules.request import Body
from refold.text.json_values import canonicalize, canonicalize_text
from refold.tokens.usage import Usage

with explain_missing("agent-framework-core", "agent-framework"):
    import agent_framework as maf
    from agent_framework import EXCLUDE_REASON_KEY, EXCLUDED_KEY, ChatContext, ChatMiddleware

NAME = "agent_framework"
FIELD = "messages"

REASON = "refold"
"""Exclusion reason of hidden messages, and property key of inserted ones."""


# --- the strategy ---------------------------------------------------------------------------------


@dataclass
class _Call:
    """A call of the model: its options, and the view that is sent."""

    options: Mapping[str, Any] = field(default_factory=dict)
    view: View | None = None


_next: ContextVar[_Call | None] = ContextVar("refold_call", default=None)
"""The call of a task that the strategy runs for next, because it only gets the messages."""


class RefoldStrategy(ChatMiddleware):
    """A strategy that excludes hidden messages and inserts those of edits before every model call.

    Nothing is removed: excluded messages stay in place and are included again if an edit is
    reverted. As middleware too, it knows the model and its tools, and reports usage. *compactor*
    defaults to `Compactor(format=refold.adapters.agent_framework)`. Raises ValueError for another
    format.
    """

    def __init__(self, compactor: Compactor | None = None) -> None:
        self.compactor = require_format(compactor, modules[__name__])

    async def __call__(self, messages: list[maf.Message]) -> bool:
        """Compact *messages* in place. Return whether the visible messages have changed."""
        before = [id(m) for m in messages if not _is_excluded(m)]
        own = [m for m in messages if not m.additional_properties.get(REASON)]
        for message in own:
            if message.additional_properties.get(EXCLUDE_REASON_KEY) == REASON:
                del message.additional_properties[EXCLUDE_REASON_KEY]
                message.additional_properties[EXCLUDED_KEY] = False
        shown = included = [m for m in own if not _is_excluded(m)]
        inserted = [m for m in messages if m.additional_properties.get(REASON)]
        call = _next.get() or _Call()
        _next.set(None)  # a stream's call ends outside the middleware
        with fail_open():
            body = {"messages": included, **_fields(call.options)}
            view = await self.compactor.acompact(body)
            shown = _reuse(view.payload["messages"], own, inserted)
            call.view = view
        messages[:] = _place(own, shown)
        return before != [id(m) for m in messages if not _is_excluded(m)]

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Store the options for the strategy, and report the usage of the call."""
        call = _Call(context.options or {})
        _next.set(call)
        if context.stream:
            context.stream_result_hooks.append(lambda response: self._report(call, response))
        await call_next()
        if not context.stream:
            self._report(call, context.result)

    def _report(self, call: _Call, response: Any) -> Any:
        with fail_open(UNCOUNTED):
            used = getattr(response, "usage_details", None)
            if used and call.view is not None:
                names = ("input", "output", "cache_read_input", "cache_creation_input")
                counts = (used.get(f"{name}_token_count") or 0 for name in names)
                self.compactor.report(call.view, Usage(*counts))
        return response


def _is_excluded(message: maf.Message) -> bool:
    return bool(message.additional_properties.get(EXCLUDED_KEY))


def _reuse(
    shown: Sequence[maf.Message], own: Sequence[maf.Message], inserted: Sequence[maf.Message]
) -> list[maf.Message]:
    """Return *shown* with the messages inserted earlier instead of new ones with their content."""
    positions = {id(message) for message in own}
    earlier = {decode(message, ()): message for message in inserted}
    return [m if id(m) in positions else earlier.get(decode(m, ()), m) for m in shown]


def _place(own: Sequence[maf.Message], shown: Sequence[maf.Message]) -> list[maf.Message]:
    """Return all messages, the excluded ones before the next visible message of the history."""
    out, rest = list[maf.Message](), iter(own)
    positions = {id(message) for message in own}
    for message in shown:
        if id(message) not in positions:
            message.additional_properties[REASON] = True
            out.append(message)
            continue
        for each in rest:
            out.append(each)
            if each is message:
                break
            _exclude(each)
    for each in rest:
        out.append(each)
        _exclude(each)
    return out


def _exclude(message: maf.Message) -> None:
    if not _is_excluded(message):
        message.additional_properties |= {EXCLUDED_KEY: True, EXCLUDE_REASON_KEY: REASON}


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request fields of a body beside its messages."""
    tools = [
        {"name": t.name, "description": t.description, "parameters": t.parameters()}
        for t in as_list(options.get("tools"))
        if isinstance(t, maf.FunctionTool)
    ]
    return {
        "tools": tools,
        "instructions": options.get("instructions"),
        "model": options.get("model"),
    }


# --- the format: reading --------------------------------------------------------------------------


rules = provider_rules
fits = fits_types(maf.Message)
tools = read_tools


def is_system(item: Wire) -> bool:
    """Return whether *item* is a system message."""
    return isinstance(item, maf.Message) and item.role in ("system", "developer")


def system(body: Body) -> tuple[Part, ...]:
    """Return the instructions of a body."""
    text = body.get("instructions")
    return (Text(text),) if isinstance(text, str) else ()


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - as in all codecs
    """Decode a message. Raises `FormatError` for other objects."""
    if not isinstance(item, maf.Message):
        raise FormatError(f"a message of Agent Framework is no {type(item).__name__}")
    return Message(str(item.role), tuple(map(_read, item.contents)))


def _read(content: maf.Content) -> Any:
    match content.type:
        case "text":
            return Text(content.text or "")
        case "text_reasoning":
            return Thinking(content.text or "", content.protected_data or "")
        case "function_call" if not content.hosted:
            value = content.arguments
            text = canonicalize(value) if isinstance(value, Mapping) else value or ""
            return ToolCall(content.call_id or "", content.name or "", canonicalize_text(text))
        case "function_result":
            parts = tuple(_read_results(content))
            return ToolResult(content.call_id or "", parts, bool(content.exception))
        case "data" | "uri" if content.uri:
            mime = content.media_type or ""
            return read_media(kind_of_mime(mime), mime, None, content.uri)
    return _carry(content)


def _read_results(content: maf.Content) -> Iterator[Any]:
    if content.items:
        yield from map(_read, content.items)
    elif content.result:
        text = content.result if isinstance(content.result, str) else canonicalize(content.result)
        yield Text(text)


def _carry(content: maf.Content) -> Opaque:
    """Return an opaque part. Ids link the calls and results of the provider's own tools."""
    value = {k: v for k, v in content.to_dict().items() if k != "additional_properties"}
    id, kind = content.call_id or "", str(content.type)
    opens, closes = (id if kind.endswith(end) else "" for end in ("_call", "_result"))
    return Opaque(kind, canonicalize(value), opens, closes)


# --- the format: writing --------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a new message. Raises `FormatError` for parts that the format does not support."""
    return maf.Message(message.role, [_write(None, part) for part in message.parts])


def patch(item: Wire, message: Message) -> Wire:
    """Return a message with the role and author of *item* and the parts of *message*. Unchanged
    contents are the same objects. Id and properties are not copied."""
    old = decode(item, ()).parts
    contents = write_blocks(item.contents, old, message.parts, _write)
    return maf.Message(item.role, contents, author_name=item.author_name)


def _write(content: maf.Content | None, part: Part) -> Any:
    """Return a content for *part*, based on *content* if given."""
    match part:
        case Text(text):
            return maf.Content.from_text(text)
        case ToolCall(id, name):
            fields = {"name": name, "arguments": parse_arguments(part)}
            return _with_fields(content or maf.Content.from_function_call(id, name), fields)
        case ToolResult(id, parts, is_error):
            items = as_list(content.items) if content else ()
            items = write_blocks(items, list(map(_read, items)), parts, _write)
            new = maf.Content.from_function_result(id, exception="failed" if is_error else None)
            return _with_fields(content or new, {"items": items, "result": part.text})
        case Thinking(text, signature):
            return maf.Content.from_text_reasoning(text=text, protected_data=signature or None)
        case Media(_, mime, ref) if is_link(part):
            return maf.Content.from_uri(ref, media_type=mime or "image/*")
    raise FormatError(f"a message of Agent Framework cannot hold this {type(part).__name__}")


def _with_fields(content: maf.Content, fields: Mapping[str, Any]) -> maf.Content:
    """Return a copy of *content* with other *fields* and without the provider's raw
    representation."""
    new = copy(content)
    for name, value in {**fields, "raw_representation": None}.items():
        setattr(new, name, value)
    return new


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one role: the contents of both, in order."""
    contents = [*first.contents, *second.contents]
    return maf.Message(first.role, contents, author_name=first.author_name)
