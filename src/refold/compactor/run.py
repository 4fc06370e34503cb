"""One compaction of a conversation, from the hook before it to the ledger after it."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar
from warnings import warn

from refold.budget.budget import Budget, Check, model_of
from refold.compactor import schedule as pace
from refold.compactor.conversations import ConversationCache
from refold.compactor.engine import Compaction, compact_to
from refold.compactor.hooks import (
    After,
    Before,
    CompactionEnded,
    CompactionStarted,
    Event,
    Instructions,
    OnEvent,
    StrategyTried,
    Veto,
)
from refold.compactor.ledger_rows import build_rows
from refold.compactor.signed_thinking import is_unsure
from refold.compactor.state import UNREAD, ConversationState
from refold.core.strategy import Ask, Strategy, map_steps
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.errors import ModelNotNamed
from refold.memory import MemoryFlush
from refold.models.driver import Effect, call_safely
from refold.stores.store import LedgerStore

MAX_ASKING_ROUNDS = 3
"""How often the strategies may run in one turn while they ask a model."""
MAX_ROUNDS = 100
"""How often while they do not, and every time gain something."""

NAME_THE_MODEL = (
    "signed thinking of the current turn stays as it is behind what was compacted: no model is named, and models since "
    "Claude Opus 5.5 refuse it there (AN-7) where older ones refuse a request without it (AN-6). Give the request's body, "
    "which names the model, in place of its list of messages, or name it yourself (Compactor(model=...)), or give a codec "
    "with rules (refold.codecs.codec.with_rules)"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """What is wanted of a turn."""

    actor: str = "auto"
    forced: bool = False
    """Whatever the trigger says."""
    to: int | None = None
    """Tokens to come down to, where the budget is not to say."""
    pending: int = 0
    """Estimated tokens about to be added."""
    keep: bool = True
    """False for a preview."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How compactions are made: everything of a compactor but what it knows of conversations."""

    known: ConversationCache
    strategies: tuple[Strategy, ...]
    budget: Budget
    clock: Callable[[], float]
    ledger: LedgerStore | None = None
    before: Before | None = None
    after: After | None = None
    on_event: OnEvent | None = None
    memory: MemoryFlush | None = None

    def turn(
        self, state: ConversationState, order: TurnOptions
    ) -> Generator[Ask | Effect, Any, ConversationState]:
        """*state* compacted where that is due, or where *order* says so."""
        if self.memory is not None and order.keep and self.memory.backlog.is_due():
            yield from self.memory.flush_backlog()
        state = self.known.calibrated(state)
        if not order.forced and not order.pending and pace.is_quiet(self.budget, state):
            return state
        found = pace.check(self.budget, state, self.clock(), order.pending)
        if not order.forced and (found.level != "hard" or found.hold_reason):
            return state
        return (yield from self._compaction(state, found, order))

    def _compaction(
        self, state: ConversationState, found: Check, order: TurnOptions
    ) -> Generator[Ask | Effect, Any, ConversationState]:
        started = self._started(state, found, order)
        said = self.before(state.view, started) if self.before else None
        if isinstance(said, Veto):
            refusal = Attempt(
                "before",
                "rejected",
                f"vetoed: {said.reason}",
                state.view.tokens_uncalibrated,
                state.view.tokens_uncalibrated,
            )
            return (
                yield from self._ended(
                    state,
                    pace.mark_attempt(state, started.when, order.pending),
                    started,
                    (refusal,),
                    said.reason,
                )
            )
        self.tell(started)
        now = state
        run = self._rounds(now, found, order, started)
        now = yield from (
            add_instructions(run, said.text) if isinstance(said, Instructions) else run
        )
        now = self._without_hidden(state, now)
        attempts = now.view.attempts
        if order.keep:
            attempts += yield from self.remembered(state.view, now.view)
            now = yield from self._saved(state, now)
        if attempts and (short := self._no_headroom(state, now, started, found, order)):
            attempts = (*attempts, short)
        now = pace.mark_attempt(now, started.when, order.pending)
        now = yield from self._ended(state, now, started, attempts)
        if order.keep and new_edits(state, now) and is_unsure(now.view):
            warn(NAME_THE_MODEL, ModelNotNamed, stacklevel=2)
        return now

    def _started(
        self, state: ConversationState, found: Check, order: TurnOptions
    ) -> CompactionStarted:
        goal = order.to
        if goal is None:
            goal = pace.goal(self.budget, state, found, order.pending, forced=order.forced)
        when, tip = self.clock(), state.view.transcript.tips[-1]
        return CompactionStarted(
            run=blake2b(f"{tip}:{when}:{order}".encode(), digest_size=8).hexdigest(),
            when=when,
            action="compact" if order.keep else "preview",
            actor=order.actor,
            trigger=found.reason
            if found.level == "hard" or not order.forced
            else f"asked for, at {found.reason}",
            tokens=state.view.tokens,
            goal=goal,
            model=model_of(state.view),
        )

    def _rounds(
        self, state: ConversationState, found: Check, order: TurnOptions, started: CompactionStarted
    ) -> Generator[Ask | Effect, Any, ConversationState]:
        """Rounds of the strategies. A repeated result is shown again once its first copy is hidden, and a report of
        usage is stale once the request was changed, so what fitted may exceed the trigger once more: hence
        several. Where a round left too much and no model was asked, others follow until one gains nothing: what they
        would gain, every new process would gain anew (C14). Where one was asked, another would only ask again."""
        for number in range(MAX_ROUNDS):
            before, edits, attempts = state, len(state.kept.edits), len(state.view.attempts)
            state, reached = yield from self._round(
                state, started.goal, self._until(state, found, order)
            )
            tried = state.view.attempts[attempts:]
            if number and len(state.kept.edits) == edits:
                return before
            for attempt in tried:
                self.tell(StrategyTried(run=started.run, attempt=attempt))
            if len(state.kept.edits) == edits:
                break
            state = self.known.calibrated(state)
            asked = any(attempt.asks for attempt in tried)
            if asked and (state.view.tokens <= reached or number + 1 >= MAX_ASKING_ROUNDS):
                break
            if not self._is_over(state, found, order, started.goal):
                break
        return state

    def _round(
        self, state: ConversationState, goal: int, until: Callable[[View], bool] | None
    ) -> Generator[Ask | Effect, Any, tuple[ConversationState, int]]:
        """The state after one round, and the tokens that the strategies had reached."""
        done: Compaction = yield from compact_to(state.view, self.strategies, goal, until)
        attempts = (*state.view.attempts, *done.attempts)
        fresh = new_visible_edits(done.view, state.view)
        if not fresh:
            return replace(state, view=replace(state.view, attempts=attempts)), done.view.tokens
        kept = state.kept.apply_counted(done.view, fresh)
        view = replace(self.known.sighted(kept), attempts=attempts)
        return replace(state, kept=kept, view=view), done.view.tokens

    def _saved(
        self, before: ConversationState, after: ConversationState
    ) -> Generator[Effect, Any, ConversationState]:
        """*after* with its new edits in the store. Others may have written meanwhile, while a model was asked: the
        store is read again at the next turn."""
        if not (fresh := new_edits(before, after)):
            return after
        yield partial(self.known.store.save, fresh)
        return replace(after, version=UNREAD)

    def remembered(
        self, before: View, after: View
    ) -> Generator[Ask | Effect, Any, tuple[Attempt, ...]]:
        """Put into the memory what *after* hides and *before* does not, before its edits are kept (S2-06): an attempt
        that tells where that failed (C2-9)."""
        if self.memory is None or after.edits == before.edits:
            return ()
        flushed = yield from self.memory.flush_hidden(before, after)
        failure = Attempt("memory", "failed", flushed.reason, after.tokens, after.tokens)
        return (failure,) if flushed.failed else ()

    def _without_hidden(
        self, before: ConversationState, after: ConversationState
    ) -> ConversationState:
        """*after* without the new edits that a later round hid, which were never sent (see `new_visible_edits`)."""
        showing = {placed.edit.id for placed in after.kept.visible_edits}
        hidden = [edit.id for edit in new_edits(before, after) if edit.id not in showing]
        if not hidden:
            return after
        kept = after.kept.revert(*hidden)
        return replace(
            after, kept=kept, view=replace(self.known.sighted(kept), attempts=after.view.attempts)
        )

    def _until(
        self, state: ConversationState, found: Check, order: TurnOptions
    ) -> Callable[[View], bool] | None:
        """What must hold beside the goal where the trigger is no number of tokens: it is no longer reached."""
        if order.forced or found.threshold is not None or found.is_periodic:
            return None
        return lambda view: not self._is_over(replace(state, view=view), found, order, 0)

    def _is_over(
        self, state: ConversationState, found: Check, order: TurnOptions, goal: int
    ) -> bool:
        """Is the request still too long for what set this off?"""
        if order.forced:
            return state.view.tokens > goal
        again = pace.check(self.budget, state, self.clock(), order.pending)
        return again.level == "hard" and not found.is_periodic

    def _no_headroom(
        self,
        before: ConversationState,
        after: ConversationState,
        started: CompactionStarted,
        found: Check,
        order: TurnOptions,
    ) -> Attempt | None:
        """What to say of all strategies together where they left the request too long and hardly smaller."""
        tokens, left = before.view.tokens, after.view.tokens
        gain = tokens - left
        if (
            left <= started.goal
            or gain >= self.budget.progress * tokens
            or not self._is_over(after, found, order, started.goal)
        ):
            return None
        fixed = after.view.profile.fixed_tokens
        reason = (
            f"{gain} of {tokens} tokens gained, less than {self.budget.progress:.0%}; the goal is {started.goal}; "
            f"system prompt and tools take {fixed}"
        )
        return Attempt(
            "budget",
            "no_headroom",
            reason,
            before.view.tokens_uncalibrated,
            after.view.tokens_uncalibrated,
        )

    def _ended(
        self,
        before: ConversationState,
        after: ConversationState,
        started: CompactionStarted,
        attempts: tuple[Attempt, ...],
        veto: str = "",
    ) -> Generator[Effect, Any, ConversationState]:
        """Keep the books and tell who listens."""
        after = replace(after, view=replace(after.view, attempts=attempts))
        fresh = new_edits(before, after)
        if self.ledger is not None:
            yield partial(
                call_safely, self.ledger.record, build_rows(started, before.view, fresh, attempts)
            )
        ended = CompactionEnded(
            run=started.run,
            started_at=started.when,
            ended_at=self.clock(),
            action=started.action,
            actor=started.actor,
            before=before.view.tokens,
            after=after.view.tokens,
            edits=tuple(edit.id for edit in fresh),
            attempts=attempts,
            veto=veto,
        )
        if self.after is not None:
            call_safely(self.after, after.view, ended)
        self.tell(ended)
        return after

    def tell(self, event: Event) -> None:
        """Pass an event on to who listens."""
        if self.on_event is not None:
            call_safely(self.on_event, event)


def new_visible_edits(after: View, before: View) -> list[Edit]:
    """The edits made since *before* that show in *after*. One that a later one of the same compaction hides
    was never sent; kept, it would show after a rewind, before thinking that was signed without it (AN-7)."""
    shown = {id(placed.edit) for placed in after.visible_edits}
    return [edit for edit in after.edits[len(before.edits) :] if id(edit) in shown]


def new_edits(before: ConversationState, after: ConversationState) -> Sequence[Edit]:
    """The retrospective edits that *after* has and *before* has not."""
    return after.kept.edits[len(before.kept.edits) :]


def add_instructions(run: Generator[Any, Any, T], text: str) -> Generator[Any, Any, T]:
    """*run*, with *text* at the end of every prompt."""

    def instruct(step: Any) -> Any:
        if not isinstance(step, Ask):
            return step
        return replace(step, prompt=f"{step.prompt}\n\n{text}")

    return map_steps(run, instruct)
