"""What an earlier summary says that cannot be read from the original messages."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from refold.summarizers.heuristic.actions import Action, Actions
from refold.summarizers.heuristic.blocks import Block
from refold.summarizers.heuristic.calls import Todo, join_todos, state_after
from refold.summarizers.heuristic.excerpts import GAP
from refold.summarizers.heuristic.layout import (
    ANNOUNCED,
    CONVERSATION,
    LAST_TIME,
    LONGEST_FOLDER,
    MARKS,
    MOST_LEADS,
    NOT_TESTED,
    OMITTED,
    PLANNED,
    QUOTING,
    REPEATED,
    REQUESTS,
    STARTED,
    split_count,
    split_request,
)
from refold.summarizers.heuristic.lexicon import find_constraints
from refold.summarizers.heuristic.state import Failure, FileState, Request, State
from refold.summarizers.heuristic.steps import RUNNING
from refold.text.json_values import parse_or_none
from refold.text.plain import is_absolute
from refold.text.summary_wrapper import ASKED, split_record

LISTS = (*REQUESTS, "Rules", "Decisions", "Checks", "Done", "Failed", "Notes", "Open", "Files")
"""Sections that hold what a `State` does."""
LONG = 24
"""Characters of a request that is not made twice by chance."""
_ITEM = re.compile(r"^- (.*(?:\n++  .*)*)", re.MULTILINE)
_INDENT = re.compile(r"(?<!\n)\n++  ")
_TODO = re.compile(r"\[([ ~x])\] (?:#([\w-]{1,40}) )?(.+)", re.DOTALL)
_ERROR = re.compile(r"last error: (.*) \(([^()]*)\)", re.DOTALL)
_PLANNED = re.compile(rf"{PLANNED}(\d{{1,3}})")
_MADE = re.compile(rf"looked: |{PLANNED}|{STARTED}|{ANNOUNCED}|last error: |\[[ x~]\] |[^\n]* -> ")
_IN_SIGHT = re.compile(r"the answer \"[^\n]*\" is to: ")
_CUT = " characters …] "
_QUOTED = r"\"(?>(?:[^\"\\]|\\.?)*)\"?"
"""A JSON string; one that never closes goes to the end, so that no character is looked at again."""
_GROUP = r"([^\s\"{}]*+)\{([^\s\"{}]*+)\}(?:/(?:\{([^\s\"{}]*+)\}|([^\s\"{}]++)))?"
"""`folder/{a,b}`, `parent/{a,b}/{x,y}` or `parent/{a,b}/x`."""
_PATH = re.compile(rf"{_QUOTED}|{_GROUP}|[^\s\"]+", re.DOTALL)
_LABEL = re.compile(r"\[([^\]\n]{1,96})\] ")
"""What an exchange is about."""


@dataclass(slots=True)
class Earlier:
    """What summaries say of messages that are not here."""

    state: State = field(default_factory=State)
    blocks: list[Block] = field(default_factory=list)


def _split_sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield title and text of each section; what comes before the first heading has no title."""
    title, lines = "", list[str]()
    for line in text.split("\n"):
        if line.startswith("## "):
            yield title, "\n".join(lines)
            title, lines = line[3:].strip(), []
        else:
            lines.append(line)
    yield title, "\n".join(lines)


def drop_quotes(record: str) -> str:
    """Return a record without its sections that hold nothing but what messages say."""
    own = (row for row in _split_sections(record) if row[0] and not row[0].startswith(QUOTING))
    return "\n".join(f"## {title}\n{body}" for title, body in own)


def iter_items(title: str, body: str) -> Iterator[str]:
    """Yield list items with their indented lines, as they were before they were indented."""
    for match in _ITEM.finditer(body):
        item = _INDENT.sub("\n", match[1])
        yield from split_rules(item) if title == "Rules" else [item]


