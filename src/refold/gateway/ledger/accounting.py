"""From an answered call to its line in the ledger. What is known of conversations between calls is
in memory only."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from refold.core.view import View
from refold.economics.prices import Rates
from refold.edits import Edit
from refold.gateway.http.request import parse_object, request_model
from refold.gateway.ledger.cost import (
    CacheHabits,
    CommonPrefix,
    SentRequest,
    Tokens,
    as_sent_request,
    compute_cost,
    edit_at,
    find_common_prefix,
    has_hour_cache,
    read_billed_tokens,
    tokens_without_edits,
)
from refold.gateway.ledger.entry import DOLLAR, Entry, EntryKey, Sums, clean_model_name, hour_of
from refold.gateway.messages import Incoming, Outgoing
from refold.messages import Message, ToolCall, ToolResult
from refold.speakers import is_request

REQUESTS_PER_CONVERSATION = 4
"""Latest requests that are known of one conversation: its forks."""
CONVERSATIONS = 1_000
"""Conversations that are known, the latest used ones."""

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


class SummaryCost(NamedTuple):
    """A compaction that asked a model."""

    when: float
    tenant: str
    session: str
    model: str
    """The conversation's, not the one that was asked."""
    calls: int
    dollars: float


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
            again = self._message(view, at, before)
            if at >= since:
                new += is_request(messages[at]) + len(messages[at].results)
                refetched += len(again)
                tokens += sum(view.profile.count(Message("tool", (part,))) for part in again)
        self.length, self.tip = len(messages), tips[-1]
        return Refetches(refetched, tokens, refetched / new if new else 0.0)

    def _message(self, view: View, at: int, before: CommonPrefix | None) -> list[ToolResult]:
        """Take in a message; its results that were hidden when they were asked for again."""
        again = []
        for place, part in enumerate(view.transcript.messages[at].parts):
            if isinstance(part, ToolCall):
                self.calls[part.id] = _key(part)
            elif isinstance(part, ToolResult) and (key := self.calls.get(part.id)):
                if (
                    before is not None
                    and key in self.results
                    and _was_hidden(view, self.results[key], before)
                ):
                    again.append(part)
                self.results[key] = (at, place)
        return again


def _was_hidden(view: View, where: tuple[int, int], before: CommonPrefix) -> bool:
    at, place = where
    edit = edit_at(before.request.top, at) if at < before.length else None
    return edit is not None and not _is_shown(edit, view.transcript.messages[at].parts[place])


def _is_shown(edit: Edit, part: object) -> bool:
    return any(part in message.parts for message in edit.insert)


def _key(call: ToolCall) -> bytes:
    content = f"{call.name}\n{call.arguments}".encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).digest()


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
        return self._call(item) if isinstance(item, BilledCall) else _summary_entry(item)

    def _call(self, call: BilledCall) -> Entry:
        hour = has_hour_cache(call.incoming.body)
        tokens = read_billed_tokens(call.usage, hour=hour)
        model = clean_model_name(
            call.model
            or call.outgoing.model
            or request_model(call.incoming.path, parse_object(call.incoming.body))
        )
        key = EntryKey(
            hour_of(call.when),
            call.tenant,
            call.session,
            model,
            "estimated" if tokens is None else "reported",
        )
        rates = self._rates(model)
        would, again = tokens, Refetches()
        if call.view is not None:
            would, again = self._compare(
                call, call.view, tokens, rates.for_an_hour() if rates and hour else rates
            )
        if tokens is None or would is None:
            return key, _sums_by_estimate(call, again)
        return key, _sums_by_report(call, tokens, would, again, rates)

    def _compare(
        self, call: BilledCall, view: View, tokens: Tokens | None, rates: Rates | None
    ) -> tuple[Tokens | None, Refetches]:
        """What *tokens* would have been, and what was fetched again; the conversation is read on in
        any case."""
        conversation = self._conversation(call.session, call.model)
        before = find_common_prefix(view, conversation.requests)
        lifetime = rates.lifetime if rates else 300.0
        alive = before is not None and call.when - before.request.when <= lifetime
        would = (
            tokens_without_edits(tokens, view, before, conversation.habits, alive=alive)
            if tokens is not None
            else None
        )
        again = conversation.call_history.read(view, before)
        conversation.requests = (
            as_sent_request(view, call.when),
            *_not_continued(conversation.requests, before),
        )[:REQUESTS_PER_CONVERSATION]
        return would, again

    def _conversation(self, session: str, model: str) -> _Conversation:
        conversation = self._conversations.setdefault((session, model), _Conversation())
        self._conversations.move_to_end((session, model))
        if len(self._conversations) > CONVERSATIONS:
            self._conversations.popitem(last=False)
        return conversation


def _summary_entry(summary: SummaryCost) -> Entry:
    model, money = clean_model_name(summary.model), round(summary.dollars * DOLLAR)
    key = EntryKey(hour_of(summary.when), summary.tenant, summary.session, model, "reported")
    return key, Sums(
        summaries=summary.calls,
        summaries_unpriced=0 if money else summary.calls,
        summary_cost=money,
    )


def _not_continued(
    requests: tuple[SentRequest, ...], before: CommonPrefix | None
) -> tuple[SentRequest, ...]:
    """Those that the new request does not continue."""
    is_continued = before is not None and before.length == len(before.request.tips) - 1
    return tuple(
        request
        for request in requests
        if before is None or not is_continued or request is not before.request
    )


def _sums_by_estimate(call: BilledCall, again: Refetches) -> Sums:
    """A call of which nothing was reported: its tokens as we estimate them, its answer's unknown,
    no money."""
    sent, unedited = call.outgoing.tokens_after, call.outgoing.tokens_before
    if call.view is not None:
        sent, unedited = call.view.tokens, call.view.tokens_unedited
    return Sums(
        calls=1,
        edited=int(bool(call.outgoing.edits)),
        counted=sent,
        fresh=sent,
        would_fresh=unedited,
        refetches=again.results,
        refetched=again.tokens,
    )


def _sums_by_report(
    call: BilledCall, tokens: Tokens, would: Tokens, again: Refetches, rates: Rates | None
) -> Sums:
    """What was reported, its money, and what would have been."""
    too_long = call.outgoing.outcome == "retried" or (
        call.room is not None and would.input > call.room
    )
    avoided = too_long and bool(call.outgoing.edits)
    paid, would_cost = (
        (compute_cost(tokens, rates), sum(compute_cost(would, rates)))
        if rates
        else ((0, 0, 0, 0), 0)
    )
    charged = round(would_cost * again.share)
    return Sums(
        calls=1,
        edited=int(bool(call.outgoing.edits)),
        counted=call.outgoing.tokens_after,
        fresh=tokens.fresh,
        read=tokens.read,
        written=tokens.written,
        output=tokens.output,
        unpriced=int(rates is None),
        cost_fresh=paid[0],
        cost_read=paid[1],
        cost_written=paid[2],
        cost_output=paid[3],
        would_fresh=would.fresh,
        would_read=would.read,
        would_written=would.written,
        would_cost=would_cost,
        refetches=again.results,
        refetched=again.tokens,
        refetch_cost=charged,
        avoided=int(avoided),
        avoided_saved=would_cost - charged - sum(paid) if avoided else 0,
    )
