"""The contents of a conversation as blocks of lines, each with its file, command or speaker."""

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from math import log
from operator import attrgetter
from typing import Any, NamedTuple

from refold.speakers.carriers import IN_RESULT, NOT_RUN, split_marker
from refold.speakers.segments import is_fragment
from refold.summarizers.heuristic.actions import is_agent, write_title
from refold.summarizers.heuristic.answers import find_retraction
from refold.summarizers.heuristic.calls import EXIT_PLAN_TOOL, CallEffect, is_look
from refold.summarizers.heuristic.lexicon import (
    MAX_SENTENCE,
    WISHING,
    Statement,
    cut_words,
    find_leads,
    find_notes,
    is_binding,
    iter_statements,
    without_handles,
)
from refold.summarizers.heuristic.shell_words import PATCH_BEGINS, has_more, name_command
from refold.summarizers.heuristic.steps import Step, is_stub
from refold.text.clip import SENTENCE_END, clip_scanned, one_line, split_line, without_mark
from refold.text.failures import find_error_lines
from refold.text.json_values import iter_json_lines, parse_or_none, spell_cut
from refold.text.plain import Span, count_bytes, is_question, iter_spans, iter_stretches, terms
from refold.text.summary_wrapper import CUT

Kind = str
"""From tools `task`, `read`, `docs`, `source`, `written` or `run` (searches and subagents, too);
from the model `finding` (beside a call) or `said` (ends a turn); from people `asked`, `given` (a
document), `command` (a template's text) or `latest` (the request that stays visible)."""
LONGEST_LINE = 200
"""Maximum characters of a line. A longer one is split."""
_ENDS = (",", ";", "。", "；", "，", "、", " ")
LONGEST_OUTPUT = 2_000
"""Maximum characters of a command's output. Of more, a list or a log, only errors are quoted."""
MAX_JSON = 400_000
"""Maximum characters of a tool's answer that are parsed."""
MOST_ALIKE = 50
"""Maximum number of lines that differ only in digits. Of more, three are shown."""
LOGS = (".output", ".log")
"""Suffixes of files with a command's output."""
LONGEST_SUBJECT = 80
"""Maximum characters of a heading, or a list item, before the text below it."""
BRIEF_BYTES = 80
"""Bytes up to which a person's message is quoted whole in a chat, as parts would mislead."""
LEAST_WORDS = 3
"""Minimum number of words in a line."""

_NUMBERED = re.compile(r"\s{0,20}(\d{1,7})(?:[→\t]|[a-z]{2}\||(?: ?\||:(?!\d))\s?)(.*)", re.DOTALL)
"""A line number and the line; `20:15:03` is a time."""
_NOTICES = re.compile(
    r"^\[\d+ more lines in file\b[^\n]{0,100}\]$|^REMINDER: You MUST include the sources [^\n]*$"
    r"|^\((?:Showing lines|End of file)\b[^\n]{0,100}\)$|^.*<response clipped><NOTE>.*$"
    r"|^[^\n]*+\n</output_head>\n<elided_chars>\n[^\n]*+\n</elided_chars>\n<output_tail>\n[^\n]*+$|^</warning><output_head>$",
    re.MULTILINE,
)
"""Notices of tools that read a part of a file (pi, OpenCode), show one (OpenHands), cut it
(mini-swe-agent) or search the web (Claude Code)."""
_CLIPPED = "<response clipped>"
"""Mark after which a tool's line numbers do not count the lines left out (OpenHands)."""
DIGITS = re.compile(r"(?<![0-9a-f])[a-f]*+\d[0-9a-f]*+")
"""A number or a hash."""
_WORD = re.compile(r"[^\W_]{2,}")
_KEY = re.compile(r"(?:^|(?<=, ))[\w.$@-]{1,80}: ")
_CLAUSE = re.compile(r"(?<=[，；])")
_TASKS = r"(?:issues?|tickets?|tasks?|plans?|spec(?:ification)?s?|stor(?:y|ies)|epics?|bd show|prd|roadmap|todo)"
_TASK = re.compile(rf"(?:^|[\W_]){_TASKS}(?:[\W_]|$)", re.IGNORECASE)
_TASK_FOLDER = re.compile(rf"(?:^|/)\.?{_TASKS}(?:/|$)", re.IGNORECASE)  # not todo-app, TASK-12
DOCS = re.compile(r"(?i)\.(?:mdx?|rst|txt|adoc)$|(?:^|[/\\])(?:README|CHANGELOG)[^/\\]*+$")
SOURCE = re.compile(
    r"\.(?:py|pyi|ipynb|jsx?|mjs|cjs|tsx?|vue|svelte|rs|go|java|kt|swift|scala|php|rb|lua|[ch]|cc|cpp|hpp|cs|exs?|sh|css|html?|sql)$"
)
_NO_TASK = re.compile(rf"{SOURCE.pattern}|template|(?:^|[/\\])logs?[/\\]", re.IGNORECASE)
"""Paths that look like a task's but are not."""
_SEARCH_TOOL = re.compile(r"grep|search|glob|find|list|^ls$", re.IGNORECASE)
_SHOWS = re.compile(r"show|view|get|describe|info|read")


