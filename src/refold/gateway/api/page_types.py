"""Arguments and answers of the page's operations."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from refold.edits import LossKind, Outcome
from refold.gateway.api.api_types import (
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

Place = Annotated[int, about("A message's number, from 0 on.", ge=0, le=2**31)]


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
        Annotated[int, Meta(ge=1)] | UnsetType, about("Begin with this line instead, from 1 on.")
    ] = UNSET
    limit: Annotated[
        int, about("Characters, to the end of a line if one ends.", ge=1, le=1_000_000)
    ] = PART


class SearchArguments(OfSession):
    """A session, and the words to find."""

    query: Annotated[str, about("Words.", min_length=1, max_length=500)]


class Levels(Answer):
    """Tokens at which compaction is due and that it comes down to, if the model's window is
    known."""

    window: Count | None
    compact: Annotated[Count | None, about("From here on a compaction is due.")]
    target: Annotated[Count | None, about("What it comes down to.")]


class Prices(Answer):
    """US dollars per million tokens."""

    input: float
    output: float
    read: float
    write: float
    lifetime: Annotated[float, about("Seconds that the cache lives.")]


class ViewEdit(Answer, kw_only=True):
    """A visible edit."""

    id: EditId
    by: str
    start: Count
    stop: Count
    tokens_before: Tokens
    tokens_after: Tokens
    grade: Grade
    text: Annotated[str, about("The beginning of our words.")]
    length: Annotated[Count, about("Characters that these are.")]
    when: Annotated[float | None, about("Seconds since 1970; null for local edits.")]
    actor: str
    cost: float
    model: Annotated[str, about("That wrote it; empty if none did.")]
    run: Annotated[str, about("The same for all edits of one compaction.")]


class LogRow(Answer):
    """An edit that was made or reverted."""

    when: float
    action: str
    edit: EditId
    by: str
    before: Annotated[Count, about("Of a compaction's first edit, tokens before the compaction.")]
    after: Count
    actor: str
    run: str
    reason: str


class Pin(Answer):
    """A pinned message or pinned words."""

    id: EditId
    message: Annotated[
        Count | None, about("Where it is now; null if the client has dropped or changed it.")
    ]
    words: Annotated[str, about("Empty for the whole message, and where no text may be read.")]
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
    sent: Annotated[Count | None, about("With the edits that show now.")]
    fixed: Annotated[Count, about("Tokens of system prompt and tools, as estimated.")]
    levels: Levels
    prices: Prices | None
    summary_model: Annotated[str, about("Writes summaries; empty: rules do.")]
    summary_prices: Prices | None
    takes_summary_model: Annotated[bool, about("Does `preview` take another one's name?")]
    calls: Annotated[
        list[tuple[float, int, int, int, int, int, int, float, float]],
        about(
            "Of each call: time, tokens original and sent as expected, edits that showed, "
            "then as reported tokens sent, read from a cache, read from one without edits, dollars "
            "paid and without edits."
        ),
    ]
    edits: list[ViewEdit]
    pins: list[Pin]
    log: list[LogRow]
    kept_until: Annotated[float | None, about("When the text is deleted; null if none is kept.")]
    in_shadow: Annotated[bool, about("Are requests sent as they come, whatever is done here?")]
    file: Annotated[FileFacts | None, about("Null for a session of the gateway.")] = None
    sizes: Annotated[list[int], about("Tokens of each message that is kept.")]
    speakers: Annotated[
        str, about("Who speaks in each: `y`ou, `a`ssistant, `r`esult, or `o`thers.")
    ]
    shares: list[Share]


class Brief(Answer, kw_only=True):
    """A message in a list."""

    number: int
    speaker: str
    tools: Annotated[list[str], about("Whose results are in it.")]
    lines: list[str]
    line_count: Annotated[int, about("In all.")]
    calls: Annotated[list[tuple[str, str]], about("Tool, and what it is about.")]
    kinds: list[str]
    tokens: int


class MessagesAnswer(Answer):
    """Messages of a session."""

    messages: list[Brief]


class TextAnswer(Answer):
    """A part of a message."""

    text: str
    offset: Count
    line: Annotated[int, about("Number of its first line, from 1 on.")]
    lines: Annotated[int, about("Of the whole text.")]
    total: Annotated[int, about("Characters of the whole text.")]
    next: NextOffset


class Find(Answer):
    """A match in a session."""

    message: int
    line: int
    text: str
    edit: Annotated[str, about("That hides it; empty if it is sent.")]
    exact: Annotated[bool, about("Are the words there as they were written?")]


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
    message: Annotated[Count | None, about("Null if only an earlier summary says it.")]
    line: Annotated[int, about("Where it begins there, from 1 on.")]


class Effect(Answer):
    """Effect of a compaction on the provider's cache, while it is alive, and on the price."""

    in_cache: Annotated[Tokens, about("That stay in the cache.")]
    written: Annotated[Tokens, about("Behind the first change, that are written to it anew.")]
    once: Annotated[float | None, about("US dollars for that and for summaries.")]
    per_call: Annotated[float | None, about("US dollars that each further call costs less.")]
    pays_after: Annotated[float | None, about("Calls after which it has paid; null: never.")]


class PreviewAnswer(Answer):
    """What a compaction would do."""

    preview: Annotated[Name | None, about("For `accept`; null if there is nothing to accept.")]
    session: SessionId
    tokens_before: Tokens
    tokens_after: Tokens
    saved_tokens: Annotated[int, about("Tokens that each further request would be smaller by.")]
    calls: Annotated[Count, about("Model calls that the preview took.")]
    cost: Annotated[float, about("US dollars that those cost.")]
    edits: list[SessionEdit]
    summaries: Annotated[dict[str, str], about("Texts for `amend`, by edit.")]
    attempts: list[PreviewAttempt]
    losses: LossesByKind
    lost: Annotated[
        list[LostLine],
        about("Each of these by message and line; none unless they may be read."),
    ]
    effect: Effect
    request: Annotated[
        JsonObject | None,
        about("The request as it would be sent, if it was sent along; else null."),
    ]
