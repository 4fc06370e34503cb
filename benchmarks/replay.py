"""Replay a recorded conversation under a policy and check what the requests still hold of what
calls need.

At each model call the policy shows a view of everything before it. A call needs the identifiers
that its arguments use for the first time and that a tool result introduced. No model is asked. A
model may overlook a string that is sent, so this recall is an upper bound of a model's.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from refold.codecs.detect import open_payload
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult
from refold.summarizers.heuristic.identifiers import read_paths
from refold.text.plain import plain_text
from refold.tokens.count import count_fixed, count_message

STRUCTURED = re.compile(
    r"\b[A-Za-z_]\w*(?:[._/\-]\w+)+"  # dotted names, paths, kebab case
    r"|\b[a-z]+(?:[A-Z]\w*)+"  # camelCase
    r"|\b[A-Za-z]+_\w+"  # snake_case, UPPER_CASE
    r"|\b[A-Z][a-z]+[A-Z]\w+"  # PascalCase
    r"|\b[0-9a-f]{7,40}\b"  # hashes
)
"""Identifiers of programs: words that are recognised by their structure alone."""

_GROUP = re.compile(
    r"(?<![^\s\"{}])[^\s\"{}]{1,1000}+(?<=/)\{[^\s\"{}]++\}(?:/(?:\{[^\s\"{}]++\}|[^\s\"{}]++))?"
)
"""Groups of paths, as `refold.summarizers.heuristic.layout.group_paths` writes them."""

Place = Literal["tail", "stub", "summary"]
"""Where an identifier is readable: in an unchanged message, else in the replacement of one message,
else in the replacement of several."""


class Need(NamedTuple):
    """An identifier that a call uses for the first time and that a tool result introduced."""

    at: int
    """Position of the message that makes the call."""
    name: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy sent and what of it was needed, over all calls of one recording."""

    calls: int = 0
    """Model calls."""
    tokens: int = 0
    """Tokens of the messages of all requests, stubs and summaries included."""
    breaks: int = 0
    """Calls whose request does not continue the previous one, so that a prompt cache breaks."""
    needed: int = 0
    """Identifiers that the calls needed."""
    survived: Mapping[Place, int] = field(default_factory=dict)
    """Number of these that the requests held, by the first place of each."""

    @property
    def recall(self) -> float:
        """Return the share of the needed identifiers that were sent; 1.0 if none was needed."""
        return sum(self.survived.values()) / self.needed if self.needed else 1.0

    def __add__(self, other: "Replay") -> "Replay":
        """Add up two replays."""
        totals = Counter(self.survived) + Counter(other.survived)
        return Replay(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.breaks + other.breaks,
            self.needed + other.needed,
            totals,
        )


