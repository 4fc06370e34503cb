"""What clients report of a command beside its output: whether it still runs, and its exit code."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from refold.text.failures import read_exit_code
from refold.text.json_values import parse_or_none

_HEADER = re.compile(
    r"\A(?:Chunk ID: |Exit code: |Wall time)[^\n]{0,100}\n(?:[^\n]{0,100}\n){0,7}?Output:\n"
    r"(?:Total output lines: \d+\n)?"
)
"""Before a command's output (Codex)."""
_STARTED = re.compile(
    r"^(?:Process running with session ID"
    r"|Command (?:running in background|was manually backgrounded by user) with ID:) (\w+)",
    re.MULTILINE,
)
_TASK = re.compile(
    r"<task[-_]id>(\w+)</task[-_]id>(?:(?!<task[-_]id>).){0,600}?<status>(\w+)</status>"
    r"(?:\s{0,9}<exit_code>(-?\d{1,10})</exit_code>|\s{0,9}<summary>([^<]{0,300}))?"
    r"(?:\s{0,9}<output>\n?)?",
    re.DOTALL,
)
"""How a command stands that runs in the background (Claude Code)."""
_TASK_OPENINGS = ("<retrieval_status>", "<task_id>")
"""How a result begins that says it."""


class CommandReport(NamedTuple):
    """What a client reports of a command."""

    output: str
    exit_code: int | None = None
    process: str = ""
    """The id that the client gave to it; empty if it waited for its end."""
    is_running: bool = False


def read_report(text: str) -> CommandReport:
    """Read a command's result; one without a client's report is all output."""
    if text.startswith(_TASK_OPENINGS) and (task := _TASK.search(text, 0, 2_000)):
        return _read_task(task)._replace(output=text[task.end() :])
    header = _HEADER.match(text)
    output = text[header.end() :] if header else text
    if started := _STARTED.search(header[0]) if header else _STARTED.match(text):
        return CommandReport(_unwrap(output), process=started[1], is_running=True)
    code = read_exit_code(header[0]) if header else None
    return CommandReport(_unwrap(output), read_exit_code(output) if code is None else code)


def read_task_reports(text: str) -> Iterator[CommandReport]:
    """Read what a text says of commands in the background, with a summary each as their output."""
    return map(_read_task, _TASK.finditer(text))


def _read_task(task: re.Match[str]) -> CommandReport:
    id, status, code, summary = task.groups("")
    stated = int(code) if code else read_exit_code(summary)
    failed = 1 if status == "failed" else None
    return CommandReport(summary, failed if stated is None else stated, id, status == "running")


def _unwrap(text: str) -> str:
    r"""Return a result's text; of a JSON object, such as `{"returncode": 0, "output": "a\nb"}`, the
    texts of several lines in it if it holds any."""
    if not text.startswith("{") or "\\n" not in text:
        return text
    fields = parse_or_none(text) or {}
    outputs = [value for value in fields.values() if isinstance(value, str) and "\n" in value]
    return "\n".join(outputs) or text
