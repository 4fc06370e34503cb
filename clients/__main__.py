"""All agents, each three times: `python -m clients`, or some: `python -m clients pi codex`. Exit code 1 when one failed.

They are taken from .clients/node_modules (`make clients` installs them there) or the directory in REFOLD_CLIENTS.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import table

from clients import codex, gemini_cli, opencode, pi
from clients.client import Client
from clients.model import WINDOW
from clients.run import WAYS, Outcome, bare, run

CLIENTS = (*pi.CLIENTS, *codex.CLIENTS, *opencode.CLIENTS, *gemini_cli.CLIENTS)
HEAD = (
    "client",
    "version",
    "API",
    "gateway",
    "requests",
    "of these edited",
    "aside",
    "refused upstream",
    "errors seen",
    "tokens said",
    "tokens sent",
    "read again",
    "invalid",
    "exit",
    "result",
    "s",
)


def main(wanted: list[str]) -> int:
    """Run those whose programs are *wanted*, print the table."""
    modules = Path(os.environ.get("REFOLD_CLIENTS", ".clients")).absolute() / "node_modules"
    outcomes = []
    for client in CLIENTS:
        if wanted and client.program not in wanted:
            continue
        if trouble := unusable(modules / ".bin" / client.program):
            print(f"{client.name} is skipped: {trouble}", file=sys.stderr)
            continue
        for way in WAYS:
            outcomes.append(run(client, way, modules / ".bin"))
            print(_line(outcomes[-1]), file=sys.stderr)
    print(table(HEAD, [_cells(one, modules) for one in outcomes]))
    print(f"\nThe model's window is {WINDOW:,} tokens.")
    for line in _remarks(outcomes):
        print(line)
    return int(not outcomes or not all(one.is_fine for one in outcomes))


def unusable(program: Path) -> str:
    """Why a program does not even say its version, as one that wants another Node or a download does; empty if it does."""
    if not program.exists():
        return f"{program} is not there"
    with tempfile.TemporaryDirectory() as home:
        told = subprocess.run(
            [program, "--version"],
            env=bare(Path(home)),
            capture_output=True,
            text=True,
            check=False,
        )
    return "" if told.returncode == 0 else f"exit {told.returncode}: {told.stderr.strip()[-300:]}"


def _line(one: Outcome) -> str:
    verdict = "as it should" if one.is_fine else "FAILED"
    return f"{one.client.name}, {one.client.api}, {one.way}: {one.requests} requests, {one.seconds:.1f} s, {verdict}"


def _cells(one: Outcome, modules: Path) -> list[str]:
    way = "none" if one.way == "direct" else one.way
    tokens = (f"{one.said:,}", f"{one.sent:,}")
    counts = (one.requests, one.edited, one.aside, one.refused, one.reached)
    rest = (
        str(one.again),
        str(one.invalid),
        str(one.status),
        "there" if one.done else "none",
        f"{one.seconds:.1f}",
    )
    return [
        one.client.name,
        _version(one.client, modules),
        one.client.api,
        way,
        *map(str, counts),
        *tokens,
        *rest,
    ]


def _version(client: Client, modules: Path) -> str:
    return str(
        json.loads((modules / client.package / "package.json").read_text(encoding="utf-8"))[
            "version"
        ]
    )


def _remarks(outcomes: list[Outcome]) -> Iterator[str]:
    for name in dict.fromkeys(one.client.name for one in outcomes):
        machines = {
            machine for one in outcomes if one.client.name == name for machine in one.machines
        }
        if machines:
            yield f"{name} wanted to reach {', '.join(sorted(machines))}, and could not."
    for one in outcomes:
        if not one.is_fine:
            yield f"\n{_line(one)}\n{one.told}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
