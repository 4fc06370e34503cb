"""Computes an answered call's entry in the ledger: what it was billed, what it would have been
billed without edits, and what it only fetched again. Conversations are remembered only in
memory."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from refold.compactor.conversations import put_lru
from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.gateway.conversations.conversations import count_unedited
from refold.gateway.exchange import Incoming, Outgoing
from refold.gateway.http.request import read_model_field, request_model
from refold.gateway.ledger.entry import (
    DOLLAR,
    Cost,
    Entry,
    EntryKey,
    Sums,
    Tokens,
    clean_name,
    floor_to_hour,
)
from refold.messages import Message, ToolCall, ToolResult
from refold.rules.request import common_length
from refold.session_files import Session
from refold.speakers import is_request
from refold.text.json_values import dig, list_at
from refold.tokens.model_table import Rates, find_rates
from refold.tokens.usage import MOST_TOKENS, Usage, read_usage
from refold.transcript import count_common_messages

# --- bills without edits --------------------------------------------------------------------------
# No provider reports what a call would have been billed without edits, so that is computed from its
# bill. A request shares two prefixes with an earlier one: a prefix of their histories (*unedited*),
# and one of what was sent. The bill shows which share of the latter the cache held (*hit*). For the
# former the same share is assumed. *scale* is the factor from estimated to billed tokens.
# docs/decisions/0017-net-ledger.md has the steps, under "Without us".


class SentRequest(NamedTuple):
    """A sent request, as hashes and edits."""

    tips: Sequence[str]
    """Tips of its history."""
    visible_edits: tuple[VisibleEdit, ...]
    tokens: int
    """Estimated."""
    when: float


class CommonPrefix(NamedTuple):
    """The prefixes that a request shares with an earlier one, in estimated tokens."""

    request: SentRequest
    """The earlier one."""
    length: int
    """Messages in the common prefix of their histories."""
    unedited_tokens: int
    """Tokens of system prompt, tools and that prefix."""
    sent_tokens: int
    """Tokens of the common prefix of what was sent, system prompt and tools included."""


def as_sent_request(view: View, when: float) -> SentRequest:
    """Return *view* as a sent request."""
    return SentRequest(view.transcript.tips, view.visible_edits, view.tokens_uncalibrated, when)


def find_common_prefix(view: View, requests: Iterable[SentRequest]) -> CommonPrefix | None:
    """Return what *view* shares with the one of *requests* that has the longest history in common
    with it; None without *requests*."""
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
    # The sent requests diverge at the first edit that only one of them shows.
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
    """Share of the common prefix that was read while the cache was alive; None until learned."""
    written_share: float = 0.0
    """Share of the rest that the latest call wrote."""
    hour_share: float = 0.0
    """Share of what was written last that is kept for an hour."""
    uses_cache: bool = False
    """Whether anything was ever read or written."""

    def learn(self, tokens: Tokens) -> None:
        """Update the habits from a call's billed *tokens*."""
        self.uses_cache = self.uses_cache or tokens.read > 0 or tokens.written > 0
        if rest := tokens.fresh + tokens.written:
            self.written_share = tokens.written / rest
        if tokens.written:
            self.hour_share = tokens.written_for_hour / tokens.written


def tokens_without_edits(
    tokens: Tokens, view: View, before: CommonPrefix | None, habits: CacheHabits, *, alive: bool
) -> Tokens:
    """Return what a call billed as *tokens* would have been billed without the edits of *view*.
    *alive* says whether the cache may still hold the request *before*. Updates *habits*."""
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
    """Return what a call billed as *tokens*, sent without the edits of *view*, would have been
    billed with them; *alive* as above. Updates *habits*."""
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
    """Return the estimated tokens that the edits of *view* remove."""
    return view.base.token_sums[-1] - view.estimate


def _bill(total: int, read: int, output: int, habits: CacheHabits) -> Tokens:
    """Return the bill of *total* tokens of which the cache holds *read*."""
    read = min(total, read)
    written = round(habits.written_share * (total - read))
    return Tokens(total - read - written, read, written, output, round(habits.hour_share * written))


