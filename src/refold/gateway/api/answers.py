"""What the operations answer, as types: answers and the document are made of them."""

from typing import Annotated

from msgspec import Struct

from refold.gateway.api.arguments import Count, EditId, Name, NextOffset, SessionId, about
from refold.gateway.api.files import FileFigures, FileRow
from refold.presets.soft_hard import CompactionCheck, CompactionResult
from refold.stores.store import Grade, LedgerRow

Tokens = Annotated[int, about("Tokens, as the provider is expected to count them.", ge=0)]


class Answer(Struct, forbid_unknown_fields=True):
    """The body of a 200, or a part of it."""


class ListRow(Answer, kw_only=True):
    """One session in a list."""

    id: SessionId
    file: Annotated[
        str,
        about(
            "Names a session in a client's file on the command line: `refold stats NAME`; then "
            "there is no call here. Empty for the gateway's."
        ),
    ] = ""
    title: Annotated[
        str,
        about(
            "The first request's words; empty unless transcripts are recorded, or a file says it."
        ),
    ]
    client: str
    project: str
    model: str
    began: float
    latest: float
    calls: int
    failed: Annotated[int, about("Calls that the upstream answered with an error.")]
    original: Annotated[Tokens, about("Of the latest call, as it came.")]
    sent: Annotated[Tokens, about("Of the latest call, as it was sent.")]
    spent: Annotated[float | None, about("US dollars, summaries included; null without a price.")]
    saved: Annotated[float | None, about("US dollars, net.")]
    would_send: Annotated[
        Tokens | None, about("Of the latest call, had it not been in shadow; null if it was not.")
    ] = None
    is_recorded: Annotated[bool, about("Is its text kept?")]
    is_shadow: Annotated[
        bool, about("Was it sent as it came? Then `saved` says what would have been saved.")
    ]
    is_read: Annotated[
        bool,
        about("Of a file: was it read since it changed? `file_rows` reads it, and says the rest."),
    ] = True


def describe_file(row: FileRow, figures: FileFigures, *, is_read: bool) -> ListRow:
    """Return the row of a session in a client's file, with what was read of it so far."""
    return ListRow(
        id=row.id,
        file=row.name,
        title=figures.title,
        client=row.client,
        project=row.project,
        model=figures.model,
        began=row.latest if figures.began is None else figures.began,
        latest=row.latest,
        calls=figures.calls,
        failed=0,
        original=figures.original,
        sent=figures.sent,
        spent=figures.spent,
        saved=None,
        is_recorded=False,
        is_shadow=False,
        is_read=is_read,
    )


class FileFacts(Answer):
    """Where the session in a client's file is, and what it says besides."""

    path: str
    edits: Annotated[str, about("The file that its edits are kept in.")]
    compactions: Annotated[Count, about("Those of the client itself.")]
    resumes: Annotated[bool, about("Can `refold export` write it for its client, with the edits?")]


# --- the soft/hard preset ---------------------------------------------------------------------


class EstimateAnswer(Answer):
    """An estimate."""

    result: Tokens


class CheckThresholdAnswer(Answer):
    """What is due."""

    result: CompactionCheck


class CompactAnswer(Answer):
    """What was done."""

    result: CompactionResult


# --- parts of answers -------------------------------------------------------------------------


class Session(Answer, kw_only=True):
    """One conversation in figures."""

    id: SessionId
    remembered: Annotated[
        bool,
        about(
            "Is its latest request known? If not, since it is more than a week ago, "
            "only what is booked is."
        ),
    ]
    last_seen: Annotated[
        float, about("Seconds since 1970; of a session that is only booked, the hour.")
    ]
    model: Annotated[str, about("Of the latest request; empty if unknown.")] = ""
    api: str | None = None
    upstream: str | None = None
    messages: Count | None = None
    tokens_before: Annotated[
        Count | None, about("Tokens of the latest request as it came, as its provider counts.")
    ] = None
    tokens_after: Annotated[
        Count | None,
        about("Tokens of the latest request with the edits that show now, as its provider counts."),
    ] = None
    edits: Annotated[Count | None, about("How many edits show.")] = None
    requests: Annotated[
        Count | None,
        about("Requests that were answered, by the net ledger. Null while that cannot be read."),
    ] = None
    saved_tokens: Annotated[
        int | None,
        about(
            "Tokens that those were smaller by, as billed, by the net ledger; "
            "estimated if no usage was reported."
        ),
    ] = None
    saved_dollars: Annotated[
        float | None,
        about(
            "Saved net, by the net ledger: after what caching, summaries and refetches cost, in US "
            "dollars. Negative if it cost more, null if no price is known."
        ),
    ] = None


class SessionEdit(Answer):
    """One edit of a conversation."""

    id: EditId
    by: Annotated[str, about("The strategy that made it.")]
    start: Annotated[int, about("Position of the first message that it stands for.", ge=0)]
    stop: Annotated[int, about("Position behind the last.", ge=0)]
    tokens_before: Tokens
    tokens_after: Tokens
    grade: Grade
    text: Annotated[
        str, about("Our words that are sent instead, or their beginning; not what they hide.")
    ]
    text_more: Annotated[int, about("Characters behind those, for `edit_text`.", ge=0)]
    hidden: Annotated[
        str | None,
        about(
            "What it hides, or the beginning of it, if `request` was sent along or the transcript "
            "is recorded; else null."
        ),
    ]
    hidden_more: Annotated[int, about("Characters behind those, for `edit_text`.", ge=0)]
    when: Annotated[float | None, about("Seconds since 1970; null for local edits.")]
    actor: str
    cost: Annotated[float, about("US dollars that making it cost.")]


class Hit(Answer):
    """A place in what the edits hide."""

    edit: EditId
    position: Count
    role: str
    snippet: str
    score: float


# --- answers ----------------------------------------------------------------------------------


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
        int, about("How many attempts there are; `offset` and `limit` reach all.", ge=0)
    ]


class EditTextAnswer(Answer):
    """A part of the words of an edit."""

    session: SessionId
    edit: EditId
    of: str
    text: str
    total: Annotated[int, about("Characters in all.", ge=0)]
    next: NextOffset


class AcceptAnswer(Answer):
    """Which edits show from now on."""

    session: SessionId
    edits: list[EditId]
    tokens_after: Tokens


class RevertAnswer(Answer):
    """Which edits show no more."""

    session: SessionId
    reverted: list[EditId]
    tokens_before: Tokens
    tokens_after: Annotated[int, about("Tokens without the edits.", ge=0)]
    fits: Annotated[
        bool,
        about(
            "Is that below the hard level, so that it is sent? If not, "
            "the next request is compacted again."
        ),
    ]
    redo: Annotated[Name, about("A preview whose `accept` makes these edits show again.")]


class RecallAnswer(Answer):
    """Where the edits hide what was searched for."""

    session: SessionId
    hits: list[Hit]
    has_more: Annotated[bool, about("Does more match than `limit` hits?")]


class ErrorDetail(Struct):
    """What went wrong: a word for programs and a sentence for people."""

    code: str | None
    message: str


class Error(Struct, forbid_unknown_fields=True):
    """The body of every answer other than 200."""

    error: ErrorDetail
