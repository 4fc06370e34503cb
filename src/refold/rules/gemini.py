"""What Gemini's generateContent refuses (GE-1 to GE-4, GE-EP)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from refold.messages import Message, ToolCall, ToolResult
from refold.rules.pairing import Pair, pair_calls, server_ids, without_ids
from refold.rules.repair_results import move_stray_results, settle_blocks
from refold.rules.request import (
    LIMIT_SAME_ID,
    ContentLine,
    Fault,
    Request,
    entry_fields,
    find_call_faults,
    find_lost_attachments,
    find_repeated_ids,
    find_result_faults,
    find_role_faults,
)
from refold.rules.rule import (
    BrokenRequest,
    ContinuityRule,
    Note,
    RepairedEntries,
    RepairedEntry,
    Rule,
    join,
    remove_empty,
    take_out_unpaired,
)
from refold.text.json_values import Record, text_at
from refold.transcript import hash_message

SIGNED_FROM = 3
"""First version of Gemini that refuses a function call without its signature (GE-3)."""
UNSIGNED = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
"""Values accepted in place of an unknown signature."""

_ROLES = frozenset({"user", "assistant", "tool"})
_VERSION = re.compile(r"gemini-(\d+)")


# --- GE-1: turns -------------------------------------------------------------------------------


def find_late_calls(request: Request) -> Iterator[Fault]:
    """Report calls that do not directly follow the user or responses (GE-1)."""
    for at, message in enumerate(request.messages):
        if message.calls and (not at or request.messages[at - 1].role == "assistant"):
            text = "a turn that calls functions does not follow a turn of the user"
            yield Fault(at, text, message.calls[0])


def join_calling_turns(broken: BrokenRequest) -> RepairedEntries:
    """Merge a turn with function calls into the model's turn before it (GE-1)."""
    return _join_turns(broken, lambda _, entry: bool(entry.calls))


def _join_turns(
    broken: BrokenRequest, belong: Callable[[Message, Message], bool]
) -> RepairedEntries:
    """Merge neighbouring model messages for which *belong* is true."""
    out, notes = list[RepairedEntry](), list[Note]()
    for entry in broken.entries:
        before = out[-1].message if out else Message("user")
        if before.role == entry.message.role == "assistant" and belong(before, entry.message):
            out[-1] = join(out[-1], entry)
            notes.append(Note(entry.near, "joined with the model's turn before it"))
        else:
            out.append(entry)
    return out, notes


# --- GE-2: responses ---------------------------------------------------------------------------


def find_broken_responses(request: Request) -> Iterator[Fault]:
    """Report responses that differ in number or order from the calls of the turn before, and ids
    that a turn repeats (GE-2). Without ids only the order tells which call each answers."""
    yield from find_call_faults(request.pairing, request.misplaced_pairs)
    yield from _find_disorder(request)
    yield from find_result_faults(request.pairing)
    yield from find_repeated_ids(request)


def _find_disorder(request: Request) -> Iterator[Fault]:
    """Report responses in the right message that come before the response of an earlier call.

    Messages with a response whose name differs from its call's are skipped: the match is a guess,
    so positions mean nothing.
    """
    ends = request.turn_ends
    home = sorted(pair for pair in request.pairing.pairs if pair.result.at == ends[pair.call.at])
    vague = {pair.result.at for pair in home if not _is_namesake(request, pair)}
    last: Pair | None = None
    for pair in (pair for pair in home if pair.result.at not in vague):
        if last and last.result.at == pair.result.at and last.result.part > pair.result.part:
            text = f"response {pair.result.id!r} stands before that of an earlier call"
            yield Fault(pair.result.at, text, pair.result.id)
        else:
            last = pair


def _is_namesake(request: Request, pair: Pair) -> bool:
    call, result = (request.messages[spot.at].parts[spot.part] for spot in pair)
    return (
        isinstance(call, ToolCall)
        and isinstance(result, ToolResult)
        and result.name in ("", call.name)
    )


def join_pairs(request: Request) -> Iterator[tuple[int, int]]:
    """Keep calls and responses together, including those of server tools."""
    server = pair_calls(request.messages, server_ids)
    return chain(request.pairing.inseparable, server.inseparable)


def join_answered_turns(broken: BrokenRequest) -> RepairedEntries:
    """Merge a model turn into the turn of calls before it; ids are then assigned again (GE-2)."""
    return _join_turns(broken, lambda before, _: bool(before.calls))


