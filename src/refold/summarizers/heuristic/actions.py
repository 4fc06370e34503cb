"""What came of calls beside changed files: what was done, how often something was only looked at,
and what failed."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from refold.speakers.carriers import NOT_RUN, REFUSED
from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.calls import is_agent, is_look
from refold.summarizers.heuristic.shell_words import MAX_COMMAND, WORD, name_command
from refold.summarizers.heuristic.source import RUNNING, UNKNOWN, Step
from refold.text.clip import one_line
from refold.text.failures import (
    find_error_line,
    find_figures,
    is_failure,
    is_markup,
    looks_failed,
)
from refold.text.json_values import iter_json_lines, parse_or_none

LONGEST_COMMAND = 110
"""Characters of a command."""
LONGEST_OUTCOME = 100
"""Characters of what came of it."""
LONGEST_REPORT = 400
"""The same of another agent: nothing else tells what that did."""
LONGEST_REASON = 160
"""Characters of the line that says why it failed."""
IDLE = frozenset({UNKNOWN, "report_intent"})
"""Tools that do nothing: one that nobody names, and one that says what comes (Copilot CLI)."""
RAN = "ran"
"""The outcome of a command whose exit code is that of another behind it; if that failed, it
says so."""
COMMIT = re.compile(r"\bgit\s+(?:-\S+\s+\S+\s+)?commit\b")
COMMITTED = re.compile(r"^(\[[^\]\n]{1,100}\s[0-9a-f]{6,40}\])\s(.*)$", re.MULTILINE)
"""What git says of a commit: its branch and hash, and its subject."""
_MISSING = re.compile(
    r"(?i)no such file|does not exist|file not found|cannot find (?:the )?path|ENOENT"
    r"|no (?:active )?(?:shell|session|task) found"
)
"""What is said of a file, or of what ran, that is not there."""
_NAMES_ERROR = re.compile(r"[^:：]{1,40}[:：]")
"""How a line begins that says which error there is, as one of a list of symbols does not."""
SOON, SOON_AFTER = 2, 4
"""So many of the last calls that failed are done otherwise by a call of the same program that works
at most so many messages later."""
WORKED = "; then it worked otherwise"
"""What is said of a failure behind which a call of the same program worked."""
WAS_REFUSED = "refused by the user"
"""Why a call did not run, so that nobody makes it again."""
UNSEEN = "started, no end was seen"
"""The outcome of what ran when a turn had ended and something else was asked."""
STOPPED = "exit 130"
"""The outcome of a command that was interrupted."""


class Action(NamedTuple):
    """What came of a call that did something to other things than files, or that failed."""

    outcome: str
    times: int = 1
    rank: int = 2
    """1 if it only prepared work, was a script of a few lines, or failed to look; 0 if it failed
    and then worked otherwise."""

    program: str = ""
    """Of what failed: the program or tool."""
    at: int = -1
    """The position of its message."""

    @property
    def is_running(self) -> bool:
        """Has nobody seen its end?"""
        return self.outcome.startswith(RUNNING)


@dataclass(slots=True)
class Actions:
    """What calls did and what failed, the last time of each last."""

    done: dict[str, Action] = field(default_factory=dict)
    failed: dict[str, Action] = field(default_factory=dict)
    """Those that did not work when they were tried again."""
    looks: dict[str, int] = field(default_factory=dict)
    """How often each tool or program was called that only looks, but at files."""

    def note(self, step: Step, outcome: str, *, is_told: bool) -> None:
        """Note what came of a call; *is_told*: do checks and commits tell it?"""
        if step.effect.tool in IDLE:
            return
        if step.text.startswith(NOT_RUN):
            if step.text.startswith(REFUSED):
                _add(self.failed, _name_failed(step), WAS_REFUSED, step, 1)
            return
        if outcome == "ok" and _hides_failure(step):
            outcome = "failed"
        if not is_told and (reason := _find_failure(step, outcome)):
            name = _name_failed(step)
            if name in self.done and self.done[name].outcome in (RUNNING, UNSEEN):
                del self.done[name]  # it has come to its end
            only_looks = _only_looks(step)
            if not (only_looks and _MISSING.search(reason)):  # it is looked for elsewhere at once
                _add(self.failed, name, reason, step, 2 - only_looks)
            return
        self.drop_mended(step)
        if not (is_told or step.effect.files) or shell.find_deeds(step.effect.command).rank > 1:
            self._note_deed(step, outcome)

    def drop_mended(self, step: Step) -> None:
        """Forget that a call failed which works now; say so of one that works in other words right
        behind it."""
        if not self.failed or step.outcome != "ok":
            return
        self.failed.pop(_name_failed(step), None)
        program, words = _name_program(step), _split_name(_name_failed(step))
        for name, act in [*reversed(self.failed.items())][:SOON]:
            is_open = act.rank and act.outcome != WAS_REFUSED
            is_near = step.at - act.at <= SOON_AFTER and not words.isdisjoint(_split_name(name))
            if act.program == program and is_near and is_open:
                self.failed[name] = act._replace(outcome=act.outcome + WORKED, rank=0)

    def end_turn(self) -> None:
        """Say of what still runs that nobody has seen its end: a person went on without it."""
        for name, act in self.done.items():
            if act.is_running:
                self.done[name] = act._replace(outcome=UNSEEN)

    def _note_deed(self, step: Step, outcome: str) -> None:
        effect, deeds = step.effect, shell.find_deeds(step.effect.command)
        if not deeds.rank if effect.command else is_look(effect):
            name = _name_program(step, 1)
            name = effect.tool if name.startswith("$") else name
            self.looks[name] = self.looks.get(name, 0) + 1
            return
        has_code = deeds.has_code or outcome in (RUNNING, "failed")
        if not has_code:
            outcome = RAN if outcome == "ok" else f"{RAN}, then {outcome}"
        call = name_command(deeds.text) or _write_call(step)
        is_own = has_code and outcome != RUNNING and (deeds.is_last or not deeds.text)
        says_own = is_own and bool(effect.command)  # though its code may say nothing
        is_wrong = (says_own or not has_code) and looks_failed(step.text)
        tells = is_own or is_wrong or step.text.startswith("{")  # fields say what they are of
        line = _find_line(step, failed=is_wrong) if tells else ""
        if is_own and is_agent(effect.tool):
            line = step.text[max(0, step.text.find(line)) :]
        line = one_line(line, LONGEST_REPORT if is_agent(effect.tool) else LONGEST_OUTCOME)
        result = ": ".join(filter(None, ("" if outcome == "ok" else outcome, line)))
        _add(self.done, call, result or outcome, step, deeds.rank or 2)


def _add(actions: dict[str, Action], call: str, outcome: str, step: Step, rank: int = 2) -> None:
    name = one_line(call, LONGEST_COMMAND)
    times = actions.pop(name, Action("", 0)).times
    times = max(1, times + (not step.is_later))
    actions[name] = Action(outcome, times, rank, _name_program(step), step.at)


def _find_failure(step: Step, outcome: str) -> str:
    """Return how a call failed and the line that says why; empty if it did not fail or was not run,
    and if it does not say what is wrong but only looked, or the code is of what stands behind."""
    command, has_worked = step.effect.command, outcome in ("", "ok", RUNNING)
    if outcome == STOPPED or (
        has_worked and (command or step.effect.files or is_look(step.effect))
    ):
        return ""
    line = one_line(_find_line(step, failed=True), LONGEST_REASON)
    if has_worked:
        return line if _NAMES_ERROR.match(line) and is_failure(line) else ""
    is_own = not command or shell.find_deeds(command).has_code
    if not looks_failed(line) and (not is_own or (command and _only_looks(step))):
        return ""
    return ": ".join(filter(None, (outcome, line)))


def _hides_failure(step: Step) -> bool:
    """Does a command fail whose exit code does not say so: that of the last one behind a pipe, or
    of a client to which a server answers with an error?"""
    command, text = step.effect.command, step.text
    if not command or not shell.find_deeds(command).rank:
        return False
    is_piped = any(word[3] == "|" for word in WORD.finditer(command[:MAX_COMMAND]))
    return (is_piped and says_failed(step, text)) or (text.startswith("{") and is_failure(text))


def says_failed(step: Step, text: str) -> bool:
    """Does what a command printed say that it failed, in words that it does not hold itself?"""
    line = find_error_line(text) if looks_failed(text) else ""
    return bool(line) and line not in step.effect.command


def _only_looks(step: Step) -> bool:
    """Was a call to change nothing?"""
    effect = step.effect
    if not effect.command:
        return is_look(effect)
    is_read = all(now == "read" for _, now in effect.files)
    return is_read and not shell.find_deeds(effect.command).rank


def _find_line(step: Step, *, failed: bool) -> str:
    return find_outcome_line(step.text, failed=failed, printed=bool(step.effect.command))


def _name_program(step: Step, words: int = 2) -> str:
    """Return the first *words* of a command (`git push`), or the tool of another call."""
    return " ".join(name_command(step.effect.command).split(" ")[:words]) or step.effect.tool


def _name_failed(step: Step) -> str:
    """Name a call such that it has the same name when it is tried again."""
    effect = step.effect
    paths = " ".join(path for path, _ in effect.files)
    name = name_command(effect.command) or (
        f"{effect.tool} {paths}" if paths else _write_call(step)
    )
    return one_line(name, LONGEST_COMMAND)


def _split_name(name: str) -> set[str]:
    """Return the words of a call's name behind its program or tool, without options."""
    return {word for word in name.split()[1:] if not (word.startswith("-") or word.endswith(":"))}


