"""A conversation as steps: what was asked, what was called, what came back, what was answered; and
the messages that a summary stands for, with what earlier summaries say of them."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Literal, NamedTuple

from refold.core.view import View
from refold.messages import Media, Message, ToolCall, ToolResult
from refold.speakers import Segment, find_folder, read_ran_command, segment_messages, view_segments
from refold.speakers.carriers import (
    NOT_RUN,
    NOTES,
    REPORTS,
    TEMPLATE,
    UNQUOTED,
    read_overheard,
)
from refold.speakers.request import OUTPUT_LABEL, Segmented, answer_text, has_person, is_final
from refold.speakers.segments import iter_requests, trailing_elements
from refold.speakers.written import is_refused, restore_calls
from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.calls import (
    CallEffect,
    effect_of_call,
    effect_of_command,
    read_boxes,
)
from refold.summarizers.heuristic.shell_words import PATCH_BEGINS, SESSION, Place, name_command
from refold.text.clip import clip_scanned
from refold.text.failures import is_failure, read_exit_code
from refold.text.json_values import join_texts, parse_or_none
from refold.text.plain import (
    call_gist,
    is_absolute,
    is_outside,
    match_paths,
    plain_text,
    spell_home,
    spell_numbers,
    turn_slashes,
    without_terminal_codes,
)
from refold.text.summary_wrapper import beside_summary, opening_length, summary_in
from refold.tokens.count import estimate

UNKNOWN_TOOL = "tool"
"""The tool of a result of which nobody says what was called."""
RUNNING, STOPPED = "running", "stopped"
"""The outcomes of what has none yet, and of what was interrupted or killed."""


class Step(NamedTuple):
    """One thing that somebody did."""

    kind: Literal["request", "call", "result", "answer"]
    at: int
    """Position of its message."""
    text: str
    """The person's words, the call's arguments, what the tool said, the model's words."""
    effect: CallEffect = CallEffect(UNKNOWN_TOOL)
    """Of a call, and of the result that answers it."""
    arguments: str = ""
    """Of a result: those of its call."""
    gist: str = ""
    """Of a result: what its call was about, in a few words."""
    is_error: bool = False
    """Does the API call the result an error?"""
    exit_code: int | None = None
    """The exit code that the result states, if it states one."""
    is_running: bool = False
    """Of a result: does what was called still run?"""
    is_later: bool = False
    """Of a result: does it tell more of a command that an earlier one began to tell of?"""
    is_final: bool = False
    """Does the answer end a turn, no call beside it?"""
    media: str = ""
    """Of a request: what stands beside the words, `[image] `."""
    is_template: bool = False
    """Of a request or result: did a client put its text there, for a command or a skill?"""

    @property
    def command(self) -> str:
        """What a shell was given; empty if it is of another tool."""
        return self.effect.command

    @property
    def outcome(self) -> str:
        """Of a result: `ok`, `exit N`, `error`, `running`, or `stopped` if it was interrupted."""
        if self.is_running:
            return RUNNING
        if self.exit_code:
            return STOPPED if self.exit_code == 130 else f"exit {self.exit_code}"
        return "error" if self.is_error else "ok"

    @property
    def has_effect(self) -> bool:
        """Of a result: did its call do to files what it should? An edit that is answered by an
        error did not; of a command whose test fails, what stands before the test was done."""
        if PATCH_BEGINS in self.command or PATCH_BEGINS in self.arguments:
            return not (self.is_error or self.exit_code or _NOT_APPLIED.search(self.text[:1_000]))
        if self.command:
            has_failed = self.is_error or bool(self.exit_code)
            return not has_failed or bool(self.exit_code and shell.find_checks(self.command).text)
        first = self.text[:200].partition("\n")[0]
        has_failed = is_failure(self.text)
        is_refused = first.startswith(NOT_RUN) or has_failed or _NO_PLACE.search(first)
        is_reason = has_failed and _REASON.fullmatch(self.text[:1_000])  # and no text of a file
        return not (self.is_error or is_reason or (self.effect.changed_files and is_refused))


