"""Run all agents four times each: `python -m clients`. Or only some agents, `python -m clients pi
codex`, or some ways, `python -m clients 'refold run'`. Exit code 1 if one failed.

The agents are in .clients, where `make clients` installs them, or the directory in
REFOLD_CLIENTS.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.arguments import read_names
from benchmarks.table import table

from clients import (
    aider,
    claude_code,
    cline,
    codex,
    continue_cli,
    copilot_cli,
    gemini_cli,
    kimi_code,
    mini_swe_agent,
    opencode,
    pi,
    qwen_code,
    vibe,
)
from clients.client import Client
from clients.model import WINDOW
from clients.run import WAYS, Outcome, bare_environment, program_path, run

CLIENTS = (
    *pi.CLIENTS,
    *codex.CLIENTS,
    *opencode.CLIENTS,
    *gemini_cli.CLIENTS,
    *claude_code.CLIENTS,
    *qwen_code.CLIENTS,
    *kimi_code.CLIENTS,
    *mini_swe_agent.CLIENTS,
    *aider.CLIENTS,
    *vibe.CLIENTS,
    *cline.CLIENTS,
    *continue_cli.CLIENTS,
    *copilot_cli.CLIENTS,
)
HEAD = (
    "client",
    "version",
    "API",
    "model",
    "gateway",
    "requests",
    "of these edited",
    "aside",
    "refused upstream",
    "errors seen",
    "tokens before",
    "tokens sent",
    "read again",
    "invalid",
    "without the request",
    "speaker mistaken",
    "exit",
    "result",
    "s",
)


def main(wanted: Sequence[str]) -> int:
    """Run the *wanted* programs and print the table."""
    ways = [way for way in WAYS if way in wanted] or WAYS
    wanted = [name for name in wanted if name not in WAYS]
    install = Path(os.environ.get("REFOLD_CLIENTS", ".clients")).absolute()
    outcomes = []
    for client in CLIENTS:
        if wanted and client.program not in wanted:
            continue
        if trouble := find_trouble(client, install):
            print(f"{client.name} is skipped: {trouble}", file=sys.stderr)
            continue
        for way in ways:
            outcomes.append(run(client, way, install))
            print(_line(outcomes[-1]), file=sys.stderr)
    print(table(HEAD, [_cells(outcome, install) for outcome in outcomes]))
    print(f"\nThe model's window is {WINDOW:,} tokens.")
    for line in _remarks(outcomes):
        print(line)
    return int(not outcomes or not all(outcome.is_fine for outcome in outcomes))


def find_trouble(client: Client, install: Path) -> str:
    """Return why a program does not start, for example because it needs another Node or a download,
    or an empty text."""
    program = program_path(client, install)
    if not program.exists():
        return f"{program} is not there"
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.run(
            [program, "--help"],
            env=bare_environment(Path(home), install),
            capture_output=True,
            text=True,
            check=False,
        )
    status = process.returncode
    return "" if status == 0 else f"exit {status}: {process.stderr.strip()[-300:]}"


def _line(outcome: Outcome) -> str:
    client, verdict = outcome.client, "as it should" if outcome.is_fine else "FAILED"
    return (
        f"{client.name}, {client.api}, {client.model}, {outcome.way}: {outcome.requests} requests, "
        f"{outcome.seconds:.1f} s, {verdict}"
    )


def _cells(outcome: Outcome, install: Path) -> list[str]:
    client = outcome.client
    counts = (outcome.requests, outcome.edited, outcome.aside, outcome.refused, outcome.errors)
    faults = (outcome.reread, outcome.invalid, outcome.unsaid, outcome.mistaken, outcome.status)
    return [
        client.name,
        _version(client, install),
        client.api,
        client.model,
        "none" if outcome.way == "direct" else outcome.way,
        *map(str, counts),
        f"{outcome.tokens_before:,}",
        f"{outcome.tokens_sent:,}",
        *map(str, faults),
        "there" if outcome.is_done else "none",
        f"{outcome.seconds:.1f}",
    ]


def _version(client: Client, install: Path) -> str:
    if client.is_python:
        name = client.package.replace("-", "_")
        (info,) = (install / client.package).glob(f"lib/python*/site-packages/{name}-*.dist-info")
        return info.name.removeprefix(f"{name}-").removesuffix(".dist-info")
    package = install / "node_modules" / client.package / "package.json"
    return str(json.loads(package.read_text(encoding="utf-8"))["version"])


def _remarks(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for name in dict.fromkeys(outcome.client.name for outcome in outcomes):
        machines = {
            machine
            for outcome in outcomes
            if outcome.client.name == name
            for machine in outcome.machines
        }
        if machines:
            yield f"{name} wanted to reach {', '.join(sorted(machines))}, and could not."
    for outcome in outcomes:
        if not outcome.is_fine:
            yield f"\n{_line(outcome)}\n{outcome.printed}"


if __name__ == "__main__":
    programs = dict.fromkeys(client.program for client in CLIENTS)
    sys.exit(main(read_names("clients", __doc__, (*programs, *WAYS))))
