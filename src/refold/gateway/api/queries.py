"""Read-only operations (`sessions`, `events`, `history`, `recall`, `file_rows`), and the paged list
of the gateway's sessions and those in files."""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from msgspec import UNSET, Meta, ValidationError, convert
from msgspec.structs import replace

from refold.gateway.api.api_types import (
    AboutSession,
    Answer,
    Arguments,
    Count,
    HistoryAnswer,
    HistoryArguments,
    Hit,
    ListRow,
    RecallAnswer,
    RecallArguments,
    Session,
    SessionsAnswer,
    SessionsArguments,
    about,
)
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.files import FileRow
from refold.gateway.api.lookup import (
    HISTORY_NEEDED,
    describe_edit,
    find_history,
    find_session,
    ledger_rows,
    list_visible_edits,
    locate,
    rows_by_edit,
)
from refold.gateway.ledger.calls import CallLog, Cursor, Filters
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.sessions import SessionRow
from refold.gateway.ledger.sql import NO_CALLS, BookedCalls
from refold.retrieval import recall as search
from refold.text.json_values import parse_or_none

LATEST = ("api", "model", "upstream", "messages", "edits")
"""Fields of a session that describe its latest request."""


# --- sessions ---------------------------------------------------------------------------------


def sessions(context: ApiContext, arguments: SessionsArguments) -> SessionsAnswer:
    """Return a page of the sessions, the latest first, equal from every process and after every
    restart. Raises `StoreError`."""
    page, total = context.sessions.list_latest(
        arguments.limit, arguments.offset, is_booked_enough=arguments.scope == "all"
    )
    names = [name for name, _ in page]
    rows, booked = context.sessions.read(names), context.sum_sessions(names)
    return SessionsAnswer(
        [describe_session(name, last_seen, rows.get(name), booked) for name, last_seen in page],
        total,
    )


def describe_session(
    name: str,
    last_seen: float,
    row: SessionRow | None,
    booked: Mapping[str, BookedCalls] | None,
) -> Session:
    """Return a session in figures: its latest request, if known, and its calls in *booked*, which
    is None if the ledger cannot be read."""
    session = Session(id=name, remembered=row is not None, last_seen=last_seen)
    if row is not None:
        figures = {field: getattr(row, field) for field in LATEST}
        session = replace(session, **figures, tokens_before=row.original, tokens_after=row.sent)
    if booked is None:
        return session
    booking = booked.get(name, NO_CALLS)
    return replace(
        session,
        model=session.model or booking.model,
        requests=booking.calls + booking.shadow.calls,
        saved_tokens=booking.tokens_saved,
        saved_dollars=None if booking.money_saved is None else booking.money_saved / DOLLAR,
    )


# --- what is new -------------------------------------------------------------------------------


class EventsArguments(Arguments):
    """The time to start from."""

    since: Annotated[float, about("In seconds since 1970.", ge=0)] = 0.0


class Change(AboutSession):
    """A new call or event of a session."""

    at: float
    kind: Annotated[str, about("`call`, `compact`, `accept`, `revert` or `fault`.")]


class EventsAnswer(Answer):
    """New calls and events."""

    now: float
    changes: list[Change]


def events(context: ApiContext, arguments: EventsArguments) -> EventsAnswer:
    """Return the calls and events after `since`. Raises `StoreError`."""
    changes = context.call_log.list_changes(arguments.since)
    return EventsAnswer(context.pipeline.settings.clock(), [Change(*change) for change in changes])


# --- one session ------------------------------------------------------------------------------


def history(context: ApiContext, arguments: HistoryArguments) -> HistoryAnswer:
    """Return what was done to one session. Raises `Problem` 404, `StoreError`."""
    session = find_session(context, arguments.session)
    recorded = context.transcripts.load(session.tenant, session.session)
    rows = ledger_rows(context, session.tips, session.ratio)
    by_edit = rows_by_edit(rows)
    end, booked = max(0, len(rows) - arguments.offset), context.sum_sessions([session.session])
    return HistoryAnswer(
        session=describe_session(session.session, session.last_seen, session, booked),
        edits=[
            describe_edit(edit, find_history(recorded, session, edit.stop), by_edit.get(edit.id))
            for edit in list_visible_edits(session, rows)
        ],
        attempts=list(rows[max(0, end - arguments.limit) : end]),
        attempts_total=len(rows),
    )


