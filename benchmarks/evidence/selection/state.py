"""Where the work stands: what is wanted, by which rules, what was changed, checked and left open."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from refold.messages import Message, Text, ToolCall, ToolResult
from refold.speakers import current_request, own_words, segment_messages
from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.calls import (
    CallEffect,
    effect_of_call,
    error_line,
    looks_failed,
    outcome_of,
)
from refold.summarizers.heuristic.cues import find_conclusions, find_constraints, without_pasted
from refold.summarizers.heuristic.digest import Todo, state_after
from refold.summarizers.heuristic.layout import group_paths
from refold.summarizers.heuristic.words import clip_scanned, one_line, sentences

Cost = Callable[[str], int]
"""Tokens of a text."""
LONGEST_COMMAND = 110
MOST_CHECKS = 5
READ_FILES = 250
"""Tokens of the paths of files that were only read, the last read first to stay."""
MOST_DONE = 4
REQUEST_SHARE = 0.35
"""The share of the room that the latest request may take; an equal share the earlier ones together."""
SHOWN_REQUEST = 60
"""Tokens of a request that stands word for word beside the summary."""
LEAST = 24
"""Tokens below which a text is left out rather than cut."""

_FIGURES = re.compile(
    r"\b\d[\d,.]*\s{0,2}(?:\w{1,12}\s{1,2})?(?:pass|fail|test|error|warning|example|assert|spec|check|ok\b|skipped)"
    r"|\b(?:passed|failed|errors?|warnings?|tests?)\s{0,2}[:=]\s{0,2}\d|[1-9]\d*\s*[个項项].{0,8}(?:通过|失败|测试)",
    re.IGNORECASE,
)
_COMMIT = re.compile(r"\bgit\s+(?:-\S+\s+\S+\s+)?commit\b")
_COMMITTED = re.compile(r"^\[[^\]\n]{1,100}\s([0-9a-f]{6,40})\]\s(.*)$", re.MULTILINE)
_CHECK = re.compile(
    r"\b(?:test|tests|pytest|jest|vitest|mocha|rspec|check|lint|credo|ruff|mypy|tsc|eslint|clippy|build|compile|"
    r"cargo|go (?:test|vet|build)|make|gradle|mvn|tox|nox|dialyzer)\b"
)
_ANNOUNCED = re.compile(
    r"^(?:now|next|then|let me|let's|i'll|i will|i need to|i'm going to|time to|现在|接下来|下一步|然后|让我|我来|我将)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class FileState:
    """What became of one file."""

    state: str
    """`read`, `created`, `modified` or `deleted`."""
    is_committed: bool = False
    is_checked: bool = False
    """Did a test or build run since it was changed?"""


@dataclass(slots=True)
class State:
    """What a successor needs to know before anything else."""

    requests: list[str] = field(default_factory=list)
    is_request_shown: bool = False
    """Does the latest request stand word for word beside the summary?"""
    constraints: dict[str, None] = field(default_factory=dict)
    files: dict[str, FileState] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    """The outcome of each test, build or commit, the last run last."""
    todos: tuple[Todo, ...] = ()
    error: str = ""
    """The last failure that nothing mended yet."""
    failed: str = ""
    """The command or tool that it is of."""
    next_step: str = ""
    """What the model announced last."""
    decisions: dict[str, float] = field(default_factory=dict)
    """Sentences that decide or explain, with their weights."""
    notes: list[str] = field(default_factory=list)
    """Words of earlier summaries that no message holds: a model's, or a user's amendments."""


def read_state(messages: Sequence[Message], later: Sequence[Message] = ()) -> State:
    """Read where the work stands after *messages*, in one pass; *later* are those that follow."""
    state, pending = State(), dict[str, CallEffect]()
    segments = segment_messages((*messages, *later))
    asked = current_request((*messages, *later), segments)
    state.is_request_shown = any(at < len(messages) for at in asked)
    for message, spoken in zip(messages, segments, strict=False):
        for segment in spoken:
            if segment.voice == "person" and (words := own_words(segment)):
                _note_request(state, words)
        for part in message.parts:
            match part:
                case ToolCall():
                    pending[part.id] = effect = effect_of_call(part)
                    state.todos = effect.todos if effect.todos is not None else state.todos
                case ToolResult():
                    effect = pending.pop(part.id, CallEffect(part.name or "tool"))
                    _note_result(state, effect, part.text, is_error=part.error)
                case Text() if message.role == "assistant":
                    _note_answer(state, part.text, is_final=not message.calls)
                case _:
                    pass
    return state


def _note_request(state: State, words: str) -> None:
    if words in state.requests:
        state.requests.remove(words)
    state.requests.append(words)
    for rule in find_constraints(without_pasted(words)):
        state.constraints.pop(rule, None)
        state.constraints[rule] = None


def _note_answer(state: State, text: str, *, is_final: bool) -> None:
    text = clip_scanned(text)
    announced = [s for s in sentences(text) if _ANNOUNCED.match(s)]
    if announced or is_final:
        state.next_step = one_line(announced[-1], 200) if announced and not is_final else ""
    for weight, sentence in find_conclusions(text, final=is_final):
        state.decisions.pop(sentence, None)
        state.decisions[sentence] = weight


def _note_result(state: State, effect: CallEffect, text: str, *, is_error: bool) -> None:
    outcome = outcome_of(text, error=is_error)
    command = shell.name_command(effect.command) if effect.command else ""
    is_work = bool(command) and shell.is_work(effect.command)
    if is_work and outcome == "ok" and looks_failed(text):
        outcome = "failed"
    if outcome == "ok" or not is_error:
        _note_files(state, effect.files)
    if is_work and (_CHECK.search(command) or _COMMIT.search(command)):
        name = one_line(command, LONGEST_COMMAND)
        state.checks.pop(name, None)
        state.checks[name] = _outcome_line(command, text, outcome)
        if outcome == "ok" and _COMMIT.search(command):
            _mark(state, is_committed=True)
        elif _CHECK.search(command):
            _mark(state, is_checked=True)
    name = command or effect.tool
    if outcome != "ok" and (is_error or is_work):
        state.failed, state.error = one_line(name, 60), error_line(text)
    elif outcome == "ok" and name.split()[:2] == state.failed.split()[:2]:
        state.failed = state.error = ""


def _note_files(state: State, files: Iterable[tuple[str, str]]) -> None:
    for path, now in files:
        before = state.files.pop(path, None)
        after = state_after(before.state if before else None, now)
        is_change = now != "read"
        state.files[path] = FileState(
            after,
            is_committed=before is not None and before.is_committed and not is_change,
            is_checked=before is not None and before.is_checked and not is_change,
        )


def _mark(state: State, *, is_committed: bool = False, is_checked: bool = False) -> None:
    for file in state.files.values():
        if file.state != "read":
            file.is_committed |= is_committed
            file.is_checked |= is_checked


def _outcome_line(command: str, text: str, outcome: str) -> str:
    """The line with the figures of a test run; of a commit its hash and subject."""
    if outcome == "ok" and _COMMIT.search(command) and (match := _COMMITTED.search(text)):
        return f"{match[1]} {one_line(match[2], 100)}"
    rows = [row.strip() for row in clip_scanned(text).split("\n") if row.strip()]
    figures = [row for row in rows if len(row) < 300 and _FIGURES.search(row)]
    if outcome != "ok" and not figures:
        return f"{outcome}: {error_line(text)}"
    line = figures[-1] if figures else ""
    return f"{outcome}: {one_line(line, 120)}" if line else outcome


# --- as text ------------------------------------------------------------------------------------


def render_state(state: State, room: int, cost: Cost) -> str:
    """Write *state* in at most *room* tokens; what matters most is given room first."""
    parts: dict[str, str] = {}
    for title, make, share in (
        ("Latest request", _latest_request, REQUEST_SHARE),
        ("Rules", _rules, 0.5),
        ("Notes", _notes, 0.5),
        ("State", _files, 0.5),
        ("Open", _open, 0.6),
        ("Checks", _checks, 0.5),
        ("Earlier requests", _earlier_requests, 0.7),
        ("Decisions", _decisions, 0.6),
    ):
        lines = list(make(state, int(room * share) - 4, cost))
        if lines:
            parts[title] = f"## {title}\n" + "\n".join(lines)
            room -= cost(parts[title])
    order = (
        "Earlier requests",
        "Latest request",
        "Rules",
        "State",
        "Checks",
        "Open",
        "Decisions",
        "Notes",
    )
    return "\n".join(parts[title] for title in order if title in parts)


def _item(text: str) -> str:
    """A text as a list item; later lines are indented, so that none can pass for a heading."""
    return "- " + text.replace("\n", "\n  ")


def _cut(text: str, room: int, cost: Cost) -> str:
    """*text* if it fits, else its beginning and end with a mark between; empty if too little fits."""
    if cost(text) <= room:
        return text
    if room < LEAST:
        return ""
    size = int(len(text) * room / cost(text) * 0.9)
    while size > 20:
        short = f"{text[: size * 2 // 3]} [… {len(text) - size} characters …] {text[-size // 3 :]}"
        if cost(short) <= room:
            return short
        size = int(size * 0.8)
    return ""


def _latest_request(state: State, room: int, cost: Cost) -> Iterator[str]:
    room = min(room, SHOWN_REQUEST) if state.is_request_shown else room
    if state.requests and (text := _cut(_item(state.requests[-1]), room, cost)):
        yield text


def _earlier_requests(state: State, room: int, cost: Cost) -> Iterator[str]:
    """The first, which is the task, then the newest that fit; in order."""
    earlier = [_item(text) for text in state.requests[:-1]]
    chosen = dict[int, str]()
    for at in (0, *range(len(earlier) - 1, 0, -1)):
        if at < len(earlier) and (text := _cut(earlier[at], room, cost)):
            room -= cost(text) + 1
            chosen[at] = text
    return (chosen[at] for at in sorted(chosen))


def _fitting(lines: Iterable[str], room: int, cost: Cost) -> list[str]:
    chosen = list[str]()
    for line in lines:
        room -= cost(line) + 1
        if room < 0:
            break
        chosen.append(line)
    return chosen


def _rules(state: State, room: int, cost: Cost) -> Iterator[str]:
    newest = map(_item, reversed(state.constraints))
    return reversed(_fitting(newest, room, cost))


def _notes(state: State, room: int, cost: Cost) -> Iterator[str]:
    for note in reversed(state.notes):
        if text := _cut(_item(note), room, cost):
            room -= cost(text) + 1
            yield text


def _files(state: State, room: int, cost: Cost) -> Iterator[str]:
    """Changed files by state, the last changed first to stay, under one root."""
    changed = {path: file for path, file in state.files.items() if file.state != "read"}
    root = _root_of([path for path in state.files if path.startswith("/")])
    if root:
        yield f"root: {root}"
        room -= cost(root) + 3
    groups: dict[str, list[str]] = {}
    for path, file in reversed(changed.items()):
        name = path.removeprefix(root)
        room -= cost(name) + 1
        if room < 0:
            break
        title = file.state + (", committed" if file.is_committed else "")
        title += "" if file.is_checked or file.is_committed else ", not tested since"
        groups.setdefault(title, []).append(name)
    room = min(room, READ_FILES)
    for path in reversed([path for path in state.files if path not in changed]):
        name = path.removeprefix(root)
        room -= cost(name) + 1
        if room < 0:
            break
        groups.setdefault("read", []).append(name)
    for title, names in groups.items():
        yield f"{title}: {' '.join(group_paths(names[::-1]))}"


def _root_of(paths: Sequence[str]) -> str:
    """The folder that most of the absolute paths share."""
    counts: dict[str, int] = {}
    for path in paths:
        folders = path.split("/")[:-1]
        for depth in range(3, len(folders) + 1):
            folder = "/".join(folders[:depth]) + "/"
            counts[folder] = counts.get(folder, 0) + 1
    shared = [folder for folder, count in counts.items() if count > 1 and count >= 0.6 * len(paths)]
    return max(shared, key=len, default="")


def _open(state: State, room: int, cost: Cost) -> Iterator[str]:
    marks = {"pending": " ", "active": "~", "done": "x"}
    active = [todo for todo in state.todos if todo.status == "active"]
    pending = [todo for todo in state.todos if todo.status == "pending"]
    done = [todo for todo in state.todos if todo.status == "done"][-MOST_DONE:]
    lines = [f"- [{marks[todo.status]}] {one_line(todo.text, 200)}" for todo in (*active, *pending)]
    if state.next_step:
        lines.insert(len(active), f"- announced next: {state.next_step}")
    if state.error:
        lines.append(f"- last error: {state.error} ({state.failed})")
    lines += [f"- [x] {one_line(todo.text, 120)}" for todo in done]
    yield from _fitting(lines, room, cost)


def _checks(state: State, room: int, cost: Cost) -> Iterator[str]:
    newest = list(state.checks.items())[-MOST_CHECKS:]
    lines = [f"- {command} -> {outcome}" for command, outcome in reversed(newest)]
    return reversed(_fitting(lines, room, cost))


def _decisions(state: State, room: int, cost: Cost) -> Iterator[str]:
    """The weightiest sentences, later ones first among equals; in order."""
    ranked = sorted(
        enumerate(state.decisions.items()), key=lambda row: (row[1][1] + row[0] / 50, row[0])
    )
    chosen = list[tuple[int, str]]()
    for at, (sentence, _) in reversed(ranked):
        price = cost(sentence) + 3
        if price <= room:
            room -= price
            chosen.append((at, _item(sentence)))
    return (line for _, line in sorted(chosen))
