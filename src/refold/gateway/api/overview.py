"""What the page's list of sessions shows: `overview` and `events`. All figures are of the store,
whatever process is asked."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from refold.gateway.api.answers import Answer, Tokens
from refold.gateway.api.arguments import Arguments, Limit, Offset, SessionId, about
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.ledger.calls import DAY, CallLog, Cursor, Filters
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.sql import NO_CALLS, BookedCalls
from refold.text.json_values import parse_or_none

DAYS = 30
"""Days in the chart of money."""
MOST_FINDS = 500
"""Sessions whose words are looked through for what is searched for."""
MOST_CALLS = 5_000
"""Calls in the chart of a day."""


Seconds = Annotated[int, about("In seconds since 1970.", ge=0, le=2**40)]
Text = Annotated[str, about("Exactly this; empty for any.", max_length=200)]


class OverviewArguments(Arguments):
    """Which sessions, in which order, and over which time their figures are summed up."""

    since: Annotated[Seconds, about("Totals count from here on.")] = 0
    day: Annotated[
        Seconds | UnsetType,
        about("Only sessions whose latest call was in the 24 hours from here on."),
    ] = UNSET
    today: Annotated[Seconds, about("When the caller's day began: its calls are listed.")] = 0
    query: Annotated[
        str,
        about("Words in id, title, client, project, model, or recorded messages.", max_length=200),
    ] = ""
    client: Text = ""
    project: Text = ""
    model: Text = ""
    sort: Literal["latest", "session", "model", "tokens", "failed", "calls", "spent", "saved"] = (
        "latest"
    )
    ascending: bool = False
    limit: Limit = 100
    after: Annotated[
        str, about("`next` of the page before; `offset` then counts from there.", max_length=500)
    ] = ""
    offset: Offset = 0
    rows_only: Annotated[bool, about("Leave out totals, days, calls and choices.")] = False


class ListRow(Answer, kw_only=True):
    """One session in a list."""

    id: SessionId
    title: Annotated[
        str, about("The first request's words; empty unless transcripts are recorded.")
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
    is_recorded: Annotated[bool, about("Is its text kept?")]
    is_shadow: Annotated[
        bool, about("Was it sent as it came? Then `saved` says what would have been saved.")
    ]


class Totals(Answer, kw_only=True):
    """Sums over a time and the sessions that are meant. Money in US dollars."""

    spent: Annotated[float, about("Billed, and paid for summaries.")]
    saved: Annotated[float, about("Net.")]
    summaries: Annotated[float, about("Paid for summaries.")]
    sent: Tokens
    original: Tokens
    calls: int
    edited: Annotated[int, about("Calls in which edits showed.")]
    unpriced: Annotated[int, about("Calls without a known price or without reported usage.")]
    compactions: int
    undone: int
    lookups: Annotated[int, about("Hidden results that were fetched again.")]
    avoided: Annotated[int, about("Calls that would not have fitted the window.")]
    faults: Annotated[int, about("Requests that passed unchanged since the gateway failed.")]
    sessions: int
    shadow_calls: Annotated[int, about("Calls that were sent as they came, in shadow.")]
    would_save: Annotated[float, about("What those would have saved.")]


class Choices(Answer):
    """What sessions can be filtered by."""

    client: list[str]
    project: list[str]
    model: list[str]


class OverviewAnswer(Answer, kw_only=True):
    """Sessions, and what they cost."""

    now: float
    sessions: list[ListRow]
    total: Annotated[int, about("Sessions that the filters let through.")]
    next: Annotated[str, about("For `after`: the next page; empty at the end.")]
    largest: Annotated[Tokens, about("The largest `original` of these rows.")]
    totals: Totals | None
    days: Annotated[
        list[tuple[int, float, float, int]],
        about("Beginning of a day in seconds since 1970, dollars spent, dollars saved, sessions."),
    ]
    calls: Annotated[
        list[tuple[str, float, int, int]], about("Of today: session, time, original, sent.")
    ]
    choices: Choices | None
    projects: Annotated[
        list[tuple[str, float]],
        about("Dollars spent by project since then, the dearest first; none with `rows_only`."),
    ]
    recording: Annotated[str, about("How long transcripts are kept; empty: they are not.")]


class EventsArguments(Arguments):
    """Since when."""

    since: Annotated[float, about("In seconds since 1970.", ge=0)] = 0.0


class Change(Answer):
    """Something new of a session."""

    session: SessionId
    at: float
    kind: Annotated[str, about("`call`, `compact`, `accept`, `revert` or `fault`.")]


class EventsAnswer(Answer):
    """What is new."""

    now: float
    changes: list[Change]


def overview(context: ApiContext, asked: OverviewArguments) -> OverviewAnswer:
    """Return a page of sessions, with totals and charts. Raises `Problem` 400, `StoreError`."""
    log, filters = context.call_log, _filters(context, asked)
    listed, total, end = log.list_sessions(
        filters,
        asked.sort,
        asked.limit,
        asked.offset,
        descending=not asked.ascending,
        after=_read_cursor(asked.after, asked.sort),
    )
    is_whole, has_today = not asked.rows_only, asked.today and not asked.rows_only
    return OverviewAnswer(
        now=context.pipeline.settings.clock(),
        sessions=list_rows(context, listed),
        total=total,
        next="" if end is None else json.dumps(end),
        largest=max((row.original for row in listed), default=0),
        totals=_totals(log, asked, filters) if is_whole else None,
        days=_days(log, asked, filters) if is_whole else [],
        calls=[
            (call.session, call.at, call.original, call.sent)
            for call in (log.list_calls(asked.today, filters, MOST_CALLS) if has_today else ())
        ],
        choices=Choices(
            log.list_values("client"), log.list_values("project"), log.list_values("model")
        )
        if is_whole
        else None,
        projects=[
            (project, cost / DOLLAR)
            for project, cost in (log.money_by_project(asked.since) if is_whole else ())
        ],
        recording=context.recording,
    )


def _read_cursor(text: str, sort: str) -> Cursor | None:
    if not text:
        return None
    kind = str if sort in ("session", "model") else int | float
    match parse_or_none(text):
        case [place, int() | float() as latest, str() as session] if isinstance(place, kind):
            return place, latest, session
    raise Problem(422, "bad_cursor", "after: it is no `next` of a page in this order")


def list_rows(context: ApiContext, listed: Sequence[ListedSession]) -> list[ListRow]:
    """Return the rows of sessions, with what is booked of them and the titles that are kept. Raises
    `StoreError`."""
    names = [row.session for row in listed]
    booked, titles = context.sum_sessions(names) or {}, context.load_titles(names)
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
            **_sum_money(booking),
            is_recorded=row.session in titles,
            is_shadow=bool(booking.shadow.calls) and not booking.calls,
        )
        for row in listed
        for booking in (booked.get(row.session, NO_CALLS),)
    ]


def _sum_money(booking: BookedCalls) -> dict[str, float | None]:
    """Return dollars spent and saved; those that would have been saved where all was in shadow."""
    sums, shadow = booking.reported, booking.shadow
    if shadow.calls > shadow.unpriced and not booking.calls:
        return {"spent": shadow.would_cost / DOLLAR, "saved": shadow.saved / DOLLAR}
    if booking.money_saved is None:
        return {"spent": None, "saved": None}
    spent = (sums.cost + sums.summary_cost) / DOLLAR
    return {"spent": spent, "saved": booking.money_saved / DOLLAR}


def _filters(context: ApiContext, asked: OverviewArguments) -> Filters:
    has_day, words = asked.day is not UNSET, asked.query.strip()
    day = 0 if asked.day is UNSET else asked.day
    return Filters(
        client=asked.client,
        project=asked.project,
        model=asked.model,
        since=float(day),
        until=float(day + DAY) if has_day else None,
        words=words,
        names=frozenset(context.search_texts(words, MOST_FINDS)) if words else None,
    )


def _totals(log: CallLog, asked: OverviewArguments, filters: Filters) -> Totals:
    booked, sessions = log.totals(asked.since, None, filters)
    sums, unreported, shadow = booked.reported, booked.unreported, booked.shadow
    events = log.count_events(asked.since, None, filters)
    return Totals(
        spent=(sums.cost + sums.summary_cost + shadow.would_cost) / DOLLAR,
        saved=sums.saved / DOLLAR,
        summaries=sums.summary_cost / DOLLAR,
        sent=sums.input + unreported.input + shadow.would_input,
        original=sums.would_input + unreported.would_input + shadow.would_input,
        calls=booked.calls + shadow.calls,
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
    log: CallLog, asked: OverviewArguments, filters: Filters
) -> list[tuple[int, float, float, int]]:
    ahead = -asked.today % DAY
    since = max(0, asked.today - (DAYS - 1) * DAY)
    return [
        (day * DAY - ahead, cost / DOLLAR, saved / DOLLAR, sessions)
        for day, cost, saved, sessions in log.money_by_day(since, ahead, filters)
    ]


def events(context: ApiContext, asked: EventsArguments) -> EventsAnswer:
    """Return what came since. Raises `StoreError`."""
    changes = context.call_log.list_changes(asked.since)
    return EventsAnswer(context.pipeline.settings.clock(), [Change(*change) for change in changes])
