"""What the books say of sessions: what they saved net, and whether their transcripts are recorded."""

from collections.abc import Mapping
from contextlib import suppress

from refold.errors import StoreError
from refold.gateway.api.desk import Desk
from refold.gateway.books.bills import DOLLAR
from refold.gateway.books.entry import Sums
from refold.gateway.books.tables import Ledger
from refold.gateway.books.transcripts import Transcripts
from refold.gateway.threads import Thread


def saved(desk: Desk) -> Mapping[str, float]:
    """US dollars that each session has saved net, by its name; only those of which a price is known. None while the
    ledger fails: what else is known is told all the same."""
    clerk = desk.exchange.clerk
    found = dict[str, Sums]()
    if clerk is not None and isinstance(clerk.ledger, Ledger):
        with suppress(StoreError):
            for key, sums in clerk.ledger.entries():
                if key.session and key.basis == "reported":
                    found[key.session] = found.get(key.session, Sums()) + sums
    return {name: sums.saved / DOLLAR for name, sums in found.items() if sums.calls > sums.unpriced}


def is_recorded(desk: Desk, thread: Thread) -> bool:
    """Is the conversation's transcript kept, so that who administers may read it? Raises `StoreError`."""
    clerk = desk.exchange.clerk
    if clerk is None or not isinstance(clerk.recorder, Transcripts):
        return False
    return any(head.session == thread.name for head in clerk.recorder.sessions(thread.tenant))
