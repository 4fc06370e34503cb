"""One pass over messages that collects what a rule summary keeps."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from refold.core.view import View
from refold.messages import Message, ToolCall, ToolResult
from refold.speakers import Segment, own_words, read_ran_command, segment_messages
from refold.speakers.carriers import OUTPUT_MARKS
from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.calls import (
    CallEffect,
    effect_of_call,
    effect_of_command,
    error_line,
    exit_code,
    looks_failed,
    outcome_of,
)
from refold.summarizers.heuristic.cues import (
    find_conclusions,
    find_constraints,
    strongest,
    without_pasted,
)
from refold.summarizers.heuristic.digest import (
    UNANSWERED,
    Digest,
    Todo,
    count_repeats,
    state_after,
    unique,
)
from refold.summarizers.heuristic.names import IdentifierTally, note_identifiers, rank_identifiers
from refold.summarizers.heuristic.words import clip_scanned, one_line
from refold.text.summary_wrapper import (
    belongs_to_summary,
    opening_length,
    summary_in,
    without_summary,
)

MAX_DECISIONS = 120
"""Sentences kept of a stretch, the strongest; how many are shown is a matter of the cap."""
MAX_COMMAND = 110
"""Characters kept of a command."""

_OUTPUT = ("<returncode>", "<output>", *OUTPUT_MARKS)
_ACTION = re.compile(r"```(?:bash|sh|shell|mswea_bash_command)\n(.*?)\n?```", re.DOTALL)
_BOX = re.compile(r"^[ \t]*[-*+][ \t]+\[([ xX~/-])\][ \t]+(\S[^\n]{0,300})$", re.MULTILINE)
_BOXES = {" ": "pending", "x": "done", "X": "done"}


@dataclass(slots=True)
class _Collector:
    """What the pass has found so far."""

    tally: IdentifierTally = field(default_factory=IdentifierTally)
    requests: dict[str, int] = field(default_factory=dict)
    """How often each was made, in the order of the latest."""
    constraints: list[str] = field(default_factory=list)
    conclusions: list[tuple[float, str]] = field(default_factory=list)
    todos: tuple[Todo, ...] | None = None
    pending: dict[str, CallEffect] = field(default_factory=dict)
    """Calls without a result yet."""
    action: str = ""
    """A command written as text, not yet answered."""
    unanswered: list[str] = field(default_factory=list)
    answered: bool = False
    error: tuple[str, str] = ("", "")
    """The command or tool that failed last, and what it said."""
    files: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)


def collect(messages: Iterable[Message]) -> Digest:
    """Everything worth keeping of *messages*, in time linear in their length. Never raises."""
    messages = list(messages)
    notes, count = _Collector(), len(messages)
    for at, (message, spoken) in enumerate(zip(messages, segment_messages(messages), strict=True)):
        _collect_message(notes, message, spoken, at)
    return Digest(
        requests=tuple(notes.requests),
        repeats=count_repeats(notes.requests),
        constraints=unique(notes.constraints),
        decisions=strongest(notes.conclusions, MAX_DECISIONS),
        todos=notes.todos,
        open=(
            *unique(UNANSWERED + one_line(text, 120) for text in notes.unanswered),
            *_last_error(notes),
        ),
        answers_earlier=notes.answered,
        files=notes.files,
        commands=notes.commands,
        index=rank_identifiers(notes.tally, count, notes.files),
        messages=count,
        calls=dict(notes.calls),
    )


def _last_error(notes: _Collector) -> tuple[str, ...]:
    who, message = notes.error
    return (f"last error: {message} ({one_line(who, 60)})",) if message else ()


def _collect_message(
    notes: _Collector, message: Message, spoken: Sequence[Segment], at: int
) -> None:
    for part in message.parts:
        match part:
            case ToolCall():
                _collect_call(notes, part, at)
            case ToolResult():
                _collect_result(
                    notes,
                    notes.pending.pop(part.id, CallEffect(part.name or "tool")),
                    part.text,
                    part.error,
                    at,
                )
            case _:
                pass
    for segment in spoken:
        if segment.voice == "person":
            _collect_request(notes, own_words(segment), at)
        elif segment.voice == "tool":
            _collect_observation(notes, segment.text, at)
    if message.role == "assistant" and message.text.strip():
        _collect_answer(notes, message.text, at, final=not message.calls)


def _collect_request(notes: _Collector, own: str, at: int) -> None:
    if not own:
        return
    note_identifiers(notes.tally, own, at)
    notes.action = ""
    notes.requests[own] = notes.requests.pop(own, 0) + 1
    notes.constraints += find_constraints(without_pasted(own))
    notes.unanswered.append(own)


def _collect_answer(notes: _Collector, text: str, at: int, *, final: bool) -> None:
    text = clip_scanned(text)
    actions = actions_in(text) if final else []
    notes.action = actions[-1] if actions else ""
    note_identifiers(notes.tally, notes.action, at, "call")
    prose = _ACTION.sub("", text) if actions else text
    notes.conclusions += find_conclusions(prose, final=final and not actions)
    if boxes := _BOX.findall(prose):
        notes.todos = tuple(Todo(task.strip(), _BOXES.get(mark, "active")) for mark, task in boxes)
    note_identifiers(notes.tally, text, at)
    if final and not actions:
        notes.unanswered.clear()
        notes.answered = True


def actions_in(text: str) -> list[str]:
    """Commands that an assistant wrote as text (mini-swe-agent)."""
    return _ACTION.findall(text)


def ends_turn(message: Message) -> bool:
    """Does *message* end a turn? An assistant's does that says something and calls nothing."""
    text = message.text
    return (
        message.role == "assistant"
        and not message.calls
        and bool(text.strip())
        and not actions_in(clip_scanned(text))
    )


