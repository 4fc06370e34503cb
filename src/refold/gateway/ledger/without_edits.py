"""What a call would have been billed without edits, and which of its results were fetched again
because an edit had hidden them.

No provider says either, so both are worked out from what did happen. A request and an earlier one
have a beginning in common: one of their histories (*unedited*), and one of what was sent. Of the
beginning that was sent the bill says which share the cache held (*hit*); of the other as much is
taken to be held. Estimated tokens are turned into billed ones by what was billed for each token of
this request (*scale*). docs/gateway-operations.md says it for users, under "Without us".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.gateway.conversations.conversations import count_common_messages
from refold.gateway.ledger.entry import Tokens
from refold.messages import Message, ToolCall, ToolResult
from refold.rules.request import common_length
from refold.speakers import is_request


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


# --- what was fetched again -----------------------------------------------------------------------


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
