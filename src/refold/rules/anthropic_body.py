"""What the Anthropic Messages API refuses in the rest of a request (AN-9, AN-CB, AN-CC, AN-CE)."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from refold.errors import is_number
from refold.messages import Opaque
from refold.rules.request import CHOICE, Body, Fault, Request
from refold.rules.rule import Rule
from refold.text.json_values import Record, dig, parse_or_text

BEHAVIOURS = ("error", "drop_block")
"""What may be asked to happen to thinking whose prefix has changed (AN-9)."""
MARKS = 4
"""Most `cache_control` marks of a request."""
LEAST_TRIGGER = 50_000
"""Fewest input tokens at which the API compacts."""


def block_binding(body: Body) -> Record | None:
    """Return what a request asks to happen to thinking whose prefix has changed, if it does."""
    binding = dig(body, "thinking", "block_binding")
    return binding if isinstance(binding, Mapping) else None


def find_wrong_binding(request: Request) -> Iterator[Fault]:
    """Report a `prefix_mismatch_behavior` other than `error` and `drop_block`, or one beside
    thinking that is disabled (AN-9). (The API's types take it with `adaptive` and `enabled`.)"""
    binding = block_binding(request.body)
    if binding is None:
        return
    behaviour = binding.get("prefix_mismatch_behavior")
    if behaviour is not None and behaviour not in BEHAVIOURS:
        text = f"prefix_mismatch_behavior is {' or '.join(BEHAVIOURS)}, not {repr(behaviour)[:60]}"
        yield Fault(0, text, "thinking.block_binding")
    elif request.body["thinking"].get("type") == "disabled":
        text = "block_binding stands in thinking that is disabled"
        yield Fault(0, text, "thinking.block_binding")


# --- AN-CE -----------------------------------------------------------------------------------


def find_wrong_management(request: Request) -> Iterator[Fault]:
    """Report edits of `context_management` that the API refuses (AN-CE).

    Clearing of thinking is listed before other edits and keeps a turn at least; a trigger of
    compaction is 50,000 input tokens or more.
    """
    edits = dig(request.body, "context_management", "edits")
    for at, edit in enumerate(_mappings(edits)):
        for text in _edit_errors(at, edit):
            yield Fault(0, text, "context_management.edits")


def _edit_errors(at: int, edit: Record) -> Iterator[str]:
    kind = edit.get("type")
    if kind == "clear_thinking_20251015":
        turns = _number(edit.get("keep"), "thinking_turns", 1)
        if at:
            yield f"{kind} stands behind another edit; it must be listed first"
        if turns < 1:
            yield f"{kind} keeps {turns} turns; 1 is the least"
    if kind == "compact_20260112":
        trigger = _number(edit.get("trigger"), "input_tokens", LEAST_TRIGGER)
        if trigger < LEAST_TRIGGER:
            least = f"{LEAST_TRIGGER:,} are the least"
            yield f"{kind} is triggered by {trigger:,} input tokens; {least}"


def _number(value: Any, kind: str, default: int) -> float:
    """Return the number in `{"type": kind, "value": number}`; *default* if there is none."""
    number: Any = dig(value, "value") if dig(value, "type") == kind else None
    return number if is_number(number) else default


def _mappings(value: Any) -> list[Record]:
    items = value if isinstance(value, list | tuple) else ()
    return [item for item in items if isinstance(item, Mapping)]


# --- AN-CC -----------------------------------------------------------------------------------


class Mark(NamedTuple):
    """A `cache_control` mark, where it stands and how long it holds."""

    at: int
    field: str
    ttl: str


def find_wrong_marks(request: Request) -> Iterator[Fault]:
    """Report more than four `cache_control` marks, and one of an hour behind one of five minutes.

    The order is tools, system, messages (AN-CC). One of the request itself, which the API places,
    is not counted.
    """
    marks = list(_marks(request.body, len(request.messages)))
    if len(marks) > MARKS:
        mark = marks[MARKS]
        text = f"{len(marks)} blocks are marked with cache_control; {MARKS} are the most"
        yield Fault(mark.at, text, mark.field)
    terms = [mark.ttl for mark in marks]
    first = terms.index("5m") if "5m" in terms else len(marks)
    late = next((mark for mark in marks[first:] if mark.ttl == "1h"), None)
    if late is not None:
        text = "a cache_control of 1h stands behind one of 5m; the longer must come first"
        yield Fault(late.at, text, f"{late.field} 1h")


def _marks(body: Body, length: int) -> Iterator[Mark]:
    """Yield every mark on a block, in the order in which the API reads them."""
    for name in ("tools", "system"):
        yield from (Mark(0, name, ttl) for ttl in _terms(body.get(name)))
    entries = _mappings(body.get("messages"))
    for at, entry in enumerate(entries, length - len(entries)):
        yield from (Mark(max(at, 0), "messages", ttl) for ttl in _terms(entry.get("content")))


def _terms(blocks: Any) -> Iterator[str]:
    for block in _mappings(blocks):
        if block.get("type") == "tool_result":
            yield from _terms(block.get("content"))
        mark = block.get("cache_control")
        if isinstance(mark, Mapping):
            yield str(mark.get("ttl") or "5m")


# --- AN-CB -----------------------------------------------------------------------------------


def find_empty_summaries(request: Request) -> Iterator[Fault]:
    """Report compaction blocks whose content is an empty text (AN-CB).

    It is a text or, if compaction failed, null.
    """
    text = (
        "the content of a compaction block is empty; it is a text, or null where compaction failed"
    )
    for at, message in enumerate(request.messages):
        if Opaque in map(type, message.parts):  # few, and soon known
            for part in message.parts:
                if isinstance(part, Opaque) and _is_empty_summary(part):
                    yield Fault(at, text, "compaction")


def _is_empty_summary(block: Opaque) -> bool:
    value = parse_or_text(block.json) if block.kind == "compaction" else None
    return isinstance(value, dict) and value.get("content") == ""


BODY_RULES: tuple[Rule, ...] = (
    Rule(
        "AN-9",
        "what happens to thinking whose prefix has changed is error or drop_block",
        find_wrong_binding,
        limit=CHOICE,
    ),
    Rule(
        "AN-CB",
        "a compaction block is a text, or null",
        find_empty_summaries,
        limit="what was summarised is not here",
    ),
    Rule(
        "AN-CC",
        "four cache marks at most, the longer ones first",
        find_wrong_marks,
        limit=CHOICE,
    ),
    Rule(
        "AN-CE",
        "thinking is cleared first and not all of it; compaction from 50,000 tokens on",
        find_wrong_management,
        limit=CHOICE,
    ),
)
"""All rules of this API that concern the rest of the request."""
