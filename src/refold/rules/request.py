"""A request as the rules look at it, and what the pairing rules of several providers share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from refold.messages import Message, Part
from refold.rules.pairing import Pair, Pairing, client_ids, pair_calls, turn_ends

ALONE = "nothing else would be left of the conversation"
"""Why something may stay that has to go."""
SAME_ID = (
    f"calls of one turn share an id, and nothing says which of them a result answers; or {ALONE}"
)
"""Why a pair may be left broken."""
CHOICE = "only the caller knows what was meant"
"""Why a field with a value that cannot be stays."""


class Fault(NamedTuple):
    """One thing that a rule finds wrong."""

    at: int
    """Position of the message (system messages at the start not counted); 0 for what stands in
    another field of the request, which `subject` then names."""
    text: str
    """What is wrong, in a sentence."""
    subject: str = ""
    """What it is wrong of (a call id), so that two lists can be compared though positions moved."""


@dataclass(frozen=True)
class Request:
    """A request that was, or would be, sent."""

    messages: Sequence[Message]
    body: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the request. If a whole request is checked, the body holds the conversation too,
    as it is sent: for what messages do not hold, such as `cache_control`."""
    entries: Sequence[Any] = ()
    """The messages as they are sent, one for each, if a request is compared with another."""
    system: tuple[Part, ...] = ()
    tools: tuple[str, ...] = ()
    """Each tool definition as canonical JSON."""

    @cached_property
    def pairing(self) -> Pairing:
        """Which result answers which call, of the tools that the client runs."""
        return pair_calls(self.messages, client_ids)

    @cached_property
    def full_pairing(self) -> Pairing:
        """Which result answers which call, of all tools."""
        return pair_calls(self.messages)

    @cached_property
    def turn_ends(self) -> list[int]:
        """For each message where the answers to its calls belong, if that is after its turn."""
        return turn_ends(self.messages)

    @cached_property
    def away(self) -> list[Pair]:
        """Answered calls whose result is not in the message after their assistant turn."""
        ends = self.turn_ends
        return [pair for pair in self.pairing.pairs if pair.result.at != ends[pair.call.at]]


def find_call_faults(pairing: Pairing, away: Iterable[Pair] = ()) -> Iterator[Fault]:
    """Report calls without a result, and those of *away*, whose result stands elsewhere."""
    for at, _, id in pairing.unanswered:
        yield Fault(at, f"call {id!r} has no result directly after it", id)
    for call, result in away:
        text = f"the result of call {call.id!r} stands at {result.at}, not directly after it"
        yield Fault(call.at, text, call.id)


def find_result_faults(pairing: Pairing, *, is_continued: bool = False) -> Iterator[Fault]:
    """Report second results of a call, and results without one unless the server may hold it."""
    for at, _, id in () if is_continued else pairing.orphans:
        yield Fault(at, f"result {id!r} has no call before it", id)
    for _, (at, _, id) in pairing.again:
        yield Fault(at, f"call {id!r} was answered already", id)


def find_repeated_ids(request: Request) -> Iterator[Fault]:
    """Report calls whose id an earlier call of the same assistant turn has."""
    pairing, seen = request.pairing, set[tuple[int, str]]()
    calls = (*(pair.call for pair in pairing.pairs), *pairing.unanswered, *pairing.pending)
    for at, _, id in sorted(calls):
        key = (request.turn_ends[at], id)
        if key in seen:
            yield Fault(at, f"two calls of one turn have the id {id!r}", id)
        seen.add(key)
