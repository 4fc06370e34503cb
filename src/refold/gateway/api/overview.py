"""The operation `overview`, for the page's list of sessions. All figures come from the store,
whatever process is asked."""

from collections.abc import Sequence
from math import inf
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from refold.gateway.api.api_types import Answer, Arguments, Limit, ListRow, Offset, Tokens, about
from refold.gateway.api.context import ApiContext
from refold.gateway.api.files import FileRow, drop_recorded
from refold.gateway.api.queries import list_page, read_cursor
from refold.gateway.ledger.calls import DAY, CallLog, Filters
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.sessions import SessionRow
from refold.gateway.ledger.sql import NO_CALLS, BookedCalls

DAYS = 30
"""Days in the chart of money."""
MOST_FINDS = 500
"""Maximum number of sessions found by their text."""
MOST_CALLS = 5_000
"""Maximum number of calls in the chart of a day, the latest."""


Seconds = Annotated[int, about("In seconds since 1970.", ge=0, le=2**40)]
NO_NUL = r"^[^\0]*$"
"""Regex of texts that every database can compare."""
Text = Annotated[str, about("Exact value; empty: any.", max_length=200, pattern=NO_NUL)]


class OverviewArguments(Arguments):
    """Filters, order and page of sessions, and the time over which figures are summed up."""

    since: Annotated[Seconds, about("Start of the totals.")] = 0
    day: Annotated[
        Seconds | UnsetType,
        about("Only sessions whose latest call was in the 24 hours from this time."),
    ] = UNSET
    today: Annotated[Seconds, about("Start of the caller's day, whose calls are listed.")] = 0
    query: Annotated[
        str,
        about(
            "Words to find in id, title, client, project, model or recorded messages.",
            max_length=200,
            pattern=NO_NUL,
        ),
    ] = ""
    client: Text = ""
    project: Text = ""
    model: Text = ""
    source: Annotated[
        Literal["", "gateway", "file"],
        about("Sessions of the gateway, or sessions in clients' files on this machine."),
    ] = ""
    sort: Literal["latest", "session", "model", "tokens", "failed", "calls", "spent", "saved"] = (
        "latest"
    )
    ascending: bool = False
    limit: Limit = 100
    after: Annotated[
        str, about("`next` of the previous page; `offset` counts from there.", max_length=500)
    ] = ""
    offset: Offset = 0
    rows_only: Annotated[bool, about("Leave out totals, days, calls and choices.")] = False


class Totals(Answer, kw_only=True):
    """Sums over a time and the filtered sessions. Money in US dollars."""

    spent: Annotated[float, about("Billed calls and summaries.")]
    saved: Annotated[float, about("Net savings.")]
    summaries: Annotated[float, about("Cost of summaries.")]
    sent: Tokens
    original: Tokens
    calls: int
    unlisted: Annotated[
        int, about("Calls outside sessions (as for titles) or of deleted sessions.")
    ]
    edited: Annotated[int, about("Calls in which edits showed.")]
    unpriced: Annotated[int, about("Calls without a known price or without reported usage.")]
    compactions: int
    undone: int
    lookups: Annotated[int, about("Hidden results that were fetched again.")]
    avoided: Annotated[int, about("Calls that would not have fitted the window.")]
    faults: Annotated[int, about("Requests sent unchanged because the gateway failed.")]
    sessions: int
    shadow_calls: Annotated[int, about("Calls in shadow, sent unedited.")]
    would_save: Annotated[float, about("What these calls would have saved.")]


class Choices(Answer):
    """Values to filter sessions by."""

    client: list[str]
    project: list[str]
    model: list[str]


class OverviewAnswer(Answer, kw_only=True):
    """Sessions and their costs."""

    now: float
    sessions: list[ListRow]
    total: Annotated[int, about("Number of sessions that match the filters.")]
    files: Annotated[int, about("How many of these are in clients' files; in no other figure.")]
    next: Annotated[str, about("Value of `after` for the next page; empty at the end.")]
    largest: Annotated[Tokens, about("The largest `original` of these rows.")]
    totals: Totals | None
    days: Annotated[
        list[tuple[int, float, float, int]],
        about("Start of a day in seconds since 1970, dollars spent, dollars saved, sessions."),
    ]
    calls: Annotated[
        list[tuple[str, float, int, int]],
        about(f"Calls of today, the latest {MOST_CALLS:,}: session, time, original, sent."),
    ]
    choices: Choices | None
    projects: Annotated[
        list[tuple[str, float]],
        about(
            "Dollars spent by project from `since` on, the highest first; empty with `rows_only`."
        ),
    ]
    recording: Annotated[str, about("How long transcripts are kept; empty: not recorded.")]
    unwritten: Annotated[int, about("Calls of this process that are not in the net ledger yet.")]


def overview(context: ApiContext, arguments: OverviewArguments) -> OverviewAnswer:
    """Return a page of sessions, with totals and charts. Raises `Problem` 422, `StoreError`."""
    log, filters = context.call_log, _filters(context, arguments)
    files = list[FileRow]()
    if context.files is not None and arguments.source != "gateway":
        files = drop_recorded(log, context.transcripts, context.files.find(filters))
    if arguments.source == "file":
        filters = filters._replace(until=0.0)  # no session of the gateway
    page = list_page(
        log,
        filters,
        files,
        arguments.sort,
        (arguments.limit, arguments.offset),
        descending=not arguments.ascending,
        place=read_cursor(arguments.after, arguments.sort),
    )
    rows, is_whole = _list_all(context, page.rows), not arguments.rows_only
    costs = log.money_by_project(arguments.since) if is_whole else ()
    today = is_whole and arguments.today
    calls = log.list_calls(today, filters, MOST_CALLS) if today else ()
    return OverviewAnswer(
        now=context.pipeline.settings.clock(),
        sessions=rows,
        total=page.total,
        files=len(files),
        next=page.next,
        largest=max((row.original for row in rows), default=0),
        totals=_totals(log, arguments, filters) if is_whole else None,
        days=_days(log, arguments, filters) if is_whole else [],
        calls=[(call.session, call.at, call.original, call.sent) for call in calls],
        choices=_list_choices(context) if is_whole else None,
        projects=[(project, cost / DOLLAR) for project, cost in costs],
        recording=context.recording,
        unwritten=context.ledger_writer.unwritten,
    )


