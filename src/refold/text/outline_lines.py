"""Outlines of texts whose lines stand for themselves: logs, code, diffs, tables.

Each function weighs the lines of a text, or returns None if its shape says that it is of another
kind. *asked* are the terms of what was asked for (`refold.text.plain`).
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
"""Characters that are shown of a line; of a longer one its beginning and its end."""
FEWEST = 12
"""Lines under which a text has no shape."""
ENDS = 0.3
"""The share of the room for the first lines, and for the last ones."""
FIRST = 0.1
"""The share of the room for what a kind puts first, such as signatures in code."""
NEAR = 0.9
"""What a line is worth beside one that is worth 1."""
COUNTED = 2
"""Lines of one kind that are not counted by the first."""


class Line(NamedTuple):
    """A line of an outline."""

    text: str
    weight: float = 0.0
    entries: int = 1
    """How many entries it stands for; 0 if another line counts it."""
    parent: int = -1
    """The line without which it would say something else; none below 0."""


class Outline(NamedTuple):
    """The lines of a text, weighed."""

    lines: Sequence[Line]
    first: Sequence[int] = ()
    """Lines that are chosen before the rest, as many as fit in a share of the room."""
    ends: float = 0.0
    """The share of the room for the first lines that count by themselves, and for the last ones."""
    noun: str = "lines"
    """What the marks count."""

    def show(self, room: int) -> str:
        """Return the weightiest lines that fit in *room* characters, in order.

        A mark stands for each run of lines that is left out and says how many entries it had.
        """
        lines, texts = self.lines, [_shorten(line.text) for line in self.lines]
        mark = len(_mark(sum(line.entries for line in lines), self.noun)) + 1
        chosen = self._choose(texts, room)
        order = sorted(range(len(lines)), key=lambda at: (at not in chosen, -lines[at].weight))
        # the places before and behind the text count as shown: no mark stands there
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
        """Yield lines that are shown, and a mark for each run of others, unless that is no
        shorter."""
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
    """Return which lines fit in *room* characters one after another."""
    chosen = set[int]()
    for at in order:
        room -= len(texts[at]) + 1
        if room < 0:
            break
        chosen.add(at)
    return chosen


def weigh_asked(lines: Sequence[str], asked: Collection[str]) -> list[float]:
    """Return for each line how much of what was asked for it holds, from 0 to 1.

    A term weighs more the fewer lines hold it.
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
    """Give the lines after and before one that weighs something what these functions leave of
    it."""
    return [*map(max, accumulate(weights, after), [*accumulate(weights[::-1], before)][::-1])]


# --- kinds ---------------------------------------------------------------------------------------

_VARYING = re.compile(r"[0-9a-fA-F]{6,}+|\d++")
"""What varies between lines that say the same: figures, hashes, addresses, times."""


def outline_log(text: str, asked: Collection[str]) -> Outline | None:
    """Show of a log, or of what a build or tests print, what went wrong and the first of each kind.

    Lines that differ in figures only are one kind; the first one says how many there are.
    """
    lines = text.split("\n")
    kinds = [_VARYING.sub("0", line).strip() for line in lines]
    counts = Counter(kind for kind in kinds if kind)
    many = counts.total()
    if many < FEWEST or not (len(counts) <= 0.7 * many or is_failure(text)):
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
            weighed.append(Line(line, weight / 2, int(count <= COUNTED)))
            continue
        seen.add(kind)
        title = f"{line}  (×{count:,})" if count > COUNTED else line
        weighed.append(Line(title, 1 + weight + even / 2))
    return Outline(weighed, ends=ENDS)


def _is_wrong(line: str) -> bool:
    lower = line.lower()
    return any(word in lower for word in ERRORS) or (
        not line.isascii() and any(word in lower for word in ERRORS_ELSEWHERE)
    )


_NUMBER = re.compile(r"\s{0,8}\d{1,7}(?:[→|:\t]|  )")
"""The number that tools print before a line of a file."""
_CODE_ENDS = frozenset("{}();:,>]")


def outline_code(text: str, asked: Collection[str]) -> Outline | None:
    """Show of a listing its ends, the lines that open a block, and what is near what was asked for.

    A line opens a block if the next one is indented more; the less it is indented itself the more
    it matters. That holds in any language.
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
    return max(own, NEAR * before)


def _is_code(lines: Sequence[str], indents: Sequence[int | None]) -> bool:
    written = [line.rstrip() for line in lines if line.strip()]
    return (
        len(written) >= FEWEST
        and sum(map(bool, indents)) >= 0.3 * len(written)
        and sum(line[-1] in _CODE_ENDS for line in written) >= 0.3 * len(written)
    )


def _weigh_openings(indents: Sequence[int | None]) -> list[float]:
    """Return for each line that opens a block 1 / (1 + its level), for the others 0."""
    levels = {indent: at for at, indent in enumerate(sorted({i for i in indents if i is not None}))}
    weights, after = [0.0] * len(indents), 0
    for at in reversed(range(len(indents))):
        if (indent := indents[at]) is not None:
            weights[at] = 1 / (1 + levels[indent]) if after > indent else 0.0
            after = indent
    return weights


_HUNK = re.compile(r"^@@ -\d", re.MULTILINE)
_FILE = ("diff ", "--- ", "+++ ", "index ", "new file", "deleted file", "rename ", "similarity ")
"""How the lines begin that say which file a diff is of."""
FADES = 40
"""Changed lines of a file after which a further one matters half as much."""


def outline_diff(text: str, asked: Collection[str]) -> Outline | None:
    """Show of a diff its files, its hunks, and of each file the first lines that change."""
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
"""Places of a long text from which something is shown."""
RARE = 0.05
"""The share of rows or entries up to which a value is out of the ordinary."""


def outline_table(text: str, asked: Collection[str]) -> Outline | None:
    """Show of a table its head, rows with a value that is rare in its column, and some others."""
    lines = text.split("\n")
    delimiter = next((mark for mark in "\t|,;" if _is_table(lines, mark)), None)
    if delimiter is None:
        return None
    rows = [dict(enumerate(map(str.strip, line.split(delimiter)))) for line in lines]
    weights = zip(weigh_odd(rows), spread_evenly(len(rows)), weigh_asked(lines, asked), strict=True)
    weighed = [Line(line, sum(each)) for line, each in zip(lines, weights, strict=True)]
    return Outline(weighed, range(3), noun="rows")


def _is_table(lines: Sequence[str], delimiter: str) -> bool:
    """Do most lines have equally many columns, three or more?"""
    counts = Counter(line.count(delimiter) for line in lines if line.strip())
    columns, many = counts.most_common(1)[0] if counts else (0, 0)
    return columns > 1 and many >= max(FEWEST, 0.8 * counts.total())


def weigh_odd(rows: Sequence[Mapping[Any, str]]) -> list[float]:
    """Return 1 for each row with a value that is rare where the rows hold few different ones."""
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
    """Return weights from 1 to 0: the weightiest are spread over all places, the rest follow from
    the start, since each place by itself costs a mark."""
    step = max(1, -(-count // SAMPLES))
    return [1.0 if at % step == 0 else 0.8 * (1 - at / count) for at in range(count)]
