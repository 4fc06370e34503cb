"""What the Responses API refuses (OA-2 to OA-5; the others stand in a module of their own)."""

from collections.abc import Iterator, Sequence

from refold.messages import Message, Opaque, Thinking, ToolCall
from refold.rules import openai_responses_body
from refold.rules.continuity import entry_fields
from refold.rules.pairing import Spot, pair_calls, turn_ends
from refold.rules.repair_draft import Entry, Mended, apply_in_turn, messages_of, take_out
from refold.rules.repair_openai import add_after_turns, bring_back
from refold.rules.rule import ContinuityRule, Rule, SentRequest, Verdict, Violation
from refold.rules.violations import (
    ALONE,
    SAME_ID,
    Body,
    calls_without_result,
    fingerprint,
    is_reasoning,
    results_without_call,
    second_results,
)

ELSEWHERE = ("previous_response_id", "conversation")
"""Fields that say that a part of the conversation is on the server."""


def check_outputs(messages: Sequence[Message], body: Body) -> Verdict:
    """OA-2: every call has one output, every output a call before it. Calls that the server holds,
    or that an item only refers to, cannot be seen and are taken to be there: such an output stays with the
    references before it, of which one is its call."""
    pairing = pair_calls(messages)
    violations = (
        *calls_without_result("OA-2", pairing.unanswered),
        *results_without_call("OA-2", () if _is_elsewhere(messages, body) else pairing.orphans),
        *second_results("OA-2", pairing.again),
    )
    return Verdict(violations, (*pairing.inseparable, *_reference_pairs(messages, pairing.orphans)))


def _reference_pairs(
    messages: Sequence[Message], orphans: Sequence[Spot]
) -> Iterator[tuple[int, int]]:
    """Where the model's latest turn with a reference begins, for each output whose call cannot be seen, and that output."""
    strays, turn, latest = {spot.at for spot in orphans}, 0, -1
    for at, message in enumerate(messages):
        if at in strays and latest >= 0:
            yield latest, at
        elif message.role != "assistant":
            turn = at + 1
        elif _refers(message):
            latest = turn


def _refers(message: Message) -> bool:
    return any(isinstance(part, Opaque) and part.kind == "item_reference" for part in message.parts)


def _is_elsewhere(messages: Sequence[Message], body: Body) -> bool:
    """Is a part of the conversation, perhaps, only on the server?"""
    return any(body.get(field) for field in ELSEWHERE) or any(map(_refers, messages))


def repair_outputs(entries: Sequence[Entry], body: Body) -> Mended:
    """Mend OA-2: outputs before their call move behind it, calls nobody answered get an output, outputs
    without a call go, and so do calls of kinds whose output we cannot write."""
    moved, repairs = (
        (list(entries), [])
        if _is_elsewhere(messages_of(entries), body)
        else bring_back(entries, "OA-2")
    )
    if repairs:
        return moved, repairs
    messages = messages_of(entries)
    strange = [
        s
        for s in pair_calls(messages).unanswered
        if not isinstance(messages[s.at].parts[s.part], ToolCall)
    ]
    return apply_in_turn(
        entries,
        lambda now: take_out(now, "OA-2", strange, "a call without an output,", alternate=False),
        lambda now: add_after_turns(now, "OA-2", pair_calls(messages_of(now)).unanswered),
        lambda now: take_out(
            now, "OA-2", _strays(now, body), "an output without a call of its own,", alternate=False
        ),
    )


def _strays(entries: Sequence[Entry], body: Body) -> list[Spot]:
    messages = messages_of(entries)
    pairing = pair_calls(messages)
    orphans = () if _is_elsewhere(messages, body) else pairing.orphans
    return sorted((*orphans, *(p.result for p in pairing.again)))