_IS_ERROR = re.compile(r'\{\s{0,9}"status": ?"error"')
"""How a tool's answer begins that its client sends as one that worked (OpenClaw)."""
_NOT_APPLIED = re.compile(r"(?i)verification failed|failed to (?:apply|find)|invalid patch")
"""What is said of a patch that was not applied."""
_NO_PLACE = re.compile(
    r"(?i)\b(?:not found|unable to apply|no (?:match|replacement|occurrence)|could not find)"
)
"""The same of an edit, in its first line."""
_REASON = re.compile(r"\s*+[^\n:]{1,40}: [^\n]++\s*+")
"""All that a tool answers which could not do what it should: an error and why, in one line."""
_Call = tuple[CallEffect, ToolCall]


def name_step(step: Step) -> str:
    """Return what a result is of: the command, else the tool."""
    return name_command(step.command) or step.effect.tool


# --- the messages that a summary stands for -------------------------------------------------------

LONGEST = 1_000_000
"""Tokens of a hidden history that are read whole; of older ones people's words, and changes."""
LEAST = LONGEST // 4
"""Tokens that are read of the longest: what is older and is no person's is hardly ever quoted."""


class Source(NamedTuple):
    """What a summary is made of."""

    older: Sequence[Message]
    """What people say further back than all of a long history is read."""
    hidden: Sequence[Message]
    """The original messages that it stands for, behind those."""
    shown: Sequence[Message]
    """The messages that stay before and behind it."""
    later: Sequence[Message]
    """Those behind it."""
    edited: Sequence[str]
    """Earlier summaries, made by edits, of messages that are in *hidden*."""
    given: Sequence[str]
    """Earlier summaries that a caller sent as messages; what they stand for is not here."""
    sizes: Sequence[int]
    """Estimated tokens of what each message of *older* and *hidden* says."""
    changes: Sequence[Step] = ()
    """What calls further back change, files and plans, as steps without texts."""
    folder: str = ""
    """The folder that the session works in, if the client says so."""


def read_source(view: View, start: int, stop: int) -> Source:
    """Return the original messages of a span, and what earlier summaries of it say."""
    messages = view.transcript.messages
    given = list(filter(None, view.base.map_cached(summary_in)[start:stop]))
    edited = [
        (text, item.stop)
        for item in view.iter_items()
        if item.edit and start <= item.start and item.stop <= stop
        for message in item.messages
        if (text := summary_in(message))
    ]
    summarized = max((end for _, end in edited), default=start)
    room = _count_read(view.base.tokens(start, stop), view.base.tokens(summarized, stop))
    begins = opening_length(messages)  # a first request among these stands in the summary
    first = bisect_left(range(stop), -room, start, key=lambda at: -view.base.tokens(at, stop))
    spoken = view_segments(view) if first > start else ()

    def read_own(positions: Iterable[int]) -> list[Message]:
        return [
            Message(messages[at].role) if at < begins else beside_summary(messages, at)
            for at in positions
        ]

    positions = [at for at in range(start, first) if has_person(spoken[at])]
    cached = view.base.map_cached(_read_effects)[start:first] if first > start else ()
    restored = restore_calls(messages[start:first], spoken[start : first + 1])
    effects = [
        effect if own is message else _read_effects(own)
        for effect, message, (own, _) in zip(cached, messages[start:first], restored, strict=False)
    ]
    older, hidden = read_own(positions), read_own(range(first, stop))
    estimates = view.base.map_cached(_estimate_text)
    sizes = [
        estimates[at] if own is messages[at] else _estimate_text(own)
        for at, own in zip(chain(positions, range(first, stop)), (*older, *hidden), strict=True)
    ]
    later = read_own(range(stop, len(messages)))
    shown = [*read_own(range(start)), *later]
    texts, folder = [text for text, _ in edited], find_folder(view_segments(view))
    changes = list(_join_effects(effects, folder))
    return Source(older, hidden, shown, later, texts, given, sizes, changes, folder)


class _Effects(NamedTuple):
    """What one message changes."""

    calls: tuple[tuple[str, CallEffect], ...] = ()
    """The files that its calls change and the plans that it makes, with the id of the call; it is
    empty if a text says so."""
    failed: tuple[str, ...] = ()
    """Ids of the calls whose errors it holds."""


