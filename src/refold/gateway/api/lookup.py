"""Finds the session of an operation and its history (sent along, remembered by this process, or
recorded), and describes its edits."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from refold.codecs.codec import Payload
from refold.codecs.detect import open_payload
from refold.compactor.by_hand import Preview
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError
from refold.gateway.api.api_types import (
    PART,
    ConversationArguments,
    RequestArguments,
    SessionEdit,
)
from refold.gateway.api.context import ApiContext, PendingPreview, Problem, make_payload
from refold.gateway.conversations.conversations import Conversation, LatestRequest, compute_ratio
from refold.gateway.exchange import Incoming, RequestHead
from refold.gateway.ledger.calls import PastCall
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.sessions import SessionRow, ShownEdit
from refold.gateway.ledger.transcripts import RecordedTranscript
from refold.gateway.pipeline.request_kind import server_history_field
from refold.gateway.pipeline.turns import Turn, create_conversation, find_conversation, with_model
from refold.messages import Message
from refold.stores.store import LedgerRow, as_ledger_store, rows_about
from refold.text.plain import readable_text

HISTORY_NEEDED = "The transcript of this session is not kept: send the history as `request`."
NO_SESSION = "No such session is known: its next request makes it known."


class LocatedSession(NamedTuple):
    """A conversation with its history."""

    turn: Turn
    view: View
    """The history with the edits that show now."""
    is_sent_along: bool
    """Whether the caller sent the history. If not, the answer may quote none of it."""
    unseen_tokens: int
    """Estimated tokens of system prompt and tools, which are not remembered and *turn* lacks."""
    ratio: float
    """Factor from estimated to expected tokens, of the session's latest request."""

    def offer(self, preview: Preview, *, is_readable: bool) -> PendingPreview:
        """Return a pending preview of this history, whose hidden text may be read if it
        *is_readable*."""
        return PendingPreview(
            self.conversation,
            preview,
            self.unseen_tokens,
            is_readable,
            self.turn.model,
            ratio=self.ratio,
            is_latest=not self.is_sent_along,
        )

    @property
    def conversation(self) -> Conversation:
        """The turn's conversation."""
        return self.turn.conversation


def find_session(context: ApiContext, session: str | UnsetType) -> SessionRow:
    """Return the session of this name, whichever process answered it. Raises `Problem` 404, also
    without a name; `StoreError`."""
    row = context.sessions.find(session) if session else None
    if row is None:
        raise Problem(404, "no_session", NO_SESSION)
    return row


def locate(context: ApiContext, arguments: ConversationArguments) -> LocatedSession:
    """Return the conversation of `session`, else the one that `request` with `headers` belongs to.
    Raises `Problem`, `FormatError`, `StoreError`, `ConversationBusy`."""
    row = find_session(context, arguments.session) if arguments.session else None
    if row is None or arguments.request is not UNSET:
        incoming, payload = read_request(context, arguments.request, arguments, row)
        turn, unseen_tokens = _make_turn(context, row, incoming, payload), 0
        row = row or context.sessions.find(turn.conversation.name)
    else:
        turn = _make_turn(context, row, *_open_latest(context, row))
        unseen_tokens = row.fixed_tokens
    with turn.conversation.hold(context.pipeline.settings.decide_timeout_seconds / 2):
        view = turn.show()
        if row is not None:
            _refresh_latest(turn.conversation, row, view)
    ratio = row.ratio if row is not None else compute_ratio(view)
    return LocatedSession(turn, view, arguments.request is not UNSET, unseen_tokens, ratio)


def _refresh_latest(conversation: Conversation, row: SessionRow, view: View) -> None:
    """Use *view* as that of the latest request if it is of that history: other processes may have
    answered or edited the session."""
    latest = conversation.latest
    is_older = latest is None or latest.sent_at <= row.last_seen
    if is_older and view.transcript.tips[-1] == row.tips[-1]:
        unseen_tokens = row.fixed_tokens - view.profile.fixed_tokens
        edited_at = row.changed if row.changed > row.last_seen else 0.0
        shown = replace(view, source=None)
        conversation.latest = LatestRequest(
            row.model, row.upstream, row.last_seen, shown, unseen_tokens, edited_at, row.ratio
        )


def find_listed(context: ApiContext, session: str) -> tuple[ListedSession, SessionRow | None]:
    """Return a session as listed, and its latest request if remembered. Raises `Problem` 404,
    `StoreError`."""
    listed, row = context.call_log.find(session), context.sessions.find(session)
    if listed is None and row is not None:  # its first answer has not come yet
        listed = ListedSession(
            session,
            row.tenant,
            api=row.api,
            model=row.model,
            began=row.last_seen,
            latest=row.last_seen,
            original=row.original,
            sent=row.sent,
        )
    if listed is None:
        raise Problem(404, "no_session", NO_SESSION)
    return listed, row


def find_past_call(context: ApiContext, listed: ListedSession, number: int) -> PastCall:
    """Return what was sent in the call *number* of a session. Raises `Problem` 404, or 409 if it is
    not kept or the history was rewritten since; `StoreError`."""
    call = context.call_log.calls_of(listed.session).get(number)
    if call is None:
        raise Problem(404, "no_call", "The session has no such call, or it was deleted.")
    transcripts, who = context.transcripts, (listed.tenant, listed.session)
    if transcripts.is_recorded(*who):
        past = transcripts.past_calls.find(*who, call.at)
        if past is not None:
            return past
    raise Problem(
        409,
        "not_kept",
        f"What was sent in call {number} is not kept: no transcript was recorded, or the client has "
        "rewritten the history since.",
    )


