"""What an exchange in a conversation is about, told by which words are rare in it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from math import log
from typing import NamedTuple

from refold.text.plain import fold, runs

LONGEST = 72
"""Bytes of a label: of a script without spaces about 24 characters."""
RARE = 0.8
"""A word is rare if fewer than n^(1 - RARE) clauses hold it, in a conversation of n words."""

SPARE = 3
"""Characters before the stretch that are taken along: the beginning of a name is often common."""
SHARED = 1.5
"""What it counts for that both sides use a word, as they do names."""
_WORD = re.compile(r"[^\W_]+")


class Span(NamedTuple):
    """A word, or two letters of a script without spaces, and where it stands."""

    start: int
    stop: int
    term: str


def iter_spans(text: str) -> Iterator[Span]:
    """Yield the words of a text, and of a script without spaces the pairs of letters."""
    folded = fold(text)
    source = folded if len(folded) == len(text) else text
    for match in _WORD.finditer(source):
        start, word = match.start(), match[0]
        if word.isascii():
            yield Span(start, match.end(), word.lower())
            continue
        for run in runs(word):
            if run.dense and len(run.text) > 1:
                for at in range(len(run.text) - 1):
                    yield Span(start + at, start + at + 2, run.text[at : at + 2])
            else:
                yield Span(start, start + len(run.text), run.text)
            start += len(run.text)


class Rarity:
    """Which words of a conversation are rare, and which of them both sides use."""

    def __init__(self, asked: Iterable[str], said: Iterable[str]) -> None:
        questions, answers = _count(asked), _count(said)
        self.counts = questions + answers
        self.shared = questions.keys() & answers.keys()

    def find_label(self, text: str) -> str:
        """Return the stretch of *text* that is rarest in the conversation; empty if none is."""
        limit = RARE * log(len(self.counts) + 1)
        best, total, begin = (0.0, 0, 0), 0.0, 0
        for span in iter_spans(text):
            if total <= 0:
                total, begin = 0.0, span.start
            total += log((len(self.counts) + 1) / max(1, self.counts[span.term])) - limit
            total += SHARED * (span.term in self.shared)
            best = max(best, (total, begin, span.stop))
        points, start, stop = best
        if points <= limit:
            return ""
        first = max(0, start - SPARE)
        while start > first and text[start - 1].isalnum():
            start -= 1
        return _cut_label(text[start:stop].strip())


def _cut_label(text: str) -> str:
    """Return *text*, or of a longer one the words at its beginning."""
    if len(text.encode("utf-8", "replace")) <= LONGEST:
        return text
    cut = text.encode("utf-8", "replace")[:LONGEST].decode("utf-8", "ignore")
    return cut.rpartition(" ")[0] or cut


def _count(clauses: Iterable[str]) -> Counter[str]:
    return Counter(
        term for clause in clauses for term in {span.term for span in iter_spans(clause)}
    )
