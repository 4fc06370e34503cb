"""From an answered call to its line in the ledger. What is known of conversations between calls is
in memory only."""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from refold.compactor.conversations import put_latest
from refold.core.view import View
from refold.gateway.http.request import parse_object, request_model
from refold.gateway.ledger.entry import (
    DOLLAR,
    Cost,
    Entry,
    EntryKey,
    Sums,
    Tokens,
    clean_name,
    hour_of,
)
from refold.gateway.ledger.without_edits import (
    CacheHabits,
    Refetches,
    SentRequest,
    ToolCallHistory,
    as_sent_request,
    find_common_prefix,
    tokens_with_edits,
    tokens_without_edits,
)
from refold.gateway.messages import Incoming, Outgoing
from refold.session_files import Session
from refold.text.json_values import dig, list_at
from refold.tokens.model_table import Rates, find_rates
from refold.tokens.usage import MOST_TOKENS, Usage, read_usage

REQUESTS_PER_CONVERSATION = 4
"""Latest requests that are known of one conversation: its forks."""
CONVERSATIONS = 1_000
"""Conversations that are known, the latest used ones."""

_CACHE_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*\}')
_HOUR_MARK = re.compile(rb'"ttl"\s*:\s*"1h"')

RatesOf = Callable[[str], Rates | None]
"""From a model's name to its prices."""


class BilledCall(NamedTuple):
    """A call that the upstream has answered."""

    when: float
    """Seconds since 1970."""
    incoming: Incoming
    outgoing: Outgoing
    usage: Any
    """As the upstream reported it; None if it did not."""
    tenant: str = ""
    session: str = ""
    """Empty for a call that belongs to no conversation."""
    model: str = ""
    view: View | None = None
    room: int | None = None
    """Tokens that a request to the model may have; None if that is not known."""
    shadow: bool = False
    """Was it sent as it came, whatever *view* shows?"""


class SummaryCost(NamedTuple):
    """A compaction that asked a model."""

    when: float
    tenant: str
    session: str
    model: str
    """The conversation's, not the one that was asked."""
    calls: int
    dollars: float


@dataclass(slots=True)
class _Conversation:
    """What is known of the calls of one conversation with one model."""

    requests: tuple[SentRequest, ...] = ()
    habits: CacheHabits = field(default_factory=CacheHabits)
    call_history: ToolCallHistory = field(default_factory=ToolCallHistory)


class Accounting:
    """Computes what calls were billed and would have been billed without edits. For one thread."""

    def __init__(self, rates: RatesOf) -> None:
        self._rates = rates
        self._conversations = OrderedDict[tuple[str, str], _Conversation]()

    def book(self, item: BilledCall | SummaryCost) -> Entry:
        """Return the entry of a call, or of what a compaction asked a model."""
        return self._book_call(item) if isinstance(item, BilledCall) else _summary_entry(item)

    def _book_call(self, call: BilledCall) -> Entry:
        hour = has_hour_cache(call.incoming.body)
        tokens = read_billed_tokens(call.usage, hour=hour)
        model = clean_name(
            call.model
            or call.outgoing.model
            or request_model(call.incoming.path, parse_object(call.incoming.body))
        )
        key = EntryKey(
            hour_of(call.when),
            call.tenant,
            call.session,
            model,
            "estimated" if tokens is None else "shadow" if call.shadow else "reported",
        )
        rates = self._rates(model)
        would, again = tokens, Refetches()
        if call.view is not None:
            would, again = self._compare(
                call, call.view, tokens, rates.for_an_hour() if rates and hour else rates
            )
        if call.shadow:  # what was billed is what would have been without us
            tokens, would, again = would, tokens, Refetches()
        view = call.view
        is_edited = bool(view and view.visible_edits if call.shadow else call.outgoing.edits)
        sums = Sums(
            calls=1,
            edited=int(is_edited),
            refetches=again.results,
            refetched=again.tokens,
        )
        if tokens is None or would is None:
            return key, _with_estimates(sums, call)
        return key, _with_bill(sums, call, tokens, would, rates, again.share)

    def _compare(
        self, call: BilledCall, view: View, tokens: Tokens | None, rates: Rates | None
    ) -> tuple[Tokens | None, Refetches]:
        """What *tokens* would have been, and what was fetched again; the conversation is read on in
        any case."""
        conversation = self._conversation(call.session, call.model)
        before = find_common_prefix(view, conversation.requests)
        lifetime = rates.lifetime if rates else 300.0
        alive = before is not None and call.when - before.request.when <= lifetime
        compare = tokens_with_edits if call.shadow else tokens_without_edits
        would = tokens and compare(tokens, view, before, conversation.habits, alive=alive)
        again = conversation.call_history.read(view, before)
        is_continued = before is not None and before.length == len(before.request.tips) - 1
        continued = before.request if before is not None and is_continued else None
        forks = [request for request in conversation.requests if request is not continued]
        latest = as_sent_request(view, call.when)
        conversation.requests = (latest, *forks)[:REQUESTS_PER_CONVERSATION]
        return would, again

    def _conversation(self, session: str, model: str) -> _Conversation:
        conversation = self._conversations.get((session, model)) or _Conversation()
        put_latest(self._conversations, (session, model), conversation, CONVERSATIONS)
        return conversation


