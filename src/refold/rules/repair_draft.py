"""A conversation while it is mended: every part knows the entry that it came from."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from refold.messages import Message, Part, Text, ToolResult
from refold.rules.pairing import Spot


class Ref(NamedTuple):
    """Where a part was before: the position of its entry, and its own among that entry's parts."""

    at: int
    part: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the mended conversation."""

    message: Message
    refs: tuple[Ref | None, ...]
    """For each part where it was; None for a new one."""
    near: int
    """Position of the entry that it is, or that it was made for."""
    whole: bool = False
    """Is it the entry at `near`, untouched?"""


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was mended."""

    rule: str
    """Id of the rule that was broken, such as `AN-1`."""
    at: int
    """Position of the message, in the payload as it came (system messages at the start not counted)."""
    text: str
    """What was done, in a sentence."""


Mended = tuple[list[Entry], list[Repair]]
Mend = Callable[[Sequence[Entry], Mapping[str, Any]], Mended]
"""From entries and the rest of the request to mended entries, and what was done."""

NO_RESULT = "[No result of this call was recorded.]"
"""What stands in for a result that never came. Always the same, so that a prompt cache holds."""

NO_CALL = "[Result of a call that is no longer part of this conversation]"
"""Heads the text of a result that had to stay in a conversation without its call."""


def to_entries(messages: Iterable[Message]) -> list[Entry]:
    """Messages as entries, all untouched."""
    return [
        Entry(message, tuple(Ref(at, n) for n in range(len(message.parts))), at, whole=True)
        for at, message in enumerate(messages)
    ]


def pick(entry: Entry, keep: Callable[[int], bool]) -> Entry:
    """*entry* with those of its parts whose positions *keep* accepts."""
    positions = [n for n in range(len(entry.refs)) if keep(n)]
    if len(positions) == len(entry.refs):
        return entry
    parts = tuple(entry.message.parts[n] for n in positions)
    return Entry(
        replace(entry.message, parts=parts), tuple(entry.refs[n] for n in positions), entry.near
    )


def join(first: Entry, second: Entry) -> Entry:
    """Two neighbours as one entry; one that holds nothing adds nothing."""
    if not (first.refs and second.refs):
        return first if first.refs else second
    parts = (*first.message.parts, *second.message.parts)
    return Entry(replace(first.message, parts=parts), (*first.refs, *second.refs), first.near)


def prepend(entry: Entry, parts: Sequence[tuple[Part, Ref | None]]) -> Entry:
    """*entry* with *parts* before its own."""
    message = replace(entry.message, parts=(*(part for part, _ in parts), *entry.message.parts))
    return Entry(message, (*(ref for _, ref in parts), *entry.refs), entry.near)


def no_result(id: str, name: str = "") -> ToolResult:
    """The result of a call that nobody answered."""
    return ToolResult(id, (Text(NO_RESULT),), error=True, name=name)


def remove(
    entries: Sequence[Entry], gone: Mapping[int, set[int]], *, alternate: bool, as_text: bool = True
) -> list[Entry]:
    """*entries* without some parts: *gone* says which parts of which entry. What is left empty goes
    too, and its neighbours become one where roles alternate. A first message that an assistant's
    would follow then stays: with what it held as text, or as it is."""
    remaining = [_without(entry, gone.get(at, ())) for at, entry in enumerate(entries)]
    out = list[Entry]()
    gap = False
    for at, entry in enumerate(remaining):
        if (
            at in gone
            and not entry.refs
            and not _must_stay(remaining, at, out, alternate=alternate)
        ):
            gap = True
        elif at in gone and not entry.refs:
            out.append(_as_text(entries[at]) if as_text else entries[at])
        else:
            closes = gap and alternate and out and out[-1].message.role == entry.message.role
            out[-1:] = [join(out[-1], entry)] if closes else [*out[-1:], entry]
            gap = False
    return out or list(entries)


def _without(entry: Entry, parts: Container[int]) -> Entry:
    return pick(entry, lambda n: n not in parts)


def _must_stay(
    remaining: Sequence[Entry], at: int, out: Sequence[Entry], *, alternate: bool
) -> bool:
    """Would the conversation begin with the assistant, or be empty, without this emptied entry?"""
    if out or remaining[at].message.role == "assistant":
        return False
    following = next((entry for entry in remaining[at + 1 :] if entry.refs), None)
    return following is None or (alternate and following.message.role == "assistant")


def _as_text(entry: Entry) -> Entry:
    """The results of an entry as a user's text."""
    text = "\n".join([NO_CALL, *_texts(entry.message.parts)])
    return Entry(Message("user", (Text(text),)), (None,), entry.near)


def _texts(parts: Iterable[Part]) -> Iterator[str]:
    return (part.text for part in parts if isinstance(part, ToolResult) and part.text)


def messages_of(entries: Iterable[Entry]) -> list[Message]:
    """The messages of a draft."""
    return [entry.message for entry in entries]


def take_out(
    entries: Sequence[Entry], rule: str, spots: Iterable[Spot], why: str, *, alternate: bool
) -> Mended:
    """Remove calls or results; *why* says what they are. Other parts of their messages stay."""
    gone, repairs = defaultdict[int, set[int]](set), list[Repair]()
    for spot in spots:
        gone[spot.at].add(spot.part)
        repairs.append(Repair(rule, entries[spot.at].near, f"removed {why} {spot.id!r}"))
    out = remove(entries, gone, alternate=alternate)
    return out, repairs if out != list(entries) else []


def describe_stand_in(rule: str, entry: Entry, call: Spot) -> Repair:
    """The repair of a call of *entry* that nobody answered."""
    return Repair(
        rule, entry.near, f"added a result to call {call.id!r}, which says that none was recorded"
    )


def describe_insertion(rule: str, entry: Entry) -> Repair:
    """The repair that results were moved to."""
    return Repair(
        rule, entry.near, "put results directly after their calls, in the order of the calls"
    )


def apply_in_turn(entries: Sequence[Entry], *mends: Callable[[Sequence[Entry]], Mended]) -> Mended:
    """One mend after the other."""
    now, repairs = list(entries), list[Repair]()
    for mend in mends:
        now, done = mend(now)
        repairs += done
    return now, repairs
