"""What the Anthropic Messages API refuses (AN-1 to AN-5)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from refold.messages import Message, Text
from refold.rules.judging import (
    Body,
    answered_again,
    away_from_home,
    misplaced,
    orphaned,
    repeated,
    unanswered,
)
from refold.rules.pairing import Pairing, client, is_result, pair, repeats, server, turn_ends
from refold.rules.verdict import Rule, Verdict, Violation

MID_SYSTEM = (4, 8)
"""First version of Claude that takes system messages between the others (AN-4)."""

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_ROLES = frozenset({"user", "assistant", "system"})


def answers(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """AN-1: every call is answered in the user message after it, before anything else there."""
    pairing, ends = pair(messages, client), turn_ends(messages)
    violations = (
        *unanswered("AN-1", pairing.unanswered),
        *misplaced("AN-1", away_from_home(pairing, ends)),
        *repeated("AN-1", repeats(pairing, ends)),
        *_late(messages, pairing, ends),
    )
    return Verdict(violations, pairing.joined)


def _late(messages: Sequence[Message], pairing: Pairing, ends: Sequence[int]) -> Iterator[Violation]:
    """Results at home that stand behind something that is no result."""
    for call, (at, part, id) in pairing.pairs:
        if at == ends[call.at] and not all(map(is_result, messages[at].parts[:part])):
            yield Violation("AN-1", at, f"result {id!r} stands behind other content; results come first", id)


def calls(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """AN-2: every result answers a call of the assistant turn before it, once."""
    pairing, ends = pair(messages, client), turn_ends(messages)
    strays = [p.result for p in away_from_home(pairing, ends)]
    violations = (
        *orphaned("AN-2", pairing.orphans),
        *answered_again("AN-2", pairing.again),
        *(Violation("AN-2", at, f"result {id!r} does not stand directly after its call", id) for at, _, id in strays),
    )
    return Verdict(violations, pairing.joined)


def server_tools(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """AN-3: a server tool's call and its result stay in one assistant turn. Between them only
    results of the client's tools may stand, as with programmatic tool calling."""
    pairing = pair(messages, server)
    spoken = _spoken(messages) if any(call.at != result.at for call, result in pairing.pairs) else ()
    parted = (p for p in pairing.pairs if p.call.at != p.result.at and spoken[p.call.at] != spoken[p.result.at])
    violations = (
        *unanswered("AN-3", pairing.unanswered),
        *orphaned("AN-3", pairing.orphans),
        *answered_again("AN-3", pairing.again),
        *misplaced("AN-3", parted),
    )
    return Verdict(violations, pairing.joined)


def _spoken(messages: Sequence[Message]) -> list[int]:
    """For each message the number of times that the user or the system has spoken up to it."""
    count, counts = 0, []
    for message in messages:
        count += message.role != "assistant" and not message.results
        counts.append(count)
    return counts


def roles(messages: Sequence[Message], body: Body) -> Verdict:
    """AN-4: the first message is the user's; system messages stand between others only for models
    that know them. Neighbours of one role are legal: the API reads them as one turn."""
    violations = []
    if messages and messages[0].role == "assistant":
        violations.append(Violation("AN-4", 0, "the first message is the assistant's, not the user's", "first"))
    refuses_system = _refuses_system(body.get("model"))
    for at, message in enumerate(messages):
        if message.role not in _ROLES or (refuses_system and message.role == "system"):
            text = f"no message of role {message.role!r} may stand here"
            violations.append(Violation("AN-4", at, text, message.role))
    return Verdict(tuple(violations))


def _refuses_system(model: Any) -> bool:
    """Is this a model that is known to be older than system messages in the middle?"""
    found = _VERSION.search(model.lower()) if isinstance(model, str) else None
    return found is not None and (int(found[1]), int(found[2] or 0)) < MID_SYSTEM


def empties(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """AN-5: no message is empty but a last one of the assistant, and no text is empty or blank."""
    violations = []
    for at, message in enumerate(messages):
        if not message.parts and not (at == len(messages) - 1 and message.role == "assistant"):
            violations.append(Violation("AN-5", at, "the message is empty", "message"))
        elif any(isinstance(part, Text) and is_blank(part.text) for part in message.parts):
            violations.append(Violation("AN-5", at, "a text block is empty or blank", "text"))
    return Verdict(tuple(violations))


def is_blank(text: str) -> bool:
    """Is there nothing to read? Looks no further than the first character that is no space."""
    return not text or text.isspace()


RULES: tuple[Rule, ...] = (
    Rule("AN-1", "calls are answered in the next user message, results first", answers),
    Rule("AN-2", "results answer a call of the assistant turn before them", calls),
    Rule("AN-3", "server tools keep call and result together", server_tools),
    Rule("AN-4", "the user speaks first; system messages in the middle only on Opus 4.8 and later", roles),
    Rule("AN-5", "no empty message and no empty text", empties),
)
"""All rules of this API that concern its messages."""
