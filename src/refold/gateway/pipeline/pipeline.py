"""One request's way through the gateway, without HTTP: decode, identify, load, compact, save, encode."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from refold.codecs.prefix_cache import PrefixCache
from refold.errors import FormatError
from refold.gateway.conversations.claims import ConversationClaims
from refold.gateway.conversations.conversations import Conversation, Conversations
from refold.gateway.conversations.failures import failure_reason, report_failure
from refold.gateway.conversations.outbox import Outbox
from refold.gateway.conversations.timed_store import TimedStore
from refold.gateway.conversations.turn import open_request
from refold.gateway.conversations.workers import Job, Workers
from refold.gateway.ledger.writer import LedgerWriter, summary_cost_listener
from refold.gateway.messages import APIS, REASONS, GatewayResponse, Incoming, Outgoing, is_auxiliary, is_token_count
from refold.gateway.ops.logs import LOGGER
from refold.gateway.ops.metrics import Counters
from refold.gateway.pipeline.accounting import Ticket, billed_call, learn_usage
from refold.gateway.pipeline.background import BackgroundJobs
from refold.gateway.pipeline.deciding import Decider
from refold.gateway.pipeline.match import ConversationMatcher
from refold.gateway.pipeline.trial import TentativeStore
from refold.gateway.pipeline.turns import Turns
from refold.gateway.policy.request_kind import parse_light_body, pass_light_request
from refold.gateway.settings import Settings
from refold.models.fallback import CircuitBreaker
from refold.stores.store import Store

__all__ = ["REASONS", "Counters", "GatewayResponse", "Incoming", "Outgoing", "Pipeline", "Settings"]

T = TypeVar("T")


class Work(Protocol):
    """What is done of a request in a worker's thread."""

    def __call__(self, job: Job, incoming: Incoming) -> Outgoing:
        """What is sent."""


