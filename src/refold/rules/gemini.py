"""What Gemini's generateContent refuses (GE-1, GE-2, GE-4)."""

from collections.abc import Iterator, Sequence

from refold.messages import Message
from refold.rules.judging import Body, answered_again, away_from_home, misplaced, orphaned, repeated, unanswered
from refold.rules.pairing import Pair, Pairing, client, pair, repeats, server, turn_ends
from refold.rules.verdict import Rule, Verdict, Violation

_ROLES = frozenset({"user", "assistant", "tool"})


def turns(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """GE-1: a turn that calls functions comes directly after one of the user or of responses."""
    violations = []
    for at, message in enumerate(messages):
        if message.calls and (not at or messages[at - 1].role == "assistant"):
            text = "a turn that calls functions does not follow a turn of the user"
            violations.append(Violation("GE-1", at, text, message.calls[0]))
    return Verdict(tuple(violations))


def responses(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """GE-2: the message after a model's turn has as many responses as that turn has calls, in their
    order, since nothing else tells which answers which."""
    pairing, ends = pair(messages, client), turn_ends(messages)
    violations = (
        *unanswered("GE-2", pairing.unanswered),
        *misplaced("GE-2", away_from_home(pairing, ends)),
        *_disordered(pairing, ends),
        *orphaned("GE-2", pairing.orphans),
        *answered_again("GE-2", pairing.again),
        *repeated("GE-2", repeats(pairing, ends)),
    )
    return Verdict(violations, (*pairing.joined, *pair(messages, server).joined))


def _disordered(pairing: Pairing, ends: Sequence[int]) -> Iterator[Violation]:
    """Responses at home that stand before the response of an earlier call."""
    last: Pair | None = None
    for one in sorted(p for p in pairing.pairs if p.result.at == ends[p.call.at]):
        if last and last.result.at == one.result.at and last.result.part > one.result.part:
            text = f"response {one.result.id!r} stands before that of an earlier call"
            yield Violation("GE-2", one.result.at, text, one.result.id)
        else:
            last = one


def roles(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """GE-4: contents start with the user, and only user and model speak."""
    violations = []
    if messages and messages[0].role == "assistant":
        violations.append(Violation("GE-4", 0, "the first content is the model's, not the user's", "first"))
    strange = ((at, m.role) for at, m in enumerate(messages) if m.role not in _ROLES)
    violations += (Violation("GE-4", at, f"no content has the role {role!r}", role) for at, role in strange)
    return Verdict(tuple(violations))


RULES: tuple[Rule, ...] = (
    Rule("GE-1", "calls come directly after a turn of the user or of responses", turns),
    Rule("GE-2", "as many responses as calls, in their order", responses),
    Rule("GE-4", "contents start with the user; roles are user and model", roles),
)
"""All rules of this API that concern its contents."""
