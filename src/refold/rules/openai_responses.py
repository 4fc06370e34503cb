"""What the Responses API refuses (OA-2 to OA-5)."""

from collections.abc import Iterator, Sequence

from refold.messages import Message, Opaque, Thinking
from refold.rules.judging import Body, answered_again, fingerprint, is_reasoning, orphaned, unanswered
from refold.rules.pairing import pair, turn_ends
from refold.rules.verdict import Rule, Verdict, Violation

ELSEWHERE = ("previous_response_id", "conversation")
"""Fields that say that a part of the conversation is on the server."""


def outputs(messages: Sequence[Message], body: Body) -> Verdict:
    """OA-2: every call has one output, every output a call before it. Calls that the server holds,
    or that an item only refers to, cannot be seen and are taken to be there."""
    pairing = pair(messages)
    hidden = any(body.get(field) for field in ELSEWHERE) or _refers(messages)
    violations = (
        *unanswered("OA-2", pairing.unanswered),
        *orphaned("OA-2", () if hidden else pairing.orphans),
        *answered_again("OA-2", pairing.again),
    )
    return Verdict(violations, pairing.joined)


def _refers(messages: Sequence[Message]) -> bool:
    return any(isinstance(p, Opaque) and p.kind == "item_reference" for m in messages for p in m.parts)


def followed(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """OA-3: what a model reasoned is followed directly by what it then said or called."""
    violations, joined = [], []
    for at in _reasoning(messages):
        if at + 1 == len(messages) or messages[at + 1].role == "assistant":
            joined.append((at, at + 1))
        else:
            text = "reasoning is not followed by the message or call that it led to"
            violations.append(Violation("OA-3", at, text, fingerprint(messages[at])))
    return Verdict(tuple(violations), tuple(joined))


def whole_turns(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """OA-4: calls keep the reasoning that they were made with. Nothing in the items says which one
    that is, so reasoning stays with all that follows it in its turn; OA-2 adds the outputs."""
    ends = turn_ends(messages)
    return Verdict((), tuple((at, ends[at] - 1) for at in _reasoning(messages)))


def sealed(messages: Sequence[Message], body: Body) -> Verdict:
    """OA-5: with `store: false` reasoning is sent back with its encrypted content, for which the
    request must ask in `include`."""
    if body.get("store") is not False:
        return Verdict()
    return Verdict(tuple(_open(messages[at], at) for at in _reasoning(messages) if not _is_sealed(messages[at])))


def _open(message: Message, at: int) -> Violation:
    text = "reasoning without encrypted_content in a request that is not stored; ask for it in include"
    return Violation("OA-5", at, text, fingerprint(message))


def _is_sealed(message: Message) -> bool:
    return all(part.signature for part in message.parts if isinstance(part, Thinking))


def _reasoning(messages: Sequence[Message]) -> Iterator[int]:
    return (at for at, message in enumerate(messages) if message.role == "assistant" and is_reasoning(message))


RULES: tuple[Rule, ...] = (
    Rule("OA-2", "every call has an output and every output a call", outputs),
    Rule("OA-3", "reasoning is followed by what it led to", followed),
    Rule("OA-4", "calls keep the reasoning that they were made with", whole_turns),
    Rule("OA-5", "requests that are not stored carry encrypted reasoning", sealed),
)
"""All rules of this API that concern its items."""
