"""What is kept of a turn: its edits in memory, and its decisions about single results in the store."""

from collections.abc import Iterable, Sequence
from typing import Any

from refold.compactor.signed_thinking import BY, drop_invalidated_thinking
from refold.core.view import View
from refold.edits import Edit
from refold.errors import StoreError
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.result_edits import extract, reapply, tips_of
from refold.stores.store import LedgerRow, Store, as_ledger_store


def save_edits(conversation: Conversation, view: View, store: Store) -> None:
    """Keep new edits where they will be needed: in memory, as decisions about single results, and in
    *store* those of local strategies that signed thinking will be bound to. Raises `StoreError`."""
    fresh = [edit for edit in view.edits if edit.id not in conversation.shown.ids]
    if not fresh:
        return
    if saved := _edits_to_save(conversation, view, fresh):
        store.save(saved)
    conversation.shown.store.save(fresh)
    conversation.shown.ids.update(edit.id for edit in fresh)


def defer_edits(conversation: Conversation, view: View) -> None:
    """Keep new edits that were made while the store failed, until it takes them."""
    fresh = [edit for edit in view.edits if edit.id not in conversation.shown.ids]
    local = conversation.compactor.settings.local_names
    conversation.shown.store.save(fresh)
    conversation.shown.unsaved += [edit for edit in fresh if edit.by not in local]
    conversation.shown.unsaved += _edits_to_save(conversation, view, fresh)
    conversation.shown.ids.update(edit.id for edit in fresh)


def _lost_edits(conversation: Conversation) -> list[Edit]:
    """What the store would have of the latest history, had it not lost it."""
    if conversation.latest is None:
        return []
    local = conversation.compactor.settings.local_names
    view = conversation.latest.view
    return [
        *(edit for edit in view.edits if edit.by not in local),
        *_edits_to_save(conversation, view, view.edits),
    ]


def _edits_to_save(conversation: Conversation, view: View, fresh: Sequence[Edit]) -> list[Edit]:
    """What the store has to know of *fresh* edits beside those that a compactor has saved itself."""
    local = conversation.compactor.settings.local_names
    bound = view.profile.rules.binds
    timely = [edit for edit in fresh if bound and edit.by in local]
    kept = fresh if bound else [edit for edit in fresh if edit.by not in local]
    return [*timely, *extract(conversation.tenant, view, kept)]


def flush_unsaved(conversation: Conversation, store: Store) -> None:
    """Give the store what it could not take, each once. Raises `StoreError`."""
    edits, rows = list(conversation.shown.unsaved), list(conversation.shown.unsaved_rows)
    lost, conversation.shown.is_lost = conversation.shown.is_lost, False
    again = [edit for edit in _lost_edits(conversation) if edit not in edits] if lost else []
    if edits or again:
        try:
            store.save([*again, *edits])
        except StoreError:
            conversation.shown.is_lost = conversation.shown.is_lost or lost
            raise
    with conversation.shown.lock:  # more may have come meanwhile
        written = {id(edit) for edit in edits}
        conversation.shown.unsaved = [
            edit for edit in conversation.shown.unsaved if id(edit) not in written
        ]
        conversation.shown.unsaved_rows = conversation.shown.unsaved_rows[len(rows) :]
    if rows and (ledger := as_ledger_store(store)):
        ledger.record(rows)


def repair_interrupted(conversation: Conversation, view: View, store: Store) -> bool:
    """After a turn that failed: edits may have been saved that were never shown. What was thought meanwhile was thought
    without those that show now, so its signatures go (AN-7, AN-11). Those that are hidden stay: they may show in a fork
    (D6). Was there anything to do? Raises `StoreError`."""
    unseen = [
        edit for edit in view.edits if edit.id not in conversation.shown.ids and edit.by != BY
    ]
    if not view.profile.rules.binds or not unseen:
        return False
    showing = {placed.edit.id for placed in view.visible_edits}
    before = view.revert(*(edit.id for edit in unseen))
    after = before.apply_valid(edit for edit in unseen if edit.id in showing)
    store.save(drop_invalidated_thinking(after, before).edits[len(after.edits) :])
    return True


def reapply_result_edits(conversation: Conversation, view: View, store: Store) -> int:
    """Show again what was decided about single results of a history that is new here; how many edits that
    took. Raises `StoreError`."""
    tips = tips_of(conversation.tenant, view.transcript.messages)
    found = store.load(tips) if tips else ()
    edits = reapply(conversation.tenant, view, found) if found else []
    if edits:
        store.save(edits)
    return len(edits)


class DeferredLedger:
    """A ledger that keeps rows until the store takes them."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Keep them."""
        self._conversation.shown.unsaved_rows += rows

    def ledger(self, edit: str | None = None) -> tuple[()]:  # noqa: ARG002 - as of every ledger
        """None."""
        return ()


class NullLedger:
    """A ledger that keeps nothing: a look at what would be is no compaction."""

    def record(self, rows: Any) -> None:
        """Nothing."""

    def ledger(self, edit: str | None = None) -> tuple[()]:  # noqa: ARG002 - as of every ledger
        """None."""
        return ()
