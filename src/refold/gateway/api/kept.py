"""What the books say of sessions: what they saved net, and whether their transcripts are recorded."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from refold.errors import StoreError
from refold.gateway.api.desk import Desk
from refold.gateway.books.bills import DOLLAR
from refold.gateway.books.entry import Sums
from refold.gateway.books.tables import Ledger
from refold.gateway.books.transcripts import Transcripts
from refold.gateway.threads import Thread


def saved(desk: Desk, threads: Iterable[Thread]) -> Mapping[str, float]:
    """US dollars that each of these conversations has saved net, by its name; only those of which a price is known. None
    while the ledger fails: what else is known is told all the same."""
    clerk = desk.exchange.clerk
    found = dict[str, Sums]()
    if clerk is not None and isinstance(clerk.ledger, Ledger):
        with suppress(StoreError):
            found = clerk.ledger.sums(thread.name for thread in threads)
    return {name: sums.saved / DOLLAR for name, sums in found.items() if sums.calls > sums.unpriced}


def is_recorded(desk: Desk, thread: Thread) -> bool:
    """Is the conversation's transcript kept, so that who administers may read it? Raises `StoreError`."""
    clerk = desk.exchange.clerk
    if clerk is None or not isinstance(clerk.recorder, Transcripts):
        return False
    return clerk.recorder.is_recorded(thread.tenant, thread.name)
