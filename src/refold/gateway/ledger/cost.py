"""Tokens of calls and what they cost. Money is whole picodollars (10^-12 US dollars), so that sums
are exact."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.economics.prices import Rates
from refold.edits import Edit
from refold.gateway.conversations.conversations import common_length
from refold.text.json_values import dig
from refold.tokens.usage import Usage, read_usage

_CACHE_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*\}')
_HOUR_MARK = re.compile(rb'"ttl"\s*:\s*"1h"')


class Tokens(NamedTuple):
    """Tokens of one or more calls; every token of the request is in one of the first three."""

    fresh: int = 0
    """Input that was neither read from a cache nor written to one."""
    read: int = 0
    written: int = 0
    output: int = 0
    written_for_hour: int = 0
    """The share of *written* that the cache keeps for an hour."""

    @property
    def input(self) -> int:
        """All tokens of the request."""
        return self.fresh + self.read + self.written


class Cost(NamedTuple):
    """What each of these tokens cost, in picodollars."""

    fresh: int = 0
    read: int = 0
    written: int = 0
    output: int = 0


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
    """Return what a provider's usage object bills; None if it says nothing. *hour*: does the
    request ask the cache to keep it for an hour? That counts if the usage does not say what was
    written for how long.

    Where a call was made of several (server tools, a compaction by the provider), their sum:
    Anthropic's top level leaves the compaction out.
    """
    parts = dig(usage, "iterations")
    usages = (
        [read_usage(part) for part in parts]
        if isinstance(parts, list) and parts
        else [read_usage(usage)]
    )
    counts = [_tokens(usage, hour=hour) for usage in usages if usage is not None]
    return Tokens(*map(sum, zip(*counts, strict=True))) if counts else None


def _tokens(usage: Usage, *, hour: bool) -> Tokens:
    fresh, asked = max(0, usage.input - usage.cached - usage.written), usage.written if hour else 0
    return Tokens(
        fresh,
        usage.cached,
        usage.written,
        usage.output,
        asked if usage.hour is None else usage.hour,
    )


def has_hour_cache(source: bytes) -> bool:
    """Does this request ask the cache to keep its end, the conversation, for an hour?

    Anthropic takes marks of an hour only before those of five minutes: if there is one of five
    minutes, the end is kept for five minutes, whatever is before it.
    """
    marks = _CACHE_MARK.findall(source)
    return bool(marks) and all(map(_HOUR_MARK.search, marks))


class SentRequest(NamedTuple):
    """A request that was sent, as hashes and edits."""

    tips: Sequence[str]
    top: tuple[VisibleEdit, ...]
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
    length = common_length(view.transcript.tips, before.tips)
    fixed, sums, stop, gained = view.profile.fixed_tokens, view.base.token_sums, length, 0
    for now, then in zip_longest(view.visible_edits, before.top):
        if now is None or then is None or now.edit.id != then.edit.id or now.edit.stop > length:
            stop = min(length, *(placed.edit.start for placed in (now, then) if placed is not None))
            break
        gained += now.tokens - view.base.tokens(now.edit.start, now.edit.stop)
    return CommonPrefix(before, length, fixed + sums[length], fixed + sums[stop] + gained)


def edit_at(top: Sequence[VisibleEdit], at: int) -> Edit | None:
    """Return the edit that shows at a position."""
    return next((placed.edit for placed in top if placed.edit.start <= at < placed.edit.stop), None)


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

    @property
    def usual_hit_rate(self) -> float:
        """The share that is read of a common beginning, as far as it is known. Where it is not, all
        of it: rather too small a saving than one that was none."""
        return (1.0 if self.uses_cache else 0.0) if self.hit_rate is None else self.hit_rate


def tokens_without_edits(
    tokens: Tokens, view: View, before: CommonPrefix | None, habits: CacheHabits, *, alive: bool
) -> Tokens:
    """Return what a call billed as *tokens* would have been without the edits of *view*; *habits*
    learn from it."""
    habits.uses_cache = habits.uses_cache or tokens.read > 0 or tokens.written > 0
    rest = tokens.fresh + tokens.written
    habits.written_share = tokens.written / rest if rest else habits.written_share
    habits.hour_share = (
        tokens.written_for_hour / tokens.written if tokens.written else habits.hour_share
    )
    scale = tokens.input / max(1, view.tokens_uncalibrated)
    hit = _hit_rate(tokens, before, habits, scale, alive=alive)
    if not view.visible_edits and (before is None or not before.request.top):
        return tokens
    total = tokens.input + round(scale * (view.base.token_sums[-1] - view.estimate))
    if before is None:
        read = round(total * tokens.read / max(1, tokens.input))
    else:
        read = min(total, round(scale * hit * before.unedited_tokens))
    written = round(habits.written_share * (total - read))
    return Tokens(
        total - read - written, read, written, tokens.output, round(habits.hour_share * written)
    )


def _hit_rate(
    tokens: Tokens, before: CommonPrefix | None, habits: CacheHabits, scale: float, *, alive: bool
) -> float:
    """Return the share of the common beginning that the cache held."""
    if before is None:
        return 0.0
    if before.sent_tokens < before.request.tokens or not scale * before.sent_tokens:
        return habits.usual_hit_rate if alive else 0.0
    measured = min(1.0, tokens.read / (scale * before.sent_tokens))
    if alive:
        habits.hit_rate = measured
    return measured
