"""Effects of tool calls on files, commands and plans, by the names of tools and arguments in use,
and effects of commands that a model writes as text."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from refold.messages import ToolCall
from refold.speakers.written import split_edits
from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.shell_words import (
    APPLIES,
    ESCAPED,
    INNER_FOLLOWS,
    MAX_COMMAND,
    MAX_WORDS,
    PATCH_BEGINS,
    PATCH_ENDS,
    UNKNOWN_SESSION_DIR,
    FileEffect,
    Words,
    WorkingDir,
    cut_commands,
    find_place,
    iter_redirects,
    iter_written,
    place_commands,
    spell_code,
    split_heredocs,
    without_heredocs,
)
from refold.text.json_values import list_at, object_at, objects_in, parse_or_text, text_at
from refold.text.plain import PATHS, has_extension, is_file_word, is_interpreter, is_question

MAX_ARGUMENTS = 400_000
"""Maximum characters of a call's arguments that are parsed."""

_LIST_KEYS = ("files", "paths")
_OLD = ("old_string", "oldString", "oldText", "old_str", "old_text", "old")
_NEW = ("new_string", "newString", "newText", "new_str", "new_text", "new")
_WHOLE = ("content", "file_text")
_EVERYWHERE = ("replace_all", "replaceAll", "allow_multiple", "expected_replacements")
_ONCE = frozenset({"", "0", "1", "1.0", "False", "false", "None"})
_POSITION_KEYS = frozenset(
    {"start", "end", "start_line", "end_line", "insert_line", "line", "mode"}
)
"""Arguments that may put a text at one place of its file, or append it."""
RANGE = re.compile(r":(?:(\d{1,7})(?:-\d{1,7})?|raw)\Z")
"""Line range after a path: `src/a.py:20-60`; `:raw` for all lines."""
EXIT_PLAN_TOOL = re.compile(r"(?i)exit_?plan_?mode|plan_?exit")
"""Name of a tool that shows a plan to a person for approval."""
_COMMAND_KEYS = ("command", "cmd", "script", "commands")
_PIPED_SCRIPT = re.compile(
    r"@'\n((?>(?:(?!\n'@)[\s\S])*))\n'@\s*\|\s*(?:powershell|pwsh)(?:\.exe)?\s(?:-\w+\s+)*-\s*"
)
"""A script that is piped into PowerShell."""
_DIRECTORY_KEYS = ("workdir", "cwd", "working_directory", "dir_path", "directory")
"""Arguments for a working directory other than the session's folder."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CODE_CALL = re.compile(r"\btools\.(\w{1,100})\(")
"""A tool call in a script by the model (Codex)."""
_TODO_KEYS = ("subject", "content", "step", "title", "text", "description")
_VERBS = {
    "read": "read", "view": "read", "open": "read", "cat": "read",
    "write": "created", "create": "created",
    "edit": "modified", "editor": "modified", "replace": "modified", "insert": "modified", "update": "modified", "patch": "modified",
    "append": "modified", "multi": "modified", "multiedit": "modified", "apply": "modified",
    "delete": "deleted", "remove": "deleted",
}  # fmt: skip
_PATCH = re.compile(r"(?m)^\*\*\* (Add|Update|Delete) File: (.*\S)|^\*\*\* Move to: (.*\S)")
_SED = re.compile(
    r"(?:(\d{1,7})(?:,(\d{1,7}))?)?(?:([dcia])(?:\s*+\\\n?|\s*+)((?s:.*))"
    r"|s([^\w\s\\])((?:\\[^\n]|(?!\5)[^\\\n]){1,300})\5((?:\\[\s\S]|(?!\5)[^\\])*)\5g?)"
)
"""A `sed` script of one command: an edit of lines by their numbers, with a text, or a substitution
in such lines or in all."""
_SED_PATTERN = re.compile(r"\\[\w(){}|+?<>]|(?<!\\)(?:\\\\)*[*\[]|\A\^|(?<!\\)\$\Z")
"""Regex syntax in a `sed` pattern. Without it the pattern is literal text; so is `.`, usually."""
_IN_PLACE = re.compile(r"-\w*i|--in-place")
_SED_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SED_GROUP, _SED_BREAK = re.compile(r"\\\d"), re.compile(r"\\n|\n")
_PATCH_STATES = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_ASSIGNED = re.compile(
    r"\b(\w{1,40})\s{0,3}=\s{0,3}(?:(?:\w{1,20}\.)?Path\(\s{0,9})?(['\"`])([^'\"`\n]{1,300})\2"
)
"""A variable of a script that may hold a path."""
_WRITES = re.compile(
    r"\bopen\(\s{0,9}([^,()\n]{1,300}),\s{0,9}(?:mode\s{0,3}=\s{0,3})?['\"](?:[wax]|r\+)"
    r"|\bwriteFile(?:Sync)?\(\s{0,9}([^,()\n]{1,300}),"
    r"|\bPath\(\s{0,9}([^,()\n]{1,300})\)\.write_(?:text|bytes)\("
    r"|(\b\w{1,40}|\))\.(?:write_(?:text|bytes)\(|open\(\s{0,9}['\"][wax])"
    r"|\bopen\([^\n]{0,200}?,\s{0,9}['\"][wax]b?['\"]"
)
"""A call in a script that writes a file, and its expression for the path."""
_READS = re.compile(r"read|load|\bopen\([^,()\n]{1,300}\)|['\"]r['\"]")
_OPENS = re.compile(r"\b(?:open|read\w{0,12})\(\s{0,9}['\"]([^'\"\n]{1,300})['\"]\s{0,9}\)")
"""A call in a script that reads a file."""
_QUOTED = re.compile(r"(['\"`])([^'\"`\n]{1,300})\1")
_STATUS = {
    "completed": "done", "done": "done", "complete": "done", "finished": "done", "cancelled": "done",
    "in_progress": "active", "in-progress": "active", "active": "active", "doing": "active", "deleted": "deleted",
}  # fmt: skip
_LOOKS_AT = ("fetch", "search")
"""Suffixes of tools with one-word names that only look: `webfetch`."""
_TASK_TOOL = re.compile(r"task_?(?:create|update|list|get)", re.IGNORECASE)
"""Tools that change a task list item by item (Claude Code)."""
_TASK_ID = re.compile(r"#([\w-]{1,40})")
_TASK_ROW = re.compile(r"^#([\w-]{1,40}) \[(\w{1,20})\] (\S.*)$", re.MULTILINE)
_BOX = re.compile(r"^[ \t]*[-*+][ \t]+\[([ xX~/-])\][ \t]+(\S[^\n]{0,300})$", re.MULTILINE)
_BOXES = {" ": "pending", "x": "done", "X": "done"}
Lines = tuple[str, ...]


class Todo(NamedTuple):
    """One item of a plan."""

    text: str
    status: str = "pending"
    """`pending`, `active` or `done`; in a change also `deleted`, or empty to keep it."""
    id: str = ""
    """Id that calls use to change only this item."""


Todos = tuple[Todo, ...]
"""Items of a plan, in order."""


class Change(NamedTuple):
    """A change of a file's text, in lines."""

    path: str
    """Empty if a call edits several files and does not say which."""
    old: Lines | None
    """Lines that *new* replaces; None for the whole file."""
    new: Lines
    anchor: str = ""
    """Line after which a patch applies, if it names one."""
    occurrences: int = 0
    """Places in lines where *old* changes: -1 all, -2 the first of each line; 0 whole lines."""
    lines: tuple[int, int] | None = None
    """First and last line that it replaces or edits. An insertion has the last before the first."""


