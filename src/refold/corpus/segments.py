"""A trajectory, cut where an agent with a context compactor would have cut it.

The agent is replayed call by call: before each assistant message the history so far is compacted if
it is over budget. Requests that only extend the one before form one prefix chain. A compaction
starts a new chain. A segment is such a chain with its last answer: one physical trace, which a
trainer takes as one sequence.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from refold.budget.budget import Budget
from refold.codecs.codec import Codec
from refold.compactor.calibration import Reports, no_prior
from refold.compactor.compactor import Compactor
from refold.compactor.settings import default_strategies, parse_strategy
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.corpus.inputs import Conversation, read_records
from refold.errors import FormatError, require_int
from refold.text.json_values import JsonObject, text_at
from refold.tokens.count import Counter, count_message, counter, exact


class RecordedCall(NamedTuple):
    """One request and the model's answer."""

    view: View
    start: int
    """Position in the record's messages at which the answer starts."""
    stop: int


@dataclass(frozen=True, slots=True)
class UnrollSettings:
    """Settings of `unroll`. They are not checked before they are used; `check` checks all."""

    to: int = 32_000
    target: int | None = None
    reserve: int | None = None
    strategies: Iterable[Strategy | str] | None = None
    format: str = ""
    model: str = ""
    vocabulary: str = ""

    @property
    def goal(self) -> int:
        """Tokens to which a request is compacted. Raises ValueError if `to` is less than 1."""
        require_int(1, to=self.to)
        return self.to // 2 if self.target is None else self.target

    @property
    def budget(self) -> Budget:
        """Budget of a request. Raises ValueError for contradictory settings."""
        require_int(1, target=self.goal)
        reserve = self.to // 8 if self.reserve is None else self.reserve
        require_int(0, reserve=reserve)
        room = max(0, self.to - reserve)
        if self.goal > room:
            raise ValueError(
                f"of {self.to:,} tokens the reserve for an answer ({reserve:,}) leaves {room:,}: "
                f"the target ({self.goal:,}) must not be more"
            )
        return Budget(room, self.goal)

    def check(self) -> None:
        """Raise ValueError or `RefoldError` for settings with which no record can be unrolled."""
        _ = self.budget, read_strategies(self.strategies, self.goal)
        if self.vocabulary:
            _load_counter(self.vocabulary)


def unroll(
    record: Any,
    *,
    to: int = 32_000,
    target: int | None = None,
    reserve: int | None = None,
    strategies: Iterable[Strategy | str] | None = None,
    format: str = "",
    model: str = "",
    vocabulary: str = "",
) -> list[JsonObject]:
    """Return the segments of a record, one row per physical trace.

    *record* is one conversation in any of the formats of docs/corpus.md, or its JSON text. The
    agent's window has *to* tokens, of which *reserve* are kept for an answer (default: an eighth).
    A request over the remainder is compacted to *target* tokens (default: half of *to*) by the
    *strategies* (values or names; default: the default ones), none of which asks a model. *format*
    names the record's format; if it is empty, its shape decides. *model* is its model if the record
    names none. Tokens are estimated, or counted with the tokenizer *vocabulary*
    (`refold.tokens.count.exact`), the same for every model.

    Each row has `session`, `segment` (from 0), `parent` (the segment before it, or -1), `format`,
    `body` (the request without its messages), `messages`, `train_from` (the first message that no
    earlier segment trains on; train on every assistant message from there on), `edits` (`id`,
    `start`, `stop`, `by`, `saved`: the replaced span of the record's messages, and the tokens
    saved) and `tokens`.

    Raises `FormatError` for a record without a conversation or without an assistant message,
    ValueError for contradictory settings.
    """
    settings = UnrollSettings(to, target, reserve, strategies, format, model, vocabulary)
    conversations = read_records(record, format)
    return [segment.row for each in conversations for segment in iter_segments(each, settings)]


class Segment(NamedTuple):
    """A physical trace."""

    row: JsonObject
    recorded: int
    """Tokens of the recorded conversation up to the segment's end."""


def iter_segments(conversation: Conversation, settings: UnrollSettings) -> Iterator[Segment]:
    """Yield the segments of a conversation, each as it ends. Raises the errors of `unroll`."""
    strategies = read_strategies(settings.strategies, settings.goal)
    named = settings.model, settings.vocabulary
    compactor = build_compactor(conversation, strategies, settings.budget, *named)
    codec = conversation.open().codec
    for number, chain in enumerate(_split_calls(replay(conversation, compactor, codec))):
        answer = _count(chain.last, conversation.messages, codec)
        recorded = chain.last.view.tokens_unedited + answer
        yield Segment(_row(conversation, number, chain, answer), recorded)


