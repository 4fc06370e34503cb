"""Which lines a summary quotes: those with the most that nothing else in the request shows."""

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from math import log

from refold.summarizers.heuristic.blocks import Block, Kind, Line, Work
from refold.summarizers.heuristic.identifiers import iter_identifiers
from refold.text.terms import terms

WEIGHTS: dict[Kind, float] = {
    "task": 1.0,
    "read": 0.4,
    "docs": 0.35,
    "source": 0.2,
    "written": 0.2,
    "command": 0.2,
    "asked": 0.1,
    "search": 0.15,
    "finding": 0.15,
    "said": 0.3,
    "run": 0.12,
    "report": 0.12,
}
"""What an identifier in a line of each kind is worth: how often later calls use what such lines hold."""
AGE = 0.7
"""The exponent with which a line's worth falls with its age in thousands of tokens."""
AGE_IN_DIALOGUE = 0.3
"""The same for what people and the model say to each other."""
TOUCHED = 2.0
CHANGED = 1.5
NAMED = 2.0
FAILED = 2.0
VENDORED = 0.5
REPORTED = 0.4
REPEATED = 0.1
TERM = 0.1
"""What a word counts for that is told once among e lines, beside an identifier's 1.0."""
TALKING: frozenset[Kind] = frozenset({"read", "task", "asked", "said"})
"""Kinds of lines in which any rare word may matter, not only identifiers."""
FIGURE = 3.0
"""What a word with digits counts for in it, beside another word's 1.0."""
HALF_WORD = 0.4
"""What two letters of a script without spaces count for."""
CONVERSATION = "conversation"
"""The heading of what people and the model say to each other."""
USER = "user"
"""The mark of what a person says in it."""
SIMILAR = 4
"""So many names that differ in digits alone (`job-17`, `job-18`) halve what the next one counts."""
_DIGITS = re.compile(r"(?<![0-9a-f])[a-f]*+\d[0-9a-f]*+")
_SPACED = re.compile(r"([，；：。！？、]) ")
DIALOGUE: frozenset[Kind] = frozenset({"asked", "said"})


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
    """Return what one identifier in *block* is worth."""
    age = AGE_IN_DIALOGUE if block.kind in DIALOGUE else AGE
    worth = WEIGHTS[block.kind] / float((1 + context.ages[block.at]) ** age)
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
    """Return every line that tells something, with what it is worth, in order."""
    rarity, excerpts = _rarity(work), list[Excerpt]()
    names_by_line = dict[tuple[str, bool], tuple[tuple[str, float], ...]]()
    for position, block in enumerate(work.blocks):
        worth = weigh_block(block, work, context)
        is_talk = block.kind in TALKING
        for line in block.lines:
            key = line.text, is_talk
            if key not in names_by_line:
                names = dict(iter_identifiers(line.text))
                if is_talk:
                    names |= {f" {term}": rarity[term] for term in terms(line.text)}
                names_by_line[key] = tuple(names.items())
            if names_by_line[key]:
                excerpts.append(Excerpt(position, line, names_by_line[key], worth))
    return excerpts


def _rarity(work: Work) -> dict[str, float]:
    """Return what each word counts for: the more, the fewer lines hold it."""
    lines = [line.text for block in work.blocks if block.kind in TALKING for line in block.lines]
    counts = Counter(term for line in lines for term in set(terms(line)))
    return {
        term: TERM * _importance(term) * log(len(lines) / count + 1)
        for term, count in counts.items()
    }


def _importance(term: str) -> float:
    """Figures are what is asked for later; of a script without spaces a term is half a word."""
    if any(map(str.isdigit, term)):
        return FIGURE
    return 1.0 if term.isascii() else HALF_WORD


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
    seen, opened, chosen = set(shown), set[str](), list[int]()
    shape, alike = cache(partial(_DIGITS.sub, "#")), Counter[str]()

    def gain(excerpt: Excerpt) -> float:
        if work.blocks[excerpt.block].kind in TALKING:  # there figures are the facts
            return excerpt.worth * sum(w for name, w in excerpt.names if name not in seen)
        weights = (
            weight / (1 + alike[shape(name)] / SIMILAR)
            for name, weight in excerpt.names
            if name not in seen
        )
        return excerpt.worth * sum(weights)

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
            chosen.append(position)
            names = [name for name, _ in excerpt.names if name not in seen]
            alike.update(map(shape, names))
            seen.update(names)
            opened.add(work.blocks[excerpt.block].heading)
    return [excerpts[position] for position in sorted(chosen)]


def quote(line: str) -> str:
    """Return a line that cannot pass for a heading of ours."""
    return f" {line}" if line.startswith("#") else line


def render_excerpts(chosen: Sequence[Excerpt], work: Work) -> str:
    """Write excerpts under what they are from, in the order in which they came: the conversation
    first, then files, commands and tools."""
    groups: dict[str, list[Excerpt]] = {}
    talk: dict[str, list[Excerpt]] = {}
    for excerpt in chosen:
        block = work.blocks[excerpt.block]
        (talk if block.kind in DIALOGUE else groups).setdefault(block.heading, []).append(excerpt)
    rows = [_exchange(label, excerpts, work) for label, excerpts in talk.items()]
    parts = ["\n".join((f"### {CONVERSATION}", *map(quote, rows)))] if rows else []
    parts += (_render_group(heading, excerpts, work) for heading, excerpts in groups.items())
    return "\n".join(parts)


def _exchange(label: str, excerpts: Sequence[Excerpt], work: Work) -> str:
    """Return what is quoted of one exchange; what a person says is marked."""
    texts = list[str]()
    for position, group in groupby(excerpts, key=lambda excerpt: excerpt.block):
        words = _SPACED.sub(r"\1", " ".join(excerpt.line.text for excerpt in group))
        texts.append(f"{USER}: {words}" if work.blocks[position].kind == "asked" else words)
    words = "\n  ".join(texts)
    return f"{label}: {words}" if label else words


def _render_group(heading: str, excerpts: list[Excerpt], work: Work) -> str:
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
    return "\n".join((title, *dict.fromkeys(rows)))
