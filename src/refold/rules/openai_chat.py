"""What the Chat Completions API and compatible ones refuse (OA-1, DS-1, DS-2)."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from refold.messages import Message, Part, ToolCall, ToolResult
from refold.rules.anthropic_continuity import CONTINUITY as CLAUDE_CONTINUITY
from refold.rules.pairing import Pair, Pairing, pair_calls, with_strays
from refold.rules.repair_results import settle_entries
from refold.rules.request import (
    LIMIT_SAME_ID,
    ContentLine,
    Fault,
    Request,
    entry_fields,
    find_call_faults,
    find_lost_attachments,
    find_result_faults,
    is_signed,
)
from refold.rules.rule import (
    BrokenRequest,
    ContinuityRule,
    Note,
    RepairedEntries,
    Rule,
    take_out_unpaired,
)
from refold.text.json_values import dig
from refold.transcript import hash_message

# --- OA-1: results -----------------------------------------------------------------------------


def find_broken_pairs(request: Request) -> Iterator[Fault]:
    """Report calls not answered directly by one tool message each (OA-1)."""
    pairing = _pair(request)
    yield from find_call_faults(pairing, _find_misplaced(request, pairing.pairs))
    yield from find_result_faults(pairing)


def join_pairs(request: Request) -> tuple[tuple[int, int], ...]:
    """Keep calls and results together."""
    return _pair(request).inseparable


def settle_results(broken: BrokenRequest) -> RepairedEntries:
    """Move results directly after their calls, and answer calls without a result (OA-1)."""
    request = broken.request
    pairing = with_strays(request.messages, _pair(request), request.turn_ends)
    misplaced = (pair.call for pair in _find_misplaced(request, pairing.pairs))
    return settle_entries(broken, pairing, [call.at for call in (*pairing.unanswered, *misplaced)])


def drop_results(broken: BrokenRequest) -> RepairedEntries:
    """Remove second results, and results without a call (OA-1)."""
    return take_out_unpaired(broken, _pair(broken.request), "a result")


def _pair(request: Request) -> Pairing:
    return pair_calls(request.messages, turns=False)


def _find_misplaced(request: Request, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Return pairs with anything but tool messages between call and result."""
    starts = tool_runs(request.messages)
    return (pair for pair in pairs if starts[pair.result.at] - 1 != pair.call.at)


def tool_runs(messages: Sequence[Message]) -> list[int]:
    """Return for each message where its run of tool messages begins; its own position for
    others."""
    starts, start = [], 0
    for at, message in enumerate(messages):
        if message.role != "tool" or at == 0 or messages[at - 1].role != "tool":
            start = at
        starts.append(start)
    return starts


# --- DS-2: ids ---------------------------------------------------------------------------------


def find_missing_ids(request: Request) -> Iterator[Fault]:
    """Report calls and tool messages without an id (DS-2)."""
    for at, message in enumerate(request.messages):
        for part in message.parts:
            if isinstance(part, ToolCall | ToolResult) and not part.id:
                yield Fault(at, "a call or a tool message has no id")


def give_ids(broken: BrokenRequest) -> RepairedEntries:
    """Give calls an id made from their position, and results the id of their call (DS-2).

    A result answers an unanswered call of the message before its run of tool messages: the first
    of its tool, else the first.
    """
    out, notes, free = list(broken.entries), list[Note](), _FreeCalls((), frozenset())
    results = {id for message in broken.messages for id in message.results}
    existing = results.union(id for message in broken.messages for id in message.calls)
    for at, message in enumerate(broken.messages):
        if message.role == "tool":
            named = _with_result_id(message, free)
        else:
            named = _with_call_ids(message, out[at].near, existing)
            free = _FreeCalls(named.parts, results)
        if named != message:
            out[at] = replace(out[at], message=named, is_untouched=False)
            text = f"gave ids: {', '.join((*named.calls, *named.results))}"
            notes.append(Note(out[at].near, text))
    return out, notes


