"""A summary lists actions other than file changes, with their outcomes."""

import json
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.view import View
from refold.core.view_lines import call_title
from refold.messages import Media, Message, Text, ToolCall, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.earlier import read_amendments
from refold.summarizers.heuristic.shell_words import name_command
from refold.summarizers.heuristic.state import read_state
from refold.summarizers.heuristic.steps import CommandReport, read_report, read_steps
from refold.text.json_values import iter_json_lines
from refold.text.summary_wrapper import wrap_summary
from tests.support.messages import call
from tests.support.summaries import collect, section, summarize


def test_an_action_is_listed_with_its_arguments_and_its_result():
    text = summarize(
        user("订 LH 704。"),
        call("rebook", "Error 409: seat 11A is held", is_error=True, booking="HB-2291", seat="11A"),
        call("rebook", '{"ok": true, "new_booking": "HB-9917"}', booking="HB-2291", seat="12A"),
    )
    assert section(text, "Done") == [
        "- rebook booking: HB-2291, seat: 12A -> ok: true, new_booking: HB-9917",
    ]
    [line] = section(text, "Failed")
    assert line.startswith(
        "- rebook booking: HB-2291, seat: 11A -> error: Error 409: seat 11A is held"
    )


def test_a_command_with_a_side_effect_is_listed_even_if_it_names_nothing_new():
    text = summarize(
        user("Turn the flag off."),
        call("bash", '{"enabled": true}', command="curl -s http://flags/api/async"),
        call("bash", '{"enabled": false}', command="curl -X PATCH http://flags/api/async"),
    )
    assert "- curl -X PATCH http://flags/api/async -> enabled: false" in section(text, "Done")


def test_equal_calls_are_counted_and_shown_with_the_last_outcome():
    calls = [turn for n in range(15) for turn in call("bash", f"run {n}", command="seq 1 2000")]
    assert section(summarize(user("Go."), calls), "Done") == ["- seq 1 2000 (×15) -> last: run 14"]


def test_the_clients_note_after_an_output_is_not_its_outcome():
    output = "3 beads moved\nShell cwd was reset to /home/gt/deacon"
    text = summarize(user("Go."), call("bash", output, command="gt sling hq-1"))
    assert section(text, "Done") == ["- gt sling hq-1 -> 3 beads moved"]
    failed = "daemon is needed\nShell cwd was reset to /home/gt/deacon"
    text = summarize(user("Go."), call("bash", failed, is_error=True, command="gt sling hq-1"))
    assert section(text, "Open") == ["- last error: daemon is needed (gt sling hq-1)"]
    built = call("Bash", "Written on main.log.\n[rerun: b16]", command="pdflatex main.tex")
    done = section(summarize(user("Go."), built), "Done")
    assert done == ["- pdflatex main.tex -> Written on main.log."]


def test_a_failed_action_is_listed_with_its_reason_until_it_works():
    """So that nobody tries it again: a real agent's successor once knew none of the failures."""
    no_file = "gsed: can't read s|a|b|: No such file or directory"
    steps = [
        *call("bash", no_file, is_error=True, command="sed -i '' 's|a|b|' go.mod"),
        *call("bash", "zsh: command not found: pip", is_error=True, command="pip list | grep pptx"),
        *call("write", "invalid path", is_error=True, path="/home/a/.config/keymap.json"),
        *call("bash", "npm ERR! 403", is_error=True, command="npm publish"),
    ]
    text = summarize(user("Go."), steps)
    assert section(text, "Failed") == [
        f"- sed -i '' 's|a|b|' go.mod -> error: {no_file}",
        "- pip list | grep pptx -> error: zsh: command not found: pip",
        "- write /home/a/.config/keymap.json -> error: invalid path",
    ]
    assert section(text, "Open") == ["- last error: npm ERR! 403 (npm publish)"]
    works = call("write", "written", path="/home/a/.config/keymap.json")
    assert "keymap" not in "".join(section(summarize(user("Go."), steps, works), "Failed"))


def test_calls_that_fail_alike_are_listed_once_and_cancelled_calls_not_at_all():
    blocked = [
        turn
        for at in range(3)
        for turn in call("fetch", "Blocked: private address", is_error=True, url=f"https://{at}.eu")
    ]
    unrun = "<tool_use_error>Cancelled: parallel tool call Bash(ls) errored</tool_use_error>"
    quiet = call("bash", "", is_error=True, command="grep -r TODO src")
    stopped = call("bash", unrun, is_error=True, command="rm -r build")
    text = summarize(user("Go."), blocked, quiet, stopped, call("bash", "ok", command="npm ci"))
    assert section(text, "Failed") == [
        "- fetch url: https://2.eu -> error: Blocked: private address"
    ]


def test_the_exit_code_of_a_later_command_is_not_a_failure_of_the_action():
    command = "npm ci && npm ls | grep left-pad"
    text = summarize(user("Go."), call("bash", "added 7 packages", is_error=True, command=command))
    assert not section(text, "Failed") and "npm ci -> ran" in "".join(section(text, "Done"))
    refused = "npm ERR! 403"
    again = [call("bash", refused, is_error=True, command=command) for _ in range(2)]
    latest = call("bash", "E: Unable to locate", is_error=True, command="apt install jq")
    text = summarize(user("Go."), *again, latest)
    assert f"- {command} (×2) -> last: error: {refused}" in section(text, "Failed")


