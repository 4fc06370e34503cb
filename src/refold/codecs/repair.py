"""Repair of what a provider would refuse in a request, without inventing content."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Any

from refold.codecs import openai_chat, openai_responses
from refold.codecs.codec import Codec, Payload, Wire
from refold.codecs.detect import open_payload
from refold.messages import Message, ToolResult
from refold.rules.request import Request
from refold.rules.rule import (
    BrokenRequest,
    Ref,
    Repair,
    RepairedEntry,
    Violation,
    sort_violations,
    to_entries,
)

MAX_ROUNDS = 32
"""Maximum number of repairs in a row, each applied to the result of the one before.

The repair of one rule can break another rule, and may change which result answers which call
(Gemini).
"""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """Repaired payload."""

    payload: Any
    """The original object if nothing was repaired, else one of the same kind.

    Valid entries stay the same objects or bytes.
    """
    repairs: tuple[Repair, ...] = ()
    """What was done, ordered by position in the original payload."""
    remaining: tuple[Violation, ...] = ()
    """Violations that cannot be repaired without inventing or losing content, by position in the
    new payload.

    `unmended` of each is the reason.
    """


def repair(payload: Any, format: str | Codec | None = None) -> RepairResult:
    """Repair what the API would refuse in *payload*, and report what was done (docs/formats.md).

    Misplaced results, also those before their call, are moved behind their calls. An unanswered
    call gets a placeholder result. Results without a call, halves of server tools' pairs and empty
    texts are removed. Calls without an id get one. Claude's system messages are moved behind user
    messages.

    Calls at the very end are pending and stay. Arguments, formats and errors are those of
    `refold.check`. A valid payload is returned unchanged, and so is a repaired one.
    """
    opened, all_repairs = open_payload(payload, format), list[Repair]()
    messages, first_head = opened.decode(), opened.head
    places = list(range(len(opened.raw_entries)))  # original position of each entry
    for _ in range(MAX_ROUNDS):
        entries, repairs = _mend(opened, messages)
        if not repairs:
            break
        head = opened.head  # grows if a system message now leads
        all_repairs += (
            replace(repair, at=places[head + repair.at] - first_head) for repair in repairs
        )
        places = [*places[:head], *(places[head + entry.near] for entry in entries)]
        payload = opened.join(_pieces(opened, messages, entries))
        opened = open_payload(payload, opened.codec)
        messages = opened.decode()
    all_repairs.sort(key=lambda repair: repair.at)
    return RepairResult(payload, tuple(all_repairs), _check_remaining(opened, messages))


def _check_remaining(payload: Payload, messages: Sequence[Message]) -> tuple[Violation, ...]:
    """Return the remaining violations, each with the reason why it was not repaired."""
    rules = payload.codec.rules(payload.body)
    limits = {rule.id: rule.limit for rule in rules.rules}
    violations = rules.check(messages, payload.full_body)
    return tuple(replace(violation, unmended=limits[violation.rule]) for violation in violations)


def _mend(
    payload: Payload, messages: Sequence[Message]
) -> tuple[Sequence[RepairedEntry], list[Repair]]:
    """Apply the first repair that changes something, in the order of the rules."""
    rules = payload.codec.rules(payload.body)
    broken = BrokenRequest(to_entries(messages), payload.body, rules.alternate)
    for rule in rules.rules:
        if rule.mends and any(True for _ in rule.find_faults(broken.request)):
            for mend in rule.mends:
                entries, notes = mend(broken)
                if notes:
                    return entries, [Repair(rule.id, *note) for note in notes]
    return broken.entries, []


# --- back into wire form ----------------------------------------------------------------------


def _pieces(
    payload: Payload, messages: Sequence[Message], entries: Sequence[RepairedEntry]
) -> Iterator[slice | Wire]:
    for entry in entries:
        yield (
            slice(entry.near, entry.near + 1)
            if entry.is_untouched
            else _encode_entry(payload, messages, entry)
        )


def _encode_entry(payload: Payload, messages: Sequence[Message], entry: RepairedEntry) -> Wire:
    """Encode an entry made of existing and new parts, or of none."""
    if not entry.refs:
        return payload.codec.encode(entry.message)
    runs = groupby(range(len(entry.refs)), _number_runs(entry.refs))
    wires = (_encode_run(payload, messages, entry, list(run)) for _, run in runs)
    return reduce(payload.codec.merge, wires)


def _number_runs(refs: Sequence[Ref | None]) -> Callable[[int], int]:
    """Return a function from the index of a part to the number of its run: neighbouring parts that
    come from one entry in their original order."""
    numbers, number = list[int](), 0
    for n, ref in enumerate(refs):
        before = refs[n - 1] if n else None
        follows = (
            ref is not None
            and before is not None
            and ref.at == before.at
            and ref.part > before.part
        )
        number += not follows
        numbers.append(number)
    return numbers.__getitem__


def _encode_run(
    payload: Payload, messages: Sequence[Message], entry: RepairedEntry, run: list[int]
) -> Wire:
    """Encode neighbouring parts of one origin."""
    parts, ref = tuple(entry.message.parts[n] for n in run), entry.refs[run[0]]
    codec, role = payload.codec, entry.message.role
    if ref is not None:
        before = messages[ref.at].role
        wire = codec.patch(payload.entry(ref.at), Message(before, parts))
        if (before == "assistant") == (role == "assistant"):
            return wire
        # it was on the other side, such as a result in the model's own turn
        return codec.merge(codec.encode(Message(role)), wire)
    encode_answer, part, wire = ANSWERS.get(codec.NAME), parts[0], None
    if encode_answer and isinstance(part, ToolResult):
        wire = encode_answer(payload.entry(entry.near), part)
    return wire or codec.encode(Message(role, parts))


ANSWERS: Mapping[str, Callable[[Wire, ToolResult], Wire | None]] = {
    openai_chat.NAME: openai_chat.encode_answer,
    openai_responses.NAME: openai_responses.encode_answer,
}
"""Formats in which some calls need another answer than the codec's usual result.

Each function returns the answer for the call's entry and the result, or None for the usual one.
"""


def check(
    payload: Any, format: str | Codec | None = None, *, before: Any = None, model: str = ""
) -> tuple[Violation, ...]:
    """Return everything that the API refuses in *payload*, by position (docs/formats.md).

    *payload* is a list of messages, a request body, or the JSON text of either (`str` or `bytes`).
    Its format is recognised by shape, or named: `anthropic`, `openai_chat`, `openai_responses`,
    `gemini`, `bedrock`. Unanswered calls at the very end are not a violation.

    *before*, of any of these kinds, is the previous request in the same conversation. If given,
    what must be kept from it is checked too, such as the prefix of signed thinking (AN-6, AN-7,
    AN-10, OA-4, GE-3, DS-1). It is assumed to be valid, and answered. *model* is the model for a
    list of messages, as for `refold.compact`: some rules depend on it. A body names its own. Raises
    `FormatError` if either has no format that Refold knows.
    """
    opened = open_payload(payload, format)
    rules = opened.codec.rules({"model": model or None, **opened.body})
    sent = _as_sent(opened)
    violations = rules.check(sent.messages, sent.body)
    if before is None:
        return violations
    not_continued = rules.check_continuity(_as_sent(open_payload(before, opened.codec)), sent)
    return sort_violations((*violations, *not_continued))


def _as_sent(payload: Payload) -> Request:
    """Return the request of a payload, as the rules read it."""
    body = payload.full_body
    entries = body[payload.codec.FIELD][payload.head :]
    return Request(payload.decode(), body, entries, payload.system, payload.tools)
