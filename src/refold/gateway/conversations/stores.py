"""Wrappers of the store: one that measures waiting, one that writes only on commit, and summaries
shared by processes, so that one process writes each and all find it.

A claim is a row in the store. Its owner renews it and it expires with its owner, so a killed
process blocks others for at most LEASE_SECONDS. Prepared summaries are stored as edits under
separate tips, so that they do not show. All edits of one preparation share the tip of the last of
them: a lookup finds all or none, and only in a history that has them all.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from threading import Event, Thread
from typing import Any, NamedTuple, ParamSpec, TypeVar
from uuid import uuid4

from refold.compactor.by_hand import Preview
from refold.core.view import View
from refold.edits import Edit
from refold.errors import StoreError
from refold.stores.store import (
    ClaimStore,
    LedgerRow,
    MemoryStore,
    Store,
    as_claim_store,
    as_ledger_store,
    replacement_count,
)

P = ParamSpec("P")
T = TypeVar("T")

LEASE_SECONDS = 15.0
"""Seconds after which a claim expires unless it is renewed."""
CLAIM_MESSAGES = 2
"""Messages that a claim's name depends on: a process that sees the conversation a turn later makes
the same claim."""

AllowWaiting = Callable[[], AbstractContextManager[Callable[[float], bool]]]
"""Type of `Workers.allow_waiting`."""


def hash_parts(*parts: str) -> str:
    """Return a short hash of several parts."""
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


class ClaimResult(NamedTuple):
    """Whether a claim was obtained, and whether it was waited for."""

    is_mine: bool
    """False if another process still holds it."""
    has_waited: bool
    """Whether another process held it, and so may have done the work."""


@contextmanager
def hold_claim(
    store: ClaimStore,
    name: str,
    allow_waiting: AllowWaiting,
    *,
    wait: bool,
    lease: float = LEASE_SECONDS,
) -> Iterator[ClaimResult]:
    """Hold the claim *name* in this context, and renew it meanwhile.

    If another process holds it, *wait* until that process is done or dead, or the job may wait no
    longer. Raises `StoreError`.
    """
    owner, done = uuid4().hex, Event()
    result = ClaimResult(store.claim(name, owner, lease), has_waited=False)
    if not result.is_mine:
        pause, is_mine = 0.05, False
        with allow_waiting() as sleep:
            while wait and not is_mine and sleep(pause):
                is_mine, pause = store.claim(name, owner, lease), min(pause * 1.5, 0.5)
        result = ClaimResult(is_mine, has_waited=True)
    if not result.is_mine:
        yield result
        return
    renew = partial(_renew_claim, store, name, owner, lease, done)
    Thread(target=renew, name="refold-claim", daemon=True).start()
    try:
        yield result
    finally:
        done.set()
        with suppress(StoreError):  # it expires anyway
            store.release(name, owner)


def _renew_claim(store: ClaimStore, name: str, owner: str, lease: float, done: Event) -> None:
    while not done.wait(lease / 3):
        with suppress(StoreError):  # the next renewal may succeed
            store.claim(name, owner, lease)
    with suppress(StoreError):  # it may have been renewed while it was released
        store.release(name, owner)


class SharedSummaries:
    """Claims and prepared summaries that processes with one *store* share; no effect unless a model
    writes summaries (*asks*) and the store has claims.

    Rules make the same summary in every process. All methods raise `StoreError`.
    """

    def __init__(self, store: Store, allow_waiting: AllowWaiting, *, asks: bool) -> None:
        self._store, self._allow_waiting = store, allow_waiting
        self._claims = as_claim_store(store) if asks else None

    def hold(self, family: str, view: View, *, wait: bool) -> AbstractContextManager[ClaimResult]:
        """Hold the claim to summarize a conversation of this *family*, among all processes.

        The claim's name is the same in every turn, and another if the first messages differ.
        """
        if self._claims is None:
            return nullcontext(ClaimResult(is_mine=True, has_waited=False))
        tips = view.transcript.tips
        first = tips[min(CLAIM_MESSAGES, len(tips) - 1)]
        name = hash_parts("claim", family, first)
        return hold_claim(self._claims, name, self._allow_waiting, wait=wait)

    def save(self, edits: Iterable[Edit]) -> None:
        """Store prepared edits."""
        if self._claims is not None:
            self._store.save(_copies(edits))

    def remove(self, edits: Iterable[Edit]) -> None:
        """Remove prepared edits, which are used or useless."""
        if self._claims is not None:
            self._store.remove(copy.id for copy in _copies(edits))

    def find(self, view: View) -> Preview | None:
        """Return the preparation for the longest part of this history; None if there is none, or
        the view has its edits already."""
        if self._claims is None:
            return None
        tips = view.transcript.tips
        stops = {_tip_for_preparation(tips[stop]): stop for stop in range(1, len(tips))}
        copies = self._store.load(list(stops))
        last = max((stops[copy.tip] for copy in copies), default=0)
        edits = tuple(
            replace(copy, tip=tips[copy.stop]) for copy in copies if stops[copy.tip] == last
        )
        if not edits or {edit.id for edit in edits} & {edit.id for edit in view.edits}:
            return None
        return Preview(view, view.apply_valid(edits), edits)


def _copies(edits: Iterable[Edit]) -> list[Edit]:
    edits = list(edits)
    last = max(edits, key=lambda edit: edit.stop, default=None)
    return [replace(edit, tip=_tip_for_preparation(last.tip)) for edit in edits] if last else []


def _tip_for_preparation(tip: str) -> str:
    return hash_parts("prepared", tip)


# --- stores around the gateway's store ------------------------------------------------------------


class TimedStore:
    """A store that reports its waiting times and its replacement.

    *mark* is called with True before and with False after every call, *on_replaced* when the store
    was deleted or replaced, *after_save* after edits were saved.
    """

    def __init__(
        self,
        store: Store,
        mark: Callable[[bool], None],
        on_replaced: Callable[[], None],
        after_save: Callable[[], None],
    ) -> None:
        self._store, self._mark = store, mark
        self._on_replaced, self._after_save = on_replaced, after_save
        self._replacements = replacement_count(store)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return partial(self._call, value) if callable(value) else value

    def save(self, edits: Iterable[Edit]) -> None:
        """Save *edits*."""
        self._call(self._save, edits)

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
    """A store for a caller whose key is not verified yet. It reads from *base*, and keeps writes in
    memory.

    `commit` writes them to *base*, once the upstream has accepted the key.
    """

    def __init__(self, base: Store) -> None:
        self._base, self._new = base, MemoryStore()
        self._removed = set[str]()
        self._pending = list[Callable[[], object]]()

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        """Load the edits of both; those written here take precedence."""
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
        """Return a number that grows with every change of either store."""
        return self._base.version() + self._new.version()

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Keep *rows* for the ledger of *base*."""
        if ledger := as_ledger_store(self._base):
            self._pending.append(partial(ledger.record, list(rows)))

    def ledger(self, edit: str | None = None) -> Sequence[LedgerRow]:
        """Return the rows of *base*."""
        ledger = as_ledger_store(self._base)
        return ledger.ledger(edit) if ledger else ()

    def defer(self, listener: Callable[[Any], object], event: Any) -> None:
        """Call *listener* with *event* at the commit."""
        self._pending.append(partial(listener, event))

    def commit(self) -> None:
        """Write everything to *base*. Raises `StoreError`."""
        pending, self._pending = self._pending, []
        for write in pending:
            write()