def _share_read(tokens: Tokens, prefix: float) -> float | None:
    """Return the share of a *prefix* (in tokens) that was read from the cache; None if it is
    empty."""
    return min(1.0, tokens.read / prefix) if prefix else None


def _learn_hit_rate(
    tokens: Tokens, before: CommonPrefix, habits: CacheHabits, scale: float, *, alive: bool
) -> float:
    """Return the share of the common prefix that the cache held. If the earlier request was sent
    again whole, the bill shows it and *habits* learn it."""
    hit = _share_read(tokens, scale * before.sent_tokens)
    if hit is None or before.sent_tokens < before.request.tokens:
        # If unknown, all of it: savings are rather underestimated than invented.
        usual = float(habits.uses_cache) if habits.hit_rate is None else habits.hit_rate
        return usual if alive else 0.0
    if alive:
        habits.hit_rate = hit
    return hit


# --- results that were fetched again --------------------------------------------------------------
# Their earlier results were hidden by an edit.


class Refetches(NamedTuple):
    """Results that were fetched again."""

    results: int = 0
    tokens: int = 0
    """Estimated."""
    share: float = 0.0
    """Their share of the new results and requests of a person, from 0 to 1."""


@dataclass(slots=True)
class ToolCallHistory:
    """A conversation's tool calls and the positions of their latest results."""

    length: int = 0
    tip: str = ""
    calls: dict[str, bytes] = field(default_factory=dict)
    """Hashes of name and arguments, by call id."""
    results: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Message and part of the latest result, by that hash."""

    def read(self, view: View, before: CommonPrefix | None) -> Refetches:
        """Read the new messages of *view*. Return the results that were fetched again because an
        edit in the request *before* had hidden them."""
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
        """Record a message's calls and results. Return the results whose earlier result an edit had
        hidden."""
        again = []
        for place, part in enumerate(view.transcript.messages[at].parts):
            if isinstance(part, ToolCall):
                self.calls[part.id] = _hash_call(part)
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


def _hash_call(call: ToolCall) -> bytes:
    content = f"{call.name}\n{call.arguments}".encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).digest()


# --- entries of the ledger ------------------------------------------------------------------------


REQUESTS_PER_CONVERSATION = 4
"""Latest requests kept of one conversation, for its forks."""
CONVERSATIONS = 1_000
"""Conversations kept, the latest used ones."""

_CACHE_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*\}')
_HOUR_MARK = re.compile(rb'"ttl"\s*:\s*"1h"')

RatesOf = Callable[[str], Rates | None]
"""Function from a model's name to its prices."""


class BilledCall(NamedTuple):
    """A call that the upstream has answered."""

    when: float
    """Seconds since 1970."""
    incoming: Incoming
    outgoing: Outgoing
    usage: Any
    """Usage object of the upstream's answer; None if it reported none."""
    tenant: str = ""
    session: str = ""
    """Empty for a call that belongs to no conversation."""
    model: str = ""
    view: View | None = None
    room: int | None = None
    """Tokens that a request to the model may have, if known."""
    shadow: bool = False
    """Whether it was sent as it came, whatever *view* shows."""


class SummaryCost(NamedTuple):
    """A compaction that asked a model."""

    when: float
    tenant: str
    session: str
    model: str
    """The conversation's model, not the one that was asked."""
    calls: int
    dollars: float


@dataclass(slots=True)
class _Conversation:
    """The calls of one conversation with one model."""

    requests: tuple[SentRequest, ...] = ()
    habits: CacheHabits = field(default_factory=CacheHabits)
    call_history: ToolCallHistory = field(default_factory=ToolCallHistory)


