"""What the Chat Completions API and those who speak it refuse (OA-1, DS-2)."""

from collections.abc import Iterable, Iterator, Sequence

from refold.messages import Message, ToolCall, ToolResult
from refold.rules.draft import Entry, Mended
from refold.rules.entries import settle_entries
from refold.rules.judging import Body, answered_again, misplaced, orphaned, unanswered
from refold.rules.mending import in_turn, messages_of, take_out
from refold.rules.pairing import Pair, pair
from refold.rules.verdict import Rule, Verdict, Violation


def answers(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """OA-1: one tool message for every call, directly after the message that makes it."""
    pairing = pair(messages, turns=False)
    violations = (
        *unanswered("OA-1", pairing.unanswered),
        *misplaced("OA-1", _away(messages, pairing.pairs)),
        *orphaned("OA-1", pairing.orphans),
        *answered_again("OA-1", pairing.again),
    )
    return Verdict(violations, pairing.joined)


def settle(entries: Sequence[Entry], body: Body) -> Mended:  # noqa: ARG001
    """Mend OA-1: results follow their calls, calls nobody answered get one, results without a call go."""
    return in_turn(entries, _settle_calls, _drop_strays)


def _settle_calls(entries: Sequence[Entry]) -> Mended:
    messages = messages_of(entries)
    pairing = pair(messages, turns=False)
    away = (p.call for p in _away(messages, pairing.pairs))
    return settle_entries(entries, "OA-1", pairing, [call.at for call in (*pairing.unanswered, *away)])


def _drop_strays(entries: Sequence[Entry]) -> Mended:
    pairing = pair(messages_of(entries), turns=False)
    strays = sorted((*pairing.orphans, *(p.result for p in pairing.again)))
    return take_out(entries, "OA-1", strays, "a result without a call of its own,", alternate=False)


def _away(messages: Sequence[Message], pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs between which more stands than other tool messages."""
    starts = tool_runs(messages)
    return (pair for pair in pairs if starts[pair.result.at] - 1 != pair.call.at)


def tool_runs(messages: Sequence[Message]) -> list[int]:
    """For each message the position where the run of tool messages that it is in begins."""
    starts, start = [], 0
    for at, message in enumerate(messages):
        if message.role != "tool" or at == 0 or messages[at - 1].role != "tool":
            start = at
        starts.append(start)
    return starts


def ids(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """DS-2: every call and every tool message has an id."""
    parts = ((at, part) for at, message in enumerate(messages) for part in message.parts)
    nameless = (at for at, part in parts if isinstance(part, ToolCall | ToolResult) and not part.id)
    return Verdict(tuple(Violation("DS-2", at, "a call or a tool message has no id") for at in nameless))


RULES: tuple[Rule, ...] = (
    Rule("OA-1", "tool messages directly follow the message that calls them, one for each call", answers, settle),
    Rule("DS-2", "every call and every tool message has an id", ids),
)
"""All rules of this API that concern its messages."""
