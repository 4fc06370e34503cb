"""One request of a conversation, and what is shown of the conversation in it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial

from refold.codecs.codec import Codec, Payload
from refold.codecs.json_spans import PrefixCache
from refold.compactor.compactor import Compactor
from refold.compactor.hooks import OnEvent
from refold.compactor.loading import RELOAD_SECONDS
from refold.compactor.pins import Pins, keep_pinned
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation, Conversations
from refold.gateway.conversations.persistence import (
    RowLedger,
    defer_edits,
    drop_unaware_thinking,
    flush_unsaved,
    reapply_result_edits,
    repair_interrupted,
    result_tips,
    save_edits,
)
from refold.gateway.conversations.stores import SharedSummaries, TentativeStore
from refold.gateway.conversations.workers import Workers
from refold.gateway.ledger.rows import ledger_listener
from refold.gateway.ledger.writer import LedgerWriter
from refold.gateway.messages import Incoming
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.limits import (
    ModelLimits,
    TokenLevels,
    manual_budget,
    position_after_signed_thinking,
    strategies_for,
)
from refold.gateway.pipeline.upstream_errors import ErrorFigures
from refold.gateway.settings import Settings
from refold.models.fallback import CircuitBreaker
from refold.stores.store import Store

BROKEN_BELOW = 0.1
"""A history that shares less of its tokens with the latest one is not in the cache."""


@dataclass(frozen=True, eq=False)
class Resources:
    """What a process decides requests with."""

    settings: Settings
    store: Store
    counters: Counters
    workers: Workers
    model_limits: ModelLimits
    conversations: Conversations
    prefixes: PrefixCache
    """What of each caller's requests was parsed before."""
    breaker: CircuitBreaker
    """Says when the store is left alone."""
    ledger_writer: LedgerWriter | None
    """None if no ledger is kept."""

    @cached_property
    def summaries(self) -> SharedSummaries:
        """What processes with this store share."""
        asks = self.settings.ask is not None
        return SharedSummaries(self.store, self.workers.allow_waiting, asks=asks)

    def note_session(self, conversation: Conversation) -> None:
        """Have the conversation's latest request listed, unless its caller's key is not proved
        yet."""
        if self.ledger_writer is not None and not isinstance(self.store, TentativeStore):
            self.ledger_writer.note_session(conversation)

    def make_compactor(
        self,
        name: str,
        tenant: str,
        levels: TokenLevels,
        format: str | Codec,
        salt: str,
        pins: Pins,
    ) -> Compactor:
        """Return a compactor for the conversation *name* with these *pins*, which does nothing but
        local edits until it is told to."""
        on_event: OnEvent | None = self.settings.on_event
        if self.ledger_writer is not None:
            on_event = ledger_listener(self.ledger_writer.book, tenant, name, on_event)
            if isinstance(self.store, TentativeStore):
                on_event = partial(self.store.defer, on_event)
        return Compactor(
            keep_pinned(strategies_for(self.settings, levels.target), pins),
            manual_budget(levels),
            self.store,
            ask=None if self.settings.ask is None else self.workers.ask,
            format=format,
            salt=salt,
            on_event=on_event,
            clock=self.settings.clock,
        )


