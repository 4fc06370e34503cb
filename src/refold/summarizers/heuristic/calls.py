"""What a tool call does to files, commands and plans, by the names of tools and arguments in
use."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from refold.messages import ToolCall
from refold.summarizers.heuristic import shell
from refold.text.clip import one_line
from refold.text.failures import EXIT, is_failure
from refold.text.json_values import parse_or_none
from refold.text.plain import without_escapes

MAX_ARGUMENTS = 400_000
"""Characters of a call's arguments that are parsed."""

_PATH_KEYS = (
    "file_path",
    "path",
    "filePath",
    "filepath",
    "absolute_path",
    "notebook_path",
    "target_file",
    "filename",
    "file",
)
_OLD = ("old_string", "oldText", "old_str", "old_text")
_NEW = ("new_string", "newText", "new_str", "new_text")
_WHOLE = ("content", "file_text")
_VENDORED = re.compile(
    r"(?:^|[/\\])(?:node_modules|site-packages|vendor|dist|build|target|\.venv)[/\\]"
)
_COMMAND_KEYS = ("command", "cmd", "script", "commands")
_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*")
_TODO_KEYS = ("content", "step", "description", "title", "text", "subject")
_VERBS = {
    "read": "read", "view": "read", "open": "read", "cat": "read",
    "write": "created", "create": "created",
    "edit": "modified", "replace": "modified", "insert": "modified", "update": "modified", "patch": "modified",
    "append": "modified", "multi": "modified",
    "delete": "deleted", "remove": "deleted",
}  # fmt: skip
_PATCH = re.compile(
    r"^\*\*\* (Add|Update|Delete) File: (.*\S)|^\*\*\* Move to: (.*\S)", re.MULTILINE
)
_PATCH_STATES = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_STATUS = {
    "completed": "done", "done": "done", "complete": "done", "finished": "done", "cancelled": "done",
    "in_progress": "active", "in-progress": "active", "active": "active", "doing": "active",
}  # fmt: skip

_BOX = re.compile(r"^[ \t]*[-*+][ \t]+\[([ xX~/-])\][ \t]+(\S[^\n]{0,300})$", re.MULTILINE)
_BOXES = {" ": "pending", "x": "done", "X": "done"}


class Todo(NamedTuple):
    """One item of a plan."""

    text: str
    status: str = "pending"
    """`pending`, `active` or `done`."""


class CallEffect(NamedTuple):
    """What one call does if it succeeds."""

    tool: str
    files: tuple[tuple[str, str], ...] = ()
    """(path, state), in order."""
    command: str = ""
    todos: tuple[Todo, ...] | None = None


def effect_of_call(call: ToolCall) -> CallEffect:
    """Understand a tool call. Never raises, whatever its arguments are."""
    arguments = _arguments(call.arguments)
    command = _command(arguments)
    files = (
        *_files_by_name(call.name, arguments),
        *_files_in_patch("\n".join(_texts_in(arguments))),
        *shell.file_effects(command),
    )
    return CallEffect(call.name, files, command, _todos(arguments))


def effect_of_command(command: str) -> CallEffect:
    """Understand a command that an assistant wrote as text (mini-swe-agent)."""
    return CallEffect("shell", (*_files_in_patch(command), *shell.file_effects(command)), command)


def _arguments(text: str) -> Any:
    try:
        return json.loads(text) if len(text) <= MAX_ARGUMENTS else text
    except (ValueError, RecursionError):
        return text


def _command(arguments: Any) -> str:
    if not isinstance(arguments, Mapping):
        return ""
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            value = value[-1] if len(value) == 3 and value[1] in {"-c", "-lc"} else " ".join(value)
        if isinstance(value, str) and value.strip() and not _is_editor_verb(value, arguments):
            return value
    return ""


def _is_editor_verb(value: str, arguments: Mapping[str, Any]) -> bool:
    """Is a `command` the verb of an editor, as `view` and `create` are of `str_replace_editor`?"""
    return "path" in arguments and value.isidentifier()