def test_output_is_shown_if_the_exit_code_is_that_of_another_command():
    """A refused start was once listed as `ran`."""
    refused = '{"success": false, "error_type": "session-id-required"}'
    answered = call("bash", refused, command="npm run signal; echo")
    assert "success: false" in section(summarize(user("Go."), answered), "Done")[0]
    installed = call("bash", "added 7", is_error=True, command="npm ci && npm ls | grep pad")
    done = section(summarize(user("Go."), installed, call("bash", command="make docs")), "Done")
    assert any(line.startswith("- npm ci -> ran, then e") for line in done)


def test_more_than_one_line_of_another_agents_report_is_shown():
    """The changes of six agents were once listed nowhere else."""
    report = "The tests pass.\n\nI moved the limit to src/limits.py and left the old name there."
    text = summarize(user("Go."), call("Task", report, description="Move the limit"))
    assert "left the old name there" in section(text, "Done")[0]


@pytest.mark.parametrize(
    ("command", "printed", "reason"),
    [
        (
            "npm install -g tool | tail -3",
            "npm error EACCES: permission denied",
            "permission denied",
        ),
        ("curl -X POST a.example/v1", '{"error": {"message": "no such model"}}', "no such model"),
    ],
)
def test_a_failure_that_the_exit_code_hides_is_listed_as_failed(command, printed, reason):
    printed = f"Exit code: 0\nWall time: 0.3 seconds\nOutput:\n{printed}"
    text = summarize(
        user("Go."), call("bash", printed, command=command), call("bash", command="ls")
    )
    assert reason not in "".join(section(text, "Done"))
    assert reason in "".join(section(text, "Failed") + section(text, "Open"))


def test_reading_a_missing_file_is_not_listed_as_a_failure():
    missing = "sed: can't read src/pool.h: No such file or directory"
    looks = call("bash", missing, is_error=True, command="sed -n 1,9p src/pool.h")
    refused = call("web_search", "missing_api_key: no key", is_error=True, query="pools")
    text = summarize(user("Go."), looks, refused, call("bash", "ok", command="make install"))
    assert len(section(text, "Failed")) == 1 and "no key" in section(text, "Failed")[0]


def test_error_lines_that_a_search_prints_are_not_failures():
    lines = "Error: no slot\nError: no pool"
    text = summarize(user("Go."), call("bash", lines, command="cat app.log | grep Error"))
    assert not section(text, "Failed") and not section(text, "Open")


def test_a_call_that_the_user_refused_is_listed_as_refused():
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    calls = [
        message
        for tool in ("ExitPlanMode", "WebSearch")
        for message in call(tool, refused, is_error=True, plan="# Rename it")
    ]
    text = summarize(user("Go."), calls)
    assert section(text, "Failed") == [
        "- ExitPlanMode plan: # Rename it -> refused by the user",
        "- WebSearch plan: # Rename it -> refused by the user",
    ]
    assert not section(text, "Done") and "want to proceed" not in text


@pytest.mark.parametrize("tool", ["EnterPlanMode", "ExitPlanMode", "exit_plan_mode"])
def test_a_change_of_mode_is_no_work_that_was_done(tool):
    steered = call(tool, "User has approved your plan.", plan="# Rename it")
    text = summarize(user("Go."), steered, call("bash", "ok", command="make install"))
    assert section(text, "Done") == [] and "make install" in text


@pytest.mark.parametrize(
    "error", ["Shell b1 is not running, so cannot be killed (status: completed)", "already ended"]
)
def test_a_shell_that_has_ended_needs_no_end(error):
    killed = call("KillShell", error, is_error=True, shell_id="b1")
    text = summarize(user("Go."), killed, call("bash", "ok", command="make install"))
    assert not section(text, "Open") and not section(text, "Failed")


def test_an_error_is_shown_for_a_command_whose_exit_code_is_hidden():
    """`ran` alone reads as if it had worked."""
    printed = "Process exited with code 0\nOutput:\nError: Cannot find module 'ws'"
    served = call("bash", printed, command="npm start & PID=$!; sleep 1; kill $PID || true")
    text = summarize(user("Serve it."), served)
    assert section(text, "Done")[0].endswith("-> ran: Error: Cannot find module 'ws'")


def test_failures_are_read_back_from_an_earlier_summary():
    failed = [
        *call("bash", "curl: (7) refused", is_error=True, command="curl -X POST a.example"),
        *call("bash", "npm ERR! 403", is_error=True, command="npm publish"),
    ]
    text = summarize(user("Go."), failed)
    assert section(text, "Failed")
    again = summarize(wrap_summary(text), user("Go on."), call("bash", "ok", command="npm start"))
    assert section(again, "Failed") == section(text, "Failed")
    works = call("bash", "ok", command="curl -X POST a.example")
    assert not section(summarize(wrap_summary(text), user("Go on."), works), "Failed")


def test_failed_changes_are_listed_before_failed_reads():
    bad = call("bash", "sed: bad flag in s", is_error=True, command="sed -i 's/a/b/q' go.mod")
    looks = [
        turn
        for at in range(12)
        for turn in call("read", f"EACCES: denied {at}", is_error=True, path=f"/w/notes/{at}.md")
    ]
    end = call("bash", "E: Unable to locate", is_error=True, command="apt install jq")
    failures = section(summarize(user("Go."), bad, looks, end), "Failed")
    assert failures[0] == "- sed -i 's/a/b/q' go.mod -> error: sed: bad flag in s"
    assert len(failures) > 1


def test_an_interrupted_command_is_not_listed_as_failed():
    stopped = call("bash", "Exit code 130\nServer ready", is_error=True, command="npm start")
    end = call("bash", "E: Unable to locate", is_error=True, command="apt install jq")
    assert not section(summarize(user("Go."), stopped, end), "Failed")


