"""What a request still has of the one before it: for rules that say what must be kept."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from refold.messages import Message, Thinking
from refold.transcript import digest

Line = tuple[Any, Any]
"""Something said, and what must not change about it while it is sent again. Equal things said are equal."""


class Lapse(NamedTuple):
    """Something that is sent again, but without what it had."""

    at: int
    """Its position."""
    had: frozenset[Any]
    """What it had; several, where the same was said several times."""
    has: Any


def lapses(before: Sequence[Line], after: Sequence[Line]) -> Iterator[Lapse]:
    """What stands in both, and in none of its places in *before* with what it has in *after*.

    Only what was sent before is looked at: what follows it in *after* may say the same again, and is
    not bound to anything. Where that cannot be told, less is looked at, so nothing is found wrongly.
    """
    had = dict[Any, set[Any]]()
    for said, mark in before:
        had.setdefault(said, set()).add(mark)
    for at, (said, mark) in enumerate(after[: known(before, after)]):
        if said in had and mark not in had[said]:
            yield Lapse(at, frozenset(had[said]), mark)


def known(before: Sequence[Line], after: Sequence[Line]) -> int:
    """How many lines of *after* were there when *before* was sent, as far as that can be told.

    They end with the last line of *before*; of several such places with that before which most stands
    as it did. Where that line is gone, only a common beginning is known.
    """
    common = same([said for said, _ in before], [said for said, _ in after])
    if common == len(before):
        return common
    ends = (at + 1 for at in range(common, len(after)) if after[at][0] == before[-1][0])
    return max(ends, key=lambda end: (*_run(before, after, end), -end), default=common)


def _run(before: Sequence[Line], after: Sequence[Line], end: int) -> tuple[int, int]:
    """Of the lines with which *before* and the first *end* of *after* end: how many have something that did
    not change, and how many there are."""
    back = map(after.__getitem__, range(end - 1, -1, -1))
    pairs = list(takewhile(lambda pair: pair[0][0] == pair[1][0], zip(reversed(before), back, strict=False)))
    return sum(1 for one, other in pairs if one[1] and one[1] == other[1]), len(pairs)


def same(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Length of the common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def said(message: Message) -> bytes:
    """What a message says, thinking left out: equal for equal messages."""
    return digest(message)


def thoughts(message: Message) -> tuple[Thinking, ...]:
    """The thinking of a message."""
    return tuple(part for part in message.parts if isinstance(part, Thinking))


def fields(entry: Any) -> Mapping[str, Any]:
    """An entry as it is sent, or one of a vendor's objects; nothing for what is none."""
    if isinstance(entry, Mapping):
        return entry
    return entry.model_dump(mode="json", exclude_none=True) if hasattr(entry, "model_dump") else {}
