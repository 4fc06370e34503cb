"""The interface of a store of retrospective edits, optional extensions, and the simplest store. A
store has four methods."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any, Literal, Protocol, cast

from refold.edits import Edit, Outcome
from refold.errors import require_callable


class Store(Protocol):
    """Keeps edits by the tip that they were made for. It needs nothing of the conversation."""

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Return every edit made for one of *tips*, in the order in which they were saved.

        Raises `StoreError`."""

    def save(self, edits: Iterable[Edit]) -> None:
        """Save *edits*, durably once this returns. A later edit with the same id replaces the
        earlier one.

        All or none of them are saved. Raises `StoreError`."""

    def remove(self, ids: Iterable[str]) -> None:
        """Remove the edits with these full ids; unknown ids are ignored. Raises `StoreError`."""

    def version(self) -> int:
        """Return a number that changes whenever anyone else may have changed the edits. Cheap.
        Raises `StoreError`."""


class ClaimStore(Protocol):
    """A store in which processes can claim work. Optional."""

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Claim *name* for this number of seconds from now, or renew the claim of *owner*.

        Return False if another owner has it. A claim that is not renewed expires. Raises
        `StoreError`."""

    def release(self, name: str, owner: str) -> None:
        """Release *name*, unless another owner has it. Raises `StoreError`."""


Grade = Literal["", "exact", "recoverable", "lossy"]
"""Loss of content by an edit. `exact`: none, all content shows. `recoverable`: none while the
transcript is kept, and the model can ask for it. `lossy`: some. Empty: unknown."""

Action = Literal["compact", "preview", "accept", "revert"]
"""Operation that a row is about. `compact`: edits made and saved. `preview`: made and not saved.
`accept`: saved as previewed. `revert`: undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row of the ledger: one edit and how it came about, or one attempt that made none.

    If an attempt made several edits, each has its own row with the tokens before and after it. The
    first row has the attempt's cost, so that sums over rows are correct.
    """

    when: float
    """Seconds since 1970-01-01 UTC."""
    outcome: Outcome
    edit: str | None = None
    """Full id of the edit; None if none was made."""
    by: str = ""
    """The repr of the strategy."""
    reason: str = ""
    """Reason for the outcome, in a sentence; for `degraded`, the rung reached."""
    before: int = 0
    """Tokens of the request before. In a ledger they are counted by our own counter alone
    (`View.tokens_uncalibrated`), so that rows of different times can be compared; in
    `Compactor.ledger_rows` they are as `View.tokens`."""
    after: int = 0
    """Tokens of the request after; equal to `before` if nothing was done."""
    calls: int = 0
    """Model calls made for it."""
    cost: float = 0.0
    """Cost of these calls in US dollars; 0 if prices are not known."""
    model: str = ""
    prompt: str = ""
    """Name and version of the prompt."""
    grade: Grade = ""
    action: Action = "compact"
    actor: str = ""
    """The initiator: `auto` for a trigger, `manual`, or a given name."""
    trigger: str = ""
    """The trigger's reason, in words."""
    run: str = ""
    """Equal for all rows of one compaction."""
    tip: str = ""
    """The transcript's tip at that time, which identifies the history that was compacted."""


class LedgerStore(Protocol):
    """A store that also keeps a ledger. Optional."""

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Add *rows* to the ledger, all or none. Raises `StoreError`."""

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """Return all rows, or those about the edit with this full id, in the order of recording.

        Raises `StoreError`.
        """


class IndexedLedgerStore(LedgerStore, Protocol):
    """A ledger that can look up the rows about one history. Optional."""

    def ledger_of(self, tips: Sequence[str]) -> Sequence[LedgerRow]:
        """Return the rows whose tip is one of *tips*, in the order of recording.

        Raises `StoreError`.
        """


def require_store(store: Any) -> None:
    """Raise ValueError unless *store* has the methods of a `Store`, none of them async."""
    methods = {name: getattr(store, name, None) for name in ("load", "save", "remove", "version")}
    if None in methods.values() or isinstance(store, type):
        raise ValueError(
            f"the store must be one, such as refold.SQLiteStore('refold.db'), not {store!r}"
        )
    require_callable(**{f"the store's {name}": method for name, method in methods.items()})


# --- optional abilities of a store ------------------------------------------------------------
# Detected by method names, so that a store that delegates to another one counts too.


def as_ledger_store(store: object) -> LedgerStore | None:
    """Return *store* if it keeps a ledger, else None."""
    return cast("LedgerStore", store) if _has(store, "record", "ledger") else None


def as_claim_store(store: object) -> ClaimStore | None:
    """Return *store* if it supports claims, else None."""
    return cast("ClaimStore", store) if _has(store, "claim", "release") else None


def replacement_count(store: object) -> int:
    """Return how often *store* noticed that its file or tables were deleted or replaced while it
    was open (its `replacements`). Then known edits must be written again. 0 if it does not
    check."""
    return getattr(store, "replacements", 0)


def list_problems(store: object) -> Sequence[str]:
    """Return a text for each entry that *store* could not read and skipped (its `problems`); empty
    if it does not say. Raises `StoreError`."""
    return tuple(getattr(store, "problems", ()))


def rows_about(ledger: LedgerStore, tips: Sequence[str]) -> Sequence[LedgerRow]:
    """Return the rows about the history with these *tips* and the histories that it branched from,
    in the order of recording. Reads the whole ledger unless it is indexed. Raises `StoreError`."""
    if _has(ledger, "ledger_of"):
        return cast("IndexedLedgerStore", ledger).ledger_of(tips)
    wanted = set(tips)
    return tuple(row for row in ledger.ledger() if row.tip in wanted)


def _has(store: object, *methods: str) -> bool:
    return all(hasattr(store, method) for method in methods)


# --- the simplest store, for one process ----------------------------------------------------------


class MemoryStore:
    """Keeps edits and ledger in memory. Thread-safe."""

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
        if not self._by_tip:  # then *tips* need not be computed
            return ()
        with self._lock:
            wanted = self._by_tip.keys() & set(tips)
            matches = [self._edits[name] for tip in wanted for name in self._by_tip[tip]]
        return tuple(edit for _, edit in sorted(matches, key=lambda placed: placed[0]))

    def save(self, edits: Iterable[Edit]) -> None:
        """Save *edits*, all or none. A later edit with the same id replaces the earlier one."""
        named = [(edit.id, edit) for edit in edits]
        with self._lock:
            for name, edit in named:
                self._forget(name)
                self._edits[name] = next(self._order), edit
                self._by_tip[edit.tip] = (*self._by_tip.get(edit.tip, ()), name)
            self._version += 1

    def remove(self, ids: Iterable[str]) -> None:
        """Remove the edits with these full ids; unknown ids are ignored."""
        ids = list(ids)
        with self._lock:
            for name in ids:
                self._forget(name)
            self._version += 1

    def version(self) -> int:
        """Return a number that grows with every write of edits."""
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
