"""Rules, sets of rules, the cuts that they allow, and the helpers of repairs."""

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
    """Violation of a provider's rule in a request."""

    rule: str
    """Rule id, such as `AN-1`."""
    at: int
    """Position of the message, without leading system messages; 0 if the violation is in another
    field of the request, named by `subject`."""
    text: str
    """What is wrong, in one sentence."""
    subject: str = ""
    """Call id, field or other name of what is wrong. It identifies a violation whose position
    moved."""
    unmended: str = field(default="", compare=False)
    """Why a repair left the violation, in one sentence; empty outside the report of a repair."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule of a provider's API for a single request."""

    id: str
    title: str
    find_faults: Callable[[Request], Iterable[Fault]]
    """Finds the faults of a request."""
    join: Callable[[Request], Iterable[tuple[int, int]]] | None = None
    """Pairs (i, j), i < j: messages i to j stay together, no cut falls between them."""
    mends: tuple["RepairFunction", ...] = ()
    """Repairs of the faults that `find_faults` finds, tried in turn until one changes something.
    None invents content."""
    limit: str = ""
    """What would have to be invented or lost to repair what `mends` leave, in one sentence."""


@dataclass(frozen=True, slots=True)
class ContinuityRule:
    """Rule about what a request must keep from the previous request."""

    id: str
    title: str
    find_faults: Callable[[Request, Request], Iterable[Fault]]
    """Finds the faults of a request, given the previous request and the request."""
    thinking: tuple[str, ...]
    """Values of `Rules.thinking` to which the rule applies."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of one provider's API."""

    rules: tuple[Rule, ...] = ()
    alternate: bool = False
    """Whether roles must alternate, beginning with `user`. Messages of one role are then merged at
    the edges of an edit."""
    thinking: Literal["free", "fixed", "loop", "bound", "unsure"] = "free"
    """Which thinking may be removed. `free`: all that is not signed. `fixed`: none (OA-4, GE-3,
    DS-1). `loop`: oldest first, but not that of the latest assistant turn (AN-6). `bound`: oldest
    first, and a late edit also removes the thinking signed after it (AN-7, AN-10, AN-11). `unsure`:
    no model is named, so only signed thinking as in `bound`, but the current turn keeps its
    thinking. `free` treats signed thinking like `unsure`, because its model name may stand for any
    model."""
    continuity: tuple[ContinuityRule, ...] = ()
    """Rules about what a request must keep from the previous request."""
    references: References | None = None
    """References between entries that the provider resolves, or None."""

    @property
    def binds(self) -> bool:
        """Whether signed thinking may be bound to its prefix."""
        return self.thinking in ("bound", "unsure", "free")

    def check(self, messages: Sequence[Message], body: Body | None = None) -> tuple[Violation, ...]:
        """Return all violations of the rules for a single request, ordered by position."""
        request = Request(messages, body or {})
        return sort_violations(
            Violation(rule.id, *fault) for rule in self.rules for fault in rule.find_faults(request)
        )

    def check_continuity(self, before: Request, after: Request) -> tuple[Violation, ...]:
        """Return the violations of *after*, which follows *before*, ordered by position."""
        return sort_violations(
            Violation(rule.id, *fault)
            for rule in self.continuity
            if self.thinking in rule.thinking
            for fault in rule.find_faults(before, after)
        )

    def cuts(self, messages: Sequence[Message]) -> frozenset[int]:
        """Return the positions, from 0 to their number, at which *messages* may be cut."""
        request = Request(messages)
        joined = (pair for rule in self.rules if rule.join for pair in rule.join(request))
        return compute_cuts(len(messages), joined)


def find_nothing(request: Request) -> tuple[Fault, ...]:  # noqa: ARG001 - as every rule's
    """Return no faults, for a rule that only forbids cuts."""
    return ()


