"""Argument and answer types of the operations, for checks and for the OpenAPI document."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from refold.presets.soft_hard import CompactionCheck, CompactionResult
from refold.stores.store import Grade, LedgerRow
from refold.text.json_values import JsonObject

PART = 20_000
"""Default number of characters in an answer's text."""
MOST_EDITS = 100_000
"""Maximum number of edits in one request: a long session has one for each cleared result."""


class Arguments(Struct, forbid_unknown_fields=True):
    """The arguments of an operation: the query of a GET, the body of a POST."""

    any_of: ClassVar[tuple[str, ...]] = ()
    """Fields of which at least one is required."""

    def __post_init__(self) -> None:
        if self.any_of and all(getattr(self, name) is UNSET for name in self.any_of):
            raise ValueError(f"{' or '.join(self.any_of)} is missing")


def about(description: str, **limits: Any) -> Meta:
    """Return a field's description in the OpenAPI document, and its limits."""
    return Meta(description=description, **limits)


Count = Annotated[int, Meta(ge=0)]
Tokens = Annotated[Count, about("Tokens, as the provider is expected to count them.")]
NOT_BLANK, EMPTY_OR_NOT_BLANK = r"\S", r"^(?![\s\S])|\S"
"""Patterns of texts that do not consist of white space, for Python and JSON Schema."""
Name = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
SessionId = Annotated[Name, about("A session's id, as `sessions` lists it.")]
EditId = Annotated[str, Meta(pattern="^[0-9a-f]{4,16}$")]
PreviewName = Annotated[Name, about("A preview's name, as `preview` gave it.")]
ModelName = Annotated[str, about("The model, if `request` does not name it.", max_length=200)]
Target = Annotated[
    Count, about("Target in tokens; default: the gateway's own, and at least 5 % less than now.")
]
Offset = Annotated[int, Meta(ge=0, le=1_000_000)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
TextOffset = Annotated[int, about("Offset of the part, in characters.", ge=0, le=2**40)]
NextOffset = Annotated[Count | None, about("The `offset` of the next part; null at the end.")]
CallNumber = Annotated[int, about("As sent in the call with this number, from 1.", ge=1, le=2**31)]
ClientHeaders = Annotated[
    dict[str, Annotated[str, Meta(max_length=8_192)]] | UnsetType,
    about("The client's headers with its key. They identify the caller and are not kept."),
]
ApiName = Annotated[
    Literal["anthropic", "openai_chat", "openai_responses", "gemini"] | UnsetType,
    about("The API of `request`; default: recognised by its shape."),
]
Actor = Annotated[str, about("Who does it; shown in `history`.", min_length=1, max_length=100)]

# --- the soft/hard preset ---------------------------------------------------------------------

Messages = Annotated[list[JsonObject], about("Messages of Chat Completions.")]


class ConfigOverrides(Struct, forbid_unknown_fields=True):
    """Settings that replace the preset's own: any field of its `CompactionConfig`."""

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
    """Messages, and the thresholds to compare them with."""

    config: ConfigOverrides | None = None


class CompactArguments(CheckThresholdArguments):
    """Messages to compact and their owner, with names as in Python or JavaScript."""

    any_of = ("agent_id", "agentId")
    agent_id: str | UnsetType = UNSET
    agentId: str | UnsetType = UNSET  # noqa: N815 - JavaScript's spelling
    conversation_id: str | UnsetType | None = UNSET
    conversationId: str | UnsetType | None = UNSET  # noqa: N815 - JavaScript's spelling


# --- conversations ----------------------------------------------------------------------------


class RequestArguments(Arguments, kw_only=True):
    """What a request body does not contain."""

    headers: ClientHeaders = UNSET
    api: ApiName = UNSET
    model: ModelName | UnsetType = UNSET


class ConversationArguments(RequestArguments, kw_only=True):
    """A conversation and its history."""

    any_of = ("session", "request")
    session: SessionId | UnsetType = UNSET
    request: Annotated[
        JsonObject | UnsetType,
        about("A whole request body of any of the four APIs, as a client sends it."),
    ] = UNSET


class OfSession(Arguments):
    """The arguments of an operation on one session."""

    session: SessionId


class SessionsArguments(Arguments):
    """A page of sessions."""

    limit: Limit = 100
    offset: Offset = 0
    scope: Annotated[
        Literal["all", "remembered"],
        about("All sessions, or only those whose latest request is known."),
    ] = "all"


class HistoryArguments(OfSession):
    """A session, and a page of its attempts, counted from the latest."""

    limit: Limit = 100
    offset: Offset = 0


class EditTextArguments(OfSession):
    """An edit, and a part of its text."""

    edit: EditId
    preview: PreviewName | UnsetType = UNSET
    call: CallNumber | UnsetType = UNSET
    of: Literal["text", "hidden"] = "text"
    offset: TextOffset = 0
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = PART


class PreviewArguments(ConversationArguments, kw_only=True):
    """A conversation, and how to compact it."""

    to: Target | UnsetType = UNSET
    start: Annotated[Offset | UnsetType, about("Only messages from this number on.")] = UNSET
    stop: Annotated[Offset | UnsetType, about("Only messages before this number.")] = UNSET
    strategies: Annotated[
        list[Literal["thinking", "results", "summary"]] | UnsetType,
        about("Allowed strategies: clear thinking, clear calls and their results, summarise."),
    ] = UNSET
    summary: Annotated[
        Literal["default", "rules"],
        about("Who writes summaries: the gateway's model if it has one, or rules."),
    ] = "default"
    summary_model: Annotated[
        str,
        about("Another model of the gateway's server for summaries.", max_length=200),
    ] = ""
    instructions: Annotated[str, about("Added to the summary's prompt.", max_length=2_000)] = ""
    actor: Actor = "api"


class PartsArguments(Arguments, kw_only=True):
    """A preview, which of its edits to use, and new texts of its summaries."""

    preview: PreviewName
    amend: Annotated[
        dict[str, Annotated[str, Meta(max_length=200_000)]] | UnsetType,
        about("New texts of summaries, by edit."),
    ] = UNSET
    edits: Annotated[
        Annotated[list[EditId], Meta(max_length=MOST_EDITS)] | UnsetType,
        about("Ids of the edits to use; default: all."),
    ] = UNSET


class PreviewPartsArguments(PartsArguments, kw_only=True):
    """A session's preview, which of its edits to use, and new texts of its summaries."""

    session: SessionId


class AcceptArguments(PartsArguments, kw_only=True):
    """A preview, and what to change in it."""

    actor: Actor = "api"


class RevertArguments(ConversationArguments, kw_only=True):
    """A conversation, and which of its edits to revert."""

    edits: Annotated[list[EditId], Meta(min_length=1, max_length=MOST_EDITS)]
    since: Annotated[bool, about("Also undo all edits made after the first of these.")] = False
    actor: Actor = "api"


class RestoreArguments(OfSession):
    """A session, and the hidden message to send again."""

    message: Offset
    actor: Actor = "api"


class RecallArguments(ConversationArguments, kw_only=True):
    """A conversation, and what to search for in its hidden text."""

    query: Annotated[str, Meta(max_length=2_000, pattern=NOT_BLANK)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


# --- rows of lists -----------------------------------------------------------------------------


class Answer(Struct, forbid_unknown_fields=True):
    """The body of a 200, or a part of it."""


class AboutSession(Answer):
    """An answer about one session, or a part of it."""

    session: SessionId


class ListRow(Answer, kw_only=True):
    """One session in a list."""

    id: SessionId
    file: Annotated[
        str,
        about(
            "Name of a session in a client's file for the command line: `refold stats NAME`; "
            "such a session has no calls here. Empty for the gateway's."
        ),
    ] = ""
    title: Annotated[
        str,
        about("Words of the first request; empty unless they are in a transcript or a file."),
    ]
    client: str
    project: str
    model: str
    began: float
    latest: float
    calls: int
    failed: Annotated[int, about("Calls that the upstream answered with an error.")]
    original: Annotated[Tokens, about("Tokens of the latest call, unedited.")]
    sent: Annotated[Tokens, about("Tokens of the latest call, as sent.")]
    spent: Annotated[float | None, about("US dollars, with summaries; null if no price is known.")]
    saved: Annotated[float | None, about("US dollars saved, net.")]
    would_send: Annotated[
        Tokens | None, about("Tokens that the latest call would have had; null if not in shadow.")
    ] = None
    is_recorded: Annotated[bool, about("Whether its transcript is kept.")]
    is_shadow: Annotated[
        bool, about("Whether it was in shadow, so that `saved` is what would have been saved.")
    ]
    is_read: Annotated[
        bool,
        about("Whether a file was read since it changed; if not, `file_rows` reads it."),
    ] = True


class FileFacts(Answer):
    """Where the session in a client's file is, and other facts."""

    path: str
    edits: Annotated[str, about("The file with its edits.")]
    compactions: Annotated[Count, about("Number of compactions by the client itself.")]
    resumes: Annotated[bool, about("Whether `refold export` can write it with its edits.")]


# --- answers of the soft/hard preset ------------------------------------------------------------


class EstimateAnswer(Answer):
    """An estimate."""

    result: Tokens


class CheckThresholdAnswer(Answer):
    """What is due."""

    result: CompactionCheck


class CompactAnswer(Answer):
    """Compacted messages."""

    result: CompactionResult


# --- parts of answers -------------------------------------------------------------------------


class Session(Answer, kw_only=True):
    """One conversation in figures."""

    id: SessionId
    remembered: Annotated[
        bool,
        about(
            "Whether its latest request is known. After a week without a request only the "
            "net ledger's figures are."
        ),
    ]
    last_seen: Annotated[
        float, about("Seconds since 1970; only the hour if the session is no longer remembered.")
    ]
    model: Annotated[str, about("Model of the latest request; empty if unknown.")] = ""
    api: str | None = None
    upstream: str | None = None
    messages: Count | None = None
    tokens_before: Annotated[
        Count | None, about("Tokens of the latest unedited request, as its provider counts.")
    ] = None
    tokens_after: Annotated[
        Count | None,
        about("Tokens of the latest request with the edits that show now, as its provider counts."),
    ] = None
    edits: Annotated[Count | None, about("Number of edits that show.")] = None
    requests: Annotated[
        Count | None,
        about("Answered requests in the net ledger; null while that cannot be read."),
    ] = None
    saved_tokens: Annotated[
        int | None,
        about(
            "Tokens saved in these requests, as billed, by the net ledger; "
            "estimated if no usage was reported."
        ),
    ] = None
    saved_dollars: Annotated[
        float | None,
        about(
            "US dollars saved net, by the net ledger, after the costs of caching, summaries and "
            "refetches. Negative if it cost more, null if no price is known."
        ),
    ] = None


class SessionEdit(Answer):
    """One edit of a conversation."""

    id: EditId
    by: Annotated[str, about("The strategy that made it.")]
    start: Annotated[Count, about("Position of the first message that it replaces.")]
    stop: Annotated[Count, about("Position after the last message.")]
    tokens_before: Tokens
    tokens_after: Tokens
    grade: Grade
    text: Annotated[str, about("The beginning of the text that is sent instead.")]
    text_more: Annotated[Count, about("Characters that follow; `edit_text` has them.")]
    hidden: Annotated[
        str | None,
        about(
            "The beginning of what it hides, if `request` was sent along or the transcript "
            "is recorded; else null."
        ),
    ]
    hidden_more: Annotated[Count, about("Characters that follow; `edit_text` has them.")]
    when: Annotated[float | None, about("Seconds since 1970; null for local edits.")]
    actor: str
    cost: Annotated[float, about("Cost of making it, in US dollars.")]


class Hit(Answer):
    """A match in hidden text."""

    edit: EditId
    position: Count
    role: str
    snippet: str
    score: float


# --- answers about conversations ----------------------------------------------------------------------------------


class SessionsAnswer(Answer):
    """A page of sessions, the latest first."""

    sessions: list[Session]
    total: Count


class HistoryAnswer(Answer):
    """What was done to a session."""

    session: Session
    edits: list[SessionEdit]
    attempts: list[LedgerRow]
    attempts_total: Annotated[
        Count, about("Number of all attempts; page with `offset` and `limit`.")
    ]


class EditTextAnswer(AboutSession):
    """A part of an edit's text."""

    edit: EditId
    of: str
    text: str
    total: Annotated[Count, about("Characters of the whole text.")]
    next: NextOffset


class AcceptAnswer(AboutSession):
    """Edits that show from now on."""

    edits: list[EditId]
    tokens_after: Tokens


class RevertAnswer(AboutSession):
    """Edits that no longer show."""

    reverted: list[EditId]
    tokens_before: Tokens
    tokens_after: Annotated[Count, about("Tokens without the edits.")]
    fits: Annotated[
        bool,
        about("Whether that is below the hard level. If not, the next request is compacted again."),
    ]
    redo: Annotated[Name, about("A preview; `accept` it to apply these edits again.")]


class RestoreAnswer(AboutSession):
    """How a hidden message is sent again."""

    edit: Annotated[EditId | None, about("The edit that adds it; null if edits were undone.")]
    reverted: list[EditId]
    tokens_after: Tokens
    redo: Annotated[Name | None, about("A preview to `accept` to hide it again, if no `edit`.")]


class RecallAnswer(AboutSession):
    """Matches in hidden text."""

    hits: list[Hit]
    has_more: Annotated[bool, about("Whether there are more matches than `limit`.")]


class ErrorDetail(Struct):
    """A code for programs and a message for people."""

    code: str | None
    message: str


class Error(Struct, forbid_unknown_fields=True):
    """The body of every answer other than 200."""

    error: ErrorDetail
