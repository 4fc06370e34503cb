"""Transcripts, kept if and as long as `record` says: messages, no headers, no keys.

The latest history of each conversation is kept, message by message in canonical form
(docs/gateway-operations.md), until it has not grown for that time. URL queries, system prompts and
tool definitions are not kept."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, NamedTuple

from refold.edits import Edit
from refold.gateway.ledger.accounting import BilledCall
from refold.gateway.ledger.calls import PAST_CALLS_MIGRATION, PastCalls
from refold.gateway.ledger.entry import clean_name
from refold.gateway.ledger.rows import MessageBrief, describe_message, find_title
from refold.gateway.ledger.sql import Tables, narrowing_pattern
from refold.messages import Message
from refold.stores.edit_json import dump_edit, load_insert
from refold.stores.sql import Database
from refold.text.plain import readable_text

_INFO = "session, api, model, length, began, latest, until, size"
_WHO = "tenant = ? AND session = ?"
MIGRATIONS = (
    (
        (
            "CREATE TABLE IF NOT EXISTS refold_heads (tenant TEXT NOT NULL, session TEXT NOT NULL, "
            "tip TEXT NOT NULL, length BIGINT NOT NULL, api TEXT NOT NULL, model TEXT NOT NULL, "
            "fixed BIGINT NOT NULL, began DOUBLE PRECISION NOT NULL, "
            "latest DOUBLE PRECISION NOT NULL, until DOUBLE PRECISION NOT NULL, "
            "size BIGINT NOT NULL, PRIMARY KEY (tenant, session))"
        ),
        "CREATE INDEX IF NOT EXISTS refold_heads_until ON refold_heads (until)",
        (
            "CREATE TABLE IF NOT EXISTS refold_said (tenant TEXT NOT NULL, session TEXT NOT NULL, "
            "place BIGINT NOT NULL, tip TEXT NOT NULL, body TEXT NOT NULL, "
            "PRIMARY KEY (tenant, session, place))"
        ),
    ),
    (
        "ALTER TABLE refold_heads RENAME TO refold_transcripts",
        "ALTER TABLE refold_said RENAME TO refold_transcript_messages",
    ),
    (
        "ALTER TABLE refold_transcripts ADD COLUMN title TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE refold_transcript_messages ADD COLUMN tokens BIGINT NOT NULL DEFAULT -1",
        "ALTER TABLE refold_transcript_messages ADD COLUMN brief TEXT NOT NULL DEFAULT ''",
    ),
    PAST_CALLS_MIGRATION,
)
"""Step n brings the tables from version n to n + 1."""

_CLAIM = (
    "INSERT INTO refold_transcripts (tenant, session, tip, length, api, model, fixed, began, "
    "latest, until, size, title) VALUES (?, ?, '', 0, '', '', 0, ?, ?, ?, 0, '') "
    "ON CONFLICT (tenant, session) DO UPDATE SET until = refold_transcripts.until"
)
"""Inserts a transcript's row, or locks it against other writers."""
_STATE = f"SELECT tip, length, latest, size, title FROM refold_transcripts WHERE {_WHO}"  # noqa: S608
_TIPS = f"SELECT place, tip FROM refold_transcript_messages WHERE {_WHO} ORDER BY place"  # noqa: S608
_DELETE_FROM = f"DELETE FROM refold_transcript_messages WHERE {_WHO} AND place >= ?"  # noqa: S608
_INSERT_MESSAGE = (
    "INSERT INTO refold_transcript_messages (tenant, session, place, tip, tokens, brief, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_SIZE = (
    "SELECT COALESCE(SUM(LENGTH(body)), 0) FROM refold_transcript_messages "  # noqa: S608
    f"WHERE {_WHO} AND place < ?"
)
_DELETE = f"DELETE FROM refold_transcripts WHERE {_WHO}"  # noqa: S608
_UPDATE = (
    "UPDATE refold_transcripts SET tip = ?, length = ?, api = ?, model = ?, fixed = ?, "  # noqa: S608
    f"latest = ?, until = ?, size = ?, title = ? WHERE {_WHO}"
)
_EXPIRED = "SELECT tenant, session FROM refold_transcripts WHERE until <= ?"
_TOTAL = "SELECT COALESCE(SUM(size), 0) FROM refold_transcripts"
_OLDEST = "SELECT tenant, session, size FROM refold_transcripts ORDER BY latest LIMIT 100"
_FIND = f"SELECT {_INFO} FROM refold_transcripts WHERE {_WHO}"  # noqa: S608
_TITLES = "SELECT session, title, until FROM refold_transcripts WHERE session IN ({})"
_CANDIDATES = (
    "SELECT tenant, session, title FROM refold_transcripts AS t WHERE until > ? AND ("
    "LOWER(title) LIKE LOWER(?) ESCAPE '!' OR EXISTS (SELECT 1 FROM refold_transcript_messages AS m"
    " WHERE m.tenant = t.tenant AND m.session = t.session AND LOWER(m.body) LIKE LOWER(?)"
    " ESCAPE '!')) ORDER BY latest DESC"
)
_BODIES = f"SELECT body FROM refold_transcript_messages WHERE {_WHO}"  # noqa: S608
_BRIEFS = (
    "SELECT place, tokens, brief, CASE WHEN brief = '' THEN body ELSE '' END "  # noqa: S608
    f"FROM refold_transcript_messages WHERE {_WHO} AND place >= ? AND place < ? ORDER BY place"
)
_BODY = f"SELECT body FROM refold_transcript_messages WHERE {_WHO} AND place = ?"  # noqa: S608
_MESSAGES = f"SELECT tip, body FROM refold_transcript_messages WHERE {_WHO} ORDER BY place"  # noqa: S608


