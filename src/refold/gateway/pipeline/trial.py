"""A store for who may not be who they say: what they would write is written when their upstream has believed them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from refold.edits import Edit
from refold.stores.memory import MemoryStore
from refold.stores.store import LedgerRow, Store, as_ledger_store


class TentativeStore:
    """What *base* holds, and beside it what is written here. `commit` writes that there; nothing else does."""

    def __init__(self, base: Store) -> None:
        self._base, self._own = base, MemoryStore()
        self._gone = set[str]()
        self._waiting = list[Callable[[], object]]()

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """As of every store."""
        own = self._own.load(tips)
        hidden = self._gone.union(edit.id for edit in own)
        return (*(edit for edit in self._base.load(tips) if edit.id not in hidden), *own)

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits* here."""
        new = list(edits)
        self._own.save(new)
        self._gone.difference_update(edit.id for edit in new)
        self._waiting.append(partial(self._base.save, new))

    def remove(self, ids: Iterable[str]) -> None:
        """Forget them here."""
        gone = list(ids)
        self._own.remove(gone)
        self._gone.update(gone)
        self._waiting.append(partial(self._base.remove, gone))

    def version(self) -> int:
        """As of every store."""
        return self._base.version() + self._own.version()

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Keep *rows* here."""
        if ledger := as_ledger_store(self._base):
            self._waiting.append(partial(ledger.record, list(rows)))

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """The rows of the base."""
        ledger = as_ledger_store(self._base)
        return ledger.ledger(edit) if ledger else ()

    def defer(self, tell: Callable[[Any], object], event: Any) -> None:
        """Tell of *event* when what was done is kept."""
        self._waiting.append(partial(tell, event))

    def commit(self) -> None:
        """Write all of it. Raises `StoreError`."""
        waiting, self._waiting = self._waiting, []
        for write in waiting:
            write()
