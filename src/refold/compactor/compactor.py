"""The front door: codec, store and strategies behind one call."""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, TypeVar, cast

from refold.budget.budget import Budget, Check
from refold.codecs.codec import Codec
from refold.codecs.detect import fields_of, recognize
from refold.codecs.payload import Payload, split_payload
from refold.compactor import schedule as pace
from refold.compactor.calibration import Reports, reports_for
from refold.compactor.conversations import ConversationCache, is_sure
from refold.compactor.hooks import After, Before, EditsReverted, OnEvent, PreviewAccepted
from refold.compactor.ledger_rows import build_manual_rows
from refold.compactor.preview import Preview
from refold.compactor.run import Rounds, TurnOptions, new_edits
from refold.compactor.session import Session
from refold.compactor.signed_thinking import edits_after_revert, find_thinking_copies
from refold.compactor.state import ConversationState
from refold.core.strategy import Ask, Strategy, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_callable_or_none
from refold.memory import MemoryFlush
from refold.models.driver import Asker, AsyncAsker, Effect, adrive, call_safely, drive
from refold.stores.memory import MemoryStore
from refold.stores.store import LedgerRow, LedgerStore, Store, as_ledger_store, rows_about
from refold.tokens.count import Counter, count_message

ORIGINAL = "as said"
"""What makes the edits that show a message as it was said, against a local strategy."""

AUTO = TurnOptions()
T = TypeVar("T")


