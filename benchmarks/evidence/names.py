"""What calls need of what came before: names with what they are about, lines that are edited."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from benchmarks.evidence.policies import POLICIES
from benchmarks.evidence.replay import replay
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import Score
from benchmarks.table import table

WINDOWS = (20_000, 30_000, 60_000)


def percent(part: int, whole: int) -> str:
    """A share, or a dash where there is nothing to have a share of."""
    return f"{100 * part / whole:.1f}" if whole else "-"


def cells(name: str, score: Score) -> list[str]:
    """One row of a table."""
    return [
        name,
        percent(score.sent, score.full),
        percent(score.plain, score.names),
        percent(score.tied, score.names),
        percent(score.editable, score.edits),
        percent(score.reused_tied, score.reused),
        f"{1_000 * score.made_tied / score.made_tokens:.3f}" if score.made_tokens else "-",
        str(score.breaks),
    ]


def measure(job: tuple[Session, str, int]) -> tuple[str, Score]:
    """Replay one session under one policy."""
    session, name, window = job
    return name, replay(session, POLICIES[name], window)


def print_tables(split: str, windows: Sequence[int] = ()) -> None:
    """Print a table for each window."""
    head = ["policy", "sent, %", "plain", "tied", "edits", "reuse", "density", "cache breaks"]
    with ProcessPoolExecutor(2) as pool:
        for window in windows or WINDOWS:
            sessions = list(load_sessions(split, at_least=int(1.5 * window)))
            totals = {name: Score() for name in POLICIES}
            for name, score in pool.map(
                measure, [(s, n, window) for s, n in product(sessions, POLICIES)]
            ):
                totals[name] += score
            some = next(iter(totals.values()))
            print(
                f"\n{split}, {window:,} -> {window // 2:,} tokens: {len(sessions)} sessions, "
                f"{some.calls:,} calls, {some.names:,} names, {some.edits:,} edits\n"
            )
            print(table(head, [cells(name, score) for name, score in totals.items()]), flush=True)