def _write_call(step: Step) -> str:
    """Return a tool's name with its first arguments."""
    value = parse_or_none(step.arguments)
    fields = next(iter_json_lines(value if isinstance(value, dict) else {}), None)
    return f"{step.effect.tool} {fields.text if fields else ''}".rstrip()


def find_outcome_line(text: str, *, failed: bool, printed: bool) -> str:
    """Return the line that says what came of a call: of JSON its first fields, of what *failed* its
    error, of what a command *printed* the last line, of a tool's answer the first."""
    value = parse_or_none(text) if text[:1] in "{[" else None
    if isinstance(value, dict | list):
        return next((line.lead + line.text for line in iter_json_lines(value)), "")
    if failed:
        return find_error_line(text)
    lines = (row.strip() for row in (text[-2_000:] if printed else text[:2_000]).splitlines())
    rows = [row for row in lines if any(map(str.isalnum, row)) and not is_markup(row)] or [""]
    if printed:
        return "… " * (len(rows) > 1) + rows[-1]
    return next((r for r in rows if r[-1:] not in (":", "：")), rows[0])


def write_outcome(command: str, text: str, outcome: str, subject: str = "") -> str:
    """Return the *outcome* of a check with the line that has its figures; of a commit its branch,
    hash and subject, or if it prints nothing the *subject* that it was given."""
    if COMMIT.search(command) and (match := COMMITTED.search(text)):  # a push behind it may fail
        return f"{match[1]} {one_line(match[2], 100)}"
    if outcome == "ok" and COMMIT.search(command):  # figures in what it printed are another's
        return f"ok: {one_line(subject, 100)}" if subject else outcome
    line = find_figures(text) or (find_error_line(text) if outcome != "ok" else "")
    return ": ".join(filter(None, (outcome, line)))
