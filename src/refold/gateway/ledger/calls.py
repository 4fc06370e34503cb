"""Tables of sessions, calls and events, for lists and charts, and of what was sent in each call of
a recorded session.

The tables for lists hold no messages: only names of clients, projects and models, times, tokens and
money. They are beside the net ledger, which has the sums."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

from refold.compactor.loading import make_local_edits
from refold.compactor.settings import is_by_local, parse_strategy
from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.edits import Edit
from refold.errors import FormatError
from refold.gateway.ledger.accounting import BilledCall
from refold.gateway.ledger.rows import CallRow, ClientName, ListedSession, SessionEvent
from refold.gateway.ledger.sessions import ShownEdit, describe_edit
from refold.gateway.ledger.sql import (
    NO_CALLS,
    SUMMED,
    BookedCalls,
    EditTextCache,
    Tables,
    add_sums,
    like_pattern,
)
from refold.messages import Message, Text, ToolCall, ToolResult
from refold.stores.sql import Database

# --- sessions, calls and events -------------------------------------------------------------------


KEPT_SECONDS = 90 * 86_400.0
"""Seconds that single calls and events are kept. Sums and sessions stay."""
DAY = 86_400

Cursor = tuple[float | int | str, float, str]
"""End of a page of sessions: sort value, time of the latest call, session."""


class Filters(NamedTuple):
    """Filters for sessions. Empty: any."""

    client: str = ""
    project: str = ""
    model: str = ""
    since: float = 0.0
    """Earliest time of the latest call, in seconds since 1970."""
    until: float = inf
    """Time before which that call was."""
    words: str = ""
    """Text in id, client, project or model, in any case."""
    names: frozenset[str] = frozenset()
    """Ids of sessions that match without *words* too."""


_NUMBERS = {int: "BIGINT", float: "DOUBLE PRECISION", str: "TEXT"}


def _columns(row: Any) -> str:
    types = (row.__annotations__[name] for name in row._fields)
    return ", ".join(
        f"{name} {_NUMBERS.get(kind, 'TEXT')} NOT NULL"
        for name, kind in zip(row._fields, types, strict=True)
    )


MIGRATION = (
    f"CREATE TABLE IF NOT EXISTS refold_listed ({_columns(ListedSession)}, PRIMARY KEY (session))",
    "CREATE INDEX IF NOT EXISTS refold_listed_by_latest ON refold_listed (latest)",
    f"CREATE TABLE IF NOT EXISTS refold_each_call ({_columns(CallRow)})",
    "CREATE INDEX IF NOT EXISTS refold_each_call_by_session ON refold_each_call (session, at)",
    "CREATE INDEX IF NOT EXISTS refold_each_call_by_time ON refold_each_call (at)",
    f"CREATE TABLE IF NOT EXISTS refold_events ({_columns(SessionEvent)})",
    "CREATE INDEX IF NOT EXISTS refold_events_by_time ON refold_events (at)",
    (
        "INSERT INTO refold_listed SELECT session, tenant, '', '', '', MAX(model), MIN(hour), "
        "MAX(hour), 0, 0, 0 FROM refold_calls WHERE session <> '' GROUP BY session, tenant "
        "ON CONFLICT (session) DO NOTHING"
    ),
)
"""Step for the ledger's tables. Sessions booked before are listed as far as they are known."""
NAMES_MIGRATION = (
    f"CREATE TABLE IF NOT EXISTS refold_client_names ({_columns(ClientName)}, PRIMARY KEY (session))",
    "CREATE INDEX IF NOT EXISTS refold_client_names_by_name ON refold_client_names (name)",
)
"""A further step."""


def _insert(table: str, row: Any) -> str:
    return (
        f"INSERT INTO {table} ({', '.join(row._fields)}) "  # noqa: S608 - names of ours
        f"VALUES ({', '.join('?' * len(row._fields))})"
    )


def _newer(name: str) -> str:
    """Return the SQL that updates a column to the latest call's value, unless that is empty."""
    nothing = "0" if ListedSession.__annotations__[name] is int else "''"
    return (
        f"{name} = CASE WHEN excluded.latest >= refold_listed.latest "
        f"AND excluded.{name} <> {nothing} THEN excluded.{name} ELSE refold_listed.{name} END"
    )