@dataclass(frozen=True)
class Recording:
    """A recorded conversation that can be replayed under any policy."""

    payload: dict[str, Any]
    """Request body with the whole conversation."""
    pattern: re.Pattern[str] = STRUCTURED
    """Pattern of identifiers."""

    @cached_property
    def messages(self) -> Sequence[Message]:
        """Decode all messages."""
        return open_payload(self.payload).decode()

    @cached_property
    def calls(self) -> tuple[int, ...]:
        """Return the positions of model calls: the first message of each answer."""
        messages = self.messages
        answers = (at for at, message in enumerate(messages) if message.role == "assistant")
        return tuple(at for at in answers if at and messages[at - 1].role != "assistant")

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """Return what the calls need, in order."""
        head = open_payload(self.payload).system
        system = "\n".join(part.text for part in head if isinstance(part, Text))
        return tuple(_needs(self.messages, self.pattern, system))

    @property
    def size(self) -> int:
        """Count the tokens of the whole conversation without system prompt and tools."""
        return sum(map(count_message, self.messages))

    @property
    def fixed(self) -> int:
        """Count the tokens of system prompt and tools, which a budget must include."""
        envelope = open_payload(self.payload)
        return count_fixed(envelope.system, envelope.tools)

    @cached_property
    def wanted(self) -> dict[int, list[str]]:
        """Return the needed identifiers by the position of the model call."""
        wanted: dict[int, list[str]] = {}
        for need in self.needs:
            wanted.setdefault(
                max((at for at in self.calls if at <= need.at), default=-1), []
            ).append(need.name)
        return wanted

    @cached_property
    def found(self) -> dict[str, list[int]]:
        """Return the positions of the messages whose text holds each needed identifier."""
        texts = [plain_text(message) for message in self.messages]
        return {
            name: [at for at, text in enumerate(texts) if name in text]
            for name in {n.name for n in self.needs}
        }

    def replay(self, compactor: Compactor, shorten: Callable[[View], View] | None = None) -> Replay:
        """Compact every request of the recording with *compactor*, then *shorten*, and return the
        sums.

        Raises what the compactor raises. Takes the time of a session of this length.
        """
        total, sent = Replay(), tuple[Message, ...]()
        for at, compacted in self._requests(compactor):
            view = shorten(compacted) if shorten else compacted
            wanted = self.wanted.get(at, ())
            survived = Counter(place for place in places(view, wanted, self.found) if place)
            tokens = view.tokens - view.profile.calibrate(view.profile.fixed_tokens)
            broke = view.messages[: len(sent)] != sent
            sent = view.messages
            total += Replay(1, tokens, int(broke), len(wanted), survived)
        return total

    def _requests(self, compactor: Compactor) -> Iterator[tuple[int, View]]:
        """Yield the position and the view of each model call."""
        envelope = open_payload(self.payload)
        name, head = envelope.codec.FIELD, envelope.head
        entries = self.payload[name]
        for at in self.calls:
            yield at, compactor({**self.payload, name: entries[: head + at]})


def _needs(messages: Iterable[Message], pattern: re.Pattern[str], system: str) -> Iterator[Need]:
    mentioned, brought, used = set(pattern.findall(system)), set[str](), set[str]()
    for at, message in enumerate(messages):
        now = [
            name
            for part in message.parts
            if isinstance(part, ToolCall)
            for name in names(part, pattern)
        ]
        for name in dict.fromkeys(now):
            if name in brought and name not in used:
                yield Need(at, name)
        used.update(now)
        mentioned.update(
            name for name in (*now, *pattern.findall(message.text)) if name not in brought
        )
        for part in message.parts:
            if isinstance(part, ToolResult):
                brought.update(name for name in pattern.findall(part.text) if name not in mentioned)


def names(call: ToolCall, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the identifiers in the strings of a call's arguments (values, not field names)."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    for text in iter_strings(arguments):
        yield from pattern.findall(text)


def iter_strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, without recursion."""
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case dict() as fields:
                pending += reversed(fields.values())
            case list() as items:
                pending += reversed(items)
            case _:
                pass


def places(
    view: View, wanted: Sequence[str], positions: dict[str, list[int]]
) -> list[Place | None]:
    """Return where *view* still shows each name. *positions* has the messages that hold it."""
    if not wanted:
        return []
    swapped = "\n".join(_summary_texts(view, several=False))
    folded = expand_groups("\n".join(_summary_texts(view, several=True)))
    hidden = {
        at for placed in view.visible_edits for at in range(placed.edit.start, placed.edit.stop)
    }
    end = len(view.transcript)

    def place(name: str) -> Place | None:
        if any(at < end and at not in hidden for at in positions[name]):
            return "tail"
        return "stub" if name in swapped else "summary" if name in folded else None

    return [place(name) for name in wanted]


def expand_groups(text: str) -> str:
    """Append to a summary's text the paths of its groups: `src/{a.py,b.py}` is two paths."""
    groups = (path for match in _GROUP.finditer(text) for path in read_paths(match[0]))
    return "\n".join((text, *groups))


def _summary_texts(view: View, *, several: bool) -> Iterator[str]:
    """Yield the texts that replace single messages, or several messages."""
    for edit, _ in view.visible_edits:
        if (edit.stop - edit.start > 1) == several:
            yield from map(plain_text, edit.insert)
