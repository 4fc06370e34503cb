"""The XML state snapshot: goal, knowledge, files, actions and plan, as typed values (S0-21 to
S0-27)."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from operator import attrgetter
from typing import Literal, NamedTuple

from refold.summarizers.forms import form, sections
from refold.summarizers.heuristic.calls import state_after

ROOT = "state_snapshot"
FileChange = Literal["created", "read", "modified", "deleted", "noted"]
"""What happened to a file. `noted` if its line states none of the others."""
Status = Literal["done", "in progress", "todo"]

TEMPLATE = """\
Answer with one XML element of exactly this shape. Write "none" where a section has nothing.

<state_snapshot>
<overall_goal>
What the user wants in the end, in one or two sentences.
</overall_goal>
<key_knowledge>
- One fact, convention, constraint or decision that has to be remembered. Identifiers, paths and figures verbatim.
</key_knowledge>
<file_system_state>
- created: path/to/file - why it matters
- read: path/to/file - what was learned from it
- modified: path/to/file - what was changed
- deleted: path/to/file - why
</file_system_state>
<recent_actions>
- One important action and its result, oldest first.
</recent_actions>
<current_plan>
1. [DONE] A step that is finished.
2. [IN PROGRESS] The step being worked on.
3. [TODO] A step still to do.
</current_plan>
</state_snapshot>"""


class File(NamedTuple):
    """One line of the file section."""

    path: str
    state: FileChange = "noted"
    note: str = ""


class Step(NamedTuple):
    """One step of the plan."""

    text: str
    status: Status = "todo"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a state snapshot. Texts are stripped, and empty ones are left out."""

    overall_goal: str = ""
    key_knowledge: tuple[str, ...] = ()
    file_system_state: tuple[File, ...] = ()
    """One entry per path, the last touched last."""
    recent_actions: tuple[str, ...] = ()
    """Oldest first."""
    current_plan: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        paths = dict[str, tuple[FileChange, str]]()
        for file in self.file_system_state:
            path = file.path.strip()
            paths.pop(path, None)
            paths[path] = file.state, file.note.strip()
        steps = {step.text.strip(): step.status for step in self.current_plan}
        goal = self.overall_goal.strip()
        files = tuple(
            File(path, *rest) for path, rest in paths.items() if sections.has_content(path)
        )
        plan = tuple(
            Step(text, status) for text, status in steps.items() if sections.has_content(text)
        )
        object.__setattr__(self, "overall_goal", goal if sections.has_content(goal) else "")
        object.__setattr__(self, "key_knowledge", sections.clean_items(self.key_knowledge))
        object.__setattr__(self, "recent_actions", sections.latest_items(self.recent_actions))
        object.__setattr__(self, "file_system_state", files)
        object.__setattr__(self, "current_plan", plan)

    def files(self, state: FileChange) -> tuple[str, ...]:
        """Return the paths in one state."""
        return tuple(file.path for file in self.file_system_state if file.state == state)

    def steps(self, status: Status) -> tuple[str, ...]:
        """Return the plan's steps in one status."""
        return tuple(step.text for step in self.current_plan if step.status == status)


_TAGS = {
    "overall_goal": "overall_goal",
    "key_knowledge": "key_knowledge",
    "active_constraints": "key_knowledge",
    "file_system_state": "file_system_state",
    "artifact_trail": "file_system_state",
    "recent_actions": "recent_actions",
    "current_plan": "current_plan",
    "task_state": "current_plan",
}
"""Section tags, including those of newer versions of the form, with the field that each fills."""


