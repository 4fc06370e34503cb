"""What a store of retrospective edits is, what it can do besides, and the simplest one. Four
methods make one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Literal, Protocol, cast

from refold.edits import Edit, Outcome


class Store(Protocol):
    """Keeps edits by the tip they were made for. Nothing of the conversation need be in it."""

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Return every edit made for one of *tips*, in the order in which they were saved.

        Raises `StoreError`."""

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep *edits*; when this returns they are safe. One id is kept once, the later wins.

        All or none of them are kept. Raises `StoreError`."""

    def remove(self, ids: Iterable[str]) -> None:
        """Forget the edits with these full ids; unknown ids are passed over. Raises
        `StoreError`."""

    def version(self) -> int:
        """Return a number that changes whenever anybody else may have changed the store. Cheap."""


class ClaimStore(Protocol):
    """A store in which processes tell each other what they are working on. Optional for a store."""

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take *name* for so many seconds from now, or longer if *owner* has it already.

        Return False if somebody else has it. A claim that nobody renews is free when its time is
        over. Raises `StoreError`."""

    def release(self, name: str, owner: str) -> None:
        """Give *name* back, if *owner* has it. Raises `StoreError`."""


Grade = Literal["", "exact", "recoverable", "lossy"]
"""What an edit costs in content: nothing, it shows what was said; nothing while the transcript is
kept, the model can ask for it; something. `""` is unknown."""

Action = Literal["compact", "preview", "accept", "revert"]
"""What was done: edits made and kept; made and not kept; kept as previewed; taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One line of the ledger: one edit and how it came about, or one attempt that made none.

    If an attempt made several edits, each has a row of its own with the tokens before and after
    it; what the attempt cost stands in the first, so sums over rows are right.
    """

    when: float
    """Seconds since 1970-01-01 UTC."""
    outcome: Outcome
    edit: str | None = None
    """Full id of the edit that was made; None if none was."""
    by: str = ""
    """The repr of the strategy that tried."""
    reason: str = ""
    """Why it ended so, in a sentence; the rung reached for `degraded`."""
    before: int = 0
    """Tokens of the request before: in a ledger by our own counter alone
    (`View.tokens_uncalibrated`), so that rows of different times can be compared; as
    `Compactor.ledger_rows` returns them, as `View.tokens`."""
    after: int = 0
    """Tokens of the request after; equal to `before` if nothing was done."""
    calls: int = 0
    """Model calls made for it."""
    cost: float = 0.0
    """What those calls cost, in US dollars."""
    model: str = ""
    prompt: str = ""
    """Name and version of the prompt that was used."""
    grade: Grade = ""
    action: Action = "compact"
    actor: str = ""
    """Who wanted it: `auto` for a trigger, `manual`, or the name that was given."""
    trigger: str = ""
    """What the trigger read, in words."""
    run: str = ""
    """The same for all rows of one compaction."""
    tip: str = ""
    """The transcript's tip then: names the history that was compacted."""


class LedgerStore(Protocol):
    """A store that keeps a ledger too. Optional for a store."""

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Add *rows* to the ledger, all or none. Raises `StoreError`."""

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """Return all rows, or those about the edit with this full id, in the order of recording.

        Raises `StoreError`.
        """


class IndexedLedgerStore(LedgerStore, Protocol):
    """A ledger that finds the rows about one history among those of all others. Optional."""

    def ledger_of(self, tips: Sequence[str]) -> Sequence[LedgerRow]:
        """Return the rows whose tip is one of *tips*, in the order of recording.

        Raises `StoreError`.
        """


# --- what a store can do besides --------------------------------------------------------------
# Asked by the names of the methods, so that a store that passes calls on to another counts too.


def as_ledger_store(store: object) -> LedgerStore | None:
    """Return *store* if it keeps a ledger."""
    return cast("LedgerStore", store) if _has(store, "record", "ledger") else None


def as_claim_store(store: object) -> ClaimStore | None:
    """Return *store* if claims can be made in it."""
    return cast("ClaimStore", store) if _has(store, "claim", "release") else None


def replacement_count(store: object) -> int:
    """Return how often *store* noticed that its file or tables were deleted or replaced while it
    was open, as its `replacements` says; then what is known has to be written again. 0 if it does
    not look."""
    return getattr(store, "replacements", 0)


def list_problems(store: object) -> Sequence[str]:
    """Return what *store* could not read and passed over, as its `problems` says. Raises
    `StoreError`."""
    return tuple(getattr(store, "problems", ()))


def rows_about(ledger: LedgerStore, tips: Sequence[str]) -> Sequence[LedgerRow]:
    """Return the rows about the history with these *tips* and about what it branched from, in the
    order of recording. Reads the whole ledger unless it is indexed. Raises `StoreError`."""
    if _has(ledger, "ledger_of"):
        return cast("IndexedLedgerStore", ledger).ledger_of(tips)
    wanted = set(tips)
    return tuple(row for row in ledger.ledger() if row.tip in wanted)


def _has(store: object, *methods: str) -> bool:
    return all(hasattr(store, method) for method in methods)


# --- the simplest: for one process ----------------------------------------------------------------


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
