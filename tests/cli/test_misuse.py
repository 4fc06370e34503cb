"""What the command line must not do: overwrite sessions, keep edits of a failed run, guess, or show
a traceback."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refold.cli.inputs import list_session_files
from refold.errors import FormatError
from refold.session_files import demo_session, discover, read
from refold.session_files.source import files_below
from tests.support.children import act_as_nobody, default_signals
from tests.support.command_line import digest, refold, set_home


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(demo_session(12), ensure_ascii=False), "utf-8")
    return path


@pytest.fixture
def folder(tmp_path, file):
    (tmp_path / "od").mkdir()
    return Path(file.rename(tmp_path / "od/a.json")).parent


ORPHAN = [{"role": "user", "content": "go"}, {"role": "tool", "tool_call_id": "x", "content": "y"}]


# --- sessions are only ever read -------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["compact", "--to", "5k"], ["check", "--repair"]], ids=" ".join
)
@pytest.mark.parametrize("through", ["itself", "symlink", "hard link", "another spelling"])
def test_a_session_in_a_directory_is_not_overwritten(folder, command, through) -> None:
    file = folder / "a.json"
    if command[0] == "check":
        file.write_text(json.dumps(ORPHAN))
    before, target = digest(file), folder.parent / "out.json"
    if through == "symlink":
        target.symlink_to(file)
    elif through == "hard link":
        target.hardlink_to(file)
    else:
        target = file if through == "itself" else folder / ".." / "od" / "a.json"
    done = refold(*command, folder, "-o", target)
    assert done.code == 2
    assert "sessions are never written" in done.err
    assert digest(file) == before
    assert [path.name for path in folder.iterdir()] == ["a.json"]


def test_an_unreadable_session_in_a_directory_is_not_overwritten(folder) -> None:
    (folder / "b.json").write_text("{ broken")
    assert refold("compact", folder, "--to", "5k", "-o", folder / "b.json").code == 2
    assert (folder / "b.json").read_text() == "{ broken"


def test_repair_does_not_overwrite_the_edits_file(file) -> None:
    refold("compact", file, "--to", "10k")
    edits = Path(f"{file}.refold")
    before = digest(edits)
    done = refold("check", file, "--repair", "-o", edits)
    assert (done.code, digest(edits)) == (2, before)
    assert "edits or drafts" in done.err


@pytest.mark.parametrize("target", ["no/such/x.json", "od"])
def test_an_output_that_cannot_be_written_is_refused_before_edits_are_saved(file, target) -> None:
    (file.parent / "od").mkdir()
    done = refold("compact", file, "--to", "10k", "-o", file.parent / target)
    assert done.code == 2
    assert "there is no directory" in done.err or "it is a directory" in done.err
    assert sorted(path.name for path in file.parent.iterdir()) == ["od", "session.json"]


def test_resume_of_an_unsupported_format_is_refused_before_edits_are_saved(file) -> None:
    done = refold("compact", file, "--to", "8k", "--resume")
    assert done.code == 2 and "only of Claude Code, Codex, pi, OpenCode" in done.err
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("command", ["view", "diff"])
def test_a_message_number_that_does_not_exist_is_reported(file, command) -> None:
    refold("compact", file, "--to", "8k")
    for options in ((), ("--json",), ("--html", file.parent / "x.html")):
        done = refold(command, file, "--message", "9999", *options)
        assert (done.code, done.out) == (2, "") and "there is no message #9999" in done.err
    assert refold(command, file, "--message", "3").code == 0


def test_b16_a_message_number_need_only_exist_in_one_of_several_sessions(file, tmp_path) -> None:
    (tmp_path / "short.json").write_text(json.dumps(demo_session(2)), "utf-8")
    done = refold("view", tmp_path, "--message", "9")
    assert done.code == 0 and "there is no message #9" in done.out
    assert refold("view", tmp_path, "--message", "9999").code == 2


def test_b16_a_pin_that_matches_no_message_is_refused_before_anything_is_written(file) -> None:
    done = refold("compact", file, "--to", "8k", "--pin", "harbor", "--pin", "what nobody wrote")
    assert done.code == 2 and "--pin 'what nobody wrote': no message says this" in done.err
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_b16_a_file_name_instead_of_a_command_suggests_the_stats_command(file) -> None:
    done = refold(file)
    assert done.code == 2 and f"refold stats {file}" in done.err and done.err.count("\n") == 1
    assert "No such command 'nonesuch.json'" in refold("nonesuch.json").err


@pytest.mark.parametrize("output", ["out.json", "link.json"])
def test_an_output_file_is_unchanged_if_the_new_one_does_not_fit_on_the_disk(file, output) -> None:
    """On a full disk, half a request once replaced the earlier one, and the error named no file."""
    (file.parent / "out.json").write_text("[]")
    (file.parent / "link.json").symlink_to("out.json")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        result = refold("check", file, "--repair", "-o", file.parent / output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.code == 2 and output in result.err and "large" in result.err
    assert (file.parent / "out.json").read_text() == "[]"
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "link.json",
        "out.json",
        "session.json",
    ]
    assert not refold("check", file, "--repair", "-o", file.parent / output).code
    assert json.loads((file.parent / "out.json").read_text())
    assert (file.parent / "link.json").is_symlink()


def test_a_dry_run_writes_no_file(file) -> None:
    done = refold("compact", file, "--to", "10k", "--dry-run", "-o", file.parent / "x.json")
    assert done.code == 2
    assert "--dry-run" in done.err
    out = refold("compact", file, "--to", "10k", "--dry-run", "-o", "-")
    assert (out.code, len(out.json) > 1) == (0, True)
    assert [path.name for path in file.parent.iterdir()] == ["session.json"]


def test_a_dry_run_neither_creates_nor_changes_a_store(file) -> None:
    store = file.parent / "edits.db"
    assert refold("compact", file, "--to", "10k", "--dry-run", "--store", store).code == 0
    assert not store.exists()
    refold("compact", file, "--to", "12k", "--store", store)
    before = digest(store)
    again = refold("compact", file, "--to", "6k", "--dry-run", "--store", store, "--json").json[
        "sessions"
    ][0]
    assert again["tokens"]["before"] <= 12_000
    assert digest(store) == before


# --- the store -------------------------------------------------------------------------------

LOOKS = [
    ["stats"],
    ["view"],
    ["history"],
    ["unfold", "a81c"],
    ["recall", "x"],
    ["check"],
    ["discard"],
]


@pytest.mark.parametrize("command", [*LOOKS, ["accept"], ["revert"]], ids=" ".join)
@pytest.mark.parametrize("name", ["typo.db", "typo.refold"])
def test_a_missing_store_is_reported_and_not_created(file, command, name) -> None:
    verb, *rest = command
    done = refold(verb, file, *rest, "--store", file.parent / name)
    assert done.code == 2
    assert "there is no such store" in done.err
    assert [path.name for path in file.parent.iterdir()] == ["session.json"]


@pytest.mark.parametrize("name", ["edits.db", "edits.refold"])
def test_commands_that_read_do_not_write_to_the_store(file, name) -> None:
    store = file.parent / name
    refold("compact", file, "--to", "10k", "--store", store)
    seen = refold("view", file, "--json", "--store", store).json["sessions"][0]["items"]
    edit = next(item["edit"]["id"] for item in seen if item["edit"])
    before, there = digest(store), sorted(file.parent.iterdir())
    for verb, *rest in (
        ["stats"],
        ["view"],
        ["history"],
        ["unfold", edit],
        ["recall", "the"],
        ["check"],
    ):
        assert refold(verb, file, *rest, "--store", store).code in {0, 1}
    assert (digest(store), sorted(file.parent.iterdir())) == (before, there)


def test_a_store_inside_the_directory_is_not_read_as_a_session(folder) -> None:
    store = folder / "e.db"
    for _ in range(2):
        done = refold("compact", folder, "--to", "10k", "--store", store, "--json")
        assert (done.code, done.err, done.json["skipped"]) == (0, "", [])
    assert len(done.json["sessions"]) == 1


# --- folders without permission --------------------------------------------------------------


@pytest.fixture
def shut_folder(tmp_path):
    """Return a directory with a session and a folder that may not be read."""
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    for folder_above in (
        tmp_path,
        tmp_path.parent,
        tmp_path.parent.parent,
        tmp_path.parent.parent.parent,
    ):
        if not folder_above.stat().st_mode & 0o001:
            folder_above.chmod(folder_above.stat().st_mode | 0o011)
    root = tmp_path / ".claude/projects"
    for name in ("open", "shut"):
        (root / name).mkdir(parents=True)
        (root / name / "s.jsonl").write_text(json.dumps({"type": "user", "cwd": "/w"}) + "\n")
    tmp_path.chmod(0o755)
    (root / "shut").chmod(0o700)
    return tmp_path


def test_unreadable_directories_are_reported(shut_folder) -> None:
    def act():
        refused = list[str]()
        names = [
            str(path)
            for path in list_session_files(
                shut_folder, lambda error: refused.append(str(error.filename))
            )
        ]
        return names, refused

    names, refused = act_as_nobody(act)
    assert names == [str(shut_folder / ".claude/projects/open/s.jsonl")]
    assert refused == [str(shut_folder / ".claude/projects/shut")]


def test_unreadable_directories_of_clients_are_reported(shut_folder) -> None:
    def act():
        refused = list[str]()
        sessions = discover(shut_folder, {}, lambda error: refused.append(str(error.filename)))
        return [str(session.path) for session in sessions], refused

    names, refused = act_as_nobody(act)
    assert names == [str(shut_folder / ".claude/projects/open/s.jsonl")]
    assert refused == [str(shut_folder / ".claude/projects/shut")]


def test_commands_report_unreadable_directories(shut_folder, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(shut_folder))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)

    def act():
        return [
            tuple(refold(*args))[:3] for args in (["stats", shut_folder, "--json"], [], ["--json"])
        ]

    stats, shown, listed = act_as_nobody(act)
    for code, _, err in (stats, shown, listed):
        assert code in {0, 2}
        assert "shut: Permission denied" in err
    assert json.loads(listed[1])["skipped"][0]["path"].endswith("shut")


def test_symlinks_are_followed_only_if_the_pattern_names_them(tmp_path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/s.json").write_text("")
    (tmp_path / "a/loop").symlink_to(tmp_path / "a")
    (tmp_path / "a/gone.json").symlink_to(tmp_path / "nowhere")

    def below(pattern):
        return sorted(
            str(path.relative_to(tmp_path)) for path in files_below(tmp_path, pattern, print)
        )

    assert below("**/*.json") == ["a/b/s.json"]
    assert below("a/loop/b/s*") == ["a/loop/b/s.json"]
    assert below("x/*") == []


@pytest.mark.parametrize(
    "command",
    [
        ["stats", "./loop"],
        ["unroll", "loop", "--to", "8k", "-o", "traces.jsonl"],
        ["check", "session.json", "--before", "loop"],
        ["stats", "--last", "--project", "loop"],
    ],
    ids=" ".join,
)
def test_a_symlink_to_itself_is_reported_in_one_line(file, monkeypatch, command) -> None:
    monkeypatch.chdir(file.parent)
    Path("loop").symlink_to("loop")
    set_home(monkeypatch, file.parent)
    done = refold(*command)
    assert done.code in {1, 2}
    assert done.err.startswith("refold: ") and done.err.count("\n") == 1


def test_output_may_replace_a_symlink_to_itself(file) -> None:
    (file.parent / "loop").symlink_to("loop")
    assert refold("compact", file, "--to", "10k", "-o", file.parent / "loop").code == 0
    assert read(file.parent / "loop").messages


# --- streams and signals ---------------------------------------------------------------------


def shell(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    line = f'"{sys.executable}" -W error -m refold {command}'
    return subprocess.run(
        line, shell=True, cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", ["view session.json", "stats session.json --json", "--help"])
def test_a_closed_standard_output_does_not_crash_a_command(file, command) -> None:
    done = shell(f"{command} >&-", file.parent)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_error_does_not_crash_a_command(file) -> None:
    assert shell("view none.json 2>&-", file.parent).returncode == 2
    assert shell("compact session.json --to 10k --dry-run >&- 2>&-", file.parent).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize("command", ["stats session.json", "view session.json --payload", "--help"])
def test_output_to_a_full_disk_is_one_line_and_exit_code_2(file, monkeypatch, command) -> None:
    """Python's second attempt to write, at exit, once printed an exception and made it 120."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    done = shell(f"{command} > /dev/full", file.parent)
    assert (done.returncode, done.stderr) == (2, "refold: No space left on device\n")