def _with_call_ids(message: Message, at: int, existing: set[str]) -> Message:
    """Number the calls of *message* that have no id."""
    ids = (id for n in count() if (id := f"call_{at}_{n}") not in existing)
    parts = (
        replace(part, id=next(ids)) if isinstance(part, ToolCall) and not part.id else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))


class _FreeCalls:
    """The calls of a message that no result answers, without those whose id is in *answered*."""

    def __init__(self, parts: Sequence[Part], answered: Collection[str]) -> None:
        self._ids, self._named = OrderedDict[str, None](), defaultdict[str, deque[str]](deque)
        for part in parts:
            if isinstance(part, ToolCall) and part.id not in answered:
                self._ids[part.id] = None
                self._named[part.name].append(part.id)

    def take(self, name: str) -> str:
        """Remove the first call of a tool, else the first call, and return its id; empty if none is
        left."""
        named = self._named[name]
        while named and named[0] not in self._ids:
            named.popleft()
        id = named[0] if named else next(iter(self._ids), "")
        self._ids.pop(id, None)
        return id


def _with_result_id(message: Message, free: _FreeCalls) -> Message:
    """Give a tool message without an id that of a *free* call, if there is one."""
    result = message.parts[0]
    if not isinstance(result, ToolResult) or result.id or not (id := free.take(result.name)):
        return message
    return replace(message, parts=(replace(result, id=id),))


# --- DS-1: reasoning ---------------------------------------------------------------------------

FIXED_THINKING = ("deepseek", "kimi", "gemini")
"""Models that refuse a turn without its reasoning (DS-1) or signature (GE-3), by part of the name,
November 2026."""


def fixes_thinking(model: str) -> bool:
    """Return whether a model refuses a turn without its reasoning (DS-1, GE-3)."""
    return any(name in model.lower() for name in FIXED_THINKING)


ALTERNATING = ("stral", "xtral", "gemma", "sonar", "command-r", "llama-2")
"""Models whose API or chat template refuses two user messages in a row (*Conversation roles must
alternate*), by part of the name, November 2026. They are Mistral's under all their names, Gemma,
Perplexity's, and older ones."""


def alternates_roles(model: str) -> bool:
    """Return whether the roles of user and model must alternate."""
    return any(name in model.lower() for name in ALTERNATING)


def find_lost_reasoning(before: Request, after: Request) -> Iterator[Fault]:
    """Report turns that lost their `reasoning_content` (DS-1).

    An empty text is accepted. Nothing is checked if thinking is disabled.
    """
    if dig(after.body, "thinking", "type") == "disabled":
        return
    for lapse in find_lost_attachments(_lines(before), _lines(after)):
        if not lapse.has:
            text = "the turn had reasoning_content, which is missing now"
            yield Fault(lapse.at, text, ",".join(after.messages[lapse.at].calls))


def _lines(request: Request) -> list[ContentLine]:
    """Return each message's content, and whether it has reasoning. Signed reasoning is not counted:
    models that sign do not require it."""
    fields = map(entry_fields, request.entries)
    has = (isinstance(entry.get("reasoning_content"), str) for entry in fields)
    return [
        (hash_message(message), mark and not is_signed(message))
        for message, mark in zip(request.messages, has, strict=True)
    ]


RULES: tuple[Rule, ...] = (
    Rule(
        "DS-2",
        "every call and every tool message has an id",
        find_missing_ids,
        mends=(give_ids,),
    ),
    Rule(
        "OA-1",
        "tool messages directly follow the message that calls them, one for each call",
        find_broken_pairs,
        join_pairs,
        (settle_results, drop_results),
        LIMIT_SAME_ID,
    ),
)
"""All rules of this API about its messages."""

CONTINUITY: tuple[ContinuityRule, ...] = (
    ContinuityRule(
        "DS-1",
        "turns keep the reasoning that they were sent with",
        find_lost_reasoning,
        ("fixed", "unsure"),
    ),
    *CLAUDE_CONTINUITY,
)
"""All rules of this API about what a request must keep of the previous one."""
