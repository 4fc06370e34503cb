"""Compaction of a million tokens from JSON bytes to JSON bytes: time and memory. Also import and
install."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.evidence.sessions import datasets
from benchmarks.questions import realmem
from benchmarks.synthetic import anthropic
from benchmarks.table import table

ROOT = Path(__file__).parent.parent
CHILD = """
import re, sys, time, tracemalloc
from pathlib import Path
import refold
from refold.compactor.calibration import Reports, no_prior
from refold.strategies import *
body = Path(sys.argv[1]).read_bytes()
strategies = {
    "local and clearing": [DropDuplicates(), ClipResults(2_000), ClearThinking(keep=2), ClearToolResults(keep=3)],
    "with the rule summarizer": [ClearToolResults(keep=3), Summarize(keep=8)],
    "the rule summarizer, a chat": [SummarizeTo()],
}[sys.argv[2]]
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
budget = refold.Budget(int(sys.argv[3]), int(sys.argv[3]))
compact = refold.Compactor(strategies, budget, reports=Reports(no_prior))  # a million by the estimator
refold.Compactor(strategies, refold.Budget(10, 10))(body[:0] + b'[{"role":"user","content":"warm"}]')
traced = sys.argv[4] == "traced"
if traced:
    tracemalloc.start()
before, start = peak(), time.perf_counter()
view = compact(body)
out = view.payload
taken = time.perf_counter() - start
said = view.profile.fixed_tokens + view.base.token_sums[-1]
grown = tracemalloc.get_traced_memory()[1] if traced else peak() - before
print(taken, grown / len(body), said, view.tokens, len(out))
"""


def million() -> bytes:
    """Return a session of about a million tokens as a request body."""
    return json.dumps({"model": "claude-opus-5-5", "messages": anthropic(7_200)}).encode()


def chats() -> bytes | None:
    """Return four recorded chats concatenated, a million tokens, or None if they are missing."""
    turns = [turn for talk in realmem(datasets()) for turn in talk.messages]
    messages = [{"role": role, "content": text} for role, text in turns]
    return json.dumps({"model": "gpt-5.2", "messages": messages}).encode() if messages else None


def run(path: Path, kind: str, target: int) -> list[str]:
    """Return one row, measured in separate processes (median time of 3, memory beyond the body
    itself)."""
    taken, growth, original, sent, _ = sorted(
        _figures(path, kind, target, "timed") for _ in range(3)
    )[1]
    allocated = _figures(path, kind, target, "traced")[1]
    return [
        kind,
        f"{original:,.0f}",
        f"{sent:,.0f}",
        f"{taken:.2f} s",
        f"{allocated:.2f} x",
        f"{growth:.1f} x",
    ]


def _figures(path: Path, kind: str, target: int, how: str) -> list[float]:
    command = [sys.executable, "-c", CHILD, path, kind, str(target), how]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(x) for x in out.stdout.split()]


def import_time(statement: str) -> float:
    """Return the milliseconds that *statement* adds to a bare interpreter: the median of 11."""
    taken = []
    for _ in range(11):
        code = f"import time; t = time.perf_counter(); {statement}; print((time.perf_counter() - t) * 1000)"
        out = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        taken.append(float(out.stdout))
    return sorted(taken)[5]


def measure_installed() -> float:
    """Return the megabytes of the package as its wheel would install it, compiled files
    included."""
    source = ROOT / "src" / "refold"
    return sum(path.stat().st_size for path in source.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Print the tables."""
    body = million()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "body.json"
        path.write_bytes(body)
        rows = [
            run(path, "local and clearing", 400_000),
            run(path, "with the rule summarizer", 60_000),
        ]
        if chat := chats():
            path.write_bytes(chat)
            rows.append(run(path, "the rule summarizer, a chat", 12_000))
    print(
        f"request bodies: {len(body) / 1e6:.1f} MB of JSON, and {len(chat or b'') / 1e6:.1f} MB; memory at its peak in sizes of the body, output included: what Python "
        "allocates (tracemalloc, in a run of its own), and what the process grows by\n"
    )
    print(table(["strategies", "tokens said", "tokens sent", "time", "allocated", "process"], rows))
    imports = [
        f"`{s}`: {import_time(s):.0f} ms"
        for s in ("import refold", "from refold import Compactor", "import asyncio")
    ]
    print(f"\n{', '.join(imports)}; installed: {measure_installed():.1f} MB, dependencies: none")


if __name__ == "__main__":
    main()
