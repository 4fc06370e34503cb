"""Work that takes its process down: a row that says `die` does, `die once` the first time,
and `wait` keeps it busy."""

import os
import signal
import time
from pathlib import Path

from refold.corpus.inputs import Chunk


def work(chunk: Chunk) -> list[str]:
    """What a worker that lives makes of a chunk."""
    for _, row in chunk.rows:
        if row == b"wait":
            time.sleep(3_600)
        mark = Path(chunk.path) / "died"
        if row == b"die" or (row == b"die once" and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return [row.decode() for _, row in chunk.rows]


def join(parts: list[list[str]]) -> list[str]:
    return [row for part in parts for row in part]


def give_up(chunk: Chunk) -> list[str]:
    return [f"{line} died" for line, _ in chunk.rows]
