"""Answers as entries of their own (OpenAI): where they belong."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from refold.messages import Message
from refold.rules.pairing import Pairing, Spot, pair_calls, turn_ends, with_strays
from refold.rules.repair_draft import (
    Entry,
    Mended,
    Repair,
    describe_insertion,
    describe_stand_in,
    messages_of,
    no_result,
)


def settle_entries(
    entries: Sequence[Entry], rule: str, pairing: Pairing, at: Iterable[int]
) -> Mended:
    """Put the answers to the calls of the messages *at* directly after each, in the order of the
    calls. Calls nobody answered get a result that says so."""
    results, concerned = dict(pairing.pairs), set(at)
    after, repairs = defaultdict[int, list[Entry]](list), list[Repair]()
    moved = {result.at for call, result in results.items() if call.at in concerned}
    for call in sorted((*results, *pairing.unanswered)):
        if call.at in concerned and call in results:
            after[call.at].append(entries[results[call].at])
        elif call.at in concerned:
            after[call.at].append(stand_in(entries[call.at], call))
            repairs.append(describe_stand_in(rule, entries[call.at], call))
    strayed = sorted(
        {
            call.at
            for call, result in results.items()
            if call.at in concerned and _strays(call, result, moved)
        }
    )
    repairs += (describe_insertion(rule, entries[n]) for n in strayed)
    out = ([*([] if n in moved else [entry]), *after.get(n, ())] for n, entry in enumerate(entries))
    return [entry for group in out for entry in group], repairs


def stand_in(entry: Entry, call: Spot) -> Entry:
    """The result of a call of *entry* that nobody answered, as an entry of its own."""
    return Entry(Message("tool", (no_result(call.id),)), (None,), entry.near)


def _strays(call: Spot, result: Spot, moved: set[int]) -> bool:
    """Does the result stand before its call, or something between them that is no result on its way
    to the same place?"""
    return result < call or any(n not in moved for n in range(call.at + 1, result.at))


def bring_back(entries: Sequence[Entry], rule: str) -> Mended:
    """Put results that stand before their call directly after its turn."""
    messages = messages_of(entries)
    ends, bare = turn_ends(messages), pair_calls(messages)
    matches = [
        match
        for match in with_strays(messages, bare, ends).pairs
        if match.result in set(bare.orphans)
    ]
    moved = {result.at for _, result in matches}
    after = defaultdict[int, list[Entry]](list)
    for call, result in matches:
        after[ends[call.at]].append(entries[result.at])
    out = [
        new
        for n, entry in enumerate(entries)
        for new in (*after.get(n, ()), *([] if n in moved else [entry]))
    ]
    repairs = [
        describe_insertion(rule, entries[at]) for at in sorted({call.at for call, _ in matches})
    ]
    return [*out, *after.get(len(entries), ())], repairs


def add_after_turns(entries: Sequence[Entry], rule: str, calls: Iterable[Spot]) -> Mended:
    """Give calls a result that says that there is none, directly after their turn."""
    ends, after, repairs = (
        turn_ends(messages_of(entries)),
        defaultdict[int, list[Entry]](list),
        list[Repair](),
    )
    for call in calls:
        after[ends[call.at]].append(stand_in(entries[call.at], call))
        repairs.append(describe_stand_in(rule, entries[call.at], call))
    out = [new for n, entry in enumerate(entries) for new in (*after.get(n, ()), entry)]
    return [*out, *after.get(len(entries), ())], repairs
