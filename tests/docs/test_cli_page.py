"""docs/cli.md: its examples work, and it names every command, option and key."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from string import Template
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from refold.cli.commands import refold, run
from refold.gateway.ledger.entry import EntryKey, Sums, hour_of
from refold.gateway.ledger.open import open_ledger
from refold.session_files import demo_session
from refold.summarizers.model import HEADINGS
from refold.testing.scripted_server import ScriptedServer
from tests.support.pages import ROOT, blocks

PAGE = ROOT / "docs" / "cli.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = [
    line[2:]
    for _, block in blocks(PAGE, "console")
    for line in block.splitlines()
    if line.startswith("$ ")
]
SHELL = f'refold() {{ "{sys.executable}" -W error -m refold.cli "$@"; }}; '


@pytest.fixture
def directory(tmp_path):
    history = demo_session(60)
    (tmp_path / "session.json").write_text(json.dumps(history, ensure_ascii=False), "utf-8")
    (tmp_path / "sessions").mkdir()
    for turns in (2, 5):
        (tmp_path / "sessions" / f"{turns}.jsonl").write_text(
            "".join(json.dumps(e) + "\n" for e in demo_session(turns))
        )
    (tmp_path / "broken.json").write_text(
        json.dumps({"messages": [*history[:2], {"role": "user", "content": "Go on."}]})
    )
    ledger = open_ledger(str(tmp_path / "refold.db"))
    ledger.add(
        {
            EntryKey(hour_of(time.time()), "t", "s", "m", "reported"): Sums(
                calls=1, fresh=5, would_fresh=5
            )
        }
    )
    ledger.close()
    return tmp_path


class Run(NamedTuple):
    """How a line ended."""

    code: int
    out: str
    err: str


def environment(directory: Path, **env: str) -> dict[str, str]:
    return {"HOME": str(directory), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **env}


def run_as_process(line: str, directory: Path, **env: str) -> Run:
    """Run *line* in a real shell, with `refold` as a program of its own."""
    done = subprocess.run(
        SHELL + line,
        shell=True,
        cwd=directory,
        env=environment(directory, **env),
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def run_in_process(line: str, directory: Path, **env: str) -> Run:
    """Run *line*, which has no pipe and writes no file, through click's runner.

    The environment is the line's own, as in a new process: nothing of the test's is seen.
    """
    words = [Template(word).substitute(env) for word in shlex.split(line, comments=True)]
    alone = dict.fromkeys(os.environ) | environment(directory, **env)
    with contextlib.chdir(directory), CliRunner().isolation(env=alone) as (out, err, _):
        code = run(words[1:])
        sys.stdout.flush()
        return Run(code, out.getvalue().decode(), err.getvalue().decode())


PROCESSES = ("refold", "refold --help", "refold check broken.json   # exit code 1")
"""Lines that run as real processes, beside those that need a shell."""


def needs_shell(line: str) -> bool:
    return line in PROCESSES or "|" in line or ">" in line


@pytest.mark.slow
def test_every_example_works(directory) -> None:
    before = (directory / "session.json").read_bytes()
    summary = "\n".join(f"## {heading}\n- As it was agreed." for heading in HEADINGS)
    with ScriptedServer(lambda _: summary) as server:
        fixed = {"URL": f"{server.url}/v1", "SUMMARY_KEY": "k-1", "EDITOR": "sed -i 1s/^/Amended./"}
        for line in EXAMPLES:
            check_example(line, directory, fixed)
    assert (directory / "session.json").read_bytes() == before
    assert 5 <= sum(map(needs_shell, EXAMPLES)) <= 8


def check_example(line: str, directory: Path, fixed: dict[str, str]) -> None:
    env = fixed | ({"EDIT": edit_id(directory)} if "$EDIT" in line else {})
    done = (run_as_process if needs_shell(line) else run_in_process)(line, directory, **env)
    comment = re.search(r"# exit code (\d)", line)
    assert done.code == (int(comment[1]) if comment else 0), f"{line}\n{done.out[-500:]}{done.err}"
    assert done.out or ">" in line or "-o" in line, line
    if line.endswith("--json"):
        json.loads(done.out)


def edit_id(directory: Path) -> str:
    document = json.loads(run_in_process("refold view session.json --json", directory).out)
    return next(item["edit"]["id"][:8] for item in document["sessions"][0]["items"] if item["edit"])


@pytest.mark.parametrize("name", ["", *refold.commands])
def test_commands_and_options_are_on_the_page(name: str) -> None:
    command = refold.commands[name] if name else refold
    assert f"\n## refold {name}".rstrip() in TEXT
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert option in TEXT, f"refold {name} {option}"