def sort_violations(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """Sort violations by position, then by rule."""
    return tuple(sorted(violations, key=lambda v: (v.at, v.rule)))


def compute_cuts(length: int, joined: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Return the cuts from 0 to *length*, except those from i+1 to j for each pair (i, j)."""
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


# --- repairs: each part of a message knows which entry it came from ---------------------------


class Ref(NamedTuple):
    """Position of a part before the repair: index of its entry, and index of the part in it."""

    at: int
    part: int


@dataclass(frozen=True, slots=True)
class RepairedEntry:
    """Entry of a conversation under repair."""

    message: Message
    refs: tuple[Ref | None, ...]
    """Original position of each part; None for a new part."""
    near: int
    """Original position of the entry, or of the entry that it was made for."""
    is_untouched: bool = False
    """Whether this is the unchanged entry at `near`."""


class Note(NamedTuple):
    """Log line of a repair: the entry's original position and what was done, in one sentence."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Repair:
    """Change made by a repair."""

    rule: str
    """Id of the violated rule, such as `AN-1`."""
    at: int
    """Position of the message in the original payload, without leading system messages."""
    text: str
    """What was done, in one sentence."""


@dataclass(frozen=True)
class BrokenRequest:
    """Request under repair."""

    entries: Sequence[RepairedEntry]
    body: Body
    """Fields of the request besides its conversation."""
    alternate: bool
    """Whether roles must alternate, so that neighbours of one role are merged."""

    @cached_property
    def request(self) -> Request:
        """The request in its current state."""
        return Request([entry.message for entry in self.entries], self.body)

    @property
    def messages(self) -> Sequence[Message]:
        """The messages in their current state."""
        return self.request.messages


RepairedEntries = tuple[Sequence[RepairedEntry], Sequence[Note]]
"""Entries of a request after a repair, and notes of what was done."""
RepairFunction = Callable[[BrokenRequest], RepairedEntries]
"""Function from a broken request to its repaired entries and notes; no notes if nothing changed."""

NO_RESULT = "[No result of this call was recorded.]"
"""Placeholder for a missing result. It is constant, so that a prompt cache holds."""
NO_CALL = "[Result of a call that is no longer part of this conversation]"
"""First line of the text of a result that had to stay without its call."""


def to_entries(messages: Iterable[Message]) -> list[RepairedEntry]:
    """Wrap messages as unchanged entries."""
    return [
        RepairedEntry(
            message, tuple(Ref(at, n) for n in range(len(message.parts))), at, is_untouched=True
        )
        for at, message in enumerate(messages)
    ]


def join(first: RepairedEntry, second: RepairedEntry) -> RepairedEntry:
    """Merge two neighbouring entries. If one is empty, return the other."""
    if not (first.refs and second.refs):
        return first if first.refs else second
    merged = replace(first.message, parts=(*first.message.parts, *second.message.parts))
    return RepairedEntry(merged, (*first.refs, *second.refs), first.near)


def remove(
    broken: BrokenRequest, gone: Mapping[int, set[int]], *, as_text: bool = True
) -> list[RepairedEntry]:
    """Return the entries without the parts in *gone*, which maps entry to part indexes.

    Entries left empty are removed, and their neighbours merged if roles alternate. The first one of
    the user stays if the conversation would otherwise be empty or, if roles alternate, begin with
    the assistant: as text if *as_text*, else unchanged. If nothing is left, nothing is removed.
    """
    entries = broken.entries
    remaining = [_without(entry, gone.get(at)) for at, entry in enumerate(entries)]
    out = list[RepairedEntry]()
    gap, first = False, next((entry for entry in remaining if entry.refs), None)
    for at, entry in enumerate(remaining):
        if at not in gone or entry.refs:
            closes = gap and broken.alternate and out and out[-1].message.role == entry.message.role
            out[-1:] = [join(out[-1], entry)] if closes else [*out[-1:], entry]
            gap = False
        elif out or not _must_stay(entry, first, alternate=broken.alternate):
            gap = True
        else:
            out.append(_as_text(entries[at]) if as_text else entries[at])
    return out or list(entries)


def remove_empty(broken: BrokenRequest, gone: Mapping[int, set[int]]) -> RepairedEntries:
    """Remove parts as `remove` does, with a note for each entry that was changed or removed."""
    out = remove(broken, gone, as_text=False)
    remaining = {(entry.near, entry.refs) for entry in out}
    mended = (broken.entries[at] for at in sorted(gone))
    changed = (entry.near for entry in mended if (entry.near, entry.refs) not in remaining)
    return out, [Note(near, "removed what is empty") for near in changed]


def _without(entry: RepairedEntry, parts: set[int] | None) -> RepairedEntry:
    if not parts:
        return entry
    rest = [n for n in range(len(entry.refs)) if n not in parts]
    message = replace(entry.message, parts=tuple(entry.message.parts[n] for n in rest))
    return RepairedEntry(message, tuple(entry.refs[n] for n in rest), entry.near)


def _must_stay(entry: RepairedEntry, first: RepairedEntry | None, *, alternate: bool) -> bool:
    """Return whether an empty entry must stay. *first* is the first one that is not empty, if any.

    Without it the conversation would be empty or, if roles alternate, begin with the assistant.
    """
    if entry.message.role == "assistant":
        return False
    return first is None or (alternate and first.message.role == "assistant")


def _as_text(entry: RepairedEntry) -> RepairedEntry:
    """Return the results of an entry as the text of a user message."""
    results = (part.text for part in entry.message.parts if isinstance(part, ToolResult))
    text = "\n".join([NO_CALL, *filter(None, results)])
    return RepairedEntry(Message("user", (Text(text),)), (None,), entry.near)


def remove_spots(broken: BrokenRequest, spots: Iterable[Spot], name: str) -> RepairedEntries:
    """Remove the parts at *spots*, which the notes call *name*; other parts stay."""
    gone, notes = defaultdict[int, set[int]](set), list[Note]()
    for spot in sorted(spots):
        gone[spot.at].add(spot.part)
        notes.append(Note(broken.entries[spot.at].near, f"removed {name} {spot.id!r}"))
    out = remove(broken, gone)
    return out, notes if out != list(broken.entries) else []


def take_out_unpaired(
    broken: BrokenRequest, pairing: Pairing, name: str, *, is_continued: bool = False
) -> RepairedEntries:
    """Remove second results, and results without a call unless the server may hold the call."""
    orphans = () if is_continued else pairing.orphans
    unpaired = (*orphans, *(pair.result for pair in pairing.again))
    return remove_spots(broken, unpaired, f"{name} without a call of its own,")
