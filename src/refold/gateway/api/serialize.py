"""Answers made of sessions, edits and attempts: figures, and the words that are sent in place of
what is hidden."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from refold.core.view import View
from refold.edits import Attempt
from refold.edits import Losses as CompactionLosses
from refold.gateway.api.answers import Session, SessionEdit
from refold.gateway.api.page_types import Losses, LossesByKind, PreviewAttempt
from refold.gateway.ledger.entry import DOLLAR
from refold.gateway.ledger.sessions import SessionRow, ShownEdit
from refold.gateway.ledger.sql import NO_CALLS, BookedCalls
from refold.messages import Message
from refold.stores.store import LedgerRow
from refold.text.plain import readable_text

PART = 20_000
"""Characters of a text that an answer holds; the operation `edit_text` gives the rest."""


LATEST = ("api", "model", "upstream", "messages", "tokens_before", "tokens_after", "edits")
"""Fields of a session that are of its latest request."""


def request_tokens(view: View, unseen_tokens: int = 0) -> int:
    """Return the tokens of the request as *view* shows it, *unseen_tokens* being those of system
    prompt and tools that *view* lacks."""
    return view.tokens_uncalibrated + unseen_tokens


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


def describe_edit(
    shown: ShownEdit, hidden: str | None = None, row: LedgerRow | None = None
) -> SessionEdit:
    """Return an edit with what it hides, None if nobody may read that, and with the ledger's
    *row*."""
    return SessionEdit(
        **shown._replace(text=shown.text[:PART])._asdict(),
        text_more=max(0, len(shown.text) - PART),
        hidden=None if hidden is None else hidden[:PART],
        hidden_more=max(0, len(hidden or "") - PART),
        when=row.when if row else None,
        actor=row.actor if row else "",
        cost=row.cost if row else 0.0,
    )


def text_hidden_by(messages: Sequence[Message], start: int, stop: int) -> str:
    """Return the messages that an edit stands for."""
    return "\n\n".join(map(readable_text, messages[start:stop]))


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
    """Return how much would be lost, and all its names if they are *is_readable*."""
    kinds = {kind: getattr(losses, kind) for kind in LossesByKind.__struct_fields__}
    return LossesByKind(
        **{
            kind: Losses(len(names), list(names) if is_readable else [])
            for kind, names in kinds.items()
        }
    )
