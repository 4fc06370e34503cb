"""Pairing of tool calls with their results in one linear pass, the basis of all pairing rules."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from refold.messages import Message, Opaque, Part, ToolCall, ToolResult
from refold.text.json_values import object_at, parse_or_none, text_at


class Spot(NamedTuple):
    """Position of a call or result: index of its message, index of the part in it, and its id."""

    at: int
    part: int
    id: str


class Pair(NamedTuple):
    """Call and a result that answers it."""

    call: Spot
    result: Spot


@dataclass(frozen=True, slots=True)
class Pairing:
    """All calls and results of a list of messages, in five groups."""

    pairs: tuple[Pair, ...]
    """Each answered call with its first result."""
    again: tuple[Pair, ...]
    """Further results of calls that already have one."""
    orphans: tuple[Spot, ...]
    """Results without a call before them."""
    unanswered: tuple[Spot, ...]
    """Calls without a result although the conversation went on."""
    pending: tuple[Spot, ...]
    """Calls of the last assistant turn that have no result yet. If a call of that turn was made by
    a program, the call that runs the program is pending too: it may run for many turns."""
    length: int

    @property
    def inseparable(self) -> tuple[tuple[int, int], ...]:
        """Ranges of messages that stay together: a call with all its results, a pending call with
        everything after it."""
        answered = ((call.at, result.at) for call, result in chain(self.pairs, self.again))
        return (*answered, *((call.at, self.length) for call in self.pending))


Kind = Callable[[Part], tuple[str | None, str | None]]
"""Function from a part to the id of the call that it makes and the id of the call that it answers,
each None if it does not."""


def client_ids(part: Part) -> tuple[str | None, str | None]:
    """Return the ids of a call or result of the client's tools."""
    if isinstance(part, ToolCall):
        return part.id, None
    return None, part.id if isinstance(part, ToolResult) else None


def server_ids(part: Part) -> tuple[str | None, str | None]:
    """Return the ids of a call or result of the provider's own tools (AN-3)."""
    return (part.opens or None, part.closes or None) if isinstance(part, Opaque) else (None, None)


def any_ids(part: Part) -> tuple[str | None, str | None]:
    """Return the ids of a call or result of any tool."""
    return server_ids(part) if isinstance(part, Opaque) else client_ids(part)


def pair_calls(messages: Sequence[Message], kind: Kind = any_ids, *, turns: bool = True) -> Pairing:
    """Match each result with the latest call before it that has its id and no result yet.

    If all calls with its id have results, it is a second result of the latest one. *turns*: whether
    open calls of the whole last assistant turn are pending, not only those of its last message.
    """
    waiting: dict[str, list[Spot]] = {}
    latest: dict[str, Spot] = {}
    pairs, again, orphans = list[Pair](), list[Pair](), list[Spot]()
    for at, message in enumerate(messages):
        for n, part in enumerate(message.parts):
            if type(part) not in _CALLS_AND_RESULTS:
                continue
            call_id, result_id = kind(part)
            if result_id is not None:
                spot, calls = Spot(at, n, result_id), waiting.get(result_id)
                if calls:
                    pairs.append(Pair(calls.pop(), spot))
                elif result_id in latest:
                    again.append(Pair(latest[result_id], spot))
                else:
                    orphans.append(spot)
            if call_id is not None:
                latest[call_id] = spot = Spot(at, n, call_id)
                waiting.setdefault(call_id, []).append(spot)
    unpaired = sorted(chain.from_iterable(waiting.values()))
    open_turn = find_open_turn(messages, turns=turns) if unpaired else 0
    running = set(map(caller_of, chain.from_iterable(m.parts for m in messages[open_turn:])))
    is_pending = {spot: spot.at >= open_turn or spot.id in running for spot in unpaired}
    return Pairing(
        pairs=tuple(pairs),
        again=tuple(again),
        orphans=tuple(orphans),
        unanswered=tuple(spot for spot in unpaired if not is_pending[spot]),
        pending=tuple(spot for spot in unpaired if is_pending[spot]),
        length=len(messages),
    )


def caller_of(part: Part) -> str | None:
    """Return the id of the call whose program made this call; None if the model made it, or if
    *part* is no call."""
    if isinstance(part, Opaque) and part.opens and '"caller"' in part.json:
        caller = object_at(parse_or_none(part.json), "caller")
        return text_at(caller, "caller_id") or text_at(caller, "tool_id") or None
    return (part.caller or None) if isinstance(part, ToolCall) else None


