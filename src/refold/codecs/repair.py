"""Mend what a provider would refuse in a request, without inventing content."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Any

from refold.codecs.codec import Codec, Wire
from refold.codecs.detect import decode_all, open_payload
from refold.codecs.payload import Payload
from refold.messages import Message, ToolResult
from refold.rules.repair_draft import Entry, Ref, Repair, to_entries
from refold.rules.rule import SentRequest, Violation

ROUNDS = 32
"""Most mends in a row. Each starts from what the one before made, read anew: what one rule mends can
concern another, and may change which result answers which call (Gemini)."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A payload after repair."""

    payload: Any
    """As it came, if there was nothing to mend: the same object. Else of the same kind; entries that
    nothing was wrong with are the same objects, or the same bytes."""
    repairs: tuple[Repair, ...] = ()
    """What was done, in the order of the positions in the payload as it came."""
    left: tuple[Violation, ...] = ()
    """What could not be mended without inventing or losing content, each with the reason
    (`unmended`); positions are those in the new payload."""


def repair(payload: Any, format: str | Codec | None = None) -> Repaired:
    """Mend what the API would refuse in *payload*, and say what was done (docs/rules.md).

    Results that stand elsewhere, before their call too, are put after their calls; a call that was
    never answered gets a result that says so; results without a call, halves of server tools' pairs
    and empty texts go; calls without an id get one.
    Calls at the very end are pending and stay. Arguments, formats and errors as for
    `refold.check`. A valid payload comes back as it is, and so does a repaired one.
    """
    envelope = open_payload(payload, format)
    messages, places, done = decode_all(envelope), list(range(len(envelope))), list[Repair]()
    for _ in range(ROUNDS):
        entries, repairs = _mend(envelope, messages)
        if not repairs:
            break
        done += (replace(one, at=places[one.at]) for one in repairs)
        places = [places[entry.near] for entry in entries]
        payload = envelope.join(_pieces(envelope, messages, entries))
        envelope = open_payload(payload, envelope.codec)
        messages = decode_all(envelope)
    return Repaired(payload, tuple(sorted(done, key=lambda one: one.at)), _left(envelope, messages))


def _left(envelope: Payload, messages: Sequence[Message]) -> tuple[Violation, ...]:
    """What is still wrong, each with the reason why it was not mended."""
    rules = envelope.codec.rules(envelope.body)
    limits = {rule.id: rule.limit for rule in rules.rules}
    return tuple(replace(one, unmended=limits[one.rule]) for one in rules.check(messages, envelope.full_body))


def _mend(envelope: Payload, messages: Sequence[Message]) -> tuple[list[Entry], list[Repair]]:
    """What the first rule can mend that is broken and can mend anything."""
    rules, body, entries = envelope.codec.rules(envelope.body).rules, envelope.body, to_entries(messages)
    for rule in rules:
        if rule.mend and rule.judge(messages, body).violations:
            mended, repairs = rule.mend(entries, body)
            if repairs:
                return mended, repairs
    return entries, []


# --- back into wire form ----------------------------------------------------------------------


def _pieces(envelope: Payload, messages: Sequence[Message], entries: Sequence[Entry]) -> Iterator[slice | Wire]:
    for entry in entries:
        yield slice(entry.near, entry.near + 1) if entry.whole else _wire(envelope, messages, entry)


def _wire(envelope: Payload, messages: Sequence[Message], entry: Entry) -> Wire:
    """An entry made of parts of others and of new ones."""
    runs = groupby(range(len(entry.refs)), _run_of(entry.refs))
    wires = (_run(envelope, messages, entry, list(run)) for _, run in runs)
    return reduce(envelope.codec.merge, wires)


def _run_of(refs: Sequence[Ref | None]) -> Callable[[int], int]:
    """Numbers the runs of parts that come from one entry in the order in which they stood there."""
    numbers, number = list[int](), 0
    for n, ref in enumerate(refs):
        before = refs[n - 1] if n else None
        follows = ref is not None and before is not None and ref.at == before.at and ref.part > before.part
        number += not follows
        numbers.append(number)
    return numbers.__getitem__


