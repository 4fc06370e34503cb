"""Probe questions: how much of a session's content is readable in a request, and how much can be
found."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from benchmarks.questions import grams
from benchmarks.replay import STRUCTURED, expand_groups
from refold.core.view import View
from refold.messages import Message
from refold.retrieval import Index
from refold.retrieval.search import find_hidden as hidden_in
from refold.speakers import request_text
from refold.text.plain import plain_text, readable_text
from refold.text.summary_wrapper import summary_in

KINDS = ("requests", "constraints", "paths", "names")
MOST = 60
"""Maximum number of questions of one kind at one point of a session, taken at equal distances."""
HITS = 10
AROUND = 100
"""Characters on either side of a name that form its question."""
BINDS = re.compile(
    r"\b(?:must|never|always|do not|don['’]t|only|make sure|ensure|avoid|should not|without)\b"
    r"|必须|不要|不能|不得|禁止|只能|务必|始终|避免",
    re.IGNORECASE,
)
"""Words that make a user's sentence a constraint."""
ENDS = re.compile(r"(?<=[.!?。！？])\s+|\n+")


class Probe(NamedTuple):
    """A question about the session, and its answer word for word."""

    kind: str
    answer: str
    question: str
    """The search text of an agent that does not know the answer: the first third of a request or
    constraint, or the text on either side of the first occurrence of a path or name."""


@dataclass(frozen=True, slots=True)
class Score:
    """Number of questions of one kind, and of those whose answer is available."""

    asked: int = 0
    visible: int = 0
    """In the request."""
    reached: int = 0
    """In the request, or in one of the hidden messages that `recall` finds."""

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.asked + other.asked, self.visible + other.visible, self.reached + other.reached
        )


def probes(
    messages: Sequence[Message], system: str = "", pattern: re.Pattern[str] = STRUCTURED
) -> list[Probe]:
    """Return the questions about *messages*, each answer once, without those that *system*
    contains."""
    own = [
        text
        for m in messages
        if m.is_request and summary_in(m) is None and (text := plain(request_text(m)))
    ]
    rules = [
        plain(sentence)
        for m in messages
        if m.is_request
        for sentence in ENDS.split(request_text(m))
        if BINDS.search(sentence)
    ]
    questions = [
        Probe("requests", text, text[: max(20, len(text) // 3)]) for text in dict.fromkeys(own)
    ]
    questions += [
        Probe("constraints", rule, rule[: max(20, len(rule) // 3)]) for rule in dict.fromkeys(rules)
    ]
    questions += _iter_names(messages, set(pattern.findall(system)), pattern)
    return [
        probe
        for kind in KINDS
        for probe in sample([probe for probe in questions if probe.kind == kind])
    ]


def _iter_names(
    messages: Iterable[Message], seen: set[str], pattern: re.Pattern[str]
) -> Iterator[Probe]:
    for message in messages:
        text = plain_text(message)
        for match in pattern.finditer(text):
            name = match[0]
            if name not in seen:
                seen.add(name)
                around = (
                    text[max(0, match.start() - AROUND) : match.start()],
                    text[match.end() : match.end() + AROUND],
                )
                yield Probe(
                    "paths" if "/" in name else "names", name, " ".join(around).replace(name, " ")
                )


def sample(all_probes: Sequence[Probe]) -> Iterator[Probe]:
    """Yield at most `MOST` probes at equal distances."""
    many = min(MOST, len(all_probes))
    return (all_probes[at * len(all_probes) // many] for at in range(many))


def plain(text: str) -> str:
    """Return *text* with whitespace collapsed."""
    return " ".join(text.split())


def score_answers(view: View, wanted: Iterable[Probe], index: Index | None) -> dict[str, Score]:
    """Return the score of each kind; without an *index* hidden messages cannot be searched."""
    texts = [_read(message) for message in view.messages]
    text = "\n".join(texts)
    line, held = plain(text), frozenset[str]().union(*map(grams, texts))
    search = Search(view, index) if index is not None else None
    scores = dict.fromkeys(KINDS, Score())
    for probe in wanted:
        visible = _is_kept(probe, text, line, held)
        is_reached = visible or (search is not None and search.finds(probe))
        scores[probe.kind] += Score(1, int(visible), int(is_reached))
    return scores


class Search:
    """`refold.recall` without its snippets, for many questions about one view."""

    def __init__(self, view: View, index: Index) -> None:
        self._transcript, self._index = view.transcript, index
        hidden = sorted(hidden_in(view))
        index.add(self._transcript, hidden[-1] + 1 if hidden else 0)
        self._tips = {self._transcript.tips[at + 1]: at for at in hidden}

    def finds(self, probe: Probe) -> bool:
        """Return whether one of the best hits contains the answer."""
        hits = self._index.find(self._tips, probe.question) if self._tips else {}
        best = sorted(hits, key=lambda at: (-round(hits[at], 6), -at))[:HITS]
        return any(probe.answer in _line(self._transcript.messages[at]) for at in best)


@lru_cache(maxsize=10_000)
def _line(message: Message) -> str:
    return plain(readable_text(message))


def _read(message: Message) -> str:
    """Return the text of a message, in one of our summaries with the groups of paths expanded."""
    return (
        plain_text(message) if summary_in(message) is None else expand_groups(plain_text(message))
    )


def _is_kept(probe: Probe, text: str, line: str, held: frozenset[str]) -> bool:
    """Return whether a name is present word for word; for a request or constraint, also if at least
    half of its sequences of three words are."""
    if probe.kind in {"paths", "names"}:
        return probe.answer in text
    runs = grams(probe.answer)
    return probe.answer in line or bool(runs and 2 * len(runs & held) >= len(runs))
