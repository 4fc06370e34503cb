"""F4: a rule summary attributes requests, constraints, decisions and the last error to their
authors."""

import pytest

from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.speakers.carriers import IN_RESULT
from refold.summarizers.heuristic.steps import read_steps
from refold.text.failures import find_error_line
from tests.support.messages import assistant, call
from tests.support.summaries import collect, states_of


def ran(id: str, command: str, output: str) -> list[Message]:
    call = ToolCall(id, "bash", f'{{"command":"{command}"}}')
    return [Message("assistant", (call,)), Message("tool", (ToolResult(id, (Text(output),)),))]


def test_f4_client_text_in_user_messages_is_neither_request_nor_constraint() -> None:
    """A skill, a task notification, a developer message and a pasted guide were once the user's
    words."""
    messages = [
        user("Base directory for this skill: /s/pdf\n\nYou must never use colour."),
        user("<task-notification><id>3</id></task-notification>\nYou must read the output file."),
        Message("system", (Text("You must always answer in French."),)),
        user(
            "Please format it.\n\n```\nNames must never have more than ten letters.\n```\n> You must not shout.\nKeep it short, 必须用中文。"
        ),
        user(
            "I ran this command:\n\nmake\n\nAnd got this output:\n\nAll files must end in a newline."
        ),
    ]
    state = collect(messages)
    assert len(state.requests) == 1 and next(iter(state.requests)).startswith("Please format it.")
    assert not any("must" in rule for rule in state.constraints)
    assert any("必须用中文" in rule for rule in state.constraints)
    assert state.checks == {"make": "ok"}


def test_d4_a_command_that_the_user_ran_is_a_command_and_not_a_request() -> None:
    """aider reports it in the user role: its output was once a request, and its failure was
    lost."""
    report = "I ran this command:\n\npytest -k 1\n\nAnd got this output:\n\nE   ValueError: 7"
    state = collect([user("Please add it."), user(report), user("More.")])
    assert list(state.requests) == ["Please add it.", "More."]
    assert state.checks == {"pytest -k 1": "failed: E ValueError: 7"}
    assert (state.failure.error, state.failure.call) == ("E ValueError: 7", "pytest -k 1")
    asked = collect([user("I ran this command: pytest. Why does it fail?")])
    assert len(asked.requests) == 1
    assert not asked.checks


def test_a_command_in_a_code_block_that_the_user_answers_was_not_run() -> None:
    """Advice in a chat was once listed as a command that ran."""
    shown = assistant("Then upload it:\n\n```bash\nmkdir -p skills && touch skills/vue.zip\n```")
    output = user("<returncode>0</returncode>\n<output>\n</output>")
    for follower, has_run in ((user("And on another machine?"), False), (output, True)):
        steps = read_steps([user("How do I share it?"), shown, follower])
        assert any(step.kind == "call" for step in steps) is has_run


def test_a_command_that_the_user_types_is_not_the_one_the_model_suggested() -> None:
    """Claude Code puts a caveat before a typed command, and the suggested one once counted as
    run."""
    shown = assistant("Set it:\n\n```bash\ngit remote set-url origin x\n```")
    caveat = user("<local-command-caveat>Caveat: these are the user's.</local-command-caveat>")
    typed = user("<bash-input>git push</bash-input>")
    steps = read_steps([user("Where is it?"), shown, caveat, typed])
    assert [step.command for step in steps if step.kind == "result"] == [""]


def test_f4_steering_in_system_messages_and_results_is_a_request() -> None:
    steer = "The user sent a new message while you were working:\nNever rename {}."
    late = f"<system-reminder>\n{steer.format('b')}\n</system-reminder>"
    call, result = ran("1", "ls", f"a\n\n{late}")
    state = collect([user("Go."), call, result, Message("system", (Text(steer.format("a")),))])
    assert len(state.requests) == 3
    assert list(state.constraints) == [f"{IN_RESULT}Never rename b.", "Never rename a."]


def test_f4_comments_status_lines_headings_and_guesses_are_no_decisions() -> None:
    """Code comments, `All tests pass`, headings and outdated guesses were once decisions."""
    text = (
        "## Root cause because of the cache\n\nAll tests pass.\n所有测试都通过。\nThe build succeeded successfully.\n全部构建成功。\n"
        "```python\n# fixed because the parser is now strict\nx = 1\n```\n"
        "Maybe the bug is caused by the cache.\n也许原因是缓存。\n"
        "The root cause is `parse_line`, which drops the last field.\n原因是 `parse_line` 丢掉了最后一个字段。"
    )
    assert list(collect([user("Go."), assistant(text)]).decisions) == [
        "The root cause is `parse_line`, which drops the last field.",
        "原因是 `parse_line` 丢掉了最后一个字段。",
    ]