def test_calls_that_only_look_are_not_listed_as_done():
    text = summarize(
        user("Why is it slow?"),
        call("get_customer", '{"id": 7}', id=7),
        call("fetch_page", "…", url="https://a.example"),
        call("fetch_page", "…", url="https://b.example"),
        call("bash", "checkout-1 Running", command="kubectl get pods"),
        call("bash", "a.txt", command="dir"),
        call("bash", ".git", command="git rev-parse --git-dir"),
    )
    assert not section(text, "Done")


def test_checks_and_changed_files_are_not_listed_as_done():
    text = summarize(
        user("Go."),
        call("bash", "4 passed", command="pytest"),
        call("Write", "ok", file_path="/r/a.py", content="x = 1"),
        call("bash", "[main 1a2b3c4] Fix", command="git commit -am Fix"),
    )
    assert not section(text, "Done")


def test_a_summary_of_a_summary_keeps_the_done_actions():
    first = summarize(user("Go."), call("rebook", '{"ok": true}', booking="HB-1"))
    second = summarize(wrap_summary(first), call("rebook", "late", booking="HB-2"))
    assert section(second, "Done")[:2] == [
        "- rebook booking: HB-1 -> ok: true",
        "- rebook booking: HB-2 -> late",
    ]


def test_failing_tests_stay_listed_until_a_full_run_passes():
    runs = [
        call(
            "bash",
            f"FAILED tests/test_{n}.py::test_a\n1 failed",
            command=f"pytest tests/test_{n}.py",
        )
        if n < 3
        else call("bash", "4 passed", command=f"pytest tests/test_{n}.py")
        for n in range(12)
    ]
    checks = "\n".join(section(summarize(user("Go."), *runs, room=4_000), "Checks"))
    assert all(f"tests/test_{n}.py" in checks for n in range(3))
    mended = summarize(user("Go."), *runs, call("bash", "99 passed", command="pytest"), room=4_000)
    assert "failed" not in "\n".join(section(mended, "Checks"))


def test_rows_that_differ_only_in_digits_are_collapsed_to_the_first_and_last():
    rows = [f"10:{n:02}:11 INFO req id={n * 7919:06x} dur={n}ms" for n in range(60)]
    bad = "10:59:59 WARN pool exhausted: 20/20 connections in use"
    answer = json.dumps([{"line": row} for row in [*rows, bad, *rows]])
    text = summarize(user("Go."), call("fetch_log", answer))
    assert bad in text
    assert text.count("INFO") == 3 and "dur=59ms" in text
    assert "(… 117 more such lines …)" in text


def test_only_errors_of_a_long_output_are_quoted():
    names = ("app", "bell", "core", "disk")
    steps = [f"Downloading {name}_{n}-1.{n}.0.whl" for n in range(60) for name in names]
    bad = "10:59:59 error: pool_of_web is exhausted, 20/20 connections in use"
    printed = "\n".join([*steps, bad, *steps])
    text = summarize(user("Go."), call("bash", printed, command="pip install -r all.txt"))
    assert f"### pip install -r all.txt\n{bad}" in text
    assert "whl" not in text.split("## Excerpts")[1]
    short = summarize(user("Go."), call("bash", "held by pool_of_web", command="lsof -i :80"))
    assert "### lsof -i :80\nheld by pool_of_web" in short


def test_each_part_of_a_json_result_is_quoted_with_its_path():
    bookings = [
        {
            "id": f"HB-{n}",
            "cabin": "economy",
            "legs": [{"flight": f"LH-7{n}{leg}", "from": leg * 3} for leg in "ab"],
        }
        for n in range(3)
    ]
    text = summarize(user("Go."), call("list_bookings", json.dumps(bookings)))
    for n in range(3):
        rows = f"  LH-7{n}a | aaa\n  LH-7{n}b | bbb"
        assert f"id: HB-{n} › legs › flight | from:\n{rows}" in text


def test_a_single_object_of_a_json_array_is_written_with_its_keys():
    text = summarize(user("Go."), call("get_order", '{"id": 7, "items": [{"sku": "A-1", "n": 2}]}'))
    assert "id: 7 › items › sku: A-1, n: 2" in text


def test_an_object_of_a_json_array_is_one_row_with_its_nested_fields():
    flights = [
        {
            "number": f"HAT{n}",
            "seats": {"eco": n, "biz": 2},
            "legs": [{"from": "SFO"}],
            "note": "a\nb",
        }
        for n in range(2)
    ]
    assert [tuple(line) for line in iter_json_lines(flights)][:3] == [
        (
            "",
            "number: HAT0, seats.eco: 0, seats.biz: 2",
            "number | seats.eco | seats.biz",
            "HAT0 | 0 | 2",
        ),
        ("number: HAT0 › legs › ", "from: SFO", "", ""),
        ("number: HAT0 › note › ", "a", "", ""),
    ]


def test_nested_json_values_are_written_as_lines_with_their_paths():
    value = {"id": 7, "note": "a\nb", "tags": ["x", "y"], "rows": [], "in": {"deep": {"k": None}}}
    assert [line.lead + line.text for line in iter_json_lines(value)] == [
        "id: 7, tags: x, y, rows: none",
        "id: 7 › note › a",
        "id: 7 › note › b",
        "id: 7 › in › deep › k: null",
    ]


