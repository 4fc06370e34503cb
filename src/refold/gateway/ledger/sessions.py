"""The latest request of each session, in a table that all processes of a gateway share.

It holds no messages: only figures, the tips of the history, and the text that each visible edit
shows."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from typing import NamedTuple, cast

from refold.compactor.conversations import put_lru
from refold.compactor.hooks import grade_edit
from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.edits import Edit
from refold.errors import StoreError
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.ledger.entry import clean_name
from refold.gateway.ledger.sql import EditTextCache, Tables
from refold.messages import Message
from refold.stores.sql import Database
from refold.stores.store import Grade
from refold.text.plain import readable_text

KEPT_SECONDS = 7 * 86_400.0
"""Seconds that a session is kept after its latest request. Its booked calls stay."""
MAX_WAITING = 1_000
"""Maximum number of sessions that wait for a failing database. The oldest are dropped."""
TIP_LENGTH = 32


class ShownEdit(NamedTuple):
    """A visible edit of a session."""

    id: str
    by: str
    start: int
    stop: int
    tokens_before: int
    tokens_after: int
    grade: Grade
    text: str
    """Our text that is sent instead."""

    def calibrate(self, ratio: float) -> "ShownEdit":
        """Return it with expected tokens: *ratio* times its estimated ones."""
        before, after = round(self.tokens_before * ratio), round(self.tokens_after * ratio)
        return self._replace(tokens_before=before, tokens_after=after)


class SessionRow(NamedTuple):
    """A session and its latest request, as in the table."""

    session: str
    last_seen: float
    """Seconds since 1970."""
    changed: float
    """Time at which the request was sent or its edits were changed by hand, in seconds since
    1970."""
    tenant: str
    family: str
    salt: str
    """Of the tips."""
    api: str
    model: str
    upstream: str
    messages: int
    fixed_tokens: int
    """Estimated tokens of system prompt and tools."""
    tokens_before: int
    """Estimated, as `tokens_after` is."""
    tokens_after: int
    edits: int
    """Number of visible edits."""
    ratio: float
    """Factor from estimated to expected tokens, of the latest request
    (docs/decisions/0033-one-unit.md)."""
    joined_tips: str = ""
    shown_edits: str = "[]"
    """A JSON list of `ShownEdit`."""

    @property
    def tips(self) -> list[str]:
        """Tips of the latest history."""
        starts = range(0, len(self.joined_tips), TIP_LENGTH)
        return [self.joined_tips[start : start + TIP_LENGTH] for start in starts]

    def tip_at(self, length: int) -> str:
        """Return the tip of the first *length* messages; empty if the history is shorter."""
        return self.joined_tips[length * TIP_LENGTH : (length + 1) * TIP_LENGTH]

    @property
    def original(self) -> int:
        """Expected tokens of the latest request without any edit."""
        return round(self.tokens_before * self.ratio)

    @property
    def sent(self) -> int:
        """Expected tokens of the latest request with its visible edits."""
        return round(self.tokens_after * self.ratio)

    def list_edits(self) -> list[ShownEdit]:
        """Return the visible edits, in expected tokens."""
        edits = (ShownEdit(*fields) for fields in json.loads(self.shown_edits))
        return [edit.calibrate(self.ratio) for edit in edits]


_DETAILS = ("joined_tips", "shown_edits")
_COLUMNS = ", ".join(SessionRow._fields)
_FIGURES = ", ".join(SessionRow._fields[: -len(_DETAILS)])
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in SessionRow._fields[1:])
MIGRATION = (
    (
        "CREATE TABLE IF NOT EXISTS refold_sessions (session TEXT NOT NULL PRIMARY KEY, "
        "last_seen DOUBLE PRECISION NOT NULL, changed DOUBLE PRECISION NOT NULL, "
        "tenant TEXT NOT NULL, family TEXT NOT NULL, "
        "salt TEXT NOT NULL, api TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL, "
        "messages BIGINT NOT NULL, fixed_tokens BIGINT NOT NULL, tokens_before BIGINT NOT NULL, "
        "tokens_after BIGINT NOT NULL, edits BIGINT NOT NULL, joined_tips TEXT NOT NULL, "
        "shown_edits TEXT NOT NULL)"
    ),
    "CREATE INDEX IF NOT EXISTS refold_sessions_by_time ON refold_sessions (last_seen)",
)
"""Step for the ledger's tables (`refold.gateway.ledger.sql.MIGRATIONS`)."""
RATIO_MIGRATION = (
    "ALTER TABLE refold_sessions ADD COLUMN ratio DOUBLE PRECISION NOT NULL DEFAULT 1",
)
_SAVE = (
    f"INSERT INTO refold_sessions ({_COLUMNS}) "  # noqa: S608 - names of ours
    f"VALUES ({', '.join('?' * len(SessionRow._fields))}) ON CONFLICT (session) "
    f"DO UPDATE SET {_REPLACED} WHERE CASE excluded.joined_tips WHEN refold_sessions.joined_tips "
    "THEN excluded.changed >= refold_sessions.changed "
    "ELSE excluded.last_seen >= refold_sessions.last_seen OR SUBSTR(excluded.joined_tips, 1, "
    "LENGTH(refold_sessions.joined_tips)) = refold_sessions.joined_tips END"
)
"""A late write replaces neither a newer request nor newer edits. A history that continues the
stored one is newer, whatever another machine's clock says."""
_FIND = f"SELECT {_COLUMNS} FROM refold_sessions WHERE session = ?"  # noqa: S608 - names of ours
_READ = f"SELECT {_FIGURES} FROM refold_sessions WHERE session IN ({{}})"  # noqa: S608 - names of columns
_REMEMBERED = "SELECT session, last_seen FROM refold_sessions"
_ALL = (
    "SELECT session, COALESCE(MAX(last_seen), MAX(hour)) AS seen FROM "
    "(SELECT session, last_seen, NULL AS hour FROM refold_sessions UNION ALL "
    "SELECT session, NULL, MAX(hour) FROM refold_calls WHERE session <> '' GROUP BY session) "
    "AS every GROUP BY session"
)
"""Sessions of the table, and those that are only booked, with the hour of their latest call."""
_PAGE = "SELECT session, seen FROM ({}) AS found ORDER BY seen DESC, session LIMIT ? OFFSET ?"
_COUNT = "SELECT COUNT(*) FROM ({}) AS found"
_PURGE = "DELETE FROM refold_sessions WHERE last_seen < ?"