def _files_by_name(name: str, arguments: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(arguments, Mapping):
        return
    verb = arguments.get("command")
    state = (
        _state_by_name(verb)
        if isinstance(verb, str) and _is_editor_verb(verb, arguments)
        else _state_by_name(name)
    )
    if not state:
        return
    for key in _PATH_KEYS:
        path = arguments.get(key)
        if isinstance(path, str) and 0 < len(path) <= 500 and "\n" not in path:
            yield path, state
            return


def _state_by_name(name: str) -> str:
    words = [word.lower() for word in _WORD.findall(name[:200])]
    if "str" in words or "edit" in words:
        words = [word for word in words if word not in {"create", "view"}] or words
    return next((_VERBS[word] for word in words if word in _VERBS), "")


def _files_in_patch(text: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a Codex patch, each with its state."""
    if "*** " not in text:
        return
    last = ""
    for kind, path, moved in _PATCH.findall(text):
        if moved:
            yield from ((last, "deleted"), (moved, "created"))
        else:
            yield path, _PATCH_STATES[kind]
            last = path


def read_boxes(text: str) -> tuple[Todo, ...]:
    """Return the items of a plan that is written as a list of boxes."""
    return tuple(
        Todo(task.strip(), _BOXES.get(mark, "active")) for mark, task in _BOX.findall(text)
    )


def _todos(arguments: Any) -> tuple[Todo, ...] | None:
    """Return the items of a plan, as TodoWrite, update_plan and write_todos take; None for another
    call."""
    if not isinstance(arguments, Mapping):
        return None
    for key in ("todos", "plan", "todoList", "items"):
        rows = arguments.get(key)
        if isinstance(rows, list) and all(
            isinstance(row, Mapping) and "status" in row for row in rows
        ):
            return tuple(
                Todo(
                    next((str(row[key]) for key in _TODO_KEYS if row.get(key)), ""),
                    _STATUS.get(str(row["status"]).lower(), "pending"),
                )
                for row in rows
            )
    return None


def _texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > 20 or value is None or isinstance(value, bool):
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_in(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(item, depth + 1)
    else:
        yield str(value)


def iter_changes(arguments: str) -> Iterator[tuple[str | None, str]]:
    """Yield what an editing call replaces and puts in place; None for a whole file."""
    pending: list[Any] = [parse_or_none(arguments)]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += reversed(value)
        elif isinstance(value, Mapping):
            old, new, whole = (
                next((value[key] for key in keys if isinstance(value.get(key), str)), None)
                for keys in (_OLD, _NEW, _WHOLE)
            )
            if old is not None and new is not None:
                yield old, new
            elif whole is not None:
                yield None, whole
            pending += reversed([item for item in value.values() if isinstance(item, list)])


def is_vendored(path: str) -> bool:
    """Is this a file, or a command on one, that somebody else wrote or a program made?"""
    return bool(_VENDORED.search(path))


_ERROR = re.compile(
    r"^(?:--- )?FAIL\b[^\n]{0,300}|^[^\n]{0,200}?(?:\b\w*(?:Error|Exception|Panic)\b\s*[:(]|\berror(?:\[\w+\]|\s+TS\d+)?:|\bfatal:|\bFAILED\b|\bpanicked at\b|"
    r"No such file|not found|[Pp]ermission denied|错误[:：]|失败[:：]|异常[:：]|エラー|오류)[^\n]{0,300}",
    re.MULTILINE,
)
_COMPILER_ERROR = re.compile(
    r"^[^\s:(]{1,200}(?:\(\d{1,7},\d{1,7}\)|(?::\d{1,7}){1,2}): (?:fatal )?error\b", re.MULTILINE
)
"""What compilers print for each error, wherever it stands in their output: `a.ts(5,15): error TS2305`."""
_FAILURE_COUNT = re.compile(
    r"(?<![\w.])[1-9]\d{0,9} (?:\w{1,20} )?(?:fail(?:ed|ing|ures?)\b|errors?\b(?! \())|\bERR!|\bError \d|"
    r"(?<!\d)[1-9]\d{0,9} ?[个個项項]?(?:测试|測試|用例)?(?:失败|失敗|错误|錯誤)",
)
"""How test runners and build tools sum up a failure: `1 failed`, `Found 3 errors`, `make: *** [all]
Error 2`."""
_ANY_WORD = re.compile(r"\w+")
_CODE_ONLY = re.compile(
    r"(?:(?:command|process|tool) )?(?:exit|return)\w*(?: with)?(?: (?:code|status))?(?<!\d) ?\d+"
    r"|退出(?:码|状态码|代码) ?\d+",
    re.IGNORECASE,
)
"""The words of a line that says an exit code and nothing else, one blank between them."""
END_CHARS = 4_000
"""Characters at either end of a result in which errors are looked for; exit codes in 400."""


def exit_code(text: str) -> int | None:
    """Return the exit code that a result states, at its end or else at its beginning; None if it
    states none."""
    for part in map(without_escapes, (text[-400:], text[:400])):
        if codes := EXIT.findall(part):
            return int(codes[-1])
    return None


def looks_failed(text: str) -> bool:
    """Does the output of work (a build, a test, a push) say that it failed? For results of which no
    exit code and no API says it."""
    end = without_escapes(text[-END_CHARS:])
    return (
        is_failure(text)
        or bool(_FAILURE_COUNT.search(end[-400:]) or _error_lines(end[-400:]))
        or bool(_COMPILER_ERROR.search(end))
    )


def error_line(text: str) -> str:
    """Return the line that says what went wrong: the last one that names an error, else the last
    one with more to say than an exit code. A hint (`hint: Updates were rejected ...`) is none."""
    end = without_escapes(text[-END_CHARS:])
    errors = _error_lines(end) or _error_lines(without_escapes(text[:END_CHARS]))
    rows = [
        row
        for row in end.splitlines()
        if row.strip() and not _is_exit_code_only(row) and not _is_hint(row)
    ]
    line = errors[-1] if errors else rows[-1] if rows else ""
    return one_line(line.strip(), 240)


def _is_exit_code_only(row: str) -> bool:
    return bool(_CODE_ONLY.fullmatch(" ".join(_ANY_WORD.findall(row))))


def _error_lines(text: str) -> list[str]:
    return [row for row in _ERROR.findall(text) if not _is_hint(row)]


def _is_hint(row: str) -> bool:
    """Does this line say what to do about an error?"""
    return row.lstrip().lower().startswith(("hint:", "help:", "note:", "提示：", "提示:"))
