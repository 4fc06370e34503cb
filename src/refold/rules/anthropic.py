"""What the Anthropic Messages API refuses (AN-1 to AN-5, AN-9, AN-CB, AN-CC, AN-CE, AN-WS)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from refold.errors import is_number
from refold.messages import Message, Opaque, Text
from refold.rules.pairing import Pair, is_result, pair_calls, server_ids
from refold.rules.repair_results import move_stray_results, settle_blocks, settle_system
from refold.rules.request import (
    LIMIT_ALONE,
    LIMIT_CHOICE,
    LIMIT_SAME_ID,
    Body,
    Fault,
    References,
    Request,
    entry_fields,
    find_call_faults,
    find_repeated_ids,
    find_result_faults,
    find_role_faults,
)
from refold.rules.rule import (
    BrokenRequest,
    RepairedEntries,
    Rule,
    remove_empty,
    remove_spots,
    take_out_unpaired,
)
from refold.text.json_values import (
    Record,
    dig,
    object_at,
    objects_at,
    parse_or_text,
    text_at,
    without_keys,
)

# --- AN-1 and AN-2: the client's tools ------------------------------------------------------------


def find_broken_calls(request: Request) -> Iterator[Fault]:
    """Report calls without a result first in the message after their turn, and ids that a turn
    repeats (AN-1)."""
    yield from find_call_faults(request.pairing, request.misplaced_pairs)
    yield from find_repeated_ids(request)
    ends, messages = request.turn_ends, request.messages
    home = [result for call, result in request.pairing.pairs if result.at == ends[call.at]]
    first = {at: _first_other_part(messages[at]) for at in {result.at for result in home}}
    for at, part, id in home:
        if first[at] < part:
            text = f"result {id!r} stands behind other content; results come first"
            yield Fault(at, text, id)


def _first_other_part(message: Message) -> int:
    """Return the index of the first part that is not a result; the number of parts if all are."""
    positions = (n for n, part in enumerate(message.parts) if not is_result(part))
    return next(positions, len(message.parts))


def settle_results(broken: BrokenRequest) -> RepairedEntries:
    """Move results to their place, and answer calls without a result (AN-1)."""
    return settle_blocks(broken, [fault.at for fault in find_broken_calls(broken.request)])


def find_broken_results(request: Request) -> Iterator[Fault]:
    """Report second results, and results without a call in the assistant turn before them (AN-2).

    In a continued message thread the server may hold that call. The cuts are those of AN-1.
    """
    yield from find_result_faults(request.pairing, is_continued=_is_continued(request.body))
    for _, (at, _, id) in request.misplaced_pairs:
        yield Fault(at, f"result {id!r} does not stand directly after its call", id)


def _is_continued(body: Body) -> bool:
    """Return whether the server holds the beginning of the conversation (message threads)."""
    return bool(dig(body, "thread", "previous_message_id"))


def return_results(broken: BrokenRequest) -> RepairedEntries:
    """Move results that precede their call behind it (AN-2)."""
    return (broken.entries, ()) if _is_continued(broken.body) else move_stray_results(broken)


def drop_results(broken: BrokenRequest) -> RepairedEntries:
    """Remove second results, and results without a call unless the server may hold it (AN-2)."""
    is_continued = _is_continued(broken.body)
    return take_out_unpaired(broken, broken.request.pairing, "a result", is_continued=is_continued)


# --- AN-3: the server's tools ---------------------------------------------------------------------


def find_split_tools(request: Request) -> Iterator[Fault]:
    """Report calls of server tools without a result in the same assistant turn (AN-3).

    Only results of the client's tools may stand between them, as with programmatic tool calling.
    """
    pairing = pair_calls(request.messages, server_ids)
    yield from find_call_faults(pairing, _split_pairs(request.messages, pairing.pairs))
    yield from find_result_faults(pairing)


def _split_pairs(messages: Sequence[Message], pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs with a message of the user or the system between call and result."""
    apart = [pair for pair in pairs if pair.call.at != pair.result.at]
    spoken = _count_speeches(messages) if apart else []
    return [pair for pair in apart if spoken[pair.call.at] != spoken[pair.result.at]]


def _count_speeches(messages: Sequence[Message]) -> list[int]:
    """Count the user and system messages up to each message, without tool results."""
    count, counts = 0, []
    for message in messages:
        count += message.role != "assistant" and not message.results
        counts.append(count)
    return counts


def join_server_pairs(request: Request) -> tuple[tuple[int, int], ...]:
    """Keep calls and results of server tools together."""
    return pair_calls(request.messages, server_ids).inseparable