class Compactor:
    """Compacts histories: call it with one, send what its view's `payload` says.

    Local strategies edit each message at first sight; the others run, gentlest first, when the
    budget's trigger is reached. Their edits go into the *store*, so that the next call, with the
    history grown, shows the same view and the prompt cache holds. The history is left alone.

    *ask* answers strategies that need a model; without it they do without. *format* names the wire
    format (`anthropic`, `openai_chat`, `openai_responses`, `gemini`) where its shape should not
    decide, or is a codec (`refold.adapters.langchain`). *model* is that of histories which name
    none. *count* counts one message's tokens. *reports* are shared by compactors that learn from
    one another. *salt* keeps the stored edits of different tenants apart. *ledger* takes a row for
    every attempt (else the store, where it keeps one). *before* may veto or instruct a compaction,
    *after* and *on_event* watch (`refold.compactor.hooks`). *memory* keeps what is worth knowing before
    messages are hidden (`refold.memory.MemoryFlush`). *clock* tells seconds since 1970. Calls may come
    from several threads. Raises ValueError for a strategy, budget or store that is none.
    """

    def __init__(  # noqa: PLR0913 - the front door: everything optional is by keyword
        self,
        strategies: Iterable[Strategy],
        budget: Budget,
        store: Store | None = None,
        *,
        ask: Asker | None = None,
        format: str | Codec | None = None,
        model: str = "",
        count: Counter = count_message,
        reports: Reports | None = None,
        salt: str = "",
        ledger: LedgerStore | None = None,
        before: Before | None = None,
        after: After | None = None,
        on_event: OnEvent | None = None,
        memory: MemoryFlush | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        strategies = tuple(strategies)
        _validate(strategies, budget, store)
        require_callable_or_none(before=before, after=after, on_event=on_event)
        self.local = tuple(s for s in strategies if is_local(s))
        retrospective = tuple(s for s in strategies if not is_local(s))
        self.ask, self.format, self.salt, self.count = ask, format, salt, count
        self.store: Store = MemoryStore() if store is None else store
        self.ledger = ledger or as_ledger_store(self.store)
        self.reports = reports or reports_for(count)
        self._known = ConversationCache(
            self.store, self.local, count, format, salt, self.reports, model
        )
        self._rounds = Rounds(
            self._known, retrospective, budget, clock, self.ledger, before, after, on_event, memory
        )

    @property
    def budget(self) -> Budget:
        """When it acts, and how far. Another one may be set between two calls."""
        return self._rounds.budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self._rounds = replace(self._rounds, budget=budget)

    @property
    def retrospective(self) -> tuple[Strategy, ...]:
        """What runs when the budget says so, gentlest first. Others may be set between two calls."""
        return self._rounds.strategies

    @retrospective.setter
    def retrospective(self, strategies: Iterable[Strategy]) -> None:
        self._rounds = replace(self._rounds, strategies=tuple(strategies))

    def __call__(self, history: Any, *, pending: Any = None) -> View:
        """The view of *history* that fits the budget, as far as the strategies can make it fit.

        *history* is a list of messages, a request body or its JSON text; the view's `payload` is
        of the same kind. *pending*, counted with it, is what you will add before you send it: a
        number of tokens, a user's text, or messages in wire form (conformance 47).
        Raises `FormatError` for anything else and `StoreError` when the store fails.
        """
        return drive(self._turn(history, AUTO, pending), self.ask)

    async def acompact(
        self, history: Any, ask: AsyncAsker | None = None, *, pending: Any = None
    ) -> View:
        """As calling it, for async code; *ask* is awaited. Store access runs in a thread."""
        return await self._awaited(self._turn(history, AUTO, pending), ask or self.ask)

    def session(self, history: Sequence[Any] = ()) -> Session:
        """A conversation that is told only what is new; each step costs what was added."""
        return Session(
            lambda state, wires: drive(self.step(state, wires), self.ask), self.report, history
        )

    def check(self, history: Any, *, pending: Any = None) -> Check:
        """What would be due for *history* with *pending* (as for calling it): `none`, `soft` or `hard`, the
        figure crossed and the reason. Nothing runs and nothing is asked. Raises as calling it does."""
        envelope, known = self._known.open(history)
        state = drive(self._state(known, envelope))
        self._known.remember(state, known)
        more = self._known.count_pending(pending, envelope)
        return pace.check(self.budget, self._known.calibrated(state), self._rounds.clock(), more)

    def matching_prefix_length(self, envelope: Payload) -> int:
        """Entries of the longest known history that *envelope* (`refold.codecs.detect.open_payload`) goes on from, as its last
        entry tells, in whatever spelling; 0 where none is known. Nothing is looked up in the store."""
        return self._known.length(envelope)

    def report(self, view: View, usage: Any) -> None:
        """Tell what the provider reported for the request that *view* made: its usage object as
        parsed, of any provider. From then on tokens of this conversation count from that figure,
        and of other requests to this model by the ratio learned. Usage that is missing, or cannot
        be that of one request, is passed over; see `refold.compactor.calibration`."""
        self.reports.add(view, usage)

    # --- by hand ------------------------------------------------------------------------------

    def compact_now(
        self, history: Any, *, to: int | None = None, pending: Any = None, actor: str = "manual"
    ) -> View:
        """Compact whatever the trigger says and whatever failed before: down to *to* tokens, else to the
        budget's target, else by the budget's `progress` at least. *actor* is who wants it, for the ledger.
        A ladder of models is asked though its breaker is open (conformance 50)."""
        return drive(
            self._turn(history, TurnOptions(actor, forced=True, to=to), pending),
            _manual_asker(self.ask),
        )

    async def acompact_now(
        self,
        history: Any,
        ask: AsyncAsker | None = None,
        *,
        to: int | None = None,
        pending: Any = None,
        actor: str = "manual",
    ) -> View:
        """As `now`, for async code."""
        run = self._turn(history, TurnOptions(actor, forced=True, to=to), pending)
        return await self._awaited(run, _manual_asker(ask or self.ask))

    def preview(self, history: Any, *, to: int | None = None, actor: str = "manual") -> Preview:
        """What `now` would make of *history*. Models are asked as for `now`; nothing is kept but the
        ledger's rows. Give the preview to `accept`, or send its `payload` once and forget it."""
        return drive(
            self._preview(history, TurnOptions(actor, forced=True, to=to, keep=False)),
            _manual_asker(self.ask),
        )

    async def apreview(
        self,
        history: Any,
        ask: AsyncAsker | None = None,
        *,
        to: int | None = None,
        actor: str = "manual",
    ) -> Preview:
        """As `preview`, for async code."""
        run = self._preview(history, TurnOptions(actor, forced=True, to=to, keep=False))
        return await self._awaited(run, _manual_asker(ask or self.ask))

    def accept(self, preview: Preview, *, actor: str = "manual") -> View:
        """Keep exactly the edits of *preview*, as they are. No model is asked. From now on every call with this
        history, or one that continues it, shows them; signed thinking goes that came in a known continuation
        since the preview (AN-7). Raises ValueError for what is no preview, `EditError` when edits that were kept since
        stand in the way, `StoreError` when the store fails; then nothing is kept."""
        if not isinstance(preview, Preview):
            raise ValueError(  # noqa: TRY004 - as for all settings
                f"accept takes what `preview` has made, not a {type(preview).__name__}"
            )
        envelope = cast("Payload", preview.view.source)
        known = self._known.recall(envelope)
        base = drive(self._state(known, envelope))
        base.kept.apply(*preview.edits)
        told = drive(self._rounds.remembered(base.view, preview.view), self.ask)
        self.store.save((*preview.edits, *self._known.unbound(preview.edits)))
        when = self._rounds.clock()
        self._book(
            build_manual_rows(
                "accept", when, actor, preview.view, preview.edits, (*preview.attempts, *told)
            )
        )
        self._rounds.tell(
            PreviewAccepted(when=when, actor=actor, edits=tuple(edit.id for edit in preview.edits))
        )
        state = pace.mark_attempt(self._known.calibrated(drive(self._state(known, envelope))), when)
        self._known.remember(state, known)
        return replace(state.view, attempts=told) if told else state.view

    def revert(self, history: Any, *ids: str, actor: str = "manual") -> View:
        """Take stored edits back for good (all, without *ids*). An edit of a local strategy comes
        back by itself, so the message itself is stored as what to show. Where thinking is bound to
        what stood before it (AN-7), signed thinking from the first edit taken back on goes (`resettle`).
        Automatic compaction of this history waits until it has grown. Raises `EditError`."""
        envelope, known = self._known.open(history)
        view = drive(self._state(known, envelope)).view
        gone = (
            view.find_all(ids) if ids else [e for e in view.edits if not e.by.startswith(ORIGINAL)]
        )
        named = {edit.id for edit in gone}
        gone += [edit for edit in find_thinking_copies(view, gone) if edit.id not in named]
        self.store.remove(edit.id for edit in gone)
        local = {repr(strategy) for strategy in self.local}
        self.store.save(_restore(view, edit) for edit in gone if edit.by in local)
        self._known.forget()
        self.store.save(edits_after_revert(drive(self._state(None, envelope)).view, view))
        when = self._rounds.clock()
        self._book(build_manual_rows("revert", when, actor, view, gone))
        self._rounds.tell(
            EditsReverted(when=when, actor=actor, edits=tuple(edit.id for edit in gone))
        )
        state = pace.mark_attempt(self._known.calibrated(drive(self._state(None, envelope))), when)
        self._known.remember(state, None)
        return state.view

    def ledger_rows(self, history: Any) -> tuple[LedgerRow, ...]:
        """The ledger's rows about *history*, oldest first: every attempt, failed and vetoed ones included,
        previews, and what was accepted and reverted. Empty where no ledger is kept. Raises `StoreError`."""
        if self.ledger is None:
            return ()
        envelope, known = self._known.open(history)
        return tuple(
            rows_about(self.ledger, drive(self._state(known, envelope)).kept.transcript.tips)
        )

    # --- one turn -----------------------------------------------------------------------------

    def step(
        self, state: ConversationState | None, history: Any
    ) -> Generator[Ask | Effect, Any, ConversationState]:
        """One turn: from what is known of a conversation to what is known of it grown and compacted.
        A list is read as it is, not copied."""
        envelope = split_payload(history, fields_of(self.format))
        sure = state is not None and is_sure(state, envelope)
        envelope = recognize(envelope, state.codec if state and sure else self.format)
        if state is not None and state.codec is not envelope.codec:
            state = None
        return (yield from self._rounds.turn((yield from self._state(state, envelope)), AUTO))

    def _turn(
        self, history: Any, order: TurnOptions, pending: Any = None
    ) -> Generator[Ask | Effect, Any, View]:
        envelope, known = self._known.open(history)
        if pending is not None:
            order = replace(order, pending=self._known.count_pending(pending, envelope))
        state = yield from self._state(known, envelope)
        state = yield from self._rounds.turn(state, order)
        self._known.remember(state, known)
        return state.view

    def _state(
        self, known: ConversationState | None, envelope: Payload
    ) -> Generator[Effect, Any, ConversationState]:
        """The state of a history as the store has it, before any new compaction."""
        state = yield from self._known.advance(known, envelope)
        if known is None:
            return replace(state, mark=pace.first_mark(state.kept, self._rounds.clock()))
        return pace.follow_model_change(known, state, self.budget)

    def _preview(self, history: Any, order: TurnOptions) -> Generator[Ask | Effect, Any, Preview]:
        envelope, known = self._known.open(history)
        before = self._known.calibrated((yield from self._state(known, envelope)))
        after = yield from self._rounds.turn(before, order)
        return Preview(before.view, after.view, tuple(new_edits(before, after)))

    async def _awaited(
        self, run: Generator[Ask | Effect, Any, T], ask: Asker | AsyncAsker | None
    ) -> T:
        return await adrive(run, ask)

    def _book(self, rows: Sequence[LedgerRow]) -> None:
        if self.ledger is not None:
            call_safely(self.ledger.record, rows)


def _validate(strategies: Iterable[Any], budget: Any, store: Any) -> None:
    """Is each what it is given as? Raises ValueError."""
    for one in strategies:
        if isinstance(one, type) or not callable(one):
            raise ValueError(  # noqa: TRY004 - as for all settings
                f"a strategy is given with its settings, such as ClearToolResults(keep=3), not as {one!r}"
            )
        if is_local(one) and not _accepts_since(one):
            raise ValueError(
                f"a local strategy takes a view and `since`, where new messages begin; {one!r} does not"
            )
    if not isinstance(budget, Budget):
        raise ValueError(f"the budget must be a refold.Budget(trigger, target), not {budget!r}")  # noqa: TRY004 - as for all settings
    if store is not None and not all(
        hasattr(store, name) for name in ("load", "save", "remove", "version")
    ):
        raise ValueError(
            f"the store must be one, such as refold.SQLiteStore('refold.db'), not {store!r}"
        )


def _accepts_since(strategy: Strategy) -> bool:
    try:
        signature(strategy).bind(None, 0)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # what is built in does not say
    return True


def _manual_asker(ask: Any) -> Any:
    """Who answers what a user started: a ladder of models has a side of its own for it."""
    return getattr(ask, "manual", ask)


def _restore(view: View, edit: Edit) -> Edit:
    return view.replace(
        edit.start, view.transcript.messages[edit.start], by=f"{ORIGINAL} ({edit.by})"
    )
