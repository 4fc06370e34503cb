"""Outlines of line-based texts: logs, code, diffs, tables.

Each function weighs the lines of a text, or returns None if the shape is of another kind. *asked*
are the terms asked for (`refold.text.plain.terms`).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby
from math import log
from typing import Any, NamedTuple

from refold.text.clip import head, tail
from refold.text.failures import ERRORS, ERRORS_ELSEWHERE, is_failure
from refold.text.plain import terms

WIDTH = 400
"""Maximum characters shown of a line; a longer one is shown by its beginning and end."""
MIN_LINES = 12
"""Minimum number of lines for a shape to be recognised."""
ENDS = 0.3
"""Fraction of the room for the first lines, and for the last ones."""
FIRST = 0.1
"""Fraction of the room for the lines that a kind puts first, such as signatures in code."""
NEIGHBOUR_DECAY = 0.9
"""Factor by which weight falls from one line to the next."""
MAX_UNGROUPED = 2
"""Maximum number of lines of one kind that each count for themselves."""


class Line(NamedTuple):
    """Line of an outline."""

    text: str
    weight: float = 0.0
    entries: int = 1
    """Number of entries that it represents; 0 if another line counts it."""
    parent: int = -1
    """Index of the line that must be shown with it; negative if none."""


class Outline(NamedTuple):
    """Weighted lines of a text."""

    lines: Sequence[Line]
    first: Sequence[int] = ()
    """Indexes of lines chosen before the rest, as many as fit in their share of the room."""
    ends: float = 0.0
    """Fraction of the room for the first lines that are entries, and for the last ones."""
    noun: str = "lines"
    """Unit of the markers' counts."""

    def show(self, room: int) -> str:
        """Return the lines with the most weight that fit in *room* characters, in order.

        A marker replaces each run of omitted lines and tells their number of entries.
        """
        lines, texts = self.lines, [_shorten(line.text) for line in self.lines]
        mark = len(_mark(sum(line.entries for line in lines), self.noun)) + 1
        chosen = self._choose(texts, room)
        order = sorted(range(len(lines)), key=lambda at: (at not in chosen, -lines[at].weight))
        # the places before and after the text count as shown, since they have no marker
        shown = [True, *[False] * len(lines), True]
        room -= mark - 1
        for at in order:
            cost = len(texts[at]) + 1 + mark * (1 - shown[at] - shown[at + 2])
            if cost <= room and shown[lines[at].parent + 1]:
                shown[at + 1] = True
                room -= cost
        return "\n".join(self._render(texts, shown))

    def _choose(self, texts: Sequence[str], room: int) -> set[int]:
        """Return the lines at both ends and those of `first` that fit in their shares of *room*."""
        own = [at for at, line in enumerate(self.lines) if line.entries]
        ends = _fill(texts, own, self.ends * room) | _fill(texts, own[::-1], self.ends * room)
        return ends | _fill(texts, [at for at in self.first if at not in ends], FIRST * room)

    def _render(self, texts: Sequence[str], shown: Sequence[bool]) -> Iterator[str]:
        """Yield the shown lines, and a marker for each run of others unless that is no shorter."""
        for is_shown, run in groupby(range(len(texts)), key=lambda at: shown[at + 1]):
            places = [*run]
            hidden = sum(self.lines[at].entries for at in places)
            mark = _mark(hidden, self.noun)
            is_short = sum(len(texts[at]) + 1 for at in places) <= len(mark) + 1
            if is_shown or (is_short and all(shown[self.lines[at].parent + 1] for at in places)):
                yield from (texts[at] for at in places)
            elif hidden:
                yield mark


def _mark(count: int, noun: str) -> str:
    return f"[… {count:,} {noun if count > 1 else noun.removesuffix('s')}]"


def _shorten(line: str) -> str:
    return line if len(line) <= WIDTH else f"{head(line, WIDTH // 2)} … {tail(line, WIDTH // 4)}"


def _fill(texts: Sequence[str], order: Iterable[int], room: float) -> set[int]:
    """Return the first lines in *order* that fit in *room* characters together."""
    chosen = set[int]()
    for at in order:
        room -= len(texts[at]) + 1
        if room < 0:
            break
        chosen.add(at)
    return chosen