_ADD_LISTED = (
    f"{_insert('refold_listed', ListedSession)} ON CONFLICT (session) DO UPDATE SET "
    f"{', '.join(map(_newer, ('client', 'project', 'api', 'model', 'original', 'sent')))}, "
    "failed = refold_listed.failed + excluded.failed, "
    "latest = CASE WHEN excluded.latest > refold_listed.latest THEN excluded.latest "
    "ELSE refold_listed.latest END"
)
ADD: Mapping[type, str] = {
    ListedSession: _ADD_LISTED,
    CallRow: _insert("refold_each_call", CallRow),
    SessionEvent: _insert("refold_events", SessionEvent),
    ClientName: f"{_insert('refold_client_names', ClientName)} ON CONFLICT (session) DO NOTHING",
}
"""Statement that adds each kind of row, for `Ledger.add`."""
_LISTED = ", ".join(f"l.{name}" for name in ListedSession._fields)
_COST = "cost_fresh + cost_read + cost_written + cost_output + summary_cost"
_SAVED = f"would_cost - refetch_cost - ({_COST})"
_SPENT = f"CASE WHEN basis = 'shadow' THEN would_cost ELSE {_COST} END"
"""What was billed: in shadow, what is booked as without edits."""
SORTS: Mapping[str, str] = {
    "latest": "l.latest",
    "session": "l.client || l.project",
    "model": "l.model",
    "tokens": "l.sent",
    "failed": "l.failed",
    "calls": "COALESCE(SUM(c.calls), 0)",
    "spent": f"COALESCE(SUM({_SPENT}), 0)",
    "saved": f"COALESCE(SUM({_SAVED}), 0)",
}
"""Sort keys of sessions, in SQL."""
_SESSION_CALLS = (
    "SELECT (SELECT COALESCE(SUM(calls), 0) FROM refold_calls WHERE session = ?), "  # noqa: S608
    f"{', '.join(CallRow._fields)} FROM refold_each_call WHERE session = ? ORDER BY at"
)
_CALLS = f"SELECT {', '.join(CallRow._fields)} FROM refold_each_call WHERE at >= ? AND session {{}} ORDER BY at DESC LIMIT ?"  # noqa: S608
_NAMED = (
    "SELECT c.name, l.session, l.latest FROM refold_client_names c "
    "JOIN refold_listed l ON l.session = c.session WHERE c.name IN ({})"
)
_CHANGED = (
    "SELECT session, latest, 'call' FROM refold_listed WHERE latest > ? UNION ALL "
    "SELECT session, at, kind FROM refold_events WHERE session <> '' AND at > ?"
)


