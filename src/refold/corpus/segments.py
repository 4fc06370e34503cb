"""A trajectory cut where an agent with a context compactor would have cut it.

The agent is replayed call by call: before each answer of the model the history so far is compacted
if that is due. As long as a request only continues the one before it, both are one prefix chain; a
compaction begins another. A segment is such a chain with its last answer: one physical trace, which
a trainer takes as one sequence.
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
    """One request, and the answer that the model gave to it."""

    view: View
    start: int
    """Where the answer starts in the record's messages."""
    stop: int


@dataclass(frozen=True, slots=True)
class UnrollSettings:
    """The settings of `unroll`. Raises ValueError for some that contradict one another."""

    to: int = 32_000
    target: int | None = None
    reserve: int | None = None
    strategies: Iterable[Strategy | str] | None = None
    format: str = ""
    model: str = ""
    vocabulary: str = ""

    @property
    def goal(self) -> int:
        """Tokens that a request is compacted to."""
        require_int(1, to=self.to)
        return self.to // 2 if self.target is None else self.target

    @property
    def budget(self) -> Budget:
        """When a request is compacted, and how far."""
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
    """Return the segments of a record, one row a physical trace.

    *record* is one conversation in any of the forms of docs/corpus.md, or its JSON text. The
    agent's window has *to* tokens, of which *reserve* are kept for an answer (an eighth); a request
    that leaves less is compacted to *target* tokens (half of *to*) by the *strategies* (values, or
    their names as text; the default ones), none of which asks a model. *format* names the record's
    form, *model* its model, if the record does not. Tokens are estimated, or counted with the
    tokenizer called *vocabulary* (`refold.tokens.count.exact`), alike for every model.

    Each row has `session`, `segment` (from 0), `parent` (the segment before it; -1), `format`,
    `body` (the request without its messages), `messages`, `train_from` (the first message that no
    earlier segment trains on; every assistant's message from there on is to be trained), `edits`
    (`id`, `start`, `stop`, `by`, `saved`: what stands for which of the record's messages, and the
    tokens that spares) and `tokens`.

    Raises `FormatError` for what holds no conversation or no answer of a model, ValueError for
    settings that contradict one another.
    """
    settings = UnrollSettings(to, target, reserve, strategies, format, model, vocabulary)
    conversations = read_records(record, format)
    return [segment.row for each in conversations for segment in iter_segments(each, settings)]


class Segment(NamedTuple):
    """A physical trace."""

    row: JsonObject
    recorded: int
    """Tokens of the conversation up to its end, as they were recorded."""


def iter_segments(conversation: Conversation, settings: UnrollSettings) -> Iterator[Segment]:
    """Yield the segments of a conversation, each as soon as it ends. Raises as `unroll`."""
    strategies = read_strategies(settings.strategies, settings.goal)
    named = settings.model, settings.vocabulary
    compactor = build_compactor(conversation, strategies, settings.budget, *named)
    codec = conversation.open().codec
    for number, chain in enumerate(_split_calls(replay(conversation, compactor, codec))):
        answer = _count(chain.last, conversation.messages, codec)
        recorded = chain.last.view.tokens_unedited + answer
        yield Segment(_row(conversation, number, chain, answer), recorded)


def _count(call: RecordedCall, entries: Sequence[Any], codec: Codec) -> int:
    """Return the tokens of an answer."""
    prior, count = call.view.transcript.messages, call.view.profile.count
    return sum(count(codec.decode(entry, prior)) for entry in entries[call.start : call.stop])


def read_strategies(
    strategies: Iterable[Strategy | str] | None, target: int
) -> tuple[Strategy, ...]:
    """Return strategies given as values or by name; by default those that come down to *target*."""
    if strategies is None:
        return default_strategies(target)
    if isinstance(strategies, str):  # else each character is a name
        strategies = [strategies]
    return tuple(parse_strategy(each) if isinstance(each, str) else each for each in strategies)


def build_compactor(
    conversation: Conversation,
    strategies: Sequence[Strategy],
    budget: Budget,
    model: str,
    vocabulary: str,
) -> Compactor:
    """Return a compactor that knows nothing but its settings: not even the time."""
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
    """Return what counts a message with a tokenizer: to load one takes longer than a record."""
    return counter(exact(vocabulary))


def replay(
    conversation: Conversation, compactor: Compactor, codec: Codec
) -> Iterator[RecordedCall]:
    """Yield each request that an agent with *compactor* would have sent, in order. Neighbouring
    entries of the model are one answer. Raises `FormatError` if there is none."""
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
    """Yield where each run of the model's entries starts and stops."""
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
    if role := text_at(entry, "role"):  # spares most entries to be decoded twice
        return role in {"assistant", "model"} and not entry.get("is_copied_context")
    return codec.decode(entry, ()).role == "assistant"


class CallChain(NamedTuple):
    """Calls each of which continues the one before it: those between are not held."""

    first: RecordedCall
    last: RecordedCall


def _split_calls(calls: Iterator[RecordedCall]) -> Iterator[CallChain]:
    """Yield the chains of *calls*, of which there is one at least."""
    first = last = next(calls)
    for call in calls:
        if not _continues(last.view, call.view):
            yield CallChain(first, last)
            first = call
        last = call
    yield CallChain(first, last)


def _continues(before: View, after: View) -> bool:
    """Does *after* show what *before* showed, then the answer as it was given, then what is new?"""
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
    """Return the edits that *view* shows; positions count the record's messages, of which *head*
    are the system prompt."""
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