class Line(NamedTuple):
    """One line of a block."""

    text: str
    number: int = 0
    """Line number in the file if the tool gave one, else 0; number of the clause in a message."""
    lead: str = ""
    """In prose the lines above that change its meaning (`Do NOT: `), in JSON its object's path."""
    top: str = ""
    """Heading that several lines may share: path and keys of a JSON object, `order_id: 17 › items ›
    sku | n:`, or the heading above a clause in a chat, `Day 2: `."""
    row: str = ""
    """The line below that heading: `A-1 | 2`."""
    retracts: bool = False
    """Whether a person takes back the message before with it."""
    values: str = ""
    """The values of a JSON object, without the keys that all of its kind have."""

    @property
    def words(self) -> str:
        """The line with its lead, to be read out of context."""
        return self.lead + without_mark(self.text) if self.lead else self.text

    @property
    def key(self) -> str:
        """Key to compare lines: without indentation, which tools add."""
        return self.text.strip()


COMMAND = "from a command's text"
DOCUMENT = 2_000
"""Characters above which a request holds a document and is quoted in lines."""


@dataclass(slots=True)
class Block:
    """The content of one tool result, call, request or answer."""

    at: int
    kind: Kind
    heading: str
    """The path, command, tool name or, in a chat, topic."""
    text: str
    path: str = ""
    is_in_clauses: bool = False
    """Whether a message is quoted in clauses, not in sentences."""
    sender: str = ""
    """Prefix that names the speaker if there are several."""
    command: str = ""
    """Full command of an output. The heading is its beginning."""

    def iter_lines(self) -> Iterator[Line]:
        """Yield the lines that say something; the sentences of messages."""
        text = clip_scanned(self.text)
        if not self.path and (value := _parse_json(self.text)) is not None:
            return _collapse_similar(list(_iter_record_lines(value)))
        match self.kind:
            case "asked" | "said" | "latest":
                text = CUT.sub("\n", text)
                is_asked = self.kind == "asked" and self.is_in_clauses
                retraction = find_retraction(text) if is_asked else ""
                is_whole = is_asked and count_bytes(text) <= BRIEF_BYTES and "\n" not in text
                head = text if is_whole else retraction
                rows, retracts = [*filter(None, _cut_line(head))], bool(retraction)
                clauses = _iter_spoken(
                    text[len(head) :], self.is_in_clauses, binds=self.kind != "said"
                )
                spoken = chain(((row, "", "") for row in rows), clauses)
                return (
                    Line(words, at, lead, top, words, retracts and at <= len(rows))
                    for at, (words, lead, top) in enumerate(spoken, 1)
                )
            case "read" if not self.path:
                return _collapse_similar([*iter_lines(text, is_prose=True)])
            case "task" | "given" | "docs" | "read" | "command":
                return iter_lines(text, is_prose=True)
            case "finding":
                return map(Line, find_notes(text))
            case _:
                return iter_lines(text)


@dataclass(slots=True)
class FileHistory:
    """How one file changed."""

    removed: dict[str, int] = field(default_factory=dict)
    """Keys of lines that an edit replaced, with the position of the edit."""
    changed_at: int = -1
    replaced_at: int = -1
    """Position at which the file was deleted or rewritten: its earlier text is gone."""
    changed_from: int = -1
    """Position of the first change since git restored it."""
    undone: list[int] = field(default_factory=list)
    """Start and end positions, in turn, of changes that git undid: text from between is gone."""

    def is_gone(self, at: int) -> bool:
        """Return whether the text that the file had at a position is gone."""
        return at < self.replaced_at or bisect(self.undone, at) % 2 == 1