class CallLog(Tables):
    """The tables of sessions, calls and events, whose data is in the store, so that every process
    has the same."""

    def purge(self, before: float) -> None:
        """Delete calls, events and batches older than *before* (seconds since 1970). Raises
        `StoreError`."""
        with self._database.transaction(edits=False) as connection:
            for table in ("refold_each_call", "refold_events", "refold_batches"):
                self._execute(connection, f"DELETE FROM {table} WHERE at < ?", (before,))  # noqa: S608

    def list_sessions(
        self,
        filters: Filters,
        sort: str,
        limit: int,
        offset: int,
        *,
        descending: bool = True,
        after: Cursor | None = None,
    ) -> list[tuple[ListedSession, Cursor]]:
        """Return a page of the sessions that match *filters*, sorted by a key of `SORTS`, each with
        the cursor of a page that ends with it. The page begins *offset* sessions after the cursor
        *after*, even if sessions were added. Raises `StoreError`."""
        where, values = _where(filters)
        by, order, beyond = SORTS[sort], "DESC", "<"
        if not descending:
            order, beyond = "ASC", ">"
        joined = "LEFT JOIN refold_calls c ON c.session = l.session" if "SUM" in by else ""
        grouped = f"GROUP BY {_LISTED}" if joined else ""
        behind = ""
        if after is not None:
            behind = (
                f"WHERE place {beyond} ? OR (place = ? AND (latest < ? OR (latest = ? AND "
                "session > ?)))"
            )
        place = () if after is None else (after[0], after[0], after[1], after[1], after[2])
        rows = self._read(
            f"SELECT * FROM (SELECT {_LISTED}, {by} AS place FROM refold_listed l {joined} "  # noqa: S608
            f"{where} {grouped}) AS listed {behind} "
            f"ORDER BY place {order}, latest DESC, session LIMIT ? OFFSET ?",
            (*values, *place, limit, offset),
        )
        return [_with_cursor(*row) for row in rows]

    def count_sessions(self, filters: Filters) -> int:
        """Return the number of sessions that match *filters*. Raises `StoreError`."""
        where, values = _where(filters)
        ((total,),) = self._read(f"SELECT COUNT(*) FROM refold_listed l {where}", values)  # noqa: S608
        return int(total)

    def find(self, session: str) -> ListedSession | None:
        """Return one session; None if it is not listed. Raises `StoreError`."""
        rows = self._read(f"SELECT {_LISTED} FROM refold_listed l WHERE l.session = ?", (session,))  # noqa: S608
        return next((ListedSession(*row) for row in rows), None)

    def list_choices(self) -> tuple[set[str], set[str], set[str]]:
        """Return the names of all clients, projects and models; one may be empty. Raises
        `StoreError`."""
        rows = self._read("SELECT DISTINCT client, project, model FROM refold_listed")
        client, project, model = zip(*rows, strict=True) if rows else ((), (), ())
        return set(client), set(project), set(model)

    def totals(self, since: int, filters: Filters) -> tuple[BookedCalls, int, int]:
        """Return what is booked for sessions that match *filters* in hours that begin at *since* or
        later, how many of these calls belong to no session, and the number of sessions. Raises
        `StoreError`."""
        which, values = _of_sessions(filters)
        booked, unlisted = NO_CALLS, 0  # hour by hour: a sum over all may not fit 64 bits
        statement = f"SELECT SUM(CASE WHEN session = '' THEN calls ELSE 0 END), basis, {SUMMED} FROM refold_calls WHERE hour >= ? AND session {which} GROUP BY basis, hour"  # noqa: S608
        for calls, basis, *figures in self._read(statement, (since, *values)):
            booked, unlisted = add_sums(booked, "", basis, 0, figures), unlisted + int(calls)
        statement = f"SELECT COUNT(DISTINCT session) FROM refold_calls WHERE session <> '' AND hour >= ? AND session {which}"  # noqa: S608
        ((count,),) = self._read(statement, (since, *values))
        return booked, unlisted, int(count)

    def money_by_day(
        self, since: int, offset: int, filters: Filters
    ) -> list[tuple[int, int, int, int]]:
        """Return (days since 1970, picodollars spent, picodollars saved, sessions) for each day
        with booked calls from the hour *since* on, in order. *offset* is local time minus UTC, in
        seconds. Raises `StoreError`."""
        which, values = _of_sessions(filters)
        rows = self._read(
            f"SELECT (hour + {offset:d}) / {DAY} AS day, SUM({_SPENT}), "  # noqa: S608
            f"SUM(CASE WHEN basis = 'shadow' THEN 0 ELSE {_SAVED} END), COUNT(DISTINCT NULLIF(session, '')) "
            f"FROM refold_calls WHERE hour >= ? AND session {which} "
            "GROUP BY day ORDER BY day",
            (since, *values),
        )
        return [(int(day), int(cost), int(saved), int(count)) for day, cost, saved, count in rows]

    def money_by_project(self, since: int) -> list[tuple[str, int]]:
        """Return (project, picodollars spent from the hour *since* on), the largest first. Raises
        `StoreError`."""
        rows = self._read(
            f"SELECT l.project, SUM({_SPENT}) AS spent FROM refold_calls c JOIN refold_listed l "  # noqa: S608
            "ON l.session = c.session WHERE c.hour >= ? AND l.project <> '' GROUP BY l.project ORDER BY spent DESC, l.project",
            (since,),
        )
        return [(project, int(cost)) for project, cost in rows]

    def count_events(self, since: float, filters: Filters) -> dict[str, int]:
        """Return the number of events by kind, from *since* on, in sessions that match *filters*.
        Raises `StoreError`."""
        which, values = _of_sessions(filters)
        rows = self._read(
            f"SELECT kind, COUNT(*) FROM refold_events WHERE at >= ? AND session {which} GROUP BY kind",  # noqa: S608
            (since, *values),
        )
        return {kind: int(count) for kind, count in rows}

    def list_calls(self, since: float, filters: Filters, limit: int) -> list[CallRow]:
        """Return the latest calls from *since* on of sessions that match *filters*, at most
        *limit*, in order. Raises `StoreError`."""
        which, values = _of_sessions(filters)
        rows = self._read(_CALLS.format(which), (since, *values, limit))
        return [CallRow(*row) for row in reversed(rows)]

    def calls_of(self, session: str) -> dict[int, CallRow]:
        """Return the kept calls of a session, in order, by number: 1 is the first of all, also if
        it was deleted. Raises `StoreError`."""
        rows = self._read(_SESSION_CALLS, (session, session))
        total = max(int(rows[0][0]), len(rows)) if rows else 0
        return {at: CallRow(*row) for at, (_, *row) in enumerate(rows, total - len(rows) + 1)}

    def find_named(self, names: Iterable[str]) -> list[tuple[str, str, float]]:
        """Return (name, session, its latest call) of sessions with these client *names*
        (`hash_client_name`). Raises `StoreError`."""
        return [tuple(row) for row in self._read_by_name(_NAMED, names)]

    def list_changes(self, since: float) -> list[tuple[str, float, str]]:
        """Return (session, seconds since 1970, `call` or the kind of an event) of changes after
        *since*: of each session its latest call, and events. Raises `StoreError`."""
        rows = self._read(_CHANGED, (since, since))
        return sorted((session, float(at), kind) for session, at, kind in rows)


