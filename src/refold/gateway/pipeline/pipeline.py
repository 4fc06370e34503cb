"""A request's path through the gateway, without HTTP: decode, identify, load, compact, encode."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from refold.codecs.json_text import PrefixCache
from refold.errors import FormatError
from refold.gateway.conversations.conversations import AnswerContext, Conversations
from refold.gateway.conversations.persistence import Outbox
from refold.gateway.conversations.stores import TentativeStore, TimedStore
from refold.gateway.conversations.workers import BackgroundJobs, Job, Workers
from refold.gateway.exchange import APIS, Incoming, Outgoing, is_auxiliary, is_token_count
from refold.gateway.ledger.accounting import BilledCall
from refold.gateway.ledger.rows import SessionEvent, describe_failure
from refold.gateway.ledger.writer import LedgerWriter
from refold.gateway.logs import log, report_failure
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.decide import (
    decide,
    decide_count,
    decide_from_memory,
    drop_thinking,
    failure_reason,
    shrink,
)
from refold.gateway.pipeline.limits import ModelLimits
from refold.gateway.pipeline.request_kind import parse_light_body, pass_light_request
from refold.gateway.pipeline.turns import Progress, Resources, tenant_of
from refold.gateway.settings import Settings
from refold.models.fallback import CircuitBreaker, Fallback
from refold.stores.store import Store, require_store


class Pipeline:
    """Prepares requests for their upstreams and learns from the answers. One process, one event
    loop at a time.

    *closes* are called at the end, to close the store if nobody else uses it. *keep* is called
    after each save of edits and restores the salt, without which they cannot be found.
    *ledger_writer* keeps the ledger. Raises ValueError if *store* is none."""

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
        require_store(store)
        self.settings, self.store, self.ledger_writer = settings, store, ledger_writer
        self._closes, self._is_lost = tuple(closes), False
        self.counters = counters or Counters()
        self.conversations = Conversations(settings.conversations, settings.known_bytes)
        ask = settings.ask.acall if isinstance(settings.ask, Fallback) else settings.ask
        self.workers = Workers(settings.compute_threads, ask, self.counters)
        self.background = BackgroundJobs(
            self.workers, self.counters, settings.summary_timeout_seconds
        )
        mark = self.workers.mark_store_call
        timed = cast("Store", TimedStore(store, mark, self._on_store_replaced, keep))
        breaker = CircuitBreaker(failures=3, cooldown=settings.store_cooldown_seconds)
        self.resources = Resources(
            settings=settings,
            store=timed,
            counters=self.counters,
            workers=self.workers,
            model_limits=ModelLimits(settings),
            conversations=self.conversations,
            prefixes=PrefixCache(settings.conversations),
            breaker=breaker,
            ledger_writer=ledger_writer,
        )
        deadline, done = settings.decide_timeout_seconds, breaker.record_success
        self._outbox = Outbox(self.conversations, timed, self.counters, deadline, done)

    # --- what the HTTP side calls ---------------------------------------------------------------

    async def prepare(self, incoming: Incoming) -> Outgoing:
        """Return what to send for *incoming*. Never raises.

        A request that cannot be read passes unchanged. One that cannot be decided in time is sent
        with the edits shown before, if they are in memory, else unchanged; that is logged."""
        outgoing = await self._prepare(incoming, self.resources)
        if isinstance(outgoing.ticket, AnswerContext):
            self.background.start_prefetch(outgoing.ticket.conversation.prefetch)
        return outgoing

    async def prepare_tentatively(self, incoming: Incoming) -> Outgoing:
        """Prepare a request of a caller whose key is not verified yet. Never raises.

        Earlier decisions for the key's owner are shown. Nothing is saved until `commit`.
        """
        store = TentativeStore(self.resources.store)
        conversations = Conversations(1, self.settings.known_bytes)
        resources = replace(self.resources, store=store, conversations=conversations)
        return await self._prepare(incoming, resources)

    async def commit(self, outgoing: Outgoing) -> None:
        """Save tentative decisions, now that the caller's key was accepted. Never raises."""
        ticket = outgoing.ticket
        store = (
            ticket.conversation.compactor.settings.store
            if isinstance(ticket, AnswerContext)
            else None
        )
        if isinstance(store, TentativeStore):
            try:
                await self.background.run(store.commit, self.settings.decide_timeout_seconds)
            except Exception as error:  # noqa: BLE001 - the next request decides again
                report_failure(self.counters, "", failure_reason(error), error)

    async def prepare_count(self, incoming: Incoming) -> Outgoing:
        """Return the token count request to send, of the conversation as it is shown. A count of
        the unedited one might be refused over its thinking (AN-12) or be too high. Never raises."""
        if self.settings.shadow or parse_light_body(incoming, self.settings) is not None:
            return Outgoing(incoming.body)
        work = partial(decide_count, self.resources, incoming)
        return await self._run(incoming, work, self.settings.decide_timeout_seconds)

    async def shrink(self, incoming: Incoming, outgoing: Outgoing, error: bytes) -> Outgoing | None:
        """Return a smaller request to retry after a context error of the upstream with body
        *error*.

        None if that was tried before, or nothing can be made smaller. Never raises.
        """
        if (outgoing.outcome, outgoing.reason) == ("retried", "context"):
            return None
        return await self._retry("context_errors", shrink, incoming, outgoing, error)

    async def drop_thinking(
        self, incoming: Incoming, outgoing: Outgoing, error: bytes
    ) -> Outgoing | None:
        """Return the request without signed thinking that its upstream refuses as bound elsewhere
        (AN-7).

        The first time without the block that *error* names and all later thinking, then without
        any. None if there is none. Never raises.
        """
        return await self._retry("binding_errors", drop_thinking, incoming, outgoing, error)

    def record_answer(
        self, incoming: Incoming, outgoing: Outgoing, usage: Any, status: int = 200
    ) -> None:
        """Learn from the answer to *outgoing*, and enter it in the ledger. Never raises.

        *usage* is the upstream's usage object, parsed; None if it reported none.
        """
        ticket, now = outgoing.ticket, self.settings.clock()
        limits = self.resources.model_limits
        is_success = 200 <= status < 300
        writer = self.ledger_writer
        if usage is not None and is_success and outgoing.tokens_after:
            limits.record_answer(incoming, outgoing.model, outgoing.tokens_after)
        if writer is not None and is_success and incoming.api in APIS:
            tenant = tenant_of(incoming.api, incoming.credential)
            call = BilledCall(now, incoming, outgoing, usage, tenant, shadow=self.settings.shadow)
            if isinstance(ticket, AnswerContext):
                call = call._replace(
                    session=ticket.conversation.name,
                    model=outgoing.model,
                    view=ticket.view,
                    room=limits.usable_tokens(incoming, outgoing.model),
                )
            writer.book(call)
            if outgoing.outcome == "failed":
                writer.book(SessionEvent(call.session, tenant, now, "fault"))
        elif writer is not None and isinstance(ticket, AnswerContext):
            owner = ticket.conversation
            writer.book(describe_failure(incoming, owner.name, owner.tenant, now))
        if is_success and isinstance(ticket, AnswerContext):
            try:
                ticket.conversation.cache.answered_at = now
                view = ticket.view.revert() if self.settings.shadow else ticket.view
                ticket.conversation.compactor.report(view, usage)
            except Exception as error:  # noqa: BLE001 - calibration must not fail an answer
                report_failure(self.counters, incoming.api, "internal", error)

    async def aclose(self) -> None:
        """Stop background work, flush unsaved edits, then call *closes*."""
        await self.background.aclose()
        await self._outbox.aclose()
        self.workers.close()
        if self.ledger_writer is not None:
            await asyncio.to_thread(self.ledger_writer.close)
        for close in self._closes:
            await asyncio.to_thread(close)

    # --- steps ------------------------------------------------------------------------------------

    async def _prepare(self, incoming: Incoming, resources: Resources) -> Outgoing:
        outgoing = pass_light_request(incoming, self.settings, resources.model_limits.fits)
        if outgoing is None:
            work = partial(decide, resources, incoming)
            outgoing = await self._run(incoming, work, self.settings.decide_timeout_seconds)
        if self.settings.shadow:
            outgoing = outgoing.as_shadow(incoming.body)
        api = incoming.api if incoming.api in APIS else "other"
        self.counters.add("requests", api=api, outcome=outgoing.outcome, reason=outgoing.reason)
        if outgoing.edits:
            self.counters.add("tokens_before", outgoing.tokens_before, api=api)
            self.counters.add("tokens_after", outgoing.tokens_after, api=api)
        return outgoing

    async def _retry(
        self,
        counter: str,
        change: Callable[[Resources, Incoming, Outgoing, bytes, Progress], Outgoing],
        incoming: Incoming,
        outgoing: Outgoing,
        error: bytes,
    ) -> Outgoing | None:
        """Return a refused request as changed by *change*; None if that is nothing new."""
        is_other = is_auxiliary(incoming.path) and not is_token_count(incoming.path)
        is_settled = outgoing.outcome == "refused" or self.settings.shadow or incoming.is_signed
        if is_settled or incoming.api not in APIS or is_other:
            return None
        work = partial(change, self.resources, incoming, outgoing, error)
        seconds = self.settings.summary_timeout_seconds
        retried = await self._run(incoming, work, seconds, works_in_memory=True)
        is_new = retried.outcome == "retried" and retried is not outgoing
        result = "retried" if is_new else "given_up"
        self.counters.add(counter, api=incoming.api, upstream=incoming.upstream, result=result)
        return retried if is_new else None

    async def _run(
        self,
        incoming: Incoming,
        work: Callable[[Progress], Outgoing],
        seconds: float,
        *,
        works_in_memory: bool = False,
    ) -> Outgoing:
        """Return the result of *work*; if it fails, that of `_run_in_memory`, or for a body that
        cannot be read the unchanged request. *work* may compute for this number of *seconds*, and
        wait for the store for `Settings.decide_timeout_seconds`."""
        job, progress = Job(self.settings.summary_timeout_seconds), Progress()
        deadline = self.settings.decide_timeout_seconds
        try:
            return await self.workers.run(partial(work, progress), job, deadline, seconds)
        except FormatError:
            return Outgoing(incoming.body, outcome="opaque", reason="unreadable")
        except Exception as error:  # noqa: BLE001 - whatever fails, the request must go through
            reason = failure_reason(error)
            report_failure(self.counters, incoming.api, reason, error)
            if reason == "store" or job.is_asking_store:
                self.resources.breaker.record_failure(reason)
            again = work if works_in_memory else None
            return await self._run_in_memory(incoming, job, progress, reason, seconds, again)
        finally:
            if self._is_lost or (progress.turn and progress.turn.conversation.shown.is_unsaved):
                self._is_lost = False
                self._outbox.wake()

    async def _run_in_memory(
        self,
        incoming: Incoming,
        job: Job,
        progress: Progress,
        reason: str,
        seconds: float,
        work: Callable[[Progress], Outgoing] | None,
    ) -> Outgoing:
        """Return what to send after *job* failed for *reason*, having come as far as *progress*. If
        the store failed, *work*, if given, runs again in memory. Otherwise the edits shown before
        are used again. The request passes unchanged if that fails too, or if its conversation is
        not known."""
        unchanged, turn = Outgoing(incoming.body, outcome="failed", reason=reason), progress.turn
        if turn is None:
            return unchanged
        conversation = turn.conversation
        conversation.shown.is_interrupted = True
        if job.is_asking_store:
            job.is_stuck, conversation.stuck_job = True, job
        without_store = reason == "store" or conversation.is_stuck
        if without_store and work is not None:
            again = Progress(replace(turn, in_memory=True), progress.figures)
            retry = partial(work, again)
        else:
            retry = partial(decide_from_memory, turn, reason, without_store=without_store)
        second = Job(job.model_seconds if reason == "store" else 0.0)
        deadline = self.settings.decide_timeout_seconds
        try:
            return await self.workers.run(retry, second, deadline, seconds)
        except Exception as error:  # noqa: BLE001 - whatever fails, the request must go through
            report_failure(self.counters, incoming.api, failure_reason(error), error)
            return unchanged

    def _on_store_replaced(self) -> None:
        """Have the edits of all known conversations written again: the new store may lack them."""
        self.counters.add("store_replaced")
        log("the store was deleted or replaced", conversations=len(self.conversations))
        for conversation in self.conversations:
            conversation.shown.is_lost = True
        self._is_lost = True
