"""Synthetic trajectories as a table of JSON text, and their segments from a single process."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.synthetic import turns

from refold.corpus import unroll_batch

TO = 4_000
"""Window in tokens in the blocks of the page."""
BROKEN = {"id": "broken", "messages": "none"}
"""Row without a session. It comes back as a row with an error."""


def write_sessions(path: Path, count: int, messages: int) -> None:
    """Write *count* different sessions of *messages* messages each."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(make_session(messages, seed))}\n" for seed in range(count))


def make_session(messages: int, seed: int) -> dict[str, str]:
    """Return a row with a session."""
    return {"id": f"s{seed:05}", "messages": json.dumps(list(_chat(messages, seed)))}


def _chat(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the messages of a session in the format of Chat Completions."""
    for kind, fields in turns(count, seed):
        text = fields["text"]
        match kind:
            case "user":
                yield {"role": "user", "content": text}
            case "call":
                arguments = json.dumps(fields["arguments"])
                function = {"name": fields["name"], "arguments": arguments}
                call = {"id": fields["id"], "type": "function", "function": function}
                yield {"role": "assistant", "content": text, "tool_calls": [call]}
            case "result":
                yield {"role": "tool", "tool_call_id": fields["id"], "content": text}
            case _:
                yield {"role": "assistant", "content": text}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def unroll_here(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the segments of *rows* from one process, sorted by `in_order`."""
    rows = list(rows)
    columns = unroll_batch({name: [row[name] for row in rows] for name in rows[0]}, to=TO)
    return in_order(
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    )


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return rows as JSON text, sorted: engines keep no order."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)