def _run(envelope: Payload, messages: Sequence[Message], entry: Entry, run: list[int]) -> Wire:
    parts, ref = tuple(entry.message.parts[n] for n in run), entry.refs[run[0]]
    if ref is not None:
        wire = envelope.codec.patch(envelope.entry(ref.at), Message(messages[ref.at].role, parts))
        return wire if _is_said_alike(messages[ref.at], entry.message) else _moved(envelope.codec, entry, wire)
    part = parts[0]
    if isinstance(part, ToolResult) and envelope.codec.NAME in ANSWERS:
        special = ANSWERS[envelope.codec.NAME](envelope.entry(entry.near), part)
        return special or envelope.codec.encode(Message(entry.message.role, parts))
    return envelope.codec.encode(Message(entry.message.role, parts))


def _is_said_alike(one: Message, other: Message) -> bool:
    """Is it on the same side of the conversation: the model's, or what is said to it?"""
    return (one.role == "assistant") == (other.role == "assistant")


def _moved(codec: Codec, entry: Entry, wire: Wire) -> Wire:
    """What stood in an entry of the other side, such as a result in the model's own turn, in an entry of this one (C10)."""
    return codec.merge(codec.encode(Message(entry.message.role)), wire)


def _chat_answer(item: Wire, result: ToolResult) -> Wire | None:
    """The answer to a legacy function call, which has a name and no id."""
    call = item.get("function_call") if isinstance(item, Mapping) else None
    if not isinstance(call, Mapping) or result.id in _ids(item):
        return None
    return {"role": "function", "name": call.get("name"), "content": result.text}


def _ids(item: Mapping[str, Any]) -> list[Any]:
    return [call.get("id") for call in item.get("tool_calls") or () if isinstance(call, Mapping)]


def _responses_answer(item: Wire, result: ToolResult) -> Wire | None:
    """The output of a call that is no function call: its kind is called after the call's."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    if kind == "custom_tool_call":
        return {"type": "custom_tool_call_output", "call_id": result.id, "output": result.text}
    if kind == "local_shell_call":
        return {"type": "local_shell_call_output", "id": result.id, "output": result.text}
    return None


ANSWERS: Mapping[str, Callable[[Wire, ToolResult], Wire | None]] = {
    "openai_chat": _chat_answer,
    "openai_responses": _responses_answer,
}
"""Formats in which the answer to some calls is not what the codec writes for a result: from the
call's entry and the result to the answer, or None where the codec's is right."""


def check(payload: Any, format: str | Codec | None = None, *, before: Any = None) -> tuple[Violation, ...]:
    """Everything in *payload* that its API refuses, in order of position (docs/rules.md).

    *payload* is a list of messages, a request body, or the JSON text of either (`str` or `bytes`);
    its format is recognised by shape, or named: `anthropic`, `openai_chat`, `openai_responses`,
    `gemini`. A call at the very end that nobody has answered yet is no violation.

    *before*, of any of these kinds, is the request that was sent before this one in the same
    conversation: then also what had to be kept of it, such as what signed thinking is bound to
    (AN-6, AN-7, AN-10, OA-4, GE-3, DS-1). It is taken to be valid itself, and to have been answered.
    Raises `FormatError` when either is in no form that Refold knows.
    """
    envelope = open_payload(payload, format)
    rules, sent = envelope.codec.rules(envelope.body), sent_as(envelope)
    found = rules.check(sent.messages, sent.body)
    if before is None:
        return found
    kept = rules.check_continuity(sent_as(open_payload(before, envelope.codec)), sent)
    return tuple(sorted((*found, *kept), key=lambda v: (v.at, v.rule)))


def sent_as(envelope: Payload) -> SentRequest:
    """The request that an envelope holds, as the rules look at it."""
    whole = envelope.full_body
    entries = whole[envelope.codec.FIELD][envelope.head :]
    return SentRequest(decode_all(envelope), entries, whole, envelope.system, envelope.tools)
