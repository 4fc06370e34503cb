"""Ray Data with several workers, one of which is killed in the middle: `python -m
engines.killed_worker`.

It writes the segments of `sessions.jsonl` to `segments.jsonl`, and the process ids of the
workers.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import ray

from engines.sessions import TO
from refold.corpus import unroll_batch

BATCHES = 16
"""Number of batches, each of at least 0.1 seconds, so that a worker can be killed in the middle."""


def unroll_slowly(batch: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the segments of a batch, and record the process that began it."""
    (Path(place) / f"{os.getpid()}-{uuid4().hex}").touch()
    time.sleep(0.1)
    return dict(unroll_batch(batch, to=TO))


def kill_one(place: Path) -> None:
    """Kill the first worker that began its third batch."""
    while True:
        begun = Counter(path.name.partition("-")[0] for path in place.iterdir())
        busy = [pid for pid, batches in begun.items() if batches >= 3]
        if busy:
            os.kill(int(busy[0]), signal.SIGKILL)
            (place.parent / "killed").write_text(busy[0])
            return
        time.sleep(0.005)


def main() -> None:
    """Run it in the working directory."""
    marks = Path("marks").absolute()
    marks.mkdir()
    ray.init(num_cpus=3, include_dashboard=False, logging_level="ERROR")
    sessions = ray.data.read_json("sessions.jsonl", lines=True).repartition(BATCHES)
    segments = sessions.map_batches(unroll_slowly, batch_size=None, fn_kwargs={"place": str(marks)})
    Thread(target=kill_one, args=(marks,), daemon=True).start()
    segments.to_pandas().to_json("segments.jsonl", orient="records", lines=True)
    pids = Counter(path.name.partition("-")[0] for path in marks.iterdir())
    Path("workers.json").write_text(json.dumps(pids))
    ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
