"""What a rule is and how it is mended, and the cuts that a set of rules leaves."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from refold.messages import Message, Text, ToolResult
from refold.rules.pairing import Pairing, Spot
from refold.rules.request import Body, Fault, References, Request


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing in a request that a provider refuses."""

    rule: str
    """Rule id, such as `AN-1`."""
    at: int
    """Position of the message (system messages at the start not counted); 0 for what stands in
    another field of the request, which `subject` then names."""
    text: str
    """What is wrong, in a sentence."""
    subject: str = ""
    """What it is wrong of (a call id), so that two lists can be compared though positions moved."""
    unmended: str = field(default="", compare=False)
    """Why a repair left it as it is, in a sentence; empty outside of a repair's report."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that providers refuse."""

    id: str
    title: str
    judge: Callable[[Request], Iterable[Fault]]
    """Finds what is wrong in a request."""
    join: Callable[[Request], Iterable[tuple[int, int]]] | None = None
    """Pairs (i, j), i < j: messages i to j stay together, no cut falls between them."""
    mends: tuple["Mend", ...] = ()
    """Mend what `judge` finds, if that needs no invention; tried in turn until one mends."""
    limit: str = ""
    """What would have to be invented or lost to mend what `mends` leave, in a sentence."""


@dataclass(frozen=True, slots=True)
class ContinuityRule:
    """One thing that a request must keep of the request before it."""

    id: str
    title: str
    judge: Callable[[Request, Request], Iterable[Fault]]
    """From the request before and the one that follows it to what is refused in the latter."""
    thinking: tuple[str, ...]
    """Kinds of `Rules.thinking` for which it holds."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All that one provider's API refuses."""

    rules: tuple[Rule, ...] = ()
    alternate: bool = False
    """Roles alternate and the first is `user`: neighbours of one role are merged at an edit's
    edge."""
    thinking: Literal["free", "fixed", "loop", "bound", "unsure"] = "free"
    """May thinking be removed? `free`: any that is not signed; `fixed`: none (OA-4, GE-3, DS-1);
    `loop`: oldest first, not that of the latest assistant turn (AN-6); `bound`: oldest first, and a
    late edit takes what was signed after it along (AN-7, AN-10, AN-11); `unsure`: since no model is
    named, only what is signed, as `bound`, but the current turn keeps its thinking. So it is
    with signed thinking where the rest is `free`: the name may stand for any model."""
    continuity: tuple[ContinuityRule, ...] = ()
    """What a request must keep of the one before it."""
    references: References | None = None
    """What entries may refer to, of others; None if nothing."""

    @property
    def binds(self) -> bool:
        """May signed thinking be bound to what stood before it?"""
        return self.thinking in ("bound", "unsure", "free")

    def check(self, messages: Sequence[Message], body: Body | None = None) -> tuple[Violation, ...]:
        """Return every violation, in order of position."""
        request = Request(messages, body or {})
        return in_order(
            Violation(rule.id, *fault) for rule in self.rules for fault in rule.judge(request)
        )

    def check_continuity(self, before: Request, after: Request) -> tuple[Violation, ...]:
        """Return what *after* does not keep of *before*, in order of position.

        *before* is the request before it in the conversation.
        """
        return in_order(
            Violation(rule.id, *fault)
            for rule in self.continuity
            if self.thinking in rule.thinking
            for fault in rule.judge(before, after)
        )

    def cuts(self, messages: Sequence[Message]) -> frozenset[int]:
        """Return where *messages* may be cut: what stands between two cuts may be hidden."""
        request = Request(messages)
        joined = (pair for rule in self.rules if rule.join for pair in rule.join(request))
        return free_cuts(len(messages), joined)


