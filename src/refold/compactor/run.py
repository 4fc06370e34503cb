"""One compaction of a conversation, from the `before` hook to the ledger. Strategies run until the
view fits."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from warnings import warn

from refold.budget.budget import Budget, Check
from refold.compactor.conversations import UNREAD, ConversationState
from refold.compactor.hooks import (
    CompactionEnded,
    CompactionStarted,
    Instructions,
    StrategyTried,
    Veto,
    build_rows,
)
from refold.compactor.late_edits import (
    drop_invalidated_thinking,
    edits_dropping_thinking,
    has_uncertain_thinking,
    make_premature_test,
)
from refold.compactor.loading import Schedule, apply_local_edits, calibrate
from refold.compactor.settings import Settings
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
    map_steps,
    require_ending,
    require_step,
    with_goal,
)
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.errors import EditError, ModelNotNamed, require_int
from refold.models.driver import Effect, call_safely
from refold.text.summary_wrapper import summary_in

if TYPE_CHECKING:  # slow to import and seldom needed
    from refold.memory import MemoryFlush

# --- runs of strategies ---------------------------------------------------------------------------


class Compaction(NamedTuple):
    """A compacted view, and how the run of each strategy ended."""

    view: View
    attempts: tuple[Attempt, ...] = ()


def compact_if_due(
    view: View, strategies: Iterable[Strategy], budget: Budget
) -> Asking[Compaction]:
    """Compact *view* with *strategies*, gentlest first, until it fits the budget's target.

    Nothing runs below the trigger. An edit is discarded if it does not make the view smaller, makes
    the request invalid, or hides what the model has not answered (`refold.compactor.late_edits`).
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
    """Compact as `compact_if_due`, but regardless of the trigger: down to *goal* tokens and until
    *until* is true, if given. A summary is replaced only if that gains `WORTH_A_SUMMARY` or reaches
    the goal."""

    def fits(now: View, stack: EditStack) -> bool:
        return stack.tokens <= goal and (until is None or until(now.with_stack(stack)))

    now, attempts = view, list[Attempt]()
    for strategy in strategies:
        if fits(now, now.edit_stack()):
            break
        later, attempt = yield from _run(now, with_goal(strategy, goal), fits)
        if not fits(later, later.edit_stack()) and _replaces_summary(now, later):
            attempt = replace(
                attempt,
                outcome="rejected",
                reason="it would replace a summary and gain next to nothing",
                tokens_after=attempt.tokens_before,
                edits_applied=0,
                edit_tokens=(),
            )
        else:
            now = later
        attempts.append(attempt)
    return Compaction(drop_invalidated_thinking(now, view), tuple(attempts))


WORTH_A_SUMMARY = 0.05
"""Minimum gain, as a share of the request, for replacing a summary by a shorter one."""


def _replaces_summary(now: View, later: View) -> bool:
    """Return whether *later* hides a summary of *now* for a gain below `WORTH_A_SUMMARY`."""
    if now.tokens - later.tokens >= WORTH_A_SUMMARY * now.tokens:
        return False
    shown = (applied.edit for applied in now.visible_edits)
    summaries = [edit for edit in shown if any(map(summary_in, edit.insert))]
    staying = [applied.edit for applied in later.visible_edits]
    return any(edit not in staying for edit in summaries)


def _run(
    view: View, strategy: Strategy, fits: Callable[[View, EditStack], bool]
) -> Asking[tuple[View, Attempt]]:
    run, reply = strategy(view), None
    if not isinstance(run, Generator):
        raise TypeError(f"a strategy yields its edits; {strategy!r} returns {type(run).__name__}")
    stack, talk = view.edit_stack(), list[tuple[Ask, Answer | None]]()
    applied, refused = list[tuple[str, int]](), list[str]()
    is_early, local = make_premature_test(view), is_local(strategy)
    previous, repeats = None, 0
    while not isinstance(step := advance(run, reply), End):
        repeats = repeats + 1 if step == previous else 0
        require_step(step, strategy, repeats)
        previous, reply = step, None
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
    require_ending(ended, strategy)
    return view.with_stack(stack), _attempt(
        strategy, view, _ending(len(applied), refused, ended), applied, talk
    )