class Accounting:
    """Computes what calls were billed and would have been billed without edits. Not thread-safe."""

    def __init__(self, rates: RatesOf) -> None:
        self._rates = rates
        self._conversations = OrderedDict[tuple[str, str], _Conversation]()

    def book(self, item: BilledCall | SummaryCost) -> Entry:
        """Return the entry of a call, or of a compaction's calls to a model."""
        return self._book_call(item) if isinstance(item, BilledCall) else _summary_entry(item)

    def _book_call(self, call: BilledCall) -> Entry:
        hour = has_hour_cache(call.incoming.body)
        tokens = read_billed_tokens(call.usage, hour=hour)
        model = clean_name(
            call.model
            or call.outgoing.model
            or request_model(call.incoming.path, read_model_field(call.incoming.body))
        )
        key = EntryKey(
            floor_to_hour(call.when),
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
        if call.shadow:  # the bill is that without edits
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
        """Return what *tokens* would have been without edits (in shadow, with them), and what was
        fetched again. Updates the conversation in any case."""
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
        put_lru(self._conversations, (session, model), conversation, CONVERSATIONS)
        return conversation


def _summary_entry(summary: SummaryCost) -> Entry:
    model, money = clean_name(summary.model), round(summary.dollars * DOLLAR)
    key = EntryKey(floor_to_hour(summary.when), summary.tenant, summary.session, model, "reported")
    return key, Sums(
        summaries=summary.calls,
        summaries_unpriced=0 if money else summary.calls,
        summary_cost=money,
    )


def _with_estimates(sums: Sums, call: BilledCall) -> Sums:
    """Return *sums* of a call without reported usage: its tokens as estimated, no output, no
    money."""
    sent, unedited = call.outgoing.tokens_after, call.outgoing.tokens_before
    if call.view is not None and not call.shadow:
        sent, unedited = call.view.tokens, count_unedited(call.view)
    return replace(sums, counted=sent, fresh=sent, would_fresh=unedited)


def _with_bill(
    sums: Sums, call: BilledCall, tokens: Tokens, would: Tokens, rates: Rates | None, again: float
) -> Sums:
    """Return *sums* with the reported tokens and their cost, and both as they would be without
    edits. *again* is the share of the call that only fetched hidden results again."""
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
    """Return the cost of a call of *tokens*. Above a price cliff all of it costs more."""
    rates = rates.for_request(tokens.input)
    short, long = tokens.written - tokens.written_for_hour, rates.for_an_hour().write
    return Cost(
        _picodollars(tokens.fresh, rates.input),
        _picodollars(tokens.read, rates.read),
        _picodollars(short, rates.write) + _picodollars(tokens.written_for_hour, long),
        _picodollars(tokens.output, rates.output),
    )


def _picodollars(tokens: int, price: float) -> int:
    """Return a cost, with *price* in US dollars per million tokens."""
    return round(tokens * price * 1e6)


def read_billed_tokens(usage: Any, *, hour: bool = False) -> Tokens | None:
    """Return the tokens billed by a provider's usage object; None if it has no valid ones. *hour*
    says whether the request asks the cache to keep it for an hour, which counts if the usage does
    not say it.

    If a call consisted of several (server tools, a compaction by the provider), return their sum:
    Anthropic's top level leaves the compaction out."""
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
    """Return whether the request *source* asks the cache to keep its end, the conversation, for an
    hour.

    Anthropic takes one-hour marks only before five-minute marks. So one mark of five minutes means
    that the end is kept for five minutes."""
    marks = _CACHE_MARK.findall(source)
    return bool(marks) and all(map(_HOUR_MARK.search, marks))


# --- bills of sessions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bill:
    """What the provider reported of a session's calls, from its file or a gateway's ledger."""

    calls: int
    tokens: Tokens
    dollars: float | None
    """By the client's own figures if the file has them, else by our table, or as booked; None
    without a known price."""
    is_recorded: bool
    """Whether the dollars are the client's own figure."""
    context: int
    """Tokens of the last request and its answer; 0 if not reported."""


def as_usage(sums: Sums) -> dict[str, Bill]:
    """Return a session's booked calls as a usage object of `Session.usage`, for `read_bill`."""
    tokens = Tokens(sums.fresh, sums.read, sums.written, sums.output)
    dollars = sums.cost / DOLLAR if sums.calls > sums.unpriced else None
    return {"booked": Bill(sums.calls, tokens, dollars, is_recorded=False, context=0)}


def read_bill(session: Session) -> Bill:
    """Return the sums of what the provider reported; zeros without any usage."""
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