def weigh_asked(lines: Sequence[str], asked: Collection[str]) -> list[float]:
    """Return how much of the terms asked for each line contains, from 0 to 1.

    A term that fewer lines contain has more weight.
    """
    if not asked:
        return [0.0] * len(lines)
    matches = [{*terms(line)}.intersection(asked) for line in lines]
    held = Counter(chain.from_iterable(matches))
    rare = {term: log(len(lines) / count) for term, count in held.items()}
    sums = [sum(sorted(rare[term] for term in match)) for match in matches]
    most = max(sums, default=0) or 1
    return [each / most for each in sums]


def _spread(
    weights: Sequence[float],
    after: Callable[[float, float], float],
    before: Callable[[float, float], float],
) -> list[float]:
    """Spread the weight of each line to the lines after and before it by these functions."""
    return [*map(max, accumulate(weights, after), [*accumulate(weights[::-1], before)][::-1])]


# --- kinds ---------------------------------------------------------------------------------------

_VARYING = re.compile(r"[0-9a-fA-F]{6,}+|\d++")
"""Text that varies between lines of one kind: numbers, hashes, addresses, times."""


def outline_log(text: str, asked: Collection[str]) -> Outline | None:
    """Outline a log, or the output of a build or of tests: errors and the first line of each kind.

    Lines that differ only in numbers are of one kind; the first line tells how many there are.
    """
    lines = text.split("\n")
    kinds = [_VARYING.sub("0", line).strip() for line in lines]
    counts = Counter(kind for kind in kinds if kind)
    many = counts.total()
    if many < MIN_LINES or not (len(counts) <= 0.7 * many or is_failure(text)):
        return None
    wrong = _spread(
        [float(_is_wrong(line)) for line in lines],
        lambda before, own: max(own, before - 1 / 8),
        lambda after, own: max(own, after - 1 / 4),
    )
    extra = map(sum, zip(weigh_asked(lines, asked), wrong, strict=True))
    weighed, seen = list[Line](), {""}
    for line, kind, weight, even in zip(
        lines, kinds, extra, spread_evenly(len(lines)), strict=True
    ):
        count = counts[kind]
        if kind in seen:
            weighed.append(Line(line, weight / 2, int(count <= MAX_UNGROUPED)))
            continue
        seen.add(kind)
        title = f"{line}  (×{count:,})" if count > MAX_UNGROUPED else line
        weighed.append(Line(title, 1 + weight + even / 2))
    return Outline(weighed, ends=ENDS)


def _is_wrong(line: str) -> bool:
    lower = line.lower()
    return any(word in lower for word in ERRORS) or (
        not line.isascii() and any(word in lower for word in ERRORS_ELSEWHERE)
    )


_NUMBER = re.compile(r"\s{0,8}\d{1,7}(?:[→|:\t]|  )")
"""Line number that tools print before a line of a file."""
_CODE_ENDS = frozenset("{}();:,>]")


def outline_code(text: str, asked: Collection[str]) -> Outline | None:
    """Outline code: its ends, the lines that open a block, and lines near the terms asked for.

    A line opens a block if the next one is indented more. It has more weight the less it is
    indented. That works in any language.
    """
    lines = text.split("\n")
    bare = [_NUMBER.sub("", line, count=1).expandtabs(4) for line in lines]
    indents = [len(line) - len(line.lstrip()) if line.strip() else None for line in bare]
    if not _is_code(bare, indents) or is_failure(text):
        return None
    opening = _weigh_openings(indents)
    order = sorted((at for at in range(len(lines)) if opening[at]), key=lambda at: -opening[at])
    named = [
        weight * (1 + bool(opens))
        for weight, opens in zip(weigh_asked(bare, asked), opening, strict=True)
    ]
    near = _spread(named, _fade, _fade)
    return Outline([Line(*pair) for pair in zip(lines, near, strict=True)], order, ENDS)


def _fade(before: float, own: float) -> float:
    return max(own, NEIGHBOUR_DECAY * before)


