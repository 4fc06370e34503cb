"""What is sent when an upstream has refused a request: something shorter, or without the signed
thinking that it takes to be bound elsewhere.

Runs in a worker's thread, with the store, or in memory if a turn in memory is given. Raises
`FormatError`, `StoreError`, `ConversationBusy`.
"""

from dataclasses import replace

from refold.codecs.codec import Payload
from refold.compactor.late_edits import strip_signed_thinking
from refold.core.view import View
from refold.gateway.conversations.workers import Job
from refold.gateway.messages import Incoming, Outgoing
from refold.gateway.pipeline.compaction import hold_claim
from refold.gateway.pipeline.decide import seal
from refold.gateway.pipeline.match import open_request, open_turn
from refold.gateway.pipeline.turns import Resources, Turn
from refold.gateway.policy.body_fields import (
    SMALLEST_CAP,
    fit_caps,
    read_cap,
    thinking_budget,
    write_cap,
)
from refold.gateway.policy.policy import NEVER, strategies_for
from refold.gateway.policy.request_kind import server_history_field
from refold.gateway.policy.upstream_errors import (
    ErrorFigures,
    block_position,
    read_figures,
    thinking_block_index,
)

SHARE = 0.6
"""Of the window, or of what was sent: what is aimed at after a context error."""
UNKNOWN_WINDOW_SHARE = 0.15
"""Of what was sent, if nothing tells of the window: neither the error, nor a table, nor an answer
to half as much. Less than a fifth, for a history may be handed to a server with a window five times
smaller."""
ACTOR = "auto (context error)"


def drop_thinking(
    resources: Resources, incoming: Incoming, outgoing: Outgoing, error: bytes, job: Job
) -> Outgoing:
    """Return *outgoing* without signed thinking that its upstream refuses, from the block on that
    *error* names (AN-7, AN-10); *outgoing* itself if there is none.

    It stays so, for what is thought from now on is bound to that.
    """
    turn = _find_turn(resources, incoming, _find_payload(resources, incoming, job), job)
    first = 0 if outgoing.reason == "binding" else thinking_block_index(outgoing.body, error)
    with turn.hold(resources.settings.summary_timeout_seconds):
        view = turn.show()
        turn.store.save(strip_signed_thinking(view, block_position(view, first)))
        view = turn.show()
        turn.save(view)
    sealed = seal(turn, view, "binding", "retried")
    return outgoing if sealed.body == outgoing.body else sealed


def shrink(
    resources: Resources, incoming: Incoming, outgoing: Outgoing, error: bytes, job: Job
) -> Outgoing:
    """Return something smaller after a context error; *outgoing* itself if nothing is."""
    payload = _find_payload(resources, incoming, job)
    if not len(payload) or server_history_field(incoming.api, payload.body):
        return outgoing
    turn, sent = _find_turn(resources, incoming, payload, job), outgoing.tokens_after
    if job.figures is None:  # an error teaches once
        job.figures = resources.model_limits.learn(
            incoming, turn.model, turn.conversation, read_figures(error), sent
        )
    figures: ErrorFigures = job.figures
    if capped := lower_caps(turn, outgoing, figures, keep=0.5):
        return capped
    with turn.hold(resources.settings.summary_timeout_seconds):
        view = _compact(turn, figures)
    if view.tokens >= (sent or figures.tokens or NEVER):
        return lower_caps(turn, outgoing, figures, keep=0.0) or outgoing
    sealed = seal(turn, view, "context", "retried")
    figures = figures.scale(sent, sealed.tokens_after)
    return lower_caps(turn, sealed, figures, keep=0.0) or sealed


def lower_caps(
    turn: Turn, outgoing: Outgoing, figures: ErrorFigures, *, keep: float
) -> Outgoing | None:
    """Return *outgoing* with the cap that its upstream's figures leave; None if none is to be
    lowered."""
    body, room = outgoing.body, figures.answer_room(outgoing.tokens_after)
    caps = fit_caps(turn.incoming.api, turn.payload.body, room, keep)
    for cap in caps:
        body = write_cap(body, cap)
    return replace(outgoing, body=body, outcome="retried", reason="context") if caps else None


def _find_payload(resources: Resources, incoming: Incoming, job: Job) -> Payload:
    payload: Payload = job.turn.payload if job.turn else open_request(resources, incoming)
    return payload


def _find_turn(resources: Resources, incoming: Incoming, payload: Payload, job: Job) -> Turn:
    """Return the turn of a request that was refused; its conversation is known unless it passed
    unread."""
    turn: Turn = job.turn or open_turn(resources, incoming, payload)
    job.turn, conversation = turn, turn.conversation
    conversation.is_interrupted = conversation.is_interrupted or turn.in_memory
    return turn


def _compact(turn: Turn, figures: ErrorFigures) -> View:
    """Return a view that should fit after all, and keep it."""
    view = turn.show()
    with hold_claim(turn, view, wait=True) as claim:
        view = turn.show() if claim.has_waited else view
        goal = _goal(turn, view, figures)
        strategies = strategies_for(turn.resources.settings, goal)
        compactor = turn.compactor.with_strategies(strategies)
        view = compactor.compact_now(turn.payload, to=goal, actor=ACTOR)
    turn.save(view)
    turn.conversation.baseline_tokens = view.tokens
    return view


def _goal(turn: Turn, view: View, figures: ErrorFigures) -> int:
    """Return the estimated tokens to come down to: a share of the window as the upstream counts."""
    limits, window, request = turn.resources.model_limits, turn.levels.window, turn.incoming
    room = _input_limit(turn, figures) or (window.room if window else 0) or view.tokens
    is_known = figures.limit or limits.usable_tokens(request, turn.model) is not None
    is_proved = view.tokens < 2 * limits.largest_answered(request, turn.model)
    share = SHARE if is_known or is_proved else UNKNOWN_WINDOW_SHARE
    counted = max(figures.tokens or room, view.tokens)
    return int(view.tokens * min(share, share * room / max(counted, 1)))


def _input_limit(turn: Turn, figures: ErrorFigures) -> int:
    """Return what the upstream's limit leaves beside the answer, whose cap will be lowered; 0 if
    there is no limit."""
    cap = read_cap(turn.incoming.api, turn.payload.body)
    answer = figures.output
    if cap:
        answer = min(cap.tokens, thinking_budget(turn.payload.body) + SMALLEST_CAP)
    is_enough = figures.limit >= answer + SMALLEST_CAP
    return figures.limit - answer if is_enough else figures.limit
