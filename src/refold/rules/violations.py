"""What the pairing rules of several providers have in common."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

from refold.messages import Message, Thinking
from refold.rules.pairing import Pair, Pairing, Spot
from refold.rules.rule import Violation

Body = Mapping[str, Any]
"""A request without its conversation."""


ALONE = "nothing else would be left of the conversation"
"""Why something may stay that has to go."""
SAME_ID = (
    f"calls of one turn share an id, and nothing says which of them a result answers; or {ALONE}"
)
"""Why a pair may be left broken."""


def calls_without_result(rule: str, spots: Iterable[Spot]) -> Iterator[Violation]:
    """Calls without a result, although the conversation went on."""
    return (
        Violation(rule, at, f"call {id!r} has no result directly after it", id)
        for at, _, id in spots
    )


def results_out_of_place(rule: str, pairs: Iterable[Pair]) -> Iterator[Violation]:
    """Calls whose result stands elsewhere than directly after them."""
    for call, result in pairs:
        text = f"the result of call {call.id!r} stands at {result.at}, not directly after it"
        yield Violation(rule, call.at, text, call.id)


def results_without_call(rule: str, spots: Iterable[Spot]) -> Iterator[Violation]:
    """Results without a call."""
    return (Violation(rule, at, f"result {id!r} has no call before it", id) for at, _, id in spots)


def second_results(rule: str, pairs: Iterable[Pair]) -> Iterator[Violation]:
    """Second results of one call."""
    return (Violation(rule, r.at, f"call {r.id!r} was answered already", r.id) for _, r in pairs)


def ids_given_twice(rule: str, spots: Iterable[Spot]) -> Iterator[Violation]:
    """Second calls of one id."""
    return (
        Violation(rule, at, f"two calls of one turn have the id {id!r}", id) for at, _, id in spots
    )


def away_from_home(pairing: Pairing, ends: Sequence[int]) -> list[Pair]:
    """Answered calls whose result is not in the message after their assistant turn.
    *ends* are `turn_ends`."""
    return [pair for pair in pairing.pairs if pair.result.at != ends[pair.call.at]]


def is_reasoning(message: Message) -> bool:
    """Is it an item of reasoning, which stands for itself in the Responses API?"""
    return bool(message.parts) and all(isinstance(part, Thinking) for part in message.parts)


def fingerprint(message: Message) -> str:
    """8 hex digits that name a reasoning item, which has no id here."""
    text = "\0".join(f"{p.text}\0{p.signature}" for p in message.parts if isinstance(p, Thinking))
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"
