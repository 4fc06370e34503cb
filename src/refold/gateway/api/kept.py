"""What the books say: of sessions, of all calls, and whether transcripts are recorded."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from refold.errors import StoreError
from refold.gateway.api.desk import Desk
from refold.gateway.books.tables import Booked, Ledger
from refold.gateway.books.transcripts import Transcripts
from refold.gateway.threads import Thread


def ledger(desk: Desk) -> Ledger | None:
    """The net ledger; None where there is none that can be asked."""
    clerk = desk.exchange.clerk
    return clerk.ledger if clerk is not None and isinstance(clerk.ledger, Ledger) else None


def booked(desk: Desk, sessions: Iterable[str]) -> Mapping[str, Booked] | None:
    """What is booked of these sessions, by name. None while the ledger fails: what else is known is told all the same."""
    books = ledger(desk)
    with suppress(StoreError):
        return books.booked(sessions) if books is not None else None
    return None


def is_recorded(desk: Desk, thread: Thread) -> bool:
    """Is the conversation's transcript kept, so that who administers may read it? Raises `StoreError`."""
    clerk = desk.exchange.clerk
    if clerk is None or not isinstance(clerk.recorder, Transcripts):
        return False
    return clerk.recorder.is_recorded(thread.tenant, thread.name)
