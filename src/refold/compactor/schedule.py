"""When a compaction is due for a conversation, and how far it goes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from refold.budget.budget import Budget, Check
from refold.budget.triggers import LastAttempt, Moment
from refold.compactor.conversations import ConversationState
from refold.compactor.settings import Settings


@dataclass(frozen=True, slots=True)
class Schedule:
    """A budget at work: with what is pending, what was tried before, and the model's window."""

    budget: Budget
    clock: Callable[[], float]
    pending: int = 0
    """Estimated tokens about to be added to the request."""

    @classmethod
    def of(cls, settings: Settings, budget: Budget | None = None, pending: int = 0) -> "Schedule":
        """Return the schedule of a compactor, by another *budget* if one is given."""
        return cls(budget or settings.budget, settings.clock, pending)

    def check(self, state: ConversationState) -> Check:
        """Return what is due, and why it is not tried again if it is not."""
        now = self.clock()
        idle = None if state.used_at is None else now - state.used_at
        moment = self.budget.observe(state.view, self.pending, state.mark, now, idle)
        check = _check_cap(state, moment) or self.budget.judge(moment)
        return replace(check, hold_reason=self._hold_reason(check, state))

    def compute_goal(self, state: ConversationState, check: Check | None) -> int:
        """Return the tokens to bring the view down to, so that the request fits with what is
        pending. *check* is what set the compaction off; None if it is forced."""
        moment = self.budget.observe(state.view, self.pending)
        goal = self.budget.compute_goal(moment, check)
        if state.cap is not None:
            goal = min(goal, state.cap // 2)
        return max(0, goal - (moment.tokens - state.view.tokens))

    def mark_attempt(self, state: ConversationState, when: float) -> ConversationState:
        """Return *state* after an attempt: the next one waits until the request has grown."""
        view = state.view
        estimate = view.tokens_uncalibrated + self.pending
        tokens = view.profile.calibrate(estimate)
        return state._replace(mark=LastAttempt(len(view.transcript), when, tokens, estimate))

    def _hold_reason(self, check: Check, state: ConversationState) -> str:
        """Say why what is due is not tried again: the request has hardly grown since (conformance
        49, 51)."""
        mark, hysteresis = state.mark, self.budget.hysteresis
        if check.level != "hard" or check.is_periodic or mark.tokens is None or not hysteresis:
            return ""
        then = mark.tokens if mark.estimate is None else state.view.profile.calibrate(mark.estimate)
        step = ceil(hysteresis * max(check.threshold or 0, then))
        if check.tokens >= then + step:
            return ""
        return (
            f"compaction was tried at {then} tokens; "
            f"it is tried again {step} tokens later, at {then + step}"
        )


def _check_cap(state: ConversationState, moment: Moment) -> Check | None:
    if state.cap is None or moment.tokens < state.cap:
        return None
    reason = (
        f"the model is {state.view.profile.model} now, with less room than before: "
        f"{moment.tokens} of {state.cap} tokens"
    )
    return Check("hard", moment.tokens, state.cap, reason)
