"""Haystack: a chat generator that sends a compacted history, a compactor, and a codec for its
messages.

`Agent(chat_generator=RefoldChatGenerator(generator))`: the agent's state keeps every message. The
module is a codec (`refold.codecs.codec`). Needs the extra `haystack`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from refold.budget.budget import Budget
from refold.codecs.blocks import parse_arguments, read_media, write_blocks
from refold.codecs.codec import Wire, no_system, read_tools
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.errors import FormatError
from refold.messages import Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.stores.sqlite import SQLiteStore
from refold.text.json_values import canonicalize

with explain_missing("haystack-ai", "haystack"):
    from haystack import component, default_from_dict, default_to_dict
    from haystack import dataclasses as hs
    from haystack.core.serialization import component_to_dict
    from haystack.tools import flatten_tools_or_toolsets
    from haystack.utils import deserialize_component_inplace

NAME = "haystack"
FIELD = "messages"


# --- in an agent ----------------------------------------------------------------------------------


@component
class RefoldChatGenerator:
    """A wrapper that calls *chat_generator* with the view of the history and returns its answer.

    It can replace that generator anywhere, and reports usage. *compactor* defaults to
    `Compactor(format=refold.adapters.haystack)` with its edits in the file *store*, if given. Only
    a generator with that default can be serialized. Raises ValueError for another format.
    """

    def __init__(
        self, chat_generator: Any, *, store: str = "", compactor: Compactor | None = None
    ) -> None:
        self.chat_generator, self.store = chat_generator, store
        self._is_own = compactor is None
        codec = modules[__name__]
        edits = SQLiteStore(store) if store and compactor is None else None
        self.compactor = require_format(compactor or Compactor(format=codec, store=edits), codec)

    @component.output_types(replies=list[hs.ChatMessage])
    def run(
        self,
        messages: list[hs.ChatMessage] | str,
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: Any = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """Call the model with the view of *messages*. A text is one message of the user."""
        shown, view = _read_history(messages)
        with fail_open():
            shown, view = _show(self.compactor(self._body(shown, tools)))
        options = _options(streaming_callback, generation_kwargs, tools, tools_strict)
        return self._report(view, self.chat_generator.run(shown, **options))

    @component.output_types(replies=list[hs.ChatMessage])
    async def run_async(
        self,
        messages: list[hs.ChatMessage] | str,
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: Any = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """Do the same as `run`, in async code."""
        shown, view = _read_history(messages)
        with fail_open():
            shown, view = _show(await self.compactor.acompact(self._body(shown, tools)))
        options = _options(streaming_callback, generation_kwargs, tools, tools_strict)
        return self._report(view, await self.chat_generator.run_async(shown, **options))

    def _body(self, messages: Sequence[hs.ChatMessage], tools: Any) -> dict[str, Any]:
        given = tools or getattr(self.chat_generator, "tools", None) or []
        specs = [tool.tool_spec for tool in flatten_tools_or_toolsets(given)]
        model = getattr(self.chat_generator, "model", None)
        return {"messages": list(messages), "tools": specs, "model": model}

    def _report(self, view: View | None, answer: dict[str, Any]) -> dict[str, Any]:
        with fail_open(UNCOUNTED):
            if view is not None and answer["replies"]:
                self.compactor.report(view, answer["replies"][0].meta.get("usage"))
        return answer

    def warm_up(self) -> None:
        """Warm up the generator."""
        if hasattr(self.chat_generator, "warm_up"):
            self.chat_generator.warm_up()

    async def warm_up_async(self) -> None:
        """Warm up the generator, in async code."""
        if hasattr(self.chat_generator, "warm_up_async"):
            await self.chat_generator.warm_up_async()
        else:
            self.warm_up()

    def close(self) -> None:
        """Close the generator's clients."""
        if hasattr(self.chat_generator, "close"):
            self.chat_generator.close()

    async def close_async(self) -> None:
        """Close the generator's clients, in async code."""
        if hasattr(self.chat_generator, "close_async"):
            await self.chat_generator.close_async()
        else:
            self.close()

    def to_dict(self) -> dict[str, Any]:
        """Serialize. Raises ValueError if a compactor was given."""
        if not self._is_own:
            raise ValueError("a generator with a compactor of its own cannot be serialized")
        inner = component_to_dict(self.chat_generator, "chat_generator")
        return default_to_dict(self, chat_generator=inner, store=self.store)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RefoldChatGenerator":
        """Deserialize."""
        deserialize_component_inplace(data["init_parameters"], key="chat_generator")
        return default_from_dict(cls, data)


