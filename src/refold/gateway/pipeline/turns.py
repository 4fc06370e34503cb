"""One turn of a conversation: what is shown of it, and what more is done to it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from refold.compactor.compactor import Compactor
from refold.compactor.hooks import OnEvent
from refold.compactor.preview import Preview
from refold.compactor.state import copy_of
from refold.compactor.unanswered import is_premature
from refold.core.refetched import refetched
from refold.core.strategy import is_local
from refold.core.view import View
from refold.economics.session_length import Survival
from refold.edits import Edit
from refold.errors import EditError
from refold.gateway.conversations import shared_summaries as prepared
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
from refold.gateway.conversations.turn import Turn, codec_for
from refold.gateway.messages import Incoming
from refold.gateway.ops.metrics import Counters
from refold.gateway.pipeline.model_limits import ModelLimits
from refold.gateway.pipeline.trial import TentativeStore
from refold.gateway.policy import economy
from refold.gateway.policy import output_cap as caps
from refold.gateway.policy import policy as plan
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
    claiming: ConversationClaims
    listen: Callable[[str, str], OnEvent] | None = None
    """Makes who is told of the compactions of a tenant's conversation; None: `Settings.on_event` is."""
    survival: Callable[[], Survival | None] = lambda: None
    """What has been learned of how long sessions are."""

    def __post_init__(self) -> None:
        self.rooms = ModelLimits(self.settings)

    def opened(
        self, name: str, *, family: str, salt: str, tenant: str, incoming: Incoming, model: str
    ) -> Conversation:
        """A conversation that was not known."""
        limits = self.rooms.limits(incoming, model)
        strategies = plan.strategies_for(self.settings, limits.target)
        asker = self.ask if self.settings.ask is not None else None
        compactor = Compactor(
            strategies,
            plan.never(limits),
            self.store,
            ask=asker,
            format=codec_for(self.settings, incoming),
            salt=salt,
            on_event=self.listen(tenant, name) if self.listen else self.settings.on_event,
            clock=self.settings.clock,
        )
        return Conversation(name, family, tenant, compactor, target=limits.target)

    def trying(self, trial: TentativeStore) -> "Turns":
        """The same with a store of which nothing is kept yet."""
        listen = self.listen
        later = (
            (lambda tenant, name: partial(trial.later, listen(tenant, name))) if listen else None
        )
        turns = replace(
            self,
            store=trial,
            claiming=ConversationClaims(None, self.claiming.patient),
            listen=later,
        )
        turns.rooms = self.rooms
        return turns

    # --- what is shown ----------------------------------------------------------------------------

    def shown(self, turn: Turn, *, first: bool = False) -> tuple[View, str]:
        """The view as it was decided before, with what local strategies do at first sight; and why it differs
        from the request. *first* looks for decisions about single results where the history is new here."""
        thread, compactor = turn.thread, turn.thread.compactor
        self._fit(thread, self.limits(turn))
        flush_unsaved(thread, self.store)
        view = compactor(turn.history)
        if thread.torn and repair_interrupted(thread, view, self.store):
            view = compactor(turn.history)
        thread.torn = False
        if first and not thread.continues(view):
            again = reapply_result_edits(thread, view, self.store)
            answered = any(message.role == "assistant" for message in view.transcript.messages)
            if again or (thread.ends and answered):
                self.counters.add("prefix_breaks", api=turn.incoming.api)
            if again:
                self.counters.add("decided_again", again, api=turn.incoming.api)
                view = compactor(turn.history)
        return view, "shown"

    def _fit(self, thread: Conversation, limits: plan.TokenLevels) -> None:
        """Let nothing run, and what may run come down to where these limits say: the model may be another than before,
        or its window known by now."""
        thread.compactor.budget = plan.never(limits)
        if thread.target != limits.target:
            thread.target = limits.target
            chosen = plan.strategies_for(self.settings, limits.target)
            thread.compactor.retrospective = tuple(one for one in chosen if not is_local(one))

    def taken(self, turn: Turn, view: View, reason: str, *, spare: bool) -> tuple[View, str]:
        """The view with what is due now. *spare*: also what is not due but pays."""
        thread, budget = turn.thread, plan.at_limits(self.limits(turn))
        level = budget.check(view)
        if level == "hard" and thread.prepared and self._use(turn, "prepared"):
            view, reason = self.shown(turn)[0], "prepared"
            level = budget.check(view)
        if level == "hard":
            view, reason = self._at_once(turn, view)
        elif spare and self.settings.economy and turn.incoming.api not in self.settings.native:
            view, reason = self._if_it_pays(turn, view, reason)
        if level == "soft" and spare:
            self._wish(turn, view, self.limits(turn).target)
        save_edits(turn.thread, view, self.store)
        return view, reason

    def _at_once(self, turn: Turn, view: View) -> tuple[View, str]:
        """The view compacted, alone: what another process has made of it, or is making, is not made again."""
        thread, budget = turn.thread, plan.at_limits(self.limits(turn))
        with self.alone(thread, view, wait=True) as had:
            if had.waited:
                view = self.shown(turn)[0]
            if thread.prepared is None and budget.check(view) == "hard":
                thread.prepared = self._found(view)
            used = thread.prepared is not None and self._use(turn, "prepared")
            if used:
                view = self.shown(turn)[0]
            if budget.check(view) != "hard":
                return view, "prepared" if used else "shown"
            thread.compactor.budget = budget
            if again := len(refetched(view)):
                self.counters.add("refetched_kept", again, api=turn.incoming.api)
            view = thread.compactor(turn.history)
            thread.base = view.tokens
            return view, "hard"

    def fits_as_said(self, turn: Turn, view: View) -> bool:
        """May the request be sent as it came? Not where signed thinking stands behind an edit that shows."""
        hard = self.limits(turn).hard
        bound = view.lens.rules.binds and bool(view.top)
        return not bound and (hard is None or view.said < hard)

    def written(self, turn: Turn, view: View) -> tuple[bytes, bool]:
        """The request's bytes, and whether its cap of output was lowered."""
        source, window = turn.encode(view), self.limits(turn).window
        if not self.settings.lower_output_cap or window is None:
            return source, False
        cap = caps.lower_cap(turn.incoming.api, turn.envelope.body, view.tokens, window.context)
        if cap is None:
            return source, False
        self.counters.add("capped", api=turn.incoming.api)
        return caps.write_cap(source, cap), True

    def from_memory(self, turn: Turn, *, compact: bool = False) -> View:
        """The view out of the edits that this process has shown, the store aside; *compact*: with what is due at the hard
        level (C11)."""
        limits, spare = self.limits(turn), self.in_memory(turn)
        view = spare(turn.history)
        budget = plan.at_limits(limits)
        if compact and budget.check(view) == "hard":
            spare.budget = budget
            view = spare(turn.history)
            turn.thread.base = view.tokens
        defer_edits(turn.thread, view)
        return view

    def in_memory(self, turn: Turn) -> Compactor:
        """A compactor like that of the conversation, with what this process has shown in place of the store."""
        thread, limits = turn.thread, self.limits(turn)
        return Compactor(
            plan.strategies_for(self.settings, limits.target),
            plan.never(limits),
            thread.spare,
            ask=thread.compactor.ask,
            format=thread.compactor.format,
            salt=thread.compactor.salt,
            reports=thread.compactor.reports,
            ledger=DeferredLedger(thread),
            on_event=self.listen(thread.tenant, thread.name)
            if self.listen
            else self.settings.on_event,
            clock=self.settings.clock,
        )

    # --- compaction that need not be --------------------------------------------------------------

    def _if_it_pays(self, turn: Turn, view: View, reason: str) -> tuple[View, str]:
        thread, asks = turn.thread, self.settings.ask is not None
        rates = economy.find_request_rates(self.settings, turn.model, turn.incoming.body)
        if rates is None:
            return view, reason
        if thread.base is None and view.top:
            thread.base = view.tokens
        idle = None if thread.used is None else self.settings.clock() - thread.used
        case = economy.find_case(
            view, rates, base=thread.base, idle=idle, asks=asks, survival=self.survival()
        )
        if case is None or not (found := case.judged()).pays:
            return view, reason
        if not asks:
            return self._gently(turn, view, case, reason)
        if thread.prepared and self._use(turn, found.reason):
            view = self.shown(turn)[0]
            thread.base = view.tokens
            return view, "pays"
        self._wish(turn, view, case.goal)
        return view, reason

    def _gently(self, turn: Turn, view: View, case: economy.Case, reason: str) -> tuple[View, str]:
        """Clear what can be cleared without a model, if what that really removes pays."""
        thread, own = turn.thread, turn.thread.compactor
        thread.base = view.tokens
        ways = plan.non_lossy((*own.local, *own.retrospective))
        other = Compactor(
            ways,
            own.budget,
            self.store,
            format=own.format,
            salt=own.salt,
            reports=own.reports,
            ledger=NullLedger(),
        )
        preview = other.preview(turn.history, to=case.goal)
        removed = view.tokens - view.lens.calibrate(view.lens.fixed + preview.view.estimate)
        found = case.as_made(view, preview.edits, removed).judged()
        if not preview.edits or not found.pays:
            return view, reason
        thread.prepared = preview
        if not self._use(turn, found.reason):
            return view, reason
        view = self.shown(turn)[0]
        thread.base = view.tokens
        return view, "pays"

    def _use(self, turn: Turn, why: str) -> bool:
        """Keep the edits of the compaction that was prepared, if they are true for this history."""
        thread = turn.thread
        preview, thread.prepared = thread.prepared, None
        view = turn.thread.compactor(turn.history)
        usable = preview is not None and all(_is_usable(view, edit) for edit in preview.edits)
        if usable and preview is not None:
            try:
                thread.compactor.accept(preview, actor=f"auto ({why})")
            except EditError:
                usable = False
        if preview is not None and self._shares:
            prepared.remove(self.store, preview.edits)
        self.counters.add("prepared", result="used" if usable else "stale")
        return usable

    def _wish(self, turn: Turn, view: View, goal: int) -> None:
        """Have a summary prepared when the request is under way."""
        if (
            self.settings.ask is not None
            and not turn.thread.preparing
            and turn.thread.prepared is None
        ):
            turn.thread.wish = partial(
                self._previewed, turn.thread, view, copy_of(turn.history), goal
            )

    def _previewed(
        self, thread: Conversation, view: View, history: Any, goal: int
    ) -> Preview | None:
        """A compaction made ahead, by this process or by another; None while another is at it."""
        with self.alone(thread, view, wait=False) as had:
            if not had.mine:
                return None
            if found := self._found(view):
                return found
            preview = thread.compactor.preview(history, to=goal, actor="auto (ahead)")
            if preview.edits and self._shares:
                prepared.save(self.store, preview.edits)
            return preview if preview.edits else None

    # --- with other processes ---------------------------------------------------------------------

    @property
    def _shares(self) -> bool:
        """May another process write the summaries of this one's conversations? Rules come to the same everywhere."""
        return self.settings.ask is not None and self.claiming.shared

    def alone(
        self, thread: Conversation, view: View, *, wait: bool
    ) -> AbstractContextManager[ClaimResult]:
        """What one process at a time does with a conversation, where several may."""
        if not self._shares:
            return nullcontext(ClaimResult(mine=True, waited=False))
        return self.claiming.alone(claim_name(thread.family, view), wait=wait)

    def _found(self, view: View) -> Preview | None:
        return prepared.find(self.store, view) if self._shares else None

    # --- books ------------------------------------------------------------------------------------

    def limits(self, turn: Turn) -> plan.TokenLevels:
        """The figures for this request's model."""
        return self.rooms.of(turn)


def _is_usable(view: View, edit: Edit) -> bool:
    """Does *edit*, made ahead, hold for this history, and hide nothing of what the model is to answer now?"""
    return view.transcript.holds(edit) and not is_premature(edit, view.transcript.messages)