def settle_responses(broken: BrokenRequest) -> RepairedEntries:
    """Move responses to their place, answer calls without one, and remove the rest (GE-2).

    All this happens before the ids, which are made from positions, are assigned again.
    """
    faults = find_broken_responses(broken.request)
    entries, settled = settle_blocks(broken, [fault.at for fault in faults])
    broken = replace(broken, entries=entries)
    entries, dropped = take_out_unpaired(broken, broken.request.pairing, "a response")
    return entries, [*settled, *dropped]


# --- GE-4: roles -------------------------------------------------------------------------------


def find_wrong_roles(request: Request) -> Iterator[Fault]:
    """Report contents that do not start with the user, and roles other than user and model
    (GE-4)."""
    return find_role_faults(request, _ROLES)


# --- GE-3: signatures --------------------------------------------------------------------------


def find_lost_signatures(before: Request, after: Request) -> Iterator[Fault]:
    """Report function calls that lost their `thoughtSignature` (GE-3).

    In the current turn, everything since the user last spoke, it must be present. Elsewhere it may
    be missing but not changed. Older models need none, and the API asks for none on other parts.
    """
    version = _VERSION.search(str(after.body.get("model")))
    if version and int(version[1]) < SIGNED_FROM:
        return
    turn = max((at for at, message in enumerate(after.messages) if message.is_request), default=0)
    lines = _lines(after)
    for lapse in find_lost_attachments(
        [line for _, line in _lines(before)], [line for _, line in lines]
    ):
        at, ((_, n), _) = lines[lapse.at]
        is_refused = at >= turn if lapse.has is None else lapse.has not in UNSIGNED
        if None not in lapse.had and is_refused:
            problem = "is missing" if lapse.has is None else "was changed"
            yield Fault(at, f"the thoughtSignature of a function call {problem}", f"{at}.{n}")


def _lines(request: Request) -> list[tuple[int, ContentLine]]:
    """Return each call's content and signature with the position of its message, and a line for
    each message without calls."""
    lines = list[tuple[int, ContentLine]]()
    for at, message in enumerate(request.messages):
        words, blocks = hash_message(without_ids(message)), _call_blocks(request.entries[at])
        lines += ((at, ((words, n), _signature(block))) for n, block in enumerate(blocks))
        lines += [] if blocks else [(at, ((words, -1), None))]
    return lines


def _call_blocks(entry: Any) -> list[Record]:
    blocks = entry_fields(entry).get("parts")
    fields = map(entry_fields, blocks if isinstance(blocks, list | tuple) else ())
    return [
        block
        for block in fields
        if "text" not in block and (block.get("functionCall") or block.get("function_call"))
    ]


def _signature(block: Record) -> str | None:
    return text_at(block, "thoughtSignature") or text_at(block, "thought_signature") or None


# --- GE-EP: contents without parts -------------------------------------------------------------


def find_empty_contents(request: Request) -> Iterator[Fault]:
    """Report contents without parts, such as an answer cut off by its token limit (GE-EP)."""
    for at, message in enumerate(request.messages):
        if not message.parts:
            yield Fault(at, "the content has no parts", "parts")


def drop_empty_contents(broken: BrokenRequest) -> RepairedEntries:
    """Remove contents without parts (GE-EP). The first one stays if the model's would follow."""
    return remove_empty(broken, {fault.at: set() for fault in find_empty_contents(broken.request)})


RULES: tuple[Rule, ...] = (
    Rule(
        "GE-EP",
        "every content has parts",
        find_empty_contents,
        None,
        (drop_empty_contents,),
        "without it the conversation would be empty or begin with the model",
    ),
    Rule(
        "GE-1",
        "calls come directly after a turn of the user or of responses",
        find_late_calls,
        None,
        (join_calling_turns,),
        "nothing stands before the calls, and a user's content would have to be invented",
    ),
    Rule(
        "GE-2",
        "as many responses as calls, in their order",
        find_broken_responses,
        join_pairs,
        (join_answered_turns, move_stray_results, settle_responses),
        LIMIT_SAME_ID,
    ),
    Rule(
        "GE-4",
        "contents start with the user; roles are user and model",
        find_wrong_roles,
        limit="a user's content would have to be invented, or what another role said be removed or "
        "said by the user",
    ),
)
"""All rules of this API for a single request."""

CONTINUITY: tuple[ContinuityRule, ...] = (
    ContinuityRule(
        "GE-3", "function calls keep their thought signatures", find_lost_signatures, ("fixed",)
    ),
)
"""All rules of this API about what a request must keep of the previous one."""
