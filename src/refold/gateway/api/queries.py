"""The operations that change nothing: `sessions`, `events`, `history`, `edit_text` and
`recall`."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET
from msgspec.structs import replace

from refold.gateway.api.answers import (
    Answer,
    EditTextAnswer,
    HistoryAnswer,
    Hit,
    RecallAnswer,
    Session,
    SessionsAnswer,
)
from refold.gateway.api.arguments import (
    Arguments,
    EditTextArguments,
    HistoryArguments,
    RecallArguments,
    SessionId,
    SessionsArguments,
    about,
)
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.lookup import (
    describe_edit,
    find_edit,
    find_listed,
    find_past_call,
    find_session,
    ledger_rows,
    list_shown_edits,
    locate,
    text_hidden_by,
)
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.sessions import SessionRow, ShownEdit, text_inserted_by
from refold.gateway.ledger.sql import NO_CALLS, BookedCalls
from refold.gateway.ledger.transcripts import RecordedTranscript
from refold.retrieval import recall as search

HISTORY_NEEDED = "No transcript of this session is recorded: send it as `request`."


LATEST = ("api", "model", "upstream", "messages", "tokens_before", "tokens_after", "edits")
"""Fields of a session that are of its latest request."""


# --- sessions ---------------------------------------------------------------------------------


def sessions(context: ApiContext, arguments: SessionsArguments) -> SessionsAnswer:
    """Return a page of the sessions, the latest first: the same from every process and after every
    restart (finding F16). Raises `StoreError`."""
    page, total = context.sessions.list_latest(
        arguments.limit, arguments.offset, is_booked_enough=arguments.scope == "all"
    )
    names = [name for name, _ in page]
    rows, booked = context.sessions.read(names), context.sum_sessions(names)
    return SessionsAnswer(
        [describe_session(name, last_seen, rows.get(name), booked) for name, last_seen in page],
        total,
    )


def describe_session(
    name: str,
    last_seen: float,
    row: SessionRow | None,
    booked: Mapping[str, BookedCalls] | None,
) -> Session:
    """Return a session in figures: its latest request, if that is known, and what is *booked*; None
    if the ledger cannot be read."""
    session = Session(id=name, remembered=row is not None, last_seen=last_seen)
    if row is not None:
        session = replace(session, **{field: getattr(row, field) for field in LATEST})
    if booked is None:
        return session
    booking = booked.get(name, NO_CALLS)
    return replace(
        session,
        model=session.model or booking.model,
        requests=booking.calls,
        saved_tokens=booking.tokens_saved,
        saved_dollars=None if booking.money_saved is None else booking.money_saved / DOLLAR,
    )


# --- what is new -------------------------------------------------------------------------------


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


def events(context: ApiContext, arguments: EventsArguments) -> EventsAnswer:
    """Return what came since. Raises `StoreError`."""
    changes = context.call_log.list_changes(arguments.since)
    return EventsAnswer(context.pipeline.settings.clock(), [Change(*change) for change in changes])


# --- one session ------------------------------------------------------------------------------


def history(context: ApiContext, arguments: HistoryArguments) -> HistoryAnswer:
    """Return what was done to one session. Raises `Problem` 404, `StoreError`."""
    session = find_session(context, arguments.session)
    recorded = context.load_transcript(session.tenant, session.session)
    rows = ledger_rows(context, session.tips)
    rows_by_edit = {
        item.edit: item for item in rows if item.edit and item.action in ("compact", "accept")
    }
    end, booked = max(0, len(rows) - arguments.offset), context.sum_sessions([session.session])
    return HistoryAnswer(
        session=describe_session(session.session, session.last_seen, session, booked),
        edits=[
            describe_edit(
                edit, _find_hidden_text(recorded, session, edit), rows_by_edit.get(edit.id)
            )
            for edit in list_shown_edits(session, rows)
        ],
        attempts=list(rows[max(0, end - arguments.limit) : end]),
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


def edit_text(context: ApiContext, arguments: EditTextArguments) -> EditTextAnswer:
    """Return a part of what an edit shows or hides. Raises `Problem`, `StoreError`."""
    text: str | None
    if arguments.preview is not UNSET:
        pending = context.find_preview(arguments.preview, arguments.session)
        view = pending.preview.view
        edit = find_edit(view, arguments.edit)
        id = edit.id
        if arguments.of == "text":
            text = text_inserted_by(view, edit)
        else:
            messages = view.transcript.messages
            text = text_hidden_by(messages, edit.start, edit.stop) if pending.is_readable else None
    elif file := context.find_file(arguments.session):
        shown = _find_shown_edit(file.shown_edits, arguments.edit)
        id, text = shown.id, shown.text
        if arguments.of == "hidden":
            text = text_hidden_by(file.messages, shown.start, shown.stop)
    else:
        session = find_session(context, arguments.session)
        shown = _find_shown_edit(_list_edits(context, session, arguments), arguments.edit)
        id, text = shown.id, shown.text
        if arguments.of == "hidden":
            recorded = context.load_transcript(session.tenant, session.session)
            text = _find_hidden_text(recorded, session, shown)
    if text is None:
        raise Problem(409, "history_needed", HISTORY_NEEDED)
    end = arguments.offset + arguments.limit
    return EditTextAnswer(
        session=arguments.session,
        edit=id,
        of=arguments.of,
        text=text[arguments.offset : end],
        total=len(text),
        next=end if end < len(text) else None,
    )


def _list_edits(
    context: ApiContext, session: SessionRow, arguments: EditTextArguments
) -> Sequence[ShownEdit]:
    """Return the edits that show now, or showed in a call. Raises `Problem`, `StoreError`."""
    if arguments.call is UNSET:
        return session.list_edits()
    listed, _ = find_listed(context, arguments.session)
    return find_past_call(context, listed, arguments.call).edits


def _find_shown_edit(edits: Sequence[ShownEdit], id: str) -> ShownEdit:
    """Return the edit of this id, or of a unique beginning of it. Raises `Problem` 404."""
    matches = [edit for edit in edits if edit.id.startswith(id)]
    if len(matches) != 1:
        problem = "several edits begin so" if matches else "there is no such edit in what shows"
        raise Problem(404, "no_edit", f"{id}: {problem}")
    return matches[0]


def recall(context: ApiContext, arguments: RecallArguments) -> RecallAnswer:
    """Search in what the edits hide, of a history that is sent along or recorded. Raises `Problem`,
    `FormatError`, `StoreError`, `ConversationBusy`."""
    if arguments.request is UNSET:
        session = find_session(context, arguments.session)
        if not context.is_recorded(session.tenant, session.session):
            raise Problem(409, "history_needed", HISTORY_NEEDED)
    located = locate(context, arguments)
    hits = search(located.view, arguments.query, arguments.limit + 1)
    shown = [Hit(**hit._asdict()) for hit in hits[: arguments.limit]]
    name = located.conversation.name
    return RecallAnswer(session=name, hits=shown, has_more=len(hits) > arguments.limit)
