"""How broken pairs are mended: halves are taken out, calls nobody answered get an answer that says so."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from refold.messages import Message
from refold.rules.draft import Entry, Mended, Repair, remove
from refold.rules.pairing import Spot


def messages_of(entries: Iterable[Entry]) -> list[Message]:
    """The messages of a draft."""
    return [entry.message for entry in entries]


def take_out(entries: Sequence[Entry], rule: str, spots: Iterable[Spot], why: str, *, alternate: bool) -> Mended:
    """Remove calls or results; *why* says what they are. Other parts of their messages stay."""
    gone, repairs = defaultdict[int, set[int]](set), list[Repair]()
    for spot in spots:
        gone[spot.at].add(spot.part)
        repairs.append(Repair(rule, entries[spot.at].near, f"removed {why} {spot.id!r}"))
    out = remove(entries, gone, alternate=alternate)
    return out, repairs if out != list(entries) else []


def stood_in(rule: str, entry: Entry, call: Spot) -> Repair:
    """The repair of a call of *entry* that nobody answered."""
    return Repair(rule, entry.near, f"added a result to call {call.id!r}, which says that none was recorded")


def put_after(rule: str, entry: Entry) -> Repair:
    """The repair that results were moved to."""
    return Repair(rule, entry.near, "put results directly after their calls, in the order of the calls")


def in_turn(entries: Sequence[Entry], *mends: Callable[[Sequence[Entry]], Mended]) -> Mended:
    """One mend after the other."""
    now, repairs = list(entries), list[Repair]()
    for mend in mends:
        now, done = mend(now)
        repairs += done
    return now, repairs