def _collect_call(notes: _Collector, call: ToolCall, at: int) -> None:
    done = effect_of_call(call)
    notes.calls[call.name] += 1
    notes.pending[call.id] = done
    if done.todos is not None:
        notes.todos = done.todos
    note_identifiers(notes.tally, done.text, at, "call")


def _collect_observation(notes: _Collector, text: str, at: int) -> None:
    """What a tool says in the user's role: the answer to a command that was written as text, or that the user ran."""
    command, output = read_ran_command(text) or (notes.action, text)
    notes.action = ""
    if not command and not text.lstrip().startswith(_OUTPUT):
        note_identifiers(notes.tally, text, at, "result")
        return
    done = effect_of_command(command)
    notes.calls[done.tool] += 1
    _collect_result(notes, done, output, False, at)


def _collect_result(notes: _Collector, done: CallEffect, text: str, error: bool, at: int) -> None:
    note_identifiers(notes.tally, text, at, "result")
    ended = outcome_of(text, error=error)
    if ended == "ok" or not error:
        _update_files(notes, done, text)
    name = one_line(shell.name_command(done.command), MAX_COMMAND) if done.command else done.tool
    works = bool(done.command) and shell.is_work(done.command)
    if works and ended == "ok" and exit_code(text) is None and looks_failed(text):
        ended = "error"
    if works:
        notes.commands.pop(name, None)
        notes.commands[name] = ended
    if ended != "ok" and (error or (exit_code(text) or 0) > 1 or not done.command or works):
        notes.error = (name, error_line(text))
    elif ended == "ok" and _is_retry(name, notes.error[0]):
        notes.error = ("", "")


def _is_retry(name: str, failed: str) -> bool:
    """Is this what failed before, as it stood or with other arguments (`git push`, then `git push -u origin x`)?"""
    words, before = name.split(), failed.split()
    return bool(before) and words[:2] == before[:2]


def _update_files(notes: _Collector, done: CallEffect, text: str) -> None:
    overwrote = done.command == "" and re.search(r"\b(?:updated|overw\w+|modified)\b", text[:300])
    for path, state in done.files:
        before = notes.files.pop(path, None)
        state_before = before or ("read" if overwrote and state == "created" else None)
        notes.files[path] = state_after(state_before, state)


class SourceSpan(NamedTuple):
    """Earlier summaries, and what was said outside of what they cover."""

    earlier: tuple[str, ...]
    """Texts of earlier summaries, oldest first."""
    messages: tuple[tuple[int, Message], ...]
    """Messages as they were said, with their positions; without what only carries a summary."""
    is_answered: bool = False
    """Whether what was asked in it is answered behind it."""


def read_span(view: View, start: int, stop: int) -> SourceSpan:
    """The material of `messages[start:stop]`: what was said rather than what the view shows of it,
    except where an earlier summary covers it. A summary is told apart also where a caller fed it
    back as history, alone or merged with the user's words."""
    transcript, earlier, own_messages = (
        view.transcript.messages,
        list[str](),
        list[tuple[int, Message]](),
    )
    begins = opening_length(transcript)
    for item in view.iter_items():
        if item.start < start or item.stop > stop:
            continue
        covered = (
            [text for text in map(summary_in, item.messages) if text is not None]
            if item.edit
            else []
        )
        earlier += covered
        if covered:
            continue
        for at in range(item.start, item.stop):
            text = summary_in(transcript[at])
            earlier += [] if text is None else [text]
            if (
                at >= begins
                and not belongs_to_summary(transcript, at)
                and (rest := without_summary(transcript[at])).parts
            ):
                own_messages.append((at, rest))
    behind = (
        at
        for at in range(stop, len(transcript))
        if not belongs_to_summary(transcript, at) and summary_in(transcript[at]) is None
    )
    return SourceSpan(
        tuple(earlier), tuple(own_messages), any(ends_turn(transcript[at]) for at in behind)
    )
