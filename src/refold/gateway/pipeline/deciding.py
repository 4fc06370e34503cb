"""What is sent of one request, decided in a worker's thread: with the store, or out of memory while it fails."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from refold.codecs.payload import Payload
from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation, LatestRequest
from refold.gateway.conversations.failures import log_passthrough
from refold.gateway.conversations.workers import Job
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import APIS, Incoming, Outcome, Outgoing, is_auxiliary
from refold.gateway.pipeline.accounting import Ticket
from refold.gateway.pipeline.match import ConversationMatcher
from refold.gateway.pipeline.retry import Retry, lower_caps
from refold.gateway.pipeline.turns import Turn, Turns
from refold.gateway.policy.body_fields import add_native_fields, is_strict_json
from refold.gateway.policy.policy import NEVER
from refold.gateway.policy.request_kind import (
    is_added_summary_request,
    refuse_server_history,
    request_kind,
    server_history_field,
)
from refold.gateway.policy.upstream_errors import read_figures
from refold.gateway.settings import Settings
from refold.models.fallback import CircuitBreaker

RETRY_SHARE = 0.6
"""The share of the window, or of what was sent, that is aimed at after a context error."""


@dataclass(frozen=True, eq=False)
class Decider:
    """Decode, identify, load, compact, save, encode. Raises `FormatError`, `StoreError`, `Busy`."""

    settings: Settings
    turns: Turns
    matcher: ConversationMatcher
    open: Callable[[Incoming], Payload]
    breaker: CircuitBreaker

    def decide(self, job: Job, incoming: Incoming) -> Outgoing:
        """What to send for *incoming*."""
        if incoming.api not in APIS or is_auxiliary(incoming.path):
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
        conversation = job.conversation = self.matcher.find_or_create(incoming, envelope)
        if not self._is_store_usable(conversation):
            return self.decide_from_memory(incoming, conversation, "resting", without_store=True)
        turn = Turn(incoming, envelope, conversation)
        with conversation.hold(self.settings.decide_timeout_seconds / 2):
            view, reason = self.turns.apply_known_edits(turn, first=True)
            if side or is_added_summary_request(
                conversation.history.messages, view.transcript.messages
            ):
                side = side or "compaction"
                if self.turns.fits_unedited(turn, view):
                    said = view.tokens_unedited
                    return Outgoing(incoming.body, (), said, said, "side", side, model=turn.model)
            view, reason = self.turns.compact_if_due(turn, view, reason, spare=not side)
            if not side:
                conversation.history.remember(view)
        self.breaker.record_success()
        return self._seal(turn, view, reason)

    def show(self, job: Job, incoming: Incoming) -> Outgoing:
        """What is shown of a conversation, for a look: nothing is begun, nothing more is done to it."""
        envelope = self.open(incoming)
        if not len(envelope) or server_history_field(incoming.api, envelope.body):
            return Outgoing(incoming.body)
        conversation = job.conversation = self.matcher.find_unkept(incoming, envelope)
        if not self._is_store_usable(conversation):
            return self.decide_from_memory(incoming, conversation, "resting", without_store=False)
        turn = Turn(incoming, envelope, conversation)
        with conversation.hold(self.settings.decide_timeout_seconds / 2):
            view = conversation.compactor.show(turn.history)
        if not view.visible_edits:
            return Outgoing(incoming.body)
        edits = tuple(placed.edit.id for placed in view.visible_edits)
        return Outgoing(
            turn.encode(view),
            edits,
            view.tokens_unedited,
            view.tokens,
            "edited",
            "shown",
            model=turn.model,
        )

    # --- after a refusal --------------------------------------------------------------------------

    def drop_thinking(
        self, job: Job, incoming: Incoming, outgoing: Outgoing, error: bytes, *, stored: bool = True
    ) -> Outgoing:
        """*outgoing* without signed thinking that its upstream refuses; *outgoing* itself where there is none."""
        envelope = self.open(incoming)
        conversation = job.conversation = job.conversation or self.matcher.find_or_create(
            incoming, envelope
        )
        turn, stored = (
            Turn(incoming, envelope, conversation),
            stored and self._is_store_usable(conversation),
        )
        with conversation.hold(self.settings.summary_timeout_seconds, memory=not stored):
            mend = self._again.drop_thinking if stored else self._again.drop_thinking_in_memory
            view = mend(turn, outgoing.body, error, wholly=outgoing.reason == "binding")
        sealed = self._seal(turn, view, "binding", "retried")
        return outgoing if sealed.body == outgoing.body else sealed

    def shrink(
        self, job: Job, incoming: Incoming, outgoing: Outgoing, error: bytes, *, stored: bool = True
    ) -> Outgoing:
        """Something smaller after a context error; *outgoing* itself where nothing is."""
        envelope = self.open(incoming)
        if not len(envelope) or server_history_field(incoming.api, envelope.body):
            return outgoing
        conversation = job.conversation = job.conversation or self.matcher.find_or_create(
            incoming, envelope
        )
        turn = Turn(incoming, envelope, conversation)
        if job.figures is None:  # an error teaches once
            job.figures = self.turns.model_limits.learn(turn, read_figures(error), outgoing.tokens_after)
        told = job.figures
        if capped := lower_caps(turn, outgoing, told, keep=0.5):
            return capped
        stored = stored and self._is_store_usable(conversation)
        with conversation.hold(self.settings.summary_timeout_seconds, memory=not stored):
            harder = self._again.shrink if stored else self._again.shrink_in_memory
            view = harder(turn, told, RETRY_SHARE, outgoing.tokens_after or told.tokens or NEVER)
        if view is None:
            return lower_caps(turn, outgoing, told, keep=0.0) or outgoing
        sealed = self._seal(turn, view, "context", "retried")
        return (
            lower_caps(turn, sealed, told.scale(outgoing.tokens_after, sealed.tokens_after), keep=0.0)
            or sealed
        )

    # --- failing open -----------------------------------------------------------------------------

    def decide_from_memory(
        self, incoming: Incoming, conversation: Conversation, reason: str, *, without_store: bool
    ) -> Outgoing:
        """What was shown before, out of memory: without it signed thinking would not stand where it was thought, and a long
        history would not fit. *without_store*: what is due at the hard level is done there too, and kept for when the
        store is back (C11). Where nothing is, the request as it came."""
        if not conversation.shown.ids and not without_store:
            return Outgoing(incoming.body, outcome="failed", reason=reason)
        turn = Turn(incoming, self.open(incoming), conversation)
        with conversation.hold(self.settings.decide_timeout_seconds / 2, memory=True):
            conversation.is_interrupted = conversation.is_interrupted or without_store
            view = self.turns.show_from_memory(turn, compact=without_store)
        return self._seal(turn, view, reason, "failed")

    def _is_store_usable(self, conversation: Conversation) -> bool:
        """May the store be asked for a conversation?"""
        return not conversation.is_stuck and self.breaker.allows()

    # --- what goes out ----------------------------------------------------------------------------

    @property
    def _again(self) -> Retry:
        return Retry(self.turns)

    def _delta(self, incoming: Incoming, envelope: Payload, field: str) -> Outgoing:
        answer = (
            refuse_server_history(field, envelope.body) if field in self.settings.refuse else None
        )
        if answer is None:
            return Outgoing(incoming.body, outcome="opaque", reason="delta")
        return Outgoing(incoming.body, outcome="refused", reason=field, response=answer)

    def _seal(self, turn: Turn, view: View, reason: str, outcome: Outcome = "edited") -> Outgoing:
        """The request that *view* makes, its cap of output lowered where the window asks for it."""
        source, capped = self.turns.encode(turn, view)
        incoming, headers = turn.incoming, tuple[tuple[str, str], ...]()
        if outcome == "edited" and not view.visible_edits:
            outcome, reason = ("edited", "cap") if capped else ("untouched", "")
        if wanted := self.settings.native.get(incoming.api):
            source, headers = add_native_fields(incoming, turn.envelope.body, source, wanted)
            if outcome == "untouched" and source is not incoming.body:
                outcome, reason = "edited", "native"
        edits = tuple(placed.edit.id for placed in view.visible_edits)
        turn.conversation.latest = LatestRequest(
            turn.model,
            incoming.upstream,
            self.settings.clock(),
            replace(view, source=None),
        )
        if source is not incoming.body and not is_strict_json(incoming.body):
            log_passthrough(incoming.api, "unstrict")
            return Outgoing(
                incoming.body,
                (),
                view.tokens_unedited,
                view.tokens_unedited,
                "opaque",
                "unstrict",
                model=turn.model,
            )
        ticket = Ticket(turn.conversation, view)
        return Outgoing(
            source,
            edits,
            view.tokens_unedited,
            view.tokens,
            outcome,
            reason,
            ticket,
            headers,
            turn.model,
        )