class CallEffect(NamedTuple):
    """What one call does if it succeeds."""

    tool: str
    files: tuple[FileEffect, ...] = ()
    """Paths, each with what happens to it (`read`, `created`, `modified`, `deleted`), in order."""
    command: str = ""
    todos: Todos | None = None
    place: WorkingDir = UNKNOWN_SESSION_DIR
    changed_todos: Todos | None = None
    """Items that it adds to a plan, without ids, or changes; None for another call."""
    action: str = ""
    """Operation of a tool with several: `list` of `cron`."""
    changes: tuple[Change, ...] = ()
    """Changes of the texts of files, in order, as far as they are known."""

    @property
    def changed_files(self) -> list[str]:
        """Files that it does not only read."""
        return [path for path, state in self.files if state != "read"]

    @property
    def edited_files(self) -> list[str]:
        """Files that it creates, modifies or deletes itself."""
        return [path for path, state in self.files if state in shell.CHANGES]

    @property
    def changes_by_file(self) -> dict[str, list[Change]]:
        """Its changes of each named file."""
        changes = defaultdict[str, list[Change]](list)
        for change in self.changes:
            changes[change.path].append(change)
        changes.pop("", None)
        return changes

    @property
    def is_plan(self) -> bool:
        """Whether it only writes, changes or shows a plan."""
        return (self.todos, self.changed_todos) != (None, None) and not (self.files or self.command)

    def rename(self, spellings: Mapping[str, str]) -> "CallEffect":
        """Return the effect with one path for each file; *spellings* has their other paths."""
        place = self.place._replace(spellings=spellings)
        files = tuple((place.spell(path), state) for path, state in self.files)
        changes = tuple(change._replace(path=place.spell(change.path)) for change in self.changes)
        return self._replace(files=files, place=place, changes=changes)