@dataclass(slots=True)
class Work:
    """All blocks of a conversation, in order, and the histories of its files."""

    blocks: list[Block] = field(default_factory=list)
    files: dict[str, FileHistory] = field(default_factory=dict)
    commands: dict[str, int] = field(default_factory=dict)
    """Last position at which each command ran."""
    current: dict[str, frozenset[str]] = field(default_factory=dict)
    """Keys of all known current lines of each edited file."""

    def texts(self, kind: Kind) -> list[str]:
        """Return one text for each block of a *kind*: its lines, joined by spaces."""
        blocks = (block for block in self.blocks if block.kind == kind)
        return [" ".join(line.text for line in block.iter_lines()) for block in blocks]

    def read_lines(self, positions: Iterable[int]) -> dict[int, list[Line]]:
        """Return the lines of the blocks at *positions*, by position, without lines that are no
        longer in their file and older copies of a line of the same file."""
        seen, lines_at = dict[str, set[str]](), dict[int, list[Line]]()
        for position in sorted(positions, reverse=True):
            block = self.blocks[position]
            lines = list(block.iter_lines())
            if block.path or block.kind == "finding":
                newer = seen.setdefault(block.path or block.kind, set())
                history = self.files.get(block.path)
                removed = history.removed if history else {}
                current = self.current.get(block.path)
                if history and history.is_gone(block.at):
                    lines = []
                lines = [
                    line
                    for line in lines
                    if line.key not in newer
                    and removed.get(line.key, -1) <= block.at
                    and (current is None or not line.number or line.key in current)
                ]
                newer.update(line.key for line in lines)
            lines_at[position] = lines
        return lines_at


def read_work(steps: Iterable[Step]) -> Work:
    """Collect tool results, texts written by calls, and messages, in one pass."""
    work = Work()
    for step in steps:
        match step.kind:
            case "call" if step.command and PATCH_BEGINS not in step.command:
                work.commands[name_command(step.command)] = step.at
            case "result" if not step.effect.is_plan:  # the result of a plan adds nothing
                if step.has_effect:
                    _read_changes(work, step)
                work.blocks += _read_result(step)
            case "answer" if not step.is_final:
                work.blocks.append(Block(step.at, "finding", "", step.text))
            case "answer" | "request" if not is_fragment(step.text):
                work.blocks.append(_read_words(step))
    return work


def _read_words(step: Step) -> Block:
    if step.kind == "answer":
        return Block(step.at, "said", "", step.text)
    was_in_result = step.text.startswith(IN_RESULT)
    if was_in_result or step.is_template or len(step.text) > DOCUMENT:
        place = "at the end of a tool's result" if was_in_result else "from the user's request"
        kind, heading = ("command", COMMAND) if step.is_template else ("given", place)
        return Block(step.at, kind, heading, step.text)
    sender, words = split_marker(step.text)
    return Block(step.at, "asked", "", words, sender=sender)


def label_exchanges(blocks: Iterable[tuple[Block, Sequence[Line]]]) -> float:
    """Set the headings of a chat's blocks, given with their lines, to the topic of their exchange:
    the rarest words of the request, else of the answer before, else that answer's first statement,
    else the previous topic. Return how far it is the model that asks: from 0 (it asks nothing) to 1
    (only it asks)."""
    turns = [
        (block, [line.text for line in lines if line.top or not line.lead])
        for block, lines in blocks
        if block.is_in_clauses
    ]
    rarity, label = Rarity((block.kind == "said", texts) for block, texts in turns), ""
    for at, (block, _) in enumerate(turns):
        if block.kind != "said":
            label = rarity.find_label(at) or label
        block.heading = block.heading or label
        if block.kind == "said":
            label = rarity.find_label(at) or rarity.find_statement(at) or label
    requests = [text for block, texts in turns for text in texts if block.kind != "said"]
    answers = [text for block, texts in turns for text in texts if block.kind == "said"]
    theirs, ours = (sum(map(is_question, texts)) for texts in (requests, answers))
    return ours**2 / (ours**2 + theirs**2 or 1)


