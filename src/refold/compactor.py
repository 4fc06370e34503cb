"""The front door: codec, store and strategies behind one call."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from refold.budget import Budget
from refold.codecs import decode_all, open_payload
from refold.edits import Edit
from refold.envelope import Envelope
from refold.errors import FormatError
from refold.lens import Lens
from refold.log import Log
from refold.loop import Asker, AsyncAsker, Compaction, Effect, adrive, drive, first_sight, steps
from refold.messages import Message, user
from refold.models.model import awaited
from refold.reports import Reports
from refold.settle import copies, resettle
from refold.state import State, copy_of, frame_of
from refold.store import Store
from refold.stores.memory import MemoryStore
from refold.strategy import Ask, Strategy, is_local
from refold.tokens.count import Counter, count_fixed, count_message
from refold.transcript import Transcript
from refold.view import View

REMEMBERED = 8
"""How many conversations a compactor knows again, so that a resent history costs only what is new."""

ROUNDS = 3
"""How often the strategies may run in one turn."""

AS_SAID = "as said"
"""What makes the edits that show a message as it was said, against a local strategy."""


class Compactor:
    """Compacts histories: call it with one, send what its view's `payload` says.

    Local strategies edit each message at first sight; the others run, gentlest first, when the
    budget's trigger is reached. Their edits go into the *store*, so that the next call, with the
    history grown, shows the same view and the prompt cache holds. The history is left alone.

    *ask* answers strategies that need a model; without it they do without. *format* names the
    wire format (`anthropic`, `openai_chat`, `openai_responses`, `gemini`) where its shape should
    not decide. *count* counts one message's tokens. *salt* keeps the stored edits of different
    tenants apart. Calls may come from several threads.
    """

    def __init__(
        self,
        strategies: Iterable[Strategy],
        budget: Budget,
        store: Store | None = None,
        *,
        ask: Asker | None = None,
        format: str | None = None,
        count: Counter = count_message,
        salt: str = "",
    ) -> None:
        strategies = tuple(strategies)
        self.local = tuple(s for s in strategies if is_local(s))
        self.retrospective = tuple(s for s in strategies if not is_local(s))
        self.budget, self.ask, self.format, self.salt, self.count = budget, ask, format, salt, count
        self.store: Store = MemoryStore() if store is None else store
        self._reports = Reports()
        self._states: tuple[State, ...] = ()
        self._lock = Lock()

    def __call__(self, history: Any) -> View:
        """The view of *history* that fits the budget, as far as the strategies can make it fit.

        *history* is a list of messages, a request body or its JSON text; the view's `payload` is
        of the same kind. Raises `FormatError` for anything else and `StoreError` when the store fails.
        """
        return drive(self._turn(history), self.ask)

    async def acompact(self, history: Any, ask: AsyncAsker | None = None) -> View:
        """As calling it, for async code; *ask* is awaited (a model by its `acall`), and a sync one runs
        in a thread, as store access does."""
        asker = ask or self.ask
        return await adrive(self._turn(history), awaited(asker) if asker else None)

    def session(self, history: Sequence[Any] = ()) -> "Session":
        """A conversation that is told only what is new; each step costs what was added."""
        return Session(self, history)

    def report(self, view: View, usage: Any) -> None:
        """Tell what the provider reported for the request that *view* made: its usage object as
        parsed, of any provider. From then on tokens of this conversation count from that figure,
        and of other requests to this model by the ratio learned. Usage that is missing, or cannot
        be that of one request, is passed over; see `refold.tokens.anchor`."""
        self._reports.add(view, usage)

    def revert(self, history: Any, *ids: str) -> View:
        """Take stored edits back for good (all, without *ids*). An edit of a local strategy comes
        back by itself, so the message itself is stored as what to show. Where thinking is bound to
        what stood before it (AN-7), signed thinking from the first edit taken back on goes (`resettle`).
        Raises `EditError`."""
        view = drive(self._look(history)).view
        gone = [view.find(id) for id in ids] if ids else [e for e in view.edits if not e.by.startswith(AS_SAID)]
        gone += [edit for edit in copies(view, gone) if edit not in gone]
        self.store.remove(edit.id for edit in gone)
        local = {repr(strategy) for strategy in self.local}
        self.store.save(_as_said(view, edit) for edit in gone if edit.by in local)
        self._states = ()
        self.store.save(resettle(drive(self._look(history)).view, view))
        return drive(self._look(history)).view

    # --- one turn -----------------------------------------------------------------------------

    def step(self, state: State | None, history: Any) -> Generator[Ask | Effect, Any, State]:
        """One turn: from what is known of a conversation to what is known of it grown and compacted."""
        envelope = open_payload(history, self.format)
        if state is not None and state.codec is not envelope.codec:
            state = None
        state = yield from self._advance(state, envelope)
        return (yield from self._compact(state))

    def _turn(self, history: Any) -> Generator[Ask | Effect, Any, View]:
        envelope = self._open(history)
        known = self._recall(envelope)
        state = yield from self._advance(known, envelope)
        state = yield from self._compact(state)
        self._remember(state, known)
        return state.view

    def _look(self, history: Any) -> Generator[Effect, Any, State]:
        """The state of *history* as the store has it, before any new compaction."""
        envelope = self._open(history)
        return (yield from self._advance(self._recall(envelope), envelope))

    def _open(self, history: Any) -> Envelope:
        """The history taken apart; a list is copied, since its owner goes on with it."""
        return open_payload(list(history) if isinstance(history, list) else history, self.format)

    def _advance(self, state: State | None, envelope: Envelope) -> Generator[Effect, Any, State]:
        """The state with what *envelope* holds beyond it."""
        since = len(state.seen) if state else 0
        frame = frame_of(envelope)
        if state is None or state.frame != frame:
            state = self._framed(state, envelope, frame)
        new = decode_all(envelope, since, state.kept.transcript.messages)
        state = replace(state, seen=state.seen.extend(map(copy_of, envelope.parcel.wires[envelope.head + since :])))
        return (yield from self._load(state, new, envelope))

    def _load(self, state: State, new: Sequence[Any], envelope: Envelope) -> Generator[Effect, Any, State]:
        """The state grown by *new*, with the edits that the store has for it."""
        since, version = len(state.kept.transcript), (yield self.store.version)
        kept = state.kept.grow(new, envelope)
        if version != state.version:
            edits = yield partial(self.store.load, kept.transcript.tips[1:])
            kept = kept.revert().keep(edits)
            return replace(state, kept=kept, view=self._sighted(kept), version=version)
        edits = (yield partial(self.store.load, kept.transcript.tips[since + 1 :])) if new else ()
        if edits:
            kept = kept.keep(edits)
            return replace(state, kept=kept, view=self._sighted(kept))
        view = state.view.over(kept.ground, envelope).keep(first_sight(kept, self.local, since))
        return replace(state, kept=kept, view=replace(view, attempts=()))

    def _calibrated(self, state: State) -> State:
        """The state with tokens counted from the last report that still speaks of it."""
        lens, calibrate = state.view.lens, self._reports.calibrate(state.view)
        return state if calibrate == lens.calibrate else state.through(replace(lens, calibrate=calibrate))

    def _compact(self, state: State) -> Generator[Ask | Effect, Any, State]:
        """The state compacted where that is due. A repeated result is shown again once its first copy
        is hidden, so what fitted may exceed the trigger once more: hence rounds, a few at most."""
        for _ in range(ROUNDS):
            state = self._calibrated(state)
            if self.budget.check(state.view) != "hard":
                break
            edits = len(state.kept.edits)
            state = yield from self._round(state)
            if len(state.kept.edits) == edits:
                return state
        return self._calibrated(state)

    def _round(self, state: State) -> Generator[Ask | Effect, Any, State]:
        done: Compaction = yield from steps(state.view, self.retrospective, self.budget)
        attempts = (*state.view.attempts, *done.attempts)
        fresh = done.view.edits[len(state.view.edits) :]
        if not fresh:
            return replace(state, view=replace(state.view, attempts=attempts))
        yield partial(self.store.save, fresh)
        kept = state.kept.apply(*fresh)
        version = yield self.store.version
        return replace(state, kept=kept, view=replace(self._sighted(kept), attempts=attempts), version=version)

    def _sighted(self, kept: View) -> View:
        return kept.keep(first_sight(kept, self.local))

    def _framed(self, state: State | None, envelope: Envelope, frame: Any) -> State:
        """A state whose system prompt, tools and rules are those of *envelope*."""
        fixed = count_fixed(envelope.system, envelope.tools, self._count_text)
        lens = Lens(self.count, envelope.codec.rules(envelope.body), fixed)
        if state is None:
            bare = View.of(Transcript.of((), self.salt), lens=lens, envelope=envelope)
            return State(envelope.codec, bare, bare, Log(), frame, -1)
        return replace(state.through(lens), frame=frame)

    def _count_text(self, text: str) -> int:
        """Tokens of a text by the counter of messages."""
        return self.count(user(text)) - self.count(Message("user"))

    # --- knowing a conversation again ---------------------------------------------------------

    def _recall(self, envelope: Envelope) -> State | None:
        """The longest known state that *envelope* continues."""
        wires = envelope.parcel.wires[envelope.head :]
        known = (state for state in self._states if state.codec is envelope.codec)
        return max((s for s in known if s.seen.begins(wires)), key=lambda s: len(s.seen), default=None)

    def _remember(self, state: State, known: State | None) -> None:
        """Keep the state, in place of the one it continues."""
        with self._lock:
            others = (other for other in self._states if other is not known)
            self._states = (state, *others)[:REMEMBERED]


class Session:
    """One growing conversation: told only what is new, it costs what was added.

    Append what belongs to one step in one call (the model's message with its calls, and their
    results), so that nothing is compacted between them. Entries are kept as they are given and must not be changed afterwards.
    """

    def __init__(self, compactor: Compactor, history: Sequence[Any] = ()) -> None:
        if isinstance(history, Mapping | str | bytes):
            raise FormatError("a session starts from a list of messages; give a request body to the compactor itself")
        self._compactor, self._wires = compactor, list(history)
        self._state: State | None = None
        self.view = self._step()

    def append(self, *entries: Any) -> View:
        """Add entries (messages in wire form), compact where due and return the view of all of it.

        Raises as calling the compactor does; then nothing was added.
        """
        before = len(self._wires)
        self._wires += entries
        try:
            self.view = self._step()
        except BaseException:
            del self._wires[before:]
            raise
        return self.view

    def report(self, usage: Any) -> None:
        """Tell what the provider reported for the request that the latest view made."""
        self._compactor.report(self.view, usage)

    def _step(self) -> View:
        compactor = self._compactor
        self._state = drive(compactor.step(self._state, self._wires), compactor.ask)
        return self._state.view


def _as_said(view: View, edit: Edit) -> Edit:
    return view.swap(edit.start, view.transcript.messages[edit.start], by=f"{AS_SAID} ({edit.by})")