def effect_of_call(call: ToolCall, folder: str = "") -> CallEffect:
    """Return the effect of a tool call in a session at *folder*, empty if unknown. Never raises,
    whatever the arguments are."""
    is_long = len(call.arguments) > MAX_ARGUMENTS
    arguments = call.arguments if is_long else parse_or_text(call.arguments)
    text = "\n".join(_texts_in(arguments))
    code = arguments if isinstance(arguments, str) else _text_at(arguments, ("code", "input"))
    named = list(_files_by_name(call.name, arguments))
    if (tool := _CODE_CALL.search(code)) and not (named or code.lstrip().startswith(PATCH_BEGINS)):
        command, directory = spell_code(code[:MAX_ARGUMENTS])
        effect = effect_of_command(command, folder, directory or ".")._replace(tool=tool[1])
        return _add_changes(effect, text)
    command = _command(arguments)
    directory = _text_at(arguments, _DIRECTORY_KEYS).strip() or "."
    place = WorkingDir(folder).enter(directory) if command else WorkingDir(folder)
    files = (
        *dict.fromkeys((place.name(path), state) for path, state in named),
        *_files_of_command(command, place, text),
    )
    changed = _find_changed(arguments) if _TASK_TOOL.fullmatch(call.name) else None
    todos = _todos(arguments) if changed is None else None
    if files or command:  # Cline's calls may carry its plan, too
        todos = todos or read_boxes(_text_at(arguments, ("task_progress",))) or None
    action = _text_at(arguments, ("action",))[:50]
    effect = CallEffect(call.name, files, command, todos, place, changed, action)
    return _add_changes(effect, text, arguments)


def state_after(before: str | None, now: str) -> str:
    """Return a file's state after *now* happened to it in state *before*, None if unknown."""
    match before, now:
        case ("created" | "modified" | "restored" | "stashed", "read") | ("created", "modified"):
            return str(before)
        case "read" | "modified" | "deleted" | "restored" | "stashed", "created":
            return "modified"
        case _:
            return now


def effect_of_command(command: str, folder: str = "", directory: str = ".") -> CallEffect:
    """Return the effect of a command in *directory* of a session at *folder*, empty if unknown."""
    place = WorkingDir(folder).enter(directory)
    files = tuple(_files_of_command(command, place, command))
    return _add_changes(CallEffect("shell", files, command, place=place), command)


def _files_of_command(command: str, place: WorkingDir, text: str) -> Iterator[FileEffect]:
    yield from _files_in_patch(text, command, place)
    yield from shell.file_effects(command, place)
    yield from _files_of_scripts(command, place)


def _command(arguments: Any) -> str:
    if not isinstance(arguments, Mapping) or arguments.get("is_input") in (True, "true"):
        return ""  # input of a running process
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            value = _join_words(value)
        if isinstance(value, str) and value.strip() and not _is_editor_verb(value, arguments):
            return piped[1] if (piped := _PIPED_SCRIPT.fullmatch(value.strip())) else value
    return ""


def _join_words(words: Words) -> str:
    """Return a command given as a list of words in shell syntax."""
    if len(words) > 2 and INNER_FOLLOWS.fullmatch(words[-2]):
        return words[-1]
    if words[-1].startswith(PATCH_BEGINS):
        return f"{words[0]} <<'PATCH'\n{words[-1]}\nPATCH"
    return shlex.join(words)


