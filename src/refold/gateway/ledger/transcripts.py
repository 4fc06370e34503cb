"""Transcripts, kept where `record` asks for it and for as long as it says: what was said, never a
header or a key.

Of each conversation the latest history is kept, message by message in canonical form
(docs/gateway-operations.md): no headers, no query, no system prompt, no tool definitions. It is deleted
when it has not grown for the stated time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from refold.core.view import View
from refold.edits import Edit
from refold.gateway.ledger.accounting import BilledCall
from refold.gateway.ledger.entry import clean_model_name
from refold.gateway.ledger.sql import DatabaseConnections
from refold.messages import Message
from refold.stores.edit_json import dump_edit, load_edit

_HEADS = """CREATE TABLE IF NOT EXISTS refold_heads (
    tenant TEXT NOT NULL, session TEXT NOT NULL, tip TEXT NOT NULL, length BIGINT NOT NULL, api TEXT NOT NULL,
    model TEXT NOT NULL, fixed BIGINT NOT NULL, began DOUBLE PRECISION NOT NULL, latest DOUBLE PRECISION NOT NULL,
    until DOUBLE PRECISION NOT NULL, size BIGINT NOT NULL, PRIMARY KEY (tenant, session))"""
_MESSAGES = """CREATE TABLE IF NOT EXISTS refold_said (
    tenant TEXT NOT NULL, session TEXT NOT NULL, place BIGINT NOT NULL, tip TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (tenant, session, place))"""
MIGRATIONS = (
    (_HEADS, "CREATE INDEX IF NOT EXISTS refold_heads_until ON refold_heads (until)", _MESSAGES),
)
"""Tables that SQLite and PostgreSQL both make. Step n brings them from version n to version n + 1.
"""

_HEAD = "SELECT tip, length, began, size FROM refold_heads WHERE tenant = ? AND session = ?"
_TIPS = "SELECT place, tip FROM refold_said WHERE tenant = ? AND session = ? ORDER BY place"
_CUT = "DELETE FROM refold_said WHERE tenant = ? AND session = ? AND place >= ?"
_SAY = "INSERT INTO refold_said (tenant, session, place, tip, body) VALUES (?, ?, ?, ?, ?)"
_SIZE = "SELECT COALESCE(SUM(LENGTH(body)), 0) FROM refold_said WHERE tenant = ? AND session = ? AND place < ?"
_NO_HEAD = "DELETE FROM refold_heads WHERE tenant = ? AND session = ?"
_NEW_HEAD = "INSERT INTO refold_heads (tenant, session, tip, length, api, model, fixed, began, latest, until, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_OLD = "SELECT tenant, session FROM refold_heads WHERE until <= ?"
_ALL = "SELECT COALESCE(SUM(size), 0) FROM refold_heads"
_OLDEST = "SELECT tenant, session, size FROM refold_heads ORDER BY latest LIMIT 100"
_OF = "SELECT session, api, model, length, began, latest, until, size FROM refold_heads WHERE tenant = ? ORDER BY latest DESC"
_ONE = "SELECT session, api, model, length, began, latest, until, size FROM refold_heads WHERE tenant = ? AND session = ?"
_SAID = "SELECT body FROM refold_said WHERE tenant = ? AND session = ? ORDER BY place"


class TranscriptInfo(NamedTuple):
    """One transcript that is kept, without its content. Times in seconds since 1970."""

    session: str
    api: str
    model: str
    length: int
    """Messages."""
    began: float
    latest: float
    until: float
    """When it is deleted unless it grows."""
    size: int
    """Characters."""


@dataclass(frozen=True, slots=True)
class RecordedTranscript:
    """A transcript that was kept."""

    head: TranscriptInfo
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """How much is kept. A conversation that is larger is not kept at all; of more than *total* the
    oldest goes."""

    session: int = 32_000_000
    """Characters of one conversation."""
    total: int = 1_000_000_000
    """Characters of all of them."""
    every: float = 3_600.0
    """Seconds between two looks for what is to be deleted, at most; a tenth of the retention where
    that is less."""


class Transcripts:
    """Transcripts in a database. *seconds* is how long each is kept after it grew last; None keeps
    no more, and still deletes what was kept before. *mark* is what the database's driver writes for
    a value, *scrub* what it is told before something is deleted and afterwards, so that nothing is
    left of it."""

    def __init__(
        self,
        link: DatabaseConnections,
        seconds: float | None,
        clock: Callable[[], float],
        bounds: RetentionLimits | None = None,
        *,
        mark: str = "?",
        scrub: tuple[str, str] = ("", ""),
    ) -> None:
        self._link, self._seconds, self._clock, self._mark, self._scrub = (
            link,
            seconds,
            clock,
            mark,
            scrub,
        )
        self._bounds = bounds or RetentionLimits()
        self._due = 0.0

    def record(self, call: BilledCall) -> None:
        """Keep the history of *call* without edits. Raises `StoreError`."""
        if self._seconds is None or call.view is None or not call.session:
            return
        who, view = (call.tenant, call.session), call.view
        tips = view.transcript.tips
        with self._writing() as connection:
            head = self._rows(connection, _HEAD, who)
            unchanged = self._count_unchanged(connection, who, tips, head)
            grown = bool(head) and head[0][1] == unchanged
            size = (
                head[0][3] if grown else int(self._rows(connection, _SIZE, (*who, unchanged))[0][0])
            )
            self._execute(connection, _CUT, (*who, unchanged))
            messages = view.transcript.messages
            rows = [
                (*who, at, tips[at + 1], _dump_message(messages[at]))
                for at in range(unchanged, len(tips) - 1)
            ]
            connection.cursor().executemany(self._sql(_SAY), rows)
            size += sum(len(row[-1]) for row in rows)
            self._execute(connection, _NO_HEAD, who)
            if size > self._bounds.session:
                self._execute(connection, _CUT, (*who, 0))
                return
            began = head[0][2] if head else call.when
            self._execute(
                connection,
                _NEW_HEAD,
                (*who, *_info_row(call, view), began, call.when, call.when + self._seconds, size),
            )

    def purge(self) -> int:
        """Delete what has been kept for long enough, if it is time to look; how many that were.
        Raises `StoreError`."""
        now = self._clock()
        if now < self._due:
            return 0
        tenth = self._bounds.every if self._seconds is None else self._seconds / 10
        with self._writing() as connection:
            gone = self._rows(connection, _OLD, (now,))
            gone += self._find_excess(connection, {tuple(who) for who in gone})
            for who in gone:
                self._execute(connection, _CUT, (*who, 0))
                self._execute(connection, _NO_HEAD, who)
        if gone:
            self._execute_pragma(self._scrub[1])
        self._due = now + min(self._bounds.every, tenth)
        return len(gone)

    def list_transcripts(self, tenant: str) -> Sequence[TranscriptInfo]:
        """What is kept of *tenant*, the latest first. Raises `StoreError`."""
        with self._link.connection("read") as connection:
            rows = self._rows(connection, _OF, (tenant,))
        return [
            head for head in (TranscriptInfo(*row) for row in rows) if head.until > self._clock()
        ]

    def load(self, tenant: str, session: str) -> RecordedTranscript | None:
        """The transcript of a session; None where nothing is kept of it, or not of this tenant.
        Raises `StoreError`."""
        with self._link.connection("read") as connection:
            heads = self._rows(connection, _ONE, (tenant, session))
            bodies = self._rows(connection, _SAID, (tenant, session)) if heads else []
        if not heads or TranscriptInfo(*heads[0]).until <= self._clock():
            return None
        return RecordedTranscript(
            TranscriptInfo(*heads[0]), tuple(_load_message(body) for (body,) in bodies)
        )

    def is_recorded(self, tenant: str, session: str) -> bool:
        """Is there a transcript of this session, and of this tenant? Raises `StoreError`."""
        with self._link.connection("read") as connection:
            heads = self._rows(connection, _ONE, (tenant, session))
        return any(TranscriptInfo(*head).until > self._clock() for head in heads)

    def close(self) -> None:
        """Let go of the database."""
        self._link.close()

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        self._execute_pragma(self._scrub[0])
        with self._link.transaction() as connection:
            yield connection

    def _execute_pragma(self, text: str) -> None:
        if text:
            with self._link.connection("write") as connection:
                connection.execute(text).fetchall()

    def _count_unchanged(
        self, connection: Any, who: tuple[str, str], tips: Sequence[str], head: Sequence[Any]
    ) -> int:
        """How many messages of this history are kept already."""
        if head and head[0][1] < len(tips) and tips[head[0][1]] == head[0][0]:
            return int(head[0][1])
        same = 0
        for place, tip in self._rows(connection, _TIPS, who):
            if place != same or place + 1 >= len(tips) or tips[place + 1] != tip:
                break
            same += 1
        return same

    def _find_excess(self, connection: Any, gone: set[tuple[Any, ...]]) -> list[Any]:
        """The oldest transcripts that are too many."""
        over = int(self._rows(connection, _ALL, ())[0][0]) - self._bounds.total
        excess = []
        for tenant, session, size in self._rows(connection, _OLDEST, ()) if over > 0 else ():
            if over > 0 and (tenant, session) not in gone:
                excess.append((tenant, session))
                over -= size
        return excess

    def _sql(self, text: str) -> str:
        return text.replace("?", self._mark)

    def _execute(self, connection: Any, text: str, values: Sequence[Any]) -> None:
        connection.cursor().execute(self._sql(text), tuple(values))

    def _rows(self, connection: Any, text: str, values: Sequence[Any]) -> list[Any]:
        return list(connection.cursor().execute(self._sql(text), tuple(values)).fetchall())


def _info_row(call: BilledCall, view: View) -> tuple[Any, ...]:
    tips = view.transcript.tips
    return (
        tips[-1],
        len(tips) - 1,
        call.incoming.api,
        clean_model_name(call.model),
        view.profile.fixed_tokens,
    )


def _dump_message(message: Message) -> str:
    """One message, in the form in which edits are kept (docs/stores.md)."""
    return dump_edit(Edit(0, 1, (message,), "", "said"))


def _load_message(body: str) -> Message:
    return load_edit(body).insert[0]
