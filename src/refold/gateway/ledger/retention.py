"""What goes when it was not used for long: edits, and what the ledger has of sessions that ended.

Edits of a session that goes on stay, however old they are: the store notes when each was used last
(`refold.stores.sql.SQLStore.prune`). Of a session that ended the ledger keeps the sums, hour by
hour, as calls of no session: what was spent and saved in all does not change.
"""

from collections.abc import Callable
from threading import Event, Thread
from typing import NamedTuple
from uuid import uuid4

from refold.errors import StoreError
from refold.gateway.ledger.sql import Ledger
from refold.gateway.logs import report_ledger_failure
from refold.gateway.metrics import Counters
from refold.stores.sql import SQLStore
from refold.stores.store import Store

EVERY_SECONDS = 6 * 3_600.0
"""Between two looks at a store, whichever process of a gateway it is that looks."""
CLAIM = "retention"


class Removed(NamedTuple):
    """What is gone."""

    edits: int
    attempts: int
    """Rows of the store's ledger."""
    sessions: int
    """Sessions that have ended, in the net ledger."""


def prune(store: Store, ledger: Ledger | None, seconds: float, now: float) -> Removed:
    """Remove from *store*, and from the net ledger *ledger*, what no session has used for
    *seconds*.

    Raises ValueError for less than a day, and for a store that is neither SQLite nor PostgreSQL:
    others go with their process or their session's file. Raises `StoreError`.
    """
    if not isinstance(store, SQLStore):
        raise ValueError("only stores in SQLite and PostgreSQL are pruned")  # noqa: TRY004
    edits, attempts = store.prune(seconds)
    sessions = ledger.forget_sessions(now - seconds) if ledger is not None else 0
    return Removed(edits, attempts, sessions)


class Retention:
    """Prunes a gateway's store from time to time, in a thread of its own; of several processes one
    does at a time."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger | None,
        seconds: float,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._ledger, self._seconds = store, ledger, seconds
        self._counters, self._clock, self._closing = counters, clock, Event()
        self._thread = Thread(target=self._run, name="refold-retention", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop; what is being removed is removed."""
        self._closing.set()
        self._thread.join(5.0)

    def prune_if_due(self) -> None:
        """Prune if no process has for `EVERY_SECONDS`. Raises `StoreError`."""
        store = self._store
        if not isinstance(store, SQLStore) or not store.claim(CLAIM, uuid4().hex, EVERY_SECONDS):
            return
        removed = prune(store, self._ledger, self._seconds, self._clock())
        for name, count in removed._asdict().items():
            self._counters.add("pruned", count, what=name)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self.prune_if_due()
            except StoreError as error:  # the next time, perhaps
                report_ledger_failure(self._counters, "prune", error)
            self._closing.wait(EVERY_SECONDS / 6)