class Sessions(Tables):
    """The table. Requests never wait for it: `note` only queues what `save` writes."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        super().__init__(database)
        self._clock, self._lock, self._saving = clock, Lock(), Lock()
        self._waiting = OrderedDict[str, Conversation | SessionRow]()
        """What could not be written waits as a row: a conversation may hold megabytes."""
        self._texts = EditTextCache()

    def note(self, conversation: Conversation) -> None:
        """Queue a *conversation* with a new latest request or view."""
        with self._lock:
            put_lru(self._waiting, conversation.name, conversation, MAX_WAITING)

    def save(self) -> None:
        """Write what is queued. Raises `StoreError`; then it stays queued."""
        with self._saving:
            with self._lock:
                waiting, self._waiting = self._waiting, OrderedDict()
            rows = [row for item in waiting.values() if (row := self._row(item))]
            if not rows:
                return
            try:
                with self._database.transaction(edits=False) as connection:
                    self._execute_many(connection, _SAVE, sorted(rows))
            except StoreError:
                with self._lock:
                    newer, self._waiting = self._waiting, OrderedDict((row[0], row) for row in rows)
                    self._waiting.update(newer)
                raise

    def purge(self) -> None:
        """Delete sessions not seen for `KEPT_SECONDS`. Raises `StoreError`."""
        with self._database.transaction(edits=False) as connection:
            self._execute(connection, _PURGE, (self._clock() - KEPT_SECONDS,))

    def find(self, session: str) -> SessionRow | None:
        """Return the session of this name; None if unknown. Raises `StoreError`."""
        self._save_if_possible()
        return next((SessionRow(*row) for row in self._read(_FIND, (session,))), None)

    def list_latest(
        self, limit: int, offset: int, *, is_booked_enough: bool
    ) -> tuple[list[tuple[str, float]], int]:
        """Return a page of names with the times they were last seen, the latest first, and the
        total. *is_booked_enough* includes sessions that are only booked. Scans an index over all.
        Raises `StoreError`."""
        self._save_if_possible()
        every = _ALL if is_booked_enough else _REMEMBERED.replace("last_seen", "last_seen AS seen")
        page = self._read(_PAGE.format(every), (limit, offset))
        ((total,),) = self._read(_COUNT.format(every))
        return [(name, float(seen)) for name, seen in page], int(total)

    def read(self, sessions: Iterable[str]) -> dict[str, SessionRow]:
        """Return the known *sessions* by name, without tips and edits. Raises `StoreError`."""
        return {row[0]: SessionRow(*row) for row in self._read_by_name(_READ, sessions)}

    def _save_if_possible(self) -> None:
        """Write what is queued. A full or locked database is read as it is."""
        with suppress(StoreError):
            self.save()

    def _row(self, conversation: Conversation | SessionRow) -> SessionRow | None:
        if isinstance(conversation, SessionRow):
            return conversation
        if (latest := conversation.latest) is None:
            return None
        view = latest.view
        fixed_tokens = view.profile.fixed_tokens + latest.unseen_tokens
        shown = [self._describe_edit(view, placed) for placed in view.visible_edits]
        return SessionRow(
            session=conversation.name,
            last_seen=latest.sent_at,
            changed=max(latest.sent_at, latest.edited_at),
            tenant=conversation.tenant,
            family=conversation.family,
            salt=conversation.compactor.settings.salt,
            api=conversation.api,
            model=clean_name(latest.model),
            upstream=latest.upstream,
            messages=len(view.transcript),
            fixed_tokens=fixed_tokens,
            tokens_before=fixed_tokens + view.base.token_sums[-1],
            tokens_after=fixed_tokens + view.estimate,
            edits=len(shown),
            ratio=latest.ratio,
            joined_tips="".join(view.transcript.tips),
            shown_edits=json.dumps(shown),
        )

    def _describe_edit(self, view: View, placed: VisibleEdit) -> ShownEdit:
        """Describe an edit. Its text is cached: only an amended summary changes."""

        def describe() -> tuple[str, str]:
            shown = describe_edit(view, placed)
            return shown.grade, shown.text

        grade, text = self._texts.get(placed.edit, describe)
        return _make_shown_edit(view, placed, cast("Grade", grade), text)


def describe_edit(view: View, placed: VisibleEdit) -> ShownEdit:
    """Return an edit that shows in *view*, with estimated tokens and our text."""
    grade = grade_edit(placed.edit, view.transcript.messages)
    return _make_shown_edit(view, placed, grade, text_inserted_by(view, placed.edit))


def _make_shown_edit(view: View, placed: VisibleEdit, grade: Grade, text: str) -> ShownEdit:
    edit, before = placed.edit, view.base.tokens(placed.edit.start, placed.edit.stop)
    return ShownEdit(edit.id, edit.by, edit.start, edit.stop, before, placed.tokens, grade, text)


def text_inserted_by(view: View, edit: Edit) -> str:
    """Return our own text that *edit* shows. Words of the conversation that still show are left
    out: no answer may quote them."""
    hidden = view.transcript.messages[edit.start : edit.stop]
    ours = [message for message in edit.insert if message not in hidden]
    if len(hidden) == len(edit.insert):
        return _new_lines(ours, hidden)
    return "\n\n".join(map(readable_text, ours))


def _new_lines(messages: Iterable[Message], before: Iterable[Message]) -> str:
    old = {line for message in before for line in readable_text(message).splitlines()}
    return "\n".join(
        line
        for message in messages
        for line in readable_text(message).splitlines()
        if line not in old
    )
