"""Requests as the rules read them, checks shared by several providers, and the comparison of a
request with the previous one."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple
from zlib import crc32

from refold.messages import Message, Opaque, Part, Thinking, ToolResult
from refold.rules.pairing import Pair, Pairing, client_ids, pair_calls, turn_ends
from refold.text.json_values import Record

LIMIT_ALONE = "nothing else would be left of the conversation"
"""Why something that breaks a rule may stay: it is all that is left of the conversation."""
LIMIT_SAME_ID = f"calls of one turn share an id, and nothing says which of them a result answers; or {LIMIT_ALONE}"
"""Why a pair may stay broken."""
LIMIT_CHOICE = "only the caller knows what was meant"
"""Why a field with an invalid value stays."""


Body = Mapping[str, Any]
"""Fields of a request, as parsed from JSON."""


class Fault(NamedTuple):
    """Fault that a rule finds in a request."""

    at: int
    """Position of the message, without leading system messages; 0 if the fault is in another field
    of the request, named by `subject`."""
    text: str
    """What is wrong, in one sentence."""
    subject: str = ""
    """Call id, field or other name of what is wrong. It identifies a fault whose position has
    moved."""


@dataclass(frozen=True)
class Request:
    """Request to a provider."""

    messages: Sequence[Message]
    body: Body = field(default_factory=dict)
    """Other fields of the request. If a whole request is checked, they include the raw
    conversation, for what messages do not hold, such as `cache_control`."""
    entries: Sequence[Any] = ()
    """The messages in wire form, one for each, if requests are compared."""
    system: tuple[Part, ...] = ()
    tools: tuple[str, ...] = ()
    """Tool definitions, each as canonical JSON."""

    @cached_property
    def pairing(self) -> Pairing:
        """Calls and results of the client's tools, matched."""
        return pair_calls(self.messages, client_ids)

    @cached_property
    def full_pairing(self) -> Pairing:
        """Calls and results of all tools, matched."""
        return pair_calls(self.messages)

    @cached_property
    def turn_ends(self) -> list[int]:
        """Where the answers to each message's calls belong, if answers follow the whole turn."""
        return turn_ends(self.messages)

    @cached_property
    def misplaced_pairs(self) -> list[Pair]:
        """Answered calls whose result is not in the message after their assistant turn."""
        ends = self.turn_ends
        return [pair for pair in self.pairing.pairs if pair.result.at != ends[pair.call.at]]


class References(NamedTuple):
    """How to find and remove references between entries that the provider resolves."""

    find: Callable[[Iterable[Message]], tuple[str, ...]]
    """Returns the names in *messages* that may be referred to. The result is kept for each edit."""
    drop: Callable[..., Any]
    """Returns an entry without its references to the *lost* names."""


def find_call_faults(pairing: Pairing, misplaced: Iterable[Pair] = ()) -> Iterator[Fault]:
    """Report calls without a result, and the calls of *misplaced* pairs."""
    for at, _, id in pairing.unanswered:
        yield Fault(at, f"call {id!r} has no result directly after it", id)
    for call, result in misplaced:
        text = f"the result of call {call.id!r} stands at {result.at}, not directly after it"
        yield Fault(call.at, text, call.id)


def find_result_faults(pairing: Pairing, *, is_continued: bool = False) -> Iterator[Fault]:
    """Report second results, and results without a call unless the server may hold the call."""
    for at, _, id in () if is_continued else pairing.orphans:
        yield Fault(at, f"result {id!r} has no call before it", id)
    for _, (at, _, id) in pairing.again:
        yield Fault(at, f"call {id!r} was answered already", id)


def find_role_faults(request: Request, roles: Collection[str]) -> Iterator[Fault]:
    """Report a first message of the assistant, unless it begins with a compaction block, and roles
    that are not in *roles*."""
    first = request.messages[:1]
    if first and first[0].role == "assistant" and not may_open(first):
        yield Fault(0, "the first message is the assistant's, not the user's", "first")
    for at, message in enumerate(request.messages):
        if message.role not in roles:
            yield Fault(at, f"no message of role {message.role!r} may stand here", message.role)


def may_open(messages: Sequence[Message]) -> bool:
    """Return whether the first of these is the user's, or begins with a compaction block."""
    return any(
        message.role == "user"
        or any(isinstance(part, Opaque) and part.kind == "compaction" for part in message.parts[:1])
        for message in messages[:1]
    )


def find_repeated_ids(request: Request) -> Iterator[Fault]:
    """Report calls that share an id with an earlier call of the same assistant turn."""
    pairing, seen = request.pairing, set[tuple[int, str]]()
    calls = (*(pair.call for pair in pairing.pairs), *pairing.unanswered, *pairing.pending)
    for at, _, id in sorted(calls):
        key = (request.turn_ends[at], id)
        if key in seen:
            yield Fault(at, f"two calls of one turn have the id {id!r}", id)
        seen.add(key)


# --- comparison of two requests: for rules about what must be kept -----------------------------

MAX_COMPARED_LINES = 200
"""Maximum number of lines compared to choose between several possible alignments."""

ContentLine = tuple[Any, Any]
"""Content that is sent again, and its attachment that must not change, such as a signature. Equal
values mean the same content."""


