"""Clearing by importance: which order of clearing tool results keeps most of what later calls need?

python -m benchmarks.importance [folder of datasets, by default ../shared/datasets or $REFOLD_SHARED/datasets]

Only `ClearToolResults` runs, so that nothing but its order differs. A session's budget leaves room
for a share of the tokens of all its tool results. The weights of the weighted sum were chosen on the
first table's sessions and on no other.
"""

import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kept import ROOT, compactor, counted, datasets
from benchmarks.table import table
from refold.replay import Recording, Replay
from refold.scorer import Scorer
from refold.scorers import Brevity, Errors, Freshness, Nearness, Recency, References, Weighted
from refold.strategies import ClearToolResults

ROOMS = (0.08, 0.2)
"""For which shares of the tokens of all its tool results a session has room."""
TARGET = 0.85
"""How far down a compaction goes, as a share of the trigger."""
CHOSEN, OTHER = "sessions on which the weights were chosen", "the other sessions"
WORD = re.compile(r"\w{2,}")
SIZE = 128
"""Length of the vectors of `hashed`."""


def hashed(texts: Sequence[str]) -> list[list[float]]:
    """An embedder without a model: how often words of each hash occur."""
    return list(map(_hashed, texts))


def _hashed(text: str) -> list[float]:
    vector = [0.0] * SIZE
    for word in WORD.findall(text.lower()):
        vector[zlib.crc32(word.encode("utf-8", "replace")) % SIZE] += 1.0
    return vector


ORDERS: dict[str, Scorer | None] = {
    "oldest first (recency)": None,
    "`References()`": References(),
    "`Freshness()`": Freshness(),
    "`Errors()`": Errors(),
    "`Brevity()`": Brevity(),
    "`Nearness(...)`, hashed words": Nearness(hashed, "hashed words"),
    "weighted sum": Weighted(((1.0, Recency()), (1.0, Freshness()), (0.5, References()))),
}
"""By what results are cleared. `Emphasis` and `Roles` give all tool results one score, so with them
alone the oldest go first."""


@dataclass(frozen=True)
class Job:
    """One recording, and what it belongs to."""

    half: str
    dataset: str
    recording: Recording


def jobs(root: Path) -> Iterator[Job]:
    """All recordings that need anything, in two halves: every second of many; of Claude Code one each."""
    for name, recordings in datasets(root):
        for at, recording in enumerate(recordings):
            first = at % 2 == 0 if len(recordings) > 1 else "ae4a" not in name
            if recording.needs:
                yield Job(CHOSEN if first else OTHER, name, recording)


def measure(job: Job) -> dict[tuple[str, float], Replay]:
    """Every order of clearing with every room."""
    recording = job.recording
    share = sum(counted(message) for message in recording.messages if message.results) / recording.size
    rows = {}
    for room in ROOMS:
        trigger = 1 - share + share * room
        for name, scorer in ORDERS.items():
            policy = compactor(recording, [ClearToolResults(keep=3, scorer=scorer)], trigger, trigger * TARGET)
            rows[name, room] = recording.replay(policy)
    return rows


def report(half: str, found: dict[tuple[str, str, float], Replay]) -> str:
    """One table: recall, and in brackets the tokens sent as a share of those of the first row."""
    names = list(dict.fromkeys(name for name, _, _ in found))
    base = next(iter(ORDERS))
    heads = [f"{name}, {room:.0%}" for name in names for room in ROOMS]
    rows = []
    for order in ORDERS:
        cells = [(found[name, order, room], found[name, base, room]) for name in names for room in ROOMS]
        mean = sum(row.recall for row, _ in cells) / len(cells)
        rows.append(
            [order, *(f"{row.recall:.1%} ({row.tokens / one.tokens:.2f})" for row, one in cells), f"{mean:.1%}"]
        )
    needed = ", ".join(f"{name} {found[name, base, ROOMS[0]].needed:,}" for name in names)
    return f"{half}; identifiers needed: {needed}\n\n" + table(["cleared by", *heads, "mean"], rows)


def main() -> None:
    """Print a table for each half."""
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "datasets"
    todo = list(jobs(root))
    found: dict[str, dict[tuple[str, str, float], Replay]] = {CHOSEN: {}, OTHER: {}}
    with ProcessPoolExecutor(2) as pool:
        for job, rows in zip(todo, pool.map(measure, todo), strict=True):
            half = found[job.half]
            for (order, room), row in rows.items():
                half[job.dataset, order, room] = half.get((job.dataset, order, room), Replay()) + row
    for half, rows in found.items():
        print(f"\n{report(half, rows)}" if rows else f"\n{half}: not there, skipped", flush=True)


if __name__ == "__main__":
    main()
