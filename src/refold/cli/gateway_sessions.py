"""Sessions that a gateway recorded: what commands work on where no client's file has them."""

import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from refold.cli.edited_session import EditedSession, read_only_compactor
from refold.codecs.detect import CODECS, open_payload
from refold.core.view import View
from refold.errors import FormatError
from refold.gateway.ledger.calls import CallLog, Filters
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.transcripts import RecordedTranscript
from refold.gateway.ledger.writer import open_ledger_database, open_transcripts
from refold.session_files import FoundSession, Session
from refold.stores import file_path, is_server, open_store
from refold.tokens.count import Counter

GATEWAY = "gateway"
"""What these sessions have as their client."""
MOST = 10_000
"""Sessions that are looked through, the latest first."""


def list_recorded(store: str) -> list[FoundSession]:
    """Return the sessions that a gateway with this store recorded, the latest first; none if there
    is no such store. Raises `StoreError`."""
    if not is_server(store) and not Path(f"{store}.ledger").exists():
        return []
    with closing(open_ledger_database(store)) as database:
        rows, *_ = CallLog(database).list_sessions(Filters(), "latest", MOST, 0)
    return [
        FoundSession(
            GATEWAY,
            Path(row.session),
            -1,
            datetime.fromtimestamp(row.latest, UTC),
            row.session,
            row.project,
        )
        for row in rows
    ]


def open_recorded(store: str, name: str, count: Counter, *, read_only: bool) -> EditedSession:
    """Return a session of a gateway with the edits that its store has. Raises `FormatError` if its
    messages were not recorded, `StoreError`."""
    with closing(open_ledger_database(store)) as database:
        listed = CallLog(database).find(name)
        latest = Sessions(database, time.time).find(name)
    recorded = _load_transcript(store, listed) if listed is not None else None
    if listed is None or recorded is None or latest is None:
        raise FormatError(
            f"{name}: the gateway has no messages of this session (record keeps them)"
        )
    codec = next(codec for codec in CODECS if listed.api == codec.NAME)
    entries = [codec.encode(message) for message in recorded.messages]
    session = Session(
        path=Path(name),
        client=GATEWAY,
        format=listed.api,  # type: ignore[arg-type]  # of the same names
        id=name,
        messages=entries,
        body={"model": listed.model} if listed.model else {},
        cwd=listed.project,
        started=datetime.fromtimestamp(listed.began, UTC),
        updated=datetime.fromtimestamp(listed.latest, UTC),
    )
    payload = open_payload(session.payload, codec)
    if payload.decode() != list(recorded.messages):
        raise FormatError(f"{name}: its messages were not recorded word for word")
    edited = EditedSession(
        name,
        session,
        session.payload,
        open_store(store, read_only=read_only),
        View.of(()),
        count,
        file_path(store),
        salt=latest.salt,
        tenant=listed.tenant,
    )
    return replace(edited, view=read_only_compactor(edited)(session.payload))


def _load_transcript(store: str, listed: ListedSession) -> RecordedTranscript | None:
    transcripts = open_transcripts(store, None, time.time)
    if transcripts is None:
        return None
    with closing(transcripts):
        return transcripts.load(listed.tenant, listed.session)
