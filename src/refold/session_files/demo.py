"""The session that `refold demo` compacts: a long coding task in an imaginary project."""

import gzip
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("demo_session.jsonl.gz")
"""170 kB: an entry a line, as `python -m benchmarks.demo_session` writes them."""


def demo_session(turns: int | None = None) -> list[dict[str, Any]]:
    """Return a long coding task in Anthropic Messages form: 413 messages, about 200,000 tokens.

    *turns* stops it after that many answers of the model. The last entry is then the user's or a
    tool's: what a client would send next.
    """
    entries = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
    if turns is None:
        return entries
    answers = accumulate(entry["role"] == "assistant" for entry in entries)
    return [entry for entry, count in zip(entries, answers, strict=True) if count <= turns]
