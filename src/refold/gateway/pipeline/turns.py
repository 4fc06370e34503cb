"""One turn of a conversation: what is shown of it, and what more is done to it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from refold.compactor.compactor import Compactor
from refold.compactor.hooks import OnEvent
from refold.compactor.preview import Preview
from refold.compactor.state import copy_json
from refold.compactor.unanswered import is_premature
from refold.core.refetches import find_refetched
from refold.core.view import View
from refold.economics.session_length import Survival
from refold.edits import Edit
from refold.errors import EditError
from refold.gateway.conversations.claims import ClaimResult, ConversationClaims, claim_name
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.persistence import (
    DeferredLedger,
    NullLedger,
    defer_edits,
    flush_unsaved,
    reapply_result_edits,
    repair_interrupted,
    save_edits,
)
from refold.gateway.conversations.shared_summaries import find, remove, save
from refold.gateway.conversations.turn import Turn, codec_for
from refold.gateway.messages import Incoming
from refold.gateway.ops.metrics import Counters
from refold.gateway.pipeline.model_limits import ModelLimits
from refold.gateway.pipeline.trial import TentativeStore
from refold.gateway.policy.body_fields import lower_cap, write_cap
from refold.gateway.policy.economy import Case, find_case, find_request_rates
from refold.gateway.policy.policy import TokenLevels, at_limits, never, non_lossy, strategies_for
from refold.gateway.settings import Settings
from refold.models.driver import Asker
from refold.stores.store import Store

__all__ = ["Turn", "Turns"]


@dataclass(eq=False)
class Turns:
    """What is done to conversations. Who calls holds the conversation's lock."""

    settings: Settings
    store: Store
    counters: Counters
    ask: Asker
    claims: ConversationClaims
    listen: Callable[[str, str], OnEvent] | None = None
    """Makes who is told of the compactions of a tenant's conversation; None: `Settings.on_event` is."""
    survival: Callable[[], Survival | None] = lambda: None
    """What has been learned of how long sessions are."""

    def __post_init__(self) -> None:
        self.model_limits = ModelLimits(self.settings)

    def create_conversation(
        self, name: str, *, family: str, salt: str, tenant: str, incoming: Incoming, model: str
    ) -> Conversation:
        """A conversation that was not known."""
        limits = self.model_limits.for_model(incoming, model)
        strategies = strategies_for(self.settings, limits.target)
        asker = self.ask if self.settings.ask is not None else None
        compactor = Compactor(
            strategies,
            never(limits),
            self.store,
            ask=asker,
            format=codec_for(self.settings, incoming),
            salt=salt,
            on_event=self.listen(tenant, name) if self.listen else self.settings.on_event,
            clock=self.settings.clock,
        )
        return Conversation(name, family, tenant, compactor, target_tokens=limits.target)

    def with_store(self, trial: TentativeStore) -> "Turns":
        """The same with a store of which nothing is kept yet."""
        listen = self.listen
        later = (
            (lambda tenant, name: partial(trial.defer, listen(tenant, name))) if listen else None
        )
        turns = replace(
            self,
            store=trial,
            claims=ConversationClaims(None, self.claims.allow_waiting),
            listen=later,
        )
        turns.model_limits = self.model_limits
        return turns

    # --- what is shown ----------------------------------------------------------------------------

    def apply_known_edits(self, turn: Turn, *, first: bool = False) -> tuple[View, str]:
        """The view as it was decided before, with what local strategies do at first sight; and why it differs
        from the request. *first* looks for decisions about single results where the history is new here."""
        conversation = turn.conversation
        self._fit(conversation, self.limits(turn))
        compactor = conversation.compactor
        flush_unsaved(conversation, self.store)
        view = compactor.show(turn.history)
        if conversation.is_interrupted and repair_interrupted(conversation, view, self.store):
            view = compactor.show(turn.history)
        conversation.is_interrupted = False
        if first and not conversation.history.is_continued_by(view):
            again = reapply_result_edits(conversation, view, self.store)
            answered = any(message.role == "assistant" for message in view.transcript.messages)
            if again or (conversation.history.tips and answered):
                self.counters.add("prefix_breaks", api=turn.incoming.api)
            if again:
                self.counters.add("decided_again", again, api=turn.incoming.api)
                view = compactor.show(turn.history)
        return view, "shown"

    def _fit(self, conversation: Conversation, limits: TokenLevels) -> None:
        """Let what may run come down to where these limits say: the model may be another than
        before, or its window known by now."""
        if conversation.target_tokens != limits.target:
            conversation.target_tokens = limits.target
            chosen = strategies_for(self.settings, limits.target)
            conversation.compactor = conversation.compactor.with_strategies(chosen)

    def compact_if_due(
        self, turn: Turn, view: View, reason: str, *, spare: bool
    ) -> tuple[View, str]:
        """The view with what is due now. *spare*: also what is not due but pays."""
        conversation, budget = turn.conversation, at_limits(self.limits(turn))
        level = budget.check(view)
        if (
            level == "hard"
            and conversation.prefetch.preview
            and self._accept_prefetched(turn, "prepared")
        ):
            view, reason = self.apply_known_edits(turn)[0], "prepared"
            level = budget.check(view)
        if level == "hard":
            view, reason = self._compact_exclusively(turn, view)
        elif spare and self.settings.economy and turn.incoming.api not in self.settings.native:
            view, reason = self._compact_if_worthwhile(turn, view, reason)
        if level == "soft" and spare:
            self._request_prefetch(turn, view, self.limits(turn).target)
        save_edits(turn.conversation, view, self.store)
        return view, reason

    def _compact_exclusively(self, turn: Turn, view: View) -> tuple[View, str]:
        """The view compacted, alone: what another process has made of it, or is making, is not made again."""
        conversation, budget = turn.conversation, at_limits(self.limits(turn))
        with self.hold_claim(conversation, view, wait=True) as had:
            if had.has_waited:
                view = self.apply_known_edits(turn)[0]
            if conversation.prefetch.preview is None and budget.check(view) == "hard":
                conversation.prefetch.preview = self._find_shared(view)
            used = conversation.prefetch.preview is not None and self._accept_prefetched(
                turn, "prepared"
            )
            if used:
                view = self.apply_known_edits(turn)[0]
            if budget.check(view) != "hard":
                return view, "prepared" if used else "shown"
            if again := len(find_refetched(view)):
                self.counters.add("refetched_kept", again, api=turn.incoming.api)
            view = conversation.compactor.compact(turn.history, budget=budget)
            conversation.baseline_tokens = view.tokens
            return view, "hard"

    def fits_unedited(self, turn: Turn, view: View) -> bool:
        """May the request be sent as it came? Not where signed thinking stands behind an edit that shows."""
        hard = self.limits(turn).hard
        bound = view.profile.rules.binds and bool(view.visible_edits)
        return not bound and (hard is None or view.tokens_unedited < hard)

    def encode(self, turn: Turn, view: View) -> tuple[bytes, bool]:
        """The request's bytes, and whether its cap of output was lowered."""
        source, window = turn.encode(view), self.limits(turn).window
        if not self.settings.lower_output_cap or window is None:
            return source, False
        cap = lower_cap(turn.incoming.api, turn.envelope.body, view.tokens, window.context)
        if cap is None:
            return source, False
        self.counters.add("capped", api=turn.incoming.api)
        return write_cap(source, cap), True

    def show_from_memory(self, turn: Turn, *, compact: bool = False) -> View:
        """The view out of the edits that this process has shown, the store aside; *compact*: with what is due at the hard
        level (C11)."""
        limits, spare = self.limits(turn), self.memory_compactor(turn)
        view = spare.show(turn.history)
        budget = at_limits(limits)
        if compact and budget.check(view) == "hard":
            view = spare.compact(turn.history, budget=budget)
            turn.conversation.baseline_tokens = view.tokens
        defer_edits(turn.conversation, view)
        return view

    def memory_compactor(self, turn: Turn) -> Compactor:
        """A compactor like that of the conversation, with what this process has shown in place of the store."""
        conversation, limits = turn.conversation, self.limits(turn)
        return Compactor(
            strategies_for(self.settings, limits.target),
            never(limits),
            conversation.shown.store,
            ask=conversation.compactor.ask,
            format=conversation.compactor.settings.format,
            salt=conversation.compactor.settings.salt,
            reports=conversation.compactor.settings.reports,
            ledger=DeferredLedger(conversation),
            on_event=self.listen(conversation.tenant, conversation.name)
            if self.listen
            else self.settings.on_event,
            clock=self.settings.clock,
        )

    # --- compaction that need not be --------------------------------------------------------------

    def _compact_if_worthwhile(self, turn: Turn, view: View, reason: str) -> tuple[View, str]:
        conversation, asks = turn.conversation, self.settings.ask is not None
        rates = find_request_rates(self.settings, turn.model, turn.incoming.body)
        if rates is None:
            return view, reason
        if conversation.baseline_tokens is None and view.visible_edits:
            conversation.baseline_tokens = view.tokens
        idle = (
            None
            if conversation.answered_at is None
            else self.settings.clock() - conversation.answered_at
        )
        case = find_case(
            view,
            rates,
            base=conversation.baseline_tokens,
            idle=idle,
            asks=asks,
            survival=self.survival(),
        )
        if case is None or not (found := case.judge()).pays:
            return view, reason
        if not asks:
            return self._clear_only(turn, view, case, reason)
        if conversation.prefetch.preview and self._accept_prefetched(turn, found.reason):
            view = self.apply_known_edits(turn)[0]
            conversation.baseline_tokens = view.tokens
            return view, "pays"
        self._request_prefetch(turn, view, case.goal)
        return view, reason

    def _clear_only(
        self, turn: Turn, view: View, case: Case, reason: str
    ) -> tuple[View, str]:
        """Clear what can be cleared without a model, if what that really removes pays."""
        conversation, own = turn.conversation, turn.conversation.compactor
        conversation.baseline_tokens = view.tokens
        ways = non_lossy(own.settings.strategies)
        other = Compactor(
            ways,
            own.settings.budget,
            self.store,
            format=own.settings.format,
            salt=own.settings.salt,
            reports=own.settings.reports,
            ledger=NullLedger(),
        )
        preview = other.preview(turn.history, to=case.goal)
        removed = view.tokens - view.profile.calibrate(
            view.profile.fixed_tokens + preview.view.estimate
        )
        found = case.with_edits(view, preview.edits, removed).judge()
        if not preview.edits or not found.pays:
            return view, reason
        conversation.prefetch.preview = preview
        if not self._accept_prefetched(turn, found.reason):
            return view, reason
        view = self.apply_known_edits(turn)[0]
        conversation.baseline_tokens = view.tokens
        return view, "pays"

    def _accept_prefetched(self, turn: Turn, why: str) -> bool:
        """Keep the edits of the compaction that was prepared, if they are true for this history."""
        conversation = turn.conversation
        preview, conversation.prefetch.preview = conversation.prefetch.preview, None
        view = turn.conversation.compactor.show(turn.history)
        usable = preview is not None and all(_is_usable(view, edit) for edit in preview.edits)
        if usable and preview is not None:
            try:
                conversation.compactor.accept(preview, actor=f"auto ({why})")
            except EditError:
                usable = False
        if preview is not None and self._is_shared:
            remove(self.store, preview.edits)
        self.counters.add("prepared", result="used" if usable else "stale")
        return usable

    def _request_prefetch(self, turn: Turn, view: View, goal: int) -> None:
        """Have a summary prepared when the request is under way."""
        if (
            self.settings.ask is not None
            and not turn.conversation.prefetch.is_running
            and turn.conversation.prefetch.preview is None
        ):
            turn.conversation.prefetch.job = partial(
                self._prefetch, turn.conversation, view, copy_json(turn.history), goal
            )

    def _prefetch(
        self, conversation: Conversation, view: View, history: Any, goal: int
    ) -> Preview | None:
        """A compaction made ahead, by this process or by another; None while another is at it."""
        with self.hold_claim(conversation, view, wait=False) as had:
            if not had.is_mine:
                return None
            if found := self._find_shared(view):
                return found
            preview = conversation.compactor.preview(history, to=goal, actor="auto (ahead)")
            if preview.edits and self._is_shared:
                save(self.store, preview.edits)
            return preview if preview.edits else None

    # --- with other processes ---------------------------------------------------------------------

    @property
    def _is_shared(self) -> bool:
        """May another process write the summaries of this one's conversations? Rules come to the same everywhere."""
        return self.settings.ask is not None and self.claims.is_supported

    def hold_claim(
        self, conversation: Conversation, view: View, *, wait: bool
    ) -> AbstractContextManager[ClaimResult]:
        """What one process at a time does with a conversation, where several may."""
        if not self._is_shared:
            return nullcontext(ClaimResult(is_mine=True, has_waited=False))
        return self.claims.hold(claim_name(conversation.family, view), wait=wait)

    def _find_shared(self, view: View) -> Preview | None:
        return find(self.store, view) if self._is_shared else None

    # --- books ------------------------------------------------------------------------------------

    def limits(self, turn: Turn) -> TokenLevels:
        """The figures for this request's model."""
        return self.model_limits.for_turn(turn)


def _is_usable(view: View, edit: Edit) -> bool:
    """Does *edit*, made ahead, hold for this history, and hide nothing of what the model is to answer now?"""
    return view.transcript.matches(edit) and not is_premature(edit, view.transcript.messages)
