"""What the Anthropic Messages API refuses (AN-1 to AN-5; the others stand in modules of their own)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.messages import Message, Text
from refold.rules import anthropic_body
from refold.rules.pairing import (
    Pair,
    Pairing,
    client_ids,
    is_result,
    pair_calls,
    results_given_twice,
    server_ids,
    turn_ends,
)
from refold.rules.repair_blocks import bring_back, settle_blocks
from refold.rules.repair_draft import Entry, Mended, Repair, messages_of, remove, take_out
from refold.rules.rule import Rule, Verdict, Violation
from refold.rules.violations import (
    ALONE,
    SAME_ID,
    Body,
    away_from_home,
    calls_without_result,
    ids_given_twice,
    results_out_of_place,
    results_without_call,
    second_results,
)

MID_SYSTEM = (4, 8)
"""First version of Claude that takes system messages between the others (AN-4)."""

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_ROLES = frozenset({"user", "assistant", "system"})


def check_results(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """AN-1: every call is answered in the user message after it, before anything else there."""
    pairing, ends = pair_calls(messages, client_ids), turn_ends(messages)
    violations = (
        *calls_without_result("AN-1", pairing.unanswered),
        *results_out_of_place("AN-1", away_from_home(pairing, ends)),
        *ids_given_twice("AN-1", results_given_twice(pairing, ends)),
        *_late(messages, pairing, ends),
    )
    return Verdict(violations, pairing.inseparable)


def _late(
    messages: Sequence[Message], pairing: Pairing, ends: Sequence[int]
) -> Iterator[Violation]:
    """Results at home that stand behind something that is no result."""
    first = dict[int, int]()
    """By message, where its first part stands that is no result: looked for once, however many results it has (C4)."""
    for call, (at, part, id) in pairing.pairs:
        if at != ends[call.at]:
            continue
        if at not in first:
            first[at] = next(
                (n for n, each in enumerate(messages[at].parts) if not is_result(each)),
                len(messages[at].parts),
            )
        if first[at] < part:
            yield Violation(
                "AN-1", at, f"result {id!r} stands behind other content; results come first", id
            )


def repair_results(entries: Sequence[Entry], body: Body) -> Mended:
    """Mend AN-1: results go where they belong, calls nobody answered get one."""
    return settle_blocks(
        entries, "AN-1", [v.at for v in check_results(messages_of(entries), body).violations]
    )


def check_calls(messages: Sequence[Message], body: Body) -> Verdict:
    """AN-2: every result answers a call of the assistant turn before it, once. In a thread that is
    continued the calls are with the server. The cuts are those of AN-1."""
    pairing, ends = pair_calls(messages, client_ids), turn_ends(messages)
    strays = [p.result for p in away_from_home(pairing, ends)]
    violations = (
        *results_without_call("AN-2", () if _is_continued(body) else pairing.orphans),
        *second_results("AN-2", pairing.again),
        *(
            Violation("AN-2", at, f"result {id!r} does not stand directly after its call", id)
            for at, _, id in strays
        ),
    )
    return Verdict(violations)


def _is_continued(body: Body) -> bool:
    """Is the beginning of the conversation on the server (message threads)?"""
    thread = body.get("thread")
    return isinstance(thread, Mapping) and bool(thread.get("previous_message_id"))


def drop_strays(entries: Sequence[Entry], body: Body) -> Mended:
    """Mend AN-2: results before their call move behind it; those without a call go, and second ones."""
    moved, repairs = (list(entries), []) if _is_continued(body) else bring_back(entries, "AN-2")
    if repairs:
        return moved, repairs
    pairing = pair_calls(messages_of(entries), client_ids)
    orphans = () if _is_continued(body) else pairing.orphans
    again = [p.result for p in pairing.again]
    return take_out(
        entries,
        "AN-2",
        sorted((*orphans, *again)),
        "a result without a call of its own,",
        alternate=True,
    )


def check_server_tools(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """AN-3: a server tool's call and its result stay in one assistant turn. Between them only
    results of the client's tools may stand, as with programmatic tool calling."""
    pairing = pair_calls(messages, server_ids)
    violations = (
        *calls_without_result("AN-3", pairing.unanswered),
        *results_without_call("AN-3", pairing.orphans),
        *second_results("AN-3", pairing.again),
        *results_out_of_place("AN-3", _split_pairs(messages, pairing)),
    )
    return Verdict(violations, pairing.inseparable)


def _split_pairs(messages: Sequence[Message], pairing: Pairing) -> list[Pair]:
    """Pairs between whose halves the user or the system speaks."""
    apart = [p for p in pairing.pairs if p.call.at != p.result.at]
    spoken = _speaking_positions(messages) if apart else []
    return [p for p in apart if spoken[p.call.at] != spoken[p.result.at]]


