"""What the Responses API refuses (OA-2 to OA-6, OA-9, OA-10)."""

from collections.abc import Iterator, Sequence
from typing import Any

from refold.messages import Message, Opaque, Thinking, ToolCall
from refold.rules.pairing import Spot
from refold.rules.repair_results import answer_calls, bring_back_entries
from refold.rules.request import (
    LIMIT_ALONE,
    LIMIT_CHOICE,
    LIMIT_SAME_ID,
    Fault,
    Request,
    entry_fields,
    find_call_faults,
    find_result_faults,
    fingerprint,
)
from refold.rules.rule import (
    BrokenRequest,
    ContinuityRule,
    Note,
    RepairedEntries,
    Rule,
    find_nothing,
    remove_spots,
    take_out_unpaired,
)
from refold.text.json_values import int_at, text_at

SERVER_HELD = ("previous_response_id", "conversation")
"""Fields that tell that the server holds a part of the conversation."""
TRUNCATIONS = ("auto", "disabled")
REASONING = "calls keep the reasoning that they were made with"


def _has(message: Message, kind: str) -> bool:
    """Return whether a message holds an opaque item of this kind."""
    if Opaque not in map(type, message.parts):  # cheap check, nearly always true
        return False
    return any(isinstance(part, Opaque) and part.kind == kind for part in message.parts)


def _positions(request: Request, kind: str) -> list[int]:
    return [at for at, message in enumerate(request.messages) if _has(message, kind)]


# --- OA-2: outputs -----------------------------------------------------------------------------


def find_broken_pairs(request: Request) -> Iterator[Fault]:
    """Report calls without an output, and outputs without a call before them (OA-2).

    Calls that the server holds, or an item refers to, are assumed to exist.
    """
    yield from find_call_faults(request.full_pairing)
    yield from find_result_faults(request.full_pairing, is_continued=_is_elsewhere(request))


def join_pairs(request: Request) -> Iterator[tuple[int, int]]:
    """Keep calls and outputs together.

    An output without a visible call may answer one of the item references before it. It is kept
    together with everything from the start of the latest model turn that has such a reference.
    """
    yield from request.full_pairing.inseparable
    strays, turn, latest = {spot.at for spot in request.full_pairing.orphans}, 0, -1
    for at, message in enumerate(request.messages):
        if at in strays and latest >= 0:
            yield latest, at
        if message.role != "assistant":
            turn = at + 1
        elif _has(message, "item_reference"):
            latest = turn


def _is_elsewhere(request: Request) -> bool:
    """Return whether the server may hold a part of the conversation."""
    is_stored = any(request.body.get(field) for field in SERVER_HELD)
    return is_stored or bool(_positions(request, "item_reference"))


def return_outputs(broken: BrokenRequest) -> RepairedEntries:
    """Move outputs that precede their call behind it, unless the server may hold it (OA-2)."""
    return (broken.entries, ()) if _is_elsewhere(broken.request) else bring_back_entries(broken)


def drop_calls(broken: BrokenRequest) -> RepairedEntries:
    """Remove unanswered calls of kinds for which Refold cannot write an output (OA-2)."""
    unanswered = broken.request.full_pairing.unanswered
    parts = {spot: broken.messages[spot.at].parts[spot.part] for spot in unanswered}
    strange = [spot for spot, part in parts.items() if not isinstance(part, ToolCall)]
    return remove_spots(broken, strange, "a call without an output,")


def drop_outputs(broken: BrokenRequest) -> RepairedEntries:
    """Remove second outputs, and outputs without a call unless the server may hold it (OA-2)."""
    pairing, is_continued = broken.request.full_pairing, _is_elsewhere(broken.request)
    return take_out_unpaired(broken, pairing, "an output", is_continued=is_continued)


# --- OA-3 to OA-5: reasoning -------------------------------------------------------------------


