"""Arguments and answers of the page's operations."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from refold.edits import LossKind, Outcome
from refold.gateway.api.api_types import (
    NOT_BLANK,
    PART,
    Answer,
    CallNumber,
    Count,
    EditId,
    FileFacts,
    Limit,
    ListRow,
    Name,
    NextOffset,
    OfSession,
    SessionEdit,
    SessionId,
    TextOffset,
    Tokens,
    about,
)
from refold.stores.store import Grade
from refold.text.json_values import JsonObject

# --- one session ------------------------------------------------------------------------------

Place = Annotated[int, about("A message's number, from 0.", ge=0, le=2**31)]


class SessionArguments(OfSession):
    """A session, or one of its calls."""

    call: CallNumber | UnsetType = UNSET


class MessagesArguments(OfSession):
    """A session, and a range of its messages."""

    start: Place = 0
    count: Limit = 100


class TextArguments(OfSession):
    """A message, and which part of it."""

    message: Place
    offset: TextOffset = 0
    line: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        about("Line to begin with instead of `offset`, from 1."),
    ] = UNSET
    limit: Annotated[
        int, about("Maximum characters; cut at the end of a line if possible.", ge=1, le=1_000_000)
    ] = PART


class SearchArguments(OfSession):
    """A session, and the words to find."""

    query: Annotated[str, about("Words to find.", max_length=500, pattern=NOT_BLANK)]


class Levels(Answer):
    """Tokens at which compaction is due and that it comes down to, if the model's window is
    known."""

    window: Count | None
    compact: Annotated[Count | None, about("Tokens from which a compaction is due.")]
    target: Annotated[Count | None, about("Target of a compaction, in tokens.")]


class Prices(Answer):
    """US dollars per million tokens."""

    input: float
    output: float
    read: float
    write: float
    lifetime: Annotated[float, about("Lifetime of the cache in seconds.")]


class ViewEdit(Answer, kw_only=True):
    """A visible edit."""

    id: EditId
    by: str
    start: Count
    stop: Count
    tokens_before: Tokens
    tokens_after: Tokens
    grade: Grade
    text: Annotated[str, about("The beginning of its text.")]
    length: Annotated[Count, about("Characters of the whole text.")]
    when: Annotated[float | None, about("Seconds since 1970; null for local edits.")]
    actor: str
    cost: float
    model: Annotated[str, about("Model that wrote it; empty if none.")]
    run: Annotated[str, about("Id of the compaction, equal for all its edits.")]


class LogRow(Answer):
    """An edit that was made or reverted."""

    when: float
    action: str
    edit: EditId
    by: str
    before: Annotated[Count, about("Tokens before; for the first edit, before the compaction.")]
    after: Count
    actor: str
    run: str
    reason: str


class Pin(Answer):
    """A pinned message or pinned words."""

    id: EditId
    message: Annotated[
        Count | None, about("Its number now; null if the client has dropped or changed it.")
    ]
    words: Annotated[str, about("Empty if the whole message is pinned or no text may be read.")]
    is_whole: bool


class Share(Answer):
    """Tokens of one tool or speaker."""

    name: str
    original: Count
    sent: Count


class SessionAnswer(Answer, kw_only=True):
    """One session, without its texts."""

    now: float
    row: ListRow
    api: str
    original: Annotated[Count | None, about("Tokens of the latest request; null after a week.")]
    sent: Annotated[Count | None, about("Tokens with the edits that show now.")]
    fixed: Annotated[Count, about("Tokens of system prompt and tools, as estimated.")]
    levels: Levels
    prices: Prices | None
    summary_model: Annotated[str, about("Model that writes summaries; empty: rules do.")]
    summary_prices: Prices | None
    takes_summary_model: Annotated[bool, about("Whether `preview` takes another model.")]
    calls: Annotated[
        list[tuple[float, int, int, int, int, int, int, float, float]],
        about(
            "For each call: time, expected tokens unedited and sent, edits that showed, "
            "reported tokens sent, read from the cache, read from it without edits, dollars "
            "paid, dollars without edits."
        ),
    ]
    edits: list[ViewEdit]
    pins: list[Pin]
    log: list[LogRow]
    kept_until: Annotated[
        float | None, about("Time of the transcript's deletion; null if it is not kept.")
    ]
    in_shadow: Annotated[bool, about("Whether requests are sent unedited, whatever is done here.")]
    file: Annotated[FileFacts | None, about("Null for a session of the gateway.")] = None
    sizes: Annotated[list[int], about("Tokens of each message that is kept.")]
    speakers: Annotated[str, about("Speaker of each: `y`ou, `a`ssistant, `r`esult, or `o`thers.")]
    shares: list[Share]


class Brief(Answer, kw_only=True):
    """A message in a list."""

    number: int
    speaker: str
    tools: Annotated[list[str], about("Tools whose results are in it.")]
    lines: list[str]
    line_count: Annotated[int, about("Number of all its lines.")]
    digest: Annotated[int, about("Checksum of its text, by which a rewritten one is noticed.")]
    calls: Annotated[list[tuple[str, str]], about("Tool, and a short form of its arguments.")]
    kinds: list[str]
    tokens: int


class MessagesAnswer(Answer):
    """Messages of a session."""

    messages: list[Brief]


class TextAnswer(Answer):
    """A part of a message."""

    text: str
    offset: Count
    line: Annotated[int, about("Number of the part's first line, from 1.")]
    lines: Annotated[int, about("Lines of the whole text.")]
    total: Annotated[int, about("Characters of the whole text.")]
    next: NextOffset


class Find(Answer):
    """A match in a session."""

    message: int
    line: int
    text: str
    edit: Annotated[str, about("The edit that hides it; empty if it is sent.")]
    exact: Annotated[bool, about("Whether the words occur exactly as given.")]


class SearchAnswer(Answer):
    """Matches, exact ones first."""

    hits: list[Find]
    has_more: bool


# --- what a compaction would do, and did ---------------------------------------------------------


class PreviewAttempt(Answer):
    """How the run of one strategy ended."""

    by: str
    outcome: Outcome
    reason: str
    tokens_before: Tokens
    tokens_after: Tokens
    edits: Count
    calls: Count
    cost: float
    model: str


class Losses(Answer):
    """Names of one kind that would be lost."""

    count: Count
    names: list[str]


class LossesByKind(Answer):
    """What a compaction would lose. Names are given if `request` was sent along or the transcript
    is recorded."""

    constraints: Losses
    requests: Losses
    open_work: Losses
    facts: Losses
    paths: Losses
    identifiers: Losses


class LostLine(Answer):
    """Text that would be lost, and where it is now."""

    kind: LossKind
    text: str
    message: Annotated[Count | None, about("Null if it is only in an earlier summary.")]
    line: Annotated[int, about("Line in the message where it begins, from 1.")]


class Effect(Answer):
    """Effect of a compaction on the provider's cache, while it is alive, and on the price."""

    in_cache: Annotated[Tokens, about("Tokens that stay in the cache.")]
    written: Annotated[Tokens, about("Tokens after the first change, written to the cache again.")]
    once: Annotated[float | None, about("US dollars for these writes and for summaries.")]
    per_call: Annotated[float | None, about("US dollars saved by each further call.")]
    pays_after: Annotated[float | None, about("Calls after which it pays for itself; null: never.")]


class PreviewAnswer(Answer):
    """What a compaction would do."""

    preview: Annotated[Name | None, about("For `accept`; null if there is nothing to accept.")]
    session: SessionId
    tokens_before: Tokens
    tokens_after: Tokens
    saved_tokens: Annotated[int, about("Tokens saved in each further request.")]
    calls: Annotated[Count, about("Model calls made for the preview.")]
    cost: Annotated[float, about("Cost of these calls in US dollars.")]
    edits: list[SessionEdit]
    summaries: Annotated[dict[str, str], about("Texts for `amend`, by edit.")]
    attempts: list[PreviewAttempt]
    losses: LossesByKind
    lost: Annotated[
        list[LostLine],
        about("Lost lines by message; empty if the text may not be read."),
    ]
    effect: Effect
    request: Annotated[
        JsonObject | None,
        about("The request as it would be sent, if it was sent along; else null."),
    ]
