"""Persistence of a turn's edits, in memory and in the store, and in memory only while the store
fails.

If a client rewrites the beginning of its history, the edits of that history are not found again.
But what an edit showed for one result is valid wherever that result is, so it is shown again, byte
for byte, and never grows again. Such decisions are stored as edits under separate tips, so that any
store keeps them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from refold.compactor.late_edits import (
    STRIP_THINKING_BY,
    drop_invalidated_thinking,
    edits_dropping_answer,
)
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.conversations.conversations import Conversation, Conversations
from refold.gateway.conversations.stores import hash_parts
from refold.gateway.conversations.workers import Job, Workers
from refold.gateway.logs import report_failure
from refold.gateway.metrics import Counters
from refold.messages import Message, Part, ToolCall, ToolResult
from refold.stores.store import LedgerRow, Store, as_ledger_store
from refold.transcript import hash_message

RETRY_SECONDS = 1.0
"""Seconds between attempts to write unsaved edits."""
DECIDED = "decided"
"""Prefix of `Edit.by` for edits that were made again from a stored decision."""


def save_edits(conversation: Conversation, view: View, store: Store) -> None:
    """Keep new edits in memory and, unless the compactor has saved them, in *store*. Raises
    `StoreError`."""
    new = conversation.shown.select_new(view)
    if new and (edits := _edits_to_save(conversation, view, new)):
        store.save(edits)
    conversation.shown.add(new)


def defer_edits(conversation: Conversation, view: View) -> None:
    """Keep edits that were made while the store fails, to be saved later."""
    new = conversation.shown.select_new(view)
    conversation.shown.unsaved += _edits_of_store(conversation, view, new)
    conversation.shown.add(new)


def flush_unsaved(conversation: Conversation, store: Store) -> None:
    """Write unsaved edits to the store, each once. Raises `StoreError`."""
    shown = conversation.shown
    edits = list(shown.unsaved)
    was_lost, shown.is_lost = shown.is_lost, False
    lost = list[Edit]()
    if was_lost and conversation.latest is not None:
        view = conversation.latest.view
        every = _edits_of_store(conversation, view, view.edits)
        lost = [edit for edit in every if edit not in edits]
    if edits or lost:
        try:
            store.save([*lost, *edits])
        except Exception:  # a `StoreError` or `DeadlineExceeded`
            shown.is_lost = shown.is_lost or was_lost
            raise
    with shown.lock:  # others may have been added meanwhile
        saved = {id(edit) for edit in edits}
        shown.unsaved = [edit for edit in shown.unsaved if id(edit) not in saved]
        rows, shown.unsaved_rows[:] = list(shown.unsaved_rows), ()
    if rows and (ledger := as_ledger_store(store)):
        try:
            ledger.record(rows)
        except Exception:  # rows written twice are better than lost ones
            with shown.lock:
                shown.unsaved_rows[:0] = rows
            raise


def repair_interrupted(conversation: Conversation, view: View, store: Store) -> bool:
    """Drop thinking that was made without the edits of a failed turn; return whether there were any
    such edits.

    They may have been saved, but were never shown. Later thinking was made without the ones that
    show now, so its signatures are invalid (AN-7, AN-11). Hidden edits stay, because they may show
    in a fork. Raises `StoreError`.
    """
    shown = conversation.shown
    unseen = [
        edit for edit in view.edits if edit.id not in shown.ids and edit.by != STRIP_THINKING_BY
    ]
    if not view.profile.rules.binds or not unseen:
        return False
    visible = {placed.edit.id for placed in view.visible_edits}
    before = view.revert(*(edit.id for edit in unseen))
    after = before.apply_valid(edit for edit in unseen if edit.id in visible)
    store.save(drop_invalidated_thinking(after, before).edits[len(after.edits) :])
    return True


def drop_thinking_after_manual_edit(conversation: Conversation, view: View, store: Store) -> bool:
    """Drop the thinking of the answer to the latest request if edits were changed by hand since it
    was sent; return whether there was any. Raises `StoreError`."""
    latest, tips = conversation.latest, view.transcript.tips
    if latest is None or not latest.edited_at:
        return False
    at = len(latest.view.transcript)
    if at >= len(tips) or tips[at] != latest.view.transcript.tips[at]:
        return False
    edits = edits_dropping_answer(view, at)
    store.save(edits)
    return bool(edits)


def reapply_result_edits(conversation: Conversation, view: View, store: Store) -> int:
    """Show single results of a new history as they were shown before; return the number of edits
    made.

    Raises `StoreError`.
    """
    tips = result_tips(conversation.tenant, view.transcript.messages)
    decisions = store.load(tips) if tips else ()
    edits = make_result_edits(conversation.tenant, view, decisions) if decisions else []
    if edits:
        store.save(edits)
    return len(edits)


def _edits_of_store(conversation: Conversation, view: View, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits to save for *edits* if the store has none of them."""
    local = conversation.compactor.settings.local_names
    by_compactor = [edit for edit in edits if edit.by not in local]
    return [*by_compactor, *_edits_to_save(conversation, view, edits)]