def _reasoning(messages: Sequence[Message]) -> Iterator[int]:
    """Return the positions of reasoning items, which are separate items in this API."""
    return (
        at
        for at, message in enumerate(messages)
        if message.role == "assistant" and _is_reasoning(message)
    )


def _is_reasoning(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(part, Thinking) for part in message.parts)


def _leads_on(messages: Sequence[Message], at: int) -> bool:
    return at + 1 == len(messages) or messages[at + 1].role == "assistant"


def find_lone_reasoning(request: Request) -> Iterator[Fault]:
    """Report reasoning that something else than an item of the model follows (OA-3)."""
    for at in _reasoning(request.messages):
        if not _leads_on(request.messages, at):
            text = "reasoning is not followed by the message or call that it led to"
            yield Fault(at, text, fingerprint(request.messages[at]))


def join_followers(request: Request) -> Iterator[tuple[int, int]]:
    """Keep reasoning with the message or call after it (OA-3). At the end, no cut is behind it."""
    positions = _reasoning(request.messages)
    return ((at, at + 1) for at in positions if _leads_on(request.messages, at))


def drop_lone_reasoning(broken: BrokenRequest) -> RepairedEntries:
    """Remove reasoning that something else than an item of the model follows (OA-3)."""
    spots = (
        Spot(fault.at, part, fault.subject)
        for fault in find_lone_reasoning(broken.request)
        for part in range(len(broken.messages[fault.at].parts))
    )
    return remove_spots(broken, spots, "reasoning that nothing follows,")


def join_reasoning(request: Request) -> Iterator[tuple[int, int]]:
    """Keep reasoning with everything after it in its turn (OA-4).

    The items do not say which call belongs to it. OA-2 adds the outputs.
    """
    ends = request.turn_ends
    return ((at, ends[at] - 1) for at in _reasoning(request.messages))


def find_open_reasoning(request: Request) -> Iterator[Fault]:
    """Report reasoning without encrypted content if `store` is false (OA-5): add it to
    `include`."""
    text = (
        "reasoning without encrypted_content in a request that is not stored; ask for it in include"
    )
    for at in _reasoning(request.messages) if request.body.get("store") is False else ():
        message = request.messages[at]
        if not all(part.signature for part in message.parts if isinstance(part, Thinking)):
            yield Fault(at, text, fingerprint(message))


def find_lost_reasoning(before: Request, after: Request) -> Iterator[Fault]:
    """Report items sent with their id but without the reasoning before them in their turn (OA-4).

    The API links no reasoning to an item without `id`. Nothing is reported if the server may hold a
    part of the conversation, or the API has compacted it since.
    """
    compactions = [len(_positions(request, "compaction")) for request in (before, after)]
    if _is_elsewhere(after) or compactions[0] != compactions[1]:
        return
    sent, needed = {_name(after, at) for at in _reasoning(after.messages)}, _companions(before)
    for at, message in enumerate(after.messages):
        item_id = text_at(entry_fields(after.entries[at]), "id")
        for id in (message.calls or (item_id,)) if item_id else ():
            if needed.get(id, frozenset()) - sent:
                yield Fault(at, f"{id!r} is sent without the reasoning that it was made with", id)


def _companions(request: Request) -> dict[str, frozenset[str]]:
    """Map the id of each call or other item to the name of the latest reasoning in its turn up to
    it, if any."""
    companions, last = dict[str, frozenset[str]](), frozenset[str]()
    for at, message in enumerate(request.messages):
        if message.role != "assistant":
            last = frozenset()
        elif _is_reasoning(message):
            last = frozenset({_name(request, at)})
        own = message.calls or (text_at(entry_fields(request.entries[at]), "id"),)
        companions |= dict.fromkeys(own, last)
    return companions


def _name(request: Request, at: int) -> str:
    """Return the id of a reasoning item, or a hash of its text."""
    return text_at(entry_fields(request.entries[at]), "id") or fingerprint(request.messages[at])


