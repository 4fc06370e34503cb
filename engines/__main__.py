"""Run the blocks of docs/corpus.md on the engines, all or some: `python -m engines ray polars`.

Each turns `sessions.jsonl` into `segments.jsonl` in its own directory. The rows must equal those of
a single process. Environments are in .engines or the directory in REFOLD_ENGINES. Exit code 1 if
one failed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from adapters.environments import (
    ROOT,
    UnavailableError,
    create_environment,
    environment_of,
)
from adapters.pages import code_of
from benchmarks.arguments import read_names
from benchmarks.table import table

from engines.sessions import BROKEN, in_order, read_rows, unroll_here, write_sessions

PAGE = ROOT / "docs" / "corpus.md"
SESSIONS, MESSAGES = 48, 61
ENGINES = {
    "datasets": ("all", "datasets"),
    "ray": ("all", "ray"),
    "ray, a worker killed": ("all", "ray"),
    "spark": ("all", "pyspark"),
    "daft": ("all", "daft"),
    "duckdb": ("all", "duckdb"),
    "polars": ("all", "polars"),
    "data-juicer": ("data-juicer", "py-data-juicer"),
}
"""Engines with their environment and package."""


def main(wanted: Sequence[str]) -> int:
    """Run the *wanted* engines, or all, and print a table."""
    root = Path(os.environ.get("REFOLD_ENGINES", ".engines")).absolute()
    lines, failures = list[list[str]](), list[str]()
    with tempfile.TemporaryDirectory() as place:
        sessions = Path(place) / "sessions.jsonl"
        write_sessions(sessions, SESSIONS, MESSAGES)
        with sessions.open("a", encoding="utf-8") as file:
            file.write(json.dumps(BROKEN) + "\n")
        expected = unroll_here(read_rows(sessions))
        for name, (environment, package) in ENGINES.items():
            if wanted and name.partition(", ")[0] not in wanted:
                continue
            try:
                python = create_environment(environment, root, "engines")
            except UnavailableError as reason:
                print(f"{name} is skipped: {reason}", file=sys.stderr)
                continue
            try:
                seconds, note = run_engine(python, name, sessions, expected)
            except (RuntimeError, AssertionError, subprocess.TimeoutExpired) as error:
                failures.append(f"{name}: {error}")
                print(f"{name}: FAILED", file=sys.stderr)
                continue
            print(f"{name}: as it should", file=sys.stderr)
            version = _version(python, package)
            lines.append([name, version, f"{len(expected)}", "yes", f"{seconds:.1f}", note])
    print(table(("engine", "version", "rows", "as one process", "seconds", ""), lines))
    for failure in failures:
        print(f"\nFAILED: {failure}")
    return int(bool(failures))


def run_engine(
    python: Path, name: str, sessions: Path, expected: Sequence[str]
) -> tuple[float, str]:
    """Run an engine's block, and return its seconds and a remark.

    Raises RuntimeError if it fails, AssertionError if its rows are not those *expected*.
    """
    engine, _, is_killed = name.partition(", ")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / sessions.name).write_bytes(sessions.read_bytes())
        program = ["-m", "engines.killed_worker"] if is_killed else ["-c", code_of(PAGE, engine)]
        began = perf_counter()
        done = subprocess.run(
            [str(python), *program],
            cwd=place,
            env=_environment(place, python),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        seconds = perf_counter() - began
        if done.returncode:
            raise RuntimeError(done.stderr[-3_000:])
        rows = read_rows(place / "segments.jsonl")
        columns = json.loads(expected[0])
        rows = [{name: row[name] for name in columns} for row in rows]
        assert in_order(rows) == list(expected), f"{len(rows)} rows, not those expected"
        return seconds, _tell_killed(place) if is_killed else ""


def _environment(place: Path, python: Path) -> dict[str, str]:
    quiet = {
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(place),
        "REFOLD": str(ROOT),
        "PYSPARK_PYTHON": str(python),
    }
    tools = {name: os.environ[name] for name in ("JAVA_HOME", "TMPDIR") if name in os.environ}
    return {**environment_of(place), **quiet, **tools}


def _tell_killed(place: Path) -> str:
    """Return how many batches the killed and the other workers began. Raises AssertionError if the
    killed worker had begun none, or no other worker went on."""
    workers, killed = (
        json.loads((place / "workers.json").read_text()),
        (place / "killed").read_text(),
    )
    begun = workers.pop(killed)
    assert begun, "no worker was killed"
    assert workers, "no worker went on"
    return f"killed after {begun} batches; {len(workers)} others began {sum(workers.values())}"


def _version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    names = dict.fromkeys(name.partition(", ")[0] for name in ENGINES)
    sys.exit(main(read_names("engines", __doc__, names)))
