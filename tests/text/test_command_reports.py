"""What clients report of a command, in the shapes of real clients, written anew here."""

import pytest

from refold.summarizers.heuristic.steps import CommandReport, read_report, read_task_reports

HEADER = "Chunk ID: b0a045\nWall time: 5.0 seconds\n{}\nOriginal token count: 4\nOutput:\n"
TASK = "<task_id>b9</task_id>\n\n<task_type>local_bash</task_type>\n\n<status>{}</status>"
NOTE = "<task-notification>\n<task-id>{}</task-id>\n<status>{}</status>\n<summary>{}</summary>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEADER.format("Process exited with code 2") + "exit code: 9", CommandReport("exit code: 9", 2)),
        (HEADER.format("Process running with session ID 71") + "a", CommandReport("a", None, "71", True)),
        ("Wall time 0.1 seconds\nOutput:\nexit code: 9", CommandReport("exit code: 9", 9)),
        ("Exit code: 1\nWall time: 1 seconds\nTotal output lines: 3\nOutput:\na", CommandReport("a", 1)),
        ("rc=1\ncat: a: No such file", CommandReport("cat: a: No such file", 1)),
        ('{"returncode": 2, "output": "a\\nb"}', CommandReport("a\nb", 2)),
        ("Command running in background with ID: b9. Output is in: /tmp", CommandReport("Command running in background with ID: b9. Output is in: /tmp", None, "b9", True)),
        ("Command was manually backgrounded by user with ID: b9.", CommandReport("Command was manually backgrounded by user with ID: b9.", None, "b9", True)),
        (f"{TASK.format('running')}\n\n<output>\na", CommandReport("a", None, "b9", True)),
        (f"{TASK.format('completed')}\n\n<exit_code>0</exit_code>\n\n<output>\na", CommandReport("a", 0, "b9")),
        (TASK.format("failed"), CommandReport("", 1, "b9")),
        ("Chunk ID: a book\nOutput", CommandReport("Chunk ID: a book\nOutput")),
        (f"see {TASK.format('failed')}", CommandReport(f"see {TASK.format('failed')}")),
    ],
)  # fmt: skip
def test_the_report_header_of_a_client_is_split_from_the_output(
    text: str, expected: CommandReport
) -> None:
    assert read_report(text) == expected


def test_one_text_may_report_several_commands() -> None:
    text = "\n".join((NOTE.format("a", "failed", "exit code 9"), NOTE.format("b", "completed", "")))
    assert list(read_task_reports(text)) == [
        CommandReport("exit code 9", 9, "a"),
        CommandReport("", None, "b"),
    ]


def test_system_lines_of_a_chat_gateway_report_commands() -> None:
    """OpenClaw, which writes eight letters of the id."""
    text = (
        "System: [2026-03-02 16:26:03 GMT+8] Exec completed (mellow-r, code 1) :: Rate limit exceeded\n"
        "System (untrusted): [2026-03-02 16:26:04 GMT+8] Exec failed (faint-ha, signal SIGKILL)\n\n"
        "Exec completed (calm-mis, code 0) :: says a person"
    )
    assert list(read_task_reports(text)) == [
        CommandReport("Rate limit exceeded", 1, "mellow-r"),
        CommandReport("", 137, "faint-ha"),
    ]
