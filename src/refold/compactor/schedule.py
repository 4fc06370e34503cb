"""Is compaction due for a conversation that is known: with what is pending, what was tried before, and
whether its model was changed."""

from dataclasses import replace
from math import ceil

from refold.budget.budget import Budget, Check, model_of
from refold.budget.triggers import LastAttempt, Moment
from refold.compactor.state import ConversationState
from refold.core.view import View
from refold.tokens.windows import find_window

HEADROOM = 20_000
"""Tokens kept free in the window of a model that is changed to, a tenth of it at most."""


def is_quiet(budget: Budget, state: ConversationState) -> bool:
    """Is nothing due, as far as that can be told at once? What a turn below the trigger costs."""
    return budget.is_plain and state.cap is None and budget.check(state.view) == "none"


def check(budget: Budget, state: ConversationState, now: float, pending: int = 0) -> Check:
    """What is due for *state*, with *pending* estimated tokens about to be added."""
    moment = budget.observe(state.view, pending, state.mark, now)
    found = _capped(state, moment) or budget.judge(moment)
    return replace(found, hold_reason=_held(budget, found, state))


def goal(
    budget: Budget,
    state: ConversationState,
    found: Check,
    pending: int = 0,
    *,
    forced: bool = False,
) -> int:
    """Tokens to bring the view of *state* down to, so that the request fits with what is pending."""
    moment = budget.observe(state.view, pending)
    wanted = budget.compute_goal(moment, None if forced else found)
    if state.cap is not None:
        wanted = min(wanted, state.cap // 2)
    return max(0, wanted - (moment.tokens - state.view.tokens))


def follow_model_change(
    known: ConversationState | None, state: ConversationState, budget: Budget
) -> ConversationState:
    """*state*, which continues *known*, told whether the model was changed for one with a smaller
    window: then the conversation must fit that one before it is sent there (conformance 52)."""
    if (
        known is None
        or known.frame is state.frame
        or (old := model_of(known.view)) == (new := model_of(state.view))
    ):
        return state
    before, after = find_window(old, budget.window).window, find_window(new, budget.window).window
    widest = max(state.widest, before.room if before else 0)
    smaller = after is not None and after.room < widest
    cap = after.room - min(HEADROOM, after.room // 10) if after is not None and smaller else None
    return replace(state, cap=cap, widest=widest, mark=replace(state.mark, tokens=None))


def mark_attempt(state: ConversationState, now: float, pending: int = 0) -> ConversationState:
    """*state* after an attempt: the next one waits until something has changed."""
    view = state.view
    estimate = view.profile.fixed_tokens + view.estimate + pending
    return replace(
        state,
        mark=LastAttempt(len(view.transcript), now, view.profile.calibrate(estimate), estimate),
    )


def first_mark(kept: View, now: float) -> LastAttempt:
    """The mark of a conversation seen first; what the store has for it was compacted before."""
    return LastAttempt(max((edit.stop for edit in kept.edits), default=0), now)


def _capped(state: ConversationState, moment: Moment) -> Check | None:
    if state.cap is None or moment.tokens < state.cap:
        return None
    why = f"the model is {model_of(state.view)} now, with less room than before: {moment.tokens} of {state.cap} tokens"
    return Check("hard", moment.tokens, state.cap, why)


def _held(budget: Budget, found: Check, state: ConversationState) -> str:
    """Why what is due is not tried again: the request has hardly grown since (conformance 49, 51)."""
    mark = state.mark
    if found.level != "hard" or found.is_periodic or mark.tokens is None or not budget.hysteresis:
        return ""
    then = mark.tokens if mark.estimate is None else state.view.profile.calibrate(mark.estimate)
    step = ceil(budget.hysteresis * max(found.threshold or 0, then))
    if found.tokens >= then + step:
        return ""
    return f"compaction was tried at {then} tokens; it is tried again {step} tokens later, at {then + step}"