# --- OA-6, OA-9, OA-10: compaction and truncation ----------------------------------------------


def find_wrong_management(request: Request) -> Iterator[Fault]:
    """Report context management other than `compaction` with a positive token threshold (OA-6)."""
    for text in _management_errors(request.body.get("context_management")):
        yield Fault(0, text, "context_management")


def _management_errors(entries: Any) -> Iterator[str]:
    if entries is not None and not isinstance(entries, list | tuple):
        yield "context_management is a list"
    for entry in entries if isinstance(entries, list | tuple) else ():
        if text_at(entry, "type") != "compaction":
            yield "an entry of context_management is not of the type compaction"
        elif entry.get("compact_threshold") is not None and int_at(entry, "compact_threshold") <= 0:
            yield "compact_threshold is no number of tokens above 0"


def find_wrong_truncation(request: Request) -> Iterator[Fault]:
    """Report a `truncation` other than `auto` and `disabled` (OA-10)."""
    value = request.body.get("truncation")
    if value is not None and value not in TRUNCATIONS:
        yield Fault(0, f"truncation is {' or '.join(TRUNCATIONS)}", "truncation")


def find_early_triggers(request: Request) -> Iterator[Fault]:
    """Report compaction triggers that are not the last item (OA-9)."""
    for at in _positions(request, "compaction_trigger"):
        if at < len(request.messages) - 1:
            yield Fault(at, "what asks for compaction is not the last item", "compaction_trigger")


def join_trigger(request: Request) -> tuple[tuple[int, int], ...]:
    """Forbid a cut behind a final compaction trigger, so that it is never hidden (OA-9)."""
    last = len(request.messages) - 1
    return ((last, last + 1),) if last in _positions(request, "compaction_trigger") else ()


def put_trigger_last(broken: BrokenRequest) -> RepairedEntries:
    """Move the latest compaction trigger to the end, and remove the others."""
    entries, positions = broken.entries, _positions(broken.request, "compaction_trigger")
    rest = [entry for at, entry in enumerate(entries) if at not in positions]
    notes = list[Note]()
    for fault in find_early_triggers(broken.request):
        is_latest = fault.at == positions[-1]
        text = "moved to the end" if is_latest else "removed: another asks for compaction"
        notes.append(Note(entries[fault.at].near, text))
    return [*rest, *(entries[at] for at in positions[-1:])], notes


RULES: tuple[Rule, ...] = (
    Rule(
        "OA-2",
        "every call has an output and every output a call",
        find_broken_pairs,
        join_pairs,
        (return_outputs, drop_calls, answer_calls, drop_outputs),
        LIMIT_SAME_ID,
    ),
    Rule(
        "OA-3",
        "reasoning is followed by what it led to",
        find_lone_reasoning,
        join_followers,
        (drop_lone_reasoning,),
        LIMIT_ALONE,
    ),
    Rule("OA-4", REASONING, find_nothing, join_reasoning),
    Rule(
        "OA-5",
        "requests that are not stored carry encrypted reasoning",
        find_open_reasoning,
        limit="the encrypted content is not here, and without their reasoning the calls it led to "
        "are refused (OA-4)",
    ),
    Rule(
        "OA-6",
        "context management knows compaction alone",
        find_wrong_management,
        limit=LIMIT_CHOICE,
    ),
    Rule(
        "OA-9",
        "what asks for compaction is the last item",
        find_early_triggers,
        join_trigger,
        (put_trigger_last,),
    ),
    Rule("OA-10", "truncation is auto or disabled", find_wrong_truncation, limit=LIMIT_CHOICE),
)
"""All rules of this API for a single request."""

CONTINUITY: tuple[ContinuityRule, ...] = (
    ContinuityRule("OA-4", REASONING, find_lost_reasoning, ("fixed",)),
)
"""All rules of this API about what a request must keep of the previous one."""
