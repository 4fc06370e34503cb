"""One process at a time: no two write a summary of one conversation, whichever machine they are on.

A claim is a row in the store, renewed as long as its owner lives, and free when it was not. So a
process that is killed holds nobody up for longer than LEASE seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Thread
from typing import NamedTuple
from uuid import uuid4

from refold.core.view import View
from refold.errors import StoreError
from refold.gateway.conversations.identity import hash_parts
from refold.stores.store import ClaimStore, as_claim_store

LEASE_SECONDS = 15.0
"""Seconds that a claim outlives its owner."""
CLAIM_MESSAGES = 2
"""By its first messages a conversation is claimed: who sees it a turn later claims the same."""

AllowWaiting = Callable[[], AbstractContextManager[Callable[[float], bool]]]
"""As `Workers.patient`."""


class ClaimResult(NamedTuple):
    """How a claim went."""

    is_mine: bool
    """False where somebody else has it still."""
    has_waited: bool
    """Had somebody else had it? Then what is to be done may be done."""


class ConversationClaims:
    """Claims in *store*, which may have none: then everybody has what they claim. *patient* allows to wait."""

    def __init__(self, store: object, patient: AllowWaiting, lease: float = LEASE_SECONDS) -> None:
        self._store = as_claim_store(store)
        self.allow_waiting, self._lease = patient, lease

    @property
    def is_supported(self) -> bool:
        """Are there claims, so that there may be other processes?"""
        return self._store is not None

    @contextmanager
    def hold(self, name: str, *, wait: bool) -> Iterator[ClaimResult]:
        """Hold *name* within; where somebody else does, *wait* until they are done, are dead, or patience is
        over. Raises `StoreError`."""
        if self._store is None:
            yield ClaimResult(is_mine=True, has_waited=False)
            return
        owner = uuid4().hex
        had = self._claim(self._store, name, owner, wait=wait)
        if not had.is_mine:
            yield had
            return
        done = Event()
        Thread(
            target=self._renew,
            args=(self._store, name, owner, done),
            name="refold-claim",
            daemon=True,
        ).start()
        try:
            yield had
        finally:
            done.set()
            with suppress(StoreError):  # it ends by itself
                self._store.release(name, owner)

    def _claim(self, store: ClaimStore, name: str, owner: str, *, wait: bool) -> ClaimResult:
        if store.claim(name, owner, self._lease):
            return ClaimResult(is_mine=True, has_waited=False)
        pause, mine = 0.05, False
        with self.allow_waiting() as rest:
            while wait and not mine and rest(pause):
                mine, pause = store.claim(name, owner, self._lease), min(pause * 1.5, 0.5)
        return ClaimResult(mine, has_waited=True)

    def _renew(self, store: ClaimStore, name: str, owner: str, done: Event) -> None:
        while not done.wait(self._lease / 3):
            with suppress(StoreError):  # the next time, perhaps
                store.claim(name, owner, self._lease)
        with suppress(StoreError):  # it may have been renewed while it was released
            store.release(name, owner)


def claim_name(conversation: str, view: View) -> str:
    """The name under which summaries of a *conversation* are claimed: the same whichever turn it is at, and
    another where its first messages differ."""
    tips = view.transcript.tips
    return hash_parts("claim", conversation, tips[min(CLAIM_MESSAGES, len(tips) - 1)])
