"""Which lines a summary quotes: those with the most that nothing else in the request shows."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.evidence.selection.blocks import Block, Kind, Line, Work
from benchmarks.evidence.selection.identifiers import iter_identifiers

WEIGHTS: dict[Kind, float] = {
    "task": 1.0,
    "read": 0.4,
    "docs": 0.35,
    "source": 0.2,
    "written": 0.2,
    "command": 0.2,
    "search": 0.15,
    "finding": 0.15,
    "run": 0.12,
    "report": 0.12,
}
"""What an identifier in a line of each kind is worth: how often later calls use what such lines hold."""
AGE = 0.7
"""The exponent with which a line's worth falls with its age in thousands of tokens."""
TOUCHED = 2.0
CHANGED = 1.5
NAMED = 2.0
FAILED = 2.0
VENDORED = 0.5
REPORTED = 0.4
REPEATED = 0.1


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A line that may be quoted."""

    block: int
    """Position of its block in the work."""
    line: Line
    names: tuple[tuple[str, float], ...]
    worth: float
    """What one identifier of weight 1.0 in it is worth."""


@dataclass(frozen=True, slots=True)
class Context:
    """What decides how much a block is worth."""

    ages: Sequence[float]
    """Thousands of tokens between each message and the end of what is hidden."""
    touched: frozenset[str]
    """Files that the kept tail touches."""
    named: str
    """The user's latest words, in which files may be named."""


def weigh_block(block: Block, work: Work, context: Context) -> float:
    """What one identifier in *block* is worth."""
    worth = WEIGHTS[block.kind] / float((1 + context.ages[block.at]) ** AGE)
    history = work.files.get(block.path)
    for is_so, factor in (
        (block.path in context.touched, TOUCHED),
        (history is not None and history.changed_at >= 0, CHANGED),
        (bool(block.path) and block.path.rpartition("/")[2] in context.named, NAMED),
        (block.has_failed, FAILED),
        (block.is_vendored, VENDORED),
        (block.kind == "report", REPORTED),
        (block.is_repeated, REPEATED),
    ):
        worth *= factor if is_so else 1.0
    return worth


def find_excerpts(work: Work, context: Context) -> list[Excerpt]:
    """Return every line with identifiers, with what they are worth."""
    return [
        Excerpt(position, line, names, worth)
        for position, block in enumerate(work.blocks)
        for worth in (weigh_block(block, work, context),)
        for line in block.lines
        if (names := tuple(dict(iter_identifiers(line.text)).items()))
    ]


def select(
    excerpts: Sequence[Excerpt],
    work: Work,
    shown: Iterable[str],
    room: int,
    cost: Callable[[str], int],
) -> list[Excerpt]:
    """Choose excerpts by what they add for each token, until *room* tokens are full.

    An identifier that is *shown* elsewhere, or in a line chosen before, adds nothing. In time
    n log n: a line is weighed again only when it comes to the top.
    """
    seen, opened, chosen = set(shown), set[str](), list[Excerpt]()

    def gain(excerpt: Excerpt) -> float:
        return excerpt.worth * sum(weight for name, weight in excerpt.names if name not in seen)

    def price(excerpt: Excerpt) -> int:
        heading = work.blocks[excerpt.block].heading
        return cost(excerpt.line.text) + 3 + (0 if heading in opened else cost(heading) + 4)

    heap = [
        (-value / price(excerpt), position)
        for position, excerpt in enumerate(excerpts)
        if (value := gain(excerpt)) > 0
    ]
    heapq.heapify(heap)
    while heap and room > 0:
        before, position = heapq.heappop(heap)
        excerpt = excerpts[position]
        value, tokens = gain(excerpt), price(excerpt)
        if value <= 0:
            continue
        if -value / tokens > before + 1e-12:
            heapq.heappush(heap, (-value / tokens, position))
        elif tokens <= room:
            room -= tokens
            chosen.append(excerpt)
            seen.update(name for name, _ in excerpt.names)
            opened.add(work.blocks[excerpt.block].heading)
    return chosen


def quote(line: str) -> str:
    """A line that cannot pass for a heading of ours."""
    return f" {line}" if line.startswith("#") else line


def render_excerpts(chosen: Iterable[Excerpt], work: Work) -> str:
    """Write excerpts under their files, commands and tools, in the order in which they came."""
    groups: dict[str, list[Excerpt]] = {}
    for excerpt in sorted(chosen, key=lambda excerpt: (excerpt.block, excerpt.line.number)):
        groups.setdefault(work.blocks[excerpt.block].heading, []).append(excerpt)
    parts = []
    for heading, excerpts in groups.items():
        block = work.blocks[excerpts[-1].block]
        history = work.files.get(block.path)
        is_stale = history is not None and any(
            history.changed_at > work.blocks[excerpt.block].at for excerpt in excerpts
        )
        title = f"### {heading}" + (" (modified since)" if is_stale else "")
        if block.path:
            excerpts.sort(key=lambda excerpt: (excerpt.line.number, excerpt.block))
        rows = (
            f"{excerpt.line.number}: {excerpt.line.text}"
            if excerpt.line.number
            else quote(excerpt.line.text)
            for excerpt in excerpts
        )
        parts.append("\n".join((title, *dict.fromkeys(rows))))
    return "\n".join(parts)
