"""Sizes and times of recorded sessions, without their text."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.evidence.sessions import datasets


class TracedCall(NamedTuple):
    """One model call."""

    pause: float | None
    """Seconds since the previous call; None for the first."""
    tokens: int
    """Tokens of the request, as billed."""
    output: int
    """Tokens of the answer."""


class Trace(NamedTuple):
    """One session."""

    fixed: int
    """Tokens of system prompt and tools."""
    calls: Sequence[TracedCall]


def load_traces(root: Path | None = None) -> list[Trace]:
    """Return the sessions of `claude_code_traces`; empty if the data set is missing."""
    path = (root or datasets()) / "claude_code_traces" / "sizes.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines][1:]
    return [
        Trace(
            row["tools"] + row["system"],
            [
                TracedCall(seconds - row["calls"][at - 1][0] if at else None, tokens, output)
                for at, (seconds, tokens, output, _) in enumerate(row["calls"])
            ],
        )
        for row in rows
    ]
