"""Repairs that move results and system messages to their place, and answer calls without a result.

Anthropic and Gemini require results first in the user message after the calling turn. OpenAI's
formats require them as entries of their own, after the message (Chat) or the turn (Responses).
"""

from bisect import bisect
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import NamedTuple

from refold.messages import Message, Part, Text, ToolCall, ToolResult
from refold.rules.pairing import Pair, Pairing, Spot, with_strays
from refold.rules.rule import (
    NO_RESULT,
    BrokenRequest,
    Note,
    Ref,
    RepairedEntries,
    RepairedEntry,
    remove,
)


class CallAnswer(NamedTuple):
    """Call and its existing result, or None."""

    call: Spot
    result: Spot | None


AnswersByPlace = Mapping[int, Sequence[CallAnswer]]
"""Answers by the position of the entry that they belong before or into."""


# --- results as entries (OpenAI) ---------------------------------------------------------------


def settle_entries(broken: BrokenRequest, pairing: Pairing, at: Iterable[int]) -> RepairedEntries:
    """Put the results, or placeholders, of the calls of each of the messages *at* directly after
    it, in the order of the calls."""
    results, concerned = dict(pairing.pairs), set(at)
    answers = defaultdict[int, list[CallAnswer]](list)
    for call in sorted((*results, *pairing.unanswered)):
        if call.at in concerned:
            answers[call.at + 1].append(CallAnswer(call, results.get(call)))
    return _place_entries(broken, answers)


def bring_back_entries(broken: BrokenRequest) -> RepairedEntries:
    """Put results that precede their call directly after the call's turn."""
    request, answers = broken.request, defaultdict[int, list[CallAnswer]](list)
    for call, result in _strays(broken, request.full_pairing):
        answers[request.turn_ends[call.at]].append(CallAnswer(call, result))
    return _place_entries(broken, answers)


def answer_calls(broken: BrokenRequest) -> RepairedEntries:
    """Put placeholder results for unanswered calls directly after their turn."""
    request, answers = broken.request, defaultdict[int, list[CallAnswer]](list)
    for call in request.full_pairing.unanswered:
        answers[request.turn_ends[call.at]].append(CallAnswer(call, None))
    return _place_entries(broken, answers)


def _place_entries(broken: BrokenRequest, answers: AnswersByPlace) -> RepairedEntries:
    moved = {answer.result.at for answer in chain(*answers.values()) if answer.result}
    out = list[RepairedEntry]()
    for at in range(len(broken.entries) + 1):
        for call, result in answers.get(at, ()):
            near = broken.entries[call.at].near
            out.append(
                broken.entries[result.at]
                if result
                else RepairedEntry(Message("tool", (no_result(call.id),)), (None,), near)
            )
        out += broken.entries[at : at + 1] if at not in moved else ()
    strayed = {
        answer.call.at
        for home, group in answers.items()
        for answer in group
        if answer.result and _is_astray(answer.call, answer.result, home, moved)
    }
    return out, list(_notes(broken, answers, sorted(strayed)))


def _is_astray(call: Spot, result: Spot, home: int, moved: set[int]) -> bool:
    """Return whether a result is before its call, or behind an entry that stays where it is."""
    return result < call or any(n not in moved for n in range(home, result.at))


# --- results as blocks (Anthropic, Gemini) -----------------------------------------------------


def settle_blocks(broken: BrokenRequest, at: Iterable[int]) -> RepairedEntries:
    """Put answers first into the message after their turn, in the order of the calls.

    *at* are the positions of faults; other turns are left alone.
    """
    ends, messages = broken.request.turn_ends, broken.messages
    homes = {ends[n] if messages[n].role == "assistant" else n for n in at}
    answers = {
        home: group
        for home, group in _find_answers(broken).items()
        if home in homes and not _is_settled(group, home)
    }
    strayed = (
        group[0].call.at
        for home, group in answers.items()
        if not _is_settled([answer for answer in group if answer.result], home)
    )
    return _place_blocks(broken, answers), list(_notes(broken, answers, strayed))


def move_stray_results(broken: BrokenRequest) -> RepairedEntries:
    """Move results that precede their call, or are known only by the tool's name, to their
    place."""
    orphans = set(broken.request.pairing.orphans)
    positions = [call.at for call, result in _pair_strays(broken).pairs if result in orphans]
    return settle_blocks(broken, positions) if positions else (broken.entries, ())


def _find_answers(broken: BrokenRequest) -> dict[int, list[CallAnswer]]:
    """Return the answers by the message that they belong in, without pending calls.

    If calls of one turn share an id, the first gets the first result. None gets a placeholder if
    another has a result, because the provider could not tell them apart.
    """
    ends, pairing = broken.request.turn_ends, _pair_strays(broken)
    results = defaultdict[tuple[int, str], deque[Spot]](deque)
    for call, result in sorted(pairing.pairs, key=lambda pair: pair.result):
        results[ends[call.at], call.id].append(result)
    taken, answers = set(results), defaultdict[int, list[CallAnswer]](list)
    for call in sorted((*(pair.call for pair in pairing.pairs), *pairing.unanswered)):
        home, waiting = ends[call.at], results[ends[call.at], call.id]
        if broken.messages[call.at].role != "assistant":  # other roles have no place for results
            continue
        if waiting or (home, call.id) not in taken:
            answers[home].append(CallAnswer(call, waiting.popleft() if waiting else None))
            taken.add((home, call.id))
    return answers


