"""What the books say: of sessions, of all calls, and whether transcripts are recorded."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from refold.core.view import View
from refold.errors import StoreError
from refold.gateway.api.context import Desk
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.ledger.sql import Booked, Ledger
from refold.gateway.ledger.transcripts import Transcripts


def ledger(desk: Desk) -> Ledger | None:
    """The net ledger; None where there is none that can be asked."""
    clerk = desk.pipeline.clerk
    return clerk.ledger if clerk is not None and isinstance(clerk.ledger, Ledger) else None


def booked(desk: Desk, sessions: Iterable[str]) -> Mapping[str, Booked] | None:
    """What is booked of these sessions, by name. None while the ledger fails: what else is known is told all the same."""
    books = ledger(desk)
    with suppress(StoreError):
        return books.booked(sessions) if books is not None else None
    return None


def is_recorded(desk: Desk, thread: Conversation) -> bool:
    """Is the conversation's transcript kept, so that who administers may read it? Raises `StoreError`."""
    clerk = desk.pipeline.clerk
    if clerk is None or not isinstance(clerk.recorder, Transcripts):
        return False
    return clerk.recorder.is_recorded(thread.tenant, thread.name)


def said(view: View, beside: int = 0) -> int:
    """Tokens of the request without any edit, *beside* being those of system prompt and tools that *view* lacks."""
    return view.profile.fixed_tokens + beside + view.base.token_sums[-1]


def sent(view: View, beside: int = 0) -> int:
    """Tokens of the request as *view* shows it; *beside* likewise."""
    return view.tokens_uncalibrated + beside
