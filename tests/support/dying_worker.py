"""Work that kills its process: for a row `die` always, for `die once` the first time. `wait` keeps
it busy."""

import os
import signal
import time
from pathlib import Path

from refold.corpus.inputs import Chunk


def work(chunk: Chunk) -> list[str]:
    """Return the rows of a chunk, unless one of them kills the process."""
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
