"""Stores around the gateway's store: one reports when it is waited for, one writes only when told
to."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from refold.edits import Edit
from refold.stores.memory import MemoryStore
from refold.stores.store import LedgerRow, Store, as_ledger_store, replacement_count

P = ParamSpec("P")
T = TypeVar("T")


class TimedStore:
    """A store that tells a slow store from slow work, and a replaced one from the old.

    *mark* is called with True before and False after every call, *on_replaced* when the store was
    deleted or replaced, *after_save* after edits were saved.
    """

    def __init__(
        self,
        store: Store,
        mark: Callable[[bool], None],
        on_replaced: Callable[[], None] = lambda: None,
        after_save: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._mark = store, mark
        self._on_replaced, self._after_save = on_replaced, after_save
        self._replacements = replacement_count(store)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return partial(self._call, value) if callable(value) else value

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Load as the store does."""
        return self._call(self._store.load, tips)

    def save(self, edits: Iterable[Edit]) -> None:
        """Save as the store does."""
        self._call(self._save, edits)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove as the store does."""
        self._call(self._store.remove, ids)

    def version(self) -> int:
        """Return the store's version."""
        return self._call(self._store.version)

    def _save(self, edits: Iterable[Edit]) -> None:
        self._store.save(edits)
        self._after_save()

    def _call(self, method: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        self._mark(True)
        try:
            return method(*args, **options)
        finally:
            if (count := replacement_count(self._store)) != self._replacements:
                self._replacements = count
                self._on_replaced()
            self._mark(False)


class TentativeStore:
    """A store for a caller whose key is not proved yet: what *base* holds, and what is written
    here.

    Only `commit` writes that to *base*, when the upstream has accepted the key (C7).
    """

    def __init__(self, base: Store) -> None:
        self._base, self._new = base, MemoryStore()
        self._removed = set[str]()
        self._pending = list[Callable[[], object]]()

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Load the edits of both; those written here go first."""
        new = self._new.load(tips)
        hidden = self._removed.union(edit.id for edit in new)
        return (*(edit for edit in self._base.load(tips) if edit.id not in hidden), *new)

    def save(self, edits: Iterable[Edit]) -> None:
        """Save *edits* here."""
        edits = list(edits)
        self._new.save(edits)
        self._removed.difference_update(edit.id for edit in edits)
        self._pending.append(partial(self._base.save, edits))

    def remove(self, ids: Iterable[str]) -> None:
        """Remove edits here."""
        ids = list(ids)
        self._new.remove(ids)
        self._removed.update(ids)
        self._pending.append(partial(self._base.remove, ids))

    def version(self) -> int:
        """Return a number that grows with every change of either."""
        return self._base.version() + self._new.version()

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Keep *rows* for the ledger of *base*."""
        if ledger := as_ledger_store(self._base):
            self._pending.append(partial(ledger.record, list(rows)))

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """Return the rows of *base*."""
        ledger = as_ledger_store(self._base)
        return ledger.ledger(edit) if ledger else ()

    def defer(self, tell: Callable[[Any], object], event: Any) -> None:
        """Tell of *event* when this is committed."""
        self._pending.append(partial(tell, event))

    def commit(self) -> None:
        """Write all of it to *base*. Raises `StoreError`."""
        pending, self._pending = self._pending, []
        for write in pending:
            write()