@dataclass(frozen=True, slots=True)
class SnapshotForm:
    """The state snapshot as a form: `<state_snapshot>` with five sections.

    Merging never loses knowledge, a file or an unfinished step. File states accumulate (created,
    then modified, is created), and steps take the newer status.
    """

    actions: int = 20
    """Maximum number of recent actions after a merge."""

    name = "state_snapshot"
    template = TEMPLATE

    def parse(self, text: str) -> Snapshot | None:
        """Return the snapshot in *text*, or None (see `read_snapshot`)."""
        return read_snapshot(text)

    def render(self, value: Snapshot) -> str:
        """Return the snapshot as XML."""
        return write_snapshot(value)

    def merge(self, previous: Snapshot | None, new: Snapshot) -> Snapshot:
        """Return *previous* merged with *new*."""
        if previous is None:
            return new
        actions = sections.latest_items((*previous.recent_actions, *new.recent_actions))
        return Snapshot(
            new.overall_goal or previous.overall_goal,
            sections.merge_items(previous.key_knowledge, new.key_knowledge),
            _merge_files(previous.file_system_state, new.file_system_state),
            actions[max(0, len(actions) - self.actions) :],
            sections.merge_items(previous.current_plan, new.current_plan, attrgetter("text")),
        )

    def shorten(self, value: Snapshot) -> Snapshot | None:
        """Return the value without its oldest action, else finished step, read file or fact."""
        steps, files = value.current_plan, value.file_system_state
        finished = next((step for step in steps if step.status == "done"), None)
        unchanged = next((file for file in files if file.state in {"read", "noted"}), None)
        if value.recent_actions:
            return replace(value, recent_actions=value.recent_actions[1:])
        if finished:
            return replace(value, current_plan=tuple(step for step in steps if step != finished))
        if unchanged:
            return replace(value, file_system_state=tuple(f for f in files if f != unchanged))
        knowledge = value.key_knowledge[1:]
        return replace(value, key_knowledge=knowledge) if knowledge else None


def write_snapshot(value: Snapshot) -> str:
    """Return a snapshot as XML. Its texts cannot open or close a tag."""
    rows = (
        ("overall_goal", value.overall_goal),
        ("key_knowledge", sections.bullet_list(value.key_knowledge)),
        ("file_system_state", sections.bullet_list(map(_file_line, value.file_system_state))),
        ("recent_actions", sections.bullet_list(value.recent_actions)),
        (
            "current_plan",
            sections.bullet_list(f"[{s.status.upper()}] {s.text}" for s in value.current_plan),
        ),
    )
    lines = ((name, f"{escape(text, quote=False)}\n" if text else "") for name, text in rows)
    body = "".join(f"<{name}>\n{line}</{name}>\n" for name, line in lines)
    return f"<{ROOT}>\n{body}</{ROOT}>"


def read_snapshot(text: str) -> Snapshot | None:
    """Return the snapshot in *text*. Return None without a goal section and at least one other, or
    if all are empty. Of several goals the first counts, and repeated sections are joined. Text and
    scratchpads around it, code fences, odd line breaks and unclosed tags are accepted (C0-10)."""
    answer = form.strip_scratchpads(text, form.opening_tag([ROOT, "overall_goal"]))
    root = form.element_content(answer, ROOT)
    bodies: dict[str, list[str]] = {}
    for tag, body in form.find_elements(answer if root is None else root, tuple(_TAGS)):
        bodies.setdefault(_TAGS[tag], []).append(form.unescape(body))
    if "overall_goal" not in bodies or len(bodies) < 2:
        return None
    snapshot = Snapshot(
        next((goal for goal in bodies["overall_goal"] if sections.has_content(goal.strip())), ""),
        tuple(_section_items(bodies, "key_knowledge")),
        tuple(map(_read_file, _section_items(bodies, "file_system_state"))),
        tuple(_section_items(bodies, "recent_actions")),
        tuple(map(_read_step, _section_items(bodies, "current_plan"))),
    )
    return None if snapshot == Snapshot() else snapshot


def _section_items(bodies: dict[str, list[str]], section: str) -> Iterator[str]:
    items = (item.strip() for body in bodies.get(section, ()) for item in sections.list_items(body))
    return filter(None, items)