def _pair_strays(broken: BrokenRequest) -> Pairing:
    """Pair calls with results, including results before their calls.

    Excluded are those of a first message without which the conversation would begin with the
    assistant (AN-4, GE-4). An empty message before them stays.
    """
    bare, messages, ends = broken.request.pairing, broken.messages, broken.request.turn_ends
    pairing = with_strays(messages, bare, ends)
    speeches = (
        n for n, message in enumerate(messages) if message.parts and message.role == "assistant"
    )
    first = next(speeches, len(messages))
    sizes = [len(message.parts) for message in messages[:first]]
    early = sum(1 for call, result in pairing.pairs if result.at < first <= call.at)
    if early and early == sum(sizes) and sizes[0]:
        later = tuple(spot for spot in bare.orphans if spot.at)
        return with_strays(messages, replace(bare, orphans=later), ends)
    return pairing


def _is_settled(answers: Sequence[CallAnswer], home: int) -> bool:
    """Return whether the results are already first at *home*, in this order."""
    places = [answer.result and answer.result[:2] for answer in answers]
    return places == [(home, n) for n in range(len(answers))]


def _place_blocks(broken: BrokenRequest, answers: AnswersByPlace) -> list[RepairedEntry]:
    """Return the entries with the answers in place, without messages that became empty."""
    moved = defaultdict[int, set[int]](set)
    for answer in chain(*answers.values()):
        if answer.result:
            moved[answer.result.at].add(answer.result.part)
    out, gone = list[RepairedEntry](), dict[int, set[int]]()
    for at, entry in enumerate(broken.entries):
        results = [_locate(broken, answer) for answer in answers.get(at, ())]
        if results and entry.message.role not in ("user", "tool"):
            out.append(_prepend(results, RepairedEntry(Message("user"), (), entry.near)))
            results = []
        if at in moved:
            gone[len(out)] = {len(results) + n for n in moved[at]}
        out.append(_prepend(results, entry) if results else entry)
    if last := [_locate(broken, answer) for answer in answers.get(len(broken.entries), ())]:
        out.append(_prepend(last, RepairedEntry(Message("user"), (), broken.entries[-1].near)))
    return remove(replace(broken, entries=out), gone)


def _prepend(results: Sequence[tuple[Part, Ref | None]], entry: RepairedEntry) -> RepairedEntry:
    parts = (*(part for part, _ in results), *entry.message.parts)
    refs = (*(ref for _, ref in results), *entry.refs)
    return RepairedEntry(replace(entry.message, parts=parts), refs, entry.near)


def _locate(broken: BrokenRequest, answer: CallAnswer) -> tuple[Part, Ref | None]:
    """Return the part of a result and its original position, None for a placeholder."""
    call, result = answer
    if result is None:
        part = broken.messages[call.at].parts[call.part]
        return no_result(call.id, part.name if isinstance(part, ToolCall) else ""), None
    entry = broken.entries[result.at]
    return entry.message.parts[result.part], entry.refs[result.part]


# --- both --------------------------------------------------------------------------------------


def _strays(broken: BrokenRequest, pairing: Pairing) -> list[Pair]:
    """Return pairs whose result precedes the call, or can only be matched by the tool's name."""
    orphans = set(pairing.orphans)
    pairs = with_strays(broken.messages, pairing, broken.request.turn_ends).pairs
    return [pair for pair in pairs if pair.result in orphans]


def no_result(id: str, name: str = "") -> ToolResult:
    """Return a placeholder result for an unanswered call."""
    return ToolResult(id, (Text(NO_RESULT),), error=True, name=name)


def _notes(
    broken: BrokenRequest, answers: AnswersByPlace, strayed: Iterable[int]
) -> Iterator[Note]:
    """Report added results, and the messages *strayed* whose results were moved."""
    for call, result in chain(*answers.values()):
        if result is None:
            text = f"added a result to call {call.id!r}, which says that none was recorded"
            yield Note(broken.entries[call.at].near, text)
    for at in strayed:
        text = "put results directly after their calls, in the order of the calls"
        yield Note(broken.entries[at].near, text)


# --- system messages between the others (Anthropic) --------------------------------------------


def settle_system(
    broken: BrokenRequest, misplaced: Iterable[int], may_precede_system: Callable[[Message], bool]
) -> RepairedEntries:
    """Move the *misplaced* system messages behind the next message that may precede them.

    That is one accepted by *may_precede_system* that the assistant answers or that is last. If none
    follows, the last one before them is used.
    """
    moved, messages = set(misplaced), broken.messages
    speakers = [n for n, message in enumerate(messages) if message.role != "system"]
    places = [
        at
        for at, following in zip_longest(speakers, speakers[1:])
        if may_precede_system(messages[at])
        and (following is None or messages[following].role == "assistant")
    ]
    if not (moved and places):
        return broken.entries, []

    def find_place(at: int) -> tuple[int, bool, int]:
        """Return the sort key of an entry: the message it follows, that message first, then its
        position."""
        if at in moved:
            place = places[min(bisect(places, at), len(places) - 1)]
        else:
            place = speakers[bisect(speakers, at) - 1] if at >= speakers[0] else -1
        return place, at != place, at

    entries = [broken.entries[at] for at in sorted(range(len(messages)), key=find_place)]
    notes = (Note(broken.entries[at].near, "moved behind words of the user's") for at in moved)
    return entries, sorted(notes)
