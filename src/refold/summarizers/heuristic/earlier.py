"""Contents of earlier summaries that the original messages do not have."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from refold.speakers.carriers import split_marker
from refold.summarizers.heuristic.actions import WORKED, Action
from refold.summarizers.heuristic.blocks import Block, find_kind
from refold.summarizers.heuristic.calls import CallEffect, Todo
from refold.summarizers.heuristic.excerpts import GAP
from refold.summarizers.heuristic.identifiers import read_paths
from refold.summarizers.heuristic.layout import (
    ANNOUNCED,
    CONVERSATION,
    LAST_TIME,
    MARKS,
    MOST_LEADS,
    NOT_TESTED,
    OMITTED,
    PARTS,
    PLAN,
    PLANNED,
    QUOTING,
    REPEATED,
    REQUESTS,
    STARTED,
    TASK,
    split_count,
    split_request,
)
from refold.summarizers.heuristic.lexicon import find_constraints
from refold.summarizers.heuristic.state import (
    ANSWERED,
    Failure,
    FileState,
    Request,
    State,
    note_decision,
)
from refold.summarizers.heuristic.steps import RUNNING
from refold.text.plain import is_absolute
from refold.text.summary_wrapper import CUT, PERSON_PREFIX, PLACE, split_record

LISTS = (*REQUESTS, "Rules", "Decisions", "Checks", "Done", "Failed", "Notes", "Open", "Files")
"""Titles of sections that list what a `State` holds."""
LONG = 24
"""Minimum characters of a request that nobody makes twice by chance."""
_ITEM = re.compile(r"^- (.*(?:\n++  .*)*)", re.MULTILINE)
_INDENT = re.compile(r"(?<!\n)\n++  ")
_TODO = re.compile(r"\[([ ~x])\] (?:#([\w-]{1,40}) )?(.+)", re.DOTALL)
_ERROR = re.compile(r"last error: (.*) \(([^()]*)\)", re.DOTALL)
_PLANNED = re.compile(rf"{PLANNED}(\d{{1,9}})")
_MADE = re.compile(rf"looked: |{PLANNED}|{STARTED}|{ANNOUNCED}|last error: |\[[ x~]\] |[^\n]* -> ")
_IN_SIGHT = re.compile(r"the answer \"[^\n]*\" is to: ")
_OMITTED = re.compile(rf"\[… (\d{{1,9}}){re.escape(OMITTED)}")
_STALE = re.compile(r" \((?:modified|may differ: something else changed it) since\)")
"""Suffix of the name of a file that was changed after the quoted text."""
_BETWEEN = re.compile(r"\s?(?<!\.)\.\.(?:\s|\Z)")
"""Mark where clauses are left out."""
_LABEL = re.compile(r"\[([^\]\n]{1,96})\] ")
"""Topic of an exchange."""


@dataclass(slots=True)
class Earlier:
    """Contents of summaries whose messages are missing."""

    state: State = field(default_factory=State)
    blocks: list[Block] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)
    """Files that were changed after the quoted text."""
    plan: str = ""
    """The plan that a person approved last."""


def _split_sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield title and text of each section. Text before the first heading has an empty title."""
    title, lines = "", list[str]()
    for line in text.split("\n"):
        if line.startswith("## "):
            yield title, "\n".join(lines)
            title, lines = line[3:].strip(), []
        else:
            lines.append(line)
    yield title, "\n".join(lines)


def drop_quotes(record: str) -> str:
    """Return a record without the sections that only quote messages and text without a section."""
    own = (row for row in _split_sections(record) if row[0] and not row[0].startswith(QUOTING))
    return "\n".join(f"## {title}\n{body}" for title, body in own)


def iter_items(title: str, body: str) -> Iterator[str]:
    """Yield list items without the indentation of their further lines. Nested rules and decisions
    are split."""
    for match in _ITEM.finditer(body):
        item = _INDENT.sub("\n", match[1])
        yield from split_rules(item) if title in {"Rules", "Decisions"} else [item]


def split_rules(item: str, most: int = MOST_LEADS) -> Iterator[str]:
    """Yield the rules of a list item. Rules with a common introduction are nested under it, at
    *most* that many levels deep."""
    lead, *led = item.split("\n- ") if most else [item]
    space = " " if lead.endswith(":") else ""
    for rule in led:
        rules = split_rules(rule.replace("\n  ", "\n"), most - 1)
        yield from (f"{lead}{space}{text}" for text in rules)
    if not led:
        yield item


# --- summaries whose messages are missing -------------------------------------------------------


def read_earlier_summaries(texts: Iterable[str]) -> Earlier:
    """Return the contents of summaries, oldest first. Text that is not in the form of a rule
    summary, such as a model's or a person's, becomes a note. Never raises."""
    earlier = Earlier()
    for text in texts:
        words, record = split_record(text) or ("", text)
        earlier.state.notes += filter(None, [words])
        for title, body in _split_sections(record):
            _take_section(earlier, title, body)
    return earlier


