"""The first attempts of a new user of the command line, and the messages they get."""

import json
import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from refold.cli import terminal
from refold.cli.run import main as run_main
from refold.cli.sessions import list_recorded, read_listed
from refold.gateway.serve import create_gateway
from refold.session_files import demo_session
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.api_gateway import (
    PI_SESSION,
    answer_briefly,
    build_config,
    write_pi_session,
)
from tests.support.command_line import refold, set_home


def test_an_empty_file_name_does_not_mean_the_current_directory(file, monkeypatch) -> None:
    """`refold compact "$FILE"` once compacted everything below the current directory if FILE was
    unset."""
    monkeypatch.chdir(file.parent)
    done = refold("compact", "", "--to", "5k")
    assert done.code == 2 and "an empty name is no session" in done.err
    assert [path.name for path in file.parent.iterdir()] == ["session.json"]


@pytest.mark.parametrize("command", ["stats", "export", "recall", "unfold", "revert"])
def test_all_commands_print_the_same_error_if_no_session_is_named(command) -> None:
    done = refold(command)
    assert done.code == 2 and "no session is named: give a file or an id" in done.err


def test_an_export_that_does_not_fit_on_the_disk_leaves_no_partial_file(
    tmp_path, monkeypatch
) -> None:
    """The client once took the partial file for a session of its own."""
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


def test_a_mistyped_option_of_run_is_not_taken_for_a_command(capsys) -> None:
    assert run_main(["--prot", "8000", "claude"]) == 2
    error = capsys.readouterr().err
    assert "No such option" in error and "--port" in error and "not installed" not in error


# --- the next command ----------------------------------------------------------------------------


def test_suggested_commands_name_the_store_of_the_edits(file) -> None:
    """They once named no store, so `refold diff` showed nothing and `refold revert` reverted
    nothing."""
    store = file.parent / "my edits.db"
    option = f"--store {terminal.argument(store)}"
    nothing = refold("accept", file, "--store", file.parent / "my edits.refold")
    assert "--preview makes one" in nothing.err or "no such store" in nothing.err
    preview = refold("compact", file, "--to", "5k", "--preview", "--store", store).out
    compact = refold("compact", file, "--to", "5k", "--store", store).out
    recall = refold("recall", file, "freezegun", "--store", store).out
    for out, names in (
        (preview, ("accept", "discard")),
        (compact, ("diff", "revert")),
        (recall, ("unfold",)),
    ):
        for name in names:
            (line,) = (line for line in out.splitlines() if line.startswith(f"refold {name} "))
            assert option in line
    refold("discard", file, "--store", store)
    assert option in refold("accept", file, "--store", store).err
    refold("revert", file, "--store", store)
    assert option in refold("diff", file, "--store", store).out


def test_paths_are_quoted_for_the_shell(tmp_path, monkeypatch) -> None:
    """A shell does not expand `~` after a quote."""
    set_home(monkeypatch, tmp_path)
    home = Path.home()
    assert terminal.argument(home / "a/会话.jsonl") == "~/a/会话.jsonl"
    assert terminal.argument(home / "my files/a.jsonl") == f"'{home}/my files/a.jsonl'"
    assert terminal.argument(home / "a$b.jsonl") == f"'{home}/a$b.jsonl'"


# --- the list as JSON ----------------------------------------------------------------------------


