"""Reports of clients on a command are taken over: whether it ended, and why it failed."""

import json

from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.steps import read_steps
from tests.support.messages import call
from tests.support.summaries import collect, states_of


def test_a_check_that_timed_out_has_not_passed():
    """mini-swe-agent reports it only in words: a test that hung was once listed as passed."""
    edit = call("write", "Done.", path="a.py", content="a = 1")
    killed = "The last command <command>pytest</command> timed out and has been killed."
    rest = "\nThe output of the command was:\n <output>\n\n</output>\nPlease try another command."
    state = collect([*edit, *call("bash", f"{killed}{rest}", command="pytest")])
    assert state.checks == {"pytest": f"stopped: {killed}"}


def test_interrupting_a_command_after_a_check_does_not_stop_the_check():
    """Ctrl-C usually ends a server after the tests."""
    printed = "Exit code 130\n3 passed in 1.00s\nserving"
    behind, alone = (call("bash", printed, command=c) for c in ("pytest && npm start", "pytest"))
    assert collect(behind).checks == {"pytest": "3 passed in 1.00s"}
    assert collect(alone).checks == {"pytest": "stopped: 3 passed in 1.00s; serving"}


def script(code, printed):
    """Return a script that a model wrote to call tools (Codex), and its output."""
    output = f"Script completed\nWall time 0.1 seconds\nOutput:\n{printed}"
    return [
        Message("assistant", (ToolCall("c1", "exec", code),)),
        Message("tool", (ToolResult("c1", (Text(output),)),)),
    ]


def test_a_command_started_by_a_script_runs_until_a_result_reports_its_end():
    """A build of images was once listed as done after the first poll."""
    begin = (
        'const r = await tools.exec_command({cmd:"docker compose build"}); text(JSON.stringify(r))'
    )
    ask = "const r = await tools.write_stdin({session_id:36178,chars:''}); text(r.output)"
    first = {"chunk_id": "a57a", "wall_time_seconds": 1.0, "session_id": 36178, "output": "#1 done"}
    started = script(begin, json.dumps(first, separators=(",", ":")))
    assert collect([user("Go."), *started]).checks == {"docker compose build": "running"}
    seen = [*started, *script(ask, "#2 [backend 4/6] RUN mvn")]
    assert collect(seen).checks == {"docker compose build": "running: #2 [backend 4/6] RUN mvn"}
    last = script(ask, '{"chunk_id":"b1","exit_code":1,"output":"failed to solve: exit 1\\n"}')
    state = collect([*seen, *last])
    assert state.checks["docker compose build"].startswith("exit 1") and not state.actions.done


def test_keys_sent_to_a_process_and_refused_commands_are_not_commands():
    """In OpenHands' single shell, the refusal of the next command was once the outcome of a server,
    and the refused test had run."""
    notes = "\n[Current working directory: /a]\n[Python interpreter: /a/python]"
    waits = "Up.\n[The command has no new output after 10 seconds. You may wait longer.]"
    before = "[Below is the output of the previous command.]\n"
    refused = f'{before}[Your command "pytest" is NOT executed. You CANNOT send new commands yet.]'
    ended = f"^C\n[The command completed with exit code 0. CTRL+C was sent.]{notes}"
    messages = [
        *call("execute_bash", waits, command="python app.py"),
        *call("execute_bash", refused, command="pytest"),
        *call("execute_bash", ended, command="C-c", is_input="true"),
        *call("execute_bash", f"Ready.{notes}", command="python seed.py"),
    ]
    state = collect([user("Go."), *messages])
    assert {name: act.outcome for name, act in state.actions.done.items()} == {
        "python app.py": "^C",
        "python seed.py": "Ready.",
    }
    assert not state.checks


def test_the_error_of_a_call_is_neither_its_arguments_nor_a_marker():
    """pi repeats a call's arguments after its error, OpenClaw puts markers around pages."""
    given = json.dumps({"message": "There was an error: none of it counts"}, indent=2)
    wrong = f'Validation failed for tool "send":\n  - action: is missing\n\nReceived arguments:\n{given}'
    page = 'Web fetch failed (404):\n<<<EXTERNAL_TEXT id="a1">>>\n404: No page\n<<<END_EXTERNAL_TEXT id="a1">>>'
    sent = call("send", wrong, is_error=True, to="+49")
    fetched = call("web_fetch", page, is_error=True, url="https://a.de")
    failed = collect([user("Go."), *sent, *fetched]).actions.failed
    assert [act.outcome for act in failed.values()] == [
        "error: - action: is missing",
        "error: 404: No page",
    ]


def test_playwright_install_is_not_a_check_and_a_plan_update_is_not_an_action():
    install = call("bash", "Done.", command="npx playwright install")
    plan = script('await tools.update_plan({plan:[{step:"Build"}]})', "{}")
    state = collect([user("Go."), *install, *plan])
    assert not state.checks and list(state.actions.done) == ["npx playwright install"]
    assert collect(call("bash", "1 passed", command="npx playwright test")).checks


def test_a_line_that_occurs_elsewhere_too_does_not_move_known_lines():
    """A line like the end of a quoted text once moved a file's known lines to another such line."""
    part = "\n".join(f"{at}\tb_{at} = {at}" for at in range(400, 409)) + '\n409\t    """'
    rest = '20\tdef run():\n21\t    """Run."""\n22\t    """'
    steps = read_steps([*call("read", part, path="a.py"), *call("read", rest, path="a.py")])
    [file] = read_files(steps).values()
    assert [number for number, _ in file.lines] == [20, 21, 22, *range(400, 410)]


def test_an_edit_that_cline_or_roo_code_refused_changed_nothing():
    """They refuse in words: unchanged files were once listed as modified and created."""
    failed = "The tool execution failed with the following error:\n<error>\nNo match.\n</error>"
    diff = "------- SEARCH\na = 1\n=======\na = 2\n+++++++ REPLACE"
    for refusal in (
        failed,
        "The user denied this operation.",
        "Unable to apply diff to file: a.py",
    ):
        assert states_of(collect(call("replace_in_file", refusal, path="a.py", diff=diff))) == {}
    [*_, step] = read_steps(call("replace_in_file", "Saved.", path="a.py", diff=diff))
    assert step.has_effect and step.effect.files == (("a.py", "modified"),)


def test_notes_of_roo_code_around_an_output_are_not_part_of_it():
    where = "Command executed in terminal  within working directory '/a'."
    failed = f"{where} Command execution was not successful, adjust it.\nExit code: 2\nOutput:\nNo."
    results = [
        step
        for text in (
            failed,
            f"{where} Exit code: 0\nOutput:\n3 passed",
            "Command is still running.",
        )
        for step in read_steps(call("execute_command", text, command="npm test"))
        if step.kind == "result"
    ]
    assert [(step.text, step.outcome) for step in results] == [
        ("No.", "exit 2"),
        ("3 passed", "ok"),
        ("Command is still running.", "running"),
    ]


def test_results_after_a_running_command_without_an_id_belong_to_their_own_calls():
    """Roo Code and Cline name no process: all later reads once counted as reports on the server."""
    started = "Command is still running in the user's terminal.\nHere's the output so far:\nReady."
    messages = [
        *call("execute_command", started, command="npm start"),
        *call("read_file", "x = 1\n", path="a.py"),
    ]
    state = collect([user("Go."), *messages])
    assert states_of(state) == {"a.py": "read"}
    assert state.actions.done["npm start"].is_running