def _read_effects(message: Message) -> _Effects:
    if message.role != "assistant":
        results = (part for part in message.parts if isinstance(part, ToolResult))
        return _Effects(failed=tuple(result.id for result in results if result.error))
    calls = tuple([part for part in message.parts if isinstance(part, ToolCall)])
    effects = [step.effect for step in read_steps([Message(message.role, calls)])]
    boxes = CallEffect("", todos=read_boxes(clip_scanned(message.text)) or None)
    changes = (
        (id, effect._replace(files=files, command="", place=SESSION, changes=()))
        for id, effect in zip((*(call.id for call in calls), ""), (*effects, boxes), strict=True)
        if (files := tuple(file for file in effect.files if file[1] != "read"))
        or effect.todos
        or effect.changed_todos
    )
    return _Effects(tuple(changes))


def _join_effects(effects: Sequence[_Effects], folder: str) -> Iterator[Step]:
    """Yield what calls in a session at *folder* change that do not fail, as steps without texts."""
    failed, place = {id for message in effects for id in message.failed}, Place(folder)
    for message in effects:
        for id, effect in message.calls:
            if effect.todos:
                yield Step("call", 0, "", effect)
            if (effect.files or effect.changed_todos) and id not in failed:
                files = tuple((place.name(path), state) for path, state in effect.files)
                yield Step("result", 0, "", effect._replace(files=files))


def _estimate_text(message: Message) -> int:
    return estimate(plain_text(message))


