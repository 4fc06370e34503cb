"""A store for one process: fast, and gone with it."""

from collections.abc import Iterable, Sequence
from itertools import count
from threading import Lock

from refold.edits import Edit
from refold.stores.store import LedgerRow


class MemoryStore:
    """Keeps edits and ledger in memory. Usable from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._order = count()
        self._edits: dict[str, tuple[int, Edit]] = {}
        self._by_tip: dict[str, tuple[str, ...]] = {}
        self._rows: list[LedgerRow] = []
        self._rows_by_tip: dict[str, list[int]] = {}
        self._version = 0

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Return every edit made for one of *tips*, in the order in which they were saved."""
        if not self._by_tip:  # then the tips need not be computed
            return ()
        with self._lock:
            wanted = self._by_tip.keys() & set(tips)
            matches = [self._edits[name] for tip in wanted for name in self._by_tip[tip]]
        return tuple(edit for _, edit in sorted(matches, key=lambda placed: placed[0]))

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits*, all or none; of one id the later counts."""
        named = [(edit.id, edit) for edit in edits]
        with self._lock:
            for name, edit in named:
                self._forget(name)
                self._edits[name] = next(self._order), edit
                self._by_tip[edit.tip] = (*self._by_tip.get(edit.tip, ()), name)
            self._version += 1

    def remove(self, ids: Iterable[str]) -> None:
        """Forget the edits with these full ids; unknown ids are passed over."""
        ids = list(ids)
        with self._lock:
            for name in ids:
                self._forget(name)
            self._version += 1

    def version(self) -> int:
        """Return a number that grows with every write."""
        return self._version

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Add *rows* to the ledger, all or none."""
        new = list(rows)
        with self._lock:
            for place, row in enumerate(new, len(self._rows)):
                self._rows_by_tip.setdefault(row.tip, []).append(place)
            self._rows.extend(new)

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """Return all rows, or those about the edit with this full id, in the order of recording."""
        with self._lock:
            return tuple(row for row in self._rows if edit is None or row.edit == edit)

    def ledger_of(self, tips: Sequence[str]) -> Sequence[LedgerRow]:
        """Return the rows whose tip is one of *tips*, in the order of recording."""
        with self._lock:
            wanted = self._rows_by_tip.keys() & set(tips)
            places = sorted(place for tip in wanted for place in self._rows_by_tip[tip])
            return tuple(self._rows[place] for place in places)

    def _forget(self, id: str) -> None:
        if id in self._edits:
            tip = self._edits.pop(id)[1].tip
            names = tuple(name for name in self._by_tip.pop(tip) if name != id)
            if names:
                self._by_tip[tip] = names
