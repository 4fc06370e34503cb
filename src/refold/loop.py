"""Run strategies until the view fits: one generator, a sync and an async driver."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from refold.attempt import Attempt
from refold.budget import Budget
from refold.edits import Edit
from refold.errors import EditError
from refold.settle import settle
from refold.strategy import Answer, Ask, Steps, Strategy
from refold.view import View

T = TypeVar("T")
Effect = Callable[[], Any]
"""Something blocking, such as a store's load: the sync driver calls it, the async one in a thread."""
Asker = Callable[[Ask], Answer | None]
AsyncAsker = Callable[[Ask], Awaitable[Answer | None]]


@dataclass(frozen=True, slots=True)
class Compaction:
    """A view made to fit, and how each strategy's run ended."""

    view: View
    attempts: tuple[Attempt, ...] = ()


def steps(view: View, strategies: Iterable[Strategy], budget: Budget) -> Generator[Ask, Answer | None, Compaction]:
    """Compact *view* with *strategies*, gentlest first, until it fits the budget's target.

    Nothing runs under the trigger. An edit that does not make the view smaller, or would make the
    request invalid, is discarded.
    """
    if budget.check(view) != "hard":
        return Compaction(view)
    now, attempts = view, list[Attempt]()
    for strategy in strategies:
        if now.tokens <= budget.target:
            break
        now, attempt = yield from _run(now, strategy, budget.target)
        attempts.append(attempt)
    return Compaction(settle(now, view), tuple(attempts))


def _run(view: View, strategy: Strategy, target: int) -> Generator[Ask, Answer | None, tuple[View, Attempt]]:
    run, reply = strategy(view), None
    now, taken, refused, asks = view, 0, list[str](), 0
    while now.tokens > target:
        step = _next(run, reply)
        reply = None
        if step is None:
            break
        if isinstance(step, Ask):
            asks += 1
            reply = yield step
            continue
        smaller, why = _try(now, step)
        if why:
            refused.append(why)
        now, taken = smaller, taken + (not why)
    run.close()
    return now, _attempt(strategy, view, now, taken, refused, asks)


def _next(run: Steps, reply: Answer | None) -> Edit | Ask | None:
    try:
        return run.send(reply)
    except StopIteration:
        return None


def _try(view: View, edit: Edit) -> tuple[View, str]:
    """The view with the edit, or as it is and why."""
    try:
        after = view.apply(edit)
    except EditError as error:
        return view, str(error)
    if after.estimate >= view.estimate:
        return view, f"edit {edit.id} ({edit.start}:{edit.stop}) makes nothing smaller"
    return after, ""


def _attempt(strategy: Strategy, before: View, after: View, taken: int, refused: list[str], asks: int) -> Attempt:
    outcome = "applied" if taken else "rejected" if refused else "noop"
    reason = "" if taken else refused[0] if refused else "nothing to do"
    return Attempt(repr(strategy), outcome, reason, before.tokens, after.tokens, taken, asks)  # type: ignore[arg-type]


def first_sight(view: View, strategies: Iterable[Strategy], since: int = 0) -> list[Edit]:
    """The edits of local strategies for the messages from position *since* on.

    *view* must hold stored edits only: a local strategy never sees another one's edits. Of two
    edits of one message the smaller shows, the earlier strategy's if they are equal.
    """
    best: dict[int, tuple[int, Edit]] = {}
    for strategy in strategies:
        for edit in strategy(view, since):  # type: ignore[call-arg]  # local strategies take `since`
            if isinstance(edit, Edit):
                tokens = sum(map(view.lens.count, edit.insert))
                if tokens < best.get(edit.start, (view.ground.tokens(edit.start, edit.stop),))[0]:
                    best[edit.start] = (tokens, edit)
    return [edit for _, (_, edit) in sorted(best.items())]


def drive(run: Generator[Ask | Effect, Any, T], ask: Asker | None = None) -> T:
    """Run a generator to its end; without *ask* every question goes unanswered."""
    reply = None
    while True:
        try:
            step = run.send(reply)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if isinstance(step, Ask):
            reply = ask(step) if ask else None
        else:
            reply = step()


async def adrive(run: Generator[Ask | Effect, Any, T], ask: AsyncAsker | None = None) -> T:
    """As `drive`, for async code: questions are awaited, blocking effects run in a thread."""
    reply = None
    while True:
        try:
            step = run.send(reply)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if isinstance(step, Ask):
            reply = await ask(step) if ask else None
        else:
            reply = await asyncio.to_thread(step)