def _ending(taken: int, refused: list[str], ending: Ending | None) -> Ending:
    """Return the ending of a run: `applied` or `degraded` if it has edits, else the strategy's own,
    else the reason of the first refusal, else `noop`."""
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


# --- the compaction of a turn ---------------------------------------------------------------------

MAX_ASKING_ROUNDS = 3
"""Maximum rounds of the strategies in one turn while they ask a model."""
MAX_ROUNDS = 100
"""Maximum rounds while they ask none and each gains something."""

NAME_THE_MODEL = (
    "signed thinking of the current turn stays as it is behind what was compacted: no model is "
    "named, and models since Claude Opus 5.5 refuse it there (AN-7) where older ones refuse a "
    "request without it (AN-6). Name it (model=... of refold.compact or refold.Compactor), or give "
    "the request's body, which names it, in place of its list of messages"
)

T = TypeVar("T")
TurnSteps = Generator[Ask | Effect, Any, T]
"""Generator of asks and effects that returns a result (`refold.models.driver`)."""


class TurnOptions(NamedTuple):
    """Options of one turn."""

    actor: str = "auto"
    forced: bool = False
    """Whether to compact regardless of the trigger."""
    to: int | None = None
    """Number of tokens to reach; None: the budget decides."""
    keep: bool = True
    """Whether to save the edits; False for a preview."""
    budget: Budget | None = None
    """Used instead of the compactor's."""
    pending: Any = None
    """Content about to be added, as for `count_pending`."""


def force_turn(to: int | None, **options: Any) -> TurnOptions:
    """Return the options of a compaction that a user starts, down to *to* tokens. Raises ValueError
    if that is not a number of tokens."""
    if to is not None:
        require_int(0, to=to)
    return TurnOptions(forced=True, to=to, **options)


def run_turn(
    settings: Settings, schedule: Schedule, state: ConversationState, options: TurnOptions
) -> TurnSteps[ConversationState]:
    """Compact *state* if that is due and nothing holds it back, or if *options* force it. Return
    the resulting state, or *state* if nothing is done."""
    check = schedule.check(state)
    if not options.forced and check.level != "hard":
        return state
    if not options.forced and check.hold_reason:
        goal = schedule.compute_goal(state, check)
        return state._replace(view=replace(state.view, goal=goal))
    started = _start(settings, schedule, state, check, options)
    return (yield from CompactionRun(settings, schedule, options, check, state, started)())


def _start(
    settings: Settings,
    schedule: Schedule,
    state: ConversationState,
    check: Check,
    options: TurnOptions,
) -> CompactionStarted:
    goal, reason = options.to, check.reason
    if goal is None:
        goal = schedule.compute_goal(state, None if options.forced else check)
    when, tip = settings.clock(), state.view.transcript.tips[-1]
    return CompactionStarted(
        run=blake2b(f"{tip}:{when}:{options}".encode(), digest_size=8).hexdigest(),
        when=when,
        action="compact" if options.keep else "preview",
        actor=options.actor,
        trigger=reason
        if check.level == "hard" or not options.forced
        else f"asked for, at {reason}",
        tokens=state.view.tokens,
        goal=goal,
        model=state.view.profile.model,
    )