def _is_code(lines: Sequence[str], indents: Sequence[int | None]) -> bool:
    written = [line.rstrip() for line in lines if line.strip()]
    return (
        len(written) >= MIN_LINES
        and sum(map(bool, indents)) >= 0.3 * len(written)
        and sum(line[-1] in _CODE_ENDS for line in written) >= 0.3 * len(written)
    )


def _weigh_openings(indents: Sequence[int | None]) -> list[float]:
    """Return 1 / (1 + level) for each line that opens a block, and 0 for the others."""
    levels = {indent: at for at, indent in enumerate(sorted({i for i in indents if i is not None}))}
    weights, after = [0.0] * len(indents), 0
    for at in reversed(range(len(indents))):
        if (indent := indents[at]) is not None:
            weights[at] = 1 / (1 + levels[indent]) if after > indent else 0.0
            after = indent
    return weights


_HUNK = re.compile(r"^@@ -\d", re.MULTILINE)
_FILE = ("diff ", "--- ", "+++ ", "index ", "new file", "deleted file", "rename ", "similarity ")
"""Prefixes of lines that name the file of a diff."""
FADES = 40
"""Number of changed lines of a file after which further ones have half the weight."""


def outline_diff(text: str, asked: Collection[str]) -> Outline | None:
    """Outline a diff: its files, its hunks, and the first changed lines of each file."""
    if not _HUNK.search(text) or "\n+++ " not in f"\n{text}":
        return None
    lines = text.split("\n")
    title = "diff " if any(line.startswith("diff ") for line in lines) else "+++ "
    weighed, changes = list[Line](), 0
    for line, extra in zip(lines, weigh_asked(lines, asked), strict=True):
        if line.startswith(_FILE):
            changes = 0
            weighed.append(Line(line, 4.0 if line.startswith(title) else 0.0))
            continue
        is_changed = line.startswith(("+", "-"))
        changes += is_changed
        weight = 2.0 if line.startswith("@@") else 1.0 if is_changed else 0.5
        weighed.append(Line(line, (weight + extra) / (1 + changes / FADES)))
    return Outline(weighed)


SAMPLES = 8
"""Number of places of a long text that are sampled."""
RARE = 0.05
"""Maximum fraction of rows or entries with a value that counts as unusual."""


def outline_table(text: str, asked: Collection[str]) -> Outline | None:
    """Outline a table: its header, rows with a rare value in a column, and some others."""
    lines = text.split("\n")
    delimiter = next((mark for mark in "\t|,;" if _is_table(lines, mark)), None)
    if delimiter is None:
        return None
    rows = [dict(enumerate(map(str.strip, line.split(delimiter)))) for line in lines]
    weights = zip(weigh_odd(rows), spread_evenly(len(rows)), weigh_asked(lines, asked), strict=True)
    weighed = [Line(line, sum(each)) for line, each in zip(lines, weights, strict=True)]
    return Outline(weighed, range(3), noun="rows")


def _is_table(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether most lines have the same number of columns, at least three."""
    counts = Counter(line.count(delimiter) for line in lines if line.strip())
    columns, many = counts.most_common(1)[0] if counts else (0, 0)
    return columns > 1 and many >= max(MIN_LINES, 0.8 * counts.total())


def weigh_odd(rows: Sequence[Mapping[Any, str]]) -> list[float]:
    """Return 1 for each row with a rare value in a column of few distinct values, else 0."""
    values = Counter(chain.from_iterable(row.items() for row in rows))
    distinct = Counter(key for key, _ in values)
    narrow = {key for key, count in distinct.items() if count <= max(2, len(rows) / 10)}
    odd = {
        cell
        for cell, count in values.items()
        if cell[0] in narrow and count <= max(1, RARE * len(rows))
    }
    return [float(not odd.isdisjoint(row.items())) for row in rows]


def spread_evenly(count: int) -> list[float]:
    """Return weights from 1 to 0: the highest are spread evenly and the rest decrease from the
    start, since each isolated line costs a marker."""
    step = max(1, -(-count // SAMPLES))
    return [1.0 if at % step == 0 else 0.8 * (1 - at / count) for at in range(count)]
