"""Extractors take memories out of messages; this one by rules."""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from refold.core.strategy import Answer, Ask
from refold.core.view import View
from refold.memory.redact import redact
from refold.memory.stores import Kind, Memory
from refold.messages import Message, ToolResult
from refold.speakers import request_text
from refold.summarizers.heuristic.cues import find_conclusions, find_constraints
from refold.summarizers.heuristic.lexicon import PREFERRING
from refold.summarizers.heuristic.names import IdentifierTally, note_identifiers, rank_identifiers
from refold.summarizers.heuristic.words import clip_scanned, one_line, sentences
from refold.text.summary_wrapper import without_summary


class Extraction(NamedTuple):
    """What an extractor returns."""

    memories: tuple[Memory, ...]
    reason: str = ""
    """Why it did less than was asked for; empty if it did not."""


Extractor = Callable[[View, Sequence[int]], Generator[Ask, Answer | None, Extraction]]
"""Takes memories out of the messages of a view's transcript at some positions. It may `yield
Ask`."""


def make_memory(view: View, kind: Kind, text: str, at: int, by: str, concept: str = "") -> Memory:
    """Return a memory of what the message at *at* said, without secrets."""
    tip = view.transcript.tips[at + 1]
    return Memory(
        kind=kind, text=redact(text), concept=concept, start=at, stop=at + 1, tip=tip, by=by
    )


LONGEST = 300
"""Characters of a memory; a longer sentence is cut."""

_DECIDES = re.compile(
    r"\b(?:(?:I|we)(?:['’]ve| have)? (?:decided|chose|agreed|settled|finali[sz]ed|booked|confirmed)"
    r"|let['’]?s (?:go with|use|stick with)|(?:I|we)['’]?(?:ll| will) (?:go with|use|take)|final(?:ly)? (?:choice|decision))\b"
    r"|决定|決定|就(?:用|选|選|定|要)|[确確]定(?:用|选|選|了)|敲定|改成|改用|定下[来來]",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"\b(?:my|our) (?:\w+ ){1,4}(?:is|are|was|were|has|starts?|runs?)\b"
    r"|\b(?:I am|I['’]m|we are|we['’]re) (?:an? |the |from |in |at |on |"
    r"based |using |working |running |\d)"
    r"|\b(?:I|we) (?:live|work|use|have|own|moved|study|teach|run|deploy|host|earn|"
    r"weigh|speak)\b|\bcall me\b"
    r"|我[们們]?(?:叫|是|住|来自|來自|在\w|有|用|使用|会|會|今年|负责|負責|学|學)|我[们們]?的\w{1,10}(?:是|叫|在|有|为|為)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RuleExtractor:
    """Takes memories out of messages by rules. Asks no model; deterministic.

    Preferences and standing constraints, statements about themselves and decisions out of the
    user's own words; decisions and findings out of the assistant's; values of id fields (`order_id:
    W7731`) out of results.
    """

    max_each: int = 40
    """At most so many decisions of the assistant's, the weightiest, and so many values, per
    call."""

    def __call__(
        self, view: View, positions: Sequence[int]
    ) -> Generator[Ask, Answer | None, Extraction]:
        """Return the memories in the messages at *positions*."""
        yield from ()
        messages = view.transcript.messages
        own = [(at, without_summary(messages[at])) for at in positions]
        memories = [
            make_memory(view, kind, text, at, repr(self))
            for at, message in own
            for kind, text in _user_statements(message)
        ]
        memories += [
            make_memory(view, "decision", text, at, repr(self))
            for at, text in _weightiest(own, self.max_each)
        ]
        memories += [
            make_memory(view, "fact", text, at, repr(self))
            for at, text in _values(own, self.max_each)
        ]
        return Extraction(_distinct(memories))


def _user_statements(message: Message) -> Iterator[tuple[Kind, str]]:
    """Yield what the user's own words state, with its kind. Secrets go first: of one that is cut
    its beginning would stay."""
    own = redact(request_text(message))
    binding = set(find_constraints(own))
    for sentence in sentences(own):
        line = one_line(sentence, LONGEST)
        if len(line.encode("utf-8", "replace")) < 9 or line.endswith(("?", "？")):
            continue
        if _DECIDES.search(line):
            yield "decision", line
        elif line in binding or PREFERRING.is_in(line):
            yield "preference", line
        elif _STATES.search(line):
            yield "fact", line


def _weightiest(messages: Sequence[tuple[int, Message]], limit: int) -> list[tuple[int, str]]:
    """Return the assistant's sentences that decide most, in the order in which they were said."""
    weighed = [
        (-weight, at, text)
        for at, message in messages
        if message.role == "assistant"
        for weight, text in find_conclusions(
            clip_scanned(redact(message.text)), final=not message.calls
        )
    ]
    return sorted((at, text) for _, at, text in sorted(weighed)[:limit])


def _values(messages: Sequence[tuple[int, Message]], limit: int) -> list[tuple[int, str]]:
    """Return values of id fields in results, the likeliest to be used again first, each with where
    it stood last."""
    tally = IdentifierTally()
    for at, message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                note_identifiers(tally, part.text, at, "result")
    now = messages[-1][0] + 1 if messages else 0
    entries = (entry for entry in rank_identifiers(tally, now) if entry.kind == "value")
    return [
        (tally.last[entry.text], f"{entry.field}: {entry.text}")
        for entry, _ in zip(entries, range(limit), strict=False)
    ]


def _distinct(memories: Sequence[Memory]) -> tuple[Memory, ...]:
    """Return each content once, where it was said first."""
    return tuple({memory.id: memory for memory in reversed(memories)}.values())[::-1]