def _count(call: RecordedCall, entries: Sequence[Any], codec: Codec) -> int:
    prior, count = call.view.transcript.messages, call.view.profile.count
    return sum(count(codec.decode(entry, prior)) for entry in entries[call.start : call.stop])


def read_strategies(
    strategies: Iterable[Strategy | str] | None, target: int
) -> tuple[Strategy, ...]:
    """Return strategies given as values or names; None means the default ones for *target* tokens.
    Raises ValueError for an unknown name."""
    if strategies is None:
        return default_strategies(target)
    if isinstance(strategies, str):  # otherwise each character would be a name
        strategies = [strategies]
    return tuple(parse_strategy(each) if isinstance(each, str) else each for each in strategies)


def build_compactor(
    conversation: Conversation,
    strategies: Sequence[Strategy],
    budget: Budget,
    model: str,
    vocabulary: str,
) -> Compactor:
    """Return a compactor that depends only on its settings, not even on the time."""
    return Compactor(
        strategies,
        budget,
        format=conversation.format,
        model=model,
        count=_load_counter(vocabulary) if vocabulary else count_message,
        reports=Reports(no_prior),
        clock=lambda: 0.0,
    )


@cache
def _load_counter(vocabulary: str) -> Counter:
    """Return the token counter of a tokenizer, cached because loading is slow."""
    return counter(exact(vocabulary))


def replay(
    conversation: Conversation, compactor: Compactor, codec: Codec
) -> Iterator[RecordedCall]:
    """Yield each request that an agent with *compactor* would have sent, in order. Consecutive
    assistant entries form one answer. Raises `FormatError` if there is none."""
    entries = conversation.messages
    answers = list(_answers(codec, entries))
    if not answers:
        raise FormatError("no message is an answer of the model")
    at = answers[0][0]
    live = compactor.session({**conversation.body, conversation.field: entries[:at]})
    for start, stop in answers:
        yield RecordedCall(
            live.append(*entries[at:start]) if start > at else live.view, start, stop
        )
        at = start


def _answers(codec: Codec, entries: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each run of assistant entries."""
    start = None
    for at, entry in enumerate(entries):
        if _is_answer(codec, entry):
            start = at if start is None else start
        elif start is not None:
            yield start, at
            start = None
    if start is not None:
        yield start, len(entries)


def _is_answer(codec: Codec, entry: Any) -> bool:
    if role := text_at(entry, "role"):  # avoids decoding most entries twice
        return role in {"assistant", "model"} and not entry.get("is_copied_context")
    return codec.decode(entry, ()).role == "assistant"


class CallChain(NamedTuple):
    """The first and last call of a prefix chain, in which each call continues the one before it."""

    first: RecordedCall
    last: RecordedCall


def _split_calls(calls: Iterator[RecordedCall]) -> Iterator[CallChain]:
    """Yield the chains of *calls*, which must not be empty."""
    first = last = next(calls)
    for call in calls:
        if not _continues(last.view, call.view):
            yield CallChain(first, last)
            first = call
        last = call
    yield CallChain(first, last)


def _continues(before: View, after: View) -> bool:
    """Return whether *after* shows what *before* showed, then its answer, then new messages."""
    old, new = before.visible_edits, after.visible_edits
    if new[: len(old)] != old:
        return False
    later, messages = new[len(old) :], after.transcript.messages
    stop = len(before.transcript)
    while later and stop < len(messages) and messages[stop].role == "assistant":
        stop += 1
    return not later or later[0].edit.start >= stop


def _row(conversation: Conversation, number: int, chain: CallChain, answer: int) -> JsonObject:
    first, last = chain
    request = last.view.payload[conversation.field]
    return {
        "session": conversation.session,
        "segment": number,
        "parent": number - 1,
        "format": conversation.format,
        "body": dict(conversation.body),
        "messages": [*request, *conversation.messages[last.start : last.stop]],
        "train_from": len(first.view.payload[conversation.field]),
        "edits": edit_rows(last.view, last.start - len(last.view.transcript)),
        "tokens": last.view.tokens + answer,
    }


def edit_rows(view: View, head: int) -> list[JsonObject]:
    """Return the edits that *view* shows. Positions are those of the record's messages, the first
    *head* of which are the system prompt."""
    return [
        {
            "id": edit.id,
            "start": head + edit.start,
            "stop": head + edit.stop,
            "by": edit.by,
            "saved": view.base.tokens(edit.start, edit.stop) - tokens,
        }
        for edit, tokens in view.visible_edits
    ]
