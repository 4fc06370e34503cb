"""What calls need of the history: names in their context, and lines that are edited."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import NamedTuple

from benchmarks.evidence.equal import match_sent_tokens
from benchmarks.evidence.peers import all_policies
from benchmarks.evidence.policies import DEPTHS, REFERENCE
from benchmarks.evidence.replay import count_sent, replay
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import Score
from benchmarks.table import table

WINDOWS = (20_000, 30_000, 60_000)
AROUND = (0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15)
"""Factors of a window to average over: where the cuts fall depends on it and moves a figure by
points."""
KEEP_HALF = (
    REFERENCE,
    "last N, sawtooth",
    "Refold 0.1",
    "LangChain summarization, keeps half",
    "pydantic-ai-harness sliding window, keeps half",
    "CliffCompaction",
    "OpenHands",
)
"""Policies that come down to about half of their window."""
HEAD = (
    "policy",
    "window, %",
    "sent, %",
    "plain",
    "tied",
    "edits",
    "reuse",
    "density",
    "breaks",
    "invalid",
    "bill, %",
)


def percent(part: int, whole: int) -> str:
    """Return a share in percent, or a dash if the whole is 0."""
    return f"{100 * part / whole:.1f}" if whole else "-"


class Measured(NamedTuple):
    """The score of a policy and the factor by which its windows were widened or narrowed."""

    score: Score
    factor: float


def cells(name: str, measured: Measured) -> list[str]:
    """Return one row of a table."""
    score = measured.score
    return [
        name,
        f"{100 * measured.factor:.0f}",
        percent(score.sent, score.full),
        percent(score.plain, score.names),
        percent(score.tied, score.names),
        percent(score.editable, score.edits),
        percent(score.reused_tied, score.reused),
        f"{1_000 * score.made_tied / score.made_tokens:.3f}" if score.made_tokens else "-",
        f"{score.breaks / score.sessions:.1f}",
        f"{score.invalid / score.sessions:.1f}",
        f"{100 * score.dollars / score.full_dollars:.1f}",
    ]


def measure(job: tuple[Sequence[Session], str, int, int]) -> Measured:
    """Replay sessions under one policy, in windows at which it sends *wanted* tokens in total."""
    sessions, name, window, wanted = job
    make = {**all_policies(), **DEPTHS}[name]

    def count(factor: float) -> tuple[int, float]:
        return sum(count_sent(s, make, int(factor * window)) for s in sessions), factor

    _, factor = match_sent_tokens(count, lambda run: run[0], wanted) if wanted else (0, 1.0)
    total = Score()
    for session in sessions:
        total += replay(session, make, int(factor * window))
    return Measured(total, factor)


def compare(split: str, window: int, pool: ProcessPoolExecutor) -> dict[str, Measured]:
    """Score all policies at the number of tokens that the reference sends in a window."""
    sessions = list(load_sessions(split, at_least=int(1.5 * window)))
    base = pool.submit(measure, (sessions, REFERENCE, window, 0)).result()
    names = [name for name in all_policies() if name != REFERENCE]
    scores = pool.map(measure, [(sessions, name, window, base.score.sent) for name in names])
    return {REFERENCE: base, **dict(zip(names, scores, strict=True))}


def print_tables(split: str, windows: Sequence[int] = ()) -> None:
    """Print a table for each window."""
    with ProcessPoolExecutor(2) as pool:
        for window in windows or WINDOWS:
            rows = compare(split, window, pool)
            some = rows[REFERENCE].score
            if not some.sessions:
                print(f"\n{split}: no session of {int(1.5 * window):,} tokens")
                continue
            print(
                f"\n{split}, {window:,} -> {window // 2:,} tokens, all send as many as the first if "
                f"they can: {some.sessions} sessions, {some.calls:,} calls, {some.names:,} names, "
                f"{some.edits:,} edits\n"
            )
            print(table(HEAD, [cells(*row) for row in rows.items()]), flush=True)


def print_around(split: str, windows: Sequence[int] = ()) -> None:
    """Print a table of the policies that keep half, summed over windows around each."""
    _print_sums(split, windows, [name for name in KEEP_HALF if name in all_policies()])


def print_depths(split: str, windows: Sequence[int] = ()) -> None:
    """Print a table of the default strategies with lower targets, summed over windows around
    each."""
    _print_sums(split, windows, [REFERENCE, *DEPTHS])


def _print_sums(split: str, windows: Sequence[int], names: Sequence[str]) -> None:
    with ProcessPoolExecutor(2) as pool:
        for middle in windows or WINDOWS:
            sessions = list(load_sessions(split, at_least=int(1.5 * middle)))
            around = [int(share * middle) for share in AROUND]
            base = pool.map(measure, [(sessions, REFERENCE, window, 0) for window in around])
            wanted = [measured.score.sent for measured in base]
            print(f"\n{split}, {middle:,} tokens and {len(around) - 1} windows around\n")
            rows = list[list[str]]()
            for name in names:
                jobs = [(sessions, name, *sizes) for sizes in zip(around, wanted, strict=True)]
                total, factors = Score(), list[float]()
                for score, factor in pool.map(measure, jobs):
                    total += score
                    factors.append(factor)
                rows.append(cells(name, Measured(total, fmean(factors))))
            print(table(HEAD, rows), flush=True)
