"""Child processes: started with a shell's signals, and forked while a store is open."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def default_signals() -> Iterator[None]:
    """Reset the signal handlers for children started in this block, as a shell does for foreground
    jobs.

    `nohup` and `&` make a process ignore some signals, and its children inherit that.
    """
    numbers = [
        signal.SIGINT,
        signal.SIGTERM,
        *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []),
    ]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


NOBODY = 65_534


def act_as_nobody(act: Callable[[], object]) -> Any:
    """Run *act* as a user without privileges and return its result, a JSON value."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(NOBODY)
            os.write(write_end, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return json.loads(answer)


FORKED_WRITES = """
import os
from refold.edits import Edit
from refold.messages import user
from {module} import {kind}
store = {opening}
save = lambda who: store.save([Edit(who, who + 1, (user("x"),), "t")])
save(0)
version = store.version()
children = []
for child in range(1, 5):
    pid = os.fork()
    if pid == 0:
        for n in range(20):
            save(child * 100 + n)
        store.close()
        os._exit(0)
    children.append(pid)
    save(child * 100 + 50)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
assert store.version() != version
print(len(store.load(["t"])))
store.close()
"""


def write_in_forked_children(module: str, opening: str) -> tuple[str, str]:
    """Write 85 edits from a process and four forked children, all with one store, the value of
    *opening*.

    Return the process's output: the number of edits at the end, and its errors.
    """
    kind = opening.partition("(")[0]
    script = FORKED_WRITES.format(module=module, kind=kind, opening=opening)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    return run.stdout, run.stderr
