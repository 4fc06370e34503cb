"""LangChain's messages as a wire format, and its chat models to answer an `Ask`.

The module is a codec (`refold.codecs.codec`): `Compactor(..., format=refold.adapters.langchain)`
takes and gives lists of `BaseMessage`. Messages that no edit touches are the same objects, with
their ids, `additional_kwargs` and `response_metadata`. Needs the extra `langchain`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from refold.adapters.hook import explain_missing, fits_types
from refold.codecs import anthropic
from refold.codecs.blocks import (
    as_list,
    as_opaque,
    is_link,
    match_results,
    pair_with_old,
    parse_arguments,
    read_content,
    read_media,
    write_content,
)
from refold.codecs.codec import Wire, no_system
from refold.core.strategy import Answer, Ask
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
from refold.models.model import alternating_turns
from refold.models.responses import answer_of_exception, read_finish, strip_reasoning
from refold.rules.openai_chat import RULES
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.text.json_values import (
    Record,
    canonicalize,
    canonicalize_text,
    dig,
    parse_or_text,
    text_at,
)
from refold.text.summary_wrapper import summary_in
from refold.tokens.usage import Usage

with explain_missing("langchain-core", "langchain"):
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
        convert_to_messages,
    )
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.config import merge_configs
    from langchain_core.utils.function_calling import convert_to_openai_tool

# --- the codec ------------------------------------------------------------------------------------

NAME = "langchain"
"""The name of this format."""
FIELD = "messages"
"""Where a request body has the conversation."""
SOURCE = "summarization"
"""The value of `additional_kwargs["lc_source"]` in a summary, as LangChain's middleware sets it."""


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


# --- reading --------------------------------------------------------------------------------------

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "developer": "system",
    "function": "tool",
    "model": "assistant",
}
_MEDIA = {
    "image": "image",
    "audio": "audio",
    "video": "video",
    "file": "document",
    "document": "document",
}
_CALLS = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call"})
"""Blocks of content that repeat an entry of `tool_calls`."""


class Slot(NamedTuple):
    """A part, and where in its message it is."""

    place: Literal["kwargs", "content", "call", "invalid"]
    block: Any
    part: Part


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """Decode a message, or a string, a pair or a dict that LangChain takes for one.

    Raises `FormatError` for anything else, and for a `RemoveMessage`, which is an instruction and
    no message (`refold.adapters.langgraph.apply_removals`).
    """
    message = as_message(item)
    if isinstance(message, ToolMessage | FunctionMessage):
        return Message("tool", (_result(message, prior),))
    return Message(role_of(message), tuple(slot.part for slot in slots_of(message, len(prior))))


def as_message(item: Wire) -> BaseMessage:
    """Convert *item* as LangChain does. Raises `FormatError`."""
    if isinstance(item, RemoveMessage):
        raise FormatError(
            "a RemoveMessage is no message: apply it first "
            "(refold.adapters.langgraph.apply_removals)"
        )
    if isinstance(item, BaseMessage):
        return item
    try:
        return convert_to_messages([item])[0]
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        raise FormatError(f"no LangChain message: {error}") from error


def role_of(message: BaseMessage) -> str:
    """Return the role in Refold's words."""
    if isinstance(message, AIMessage):
        return "assistant"
    role = (
        message.role
        if isinstance(message, ChatMessage)
        else message.type.removesuffix("MessageChunk").lower()
    )
    return _ROLES.get(role, role)


def _result(message: ToolMessage | FunctionMessage, prior: Sequence[Message]) -> ToolResult:
    content: tuple[Content, ...] = read_content(message.content, read_block)
    name = message.name or ""
    if isinstance(message, ToolMessage):
        return ToolResult(message.tool_call_id, content, message.status == "error", name)
    return ToolResult(
        match_results([ToolResult("", content, name=name)], prior)[0], content, name=name
    )


def slots_of(message: BaseMessage, at: int) -> Iterator[Slot]:
    """Yield every part with its place, in order; legacy calls are named by the position *at*."""
    reasoning = message.additional_kwargs.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        yield Slot("kwargs", None, Thinking(reasoning))
    calls = call_ids(message)
    for block in message.content if isinstance(message.content, list) else [message.content]:
        if block and not echoes(block, calls):
            yield Slot("content", block, read_block(block))
    if not isinstance(message, AIMessage):
        return
    for call in message.tool_calls:
        yield Slot(
            "call", call, ToolCall(call.get("id") or "", call["name"], canonicalize(call["args"]))
        )
    for bad in message.invalid_tool_calls:  # no JSON objects; providers want a result for them, too
        arguments = canonicalize_text(bad.get("args") or "")
        yield Slot("invalid", bad, ToolCall(bad.get("id") or "", bad.get("name") or "", arguments))
    legacy = message.additional_kwargs.get("function_call")
    if isinstance(legacy, Mapping) and not calls:
        named = ToolCall(
            f"{at}.0",
            str(legacy.get("name")),
            canonicalize_text(str(legacy.get("arguments") or "")),
        )
        yield Slot("kwargs", legacy, named)


def call_ids(message: BaseMessage) -> set[str]:
    """Return the ids of the calls that have their own fields."""
    if not isinstance(message, AIMessage):
        return set()
    return {
        id for call in (*message.tool_calls, *message.invalid_tool_calls) if (id := call.get("id"))
    }


