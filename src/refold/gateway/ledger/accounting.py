"""From an answered call to its line in the ledger: what it was billed, what it would have been
without edits, and what it only fetched again. What is known of conversations between calls is in
memory only."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from refold.compactor.conversations import put_latest
from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.gateway.conversations.conversations import count_common_messages, count_unedited
from refold.gateway.exchange import Incoming, Outgoing
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
from refold.messages import Message, ToolCall, ToolResult
from refold.rules.request import common_length
from refold.session_files import Session
from refold.speakers import is_request
from refold.text.json_values import dig, list_at
from refold.tokens.model_table import Rates, find_rates
from refold.tokens.usage import MOST_TOKENS, Usage, read_usage

# --- bills without edits --------------------------------------------------------------------------
# No provider says what a call would have been billed without edits, so that is worked out from what
# did happen. A request and an earlier one have a beginning in common: one of their histories
# (*unedited*), and one of what was sent. Of the beginning that was sent the bill says which share
# the cache held (*hit*); of the other as much is taken to be held. Estimated tokens are turned into
# billed ones by what was billed for each token of this request (*scale*).
# docs/decisions/0017-net-ledger.md says it step by step, under "Without us".


class SentRequest(NamedTuple):
    """A request that was sent, as hashes and edits."""

    tips: Sequence[str]
    """Of its history."""
    visible_edits: tuple[VisibleEdit, ...]
    tokens: int
    """Its tokens, as estimated."""
    when: float


class CommonPrefix(NamedTuple):
    """What a request has in common with an earlier one, in estimated tokens."""

    request: SentRequest
    length: int
    """Messages of the history that both begin with."""
    unedited_tokens: int
    """Tokens of the beginning that their histories share."""
    sent_tokens: int
    """Tokens of the beginning that was sent in both."""


def as_sent_request(view: View, when: float) -> SentRequest:
    """Return *view* as a request that was sent."""
    return SentRequest(view.transcript.tips, view.visible_edits, view.tokens_uncalibrated, when)


def find_common_prefix(view: View, requests: Iterable[SentRequest]) -> CommonPrefix | None:
    """Return what *view* shares with that of *requests* whose history it shares most of; None if
    nothing is known."""
    return max(
        (_common_prefix(view, request) for request in requests),
        key=lambda prefix: (prefix.length, prefix.sent_tokens),
        default=None,
    )


def _common_prefix(view: View, before: SentRequest) -> CommonPrefix:
    length = count_common_messages(view.transcript.tips, before.tips)
    fixed, sums = view.profile.fixed_tokens, view.base.token_sums
    both = view.visible_edits, before.visible_edits
    same = common_length(
        *([placed.edit.id for placed in edits if placed.edit.stop <= length] for edits in both)
    )
    # What was sent parts where the first edit begins that only one of them shows.
    starts = [placed.edit.start for edits in both for placed in edits[same : same + 1]]
    stop = min([length, *starts])
    added = sum(
        placed.tokens - view.base.tokens(placed.edit.start, placed.edit.stop)
        for placed in view.visible_edits[:same]
    )
    return CommonPrefix(before, length, fixed + sums[length], fixed + sums[stop] + added)


@dataclass(slots=True)
class CacheHabits:
    """How the calls of a conversation use the cache."""

    hit_rate: float | None = None
    """Share of the common beginning that was read, if the cache was alive."""
    written_share: float = 0.0
    """Share written of what was not read."""
    hour_share: float = 0.0
    """Share of what was written that is kept for an hour."""
    uses_cache: bool = False
    """Was anything ever read or written?"""

    def learn(self, tokens: Tokens) -> None:
        """Note how a call's *tokens* were billed."""
        self.uses_cache = self.uses_cache or tokens.read > 0 or tokens.written > 0
        if rest := tokens.fresh + tokens.written:
            self.written_share = tokens.written / rest
        if tokens.written:
            self.hour_share = tokens.written_for_hour / tokens.written


def tokens_without_edits(
    tokens: Tokens, view: View, before: CommonPrefix | None, habits: CacheHabits, *, alive: bool
) -> Tokens:
    """Return what a call billed as *tokens* would have been without the edits of *view*; *habits*
    learn from it."""
    habits.learn(tokens)
    scale = tokens.input / max(1, view.tokens_uncalibrated)
    total = tokens.input + round(scale * _count_hidden(view))
    if before is None:
        read = round(total * tokens.read / max(1, tokens.input))
    else:
        hit = _learn_hit_rate(tokens, before, habits, scale, alive=alive)
        read = round(scale * hit * before.unedited_tokens)
    return tokens if _is_unedited(view, before) else _bill(total, read, tokens.output, habits)


def tokens_with_edits(
    tokens: Tokens, view: View, before: CommonPrefix | None, habits: CacheHabits, *, alive: bool
) -> Tokens:
    """Return what a call billed as *tokens*, sent without the edits of *view*, would have been with
    them; *habits* learn from it."""
    habits.learn(tokens)
    hidden, read = _count_hidden(view), 0
    scale = tokens.input / max(1, view.tokens_uncalibrated + hidden)
    if before is not None and alive:
        hit = _share_read(tokens, scale * before.unedited_tokens) or 0.0
        read = round(scale * hit * before.sent_tokens)
    total = max(0, tokens.input - round(scale * hidden))
    return tokens if _is_unedited(view, before) else _bill(total, read, tokens.output, habits)


def _is_unedited(view: View, before: CommonPrefix | None) -> bool:
    return not view.visible_edits and (before is None or not before.request.visible_edits)


def _count_hidden(view: View) -> int:
    """Return the estimated tokens that the edits of *view* take out."""
    return view.base.token_sums[-1] - view.estimate


