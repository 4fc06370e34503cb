"""Print all tables: `python -m benchmarks`, or some: `python -m benchmarks turns bulk`."""

import runpy
import sys

from benchmarks.arguments import read_names

TABLES = {
    "turns": "One turn, against peers in the same run",
    "bulk": "A million tokens; import and install",
    "startup": "How long `refold run` waits",
    "kept": "What is kept",
    "layers": "In layers",
    "goals": "Four goals",
    "questions": "What a question needs",
    "importance": "Clearing by importance",
    "retention": "Retention by importance",
    "tokens": "The token estimator",
    "stores": "Stores",
    "gateway": "What the gateway adds",
    "memory": "Memory of the gateway",
    "page": "The gateway's page",
}

if __name__ == "__main__":
    names = read_names("benchmarks", __doc__, TABLES) or list(TABLES)
    sys.argv[1:] = []
    for name in names:
        print(f"\n## {TABLES[name]}\n", flush=True)
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
