"""The operations that change nothing: `sessions`, `totals`, `history`, `words` and `recall`."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec import UNSET, Struct

from refold.core.view import View
from refold.errors import StoreError
from refold.gateway.api.answers import (
    HistoryAnswer,
    Hit,
    RecallAnswer,
    Session,
    SessionsAnswer,
    TotalsAnswer,
    WordsAnswer,
)
from refold.gateway.api.arguments import (
    HistoryArguments,
    RecallArguments,
    SessionsArguments,
    TotalsArguments,
    WordsArguments,
)
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.lookup import find_edit, find_remembered, list_remembered, locate, show
from refold.gateway.api.serialize import (
    describe_session,
    session_edits,
    text_hidden_by,
    text_inserted_by,
    with_bookings,
)
from refold.gateway.ledger.report import ReportLine, line_as_json
from refold.retrieval import recall as search
from refold.stores.store import LedgerRow, as_ledger_store, rows_about

T = TypeVar("T")
HISTORY_NEEDED = "No transcript of this session is recorded: send it as `request`."


# --- sessions ---------------------------------------------------------------------------------


def sessions(context: ApiContext, asked: SessionsArguments) -> SessionsAnswer:
    """Return the conversations that this gateway has seen, the latest first."""
    if asked.scope == "all":
        return with_booked_sessions(context, list_remembered_sessions(context), asked)
    latest_first = sorted(
        list_remembered(context), key=lambda remembered: remembered.latest.sent_at, reverse=True
    )
    page = _page(latest_first, asked)
    booked = context.booked(remembered.conversation.name for remembered in page)
    return SessionsAnswer(
        [describe_session(*remembered, booked) for remembered in page], len(latest_first)
    )


def list_remembered_sessions(context: ApiContext) -> list[Session]:
    """Return the sessions of which this process remembers the latest request, without what is
    booked of them."""
    return [describe_session(*remembered, None) for remembered in list_remembered(context)]


def with_booked_sessions(
    context: ApiContext, remembered: Sequence[Session], asked: SessionsArguments
) -> SessionsAnswer:
    """Return a page of those that are *remembered*, by whichever process, and of those that are
    only booked, the latest first. The ledger is the same whoever is asked, and after every restart
    (finding F16)."""
    listed = {session.id: session for session in remembered}
    booked_only, further = list[Session](), 0
    ledger = context.ledger
    with suppress(StoreError):
        if ledger is not None:
            newest = ledger.latest_sessions(asked.offset + asked.limit + len(listed))
            booked_only = [
                Session(id=name, remembered=False, last_seen=float(hour))
                for name, hour in newest
                if name not in listed
            ]
            further = ledger.count_sessions() - len(ledger.booked(listed))
    latest_first = sorted(
        [*listed.values(), *booked_only], key=lambda session: session.last_seen, reverse=True
    )
    page = _page(latest_first, asked)
    booked = context.booked(session.id for session in page)
    return SessionsAnswer(
        [with_bookings(session, booked) for session in page], len(listed) + further
    )


def _page(items: Sequence[T], asked: SessionsArguments) -> Sequence[T]:
    return items[asked.offset : asked.offset + asked.limit]


def totals(context: ApiContext, asked: TotalsArguments) -> Struct:
    """Return what is booked of all calls. Raises `StoreError`."""
    if context.ledger is None:
        raise StoreError("no ledger is kept")
    sums = context.ledger.totals(asked.since)
    line = ReportLine(
        "total", sums.reported, sums.unreported, context.ledger.count_sessions(asked.since)
    )
    return TotalsAnswer(since=asked.since, **line_as_json(line))


# --- one session ------------------------------------------------------------------------------


def history(context: ApiContext, asked: HistoryArguments) -> HistoryAnswer:
    """Return what was done to one conversation. Raises `Problem` 404, `StoreError`."""
    conversation, latest = find_remembered(context, asked.session)
    view = latest.view
    rows = _ledger_rows(context, view)
    rows_by_edit = {
        item.edit: item for item in rows if item.edit and item.action in ("compact", "accept")
    }
    end = max(0, len(rows) - asked.offset)
    return HistoryAnswer(
        session=describe_session(conversation, latest, context.booked([conversation.name])),
        edits=session_edits(
            view, view.visible_edits, rows_by_edit, is_readable=context.is_recorded(conversation)
        ),
        attempts=list(rows[max(0, end - asked.limit) : end]),
        attempts_total=len(rows),
    )


def _ledger_rows(context: ApiContext, view: View) -> Sequence[LedgerRow]:
    """The ledger's rows of this history; none if the store keeps no ledger."""
    ledger = as_ledger_store(context.pipeline.store)
    return rows_about(ledger, view.transcript.tips) if ledger else ()


def words(context: ApiContext, asked: WordsArguments) -> WordsAnswer:
    """Return a part of what an edit shows or hides. Raises `Problem`, `StoreError`."""
    if asked.preview is not UNSET:
        pending = context.find_preview(asked.preview, asked.session)
        view, is_readable = pending.preview.view, pending.is_readable
    else:
        conversation, latest = find_remembered(context, asked.session)
        view = latest.view
        is_readable = asked.of == "hidden" and context.is_recorded(conversation)
    edit = find_edit(view, asked.edit)
    if asked.of == "hidden" and not is_readable:
        raise Problem(409, "history_needed", HISTORY_NEEDED)
    text = text_hidden_by(view, edit) if asked.of == "hidden" else text_inserted_by(view, edit)
    end = asked.offset + asked.limit
    return WordsAnswer(
        session=asked.session,
        edit=edit.id,
        of=asked.of,
        text=text[asked.offset : end],
        total=len(text),
        next=end if end < len(text) else None,
    )


def recall(context: ApiContext, asked: RecallArguments) -> RecallAnswer:
    """Search in what the edits hide, of a history that is sent along or recorded. Raises `Problem`,
    `FormatError`, `StoreError`, `ConversationBusy`."""
    if asked.request is not UNSET:
        located = locate(context, asked)
        conversation, view = located.conversation, show(context, located)
    else:
        conversation, latest = find_remembered(context, asked.session)
        if not context.is_recorded(conversation):
            raise Problem(409, "history_needed", HISTORY_NEEDED)
        view = latest.view
    hits = search(view, asked.query, asked.limit + 1)
    shown = [Hit(**hit._asdict()) for hit in hits[: asked.limit]]
    return RecallAnswer(session=conversation.name, hits=shown, more=len(hits) > asked.limit)