def in_order(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return violations by position."""
    return tuple(sorted(violations, key=lambda v: (v.at, v.rule)))


def free_cuts(length: int, joined: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Return the cuts 0 to *length* that part no pair (i, j): those not in i+1 to j."""
    depth = [0] * (length + 2)
    for start, stop in joined:
        depth[start + 1] += 1
        depth[min(stop, length) + 1] -= 1
    cuts, level = [], 0
    for cut in range(length + 1):
        level += depth[cut]
        if level == 0:
            cuts.append(cut)
    return frozenset(cuts)


# --- a conversation while it is mended: every part knows the entry that it came from ------------


class Ref(NamedTuple):
    """Where a part was before: the position of its entry, and its own among that entry's parts."""

    at: int
    part: int


@dataclass(frozen=True, slots=True)
class MendedEntry:
    """An entry of the mended conversation."""

    message: Message
    refs: tuple[Ref | None, ...]
    """For each part where it was; None for a new one."""
    near: int
    """Position of the entry that it is, or that it was made for."""
    is_untouched: bool = False
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
class BrokenRequest:
    """A request while it is mended."""

    entries: Sequence[MendedEntry]
    body: Body
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


Mended = tuple[Sequence[MendedEntry], Sequence[Note]]
"""The entries of a request after a repair, and what was done."""
Mend = Callable[[BrokenRequest], Mended]
"""From a broken request to its mended entries, and what was done: nothing if the entries are the
same."""

NO_RESULT = "[No result of this call was recorded.]"
"""What stands in for a result that never came. Always the same, so that a prompt cache holds."""

NO_CALL = "[Result of a call that is no longer part of this conversation]"
"""Heads the text of a result that had to stay in a conversation without its call."""


def to_entries(messages: Iterable[Message]) -> list[MendedEntry]:
    """Return messages as entries, all untouched."""
    return [
        MendedEntry(
            message, tuple(Ref(at, n) for n in range(len(message.parts))), at, is_untouched=True
        )
        for at, message in enumerate(messages)
    ]


def join(first: MendedEntry, second: MendedEntry) -> MendedEntry:
    """Return two neighbours as one entry; one that holds nothing adds nothing."""
    if not (first.refs and second.refs):
        return first if first.refs else second
    parts = (*first.message.parts, *second.message.parts)
    return MendedEntry(replace(first.message, parts=parts), (*first.refs, *second.refs), first.near)


def remove(
    broken: BrokenRequest, gone: Mapping[int, set[int]], *, as_text: bool = True
) -> list[MendedEntry]:
    """Return the entries without some parts: *gone* says which parts of which entry.

    What is left empty goes too, and its neighbours become one if roles alternate. A first message
    that an assistant's would follow then stays: with what it held as text, or as it is.
    """
    entries = broken.entries
    remaining = [_without(entry, gone.get(at)) for at, entry in enumerate(entries)]
    out = list[MendedEntry]()
    gap = False
    for at, entry in enumerate(remaining):
        if at not in gone or entry.refs:
            closes = gap and broken.alternate and out and out[-1].message.role == entry.message.role
            out[-1:] = [join(out[-1], entry)] if closes else [*out[-1:], entry]
            gap = False
        elif out or not _opens(remaining[at:], alternate=broken.alternate):
            gap = True
        else:
            out.append(_as_text(entries[at]) if as_text else entries[at])
    return out or list(entries)


def remove_empty(broken: BrokenRequest, gone: Mapping[int, set[int]]) -> Mended:
    """Return what `remove` does, with a note for each entry that has changed or gone."""
    out = remove(broken, gone, as_text=False)
    remaining = {(entry.near, entry.refs) for entry in out}
    mended = (broken.entries[at] for at in sorted(gone))
    changed = (entry.near for entry in mended if (entry.near, entry.refs) not in remaining)
    return out, [Note(near, "removed what is empty") for near in changed]


def _without(entry: MendedEntry, parts: set[int] | None) -> MendedEntry:
    """Return *entry* without those *parts*, the same if there are none."""
    if not parts:
        return entry
    rest = [n for n in range(len(entry.refs)) if n not in parts]
    message = replace(entry.message, parts=tuple(entry.message.parts[n] for n in rest))
    return MendedEntry(message, tuple(entry.refs[n] for n in rest), entry.near)


def _opens(remaining: Sequence[MendedEntry], *, alternate: bool) -> bool:
    """Must the first of these entries, now empty, stay for the conversation to begin with it?

    Without it the conversation would be empty or, if roles alternate, begin with the assistant.
    """
    if remaining[0].message.role == "assistant":
        return False
    following = next((entry for entry in remaining[1:] if entry.refs), None)
    return following is None or (alternate and following.message.role == "assistant")


def _as_text(entry: MendedEntry) -> MendedEntry:
    """Return the results of an entry as a user's text."""
    results = (part.text for part in entry.message.parts if isinstance(part, ToolResult))
    text = "\n".join([NO_CALL, *filter(None, results)])
    return MendedEntry(Message("user", (Text(text),)), (None,), entry.near)


def take_out(broken: BrokenRequest, spots: Iterable[Spot], name: str) -> Mended:
    """Remove calls or results; *name* says what they are. Other parts of their messages stay."""
    gone, notes = defaultdict[int, set[int]](set), list[Note]()
    for spot in sorted(spots):
        gone[spot.at].add(spot.part)
        notes.append(Note(broken.entries[spot.at].near, f"removed {name} {spot.id!r}"))
    out = remove(broken, gone)
    return out, notes if out != list(broken.entries) else []


def take_out_unpaired(
    broken: BrokenRequest, pairing: Pairing, name: str, *, is_continued: bool = False
) -> Mended:
    """Remove second results, and results without a call unless the server may hold it."""
    orphans = () if is_continued else pairing.orphans
    unpaired = (*orphans, *(pair.result for pair in pairing.again))
    return take_out(broken, unpaired, f"{name} without a call of its own,")