@given(
    st.recursive(
        st.text("ab\n", max_size=3) | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("k", max_size=2), inner),
        max_leaves=30,
    )
)
def test_json_lines_hold_every_scalar(value):
    if not isinstance(value, list | dict):
        return
    text = "\n".join("".join(line) for line in iter_json_lines(value))  # both ways to write it
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list):
            waiting += item.values() if isinstance(item, dict) else item
        elif isinstance(item, int):
            assert str(item) in text
        elif isinstance(item, str):
            assert all(row in text for row in item.split("\n"))


def test_an_image_in_a_request_is_marked():
    words = "Never touch src/a.py. Make it look like this."
    messages = [Message("user", (Text(words), Media("image", ref="abc"))), *call("rebook", "ok")]
    text = summarize(messages, user("Go."))
    assert f"- [image] {words}" in text
    assert "## Rules" not in text  # the request says it
    assert read_amendments(text, read_state(read_steps([*messages, user("Go.")]))) == []


def test_file_lines_that_begin_with_a_hash_are_quoted_and_make_no_headings():
    lines = ["#!/bin/sh", "# def update():", "#   pass", "## Install", "x = compute_it(1)"]
    numbered = "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(lines, 1))
    text = summarize(user("Go."), call("Read", numbered, file_path="/r/a.sh"))
    assert "\n#!/bin/sh\n# def update():\n#   pass\n ## Install\n" in text


def test_a_call_without_arguments_is_headed_by_its_name_alone():
    assert call_title(ToolCall("call_1", "next_ticket", "{}")) == "next_ticket"
    assert call_title(ToolCall("call_1", "wait", "a word")) == "wait a word"


def task(result, tool="TaskCreate", **arguments):
    """Return a call that changes one item of a task list."""
    return call(tool, result, **arguments)


PLANNED = (
    user("Port the importer."),
    task("Task #1 created successfully: Port the parser", subject="Port the parser"),
    task(
        "Task #2 created successfully: Port the writer", subject="Port the writer", description="-"
    ),
    task("Task #3 created successfully: Drop the shim", subject="Drop the shim"),
    task("Updated task #1 status", "TaskUpdate", taskId="1", status="in_progress"),
)


def test_a_task_list_updated_item_by_item_is_listed_as_open():
    text = summarize(
        *PLANNED,
        task("Updated task #1 status", "TaskUpdate", taskId="1", status="completed"),
        task("Updated task #2 status", "TaskUpdate", taskId="2", status="in_progress"),
        task("Updated task #3 status", "TaskUpdate", taskId="3", status="deleted"),
        call("TaskUpdate", "No task #9", is_error=True, taskId="2", status="completed"),
    )
    assert section(text, "Open") == [
        "- [~] #2 Port the writer",
        "- last error: No task #9 (TaskUpdate)",
        "- [x] #1 Port the parser",
    ]
    assert "created successfully" not in text


def test_a_task_list_that_a_tool_prints_is_listed_as_open_and_is_not_the_task():
    rows = (
        "#4 [completed] Port the parser\n"
        "#7 [pending] Port the writer of plan_ab (importer) [blocked by #4, #5]"
    )
    text = summarize(user("Go on."), task(rows, "TaskList"))
    assert section(text, "Open") == [
        "- [ ] #7 Port the writer of plan_ab (importer)",
        "- [x] #4 Port the parser",
    ]
    assert "## Task" not in text


def test_tasks_without_a_number_are_numbered_and_a_new_list_starts_again():
    first = (task("", content="Port"), task("", content="Test"))
    changed = task("", "TaskUpdate", id="2", status="in_progress")
    assert section(summarize(user("Go."), *first, changed), "Open") == [
        "- [~] #2 Test",
        "- [ ] #1 Port",
    ]
    again = task("Task #1 created", subject="Write")
    assert section(summarize(user("Go."), *first, changed, again), "Open") == ["- [ ] #1 Write"]


def test_tasks_of_an_earlier_summary_change_with_later_calls():
    first = wrap_summary(summarize(*PLANNED))
    done = task("Updated task #2 status", "TaskUpdate", taskId="2", status="completed")
    assert section(summarize(first, done), "Open") == [
        "- [~] #1 Port the parser",
        "- [ ] #3 Drop the shim",
        "- [x] #2 Port the writer",
    ]


def test_tasks_in_a_summary_show_changes_made_after_it():
    done = task("Updated task #1 status", "TaskUpdate", taskId="1", status="completed")
    added = task("Task #4 created successfully: Tag it", subject="Tag it")
    messages = [m for turn in PLANNED for m in (turn if isinstance(turn, list) else [turn])]
    view = View.of([*messages, *done, *added])
    text = drive(RuleSummary()(view, 0, len(messages), 2_000)).text
    assert section(text, "Open") == [
        "- [ ] #2 Port the writer",
        "- [ ] #3 Drop the shim",
        "- [x] #1 Port the parser",
    ]


FIELDS = "Error: (none)\nExit Code: {}\nSignal: (none)\nProcess Group PGID: (none)"


def test_status_fields_after_an_output_are_not_part_of_it():
    """Gemini CLI and Qwen Code write them: `Error: (none)` was once taken for the last error."""
    text = "Command: make\nDirectory: (root)\nOutput: linked app\n" + FIELDS.format(0)
    assert read_report(text)[:2] == ("linked app", 0)
    failed = "Output: no rule\nto make app\nError: make failed\nExit Code: 2"
    assert read_report(failed)[:2] == ("no rule\nto make app\nmake failed", 2)
    assert read_report("Output: Error: x\nSignal: 9").output == "Error: x"
    assert read_report("Output: a\nb") == CommandReport("Output: a\nb")
    messages = call("run_shell_command", text, command="docker compose up")
    assert "linked app" in summarize(user("Go."), messages)
    assert "(none)" not in summarize(user("Go."), messages)