def test_f4_a_git_hint_is_not_the_error_and_a_later_success_clears_the_error() -> None:
    """git's hint was once the last error, even after the push had worked."""
    output = "error: failed to push some refs to 'x'\nhint: Updates were rejected: not found upstream\nExit code: 1"
    assert find_error_line(output) == "error: failed to push some refs to 'x'"
    failed = [user("Push it."), *ran("1", "git push", output)]
    assert collect(failed).failure.error.startswith("error: failed to push")
    done = [*failed, *ran("2", "git push -u origin main", "done\nExit code: 0")]
    assert not collect(done).failure.error
    unrelated = [*failed, *ran("2", "git status", "clean\nExit code: 0")]
    assert collect(unrelated).failure.error


@pytest.mark.parametrize(
    ("failed", "later", "is_mended"),
    [
        ("git push", "git pull --rebase && git push -u origin main", True),
        ("git add . && git commit -m x && git push", "git push", True),
        ("git add . && git push", "git add .", False),
        ("make test", "make test; git status", True),
        ("make test", "make clean && git status", False),
        ("cd a && pytest -q 2>&1 | tail -3", "pytest -q b", True),
    ],
)
def test_f4_an_error_is_cleared_when_its_command_succeeds_among_others(
    failed: str, later: str, is_mended: bool
) -> None:
    """`git push` had worked after `git pull --rebase &&`, and its rejection was still the last
    error."""
    messages = [user("Go."), *ran("1", failed, "error: rejected\nExit code: 1")]
    assert collect(messages).failure.error
    assert (
        not collect([*messages, *ran("2", later, "done\nExit code: 0")]).failure.error
    ) is is_mended


@pytest.mark.parametrize("output", [
    "3 passed, 1 failed in 0.2s", "make: *** [all] Error 2", "npm ERR! Test failed.", "Found 3 errors in 2 files", "Encrypted: 4\nErrors: 2",
    "error: failed to push some refs\nhint: pull first", "共 12 个用例，2 个失败", "bash: tox: command not found",
    "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: bad",
])  # fmt: skip
def test_f4_a_check_whose_output_reports_a_failure_is_not_ok(output: str) -> None:
    """Chat Completions, Responses and Gemini do not flag failed results: `[ok] pytest` was once
    listed beside `1 failed`."""
    state = collect([user("Go."), *ran("1", "pytest -q", output)])
    assert state.checks["pytest -q"].startswith("failed: ")
    assert state.failure.error


@pytest.mark.parametrize("output", [
    "12 passed, 0 failed in 0.2s", "Found 0 errors.", "Encrypted: 4\nErrors: 0", "Found 3 errors (3 fixed, 0 remaining).", "12 个用例，0 个失败", "",
    "2 failed, then 2 passed again\nExit code: 0", "test_failing.py .. [100%]",
])  # fmt: skip
def test_f4_a_check_whose_output_reports_no_failure_is_ok(output: str) -> None:
    assert (
        collect([user("Go."), *ran("1", "pytest -q", output)]).checks["pytest -q"].startswith("ok")
    )


def test_calls_results_and_plans_of_cline_are_parsed():
    """Its file writes were once unspecific actions, failed commands were done, and its plan was
    unknown."""
    plan = "- [x] Read\n- [ ] Write tests"
    failed = "Command failed with exit code 1.\nOutput:\n1 failed, 2 passed"
    state = collect(
        [
            user("Go."),
            *call(
                "write_to_file", "Saved.", absolutePath="/w/a.py", content="1", task_progress=plan
            ),
            *call("execute_command", failed, command="pytest -q"),
        ]
    )
    assert states_of(state) == {"/w/a.py": "created"}
    assert [(todo.text, todo.status) for todo in state.todos] == [
        ("Read", "done"),
        ("Write tests", "pending"),
    ]
    assert state.checks == {"pytest -q": "exit 1: 1 failed, 2 passed"}


NPM = """npm error code ERESOLVE
npm error ERESOLVE unable to resolve
npm error
npm error Found: a@3
npm error A complete log of this run can be found in: C:\\x.log"""
POWERSHELL = """> build
npm : File C:\\npm.ps1 cannot be loaded because scripts
are disabled.
At line:2 char:1
+ npm run build
+ ~~~
    + CategoryInfo  : SecurityError: (:) [], PSSecurityException"""

MISREAD = "\ufffd\ufffd\ufffd:1\n+ cat\n\ufffd\ufffdδ\ufffd\n    + CategoryInfo : ParserError"
"""Output of a Chinese PowerShell, decoded by the client with the wrong encoding."""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (NPM, "npm error ERESOLVE unable to resolve"),
        (POWERSHELL, "npm : File C:\\npm.ps1 cannot be loaded because scripts are disabled."),
        (MISREAD, ""),
        ("Error: spawn EPERM\nError: Build failed with 1 error:\n", "Error: spawn EPERM"),
    ],
)
def test_the_error_line_names_the_cause_and_not_a_log_file_or_a_category(output, line):
    """It was once the path of npm's log, PowerShell's category of an error, or the heading of a
    list."""
    assert find_error_line(output) == line
