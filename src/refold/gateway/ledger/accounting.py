"""From an answered call to its line in the ledger. What is known of conversations between calls is in memory only."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from refold.core.view import View
from refold.economics.prices import Rates
from refold.gateway.http.request_model import parse_object, request_model
from refold.gateway.ledger.cost import (
    DOLLAR,
    Habits,
    Seen,
    Shared,
    Tokens,
    billed,
    cost,
    said_tokens,
    seen,
    sent_tokens,
    shared,
    without,
)
from refold.gateway.ledger.entry import Entry, Key, Sums, hour_of, named
from refold.gateway.ledger.refetches import Again, Fetched
from refold.gateway.messages import Incoming, Outgoing
from refold.gateway.policy.economy import has_hour_cache

REMEMBERED = 4
"""Latest requests that are known of one conversation: its forks."""
CONVERSATIONS = 1_000
"""Conversations that are known, the latest used ones."""

RatesOf = Callable[[str], Rates | None]
"""From a model's name to its prices."""


class Answered(NamedTuple):
    """A call that the upstream has answered."""

    when: float
    """Seconds since 1970."""
    incoming: Incoming
    outgoing: Outgoing
    usage: Any
    """As the upstream reported it; None where it did not."""
    tenant: str = ""
    session: str = ""
    """Empty for a call that belongs to no conversation."""
    model: str = ""
    view: View | None = None
    room: int | None = None
    """Tokens that a request to the model may have; None where that is not known."""


class Summarised(NamedTuple):
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

    requests: tuple[Seen, ...] = ()
    habits: Habits = field(default_factory=Habits)
    fetched: Fetched = field(default_factory=Fetched)


class Accounts:
    """Reckons what calls were billed and would have been. For one thread."""

    def __init__(self, rates: RatesOf) -> None:
        self._rates = rates
        self._known = OrderedDict[tuple[str, str], _Conversation]()

    def answered(self, call: Answered) -> Entry:
        """The line of one call."""
        hour = has_hour_cache(call.incoming.body)
        tokens = billed(call.usage, hour=hour)
        model = named(
            call.model or call.outgoing.model or request_model(call.incoming.path, parse_object(call.incoming.body))
        )
        key = Key(hour_of(call.when), call.tenant, call.session, model, "estimated" if tokens is None else "reported")
        rates = self._rates(model)
        would, again = tokens, Again()
        if call.view is not None:
            would, again = self._without(call, call.view, tokens, rates.for_an_hour() if rates and hour else rates)
        if tokens is None or would is None:
            return key, _estimated(call, again)
        return key, _reported(call, tokens, would, again, rates)

    def summarised(self, done: Summarised) -> Entry:
        """The line of a compaction's model calls."""
        key = Key(hour_of(done.when), done.tenant, done.session, named(done.model), "reported")
        money = round(done.dollars * DOLLAR)
        return key, Sums(summaries=done.calls, summaries_unpriced=0 if money else done.calls, summary_cost=money)

    def _without(
        self, call: Answered, view: View, tokens: Tokens | None, rates: Rates | None
    ) -> tuple[Tokens | None, Again]:
        """What *tokens* would have been, and what was fetched again; the conversation is read on in any case."""
        known = self._conversation(call.session, call.model)
        before = shared(view, known.requests)
        lifetime = rates.lifetime if rates else 300.0
        alive = before is not None and call.when - before.seen.when <= lifetime
        would = without(tokens, view, before, known.habits, alive=alive) if tokens is not None else None
        again = known.fetched.read(view, before)
        known.requests = (seen(view, call.when), *_others(known.requests, before))[:REMEMBERED]
        return would, again

    def _conversation(self, session: str, model: str) -> _Conversation:
        found = self._known.setdefault((session, model), _Conversation())
        self._known.move_to_end((session, model))
        if len(self._known) > CONVERSATIONS:
            self._known.popitem(last=False)
        return found


def _others(requests: tuple[Seen, ...], before: Shared | None) -> tuple[Seen, ...]:
    """Those that the new request does not continue."""
    continued = before is not None and before.length == len(before.seen.tips) - 1
    return tuple(one for one in requests if before is None or not continued or one is not before.seen)


def _estimated(call: Answered, again: Again) -> Sums:
    """A call of which nothing was reported: its tokens as we estimate them, its answer's unknown, no money."""
    sent, said = call.outgoing.tokens_after, call.outgoing.tokens_before
    if call.view is not None:
        sent, said = (call.view.profile.calibrate(count(call.view)) for count in (sent_tokens, said_tokens))
    return Sums(
        calls=1,
        edited=int(bool(call.outgoing.edits)),
        counted=sent,
        fresh=sent,
        would_fresh=said,
        refetches=again.results,
        refetched=again.tokens,
    )


def _reported(call: Answered, tokens: Tokens, would: Tokens, again: Again, rates: Rates | None) -> Sums:
    """What was reported, its money, and what would have been."""
    too_long = call.outgoing.outcome == "retried" or (call.room is not None and would.input > call.room)
    avoided = too_long and bool(call.outgoing.edits)
    paid, other = (cost(tokens, rates), sum(cost(would, rates))) if rates else ((0, 0, 0, 0), 0)
    charged = round(other * again.share)
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
        would_cost=other,
        refetches=again.results,
        refetched=again.tokens,
        refetch_cost=charged,
        avoided=int(avoided),
        avoided_saved=other - charged - sum(paid) if avoided else 0,
    )
