"""Shell commands of a documentation page, run as a reader runs them."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from string import Template
from typing import NamedTuple

from click.testing import CliRunner

from refold.cli.commands import run
from refold.gateway.ledger.entry import EntryKey, Sums, floor_to_hour
from refold.gateway.ledger.writer import open_ledger
from refold.session_files import demo_session
from refold.stores import open_store
from tests.support.children import default_signals
from tests.support.pages import code_blocks, read_blocks

SHELL = f'refold() {{ "{sys.executable}" -W error -m refold "$@"; }}; '


def read_typed_lines(page: Path) -> list[str]:
    """Return the lines of a page's console blocks that begin with `$ `."""
    return [
        line[2:]
        for _, block in code_blocks(page, "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def make_sessions(folder: Path) -> Path:
    """Put a long session, a directory of others, a broken request and a ledger into *folder*."""
    history = demo_session(45)  # just over the 60,000 tokens that the commands of docs/cli.md want
    (folder / "session.json").write_text(json.dumps(history, ensure_ascii=False), "utf-8")
    (folder / "sessions").mkdir()
    for turns in (2, 5):
        (folder / "sessions" / f"{turns}.jsonl").write_text(
            "".join(json.dumps(e) + "\n" for e in demo_session(turns))
        )
    (folder / "broken.json").write_text(
        json.dumps({"messages": [*history[:2], {"role": "user", "content": "Go on."}]})
    )
    ledger = open_ledger(str(folder / "refold.db"))
    ledger.add(
        {
            EntryKey(floor_to_hour(time.time()), "t", "s", "m", "reported"): Sums(
                calls=1, fresh=5, would_fresh=5
            )
        }
    )
    ledger.close()
    open_store(str(folder / "refold.db")).close()
    return folder


class Run(NamedTuple):
    """Outcome of a shell command."""

    code: int
    out: str
    err: str


def environment(directory: Path, **env: str) -> dict[str, str]:
    return {"HOME": str(directory), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **env}


def run_as_process(line: str, directory: Path, **env: str) -> Run:
    """Run *line* in a real shell, with `refold` as its own process."""
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
    """Run *line*, which has no pipe and no redirection, through click's runner.

    The environment is only the line's own, as in a new process, without the test's variables.
    """
    words = [Template(word).substitute(env) for word in shlex.split(line, comments=True)]
    alone = dict.fromkeys(os.environ) | environment(directory, **env)
    with contextlib.chdir(directory), CliRunner().isolation(env=alone) as (out, err, _):
        code = run(words[1:])
        sys.stdout.flush()
        sys.stderr.flush()
        return Run(code, out.getvalue().decode(), err.getvalue().decode())


INTERRUPTED = 130
"""Exit code after Ctrl-C, as in docs/cli.md."""


def follow_door(text: str, directory: Path, fixed: dict[str, str]) -> None:
    """Follow a page's *text* from top to bottom in *directory*, with the variables *fixed*: run its
    Python in one namespace, write its `refold.toml`, and run its commands. A gateway is stopped
    once it runs."""
    names: dict[str, object] = {"__name__": "docs"}
    for line, language, code in read_blocks(text):
        if language == "python":
            with contextlib.chdir(directory):
                exec(compile("\n" * (line - 1) + code, "the page", "exec"), names)
        elif language == "toml":
            (directory / "refold.toml").write_text(code, encoding="utf-8")
        elif language == "console":
            for typed in code.splitlines():
                if typed.startswith("$ refold serve") and "--check" not in typed:
                    _serve_shortly(typed[2:], directory, fixed)
                elif typed.startswith("$ "):
                    check_example(typed[2:], directory, fixed)


def _serve_shortly(line: str, directory: Path, fixed: dict[str, str]) -> None:
    """Run a gateway on any free port, and stop it with Ctrl-C once it answers."""
    words = [*shlex.split(line, comments=True)[1:], "--port", "0"]
    log = list[str]()
    with (
        default_signals(),
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "refold", *words],
            cwd=directory,
            env=environment(directory, **fixed),
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        for event in process.stderr or ():
            log.append(event)
            if "startup complete" in event:
                process.send_signal(signal.SIGINT)
    assert process.returncode == INTERRUPTED, f"{line}\n{''.join(log)}"


PROCESSES = ("refold", "refold check broken.json   # exit code 1")
"""Commands that run as real processes, in addition to those that need a shell."""
_STARTS = re.compile(r"refold run (?!--print)")
"""Matches the start of a command that starts a gateway for another command."""
_NEEDS_SHELL = re.compile(rf"[A-Z_]+=|{_STARTS.pattern}")
"""Matches a command that sets a variable or starts a gateway."""


def needs_shell(line: str) -> bool:
    return line in PROCESSES or "|" in line or ">" in line or bool(_NEEDS_SHELL.match(line))


def check_example(line: str, directory: Path, fixed: dict[str, str]) -> None:
    env = fixed | ({"EDIT": edit_id(directory)} if "$EDIT" in line else {})
    done = (run_as_process if needs_shell(line) else run_in_process)(line, directory, **env)
    comment = re.search(r"# exit code (\d)", line)
    assert done.code == (int(comment[1]) if comment else 0), f"{line}\n{done.out[-500:]}{done.err}"
    assert done.out or ">" in line or "-o" in line, line
    if _STARTS.match(line):
        assert re.search(r"web page: http://\S+/refold/$", done.err, re.MULTILINE), done.err
    if line.endswith("--json"):
        json.loads(done.out)


def edit_id(directory: Path) -> str:
    document = json.loads(run_in_process("refold view session.json --json", directory).out)
    return next(item["edit"]["id"][:8] for item in document["sessions"][0]["items"] if item["edit"])
