"""Run strategies until the view fits: one generator, a sync and an async driver."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from refold.budget.budget import Budget
from refold.compactor.late_edits import drop_invalidated_thinking, make_premature_test
from refold.core.edit_stack import EditStack
from refold.core.strategy import (
    Answer,
    Ask,
    Asking,
    End,
    Ending,
    Strategy,
    advance,
    is_local,
    with_goal,
)
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.errors import EditError


class Compaction(NamedTuple):
    """A view made to fit, and how each strategy's run ended."""

    view: View
    attempts: tuple[Attempt, ...] = ()


def compact_if_due(
    view: View, strategies: Iterable[Strategy], budget: Budget
) -> Asking[Compaction]:
    """Compact *view* with *strategies*, gentlest first, until it fits the budget's target.

    Nothing runs under the trigger. An edit that does not make the view smaller, would make the
    request invalid, or would hide what the model has not answered (`refold.compactor.late_edits`),
    is discarded.
    """
    check = budget.judge(moment := budget.observe(view))
    if check.level != "hard":
        return Compaction(view)
    return (yield from compact_to(view, strategies, budget.compute_goal(moment, check)))


def compact_to(
    view: View,
    strategies: Iterable[Strategy],
    goal: int,
    until: Callable[[View], bool] | None = None,
) -> Asking[Compaction]:
    """As `compact_if_due`, whatever a trigger says: down to *goal* tokens, and until *until* is
    true, if it is given."""

    def fits(now: View, stack: EditStack) -> bool:
        return stack.tokens <= goal and (until is None or until(now.with_stack(stack)))

    now, attempts = view, list[Attempt]()
    for strategy in strategies:
        if fits(now, now.edit_stack()):
            break
        now, attempt = yield from _run(now, with_goal(strategy, goal), fits)
        attempts.append(attempt)
    return Compaction(drop_invalidated_thinking(now, view), tuple(attempts))


def _run(
    view: View, strategy: Strategy, fits: Callable[[View, EditStack], bool]
) -> Asking[tuple[View, Attempt]]:
    run, reply = strategy(view), None
    stack, talk = view.edit_stack(), list[tuple[Ask, Answer | None]]()
    applied, refused = list[tuple[str, int]](), list[str]()
    is_early, local = make_premature_test(view), is_local(strategy)
    while isinstance(step := advance(run, reply), Ask | Edit):
        reply = None
        if fits(view, stack):
            break
        if isinstance(step, Ask):
            reply = yield step
            talk.append((step, reply))
            continue
        if not local and is_early(step):
            refused.append(
                f"edit {step.id} ({step.start}:{step.stop}) hides what the model has not answered"
            )
            continue
        try:
            stack.add(step, smaller=True)
        except EditError as error:
            refused.append(str(error))
        else:
            applied.append((step.id, stack.tokens_uncalibrated))
    run.close()
    ended = step.value if isinstance(step, End) else None
    return view.with_stack(stack), _attempt(
        strategy, view, _ending(len(applied), refused, ended), applied, talk
    )


def _ending(taken: int, refused: list[str], ending: Ending | None) -> Ending:
    """Return how the run ended: in edits, in what the strategy says, or in why its edits were
    refused."""
    if taken:
        return ending if ending and ending.outcome == "degraded" else Ending("applied", "")
    if ending:
        return ending
    return Ending("rejected", refused[0]) if refused else Ending("noop", "nothing to do")


def _attempt(
    strategy: Strategy,
    before: View,
    ending: Ending,
    applied: list[tuple[str, int]],
    talk: list[tuple[Ask, Answer | None]],
) -> Attempt:
    answers = [answer for _, answer in talk if answer is not None]
    return Attempt(
        repr(strategy),
        ending.outcome,
        ending.reason,
        before.tokens_uncalibrated,
        applied[-1][1] if applied else before.tokens_uncalibrated,
        len(applied),
        tuple(applied),
        asks=len(talk),
        calls=sum(answer.calls for answer in answers),
        cost=sum(answer.cost for answer in answers),
        model=next((answer.model for answer in reversed(answers) if answer.model), ""),
        prompt=next((ask.prompt_id for ask, _ in reversed(talk) if ask.prompt_id), ""),
    )