class RefoldCompactor:
    """A `Compactor` for Haystack's `CompactionHook`, which decides when and how far to compact.

    The hook writes the result into the agent's state, where hidden messages are then lost. To keep
    them, use `RefoldChatGenerator`. *model* is the name of the agent's model.
    """

    def __init__(self, model: str = "") -> None:
        self.model = model
        self.compactor = Compactor(format=modules[__name__], model=model)

    def compact(
        self, messages: list[hs.ChatMessage], target_tokens: int, token_counter: Any
    ) -> list[hs.ChatMessage] | None:
        """Return a shorter conversation; None if it would not be shorter."""
        with fail_open():
            view = self.compactor(list(messages), budget=_down_to(target_tokens))
            return _if_shorter(view, messages, token_counter)
        return None

    async def compact_async(
        self, messages: list[hs.ChatMessage], target_tokens: int, token_counter: Any
    ) -> list[hs.ChatMessage] | None:
        """Do the same as `compact`, in async code."""
        with fail_open():
            view = await self.compactor.acompact(list(messages), budget=_down_to(target_tokens))
            return _if_shorter(view, messages, token_counter)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Serialize."""
        return default_to_dict(self, model=self.model)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RefoldCompactor":
        """Deserialize."""
        return default_from_dict(cls, data)


def _down_to(tokens: int) -> Budget:
    return Budget(max(tokens, 1), max(tokens, 1))


def _if_shorter(view: View, messages: Sequence[Any], counter: Any) -> list[Any] | None:
    shown = list(view.payload)
    return shown if counter.count(messages=shown) < counter.count(messages=messages) else None


def _read_history(messages: Sequence[Any] | str) -> tuple[list[hs.ChatMessage], View | None]:
    is_text = isinstance(messages, str)
    return [hs.ChatMessage.from_user(messages)] if is_text else list(messages), None


def _show(view: View) -> tuple[list[hs.ChatMessage], View]:
    return list(view.payload["messages"]), view


def _options(*values: Any) -> dict[str, Any]:
    """Return the arguments of a generator besides its messages."""
    names = "streaming_callback", "generation_kwargs", "tools", "tools_strict"
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


# --- the format: reading --------------------------------------------------------------------------


rules = provider_rules
fits = fits_types(hs.ChatMessage)
system = no_system
tools = read_tools


def is_system(item: Wire) -> bool:
    """Return whether *item* is a system message."""
    return isinstance(item, hs.ChatMessage) and item.role == hs.ChatRole.SYSTEM


def decode(item: Wire, prior: Sequence[Message]) -> Message:  # noqa: ARG001 - as in all codecs
    """Decode a message. Raises `FormatError` for other objects."""
    if not isinstance(item, hs.ChatMessage):
        raise FormatError(f"a message of Haystack is no {type(item).__name__}")
    return Message(item.role.value, tuple(map(_read, item._content)))  # noqa: SLF001 - in order


def _read(content: Any) -> Any:
    match content:
        case hs.TextContent():
            return Text(content.text)
        case hs.ToolCall():
            return ToolCall(content.id or "", content.tool_name, canonicalize(content.arguments))
        case hs.ToolCallResult():
            parts, origin = tuple(_read_result(content.result)), content.origin
            return ToolResult(origin.id or "", parts, content.error, origin.tool_name)
        case hs.ReasoningContent():
            extra = canonicalize(content.extra) if content.extra else ""
            return Thinking(content.reasoning_text, extra)
        case hs.ImageContent():
            return read_media("image", content.mime_type or "", content.base64_image, None)
        case hs.FileContent():
            return read_media("document", content.mime_type or "", content.base64_data, None)
    return Opaque(type(content).__name__, canonicalize(content.to_dict()))


def _read_result(result: Any) -> Iterator[Any]:
    if isinstance(result, str):
        if result:
            yield Text(result)
    else:
        yield from map(_read, result)


# --- the format: writing --------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a new message. Raises `FormatError` for parts that the format does not support."""
    contents = [_write(None, part) for part in message.parts]
    return hs.ChatMessage(_role=hs.ChatRole(message.role), _content=contents)


def patch(item: Wire, message: Message) -> Wire:
    """Return a copy of *item* with the parts of *message*. Unchanged contents are the same
    objects."""
    old = item._content  # noqa: SLF001 - in order
    return replace(item, _content=write_blocks(old, list(map(_read, old)), message.parts, _write))


def _write(content: Any, part: Part) -> Any:
    """Return a content for *part*, based on *content* if given."""
    match part:
        case Text(text):
            return hs.TextContent(text)
        case ToolCall(id, name):
            arguments = parse_arguments(part)
            if content:
                return replace(content, arguments=arguments)
            return hs.ToolCall(name, arguments, id)
        case ToolResult(id, _, is_error, name):
            old = content or hs.ToolCallResult("", hs.ToolCall(name or "tool", {}, id), is_error)
            return replace(old, result=_write_result(old.result, part))
        case Thinking(text) if not part.signature:
            return hs.ReasoningContent(text)
    raise FormatError(f"a message of Haystack cannot hold this {type(part).__name__}")


def _write_result(old: Any, new: ToolResult) -> Any:
    if all(isinstance(part, Text) for part in new.content):
        return new.text
    return write_blocks(old, list(_read_result(old)), new.content, _write)


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one role: the contents of both, in order."""
    return replace(first, _content=[*first._content, *second._content])  # noqa: SLF001 - in order
