"""A codec for LangChain's messages, and its chat models as answerers of an `Ask`.

The module is a codec (`refold.codecs.codec`): `Compactor(..., format=refold.adapters.langchain)`
takes and returns lists of `BaseMessage`. Messages that no edit touches are the same objects, with
their ids, `additional_kwargs` and `response_metadata`. Needs the extra `langchain`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

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
    without_keys,
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
"""Name of this format."""
FIELD = "messages"
"""Field of a request body with the conversation."""
SOURCE = "summarization"
"""Value of `additional_kwargs["lc_source"]` in a summary, as LangChain's middleware sets it."""


def rules(body: Body) -> Rules:
    """Return the rules for all providers behind LangChain: a result follows its call (OA-1).

    Messages do not name their provider. So signed thinking may be bound (AN-7) or required (AN-6),
    unless *body* names a Claude model.
    """
    is_claude = "claude" in str(body.get("model", "")).lower()
    return Rules(RULES, thinking=anthropic.rules(body).thinking if is_claude else "unsure")


fits = fits_types(BaseMessage)
system = no_system


def is_system(item: Wire) -> bool:
    """Return whether *item* is a system message, in any form that LangChain accepts."""
    try:
        return role_of(as_message(item)) == "system"
    except FormatError:
        return False


def tools(body: Body) -> list[Any]:
    """Return the tools of a body (`{"messages": ..., "tools": ...}`) in OpenAI's format."""
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
"""Types of content blocks that repeat an entry of `tool_calls`."""
_CALL_FIELDS = ("tool_calls", "invalid_tool_calls")
_OWN_FIELDS = frozenset({"reasoning_content", "function_call"})
"""Provider-specific keys of `additional_kwargs`. They are kept unchanged or removed."""
_KINDS: Mapping[str, type[BaseMessage]] = {
    "user": HumanMessage,
    "assistant": AIMessage,
    "system": SystemMessage,
}


class Slot(NamedTuple):
    """A part and its place in the message."""

    field: str
    """Field of the message, or key of its `additional_kwargs`."""
    block: Any
    """The value of the field, or its block, that holds the part."""
    part: Part