_CALLS_AND_RESULTS = frozenset({ToolCall, ToolResult, Opaque})
"""Types of parts that may be calls or results. Others are skipped early."""


def with_strays(messages: Sequence[Message], pairing: Pairing, ends: Sequence[int]) -> Pairing:
    """Return *pairing* with open calls matched to stray results: to those that precede their call
    or are known only by the tool's name. *ends* is the result of `turn_ends`."""
    waiting = {*pairing.unanswered, *pairing.pending}
    if not waiting or not pairing.orphans:
        return pairing
    paired = (call for call, _ in pairing.pairs)
    calls = sorted(spot for spot in (*waiting, *paired) if messages[spot.at].role == "assistant")
    first = {call.id: call for call in reversed(calls)}
    named, pending = defaultdict[str, list[Spot]](list), set(pairing.pending)
    for spot in calls:
        named[_tool_of(messages, spot)].append(spot)
    matches = list[Pair]()
    for orphan in pairing.orphans:
        call = first.get(orphan.id)
        if orphan.id.startswith(NO_ID):
            call = _namesake(messages, named[_tool_of(messages, orphan)], orphan, ends)
            if call in pending and call > orphan:
                continue
        if call in waiting:
            waiting.remove(call)
            matches.append(Pair(call, orphan))
    answers = {result for _, result in matches}
    return replace(
        pairing,
        pairs=tuple(sorted((*pairing.pairs, *matches))),
        orphans=tuple(spot for spot in pairing.orphans if spot not in answers),
        unanswered=tuple(spot for spot in pairing.unanswered if spot in waiting),
        pending=tuple(spot for spot in pairing.pending if spot in waiting),
    )


NO_ID = "?"
"""Prefix of the id of an unmatched result, in formats that match results by position."""


def _tool_of(messages: Sequence[Message], spot: Spot) -> str:
    """Return the name of the tool of a call or result; empty if unknown."""
    return getattr(messages[spot.at].parts[spot.part], "name", "")


def _namesake(
    messages: Sequence[Message], named: Sequence[Spot], orphan: Spot, ends: Sequence[int]
) -> Spot | None:
    """Return the call that a result without an id belongs to, of the calls *named* as its tool.

    That is the latest before it, else the first in the assistant turn that the result is in or
    directly precedes.
    """
    if not _tool_of(messages, orphan):
        return None
    if before := bisect_left(named, orphan):
        return named[before - 1]
    turn = orphan.at if messages[orphan.at].role == "assistant" else orphan.at + 1
    if turn >= len(messages) or messages[turn].role != "assistant":
        return None
    first = bisect_left(named, ends[turn], key=lambda call: ends[call.at])
    return next((call for call in named[first : first + 1] if ends[call.at] == ends[turn]), None)


def find_open_turn(messages: Sequence[Message], *, turns: bool = True) -> int:
    """Return where the last assistant turn, or without *turns* its last message, begins if only
    results follow it; else a position behind all calls. Calls from there on are pending."""
    at = len(messages)
    while at and answers_only(messages[at - 1]):
        at -= 1
    first = 0 if turns else at - 1
    while at > first and at and _speaks(messages[at - 1]):
        at -= 1
    return at


def answers_only(message: Message) -> bool:
    """Return whether a message holds only results and is not the assistant's."""
    return (
        bool(message.parts) and message.role != "assistant" and all(map(is_result, message.parts))
    )


def _speaks(message: Message) -> bool:
    return message.role == "assistant" or bool(message.calls)


def turn_ends(messages: Sequence[Message]) -> list[int]:
    """Return for each message the position of the next one that is not the assistant's, where the
    answers to its calls belong; the number of messages if there is none."""
    ends, end = [0] * len(messages), len(messages)
    for at in range(len(messages) - 1, -1, -1):
        ends[at] = end
        if messages[at].role != "assistant":
            end = at
    return ends


def is_result(part: Part) -> bool:
    """Return whether a part answers a call."""
    return any_ids(part)[1] is not None


def without_ids(message: Message) -> Message:
    """Return *message* with the ids of its calls and results removed."""
    parts = (
        replace(part, id="") if isinstance(part, ToolCall | ToolResult) else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))
