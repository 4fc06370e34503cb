"""What is sent of one request, decided in a worker's thread: with the store, or from memory while
it fails."""

from dataclasses import dataclass, replace

from refold.codecs.payload import Payload
from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation, LatestRequest, Ticket, Turn
from refold.gateway.conversations.failures import log_passthrough
from refold.gateway.conversations.workers import Job
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import APIS, Headers, Incoming, Outcome, Outgoing, is_auxiliary
from refold.gateway.pipeline.match import ConversationMatcher
from refold.gateway.pipeline.retry import Retry, lower_caps
from refold.gateway.pipeline.turns import Turns
from refold.gateway.policy.body_fields import add_native_fields, is_strict_json
from refold.gateway.policy.policy import NEVER
from refold.gateway.policy.request_kind import (
    is_added_summary_request,
    refuse_server_history,
    request_kind,
    server_history_field,
)
from refold.gateway.policy.upstream_errors import ErrorFigures, read_figures, thinking_block_index
from refold.gateway.settings import Settings
from refold.models.fallback import CircuitBreaker


@dataclass(frozen=True, eq=False)
class Decider:
    """Decode, identify, load, compact, save, encode. Raises `FormatError`, `StoreError`,
    `ConversationBusy`."""

    settings: Settings
    turns: Turns
    matcher: ConversationMatcher
    breaker: CircuitBreaker
    """Says when the store is left alone."""

    def decide(self, job: Job, incoming: Incoming) -> Outgoing:
        """Return what to send for *incoming*."""
        if incoming.api not in APIS or is_auxiliary(incoming.path):
            return Outgoing(incoming.body, reason="path")
        payload = self.matcher.open(incoming)
        if field := server_history_field(incoming.api, payload.body):
            response = None
            if field in self.settings.refuse:
                response = refuse_server_history(field, payload.body)
            if response is None:
                return Outgoing(incoming.body, outcome="opaque", reason="delta")
            return Outgoing(incoming.body, outcome="refused", reason=field, response=response)
        if not len(payload):
            return Outgoing(incoming.body, reason="empty")
        kind = request_kind(incoming, payload)
        if kind not in ("", "compaction", "memory"):
            model = request_model(incoming.path, payload.body)
            return Outgoing(incoming.body, outcome="side", reason=kind, model=model)
        conversation = job.conversation = self.matcher.find_or_create(incoming, payload)
        if not self._is_store_usable(conversation):
            return self.decide_from_memory(incoming, conversation, "resting", without_store=True)
        turn = Turn(incoming, payload, conversation)
        with conversation.hold(self.settings.decide_timeout_seconds / 2):
            view = self.turns.apply_known_edits(turn, first=True)
            before, after = conversation.history.messages, view.transcript.messages
            if not kind and is_added_summary_request(before, after):
                kind = "compaction"
            if kind and self.turns.fits_unedited(turn, view):
                tokens = view.tokens_unedited
                return Outgoing(incoming.body, (), tokens, tokens, "side", kind, model=turn.model)
            view, reason = self.turns.compact_if_due(turn, view, opportunistic=not kind)
            if not kind:
                conversation.history.remember(view)
        self.breaker.record_success()
        return self._seal(turn, view, reason)

    def show(self, job: Job, incoming: Incoming) -> Outgoing:
        """Return what is shown of a conversation, for a look: nothing is begun, nothing more is
        done to it."""
        payload = self.matcher.open(incoming)
        if not len(payload) or server_history_field(incoming.api, payload.body):
            return Outgoing(incoming.body)
        conversation = job.conversation = self.matcher.find_unkept(incoming, payload)
        if not self._is_store_usable(conversation):
            return self.decide_from_memory(incoming, conversation, "resting", without_store=False)
        turn = Turn(incoming, payload, conversation)
        with conversation.hold(self.settings.decide_timeout_seconds / 2):
            view = conversation.compactor.show(turn.history)
        if not view.visible_edits:
            return Outgoing(incoming.body)
        return Outgoing(
            turn.encode(view),
            _visible_ids(view),
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
        """Return *outgoing* without signed thinking that its upstream refuses; *outgoing* itself if
        there is none."""
        turn = self._find_turn(job, incoming, self.matcher.open(incoming))
        stored = stored and self._is_store_usable(turn.conversation)
        first = 0 if outgoing.reason == "binding" else thinking_block_index(outgoing.body, error)
        with turn.conversation.hold(self.settings.summary_timeout_seconds, memory=not stored):
            view = Retry(self.turns).drop_thinking(turn, first, stored=stored)
        sealed = self._seal(turn, view, "binding", "retried")
        return outgoing if sealed.body == outgoing.body else sealed

    def shrink(
        self, job: Job, incoming: Incoming, outgoing: Outgoing, error: bytes, *, stored: bool = True
    ) -> Outgoing:
        """Return something smaller after a context error; *outgoing* itself if nothing is."""
        payload = self.matcher.open(incoming)
        if not len(payload) or server_history_field(incoming.api, payload.body):
            return outgoing
        turn, sent = self._find_turn(job, incoming, payload), outgoing.tokens_after
        if job.figures is None:  # an error teaches once
            job.figures = self.turns.model_limits.learn(turn, read_figures(error), sent)
        figures: ErrorFigures = job.figures
        if capped := lower_caps(turn, outgoing, figures, keep=0.5):
            return capped
        stored = stored and self._is_store_usable(turn.conversation)
        with turn.conversation.hold(self.settings.summary_timeout_seconds, memory=not stored):
            most = sent or figures.tokens or NEVER
            view = Retry(self.turns).shrink(turn, figures, most, stored=stored)
        if view is None:
            return lower_caps(turn, outgoing, figures, keep=0.0) or outgoing
        sealed = self._seal(turn, view, "context", "retried")
        figures = figures.scale(sent, sealed.tokens_after)
        return lower_caps(turn, sealed, figures, keep=0.0) or sealed

    def _find_turn(self, job: Job, incoming: Incoming, payload: Payload) -> Turn:
        """Return the turn of a request that was refused; its conversation is known unless it passed
        unread."""
        if job.conversation is None:
            job.conversation = self.matcher.find_or_create(incoming, payload)
        return Turn(incoming, payload, job.conversation)

    # --- failing open -----------------------------------------------------------------------------

    def decide_from_memory(
        self, incoming: Incoming, conversation: Conversation, reason: str, *, without_store: bool
    ) -> Outgoing:
        """Return what was shown before, from memory; the request as it came if nothing was.

        Otherwise signed thinking would not stand where it was thought, and a long history would not
        fit. *without_store*: what is due at the hard level is done in memory too, and kept for when
        the store is back (C11).
        """
        if not conversation.shown.ids and not without_store:
            return Outgoing(incoming.body, outcome="failed", reason=reason)
        turn = Turn(incoming, self.matcher.open(incoming), conversation)
        with conversation.hold(self.settings.decide_timeout_seconds / 2, memory=True):
            conversation.is_interrupted = conversation.is_interrupted or without_store
            view = self.turns.show_from_memory(turn, compact=without_store)
        return self._seal(turn, view, reason, "failed")

    def _is_store_usable(self, conversation: Conversation) -> bool:
        """May the store be asked for a conversation?"""
        return not conversation.is_stuck and self.breaker.allows()

    def _seal(self, turn: Turn, view: View, reason: str, outcome: Outcome = "edited") -> Outgoing:
        """Return the request that *view* makes, with the fields that its window and the settings
        ask for."""
        source, is_capped = self.turns.encode(turn, view)
        incoming, headers = turn.incoming, Headers()
        if outcome == "edited" and not view.visible_edits:
            outcome, reason = ("edited", "cap") if is_capped else ("untouched", "")
        if fields := self.settings.native.get(incoming.api):
            source, headers = add_native_fields(incoming, turn.payload.body, source, fields)
            if outcome == "untouched" and source is not incoming.body:
                outcome, reason = "edited", "native"
        before, after = view.tokens_unedited, view.tokens
        turn.conversation.latest = LatestRequest(
            turn.model, incoming.upstream, self.settings.clock(), replace(view, source=None)
        )
        if source is not incoming.body and not is_strict_json(incoming.body):
            log_passthrough(incoming.api, "unstrict")
            return Outgoing(
                incoming.body, (), before, before, "opaque", "unstrict", model=turn.model
            )
        return Outgoing(
            source,
            _visible_ids(view),
            before,
            after,
            outcome,
            reason,
            Ticket(turn.conversation, view),
            headers,
            turn.model,
        )


def _visible_ids(view: View) -> tuple[str, ...]:
    return tuple(placed.edit.id for placed in view.visible_edits)
