"""One turn of a conversation: what is shown of it, and what is compacted."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from refold.codecs.codec import Codec
from refold.codecs.payload import Payload
from refold.compactor.compactor import Compactor
from refold.compactor.hooks import OnEvent
from refold.compactor.preview import Preview
from refold.compactor.unanswered import is_premature
from refold.core.refetches import find_refetched
from refold.core.view import View
from refold.economics.break_even import Worth
from refold.edits import Edit
from refold.errors import EditError
from refold.gateway.conversations.conversations import Conversation, Turn
from refold.gateway.conversations.persistence import (
    RowLedger,
    defer_edits,
    flush_unsaved,
    reapply_result_edits,
    repair_interrupted,
    save_edits,
)
from refold.gateway.conversations.shared_summaries import ClaimResult, SharedSummaries
from refold.gateway.conversations.stores import TentativeStore
from refold.gateway.conversations.workers import Workers
from refold.gateway.ledger.writer import LedgerWriter, summary_cost_listener
from refold.gateway.ops.metrics import Counters
from refold.gateway.pipeline.model_limits import ModelLimits
from refold.gateway.policy.body_fields import lower_cap, write_cap
from refold.gateway.policy.economy import Case, find_case, find_request_rates
from refold.gateway.policy.policy import TokenLevels, at_limits, never, non_lossy, strategies_for
from refold.gateway.settings import Settings
from refold.stores.store import Store


@dataclass(frozen=True, eq=False)
class Turns:
    """What is done to conversations. The caller holds the conversation's lock."""

    settings: Settings
    store: Store
    counters: Counters
    workers: Workers
    model_limits: ModelLimits
    ledger_writer: LedgerWriter | None
    """None if no ledger is kept."""

    def limits(self, turn: Turn) -> TokenLevels:
        """Return the figures for a request's model."""
        return self.model_limits.for_turn(turn)

    def make_compactor(
        self,
        name: str,
        tenant: str,
        limits: TokenLevels,
        store: Store,
        *,
        format: str | Codec | None,
        salt: str,
        **options: Any,
    ) -> Compactor:
        """Return a compactor for the conversation *name*, which does nothing but local edits until
        it is told to."""
        on_event: OnEvent | None = self.settings.on_event
        if self.ledger_writer is not None:
            on_event = summary_cost_listener(self.ledger_writer, tenant, name, on_event)
            if isinstance(self.store, TentativeStore):
                on_event = partial(self.store.defer, on_event)
        return Compactor(
            strategies_for(self.settings, limits.target),
            never(limits),
            store,
            ask=None if self.settings.ask is None else self.workers.ask,
            format=format,
            salt=salt,
            on_event=on_event,
            clock=self.settings.clock,
            **options,
        )

    # --- what is shown ----------------------------------------------------------------------------

    def apply_known_edits(self, turn: Turn, *, first: bool = False) -> View:
        """Return the view as it was decided before, with local edits of new messages.

        *first*, if the history is new here: also what was decided about its single results.
        """
        conversation = turn.conversation
        self._set_limits(conversation, self.limits(turn))
        compactor = conversation.compactor
        flush_unsaved(conversation, self.store)
        view = compactor.show(turn.history)
        if conversation.is_interrupted and repair_interrupted(conversation, view, self.store):
            view = compactor.show(turn.history)
        conversation.is_interrupted = False
        if first and not conversation.history.is_continued_by(view):
            count = reapply_result_edits(conversation, view, self.store)
            has_answers = any(message.role == "assistant" for message in view.transcript.messages)
            if count or (conversation.history.tips and has_answers):
                self.counters.add("prefix_breaks", api=turn.incoming.api)
            if count:
                self.counters.add("decided_again", count, api=turn.incoming.api)
                view = compactor.show(turn.history)
        return view

    def show_from_memory(self, turn: Turn, *, compact: bool = False) -> View:
        """Return the view by the edits that this process has shown, without the store.

        *compact*: also with what is due at the hard level (C11).
        """
        compactor, budget = self.memory_compactor(turn), at_limits(self.limits(turn))
        view = compactor.show(turn.history)
        if compact and budget.check(view) == "hard":
            view = compactor.compact(turn.history, budget=budget)
            turn.conversation.baseline_tokens = view.tokens
        defer_edits(turn.conversation, view)
        return view

    def memory_compactor(self, turn: Turn) -> Compactor:
        """Return a compactor like the conversation's, with what this process has shown in place of
        the store."""
        conversation = turn.conversation
        settings = conversation.compactor.settings
        return self.make_compactor(
            conversation.name,
            conversation.tenant,
            self.limits(turn),
            conversation.shown.store,
            format=settings.format,
            salt=settings.salt,
            reports=settings.reports,
            ledger=RowLedger(conversation.shown.unsaved_rows),
        )

    def fits_unedited(self, turn: Turn, view: View) -> bool:
        """May the request be sent as it came? Not if signed thinking stands behind an edit that
        shows."""
        hard = self.limits(turn).hard
        is_bound = view.profile.rules.binds and bool(view.visible_edits)
        return not is_bound and (hard is None or view.tokens_unedited < hard)

    def encode(self, turn: Turn, view: View) -> tuple[bytes, bool]:
        """Return the request's bytes, and whether its cap of output was lowered."""
        source, window = turn.encode(view), self.limits(turn).window
        if not self.settings.lower_output_cap or window is None:
            return source, False
        cap = lower_cap(turn.incoming.api, turn.payload.body, view.tokens, window.context)
        if cap is None:
            return source, False
        self.counters.add("capped", api=turn.incoming.api)
        return write_cap(source, cap), True

    # --- compaction -------------------------------------------------------------------------------

    def compact_if_due(
        self, turn: Turn, view: View, *, opportunistic: bool = True
    ) -> tuple[View, str]:
        """Return the view with what is due now, and why it differs; *opportunistic*: also with what
        pays."""
        conversation, budget, reason = turn.conversation, at_limits(self.limits(turn)), "shown"
        level = budget.check(view)
        if level == "hard" and self._accept_prefetched(turn, "prepared"):
            view, reason = self.apply_known_edits(turn), "prepared"
            level = budget.check(view)
        if level == "hard":
            view, reason = self._compact_exclusively(turn, view)
        elif opportunistic and self._may_economize(turn.incoming.api):
            view, reason = self._compact_if_worthwhile(turn, view, reason)
        if level == "soft" and opportunistic:
            self._request_prefetch(turn, view, self.limits(turn).target)
        save_edits(conversation, view, self.store)
        return view, reason

    def _compact_exclusively(self, turn: Turn, view: View) -> tuple[View, str]:
        """Compact what no other process has compacted meanwhile."""
        conversation, budget = turn.conversation, at_limits(self.limits(turn))
        with self.hold_claim(conversation, view, wait=True) as claim:
            if claim.has_waited:
                view = self.apply_known_edits(turn)
            if conversation.prefetch.preview is None and budget.check(view) == "hard":
                conversation.prefetch.preview = self._summaries.find(view)
            is_prepared = self._accept_prefetched(turn, "prepared")
            if is_prepared:
                view = self.apply_known_edits(turn)
            if budget.check(view) != "hard":
                return view, "prepared" if is_prepared else "shown"
            if count := len(find_refetched(view)):
                self.counters.add("refetched_kept", count, api=turn.incoming.api)
            view = conversation.compactor.compact(turn.history, budget=budget)
            conversation.baseline_tokens = view.tokens
            return view, "hard"

    def hold_claim(
        self, conversation: Conversation, view: View, *, wait: bool
    ) -> AbstractContextManager[ClaimResult]:
        """Hold the right to compact a conversation, among the processes that share its
        summaries."""
        return self._summaries.hold(conversation.family, view, wait=wait)

    @cached_property
    def _summaries(self) -> SharedSummaries:
        asks = self.settings.ask is not None
        return SharedSummaries(self.store, self.workers.allow_waiting, asks=asks)

    def _set_limits(self, conversation: Conversation, limits: TokenLevels) -> None:
        """Have the strategies come down to the *limits*, which may have changed with the model or
        its window."""
        if conversation.target_tokens != limits.target:
            conversation.target_tokens = limits.target
            strategies = strategies_for(self.settings, limits.target)
            conversation.compactor = conversation.compactor.with_strategies(strategies)

    # --- compaction that is not due ---------------------------------------------------------------

    def _may_economize(self, api: str) -> bool:
        return self.settings.economy and api not in self.settings.native

    def _compact_if_worthwhile(self, turn: Turn, view: View, reason: str) -> tuple[View, str]:
        conversation, asks = turn.conversation, self.settings.ask is not None
        rates = find_request_rates(self.settings, turn.model, turn.incoming.body)
        if rates is None:
            return view, reason
        if conversation.baseline_tokens is None and view.visible_edits:
            conversation.baseline_tokens = view.tokens
        answered_at = conversation.answered_at
        case = find_case(
            view,
            rates,
            base=conversation.baseline_tokens,
            idle=None if answered_at is None else self.settings.clock() - answered_at,
            asks=asks,
            survival=self.ledger_writer.survival if self.ledger_writer is not None else None,
        )
        if case is None or not (verdict := case.judge()).pays:
            return view, reason
        if not asks:
            preview, verdict = self._preview_clearing(turn, view, case)
            if not preview.edits or not verdict.pays:
                return view, reason
            conversation.prefetch.preview = preview
        if self._accept_prefetched(turn, verdict.reason):
            view, reason = self.apply_known_edits(turn), "pays"
            conversation.baseline_tokens = view.tokens
        elif asks:
            self._request_prefetch(turn, view, case.goal)
        return view, reason

    def _preview_clearing(self, turn: Turn, view: View, case: Case) -> tuple[Preview, Worth]:
        """Clear what can be cleared without a model; return that, and whether what it really
        removes pays."""
        settings = turn.conversation.compactor.settings
        turn.conversation.baseline_tokens = view.tokens
        clearing = Compactor(
            non_lossy(settings.strategies),
            settings.budget,
            self.store,
            format=settings.format,
            salt=settings.salt,
            reports=settings.reports,
            ledger=RowLedger([]),  # a look at what would be is no compaction
        )
        preview = clearing.preview(turn.history, to=case.goal)
        estimate = view.profile.fixed_tokens + preview.view.estimate
        removed = view.tokens - view.profile.calibrate(estimate)
        return preview, case.with_edits(view, preview.edits, removed).judge()

    def _accept_prefetched(self, turn: Turn, why: str) -> bool:
        """Keep the edits of a compaction that was made ahead, if there is one and it holds for this
        history."""
        conversation = turn.conversation
        preview, conversation.prefetch.preview = conversation.prefetch.preview, None
        if preview is None:
            return False
        view = conversation.compactor.show(turn.history)
        is_usable = all(_is_usable(view, edit) for edit in preview.edits)
        if is_usable:
            try:
                conversation.compactor.accept(preview, actor=f"auto ({why})")
            except EditError:
                is_usable = False
        self._summaries.remove(preview.edits)
        self.counters.add("prepared", result="used" if is_usable else "stale")
        return is_usable

    def _request_prefetch(self, turn: Turn, view: View, goal: int) -> None:
        """Have a summary made in the background, when the request is under way."""
        conversation, prefetch = turn.conversation, turn.conversation.prefetch
        if self.settings.ask is None or prefetch.is_running or prefetch.preview is not None:
            return
        prefetch.job = partial(self._prefetch, conversation, view, turn.history, goal)

    def _prefetch(
        self, conversation: Conversation, view: View, history: Payload, goal: int
    ) -> Preview | None:
        """Make a compaction ahead, or find another process's; None while another makes one."""
        with self.hold_claim(conversation, view, wait=False) as claim:
            if not claim.is_mine:
                return None
            if preview := self._summaries.find(view):
                return preview
            preview = conversation.compactor.preview(history, to=goal, actor="auto (ahead)")
            if not preview.edits:
                return None
            self._summaries.save(preview.edits)
            return preview


def _is_usable(view: View, edit: Edit) -> bool:
    """Does *edit*, made ahead, hold for this history, and hide nothing that the model has yet to
    answer?"""
    return view.transcript.matches(edit) and not is_premature(edit, view.transcript.messages)