_STATE = re.compile(
    r"[\[(*`]{0,3}(created|read|modified|deleted|noted)[\])*`]{0,3}\s{0,4}[:：]?[*]{0,2}\s+",
    re.IGNORECASE,
)
_STATE_AFTER = re.compile(
    r"([^\s\"`]+)\s{0,4}(?:[:(\[-]|->|—)\s{0,4}(created|read|modified|deleted)\b[)\]]?",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[^\s\"`]*[^\s\"`:,;]")
_NOTE = re.compile(r"[:,;]?\s*(?:[-–—]\s|\s)?\s*")


def _file_line(file: File) -> str:
    path = file.path if _PLAIN.fullmatch(file.path) else json.dumps(file.path, ensure_ascii=False)
    return f"{file.state}: {path}" + (f" - {file.note}" if file.note else "")


def _read_file(line: str) -> File:
    if state := _STATE.match(line):
        path, rest = _split_path(line[state.end() :])
        if path:
            return File(path, state[1].lower(), rest)  # type: ignore[arg-type]  # as in the pattern
    if after := _STATE_AFTER.match(line):
        return File(after[1], after[2].lower(), _strip_dash(line[after.end() :]))  # type: ignore[arg-type]  # the same
    return File(line)


def _split_path(text: str) -> tuple[str, str]:
    """Return the path at the beginning of *text*, and the note after it."""
    if text.startswith('"'):
        try:
            path, end = json.JSONDecoder(strict=False).raw_decode(text)
        except ValueError:
            path, end = text.strip('"'), len(text)
        return str(path), _strip_dash(text[end:])
    if text.startswith("`") and (end := text.find("`", 1)) > 1:
        return text[1:end], _strip_dash(text[end + 1 :])
    match = _PLAIN.match(text)
    return (match[0], _strip_dash(text[match.end() :])) if match else (text.strip('`": '), "")


def _strip_dash(text: str) -> str:
    return _NOTE.sub("", text, count=1).strip()


def _merge_files(old: tuple[File, ...], new: tuple[File, ...]) -> tuple[File, ...]:
    """Return the files of both with their combined states, those of *new* last (conformance 43)."""
    files = {file.path: file for file in old}
    for file in new:
        if before := files.pop(file.path, None):
            state = before.state if file.state == "noted" else state_after(before.state, file.state)
            file = File(file.path, state, file.note or before.note)  # type: ignore[arg-type]  # noqa: PLW2901
        files[file.path] = file
    return tuple(files.values())


_MARK = re.compile(r"\[\s{0,2}([^\[\]\n]{0,20}?)\s{0,2}\]\s*|(✅|✔|☑|⏳|🔄|⬜|☐)\ufe0f?\s*")
_WORD = re.compile(
    r"(done|in[ _-]progress|todo|to do|pending|completed)\s{0,2}[:：]\s*", re.IGNORECASE
)
_MARK_AFTER = re.compile(
    r"(.*\S)\s*[\[(](done|in[ _-]progress|todo|pending|completed|已完成|进行中|待办)[\])]",
    re.DOTALL | re.IGNORECASE,
)
_STATUS: dict[str, Status] = {
    **dict.fromkeys(
        ["done", "x", "completed", "complete", "finished", "✅", "✔", "☑", "✓", "完成", "已完成"],
        "done",
    ),
    **dict.fromkeys(
        ["~", "active", "current", "doing", "wip", "⏳", "🔄", "进行中"], "in progress"
    ),
    **dict.fromkeys(["todo", "pending", "open", "⬜", "☐", "待办", "未开始", "待处理"], "todo"),
    "in progress": "in progress",
    "to do": "todo",
    "": "todo",
}


def _read_status(word: str) -> Status | None:
    return _STATUS.get(re.sub(r"[ _-]+", " ", word).strip().lower())


def _read_step(line: str) -> Step:
    """Return the step on a line. Its status may stand before or after the text, or be missing."""
    before = _MARK.match(line)
    if before and (status := _read_status(before[1] if before[2] is None else before[2])):
        return Step(line[before.end() :], status)
    if word := _WORD.match(line):
        return Step(line[word.end() :], _read_status(word[1]) or "todo")
    after = _MARK_AFTER.fullmatch(line)
    return Step(after[1], _read_status(after[2]) or "todo") if after else Step(line)