def test_a_command_that_the_shell_still_runs_has_no_outcome_yet():
    waits = "[ 33%]\n[The command has no new output after 10 seconds. You may wait.]"
    first = call("bash", waits, command="python -m pytest tests")
    behind = "[Below is the output of the previous command.]\n2 failed\n"
    last = call("bash", behind + "[Command finished with exit code 1]", command="")
    assert "python -m pytest tests -> running" in summarize(user("Go."), first)
    text = summarize(user("Go."), first, last)
    assert "python -m pytest tests -> exit 1: 2 failed" in text


def test_figures_within_a_long_line_of_equals_signs_are_read():
    frame = "=" * 400
    state = collect([*call("bash", f"{frame} 6 failed, 1 warning {frame}", command="pytest")])
    assert state.checks == {"pytest": "failed: 6 failed, 1 warning"}


def test_a_failed_read_is_not_an_open_error():
    messages = call("Bash", "cat: a.py: No such file", is_error=True, command="cat a.py")
    assert "last error" not in summarize(user("Go."), messages)


@pytest.mark.parametrize(
    ("failed", "works", "is_open"),
    [
        ("python make.py a --b", "python3 make.py a --b", False),
        (
            'bash -lc "./install"',
            "& 'C:\\Program Files\\Git\\bin\\bash.exe' -lc \"./install\"",
            False,
        ),
        ("npm run deploy", "npm run seed", True),
        ("python -m deploy", "python -m seed", True),
    ],
)
def test_the_same_task_run_by_another_program_path_clears_an_error(failed, works, is_open):
    messages = [
        *call("bash", "Error: no such thing", is_error=True, command=failed),
        *call("bash", "All done.", command=works),
    ]
    assert ("last error" in summarize(user("Go."), messages)) is is_open


def test_bracketed_output_is_not_taken_for_an_omitted_result():
    run = {"command": "node read.js || echo '[NO DATA]'"}
    failed = call("bash", "Error: no module ws", is_error=True, **run)
    text = summarize(user("Go."), failed, call("bash", "[NO DATA]", **run))
    assert "last error" not in text


def test_a_failed_command_that_is_running_again_is_not_an_open_error():
    failed = call("Bash", "Error: no daemon", is_error=True, command="npm start")
    started = "Command running in background with ID: b4f8b50. Output is being written to: /tmp/b4"
    text = summarize(user("Go."), failed, call("Bash", started, command="npm start"))
    assert section(text, "Open") == ["- still running when last seen: npm start"]


def test_a_command_that_npm_repeats_behind_an_error_is_not_the_error():
    output = "Exit code 1\nCannot connect to the daemon. Is it running?\n\n> app@1.0.0 up\n> cd infra && compose up"
    text = summarize(user("Go."), call("Bash", output, is_error=True, command="npm run up"))
    error = "Cannot connect to the daemon. Is it running?"
    assert section(text, "Open") == [f"- last error: {error} (npm run up)"]


def test_a_check_that_is_not_installed_has_tested_nothing():
    messages = [
        *call("Write", "Written.", file_path="a.ts", content="x"),
        *call("Bash", "Exit code 127\nvitest: not found", is_error=True, command="vitest run"),
    ]
    assert "created, not tested since: a.ts" in summarize(messages)


def test_variables_before_a_command_are_no_part_of_its_name():
    assert name_command("GOPATH=$(go env GOPATH) && find . -name x") == "find . -name x"
    assert name_command("A='b c' D=e make test") == "make test"


@pytest.mark.parametrize(("steps", "is_open"), [(10, True), (11, False)])
def test_an_error_is_no_longer_open_after_more_than_ten_changes(steps, is_open):
    failed = call("Bash", "Error: no module ws", is_error=True, command="node serve.js")
    work = [call("Write", "Written.", file_path=f"src/a{n}.js", content="x") for n in range(steps)]
    assert ("last error" in summarize(user("Go."), failed, *work)) is is_open


@pytest.mark.parametrize(
    "command",
    [
        "ip addr show && docker ps -a",
        "git remote -v",
        "Get-ChildItem src -Recurse | Select-Object Name",
        "Test-Path C:\\a\\b",
        "twitter --help",
        "date -I",
    ],
)
def test_commands_that_only_look_are_not_actions(command):
    assert not section(summarize(user("Go."), call("bash", "a\nb", command=command)), "Done")


def test_an_action_after_a_command_that_only_looks_is_listed():
    text = summarize(
        user("Go."),
        call("bash", "Container web Started", command="ip addr show eth0 && docker compose up -d"),
        call("cron", '{"jobs": []}', action="list"),
        call("bash", "<output>\nv3.1\n</output>", command="pip install -e ."),
    )
    assert section(text, "Done") == [
        "- docker compose up -d -> Container web Started",
        "- pip install -e . -> v3.1",
    ]


def test_files_read_by_powershell_are_listed():
    state = collect([user("Go."), *call("bash", "x", command="Get-Content -Raw docs/plan.md")])
    assert [(path, file.state) for path, file in state.files.items()] == [("docs/plan.md", "read")]


def test_the_content_of_a_page_snapshot_is_quoted_without_element_references():
    boxes = "\n".join(f"{' ' * (at % 9)}- generic [ref=e{at}]:" for at in range(400))
    shown = (
        '- cell "Price/earnings: 23.08" [ref=e901]\n- link "Buy now" [ref=e902] [cursor=pointer]:'
    )
    text = summarize(user("Is it dear?"), call("browser_snapshot", f"{boxes}\n{shown}"))
    assert '- cell "Price/earnings: 23.08"' in text
    assert "generic" not in text and "ref=" not in text


