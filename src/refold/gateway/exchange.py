"""One request's way through the gateway, without HTTP: decode, identify, load, compact, save, encode."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from refold.beginnings import Beginnings
from refold.envelope import Envelope
from refold.errors import FormatError
from refold.gateway import again, native
from refold.gateway.accounts import opened
from refold.gateway.ahead import Ahead
from refold.gateway.belonging import Belonging
from refold.gateway.booking import Ticket, answered, learned
from refold.gateway.books.clerk import Clerk
from refold.gateway.books.listening import listener
from refold.gateway.claims import Claiming
from refold.gateway.counters import Counters
from refold.gateway.deltas import delta_of, refusal
from refold.gateway.errors import figures
from refold.gateway.faults import passed_through, why
from refold.gateway.light import light_body, light_request
from refold.gateway.plan import NEVER
from refold.gateway.settings import Settings
from refold.gateway.sides import gained_only_text, side_of
from refold.gateway.threads import Held, Latest, Thread, Threads
from refold.gateway.traffic import APIS, REASONS, Incoming, Outcome, Outgoing, Refusal, is_aside, is_count
from refold.gateway.turns import Turn, Turns, model_of
from refold.gateway.watched import Watched
from refold.gateway.workers import Job, Workers
from refold.models.breaker import Breaker
from refold.store import Store
from refold.view import View

__all__ = ["REASONS", "Counters", "Exchange", "Incoming", "Outgoing", "Refusal", "Settings"]

T = TypeVar("T")
HARDER = 0.6
"""The share of the window, or of what was sent, that is aimed at after a context error."""


class Exchange:
    """Prepares requests for their upstreams and learns from the answers. One process, one event loop at a time.

    *closes* is called at the end: what lets go of the store, where nobody else uses it.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        counters: Counters | None = None,
        clerk: Clerk | None = None,
        *,
        closes: Iterable[Callable[[], None]] = (),
    ) -> None:
        self.settings, self.store, self.clerk = settings, store, clerk
        self._closes = tuple(closes)
        self.counters = counters or Counters()
        self.threads = Threads(settings.threads, settings.known_bytes)
        self._workers = Workers(settings.workers, settings.ask)
        self.ahead = Ahead(settings, self.counters)
        self.turns = Turns(
            settings, Watched(store, self._storing), self.counters, self.ask, Claiming(store, self._patient)
        )
        self._opened = partial(opened, settings, begun=Beginnings(settings.threads))
        self.belonging, self._again = Belonging(self.threads, self.turns), again.Again(self.turns)
        if clerk is not None:
            self.turns.listen = partial(listener, clerk, then=settings.on_event)
            self.turns.survival = lambda: clerk.survival
        self._breaker = Breaker(failures=3, rest=settings.rest)

    # --- what the HTTP side calls ---------------------------------------------------------------

    async def prepare(self, incoming: Incoming) -> Outgoing:
        """What to send for *incoming*. Never raises: what cannot be read or decided in time goes through
        unchanged, with a reason, a counter and a line in the log."""
        if light := light_request(incoming, self.settings, self.turns.rooms.holds):
            self._count("requests", incoming, light)
            return light
        job = Job(self.settings.patience)
        outgoing = await self._guarded(incoming, job, partial(self._decided, job, incoming), self.settings.deadline)
        self._count("requests", incoming, outgoing)
        if isinstance(outgoing.thread, Ticket):
            self.ahead.prepare(outgoing.thread.thread)
        return outgoing

    async def counted(self, incoming: Incoming) -> Outgoing:
        """What to count in place of a conversation whose tokens are asked for: what would be sent of it, as it was decided
        before. Anything else would be refused where it thinks (AN-12), and tell of a request that is not made. Never raises."""
        if light_body(incoming, self.settings) is not None:
            return Outgoing(incoming.body)
        job = Job(self.settings.patience)
        return await self._guarded(incoming, job, partial(self._shown, job, incoming), self.settings.deadline)

    async def harder(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """After the upstream's context error with this body: a smaller request to send once more. None when
        it was tried before, or nothing is left to make smaller. Never raises."""
        if (outgoing.outcome, outgoing.reason) == ("retried", "context"):
            return None
        return await self._retried("context_errors", self._smaller, incoming, outgoing, error)

    async def unbound(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """After the upstream's error that signed thinking is bound to another conversation (AN-7): the request without it, to
        be sent once more. The first time without the block that was named and what was thought after it, then without
        all of it; None when none is left. Never raises."""
        return await self._retried("binding_errors", self._unbound, incoming, outgoing, error)

    async def _retried(
        self, counted: str, work: Callable[..., Outgoing], incoming: Incoming, outgoing: Outgoing, error: bytes
    ) -> Outgoing | None:
        """What *work* makes of a request that was refused, None where that is nothing new."""
        aside = is_aside(incoming.path) and not is_count(incoming.path)
        if outgoing.outcome == "refused" or incoming.api not in APIS or aside:
            return None
        job = Job(self.settings.patience)
        retried = await self._guarded(
            incoming, job, partial(work, job, incoming, outgoing, error), self.settings.patience
        )
        done = retried.outcome == "retried" and retried is not outgoing
        result = "retried" if done else "given_up"
        self.counters.add(counted, api=incoming.api, upstream=incoming.upstream, result=result)
        return retried if done else None

    def finished(self, incoming: Incoming, outgoing: Outgoing, usage: Any, status: int = 200) -> None:
        """Tell what the upstream reported for *outgoing*: its usage object as parsed, None where it reported
        none, and the answer's status. Tokens are counted from it from now on; the call is booked. Never raises."""
        ticket, now = outgoing.thread, self.settings.clock()
        if usage is not None and 200 <= status < 300 and outgoing.after:
            self.turns.rooms.answered(incoming, outgoing.model, outgoing.after)
        if self.clerk is not None and 200 <= status < 300 and incoming.api in APIS:
            self.clerk.answered(answered(now, self.turns.rooms, incoming, outgoing, usage))
        if isinstance(ticket, Ticket):
            try:
                learned(ticket, now, outgoing, usage)
            except Exception as error:  # noqa: BLE001 - books are no reason to fail
                passed_through(self.counters, incoming.api, "internal", error)

    async def aside(self, work: Callable[[], T]) -> T:
        """The outcome of *work* that no request waits for, in a thread; it may ask models. Raises `Late` after
        `Settings.patience` seconds, models aside, and what *work* raises."""
        return await self.ahead.run(work, self.settings.patience)

    async def aclose(self) -> None:
        """Stop background work, and let go of what is to be closed: only then does the file of a store hold all
        that was written to it (C8)."""
        await self.ahead.aclose()
        self._workers.close()
        if self.clerk is not None:
            await asyncio.to_thread(self.clerk.close)
        for close in self._closes:
            await asyncio.to_thread(close)

    # --- one request, in a worker's thread --------------------------------------------------------

    def _decided(self, job: Job, incoming: Incoming) -> Outgoing:
        """Decode, identify, load, compact, save, encode."""
        if incoming.api not in APIS or is_aside(incoming.path):
            return Outgoing(incoming.body, reason="path")
        envelope = self._opened(incoming)
        if field := delta_of(incoming.api, envelope.body):
            return self._delta(incoming, envelope, field)
        if not len(envelope):
            return Outgoing(incoming.body, reason="empty")
        side = side_of(incoming, envelope)
        if side not in ("", "compaction", "memory"):
            return Outgoing(incoming.body, outcome="side", reason=side, model=model_of(incoming, envelope))
        thread = job.thread = self.belonging.thread_of(incoming, envelope)
        if not self._breaker.allows():
            return self._held(incoming, thread, "resting")
        turn = Turn(incoming, envelope, thread)
        with Held(thread, self.settings.deadline / 2):
            view, reason = self.turns.shown(turn, first=True)
            if side or gained_only_text(thread.recent, view.transcript.messages):
                side = side or "compaction"
                if self.turns.fits_as_said(turn, view):
                    said = view.said
                    return Outgoing(incoming.body, (), said, said, "side", side, model=turn.model)
            view, reason = self.turns.taken(turn, view, reason, spare=not side)
            if not side:
                thread.remember(view)
        self._breaker.succeeded()
        return self._sealed(turn, view, reason)

    def _shown(self, job: Job, incoming: Incoming) -> Outgoing:
        """What is shown of a conversation, for a look: nothing is begun, nothing more is done to it."""
        envelope = self._opened(incoming)
        if not len(envelope) or delta_of(incoming.api, envelope.body):
            return Outgoing(incoming.body)
        thread = job.thread = self.belonging.looked_at(incoming, envelope)
        if not self._breaker.allows():
            return self._held(incoming, thread, "resting")
        turn = Turn(incoming, envelope, thread)
        with Held(thread, self.settings.deadline / 2):
            view = thread.compactor(turn.history)
        if not view.top:
            return Outgoing(incoming.body)
        edits = tuple(placed.edit.id for placed in view.top)
        return Outgoing(turn.encode(view), edits, view.said, view.tokens, "edited", "shown", model=turn.model)

    def _delta(self, incoming: Incoming, envelope: Envelope, field: str) -> Outgoing:
        answer = refusal(field, envelope.body) if field in self.settings.refuse else None
        if answer is None:
            return Outgoing(incoming.body, outcome="opaque", reason="delta")
        return Outgoing(incoming.body, outcome="refused", reason=field, refusal=answer)

    def _sealed(self, turn: Turn, view: View, reason: str, outcome: Outcome = "edited") -> Outgoing:
        """The request that *view* makes, its cap of output lowered where the window asks for it."""
        source, capped = self.turns.written(turn, view)
        incoming, headers = turn.incoming, tuple[tuple[str, str], ...]()
        if outcome == "edited" and not view.top:
            outcome, reason = ("edited", "cap") if capped else ("untouched", "")
        if wanted := self.settings.native.get(incoming.api):
            source, headers = native.asked(incoming, turn.envelope.body, source, wanted)
            if outcome == "untouched" and source is not incoming.body:
                outcome, reason = "edited", "native"
        edits = tuple(placed.edit.id for placed in view.top)
        turn.thread.latest = Latest(
            turn.model, incoming.upstream, self.settings.clock(), view.said, replace(view, envelope=None)
        )
        ticket = Ticket(turn.thread, view)
        return Outgoing(source, edits, view.said, view.tokens, outcome, reason, ticket, headers, turn.model)

    # --- after a refusal --------------------------------------------------------------------------

    def _unbound(self, job: Job, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing:
        envelope = self._opened(incoming)
        thread = job.thread = self.belonging.thread_of(incoming, envelope)
        turn = Turn(incoming, envelope, thread)
        with Held(thread, self.settings.patience):
            view = self._again.unbound(turn, outgoing.body, error, wholly=outgoing.reason == "binding")
        sealed = self._sealed(turn, view, "binding", "retried")
        return outgoing if sealed.body == outgoing.body else sealed

    def _smaller(self, job: Job, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing:
        envelope = self._opened(incoming)
        if not len(envelope) or delta_of(incoming.api, envelope.body):
            return outgoing
        thread = job.thread = self.belonging.thread_of(incoming, envelope)
        turn = Turn(incoming, envelope, thread)
        said = self.turns.rooms.learn(turn, figures(error), outgoing.after)
        if capped := again.with_cap(turn, outgoing, said, keep=0.5):
            return capped
        with Held(thread, self.settings.patience):
            view = self._again.harder(turn, said, HARDER, outgoing.after or said.tokens or NEVER)
        if view is None:
            return again.with_cap(turn, outgoing, said, keep=0.0) or outgoing
        sealed = self._sealed(turn, view, "context", "retried")
        return again.with_cap(turn, sealed, said.scaled(outgoing.after, sealed.after), keep=0.0) or sealed

    # --- failing open -----------------------------------------------------------------------------

    async def _guarded(self, incoming: Incoming, job: Job, work: Any, deadline: float) -> Outgoing:
        """The outcome of *work*, or what goes through in its place."""
        try:
            return await self._workers.run(work, job, deadline)
        except FormatError:
            return Outgoing(incoming.body, outcome="opaque", reason="unreadable")
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must flow
            reason = why(error)
            passed_through(self.counters, incoming.api, reason, error)
        if reason == "store" or job.storing:
            self._breaker.failed(reason)
        if job.thread is None:
            return Outgoing(incoming.body, outcome="failed", reason=reason)
        job.thread.torn = True
        held = partial(self._held, incoming, job.thread, reason)
        try:
            return await self._workers.run(held, Job(0.0), self.settings.deadline)
        except Exception as error:  # noqa: BLE001 - likewise
            passed_through(self.counters, incoming.api, why(error), error)
            return Outgoing(incoming.body, outcome="failed", reason=reason)

    def _held(self, incoming: Incoming, thread: Thread, reason: str) -> Outgoing:
        """What was shown before, out of memory: without it signed thinking would not stand where it was
        thought, and a long history would not fit. Where nothing was, the request as it came."""
        if not thread.noted:
            return Outgoing(incoming.body, outcome="failed", reason=reason)
        turn = Turn(incoming, self._opened(incoming), thread)
        return self._sealed(turn, self.turns.from_memory(turn), reason, "failed")

    # --- what those threads ask for ---------------------------------------------------------------

    def ask(self, question: Any) -> Any:
        """Ask the model that writes summaries, from a thread of ours."""
        return self._mine().ask(question)

    def _patient(self) -> AbstractContextManager[Callable[[float], bool]]:
        return self._mine().patient()

    def _mine(self) -> Workers:
        return self._workers if self._workers.mine() else self.ahead.workers

    def _storing(self, busy: bool) -> None:
        if job := self._workers.mine():
            job.storing = busy

    # --- telling ----------------------------------------------------------------------------------

    def _count(self, name: str, incoming: Incoming, outgoing: Outgoing) -> None:
        labels = {"api": incoming.api if incoming.api in APIS else "other", "outcome": outgoing.outcome}
        self.counters.add(name, 1, **labels, reason=outgoing.reason)
        if outgoing.edits:
            self.counters.add("tokens_before", outgoing.before, api=labels["api"])
            self.counters.add("tokens_after", outgoing.after, api=labels["api"])
