"""Memory of the gateway after many long sessions, each sent again in full with its last request.

python -m benchmarks.memory [sessions, by default 1000] [messages per session, by default 1000]
"""

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.synthetic import anthropic
from benchmarks.table import table
from refold.gateway import Incoming, Pipeline, Settings
from refold.stores.sqlite import SQLiteStore
from refold.tokens.model_table import Window


def megabytes() -> float:
    """Return the resident memory of this process."""
    resident = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(resident[1]) / 1024 if resident else 0.0


def request(number: int, messages: list[dict]) -> Incoming:
    """Return the last request of a session, each session with a different tenant."""
    history = [{"role": "user", "content": f"Session {number}"}, *messages]
    body = json.dumps({"model": "m", "max_tokens": 1_000, "messages": history}).encode()
    return Incoming("anthropic", "up", "/v1/messages", (), body, f"credential {number}")


async def grow(sessions: int, messages: int, store: Path) -> list[list[str]]:
    """Return rows of figures after various numbers of sessions."""
    settings = Settings(windows={"m": Window(200_000)}, decide_timeout_seconds=60)
    pipeline = Pipeline(settings, SQLiteStore(store))
    history, rows, before = anthropic(messages - 1), [], megabytes()
    marks = {max(1, int(sessions * share)) for share in (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)}
    for number in range(1, sessions + 1):
        incoming = request(number, history)
        outgoing = await pipeline.prepare(incoming)
        if number in marks:
            figures = (
                number,
                f"{len(incoming.body) / 1e6:.2f}",
                len(pipeline.conversations),
                f"{megabytes() - before:.0f}",
            )
            rows.append([*map(str, figures), outgoing.outcome])
    await pipeline.aclose()
    return rows


def main(sessions: int = 1_000, messages: int = 1_000) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(grow(sessions, messages, Path(folder) / "edits.db"))
    print(table(["sessions", "MB of JSON each", "known", "MB grown by", "the last was"], rows))
    print(
        f"\n{messages} messages each; what is known is bounded by `conversations` (256) and `known_bytes` (256 MB)."
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