def _is_editor_verb(value: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a `command` is an editor's verb, like `view` of `str_replace_editor`."""
    return "path" in arguments and value.isidentifier()


def _files_by_name(name: str, arguments: Any) -> Iterator[FileEffect]:
    if not isinstance(arguments, Mapping):
        return
    verb = _text_at(arguments, ("command",))
    state = _state_by_name(verb if _is_editor_verb(verb, arguments) else name)
    rows: list[Any] = [arguments]
    if any(re.match("repo(?!rt)", key) and isinstance(arguments[key], str) for key in arguments):
        return  # the file is in a remote repository
    rows += (row for key in _LIST_KEYS for row in list_at(arguments, key))
    for row in rows if state else ():
        names = map(row.get, PATHS) if isinstance(row, Mapping) else (row,)
        fitting = (s for s in names if isinstance(s, str) and 0 < len(s) <= 500 and "\n" not in s)
        path = next(fitting, "")
        if path and "://" not in path and "*" not in path:
            yield RANGE.sub("", path), state


def _text_at(arguments: Any, keys: Sequence[str]) -> str:
    values = (arguments.get(key) for key in keys) if isinstance(arguments, Mapping) else ()
    return next((value for value in values if isinstance(value, str)), "")


def _state_by_name(name: str) -> str:
    words = [word.lower() for word in _WORD.findall(name[:200])]
    return next((_VERBS[word] for word in words if word in _VERBS), "")


def _files_in_patch(text: str, command: str, place: WorkingDir) -> Iterator[FileEffect]:
    """Yield the files of a Codex patch with their states. A *command* at *place* may apply it."""
    if "*** " not in text:
        return
    last, place = "", find_place(command, place, APPLIES)
    for kind, path, moved in _PATCH.findall(text):
        if moved:
            yield from ((place.name(last), "deleted"), (place.name(moved), "created"))
        else:
            yield place.name(path), _PATCH_STATES[kind]
            last = path


def _files_of_scripts(command: str, place: WorkingDir) -> Iterator[FileEffect]:
    """Yield the files that Python or JavaScript in a command writes: as `modified` or `created` if
    it is run and names the file, else any file that it names as `changed`."""
    for script, here, is_run in _find_scripts(command[:MAX_COMMAND], place):
        writes = [match[match.lastindex or 0].strip() for match in _WRITES.finditer(script)]
        quoted = {f"{quote}{path}{quote}": path for quote, path in _QUOTED.findall(script)}
        named = quoted | {match[1]: match[3] for match in _ASSIGNED.finditer(script)}
        paths = [named.get(name, "") for name in writes]
        state = "modified" if _READS.search(script) else "created"
        if not (is_run and all(map(is_file_word, paths))):
            words = [text for text in quoted.values() if " " not in text]  # else it is prose
            paths, state = words if writes else [], "changed"
        names = (path for path in dict.fromkeys(paths) if is_file_word(path))
        yield from ((here.name(path), state) for path in names if has_extension(path))


def _find_scripts(command: str, place: WorkingDir) -> Iterator[tuple[str, WorkingDir, bool]]:
    """Yield each text that a command gives to an interpreter or writes into a file, its place, and
    whether the command runs it."""
    heads = "\n".join(line for line, _ in split_heredocs(command))
    running = [
        (words, here)
        for words, here in place_commands(heads, [place])
        if any(map(is_interpreter, words[:MAX_WORDS]))
    ]
    for words, here in running:
        options = pairwise(words)
        yield from ((script, here, True) for flag, script in options if flag in {"-c", "-e"})
    run, places = {word for words, _ in running for word in words}, [place]
    for line, body in split_heredocs(command):
        commands = [*place_commands(line, places)]
        fed = (pair for pair in commands if any("<<" in word for word in pair[0]))
        if body and commands:
            words, here = next(fed, commands[-1])
            files = {path for words, _ in commands for path, _ in iter_redirects(words)}
            fed_on = words if files else [word for words, _ in commands for word in words[:1]]
            is_run = bool(files & run) or any(map(is_interpreter, [*words, *fed_on]))
            yield "\n".join(body), here, is_run


def find_opened(command: str, place: WorkingDir) -> Iterator[str]:
    """Yield the files that scripts in a command at *place* open for reading."""
    yield from map(place.name, _OPENS.findall(command[:MAX_COMMAND]))


def read_boxes(text: str) -> Todos:
    """Return the items of a plan that is a checkbox list. A list with questions is a checklist and
    has none."""
    boxes = [(mark, task.strip()) for mark, task in _BOX.findall(text)]
    is_plan = not any(is_question(task) for _, task in boxes)
    return tuple(Todo(task, _BOXES.get(mark, "active")) for mark, task in boxes if is_plan)


def _todos(arguments: Any) -> Todos | None:
    """Return the items of a plan (TodoWrite, update_plan, write_todos); None for another call."""
    if not isinstance(arguments, Mapping):
        return None
    for key in ("todos", "plan", "todoList", "items"):
        rows = arguments.get(key)
        if isinstance(rows, str) and (boxes := read_boxes(rows)):  # Roo Code
            return boxes
        rows = rows if isinstance(rows, list) else [None]
        is_plan = key.startswith("todo") or any(_text_of(object_at(row)) for row in rows)
        if is_plan and all("status" in object_at(row) for row in rows):  # `items` may be an order's
            return tuple(Todo(_text_of(row), _status_of(row["status"])) for row in rows)
    return None


def _text_of(row: Mapping[str, Any]) -> str:
    return next((str(row[key]) for key in _TODO_KEYS if row.get(key)), "")


def _status_of(status: object) -> str:
    return _STATUS.get(str(status).lower(), "pending")


def _find_changed(arguments: Any) -> Todos:
    changed = list[Todo]()
    for row in objects_in(list_at(arguments, "tasks") or [arguments]):
        id = str(row.get("taskId") or row.get("id") or "").lstrip("#")
        status = _status_of(row["status"]) if "status" in row else ""
        changed.append(Todo(_text_of(row), status, id if _TASK_ID.fullmatch(f"#{id}") else ""))
    return tuple(todo for todo in changed if todo.text or todo.id)


def change_todos(todos: Todos, effect: CallEffect, text: str) -> Todos:
    """Return the items of a plan after a call that adds or changes some. Its result *text* has the
    ids of added items, or all items."""
    if rows := _TASK_ROW.findall(text):  # `blocked by` is soon out of date
        named = ((id, status, subject.split(" [blocked by #")[0]) for id, status, subject in rows)
        return tuple(Todo(subject, _status_of(status), id) for id, status, subject in named)
    ids, taken = iter(_TASK_ID.findall(text)), {todo.id for todo in todos} - {""}
    for todo in effect.changed_todos or ():
        id = todo.id or next(ids, "")
        id = id or str(max((int(id) for id in taken if id.isdecimal()), default=0) + 1)
        if not todo.id and id in taken:  # the ids start over with a new list
            todos, taken = (), set()
        taken.add(id)
        todos = join_todos(todos, (todo._replace(id=id),))
    return todos


def join_todos(old: Todos, new: Todos) -> Todos:
    """Return a plan with *new* items, if any, merged in by id, without deleted ones. If one of them
    has no id, they replace the whole plan."""
    if not all(todo.id for todo in new):
        return new
    joined = {todo.id: todo for todo in old if todo.id}
    for todo in new:
        before = joined.get(todo.id, Todo(""))
        joined[todo.id] = Todo(todo.text or before.text, todo.status or before.status, todo.id)
    remaining = (todo for todo in joined.values() if todo.status != "deleted")
    return tuple(remaining) if new else old


def _texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > 20 or value is None or isinstance(value, bool):
        return
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(item, depth + 1)
    else:
        yield str(value)


def _add_changes(effect: CallEffect, text: str, arguments: Any = None) -> CallEffect:
    """Return *effect* with the file changes of its call: those of its command (`sed -i` too) or of
    a patch in *text*, else, without a command, the replacements in an editing tool's
    *arguments*."""
    written = iter_written(effect.command, effect.place)
    changes = [Change(path, None, _split(whole)) for path, whole in written]
    changes += _iter_patch(effect, text)
    changes += _read_sed(effect) if "sed " in effect.command else ()
    if not (effect.command or changes):
        edited = {path for path, state in effect.files if state in {"created", "modified"}}
        changes += _iter_replaced(arguments, edited.pop() if len(edited) == 1 else "")
    return effect._replace(changes=tuple(changes))


def _split(text: str) -> Lines:
    return tuple(text.replace("\r\n", "\n").split("\n"))


def _iter_replaced(arguments: Any, path: str) -> Iterator[Change]:
    """Yield the replacements of an editing call in the file at *path*."""
    pending = [arguments]
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
                is_all = any(str(value.get(key)) not in _ONCE for key in _EVERYWHERE)
                yield Change(path, _split(old), _split(new), "", -1 if is_all else 1)
            elif whole is not None and (
                value.get("mode") == "overwrite" or _POSITION_KEYS.isdisjoint(value)
            ):
                yield Change(path, None, _split(whole))
            _, edits = split_edits(text_at(value, "diff"), path or ".")
            pending += [parse_or_text(edit.arguments) for edit in reversed(edits)]
            pending += reversed([item for item in value.values() if isinstance(item, list | dict)])


def _iter_patch(effect: CallEffect, text: str) -> Iterator[Change]:
    """Yield the changes of a Codex patch in a call's command or in the *text* of its arguments, in
    order. A deleted file has none."""
    place = effect.place
    if PATCH_BEGINS in effect.command:
        text, place = effect.command, find_place(effect.command, place, APPLIES)
    path, anchor, is_new, old, new = "", "", False, list[str](), list[str]()
    for line in (*text.partition(PATCH_BEGINS)[2].splitlines(), PATCH_ENDS):
        if line.startswith(("*** ", "@@")):
            if new != old:
                before = None if is_new else tuple(old)
                yield Change(place.name(path), before, tuple(new), anchor)
            old, new, anchor = [], [], line[2:].strip() if line.startswith("@@") else ""
            if match := _PATCH.match(line):
                path, is_new = match[2] or path, match[1] == "Add"
            elif line.startswith(PATCH_ENDS):
                path = ""
        elif path and line[:1] in {"-", " ", ""}:
            old.append(line[1:])
        if path and line[:1] in {"+", " ", ""}:
            new.append(line[1:])


def _read_sed(effect: CallEffect) -> list[Change]:
    """Return the changes of `sed -i`, but not to files with a change that its script alone does not
    determine."""
    changes, unknown = list[Change](), set[str]()
    command = without_heredocs(effect.command[:MAX_COMMAND])
    placed = place_commands(command, [effect.place])
    for tokens, (words, here) in zip(cut_commands(command), placed, strict=False):
        options = {word for word in words if word.startswith("-")}
        if words[:1] != ["sed"] or not any(map(_IN_PLACE.match, options)):
            continue
        script, *paths = [word for word in words[1:] if word and word not in options] or [""]
        quoted = (ESCAPED.sub(r"\1", token[1]) for token in tokens if token[1] == script)
        is_plain = options <= {"-i", "-e", "--in-place"} and len(paths) == 1
        edit = _SED.fullmatch(next(quoted, script)) if is_plain else None
        change = _read_edit(edit, here.name(paths[0])) if edit else None
        changes += [change] if change else []
        unknown.update(() if change else map(here.name, paths))
    return [change for change in changes if change.path not in unknown]


def _unescape(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(match[1], match[1])


def _read_edit(edit: re.Match[str], path: str) -> Change | None:
    """Return the change by one `sed` command to the file at *path*; None if it is unknown."""
    first, last, verb, text, mark, pattern, new = edit.groups()
    begin, end = int(first or 0), int(last or first or 0)
    if verb and first and not (verb in "ia" and last) and (verb != "d" or not text):
        rows = _split(_SED_ESCAPE.sub(_unescape, text)) if verb != "d" else ()
        between = {"i": (begin, begin - 1), "a": (begin + 1, begin)}
        return Change(path, (), rows, lines=between.get(verb, (begin, end)))
    unknown = (_SED_GROUP, _SED_BREAK) if first else (_SED_GROUP,)
    if not mark or _SED_PATTERN.search(pattern) or any(words.search(new) for words in unknown):
        return None
    old = _SED_ESCAPE.sub(r"\1", pattern)
    new = re.sub(r"(?<!\\)&", lambda _: old.replace("\\", r"\\"), new)
    rows = _split(_SED_ESCAPE.sub(_unescape, new))
    count = -1 if edit[0].endswith("g") else 1 if first else -2
    return Change(path, (old,), rows, "", count, (begin, end) if first else None)


def is_look(effect: CallEffect) -> bool:
    """Return whether a tool only looks at something, going by its name and action."""
    words = map(str.lower, (effect.tool, *_WORD.findall(f"{effect.tool[:200]} {effect.action}")))
    return any(word in shell.READ_ONLY_VERBS or word.endswith(_LOOKS_AT) for word in words)
