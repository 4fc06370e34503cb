"""Mend what a provider would refuse in a request, without inventing content."""

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
    MendedEntry,
    Ref,
    Repair,
    Violation,
    in_order,
    to_entries,
)

MAX_ROUNDS = 32
"""Most mends in a row. Each reads anew what the one before made.

What one rule mends can concern another, and may change which result answers which call (Gemini).
"""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """A payload after repair."""

    payload: Any
    """The same object if there was nothing to mend, else one of the same kind.

    Entries that nothing was wrong with are the same objects, or the same bytes.
    """
    repairs: tuple[Repair, ...] = ()
    """What was done, in the order of the positions in the payload as it came."""
    remaining: tuple[Violation, ...] = ()
    """What cannot be mended without inventing or losing content, by position in the new payload.

    `unmended` of each is the reason.
    """


def repair(payload: Any, format: str | Codec | None = None) -> RepairResult:
    """Mend what the API would refuse in *payload*, and say what was done (docs/formats.md).

    Results that stand elsewhere, before their call too, are put after their calls; a call that was
    never answered gets a result that says so; results without a call, halves of server tools' pairs
    and empty texts go; calls without an id get one; system messages of Claude's stand behind words
    of the user's.
    Calls at the very end are pending and stay. Arguments, formats and errors as for
    `refold.check`. A valid payload comes back as it is, and so does a repaired one.
    """
    opened, all_repairs = open_payload(payload, format), list[Repair]()
    messages, first_head = opened.decode(), opened.head
    places = list(range(len(opened.raw_entries)))  # where what stands there now stood as it came
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
    """Return what is still wrong, each with the reason why it was not mended."""
    rules = payload.codec.rules(payload.body)
    limits = {rule.id: rule.limit for rule in rules.rules}
    violations = rules.check(messages, payload.full_body)
    return tuple(replace(violation, unmended=limits[violation.rule]) for violation in violations)


def _mend(
    payload: Payload, messages: Sequence[Message]
) -> tuple[Sequence[MendedEntry], list[Repair]]:
    """Mend what the first rule can that is broken and can mend anything."""
    rules = payload.codec.rules(payload.body)
    broken = BrokenRequest(to_entries(messages), payload.body, rules.alternate)
    for rule in rules.rules:
        if rule.mends and any(True for _ in rule.judge(broken.request)):
            for mend in rule.mends:
                entries, notes = mend(broken)
                if notes:
                    return entries, [Repair(rule.id, *note) for note in notes]
    return broken.entries, []


# --- back into wire form ----------------------------------------------------------------------


def _pieces(
    payload: Payload, messages: Sequence[Message], entries: Sequence[MendedEntry]
) -> Iterator[slice | Wire]:
    for entry in entries:
        yield (
            slice(entry.near, entry.near + 1)
            if entry.is_untouched
            else _encode_entry(payload, messages, entry)
        )


def _encode_entry(payload: Payload, messages: Sequence[Message], entry: MendedEntry) -> Wire:
    """Encode an entry made of parts of others and of new ones, or of none."""
    if not entry.refs:
        return payload.codec.encode(entry.message)
    runs = groupby(range(len(entry.refs)), _number_runs(entry.refs))
    wires = (_encode_run(payload, messages, entry, list(run)) for _, run in runs)
    return reduce(payload.codec.merge, wires)


def _number_runs(refs: Sequence[Ref | None]) -> Callable[[int], int]:
    """Number the runs of parts that come from one entry in the order in which they stood there."""
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
    payload: Payload, messages: Sequence[Message], entry: MendedEntry, run: list[int]
) -> Wire:
    """Encode neighbouring parts of one origin."""
    parts, ref = tuple(entry.message.parts[n] for n in run), entry.refs[run[0]]
    codec, role = payload.codec, entry.message.role
    if ref is not None:
        before = messages[ref.at].role
        wire = codec.patch(payload.entry(ref.at), Message(before, parts))
        if (before == "assistant") == (role == "assistant"):
            return wire
        # it stood on the other side, such as a result in the model's own turn
        return codec.merge(codec.encode(Message(role)), wire)
    encode_answer, part, wire = ANSWERS.get(codec.NAME), parts[0], None
    if encode_answer and isinstance(part, ToolResult):
        wire = encode_answer(payload.entry(entry.near), part)
    return wire or codec.encode(Message(role, parts))


ANSWERS: Mapping[str, Callable[[Wire, ToolResult], Wire | None]] = {
    openai_chat.NAME: openai_chat.encode_answer,
    openai_responses.NAME: openai_responses.encode_answer,
}
"""Formats in which the answer to some calls is not what the codec writes for a result.

From the call's entry and the result to the answer, or None if the codec's is right.
"""


def check(
    payload: Any, format: str | Codec | None = None, *, before: Any = None, model: str = ""
) -> tuple[Violation, ...]:
    """Return everything in *payload* that its API refuses, by position (docs/formats.md).

    *payload* is a list of messages, a request body, or the JSON text of either (`str` or `bytes`);
    its format is recognised by shape, or named: `anthropic`, `openai_chat`, `openai_responses`,
    `gemini`, `bedrock`. A call at the very end that nobody has answered yet is no violation.

    *before*, of any of these kinds, is the request that was sent before this one in the same
    conversation: then also what had to be kept of it, such as what signed thinking is bound to
    (AN-6, AN-7, AN-10, OA-4, GE-3, DS-1). It is taken to be valid, and answered. *model* says for
    which one a list of messages is, as for `refold.compact`: some rules hold for some models; a
    body names its own.
    Raises `FormatError` when either is in no form that Refold knows.
    """
    opened = open_payload(payload, format)
    rules = opened.codec.rules({"model": model or None, **opened.body})
    sent = _as_sent(opened)
    violations = rules.check(sent.messages, sent.body)
    if before is None:
        return violations
    not_continued = rules.check_continuity(_as_sent(open_payload(before, opened.codec)), sent)
    return in_order((*violations, *not_continued))


def _as_sent(payload: Payload) -> Request:
    """Return the request that a payload holds, as the rules look at it."""
    body = payload.full_body
    entries = body[payload.codec.FIELD][payload.head :]
    return Request(payload.decode(), body, entries, payload.system, payload.tools)