def echoes(block: Any, calls: Collection[str]) -> bool:
    """Does this block of content only repeat one of *calls*, as Anthropic's and OpenAI's do?"""
    return isinstance(block, dict) and block.get("type") in _CALLS and call_id(block) in calls


def call_id(block: Record) -> str:
    """Return the id of the call that a block makes; empty if it has none."""
    return text_at(block, "call_id") or text_at(block, "id")


def read_block(block: Any) -> Any:
    """Read a block of content, of LangChain's kinds or of a provider's."""
    if isinstance(block, str):
        return Text(block)
    if not isinstance(block, dict):
        return as_opaque(block)
    match block.get("type"):
        case "text" | "input_text" | "output_text" if isinstance(block.get("text"), str):
            return Text(block["text"])
        case "thinking" if isinstance(block.get("thinking"), str):
            return Thinking(block["thinking"], str(block.get("signature") or ""))
        case "redacted_thinking":
            return Thinking("", str(block.get("data") or ""))
        case "reasoning" if isinstance(block.get("reasoning"), str):
            return Thinking(block["reasoning"], str(dig(block, "extras", "signature") or ""))
        case str() as kind if kind in _CALLS or kind.startswith("server_tool"):
            return as_opaque(block, opens=call_id(block))
        case str() as kind if kind.endswith("_tool_result"):
            return as_opaque(block, closes=block.get("tool_use_id") or block.get("tool_call_id"))
    return _medium(block) or as_opaque(block)


def _medium(block: Record) -> Media | None:
    """Read an image, sound, video or document in a known shape; None for anything else."""
    kind = str(block.get("type")).removeprefix("input_").removesuffix("_url")
    if kind == "media":
        kind = str(block.get("mime_type")).partition("/")[0]
    if kind not in _MEDIA:
        return None
    inner = next(
        (
            block[key]
            for key in (block["type"], "source")
            if isinstance(block.get(key), str | Mapping)
        ),
        block,
    )
    place = {"url": inner} if isinstance(inner, str) else inner
    mime = place.get("mime_type") or place.get("media_type") or ""
    data = place.get("base64") or place.get("data") or place.get("file_data")
    ref = place.get("url") or place.get("file_id") or place.get("id") or place.get("file_uri")
    return read_media(
        _MEDIA[kind],
        str(mime),
        data if isinstance(data, str) else None,
        ref if data is None else None,
    )


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
        case Media(kind, _, ref) if is_link(part):
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


# --- chat models ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChatModel:
    """Answer an `Ask` by a chat model of LangChain, in sync and async code.

    Its calls carry the tag `nostream`, so that LangGraph does not stream them as the agent's words.
    """

    model: BaseChatModel
    config: RunnableConfig | None = field(default=None, repr=False)
    """Callbacks, tags and metadata of the run that it belongs to."""
    cap: str = "max_tokens"
    """The argument that caps an answer; empty for a model that takes none."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:  # noqa: ARG002 - a model's
        """Ask the model."""
        try:
            return _answer(self.model.invoke(_prompt(ask), self._config(ask), **self._cap(ask)))
        except Exception as error:  # noqa: BLE001 - a failing model must not stop an agent
            return answer_of_exception(error)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:  # noqa: ARG002 - a model's
        """Ask the model, in async code."""
        try:
            return _answer(
                await self.model.ainvoke(_prompt(ask), self._config(ask), **self._cap(ask))
            )
        except Exception as error:  # noqa: BLE001 - as above
            return answer_of_exception(error)

    def _config(self, ask: Ask) -> RunnableConfig:
        own = RunnableConfig(
            tags=["nostream"], metadata={"lc_source": SOURCE}, run_name=f"refold {ask.purpose}"
        )
        return merge_configs(self.config, own)

    def _cap(self, ask: Ask) -> dict[str, Any]:
        return {self.cap: ask.max_tokens} if self.cap else {}


def _prompt(ask: Ask) -> list[BaseMessage]:
    kinds: dict[str, type[BaseMessage]] = {"user": HumanMessage, "assistant": AIMessage}
    head: list[BaseMessage] = [SystemMessage(content=ask.system)] if ask.system else []
    return [*head, *(kinds[role](content=text) for role, text in alternating_turns(ask))]


def _answer(message: AIMessage) -> Answer:
    metadata = message.response_metadata
    word = (
        metadata.get("finish_reason")
        or metadata.get("stop_reason")
        or metadata.get("done_reason")
        or "stop"
    )
    finish = "tool" if message.tool_calls else read_finish(str(word))
    name = metadata.get("model_name") or metadata.get("model") or ""
    texts = (slot.part.text for slot in slots_of(message, 0) if isinstance(slot.part, Text))
    words = strip_reasoning("".join(texts)).strip()
    return Answer(words, finish, model=str(name), usage=usage_of(message))


def usage_of(message: AIMessage) -> Usage | None:
    """Return what a call used, as its answer says; None if it does not."""
    used = message.usage_metadata
    if not used:
        return None
    details = used.get("input_token_details") or {}
    cached, written = details.get("cache_read") or 0, details.get("cache_creation") or 0
    return Usage(used["input_tokens"], used["output_tokens"], cached, written)


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