class TranscriptInfo(NamedTuple):
    """A transcript without its content. Times in seconds since 1970."""

    session: str
    api: str
    model: str
    length: int
    """Number of messages."""
    began: float
    latest: float
    until: float
    """Time of its deletion unless it grows."""
    size: int
    """In characters."""


@dataclass(frozen=True, slots=True)
class RecordedTranscript:
    """A recorded transcript."""

    info: TranscriptInfo
    messages: tuple[Message, ...]
    tips: tuple[str, ...]
    """The tip after each message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """Limits of size. A larger transcript is not kept; above *total* the oldest are deleted."""

    session: int = 32_000_000
    """Characters of one conversation."""
    total: int = 1_000_000_000
    """Characters of all."""
    every: float = 3_600.0
    """Seconds between two purges; a tenth of the retention if less."""


class Transcripts(Tables):
    """Transcripts in a database.

    Each is kept for *seconds* after it last grew; with None no more are kept. *scrub* are
    statements before and after deletions, so that nothing is left of them."""

    def __init__(
        self,
        database: Database,
        seconds: float | None,
        clock: Callable[[], float],
        limits: RetentionLimits | None = None,
        *,
        scrub: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(database)
        self.past_calls = PastCalls(database)
        self._seconds, self._clock, self._scrub = seconds, clock, scrub
        self._limits = limits or RetentionLimits()
        self._purged_at = float("-inf")

    def record(self, call: BilledCall) -> None:
        """Keep the history of *call*, and what was sent of it, if it is of a session and
        transcripts are kept. One that is too large is deleted. Raises `StoreError`."""
        if self._seconds is None or call.view is None or not call.session:
            return
        who, view = (call.tenant, call.session), call.view
        tips, messages = view.transcript.tips, view.transcript.messages
        until = call.when + self._seconds
        with self._writing() as connection:
            self._execute(connection, _CLAIM, (*who, call.when, call.when, until))
            ((tip, length, latest, size, title),) = self._rows(connection, _STATE, who)
            unchanged = self._count_unchanged(connection, who, tips, length, tip)
            if latest > call.when and unchanged < length:  # a continued history is newer
                self.past_calls.write(connection, who, call, view)
                return
            if unchanged != length:
                size = int(self._rows(connection, _SIZE, (*who, unchanged))[0][0])
            self._execute(connection, _DELETE_FROM, (*who, unchanged))
            rows = [
                (*who, at, tips[at + 1], view.base.tokens(at, at + 1), *_dump_message(messages[at]))
                for at in range(unchanged, len(messages))
            ]
            self._execute_many(connection, _INSERT_MESSAGE, rows)
            size += sum(len(row[-1]) for row in rows)
            if size > self._limits.session:
                self._forget(connection, who)
                return
            self.past_calls.write(connection, who, call, view)
            model, fixed = clean_name(call.model), view.profile.fixed_tokens
            latest, title = max(latest, call.when), title or find_title(messages)
            about = (tips[-1], len(messages), call.incoming.api, model, fixed, latest, until)
            self._execute(connection, _UPDATE, (*about, size, title, *who))

    def purge(self) -> int:
        """Delete expired and excess ones, if it is time; return the number. Raises `StoreError`."""
        now, most = self._clock(), self._limits.every
        pause = most if self._seconds is None else min(most, self._seconds / 10)
        if 0 <= now - self._purged_at < pause:  # a clock may be set back
            return 0
        with self._writing() as connection:
            expired = [tuple(who) for who in self._rows(connection, _EXPIRED, (now,))]
            for who in expired:
                self._forget(connection, who)
            excess = self._find_excess(connection)
            for who in excess:
                self._forget(connection, who)
        if expired or excess:
            self._run_pragma(self._scrub[1])
        self._purged_at = now
        return len(expired) + len(excess)

    def load(self, tenant: str, session: str) -> RecordedTranscript | None:
        """Return the transcript of a session; None if the tenant has none. Raises `StoreError`."""
        if (info := self.info(tenant, session)) is None:
            return None
        rows = self._read(_MESSAGES, (tenant, session))
        messages = tuple(load_insert(body)[0] for _, body in rows)
        return RecordedTranscript(info, messages, tuple(tip for tip, _ in rows))

    def is_recorded(self, tenant: str, session: str) -> bool:
        """Return whether this session of this tenant has a transcript. Raises `StoreError`."""
        return self.info(tenant, session) is not None

    def info(self, tenant: str, session: str) -> TranscriptInfo | None:
        """Return a transcript's facts without its content, if any. Raises `StoreError`."""
        infos = (TranscriptInfo(*row) for row in self._read(_FIND, (tenant, session)))
        return next((info for info in infos if info.until > self._clock()), None)

    def titles(self, sessions: Iterable[str]) -> dict[str, str]:
        """Return the titles of recorded *sessions*. Raises `StoreError`."""
        rows = self._read_by_name(_TITLES, sessions)
        return {session: title for session, title, until in rows if until > self._clock()}

    def find_sessions(self, words: str, most: int) -> list[str]:
        """Return the latest *most* sessions with *words* in the title or in what a message says, in
        any case. Scans all texts; the database only narrows. Raises `StoreError`."""
        wanted, pattern = words.lower(), narrowing_pattern(words)

        def list_texts(tenant: str, session: str, title: str) -> Iterator[str]:
            yield title
            for (body,) in self._read(_BODIES, (tenant, session)):
                yield readable_text(load_insert(body)[0])

        rows = self._read(_CANDIDATES, (self._clock(), pattern, pattern))
        matches = (row for row in rows if any(wanted in text.lower() for text in list_texts(*row)))
        return [session for _, session, _ in islice(matches, most)]

    def briefs(
        self, tenant: str, session: str, start: int = 0, stop: int = 2**40
    ) -> list[MessageBrief]:
        """Return the timeline rows of `messages[start:stop]`. Raises `StoreError`."""
        rows = self._read(_BRIEFS, (tenant, session, start, stop))
        return [
            MessageBrief(*json.loads(brief))._replace(place=place, tokens=tokens)
            if brief
            else describe_message(load_insert(body)[0])._replace(place=place)
            for place, tokens, brief, body in rows
        ]

    def load_message(self, tenant: str, session: str, place: int) -> Message | None:
        """Return one message; None if it is not kept. Raises `StoreError`."""
        rows = self._read(_BODY, (tenant, session, place))
        return load_insert(rows[0][0])[0] if rows else None

    def _forget(self, connection: Any, who: tuple[str, str]) -> None:
        self._execute(connection, _DELETE, who)  # first, since it is locked first
        self._execute(connection, _DELETE_FROM, (*who, 0))
        self.past_calls.forget(connection, who)

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        self._run_pragma(self._scrub[0])
        with self._database.transaction(edits=False) as connection:
            yield connection

    def _run_pragma(self, text: str) -> None:
        if text:
            with self._database.connection("write") as connection:
                connection.execute(text).fetchall()

    def _count_unchanged(
        self, connection: Any, who: tuple[str, str], tips: Sequence[str], length: int, last: str
    ) -> int:
        """Return how many messages this history, of *tips*, shares with the kept one, which has
        *length* messages and the tip *last*."""
        if length < len(tips) and tips[length] == last:
            return length
        same = 0
        for place, tip in self._rows(connection, _TIPS, who):
            if place != same or place + 1 >= len(tips) or tips[place + 1] != tip:
                break
            same += 1
        return same

    def _find_excess(self, connection: Any) -> list[tuple[str, str]]:
        """Return the oldest transcripts that exceed the limit of all, at most 100."""
        over = int(self._rows(connection, _TOTAL)[0][0]) - self._limits.total
        rows = self._rows(connection, _OLDEST) if over > 0 else []
        freed = accumulate((size for *_, size in rows), initial=0)
        return [(row[0], row[1]) for row, size in zip(rows, freed, strict=False) if size < over]


def _dump_message(message: Message) -> tuple[str, str]:
    return json.dumps(describe_message(message)), dump_edit(Edit(0, 1, (message,), "", "recorded"))