@dataclass(frozen=True, slots=True)
class CompactionRun:
    """A compaction. Calling it returns a generator that returns the resulting state."""

    settings: Settings
    schedule: Schedule
    options: TurnOptions
    check: Check
    """What triggered it."""
    before: ConversationState
    started: CompactionStarted

    def __call__(self) -> TurnSteps[ConversationState]:
        """Run the hook, the strategies, memory, store and ledger, and emit the events."""
        settings, before = self.settings, self.before
        reply = settings.before(before.view, self.started) if settings.before else None
        if isinstance(reply, Veto):
            tokens = before.view.tokens_uncalibrated
            attempt = Attempt("before", "rejected", f"vetoed: {reply.reason}", tokens, tokens)
            return (yield from self._finish(before, (attempt,), reply.reason))
        if reply is not None and not isinstance(reply, Instructions):
            raise TypeError(f"`before` returns Veto, Instructions or None, not {reply!r}")
        settings.emit(self.started)
        rounds = self._run_rounds()
        if reply is not None:
            rounds = add_instructions(rounds, reply.text)
        state, attempts = yield from rounds
        state = self._drop_hidden_edits(state)
        if self.options.keep:
            attempts += yield from flush_memory(settings.memory, before.view, state.view)
            state = yield from self._save(state)
        if attempts and (no_headroom := self._check_headroom(state)):
            attempts = (*attempts, no_headroom)
        state = yield from self._finish(state, attempts)
        if self.options.keep and new_edits(before, state) and has_uncertain_thinking(state.view):
            warn(NAME_THE_MODEL, ModelNotNamed, stacklevel=2)
        return state

    def _run_rounds(self) -> TurnSteps[tuple[ConversationState, tuple[Attempt, ...]]]:
        """Run the strategies, in several rounds if needed. Return the resulting state and the
        attempts.

        After a round the request may exceed the goal, or even the trigger, again: a repeated tool
        result is shown again once its first copy is hidden, and a usage report is stale once the
        request has changed. Then further rounds follow, until one gains nothing or
        `MAX_ASKING_ROUNDS` is reached if a model was asked. Otherwise every new process would make
        that gain anew. A compaction started by a user asks the model once, unless the request grew
        again.
        """
        state, attempts, goal = self.before, tuple[Attempt, ...](), self.started.goal
        strategies = self.settings.choose_retrospective(goal)
        for number in range(MAX_ROUNDS):
            view, fresh = yield from compact_to(
                state.view, strategies, goal, self._stop_condition(state)
            )
            edits = new_visible_edits(view, state.view)
            if number and not edits:
                break
            attempts += fresh
            for attempt in fresh:
                tried = attempt.calibrate(state.view.profile.calibrate)
                self.settings.emit(StrategyTried(run=self.started.run, attempt=tried))
            if not edits:
                break
            state = self._with_stored(state, state.stored.apply_counted(view, edits))
            state = calibrate(self.settings, state)
            has_asked = any(attempt.asks for attempt in fresh)
            is_enough = self.options.forced and state.view.tokens <= view.tokens
            if has_asked and (is_enough or number + 1 >= MAX_ASKING_ROUNDS):
                break
            most = max(goal + int(goal * self.schedule.budget.progress), view.tokens)
            has_regrown = state.view.tokens > most and not has_asked
            if not has_regrown and not self._is_over(state, goal):
                break
        return state, attempts

    def _with_stored(self, state: ConversationState, stored: View) -> ConversationState:
        return state._replace(stored=stored, view=apply_local_edits(self.settings, stored))

    def _drop_hidden_edits(self, state: ConversationState) -> ConversationState:
        """Drop new edits that a later round hid, since they were never sent
        (`new_visible_edits`)."""
        visible = {applied.edit.id for applied in state.stored.visible_edits}
        hidden = [edit.id for edit in new_edits(self.before, state) if edit.id not in visible]
        if not hidden:
            return state
        return self._with_stored(state, state.stored.revert(*hidden))

    def _save(self, state: ConversationState) -> TurnSteps[ConversationState]:
        """Save the new edits. The next turn reads the store again, since others may have written to
        it while a model was asked."""
        edits = new_edits(self.before, state)
        if not edits:
            return state
        yield partial(self.settings.store.save, edits)
        return state._replace(version=UNREAD)

    def _stop_condition(self, state: ConversationState) -> Callable[[View], bool] | None:
        """Return a condition besides the goal, that the trigger no longer fires; None if it is a
        number of tokens or periodic, or the compaction is forced."""
        if self.options.forced or self.check.threshold is not None or self.check.is_periodic:
            return None
        return lambda view: not self._is_over(state._replace(view=view), 0)

    def _is_over(self, state: ConversationState, goal: int) -> bool:
        """Return whether the request is still too long for what triggered this."""
        if self.options.forced:
            return state.view.tokens > goal
        return self.schedule.check(state).level == "hard" and not self.check.is_periodic

    def _check_headroom(self, state: ConversationState) -> Attempt | None:
        """Return a `no_headroom` attempt if all strategies together left the request too long and
        hardly smaller."""
        before, after, goal = self.before.view, state.view, self.started.goal
        gain, progress = before.tokens - after.tokens, self.schedule.budget.progress
        if after.tokens <= goal or gain >= progress * before.tokens:
            return None
        if not self._is_over(state, goal):
            return None
        reason = (
            f"{gain:,} of {before.tokens:,} tokens gained, less than {progress:.0%}; "
            f"the goal is {goal:,}; system prompt and tools take "
            f"{after.profile.calibrate(after.profile.fixed_tokens):,}"
        )
        tokens = before.tokens_uncalibrated, after.tokens_uncalibrated
        return Attempt("budget", "no_headroom", reason, *tokens)

    def _finish(
        self, state: ConversationState, attempts: tuple[Attempt, ...], veto: str = ""
    ) -> TurnSteps[ConversationState]:
        """Mark the attempt, write the ledger and notify listeners. The ledger gets estimated
        tokens, listeners get expected ones like the view's (docs/decisions/0033-one-unit.md)."""
        settings, before, started = self.settings, self.before, self.started
        state = self.schedule.mark_attempt(state, started.when)
        expected = tuple(each.calibrate(state.view.profile.calibrate) for each in attempts)
        state = state._replace(view=replace(state.view, attempts=expected, goal=started.goal))
        edits = new_edits(before, state)
        if settings.ledger is not None:
            yield partial(settings.record, build_rows(started, before.view, edits, attempts))
        ended = CompactionEnded(
            run=started.run,
            started_at=started.when,
            ended_at=settings.clock(),
            action=started.action,
            actor=started.actor,
            before=before.view.tokens,
            after=state.view.tokens,
            edits=tuple(edit.id for edit in edits),
            attempts=expected,
            veto=veto,
        )
        if settings.after is not None:
            call_safely(settings.after, state.view, ended)
        settings.emit(ended)
        return state


