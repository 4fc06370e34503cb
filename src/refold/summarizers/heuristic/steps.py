"""Read a conversation as steps (requests, calls, results, answers), and find the messages that a
summary replaces, with what earlier summaries say about them."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Literal, NamedTuple

from refold.core.view import View
from refold.core.view_lines import call_gist
from refold.messages import Media, Message, ToolCall, ToolResult
from refold.speakers import Segment, find_folder, read_ran_command, segment_messages, view_segments
from refold.speakers.carriers import (
    NOT_RUN,
    NOTES,
    REPORTS,
    TEMPLATE,
    UNQUOTED,
    read_earlier_messages,
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
from refold.summarizers.heuristic.shell_words import (
    PATCH_BEGINS,
    UNKNOWN_SESSION_DIR,
    WorkingDir,
    name_command,
)
from refold.text.clip import clip_scanned
from refold.text.failures import is_failure, read_exit_code
from refold.text.json_values import join_texts, parse_or_none
from refold.text.plain import (
    expand_home,
    is_absolute,
    is_outside,
    match_paths,
    plain_text,
    tab_line_numbers,
    unify_windows_paths,
    without_terminal_codes,
)
from refold.text.summary_wrapper import beside_summary, opening_length, summary_in
from refold.tokens.count import estimate

UNKNOWN_TOOL = "tool"
"""Tool of a result whose call is unknown."""
RUNNING, STOPPED = "running", "stopped"
"""Outcomes of a call that has not ended yet, and of one that was interrupted or killed."""


class Step(NamedTuple):
    """One request, call, result or answer."""

    kind: Literal["request", "call", "result", "answer"]
    at: int
    """Index of its message."""
    text: str
    """The person's words, the call's arguments, the tool's output or the model's words."""
    effect: CallEffect = CallEffect(UNKNOWN_TOOL)
    """The effect of a call, also set on its result."""
    arguments: str = ""
    """Arguments of the call, on a result."""
    gist: str = ""
    """Subject of the call in a few words, on a result."""
    is_error: bool = False
    """Whether the API marks the result as an error."""
    exit_code: int | None = None
    """The exit code in the result, if any."""
    is_running: bool = False
    """Whether the called process still runs, on a result."""
    is_later: bool = False
    """Whether a result continues the report of an earlier one about the same command."""
    is_final: bool = False
    """Whether an answer ends a turn, with no call beside it."""
    media: str = ""
    """Labels of media beside a request: `[image] `."""
    is_template: bool = False
    """Whether a client put the text of a command or skill there, on a request or result."""

    @property
    def command(self) -> str:
        """The shell command, or an empty string for another tool."""
        return self.effect.command

    @property
    def outcome(self) -> str:
        """Outcome of a result: `ok`, `exit N`, `error`, `running` or `stopped` (interrupted)."""
        if self.is_running:
            return RUNNING
        if self.exit_code:
            return STOPPED if self.exit_code == 130 else f"exit {self.exit_code}"
        return "error" if self.is_error else "ok"

    @property
    def has_effect(self) -> bool:
        """Whether the call of a result changed files as intended. An edit answered by an error did
        not. Of a command whose test fails, the part before the test did."""
        if PATCH_BEGINS in self.command or PATCH_BEGINS in self.arguments:
            return not (self.is_error or self.exit_code or _NOT_APPLIED.search(self.text[:1_000]))
        if self.command:
            has_failed = self.is_error or bool(self.exit_code)
            return not has_failed or bool(self.exit_code and shell.find_checks(self.command).text)
        first = self.text[:200].partition("\n")[0]
        has_failed = is_failure(self.text)
        is_refused = first.startswith(NOT_RUN) or has_failed or _NO_PLACE.search(first)
        is_reason = has_failed and _REASON.fullmatch(self.text[:1_000])  # not a file's text
        return not (self.is_error or is_reason or (self.effect.changed_files and is_refused))


_IS_ERROR = re.compile(r'\{\s{0,9}"status": ?"error"')
"""Prefix of an error that the client sends as a success (OpenClaw)."""
_NOT_APPLIED = re.compile(r"(?i)verification failed|failed to (?:apply|find)|invalid patch")
"""Words for a patch that was not applied."""
_NO_PLACE = re.compile(
    r"(?i)\b(?:not found|unable to apply|no (?:match|replacement|occurrence)|could not find)"
)
"""Words for a failed edit, in the first line of its result."""
_REASON = re.compile(r"\s*+[^\n:]{1,40}: [^\n]++\s*+")
"""A whole result that is only an error and its reason, in one line."""
_Call = tuple[CallEffect, ToolCall]


def name_step(step: Step) -> str:
    """Return the name of a result: its command, else its tool."""
    return name_command(step.command) or step.effect.tool


# --- the messages that a summary replaces ---------------------------------------------------------

LONGEST = 1_000_000
"""Tokens of hidden history read in full. Of older messages only people's words and changes are."""
LEAST = LONGEST // 4
"""Minimum number of tokens read of a very long history. Older text is hardly ever quoted."""


