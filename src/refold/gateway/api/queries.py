"""The operations that change nothing: `sessions`, `totals`, `history`, `edit_text` and `recall`."""

from collections.abc import Sequence

from msgspec import UNSET, Struct

from refold.errors import StoreError
from refold.gateway.api.answers import (
    EditTextAnswer,
    HistoryAnswer,
    Hit,
    RecallAnswer,
    SessionsAnswer,
    TotalsAnswer,
)
from refold.gateway.api.arguments import (
    EditTextArguments,
    HistoryArguments,
    RecallArguments,
    SessionsArguments,
    TotalsArguments,
)
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.lookup import find_edit, find_session, ledger_rows, locate
from refold.gateway.api.serialize import (
    describe_edit,
    describe_session,
    text_hidden_by,
)
from refold.gateway.api.session_view import find_listed, find_past_call
from refold.gateway.ledger.entry import ReportLine, line_as_json
from refold.gateway.ledger.sessions import SessionRow, ShownEdit, text_inserted_by
from refold.gateway.ledger.transcripts import RecordedTranscript
from refold.retrieval import recall as search

HISTORY_NEEDED = "No transcript of this session is recorded: send it as `request`."


# --- sessions ---------------------------------------------------------------------------------


def sessions(context: ApiContext, asked: SessionsArguments) -> SessionsAnswer:
    """Return a page of the sessions, the latest first: the same from every process and after every
    restart (finding F16). Raises `StoreError`."""
    page, total = context.sessions.list_latest(
        asked.limit, asked.offset, is_booked_enough=asked.scope == "all"
    )
    names = [name for name, _ in page]
    rows, booked = context.sessions.read(names), context.sum_sessions(names)
    return SessionsAnswer(
        [describe_session(name, last_seen, rows.get(name), booked) for name, last_seen in page],
        total,
    )


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
    """Return what was done to one session. Raises `Problem` 404, `StoreError`."""
    session = find_session(context, asked.session)
    recorded = context.load_transcript(session.tenant, session.session)
    rows = ledger_rows(context, session.tips)
    rows_by_edit = {
        item.edit: item for item in rows if item.edit and item.action in ("compact", "accept")
    }
    end, booked = max(0, len(rows) - asked.offset), context.sum_sessions([session.session])
    return HistoryAnswer(
        session=describe_session(session.session, session.last_seen, session, booked),
        edits=[
            describe_edit(
                edit, _find_hidden_text(recorded, session, edit), rows_by_edit.get(edit.id)
            )
            for edit in session.list_edits()
        ],
        attempts=list(rows[max(0, end - asked.limit) : end]),
        attempts_total=len(rows),
    )


def _find_hidden_text(
    recorded: RecordedTranscript | None, session: SessionRow, edit: ShownEdit
) -> str | None:
    """Return what *edit* hides; None if that is not recorded."""
    place = slice(edit.stop - 1, edit.stop)
    if recorded is None or recorded.tips[place] != (session.tips[edit.stop],):
        return None
    return text_hidden_by(recorded.messages, edit.start, edit.stop)


def edit_text(context: ApiContext, asked: EditTextArguments) -> EditTextAnswer:
    """Return a part of what an edit shows or hides. Raises `Problem`, `StoreError`."""
    text: str | None
    if asked.preview is not UNSET:
        pending = context.find_preview(asked.preview, asked.session)
        view = pending.preview.view
        edit = find_edit(view, asked.edit)
        id = edit.id
        if asked.of == "text":
            text = text_inserted_by(view, edit)
        else:
            messages = view.transcript.messages
            text = text_hidden_by(messages, edit.start, edit.stop) if pending.is_readable else None
    else:
        session = find_session(context, asked.session)
        shown = _find_shown(_list_edits(context, session, asked), asked.edit)
        id, text = shown.id, shown.text
        if asked.of == "hidden":
            recorded = context.load_transcript(session.tenant, session.session)
            text = _find_hidden_text(recorded, session, shown)
    if text is None:
        raise Problem(409, "history_needed", HISTORY_NEEDED)
    end = asked.offset + asked.limit
    return EditTextAnswer(
        session=asked.session,
        edit=id,
        of=asked.of,
        text=text[asked.offset : end],
        total=len(text),
        next=end if end < len(text) else None,
    )


def _list_edits(
    context: ApiContext, session: SessionRow, asked: EditTextArguments
) -> Sequence[ShownEdit]:
    """Return the edits that show now, or showed in a call. Raises `Problem`, `StoreError`."""
    if asked.call is UNSET:
        return session.list_edits()
    listed, _ = find_listed(context, asked.session)
    return find_past_call(context, listed, asked.call).edits


def _find_shown(edits: Sequence[ShownEdit], id: str) -> ShownEdit:
    """Return the edit of this id, or of a unique beginning of it. Raises `Problem` 404."""
    matches = [edit for edit in edits if edit.id.startswith(id)]
    if len(matches) != 1:
        problem = "several edits begin so" if matches else "there is no such edit in what shows"
        raise Problem(404, "no_edit", f"{id}: {problem}")
    return matches[0]


def recall(context: ApiContext, asked: RecallArguments) -> RecallAnswer:
    """Search in what the edits hide, of a history that is sent along or recorded. Raises `Problem`,
    `FormatError`, `StoreError`, `ConversationBusy`."""
    if asked.request is UNSET:
        session = find_session(context, asked.session)
        if not context.is_recorded(session.tenant, session.session):
            raise Problem(409, "history_needed", HISTORY_NEEDED)
    located = locate(context, asked)
    hits = search(located.view, asked.query, asked.limit + 1)
    shown = [Hit(**hit._asdict()) for hit in hits[: asked.limit]]
    name = located.conversation.name
    return RecallAnswer(session=name, hits=shown, has_more=len(hits) > asked.limit)
