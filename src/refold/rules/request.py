"""A request as the rules look at it, what the pairing rules of several providers share, and what a
request still has of the one before it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple
from zlib import crc32

from refold.messages import Message, Opaque, Part, Thinking, ToolResult
from refold.rules.pairing import Pair, Pairing, client_ids, pair_calls, turn_ends
from refold.text.json_values import Record

ALONE = "nothing else would be left of the conversation"
"""Why something may stay that has to go."""
SAME_ID = (
    f"calls of one turn share an id, and nothing says which of them a result answers; or {ALONE}"
)
"""Why a pair may be left broken."""
CHOICE = "only the caller knows what was meant"
"""Why a field with a value that cannot be stays."""


Body = Mapping[str, Any]
"""The fields of a request, as parsed from JSON."""


class Fault(NamedTuple):
    """One thing that a rule finds wrong."""

    at: int
    """Position of the message (system messages at the start not counted); 0 for what stands in
    another field of the request, which `subject` then names."""
    text: str
    """What is wrong, in a sentence."""
    subject: str = ""
    """What it is wrong of (a call id), so that two lists can be compared though positions moved."""


@dataclass(frozen=True)
class Request:
    """A request that was, or would be, sent."""

    messages: Sequence[Message]
    body: Body = field(default_factory=dict)
    """The rest of the request. If a whole request is checked, the body holds the conversation too,
    as it is sent: for what messages do not hold, such as `cache_control`."""
    entries: Sequence[Any] = ()
    """The messages as they are sent, one for each, if a request is compared with another."""
    system: tuple[Part, ...] = ()
    tools: tuple[str, ...] = ()
    """Each tool definition as canonical JSON."""

    @cached_property
    def pairing(self) -> Pairing:
        """Which result answers which call, of the tools that the client runs."""
        return pair_calls(self.messages, client_ids)

    @cached_property
    def full_pairing(self) -> Pairing:
        """Which result answers which call, of all tools."""
        return pair_calls(self.messages)

    @cached_property
    def turn_ends(self) -> list[int]:
        """For each message where the answers to its calls belong, if that is after its turn."""
        return turn_ends(self.messages)

    @cached_property
    def misplaced_pairs(self) -> list[Pair]:
        """Answered calls whose result is not in the message after their assistant turn."""
        ends = self.turn_ends
        return [pair for pair in self.pairing.pairs if pair.result.at != ends[pair.call.at]]


class References(NamedTuple):
    """How entries refer to others, which the provider looks for."""

    find: Callable[[Iterable[Message]], set[str]]
    """From messages to the names of what may be referred to in them."""
    drop: Callable[..., Any]
    """From an entry and *lost* names to the entry without what refers to these."""


def find_call_faults(pairing: Pairing, misplaced: Iterable[Pair] = ()) -> Iterator[Fault]:
    """Report calls without a result, and those of *misplaced*, whose result stands elsewhere."""
    for at, _, id in pairing.unanswered:
        yield Fault(at, f"call {id!r} has no result directly after it", id)
    for call, result in misplaced:
        text = f"the result of call {call.id!r} stands at {result.at}, not directly after it"
        yield Fault(call.at, text, call.id)


def find_result_faults(pairing: Pairing, *, is_continued: bool = False) -> Iterator[Fault]:
    """Report second results of a call, and results without one unless the server may hold it."""
    for at, _, id in () if is_continued else pairing.orphans:
        yield Fault(at, f"result {id!r} has no call before it", id)
    for _, (at, _, id) in pairing.again:
        yield Fault(at, f"call {id!r} was answered already", id)


def find_role_faults(request: Request, roles: Collection[str]) -> Iterator[Fault]:
    """Report a first message that is the assistant's, and roles other than *roles*."""
    first = request.messages[:1]
    if first and first[0].role == "assistant" and not may_open(first):
        yield Fault(0, "the first message is the assistant's, not the user's", "first")
    for at, message in enumerate(request.messages):
        if message.role not in roles:
            yield Fault(at, f"no message of role {message.role!r} may stand here", message.role)


def may_open(messages: Sequence[Message]) -> bool:
    """May a conversation begin so: with the user, or with what the API made of all before it?"""
    return any(
        message.role == "user"
        or any(isinstance(part, Opaque) and part.kind == "compaction" for part in message.parts[:1])
        for message in messages[:1]
    )


def find_repeated_ids(request: Request) -> Iterator[Fault]:
    """Report calls whose id an earlier call of the same assistant turn has."""
    pairing, seen = request.pairing, set[tuple[int, str]]()
    calls = (*(pair.call for pair in pairing.pairs), *pairing.unanswered, *pairing.pending)
    for at, _, id in sorted(calls):
        key = (request.turn_ends[at], id)
        if key in seen:
            yield Fault(at, f"two calls of one turn have the id {id!r}", id)
        seen.add(key)