class Source(NamedTuple):
    """The input of a summary."""

    older: Sequence[Message]
    """People's messages from before the part of a long history that is read in full."""
    hidden: Sequence[Message]
    """The original messages after these that the summary replaces."""
    shown: Sequence[Message]
    """The messages that stay before and after the summary."""
    later: Sequence[Message]
    """The messages that stay after it."""
    edited: Sequence[str]
    """Earlier summaries of messages in *hidden*, made by edits."""
    given: Sequence[str]
    """Earlier summaries sent by a caller as messages, without the messages that they replace."""
    sizes: Sequence[int]
    """Estimated tokens of each message in *older* and *hidden*."""
    changes: Sequence[Step] = ()
    """Changes of files and plans by older calls, as steps without texts."""
    folder: str = ""
    """The session's working folder, if the client states it."""


def read_source(view: View, start: int, stop: int, is_alone: bool = False) -> Source:
    """Return a span with its earlier summaries, and unless it *is_alone* the messages that stay."""
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
    begins = opening_length(messages)  # a first request among these is in the summary
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
    later = [] if is_alone else read_own(range(stop, len(messages)))
    shown = [] if is_alone else [*read_own(range(start)), *later]
    texts, folder = [text for text, _ in edited], find_folder(view_segments(view))
    changes = list(_join_effects(effects, folder))
    return Source(older, hidden, shown, later, texts, given, sizes, changes, folder)


class _Effects(NamedTuple):
    """The changes by one message."""

    calls: tuple[tuple[str, CallEffect], ...] = ()
    """Changed files and plans of its calls, with the call's id (empty for a plan in text)."""
    failed: tuple[str, ...] = ()
    """Ids of calls with an error result in the message."""


def _read_effects(message: Message) -> _Effects:
    if message.role != "assistant":
        results = (part for part in message.parts if isinstance(part, ToolResult))
        return _Effects(failed=tuple(result.id for result in results if result.error))
    calls = tuple([part for part in message.parts if isinstance(part, ToolCall)])
    effects = [step.effect for step in read_steps([Message(message.role, calls)])]
    boxes = CallEffect("", todos=read_boxes(clip_scanned(message.text)) or None)
    changes = (
        (id, effect._replace(files=files, command="", place=UNKNOWN_SESSION_DIR, changes=()))
        for id, effect in zip((*(call.id for call in calls), ""), (*effects, boxes), strict=True)
        if (files := tuple(file for file in effect.files if file[1] != "read"))
        or effect.todos
        or effect.changed_todos
    )
    return _Effects(tuple(changes))


