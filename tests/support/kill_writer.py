"""Fork a writer for each line on stdin, for a test to kill. The interpreter starts only once.

Input line: `<sqlite|sidecar|postgresql> <number of the first batch> <path>`. Output lines: the
writer's `pid <n>`; from the writer, after a write has returned, `saved <batch>` or `removed
<batch>`; and `dead` after it has ended.
"""

import os
import sys
from itertools import count

from refold.edits import Edit
from refold.messages import user
from refold.stores import SidecarStore, SQLiteStore
from refold.stores.postgresql import PostgreSQLStore

STORES = {"sqlite": SQLiteStore, "sidecar": SidecarStore, "postgresql": PostgreSQLStore}


def batch(number):
    """Build three edits that are saved together. Every fourth batch is large and slow to write."""
    text = f"summary {number} 中文 " * (1 if number % 4 else 5_000)
    return [
        Edit(number, number + k, (user(text),), f"{number}t{k}", "kill_writer") for k in (1, 2, 3)
    ]


def tips(number):
    return [edit.tip for edit in batch(number)]


def say(text):
    os.write(1, f"{text}\n".encode())


def write(kind, first, path):
    """Save batches until killed. After each fifth, remove the batch before it."""
    store = STORES[kind](path)
    for number in count(first):
        store.save(batch(number))
        say(f"saved {number}")
        if number % 5 == 0 and number > first:
            store.remove([edit.id for edit in batch(number - 1)])
            say(f"removed {number - 1}")


def main():
    for line in sys.stdin:
        kind, first, path = line.rstrip("\n").split(" ", 2)
        pid = os.fork()
        if pid == 0:
            try:
                write(kind, int(first), path)
            finally:
                os._exit(1)
        say(f"pid {pid}")
        os.waitpid(pid, 0)
        say("dead")


if __name__ == "__main__":
    main()