def _list_choices(context: ApiContext) -> Choices:
    log, files = context.call_log, context.files
    client, project, model = log.list_choices()
    if files is not None:
        client |= files.list_values("client")
        project |= files.list_values("project")
    return Choices(*(sorted(values - {""}) for values in (client, project, model)))


def _list_all(context: ApiContext, rows: Sequence[ListedSession | FileRow]) -> list[ListRow]:
    files = [row for row in rows if isinstance(row, FileRow)]
    listed = [row for row in rows if isinstance(row, ListedSession)]
    described = list_rows(context, listed)
    if context.files is not None:
        described += context.files.list_rows(files)
    by_id = {row.id: row for row in described}
    return [by_id[row.id if isinstance(row, FileRow) else row.session] for row in rows]


def list_rows(context: ApiContext, listed: Sequence[ListedSession]) -> list[ListRow]:
    """Return the rows of sessions with their booked calls and titles. Raises `StoreError`."""
    names = [row.session for row in listed]
    booked = context.sum_sessions(names) or {}
    titles = context.transcripts.titles(names)
    shadow = {name for name, sums in booked.items() if sums.shadow.calls and not sums.calls}
    latest = context.sessions.read(shadow) if shadow else {}
    return [
        ListRow(
            id=row.session,
            title=titles.get(row.session, ""),
            client=row.client,
            project=row.project,
            model=row.model,
            began=row.began,
            latest=row.latest,
            calls=booking.calls + booking.shadow.calls,
            failed=row.failed,
            original=row.original,
            sent=row.sent,
            spent=spent,
            saved=saved,
            is_recorded=row.session in titles,
            would_send=_would_send(row, latest.get(row.session)),
            is_shadow=row.session in shadow,
        )
        for row in listed
        for booking in (booked.get(row.session, NO_CALLS),)
        for spent, saved in (_sum_money(booking),)
    ]


def _would_send(listed: ListedSession, latest: SessionRow | None) -> int | None:
    """Return the tokens with edits of a call in shadow: the request as its provider counts, times
    the share that edits leave; None if unknown."""
    if latest is None or not latest.tokens_before:
        return None
    return round(listed.original * latest.tokens_after / latest.tokens_before)


def _sum_money(booking: BookedCalls) -> tuple[float | None, float | None]:
    """Return dollars spent and saved, None without a known price. If all was in shadow, the latter
    would have been saved."""
    sums, shadow = booking.reported, booking.shadow
    is_priced, saved = shadow.calls > shadow.unpriced, booking.money_saved
    if is_priced and not booking.calls:
        saved = shadow.saved
    spent = (sums.cost + sums.summary_cost + shadow.would_cost) / DOLLAR
    has_bill = is_priced or saved is not None
    return spent if has_bill else None, None if saved is None else saved / DOLLAR


def _filters(context: ApiContext, arguments: OverviewArguments) -> Filters:
    words = arguments.query.strip()
    names = context.transcripts.find_sessions(words, MOST_FINDS) if words else ()
    return Filters(
        client=arguments.client,
        project=arguments.project,
        model=arguments.model,
        since=0.0 if arguments.day is UNSET else float(arguments.day),
        until=inf if arguments.day is UNSET else float(arguments.day + DAY),
        words=words,
        names=frozenset(names),
    )


def _totals(log: CallLog, arguments: OverviewArguments, filters: Filters) -> Totals:
    booked, unlisted, sessions = log.totals(arguments.since, filters)
    sums, unreported, shadow = booked.reported, booked.unreported, booked.shadow
    events = log.count_events(arguments.since, filters)
    return Totals(
        spent=(sums.cost + sums.summary_cost + shadow.would_cost) / DOLLAR,
        saved=sums.saved / DOLLAR,
        summaries=sums.summary_cost / DOLLAR,
        sent=sums.input + unreported.input + shadow.would_input,
        original=sums.would_input + unreported.would_input + shadow.would_input,
        calls=booked.calls + shadow.calls,
        unlisted=unlisted,
        edited=sums.edited + unreported.edited,
        unpriced=sums.unpriced + unreported.calls + shadow.unpriced,
        compactions=events.get("compact", 0) + events.get("accept", 0),
        undone=events.get("revert", 0),
        lookups=sums.refetches + unreported.refetches,
        avoided=sums.avoided + unreported.avoided,
        faults=events.get("fault", 0),
        sessions=sessions,
        shadow_calls=shadow.calls,
        would_save=shadow.saved / DOLLAR,
    )


def _days(
    log: CallLog, arguments: OverviewArguments, filters: Filters
) -> list[tuple[int, float, float, int]]:
    ahead = -arguments.today % DAY
    since = max(0, arguments.today - (DAYS - 1) * DAY)
    return [
        (day * DAY - ahead, cost / DOLLAR, saved / DOLLAR, sessions)
        for day, cost, saved, sessions in log.money_by_day(since, ahead, filters)
    ]
