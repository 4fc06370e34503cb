"""Summaries that several processes share: one of them writes each, all find it.

A claim is a row in the store. It is renewed as long as its owner lives and lapses with it, so a
process that is killed holds nobody up for longer than LEASE_SECONDS. Prepared summaries are stored
as edits under separate tips, so that they do not show. All edits of one preparation share the tip
of the last of them: a lookup finds all or none, and only in a history that has them all.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import NamedTuple
from uuid import uuid4

from refold.compactor.by_hand import Preview
from refold.core.view import View
from refold.edits import Edit
from refold.errors import StoreError
from refold.gateway.conversations.conversations import hash_parts
from refold.stores.store import ClaimStore, Store, as_claim_store

LEASE_SECONDS = 15.0
"""How long a claim outlives its owner."""
CLAIM_MESSAGES = 2
"""Messages that a claim's name is made of: a process that sees the conversation a turn later claims
the same."""

AllowWaiting = Callable[[], AbstractContextManager[Callable[[float], bool]]]
"""As `Workers.allow_waiting`."""


class ClaimResult(NamedTuple):
    """Who holds a claim, and whether it was waited for."""

    is_mine: bool
    """False if another process holds it still."""
    has_waited: bool
    """Did another process hold it? Then the work may be done already."""


@contextmanager
def hold_claim(
    store: ClaimStore,
    name: str,
    allow_waiting: AllowWaiting,
    *,
    wait: bool,
    lease: float = LEASE_SECONDS,
) -> Iterator[ClaimResult]:
    """Hold the claim *name* within, renewed as long as that lasts.

    If another process holds it, *wait* until that is done or dead, or the job may wait no
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
        with suppress(StoreError):  # it lapses
            store.release(name, owner)


def _renew_claim(store: ClaimStore, name: str, owner: str, lease: float, done: Event) -> None:
    while not done.wait(lease / 3):
        with suppress(StoreError):  # the next time, perhaps
            store.claim(name, owner, lease)
    with suppress(StoreError):  # it may have been renewed while it was released
        store.release(name, owner)


class SharedSummaries:
    """What processes with one *store* do for one another; nothing unless a model writes (*asks*)
    and the store has claims.

    Rules come to the same summary in every process. All methods raise `StoreError`.
    """

    def __init__(self, store: Store, allow_waiting: AllowWaiting, *, asks: bool) -> None:
        self._store, self._allow_waiting = store, allow_waiting
        self._claims = as_claim_store(store) if asks else None

    def hold(self, family: str, view: View, *, wait: bool) -> AbstractContextManager[ClaimResult]:
        """Hold the right to summarize a conversation of this *family*, among all processes.

        The claim's name is the same at every turn, and another if the first messages differ.
        """
        if self._claims is None:
            return nullcontext(ClaimResult(is_mine=True, has_waited=False))
        tips = view.transcript.tips
        first = tips[min(CLAIM_MESSAGES, len(tips) - 1)]
        name = hash_parts("claim", family, first)
        return hold_claim(self._claims, name, self._allow_waiting, wait=wait)

    def save(self, edits: Iterable[Edit]) -> None:
        """Keep what was prepared."""
        if self._claims is not None:
            self._store.save(_copies(edits))

    def remove(self, edits: Iterable[Edit]) -> None:
        """Forget what was prepared: it is used, or of no use."""
        if self._claims is not None:
            self._store.remove(copy.id for copy in _copies(edits))

    def find(self, view: View) -> Preview | None:
        """Return what was prepared last for this history and is not yet part of it."""
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