def _with_cursor(*row: Any) -> tuple[ListedSession, Cursor]:
    listed, place = ListedSession(*row[:-1]), row[-1]
    key = place if isinstance(place, str | float) else int(place)
    return listed, (key, listed.latest, listed.session)


def _of_sessions(filters: Filters) -> tuple[str, Sequence[Any]]:
    """Return the SQL condition on a column `session`, and its values."""
    where, values = _where(filters)
    if not where:
        return "IS NOT NULL", ()
    return f"IN (SELECT l.session FROM refold_listed l {where})", values  # noqa: S608


def _where(filters: Filters) -> tuple[str, Sequence[Any]]:
    """Return the WHERE clause on `refold_listed l`, empty without filters, and its values."""
    conditions, values = list[str](), list[Any]()
    for name in ("client", "project", "model"):
        if value := getattr(filters, name):
            conditions.append(f"l.{name} = ?")
            values.append(value)
    if filters.since:
        conditions.append("l.latest >= ?")
        values.append(filters.since)
    if filters.until < inf:
        conditions.append("l.latest < ?")
        values.append(filters.until)
    if filters.words:
        text = "LOWER(l.session || ' ' || l.client || ' ' || l.project || ' ' || l.model)"
        either = [f"{text} LIKE LOWER(?) ESCAPE '!'"]
        values.append(like_pattern(filters.words))
        if filters.names:
            either.append(f"l.session IN ({', '.join('?' * len(filters.names))})")
            values += sorted(filters.names)
        conditions.append(f"({' OR '.join(either)})")
    return f"WHERE {' AND '.join(conditions)}" if conditions else "", values


# --- past calls of recorded sessions --------------------------------------------------------------
# How much of the history was sent in each, and which edits showed. Kept and deleted with the
# transcript.

