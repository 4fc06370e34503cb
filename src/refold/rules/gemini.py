"""What Gemini's generateContent refuses (GE-1 to GE-4)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from refold.messages import Message, ToolCall, ToolResult, user
from refold.rules.continuity import Line, entry_fields, find_lapses, message_digest
from refold.rules.pairing import (
    Pair,
    Pairing,
    client_ids,
    pair_calls,
    results_given_twice,
    server_ids,
    turn_ends,
)
from refold.rules.repair_blocks import bring_back, settle_blocks
from refold.rules.repair_draft import (
    Entry,
    Mended,
    Repair,
    apply_in_turn,
    join,
    messages_of,
    take_out,
)
from refold.rules.rule import ContinuityRule, Rule, SentRequest, Verdict, Violation
from refold.rules.violations import (
    SAME_ID,
    Body,
    away_from_home,
    calls_without_result,
    ids_given_twice,
    results_out_of_place,
    results_without_call,
    second_results,
)

SIGNED_FROM = 3
"""First version of Gemini that refuses a function call without its signature (GE-3)."""
UNSIGNED = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
"""What may be sent in place of a signature that is not known."""

_ROLES = frozenset({"user", "assistant", "tool"})
_VERSION = re.compile(r"gemini-(\d+)")


def check_turns(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """GE-1: a turn that calls functions comes directly after one of the user or of responses."""
    violations = []
    for at, message in enumerate(messages):
        if message.calls and (not at or messages[at - 1].role == "assistant"):
            text = "a turn that calls functions does not follow a turn of the user"
            violations.append(Violation("GE-1", at, text, message.calls[0]))
    return Verdict(tuple(violations))


def join_turns(entries: Sequence[Entry], body: Body) -> Mended:  # noqa: ARG001
    """Mend GE-1: a turn that calls functions becomes one with the model's turn before it."""
    return _join(entries, "GE-1", lambda _, entry: bool(entry.calls))


def _join(
    entries: Sequence[Entry], rule: str, belong: Callable[[Message, Message], bool]
) -> Mended:
    """Make those neighbours one that are both the model's and *belong* together."""
    out, repairs = list[Entry](), list[Repair]()
    for entry in entries:
        before = out[-1].message if out else user("")
        if before.role == entry.message.role == "assistant" and belong(before, entry.message):
            out[-1] = join(out[-1], entry)
            repairs.append(Repair(rule, entry.near, "joined with the model's turn before it"))
        else:
            out.append(entry)
    return out, repairs


