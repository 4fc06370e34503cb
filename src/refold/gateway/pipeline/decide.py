"""Decisions about what to send for a request, and again if its upstream refuses it. They run in a
worker thread, with the store, or from memory while the store fails.

Raises `FormatError`, `StoreError`, `ConversationBusy`.
"""

from dataclasses import replace
from itertools import pairwise

from refold.compactor.late_edits import strip_signed_thinking
from refold.core.view import View
from refold.errors import StoreError
from refold.gateway.conversations.conversations import (
    AnswerContext,
    ConversationBusy,
    LatestRequest,
    compute_ratio,
    count_unedited,
)
from refold.gateway.conversations.workers import DeadlineExceeded
from refold.gateway.exchange import (
    APIS,
    Headers,
    Incoming,
    Outcome,
    Outgoing,
    is_auxiliary,
    is_token_count,
)
from refold.gateway.logs import log_passthrough
from refold.gateway.pipeline.compaction import (
    compact_if_due,
    compact_in_memory,
    decide_hour_cache,
    hold_claim,
)
from refold.gateway.pipeline.engines import add_session, open_session
from refold.gateway.pipeline.limits import NEVER, strategies_for
from refold.gateway.pipeline.request_kind import (
    SMALLEST_CAP,
    add_native_fields,
    is_added_summary_request,
    is_strict_json,
    lengthen_cache,
    lower_caps,
    read_cap,
    refuse_server_history,
    request_kind,
    server_history_field,
    thinking_budget,
    write_caps,
)
from refold.gateway.pipeline.turns import (
    Progress,
    Resources,
    Turn,
    model_of,
    open_request,
    open_turn,
)
from refold.gateway.pipeline.upstream_errors import (
    ErrorFigures,
    block_position,
    read_figures,
    thinking_block_index,
)

RETRY_TARGET_SHARE = 0.6
"""Share of the window, or of the tokens sent, to compact to after a context error."""
UNKNOWN_WINDOW_SHARE = 0.15
"""Share of the tokens sent to compact to if the window is unknown: neither the error nor a table
names it, and no request of half the size was answered. Under a fifth, because a history may move to
a server with a window five times smaller."""
ACTOR = "auto (context error)"
"""Actor of these compactions in the ledger."""
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (StoreError, "store"),
    (DeadlineExceeded, "deadline"),
    (ConversationBusy, "busy"),
)


