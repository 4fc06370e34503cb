"""What a user does by hand: look at a compaction before it is kept, change it, accept it, take
edits back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from refold.codecs.codec import Payload
from refold.compactor.conversations import ConversationCache, ConversationState
from refold.compactor.hooks import EditsReverted, PreviewAccepted, build_manual_rows
from refold.compactor.late_edits import (
    edits_after_revert,
    edits_dropping_thinking,
    find_thinking_copies,
)
from refold.compactor.loading import Schedule, load
from refold.compactor.losses import find_losses
from refold.compactor.run import TurnOptions, TurnSteps, flush_memory, new_edits, run_turn
from refold.compactor.settings import Settings
from refold.core.view import View
from refold.edits import Attempt, Edit, Losses
from refold.errors import EditError
from refold.messages import Message
from refold.models.driver import Asker, drive
from refold.stores.store import LedgerRow, rows_about
from refold.text.summary_wrapper import summary_in, without_summary, wrap_summary


@dataclass(frozen=True)
class Preview:
    """What a compaction would make of a conversation. Immutable; nothing of it is
    kept until `Compactor.accept` keeps exactly its edits."""

    before: View
    """The view as it is now."""
    view: View
    """The view as it would be. Its `payload` can be sent without accepting: a compaction for one
    call only."""
    edits: tuple[Edit, ...]
    """What accepting keeps."""

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """How each strategy's run ended."""
        return self.view.attempts

    @property
    def payload(self) -> Any:
        """What would be sent."""
        return self.view.payload

    @property
    def tokens_saved(self) -> int:
        """Tokens that each further request is smaller by."""
        return self.before.tokens - self.view.tokens

    @property
    def calls(self) -> int:
        """Model calls that the preview took. Accepting takes none."""
        return sum(attempt.calls for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """What those calls cost, in US dollars, if prices are known."""
        return sum(attempt.cost for attempt in self.attempts)

    def cost_saved(self, price: float) -> float:
        """Return the US dollars that each further request costs less, at *price* dollars for a
        million input tokens."""
        return self.tokens_saved * price / 1_000_000

    @cached_property
    def losses(self) -> Losses:
        """What stands in what is sent now, and would stand in it no more."""
        return find_losses(self.before, self.view)

    def summaries(self) -> dict[str, str]:
        """Return the text of each summary among the edits, by the edit's id."""
        texts = ((edit.id, _summary_of(edit)) for edit in self.edits)
        return {id: text for id, text in texts if text is not None}

    def amend(self, id: str, text: str) -> "Preview":
        """Return this preview with another *text* in the summary that the edit *id* (or a unique
        beginning of it) shows. The text is wrapped as any summary; the edit keeps its id.

        Raises `EditError` if no new edit has this id, if it shows no summary, if the text is empty,
        and if it is not smaller than what it stands for.
        """
        edit = self.view.find(id)
        if edit not in self.edits:
            raise EditError(
                f"edit {edit.id} is kept already: only what this preview made can be changed"
            )
        if _summary_of(edit) is None:
            raise EditError(f"edit {edit.id} shows no summary")
        if not text.strip():
            raise EditError("a summary must say something")
        amended = replace(
            edit, insert=tuple(_replace_summary(message, text) for message in edit.insert)
        )

        def swap(each: Edit) -> Edit:
            return amended if each == edit else each

        view = self.view.revert().apply_valid(map(swap, self.view.edits))
        if view.estimate >= self.view.revert(edit.id).estimate:
            raise EditError("the summary is not smaller than what it stands for")
        return replace(self, view=view, edits=tuple(map(swap, self.edits)))


def _summary_of(edit: Edit) -> str | None:
    return next((text for text in map(summary_in, edit.insert) if text is not None), None)


def _replace_summary(message: Message, text: str) -> Message:
    """Return the message with another summary; what else stands in it stays."""
    if summary_in(message) is None:
        return message
    return replace(message, parts=(*wrap_summary(text).parts, *without_summary(message).parts))


# --- preview, accept, revert ---------------------------------------------------------------------


ORIGINAL = "as said"
"""What makes the edits that show a message as it was said, against a local strategy."""


def preview(
    settings: Settings, cache: ConversationCache, history: Any, to: int | None, actor: str
) -> TurnSteps[Preview]:
    """Compact *history* and keep nothing of it, as `Compactor.preview`."""
    payload, cached = cache.open(history)
    before = yield from load(settings, cached, payload)
    settings = settings.fit(before.view)
    options = TurnOptions(actor, forced=True, to=to, keep=False)
    after = yield from run_turn(settings, Schedule.of(settings), before, options)
    return Preview(before.view, after.view, tuple(new_edits(before, after)))


def list_rows(settings: Settings, cache: ConversationCache, history: Any) -> tuple[LedgerRow, ...]:
    """Return the ledger's rows about *history*, as `Compactor.ledger_rows`."""
    if settings.ledger is None:
        return ()
    payload, cached = cache.open(history)
    tips = _load(settings, cached, payload).stored.transcript.tips
    return tuple(rows_about(settings.ledger, tips))


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