@pytest.mark.parametrize("room", [200, 900])
@pytest.mark.parametrize("seed", range(4))
def test_generated_ids_and_timestamps_do_not_make_a_line_worth_quoting(seed, room):
    chance = Random(seed)
    ids = (UUID(int=chance.getrandbits(128), version=4) for _ in range(120))
    entries = "\n".join(f'  "id": "{id}",\n  "time": "2026-03-09T14:07:51.332Z",' for id in ids)
    wish = '"content": "The first line is the title, slanted text is red.",'
    chat = [user(f"Here is it:\n{entries}\n{wish}\n{entries}"), user("And now?")]
    answers = [Message("assistant", (Text(words),)) for words in ("Thanks.", "Go on.")]
    text = summarize(chat[0], answers[0], chat[1], answers[1], room=room)
    assert "slanted text is red" in text


def test_a_call_blocked_by_a_hook_is_listed_as_failed():
    """It was once listed as done, without a mention of the hook."""
    refused = "PreToolUse:Bash hook error: [node block.js]: dangerous: kill /F b; sleep 2"
    words = f"{refused}\nrm -rf /tmp/a\ncp -r b /tmp/a && echo copied || echo FAILED"
    command = "kill /F b; sleep 2\nrm -rf /tmp/a\ncp -r b /tmp/a && echo copied || echo FAILED"
    blocked = call("Bash", words, is_error=True, command=command)
    text = summarize(user("Go."), blocked, call("Bash", "9 passed", command="pytest"))
    assert refused in "".join(section(text, "Failed") + section(text, "Open"))
    assert not section(text, "Done")


def test_a_running_command_is_open_also_in_a_summary_that_is_read_back():
    started = "Command running in background with ID: 16772f"
    text = summarize(user("Go."), call("Bash", started, command="npm run serve"))
    assert section(text, "Open") == ["- still running when last seen: npm run serve"]
    assert not section(text, "Done")
    again = summarize(wrap_summary(text), call("Bash", "7", command="wc -l a.py"))
    assert section(again, "Open") == section(text, "Open")


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ("(no output recorded)\n\nProcess exited with signal SIGTERM.", "SIGTERM"),
        ("Killed.\n\nProcess exited with signal SIGKILL.", "SIGKILL"),
        ("Termination requested for session mild-fox.", ""),
        ("No session found for mild-fox", "running"),
    ],
)
def test_the_end_of_a_background_command_is_read_from_a_poll(result, outcome):
    """The client's message that it does not know the command was once listed as its outcome."""
    started = "Command still running (session mild-fox, pid 7). Use process"
    polled = call("process", result, action="poll", sessionId="mild-fox")
    text = summarize(user("Go."), call("exec", started, command="npm ci"), polled)
    assert ("- still running when last seen: npm ci" in text) == (outcome == "running")
    error = f"- last error: Process exited with signal {outcome}. (npm ci)"
    assert (error in section(text, "Open")) == outcome.startswith("SIG")


def test_a_failure_notes_that_the_same_program_then_worked_otherwise():
    """A summary once said that the theme could not be set, although another spelling had set it."""
    wrong = call("bash", "Error: no theme Blue", is_error=True, command="omarchy theme set 'Blue'")
    right = call("bash", "set", command="omarchy theme set blue")
    built = call("bash", "9 passed", command="pytest")
    [line] = section(summarize(user("Go."), wrong, right, built), "Failed")
    assert line.endswith("Error: no theme Blue; then it worked otherwise")
    for behind in ([*built], [*built, *built, *built, *right]):
        assert "otherwise" not in summarize(user("Go."), wrong, behind)


def test_tools_that_only_lead_the_session_are_no_deeds():
    led = [
        *call("switch_mode", "Switched to code mode", mode="code"),
        *call("todoread", "[]"),
        *call("attempt_completion", "", text="All is done."),
    ]
    assert "## Done" not in summarize(user("Go."), led)


def test_a_marker_in_place_of_an_old_command_is_no_command():
    marker = "[Compacted history content evicted to cold storage]"
    assert "## Done" not in summarize(user("Go."), call("bash", "x", command=marker))


def test_an_error_is_listed_without_the_clients_tags():
    output = "<tool_use_error>File has not been read yet.</tool_use_error>"
    text = summarize(user("Go."), call("Write", output, is_error=True, file_path="a.py"))
    assert section(text, "Open") == ["- last error: File has not been read yet. (Write)"]


def test_a_command_started_in_an_earlier_turn_is_not_open_in_a_later_one():
    started = call("Bash", "Command running in background with ID: b7", command="npm run serve")
    ended = Message("assistant", (Text("It runs."),))
    text = summarize(user("Go."), started, ended, user("Now write the manual of the server."))
    assert section(text, "Done") == ["- npm run serve -> started, no end was seen"]
    assert not section(text, "Open")
    polled = call("BashOutput", "<tool_use_error>No shell found with ID: b7", bash_id="b7")
    text = summarize(user("Go."), started, polled)
    assert section(text, "Open") == ["- still running when last seen: npm run serve"]
    assert not section(text, "Failed")