def recall(context: ApiContext, arguments: RecallArguments) -> RecallAnswer:
    """Search the text that edits hide, in a history that is sent along or recorded. Raises
    `Problem`, `FormatError`, `StoreError`, `ConversationBusy`."""
    if arguments.request is UNSET:
        session = find_session(context, arguments.session)
        if not context.transcripts.is_recorded(session.tenant, session.session):
            raise Problem(409, "history_needed", HISTORY_NEEDED)
    located = locate(context, arguments)
    hits = search(located.view, arguments.query, arguments.limit + 1)
    shown = [Hit(**hit._asdict()) for hit in hits[: arguments.limit]]
    name = located.conversation.name
    return RecallAnswer(session=name, hits=shown, has_more=len(hits) > arguments.limit)


# --- one list of the gateway's sessions and of those in files ----------------------------------


class Page(NamedTuple):
    """A page of sessions."""

    rows: list[ListedSession | FileRow]
    total: int
    next: str
    """Cursor of the next page; empty at the end."""


Place = tuple[Cursor | None, int]
"""Start of a page: the gateway's last session before it, and the number of files before it."""
_STORED_NUMBER = Annotated[float, Meta(gt=-(2.0**63), lt=2.0**63)]
_STORED_TEXT = Annotated[str, Meta(pattern="^[^\0\ud800-\udfff]*$")]
"""Values that a database can compare."""


def list_page(
    log: CallLog,
    filters: Filters,
    files: Sequence[FileRow],
    sort: str,
    window: tuple[int, int],
    *,
    descending: bool,
    place: Place | None,
) -> Page:
    """Return the page at *window* (limit, offset) from *place*, or from the beginning. *files*, the
    latest first, are merged with the gateway's sessions by time. In other orders they come last,
    since most were not read and have no such values. Raises `StoreError`."""
    limit, skip = window
    is_by_time = sort == "latest"
    if is_by_time and not descending:
        files = files[::-1]

    def count_before(at: int) -> int:
        """Return the number of rows before a file."""
        before, latest = filters, files[at].latest
        if is_by_time and descending:
            before = filters._replace(since=max(filters.since, latest))
        elif is_by_time:
            before = filters._replace(until=min(filters.until, latest))
        return at + log.count_sessions(before)

    if place is None:  # the rows before the page are counted
        passed = bisect_left(range(min(skip, len(files))), skip, key=count_before)
        after, offset, skip = None, skip - passed, 0
    else:  # those between the place and the page are read
        (after, passed), offset = place, 0
    most = skip + limit
    rows = list[tuple[ListedSession | FileRow, Cursor | None]](
        log.list_sessions(filters, sort, most, offset, descending=descending, after=after)
    )
    rows += [(row, None) for row in files[passed : passed + most]]
    if is_by_time:  # at the same time files are the older ones
        rows.sort(key=lambda item: (item[0].latest, item[1] is not None), reverse=descending)
    rows = rows[:most]
    cursors = [cursor for _, cursor in rows if cursor is not None]
    end = cursors[-1] if cursors else after, passed + len(rows) - len(cursors)
    following = json.dumps(end) if len(rows) == most else ""
    total = log.count_sessions(filters) + len(files)
    return Page([row for row, _ in rows[skip:]], total, following)


def read_cursor(text: str, sort: str) -> Place | None:
    """Return the place of a page's `next` in this order; None for the beginning. Raises `Problem`
    422."""
    if not text:
        return None
    kind = _STORED_TEXT if sort in ("session", "model") else _STORED_NUMBER
    cursor = tuple[kind, _STORED_NUMBER, _STORED_TEXT] | None  # type: ignore[valid-type]
    try:
        return convert(parse_or_none(text), tuple[cursor, Count])
    except (ValidationError, UnicodeEncodeError) as error:
        message = "after: it is no `next` of a page in this order"
        raise Problem(422, "bad_cursor", message) from error


# --- rows of sessions in files ----------------------------------------------------------------


class FileRowsArguments(Arguments):
    """Sessions in files."""

    sessions: Annotated[
        str, about("Ids, separated by commas.", pattern="^[0-9a-f]{32}(,[0-9a-f]{32}){0,99}$")
    ]


class FileRowsAnswer(Answer):
    """Rows of sessions in files."""

    sessions: Annotated[
        list[ListRow], about("Rows of the sessions found; ask again for those without `is_read`.")
    ]


def file_rows(context: ApiContext, arguments: FileRowsArguments) -> FileRowsAnswer:
    """Return the rows of sessions in files, some of which are read now."""
    ids = arguments.sessions.split(",")
    return FileRowsAnswer(context.files.read_figures(ids) if context.files else [])