def _count_read(hidden: int, unsummarized: int) -> int:
    """Return how many of *hidden* tokens are read: the fewer, the more they are, so that what is
    read for all summaries of a session does not grow with its square; but what no earlier summary
    stands for."""
    return min(LONGEST, max(unsummarized, LEAST, LONGEST**2 // max(1, hidden)))


# --- messages as steps ----------------------------------------------------------------------------

_THOUGHT = re.compile(r"\A\s*+(?:THOUGHT|Thought)\s?:\s*+")
"""What stands before the words of agents that write their actions as text (ReAct)."""


@dataclass(slots=True)
class _Open:
    """What is not answered yet."""

    calls: dict[str, _Call] = field(default_factory=dict)
    processes: dict[str, _Call] = field(default_factory=dict)
    """What runs behind a result that said so, by the id that later calls ask for it with."""
    folder: str = ""
    """The folder that the session works in, if it is known."""


def read_steps(messages: Sequence[Message]) -> list[Step]:
    """Return the steps of *messages*, in order, in which each file has one name. In time n log n;
    never raises."""
    spoken = segment_messages(messages)
    steps = list(_iter_steps(messages, spoken, find_folder(spoken)))
    files = (file for step in steps for file in step.effect.files)
    return _rename_files(steps, _find_spellings(files))


def read_spans(
    source: Source, spoken: Segmented, given: Iterable[tuple[str, str]]
) -> tuple[list[Step], list[Step], list[Step], dict[str, str]]:
    """Return the steps of what *source* hides, without and with texts, and of what stands behind
    it, of both of which *spoken* are the segments; and other names that files have in these and
    among those *given* with their states."""
    whole = (*source.older, *source.hidden)
    steps = list(_iter_steps(whole, spoken, source.folder))
    behind = _iter_steps(source.later, spoken[len(whole) :], source.folder)
    later = [step._replace(at=len(whole) + step.at) for step in behind]
    spans = source.changes, steps, later
    files = (file for step in chain(*spans) for file in step.effect.files)
    spellings = _find_spellings((*given, *files))
    changes, steps, later = (_rename_files(span, spellings) for span in spans)
    return changes, steps, later, spellings


def _iter_steps(messages: Sequence[Message], spoken: Segmented, folder: str) -> Iterator[Step]:
    """Yield the steps of *messages* in a session at *folder*, empty if that is not known, in order,
    with files as calls name them; *spoken* are the messages' segments."""
    waiting = _Open(folder=folder)
    for at, (message, segments) in enumerate(restore_calls(messages, spoken)):
        for part in message.parts:
            match part:
                case ToolCall():
                    effect = effect_of_call(part, waiting.folder)
                    waiting.calls[part.id] = effect, part
                    yield Step("call", at, part.arguments, effect)
                case ToolResult():
                    yield _read_result(part, waiting, at)
        yield from _read_segments(segments, waiting, at, message)
        if message.role == "assistant" and answer_text(message).strip():
            text = without_terminal_codes(clip_scanned(answer_text(message)))
            is_last = is_final(message) and not is_refused(next(iter(spoken[at + 1 : at + 2]), ()))
            yield Step("answer", at, _THOUGHT.sub("", text, count=1), is_final=is_last)


def _find_spellings(files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the absolute paths, by the relative ones that stand for them, of files with states;
    temporary ones only if there are no others."""
    states = defaultdict[str, set[str]](set)
    for path, state in files:
        states[path.rstrip("/")].add(state)
    changed = {path: not now.isdisjoint(shell.CHANGES) for path, now in states.items()}
    is_idle = not any(changed.values())  # then a copy of the work is as good as the work
    rooted = {path: is_idle or is_new for path, is_new in changed.items() if is_absolute(path)}
    inside = {path: is_new for path, is_new in rooted.items() if not is_outside(path)}
    matched = match_paths(inside or rooted, states.keys() - rooted.keys() - {shell.ALL})
    return turn_slashes(states) | matched | spell_home(rooted, states)


def _rename_files(steps: Iterable[Step], spellings: Mapping[str, str]) -> list[Step]:
    """Return steps in which files have one name each, whatever calls call them."""
    return [s._replace(effect=s.effect.rename(spellings)) if spellings else s for s in steps]


def _read_result(result: ToolResult, waiting: _Open, at: int) -> Step:
    unknown = CallEffect(result.name or UNKNOWN_TOOL), ToolCall("", "", "")
    effect, call = waiting.calls.pop(result.id, unknown)
    report = read_report(_without_notes(result.text))
    asked = _ASKED.search(call.arguments) if waiting.processes else None
    process = report.process or (asked[1] if asked else "")
    is_new = bool(effect.command) and not result.text.startswith(_PREVIOUS)
    is_later = process in waiting.processes and not (is_new or _NO_NEWS.match(result.text))
    effect, call = waiting.processes[process] if is_later else (effect, call)
    is_script = bool(asked and "tools." in asked.string)  # which says no more than what is new
    if is_running := report.is_running or (is_later and is_script and report.exit_code is None):
        waiting.processes[process] = waiting.processes[process[:SHORT_ID]] = effect, call
    text = spell_numbers(join_texts(report.output)) if len(effect.files) == 1 else report.output
    output = without_terminal_codes(text)
    if changed := _CHANGED.search(output):
        paths = (row.removesuffix(". Call Read before editing.") for row in changed[1].split(", "))
        files = ((effect.place.name(path), "changed") for path in paths if path)
        effect = effect._replace(files=(*effect.files, *files))
    is_error = result.error or bool(_IS_ERROR.match(output) and not effect.command)
    ended = (is_error, report.exit_code, is_running, is_later)
    return Step("result", at, output, effect, call.arguments, call_gist(call), *ended)


def _without_notes(text: str) -> str:
    """Return a result's text without what the client says behind it."""
    notes = takewhile(lambda element: element[1].startswith(NOTES), trailing_elements(text))
    return text[: min((start for start, _ in notes), default=len(text))]


def _read_segments(
    segments: Iterable[Segment], waiting: _Open, at: int, message: Message
) -> Iterator[Step]:
    """Yield what people and tools say in one message."""
    media = "".join(f"[{part.kind}] " for part in message.parts if isinstance(part, Media))
    for segment in segments:
        if segment.voice == "person" and (requests := [*iter_requests(segment)]):
            for words, is_template in requests:
                yield Step("request", at, words, media=media, is_template=is_template)
                media = ""
        elif segment.voice == "tool":
            text = without_terminal_codes(segment.text)
            for report in read_task_reports(text):
                if ran := waiting.processes.get(report.process):
                    code, step = report.exit_code, Step("result", at, report.output, ran[0])
                    step = step._replace(arguments=ran[1].arguments, is_later=True)
                    yield step._replace(is_error=bool(code), exit_code=code)
            label = OUTPUT_LABEL.match(text)
            if segment.kind in UNQUOTED or (label and label[2] is not None):  # nothing is under it
                if overheard := read_overheard(text):
                    yield Step("result", at, overheard, CallEffect("read what others wrote"))
                continue
            command, output = read_ran_command(text) or ("", text)
            has_run = bool(command) or text.lstrip().startswith(REPORTS)
            unknown, folder = CallEffect(UNKNOWN_TOOL), waiting.folder
            effect = effect_of_command(command, folder) if has_run else unknown
            code, is_template = read_exit_code(output), segment.kind == TEMPLATE
            yield Step("result", at, output, effect, exit_code=code, is_template=is_template)


# --- what clients report of a command: whether it still runs, and its exit code -------------------

_HEADER = re.compile(
    r"\Arc=-?\d{1,10}\n|\ACommand (?:executed|failed with)[^\n]{0,400}+(?:\nExit code: -?\d{1,10})?"
    r"(?:\nOutput:\n|\s*\Z)"
    r"|\A(?:Chunk ID: |Exit code: |Wall time|Script )[^\n]{0,100}\n(?:[^\n]{0,100}\n){0,7}?Output:\n+"
    r"(?:Warning: truncated output [^\n]{0,99}\n)?(?:Total output lines: \d+\n+)?"
)
"""Before a command's output (Cline, Roo Code, Codex)."""
_OPENING = re.compile(r"(?s)\A(?:Command: .{0,2000}?\nDirectory: [^\n]*\n)?(?:Output|Stdout): ")
_CLOSING = re.compile(
    r"(?:Error|Stderr|Exit Code|Signal|Background PIDs|Process Group PGID): ?(\(none\))?(.*)"
)
"""What stands before a command's output and behind it (Gemini CLI, Qwen Code)."""
_STARTED = re.compile(
    r"^(?:Process running with session ID|Script running with cell ID"
    r"|Command (?:running in background|was manually backgrounded by user) with ID:"
    r"|Command still running \(session|Async agent launched successfully\.[^\n]{0,300}\s{1,9}agentId:"
    r"|\{\"chunk_id\":\"\w+\",\"wall_time_seconds\":[\d.e-]+,\"session_id\":"
    r"|\{\s{0,9}\"status\": \"accepted\",\s{0,9}\"childSessionKey\":) ?\"?([\w-]+(?::[\w-]+)*)",
    re.MULTILINE,
)
_TASK = re.compile(
    r"<task[-_]id>(\w+)</task[-_]id>(?:(?!<task[-_]id>).){0,600}?<status>(\w+)</status>"
    r"(?:\s{0,9}<exit_code>(-?\d{1,10})</exit_code>|\s{0,9}<summary>([^<]{0,300})"
    r"(?:</summary>\s{0,9}<result>((?:(?!</result>).){1,20000}))?)?(?:\s{0,9}<output>\n?)?",
    re.DOTALL,
)
"""How a command or an agent stands that runs in the background, with its report (Claude Code)."""
_EXEC = re.compile(
    r"^System[^:\n]{0,20}: \[[^\]\n]{1,40}\] Exec \w+ \(([\w-]{1,9}), "
    r"(?:code (-?\d{1,10})|signal SIG(\w+))\)(?: :: (.*))?",
    re.MULTILINE,
)
"""How its end stands before a person's message (OpenClaw), with the first letters of its id."""
_CHILD = re.compile(
    r"^session_key: ([^\n]{1,200})\n(?:[^\n]{1,300}\n){0,5}?status: (\w+)\b[^\n]*\n"
    r"(?:\s{0,9}Result[^\n]{0,100}:\n)?((?:(?!\n(?:Stats: |Action:\n)).){0,20000})",
    re.MULTILINE | re.DOTALL,
)
"""How another agent has ended, and what it reports (OpenClaw)."""
_ANNOUNCED = re.compile(
    r"^A [a-z ]{3,30} \"[^\"\n]{1,300}\" just (\w+)[^\n]{0,300}\n\n(?:Findings|Result):\n"
    r"((?:(?!\nStats: ).){0,20000})\nStats: [^\n]{0,200}?\bsessionKey ([\w:-]+)",
    re.MULTILINE | re.DOTALL,
)
"""The same in an older version."""
_TASK_OPENINGS = ("<retrieval_status>", "<task_id>")
"""How a result begins that says it."""

_CHANGED = re.compile(r" modified \d+ files? you've previously read: ([^\]\n]+)")
"""Where a client says which files a command changed (Claude Code)."""
_STUB = re.compile(
    r"\s{0,9}(?:\[[^\]\n]{1,200}\]|<[^>\n]{1,200}>|File unchanged since last read\b[^\n]{0,300})\s{0,9}"
    r"|<tool_output_masked>[\s\S]*"
)
_WAITS = re.compile(r"\[The command (?:has no new output|timed out) after \d|You CANNOT send new ")
_ASKED = re.compile(r"\b(?:(?:session|cell|bash|shell|task)_?[iI]d|is_input)\W{1,9}([\w:-]+)")
"""Where a call names what runs: by an id, or as `true`, what takes its keys (OpenHands)."""
_STILL = re.compile(
    r"\A(?:<status>running</status>|Command is still running)|\nProcess still running\.\s*\Z"
)
_STOPPED = re.compile(r'Termination requested|The last command <|\{"message": ?"Successfully \w')
_SIGNALED = re.compile(r"\nProcess exited with signal SIG(\w+)\.\s*\Z")
_SIGNALS = {"KILL": 137}
SHORT_ID = 8
"""Letters of an id by which OpenClaw names a process that has ended."""
_NO_NEWS = re.compile(r"(?:<\w+>)?No (?:active )?\w+ found\b|write_stdin failed|This operation")
_PREVIOUS = "[Below is the output of the previous command.]"
"""What is said of a command that the one shell of a client still runs (OpenHands)."""


def is_stub(text: str) -> bool:
    """Does a result only say, in one line, that its text is left out or stands elsewhere?"""
    return bool(_STUB.fullmatch(text))


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
    head = header[0] if (header := _HEADER.match(text)) else ""
    output = text[len(head) :]
    if started := _STARTED.search(text, 0, len(head) + 99) if head else _STARTED.match(text):
        return CommandReport(_unwrap(output), process=started[1], is_running=True)
    if _STILL.search(f"{text[:30]}\n{text[-30:]}"):
        return CommandReport(output, is_running=True)
    if (signal := _SIGNALED.search(text[-60:])) or _STOPPED.match(text):
        return CommandReport(output, _SIGNALS.get(signal[1], 143) if signal else 130)
    is_waiting = bool(_WAITS.search(text, max(0, len(text) - 600)))
    if is_waiting or text.startswith(_PREVIOUS):
        return CommandReport(output, read_exit_code(output), "true", is_waiting)
    if (opening := _OPENING.match(text)) and _CLOSING.fullmatch(text.rpartition("\n")[2]):
        return _read_fields(text[opening.end() :])
    code = 1 if text.startswith("Script failed") else read_exit_code(head)
    return CommandReport(_unwrap(output), read_exit_code(output) if code is None else code)


def _read_fields(text: str) -> CommandReport:
    """Read an output with fields behind it, one a line; an error that has words belongs to it."""
    rows, code, errors = text.split("\n"), None, list[str]()
    while len(rows) > 1 and (match := _CLOSING.fullmatch(rows[-1])):
        name, value = rows.pop().partition(":")[0], match[2].strip()
        if name == "Exit Code" and value.lstrip("-").isdigit():
            code = int(value)
        elif name in {"Error", "Stderr"} and value:
            errors.append(value)
    return CommandReport("\n".join((*rows, *errors)), code)


def read_task_reports(text: str) -> Iterator[CommandReport]:
    """Read what a text says of commands in the background, with a summary each as their output."""
    yield from map(_read_task, _TASK.finditer(text))
    for id, code, signal, output in _EXEC.findall(text):
        yield CommandReport(output, int(code) if code else _SIGNALS.get(signal, 143), id)
    announced = ((id, status, output) for status, output, id in _ANNOUNCED.findall(text))
    for id, status, output in (*_CHILD.findall(text), *announced):
        yield CommandReport(output, None if status == "completed" else 1, id)


def _read_task(task: re.Match[str]) -> CommandReport:
    id, status, code, summary, report = task.groups("")
    stated = int(code) if code else read_exit_code(summary)
    failed = {"failed": 1, "killed": 130, "stopped": 130}.get(status)
    ended = failed if stated is None else stated
    return CommandReport(report or summary, ended, id, status == "running")


_CODE_FIELDS = frozenset({"metadata", "returncode", "exit_code", "chunk_id"})
"""Fields beside a command's output that hold its exit code, or what does."""


def _unwrap(text: str) -> str:
    """Return a result's text; of a JSON object with a command's output and exit code the output;
    of another the texts of several lines in it if it holds any."""
    if not text.startswith("{") or not ("\\n" in text or '"output"' in text):
        return text
    fields = parse_or_none(text) or {}
    if isinstance(output := fields.get("output"), str) and not _CODE_FIELDS.isdisjoint(fields):
        return output
    outputs = [value for value in fields.values() if isinstance(value, str) and "\n" in value]
    return "\n".join(outputs) or text