def split_rules(item: str, most: int = MOST_LEADS) -> Iterator[str]:
    """Yield the rules of an item of a list in which the same words introduce several, as lists in
    one another, at *most* so many."""
    lead, *led = item.split("\n- ") if most else [item]
    space = " " if lead.endswith(":") else ""
    for rule in led:
        rules = split_rules(rule.replace("\n  ", "\n"), most - 1)
        yield from (f"{lead}{space}{text}" for text in rules)
    if not led:
        yield item


# --- summaries whose messages are not here ------------------------------------------------------


def read_given(texts: Iterable[str]) -> Earlier:
    """Return what summaries say, oldest first. What is not in the form of a rule summary, such as a
    model's words or a person's, becomes a note. Never raises."""
    earlier = Earlier()
    for text in texts:
        words, record = split_record(text) or ("", text)
        earlier.state.notes += filter(None, [words])
        for title, body in _split_sections(record):
            _take_section(earlier, title, body)
    return earlier


def _take_section(earlier: Earlier, title: str, body: str) -> None:
    items = [item for item in iter_items(title, body) if not item.endswith(OMITTED)]
    state = earlier.state
    match title:
        case _ if title in REQUESTS:
            for words, times, questions in map(split_request, items):
                state.questions.update({words: questions} if questions else {})
                before = state.requests.pop(words, Request(0))
                state.requests[words] = Request(before.times + times)
                if _CUT not in words:
                    state.constraints |= dict.fromkeys(find_constraints(words))
        case "Rules":
            state.constraints |= dict.fromkeys(items)
        case "Decisions":
            state.decisions |= dict.fromkeys(items, 3.0)
        case "Checks":
            rows = (item.partition(" -> ") for item in items)
            state.checks |= {command: outcome for command, arrow, outcome in rows if arrow}
        case "Done":
            state.actions.done |= _read_actions(items)
        case "Failed":
            state.actions.failed |= _read_actions(items)
        case "Files":
            state.files |= _read_files(body)
        case "Open":
            _take_open(state, items)
        case "Notes":
            state.notes += items
        case _ if title.startswith(QUOTING):
            read = _read_conversation if title == CONVERSATION else _read_excerpts
            earlier.blocks += read(body.split("\n"))
        case _ if words := body.strip():
            state.notes.append(f"{title}\n{words}" if title else words)


def _read_actions(items: Iterable[str]) -> Iterator[tuple[str, Action]]:
    for item in items:
        call, arrow, outcome = item.partition(" -> ")
        if arrow:
            words, times = split_count(call)
            yield words, Action(outcome.removeprefix(LAST_TIME), times)


def _read_files(body: str) -> Iterator[tuple[str, FileState]]:
    root = ""
    for line in body.split("\n"):
        title, colon, rest = line.partition(": ")
        if title == "root":
            root = rest
        elif colon:
            marks = title.split(", ")
            for path in read_paths(rest):
                yield (
                    path if is_absolute(path) else root + path,
                    FileState(marks[0], "committed" in marks, NOT_TESTED not in marks),
                )


def read_paths(line: str) -> Iterator[str]:
    """Yield the paths of a line, groups written out."""
    for match in _PATH.finditer(line):
        folder, beside, names, name = match.groups()
        if match[0].startswith('"'):
            value = parse_or_none(match[0])
            yield value if isinstance(value, str) else match[0].strip('"')
        elif folder is None or len(folder) > LONGEST_FOLDER:
            yield match[0]
        elif not (names or name):
            yield from (folder + path for path in beside.split(","))
        elif len(beside) + len(folder) * beside.count(",") > LONGEST_FOLDER:
            yield match[0]
        else:
            paths = (names or name).split(",")
            yield from (f"{folder}{last}/{path}" for last in beside.split(",") for path in paths)


def _take_open(state: State, items: Iterable[str]) -> None:
    statuses = {mark: status for status, mark in MARKS.items()}
    todos = list[Todo]()
    for item in items:
        if match := _TODO.fullmatch(item):
            todos.append(Todo(match[3].lstrip(), statuses[match[1]], match[2] or ""))
        elif match := _ERROR.fullmatch(item):
            state.failure = Failure(match[2], match[1])
        elif match := _PLANNED.fullmatch(item):
            state.plan_age = int(match[1])
        elif item.startswith(STARTED):
            words, times = split_count(item.removeprefix(STARTED))
            state.actions.done[words] = Action(RUNNING, times)
        elif not _IN_SIGHT.match(item):
            state.next_step = item.removeprefix(ANNOUNCED)
    state.todos = tuple(todos) or state.todos


