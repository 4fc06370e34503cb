"""What the Anthropic Messages API refuses in the rest of a request (AN-9, AN-CB, AN-CC, AN-CE)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from refold.messages import Message, Opaque
from refold.rules.rule import Rule, Verdict, Violation
from refold.rules.violations import Body
from refold.text.canonical_json import parse_or_text

BEHAVIOURS = ("error", "drop_block")
"""What may be asked to happen to thinking whose prefix has changed (AN-9)."""
MARKS = 4
"""Most `cache_control` marks of a request."""
LEAST_TRIGGER = 50_000
"""Fewest input tokens at which the API compacts."""

CHOICE = "only the caller knows what was meant"
"""Why a field with a value that cannot be stays."""


# --- AN-9 ------------------------------------------------------------------------------------


def check_binding(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """AN-9: what happens to thinking whose prefix has changed is `error` or `drop_block`, and is said of
    thinking that is on. (The API's types take it with `adaptive` and with `enabled`.)"""
    thinking = body.get("thinking")
    wanted = thinking.get("block_binding") if isinstance(thinking, Mapping) else None
    if not isinstance(wanted, Mapping):
        return Verdict()
    behaviour = wanted.get("prefix_mismatch_behavior")
    text = ""
    if behaviour is not None and behaviour not in BEHAVIOURS:
        text = f"prefix_mismatch_behavior is {' or '.join(BEHAVIOURS)}, not {_short(behaviour)}"
    elif thinking.get("type") == "disabled":  # type: ignore[union-attr]  # a mapping, as asked above
        text = "block_binding stands in thinking that is disabled"
    return Verdict((Violation("AN-9", 0, text, "thinking.block_binding"),) if text else ())


def _short(value: Any) -> str:
    return repr(value)[:60]


# --- AN-CE -----------------------------------------------------------------------------------


def check_context_management(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """AN-CE: clearing of thinking is listed before other edits and keeps a turn at least; a trigger of
    compaction is 50,000 input tokens or more."""
    management = body.get("context_management")
    edits = management.get("edits") if isinstance(management, Mapping) else None
    errors = (text for at, edit in enumerate(_mappings(edits)) for text in _wrong(at, edit))
    return Verdict(
        tuple(Violation("AN-CE", 0, text, "context_management.edits") for text in errors)
    )


def _wrong(at: int, edit: Mapping[str, Any]) -> Iterator[str]:
    kind = edit.get("type")
    if kind == "clear_thinking_20251015":
        if at:
            yield f"{kind} stands behind another edit; it must be listed first"
        if _number(edit.get("keep"), "thinking_turns", 1) < 1:
            yield f"{kind} keeps {_number(edit.get('keep'), 'thinking_turns', 1)} turns; 1 is the least"
    if kind == "compact_20260112":
        trigger = _number(edit.get("trigger"), "input_tokens", LEAST_TRIGGER)
        if trigger < LEAST_TRIGGER:
            yield f"{kind} is triggered by {trigger:,} input tokens; {LEAST_TRIGGER:,} are the least"


def _number(value: Any, kind: str, default: int) -> float:
    """The number in `{"type": kind, "value": number}`; *default* where there is none."""
    number = (
        value.get("value") if isinstance(value, Mapping) and value.get("type") == kind else None
    )
    return number if isinstance(number, int | float) and not isinstance(number, bool) else default


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return (
        [item for item in value if isinstance(item, Mapping)]
        if isinstance(value, list | tuple)
        else []
    )


# --- AN-CC -----------------------------------------------------------------------------------


class Mark(NamedTuple):
    """A `cache_control` mark, where it stands and how long it holds."""

    at: int
    field: str
    ttl: str


def check_cache_marks(messages: Sequence[Message], body: Body) -> Verdict:
    """AN-CC: at most four blocks are marked with `cache_control`, and no mark of an hour stands behind one
    of five minutes, in the order of tools, system, messages. One of the request itself, which the API
    places, is not counted."""
    marks = list(_marks(body, len(messages)))
    return Verdict((*_too_many(marks), *_out_of_order(marks)))


def _too_many(marks: Sequence[Mark]) -> Iterator[Violation]:
    for mark in islice(marks, MARKS, MARKS + 1):
        text = f"{len(marks)} blocks are marked with cache_control; {MARKS} are the most"
        yield Violation("AN-CC", mark.at, text, mark.field)


def _out_of_order(marks: Sequence[Mark]) -> Iterator[Violation]:
    short = next((n for n, mark in enumerate(marks) if mark.ttl == "5m"), len(marks))
    for mark in islice((mark for mark in marks[short:] if mark.ttl == "1h"), 1):
        text = "a cache_control of 1h stands behind one of 5m; the longer must come first"
        yield Violation("AN-CC", mark.at, text, f"{mark.field} 1h")


def _marks(body: Body, length: int) -> Iterator[Mark]:
    """Every mark on a block, in the order in which the API reads them."""
    for name in ("tools", "system"):
        yield from (Mark(0, name, ttl) for ttl in _of_blocks(body.get(name)))
    entries = _mappings(body.get("messages"))
    for at, entry in enumerate(entries, length - len(entries)):
        yield from (Mark(max(at, 0), "messages", ttl) for ttl in _of_blocks(entry.get("content")))


def _of_blocks(blocks: Any) -> Iterator[str]:
    for block in _mappings(blocks):
        if block.get("type") == "tool_result":
            yield from _of_blocks(block.get("content"))
        mark = block.get("cache_control")
        if isinstance(mark, Mapping):
            yield str(mark.get("ttl") or "5m")


# --- AN-CB -----------------------------------------------------------------------------------


def check_summaries(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """AN-CB: the content of a compaction block is a text or, where compaction failed, null."""
    strange = (
        at for at, message in enumerate(messages) if Opaque in map(type, message.parts)
    )  # few, and soon known
    blank = (
        at
        for at in strange
        for part in messages[at].parts
        if isinstance(part, Opaque) and _is_blank(part)
    )
    text = (
        "the content of a compaction block is empty; it is a text, or null where compaction failed"
    )
    return Verdict(tuple(Violation("AN-CB", at, text, "compaction") for at in blank))


def _is_blank(block: Opaque) -> bool:
    value = parse_or_text(block.json) if block.kind == "compaction" else None
    return isinstance(value, dict) and value.get("content") == ""


RULES: tuple[Rule, ...] = (
    Rule(
        "AN-9",
        "what happens to thinking whose prefix has changed is error or drop_block",
        check_binding,
        limit=CHOICE,
        joins=False,
    ),
    Rule(
        "AN-CB",
        "a compaction block is a text, or null",
        check_summaries,
        limit="what was summarised is not here",
        joins=False,
    ),
    Rule(
        "AN-CC",
        "four cache marks at most, the longer ones first",
        check_cache_marks,
        limit=CHOICE,
        joins=False,
    ),
    Rule(
        "AN-CE",
        "thinking is cleared first and not all of it; compaction from 50,000 tokens on",
        check_context_management,
        limit=CHOICE,
        joins=False,
    ),
)
"""All rules of this API that concern the rest of the request."""