@dataclass(frozen=True, eq=False)
class Turn:
    """One request of a conversation. Who calls its methods holds the conversation (`hold`)."""

    resources: Resources
    incoming: Incoming
    payload: Payload
    """Its body names the model, even if only the request's path does."""
    conversation: Conversation
    in_memory: bool = False
    """Is the store left alone, and what this process has shown used in its place?"""

    @property
    def model(self) -> str:
        """The model that the request names; empty if it names none."""
        return model_of(self.payload)

    @property
    def levels(self) -> TokenLevels:
        """The figures for the request's model."""
        return self.resources.model_limits.for_conversation(
            self.incoming, self.model, self.conversation.refused_at
        )

    @property
    def compactor(self) -> Compactor:
        """The conversation's compactor, or one like it that works in memory."""
        return self._memory_compactor if self.in_memory else self.conversation.compactor

    @property
    def store(self) -> Store:
        """Where edits are kept."""
        return self.conversation.shown.store if self.in_memory else self.resources.store

    @cached_property
    def _memory_compactor(self) -> Compactor:
        levels, shown = self.levels, self.conversation.shown
        return self.conversation.compactor.with_settings(
            strategies=self.keep_pinned(strategies_for(self.resources.settings, levels.target)),
            budget=manual_budget(levels),
            store=shown.store,
            ledger=RowLedger(shown.unsaved_rows),
        )

    def keep_pinned(self, strategies: Iterable[Strategy]) -> tuple[Strategy, ...]:
        """Return *strategies* as they keep what is pinned; in memory, what was pinned when that
        was read last."""
        return keep_pinned(strategies, self.conversation.pins, reads=not self.in_memory)

    def hold(self, seconds: float) -> AbstractContextManager[None]:
        """Hold the conversation, in memory only its edits there. Raises `ConversationBusy`."""
        return self.conversation.hold(seconds, memory=self.in_memory)

    def show(self, *, first: bool = False) -> View:
        """Return the view as it was decided before, with local edits of new messages.

        *first*, if the history is new here: also what was decided about its single results. Raises
        `StoreError`.
        """
        if self.in_memory:
            return self.compactor.show(self.payload)
        conversation, store = self.conversation, self.resources.store
        self._set_target()
        flush_unsaved(conversation, store)
        view = self.compactor.show(self.payload)
        if conversation.shown.is_interrupted and repair_interrupted(conversation, view, store):
            view = self.compactor.show(self.payload)
        conversation.shown.is_interrupted = False
        if drop_unaware_thinking(conversation, view, store):
            view = self.compactor.show(self.payload)
        now = self.resources.settings.clock()
        if first and not conversation.history.is_continued_by(view):
            view = self._reapply_result_edits(view)
        elif not 0 <= now - conversation.shown.results_loaded_at < RELOAD_SECONDS:
            store.load(result_tips(conversation.tenant, view.transcript.messages))
        else:
            return view
        conversation.shown.results_loaded_at = now
        return view

    def save(self, view: View) -> None:
        """Keep the new edits of *view*, which is sent: in memory, and in the store as far as it may
        be asked. Raises `StoreError`."""
        if self.in_memory:
            defer_edits(self.conversation, view)
        else:
            save_edits(self.conversation, view, self.resources.store)

    def fits_unedited(self, view: View) -> bool:
        """May the request be sent as it came? Not if signed thinking stands behind an edit that
        shows."""
        hard, binds = self.levels.hard, view.profile.rules.binds
        stop = position_after_signed_thinking(view) if binds and view.visible_edits else 0
        is_bound = any(placed.edit.start < stop for placed in view.visible_edits)
        return not is_bound and (hard is None or view.tokens_unedited < hard)

    def is_cache_broken(self, view: View) -> bool:
        """Does the provider's cache hold little of the history of *view*, as far as this process
        knows: another beginning was sent last, or another model asked?"""
        latest, base = self.conversation.latest, view.base
        if latest is not None and latest.model != self.model:
            return True
        shared = self.conversation.history.find_shared_length(view)
        if shared is None:
            return False
        return base.tokens(0, shared) < BROKEN_BELOW * base.tokens(0, len(view.transcript))

    def _set_target(self) -> None:
        """Have the strategies come down to the target, which may have changed with the model or its
        window."""
        conversation, target = self.conversation, self.levels.target
        if conversation.target_tokens != target:
            conversation.target_tokens = target
            strategies = keep_pinned(
                strategies_for(self.resources.settings, target), conversation.pins
            )
            conversation.compactor = conversation.compactor.with_settings(strategies=strategies)

    def _reapply_result_edits(self, view: View) -> View:
        """Return *view*, of a history that is new here, with its single results as they were shown
        elsewhere."""
        history, api = self.conversation.history, self.incoming.api
        count = reapply_result_edits(self.conversation, view, self.resources.store)
        has_answers = any(message.role == "assistant" for message in view.transcript.messages)
        if count or (history.tips and has_answers):
            self.resources.counters.add("prefix_breaks", api=api)
        if not count:
            return view
        self.resources.counters.add("decided_again", count, api=api)
        return self.compactor.show(self.payload)


@dataclass(eq=False)
class Progress:
    """What the work on a request has come to know: whoever takes it over when it fails goes on from
    there."""

    turn: Turn | None = None
    """The turn of a conversation that it turned out to be about."""
    figures: ErrorFigures | None = None
    """Of an upstream's error, which teaches once."""


def model_of(payload: Payload) -> str:
    """Return the model that an opened request names; empty if it names none."""
    model = payload.body.get("model")
    return model if isinstance(model, str) else ""