def test_the_json_list_has_session_ids_and_costs(tmp_path, monkeypatch) -> None:
    """It once had no ids, and silently ignored the requested order and projects."""
    set_home(monkeypatch, tmp_path)
    dear, cheap = write_pi_session(tmp_path), tmp_path / ".pi/agent/sessions/--b--/x_bbbb2222.jsonl"
    cheap.parent.mkdir()
    cheap.write_text(dear.read_text().replace('"total": 0.01', '"total": 0.001'))
    os.utime(dear, (time.time() - 9_000,) * 2)
    listed = refold("--json").json["found"]
    assert [row["id"] for row in listed] == ["bbbb2222", PI_SESSION[:8]]
    assert all(refold("stats", row["id"]).code == 0 for row in listed)
    assert {row["cost"] for row in listed} == {None}, "no file was read"
    by_cost = refold("--json", "--sort", "cost").json["found"]
    assert [Path(row["path"]) for row in by_cost] == [dear, cheap]
    assert by_cost[0]["cost"] > by_cost[1]["cost"] > 0 and by_cost[0]["tokens"]
    (project,) = refold("--json", "--by", "project").json["projects"]
    assert project["sessions"] == 2
    assert project["cost"] == pytest.approx(sum(row["cost"] for row in by_cost))
    assert "--all" not in refold().out.partition("2 of 2")[2].splitlines()[0]


# --- files and figures ---------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("form", ["messages", "request", "lines"])
def test_utf16_files_written_by_powershell_are_read(tmp_path, coding, form) -> None:
    """PowerShell's `>` writes UTF-16."""
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


def test_commands_show_a_gateways_session_as_it_was_sent(tmp_path) -> None:
    """Results that are clipped anew for each call are in no store: the page showed them clipped,
    the commands in full."""
    store, log = tmp_path / "refold.db", "\n".join(f"line {n} of a long log" for n in range(6_000))
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "make"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": log}
    messages = [
        {"role": "user", "content": "Build it."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1_000, "messages": messages}
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream, record="7d"), store=str(store))
        with Serving(create_gateway(config)) as served:
            httpx.post(f"{served.url}/v1/messages", json=body, timeout=60).raise_for_status()
        sent = json.loads(upstream.received[-1].body)["messages"]
    assert len(str(sent)) < len(log) / 2
    (session,) = list_recorded(str(store))
    named = [session.id, "--store", store]
    (stats,) = refold("stats", *named, "--json").json["sessions"]
    assert stats["tokens"]["sent"] < stats["tokens"]["unedited"] / 2
    assert stats["billed"]["calls"] == 1 and stats["billed"]["cost"] > 0
    assert "billed: 1 call" in (text := refold("stats", *named).out)
    assert f"{terminal.dollars(stats['billed']['cost'])} recorded by the gateway\n" in text
    (listed,) = read_listed([session], None, str(store))
    assert listed.dollars == stats["billed"]["cost"]
    shown = refold("view", *named, "--payload").json["messages"]
    assert shown == sent
    diff = refold("diff", *named).out
    assert "long tool results clipped" in diff
    past = refold("diff", *named, "--request", "1")
    assert past.err == "" and past.out.splitlines()[1:] == diff.splitlines()[1:]
    assert refold("revert", *named).out.endswith("no edits to revert\n")


def test_one_more_line_is_counted_in_the_singular(tmp_path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"role": "user", "content": "a\nb"}]))
    assert refold("view", file, "--lines", "1").out.endswith("… 1 more line\n")
    assert refold("view", file, "--lines", "0").out.endswith("… 2 more lines\n")


def test_a_reserve_that_leaves_no_tokens_is_reported(file) -> None:
    done = refold("unroll", file, "-o", file.parent / "out.jsonl", "--reserve", "64k")
    assert done.code == 2 and "the reserve for an answer (64,000) leaves 0" in done.err


def test_a_reserve_may_be_nothing(file) -> None:
    out = file.parent / "out.jsonl"
    assert refold("unroll", file, "-o", out, "--reserve", "0").code == 0 and out.exists()


def test_a_session_without_tool_calls_has_no_tool_tokens(tmp_path) -> None:
    """The overhead of messages once counted as tool results."""
    file = tmp_path / "a.json"
    chat = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    file.write_text(json.dumps(chat))
    (stats,) = refold("stats", file, "--json").json["sessions"]
    assert {row["name"] for row in stats["by_speaker"]} == {"people", "agent"}
