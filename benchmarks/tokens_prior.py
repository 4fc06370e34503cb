"""Billed tokens per estimated token by model: `python -m benchmarks.tokens_prior [DATASETS]`.

Recorded sessions whose calls report usage are split in half by a hash of their names. One half
gives the ratio of a family of models. The table shows for both halves the error of the estimate,
alone and times the prior that Refold ships (`refold.tokens.model_table.prior_of`).

If a recording holds whole requests, their tokens are compared with those billed. If the system
prompt and tools are missing, the growth between the first and the last report of a stretch is
compared, because both include the hidden part.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.recordings import jsonl
from refold.codecs.detect import open_payload
from refold.session_files import FIELDS, Session, read, read_all
from refold.tokens.count import count_fixed, count_message
from refold.tokens.model_table import prior_of
from refold.tokens.usage import read_usage

ROOT = Path(__file__).parent.parent
LEAST = 1_000
"""Minimum number of estimated tokens of a session."""
SHRUNK = 0.95
"""A request billed at less than this share of the previous one was compacted or cleared."""
SESSIONS = (
    *(
        "claude_code_spotter/*.jsonl",
        "claude_code_spotter/*/subagents/*.jsonl",
        "codemie_multi_cli/*",
    ),
    *("pi_sessions/*.jsonl", "tau2_bench/*.json", "miniswe_gemini3/trajs/*.json"),
)
WHOLE = "openhands_sdk_llmlogs/*llm-logs*.json"
GIVEN = frozenset({"mini_swe"})
"""Clients whose recordings hold the whole request."""


class Point(NamedTuple):
    """One call: its estimated and its billed request tokens."""

    model: str
    estimated: int
    billed: int


class Row(NamedTuple):
    """Totals of one session for one model."""

    model: str
    name: str
    estimated: int
    billed: int

    @property
    def ratio(self) -> float:
        """Return the billed tokens per estimated token."""
        return self.billed / self.estimated

    @property
    def is_fitted(self) -> bool:
        """Return whether it belongs to the half that the ratio is fitted on."""
        return blake2b(self.name.encode(), digest_size=1).digest()[0] % 2 == 0


def main(datasets: Path) -> None:
    by_model = defaultdict(list)
    for row in rows(datasets):
        by_model[row.model].append(row)
    print(
        "| model | half | sessions | billed for one: all, middle, least, most | estimate: error, worst | x prior |"
    )
    print("|---|---|---|---|---|---|")
    for model, model_rows in [
        *sorted(by_model.items()),
        ("every Claude", [r for m in by_model if "claude" in m for r in by_model[m]]),
    ]:
        for half, chosen in (
            ("fit", [r for r in model_rows if r.is_fitted]),
            ("check", [r for r in model_rows if not r.is_fitted]),
        ):
            if chosen:
                print(
                    f"| {model} | {half} | {len(chosen)} | {ratios(chosen)} | {errors(chosen, prior=False)} | {errors(chosen, prior=True)} |"
                )


def ratios(chosen: Sequence[Row]) -> str:
    """Return the ratio of all tokens, and those of single sessions."""
    every, single = total(chosen), sorted(row.ratio for row in chosen)
    return f"{every:.2f}, {median(single):.2f}, {single[0]:.2f}, {single[-1]:.2f}"


def total(chosen: Sequence[Row]) -> float:
    """Return the billed tokens per estimated token over all rows."""
    return sum(row.billed for row in chosen) / sum(row.estimated for row in chosen)


def errors(chosen: Sequence[Row], *, prior: bool) -> str:
    """Return the mean error per session, the mean bias, and the worst under-count and
    over-count."""
    off = [(prior_of(row.model) if prior else 1.0) / row.ratio - 1 for row in chosen]
    mean = sum(map(abs, off)) / len(off)
    under = sum(error < -0.05 for error in off)
    return f"{mean:.1%}, {sum(off) / len(off):+.1%}, {min(0.0, *off):.0%} to {max(0.0, *off):+.0%}, {under} under by more than 5 %"


def rows(datasets: Path) -> Iterator[Row]:
    """Yield the totals of each session for each of its models."""
    for pattern in SESSIONS:
        for path in sorted(datasets.glob(pattern)):
            for session in sessions(path):
                session_points = list(points(path, session))
                yield from iter_rows(
                    f"{path.name} {session.id}", session_points, whole=session.client in GIVEN
                )
    by_model = defaultdict(list)
    for path in sorted(datasets.glob(WHOLE)):
        point = read_point(json.loads(path.read_text("utf-8")))
        by_model[point.model].append(point)
    for model, model_points in by_model.items():
        yield from iter_rows(model, model_points, whole=True)


def sessions(path: Path) -> Iterator[Session]:
    if path.suffix == ".jsonl":
        yield read(path)
    elif path.suffix == ".json":
        yield from read_all(path)


def points(path: Path, session: Session) -> Iterator[Point]:
    """Yield the calls of a session whose usage is known."""
    body = {**session.body, FIELDS[session.format]: session.messages}
    envelope = open_payload(body, session.format)
    sums = list(
        accumulate(
            map(count_message, envelope.decode()),
            initial=count_fixed(envelope.system, envelope.tools),
        )
    )
    models = read_models(path) if path.suffix == ".jsonl" else {}
    for position, usage in session.usage:
        usage_read = read_usage(usage)
        if usage_read is not None and usage_read.calls == 1:
            model = models.get(json.dumps(usage, sort_keys=True)) or str(
                session.body.get("model", "")
            )
            yield Point(model, sums[max(0, position - 1 - envelope.head)], usage_read.input)


def read_models(path: Path) -> dict[str, str]:
    """Return the model of each usage in a JSON Lines file."""
    messages = [record.get("message") for record in jsonl(path)]
    return {
        json.dumps(message["usage"], sort_keys=True): message.get("model", "")
        for message in messages
        if isinstance(message, dict) and message.get("usage")
    }


def read_point(log: dict[str, Any]) -> Point:
    """Return a call whose whole request is recorded."""
    envelope = open_payload(
        {"tools": log.get("tools") or [], "messages": log["messages"]}, "openai_chat"
    )
    estimated = count_fixed(envelope.system, envelope.tools) + sum(
        map(count_message, envelope.decode())
    )
    return Point(log["response"]["model"], estimated, log["response"]["usage"]["prompt_tokens"])


def iter_rows(name: str, session_points: Sequence[Point], *, whole: bool) -> Iterator[Row]:
    """Yield the totals of one session for each model."""
    sums = defaultdict(lambda: (0, 0))
    for stretch in stretches(session_points):
        first, last = (Point("", 0, 0) if whole else stretch[0]), stretch[-1]
        estimated, billed = sums[last.model]
        sums[last.model] = (
            estimated + last.estimated - first.estimated,
            billed + last.billed - first.billed,
        )
    for model, (estimated, billed) in sums.items():
        if estimated >= LEAST and billed > 0:
            yield Row(model, name, estimated, billed)


def stretches(session_points: Sequence[Point]) -> list[list[Point]]:
    """Return runs of calls to one model in which the request only grew: no compaction, nothing
    cleared."""
    parts = list[list[Point]]()
    for point in session_points:
        last = parts[-1][-1] if parts else None
        if last is None or point.model != last.model or point.billed < SHRUNK * last.billed:
            parts.append([])
        parts[-1].append(point)
    return parts


if __name__ == "__main__":
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared")) / "datasets"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else shared)