def _take_section(earlier: Earlier, title: str, body: str) -> None:
    items, state = [*iter_items(title, body)], earlier.state
    match title:
        case _ if title in REQUESTS:
            for words, times, questions in map(split_request, items):
                if omitted := _OMITTED.fullmatch(words):
                    state.omitted += int(omitted[1])
                    continue
                state.questions.update({words: questions} if questions else {})
                before = state.requests.pop(words, Request(0))
                state.requests[words] = Request(before.times + times)
                state.requests_from_summary.update([words] if len(words) >= LONG else [])
                # Text next to a cut may be a part of a rule.
                rules = find_constraints(CUT.sub("\0", words))
                state.constraints |= dict.fromkeys(rule for rule in rules if "\0" not in rule)
        case "Rules":
            state.constraints |= dict.fromkeys(items)
        case "Decisions":
            for item in items:
                note_decision(state, item, ANSWERED if item.startswith(PERSON_PREFIX) else 3.0)
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
        case _ if title == CONVERSATION:
            earlier.blocks += _read_conversation(body.split("\n"))
        case _ if title.startswith(TASK):
            _take_task(earlier, title.removeprefix(TASK), body)
        case _ if title.startswith(QUOTING):
            for block, is_stale in _read_excerpts(body.split("\n"), state.files):
                earlier.blocks.append(block)
                earlier.stale |= {block.path} if is_stale else set()
        case _ if words := body.strip():
            state.notes.append(f"{title}\n{words}" if title else words)


def _take_task(earlier: Earlier, heading: str, text: str) -> None:
    source = _STALE.sub("", heading)
    path = source if (source := source.removesuffix(PARTS)) in earlier.state.files else ""
    if source == PLAN:
        earlier.plan = text
    else:
        earlier.blocks.append(Block(0, "task", path or heading, text, path))
        earlier.stale |= {path} if _STALE.search(heading) else set()


def _read_actions(items: Iterable[str]) -> Iterator[tuple[str, Action]]:
    for item in items:
        call, arrow, outcome = item.partition(" -> ")
        if arrow:
            words, times = split_count(call)
            rank = 0 if outcome.endswith(WORKED) else 2
            yield words, Action(outcome.removeprefix(LAST_TIME), times, rank)


def _read_files(body: str) -> Iterator[tuple[str, FileState]]:
    root = ""
    for line in body.split("\n"):
        title, colon, rest = line.partition(": ")
        if title == "root":
            root = rest
        elif colon:
            state, *marks = title.split(", ")
            in_commit = state if "committed" in marks else ""
            for path in read_paths(rest):
                yield (
                    path if is_absolute(path) else root + path,
                    FileState(
                        state,
                        bool(in_commit),
                        NOT_TESTED not in marks,
                        in_commit=in_commit.replace("deleted", ""),
                        is_new=state == "created" and not in_commit,
                    ),
                )


def _take_open(state: State, items: Iterable[str]) -> None:
    statuses = {mark: status for status, mark in MARKS.items()}
    todos = list[Todo]()
    for item in items:
        if match := _TODO.fullmatch(item):
            todos.append(Todo(match[3].lstrip(), statuses[match[1]], match[2] or ""))
        elif match := _ERROR.fullmatch(item):
            error, call = match.groups()
            state.failure = Failure(call, error)
            if " " in call and not call.endswith("…"):  # a later error may replace it
                state.actions.failed[call] = Action(error)
        elif match := _PLANNED.fullmatch(item):
            state.plan_age = int(match[1])
        elif item.startswith(STARTED):
            words, times = split_count(item.removeprefix(STARTED))
            state.actions.done[words] = Action(RUNNING, times)
        elif not _IN_SIGHT.match(item):
            state.next_step = item.removeprefix(ANNOUNCED)
    state.todos = tuple(todos) or state.todos


def _read_excerpts(rows: Sequence[str], files: Collection[str]) -> Iterator[tuple[Block, bool]]:
    """Yield the quoted text of each file, command and tool, and whether the file was changed since.
    *files* are the known paths."""
    heading, text = "### earlier", list[str]()
    for row in (*rows, "### "):
        if not row.startswith("### "):
            text += [] if row.startswith(PLACE) else [row]
            continue
        if text:
            source = _STALE.sub("", heading[4:])
            path = source if source in files else ""
            kind = find_kind(CallEffect(""), path, "") if path else "read"
            yield Block(0, kind, source, "\n".join(text), path), source != heading[4:]
        heading, text = row, []


def _read_conversation(rows: Iterable[str]) -> Iterator[Block]:
    label = ""
    for row in filter(None, rows):
        if not row.startswith("  "):
            label = match[1] if (match := _LABEL.match(row)) else ""
        words = row.strip().removeprefix(f"[{label}] ")
        words = words[2:] if row.startswith(("- ", GAP)) else words
        kind = "asked" if words.startswith(PERSON_PREFIX) else "said"
        sender, words = split_marker(words.removeprefix(PERSON_PREFIX))
        pieces = _BETWEEN.split(CUT.sub(" .. ", words))
        yield from (Block(0, kind, label, piece, sender=sender) for piece in pieces if piece)


# --- summaries whose messages are known ---------------------------------------------------------


def read_amendments(text: str, state: State) -> list[str]:
    """Return the text in an earlier summary that Refold did not write: a person's amendments, a
    model's words. *state* is the state of the messages that it covers.

    Text after a blank line in excerpts and lists counts, and so do list items not in *state*.
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
    """Return whether Refold wrote an item, perhaps cut to fit."""
    is_cut = bool(CUT.search(item)) or any(mark in item for mark in (REPEATED, OMITTED))
    return is_cut or bool(_MADE.match(item) or _IN_SIGHT.match(item))