def _bill(total: int, read: int, output: int, habits: CacheHabits) -> Tokens:
    """Return the bill of a request of *total* tokens of which the cache holds *read*."""
    read = min(total, read)
    written = round(habits.written_share * (total - read))
    return Tokens(total - read - written, read, written, output, round(habits.hour_share * written))


def _share_read(tokens: Tokens, prefix: float) -> float | None:
    """Return which share of a *prefix* of so many tokens was read from the cache; None if it has
    none."""
    return min(1.0, tokens.read / prefix) if prefix else None


def _learn_hit_rate(
    tokens: Tokens, before: CommonPrefix, habits: CacheHabits, scale: float, *, alive: bool
) -> float:
    """Return the share of the common beginning that the cache held. It shows in the bill if the
    whole of the earlier request was sent again, and *habits* learn it."""
    hit = _share_read(tokens, scale * before.sent_tokens)
    if hit is None or before.sent_tokens < before.request.tokens:
        # Where it is not known, all of it: rather too small a saving than one that was none.
        usual = float(habits.uses_cache) if habits.hit_rate is None else habits.hit_rate
        return usual if alive else 0.0
    if alive:
        habits.hit_rate = hit
    return hit


# --- results that were fetched again --------------------------------------------------------------
# Because an edit had hidden them.


class Refetches(NamedTuple):
    """Results that were fetched again."""

    results: int = 0
    tokens: int = 0
    """As estimated."""
    share: float = 0.0
    """Of all that is new in the request: 1 if it was made for nothing else."""


@dataclass(slots=True)
class ToolCallHistory:
    """A conversation's tool calls, and the places of their latest results."""

    length: int = 0
    tip: str = ""
    calls: dict[str, bytes] = field(default_factory=dict)
    """Calls by their ids: a hash of name and arguments."""
    results: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Message and part of the latest result of each."""

    def read(self, view: View, before: CommonPrefix | None) -> Refetches:
        """Read what is new in *view*, and return what of it the edits *before* had hidden."""
        tips, messages = view.transcript.tips, view.transcript.messages
        if self.length >= len(tips) or (self.length and tips[self.length] != self.tip):
            self.length, self.calls, self.results = 0, {}, {}
        since = before.length if before is not None else len(messages)
        refetched = tokens = new = 0
        for at in range(self.length, len(messages)):
            again = self._read_message(view, at, before)
            if at >= since:
                new += is_request(messages[at]) + len(messages[at].results)
                refetched += len(again)
                tokens += sum(view.profile.count(Message("tool", (part,))) for part in again)
        self.length, self.tip = len(messages), tips[-1]
        return Refetches(refetched, tokens, refetched / new if new else 0.0)

    def _read_message(self, view: View, at: int, before: CommonPrefix | None) -> list[ToolResult]:
        """Note a message's calls and results. Return the results that an edit had hidden when they
        were asked for again."""
        again = []
        for place, part in enumerate(view.transcript.messages[at].parts):
            if isinstance(part, ToolCall):
                self.calls[part.id] = _key(part)
            elif isinstance(part, ToolResult) and (key := self.calls.get(part.id)):
                if before is not None and _was_hidden(view, self.results.get(key), before):
                    again.append(part)
                self.results[key] = (at, place)
        return again


def _was_hidden(view: View, where: tuple[int, int] | None, before: CommonPrefix) -> bool:
    if where is None or where[0] >= before.length:
        return False
    at, place = where
    part = view.transcript.messages[at].parts[place]
    edits = (placed.edit for placed in before.request.visible_edits)
    hiding = (edit for edit in edits if edit.start <= at < edit.stop)
    return any(all(part not in message.parts for message in edit.insert) for edit in hiding)


def _key(call: ToolCall) -> bytes:
    content = f"{call.name}\n{call.arguments}".encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).digest()


# --- entries of the ledger ------------------------------------------------------------------------


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
        sent, unedited = call.view.tokens, count_unedited(call.view)
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


# --- bills of sessions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bill:
    """What the provider reported of a session's calls, by its file or by a gateway's ledger."""

    calls: int
    tokens: Tokens
    dollars: float | None
    """By the client's own figures if the file has them, else by our table, or as they were booked;
    None if the price of the model is not known."""
    is_recorded: bool
    """Are the dollars the client's own figure?"""
    context: int
    """Tokens of the last request and its answer; 0 if none was reported."""


def as_usage(sums: Sums) -> dict[str, Bill]:
    """Return what was booked of a session's calls as `Session.usage` has it, for `read_bill`."""
    tokens = Tokens(sums.fresh, sums.read, sums.written, sums.output)
    dollars = sums.cost / DOLLAR if sums.calls > sums.unpriced else None
    return {"booked": Bill(sums.calls, tokens, dollars, is_recorded=False, context=0)}


def read_bill(session: Session) -> Bill:
    """Sum what the provider reported."""
    usages = [usage for _, usage in session.usage]
    if usages and isinstance(bill := usages[0].get("booked"), Bill):
        return bill
    billed = [tokens for usage in usages if any(tokens := read_billed_tokens(usage) or Tokens())]
    total = Tokens(*map(sum, zip(*billed, strict=True))) if billed else Tokens()
    costs = (dig(usage, "cost", "total") for usage in usages)
    own = [cost for cost in costs if isinstance(cost, int | float) and 0 <= cost <= MOST_TOKENS]
    rates = find_rates(str(session.body.get("model", "")))
    priced = sum(sum(compute_cost(tokens, rates)) for tokens in billed) if rates else 0
    last = next((usage for raw in reversed(usages) if (usage := read_usage(raw))), None)
    amount = sum(own) if own else priced / DOLLAR if rates and billed else None
    return Bill(len(billed), total, amount, bool(own), last.context if last else 0)