class LostAttachment(NamedTuple):
    """Content that is sent again without its attachment."""

    at: int
    """Index of the line."""
    had: frozenset[Any]
    """Attachments that the content had before; several if it occurred several times."""
    has: Any


def find_lost_attachments(
    before: Sequence[ContentLine], after: Sequence[ContentLine]
) -> Iterator[LostAttachment]:
    """Find contents of both requests whose attachment in *after* is missing or replaced.

    Only the part of *after* that was sent before is checked, since later lines may repeat a content
    with another attachment. If that part cannot be determined, less is checked, so that there are
    no false positives.
    """
    run = _common_run(before, after)
    sent = after[: run.end]
    had, has = _marks(before), _marks(sent)
    for at, (content, mark) in enumerate(sent):
        if (
            content in had
            and mark not in had[content]
            and had[content] - has[content]
            and (run.is_whole or run.unchanged or not mark)
        ):
            yield LostAttachment(at, frozenset(had[content]), mark)


def _marks(lines: Sequence[ContentLine]) -> dict[Any, set[Any]]:
    """Return all attachments of each content."""
    marks = dict[Any, set[Any]]()
    for content, mark in lines:
        marks.setdefault(content, set()).add(mark)
    return marks


class _Run(NamedTuple):
    """Prefix of *after* that was already sent in *before*, as far as can be determined.

    It may be a later repetition while the original is gone, unless all of *before* is in it or an
    attachment is unchanged.
    """

    unchanged: int
    """Number of matching lines before its end with the same non-empty attachment."""
    length: int
    """Number of lines before its end with matching contents."""
    end: int
    """Number of lines in the prefix."""
    is_whole: bool
    """Whether it contains all of *before*."""


def _common_run(before: Sequence[ContentLine], after: Sequence[ContentLine]) -> _Run:
    """Return the prefix of *after* that ends with the last line of *before*.

    Of several such prefixes it is the one with the most unchanged attachments before its end, then
    the longest match, then the shortest prefix. Without such a line it is the common prefix.
    """
    if common_length(before, after) == len(before):
        return _Run(0, len(before), len(before), is_whole=True)
    ends = [at + 1 for at, (content, _) in enumerate(after) if content == before[-1][0]]
    if not ends:
        common = common_length([content for content, _ in before], [line[0] for line in after])
        return _Run(0, common, common, is_whole=False)
    runs = (_look_back(before, after, end, MAX_COMPARED_LINES) for end in ends)
    best = max(runs, key=lambda run: (run.unchanged, run.length, -run.end))
    return _look_back(before, after, best.end, len(after))


def _look_back(
    before: Sequence[ContentLine], after: Sequence[ContentLine], end: int, look: int
) -> _Run:
    """Align the end of *before* with the first *end* lines of *after*, and compare backwards."""
    back = map(after.__getitem__, range(end - 1, max(end - 1 - look, -1), -1))
    pairs = list(
        takewhile(lambda pair: pair[0][0] == pair[1][0], zip(reversed(before), back, strict=False))
    )
    unchanged = sum(1 for old, new in pairs if old[1] and old[1] == new[1])
    return _Run(unchanged, len(pairs), end, is_whole=len(pairs) == len(before))


def common_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the length of the common prefix."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def fingerprint(message: Message) -> str:
    """Return 8 hex digits that identify the thinking of a message, which has no id."""
    text = "\0".join(f"{p.text}\0{p.signature}" for p in message.parts if isinstance(p, Thinking))
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def is_signed(message: Message) -> bool:
    """Return whether a message holds signed thinking."""
    if Thinking not in map(type, message.parts):  # cheap check, nearly always true
        return False
    return any(isinstance(part, Thinking) and part.signature for part in message.parts)


PROVIDER_ONLY_KINDS = frozenset(
    {
        "compaction",
        "compaction_summary",
        "context_compaction",
        "additional_tools",
        "compaction_trigger",
    }
)
"""Kinds of entries that only their provider can read, so that a summary would lose them (OA-7,
OA-8)."""


def is_sealed(message: Message) -> bool:
    """Return whether a message holds an entry that only its provider can read, such as a compaction
    block."""
    if Opaque not in map(type, message.parts):  # cheap check, nearly always true
        return False
    return any(
        isinstance(part, Opaque) and part.kind in PROVIDER_ONLY_KINDS for part in message.parts
    )


TOOL_LOADING_KINDS = frozenset(
    {
        "tool_reference",
        "tool_search_tool_result",
        "tool_search_output",
        "tool_addition",
        "tool_removal",
        "toolAddition",
        "toolRemoval",
    }
)
"""Kinds of parts that load or remove tools, such as the results of a tool search. The model may
call the tools that they name as long as it sees them."""


def loads_of(part: Part) -> frozenset[str]:
    """Return the pieces of a part that load or remove tools, as JSON."""
    pieces = part.content if isinstance(part, ToolResult) else (part,)
    return frozenset(
        piece.json
        for piece in pieces
        if isinstance(piece, Opaque) and piece.kind in TOOL_LOADING_KINDS
    )


def entry_fields(entry: Any) -> Record:
    """Return the fields of an entry in wire form or of a vendor's object; empty for others."""
    if isinstance(entry, Mapping):
        return entry
    return entry.model_dump(mode="json", exclude_none=True) if hasattr(entry, "model_dump") else {}
