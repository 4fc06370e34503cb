"""Measures the cost of a corpus on this machine: `python -m engines.measure [SESSIONS MESSAGES
[TO]]`.

Each worker makes synthetic sessions, which is not measured, then cuts and compacts them. A core
hour is an hour of the function's CPU time. *speed-up* is wall-clock time, so it needs an idle
machine.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import NamedTuple

from benchmarks.table import table

from engines.sessions import make_session
from refold.codecs.json_text import dump
from refold.corpus import compact, stats, unroll

FUNCTIONS = {"unroll": unroll, "compact": compact}
WORKERS = (1, 2)
CORPUS, MILLION, MACHINES, CORES = 100_000, 1_000_000, 32, 16


class Cost(NamedTuple):
    """The cost of one session."""

    seconds: float
    """CPU time of the function."""
    tokens: int
    written: int
    """Size of its rows as JSON text in bytes."""
    memory: int
    """Peak memory of the worker so far in bytes."""


def measure_session(name: str, to: int, messages: int, seed: int) -> Cost:
    """Return the cost of a function for a session of *messages* messages."""
    record = make_session(messages, seed)
    began = process_time()
    rows = FUNCTIONS[name](record, to=to)
    seconds = process_time() - began
    memory = getrusage(RUSAGE_SELF).ru_maxrss * 1024
    return Cost(seconds, stats(record)["tokens"], len(dump(rows).encode()), memory)


def measure(
    name: str, workers: int, sessions: int, messages: int, to: int
) -> tuple[float, list[Cost]]:
    """Return the wall-clock seconds of *workers*, and the costs of all sessions."""
    with ProcessPoolExecutor(workers) as pool:
        list(
            pool.map(partial(measure_session, name, to, 31), range(workers * 4))
        )  # start the workers
        began = perf_counter()
        costs = list(pool.map(partial(measure_session, name, to, messages), range(sessions)))
        return perf_counter() - began, costs


def rows(sessions: int, messages: int, to: int) -> Iterator[list[str]]:
    """Yield a row for each function and number of workers."""
    for name in FUNCTIONS:
        alone = 0.0
        for workers in WORKERS:
            clock, costs = measure(name, workers, sessions, messages, to)
            alone = alone or clock
            hours = sum(cost.seconds for cost in costs) / 3600
            tokens = sum(cost.tokens for cost in costs)
            fleet = MILLION / sessions * hours / (MACHINES * CORES)
            yield [
                name,
                str(workers),
                f"{tokens / sessions:,.0f}",
                f"{sessions / hours:,.0f}",
                f"{tokens / hours / 1e6:,.0f} M",
                f"{alone / clock:.2f}",
                f"{max(cost.memory for cost in costs) / 1e6:.0f} MB",
                f"{CORPUS / sessions * hours:,.0f} h",
                f"{CORPUS / sessions * sum(cost.written for cost in costs) / 1e9:,.0f} GB",
                f"{fleet:.1f} h",
            ]


HEAD = (
    "function",
    "workers",
    "tokens a session",
    "sessions an hour and core",
    "tokens an hour and core",
    "speed-up",
    "memory of a worker",
    f"{CORPUS:,} sessions: core hours",
    "their rows",
    f"{MILLION:,} on {MACHINES} × {CORES} cores",
)


def main(sessions: int = 24, messages: int = 301, to: int = 32_000) -> None:
    """Print the table."""
    print(table(HEAD, list(rows(sessions, messages, to))))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
