"""What the Chat Completions API and those who speak it refuse (OA-1, DS-1, DS-2)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from refold.messages import Message, ToolCall, ToolResult
from refold.rules.continuity import Line, entry_fields, find_lapses, message_digest
from refold.rules.pairing import Pair, pair_calls, turn_ends, with_strays
from refold.rules.repair_draft import Entry, Mended, Repair, messages_of, take_out
from refold.rules.repair_openai import settle_entries
from refold.rules.rule import ContinuityRule, Rule, SentRequest, Verdict, Violation
from refold.rules.violations import (
    SAME_ID,
    Body,
    calls_without_result,
    results_out_of_place,
    results_without_call,
    second_results,
)


def check_results(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """OA-1: one tool message for every call, directly after the message that makes it."""
    pairing = pair_calls(messages, turns=False)
    violations = (
        *calls_without_result("OA-1", pairing.unanswered),
        *results_out_of_place("OA-1", _away(messages, pairing.pairs)),
        *results_without_call("OA-1", pairing.orphans),
        *second_results("OA-1", pairing.again),
    )
    return Verdict(violations, pairing.inseparable)


def repair_results(entries: Sequence[Entry], body: Body) -> Mended:  # noqa: ARG001
    """Mend OA-1: results, those before their calls too, follow their calls, calls nobody answered get one, results without a call go."""
    settled, repairs = _settle_calls(entries)
    return (settled, repairs) if repairs else _drop_strays(entries)


def _settle_calls(entries: Sequence[Entry]) -> Mended:
    messages = messages_of(entries)
    pairing = with_strays(messages, pair_calls(messages, turns=False), turn_ends(messages))
    away = (p.call for p in _away(messages, pairing.pairs))
    return settle_entries(
        entries, "OA-1", pairing, [call.at for call in (*pairing.unanswered, *away)]
    )


def _drop_strays(entries: Sequence[Entry]) -> Mended:
    pairing = pair_calls(messages_of(entries), turns=False)
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


def check_ids(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """DS-2: every call and every tool message has an id."""
    parts = ((at, part) for at, message in enumerate(messages) for part in message.parts)
    nameless = (at for at, part in parts if isinstance(part, ToolCall | ToolResult) and not part.id)
    return Verdict(
        tuple(Violation("DS-2", at, "a call or a tool message has no id") for at in nameless)
    )


def give_ids(entries: Sequence[Entry], body: Body) -> Mended:  # noqa: ARG001
    """Mend DS-2: a call without an id gets one made of its position, a result without an id that of the
    call in the message before it: of those still free the first of its tool, else the first."""
    out, repairs, existing = list(entries), list[Repair](), _existing_ids(entries)
    answered = frozenset(id for entry in entries for id in entry.message.results if id)
    for at, start in enumerate(tool_runs(messages_of(entries))):
        message = out[at].message
        if message.role == "tool":
            free = _free_calls(messages_of(out[start - 1 : at]), answered) if start else []
            named = _answering(message, free)
        else:
            named = _with_ids(message, out[at].near, existing)
        if named != message:
            out[at] = replace(out[at], message=named, whole=False)
            repairs.append(
                Repair(
                    "DS-2", out[at].near, f"gave ids: {', '.join((*named.calls, *named.results))}"
                )
            )
    return out, repairs


def _existing_ids(entries: Sequence[Entry]) -> frozenset[str]:
    return frozenset(
        id for entry in entries for id in (*entry.message.calls, *entry.message.results)
    )


def _with_ids(message: Message, at: int, existing: frozenset[str]) -> Message:
    """*message*, its calls without an id numbered."""
    ids = (id for n in count() if (id := f"call_{at}_{n}") not in existing)
    parts = (
        replace(p, id=next(ids)) if isinstance(p, ToolCall) and not p.id else p
        for p in message.parts
    )
    return replace(message, parts=tuple(parts))


def _free_calls(run: Sequence[Message], answered: frozenset[str]) -> list[ToolCall]:
    """The calls of the first message of *run* that neither the tool messages after it answer nor
    results with the ids *said*, wherever those stand."""
    done = answered.union(id for message in run[1:] for id in message.results)
    return [part for part in run[0].parts if isinstance(part, ToolCall) and part.id not in done]


def _answering(message: Message, free: Sequence[ToolCall]) -> Message:
    """A tool message without an id, with that of the call it answers; as it is where there is none."""
    result = message.parts[0]
    if not isinstance(result, ToolResult) or result.id or not free:
        return message
    call = next((call for call in free if call.name == result.name), free[0])
    return replace(message, parts=(replace(result, id=call.id),))


def check_reasoning(before: SentRequest, after: SentRequest) -> Iterator[Violation]:
    """DS-1: in thinking mode a turn that had `reasoning_content` is sent back with it; an empty text will do."""
    thinking = after.body.get("thinking")
    if isinstance(thinking, Mapping) and thinking.get("type") == "disabled":
        return
    for lapse in find_lapses(_reasoning(before), _reasoning(after)):
        if not lapse.has:
            text = "the turn had reasoning_content, which is missing now"
            yield Violation("DS-1", lapse.at, text, ",".join(after.messages[lapse.at].calls))


def _reasoning(sent: SentRequest) -> list[Line]:
    """What each message says, and whether it has reasoning beside it."""
    has = (isinstance(entry_fields(entry).get("reasoning_content"), str) for entry in sent.entries)
    return list(zip(map(message_digest, sent.messages), has, strict=True))


RULES: tuple[Rule, ...] = (
    Rule("DS-2", "every call and every tool message has an id", check_ids, give_ids, joins=False),
    Rule(
        "OA-1",
        "tool messages directly follow the message that calls them, one for each call",
        check_results,
        repair_results,
        SAME_ID,
    ),
)
"""All rules of this API that concern its messages."""

GROWN: tuple[ContinuityRule, ...] = (
    ContinuityRule(
        "DS-1", "turns keep the reasoning that they were sent with", check_reasoning, ("fixed",)
    ),
)
"""All that a request to this API must keep of the one before it."""
