"""The overhead of one turn in a session that grows by 3 messages, against peers in the same run."""

import json
import statistics
import subprocess
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import refold
from benchmarks.synthetic import anthropic
from benchmarks.table import table
from refold.strategies import SummarizeTo

ROOT = Path(__file__).parent.parent
SIZES = (100, 1_000, 10_000)
STEPS = 10
"""Turns of 3 messages measured at each size, three times over, as many as in the peers' worker."""
ROUNDS = 5
"""Rounds that alternate between Refold and its peers, so that other load on the machine affects all
alike."""
NEVER = refold.Budget(10**9, 10**9)
Figures = Mapping[str, Sequence[float]]
"""Milliseconds at each size."""


def compactor() -> refold.Compactor:
    """Return the default strategies with a trigger that is never reached: the cost of a turn
    without compaction."""
    return refold.Compactor(refold.default_strategies(), NEVER)


def time_growing(size: int) -> float:
    """Measure a session that is given only new messages: 3 are appended and the payload is read."""
    history = anthropic(size + 300)
    talk = compactor().session(history[:size])
    steps = iter(range(size, size + 300, 3))
    return _median(lambda: talk.append(*history[(at := next(steps)) : at + 3]).payload, 100)


def growing_behind_summary(size: int) -> float:
    """Measure as `time_growing`, after a summary has replaced all but the newest messages."""
    size -= size % 3  # a request ends with a result
    history = anthropic(size + 300)
    compact = compactor()
    compact.with_settings(strategies=[SummarizeTo()]).compact_now(history[:size], to=10_000)
    talk = compact.session(history[:size])
    assert [edit.start for edit in talk.view.edits] == [0]
    steps = iter(range(size, size + 300, 3))
    return _median(lambda: talk.append(*history[(at := next(steps)) : at + 3]).payload, 100)


def time_resent(size: int) -> float:
    """Measure the whole list sent again with 3 more messages: the same objects, as an agent loop
    sends them."""
    return _resent(size, lambda history: history)


def resent_copies(size: int) -> float:
    """Measure as `time_resent` with a new object for every message, as parsed from a request."""
    return _resent(size, lambda history: json.loads(json.dumps(history)))


def _resent(size: int, given: Callable[[list[Any]], list[Any]]) -> float:
    history, taken = anthropic(size + 3 * STEPS), list[float]()
    for _ in range(3):
        compact, steps = compactor(), iter(range(size + 3, size + 3 * STEPS + 1, 3))
        compact(history[:size])
        taken += _times(lambda: given(history[: next(steps)]), lambda h: compact(h).payload, STEPS)  # noqa: B023 - called at once
    return statistics.median(taken)


def time_cold(size: int) -> float:
    """Measure a history that was never seen before: decoded, hashed and counted from its
    beginning."""
    history = anthropic(size)
    return _median(lambda: compactor()(history).payload, 3)


def _median(run: Callable[[], Any], times: int) -> float:
    return statistics.median(_times(lambda: None, lambda _: run(), times))


def _times(prepare: Callable[[], Any], run: Callable[[Any], Any], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        given = prepare()
        start = time.perf_counter()
        run(given)
        taken.append((time.perf_counter() - start) * 1_000)
    return taken


def peers() -> Callable[[], Figures]:
    """Return a function that measures the peers in a separate virtual environment, created if
    missing."""
    python = ROOT / ".bench" / "bin" / "python"
    if not python.exists():
        venv.create(ROOT / ".bench", with_pip=True)
    pip = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--requirement",
        ROOT / "requirements" / "bench.txt",
    ]
    subprocess.run(pip, check=True)
    worker = Path(__file__).with_name("peers_worker.py")

    def measure() -> Figures:
        out = subprocess.run(
            [python, worker, *map(str, SIZES)], check=True, capture_output=True, text=True
        )
        return {
            name: [by_size[str(size)] for size in SIZES]
            for name, by_size in json.loads(out.stdout).items()
        }

    return measure


def ours() -> Figures:
    """Return the figures of Refold."""
    runs = {
        "refold, growing session": time_growing,
        "refold, growing session behind a summary": growing_behind_summary,
        "refold, whole list resent, same objects": time_resent,
        "refold, whole list resent, fresh objects": resent_copies,
        "refold, never seen before": time_cold,
    }
    return {name: [run(size) for size in SIZES] for name, run in runs.items()}


def median_of(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure over several rounds."""
    return {
        name: [statistics.median(r[name][i] for r in rounds) for i in range(len(SIZES))]
        for name in rounds[0]
    }


def main() -> None:
    """Print the table: median milliseconds per turn and their growth."""
    measured = peers()
    rounds = [(ours(), measured()) for _ in range(ROUNDS)]
    mine, theirs = (median_of([pair[who] for pair in rounds]) for who in (0, 1))
    fastest = [min(row[i] for row in theirs.values()) for i in range(len(SIZES))]
    cells = [
        [name, *(f"{x:.3f}" for x in row), f"{row[-1] / row[0]:.1f}"]
        for name, row in {**mine, **theirs}.items()
    ]
    print(table(["one turn, ms, at N messages", *map(str, SIZES), "10,000 / 100"], cells))
    print(
        f"\nfastest peer: {', '.join(f'{x:.3f}' for x in fastest)} ms; medians of {ROUNDS} rounds, in turn"
    )


if __name__ == "__main__":
    main()
