"""Lines that an oracle would have to quote because the calls after a compaction need them."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from benchmarks.evidence.names import WINDOWS, percent
from benchmarks.evidence.needs import Name, iter_blocks, iter_lines
from benchmarks.evidence.replay import needs_by_call
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import TIES, around, content_words, counted, iter_occurrences
from benchmarks.table import table
from refold.tokens.count import estimate

TAIL, ROOM = 0.6, 0.4
"""Shares of a target for the newest messages and for the summary."""


class Quoted(NamedTuple):
    """What an oracle would quote after one cut."""

    tokens: int
    names: int
    bare: int
    """Number of names of which it can show nothing but the name."""


def is_bare(name: str, blocks: Sequence[str]) -> bool:
    """Return whether no line of *blocks* has enough other words to tie *name*. `uuid: msg.uuid`
    does not tie `msg.uuid`, nor does a quotation of it. Only the original text does, or a list of
    files if the name is a path."""
    own = content_words(name)
    lines = (line for block in blocks for line in iter_occurrences(name, block))
    return "/" not in name and all(len(content_words(line) - own) < TIES for line in lines)


def iter_quoted(session: Session, window: int) -> Iterator[Quoted]:
    """Yield what an oracle would quote at each call at which a session may be compacted to half of
    *window* tokens: the lines outside the tail that the calls within the next half window need."""
    needs, target = needs_by_call(session), window // 2
    wanted = sorted({at for at, names in needs.names.items() if names} | needs.edits.keys())
    blocks = ["\n".join(iter_blocks(message)) for message in session.messages]
    sums = list(accumulate(map(counted, session.messages), initial=0))

    @cache
    def is_bare_at(name: Name) -> bool:
        return is_bare(name.text, blocks[: name.at])

    for cut in session.calls:
        if sums[cut] < window:
            continue
        start = bisect_left(sums, sums[cut] - TAIL * target)
        lines, hidden = set[str](), list[Name]()
        for at in wanted:
            if at < cut or sums[at] - sums[cut] > target:
                continue
            since = "\n".join(blocks[start:at])
            for name in needs.names.get(at, ()):
                if name.text not in since and not name.is_reused:
                    block = next(b for b in reversed(blocks[:start]) if name.text in b)
                    lines.add(around(block, block.find(name.text), len(name.text)))
                    hidden.append(name)
            shown = set(iter_lines(since)) if needs.edits.get(at) else set[str]()
            lines.update(
                line for edit in needs.edits.get(at, ()) for line in edit.lines if line not in shown
            )
        yield Quoted(sum(map(estimate, lines)), len(hidden), sum(map(is_bare_at, hidden)))


def print_tables(split: str, windows: Sequence[int] = ()) -> None:
    """Print the tokens of these lines beside the room of a summary, and the share of their names
    that no line ties."""
    rows = []
    for window in windows or WINDOWS:
        sessions = load_sessions(split, at_least=int(1.5 * window))
        quoted = [row for session in sessions for row in iter_quoted(session, window)]
        tokens = sorted(row.tokens for row in quoted)
        room = int(min(ROOM * window // 2, 6_000))
        middle, most = tokens[len(tokens) // 2], tokens[-1]
        fits = sum(size <= room for size in tokens)
        share = f"{100 * fits / len(tokens):.1f}"
        names, bare = sum(row.names for row in quoted), sum(row.bare for row in quoted)
        figures = [window, len(tokens), middle, most, room]
        rows.append([*(f"{figure:,}" for figure in figures), share, percent(bare, names)])
    head = ["window", "cuts", "median", "most", "room of the summary", "fits, %", "bare names, %"]
    print(f"\ntokens of the lines that an oracle would quote, {split}\n")
    print(table(head, rows), flush=True)