def failure_reason(error: BaseException) -> str:
    """Return the reason (`refold.gateway.exchange.REASONS`) for passing a request through after
    *error*."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "internal")


def decide(resources: Resources, incoming: Incoming, progress: Progress) -> Outgoing:
    """Return what to send for *incoming*."""
    if incoming.api not in APIS or is_auxiliary(incoming.path):
        return Outgoing(incoming.body, reason="path")
    if incoming.is_signed:
        log_passthrough(incoming.api, "signed")
        return Outgoing(incoming.body, outcome="opaque", reason="signed")
    payload = open_request(resources, incoming)
    if field := server_history_field(incoming.api, payload.body):
        is_refused = field in resources.settings.refuse
        response = refuse_server_history(field, payload.body) if is_refused else None
        if response is None:
            return Outgoing(
                incoming.body, outcome="opaque", reason="delta", model=model_of(payload)
            )
        return Outgoing(incoming.body, outcome="refused", reason=field, response=response)
    if not len(payload):
        return Outgoing(incoming.body, reason="empty", model=model_of(payload))
    kind = request_kind(incoming, payload)
    if kind not in ("", "compaction", "memory"):
        return Outgoing(incoming.body, outcome="side", reason=kind, model=model_of(payload))
    turn = progress.turn = open_turn(resources, incoming, payload)
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


def decide_count(resources: Resources, incoming: Incoming, progress: Progress) -> Outgoing:
    """Return the token count request for a conversation as it is shown now, unchanged if no edit
    shows. Nothing is compacted, and a new conversation is not kept."""
    payload = open_request(resources, incoming)
    if incoming.is_signed or not len(payload) or server_history_field(incoming.api, payload.body):
        return Outgoing(incoming.body)
    turn = progress.turn = open_turn(resources, incoming, payload, is_kept=False)
    if turn.in_memory:
        return decide_from_memory(turn, "resting", without_store=False)
    return _show_count(turn, "edited", "shown")


def _show_count(turn: Turn, outcome: Outcome, reason: str) -> Outgoing:
    """Return the token count request for the conversation as it is shown."""
    with turn.hold(turn.resources.settings.decide_timeout_seconds / 2):
        view = turn.compactor.show(turn.payload)
    if not view.visible_edits:
        return Outgoing(turn.incoming.body)
    return Outgoing(
        view.encode(turn.payload),
        _visible_ids(view),
        count_unedited(view),
        view.tokens,
        outcome,
        reason,
        model=turn.model,
    )


def decide_from_memory(turn: Turn, reason: str, *, without_store: bool) -> Outgoing:
    """Return the request with the edits that were shown before, from memory.

    Without these, signed thinking would lose the prefix that it is bound to, and a long history
    would not fit. *without_store*: the store has failed, so a compaction due at the hard level is
    made in memory too, and saved once the store is back. Otherwise a request without earlier edits
    is unchanged. For a token count nothing is compacted or kept.
    """
    conversation, is_count = turn.conversation, is_token_count(turn.incoming.path)
    if not conversation.shown.ids and (is_count or not without_store):
        return Outgoing(turn.incoming.body, outcome="failed", reason=reason)
    turn = replace(turn, in_memory=True)
    if is_count:
        return _show_count(turn, "failed", reason)
    with turn.hold(turn.resources.settings.decide_timeout_seconds / 2):
        conversation.shown.is_interrupted |= without_store
        view = turn.show()
        if without_store:
            view = compact_in_memory(turn, view)
        turn.save(view)
    return seal(turn, view, reason, "failed")


def seal(turn: Turn, view: View, reason: str, outcome: Outcome = "edited") -> Outgoing:
    """Return the request for *view*, with the fields that its window and the settings require."""
    incoming, settings, headers = turn.incoming, turn.resources.settings, Headers()
    source: bytes = view.encode(turn.payload)
    # The body after each step, by the reason to report if this step is the first to change it.
    versions = {"": source, "cap": (source := _cap_for_window(turn, view, source))}
    if decide_hour_cache(turn, view):
        versions["hour"] = source = lengthen_cache(source)
    if fields := settings.native.get(incoming.api):
        source, headers = add_native_fields(incoming, turn.payload.body, source, fields)
        versions["native"] = source
    session = open_session(turn, view)
    if session is not None:
        source, headers = add_session(turn, view, source, headers, session)
        versions["engine"] = source
    if outcome == "edited" and not view.visible_edits:
        steps = pairwise(versions.items())
        reason = next((why for (_, before), (why, after) in steps if after != before), "")
        outcome = "edited" if reason else "untouched"
    before, after = count_unedited(view), view.tokens
    turn.conversation.latest = LatestRequest(
        turn.model,
        incoming.upstream,
        settings.clock(),
        replace(view, source=None),
        ratio=compute_ratio(view),
    )
    turn.resources.note_session(turn.conversation)
    if source is not incoming.body and not is_strict_json(incoming.body):
        log_passthrough(incoming.api, "unstrict")
        return Outgoing(incoming.body, (), before, before, "opaque", "unstrict", model=turn.model)
    return Outgoing(
        source,
        _visible_ids(view),
        before,
        after,
        outcome,
        reason,
        AnswerContext(turn.conversation, view),
        headers,
        turn.model,
        session=session,
    )


def _cap_for_window(turn: Turn, view: View, source: bytes) -> bytes:
    """Return *source* with its output cap lowered to fit the window, if necessary."""
    window, api = turn.levels.window, turn.incoming.api
    if not turn.resources.settings.lower_output_cap or window is None:
        return source
    caps = lower_caps(api, turn.payload.body, window.context - view.tokens)
    if caps:
        turn.resources.counters.add("capped", api=api)
    return write_caps(source, caps)


def _visible_ids(view: View) -> tuple[str, ...]:
    return tuple(placed.edit.id for placed in view.visible_edits)


# --- after a refusal: a shorter request, or one without the refused signed thinking ---------------


def drop_thinking(
    resources: Resources, incoming: Incoming, outgoing: Outgoing, error: bytes, progress: Progress
) -> Outgoing:
    """Return *outgoing* without signed thinking from the block that *error* names onwards (AN-7,
    AN-10), all of it the second time; *outgoing* itself if there is none. The edits are saved,
    because later thinking is bound to what is sent now."""
    turn = _reopen_turn(resources, incoming, progress)
    if turn is None:
        return outgoing
    is_second = outgoing.reason == "binding"
    first = 0 if is_second else thinking_block_index(incoming.api, outgoing.body, error)
    with turn.hold(resources.settings.summary_timeout_seconds):
        view = turn.show()
        turn.store.save(strip_signed_thinking(view, block_position(view, first)))
        view = turn.show()
        turn.save(view)
    sealed = seal(turn, view, "binding", "retried")
    return outgoing if sealed.body == outgoing.body else sealed


def shrink(
    resources: Resources, incoming: Incoming, outgoing: Outgoing, error: bytes, progress: Progress
) -> Outgoing:
    """Return a smaller request after a context error; *outgoing* itself if there is none."""
    turn, sent = _reopen_turn(resources, incoming, progress), outgoing.tokens_after
    if turn is None:
        return outgoing
    figures = progress.figures
    if figures is None:  # learn from an error only once
        figures = progress.figures = resources.model_limits.learn(
            incoming, turn.model, turn.conversation, read_figures(error), sent
        )
    if capped := _cap_for_figures(turn, outgoing, figures, keep=0.5):
        return capped
    with turn.hold(resources.settings.summary_timeout_seconds):
        view = _compact_refused(turn, figures)
    if view.tokens >= (sent or figures.tokens or NEVER):
        return _cap_for_figures(turn, outgoing, figures, keep=0.0) or outgoing
    sealed = seal(turn, view, "context", "retried")
    figures = figures.scale(sent, sealed.tokens_after)
    return _cap_for_figures(turn, sealed, figures, keep=0.0) or sealed


def _cap_for_figures(
    turn: Turn, outgoing: Outgoing, figures: ErrorFigures, *, keep: float
) -> Outgoing | None:
    """Return *outgoing* with its output cap lowered to the upstream's figures; None if none is to
    be lowered. Thinking keeps at least the share *keep* of its budget."""
    room = figures.answer_room(outgoing.tokens_after)
    caps = lower_caps(turn.incoming.api, turn.payload.body, room, keep)
    body = write_caps(outgoing.body, caps)
    return replace(outgoing, body=body, outcome="retried", reason="context") if caps else None


def _reopen_turn(resources: Resources, incoming: Incoming, progress: Progress) -> Turn | None:
    """Return the turn of a refused request; None if it has no messages, or its provider holds them.
    Its conversation is known unless the request passed unread."""
    turn = progress.turn
    if turn is None:
        payload = open_request(resources, incoming)
        if not len(payload) or server_history_field(incoming.api, payload.body):
            return None
        turn = progress.turn = open_turn(resources, incoming, payload)
    turn.conversation.shown.is_interrupted |= turn.in_memory
    return turn


def _compact_refused(turn: Turn, figures: ErrorFigures) -> View:
    """Compact to a size that should fit, and save the view."""
    view = turn.show()
    with hold_claim(turn, view, wait=True) as claim:
        view = turn.show() if claim.has_waited else view
        goal = _goal(turn, view, figures)
        strategies = turn.keep_pinned(strategies_for(turn.resources.settings, goal))
        compactor = turn.compactor.with_settings(strategies=strategies)
        view = compactor.compact_now(turn.payload, to=goal, actor=ACTOR)
    turn.save(view)
    turn.conversation.baseline_tokens = view.tokens
    return view


def _goal(turn: Turn, view: View, figures: ErrorFigures) -> int:
    """Return the goal in estimated tokens: a share of the window as the upstream counts it."""
    limits, window, request = turn.resources.model_limits, turn.levels.window, turn.incoming
    room = _max_input_tokens(turn, figures) or (window.room if window else 0) or view.tokens
    is_known = figures.limit or limits.usable_tokens(request, turn.model) is not None
    is_proved = view.tokens < 2 * limits.largest_answered(request, turn.model)
    share = RETRY_TARGET_SHARE if is_known or is_proved else UNKNOWN_WINDOW_SHARE
    counted = max(figures.tokens or room, view.tokens)
    return int(view.tokens * min(share, share * room / max(counted, 1)))


def _max_input_tokens(turn: Turn, figures: ErrorFigures) -> int:
    """Return the tokens that the upstream's limit leaves for input beside an answer with a lowered
    cap; 0 if there is no limit."""
    cap = read_cap(turn.incoming.api, turn.payload.body)
    answer = figures.output
    if cap:
        answer = min(cap.tokens, thinking_budget(turn.payload.body) + SMALLEST_CAP)
    is_enough = figures.limit >= answer + SMALLEST_CAP
    return figures.limit - answer if is_enough else figures.limit
