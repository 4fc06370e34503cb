"""What each call of a recorded session was sent: how much of the history, and which edits showed.

It is kept with the transcript, and goes with it.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

from refold.compactor.conversations import put_latest
from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.edits import Edit
from refold.errors import FormatError
from refold.gateway.ledger.accounting import BilledCall
from refold.gateway.ledger.sessions import ShownEdit, describe_edit
from refold.gateway.ledger.sql import Tables
from refold.messages import Message, Text, ToolCall, ToolResult
from refold.stores.sql import Database

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
"""A step for the tables of transcripts."""
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
NAME = 12
"""Characters that name an edit with its words."""
MAX_NAMED = 10_000
"""Edits whose words are known; of more the oldest are read anew."""


class PastCall(NamedTuple):
    """What a call was sent."""

    length: int
    """Messages of its history."""
    edits: list[ShownEdit]
    """As they showed in it."""


def show_past_call(past: PastCall, view: View, stored: Mapping[str, Edit]) -> View:
    """Return *view*, of a session's whole history, as a call was sent it. Of an edit that is not
    *stored* (by id), a local one or one that was taken back since, our own words are shown; left
    out is one of a message with several results, of which it is not known which is meant."""
    then = view.before(past.length)
    return then.apply_valid(stored.get(shown.id) or _restore(shown, then) for shown in past.edits)


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
    """The tables. What is written is part of the caller's transaction. Methods raise
    `StoreError`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._named = OrderedDict[str, tuple[Edit, str, str]]()

    def write(self, connection: Any, who: tuple[str, str], call: BilledCall, view: View) -> None:
        """Keep what *call* was sent."""
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
        """Return what the call of that time was sent; None if it is not kept, or the history was
        rewritten since."""
        for length, names in self._read(_FIND_CALL, (tenant, session, at)):
            bodies = dict(self._read(_EDITS, (tenant, session)))
            starts = range(0, len(names), NAME)
            edits = [ShownEdit(*json.loads(bodies[names[at : at + NAME]])) for at in starts]
            return PastCall(length, edits)
        return None

    def find_request(
        self, tenant: str, session: str, times: Sequence[float], number: int
    ) -> PastCall:
        """Return what the call of this *number*, from 1 on, was sent; *times* are those of all.
        Raises `FormatError` if there is none, or it is not kept."""
        if not 0 < number <= len(times):
            raise FormatError(f"there is no request {number}: {len(times):,} were answered")
        past = self.find(tenant, session, times[number - 1])
        if past is None:
            raise FormatError(f"what request {number} was sent is not kept")
        return past

    def _describe(self, view: View, placed: VisibleEdit) -> tuple[str, str]:
        """Return the name and the JSON of an edit. Its words are read once."""
        named = self._named.get(placed.edit.id)
        if named is None or named[0] != placed.edit:
            body = json.dumps(describe_edit(view, placed))
            name = blake2b(body.encode("utf-8", "surrogatepass"), digest_size=NAME // 2)
            named = (placed.edit, name.hexdigest(), body)
            put_latest(self._named, placed.edit.id, named, MAX_NAMED)
        return named[1:]
