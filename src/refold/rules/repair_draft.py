"""A conversation while it is mended: every part knows the entry that it came from."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from refold.messages import Message, Part, Text, ToolResult
from refold.rules.pairing import Pairing, Spot
from refold.rules.request import Request


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


class Note(NamedTuple):
    """One thing that was mended: the position of the entry, and what was done, in a sentence."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was mended."""

    rule: str
    """Id of the rule that was broken, such as `AN-1`."""
    at: int
    """Position of the message, in the payload as it came (system messages at the start not
    counted)."""
    text: str
    """What was done, in a sentence."""


@dataclass(frozen=True)
class Draft:
    """A request while it is mended."""

    entries: Sequence[Entry]
    body: Mapping[str, Any]
    """The request without its conversation."""
    alternate: bool
    """Do roles alternate, so that neighbours of one role are one message?"""

    @cached_property
    def request(self) -> Request:
        """The request as it would be sent now."""
        return Request([entry.message for entry in self.entries], self.body)

    @property
    def messages(self) -> Sequence[Message]:
        """The messages as they would be sent now."""
        return self.request.messages


Mended = tuple[Sequence[Entry], Sequence[Note]]
Mend = Callable[[Draft], Mended]
"""From a draft to its mended entries, and what was done: nothing if the entries are the same."""

NO_RESULT = "[No result of this call was recorded.]"
"""What stands in for a result that never came. Always the same, so that a prompt cache holds."""

NO_CALL = "[Result of a call that is no longer part of this conversation]"
"""Heads the text of a result that had to stay in a conversation without its call."""


def to_entries(messages: Iterable[Message]) -> list[Entry]:
    """Return messages as entries, all untouched."""
    return [
        Entry(message, tuple(Ref(at, n) for n in range(len(message.parts))), at, whole=True)
        for at, message in enumerate(messages)
    ]


def join(first: Entry, second: Entry) -> Entry:
    """Return two neighbours as one entry; one that holds nothing adds nothing."""
    if not (first.refs and second.refs):
        return first if first.refs else second
    parts = (*first.message.parts, *second.message.parts)
    return Entry(replace(first.message, parts=parts), (*first.refs, *second.refs), first.near)


def remove(draft: Draft, gone: Mapping[int, set[int]], *, as_text: bool = True) -> list[Entry]:
    """Return the entries without some parts: *gone* says which parts of which entry.

    What is left empty goes too, and its neighbours become one if roles alternate. A first message
    that an assistant's would follow then stays: with what it held as text, or as it is.
    """
    entries = draft.entries
    remaining = [_without(entry, gone.get(at)) for at, entry in enumerate(entries)]
    out = list[Entry]()
    gap = False
    for at, entry in enumerate(remaining):
        if at not in gone or entry.refs:
            closes = gap and draft.alternate and out and out[-1].message.role == entry.message.role
            out[-1:] = [join(out[-1], entry)] if closes else [*out[-1:], entry]
            gap = False
        elif out or not _opens(remaining[at:], alternate=draft.alternate):
            gap = True
        else:
            out.append(_as_text(entries[at]) if as_text else entries[at])
    return out or list(entries)


def _without(entry: Entry, parts: set[int] | None) -> Entry:
    """Return *entry* without those *parts*, the same if there are none."""
    if not parts:
        return entry
    rest = [n for n in range(len(entry.refs)) if n not in parts]
    message = replace(entry.message, parts=tuple(entry.message.parts[n] for n in rest))
    return Entry(message, tuple(entry.refs[n] for n in rest), entry.near)


def _opens(remaining: Sequence[Entry], *, alternate: bool) -> bool:
    """Must the first of these entries, now empty, stay for the conversation to begin with it?

    Without it the conversation would be empty or, if roles alternate, begin with the assistant.
    """
    if remaining[0].message.role == "assistant":
        return False
    following = next((entry for entry in remaining[1:] if entry.refs), None)
    return following is None or (alternate and following.message.role == "assistant")


def _as_text(entry: Entry) -> Entry:
    """Return the results of an entry as a user's text."""
    text = "\n".join([NO_CALL, *_texts(entry.message.parts)])
    return Entry(Message("user", (Text(text),)), (None,), entry.near)


def _texts(parts: Iterable[Part]) -> Iterator[str]:
    return (part.text for part in parts if isinstance(part, ToolResult) and part.text)


def take_out(draft: Draft, spots: Iterable[Spot], name: str) -> Mended:
    """Remove calls or results; *name* says what they are. Other parts of their messages stay."""
    gone, notes = defaultdict[int, set[int]](set), list[Note]()
    for spot in sorted(spots):
        gone[spot.at].add(spot.part)
        notes.append(Note(draft.entries[spot.at].near, f"removed {name} {spot.id!r}"))
    out = remove(draft, gone)
    return out, notes if out != list(draft.entries) else []


def take_out_strays(
    draft: Draft, pairing: Pairing, name: str, *, is_continued: bool = False
) -> Mended:
    """Remove second results, and results without a call unless the server may hold it."""
    orphans = () if is_continued else pairing.orphans
    strays = (*orphans, *(pair.result for pair in pairing.again))
    return take_out(draft, strays, f"{name} without a call of its own,")
