"""A trajectory cut where an agent with a context compactor would have cut it.

The agent is replayed call by call: before each answer of the model the history so far is compacted
if that is due. As long as a request only continues the one before it, both are one prefix chain; a
compaction begins another. A segment is such a chain with its last answer: one physical trace, which
a trainer takes as one sequence.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from refold.budget.budget import Budget
from refold.codecs.codec import Codec, Payload
from refold.compactor.calibration import Reports, no_prior
from refold.compactor.compactor import Compactor
from refold.compactor.settings import default_strategies
from refold.compactor.strategy_names import parse_strategy
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.corpus.records import Conversation, Row, read_records
from refold.errors import FormatError, require_int
from refold.tokens.count import Counter, count_message, counter, exact


class Call(NamedTuple):
    """One request, and the answer that the model gave to it."""

    view: View
    start: int
    """Where the answer starts in the record's messages."""
    stop: int


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
) -> list[Row]:
    """Return the segments of a record, one row a physical trace.

    *record* is one conversation in any of the forms of docs/corpus.md, or its JSON text. The agent's
    window has *to* tokens, of which *reserve* are kept for an answer (an eighth); a request that
    leaves less is compacted to *target* tokens (half of *to*) by the *strategies* (values, or their
    names as text; the default ones), none of which asks a model. *format* names the record's form,
    *model* its model, if the record does not. Tokens are estimated, or counted with the tokenizer
    called *vocabulary* (`refold.tokens.count.exact`), alike for every model.

    Each row has `session`, `segment` (from 0), `parent` (the segment before it; -1), `format`,
    `body` (the request without its messages), `messages`, `train_from` (the first message that no
    earlier segment trains on; every assistant's message from there on is to be trained), `edits`
    (`id`, `start`, `stop`, `by`: what stands for which of the record's messages) and `tokens`.

    Raises `FormatError` for what holds no conversation or no answer of a model, ValueError for
    settings that contradict one another.
    """
    reserve, target = to // 8 if reserve is None else reserve, to // 2 if target is None else target
    require_int(1, to=to, target=target)
    require_int(0, reserve=reserve)
    budget, named = Budget(to - reserve, target), read_strategies(strategies, target)
    rows = list[Row]()
    for conversation in read_records(record, format):
        compactor = build_compactor(conversation, named, budget, model, vocabulary)
        segments = split_calls(replay(conversation, compactor))
        rows += (_row(conversation, number, calls) for number, calls in enumerate(segments))
    return rows


def read_strategies(
    strategies: Iterable[Strategy | str] | None, target: int
) -> tuple[Strategy, ...]:
    """Return strategies given as values or by name; by default those that come down to *target*."""
    if strategies is None:
        return default_strategies(target)
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
        count=load_counter(vocabulary) if vocabulary else count_message,
        reports=Reports(no_prior),
        clock=float,
    )


@cache
def load_counter(vocabulary: str) -> Counter:
    """Return what counts a message with a tokenizer: to load one takes longer than a record."""
    return counter(exact(vocabulary))


def replay(conversation: Conversation, compactor: Compactor) -> Iterator[Call]:
    """Yield each request that an agent with *compactor* would have sent, in order. Neighbouring
    entries of the model are one answer. Raises `FormatError` if there is none."""
    opened, entries = conversation.open(), conversation.messages
    answers = list(_answers(opened, entries))
    if not answers:
        raise FormatError("no message is an answer of the model")
    at = answers[0][0]
    live = compactor.session({**conversation.body, conversation.field: entries[:at]})
    for start, stop in answers:
        yield Call(live.append(*entries[at:start]) if start > at else live.view, start, stop)
        at = start


def _answers(opened: Payload, entries: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield where each run of the model's entries starts and stops."""
    start = None
    for at, entry in enumerate(entries):
        if _is_answer(opened.codec, entry):
            start = at if start is None else start
        elif start is not None:
            yield start, at
            start = None
    if start is not None:
        yield start, len(entries)


def _is_answer(codec: Codec, entry: Any) -> bool:
    role = entry.get("role") if isinstance(entry, dict) else None
    if isinstance(role, str):  # spares most entries to be decoded twice
        return role in {"assistant", "model"}
    return codec.decode(entry, ()).role == "assistant"


def split_calls(calls: Iterable[Call]) -> Iterator[list[Call]]:
    """Yield runs of calls each of which continues the one before it."""
    run = list[Call]()
    for call in calls:
        if run and not _continues(run[-1].view, call.view):
            yield run
            run = []
        run.append(call)
    if run:
        yield run


def _continues(before: View, after: View) -> bool:
    """Does *after* show what *before* showed, then the answer as it was given, then what is new?"""
    old, new = before.visible_edits, after.visible_edits
    answer = len(before.transcript)
    shared = new[: len(old)]
    if any(a.edit != b.edit for a, b in zip(old, shared, strict=False)) or len(shared) < len(old):
        return False
    later = new[len(old) :]
    if not later:
        return True
    messages = after.transcript.messages
    while answer < len(messages) and messages[answer].role == "assistant":
        answer += 1
    return later[0].edit.start >= answer


def _row(conversation: Conversation, number: int, calls: Sequence[Call]) -> Row:
    first, last = calls[0], calls[-1]
    head = last.start - len(last.view.transcript)
    answer = conversation.messages[last.start : last.stop]
    codec, prior = conversation.open().codec, last.view.transcript.messages
    tokens = sum(last.view.profile.count(codec.decode(entry, prior)) for entry in answer)
    return {
        "session": conversation.session,
        "segment": number,
        "parent": number - 1,
        "format": conversation.format,
        "body": dict(conversation.body),
        "messages": [*last.view.payload[conversation.field], *answer],
        "train_from": len(first.view.payload[conversation.field]),
        "edits": edit_rows(last.view, head),
        "tokens": last.view.tokens + tokens,
    }


def edit_rows(view: View, head: int) -> list[Row]:
    """Return the edits that *view* shows; positions count the record's messages, of which *head*
    are the system prompt."""
    return [
        {"id": edit.id, "start": head + edit.start, "stop": head + edit.stop, "by": edit.by}
        for edit, _ in view.visible_edits
    ]