def _read_changes(work: Work, step: Step) -> None:
    effect, at = step.effect, step.at
    for path, state in effect.files:
        history = work.files.setdefault(path, FileHistory())
        if state == "restored":
            if history.changed_from >= 0:
                history.undone += (history.changed_from, at)
            history.changed_from = history.changed_at = -1
        elif state != "read":
            history.changed_at = at
            history.changed_from = at if history.changed_from < 0 else history.changed_from
        if state in {"created", "deleted"}:
            history.replaced_at = at
    for path, changes in effect.changes_by_file.items():
        old = "\n".join(line for change in changes for line in change.old or ())
        new = "\n".join(line for change in changes for line in change.new)
        remaining = {line.key for line in iter_lines(new)}
        gone = (line.key for line in iter_lines(old))
        removed = work.files.setdefault(path, FileHistory()).removed
        removed.update((text, at) for text in gone if text not in remaining)
        work.blocks.append(Block(at, "written", path, new, path))


def _read_result(step: Step) -> Iterator[Block]:
    if is_stub(step.text) or step.text.startswith(NOT_RUN):
        return
    effect, name = step.effect, step.effect.tool
    paths, is_change = [path for path, _ in effect.files], bool(effect.changed_files)
    if len(paths) == 1 and not (effect.command or step.has_effect):
        return
    command = name_command(effect.command)
    # The output of a command that changes files, or of several commands, is no file's text.
    is_text = step.outcome == "ok" and not (command and (is_change or has_more(effect.command)))
    path = paths[0] if len(paths) == 1 and is_text else ""
    kind = "written" if is_change and path else find_kind(effect, path, command)
    heading = path or write_title(command) or " ".join(filter(None, (name, step.gist)))
    is_long = kind == "run" and bool(command) and len(step.text) > LONGEST_OUTPUT
    text = "\n".join(find_error_lines(clip_scanned(step.text))) if is_long else step.text
    yield Block(step.at, kind, heading, text, path, command=command)


def find_kind(effect: CallEffect, path: str, command: str) -> Kind:
    """Return the kind of a file's text or of the output of a call or command."""
    if path.endswith(LOGS):
        return "run"
    folder, _, file = path.replace("\\", "/").rpartition("/")
    is_task = _TASK.search(file) or (_TASK_FOLDER.search(folder) and DOCS.search(file))
    name, is_planned = effect.tool, EXIT_PLAN_TOOL.fullmatch(effect.tool)
    shows_task = _TASK.search(name) and is_look(effect) and not (is_agent(name) or is_planned)
    if (is_task and not _NO_TASK.search(path)) or shows_task or _shows_task(command):
        return "task"
    if path:
        return "docs" if DOCS.search(path) else "source" if SOURCE.search(path) else "read"
    return "run" if command or is_agent(name) or _SEARCH_TOOL.search(name) else "read"


def _shows_task(command: str) -> bool:
    """Return whether a command shows an issue, ticket or plan: `bd show 7`, `gh issue view 7`."""
    words = [word for word in command.split()[:4] if word.isalpha()]
    return any(map(_SHOWS.fullmatch, words[1:])) and bool(_TASK.search(" ".join(words)))