def check_followers(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """OA-3: what a model reasoned is followed directly by what it then said or called."""
    violations, joined = [], []
    for at in _reasoning(messages):
        if at + 1 == len(messages) or messages[at + 1].role == "assistant":
            joined.append((at, at + 1))
        else:
            text = "reasoning is not followed by the message or call that it led to"
            violations.append(Violation("OA-3", at, text, fingerprint(messages[at])))
    return Verdict(tuple(violations), tuple(joined))


def drop_unfollowed(entries: Sequence[Entry], body: Body) -> Mended:
    """Mend OA-3: reasoning that led to nothing goes."""
    messages = messages_of(entries)
    at = (v.at for v in check_followers(messages, body).violations)
    spots = (
        Spot(n, part, fingerprint(messages[n]))
        for n in at
        for part in range(len(messages[n].parts))
    )
    return take_out(entries, "OA-3", spots, "reasoning that nothing follows,", alternate=False)


def join_turns(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """OA-4: calls keep the reasoning that they were made with. Nothing in the items says which one
    that is, so reasoning stays with all that follows it in its turn; OA-2 adds the outputs."""
    ends = turn_ends(messages)
    return Verdict((), tuple((at, ends[at] - 1) for at in _reasoning(messages)))


def check_encryption(messages: Sequence[Message], body: Body) -> Verdict:
    """OA-5: with `store: false` reasoning is sent back with its encrypted content, for which the
    request must ask in `include`."""
    if body.get("store") is not False:
        return Verdict()
    return Verdict(
        tuple(
            _open(messages[at], at) for at in _reasoning(messages) if not _is_sealed(messages[at])
        )
    )


def _open(message: Message, at: int) -> Violation:
    text = (
        "reasoning without encrypted_content in a request that is not stored; ask for it in include"
    )
    return Violation("OA-5", at, text, fingerprint(message))


def _is_sealed(message: Message) -> bool:
    return all(part.signature for part in message.parts if isinstance(part, Thinking))


def _reasoning(messages: Sequence[Message]) -> Iterator[int]:
    return (
        at
        for at, message in enumerate(messages)
        if message.role == "assistant" and is_reasoning(message)
    )


def check_companions(before: SentRequest, after: SentRequest) -> Iterator[Violation]:
    """OA-4: a call that is sent with its item id comes with the reasoning that stood before it in its turn.
    Without its `id` the API knows no reasoning of it. Nothing is said where the conversation is partly on
    the server, or where the API has compacted it since."""
    if _is_elsewhere(after.messages, after.body) or _compactions(after) != _compactions(before):
        return
    sent, needed = {_name(after, at) for at in _reasoning(after.messages)}, _companions(before)
    for at, message in enumerate(after.messages):
        for id in message.calls if entry_fields(after.entries[at]).get("id") else ():
            if needed.get(id, frozenset()) - sent:
                yield Violation(
                    "OA-4",
                    at,
                    f"call {id!r} is sent without the reasoning that it was made with",
                    id,
                )


def _companions(sent: SentRequest) -> dict[str, frozenset[str]]:
    """For each call the names of the reasoning that it follows in its turn: that before it, and before other
    calls of the same answer."""
    companions, last = dict[str, frozenset[str]](), frozenset[str]()
    for at, message in enumerate(sent.messages):
        if message.role != "assistant":
            last = frozenset()
        elif is_reasoning(message):
            last = frozenset({_name(sent, at)})
        companions |= dict.fromkeys(message.calls, last)
    return companions


def _name(sent: SentRequest, at: int) -> str:
    """What tells a reasoning item from others: its id, or what it says."""
    id = entry_fields(sent.entries[at]).get("id")
    return id if isinstance(id, str) else fingerprint(sent.messages[at])


def _compactions(sent: SentRequest) -> int:
    parts = (part for message in sent.messages for part in message.parts)
    return sum(1 for part in parts if isinstance(part, Opaque) and part.kind == "compaction")


RULES: tuple[Rule, ...] = (
    Rule(
        "OA-2",
        "every call has an output and every output a call",
        check_outputs,
        repair_outputs,
        SAME_ID,
    ),
    Rule(
        "OA-3", "reasoning is followed by what it led to", check_followers, drop_unfollowed, ALONE
    ),
    Rule("OA-4", "calls keep the reasoning that they were made with", join_turns),
    Rule(
        "OA-5",
        "requests that are not stored carry encrypted reasoning",
        check_encryption,
        limit="the encrypted content is not here, and without their reasoning the calls it led to are refused (OA-4)",
        joins=False,
    ),
    *openai_responses_body.RULES,
)
"""All rules of this API that concern one request."""

GROWN: tuple[ContinuityRule, ...] = (
    ContinuityRule(
        "OA-4", "calls keep the reasoning that they were made with", check_companions, ("fixed",)
    ),
)
"""All that a request to this API must keep of the one before it."""