def _speaking_positions(messages: Sequence[Message]) -> list[int]:
    """For each message the number of times that the user or the system has spoken up to it."""
    count, counts = 0, []
    for message in messages:
        count += message.role != "assistant" and not message.results
        counts.append(count)
    return counts


def strip_halves(entries: Sequence[Entry], body: Body) -> Mended:  # noqa: ARG001
    """Mend AN-3: of a pair that is no whole one, both go."""
    messages = messages_of(entries)
    pairing = pair_calls(messages, server_ids)
    parted = (spot for p in _split_pairs(messages, pairing) for spot in p)
    halves = {*pairing.unanswered, *pairing.orphans, *(p.result for p in pairing.again), *parted}
    return take_out(
        entries, "AN-3", sorted(halves), "half of a server tool's pair,", alternate=True
    )


def check_roles(messages: Sequence[Message], body: Body) -> Verdict:
    """AN-4: the first message is the user's; system messages stand between others only for models
    that know them. Neighbours of one role are legal: the API reads them as one turn."""
    violations = []
    if messages and messages[0].role == "assistant":
        violations.append(
            Violation("AN-4", 0, "the first message is the assistant's, not the user's", "first")
        )
    refuses_system = _refuses_system(body.get("model"))
    for at, message in enumerate(messages):
        if message.role not in _ROLES or (refuses_system and message.role == "system"):
            text = f"no message of role {message.role!r} may stand here"
            violations.append(Violation("AN-4", at, text, message.role))
    return Verdict(tuple(violations))


def _refuses_system(model: Any) -> bool:
    """Is this a model that is known to be older than system messages in the middle?"""
    version = _VERSION.search(model.lower()) if isinstance(model, str) else None
    return version is not None and (int(version[1]), int(version[2] or 0)) < MID_SYSTEM


def check_empty_texts(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """AN-5: no message is empty but a last one of the assistant, and no text is empty or blank."""
    violations = []
    for at, message in enumerate(messages):
        if not message.parts and not (at == len(messages) - 1 and message.role == "assistant"):
            violations.append(Violation("AN-5", at, "the message is empty", "message"))
        elif any(isinstance(part, Text) and is_blank(part.text) for part in message.parts):
            violations.append(Violation("AN-5", at, "a text block is empty or blank", "text"))
    return Verdict(tuple(violations))


def drop_empties(entries: Sequence[Entry], body: Body) -> Mended:  # noqa: ARG001
    """Mend AN-5: blank texts go, and messages with nothing else, but for a first one that an
    assistant's would follow (AN-4)."""
    gone = {
        at: _blanks(entry.message) for at, entry in enumerate(entries) if _blanks(entry.message)
    }
    gone |= {
        v.at: set()
        for v in check_empty_texts(messages_of(entries), {}).violations
        if v.subject == "message"
    }
    out = remove(entries, gone, alternate=True, as_text=False)
    remaining = {(entry.near, entry.refs) for entry in out}
    mended = (
        entries[at] for at in sorted(gone) if (entries[at].near, entries[at].refs) not in remaining
    )
    return out, [Repair("AN-5", entry.near, "removed what is empty") for entry in mended]


def _blanks(message: Message) -> set[int]:
    return {
        n for n, part in enumerate(message.parts) if isinstance(part, Text) and is_blank(part.text)
    }


def is_blank(text: str) -> bool:
    """Is there nothing to read? Looks no further than the first character that is no space."""
    return not text or text.isspace()


RULES: tuple[Rule, ...] = (
    Rule(
        "AN-1",
        "calls are answered in the next user message, results first",
        check_results,
        repair_results,
        SAME_ID,
    ),
    Rule(
        "AN-2",
        "results answer a call of the assistant turn before them",
        check_calls,
        drop_strays,
        SAME_ID,
        joins=False,
    ),
    Rule(
        "AN-3",
        "server tools keep call and result together",
        check_server_tools,
        strip_halves,
        ALONE,
    ),
    Rule(
        "AN-4",
        "the user speaks first; system messages in the middle only on Opus 4.8 and later",
        check_roles,
        limit="a user's message would have to be invented, or what another role said be removed or said by the user",
        joins=False,
    ),
    Rule(
        "AN-5",
        "no empty message and no empty text",
        check_empty_texts,
        drop_empties,
        limit="without it the conversation would be empty or begin with the assistant",
        joins=False,
    ),
    *anthropic_body.RULES,
)
"""All rules of this API that concern one request."""
