"""The arguments of the operations as types, and reading them out of a query or a body."""

import json
import re
import typing
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar
from urllib.parse import parse_qsl

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert

from refold.gateway.api.context import PART, Problem

A = TypeVar("A", bound="Arguments")
MOST_EDITS = 100_000
"""Edits that are named at once: a long session has one for each result that was cleared."""


class Arguments(Struct, forbid_unknown_fields=True):
    """The arguments of an operation: the query of a GET, the body of a POST."""

    any_of: ClassVar[tuple[str, ...]] = ()
    """Fields of which at least one must be there."""

    def __post_init__(self) -> None:
        if self.any_of and all(getattr(self, name) is UNSET for name in self.any_of):
            raise ValueError(f"{' or '.join(self.any_of)} is missing")


def about(description: str, **limits: Any) -> Meta:
    """Return what the document says about a field besides its type."""
    return Meta(description=description, **limits)


Count = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
SessionId = Annotated[Name, about("A session's id, as `sessions` lists it.")]
EditId = Annotated[str, Meta(pattern="^[0-9a-f]{4,16}$")]
PreviewName = Annotated[Name, about("A preview's name, as `preview` gave it.")]
ModelName = Annotated[str, about("The model, if `request` does not name it.", max_length=200)]
Target = Annotated[
    int, about("Tokens to come down to; else as the gateway would, and by 5 % at least.", ge=0)
]
Offset = Annotated[int, Meta(ge=0, le=1_000_000)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
TextOffset = Annotated[int, about("Characters before the part.", ge=0, le=2**40)]
NextOffset = Annotated[Count | None, about("The `offset` of what follows; null at the end.")]
CallNumber = Annotated[int, about("As it was sent in this call, from 1 on.", ge=1, le=2**31)]
ClientHeaders = Annotated[
    dict[str, Annotated[str, Meta(max_length=8_192)]] | UnsetType,
    about("The client's headers with its key: they tell the conversation. They are not kept."),
]
ApiName = Annotated[
    Literal["anthropic", "openai_chat", "openai_responses", "gemini"] | UnsetType,
    about("The format of `request`, if its shape should not decide."),
]
Actor = Annotated[str, about("Who wants it; `history` shows it.", min_length=1, max_length=100)]

# --- the soft/hard preset ---------------------------------------------------------------------

Messages = Annotated[list[dict[str, Any]], about("Messages of Chat Completions.")]


class ConfigOverrides(Struct, forbid_unknown_fields=True):
    """Settings in place of the preset's own: any field of its `CompactionConfig`."""

    soft_threshold_tokens: Count | UnsetType = UNSET
    hard_threshold_tokens: Count | UnsetType = UNSET
    reserve_tokens: Count | UnsetType = UNSET
    memory_flush_enabled: bool | UnsetType = UNSET
    keep_recent_messages: Count | UnsetType = UNSET
    summary_max_tokens: Count | UnsetType = UNSET
    use_llm: bool | UnsetType = UNSET
    llm_fallback_to_rules: bool | UnsetType = UNSET


class EstimateTokensArguments(Arguments):
    """A text."""

    text: str


class EstimateMessagesTokensArguments(Arguments):
    """Messages."""

    messages: Messages


class CheckThresholdArguments(EstimateMessagesTokensArguments):
    """Messages, and the thresholds that they are compared with."""

    config: ConfigOverrides | None = None


class CompactArguments(CheckThresholdArguments):
    """Messages to compact, and whose they are, as Python or JavaScript spells it."""

    any_of = ("agent_id", "agentId")
    agent_id: str | UnsetType = UNSET
    agentId: str | UnsetType = UNSET  # noqa: N815 - JavaScript's spelling
    conversation_id: str | UnsetType | None = UNSET
    conversationId: str | UnsetType | None = UNSET  # noqa: N815 - JavaScript's spelling


# --- conversations ----------------------------------------------------------------------------


class RequestArguments(Arguments, kw_only=True):
    """What a request body does not say of itself."""

    headers: ClientHeaders = UNSET
    api: ApiName = UNSET
    model: ModelName | UnsetType = UNSET


class ConversationArguments(RequestArguments, kw_only=True):
    """Which conversation is meant, and its history."""

    any_of = ("session", "request")
    session: SessionId | UnsetType = UNSET
    request: Annotated[
        dict[str, Any] | UnsetType,
        about("A whole request body of any of the four APIs, as a client would send it."),
    ] = UNSET


class SessionsArguments(Arguments):
    """Which sessions."""

    limit: Limit = 100
    offset: Offset = 0
    scope: Annotated[
        Literal["all", "remembered"],
        about("All that are booked or remembered, or only those whose latest request is known."),
    ] = "all"


class HistoryArguments(Arguments):
    """A session, and which of its attempts, counted from the latest."""

    session: SessionId
    limit: Limit = 100
    offset: Offset = 0


class EditTextArguments(Arguments):
    """An edit, and which part of its words."""

    session: SessionId
    edit: EditId
    preview: PreviewName | UnsetType = UNSET
    call: CallNumber | UnsetType = UNSET
    of: Literal["text", "hidden"] = "text"
    offset: TextOffset = 0
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = PART


class PreviewArguments(ConversationArguments, kw_only=True):
    """A conversation, and how small it should become."""

    to: Target | UnsetType = UNSET
    start: Annotated[Offset | UnsetType, about("Only messages from this number on.")] = UNSET
    stop: Annotated[Offset | UnsetType, about("Only messages before this number.")] = UNSET
    strategies: Annotated[
        list[Literal["thinking", "results", "summary"]] | UnsetType,
        about("What may be done: clear thinking, clear calls and their results, summarise."),
    ] = UNSET
    summary: Annotated[
        Literal["default", "rules"],
        about("Who writes it: the gateway's model if it has one, or rules."),
    ] = "default"
    summary_model: Annotated[
        str,
        about("Another model of the server that the gateway asks for summaries.", max_length=200),
    ] = ""
    instructions: Annotated[str, about("Added to the summary's prompt.", max_length=2_000)] = ""
    actor: Actor = "api"


class PartsArguments(Arguments, kw_only=True):
    """A preview, and which parts of it with which words."""

    preview: PreviewName
    amend: Annotated[
        dict[str, Annotated[str, Meta(max_length=200_000)]] | UnsetType,
        about("Other texts for summaries, by edit."),
    ] = UNSET
    edits: Annotated[
        Annotated[list[EditId], Meta(max_length=MOST_EDITS)] | UnsetType,
        about("Only these of its edits; else all."),
    ] = UNSET


class PreviewPartsArguments(PartsArguments, kw_only=True):
    """A preview of a session, and which parts of it with which words."""

    session: SessionId


class AcceptArguments(PartsArguments, kw_only=True):
    """A preview, and what to change in it."""

    actor: Actor = "api"


class RevertArguments(ConversationArguments, kw_only=True):
    """A conversation, and which of its edits to take back."""

    edits: Annotated[list[EditId], Meta(min_length=1, max_length=MOST_EDITS)]
    since: Annotated[bool, about("Also all that were made after the first of these.")] = False
    actor: Actor = "api"


class RestoreArguments(Arguments):
    """A session, and the hidden message that should be sent again."""

    session: SessionId
    message: Offset
    actor: Actor = "api"


class RecallArguments(ConversationArguments, kw_only=True):
    """A conversation, and what to search for in what its edits hide."""

    query: Annotated[str, Meta(min_length=1, max_length=2_000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


# --- out of a request -------------------------------------------------------------------------


def read_query(query: bytes, type: type[A]) -> A:
    """Return the arguments of a GET. Raises `Problem` 400."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50
        )
    except ValueError as error:
        raise _bad_request("the query cannot be read") from error
    if len({name for name, _ in pairs}) < len(pairs):
        raise _bad_request("a parameter is given twice")
    return check(dict(pairs), type, strict=False)


def read_arguments(body: bytes, type: type[A]) -> A:
    """Return the arguments of a POST. Raises `Problem` 400."""
    try:
        # Not msgspec's own parser: transcripts hold lone surrogates, which it refuses.
        arguments = json.loads(body, parse_constant=_refuse_constant)
    except ValueError as error:
        raise _bad_request("the body is not JSON") from error
    except RecursionError as error:
        raise _bad_request("the body is too deep") from error
    return check(arguments, type)


def check(arguments: Any, type: type[A], *, strict: bool = True) -> A:
    """Return *arguments* as *type*; with *strict* off numbers may be spelt as text. Raises
    `Problem` 400."""
    try:
        return convert(_with_whole_numbers(arguments), type, strict=strict)
    except ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        if "unknown field" in message and not place:
            message += f"; there are {', '.join(type.__struct_encode_fields__)}"
        if message.startswith("Invalid enum"):
            choices = _list_choices(typing.get_type_hints(type).get(re.split(r"\W", place)[0]))
            message += f"; there are {', '.join(filter(None, choices))}"
        message = f"{place.removesuffix('`')}: {message}" if place else message
        raise _bad_request(message) from error
    except UnicodeEncodeError as error:  # msgspec looks into a text where another type belongs
        raise _bad_request("half a surrogate pair where no text belongs") from error
    except RecursionError as error:
        raise _bad_request("the body is too deep") from error


def _list_choices(hint: Any) -> list[str]:
    """Return the words that a field of this type may be."""
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    return [choice for part in typing.get_args(hint) for choice in _list_choices(part)]


def _with_whole_numbers(arguments: Any) -> Any:
    """Return *arguments* with 7.0 as 7, which to JSON Schema is the same. No argument is a
    fraction."""
    if not isinstance(arguments, dict):
        return arguments
    whole = {
        name: int(value)
        for name, value in arguments.items()
        if isinstance(value, float) and value.is_integer()
    }
    config = {"config": _with_whole_numbers(arguments["config"])} if "config" in arguments else {}
    return arguments | whole | config


def _bad_request(message: str) -> Problem:
    return Problem(400, "bad_request", message[:500])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