def check_responses(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """GE-2: the message after a model's turn has as many responses as that turn has calls, in their
    order, since nothing else tells which answers which."""
    pairing, ends = pair_calls(messages, client_ids), turn_ends(messages)
    violations = (
        *calls_without_result("GE-2", pairing.unanswered),
        *results_out_of_place("GE-2", away_from_home(pairing, ends)),
        *_order_violations(messages, pairing, ends),
        *results_without_call("GE-2", pairing.orphans),
        *second_results("GE-2", pairing.again),
        *ids_given_twice("GE-2", results_given_twice(pairing, ends)),
    )
    return Verdict(
        violations, (*pairing.inseparable, *pair_calls(messages, server_ids).inseparable)
    )


def repair_responses(entries: Sequence[Entry], body: Body) -> Mended:  # noqa: ARG001
    """Mend GE-2: responses go where they belong, calls nobody answered get one, others go. Turns of
    the model that a response follows come first: they are joined, and the ids read anew;
    then responses that stand elsewhere, which have no ids of their own."""
    joined, repairs = _join(entries, "GE-2", lambda before, _: bool(before.calls))
    moved, repairs = (joined, repairs) if repairs else bring_back(entries, "GE-2")
    return (moved, repairs) if repairs else apply_in_turn(entries, _settle_calls, _drop_strays)


def _settle_calls(entries: Sequence[Entry]) -> Mended:
    return settle_blocks(
        entries, "GE-2", [v.at for v in check_responses(messages_of(entries), {}).violations]
    )


def _drop_strays(entries: Sequence[Entry]) -> Mended:
    pairing = pair_calls(messages_of(entries), client_ids)
    strays = sorted((*pairing.orphans, *(p.result for p in pairing.again)))
    return take_out(
        entries, "GE-2", strays, "a response without a call of its own,", alternate=True
    )


def _order_violations(
    messages: Sequence[Message], pairing: Pairing, ends: Sequence[int]
) -> Iterator[Violation]:
    """Responses at home that stand before the response of an earlier call. Where one has another name
    than its call, and was matched for want of a better, places say nothing."""
    home = sorted(p for p in pairing.pairs if p.result.at == ends[p.call.at])
    vague = {p.result.at for p in home if not _is_namesake(messages, p)}
    last: Pair | None = None
    for pair in (p for p in home if p.result.at not in vague):
        if last and last.result.at == pair.result.at and last.result.part > pair.result.part:
            text = f"response {pair.result.id!r} stands before that of an earlier call"
            yield Violation("GE-2", pair.result.at, text, pair.result.id)
        else:
            last = pair


def _is_namesake(messages: Sequence[Message], pair: Pair) -> bool:
    call, result = (messages[spot.at].parts[spot.part] for spot in pair)
    return (
        isinstance(call, ToolCall)
        and isinstance(result, ToolResult)
        and result.name in ("", call.name)
    )


def check_roles(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """GE-4: contents start with the user, and only user and model speak."""
    violations = []
    if messages and messages[0].role == "assistant":
        violations.append(
            Violation("GE-4", 0, "the first content is the model's, not the user's", "first")
        )
    strange = ((at, m.role) for at, m in enumerate(messages) if m.role not in _ROLES)
    violations += (
        Violation("GE-4", at, f"no content has the role {role!r}", role) for at, role in strange
    )
    return Verdict(tuple(violations))


# --- GE-3 ------------------------------------------------------------------------------------


def check_signatures(before: SentRequest, after: SentRequest) -> Iterator[Violation]:
    """GE-3: a function call goes back with the `thoughtSignature` that it had: in the current turn, which
    is all since the user last spoke, and nowhere with another one. A model that is known to be older does
    without; on other parts the API asks for none."""
    version = _VERSION.search(str(after.body.get("model")))
    if version and int(version[1]) < SIGNED_FROM:
        return
    turn = max((at for at, message in enumerate(after.messages) if message.is_request), default=0)
    lines = _calls(after)
    for lapse in find_lapses([line for _, line in _calls(before)], [line for _, line in lines]):
        at, ((_, n), _) = lines[lapse.at]
        if None not in lapse.had and (
            at >= turn if lapse.has is None else lapse.has not in UNSIGNED
        ):
            text = f"the thoughtSignature of a function call {'is missing' if lapse.has is None else 'was changed'}"
            yield Violation("GE-3", at, text, f"{at}.{n}")


def _calls(sent: SentRequest) -> list[tuple[int, Line]]:
    """Every function call with its message's position, what it is and its signature; every other message too."""
    lines = list[tuple[int, Line]]()
    for at, message in enumerate(sent.messages):
        words, blocks = message_digest(_nameless(message)), _call_blocks(sent.entries[at])
        lines += ((at, ((words, n), _signature(block))) for n, block in enumerate(blocks))
        lines += [] if blocks else [(at, ((words, -1), None))]
    return lines


def _nameless(message: Message) -> Message:
    """*message* without the ids that are made of its position."""
    parts = (
        replace(part, id="") if isinstance(part, ToolCall | ToolResult) else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))


def _call_blocks(entry: Any) -> list[Mapping[str, Any]]:
    blocks = entry_fields(entry).get("parts")
    fields = map(entry_fields, blocks if isinstance(blocks, list | tuple) else ())
    return [
        block
        for block in fields
        if "text" not in block and (block.get("functionCall") or block.get("function_call"))
    ]


def _signature(block: Mapping[str, Any]) -> str | None:
    value = block.get("thoughtSignature") or block.get("thought_signature")
    return value if isinstance(value, str) else None


RULES: tuple[Rule, ...] = (
    Rule(
        "GE-1",
        "calls come directly after a turn of the user or of responses",
        check_turns,
        join_turns,
        limit="nothing stands before the calls, and a user's content would have to be invented",
        joins=False,
    ),
    Rule(
        "GE-2",
        "as many responses as calls, in their order",
        check_responses,
        repair_responses,
        SAME_ID,
    ),
    Rule(
        "GE-4",
        "contents start with the user; roles are user and model",
        check_roles,
        limit="a user's content would have to be invented, or what another role said be removed or said by the user",
        joins=False,
    ),
)
"""All rules of this API that concern one request."""

GROWN: tuple[ContinuityRule, ...] = (
    ContinuityRule(
        "GE-3", "function calls keep their thought signatures", check_signatures, ("fixed",)
    ),
)
"""All that a request to this API must keep of the one before it."""
