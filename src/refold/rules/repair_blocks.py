"""Answers as blocks of the message after an assistant turn (Anthropic, Gemini): where they belong."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from refold.messages import Message, Part, ToolCall
from refold.rules.pairing import Pairing, Spot, client_ids, pair_calls, turn_ends, with_strays
from refold.rules.repair_draft import (
    Entry,
    Mended,
    Ref,
    Repair,
    describe_insertion,
    describe_stand_in,
    messages_of,
    no_result,
    pick,
    prepend,
    remove,
)

Found = tuple[Part, Ref | None]
"""A result, and where it was; None for one that was made."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one call: a result that is there, or None."""

    call: Spot
    result: Spot | None


def settle_blocks(entries: Sequence[Entry], rule: str, at: Iterable[int]) -> Mended:
    """Put the answers to the turns concerned first into the message after each, in the order of the
    calls; *at* are the positions of violations. Calls nobody answered get a result that says so."""
    messages = messages_of(entries)
    ends = turn_ends(messages)
    homes = {ends[n] if messages[n].role == "assistant" else n for n in at}
    wanted = {home: answers for home, answers in _answers(messages, ends).items() if home in homes}
    wanted = {home: answers for home, answers in wanted.items() if not _is_settled(answers, home)}
    if not wanted:
        return list(entries), []
    return _move(entries, wanted), list(_repairs(entries, rule, wanted))


def _answers(messages: Sequence[Message], ends: Sequence[int]) -> dict[int, list[Answer]]:
    """For each home the answers that belong there, pending calls left out. Of calls of one turn that
    share an id the first gets the first result, and none gets one that says that there is none
    where another has one: the provider could not tell them apart."""
    pairing, answers = home_pairing(messages, ends), defaultdict[int, list[Answer]](list)
    results = defaultdict[tuple[int, str], deque[Spot]](deque)
    for call, result in sorted(pairing.pairs, key=lambda pair: pair.result):
        results[ends[call.at], call.id].append(result)
    taken = set(results)
    calls = chain((pair.call for pair in pairing.pairs), pairing.unanswered)
    for call in sorted(
        call for call in calls if messages[call.at].role == "assistant"
    ):  # others have no home (C10)
        key = (ends[call.at], call.id)
        if results[key] or key not in taken:
            answers[ends[call.at]].append(
                Answer(call, results[key].popleft() if results[key] else None)
            )
            taken.add(key)
    return answers


def home_pairing(messages: Sequence[Message], ends: Sequence[int]) -> Pairing:
    """Which result answers which call, results before their calls included: but not those without
    which the conversation would begin with the assistant (AN-4, GE-4)."""
    bare = pair_calls(messages, client_ids)
    pairing = with_strays(messages, bare, ends)
    first = next(
        (at for at, message in enumerate(messages) if message.role == "assistant"), len(messages)
    )
    parts = sum(len(message.parts) for message in messages[:first])
    early = sum(1 for call, result in pairing.pairs if result.at < first <= call.at)
    return bare if early and early == parts else pairing


def bring_back(entries: Sequence[Entry], rule: str) -> Mended:
    """Put results that stand before their call, or far behind it, where they belong."""
    messages = messages_of(entries)
    ends = turn_ends(messages)
    orphans = set(pair_calls(messages, client_ids).orphans)
    positions = [
        call.at for call, result in home_pairing(messages, ends).pairs if result in orphans
    ]
    return settle_blocks(entries, rule, positions) if positions else (list(entries), [])


def _is_settled(answers: Sequence[Answer], home: int) -> bool:
    """Do these results stand first at home already, in this order?"""
    places = [answer.result and answer.result[:2] for answer in answers]
    return places == [(home, n) for n in range(len(answers))]


def _repairs(
    entries: Sequence[Entry], rule: str, wanted: Mapping[int, Sequence[Answer]]
) -> Iterator[Repair]:
    for home, answers in wanted.items():
        missing = [answer.call for answer in answers if answer.result is None]
        yield from (describe_stand_in(rule, entries[call.at], call) for call in missing)
        if not _is_settled([answer for answer in answers if answer.result], home):
            yield describe_insertion(rule, entries[answers[0].call.at])


def _move(entries: Sequence[Entry], wanted: Mapping[int, Sequence[Answer]]) -> list[Entry]:
    """*entries* with the answers at home; messages that lost all they had are gone."""
    moved = defaultdict[int, set[int]](set)
    for answer in chain.from_iterable(wanted.values()):
        if answer.result:
            moved[answer.result.at].add(answer.result.part)
    out, emptied = list[Entry](), dict[int, set[int]]()
    for at, entry in enumerate(entries):
        results = [_locate(entries, answer) for answer in wanted.get(at, ())]
        if results and entry.message.role not in ("user", "tool"):
            out.append(_of_results(results, entry.near))
            results = []
        if not results and len(moved.get(at, ())) == len(entry.refs) > 0:
            emptied[len(out)] = moved[at]
            out.append(entry)
        else:
            rest = pick(entry, lambda n, at=at: n not in moved.get(at, ()))  # type: ignore[misc]  # at: int
            out.append(prepend(rest, results) if results else rest)
    last = [_locate(entries, answer) for answer in wanted.get(len(entries), ())]
    out += [_of_results(last, entries[-1].near)] if last else []
    return remove(out, emptied, alternate=True)


def _locate(entries: Sequence[Entry], answer: Answer) -> Found:
    if answer.result is None:
        call = entries[answer.call.at].message.parts[answer.call.part]
        return no_result(answer.call.id, call.name if isinstance(call, ToolCall) else ""), None
    entry = entries[answer.result.at]
    return entry.message.parts[answer.result.part], entry.refs[answer.result.part]


def _of_results(results: Sequence[Found], near: int) -> Entry:
    return Entry(
        Message("user", tuple(part for part, _ in results)), tuple(ref for _, ref in results), near
    )
