"""The front door: codec, store and strategies behind one call."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from refold.budget.budget import Budget, Check, default_budget, require_budget
from refold.codecs.codec import Codec, Payload, split_payload
from refold.codecs.detect import fields_of, recognize
from refold.compactor import by_hand
from refold.compactor.by_hand import Preview
from refold.compactor.calibration import Reports, reports_for
from refold.compactor.conversations import ConversationCache, ConversationState, Session
from refold.compactor.hooks import After, Before, OnEvent
from refold.compactor.loading import Schedule, count_pending, is_quiet, load
from refold.compactor.run import TurnOptions, TurnSteps, force_turn, run_turn, settle_thinking
from refold.compactor.settings import Settings, default_strategies, list_strategies
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_int
from refold.models.driver import Asker, Effect, adrive, drive, require_asker
from refold.stores.store import LedgerRow, LedgerStore, MemoryStore, Store, as_ledger_store
from refold.tokens.count import Counter, count_message

if TYPE_CHECKING:  # a memory is seldom given, and takes long to import
    from refold.memory import MemoryFlush


class Compactor:
    """Compacts histories: call it with one, send what its view's `payload` says.

    Local strategies edit each message at first sight; the others run, gentlest first, when the
    budget's trigger is reached. What is not given is the default: `default_strategies`, and a
    budget that acts when that makes the session cheaper (`refold.budget.budget`), by the prices of
    the *model*, and when its window is nearly full. Their edits go into the *store*: the next call,
    with the history grown, shows the same and the prompt cache holds. The history is left alone.

    *ask* answers strategies that need a model; without it they do without. By default it writes the
    summary (`ModelSummary`). *format* names the wire format (`anthropic`, `openai_chat`,
    `openai_responses`, `gemini`, `bedrock`) if its shape should not decide, or is a codec
    (`refold.adapters.langchain`). *model* is that of histories which name none. *count* counts one
    message's tokens. *reports* are shared by compactors that learn from one another. *salt* keeps
    the stored edits of different tenants apart. *ledger* takes a row for every attempt (else the
    store, if it keeps one). *before* may veto or instruct a compaction, *after* and *on_event*
    watch (`refold.compactor.hooks`). *memory* keeps what is worth knowing before messages are
    hidden (`refold.memory.MemoryFlush`). *clock* tells seconds since 1970.
    Calls may come from several threads. Raises ValueError for a strategy, budget or store that is
    none, FormatError for a *format* that is none, TypeError for an *ask* that is no function.
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
            ledger or as_ledger_store(store),
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
        """Return a compactor with these of its `settings` in place of its own. It shares reports,
        and what is known of conversations unless the store or the local strategies differ."""
        twin, settings = copy(self), self.settings
        twin.settings = replace(
            settings,
            **changes,
            has_default_strategies=settings.has_default_strategies and "strategies" not in changes,
            has_default_budget=settings.has_default_budget and "budget" not in changes,
        )
        if twin.settings.local != settings.local or twin.settings.store is not settings.store:
            twin._cache = ConversationCache(settings.format)  # noqa: SLF001 - of this class
        return twin

    def __call__(self, history: Any, *, budget: Budget | None = None, pending: Any = None) -> View:
        """Compact *history*: the same as `compact`."""
        return self.compact(history, budget=budget, pending=pending)

    def compact(self, history: Any, *, budget: Budget | None = None, pending: Any = None) -> View:
        """Return the view of *history* that fits the budget, as far as the strategies can make it.

        *history* is a list of messages, a request body or its JSON text; the view's `payload` is
        of the same kind. *budget* takes the place of the compactor's in this call. *pending*,
        counted with the history, is what you will add before you send it: a number of tokens, a
        user's text, or messages in wire form. Raises `FormatError` for anything
        else and `StoreError` when the store fails.
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
        """As `compact`, for async code; *ask* is asked in place of the compactor's. Store access
        runs in a thread."""
        run = self._run_turn(history, TurnOptions(budget=budget, pending=pending))
        return await adrive(run, ask or self.ask)

    def show(self, history: Any) -> View:
        """Return the view of *history* with the edits that are known of it and those of local
        strategies. Nothing is compacted and no model is asked. Raises as `compact`."""
        return drive(self._show(history)).view

    def session(self, history: Sequence[Any] | Mapping[str, Any] = ()) -> Session:
        """Return a conversation that is given only what is new, beginning with *history*: messages,
        or a request body, whose other fields stay. Each step costs what was added."""
        opened = split_payload(history, fields_of(self.settings.format))

        def step(state: ConversationState | None, wires: Sequence[Any]) -> ConversationState:
            source = {**opened.body, opened.field: wires} if opened.field else wires
            return drive(self._step(state, source), self.ask)

        entries = opened.raw_entries if isinstance(history, Mapping) else history
        return Session(step, self.report, entries)

    def check(self, history: Any, *, budget: Budget | None = None, pending: Any = None) -> Check:
        """Return what would be due for *history* (*budget* and *pending* as for `compact`): `none`,
        `soft` or `hard`, the figure crossed and the reason. Nothing runs and nothing is asked."""
        if budget is not None:
            require_budget(budget)
        state = drive(self._show(history))
        settings = self.settings.fit(state.view)
        count = count_pending(settings, pending, state.codec)
        return Schedule.of(settings, budget, count).check(state)

    def matching_prefix_length(self, payload: Payload) -> int:
        """Return how many entries the longest known history has that *payload*, an opened one
        (`refold.codecs.detect`), continues; 0 if none is known. The store is not asked."""
        cached = self._cache.match(payload)
        return len(cached.entries) if cached else 0

    @property
    def cached_bytes(self) -> int:
        """Bytes of the JSON texts of the conversations that are remembered, which take about twice
        as many in memory."""
        return self._cache.size

    def report(self, view: View, usage: Any) -> None:
        """Learn from what the provider reported for the request that *view* made: its usage object
        as parsed, of any provider. From then on tokens of this conversation count from that figure,
        and of other requests to this model by the ratio learned. Usage that is missing, or cannot
        be that of one request, is passed over; see `refold.compactor.calibration`."""
        self.settings.reports.add(view, usage)

    # --- by hand ------------------------------------------------------------------------------

    def compact_now(
        self, history: Any, *, to: int | None = None, pending: Any = None, actor: str = "manual"
    ) -> View:
        """Compact whatever the trigger says and whatever failed before: down to *to* tokens, else
        to the budget's target, else by the budget's `progress` at least. *actor* is who wants it,
        for the ledger. A `Fallback` is asked although its breaker is open."""
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
        """Return what `compact_now` would make of *history*. Models are asked as for that; nothing
        is kept but the ledger's rows. Give the preview to `accept`, or send its `payload` once."""
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
        """Keep exactly the edits of *preview*. No model is asked.

        From now on every call with this history, or one that continues it, shows them. Signed
        thinking goes that came in a known continuation since the preview (AN-7). Raises ValueError
        for what is no preview, `EditError` when edits that were kept since stand in the way,
        `StoreError` when the store fails; then nothing is kept.
        """
        return by_hand.accept(self.settings, self._cache, preview, actor, self.ask)

    def revert(self, history: Any, *ids: str | Edit, actor: str = "manual") -> View:
        """Take stored edits back for good (all, without *ids*; an edit stands for its own id).

        An edit of a local strategy comes back by itself, so the message itself is stored as what to
        show. If thinking is bound to what stood before it (AN-7), signed thinking from the first
        edit taken back on goes (`edits_after_revert`). Automatic compaction of this history waits
        until it has grown. Raises `EditError`.
        """
        return by_hand.revert(self.settings, self._cache, history, ids, actor)

    def ledger_rows(self, history: Any) -> tuple[LedgerRow, ...]:
        """Return the ledger's rows about *history*, oldest first: every attempt, failed and vetoed
        ones too, previews, accepted and reverted edits, with tokens as `View.tokens` counts them
        now; the ledger itself has estimates. None without one. Raises `StoreError`."""
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
        """Return the state of a history after its turn: loaded, and compacted if that is due."""
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
                settings.warn_of(state.view.profile.model)
            settings = settings.fit(state.view)
            budget = options.budget or settings.budget
        if options.forced or not is_quiet(state, budget, pending):
            schedule = Schedule.of(settings, budget, pending)
            state = yield from run_turn(settings, schedule, state, options)
        return state._replace(used_at=settings.clock())

    def _show(self, history: Any) -> Generator[Effect, Any, ConversationState]:
        payload, cached = self._cache.open(history)
        state = yield from load(self.settings, cached, payload)
        self._cache.remember(state, cached)
        return state


def _manual_asker(ask: Any) -> Any:
    """Return who answers what a user started: a `Fallback` has a `manual` side for it."""
    return getattr(ask, "manual", ask)


def compact(
    history: Any,
    to: int,
    *,
    model: str = "",
    store: Store | None = None,
    format: str | Codec | None = None,
) -> View:
    """Return a view of *history* of at most *to* tokens, if the default strategies can make it so
    small.

    *history* is a list of messages, a request body or its JSON text, in any of the five formats
    (docs/formats.md); *format* names it if its shape should not decide. It is left alone: send the
    view's `payload`. *model* names the model that it goes to, if the history does not: by it tokens
    are counted, and signed thinking stays or goes. No model is asked. With a *store* the edits made
    now are used again next time. `view.tokens` says whether it fits; `view.attempts` what was done.

    Not for loops: called anew for a history that grows, it decides anew and breaks the prompt cache
    nearly every time. Keep one `Compactor(model=...)` there, which compacts when that pays.

    Raises ValueError if *to* is no number of tokens, `FormatError` if *history* holds no
    conversation, `StoreError` if the store fails.
    """
    require_int(0, to=to)
    compactor = Compactor(default_strategies(to), Budget(to, to), store, model=model, format=format)
    return compactor(history)
