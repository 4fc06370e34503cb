"""What a user does to a conversation by hand: accept what was previewed, take edits back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from refold.codecs.payload import Payload
from refold.compactor.conversations import ConversationCache, ConversationState
from refold.compactor.hooks import EditsReverted, PreviewAccepted
from refold.compactor.ledger_rows import build_manual_rows
from refold.compactor.loading import load
from refold.compactor.preview import Preview
from refold.compactor.run import flush_memory
from refold.compactor.schedule import Schedule
from refold.compactor.settings import Settings
from refold.compactor.signed_thinking import (
    edits_after_revert,
    edits_dropping_thinking,
    find_thinking_copies,
)
from refold.core.view import View
from refold.models.driver import Asker, drive

ORIGINAL = "as said"
"""What makes the edits that show a message as it was said, against a local strategy."""


def accept(
    settings: Settings, cache: ConversationCache, preview: Preview, actor: str, ask: Asker | None
) -> View:
    """Keep the edits of *preview*, as `Compactor.accept`."""
    if not isinstance(preview, Preview) or (payload := preview.view.source) is None:
        raise ValueError(f"accept takes what `preview` has made, not a {type(preview).__name__}")
    cached = cache.match(payload)
    base = _load(settings, cached, payload)
    base.stored.apply(*preview.edits)
    failures = drive(flush_memory(settings.memory, base.view, preview.view), ask)
    late = {
        edit.id: edit
        for state in cache.continuations_of(preview.edits)
        for edit in edits_dropping_thinking(state.stored, preview.edits)
    }
    settings.store.save((*preview.edits, *late.values()))
    when, attempts = settings.clock(), (*preview.attempts, *failures)
    settings.record(build_manual_rows("accept", when, actor, preview.view, preview.edits, attempts))
    ids = tuple(edit.id for edit in preview.edits)
    settings.emit(PreviewAccepted(when=when, actor=actor, edits=ids))
    view = _finish(settings, cache, cached, payload, when)
    return replace(view, attempts=failures) if failures else view


def revert(
    settings: Settings, cache: ConversationCache, history: Any, ids: Sequence[str], actor: str
) -> View:
    """Take stored edits of *history* back, as `Compactor.revert`."""
    store, (payload, cached) = settings.store, cache.open(history)
    view = _load(settings, cached, payload).view
    if ids:
        edits = view.find_all(ids)
    else:
        edits = [edit for edit in view.edits if not edit.by.startswith(ORIGINAL)]
    reverted = {edit.id for edit in edits}
    edits += [edit for edit in find_thinking_copies(view, edits) if edit.id not in reverted]
    store.remove(edit.id for edit in edits)
    messages = view.transcript.messages
    store.save(
        view.replace(edit.start, messages[edit.start], by=f"{ORIGINAL} ({edit.by})")
        for edit in edits
        if edit.by in settings.local_names
    )
    cache.clear()
    store.save(edits_after_revert(_load(settings, None, payload).view, view))
    when = settings.clock()
    settings.record(build_manual_rows("revert", when, actor, view, edits))
    settings.emit(EditsReverted(when=when, actor=actor, edits=tuple(edit.id for edit in edits)))
    return _finish(settings, cache, None, payload, when)


def _finish(
    settings: Settings,
    cache: ConversationCache,
    cached: ConversationState | None,
    payload: Payload,
    when: float,
) -> View:
    """Load what the store has now, and have automatic compaction wait."""
    state = Schedule.of(settings).mark_attempt(_load(settings, cached, payload), when)
    cache.remember(state, cached)
    return state.view


def _load(
    settings: Settings, cached: ConversationState | None, payload: Payload
) -> ConversationState:
    return drive(load(settings, cached, payload))