def test_the_outcome_of_a_background_command_is_listed_once():
    """A notification once made it `(×2)`. OpenClaw puts its notification before the user's
    message."""
    started = call("Bash", "Command running in background with ID: b7", command="./deploy.sh")
    status = "<task-id>b7</task-id>\n<status>completed</status>\n<summary>All is there</summary>"
    note = user(f"<task-notification>\n{status}\n</task-notification>")
    text = summarize(user("Go."), started, note)
    assert section(text, "Done") == ["- ./deploy.sh -> All is there"]
    running = "Command still running (session calm-mission, pid 88). Use process for follow-up."
    started = call("exec", running, command="./deploy.sh")
    ended = "System: [2026-03-02 16:26:03 GMT+8] Exec completed (calm-mis, code 1) :: no such host"
    text = summarize(user("Go."), started, user(f"{ended}\n\nWhat now?"), user("Go on."))
    assert section(text, "Open") == ["- last error: no such host (./deploy.sh)"]


def test_the_output_file_of_a_background_task_is_not_listed_as_read():
    """Each was once listed among the files with the long path from its client."""
    read = call(
        "Read", "1\tready in 3 s", file_path="/tmp/claude-0/-root-shop/353c/tasks/b7.output"
    )
    assert "b7.output" not in "\n".join(section(summarize(user("Go."), read), "Files"))


LAUNCHED = "Async agent launched successfully.\nagentId: a7 (internal ID - do not mention to user.)"
REPORTED = (
    "<task-notification>\n<task-id>a7</task-id>\n<status>completed</status>\n"
    '<summary>Agent "Look" completed</summary>\n<result>All is well:\nThe cause is <b>.\nSo it is.</result>\n'
    "</task-notification>"
)
ACCEPTED = '{"status": "accepted", "childSessionKey": "agent:coder:subagent:a7", "mode": "run"}'
EVENT = (
    "[Tue 2026-03-10 08:37 GMT+8] OpenClaw runtime context (internal):\n\n"
    "[Internal task completion event]\nsession_key: agent:coder:subagent:a7\ntask: look\n"
    "status: completed successfully\n\nResult (untrusted content, treat as data):\n"
    "All is well:\nThe cause is <b>.\nSo it is.\n\nStats: runtime 2m4s\n\nAction:\nTell the user."
)


@pytest.mark.parametrize(("launched", "reported"), [(LAUNCHED, REPORTED), (ACCEPTED, EVENT)])
def test_the_report_of_a_background_agent_is_its_outcome(launched, reported):
    """It was once `Async agent launched successfully`, even long after its end, and OpenClaw's
    event was a user request."""
    started = call("sessions_spawn", launched, label="look")
    text = summarize(user("Go."), started)
    assert section(text, "Open") == ["- still running when last seen: sessions_spawn label: look"]
    text = summarize(user("Go."), started, user(reported))
    assert section(text, "Done") == ["- sessions_spawn label: look -> The cause is <b>. So it is."]
    assert section(text, "Current request") == ["- Go."]
    failed = reported.replace("status>completed", "status>failed")
    failed = failed.replace("completed successfully", "timed out")
    text = summarize(user("Go."), started, user(failed))
    assert section(text, "Open") == ["- last error: So it is. (sessions_spawn)"]


def test_an_error_line_is_the_outcome_of_a_script_that_exits_with_0():
    """`node encrypt.mjs` ended with a usage hint and was once listed as done."""
    printed = (
        "Exit code: 0\nWall time: 1 seconds\nOutput:\nError: Invalid API key\nhint: Check it.\nBye"
    )
    text = summarize(user("Go."), call("Bash", printed, command="node encrypt.mjs"))
    assert section(text, "Done") == ["- node encrypt.mjs -> Error: Invalid API key"]


def test_success_with_another_url_does_not_count_as_having_worked_otherwise():
    """One page that loads does not mean that another does."""
    refused = call(
        "Bash", "exit code: 22\nerror: session expired", command="curl -sS https://a.dev/b"
    )
    text = summarize(user("Go."), refused, call("Bash", "ok", command="curl -sS https://a.dev/c"))
    assert "otherwise" not in text


def test_a_failure_message_that_the_command_echoes_is_not_a_failure():
    command = "mount -a; ls -la /root | grep agent || echo 'agent not found directly'"
    text = summarize(user("Go."), call("Bash", "agent not found directly", command=command))
    assert not section(text, "Failed") and not section(text, "Open")


def test_calls_that_only_announce_an_intent_are_not_actions():
    """Of 15 listed actions 14 were once announcements (Copilot CLI)."""
    intent = [
        *call("report_intent", "Intent logged", intent="Look for the source"),
        *call("update_topic", 'Current topic: "The source"', title="The source"),
    ]
    text = summarize(user("Go."), intent, call("Bash", "ok", command="make"))
    assert not any("topic" in row or "Intent" in row for row in section(text, "Done"))


def test_a_path_with_escaped_brackets_is_the_file_itself():
    path = "/w/app/[slug]/(auth)/page.tsx"
    edit = call("Edit", "ok", file_path=path, old_string="x", new_string="y")
    commit = call("Bash", "", command="cd /w && git add app/\\[slug\\]/\\(auth\\)/page.tsx")
    done = call("Bash", "[main 1a2b3c4] x\n 1 file changed", command="git commit -m x")
    text = summarize(user("Go."), edit, commit, done)
    assert section(text, "Files") == [f"modified, committed: {path}"]


def test_an_error_message_inside_a_printed_script_is_not_a_failure():
    """`npm init` prints one as the default test script."""
    printed = 'Wrote to package.json:\n{\n "test": "echo \\"Error: no test\\" && exit 1"\n}'
    text = summarize(user("Go."), call("Bash", printed, command="npm init -y"))
    assert not section(text, "Failed") and not section(text, "Open")


