"""A store for one process: fast, and gone with it."""

from collections.abc import Iterable, Sequence
from itertools import count
from threading import Lock

from refold.edits import Edit
from refold.ledger import Row


class MemoryStore:
    """Keeps edits and ledger in memory. Usable from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._order = count()
        self._tips: dict[str, str] = {}
        self._edits: dict[str, dict[str, tuple[int, Edit]]] = {}
        self._rows: list[Row] = []
        self._version = 0

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Every edit made for one of *tips*, in the order in which they were saved."""
        with self._lock:
            wanted = self._edits.keys() & set(tips)
            found = [placed for tip in wanted for placed in self._edits[tip].values()]
        return tuple(edit for _, edit in sorted(found, key=lambda placed: placed[0]))

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits*, all or none; of one id the later counts."""
        named = [(edit.id, edit) for edit in edits]
        with self._lock:
            for name, edit in named:
                self._forget(name)
                self._tips[name] = edit.tip
                self._edits.setdefault(edit.tip, {})[name] = next(self._order), edit
            self._version += 1

    def remove(self, ids: Iterable[str]) -> None:
        """Forget the edits with these full ids; unknown ids are passed over."""
        gone = list(ids)
        with self._lock:
            for name in gone:
                self._forget(name)
            self._version += 1

    def version(self) -> int:
        """Grows with every write."""
        return self._version

    def record(self, rows: Iterable[Row]) -> None:
        """Add *rows* to the ledger, all or none."""
        new = list(rows)
        with self._lock:
            self._rows.extend(new)

    def ledger(self, edit: str | None = None) -> Sequence[Row]:
        """All rows, or those about the edit with this full id, in the order of recording."""
        with self._lock:
            return tuple(row for row in self._rows if edit is None or row.edit == edit)

    def _forget(self, id: str) -> None:
        tip = self._tips.pop(id, None)
        if tip is not None:
            del self._edits[tip][id]
            if not self._edits[tip]:
                del self._edits[tip]
