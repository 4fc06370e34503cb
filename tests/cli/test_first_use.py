"""What somebody who meets the command line for the first time tries, and the words they get."""

import json
import resource
from pathlib import Path

import pytest

from refold.cli import terminal
from refold.cli.run import main as run_main
from refold.session_files import demo_session
from tests.support.api_gateway import (
    write_pi_session,
)
from tests.support.command_line import refold, set_home


def test_a_session_that_finds_no_room_leaves_no_part_of_it(tmp_path, monkeypatch) -> None:
    """Its client took the part for a session of its own."""
    set_home(monkeypatch, tmp_path)
    file = write_pi_session(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        done = refold("export", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.code == 2 and str(file.parent) in done.err and "large" in done.err
    assert list(file.parent.iterdir()) == [file]
    assert refold("export", file).code == 0


def test_a_mistyped_option_of_run_is_no_command(capsys) -> None:
    assert run_main(["--prot", "8000", "claude"]) == 2
    error = capsys.readouterr().err
    assert "No such option" in error and "--port" in error and "not installed" not in error


def test_a_path_is_shown_as_a_shell_takes_it(tmp_path, monkeypatch) -> None:
    """A shell knows no home behind a quote."""
    set_home(monkeypatch, tmp_path)
    home = Path.home()
    assert terminal.argument(home / "a/会话.jsonl") == "~/a/会话.jsonl"
    assert terminal.argument(home / "my files/a.jsonl") == f"'{home}/my files/a.jsonl'"
    assert terminal.argument(home / "a$b.jsonl") == f"'{home}/a$b.jsonl'"


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("form", ["messages", "request", "lines"])
def test_what_powershell_writes_is_read(tmp_path, coding, form) -> None:
    """Its `>` makes UTF-16 of everything."""
    history = [*demo_session(3), {"role": "user", "content": "请把超时改成 30 秒"}]
    value = history if form == "messages" else {"model": "m", "messages": history}
    text = json.dumps(value, ensure_ascii=False)
    if form == "lines":
        text = "\r\n".join(json.dumps(each, ensure_ascii=False) for each in history)
    file, mark = tmp_path / "request.json", "\ufeff" if coding == "utf-16-be" else ""
    file.write_bytes(f"{mark}{text}".encode(coding))
    assert refold("view", file, "--payload").json["messages"] == history
    assert refold("compact", file, "--to", "2k", "-o", tmp_path / "out.json").code in (0, 1)
    assert refold("check", tmp_path / "out.json").code == 0
    assert refold("view", "-", "--payload", stdin=file.read_bytes()).json["messages"] == history


def test_one_line_is_no_lines(tmp_path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"role": "user", "content": "a\nb"}]))
    assert refold("view", file, "--lines", "1").out.endswith("… 1 more line\n")
    assert refold("view", file, "--lines", "0").out.endswith("… 2 more lines\n")


def test_a_reserve_that_leaves_no_room_is_named(file) -> None:
    done = refold("unroll", file, "-o", file.parent / "out.jsonl", "--reserve", "64k")
    assert done.code == 2 and "the reserve for an answer (64,000) leaves 0" in done.err