@pytest.mark.parametrize("command", ["stats -", "compact - --to 10k"])
def test_a_closed_standard_input_is_reported(file, command) -> None:
    done = shell(f"{command} <&-", file.parent)
    assert (done.returncode, done.stderr) == (2, "refold: standard input is closed\n")


def test_f27_an_interrupt_during_startup_prints_nothing(tmp_path) -> None:
    """The interrupt comes during the first slow import."""
    waiting = "import os, time\nos.write(2, b'!')\nwhile True:\n    time.sleep(0.01)\n"
    (tmp_path / "click.py").write_text(waiting)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    line = [sys.executable, "-m", "refold", "--version"]
    with default_signals():
        child = subprocess.Popen(line, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with child:
        assert child.stderr.read(1) == b"!"
        child.send_signal(signal.SIGINT)
        assert child.wait(300) == 130
        assert child.stderr.read() == b""


def test_f27_a_child_process_handles_sigint_even_if_its_parent_ignores_it() -> None:
    """Under `nohup` or `&`, tests that interrupt a child process once waited for ever."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with default_signals():
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.stdout.split() == [b"True"]


# --- figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["compact", "--to", "0"], "from 1 to 1,000,000,000,000,000"),
        (["compact", "--to", "0.0001k"], "from 1 to"),
        (["compact", "--to", "99999999999999999999999"], "from 1 to 1,000,000,000,000,000"),
        (["compact", "--to", "9" * 5_000], "no number of tokens"),
        (["compact", "--to", "٣"], "no number of tokens"),
        (["compact", "--to", "9k", "--preview", "--price", "nan"], "'nan' is no price"),
        (["compact", "--to", "9k", "--preview", "--price", "inf"], "'inf' is no price"),
        (["compact", "--to", "9k", "--preview", "--price", "-1"], "'-1' is no price"),
        (["compact", "--to", "9k", "--model", "m", "--model-url", "http://127.0.0.1:9", "--model-price", "nan,nan"], "no price"),
        (["compact", "--to", "9k", "--model", "m", "--model-url", "http://127.0.0.1:9", "--model-window", "0"], "from 1 to"),
        (["compact", "--to", "9k", "--strategy", "Summarize(keep=-1)"], "keep must be"),
        (["stats", "--largest", "-3"], "-3"),
        (["view", "--payload", "--lines", "3"], "leave out --lines"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)  # fmt: skip
def test_invalid_numbers_are_refused_in_one_line(file, arguments, error) -> None:
    verb, *rest = arguments
    done = refold(verb, file, *rest)
    assert (done.code, done.out) == (2, "")
    assert error in done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in file.parent.iterdir()] == ["session.json"]


def test_a_very_large_target_is_kept_exactly(file) -> None:
    done = refold("compact", file, "--to", "999_999_999_999_999", "--json").json["sessions"][0]
    assert done["tokens"]["target"] == 999_999_999_999_999


@pytest.mark.parametrize(
    "how", [["--dry-run"], ["--preview"], [], ["--json"], ["-o", "-"]], ids=" ".join
)
def test_a_missed_target_is_exit_code_1(file, how) -> None:
    """The edits made are kept."""
    assert refold("compact", file, "--to", "1", "--strategy", "ClearThinking", *how).code == 1


def test_one_missed_target_of_several_is_exit_code_1(folder) -> None:
    (folder / "b.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    assert refold("compact", folder, "--to", "600", "--strategy", "ClearThinking").code == 1
    assert refold("compact", folder, "--to", "1M").code == 0


# --- broken JSON -----------------------------------------------------------------------------


def test_broken_json_of_many_lines_is_reported_with_its_position(tmp_path) -> None:
    lines = json.dumps(demo_session(12), indent=1).split("\n")
    at = next(n for n in range(len(lines) // 2, len(lines)) if lines[n].endswith('",'))
    lines[at] = lines[at].replace('",', ",")
    (tmp_path / "s.json").write_text("\n".join(lines))
    with pytest.raises(
        FormatError, match=rf"broken JSON \(line ({at + 1:,}|{at + 2:,}), column \d+: "
    ):
        read(tmp_path / "s.json")


def test_a_broken_first_line_of_a_jsonl_file_is_reported_as_line_1(tmp_path) -> None:
    lines = [json.dumps(entry) for entry in demo_session(3)]
    (tmp_path / "s.jsonl").write_text("\n".join([lines[0][:-3], *lines[1:]]))
    (problem,) = read(tmp_path / "s.jsonl").problems
    assert problem.line == 1


def test_broken_json_of_one_line_is_reported_as_neither_json_nor_jsonl(tmp_path) -> None:
    (tmp_path / "s.json").write_text("hello")
    with pytest.raises(FormatError, match=r"neither JSON nor lines of JSON \(line 1: "):
        read(tmp_path / "s.json")


@pytest.mark.parametrize(
    "choice", [["--last"], ["--project", "."], ["session.json", "--all"], ["5f3a"]]
)
def test_a_session_of_a_file_needs_that_file(file, monkeypatch, choice) -> None:
    monkeypatch.chdir(file.parent)
    done = refold("stats", *choice, "--session", "x")
    assert (done.code, "--session names" in done.err) == (2, True), done.err


@pytest.mark.parametrize(("word", "hint"), [("stat", " Did you mean stats?"), ("xyzzy", "")])
def test_a_mistyped_command_is_answered_with_one_like_it(word, hint) -> None:
    done = refold(word)
    assert (done.code, done.err) == (2, f"refold: No such command '{word}'.{hint}\n")


def test_what_is_no_session_in_a_directory_is_said_in_a_sentence(folder) -> None:
    (folder / "notes.json").write_text('{"a": 1}')
    (folder / "empty.json").write_text("")
    done = refold("stats", folder)
    assert f"refold: {folder}/notes.json is no session file that Refold knows." in done.err
    assert f"refold: {folder}/empty.json: the file is empty; skipped" in done.err


def test_an_export_of_a_list_of_messages_names_the_clients_that_have_one(file) -> None:
    done = refold("export", file)
    clients = "Claude Code, Codex, pi, OpenCode"
    reason = f"only sessions of {clients} are written, no lists of messages"
    assert (done.code, done.err) == (2, f"refold: {file}: {reason}\n")


def test_a_file_that_is_named_twice_counts_once(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "b.json").write_text(json.dumps(demo_session(3)))
    names = ["b.json", ".", "a.json", folder / "b.json"]
    paths = [row["path"] for row in refold("stats", *names, "--json").json["sessions"]]
    assert paths == ["b.json", "a.json"]
    done = refold("unroll", *names, "-o", folder.parent / "rows.jsonl", "--json")
    assert done.json["sessions"] == 2