def settle_thinking(
    settings: Settings, before: ConversationState, state: ConversationState
) -> TurnSteps[ConversationState]:
    """Return *state* without signed thinking that its model refuses, if *before* had another model.

    Edits made for a model that may require the thinking of its turn (AN-6) left it in place. The
    new model may bind it to its prefix (AN-7).
    """
    if before.view.profile.rules.thinking == "bound":
        return state._replace(settled=before.stored.edits)
    present = {edit.id for edit in state.settled}
    edits = [edit for edit in state.stored.edits if edit.id not in present]
    fresh = [edit for edit in edits if not settings.is_first_sight(edit)]
    if state.view.profile.rules.thinking != "bound" or not fresh:
        return state
    without = state.stored.revert(*(edit.id for edit in fresh))
    if not (settling := edits_dropping_thinking(without, fresh)):
        return state
    yield partial(settings.store.save, settling)
    stored = state.stored.apply_valid(settling)
    state = state._replace(stored=stored, view=apply_local_edits(settings, stored), version=UNREAD)
    return calibrate(settings, state)


def flush_memory(
    memory: "MemoryFlush | None", before: View, after: View
) -> TurnSteps[tuple[Attempt, ...]]:
    """Store memories of what *after* hides and *before* does not, before the edits are saved.
    Return a failed attempt if that fails, else nothing."""
    if memory is None or after.edits == before.edits:
        return ()
    result = yield from memory.flush_hidden(before, after)
    tokens = after.tokens_uncalibrated
    failure = Attempt("memory", "failed", result.reason, tokens, tokens)
    return (failure,) if result.failed else ()


def new_visible_edits(after: View, before: View) -> list[Edit]:
    """Return the edits made since *before* that *after* shows. An edit that a later one of the same
    compaction hides was never sent. If it were saved, a rewind would show it, before thinking that
    was signed without it (AN-7)."""
    visible = {id(applied.edit) for applied in after.visible_edits}
    return [edit for edit in after.edits[len(before.edits) :] if id(edit) in visible]


def new_edits(before: ConversationState, after: ConversationState) -> Sequence[Edit]:
    """Return the retrospective edits that *after* has and *before* does not."""
    return after.stored.edits[len(before.stored.edits) :]


def add_instructions(run: Generator[Any, Any, T], text: str) -> Generator[Any, Any, T]:
    """Run *run* with *text* added at the end of every prompt."""

    def instruct(step: Any) -> Any:
        return replace(step, prompt=f"{step.prompt}\n\n{text}") if isinstance(step, Ask) else step

    return map_steps(run, instruct)