# --- two requests: for rules that say what must be kept ----------------------------------------

LOOK = 200
"""Most lines that are compared to tell which of several places is meant."""

Line = tuple[Any, Any]
"""Something said, and what must not change about it while it is sent again. Equal things said are
equal."""


class Lapse(NamedTuple):
    """Something that is sent again, but without what it had."""

    at: int
    """Its position."""
    had: frozenset[Any]
    """What it had; several, if the same was said several times."""
    has: Any


def find_lapses(before: Sequence[Line], after: Sequence[Line]) -> Iterator[Lapse]:
    """Find what stands in both, and in *after* not with what it had: that is gone, or replaced.

    Only what was sent before is looked at: what follows it in *after* may say the same again, and
    is not bound to anything. If that cannot be told, less is looked at, so nothing is found
    wrongly.
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
            yield Lapse(at, frozenset(had[content]), mark)


def _marks(lines: Sequence[Line]) -> dict[Any, set[Any]]:
    """Return for everything said what it has, in any of its places."""
    marks = dict[Any, set[Any]]()
    for content, mark in lines:
        marks.setdefault(content, set()).add(mark)
    return marks


class _Run(NamedTuple):
    """The beginning of *after* that was there when *before* was sent, as far as can be told.

    It is the same that was said again, while what was said first is gone, unless all of *before*
    is in it or something did not change.
    """

    unchanged: int
    """How many of its last lines, back to the first that differs, have what they had."""
    length: int
    """How many lines that are."""
    end: int
    """How many lines the run has."""
    is_whole: bool
    """Is all of *before* in it?"""


def _common_run(before: Sequence[Line], after: Sequence[Line]) -> _Run:
    """Return the run, which ends with the last line of *before*.

    Of several such places it is that with before it most that stands as it did, then the first. If
    that line is gone, a common beginning is known.
    """
    if common_length(before, after) == len(before):
        return _Run(0, len(before), len(before), is_whole=True)
    ends = [at + 1 for at, (content, _) in enumerate(after) if content == before[-1][0]]
    if not ends:
        common = common_length([content for content, _ in before], [line[0] for line in after])
        return _Run(0, common, common, is_whole=False)
    runs = (_look_back(before, after, end, LOOK) for end in ends)
    best = max(runs, key=lambda run: (run.unchanged, run.length, -run.end))
    return _look_back(before, after, best.end, len(after))


def _look_back(before: Sequence[Line], after: Sequence[Line], end: int, look: int) -> _Run:
    """Return the run if *before* ended where the first *end* lines of *after* do."""
    back = map(after.__getitem__, range(end - 1, max(end - 1 - look, -1), -1))
    pairs = list(
        takewhile(lambda pair: pair[0][0] == pair[1][0], zip(reversed(before), back, strict=False))
    )
    unchanged = sum(1 for old, new in pairs if old[1] and old[1] == new[1])
    return _Run(unchanged, len(pairs), end, is_whole=len(pairs) == len(before))


def common_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the length of the common beginning."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def fingerprint(message: Message) -> str:
    """Return 8 hex digits that name a message's reasoning, which has no id."""
    text = "\0".join(f"{p.text}\0{p.signature}" for p in message.parts if isinstance(p, Thinking))
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def is_signed(message: Message) -> bool:
    """Does a message hold signed thinking?"""
    if Thinking not in map(type, message.parts):  # nearly always, and sooner known
        return False
    return any(isinstance(part, Thinking) and part.signature for part in message.parts)


SEALED = frozenset(
    {
        "compaction",
        "compaction_summary",
        "context_compaction",
        "additional_tools",
        "compaction_trigger",
    }
)
"""Kinds of entries that a provider reads and nobody else can: a summary of them would lose them
(OA-7, OA-8)."""


def is_sealed(message: Message) -> bool:
    """Does a message hold what its provider alone can read, such as its own compaction of what came
    before?"""
    if Opaque not in map(type, message.parts):  # nearly always, and sooner known
        return False
    return any(isinstance(part, Opaque) and part.kind in SEALED for part in message.parts)


LOADING = frozenset(
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
"""What a search for tools gives, and what adds tools or withdraws them. The model may call what it
names as long as it sees it."""


def loads_of(part: Part) -> frozenset[str]:
    """Return what of a part loads tools."""
    pieces = part.content if isinstance(part, ToolResult) else (part,)
    return frozenset(
        piece.json for piece in pieces if isinstance(piece, Opaque) and piece.kind in LOADING
    )


def entry_fields(entry: Any) -> Record:
    """Return the fields of an entry as it is sent, or of a vendor's object; none for others."""
    if isinstance(entry, Mapping):
        return entry
    return entry.model_dump(mode="json", exclude_none=True) if hasattr(entry, "model_dump") else {}
