"""docs/cli.md: its examples work, and it names every command, option and key."""

import json
import os
import re
import subprocess
import sys
import time

import click
import pytest

from pages import ROOT, blocks
from refold.cli.commands import refold
from refold.demo import session
from refold.gateway.books.entry import Key, Sums, hour_of
from refold.gateway.books.opening import open_ledger
from refold.scripted_server import ScriptedServer
from refold.summarizers.model import HEADINGS

PAGE = ROOT / "docs" / "cli.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = [line[2:] for _, block in blocks(PAGE, "console") for line in block.splitlines() if line.startswith("$ ")]
SHELL = f'refold() {{ "{sys.executable}" -W error -m refold.cli "$@"; }}; '


@pytest.fixture
def directory(tmp_path):
    history = session(60)
    (tmp_path / "session.json").write_text(json.dumps(history, ensure_ascii=False), "utf-8")
    (tmp_path / "sessions").mkdir()
    for turns in (2, 5):
        (tmp_path / "sessions" / f"{turns}.jsonl").write_text("".join(json.dumps(e) + "\n" for e in session(turns)))
    (tmp_path / "broken.json").write_text(
        json.dumps({"messages": [*history[:2], {"role": "user", "content": "Go on."}]})
    )
    ledger = open_ledger(str(tmp_path / "refold.db"))
    ledger.add({Key(hour_of(time.time()), "t", "s", "m", "reported"): Sums(calls=1, fresh=5, would_fresh=5)})
    ledger.close()
    return tmp_path


def shell(command, directory, **env):
    home = {"HOME": str(directory), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **env}
    return subprocess.run(
        SHELL + command, shell=True, cwd=directory, env=home, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_every_example_works(directory) -> None:
    before = (directory / "session.json").read_bytes()
    summary = "\n".join(f"## {heading}\n- As it was agreed." for heading in HEADINGS)
    with ScriptedServer(lambda _: summary) as server:
        fixed = {"URL": f"{server.url}/v1", "SUMMARY_KEY": "k-1", "EDITOR": "sed -i 1s/^/Amended./"}
        for line in EXAMPLES:
            runs(line, directory, fixed)
    assert (directory / "session.json").read_bytes() == before


def runs(line, directory, fixed) -> None:
    env = {"EDIT": an_edit(directory)} if "$EDIT" in line else {}
    done = shell(line, directory, **env, **fixed)
    expected = int(found[1]) if (found := re.search(r"# exit code (\d)", line)) else 0
    assert done.returncode == expected, f"{line}\n{done.stdout[-500:]}{done.stderr}"
    assert done.stdout or ">" in line or "-o" in line, line
    if line.endswith("--json"):
        json.loads(done.stdout)


def an_edit(directory) -> str:
    document = json.loads(shell("refold view session.json --json", directory).stdout)
    return next(item["edit"]["id"][:8] for item in document["sessions"][0]["items"] if item["edit"])


@pytest.mark.parametrize("name", ["", *refold.commands])
def test_commands_and_options_are_on_the_page(name: str) -> None:
    command = refold.commands[name] if name else refold
    assert f"\n## refold {name}".rstrip() in TEXT
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert option in TEXT, f"refold {name} {option}"
