"""What an exchange in a conversation is about, told by which words are rare in it."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import log
from typing import NamedTuple

from refold.text.plain import fold, runs

LONGEST = 96
"""Bytes of a label: of a script without spaces about 32 characters."""
SHORTEST = 18
"""Bytes of a statement that names something: six letters of such a script."""
RARE = 0.8
"""A word is rare if fewer than n^(1 - RARE) clauses hold it, in a conversation of n words."""

SPARE = 3
"""Characters before the stretch that are taken along: the beginning of a name is often common."""
SHARED = 1.5
"""What each word of a stretch counts for besides: a longer name beats a rare pair of letters."""
_ANY_WORD = re.compile(r"[^\W_]+")
_SENTENCE_ENDS = re.compile(r"[。！？]|[.!?]\s")


class Span(NamedTuple):
    """A word, or two letters of a script without spaces, and where it stands."""

    start: int
    stop: int
    term: str


def _iter_spans(text: str) -> Iterator[Span]:
    """Yield the words of a text, and of a script without spaces the pairs of letters."""
    folded = fold(text)
    source = folded if len(folded) == len(text) else text
    for match in _ANY_WORD.finditer(source):
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

    def __init__(self, asked: Iterable[str], said: Sequence[str]) -> None:
        self.counts, self.clauses = Counter[str](), Counter(said)
        self.shared = self._read(asked) & self._read(said)

    def _read(self, clauses: Iterable[str]) -> set[str]:
        """Count the words of clauses, each once a clause; return the stretches in them."""
        stretches = set[str]()
        for clause in clauses:
            spans = [*_iter_spans(clause)]
            self.counts.update({span.term for span in spans})
            stretches.update(stretch for _, stretch in _iter_stretches(spans))
        return stretches

    def find_label(self, text: str) -> str:
        """Return the stretch of *text* that is rarest in the conversation, of those that both sides
        use, as they do names; if there is none, of its words; empty if none is rare.

        Of a script without spaces only what both sides use counts: where a word begins is not
        known, and a rare pair of letters is a piece of a phrase.
        """
        spans = [*_iter_spans(text)]
        stretches = [*_iter_stretches(spans)]
        shared = {at for at, stretch in stretches if stretch in self.shared}
        words = {at for at, stretch in stretches if stretch == spans[at].term}
        label = self._find_rarest(text, spans, shared, SHARED)
        return label or self._find_rarest(text, spans, words, 0.0)

    def find_statement(self, clauses: Iterable[str]) -> str:
        """Return the first clause of an answer that states something and is no longer than a label:
        nobody says it twice, as they do courtesies, and it has no figures, as what is said of
        things has; empty if there is none. Names that only one side uses stand there."""
        for clause in clauses:
            is_long = SHORTEST <= len(clause.encode("utf-8", "replace")) <= LONGEST
            if is_long and self.clauses[clause] == 1 and not any(map(str.isdigit, clause)):
                return clause.rstrip("。！？；，.!?;,")
        return ""

    def _find_rarest(
        self, text: str, spans: Sequence[Span], counting: Collection[int], bonus: float
    ) -> str:
        limit = RARE * log(len(self.counts) + 1)
        best, total, begin, first = (0.0, 0, 0, 0), 0.0, 0, 0
        for at, span in enumerate(spans):
            if at and _SENTENCE_ENDS.search(text, spans[at - 1].stop, span.start):
                total, first = 0.0, span.start
            if at not in counting:
                total, first = 0.0, span.stop
                continue
            if total <= 0:
                total, begin = 0.0, span.start
            total += log((len(self.counts) + 1) / max(1, self.counts[span.term])) - limit + bonus
            best = max(best, (total, begin, span.stop, first))
        points, start, stop, first = best
        if points <= limit:
            return ""
        first = max(first, start - SPARE)
        while start > first and text[start - 1].isalnum():
            start -= 1
        if "(" in text[start:stop] and text[stop : stop + 1] == ")":
            stop += 1
        return _cut_label(text[start:stop].strip())


def _iter_stretches(spans: Sequence[Span]) -> Iterator[tuple[int, str]]:
    """Yield each word with its position; of a script without spaces each pair of letters with the
    letter before it, and with the letter behind."""
    last = len(spans) - 1
    for at, span in enumerate(spans):
        has_before = at > 0 and span.start == spans[at - 1].start + 1
        has_behind = at < last and spans[at + 1].start == span.start + 1
        if has_before:
            yield at, spans[at - 1].term + span.term[-1]
        if has_behind:
            yield at, span.term + spans[at + 1].term[-1]
        if not has_before and not has_behind:
            yield at, span.term


def _cut_label(text: str) -> str:
    """Return *text*, or of a longer one the words at its beginning."""
    if len(text.encode("utf-8", "replace")) <= LONGEST:
        return text
    cut = text.encode("utf-8", "replace")[:LONGEST].decode("utf-8", "ignore")
    return cut.rpartition(" ")[0] or cut
