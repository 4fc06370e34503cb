"""What an oracle would have to quote: the lines that the calls after a compaction need."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from benchmarks.evidence.names import WINDOWS
from benchmarks.evidence.needs import iter_blocks, iter_lines
from benchmarks.evidence.replay import needs_by_call
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import around, counted
from benchmarks.table import table
from refold.tokens.count import estimate

TAIL, ROOM = 0.6, 0.4
"""Shares of a target that the newest messages and a summary have."""


def iter_quoted(session: Session, window: int) -> Iterator[int]:
    """Yield, for each call at which a session may be compacted to half of *window* tokens, the
    tokens of the lines that the next as many tokens of calls need and the tail does not hold."""
    needs, target = needs_by_call(session), window // 2
    wanted = sorted({at for at, names in needs.names.items() if names} | needs.edits.keys())
    blocks = ["\n".join(iter_blocks(message)) for message in session.messages]
    sums = list(accumulate(map(counted, session.messages), initial=0))
    for cut in session.calls:
        if sums[cut] < window:
            continue
        start = bisect_left(sums, sums[cut] - TAIL * target)
        lines = set[str]()
        for at in wanted:
            if at < cut or sums[at] - sums[cut] > target:
                continue
            since = "\n".join(blocks[start:at])
            for name in needs.names.get(at, ()):
                if name.text not in since and not name.is_reused:
                    block = next(b for b in reversed(blocks[:start]) if name.text in b)
                    lines.add(around(block, block.find(name.text), len(name.text)))
            shown = set(iter_lines(since)) if needs.edits.get(at) else set[str]()
            lines.update(
                line for edit in needs.edits.get(at, ()) for line in edit.lines if line not in shown
            )
        yield sum(map(estimate, lines))


def print_tables(split: str, windows: Sequence[int] = ()) -> None:
    """Print how many tokens the lines take, beside the room of a summary."""
    rows = []
    for window in windows or WINDOWS:
        sessions = load_sessions(split, at_least=int(1.5 * window))
        tokens = sorted(size for session in sessions for size in iter_quoted(session, window))
        room = int(min(ROOM * window // 2, 6_000))
        middle, most = tokens[len(tokens) // 2], tokens[-1]
        fits = sum(size <= room for size in tokens)
        share = f"{100 * fits / len(tokens):.1f}"
        figures = [window, len(tokens), middle, most, room]
        rows.append([*(f"{figure:,}" for figure in figures), share])
    head = ["window", "cuts", "median", "most", "room of the summary", "fits, %"]
    print(f"\ntokens of the lines that an oracle would quote, {split}\n")
    print(table(head, rows), flush=True)