def _edits_to_save(conversation: Conversation, view: View, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits to save for *edits* in addition to those that a compactor saves itself.

    These are decisions about single results, and edits of local strategies that signed thinking
    will be bound to.
    """
    local = conversation.compactor.settings.local_names
    if view.profile.rules.binds:
        timely = [edit for edit in edits if edit.by in local]
        return [*timely, *find_result_edits(conversation.tenant, view, edits)]
    return find_result_edits(conversation.tenant, view, [e for e in edits if e.by not in local])


# --- decisions about single results, by ids and contents of calls and results ---------------------


def find_result_edits(tenant: str, view: View, edits: Iterable[Edit]) -> list[Edit]:
    """Return the decisions to store, from those of *edits* that change the contents of one
    message."""
    single = (edit for edit in edits if edit.stop == edit.start + 1)
    return [decision for edit in single for decision in _decisions(tenant, view, edit)]


def result_tips(tenant: str, messages: Sequence[Message]) -> list[str]:
    """Return the tips under which decisions about *messages* are stored."""
    parts = (part for message in messages for part in message.parts)
    return [_result_tip(tenant, part) for part in parts if _has_id(part)]


def make_result_edits(tenant: str, view: View, decisions: Sequence[Edit]) -> list[Edit]:
    """Return edits of *view* that repeat these decisions, and those that drop thinking they
    invalidate."""
    by_tip = {
        decision.tip: decision
        for decision in decisions
        if len(decision.insert) == 1 and len(decision.insert[0].parts) == 1
    }
    after = view.apply_valid(_remake(tenant, view, by_tip))
    return list(drop_invalidated_thinking(after, view).edits[len(view.edits) :])


def _remake(tenant: str, view: View, by_tip: Mapping[str, Edit]) -> Iterator[Edit]:
    covered = {
        at for placed in view.visible_edits for at in range(placed.edit.start, placed.edit.stop)
    }
    for at, message in enumerate(view.transcript.messages):
        if at in covered:
            continue
        matches = {
            index: decision
            for index, part in enumerate(message.parts)
            if _has_id(part) and (decision := by_tip.get(_result_tip(tenant, part)))
        }
        if matches:
            parts = tuple(
                matches[index].insert[0].parts[0] if index in matches else part
                for index, part in enumerate(message.parts)
            )
            by = next(iter(matches.values())).by
            by = by if by.startswith(DECIDED) else f"{DECIDED} ({by})"
            yield view.replace(at, replace(message, parts=parts), by=by)


def _decisions(tenant: str, view: View, edit: Edit) -> Iterator[Edit]:
    message = view.transcript.messages[edit.start]
    if len(edit.insert) != 1 or len(edit.insert[0].parts) != len(message.parts):
        return
    for old, new in zip(message.parts, edit.insert[0].parts, strict=True):
        if _has_id(old) and old != new and type(old) is type(new):
            yield Edit(0, 1, (Message(message.role, (new,)),), _result_tip(tenant, old), edit.by)


def _has_id(part: Part) -> bool:
    return isinstance(part, ToolCall | ToolResult) and bool(part.id)


def _result_tip(tenant: str, part: Part) -> str:
    return hash_parts("decision", tenant, hash_message(Message("tool", (part,))).hex())


# --- unsaved edits --------------------------------------------------------------------------------


class RowLedger:
    """A ledger that appends to a list, for rows that are written later or dropped."""

    def __init__(self, rows: list[LedgerRow]) -> None:
        self._rows = rows

    def record(self, rows: Iterable[LedgerRow]) -> None:
        """Append *rows*."""
        self._rows += rows

    def ledger(self, edit: str | None = None) -> tuple[()]:  # noqa: ARG002 - as of every ledger
        """Return no rows."""
        return ()


class Outbox:
    """Writes unsaved edits, in a separate thread, as soon as the store works again.

    So any process that gets the next request of a conversation finds them. *done* is called once
    everything is written.
    """

    def __init__(
        self,
        conversations: Conversations,
        store: Store,
        counters: Counters,
        timeout: float,
        done: Callable[[], None],
    ) -> None:
        self._conversations, self._store, self._counters = conversations, store, counters
        self._timeout, self._done = timeout, done
        self._workers = Workers(1, None, counters)
        self._task: asyncio.Task[None] | None = None
        self._job = Job(0.0, has_ended=True)

    def wake(self) -> None:
        """Try to save every second from now on, as long as anything is unsaved."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Make a last attempt if anything is unsaved, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._conversations.list_unsaved():
            await self.flush()
        self._workers.close()

    async def flush(self) -> bool:
        """Write all unsaved edits; return whether that succeeded. Never raises, and never starts a
        second attempt while one hangs."""
        if not self._job.has_ended:
            return False
        self._job = Job(0.0)
        try:
            await self._workers.run(self._write, self._job, self._timeout)
        except Exception as error:  # noqa: BLE001 - there will be another attempt
            report_failure(self._counters, "", "store", error)
            return False
        self._done()
        return True

    async def _run(self) -> None:
        while self._conversations.list_unsaved():
            await asyncio.sleep(RETRY_SECONDS)
            await self.flush()

    def _write(self) -> None:
        for conversation in self._conversations.list_unsaved():
            flush_unsaved(conversation, self._store)
        self._conversations.drop_saved()
