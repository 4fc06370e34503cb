"""Clearing by importance: which order of clearing tool results keeps most of what later calls need.

python -m benchmarks.importance [datasets, by default ../shared/datasets or $REFOLD_SHARED/datasets]

At `POINTS` points of a recorded session its tool results are cleared until the rest fits a room, by
`ClearToolResults` alone and to the same number of tokens for every order. The score is the share of
identifiers still readable, of those that later calls use for the first time and that appear nowhere
between the point and the call. A model may overlook a string that is sent, so this is an upper
bound on what it recalls.
"""

import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.kept import ROOT, counted, datasets
from benchmarks.replay import Recording, places
from benchmarks.table import table
from refold.budget.budget import Budget
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.view import View
from refold.models.driver import drive
from refold.scorers import Brevity, Errors, Freshness, Nearness, Recency, References, Weighted
from refold.scorers.scorer import Scorer
from refold.strategies import ClearToolResults

POINTS = 10
"""Number of compactions per session, each from scratch, at equal distances of model calls."""
ROOMS = (0.2, 0.4, 0.6)
"""Shares of the tokens of all tool results so far that may stay."""
CHOSEN, OTHER = "The sessions on which the weights were chosen", "The other sessions"
WORD = re.compile(r"\w{2,}")
SIZE = 128
"""Length of the vectors of `embed_by_hash`."""


def embed_by_hash(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts without a model: count the words of each hash."""
    return list(map(_count_hashes, texts))


def _count_hashes(text: str) -> list[float]:
    vector = [0.0] * SIZE
    for word in WORD.findall(text.lower()):
        vector[zlib.crc32(word.encode("utf-8", "replace")) % SIZE] += 1.0
    return vector


SUM: tuple[tuple[float, Scorer], ...] = (
    (1.0, Recency()),
    (0.25, Brevity()),
    (0.1, Freshness()),
    (0.1, References()),
)
ORDERS: dict[str, Scorer | None] = {
    "oldest first (recency)": None,
    "`References()`": References(),
    "`Freshness()`": Freshness(),
    "`Errors()`": Errors(),
    "`Brevity()`": Brevity(),
    "`Nearness(...)`, hashed words": Nearness(embed_by_hash, "hashed words"),
    "weighted sum": Weighted(SUM),
    "weighted sum with `Nearness`": Weighted(
        (*SUM, (0.25, Nearness(embed_by_hash, "hashed words")))
    ),
}
"""Orders of clearing. `Emphasis` and `Roles` give all tool results one score, so with them alone
the oldest go first."""


@dataclass(frozen=True)
class Job:
    """One recording with its half and dataset."""

    half: str
    dataset: str
    recording: Recording


class Score(NamedTuple):
    """Identifiers needed and kept, and the tokens of the view."""

    needed: int = 0
    hits: int = 0
    tokens: int = 0

    def plus(self, other: "Score") -> "Score":
        """Return the sum of both."""
        return Score(self.needed + other.needed, self.hits + other.hits, self.tokens + other.tokens)


def jobs(root: Path) -> Iterator[Job]:
    """Yield all recordings that need anything, in two halves: alternating, and for Claude Code one
    each."""
    for name, recordings in datasets(root):
        for at, recording in enumerate(recordings):
            first = at % 2 == 0 if len(recordings) > 1 else "ae4a" not in name
            if recording.needs:
                yield Job(
                    CHOSEN if first else OTHER,
                    name.removesuffix(" 258c7280").removesuffix(" ae4a77f8"),
                    recording,
                )


def points(recording: Recording) -> Iterator[tuple[View, list[str]]]:
    """Yield the session up to each point and what later calls need of it."""
    calls = recording.calls
    for n in range(1, POINTS + 1):
        at = calls[n * len(calls) // (POINTS + 1)]
        wanted = [
            need.name
            for need in recording.needs
            if need.at >= at and _only_before(recording, need.name, at, need.at)
        ]
        if wanted:
            yield View.of(recording.messages[:at], profile=Profile(count=counted)), wanted


def _only_before(recording: Recording, name: str, at: int, used: int) -> bool:
    """Return whether a name used at *used* appears before *at* and not between the two."""
    seen = [place for place in recording.found[name] if place < used]
    return bool(seen) and seen[-1] < at


def clear(view: View, scorer: Scorer | None, room: float) -> View:
    """Return the view with results cleared until the rest fit the room."""
    results = sum(
        view.base.tokens(at, at + 1) for at, m in enumerate(view.transcript.messages) if m.results
    )
    target = view.tokens - int(results * (1 - room))
    return drive(
        compact_if_due(view, [ClearToolResults(keep=3, scorer=scorer)], Budget(target, target))
    ).view


def measure(job: Job) -> dict[tuple[str, float], Score]:
    """Run every order of clearing with every room."""
    rows: dict[tuple[str, float], Score] = {}
    for view, wanted in points(job.recording):
        for name, scorer in ORDERS.items():
            for room in ROOMS:
                shown = clear(view, scorer, room)
                hits = sum(
                    place is not None for place in places(shown, wanted, job.recording.found)
                )
                row = Score(len(wanted), hits, shown.tokens)
                rows[name, room] = rows.get((name, room), Score()).plus(row)
    return rows


def report(half: str, scores: dict[tuple[str, str, float], Score]) -> str:
    """Return one table: the shares kept, and the tokens relative to the first row."""
    names = list(dict.fromkeys(name for name, _, _ in scores))
    base = next(iter(ORDERS))
    rows = []
    for order in ORDERS:
        row = [
            (scores[name, order, room], scores[name, base, room])
            for name in names
            for room in ROOMS
        ]
        mean = sum(score.hits / score.needed for score, _ in row) / len(row)
        tokens = sum(score.tokens / first.tokens for score, first in row) / len(row)
        rows.append(
            [
                order,
                *(f"{score.hits / score.needed:.1%}" for score, _ in row),
                f"{mean:.1%}",
                f"{tokens:.3f}",
            ]
        )
    needed = ", ".join(f"{name} {scores[name, base, ROOMS[0]].needed:,}" for name in names)
    heads = [
        "cleared by",
        *(f"{name}, {room:.0%}" for name in names for room in ROOMS),
        "mean",
        "tokens",
    ]
    return f"{half} (needed: {needed})\n\n{table(heads, rows)}"


def main() -> None:
    """Print a table for each half."""
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "datasets"
    todo = list(jobs(root))
    by_half: dict[str, dict[tuple[str, str, float], Score]] = {CHOSEN: {}, OTHER: {}}
    with ProcessPoolExecutor(2) as pool:
        for job, rows in zip(todo, pool.map(measure, todo), strict=True):
            scores = by_half[job.half]
            for (order, room), row in rows.items():
                key = job.dataset, order, room
                scores[key] = scores.get(key, Score()).plus(row)
    for half, scores in by_half.items():
        print(
            f"\n{report(half, scores)}" if scores else f"\n{half}: not there, skipped", flush=True
        )


if __name__ == "__main__":
    main()