def _summary_entry(summary: SummaryCost) -> Entry:
    model, money = clean_name(summary.model), round(summary.dollars * DOLLAR)
    key = EntryKey(hour_of(summary.when), summary.tenant, summary.session, model, "reported")
    return key, Sums(
        summaries=summary.calls,
        summaries_unpriced=0 if money else summary.calls,
        summary_cost=money,
    )


def _with_estimates(sums: Sums, call: BilledCall) -> Sums:
    """A call of which nothing was reported: its tokens as we estimate them, its answer's unknown,
    no money."""
    sent, unedited = call.outgoing.tokens_after, call.outgoing.tokens_before
    if call.view is not None and not call.shadow:
        sent, unedited = call.view.tokens, call.view.tokens_unedited
    return replace(sums, counted=sent, fresh=sent, would_fresh=unedited)


def _with_bill(
    sums: Sums, call: BilledCall, tokens: Tokens, would: Tokens, rates: Rates | None, again: float
) -> Sums:
    """What was reported, its money, and what would have been; *again* is the share of the call that
    only fetched again what was hidden."""
    is_too_long = call.room is not None and would.input > call.room
    is_avoided = sums.edited and (is_too_long or call.outgoing.outcome == "retried")
    cost, would_cost = Cost(), 0
    if rates is not None:
        cost, would_cost = compute_cost(tokens, rates), sum(compute_cost(would, rates))
    refetch_cost = round(would_cost * again)
    return replace(
        sums,
        counted=call.outgoing.tokens_after,
        fresh=tokens.fresh,
        read=tokens.read,
        written=tokens.written,
        output=tokens.output,
        unpriced=int(rates is None),
        cost_fresh=cost.fresh,
        cost_read=cost.read,
        cost_written=cost.written,
        cost_output=cost.output,
        would_fresh=would.fresh,
        would_read=would.read,
        would_written=would.written,
        would_cost=would_cost,
        refetch_cost=refetch_cost,
        avoided=int(is_avoided),
        avoided_saved=would_cost - refetch_cost - sum(cost) if is_avoided else 0,
    )


def compute_cost(tokens: Tokens, rates: Rates) -> Cost:
    """Return what one call of *tokens* costs: above a price cliff all of its input costs more."""
    factor = rates.factor(tokens.input)
    short, long = tokens.written - tokens.written_for_hour, rates.for_an_hour().write
    return Cost(
        _picodollars(tokens.fresh, rates.input * factor),
        _picodollars(tokens.read, rates.read * factor),
        _picodollars(short, rates.write * factor)
        + _picodollars(tokens.written_for_hour, long * factor),
        _picodollars(tokens.output, rates.output),
    )


def _picodollars(tokens: int, price: float) -> int:
    """*price* is US dollars per million tokens."""
    return round(tokens * price * 1e6)


def read_billed_tokens(usage: Any, *, hour: bool = False) -> Tokens | None:
    """Return what a provider's usage object bills; None if it says nothing that can be. *hour*:
    does the request ask the cache to keep it for an hour? That counts if the usage does not say
    what was written for how long.

    Where a call was made of several (server tools, a compaction by the provider), their sum:
    Anthropic's top level leaves the compaction out.
    """
    usages = map(read_usage, list_at(usage, "iterations") or (usage,))
    counts = [_tokens(usage, hour=hour) for usage in usages if usage is not None]
    tokens = Tokens(*map(sum, zip(*counts, strict=True))) if counts else None
    return tokens if tokens and max(tokens) <= MOST_TOKENS else None


def _tokens(usage: Usage, *, hour: bool) -> Tokens:
    fresh, for_hour = max(0, usage.input - usage.cached - usage.written), usage.hour
    if for_hour is None:
        for_hour = usage.written if hour else 0
    return Tokens(fresh, usage.cached, usage.written, usage.output, for_hour)


def has_hour_cache(source: bytes) -> bool:
    """Does this request ask the cache to keep its end, the conversation, for an hour?

    Anthropic takes marks of an hour only before those of five minutes: if there is one of five
    minutes, the end is kept for five minutes, whatever is before it.
    """
    marks = _CACHE_MARK.findall(source)
    return bool(marks) and all(map(_HOUR_MARK.search, marks))


# --- what the file of a session says --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bill:
    """What the provider reported of a session's calls, by its file."""

    calls: int
    tokens: Tokens
    dollars: float | None
    """By the client's own figures if the file has them, else by our table; None if the price of the
    model is not known."""
    is_recorded: bool
    """Are the dollars the client's own figure?"""
    context: int
    """Tokens of the last request and its answer; 0 if none was reported."""


def read_bill(session: Session) -> Bill:
    """Sum what the provider reported."""
    usages = [usage for _, usage in session.usage]
    billed = [tokens for usage in usages if (tokens := read_billed_tokens(usage))]
    total = Tokens(*map(sum, zip(*billed, strict=True))) if billed else Tokens()
    costs = (dig(usage, "cost", "total") for usage in usages)
    own = [cost for cost in costs if isinstance(cost, int | float) and 0 <= cost <= MOST_TOKENS]
    rates = find_rates(str(session.body.get("model", "")))
    priced = sum(sum(compute_cost(tokens, rates)) for tokens in billed) if rates else 0
    last = next((usage for raw in reversed(usages) if (usage := read_usage(raw))), None)
    amount = sum(own) if own else priced / DOLLAR if rates and billed else None
    return Bill(len(billed), total, amount, bool(own), last.context if last else 0)