def _iter_spoken(text: str, is_in_clauses: bool, *, binds: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the sentences of a message, each with its lead and top (`Line`). If it *is_in_clauses*,
    split those without a lead at wide commas and use the heading above as their lead and top. A
    sentence that binds in a person's message (*binds*) stays whole, because its first words apply
    to all of it. In work, list items stay whole, too, and the model's code is left out."""
    for _, group in groupby(iter_statements(text), key=attrgetter("at")):
        first, *rest = group
        if first.kind == "code" and not (is_in_clauses or binds):
            continue
        is_item = first.kind == "item" and rest and not (is_in_clauses or rest[-1].is_head)
        if is_item and len(first.line) <= MAX_SENTENCE:
            yield without_mark(first.line), first.lead, ""
            continue
        for statement in (first, *rest):
            is_mark = first.kind == "heading" and statement.text.rstrip(".").isdecimal()
            if not (statement.is_head or is_mark):
                is_whole = statement.lead or (binds and is_binding(statement.text))
                rows = (
                    [statement.text] if is_whole else _iter_clauses(statement.text, is_in_clauses)
                )
                top = _find_subject(statement) if is_in_clauses and not statement.lead else ""
                lead = statement.lead or top
                yield from ((piece, lead, top) for row in rows for piece in _cut_line(row))


def _find_subject(statement: Statement) -> str:
    """Return the heading, or the item with others under it, above a statement: its subject, such as
    that of a figure; empty if there is none."""
    head = next((row for row in reversed(statement.above) if row.kind != "text"), None)
    if head and statement.line.startswith("**"):
        return ""  # a line in bold may be a heading itself
    words = one_line(head.text.replace("**", "").strip("#:：.。 "), LONGEST_SUBJECT) if head else ""
    return f"{words}: " if words else ""


def _iter_clauses(text: str, is_in_clauses: bool) -> Iterator[str]:
    for sentence in split_line(text):
        yield from _CLAUSE.split(sentence) if is_in_clauses else (sentence,)


def iter_lines(text: str, *, is_prose: bool = False, least: int = LEAST_WORDS) -> Iterator[Line]:
    """Yield the lines of *least* words or more, line numbers split off; in prose with leads."""
    shown = without_handles(_NOTICES.sub("", spell_cut(text)))
    rows = [_split_number(row) for row in shown.split("\n")]
    leads = find_leads([line for _, line in rows]) if is_prose else {}
    last_sure = text.partition(_CLIPPED)[0].count("\n")
    for at, (number, line) in enumerate(rows):
        pieces = _cut_line(line) if len(line) > LONGEST_LINE else (line.rstrip(),)
        for piece in pieces:
            if _count_words(piece) >= least:
                yield Line(piece, number if at <= last_sure else 0, leads.get(at, ""))


def _collapse_similar(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield lines; of more than `MOST_ALIKE` that differ only in digits the first and last two."""
    places = defaultdict[str, list[int]](list)
    shapes = [DIGITS.sub("#", line.words) for line in lines]
    for at, shape in enumerate(shapes):
        places[shape].append(at)
    for at, (line, shape) in enumerate(zip(lines, shapes, strict=True)):
        alike = places[shape]
        if len(alike) <= MOST_ALIKE or at in alike[-2:]:
            yield line
        elif at == alike[0]:
            yield line._replace(text=f"{line.text} (… {len(alike) - 3} more such lines …)")


def _parse_json(text: str) -> Any:
    """Return the value of a tool's answer in JSON; None if it is too long or no object or array."""
    is_json = text[:1] in "{[" and 2 < len(text) <= MAX_JSON
    value = parse_or_none(text) if is_json else None
    return value if isinstance(value, dict | list) else None


def _iter_record_lines(value: Any) -> Iterator[Line]:
    """Yield the objects in a JSON value as lines, each with its path."""
    for lead, text, columns, cells in iter_json_lines(value):
        top = f"{lead}{columns}:" if cells else lead.rstrip()
        for piece in (text,) if cells else _cut_line(text):
            if _count_words(lead + piece) >= LEAST_WORDS:
                yield Line(piece, 0, lead, top, cells or piece, False, cells or _KEY.sub("", piece))


def _split_number(row: str) -> tuple[int, str]:
    """Return the line number that a tool printed, else 0, and the line."""
    match = _NUMBERED.match(row[: LONGEST_LINE + 30])
    return (int(match[1]), row[match.start(2) :]) if match else (0, row)


def _cut_line(line: str) -> Iterator[str]:
    """Yield a line in pieces of at most `LONGEST_LINE` characters. A longer one is split after a
    comma, stop or space if there is one in the second half of a piece."""
    start = 0
    while len(line) - start > LONGEST_LINE:
        half, end = start + LONGEST_LINE // 2, start + LONGEST_LINE
        stop = next((at for mark in _ENDS if (at := line.rfind(mark, half, end) + 1)), end)
        yield line[start:stop].rstrip()
        start = stop
    yield line[start:].rstrip()


def _count_words(line: str) -> int:
    """Count words. Two letters of a word that is not ASCII are one, as in Chinese."""
    words = _WORD.findall(line)
    return len(words) if line.isascii() else sum(w.isascii() or len(w) // 2 for w in words)


# --- topics of exchanges --------------------------------------------------------------------------
# The topic of an exchange, by the words that are rare in the conversation.

LONGEST = 96
"""Maximum bytes of a label, about 32 characters in a script without spaces."""
SHORTEST = 18  # bytes of a statement that names something, six letters of such a script
MIN_STATEMENT_WORDS = 5  # different ones
RARE = 0.8
"""A word is rare if fewer than n^(1 - RARE) clauses have it. n is the number of different words."""
SHARED = 1.5
"""Bonus of each word that messages share: a longer name beats a rare pair of letters."""


class Rarity:
    """The rare words of messages, given as clauses with whether the model said them, and the
    stretches in each that both sides use."""

    def __init__(self, turns: Iterable[tuple[bool, Sequence[str]]]) -> None:
        self._turns, counts = list[Sequence[str]](), Counter[str]()
        stretches, used = list[tuple[str, ...]](), (set[str](), set[str]())
        for is_said, clauses in turns:
            self._turns.append(clauses)
            stretches.append((*self._read(clauses, counts),))  # a set takes five times as much
            used[is_said].update(stretches[-1])
        self._stretches = [*map((used[0] & used[1]).intersection, stretches)]
        self._clauses = Counter(chain.from_iterable(self._turns))
        size = len(counts) + 1
        self._limit = RARE * log(size)
        self._points = {term: log(size / count) - self._limit for term, count in counts.items()}

    def _read(self, clauses: Iterable[str], counts: Counter[str]) -> set[str]:
        """Count each word once a clause and return the stretches in the clauses."""
        stretches = set[str]()
        for clause in clauses:
            if clause.isascii():  # the same in a fraction of the time
                words = {*terms(clause)}
                counts.update(words)
                stretches |= words
                continue
            spans = [*iter_spans(clause)]
            counts.update({term for _, _, term in spans})
            stretches.update(stretch for _, stretch in iter_stretches(spans))
        return stretches

    def find_label(self, at: int) -> str:
        """Return the stretch of the message *at* a position that is rarest in the conversation, of
        those that the two messages before or behind it have, too; else of its words; empty if none
        is rare, or for a courtesy. Without spaces only shared stretches count, made clauses."""
        text = "\n".join(self._turns[at]).replace("\n ", " ")  # a blank begins what goes on
        stretches = [*iter_stretches(spans := [*iter_spans(text)])]
        before, behind = self._stretches[max(0, at - 2) : at], self._stretches[at + 1 : at + 3]
        near = set[str]().union(*before, *behind)
        shared = {own for own, stretch in stretches if stretch in near}
        words = {own for own, stretch in stretches if stretch == spans[own][2]}
        label = self._find_rarest(text, spans, shared, SHARED)
        label = label or self._find_rarest(text, spans, words, 0.0)
        return "" if WISHING.is_in(label) else label

    def find_statement(self, at: int) -> str:
        """Return the first clause of the answer *at* a position that states something and fits a
        label; empty if there is none. It is no question, exclamation or courtesy, continues no
        clause, has several different words and no digits, and is said once."""
        for clause in self._turns[at]:
            is_long = clause[:1] != " " and SHORTEST <= count_bytes(clause) <= LONGEST
            is_telling = is_long and len({*terms(clause)}) >= MIN_STATEMENT_WORDS
            is_telling &= not (clause.endswith(("!", "！")) or is_question(clause))
            is_telling &= self._clauses[clause] == 1 and not any(map(str.isdigit, clause))
            if is_telling and not WISHING.is_in(clause):
                return clause.rstrip("。；，.;,")
        return ""

    def _find_rarest(
        self, text: str, spans: Sequence[Span], counting: Collection[int], bonus: float
    ) -> str:
        most = log(len(self._points) + 1) - self._limit
        best, total, begin, last = (0.0, 0, 0), 0.0, 0, 0
        for at, (start, stop, term) in enumerate(spans):
            gap = text[last:start]
            ends = "\n" in gap or (gap != " " and SENTENCE_END.search(text, last, start + 1))
            last = stop
            if ends or total <= 0:
                total, begin = 0.0, start
            total = total + self._points.get(term, most) + bonus if at in counting else 0.0
            if total >= best[0]:
                best = (total, begin, stop)
        points, start, stop = best
        if points <= self._limit:
            return ""
        begin, end = start, stop
        while begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] in "'’"):
            begin -= 1
        while text[end : end + 1].isalnum():
            end += 1
        if count_bytes(text[begin:end]) <= LONGEST:
            start, stop = begin, end
        stop += "(" in text[start:stop] and text[stop : stop + 1] == ")"
        return cut_words(text[start:stop].strip(), LONGEST)