PAST_CALLS_MIGRATION = (
    (
        "CREATE TABLE IF NOT EXISTS refold_transcript_calls (tenant TEXT NOT NULL, "
        "session TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, length BIGINT NOT NULL, "
        "tip TEXT NOT NULL, shown TEXT NOT NULL, PRIMARY KEY (tenant, session, at))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS refold_transcript_edits (tenant TEXT NOT NULL, "
        "session TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, "
        "PRIMARY KEY (tenant, session, name))"
    ),
)
"""A step for the transcripts' tables."""
_WHO = "tenant = ? AND session = ?"
_INSERT_CALL = (
    "INSERT INTO refold_transcript_calls VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_INSERT_EDIT = "INSERT INTO refold_transcript_edits VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_FIND_CALL = (
    "SELECT c.length, c.shown FROM refold_transcript_calls c JOIN refold_transcript_messages m "
    "ON m.tenant = c.tenant AND m.session = c.session AND m.place = c.length - 1 "
    "AND m.tip = c.tip WHERE c.tenant = ? AND c.session = ? AND c.at = ?"
)
_EDITS = f"SELECT name, body FROM refold_transcript_edits WHERE {_WHO}"  # noqa: S608
_DELETE = (
    f"DELETE FROM refold_transcript_calls WHERE {_WHO}",  # noqa: S608
    f"DELETE FROM refold_transcript_edits WHERE {_WHO}",  # noqa: S608
)
EDIT_HASH_LENGTH = 12
"""Characters of the hash that names an edit and its text."""


class PastCall(NamedTuple):
    """What was sent in a call."""

    length: int
    """Number of messages of its history."""
    edits: list[ShownEdit]
    """Edits that showed in it."""


def show_past_call(past: PastCall, view: View, stored: Mapping[str, Edit]) -> View:
    """Return *view*, of a session's whole history, as it was sent in a call. For a reverted edit,
    which is not *stored* (by id), our text is shown. It is left out if its message has several
    results, since it is unknown which one it replaced."""
    then = view.before(past.length)
    return then.apply_valid(stored.get(shown.id) or _restore(shown, then) for shown in past.edits)


def remake_local_edits(past: PastCall, view: View) -> list[Edit]:
    """Return a call's edits of local strategies that come out the same when they are made for
    *view*, of the session's whole history. A gateway makes them for each request and stores few."""
    ids = {shown.id for shown in past.edits}
    edits = list[Edit]()
    for by in dict.fromkeys(shown.by for shown in past.edits if is_by_local(shown.by)):
        with suppress(ValueError):  # a strategy with settings that are gone
            edits += make_local_edits(view, [parse_strategy(by)])
    return [edit for edit in edits if edit.id in ids]


def _restore(shown: ShownEdit, view: View) -> Edit:
    text, hidden = Text(shown.text), view.transcript.messages[shown.start : shown.stop]
    insert = Message("user", (text,))
    if len(hidden) == 1:
        parts = [part for part in hidden[0].parts if isinstance(part, ToolCall | ToolResult)]
        results = [replace(part, content=(text,)) for part in parts if isinstance(part, ToolResult)]
        words = results[:1] or (text,)
        insert = replace(hidden[0], parts=(*words, *(p for p in parts if isinstance(p, ToolCall))))
    return Edit(shown.start, shown.stop, (insert,), view.transcript.tips[shown.stop], shown.by)


class PastCalls(Tables):
    """The tables. Writes are part of the caller's transaction. Methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._named = EditTextCache()

    def write(self, connection: Any, who: tuple[str, str], call: BilledCall, view: View) -> None:
        """Store what was sent in *call*: in shadow, a history without edits."""
        placed = () if call.shadow else view.visible_edits
        shown = [self._describe(view, each) for each in placed]
        tips = view.transcript.tips
        names = "".join(name for name, _ in shown)
        self._execute_many(connection, _INSERT_EDIT, [(*who, *each) for each in shown])
        self._execute(connection, _INSERT_CALL, (*who, call.when, len(tips) - 1, tips[-1], names))

    def forget(self, connection: Any, who: tuple[str, str]) -> None:
        """Delete all of a session."""
        for statement in _DELETE:
            self._execute(connection, statement, who)

    def find(self, tenant: str, session: str, at: float) -> PastCall | None:
        """Return what was sent in the call at that time; None if it is not kept, or the history was
        rewritten since."""
        for length, names in self._read(_FIND_CALL, (tenant, session, at)):
            bodies = dict(self._read(_EDITS, (tenant, session)))
            starts = range(0, len(names), EDIT_HASH_LENGTH)
            hashes = [names[start : start + EDIT_HASH_LENGTH] for start in starts]
            if bodies.keys() >= set(hashes):  # else the transcript was deleted meanwhile
                return PastCall(length, [ShownEdit(*json.loads(bodies[name])) for name in hashes])
        return None

    def find_request(
        self, tenant: str, session: str, calls: Mapping[int, CallRow], number: int
    ) -> PastCall:
        """Return what was sent in the call with this *number* of *calls*. Raises `FormatError` if
        there is none or it is not kept."""
        if not 0 < number <= (last := max(calls, default=0)):
            raise FormatError(f"there is no request {number}: {last:,} were answered")
        call = calls.get(number)
        past = self.find(tenant, session, call.at) if call is not None else None
        if past is None:
            raise FormatError(f"what was sent in request {number} is not kept")
        return past

    def _describe(self, view: View, placed: VisibleEdit) -> tuple[str, str]:
        def describe() -> tuple[str, str]:
            body = json.dumps(describe_edit(view, placed))
            name = blake2b(body.encode("utf-8", "surrogatepass"), digest_size=EDIT_HASH_LENGTH // 2)
            return name.hexdigest(), body

        return self._named.get(placed.edit, describe)