def _join_effects(effects: Sequence[_Effects], folder: str) -> Iterator[Step]:
    """Yield the changes by successful calls in a session at *folder*, as steps without texts."""
    failed, place = {id for message in effects for id in message.failed}, WorkingDir(folder)
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
    """Return how many of *hidden* tokens are read. The number falls as the total grows, so that the
    work for all summaries of a session does not grow quadratically. Messages that no earlier
    summary covers are read up to `LONGEST`."""
    return min(LONGEST, max(unsummarized, LEAST, LONGEST**2 // max(1, hidden)))


# --- messages as steps ----------------------------------------------------------------------------

_THOUGHT = re.compile(r"\A\s*+(?:THOUGHT|Thought)\s?:\s*+")
"""Prefix of the words of agents that write their actions as text (ReAct)."""


@dataclass(slots=True)
class _Open:
    """Calls and processes without a final result so far."""

    calls: dict[str, _Call] = field(default_factory=dict)
    processes: dict[str, _Call] = field(default_factory=dict)
    """Calls whose processes still run, by the id that later calls use for them."""
    folder: str = ""
    """The session's working folder, if known."""


def read_steps(messages: Sequence[Message]) -> list[Step]:
    """Return the steps of *messages* in order, with one name for each file, in n log n time."""
    spoken = segment_messages(messages)
    steps = list(_iter_steps(messages, spoken, find_folder(spoken)))
    files = (file for step in steps for file in step.effect.files)
    return _rename_files(steps, _find_spellings(files))


def read_spans(
    source: Source, spoken: Segmented, given: Iterable[tuple[str, str]]
) -> tuple[list[Step], list[Step], list[Step], dict[str, str]]:
    """Return the changes as steps, the hidden steps and the later steps of *source*, whose segments
    are *spoken*. Also return other names of files in these and in *given* (path, state)."""
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
    """Yield the steps of *messages* in a session at *folder* (empty if unknown), in order, with
    files as the calls name them. *spoken* holds the segments of each message."""
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
    """Map other spellings of files to the chosen one: absolute if there is one, temporary last."""
    states = defaultdict[str, set[str]](set)
    for path, state in files:
        states[path.rstrip("/")].add(state)
    changed = {path: not now.isdisjoint(shell.CHANGES) for path, now in states.items()}
    is_idle = not any(changed.values())  # then a copy of the work serves as well
    rooted = {path: is_idle or is_new for path, is_new in changed.items() if is_absolute(path)}
    inside = {path: is_new for path, is_new in rooted.items() if not is_outside(path)}
    matched = match_paths(inside or rooted, states.keys() - rooted.keys() - {shell.ALL})
    return unify_windows_paths(states) | matched | expand_home(rooted, states)


def _rename_files(steps: Iterable[Step], spellings: Mapping[str, str]) -> list[Step]:
    """Return steps with one name for each file."""
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
    is_script = bool(asked and "tools." in asked.string)  # it prints only what is new
    is_running = report.is_running or (is_later and is_script and report.exit_code is None)
    if is_running and process:  # without an id no later call refers to it
        waiting.processes[process] = waiting.processes[process[:SHORT_ID]] = effect, call
    text = tab_line_numbers(join_texts(report.output)) if len(effect.files) == 1 else report.output
    output = without_terminal_codes(text)
    if changed := _CHANGED.search(output):
        paths = (row.removesuffix(". Call Read before editing.") for row in changed[1].split(", "))
        files = ((effect.place.name(path), "changed") for path in paths if path)
        effect = effect._replace(files=(*effect.files, *files))
    is_error = result.error or bool(_IS_ERROR.match(output) and not effect.command)
    ended = (is_error, report.exit_code, is_running, is_later)
    return Step("result", at, output, effect, call.arguments, call_gist(call), *ended)


def _without_notes(text: str) -> str:
    """Return the text of a result without the client's notes at its end."""
    notes = takewhile(lambda element: element[1].startswith(NOTES), trailing_elements(text))
    return text[: min((start for start, _ in notes), default=len(text))]


def _read_segments(
    segments: Iterable[Segment], waiting: _Open, at: int, message: Message
) -> Iterator[Step]:
    """Yield the steps of people and tools in one message."""
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
            if segment.kind in UNQUOTED or (label and label[2] is not None):  # nothing follows it
                if overheard := read_earlier_messages(text):
                    yield Step("result", at, overheard, CallEffect("read what others wrote"))
                continue
            command, output = read_ran_command(text) or ("", text)
            has_run = bool(command) or text.lstrip().startswith(REPORTS)
            unknown, folder = CallEffect(UNKNOWN_TOOL), waiting.folder
            effect = effect_of_command(command, folder) if has_run else unknown
            code, is_template = read_exit_code(output), segment.kind == TEMPLATE
            yield Step("result", at, output, effect, exit_code=code, is_template=is_template)


# --- clients' reports on commands: whether they still run, and exit codes -------------------------

_HEADER = re.compile(
    r"\Arc=-?\d{1,10}\n|\ACommand (?:executed|failed with)[^\n]{0,400}+(?:\nExit code: -?\d{1,10})?"
    r"(?:\nOutput:\n|\s*\Z)"
    r"|\A(?:Chunk ID: |Exit code: |Wall time|Script )[^\n]{0,100}\n(?:[^\n]{0,100}\n){0,7}?Output:\n+"
    r"(?:Warning: truncated output [^\n]{0,99}\n)?(?:Total output lines: \d+\n+)?"
)
"""Header before a command's output (Cline, Roo Code, Codex)."""
_OPENING = re.compile(r"(?s)\A(?:Command: .{0,2000}?\nDirectory: [^\n]*\n)?(?:Output|Stdout): ")
_CLOSING = re.compile(
    r"(?:Error|Stderr|Exit Code|Signal|Background PIDs|Process Group PGID): ?(\(none\))?(.*)"
)
"""Fields before and after a command's output (Gemini CLI, Qwen Code)."""
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
"""Status and report of a command or agent in the background (Claude Code)."""
_EXEC = re.compile(
    r"^System[^:\n]{0,20}: \[[^\]\n]{1,40}\] Exec \w+ \(([\w-]{1,9}), "
    r"(?:code (-?\d{1,10})|signal SIG(\w+))\)(?: :: (.*))?",
    re.MULTILINE,
)
"""The end of such a command, before a person's message (OpenClaw), with the start of its id."""
_CHILD = re.compile(
    r"^session_key: ([^\n]{1,200})\n(?:[^\n]{1,300}\n){0,5}?status: (\w+)\b[^\n]*\n"
    r"(?:\s{0,9}Result[^\n]{0,100}:\n)?((?:(?!\n(?:Stats: |Action:\n)).){0,20000})",
    re.MULTILINE | re.DOTALL,
)
"""The end of another agent, with its report (OpenClaw)."""
_ANNOUNCED = re.compile(
    r"^A [a-z ]{3,30} \"[^\"\n]{1,300}\" just (\w+)[^\n]{0,300}\n\n(?:Findings|Result):\n"
    r"((?:(?!\nStats: ).){0,20000})\nStats: [^\n]{0,200}?\bsessionKey ([\w:-]+)",
    re.MULTILINE | re.DOTALL,
)
"""The same in an older version."""
_TASK_OPENINGS = ("<retrieval_status>", "<task_id>")
_CHANGED = re.compile(r" modified \d+ files? you've previously read: ([^\]\n]+)")
"""A client's list of the files that a command changed (Claude Code)."""
_STUB = re.compile(
    r"\s{0,9}(?:\[[^\]\n]{1,200}\]|<[^>\n]{1,200}>|File unchanged since last read\b[^\n]{0,300})\s{0,9}"
    r"|<tool_output_masked>[\s\S]*"
)
_WAITS = re.compile(r"\[The command (?:has no new output|timed out) after \d|You CANNOT send new ")
_ASKED = re.compile(r"\b(?:(?:session|cell|bash|shell|task)_?[iI]d|is_input)\W{1,9}([\w:-]+)")
"""The process that a call refers to: an id, or `true` for keyboard input (OpenHands)."""
_STILL = re.compile(
    r"\A(?:<status>running</status>|Command is still running)|\nProcess still running\.\s*\Z"
)
_STOPPED = re.compile(r'Termination requested|The last command <|\{"message": ?"Successfully \w')
_SIGNALED = re.compile(r"\nProcess exited with signal SIG(\w+)\.\s*\Z")
_SIGNALS = {"KILL": 137}
SHORT_ID = 8
"""Number of characters of an id by which OpenClaw names a process that has ended."""
_NO_NEWS = re.compile(r"(?:<\w+>)?No (?:active )?\w+ found\b|write_stdin failed|This operation")
_PREVIOUS = "[Below is the output of the previous command.]"
"""Prefix for output of a command that still runs in the client's only shell (OpenHands)."""


def is_stub(text: str) -> bool:
    """Return whether a result is a one-line stub: its text was left out or stands elsewhere."""
    return bool(_STUB.fullmatch(text))


class CommandReport(NamedTuple):
    """A client's report on a command."""

    output: str
    exit_code: int | None = None
    process: str = ""
    """The client's id of a background process, else empty; `true` for a client's only shell."""
    is_running: bool = False


def read_report(text: str) -> CommandReport:
    """Read the result of a command. Without a client's report all of it is output."""
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
    """Read an output followed by fields, one per line. An error message is added to the output."""
    rows, code, errors = text.split("\n"), None, list[str]()
    while len(rows) > 1 and (match := _CLOSING.fullmatch(rows[-1])):
        name, value = rows.pop().partition(":")[0], match[2].strip()
        if name == "Exit Code" and value.lstrip("-").isdigit():
            code = int(value)
        elif name in {"Error", "Stderr"} and value:
            errors.append(value)
    return CommandReport("\n".join((*rows, *errors)), code)


def read_task_reports(text: str) -> Iterator[CommandReport]:
    """Yield the reports on background commands in a text, with a report or summary as output."""
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
"""Fields that hold a command's exit code, or an object with it, beside the output."""


def _unwrap(text: str) -> str:
    """Return the text of a result. Of a JSON object with a command's output and exit code return
    the output, of another one its multi-line strings, if any."""
    if not text.startswith("{") or not ("\\n" in text or '"output"' in text):
        return text
    fields = parse_or_none(text) or {}
    if isinstance(output := fields.get("output"), str) and not _CODE_FIELDS.isdisjoint(fields):
        return output
    outputs = [value for value in fields.values() if isinstance(value, str) and "\n" in value]
    return "\n".join(outputs) or text
