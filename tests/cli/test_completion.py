"""Shell completion of commands, options, files and session ids, in a real bash."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refold.cli import commands
from tests.support.pages import ROOT

SESSION = (
    '{"type": "session", "id": "0a0b0c0d", "cwd": "/srv", "timestamp": "2026-11-01T10:00:00Z"}\n'
)
SCRIPT = f"""#!/bin/sh
test -n "$_REFOLD_COMPLETE" && exec {sys.executable} -m refold "$@"
echo "typed: $*"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "refold").write_text(SCRIPT)
    (tmp_path / "refold").chmod(0o755)
    (tmp_path / "session of mika.json").write_text("[]")
    place = tmp_path / ".pi/agent/sessions/--srv--/2025-12-01T00-00-00_0a0b0c0d.jsonl"
    place.parent.mkdir(parents=True)
    place.write_text(SESSION)
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    names = {"HOME": str(tmp_path), "PYTHONPATH": paths, "TERM": "dumb", "PS1": "$ "}
    return {**names, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def test_bash_completes_commands_files_and_session_ids(
    environment: dict[str, str], tmp_path: Path
) -> None:
    mine, theirs = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    screen = b""

    def wait(text: bytes) -> None:
        nonlocal screen
        until = time.monotonic() + 60
        while text not in screen:
            assert time.monotonic() < until, screen
            if select.select([mine], [], [], 1)[0]:
                screen += os.read(mine, 65_536)

    try:
        os.write(mine, b'eval "$(_REFOLD_COMPLETE=bash_source refold)"; echo rea""dy\n')
        wait(b"\nready")
        for typed, shown in (
            (b"refold sta\t", b"stats "),
            (b"sess\t", b"mika.json "),
            (b"0a0b\t", b"0a0b0c0d "),
        ):
            screen = b""
            os.write(mine, typed)
            wait(shown)
        os.write(mine, b"\n")
        wait(b"typed: stats session of mika.json 0a0b0c0d")
    finally:
        os.close(mine)
        bash.kill()
        bash.wait()


def test_fish_has_a_completion_script(capfd, monkeypatch) -> None:
    monkeypatch.setenv("_REFOLD_COMPLETE", "fish_source")
    assert commands.main([]) == 0
    assert "complete --no-files --command refold" in capfd.readouterr().out


def test_agents_and_files_are_completed(capfd, monkeypatch) -> None:
    monkeypatch.setenv("_REFOLD_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", "refold run co")
    assert commands.main([]) == 0
    assert capfd.readouterr().out.split() == ["plain,codex", "plain,continue", "plain,copilot"]
    monkeypatch.setenv("COMP_CWORD", "3")
    for words in ("view --html p", "serve --config p", "run --store p"):
        monkeypatch.setenv("COMP_WORDS", f"refold {words}")
        commands.main([])
        assert capfd.readouterr().out == "file,p\n"
