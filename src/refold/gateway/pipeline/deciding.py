"""What is sent of one request, decided in a worker's thread: with the store, or out of memory while it fails."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from refold.codecs.payload import Envelope
from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation, Held, LatestRequest
from refold.gateway.conversations.failures import log_passthrough
from refold.gateway.conversations.workers import Job
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import APIS, Incoming, Outcome, Outgoing, is_aside
from refold.gateway.pipeline import retry as again
from refold.gateway.pipeline.accounting import Ticket
from refold.gateway.pipeline.match import ConversationMatcher
from refold.gateway.pipeline.retry import Retry
from refold.gateway.pipeline.turns import Turn, Turns
from refold.gateway.policy import native
from refold.gateway.policy.context_errors import read_figures
from refold.gateway.policy.policy import NEVER
from refold.gateway.policy.request_kind import is_added_summary_request, request_kind
from refold.gateway.policy.server_history import refuse_server_history, server_history_field
from refold.gateway.policy.thinking_errors import is_strict
from refold.gateway.settings import Settings
from refold.models.fallback import Breaker

RETRY_SHARE = 0.6
"""The share of the window, or of what was sent, that is aimed at after a context error."""


@dataclass(frozen=True, eq=False)
class Decider:
    """Decode, identify, load, compact, save, encode. Raises `FormatError`, `StoreError`, `Busy`."""

    settings: Settings
    turns: Turns
    belonging: ConversationMatcher
    open: Callable[[Incoming], Envelope]
    breaker: Breaker

    def decided(self, job: Job, incoming: Incoming) -> Outgoing:
        """What to send for *incoming*."""
        if incoming.api not in APIS or is_aside(incoming.path):
            return Outgoing(incoming.body, reason="path")
        envelope = self.open(incoming)
        if field := server_history_field(incoming.api, envelope.body):
            return self._delta(incoming, envelope, field)
        if not len(envelope):
            return Outgoing(incoming.body, reason="empty")
        side = request_kind(incoming, envelope)
        if side not in ("", "compaction", "memory"):
            return Outgoing(
                incoming.body,
                outcome="side",
                reason=side,
                model=request_model(incoming.path, envelope.body),
            )
        thread = job.thread = self.belonging.thread_of(incoming, envelope)
        if not self._may_ask(thread):
            return self.held(incoming, thread, "resting", without_store=True)
        turn = Turn(incoming, envelope, thread)
        with Held(thread, self.settings.decide_timeout_seconds / 2):
            view, reason = self.turns.shown(turn, first=True)
            if side or is_added_summary_request(thread.recent, view.transcript.messages):
                side = side or "compaction"
                if self.turns.fits_as_said(turn, view):
                    said = view.said
                    return Outgoing(incoming.body, (), said, said, "side", side, model=turn.model)
            view, reason = self.turns.taken(turn, view, reason, spare=not side)
            if not side:
                thread.remember(view)
        self.breaker.succeeded()
        return self._sealed(turn, view, reason)

    def shown(self, job: Job, incoming: Incoming) -> Outgoing:
        """What is shown of a conversation, for a look: nothing is begun, nothing more is done to it."""
        envelope = self.open(incoming)
        if not len(envelope) or server_history_field(incoming.api, envelope.body):
            return Outgoing(incoming.body)
        thread = job.thread = self.belonging.looked_at(incoming, envelope)
        if not self._may_ask(thread):
            return self.held(incoming, thread, "resting", without_store=False)
        turn = Turn(incoming, envelope, thread)
        with Held(thread, self.settings.decide_timeout_seconds / 2):
            view = thread.compactor(turn.history)
        if not view.top:
            return Outgoing(incoming.body)
        edits = tuple(placed.edit.id for placed in view.top)
        return Outgoing(
            turn.encode(view), edits, view.said, view.tokens, "edited", "shown", model=turn.model
        )

    # --- after a refusal --------------------------------------------------------------------------

    def unbound(
        self, job: Job, incoming: Incoming, outgoing: Outgoing, error: bytes, *, stored: bool = True
    ) -> Outgoing:
        """*outgoing* without signed thinking that its upstream refuses; *outgoing* itself where there is none."""
        envelope = self.open(incoming)
        thread = job.thread = job.thread or self.belonging.thread_of(incoming, envelope)
        turn, stored = Turn(incoming, envelope, thread), stored and self._may_ask(thread)
        with Held(thread, self.settings.summary_timeout_seconds, memory=not stored):
            mend = self._again.unbound if stored else self._again.unbound_in_memory
            view = mend(turn, outgoing.body, error, wholly=outgoing.reason == "binding")
        sealed = self._sealed(turn, view, "binding", "retried")
        return outgoing if sealed.body == outgoing.body else sealed

    def smaller(
        self, job: Job, incoming: Incoming, outgoing: Outgoing, error: bytes, *, stored: bool = True
    ) -> Outgoing:
        """Something smaller after a context error; *outgoing* itself where nothing is."""
        envelope = self.open(incoming)
        if not len(envelope) or server_history_field(incoming.api, envelope.body):
            return outgoing
        thread = job.thread = job.thread or self.belonging.thread_of(incoming, envelope)
        turn = Turn(incoming, envelope, thread)
        if job.told is None:  # an error teaches once
            job.told = self.turns.rooms.learn(turn, read_figures(error), outgoing.after)
        told = job.told
        if capped := again.lower_caps(turn, outgoing, told, keep=0.5):
            return capped
        stored = stored and self._may_ask(thread)
        with Held(thread, self.settings.summary_timeout_seconds, memory=not stored):
            harder = self._again.harder if stored else self._again.harder_in_memory
            view = harder(turn, told, RETRY_SHARE, outgoing.after or told.tokens or NEVER)
        if view is None:
            return again.lower_caps(turn, outgoing, told, keep=0.0) or outgoing
        sealed = self._sealed(turn, view, "context", "retried")
        return (
            again.lower_caps(turn, sealed, told.scaled(outgoing.after, sealed.after), keep=0.0)
            or sealed
        )

    # --- failing open -----------------------------------------------------------------------------

    def held(
        self, incoming: Incoming, thread: Conversation, reason: str, *, without_store: bool
    ) -> Outgoing:
        """What was shown before, out of memory: without it signed thinking would not stand where it was thought, and a long
        history would not fit. *without_store*: what is due at the hard level is done there too, and kept for when the
        store is back (C11). Where nothing is, the request as it came."""
        if not thread.noted and not without_store:
            return Outgoing(incoming.body, outcome="failed", reason=reason)
        turn = Turn(incoming, self.open(incoming), thread)
        with Held(thread, self.settings.decide_timeout_seconds / 2, memory=True):
            thread.torn = thread.torn or without_store
            view = self.turns.from_memory(turn, compact=without_store)
        return self._sealed(turn, view, reason, "failed")

    def _may_ask(self, thread: Conversation) -> bool:
        """May the store be asked for a conversation?"""
        return not thread.is_stuck and self.breaker.allows()

    # --- what goes out ----------------------------------------------------------------------------

    @property
    def _again(self) -> Retry:
        return Retry(self.turns)

    def _delta(self, incoming: Incoming, envelope: Envelope, field: str) -> Outgoing:
        answer = (
            refuse_server_history(field, envelope.body) if field in self.settings.refuse else None
        )
        if answer is None:
            return Outgoing(incoming.body, outcome="opaque", reason="delta")
        return Outgoing(incoming.body, outcome="refused", reason=field, refusal=answer)

    def _sealed(self, turn: Turn, view: View, reason: str, outcome: Outcome = "edited") -> Outgoing:
        """The request that *view* makes, its cap of output lowered where the window asks for it."""
        source, capped = self.turns.written(turn, view)
        incoming, headers = turn.incoming, tuple[tuple[str, str], ...]()
        if outcome == "edited" and not view.top:
            outcome, reason = ("edited", "cap") if capped else ("untouched", "")
        if wanted := self.settings.native.get(incoming.api):
            source, headers = native.add_native_fields(incoming, turn.envelope.body, source, wanted)
            if outcome == "untouched" and source is not incoming.body:
                outcome, reason = "edited", "native"
        edits = tuple(placed.edit.id for placed in view.top)
        turn.thread.latest = LatestRequest(
            turn.model,
            incoming.upstream,
            self.settings.clock(),
            view.said,
            replace(view, envelope=None),
        )
        if source is not incoming.body and not is_strict(incoming.body):
            log_passthrough(incoming.api, "unstrict")
            return Outgoing(
                incoming.body, (), view.said, view.said, "opaque", "unstrict", model=turn.model
            )
        ticket = Ticket(turn.thread, view)
        return Outgoing(
            source, edits, view.said, view.tokens, outcome, reason, ticket, headers, turn.model
        )
