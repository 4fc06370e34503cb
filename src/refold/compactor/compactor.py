"""The front door: codec, store and strategies behind one call."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from refold.budget.budget import Budget, Check, default_budget, require_budget
from refold.codecs.codec import Codec, Payload, split_payload
from refold.codecs.detect import fields_of, recognize
from refold.compactor import by_hand
from refold.compactor.by_hand import Preview
from refold.compactor.calibration import Reports, reports_for
from refold.compactor.conversations import ConversationCache, ConversationState, Session
from refold.compactor.hooks import After, Before, OnEvent
from refold.compactor.loading import Schedule, count_pending, is_below_budget_floor, load
from refold.compactor.run import TurnOptions, TurnSteps, force_turn, run_turn, settle_thinking
from refold.compactor.settings import Settings, default_strategies, list_strategies
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_int
from refold.models.driver import Asker, Effect, adrive, drive, require_asker
from refold.stores.store import LedgerRow, LedgerStore, MemoryStore, Store, as_ledger_store
from refold.tokens.count import Counter, count_message

if TYPE_CHECKING:  # slow to import and seldom needed
    from refold.memory import MemoryFlush

CACHE_SETTINGS = ("store", "local", "format", "model", "count", "salt")
"""Settings that a cached conversation depends on."""


class Compactor:
    """Compacts histories. Call it with one and send the `payload` of the returned view.

    Local strategies edit each message when it first appears. The others run, gentlest first, when
    the budget's trigger is reached. The defaults are `default_strategies` and a budget that acts
    when this makes the session cheaper (`refold.budget.budget`), by the prices of the *model*, or
    when its window is nearly full. Edits go into the *store*. The next call with the grown history
    shows them again, so the prompt cache holds. The history is not changed.

    *ask* is the model for strategies that need one. If given, it writes the first summary of the
    default strategies (`ModelSummary`). *format* names the wire format (`anthropic`, `openai_chat`,
    `openai_responses`, `gemini`, `bedrock`) or is a codec (`refold.adapters.langchain`). By default
    it is detected. *model* is for histories that name none. *count* counts the tokens of one
    message. *reports* are shared by compactors that learn from one another. *salt* keeps the stored
    edits of different tenants apart. *ledger* records every attempt (default: the store, if it has
    a ledger). *before* may veto or instruct a compaction. *after* and *on_event* observe it
    (`refold.compactor.hooks`). *memory* extracts memories before messages are hidden
    (`refold.memory.MemoryFlush`). *clock* returns seconds since 1970. Thread-safe. Raises
    ValueError for an invalid strategy, budget or store, FormatError for an invalid *format*,
    TypeError if *ask* is not callable.
    """

    def __init__(  # noqa: PLR0913 - the front door: everything optional is by keyword
        self,
        strategies: Iterable[Strategy] | None = None,
        budget: Budget | None = None,
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
        memory: "MemoryFlush | None" = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        store = MemoryStore() if store is None else store
        self.ask = require_asker(ask)
        self.settings = Settings(
            default_strategies(asks=ask is not None)
            if strategies is None
            else list_strategies(strategies),
            default_budget() if budget is None else budget,
            store,
            format,
            model,
            count,
            reports or reports_for(count),
            salt,
            as_ledger_store(store) if ledger is None else ledger,
            before,
            after,
            on_event,
            memory,
            clock,
            has_default_strategies=strategies is None,
            has_default_budget=budget is None,
            asks=ask is not None,
        )
        self._cache = ConversationCache(format)

    def __repr__(self) -> str:
        return f"Compactor({list(self.settings.strategies)}, {self.settings.budget})"

    def with_settings(self, **changes: Any) -> "Compactor":
        """Return a compactor with some of its `settings` replaced. It shares the usage reports, and
        the conversation cache unless a setting of `CACHE_SETTINGS` differs. With another store, a
        ledger in the former store is replaced too."""
        twin, settings = copy(self), self.settings
        if "store" in changes and settings.ledger is as_ledger_store(settings.store):
            changes = {"ledger": as_ledger_store(changes["store"]), **changes}
        twin.settings = replace(
            settings,
            **changes,
            has_default_strategies=settings.has_default_strategies and "strategies" not in changes,
            has_default_budget=settings.has_default_budget and "budget" not in changes,
        )
        read = attrgetter(*CACHE_SETTINGS)
        if read(twin.settings) != read(settings):
            twin._cache = ConversationCache(twin.settings.format)  # noqa: SLF001 - of this class
        return twin

    def __call__(self, history: Any, *, budget: Budget | None = None, pending: Any = None) -> View:
        """Compact *history*, see `compact`."""
        return self.compact(history, budget=budget, pending=pending)

    def compact(self, history: Any, *, budget: Budget | None = None, pending: Any = None) -> View:
        """Return the view of *history*, compacted to fit the budget as far as the strategies can.

        *history* is a list of messages, a request body or its JSON text. The view's `payload` has
        the same type. *budget* replaces the compactor's in this call. *pending* is what you add
        before sending, counted with the history: a number of tokens, a user's text, or messages in
        wire form. Raises `FormatError` for anything else and `StoreError` if the store fails.
        """
        return drive(self._run_turn(history, TurnOptions(budget=budget, pending=pending)), self.ask)

    async def acompact(
        self,
        history: Any,
        ask: Asker | None = None,
        *,
        budget: Budget | None = None,
        pending: Any = None,
    ) -> View:
        """As `compact`, for async code. *ask* replaces the compactor's. The store is used in a
        thread."""
        run = self._run_turn(history, TurnOptions(budget=budget, pending=pending))
        return await adrive(run, ask or self.ask)

    def show(self, history: Any) -> View:
        """Return the view of *history* with its stored edits and those of local strategies. Nothing
        is compacted and no model is asked. Raises as `compact`."""
        return drive(self._show(history)).view

    def session(self, history: Sequence[Any] | Mapping[str, Any] = ()) -> Session:
        """Return a session that is given only new messages after *history*, which is a list of
        messages or a request body whose other fields stay. Each step costs what was added. Raises
        as `compact`."""
        opened = split_payload(history, fields_of(self.settings.format))

        def step(state: ConversationState | None, wires: Sequence[Any]) -> ConversationState:
            source = {**opened.body, opened.field: wires} if opened.field else wires
            return drive(self._step(state, source), self.ask)

        entries = opened.raw_entries if isinstance(history, Mapping) else history
        return Session(step, self.report, entries)

    def check(self, history: Any, *, budget: Budget | None = None, pending: Any = None) -> Check:
        """Return whether a compaction of *history* is due (`none`, `soft` or `hard`), the threshold
        and the reason. *budget* and *pending* are as for `compact`. Only local strategies run."""
        if budget is not None:
            require_budget(budget)
        state = drive(self._show(history))
        settings = self.settings.fit(state.view)
        count = count_pending(settings, pending, state.codec)
        return Schedule.of(settings, budget, count).check(state)

    def matching_prefix_length(self, payload: Payload) -> int:
        """Return the number of entries in the longest cached history that is a prefix of *payload*
        (opened by `refold.codecs.detect`); 0 if there is none. The store is not asked."""
        cached = self._cache.match(payload)
        return len(cached.entries) if cached else 0

    @property
    def cached_bytes(self) -> int:
        """Bytes of the JSON texts of the cached conversations, estimated for parsed ones. They take
        about twice that in memory."""
        return self._cache.size

    def report(self, view: View, usage: Any) -> None:
        """Learn from the parsed usage object that any provider returned for the request of *view*.
        Later token counts of this conversation start from its figure. Other requests to this model
        use the learned ratio. Missing or implausible usage changes no count, see
        `refold.compactor.calibration`."""
        self.settings.reports.add(view, usage)

    # --- by hand ------------------------------------------------------------------------------

    def compact_now(
        self, history: Any, *, to: int | None = None, pending: Any = None, actor: str = "manual"
    ) -> View:
        """Compact regardless of the trigger and of earlier failures: down to *to* tokens, else to
        the budget's target, but by at least the budget's `progress`. *actor* is recorded in the
        ledger. A `Fallback` is asked even if its circuit breaker is open."""
        options = force_turn(to, actor=actor, pending=pending)
        return drive(self._run_turn(history, options), _manual_asker(self.ask))

    async def acompact_now(
        self,
        history: Any,
        ask: Asker | None = None,
        *,
        to: int | None = None,
        pending: Any = None,
        actor: str = "manual",
    ) -> View:
        """As `compact_now`, for async code."""
        run = self._run_turn(history, force_turn(to, actor=actor, pending=pending))
        return await adrive(run, _manual_asker(ask or self.ask))

    def preview(self, history: Any, *, to: int | None = None, actor: str = "manual") -> Preview:
        """Return what `compact_now` would do to *history*. Models are asked, but only ledger rows
        are saved. Pass the preview to `accept`, or send its `payload` once."""
        run = by_hand.preview(self.settings, self._cache, history, to, actor)
        return drive(run, _manual_asker(self.ask))

    async def apreview(
        self,
        history: Any,
        ask: Asker | None = None,
        *,
        to: int | None = None,
        actor: str = "manual",
    ) -> Preview:
        """As `preview`, for async code."""
        run = by_hand.preview(self.settings, self._cache, history, to, actor)
        return await adrive(run, _manual_asker(ask or self.ask))

    def accept(self, preview: Preview, *, actor: str = "manual") -> View:
        """Save exactly the edits of *preview* and return the view with them. Only local strategies
        run. Only *memory* may ask a model.

        Later calls with this history, or one that continues it, show them. Signed thinking that a
        known continuation gained since is removed (AN-7). Raises ValueError for anything but a
        preview, `EditError` if edits saved since conflict, `StoreError` if the store fails. Then
        nothing is saved.
        """
        return by_hand.accept(self.settings, self._cache, preview, actor, self.ask)

    def revert(self, history: Any, *ids: str | Edit, actor: str = "manual") -> View:
        """Remove edits permanently: those with these *ids* (or edits), or if none is given, all.
        Return the new view.

        A local strategy would repeat its edit, so the original message is stored as an edit in its
        place. If thinking is bound to its prefix (AN-7), signed thinking is removed from the first
        reverted edit on (`edits_after_revert`). Automatic compaction of this history waits until it
        has grown. Raises `EditError`.
        """
        return by_hand.revert(self.settings, self._cache, history, ids, actor)

    def ledger_rows(self, history: Any) -> tuple[LedgerRow, ...]:
        """Return the ledger rows about *history*, oldest first: every attempt, including failed and
        vetoed ones, previews, accepted and reverted edits. Tokens are calibrated as `View.tokens`
        is now, while the ledger stores estimates. Empty without a ledger. Raises `StoreError`."""
        return by_hand.list_rows(self.settings, self._cache, history)

    # --- one turn -----------------------------------------------------------------------------

    def _step(self, state: ConversationState | None, history: Any) -> TurnSteps[ConversationState]:
        """Return the state of a session after its turn. A list is read, not copied."""
        payload = split_payload(history, fields_of(self.settings.format))
        is_known = state is not None and state.has_format_of(payload)
        payload = recognize(payload, state.codec if state and is_known else self.settings.format)
        if state is not None and state.codec is not payload.codec:
            state = None
        return (yield from self._grow(state, payload, TurnOptions()))

    def _run_turn(self, history: Any, options: TurnOptions) -> TurnSteps[View]:
        payload, cached = self._cache.open(history)
        state = yield from self._grow(cached, payload, options)
        self._cache.remember(state, cached)
        return state.view

    def _grow(
        self, cached: ConversationState | None, payload: Payload, options: TurnOptions
    ) -> TurnSteps[ConversationState]:
        """Return the state of a history after its turn: loaded, and compacted if due."""
        settings = self.settings
        if options.budget is not None:
            require_budget(options.budget)
        if settings.memory is not None and settings.memory.backlog.is_due():
            yield from settings.memory.flush_backlog()
        pending = count_pending(settings, options.pending, payload.codec)
        budget = options.budget or settings.budget
        state = yield from load(settings, cached, payload, budget)
        if cached is not None and cached.header is not state.header:
            state = yield from settle_thinking(settings, cached, state)
        if settings.has_default_strategies or settings.has_default_budget:
            if not options.forced and options.budget is None:
                settings.warn_if_incomplete(state.view.profile.model)
            settings = settings.fit(state.view)
            budget = options.budget or settings.budget
        if options.forced or not is_below_budget_floor(state, budget, pending):
            schedule = Schedule.of(settings, budget, pending)
            state = yield from run_turn(settings, schedule, state, options)
        return state._replace(used_at=settings.clock())

    def _show(self, history: Any) -> Generator[Effect, Any, ConversationState]:
        payload, cached = self._cache.open(history)
        state = yield from load(self.settings, cached, payload)
        self._cache.remember(state, cached)
        return state


def _manual_asker(ask: Any) -> Any:
    """Return the model for an operation started by a user: of a `Fallback` its `manual` side."""
    return getattr(ask, "manual", ask)


def compact(
    history: Any,
    to: int,
    *,
    model: str = "",
    store: Store | None = None,
    format: str | Codec | None = None,
) -> View:
    """Return a view of *history* of at most *to* tokens, if the default strategies can make it that
    small.

    *history* is a list of messages, a request body or its JSON text, in any of the five formats
    (docs/formats.md). *format* names it if detection should not decide. The history is not changed:
    send the view's `payload`. *model* names the model if the history does not. Token counts and the
    removal of signed thinking depend on it. No model is asked. With a *store*, these edits are used
    again next time. `view.tokens` tells whether it fits, `view.attempts` what was done.

    Not for loops: each call decides anew, so calling it for a growing history breaks the prompt
    cache nearly every time. Keep one `Compactor(model=...)` there, which compacts when that pays.

    Raises ValueError if *to* is not a number of tokens, `FormatError` if *history* is not a
    conversation, `StoreError` if the store fails.
    """
    require_int(0, to=to)
    compactor = Compactor(default_strategies(to), Budget(to, to), store, model=model, format=format)
    return compactor(history)
