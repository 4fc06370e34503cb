"""What a request still has of the one before it: for rules that say what must be kept."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from refold.messages import Message, Thinking
from refold.transcript import hash_message

Line = tuple[Any, Any]
"""Something said, and what must not change about it while it is sent again. Equal things said are equal."""


class Lapse(NamedTuple):
    """Something that is sent again, but without what it had."""

    at: int
    """Its position."""
    had: frozenset[Any]
    """What it had; several, where the same was said several times."""
    has: Any


def find_lapses(before: Sequence[Line], after: Sequence[Line]) -> Iterator[Lapse]:
    """What stands in both, and not with what it has in *after*: that is gone, with or without something in its place.

    Only what was sent before is looked at: what follows it in *after* may say the same again, and is
    not bound to anything. Where that cannot be told, less is looked at, so nothing is found wrongly.
    """
    run = common_run(before, after)
    sent = after[: run.end]
    had, has = _marks(before), _marks(sent)
    for at, (content, mark) in enumerate(sent):
        if (
            content in had
            and mark not in had[content]
            and had[content] - has[content]
            and (run.is_sure or not mark)
        ):
            yield Lapse(at, frozenset(had[content]), mark)


def _marks(lines: Sequence[Line]) -> dict[Any, set[Any]]:
    """For everything said what it has, in any of its places."""
    marks = dict[Any, set[Any]]()
    for content, mark in lines:
        marks.setdefault(content, set()).add(mark)
    return marks


class Run(NamedTuple):
    """A beginning of what is sent that was there when the request before was sent, as far as that can be told."""

    kept: int
    """How many of its last lines, back to the first that differs, have something that did not change."""
    length: int
    """How many lines that are."""
    less: int
    """Its end, below nothing: of two that are as likely, the shorter is meant."""
    is_whole: bool
    """Is all of the request before in it?"""

    @property
    def end(self) -> int:
        """How many lines it has."""
        return -self.less

    @property
    def is_sure(self) -> bool:
        """Is it not the same that was said again, while what was said first is gone?"""
        return self.is_whole or self.kept > 0


def common_run(before: Sequence[Line], after: Sequence[Line]) -> Run:
    """What of *after* was there when *before* was sent. It ends with the last line of *before*; of several such
    places with that before which most stands as it did. Where that line is gone, a common beginning is known."""
    if common_length(before, after) == len(before):
        return Run(0, len(before), -len(before), is_whole=True)
    ends = (at + 1 for at, (content, _) in enumerate(after) if content == before[-1][0])
    common = common_length([content for content, _ in before], [content for content, _ in after])
    best = max((_run(before, after, end, LOOK) for end in ends), default=None)
    return (
        Run(0, common, -common, is_whole=False)
        if best is None
        else _run(before, after, best.end, len(after))
    )


LOOK = 200
"""Most lines that are compared to tell which of several places is meant."""


def _run(before: Sequence[Line], after: Sequence[Line], end: int, look: int) -> Run:
    """What is known if *before* ended where the first *end* lines of *after* do."""
    back = map(after.__getitem__, range(end - 1, max(end - 1 - look, -1), -1))
    pairs = list(
        takewhile(lambda pair: pair[0][0] == pair[1][0], zip(reversed(before), back, strict=False))
    )
    unchanged = sum(1 for old, new in pairs if old[1] and old[1] == new[1])
    return Run(unchanged, len(pairs), -end, is_whole=len(pairs) == len(before))


def common_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Length of the common beginning."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    )


def message_digest(message: Message) -> bytes:
    """What a message says, thinking left out: equal for equal messages."""
    return hash_message(message)


def thinking_of(message: Message) -> tuple[Thinking, ...]:
    """The thinking of a message."""
    return tuple(part for part in message.parts if isinstance(part, Thinking))


def entry_fields(entry: Any) -> Mapping[str, Any]:
    """An entry as it is sent, or one of a vendor's objects; nothing for what is none."""
    if isinstance(entry, Mapping):
        return entry
    return entry.model_dump(mode="json", exclude_none=True) if hasattr(entry, "model_dump") else {}