def decode(item: Wire, prior: Sequence[Message]) -> Message:
    """Decode a message, or a string, pair or dict that LangChain accepts as one.

    Raises `FormatError` for anything else, and for a `RemoveMessage`, which is an instruction
    (`refold.adapters.langgraph.apply_removals`).
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
    """Return the role of *message* in Refold."""
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
    """Yield every part with its place, in order. Legacy calls get an id from the position *at*."""
    reasoning = message.additional_kwargs.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        yield Slot("reasoning_content", reasoning, Thinking(reasoning))
    calls = call_ids(message)
    for block in message.content if isinstance(message.content, list) else [message.content]:
        if block and not echoes(block, calls):
            yield Slot("content", block, read_block(block))
    if not isinstance(message, AIMessage):
        return
    for call in message.tool_calls:
        read = ToolCall(call.get("id") or "", call["name"], canonicalize(call["args"]))
        yield Slot("tool_calls", call, read)
    for bad in message.invalid_tool_calls:  # not JSON objects, but they need results too
        arguments = canonicalize_text(bad.get("args") or "")
        read = ToolCall(bad.get("id") or "", bad.get("name") or "", arguments)
        yield Slot("invalid_tool_calls", bad, read)
    legacy = message.additional_kwargs.get("function_call")
    if isinstance(legacy, Mapping) and not calls:
        arguments = canonicalize_text(str(legacy.get("arguments") or ""))
        yield Slot("function_call", legacy, ToolCall(f"{at}.0", str(legacy.get("name")), arguments))


def call_ids(message: BaseMessage) -> set[str]:
    """Return the ids of the calls in `tool_calls` and `invalid_tool_calls`."""
    if not isinstance(message, AIMessage):
        return set()
    return {
        id for call in (*message.tool_calls, *message.invalid_tool_calls) if (id := call.get("id"))
    }


def echoes(block: Any, calls: Collection[str]) -> bool:
    """Return whether a content block repeats one of *calls*, as Anthropic's and OpenAI's do."""
    return isinstance(block, dict) and block.get("type") in _CALLS and call_id(block) in calls


def call_id(block: Record) -> str:
    """Return the id of the call in a block; empty if it has none."""
    return text_at(block, "call_id") or text_at(block, "id")


def read_block(block: Any) -> Any:
    """Read a content block of LangChain or of a provider."""
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
    """Read an image, audio, video or document in a known format; None for anything else."""
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

    def find(*keys: str) -> Any:
        return next(filter(None, map(place.get, keys)), None)

    mime, data = find("mime_type", "media_type"), find("base64", "data", "file_data")
    ref = find("url", "file_id", "id", "file_uri") if data is None else None
    return read_media(_MEDIA[kind], str(mime or ""), data, ref)


# --- writing --------------------------------------------------------------------------------------


def encode(message: Message) -> Wire:
    """Encode a new message. Raises `FormatError` for parts that the format does not support."""
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
    if message.role not in _KINDS:
        raise FormatError(f"LangChain has no message of the role {message.role!r}")
    kwargs = {"lc_source": SOURCE} if summary_in(message) is not None else {}
    return patch(_KINDS[message.role](content="", additional_kwargs=kwargs), message)


def patch(item: Wire, message: Message) -> Wire:
    """Return a copy of *item* with the parts of *message*. Id and metadata do not change."""
    whole = as_message(item)
    if isinstance(whole, ToolMessage | FunctionMessage):
        return _patch_result(whole, message)
    old = list(slots_of(whole, 0))
    pairs = pair_with_old(old, [slot.part for slot in old], message.parts)
    return whole.model_copy(update=_update(whole, old, [_write_slot(*pair) for pair in pairs]))


def _patch_result(item: ToolMessage | FunctionMessage, message: Message) -> BaseMessage:
    result = message.parts[0] if message.parts else ToolResult("")
    if not isinstance(result, ToolResult):
        raise FormatError("a tool message holds exactly one result")
    content = write_content(item.content, result.content, read_block, _write)
    named = {"tool_call_id": result.id} if isinstance(item, ToolMessage) and message.parts else {}
    return item.model_copy(update={"content": content, **named})


def _write_slot(slot: Slot | None, part: Part) -> Slot:
    """Return a slot for *part*, based on *slot* if given."""
    if slot is None:
        field = "tool_calls" if isinstance(part, ToolCall) else "content"
        return Slot(field, _write(None, part), part)
    if slot.part == part or slot.field in _OWN_FIELDS:
        return slot
    if slot.field == "invalid_tool_calls" and isinstance(part, ToolCall):
        return Slot(slot.field, {**slot.block, "id": part.id, "args": part.arguments}, part)
    return Slot(slot.field, _write(slot.block, part), part)


def _update(whole: BaseMessage, old: Sequence[Slot], new: Sequence[Slot]) -> dict[str, Any]:
    """Return the fields of a message with *new* slots instead of the *old* ones."""
    calls = {field: [slot.block for slot in new if slot.field == field] for field in _CALL_FIELDS}
    by_id = {call["id"]: call for blocks in calls.values() for call in blocks}
    out = {
        "content": _content(whole, old, new, by_id),
        "additional_kwargs": _kwargs(whole, new, by_id),
    }
    if isinstance(whole, AIMessage):
        out |= calls
        out |= {"tool_call_chunks": []} if "tool_call_chunks" in type(whole).model_fields else {}
    return out


def _content(
    whole: BaseMessage, old: Sequence[Slot], new: Sequence[Slot], calls: Mapping[str, Any]
) -> Any:
    """Return the content with *new* slots, and with the blocks that repeat *calls*."""
    contents = [slot for slot in new if slot.field == "content"]
    parts, blocks = [slot.part for slot in contents], [slot.block for slot in contents]
    if not isinstance(whole.content, list):
        is_text = len(parts) < 2 and all(isinstance(part, Text) for part in parts)
        return "".join(cast("Text", part).text for part in parts) if is_text else blocks
    ids = call_ids(whole)
    if parts == [slot.part for slot in old if slot.field == "content"]:
        blocks = whole.content
    else:
        blocks += [block for block in whole.content if echoes(block, ids)]
    removed = ids - calls.keys()
    return [_echo(block, calls) for block in blocks if not echoes(block, removed)]


def _echo(block: Any, calls: Mapping[str, Any]) -> Any:
    """Update a block that repeats a call. Return any other block unchanged."""
    if not echoes(block, calls):
        return block
    args = calls[call_id(block)]["args"] or {}
    text = args if isinstance(args, str) else canonicalize(args)  # a text if it is no JSON object
    for key in ("input", "args", "arguments"):
        if key in block and canonicalize(
            parse_or_text(block[key]) if isinstance(block[key], str) else block[key]
        ) != canonicalize(args):
            return {**block, key: text if isinstance(block[key], str) else args}
    return block


def _kwargs(whole: BaseMessage, new: Sequence[Slot], calls: Collection[Any]) -> dict[str, Any]:
    """Return `additional_kwargs` without entries that are outdated."""
    gone = _OWN_FIELDS - {slot.field for slot in new}
    out = without_keys(whole.additional_kwargs, *gone)
    if isinstance(out.get("tool_calls"), list):
        out["tool_calls"] = [call for call in out["tool_calls"] if call.get("id") in calls]
        if not out["tool_calls"]:
            del out["tool_calls"]
    return whole.additional_kwargs if out == whole.additional_kwargs else out


def _write(block: Any, part: Part) -> Any:
    """Return a block with *part*, based on *block* if given."""
    match part:
        case Text(text):
            return {**(block if isinstance(block, dict) else {"type": "text"}), "text": text}
        case Thinking(text, signature) if signature:
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Thinking(text):
            return {"type": "reasoning", "reasoning": text}
        case ToolCall(id, name):
            call = {"name": name, "args": parse_arguments(part), "id": id, "type": "tool_call"}
            return {**(block or {}), **call}
        case ToolResult():
            raise FormatError("only a tool message holds a tool's result")
        case Media(kind, _, ref) if is_link(part):
            return {"type": kind, "url": ref}
        case Opaque():
            return parse_or_text(part.json)
    raise FormatError(f"a LangChain message cannot hold this {type(part).__name__} anew")


def merge(first: Wire, second: Wire) -> Wire:
    """Merge two messages of one role into a message like *first*.

    Raises `FormatError` for tool results, which stay separate.
    """
    first_message, second_message = as_message(first), as_message(second)
    if isinstance(first_message, ToolMessage | FunctionMessage):
        raise FormatError("two results of tools cannot share one message")
    both = [*_blocks(first_message), *_blocks(second_message)]
    is_text = all(isinstance(block, str) for block in both)
    update: dict[str, Any] = {"content": "\n\n".join(both) if is_text else both}
    if isinstance(first_message, AIMessage) and isinstance(second_message, AIMessage):
        for field in _CALL_FIELDS:
            update[field] = [*getattr(first_message, field), *getattr(second_message, field)]
    return first_message.model_copy(update=update)


def _blocks(message: BaseMessage) -> list[Any]:
    content = message.content
    return list(content) if isinstance(content, list) else [content] if content else []


# --- chat models ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A LangChain chat model that answers an `Ask`, in sync and async code.

    Calls carry the tag `nostream`, so that LangGraph does not stream them as the agent's output.
    """

    model: BaseChatModel
    config: RunnableConfig | None = field(default=None, repr=False)
    """Callbacks, tags and metadata of the run that the calls belong to."""
    cap: str = "max_tokens"
    """Name of the argument that limits the answer's tokens; empty if the model has none."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:  # noqa: ARG002 - a model's
        """Ask the model. If it fails, the answer says so. *within* is ignored."""
        try:
            return _answer(self.model.invoke(**self._arguments(ask)))
        except Exception as error:  # noqa: BLE001 - a failing model must not stop an agent
            return answer_of_exception(error)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:  # noqa: ARG002 - a model's
        """Do the same as a call, in async code."""
        try:
            return _answer(await self.model.ainvoke(**self._arguments(ask)))
        except Exception as error:  # noqa: BLE001 - as above
            return answer_of_exception(error)

    def _arguments(self, ask: Ask) -> dict[str, Any]:
        own = RunnableConfig(
            tags=["nostream"], metadata={"lc_source": SOURCE}, run_name=f"refold {ask.purpose}"
        )
        cap = {self.cap: ask.max_tokens} if self.cap else {}
        return {"input": _prompt(ask), "config": merge_configs(self.config, own), **cap}


def _prompt(ask: Ask) -> list[BaseMessage]:
    head: list[BaseMessage] = [SystemMessage(content=ask.system)] if ask.system else []
    return [*head, *(_KINDS[role](content=text) for role, text in alternating_turns(ask))]


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
    """Return the usage in a model's answer; None without one."""
    used = message.usage_metadata
    if not used:
        return None
    details: Mapping[str, Any] = used.get("input_token_details") or {}
    # If langchain-anthropic has the tokens by duration, its `cache_creation` is zero.
    minutes, hour = (details.get(f"ephemeral_{term}_input_tokens") or 0 for term in ("5m", "1h"))
    cached, written = details.get("cache_read") or 0, details.get("cache_creation") or 0
    is_split = bool(minutes or hour)
    return Usage(
        used["input_tokens"],
        used["output_tokens"],
        cached,
        minutes + hour if is_split else written,
        hour=hour if is_split else None,
    )


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
