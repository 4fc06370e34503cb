"""A third party's measure: results of compaction-conformance-kit after one compaction."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evidence.peers import peers_python
from benchmarks.evidence.sessions import ROOT
from benchmarks.table import table

WORKER = "benchmarks.evidence.conformance_worker"


def print_tables(_: str, __: Sequence[int] = ()) -> None:
    """Print a table for each budget. The kit makes its own sessions, so the split is not used."""
    python = peers_python()
    if not python.exists():
        print("\ncompaction-conformance-kit is not there: make evidence installs it")
        return
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("src", "."))
    own = {"PYTHONPATH": paths, "REFOLD_PEERS": str(Path(python).absolute())}
    out = subprocess.run(
        [python, "-m", WORKER], check=True, stdout=subprocess.PIPE, env={**os.environ, **own}
    )
    for budget, policies in json.loads(out.stdout).items():
        head = ["policy", *next(iter(policies.values()))]
        rows = [
            [name, *(f"{100 * share:.0f}" for share in shares.values())]
            for name, shares in policies.items()
        ]
        print(f"\ncompaction-conformance-kit, {float(budget):.0%} of the characters, %\n")
        print(table(head, rows), flush=True)