class Pipeline:
    """Prepares requests for their upstreams and learns from the answers. One process, one event loop at a time.

    *closes* is called at the end: what lets go of the store, where nobody else uses it. *keep* is called after edits were
    saved: it puts back what they cannot be found without.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        counters: Counters | None = None,
        ledger_writer: LedgerWriter | None = None,
        *,
        closes: Iterable[Callable[[], None]] = (),
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings, self.store, self.ledger_writer = settings, store, ledger_writer
        self._closes, self._is_lost = tuple(closes), False
        self.counters = counters or Counters()
        self.conversations = Conversations(settings.conversations, settings.known_bytes)
        self._workers = Workers(settings.compute_threads, settings.ask)
        self.background = BackgroundJobs(settings, self.counters)
        watched = TimedStore(store, self._on_store_call, self._on_store_replaced, keep)
        self.turns = Turns(
            settings,
            watched,
            self.counters,
            self.ask,
            ConversationClaims(watched, self._allow_waiting),
        )
        self.matcher = ConversationMatcher(self.conversations, self.turns)
        if ledger_writer is not None:
            self.turns.listen = partial(summary_cost_listener, ledger_writer, then=settings.on_event)
            self.turns.survival = lambda: ledger_writer.survival
        self._breaker = CircuitBreaker(failures=3, cooldown=settings.store_cooldown_seconds)
        self._outbox = Outbox(
            self.conversations,
            self.turns.store,
            self.counters,
            settings.decide_timeout_seconds,
            done=self._breaker.record_success,
        )
        begun = partial(open_request, settings, cache=PrefixCache(settings.conversations))
        self._decider = Decider(settings, self.turns, self.matcher, begun, self._breaker)

    # --- what the HTTP side calls ---------------------------------------------------------------

    async def prepare(self, incoming: Incoming) -> Outgoing:
        """What to send for *incoming*. Never raises: what cannot be read or decided in time goes through
        unchanged, with a reason, a counter and a line in the log."""
        if light := pass_light_request(incoming, self.settings, self.turns.model_limits.fits):
            self._count("requests", incoming, light)
            return light
        outgoing = await self._run(
            incoming, self._decider.decide, self.settings.decide_timeout_seconds
        )
        self._count("requests", incoming, outgoing)
        if isinstance(outgoing.ticket, Ticket):
            self.background.start_prefetch(outgoing.ticket.conversation)
        return outgoing

    async def prepare_tentatively(self, incoming: Incoming) -> Outgoing:
        """As `prepare`, for a caller of whom it is not known yet whether they are who they say: what was decided for that one
        is shown, and nothing is kept until it is `accepted` (C7). Never raises."""
        if light := pass_light_request(incoming, self.settings, self.turns.model_limits.fits):
            self._count("requests", incoming, light)
            return light
        turns = self.turns.with_store(TentativeStore(self.turns.store))
        matcher = ConversationMatcher(Conversations(1, self.settings.known_bytes), turns)
        trying = replace(self._decider, turns=turns, matcher=matcher)
        outgoing = await self._run(incoming, trying.decide, self.settings.decide_timeout_seconds)
        self._count("requests", incoming, outgoing)
        return outgoing

    async def commit(self, outgoing: Outgoing) -> None:
        """The upstream has accepted what was `tried`: what was decided is kept. Never raises."""
        store = (
            outgoing.ticket.conversation.compactor.settings.store
            if isinstance(outgoing.ticket, Ticket)
            else None
        )
        if isinstance(store, TentativeStore):
            try:
                await self.background.run(store.commit, self.settings.decide_timeout_seconds)
            except Exception as error:  # noqa: BLE001 - it is decided again
                report_failure(self.counters, "", failure_reason(error), error)

    async def prepare_count(self, incoming: Incoming) -> Outgoing:
        """What to count in place of a conversation whose tokens are asked for: what would be sent of it, as it was decided
        before. Anything else would be refused where it thinks (AN-12), and tell of a request that is not made. Never raises."""
        if parse_light_body(incoming, self.settings) is not None:
            return Outgoing(incoming.body)
        return await self._run(incoming, self._decider.show, self.settings.decide_timeout_seconds)

    async def shrink(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """After the upstream's context error with this body: a smaller request to send once more. None when
        it was tried before, or nothing is left to make smaller. Never raises."""
        if (outgoing.outcome, outgoing.reason) == ("retried", "context"):
            return None
        return await self._retry("context_errors", self._decider.shrink, incoming, outgoing, error)

    async def drop_thinking(
        self, incoming: Incoming, outgoing: Outgoing, error: bytes
    ) -> Outgoing | None:
        """After the upstream's error that signed thinking is bound to another conversation (AN-7): the request without it, to
        be sent once more. The first time without the block that was named and what was thought after it, then without
        all of it; None when none is left. Never raises."""
        return await self._retry(
            "binding_errors", self._decider.drop_thinking, incoming, outgoing, error
        )

    async def _retry(
        self,
        counted: str,
        work: Callable[..., Outgoing],
        incoming: Incoming,
        outgoing: Outgoing,
        error: bytes,
    ) -> Outgoing | None:
        """What *work* makes of a request that was refused, None where that is nothing new."""
        aside = is_auxiliary(incoming.path) and not is_token_count(incoming.path)
        if outgoing.outcome == "refused" or incoming.api not in APIS or aside:
            return None

        def mended(job: Job, incoming: Incoming, *, stored: bool = True) -> Outgoing:
            return work(job, incoming, outgoing, error, stored=stored)

        retried = await self._run(
            incoming,
            mended,
            self.settings.summary_timeout_seconds,
            spare=partial(mended, stored=False),
        )
        done = retried.outcome == "retried" and retried is not outgoing
        result = "retried" if done else "given_up"
        self.counters.add(counted, api=incoming.api, upstream=incoming.upstream, result=result)
        return retried if done else None

    def record_answer(
        self, incoming: Incoming, outgoing: Outgoing, usage: Any, status: int = 200
    ) -> None:
        """Tell what the upstream reported for *outgoing*: its usage object as parsed, None where it reported
        none, and the answer's status. Tokens are counted from it from now on; the call is booked. Never raises."""
        ticket, now = outgoing.ticket, self.settings.clock()
        if usage is not None and 200 <= status < 300 and outgoing.tokens_after:
            self.turns.model_limits.record_answer(incoming, outgoing.model, outgoing.tokens_after)
        if self.ledger_writer is not None and 200 <= status < 300 and incoming.api in APIS:
            self.ledger_writer.book_call(
                billed_call(now, self.turns.model_limits, incoming, outgoing, usage)
            )
        if isinstance(ticket, Ticket):
            try:
                learn_usage(ticket, now, usage)
            except Exception as error:  # noqa: BLE001 - books are no reason to fail
                report_failure(self.counters, incoming.api, "internal", error)

    async def run_in_background(self, work: Callable[[], T]) -> T:
        """The outcome of *work* that no request waits for, in a thread; it may ask models. Raises `Late` after
        `Settings.summary_timeout_seconds` seconds, models aside, and what *work* raises."""
        return await self.background.run(work, self.settings.summary_timeout_seconds)

    async def aclose(self) -> None:
        """Stop background work, and let go of what is to be closed: only then does the file of a store hold all
        that was written to it (C8)."""
        await self.background.aclose()
        await self._outbox.aclose()
        self._workers.close()
        if self.ledger_writer is not None:
            await asyncio.to_thread(self.ledger_writer.close)
        for close in self._closes:
            await asyncio.to_thread(close)

    # --- failing open -----------------------------------------------------------------------------

    async def _run(
        self, incoming: Incoming, work: Work, longest: float, spare: Work | None = None
    ) -> Outgoing:
        """The outcome of *work*, or what goes through in its place: where the store is what fails, that of *spare*, which
        does without. Nothing waits for the store longer than the deadline (C5)."""
        job = Job(self.settings.summary_timeout_seconds)
        try:
            return await self._workers.run(
                partial(work, job, incoming), job, self.settings.decide_timeout_seconds, longest
            )
        except FormatError:
            return Outgoing(incoming.body, outcome="opaque", reason="unreadable")
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must flow
            reason = failure_reason(error)
            report_failure(self.counters, incoming.api, reason, error)
            return await self._fail_open(incoming, job, reason, longest, spare)
        finally:
            if self._is_lost or (job.conversation is not None and job.conversation.shown.is_unsaved):
                self._is_lost = False
                self._outbox.wake()

    async def _fail_open(
        self, incoming: Incoming, job: Job, reason: str, longest: float, spare: Work | None
    ) -> Outgoing:
        """What goes through in place of *job*, which failed."""
        conversation: Conversation | None = job.conversation
        if reason == "store" or job.is_asking_store:
            self._breaker.record_failure(reason)
        if conversation is None:
            return Outgoing(incoming.body, outcome="failed", reason=reason)
        conversation.is_interrupted = True
        if job.is_asking_store:
            job.is_stuck, conversation.stuck_job = True, job
        lacking = reason == "store" or conversation.is_stuck
        left = Job(
            job.model_seconds if reason == "store" else 0.0,
            conversation=conversation,
            figures=job.figures,
        )
        held = partial(
            self._decider.decide_from_memory, incoming, conversation, reason, without_store=lacking
        )
        instead = partial(spare, left, incoming) if spare and lacking else held
        try:
            return await self._workers.run(
                instead, left, self.settings.decide_timeout_seconds, longest
            )
        except Exception as error:  # noqa: BLE001 - likewise
            report_failure(self.counters, incoming.api, failure_reason(error), error)
            return Outgoing(incoming.body, outcome="failed", reason=reason)

    # --- what those threads ask for ---------------------------------------------------------------

    def ask(self, question: Any) -> Any:
        """Ask the model that writes summaries, from a thread of ours."""
        return self._current_workers().ask(question)

    def _allow_waiting(self) -> AbstractContextManager[Callable[[float], bool]]:
        return self._current_workers().allow_waiting()

    def _current_workers(self) -> Workers:
        return self._workers if self._workers.current_job() else self.background.workers

    def _on_store_replaced(self) -> None:
        """The store is another, with nothing in it or with something else: all that is known is to be written again (C12)."""
        self.counters.add("store_replaced")
        LOGGER.warning(
            "the store was deleted or replaced",
            extra={"fields": {"conversations": len(self.conversations)}},
        )
        for conversation in self.conversations:
            conversation.shown.is_lost = True
        self._is_lost = True

    def _on_store_call(self, busy: bool) -> None:
        if job := self._workers.current_job():
            (job.begin_store_call if busy else job.end_store_call)()

    # --- telling ----------------------------------------------------------------------------------

    def _count(self, name: str, incoming: Incoming, outgoing: Outgoing) -> None:
        labels = {
            "api": incoming.api if incoming.api in APIS else "other",
            "outcome": outgoing.outcome,
        }
        self.counters.add(name, 1, **labels, reason=outgoing.reason)
        if outgoing.edits:
            self.counters.add("tokens_before", outgoing.tokens_before, api=labels["api"])
            self.counters.add("tokens_after", outgoing.tokens_after, api=labels["api"])
