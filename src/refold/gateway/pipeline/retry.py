"""What is shown of a conversation when its upstream has refused what was shown before."""

from dataclasses import dataclass, replace

from refold.compactor.signed_thinking import strip_signed_thinking
from refold.core.view import View
from refold.errors import StoreError
from refold.gateway.conversations.persistence import save_edits
from refold.gateway.messages import Outgoing
from refold.gateway.pipeline.turns import Turn, Turns
from refold.gateway.policy.body_fields import SMALLEST_CAP, fit_caps, read_cap, thinking_budget, write_cap
from refold.gateway.policy.upstream_errors import ErrorFigures, block_position, refused_block

UNKNOWN_WINDOW_SHARE = 0.15
"""The share of what was sent that is aimed at where nothing tells of the window: neither the error, nor a table, nor an
answer to half as much. Less than a fifth, for a history may be handed to a server with a window five times smaller."""


@dataclass(frozen=True, eq=False)
class Retry:
    """Another view after a refusal. Who calls holds the conversation's lock."""

    turns: Turns

    # --- after a context error --------------------------------------------------------------------

    def shrink(self, turn: Turn, said: ErrorFigures, share: float, sent: int) -> View | None:
        """A view that should fit after all, or None where nothing becomes smaller than the *sent* tokens."""
        turns = self.turns
        try:
            view = turns.apply_known_edits(turn)[0]
            with turns.hold_claim(turn.conversation, view, wait=True) as had:
                view = turns.apply_known_edits(turn)[0] if had.has_waited else view
                goal = self._goal(turn, view, said, share)
                after = turn.conversation.compactor.compact_now(
                    turn.history, to=goal, actor="auto (context error)"
                )
            save_edits(turn.conversation, after, turns.store)
        except StoreError:
            with turn.conversation.shown.lock:
                return self.shrink_in_memory(turn, said, share, sent)
        turn.conversation.baseline_tokens = after.tokens
        return after if after.tokens < sent else None

    def shrink_in_memory(self, turn: Turn, said: ErrorFigures, share: float, sent: int) -> View | None:
        """As `harder`, without the store. Who calls holds what is kept in memory."""
        turn.conversation.is_interrupted = True
        view = self.turns.show_from_memory(turn)
        goal = self._goal(turn, view, said, share)
        self.turns.memory_compactor(turn).compact_now(
            turn.history, to=goal, actor="auto (context error)"
        )
        after = self.turns.show_from_memory(turn)
        turn.conversation.baseline_tokens = after.tokens
        return after if after.tokens < sent else None

    def _goal(self, turn: Turn, view: View, said: ErrorFigures, share: float) -> int:
        """Tokens, as they are estimated, that are *share* of the window as the upstream counts."""
        rooms, window = self.turns.model_limits, self.turns.limits(turn).window
        room = _input_limit(turn, said) or (window.room if window else 0) or view.tokens
        if not said.limit and rooms.usable_tokens(turn.incoming, turn.model) is None:
            share = (
                share if view.tokens < 2 * rooms.largest_answered(turn) else UNKNOWN_WINDOW_SHARE
            )
        really = max(said.tokens, view.tokens) if said.tokens else max(view.tokens, room)
        return int(view.tokens * min(share, share * room / max(really, 1)))

    # --- after an error of binding ----------------------------------------------------------------

    def drop_thinking(self, turn: Turn, sent: bytes, error: bytes, *, wholly: bool) -> View:
        """A view without the signed thinking from the block on that the *error* names (AN-7, AN-10), or without all of it
        (*wholly*, or where it names none). It stays so, for what is thought from now on is
        bound to that."""
        conversation, turns = turn.conversation, self.turns
        first = 0 if wholly else refused_block(sent, error)
        try:
            view = turns.apply_known_edits(turn)[0]
            turns.store.save(strip_signed_thinking(view, block_position(view, first)))
            after = turns.apply_known_edits(turn)[0]
            save_edits(conversation, after, turns.store)
        except StoreError:
            with conversation.shown.lock:
                after = self.drop_thinking_in_memory(turn, sent, error, wholly=wholly)
        return after

    def drop_thinking_in_memory(
        self, turn: Turn, sent: bytes, error: bytes, *, wholly: bool
    ) -> View:
        """As `unbound`, without the store. Who calls holds what is kept in memory."""
        turn.conversation.is_interrupted = True
        view = self.turns.show_from_memory(turn)
        first = 0 if wholly else refused_block(sent, error)
        turn.conversation.shown.store.save(strip_signed_thinking(view, block_position(view, first)))
        return self.turns.show_from_memory(turn)


def _input_limit(turn: Turn, said: ErrorFigures) -> int:
    """What the upstream's limit leaves beside the answer, where it leaves anything; its cap will be lowered."""
    cap = read_cap(turn.incoming.api, turn.envelope.body)
    answer = (
        min(cap.tokens, thinking_budget(turn.envelope.body) + SMALLEST_CAP)
        if cap
        else said.output
    )
    return said.limit - answer if said.limit >= answer + SMALLEST_CAP else said.limit


def lower_caps(turn: Turn, outgoing: Outgoing, said: ErrorFigures, *, keep: float) -> Outgoing | None:
    """*outgoing* with the cap that its upstream's figures leave; None where there is none to be lowered."""
    body = outgoing.body
    changed = fit_caps(
        turn.incoming.api, turn.envelope.body, said.answer_room(outgoing.tokens_after), keep
    )
    for cap in changed:
        body = write_cap(body, cap)
    return replace(outgoing, body=body, outcome="retried", reason="context") if changed else None