def _read_excerpts(rows: Sequence[str]) -> Iterator[Block]:
    heading, text = "earlier", list[str]()
    for row in (*rows, "### "):
        if not row.startswith("### "):
            text.append(row)
            continue
        if text:
            yield Block(0, "read", heading, "\n".join(text))
        heading, text = row[4:].removesuffix(" (modified since)"), []


def _read_conversation(rows: Sequence[str]) -> Iterator[Block]:
    label = ""
    for row in filter(None, rows):
        if not row.startswith("  "):
            label = match[1] if (match := _LABEL.match(row)) else ""
        words = row.strip().removeprefix(f"[{label}] ")
        words = words[2:] if row.startswith(("- ", GAP)) else words
        kind = "asked" if words.startswith(ASKED) else "said"
        yield Block(0, kind, label, words.removeprefix(ASKED))


def join_states(old: State, new: State) -> State:
    """Return the state after both; the later holds where they disagree."""
    requests = {
        words: before for words, before in old.requests.items() if words not in new.requests
    }
    for words, request in new.requests.items():
        times = old.requests.get(words, Request(0)).times, request.times
        is_retold = len(words) >= LONG  # a long one that is shown again was not made again
        requests[words] = request._replace(times=max(times) if is_retold else sum(times))
    files = {path: file for path, file in old.files.items() if path not in new.files}
    for path, file in new.files.items():
        before = old.files.get(path)
        is_kept = before is not None and file.state == "read" and before.state != "deleted"
        if before is None or is_kept:
            files[path] = before or file
        else:
            after = state_after(before.state, file.state)
            files[path] = FileState(after, file.is_committed, file.is_checked)
    return replace(
        new,
        requests=requests,
        questions=old.questions | new.questions,
        constraints=old.constraints | new.constraints,
        files=files,
        checks=old.checks | new.checks,
        actions=Actions(
            old.actions.done | new.actions.done,
            old.actions.failed | new.actions.failed,
        ),
        todos=join_todos(old.todos, new.todos),
        plan_age=new.plan_age + (0 if new.todos else old.plan_age),
        failure=new.failure if new.failure.error or new.checks else old.failure,
        next_step=new.next_step or ("" if new.requests else old.next_step),
        decisions=old.decisions | new.decisions,
        notes=[*old.notes, *new.notes],
    )


# --- summaries whose messages are here ----------------------------------------------------------


def read_amendments(text: str, state: State) -> list[str]:
    """Return the words of an earlier summary that we did not write: a person's amendment, a model's
    text. *state* is that of the messages which it stands for.

    Excerpts and lists end at a blank line; a section that lists holds what *state* does.
    """
    words, record = split_record(text) or ("", text)
    requests = {request.media + words for words, request in state.requests.items()}
    own = {*requests, *state.constraints, *state.ended, *state.decisions, *state.notes}
    amendments = [words]
    for title, body in _split_sections(record):
        if title.startswith("Excerpts") or title in LISTS:
            amendments.append(body.partition("\n\n")[2])
        if title == "Files" or title.startswith(QUOTING):
            continue
        if title in LISTS:
            items = (split_request(item)[0] for item in iter_items(title, body))
            amendments += (item for item in items if item not in own and not _is_ours(item))
        else:
            amendments.append(body)
    return [text.strip() for text in amendments if text.strip()]


def _is_ours(item: str) -> bool:
    """Is an item one that we write, or one that was cut to its room?"""
    is_cut = any(mark in item for mark in (_CUT, REPEATED, OMITTED))
    return is_cut or bool(_MADE.match(item) or _IN_SIGHT.match(item))