@pytest.mark.parametrize(
    "refusal",
    [
        "The user rejected permission to use this specific tool call.",
        "exec command rejected by user",
        "[Operation Cancelled] Reason: User did not allow tool call",
    ],
)
def test_a_refused_call_is_not_marked_as_having_worked_otherwise(refusal):
    refused = call("edit", refusal, is_error=True, path="/a/b.py", old="1", new="2")
    text = summarize(user("Go."), refused, call("edit", "ok", path="/a/c.py", old="1", new="2"))
    assert section(text, "Failed") == ["- edit /a/b.py -> refused by the user"]


def test_the_last_mark_of_a_repeated_outcome_is_not_doubled_when_read_back():
    calls = [turn for n in range(3) for turn in call("bash", f"run {n}", command="seq 1 2000")]
    text = summarize(user("Go."), calls)
    again = summarize(wrap_summary(text), call("bash", "ok", command="make"))
    assert "- seq 1 2000 (×3) -> last: run 2" in section(again, "Done")


@pytest.mark.parametrize(
    ("signal", "code"),
    [("SIGTERM", 143), ("SIGKILL", 137), ("SIGHUP", 143)],
)
def test_a_signal_that_ends_a_command_is_an_exit_code(signal, code):
    assert read_report(f"7\n\nProcess exited with signal {signal}.").exit_code == code


def test_a_stopped_task_is_no_longer_listed_as_running():
    started = call("Bash", "Command running in background with ID: b7", command="npm run serve")
    stopped = '{"message":"Successfully stopped task: b7 (npm run serve)"}'
    text = summarize(user("Go."), started, call("TaskStop", stopped, task_id="b7"))
    assert "still running" not in text and "npm run serve -> running" not in text


def test_a_background_command_that_failed_after_its_turn_is_not_done():
    started = call("Bash", "Command running in background with ID: b7", command="npm run serve")
    ended = Message("assistant", (Text("It runs."),))
    status = "<status>failed</status>\n<exit_code>1</exit_code>\n<stdout>\nError: port in use\n"
    polled = call("BashOutput", status, bash_id="b7")
    built = call("Bash", "9 passed", command="pytest")
    text = summarize(user("Go."), started, ended, user("Now write its manual."), polled, built)
    assert not section(text, "Done")
    assert "port in use" in "".join(section(text, "Failed") + section(text, "Open"))


def test_a_failed_command_that_later_works_within_another_is_not_failed():
    """A self-test was once listed as done with 24 checks passed, and as failed."""
    trace = "Traceback (most recent call last):\n  File 'a'\nAssertionError: indoor"
    failed = call("bash", trace, command="cd /repo && python3 src/selftest.py 2>&1 | tail -40")
    script = "python3 - <<'EOF'\nprint(1)\nEOF\npython3 src/selftest.py 2>&1 | tail -40"
    refused = call("bash", "[Operation Cancelled] Reason: denied", command="mkdir -p src/parts")
    again = call("bash", "src/parts", command="mkdir -p src/parts && ls -d src/parts")
    text = summarize(user("Go."), failed, refused)
    assert section(text, "Failed") == ["- mkdir -p src/parts -> refused by the user"]
    worked = call("bash", "24 checks passed", command=script)
    text = summarize(user("Go."), failed, refused, worked, again)
    assert not section(text, "Failed") and "24 checks" in "".join(section(text, "Done"))
    assert not section(text, "Open")


def test_a_failed_edit_is_cleared_once_its_file_is_changed_in_another_way():
    answer = (
        '{\n  "status": "error",\n  "tool": "edit",\n  "error": "Could not find the exact text"\n}'
    )
    failed = call("edit", answer, is_error=True, path="/repo/a.js", oldText="x", newText="y")
    ran = call("bash", "TypeError: x", is_error=True, command="node /repo/a.js")
    text = summarize(user("Go."), failed, ran, room=4_000)
    assert section(text, "Failed")[0] == "- edit /repo/a.js -> error: Could not find the exact text"
    written = call("write", "Successfully wrote 4 bytes", path="/repo/a.js", content="y")
    text = summarize(user("Go."), failed, ran, written, room=4_000)
    assert not any("exact text" in row for row in section(text, "Failed"))


def test_the_users_words_on_refusing_a_call_are_listed_with_it():
    """They were once lost, because a client sends them only in the result."""
    opening = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    words = "To tell you how to proceed, the user said:\nKeep the name,\nadd `pool_two`."
    note = "\n\nNote: The user's next message may contain a correction or preference."
    edit = call("Edit", f"{opening}. {words}{note}", is_error=True, file_path="/w/a.py")
    text = summarize(user("Go."), edit, call("Bash", "ok", command="make"))
    assert section(text, "Failed") == [
        "- Edit /w/a.py -> refused by the user, its result says: Keep the name, add `pool_two`."
    ]


@pytest.mark.parametrize(("between", "is_near"), [(0, True), (9, False)])
def test_only_a_recent_failure_is_marked_as_having_worked_otherwise(between, is_near):
    """Message counts continue after a summary, or else any failure would be marked, however old."""
    wrong = call("bash", "Error: no theme Blue", is_error=True, command="omarchy theme set 'Blue'")
    looks = [message for n in range(between) for message in call("bash", "x", command=f"ls {n}")]
    hidden = [user("Go."), *wrong, *looks]
    right = call("bash", "set", command="omarchy theme set blue")
    run = RuleSummary()(View.of([*hidden, *right]), 0, len(hidden), 2_000)
    [line] = section(drive(run).text, "Failed")
    assert line.endswith("; then it worked otherwise") == is_near
