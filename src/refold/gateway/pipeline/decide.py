"""What is sent of one request, decided in a worker's thread: with the store, or from memory while
it fails.

Raises `FormatError`, `StoreError`, `ConversationBusy`.
"""

from dataclasses import replace

from refold.core.view import View
from refold.gateway.conversations.conversations import LatestRequest, Ticket
from refold.gateway.conversations.failures import log_passthrough
from refold.gateway.conversations.workers import Job
from refold.gateway.messages import APIS, Headers, Incoming, Outcome, Outgoing, is_auxiliary
from refold.gateway.pipeline.compaction import compact_if_due, compact_in_memory
from refold.gateway.pipeline.match import open_request, open_turn
from refold.gateway.pipeline.turns import Resources, Turn, model_of
from refold.gateway.policy.body_fields import (
    add_native_fields,
    is_strict_json,
    lower_cap,
    write_cap,
)
from refold.gateway.policy.request_kind import (
    is_added_summary_request,
    refuse_server_history,
    request_kind,
    server_history_field,
)


def decide(resources: Resources, incoming: Incoming, job: Job) -> Outgoing:
    """Return what to send for *incoming*."""
    if incoming.api not in APIS or is_auxiliary(incoming.path):
        return Outgoing(incoming.body, reason="path")
    payload = open_request(resources, incoming)
    if field := server_history_field(incoming.api, payload.body):
        is_refused = field in resources.settings.refuse
        response = refuse_server_history(field, payload.body) if is_refused else None
        if response is None:
            return Outgoing(incoming.body, outcome="opaque", reason="delta")
        return Outgoing(incoming.body, outcome="refused", reason=field, response=response)
    if not len(payload):
        return Outgoing(incoming.body, reason="empty")
    kind = request_kind(incoming, payload)
    if kind not in ("", "compaction", "memory"):
        return Outgoing(incoming.body, outcome="side", reason=kind, model=model_of(payload))
    turn = job.turn = open_turn(resources, incoming, payload)
    if turn.in_memory:
        return decide_from_memory(turn, "resting", without_store=True)
    history = turn.conversation.history
    with turn.hold(resources.settings.decide_timeout_seconds / 2):
        view = turn.show(first=True)
        if not kind and is_added_summary_request(history.messages, view.transcript.messages):
            kind = "compaction"
        if kind and turn.fits_unedited(view):
            tokens = view.tokens_unedited
            return Outgoing(incoming.body, (), tokens, tokens, "side", kind, model=turn.model)
        view, reason = compact_if_due(turn, view, opportunistic=not kind)
        turn.save(view)
        if not kind:
            history.remember(view)
    resources.breaker.record_success()
    return seal(turn, view, reason)


def decide_count(resources: Resources, incoming: Incoming, job: Job) -> Outgoing:
    """Return what is shown of a conversation, for a look: nothing is begun, nothing more is done to
    it."""
    payload = open_request(resources, incoming)
    if not len(payload) or server_history_field(incoming.api, payload.body):
        return Outgoing(incoming.body)
    turn = job.turn = open_turn(resources, incoming, payload, is_kept=False)
    if turn.in_memory:
        return decide_from_memory(turn, "resting", without_store=False)
    with turn.hold(resources.settings.decide_timeout_seconds / 2):
        view = turn.compactor.show(turn.payload)
    if not view.visible_edits:
        return Outgoing(incoming.body)
    before, after = view.tokens_unedited, view.tokens
    return Outgoing(
        turn.encode(view), _visible_ids(view), before, after, "edited", "shown", model=turn.model
    )


def decide_from_memory(turn: Turn, reason: str, *, without_store: bool) -> Outgoing:
    """Return what was shown before, from memory; the request as it came if nothing was.

    Otherwise signed thinking would not stand where it was thought, and a long history would not
    fit. *without_store*: what is due at the hard level is done in memory too, and kept for when
    the store is back (C11).
    """
    conversation = turn.conversation
    if not conversation.shown.ids and not without_store:
        return Outgoing(turn.incoming.body, outcome="failed", reason=reason)
    turn = replace(turn, in_memory=True)
    with turn.hold(turn.resources.settings.decide_timeout_seconds / 2):
        conversation.is_interrupted = conversation.is_interrupted or without_store
        view = turn.show()
        if without_store:
            view = compact_in_memory(turn, view)
        turn.save(view)
    return seal(turn, view, reason, "failed")


def seal(turn: Turn, view: View, reason: str, outcome: Outcome = "edited") -> Outgoing:
    """Return the request that *view* makes, with the fields that its window and the settings ask
    for."""
    incoming, settings, headers = turn.incoming, turn.resources.settings, Headers()
    unlimited = turn.encode(view)
    source = _lower_cap(turn, view, unlimited)
    if outcome == "edited" and not view.visible_edits:
        outcome, reason = ("untouched", "") if source is unlimited else ("edited", "cap")
    if fields := settings.native.get(incoming.api):
        source, headers = add_native_fields(incoming, turn.payload.body, source, fields)
        if outcome == "untouched" and source is not incoming.body:
            outcome, reason = "edited", "native"
    before, after = view.tokens_unedited, view.tokens
    turn.conversation.latest = LatestRequest(
        turn.model, incoming.upstream, settings.clock(), replace(view, source=None)
    )
    turn.resources.note_session(turn.conversation)
    if source is not incoming.body and not is_strict_json(incoming.body):
        log_passthrough(incoming.api, "unstrict")
        return Outgoing(incoming.body, (), before, before, "opaque", "unstrict", model=turn.model)
    ticket, ids = Ticket(turn.conversation, view), _visible_ids(view)
    return Outgoing(source, ids, before, after, outcome, reason, ticket, headers, turn.model)


def _lower_cap(turn: Turn, view: View, source: bytes) -> bytes:
    """Return *source* with the cap of output that its window leaves, if its own does not fit."""
    window, api = turn.levels.window, turn.incoming.api
    if not turn.resources.settings.lower_output_cap or window is None:
        return source
    cap = lower_cap(api, turn.payload.body, view.tokens, window.context)
    if cap is None:
        return source
    turn.resources.counters.add("capped", api=api)
    return write_cap(source, cap)


def _visible_ids(view: View) -> tuple[str, ...]:
    return tuple(placed.edit.id for placed in view.visible_edits)
