"""The command line: what it prints, what it leaves alone, how it ends."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from refold.cli import commands, terminal
from refold.cli.options import token_count
from refold.compactor.settings import parse_strategy
from refold.session_files import demo_session
from refold.strategies import ClearToolResults
from tests.support.command_line import (
    REFOLD,
    claude_code_session,
    digest,
    edit_ids,
    refold,
    run_on_terminal,
)

COMMANDS = [["stats"], ["compact", "--to", "20k"], ["view"], ["check"], ["revert"]]


# --- compact, view, unfold, revert -----------------------------------------------------------


def test_compact_does_not_change_the_session_and_prints_a_report(file) -> None:
    before = digest(file)
    done = refold("compact", file, "--to", "20k")
    assert done.code == 0
    assert digest(file) == before
    assert "fits 20,000" in done.out
    assert "summary by rules" in done.out
    assert "SummarizeTo(" not in done.out
    assert "noop" not in done.out
    assert "refold revert" in done.out
    output = file.parent / "smaller.json"
    done = refold("compact", file, "--to", "20k", "-o", output)
    assert f"the compacted request is in {output}" in done.out and output.exists()
    assert "SummarizeTo(" in refold("compact", file, "--to", "19k", "-v", "--dry-run").out
    assert (file.parent / "session.json.refold").exists()


def test_compact_exits_1_and_reports_a_missed_target(file) -> None:
    done = refold("compact", file, "--to", "10", "--strategy", "ClearThinking(keep=1)")
    assert done.code == 1
    assert "target of 10 not met" in done.out
    assert (
        refold("compact", file, "--to", "10", "--strategy", "clear-thinking", "--json").json[
            "sessions"
        ][0]["fits"]
        is False
    )


def test_a_session_that_fits_gets_no_edits(file) -> None:
    small = refold("compact", file, "--to", "5M").out
    assert "already fits" in small and "--preview" in small, "and what one can do all the same"
    assert edit_ids(file) == []


def test_a_dry_run_writes_nothing(file) -> None:
    done = refold("compact", file, "--to", "20k", "--dry-run")
    assert "nothing was written" in done.out
    assert [path.name for path in file.parent.iterdir()] == ["session.json"]


def test_a_dry_run_lists_the_edits_that_compact_would_save(file) -> None:
    dry = refold("compact", file, "--to", "20k", "--dry-run", "--json").json["sessions"][0]
    wet = refold("compact", file, "--to", "20k", "--json").json["sessions"][0]
    assert dry["edits"] == wet["edits"]
    assert (dry["store"], wet["store"]) == ("", f"{file}.refold")


def test_a_second_compaction_builds_on_the_first(file) -> None:
    first = refold("compact", file, "--to", "25k", "--json").json["sessions"][0]
    again = refold("compact", file, "--to", "25k", "--json").json["sessions"][0]
    assert again["edits"] == []
    assert again["tokens"]["before"] == first["tokens"]["after"]
    assert (
        refold("compact", file, "--to", "10k", "--json").json["sessions"][0]["tokens"]["before"]
        == first["tokens"]["after"]
    )


def test_the_output_is_the_payload_of_the_view(file) -> None:
    target = file.parent / "out.json"
    assert refold("compact", file, "--to", "20k", "-o", target).code == 0
    assert refold("view", file, "--payload").raw == target.read_bytes()
    assert refold("check", target).code == 0


def test_a_payload_without_edits_is_printed_byte_for_byte(tmp_path) -> None:
    text = '[ {"role":"user", "content":"hi", "n": 1.50, "big": 123456789012345678901234567890, "a":1, "a":2} ]'
    (tmp_path / "odd.json").write_text(text)
    assert refold("view", tmp_path / "odd.json", "--payload").out == text


def test_edits_are_saved_in_the_store_that_is_given(file) -> None:
    store = file.parent / "edits.db"
    refold("compact", file, "--to", "20k", "--store", store)
    assert not (file.parent / "session.json.refold").exists()
    assert edit_ids(file) == []
    assert refold("view", file, "--store", store, "--json").json["sessions"][0]["tokens"] <= 20_000


def test_edits_are_found_again_when_the_session_has_grown_or_moved(file, history) -> None:
    store = file.parent / "edits.db"
    refold("compact", file, "--to", "20k", "--store", store)
    moved = file.parent / "moved.json"
    moved.write_text(json.dumps([*history, {"role": "assistant", "content": "Done."}]))
    shown = refold("view", moved, "--store", store, "--json").json["sessions"][0]
    assert any(item["edit"] for item in shown["items"])


def test_unfold_shows_exactly_what_an_edit_hides(file, history) -> None:
    refold("compact", file, "--to", "20k")
    for id in edit_ids(file):
        unfolded = refold("unfold", file, id[:8], "--json").json["sessions"][0]
        assert unfolded["entries"] == history[unfolded["edit"]["start"] : unfolded["edit"]["stop"]]
    assert "Europe/Berlin" in refold("unfold", file, edit_ids(file)[0]).out


def test_revert_removes_one_edit_or_all(file, history) -> None:
    refold("compact", file, "--to", "20k", "--strategy", "ClearToolResults")
    first, *rest = edit_ids(file)
    assert refold("revert", file, first[:8]).code == 0
    assert edit_ids(file) == rest
    assert f"{len(rest):,} edits reverted" in refold("revert", file).out
    assert json.loads(refold("view", file, "--payload").out) == history
    assert "no edits to revert" in refold("revert", file).out


def test_diff_shows_the_original_and_the_compacted_lines(file) -> None:
    refold("compact", file, "--to", "20k", "--strategy", "ClearToolResults")
    out = refold("diff", file).out
    assert "\n-" in out
    assert "\n+" in out
    assert "unchanged" in out
    assert edit_ids(file)[0][:8] in out


def test_view_shows_every_kind_of_part_and_chinese(file) -> None:
    out = refold("view", file).out
    assert "必须保持 API 返回的字段名" in out
    for mark in ("✻ signed", "→ Read", "← ", "▣ image image/png", "failed"):
        assert mark in out
    assert len(refold("view", file, "--lines", "1").out) < len(out) / 5


def test_control_characters_are_made_visible(tmp_path) -> None:
    coloured = "\x1b[31mred\x07 \u202egnp.exe"
    file, roles = tmp_path / "a.json", ["user", "assistant", "user"]
    texts = [coloured, "All of it is done. " * 900, "Thanks."]
    file.write_text(
        json.dumps(
            [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        )
    )
    out = refold("view", file).out
    assert refold("compact", file, "--to", "1k", "--strategy", "Summarize(keep=1)").code == 0
    taken_back = refold("revert", file).out
    assert "1 edit reverted" in taken_back
    for shown in (out, taken_back):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
        assert "␛[31mred" in shown


def test_effective_shows_the_session_after_the_clients_own_compaction(tmp_path) -> None:
    (tmp_path / "s.jsonl").write_text(claude_code_session())
    assert "第一个请求" in refold("view", tmp_path / "s.jsonl").out
    effective = refold("view", tmp_path / "s.jsonl", "--effective").out
    assert "summary of it all" in effective
    assert "第一个请求" not in effective
    stats = refold("stats", tmp_path / "s.jsonl", "--json").json["sessions"][0]
    assert stats["compactions"][0]["trigger"] == "auto"
    assert stats["tokens"]["effective"] is not None
    assert "what the client had compacted is included" in refold("export", tmp_path / "s.jsonl").out


# --- stats -----------------------------------------------------------------------------------


def test_stats_shows_a_bar_per_role_tool_and_part(file) -> None:
    out = refold("stats", file).out
    for word in ("people", "agent", "tools", "Read", "Bash", "█", "largest"):
        assert word in out


def test_tool_results_are_not_counted_as_text_of_people(file) -> None:
    session = refold("stats", file, "--json").json["sessions"][0]
    tokens = {row["name"]: row["tokens"] for row in session["by_speaker"]}
    (results,) = (row["tokens"] for row in session["by_part"] if row["name"] == "result")
    assert results <= tokens["tools"] and tokens["people"] < results / 10


def test_stats_add_up_if_two_messages_of_a_summary_are_sent_as_one(tmp_path) -> None:
    file = tmp_path / "session.json"
    file.write_text(json.dumps(demo_session(12)), "utf-8")
    refold("compact", file, "--to", "10k")
    session = refold("stats", file, "--json").json["sessions"][0]
    assert sum(row["tokens"] for row in session["by_speaker"]) == session["tokens"]["sent"]


def test_stats_add_up(file) -> None:
    session = refold("stats", file, "--json").json["sessions"][0]
    assert (
        sum(row["tokens"] for row in session["by_role"])
        == session["tokens"]["sent"]
        == session["tokens"]["unedited"]
    )
    assert sum(row["tokens"] for row in session["by_part"]) == session["tokens"]["sent"]
    assert sum(row["tokens"] for row in session["by_speaker"]) == session["tokens"]["sent"]
    assert [row["tokens"] for row in session["largest"]] == sorted(
        (row["tokens"] for row in session["largest"]), reverse=True
    )
    assert len(session["largest"]) == 5


def test_exact_counts_are_close_to_the_estimate(file) -> None:
    pytest.importorskip("splintr")
    exact, estimate = (
        refold("stats", file, "--json", *options).json["sessions"][0]["tokens"]["unedited"]
        for options in (["--exact"], [])
    )
    assert exact != estimate
    assert abs(exact - estimate) < 0.1 * exact


# --- directories, standard input -------------------------------------------------------------


def test_unreadable_files_of_a_directory_are_reported_and_skipped(tmp_path) -> None:
    (tmp_path / "deep").mkdir()
    for n, path in enumerate((tmp_path / "a.json", tmp_path / "deep" / "b.json"), 2):
        path.write_text(json.dumps(demo_session(n)))
    (tmp_path / "c.json").write_text("{not json")
    (tmp_path / "d.txt").write_text("no session")
    done = refold("stats", tmp_path)
    assert done.code == 0
    assert "2 sessions" in done.out
    assert "c.json" in done.err
    assert "skipped" in done.err
    document = refold("stats", tmp_path, "--json").json
    assert [session["path"] for session in document["sessions"]] == [
        str(tmp_path / "a.json"),
        str(tmp_path / "deep" / "b.json"),
    ]
    assert [file_skipped["path"] for file_skipped in document["skipped"]] == [
        str(tmp_path / "c.json")
    ]
    assert refold("view", tmp_path, "--json").json["skipped"] == document["skipped"]


def test_a_directory_without_sessions_is_an_error_with_exit_code_2(tmp_path) -> None:
    assert refold("stats", tmp_path) == (2, "", f"refold: no session in {tmp_path}\n", b"")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_takes_a_directory_and_prints_json(command, tmp_path) -> None:
    for n in (2, 3):
        (tmp_path / f"{n}.json").write_text(json.dumps(demo_session(n)))
    name, *options = command
    document = refold(name, tmp_path, *options, "--json").json
    assert set(document) == {"sessions", "skipped"}
    common = {"path", "client", "format", "id", "title", "cwd", "messages", "problems"}
    assert all(common <= set(session) for session in document["sessions"])
    assert len(document["sessions"]) == 2


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_takes_standard_input(command, file) -> None:
    name, *options = command
    done = refold(name, "-", *options, stdin=file.read_bytes())
    assert done.code == 0
    assert [path.name for path in file.parent.iterdir()] == ["session.json"]


def test_a_piped_session_comes_out_compacted(file) -> None:
    done = refold("compact", "-", "--to", "20k", stdin=file.read_bytes())
    payload = json.loads(done.out)
    assert len(json.dumps(payload)) < len(file.read_bytes())
    assert "fits 20,000" in done.err


def test_a_broken_line_is_reported_and_the_rest_is_read(tmp_path) -> None:
    lines = [json.dumps(entry) for entry in demo_session(3)]
    (tmp_path / "s.jsonl").write_text("\n".join([lines[0], "{broken", *lines[1:]]))
    done = refold("stats", tmp_path / "s.jsonl", "--json")
    assert done.json["sessions"][0]["messages"] == len(lines)
    assert done.json["sessions"][0]["problems"][0]["line"] == 2
    assert "line 2" in done.err


# --- check -----------------------------------------------------------------------------------


@pytest.fixture
def broken_session(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(
        json.dumps({"messages": [*demo_session(1)[:2], {"role": "user", "content": "Go on."}]})
    )
    return path


def test_check_prints_rule_and_position_of_a_violation_and_exits_1(broken_session) -> None:
    done = refold("check", broken_session)
    assert done.code == 1
    assert "#1 AN-1" in done.out
    violations = refold("check", broken_session, "--json").json["sessions"][0]["violations"]
    assert {violation["rule"] for violation in violations} == {"AN-1"}
    assert set(violations[0]) == {"rule", "at", "text", "subject"}


def test_check_repairs_into_another_file(broken_session) -> None:
    target, before = broken_session.parent / "mended.json", digest(broken_session)
    done = refold("check", broken_session, "--repair", "-o", target)
    assert done.code == 0
    assert "repaired" in done.out
    assert digest(broken_session) == before
    assert refold("check", target).code == 0


def test_check_compares_with_the_previous_request(tmp_path) -> None:
    earlier, later = tmp_path / "earlier.json", tmp_path / "later.json"
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    answer = {"role": "assistant", "content": [thought, {"type": "text", "text": "Three."}]}
    messages = [{"role": "user", "content": "How many tests fail?"}]
    earlier.write_text(json.dumps({"model": "claude-opus-5-5", "messages": messages}))
    later.write_text(
        json.dumps(
            {
                "model": "claude-opus-5-5",
                "messages": [{"role": "user", "content": "How many?"}, answer],
            }
        )
    )
    assert refold("check", later).code == 0
    done = refold("check", later, "--before", earlier)
    assert (done.code, "#1 AN-7" in done.out) == (1, True)
    assert refold("check", later, "--before", later).code == 0
    assert refold("check", later, "--before", tmp_path / "none.json").code == 2
    unrelated = tmp_path / "other.json"
    unrelated.write_text(
        json.dumps({"input": [{"type": "message", "role": "user", "content": "How many?"}]})
    )
    refused = refold("check", later, "--before", unrelated)
    assert (refused.code, "other.json is no request of the same kind" in refused.err) == (2, True)
    refused = refold(
        "check", later, "--before", earlier, "--repair", "-o", tmp_path / "mended.json"
    )
    assert (refused.code, "leave out --repair" in refused.err) == (2, True)


def test_a_broken_file_among_several_does_not_hide_a_violation(broken_session) -> None:
    (broken_session.parent / "none.json").write_text("nothing")
    assert refold("check", broken_session.parent).code == 1


# --- no command ------------------------------------------------------------------------------


def test_the_version_is_printed_and_help_lists_every_command() -> None:
    assert refold("--version").out.startswith("refold 0.")
    out = refold("--help").out
    assert "..." not in out.partition("\nCommands:")[2]  # each is described in a whole sentence
    for name in commands.refold.commands:
        assert name in out
        assert refold(name, "--help").out.startswith(f"Usage: refold {name}")


# --- misuse and bad input --------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats"],
        ["stats", "nowhere.json"],
        ["nonsense"],
        ["stats", "FILE", "--nonsense"],
        ["compact", "FILE"],
        ["compact", "FILE", "--to", "lots"],
        ["compact", "FILE", "--to", "-5"],
        ["compact", "FILE", "--to", "1k", "--strategy", "Nothing"],
        ["compact", "FILE", "--to", "1k", "--strategy", "ClearToolResults(keep="],
        ["compact", "FILE", "--to", "1k", "--strategy", "ClearToolResults(colour=3)"],
        ["compact", "FILE", "--to", "1k", "--strategy", "ClipResults(limit=1)"],
        ["compact", "FILE", "--to", "1k", "--json", "-o", "-"],
        ["compact", "FILE", "--to", "1k", "-o", "FILE"],
        ["compact", "FILE", "--to", "1k", "-o", "no/such/directory/x.json"],
        ["compact", "FILE", "--to", "1k", "--store", "FILE"],
        ["compact", "FILE", "--to", "1k", "--format", "morse"],
        ["stats", "FILE", "--session", "no-such-session"],
        ["unfold", "FILE", "abc"],
        ["unfold", "FILE", ""],
        ["revert", "FILE", "abc"],
        ["check", "FILE", "--repair"],
        ["check", "FILE", "-o", "x.json"],
        ["view", "FILE", "--lines", "-1"],
        ["demo", "--turns", "0"],
    ],
)
def test_misuse_is_reported_in_one_line_with_exit_code_2(arguments, file, monkeypatch) -> None:
    monkeypatch.chdir(file.parent)
    before = digest(file)
    done = refold(*("session.json" if word == "FILE" else word for word in arguments))
    assert done.code == 2
    assert done.err.startswith("refold: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    assert digest(file) == before


BAD = {
    "empty": b"",
    "malformed": b'[{"role": "user", "content": ',
    "binary": bytes(range(256)) * 20,
    "number": b"17",
    "text": b"hello",
    "strings": b'["a", "b"]',
    "object": b'{"name": "a package", "version": 3}',
    "shape": b'{"messages": 3}',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "zstd": b"\x28\xb5\x2f\xfd????",
    "database": b"SQLite format 3\0????",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_invalid_files_are_reported_by_name_with_exit_code_2(name, command, tmp_path) -> None:
    (tmp_path / name).write_bytes(BAD[name])
    verb, *options = command
    done = refold(verb, tmp_path / name, *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("refold: ")
    assert name in done.err
    assert done.err.count("\n") == 1 and done.err.endswith("\n")


STRANGE = {
    "nothing said": [],
    "one message": [{"role": "user", "content": "hi"}],
    "only system": [{"role": "system", "content": "be brief"}],
    "empty content": [{"role": "user", "content": ""}, {"role": "assistant", "content": []}],
    "null content": [{"role": "user", "content": None}],
    "duplicate ids": [
        {"role": "user", "content": "go"},
        *[
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}],
            }
        ]
        * 2,
        *[
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r" * 5_000}],
            }
        ]
        * 2,
    ],
    "result before call": [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r" * 5_000}],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}],
        },
    ],
    "binary result": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "\0\x01\ud800\uffff" * 9_000}
            ],
        },
        {"role": "assistant", "content": "done"},
    ],
    "one long line": [{"role": "user", "content": "x" * 2_000_000}],
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("command", [*COMMANDS, ["diff"]], ids=" ".join)
def test_strange_sessions_never_crash_a_command(name, command, tmp_path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(STRANGE[name]))
    before = digest(path)
    verb, *options = command
    for output_form in ([], ["--json"]):
        done = refold(verb, path, *options, *output_form)
        assert done.code in ({0, 1} if verb in ("check", "compact") else {0})
        if output_form:
            assert len(done.json["sessions"]) == 1
    assert digest(path) == before


def test_a_damaged_sidecar_is_reported_with_exit_code_2(file) -> None:
    (file.parent / "session.json.refold").write_bytes(b"something else")
    done = refold("view", file)
    assert (done.code, done.out) == (2, "")
    assert "not a Refold sidecar" in done.err
    assert done.err.count("\n") == 1 and done.err.endswith("\n")


# --- small parts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("60000", 60_000),
        ("60_000", 60_000),
        ("60,000", 60_000),
        ("60k", 60_000),
        ("1.5M", 1_500_000),
        ("0.5k", 500),
    ],
)
def test_token_counts_may_have_separators_and_suffixes(text, number) -> None:
    assert token_count(text) == number


@pytest.mark.parametrize(
    "text", ["ClearToolResults(keep=5)", "clear_tool_results(keep=5)", "clear-tool-results (5)"]
)
def test_a_strategy_name_may_be_written_in_camel_snake_or_kebab_case(text) -> None:
    assert parse_strategy(text) == ClearToolResults(keep=5)


def test_a_strategy_is_read_back_from_its_repr() -> None:
    assert parse_strategy(repr(ClearToolResults(keep=2))) == ClearToolResults(keep=2)


@pytest.mark.parametrize(
    "text",
    ["ClipResults(__import__('os'))", "ClipResults(**{})", "ClipResults(1)(2)", "__class__", ""],
)
def test_strategy_texts_are_never_evaluated_as_code(text) -> None:
    with pytest.raises(ValueError, match=r"cannot read the setting|no strategy"):
        parse_strategy(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (950, "950"), (12_340, "12.3k"), (999_960, "1.00M"), (1_250_000, "1.25M")],
)
def test_token_counts_are_abbreviated_with_k_and_m(count, text) -> None:
    assert terminal.tokens(count) == text


def test_a_bar_is_as_long_as_its_share() -> None:
    assert terminal.bar(1, 2, 10) == "█" * 5
    assert terminal.bar(0, 2, 10) == ""
    assert terminal.bar(1, 10_000, 10) == "▏"
    assert terminal.bar(1, 0, 10) == "▏"


# --- as a process ----------------------------------------------------------------------------


@pytest.mark.slow
def test_output_is_coloured_on_a_terminal_but_not_in_a_pipe(file, monkeypatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    piped = refold("stats", file)
    assert "\x1b[" not in piped.out + piped.err
    monkeypatch.delenv("FORCE_COLOR")
    assert b"\x1b[" in run_on_terminal(["stats", file])
    assert b"\x1b[" not in run_on_terminal(["stats", file], TERM="dumb")
    assert b"\x1b[3" not in run_on_terminal(["stats", file], NO_COLOR="1")


@pytest.mark.slow
def test_a_progress_bar_is_shown_on_a_terminal_but_not_in_a_pipe(tmp_path) -> None:
    for n in (2, 3):
        (tmp_path / f"{n}.json").write_text(json.dumps(demo_session(n)))
    assert b"reading" in run_on_terminal(["stats", tmp_path])
    assert b"reading" not in run_on_terminal(["stats", tmp_path], TERM="dumb")
    assert "reading" not in refold("stats", tmp_path).err


@pytest.mark.slow
def test_a_closed_pipe_ends_the_command_without_an_error_message(file) -> None:
    process = subprocess.Popen(
        [*REFOLD, "view", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.read(100)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("module", "command", "needs", "extra"),
    [
        ("click", ["stats"], "the command line needs click and rich", "cli"),
        ("uvicorn", ["serve", "--upstream", "openai"], "the gateway needs uvicorn", "gateway"),
        (
            "psycopg",
            ["report", "--store", "postgresql://a.example/x"],
            "a PostgreSQL store needs psycopg",
            "postgresql",
        ),
    ],
)
def test_a_missing_package_is_reported_with_the_extra_to_install(
    tmp_path, module, command, needs, extra
) -> None:
    (tmp_path / f"{module}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')"
    )
    source = str(Path(commands.__file__).parents[2])  # also where Refold is not installed
    done = subprocess.run(
        [*REFOLD, *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"refold: {needs}: install Refold with its extra '{extra}': in a clone of its repository, pip install '.[{extra}]'\n"
    )
