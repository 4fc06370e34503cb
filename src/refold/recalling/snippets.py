"""The piece of a text that shows best why it was found."""

import re

from refold.clip import ceiling, floor
from refold.terms import ASKED, runs

SEEN = 2_000
"""Places in one text that are weighed against one another."""


def snippet(text: str, query: str, width: int) -> str:
    """At most *width* characters of *text*, on one line, around the place that holds most of *query*;
    `…` where something is left out."""
    if len(text) <= width:
        return " ".join(text.split())
    start = max(0, min(_best(text, query, width) - width // 5, len(text) - width + 2))
    start = ceiling(text, start) if start else 0
    stop = floor(text, min(len(text), start + width - 2))
    return "…" * (start > 0) + " ".join(text[start:stop].split()) + "…" * (stop < len(text))


def _best(text: str, query: str, width: int) -> int:
    """Where the stretch of *width* characters begins that holds the most different words, by length."""
    literal = text.lower().find(query.strip().lower())
    if literal >= 0:
        return min(literal, len(text) - 1)
    pattern = words(query)
    spans = (
        [(m.start(), m[0].lower()) for m, _ in zip(pattern.finditer(text), range(SEEN), strict=False)]
        if pattern
        else []
    )
    best, where, first, inside = 0, 0, 0, dict[str, int]()
    for at, word in spans:
        inside[word] = inside.get(word, 0) + 1
        while at - spans[first][0] > width * 3 // 5:
            gone = spans[first][1]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            first += 1
        worth = sum(map(len, inside))
        if worth > best:
            best, where = worth, spans[first][0]
    return where


def words(query: str) -> re.Pattern[str] | None:
    """What finds the words of *query* in a text, the longest first; None if it has none."""
    found = {run.text for run in runs(query[:ASKED])}
    pairs = {run.text[at : at + 2] for run in runs(query[:ASKED]) if run.dense for at in range(len(run.text) - 1)}
    wanted = sorted(found | pairs, key=lambda word: (-len(word), word))
    return re.compile("|".join(map(re.escape, wanted)), re.IGNORECASE) if wanted else None