def drop_halves(broken: BrokenRequest) -> RepairedEntries:
    """Remove unpaired calls and results of server tools, and both halves of split pairs (AN-3)."""
    pairing = pair_calls(broken.messages, server_ids)
    halves = {*pairing.unanswered, *pairing.orphans, *(pair.result for pair in pairing.again)}
    halves.update(spot for pair in _split_pairs(broken.messages, pairing.pairs) for spot in pair)
    return remove_spots(broken, halves, "half of a server tool's pair,")


# --- AN-4 and AN-5: roles and empty texts ---------------------------------------------------------


MID_SYSTEM = {"sonnet": (5, 5)}
"""First version of a family that accepts system messages between others (AN-4). The default is
4.8."""
_VERSION = re.compile(r"claude-(?:([a-z]+)-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_ROLES = frozenset({"user", "assistant", "system"})
DIRECTIVE = "output_config"
"""Kind of a system message that has this field and no content."""


def find_wrong_roles(request: Request) -> Iterator[Fault]:
    """Report a first message that is not the user's, and misplaced roles (AN-4).

    Only some models accept system messages between others. Neighbours of one role are legal: the
    API reads them as one turn.
    """
    model = request.body.get("model")
    if _refuses_system(model):
        yield from find_role_faults(request, _ROLES - {"system"})
    else:
        yield from find_role_faults(request, _ROLES)
        yield from find_misplaced_system(request, model)


def find_misplaced_system(request: Request, model: Any) -> Iterator[Fault]:
    """Report system messages that do not follow the user, or that the assistant does not follow.

    Several in a row count as one. Those that only set `output_config` may stand anywhere. Models
    other than Claude are not checked.
    """
    if isinstance(model, str) and "claude" not in model.lower():
        return
    messages, before, run = request.messages, Message("user"), list[int]()
    for at, message in enumerate(messages):
        if message.role == "system":
            run += [] if is_directive(message) else [at]
            continue
        if run and message.role != "assistant":
            yield from (Fault(n, "the assistant's words do not follow", "system") for n in run)
        elif run and not _leads_to_system(before):
            yield from (Fault(n, "it does not follow the user's words", "system") for n in run)
        before, run = message, []
    if run and not _leads_to_system(before):
        yield from (Fault(n, "it does not follow the user's words", "system") for n in run)


def _leads_to_system(message: Message) -> bool:
    """Return whether a system message may follow: after the user or a server tool's result."""
    return message.role != "assistant" or bool(message.parts and server_ids(message.parts[-1])[1])


def place_system(broken: BrokenRequest) -> RepairedEntries:
    """Move misplaced system messages behind a user message that the model answers (AN-4)."""
    model = broken.body.get("model", broken.body.get("modelId"))
    misplaced = find_misplaced_system(broken.request, model)
    return settle_system(broken, (fault.at for fault in misplaced), _leads_to_system)


def is_directive(message: Message) -> bool:
    """Return whether a message only sets `output_config`."""
    return any(isinstance(part, Opaque) and part.kind == DIRECTIVE for part in message.parts)


def join_system(request: Request) -> Iterator[tuple[int, int]]:
    """Keep a system message with the answer after it: no user message may come between them."""
    roles = enumerate(message.role for message in request.messages)
    return ((at, at + 1) for at, role in roles if role == "system")


def _refuses_system(model: Any) -> bool:
    """Return whether a model is known not to accept system messages between others."""
    version = _VERSION.search(model.lower()) if isinstance(model, str) else None
    if version is None:
        return False
    family, major, minor = version.groups()
    return (int(major), int(minor or 0)) < MID_SYSTEM.get(family, (4, 8))


def find_empty_texts(request: Request) -> Iterator[Fault]:
    """Report blank texts, and empty messages except a last one of the assistant (AN-5)."""
    last = len(request.messages) - 1
    for at, message in enumerate(request.messages):
        if not message.parts and not (at == last and message.role == "assistant"):
            yield Fault(at, "the message is empty", "message")
        elif _blanks(message):
            yield Fault(at, "a text block is empty or blank", "text")


def drop_empty_texts(broken: BrokenRequest) -> RepairedEntries:
    """Remove blank texts, and messages with nothing else (AN-5).

    The first message stays if the assistant's would follow (AN-4).
    """
    gone = {
        fault.at: _blanks(broken.messages[fault.at]) for fault in find_empty_texts(broken.request)
    }
    return remove_empty(broken, gone)


def _blanks(message: Message) -> set[int]:
    parts = enumerate(message.parts)
    texts = ((n, part.text) for n, part in parts if isinstance(part, Text))
    return {n for n, text in texts if not text or text.isspace()}


# --- AN-9: thinking whose prefix has changed ------------------------------------------------------


BEHAVIOURS = ("error", "drop_block")
"""Valid behaviours for thinking whose prefix has changed (AN-9)."""


def block_binding(body: Body) -> Record | None:
    """Return the request's `thinking.block_binding`, or None."""
    binding = dig(body, "thinking", "block_binding")
    return binding if isinstance(binding, Mapping) else None


def find_wrong_binding(request: Request) -> Iterator[Fault]:
    """Report an invalid `prefix_mismatch_behavior`, or one with disabled thinking (AN-9). The API's
    types accept it with `adaptive` and `enabled`."""
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


# --- AN-CE: edits of context_management -----------------------------------------------------------


LEAST_TRIGGER = 50_000
"""Minimum compaction trigger in input tokens."""


def find_wrong_management(request: Request) -> Iterator[Fault]:
    """Report edits of `context_management` that the API refuses (AN-CE).

    Clearing of thinking must be listed first and keep at least one turn. Compaction is triggered at
    50,000 input tokens or more. The field `compaction` excludes `context_management`.
    """
    if request.body.get("compaction") and request.body.get("context_management"):
        yield Fault(0, "compaction is asked for beside context_management", "compaction")
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


# --- AN-CC: cache marks ---------------------------------------------------------------------------


MARKS = 4
"""Maximum number of `cache_control` marks of a request."""


class Mark(NamedTuple):
    """A `cache_control` mark, its position and its lifetime."""

    at: int
    field: str
    ttl: str


def find_wrong_marks(request: Request) -> Iterator[Fault]:
    """Report more than four `cache_control` marks, and a mark of 1h behind one of 5m.

    The order is tools, system, messages (AN-CC). A mark of the request itself, which the API
    places, is not counted.
    """
    marks = list(_marks(request.body, len(request.messages)))
    if len(marks) > MARKS:
        mark = marks[MARKS]
        text = f"{len(marks)} blocks are marked with cache_control; {MARKS} are the most"
        yield Fault(mark.at, text, mark.field)
    lifetimes = [mark.ttl for mark in marks]
    first = lifetimes.index("5m") if "5m" in lifetimes else len(marks)
    late = next((mark for mark in marks[first:] if mark.ttl == "1h"), None)
    if late is not None:
        text = "a cache_control of 1h stands behind one of 5m; the longer must come first"
        yield Fault(late.at, text, f"{late.field} 1h")


def _marks(body: Body, length: int) -> Iterator[Mark]:
    """Yield the marks of all blocks in the order in which the API reads them."""
    for name in ("tools", "system"):
        yield from (Mark(0, name, ttl) for ttl in _lifetimes(body.get(name)))
    entries = _mappings(body.get("messages"))
    for at, entry in enumerate(entries, length - len(entries)):
        yield from (Mark(max(at, 0), "messages", ttl) for ttl in _lifetimes(entry.get("content")))


def _lifetimes(blocks: Any) -> Iterator[str]:
    for block in _mappings(blocks):
        if block.get("type") == "tool_result":
            yield from _lifetimes(block.get("content"))
        mark = block.get("cache_control")
        if isinstance(mark, Mapping):
            yield str(mark.get("ttl") or "5m")


# --- AN-CB: compaction blocks ---------------------------------------------------------------------


def find_wrong_summaries(request: Request) -> Iterator[Fault]:
    """Report compaction blocks with an empty text, and signed ones that are not first (AN-CB).

    The content is a text, or null if compaction failed. A signed block was requested and replaces
    what it summarises. An unsigned one, which the API made by itself, comes after that.
    """
    blocks = [
        (at, n, object_at(parse_or_text(part.json)))
        for at, message in enumerate(request.messages)
        if Opaque in map(type, message.parts)  # cheap check, rarely true
        for n, part in enumerate(message.parts)
        if isinstance(part, Opaque) and part.kind == "compaction"
    ]
    for at, n, block in blocks:
        if block.get("content") == "":
            text = "is empty; it is a text, or null where compaction failed"
            yield Fault(at, f"the content of a compaction block {text}", "compaction")
        elif block.get("signature") and (at or n):
            text = "a signed compaction block stands behind what it summarises, or another block"
            yield Fault(at, text, "compaction")


# --- AN-WS: citations of web searches -------------------------------------------------------------


def find_lost_citations(request: Request) -> Iterator[Fault]:
    """Report texts that cite a web search whose results are missing (AN-WS).

    Nothing is reported if the server may hold them: in a continued message thread, in a compaction
    block or as input of its code.
    """
    kinds = {part.kind for m in request.messages for part in m.parts if isinstance(part, Opaque)}
    if _is_continued(request.body) or not kinds.isdisjoint(_READERS):
        return
    entries = _mappings(request.body.get("messages"))
    cited = [set(_list_sources(entry)) for entry in entries]
    sources = find_sources(request.messages) if any(cited) else ()
    for at, urls in enumerate(cited, len(request.messages) - len(entries)):
        for url in sorted(urls.difference(sources)):
            text = f"a text cites {url[:200]!r}, and no result of a web search has that"
            yield Fault(max(at, 0), text, url)


_READERS = frozenset({"compaction", "code_execution_tool_result"})


def find_sources(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the URLs in the results of web searches."""
    parts = (message.parts for message in messages if Opaque in map(type, message.parts))
    blocks = (
        parse_or_text(part.json)
        for part in chain.from_iterable(parts)
        if isinstance(part, Opaque) and part.kind == "web_search_tool_result"
    )
    pages = (page for block in blocks for page in objects_at(block, "content"))
    return tuple(text_at(page, "url") for page in pages)


def _list_sources(entry: Record) -> Iterator[str]:
    """Yield the URLs that the texts of an entry cite."""
    for block in _mappings(entry.get("content")):
        yield from filter(None, map(_source_of, _mappings(block.get("citations"))))


def _source_of(citation: Record) -> str:
    """Return the URL of a web search citation; empty for other citations."""
    is_search = citation.get("type") == "web_search_result_location"
    return text_at(citation, "url") if is_search else ""


def drop_citations(entry: Any, lost: AbstractSet[str]) -> Any:
    """Return *entry* without its citations of *lost* URLs; the same object if it has none."""
    fields = entry_fields(entry)
    if lost.isdisjoint(_list_sources(fields)):
        return entry
    blocks = list[Any]()
    for block in map(entry_fields, fields["content"]):
        cited = _mappings(block.get("citations"))
        citations = [citation for citation in cited if _source_of(citation) not in lost]
        rest = without_keys(block, "citations") if cited else block
        blocks.append({**rest, "citations": citations} if citations else rest)
    return {**fields, "content": blocks}


CITATIONS = References(find_sources, drop_citations)
"""References of texts to the results of web searches."""


# --- all rules ------------------------------------------------------------------------------------


BODY_RULES: tuple[Rule, ...] = (
    Rule(
        "AN-9",
        "what happens to thinking whose prefix has changed is error or drop_block",
        find_wrong_binding,
        limit=LIMIT_CHOICE,
    ),
    Rule(
        "AN-CB",
        "a compaction block is a text, or null; one that was asked for stands first",
        find_wrong_summaries,
        limit="what was summarised is not here, or nothing says what that was",
    ),
    Rule(
        "AN-CC",
        "four cache marks at most, the longer ones first",
        find_wrong_marks,
        limit=LIMIT_CHOICE,
    ),
    Rule(
        "AN-CE",
        "thinking is cleared first and not all of it; compaction from 50,000 tokens on",
        find_wrong_management,
        limit=LIMIT_CHOICE,
    ),
    Rule(
        "AN-WS",
        "what a text cites of a web search stands in its results",
        find_lost_citations,
        limit="the results are not here, and what the text cites would be lost",
    ),
)
"""All rules of this API about fields besides the conversation."""

RULES: tuple[Rule, ...] = (
    Rule(
        "AN-1",
        "calls are answered in the next user message, results first",
        find_broken_calls,
        attrgetter("pairing.inseparable"),
        (settle_results,),
        LIMIT_SAME_ID,
    ),
    Rule(
        "AN-2",
        "results answer a call of the assistant turn before them",
        find_broken_results,
        None,
        (return_results, drop_results),
        LIMIT_SAME_ID,
    ),
    Rule(
        "AN-3",
        "server tools keep call and result together",
        find_split_tools,
        join_server_pairs,
        (drop_halves,),
        LIMIT_ALONE,
    ),
    Rule(
        "AN-4",
        "the user speaks first; system messages in the middle only on Opus 4.8 and later, between "
        "the user's and the assistant's",
        find_wrong_roles,
        join_system,
        (place_system,),
        "a user's message would have to be invented, or what another role said be removed or "
        "said by the user",
    ),
    Rule(
        "AN-5",
        "no empty message and no empty text",
        find_empty_texts,
        None,
        (drop_empty_texts,),
        "without it the conversation would be empty or begin with the assistant",
    ),
    *BODY_RULES,
)
"""All rules of this API for a single request."""
