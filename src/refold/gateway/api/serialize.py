"""Answers made of sessions, edits and attempts: figures, and the words that are sent in place of
what is hidden."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from refold.compactor.ledger_rows import grade_edit
from refold.compactor.losses import Losses as CompactionLosses
from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.gateway.api.answers import Losses, LossesByKind, PreviewAttempt, Session, SessionEdit
from refold.gateway.conversations.conversations import Conversation, LatestRequest
from refold.gateway.ledger.cost import DOLLAR
from refold.gateway.ledger.sql import NO_CALLS, BookedCalls
from refold.messages import Message
from refold.stores.store import LedgerRow
from refold.text.plain import readable_text

PART = 20_000
"""Characters of a text that an answer holds; the operation `words` gives the rest."""


def request_tokens(view: View, unseen_tokens: int = 0) -> int:
    """Return the tokens of the request as *view* shows it, *unseen_tokens* being those of system
    prompt and tools that *view* lacks."""
    return view.tokens_uncalibrated + unseen_tokens


def describe_session(
    conversation: Conversation, latest: LatestRequest, booked: Mapping[str, BookedCalls] | None
) -> Session:
    """Return a conversation in figures: its *latest* request, and what is *booked*."""
    view = latest.view
    session = Session(
        id=conversation.name,
        remembered=True,
        api=conversation.api,
        model=latest.model,
        upstream=latest.upstream,
        messages=len(view.transcript),
        tokens_before=view.profile.fixed_tokens + view.base.token_sums[-1],
        tokens_after=request_tokens(view),
        edits=len(view.visible_edits),
        last_seen=latest.sent_at,
    )
    return with_bookings(session, booked)


def with_bookings(session: Session, booked: Mapping[str, BookedCalls] | None) -> Session:
    """Return *session* with what is *booked*; None if the ledger cannot be read."""
    if booked is None:
        return session
    booking = booked.get(session.id, NO_CALLS)
    return replace(
        session,
        model=session.model or booking.model,
        requests=booking.calls,
        saved_tokens=booking.saved_tokens,
        saved_dollars=None if booking.saved is None else booking.saved / DOLLAR,
    )


def session_edits(
    view: View,
    placed: Iterable[VisibleEdit],
    rows: Mapping[str, LedgerRow] | None = None,
    *,
    is_readable: bool = False,
) -> list[SessionEdit]:
    """Return edits of *view*, with the ledger's *rows* by edit, and with what they hide if that
    *is_readable*."""
    return [
        _session_edit(view, item, (rows or {}).get(item.edit.id), is_readable) for item in placed
    ]


def _session_edit(
    view: View, placed: VisibleEdit, row: LedgerRow | None, is_readable: bool
) -> SessionEdit:
    edit = placed.edit
    text, hidden = text_inserted_by(view, edit), text_hidden_by(view, edit) if is_readable else ""
    return SessionEdit(
        id=edit.id,
        by=edit.by,
        start=edit.start,
        stop=edit.stop,
        tokens_before=view.base.tokens(edit.start, edit.stop),
        tokens_after=placed.tokens,
        grade=grade_edit(edit, view.transcript.messages),
        text=text[:PART],
        text_more=max(0, len(text) - PART),
        hidden=hidden[:PART] if is_readable else None,
        hidden_more=max(0, len(hidden) - PART),
        when=row.when if row else None,
        actor=row.actor if row else "",
        cost=row.cost if row else 0.0,
    )


def text_inserted_by(view: View, edit: Edit) -> str:
    """Return our own words that *edit* shows. Words of the conversation that still show are left
    out: no answer may quote them."""
    hidden = view.transcript.messages[edit.start : edit.stop]
    ours = [message for message in edit.insert if message not in hidden]
    if len(hidden) == len(edit.insert):
        return _new_lines(ours, hidden)
    return "\n\n".join(map(readable_text, ours))


def text_hidden_by(view: View, edit: Edit) -> str:
    """Return the messages that *edit* stands for."""
    return "\n\n".join(map(readable_text, view.transcript.messages[edit.start : edit.stop]))


def _new_lines(messages: Iterable[Message], before: Iterable[Message]) -> str:
    old = {line for message in before for line in readable_text(message).splitlines()}
    return "\n".join(
        line
        for message in messages
        for line in readable_text(message).splitlines()
        if line not in old
    )


def preview_attempt(attempt: Attempt) -> PreviewAttempt:
    """Return how the run of a strategy ended."""
    return PreviewAttempt(
        by=attempt.by,
        outcome=attempt.outcome,
        reason=attempt.reason,
        tokens_before=attempt.tokens_before,
        tokens_after=attempt.tokens_after,
        edits=attempt.edits_applied,
        calls=attempt.calls,
        cost=attempt.cost,
        model=attempt.model,
    )


def losses_by_kind(losses: CompactionLosses, *, is_readable: bool) -> LossesByKind:
    """Return how much would vanish, and all its names if they are *is_readable*."""
    kinds = {kind: getattr(losses, kind) for kind in LossesByKind.__struct_fields__}
    return LossesByKind(
        **{
            kind: Losses(len(names), list(names) if is_readable else [])
            for kind, names in kinds.items()
        }
    )
