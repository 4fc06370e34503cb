"""What is shown of a conversation when its upstream has refused what was shown before."""

from dataclasses import dataclass, replace

from refold.compactor.signed_thinking import strip_signed_thinking
from refold.core.view import View
from refold.errors import StoreError
from refold.gateway.conversations.conversations import Turn
from refold.gateway.conversations.persistence import save_edits
from refold.gateway.messages import Outgoing
from refold.gateway.pipeline.turns import Turns
from refold.gateway.policy.body_fields import (
    SMALLEST_CAP,
    fit_caps,
    read_cap,
    thinking_budget,
    write_cap,
)
from refold.gateway.policy.upstream_errors import ErrorFigures, block_position

SHARE = 0.6
"""Of the window, or of what was sent: what is aimed at after a context error."""
UNKNOWN_WINDOW_SHARE = 0.15
"""Of what was sent, if nothing tells of the window: neither the error, nor a table, nor an answer
to half as much. Less than a fifth, for a history may be handed to a server with a window five times
smaller."""
ACTOR = "auto (context error)"


@dataclass(frozen=True, eq=False)
class Retry:
    """Another view after a refusal.

    The caller holds the conversation's lock, or, if the edits are not *stored*, that of its edits
    in memory.
    """

    turns: Turns

    def shrink(self, turn: Turn, figures: ErrorFigures, sent: int, *, stored: bool) -> View | None:
        """Return a view that should fit after all; None if nothing becomes smaller than the *sent*
        tokens."""
        if stored:
            try:
                view = self._shrink(turn, figures)
            except StoreError:
                with turn.conversation.shown.lock:
                    view = self._shrink_in_memory(turn, figures)
        else:
            view = self._shrink_in_memory(turn, figures)
        turn.conversation.baseline_tokens = view.tokens
        return view if view.tokens < sent else None

    def drop_thinking(self, turn: Turn, first: int, *, stored: bool) -> View:
        """Return a view without signed thinking from the block number *first* on (AN-7, AN-10).

        It stays so, for what is thought from now on is bound to that.
        """
        if not stored:
            return self._drop_thinking_in_memory(turn, first)
        turns = self.turns
        try:
            view = turns.apply_known_edits(turn)
            turns.store.save(strip_signed_thinking(view, block_position(view, first)))
            view = turns.apply_known_edits(turn)
            save_edits(turn.conversation, view, turns.store)
        except StoreError:
            with turn.conversation.shown.lock:
                view = self._drop_thinking_in_memory(turn, first)
        return view

    def _shrink(self, turn: Turn, figures: ErrorFigures) -> View:
        turns, conversation = self.turns, turn.conversation
        view = turns.apply_known_edits(turn)
        with turns.hold_claim(conversation, view, wait=True) as claim:
            view = turns.apply_known_edits(turn) if claim.has_waited else view
            goal = self._goal(turn, view, figures)
            view = conversation.compactor.compact_now(turn.history, to=goal, actor=ACTOR)
        save_edits(conversation, view, turns.store)
        return view

    def _shrink_in_memory(self, turn: Turn, figures: ErrorFigures) -> View:
        turn.conversation.is_interrupted = True
        view = self.turns.show_from_memory(turn)
        goal = self._goal(turn, view, figures)
        self.turns.memory_compactor(turn).compact_now(turn.history, to=goal, actor=ACTOR)
        return self.turns.show_from_memory(turn)

    def _drop_thinking_in_memory(self, turn: Turn, first: int) -> View:
        turn.conversation.is_interrupted = True
        view = self.turns.show_from_memory(turn)
        turn.conversation.shown.store.save(strip_signed_thinking(view, block_position(view, first)))
        return self.turns.show_from_memory(turn)

    def _goal(self, turn: Turn, view: View, figures: ErrorFigures) -> int:
        """Return the estimated tokens to come down to: a share of the window as the upstream
        counts."""
        limits, window = self.turns.model_limits, self.turns.limits(turn).window
        room = _input_limit(turn, figures) or (window.room if window else 0) or view.tokens
        is_known = figures.limit or limits.usable_tokens(turn.incoming, turn.model) is not None
        is_proved = view.tokens < 2 * limits.largest_answered(turn)
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