def ledger_rows(
    context: ApiContext, tips: Sequence[str], ratio: float = 1.0
) -> Sequence[LedgerRow]:
    """Return the ledger's rows of this history, with *ratio* times their estimated tokens; none if
    the store keeps no ledger."""
    ledger = as_ledger_store(context.pipeline.store)
    rows = rows_about(ledger, tips) if ledger else ()
    return [
        replace(row, before=round(row.before * ratio), after=round(row.after * ratio))
        for row in rows
    ]


def rows_by_edit(rows: Iterable[LedgerRow]) -> dict[str, LedgerRow]:
    """Return the ledger's *rows* that record how edits were made, by edit id."""
    return {row.edit: row for row in rows if row.edit and row.action in ("compact", "accept")}


def list_visible_edits(row: SessionRow, rows: Sequence[LedgerRow]) -> list[ShownEdit]:
    """Return the edits in the session's latest request, without those that *rows* of the ledger say
    were reverted since. An edit belongs to every session with this history."""
    latest = {item.edit: item.action for item in rows if item.action != "preview"}
    return [edit for edit in row.list_edits() if latest.get(edit.id) != "revert"]


def find_edits(view: View, ids: Sequence[str]) -> list[Edit]:
    """Return the edits with these ids or unique prefixes of them. Raises `Problem` 404."""
    try:
        return view.find_all(ids)
    except EditError as error:
        raise Problem(404, "no_edit", str(error)) from error


def _make_turn(
    context: ApiContext, row: SessionRow | None, incoming: Incoming, payload: Payload
) -> Turn:
    """Return a request of the session *row*, else of the conversation that it belongs to. If this
    process does not remember the session, its new conversation is not kept: the next request finds
    the changes in the store."""
    resources = context.pipeline.resources
    if row is None:
        conversation = find_conversation(resources, incoming, payload)
    else:
        conversation = resources.conversations.get(row.session) or create_conversation(
            resources, row.family, row.salt, incoming, payload, row.session, tenant=row.tenant
        )
    codec = conversation.compactor.settings.format
    if codec is not None and not isinstance(codec, str):
        payload = replace(payload, codec=codec)
    return Turn(resources, incoming, payload, conversation)


def read_request(
    context: ApiContext, request: Any, arguments: RequestArguments, row: SessionRow | None = None
) -> tuple[Incoming, Payload]:
    """Return the history in a *request* body, as one of the session *row* if given. Raises
    `Problem` 422, `FormatError`."""
    body = json.dumps(request).encode()
    payload = open_payload(body, row.api if row else arguments.api or None)
    if field := server_history_field(payload.codec.NAME, payload.body):
        raise Problem(
            422, "delta", f"The provider holds the rest of this conversation: there is `{field}`."
        )
    if not len(payload):
        raise Problem(422, "empty", "The request has no messages.")
    headers = tuple((name.lower(), value) for name, value in (arguments.headers or {}).items())
    raw_headers = tuple(
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in headers
    )
    incoming = Incoming(
        payload.codec.NAME,
        row.upstream if row else "",
        f"/models/{arguments.model or ''}:generateContent",
        headers,
        body,
        context.tenant_of(RequestHead("POST", "/", "", raw_headers)),
    )
    return incoming, with_model(payload, incoming.path)


def _open_latest(context: ApiContext, row: SessionRow) -> tuple[Incoming, Payload]:
    """Return an empty request and the session's latest history as a payload. Raises `Problem`
    409."""
    payload = make_payload(_latest_messages(context, row), row.api, row.model)
    return Incoming(row.api, row.upstream, "/", (), b""), payload


def _latest_messages(context: ApiContext, row: SessionRow) -> Sequence[Message]:
    """Return the session's latest history. Raises `Problem` 409 if only another process has it, or
    none."""
    tip, conversation = row.tips[-1], context.pipeline.conversations.get(row.session)
    if conversation is not None and conversation.latest is not None:
        transcript = conversation.latest.view.transcript
        if transcript.tips[-1] == tip:
            return transcript.messages
    recorded = context.transcripts.load(row.tenant, row.session)
    if recorded is None or recorded.tips[-1:] != (tip,):
        raise Problem(
            409,
            "history_elsewhere",
            "Another process of the gateway has the latest history of this session, and may have "
            "ended: try again, since that process may answer, wait for the session's next call, or "
            "send the history as `request`.",
        )
    return recorded.messages


# --- edits in answers -----------------------------------------------------------------------------


def describe_edit(
    shown: ShownEdit, history: Sequence[Message] | None, row: LedgerRow | None = None
) -> SessionEdit:
    """Return an edit with what it hides of *history*, which is None if it may not be read, and with
    the ledger's *row*."""
    hidden = "" if history is None else text_hidden_by(shown, history)
    return SessionEdit(
        **shown._replace(text=shown.text[:PART])._asdict(),
        text_more=max(0, len(shown.text) - PART),
        hidden=None if history is None else hidden[:PART],
        hidden_more=max(0, len(hidden) - PART),
        when=row.when if row else None,
        actor=row.actor if row else "",
        cost=row.cost if row else 0.0,
    )


def text_hidden_by(edit: Edit | ShownEdit, history: Sequence[Message]) -> str:
    """Return the text that an edit hides."""
    return "\n\n".join(map(readable_text, history[edit.start : edit.stop]))


def find_history(
    recorded: RecordedTranscript | None, session: SessionRow, stop: int
) -> Sequence[Message] | None:
    """Return the recorded messages; None if they are not the session's up to *stop*."""
    if recorded is None or recorded.tips[stop - 1 : stop] != (session.tip_at(stop),):
        return None
    return recorded.messages
