"""Effects of tool calls other than file changes: outcomes, completed actions and failures."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from refold.speakers.carriers import NOT_RUN, REFUSED
from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.calls import is_look
from refold.summarizers.heuristic.identifiers import find_names
from refold.summarizers.heuristic.lexicon import CHANGING, LOGGED, NEGATING, WORKING
from refold.summarizers.heuristic.shell_words import (
    ARGUMENT,
    MAX_COMMAND,
    WORD,
    Words,
    expand_inner_commands,
    iter_marks,
    name_command,
    simple_commands,
)
from refold.summarizers.heuristic.steps import RUNNING, STOPPED, UNKNOWN_TOOL, Step
from refold.text.clip import one_line
from refold.text.failures import (
    find_error_line,
    find_figures,
    has_failed,
    is_failure,
    is_markup,
    looks_failed,
)
from refold.text.json_values import iter_json_lines, parse_or_none, text_at
from refold.text.plain import IMPORT, folders_of, iter_ends, name_program, unquote_git, with_slashes

_AGENT = re.compile(
    r"(?i)(?:task|agent|subagent|dispatch|sessions_spawn)(?!_?(?:create|get|list|output|stop|update))"
)
"""Names of tools that give a task to another agent, but not of tools for task lists."""
LONGEST_COMMAND = 110
"""Maximum characters of a command."""
LONGEST_OUTCOME = 100
"""Maximum characters of an outcome."""
LONGEST_REPORT = 400
"""Maximum characters of another agent's report, the only record of its work."""
LONGEST_REASON = 160
"""Maximum characters of the reason of a failure."""
IDLE = frozenset({UNKNOWN_TOOL, "report_intent", "update_topic", "update_plan", "Skill", "skill"})
"""Tools without an effect: unknown ones, those that announce intentions (Copilot CLI, Gemini CLI)
and those that return a skill's text."""
MAX_OUTPUT = 100_000
"""Maximum characters read of git's output for a commit."""
RAN = "ran"
"""Outcome if the exit code is a later command's, whose failure is added: `ran, then exit 1`."""


# --- the outcome of one call ----------------------------------------------------------------------


COMMIT = re.compile(rf"\bgit\s+(?:-\S+\s+{ARGUMENT}\s+)?commit\b")
_NO_COMMIT = re.compile(
    r"(?m)^(?:nothing (?:added )?to commit\b|no changes added to commit\b|无文件要提交|沒有要提交的檔案|コミットするものが|커밋할 사항|nichts zu c|nada (?:para hacer|a submeter)|rien à valider|нечего коммитить)"
)
COMMITTED = re.compile(r"^(\[[^\]\n]{1,100}\s[0-9a-f]{6,40}\])\s(.*)$", re.MULTILINE)
"""Git's line about a commit: branch and hash, then the subject."""
_MESSAGE = re.compile(r"\s-[a-z]{0,5}m\s{0,9}(['\"])((?!\$\()[^\n]*?)\1")
"""A commit message in a command."""
_COUNTED = re.compile(r"^ (\d{1,6}) files? changed\b", re.MULTILINE)
_NAMED = re.compile(r"^ (?:create|delete) mode \d{6} (\S.{0,400})$", re.MULTILINE)
_MOVED = re.compile(r"^ (?:rename|copy) ", re.MULTILINE)
_PUSHED = re.compile(
    r"^ {1,3}[ +*] ?(?:[0-9a-f]{6,40}\.{2,3}[0-9a-f]{6,40}|\[new \w{1,10}\]) {1,9}\S{1,200} {1,9}-> \S",
    re.MULTILINE,
)
"""Git's line about a branch that it pushed or fetched."""
RAN_NOTHING = "nothing ran"
"""Outcome of a check that found nothing to check, or whose program is missing."""
UNTESTED = frozenset({RUNNING, RAN_NOTHING, "exit 126", "exit 127"})
"""Outcomes of checks that have tested nothing yet."""
_NOTHING_RAN = re.compile(
    r"^(?:[^\n:]{0,200}\bpython[\d.]{0,9}(?:\.exe)?: (?:No module named|can't open file) "
    r"|[^\n]{0,80}\bno (?:tests?|test files?|test modules?|test suites?|specs?|examples?|projects?|packages?)"
    r"\b[^\n]{0,30}?\b(?:found|match\w{0,3}|ran|to (?:run|test)|executed|selected|collected)\b"
    r"|[^\n]{0,80}\bcollected 0 items\b|[^\n]{0,60}\b(?:missing script|script not found)\b"
    r"|[^\n]{0,80}\bran 0 tests\b|make: \*\*\* no rule to make target )[^\n]{0,200}",
    re.MULTILINE | re.IGNORECASE,
)
"""Messages of runners with nothing to run, and of interpreters that miss a module or file."""
_NO_PROGRAM = re.compile(
    r"^[^\n]{0,200}(?:command not found|is not recognized as |not found: |[未找]?[找不]到(?:命令|指令)|指令找不到|不是[内內]部|コマンドが見つか|内部コマンド|명령어?[를을] 찾을 수 없|(?:Kommando|Befehl) nicht gefunden|(?:orden|comando) n\w+ encontrad|commande introuvable|команда не найдена)[^\n]{0,100}",
    re.MULTILINE,
)
_RAN_SOME = re.compile(
    r"(?<![\w.])[1-9]\d{0,6} (?:\w{1,12} )?(?:pass|fail|succe|ok\b)|^ok\s|\bPASS\b|[✓✔]",
    re.MULTILINE,
)
"""Output of runners that did run something."""
NEAR_ENDS = 2_000
"""Characters at either end of an output that are searched for these messages."""
_CALL_REPEATED = re.compile(r"\AMCP tool '[^'\n]{1,200}' reported tool error for function call: ")
_ANSWERED = " with response: "
"""Text between a call that a client repeats with its arguments, and the error (Gemini CLI)."""
_ARGUMENTS = "\n\nReceived arguments:\n"  # after the error (pi)
_ERROR_TAGS = re.compile(r"\A<tool_use_error>|</tool_use_error>\Z")  # around it (Claude Code)
_ANSWER = re.compile(r'"(?:text|error|message)": ?"((?>(?:[^"\\]|\\.){1,1000}))')
"""The message of that error."""
_SEARCHES = frozenset({"grep", "egrep", "rg", "findstr"})
_ERROR_WORDS = re.compile(r"error|fail|warn", re.IGNORECASE)
_NOT_OWN_CHANGE = re.compile(r"(?i)\b(?:should|would|could|must|if|already|was|were)\b")
"""Words of a report about changes that the agent did not make; `NEGATING` has others."""
_ENDS_AT_ERROR = re.compile(r"\bset -\w{0,9}e|ErrorActionPreference")
_HEADING = re.compile(r"#{1,6} |- \[ERROR\] |(?P<rule>[=*~_-])(?P=rule){2}")
"""Start of a heading, a horizontal rule or an error from a web page's console in tool output."""
_ASIDE = re.compile(rf"^```[^\n]*\n(?:(?!```)[^\n]*\n){{0,200}}```[^\n]*$|{LOGGED}", re.MULTILINE)
"""Fenced text, such as code that a tool ran, and console output of a web page."""
_NAMES_ANY = re.compile(r"(?::|^|,) (?!true\b|false\b)[^,:]{0,40}?[^\W\d_]")
"""A field whose value has letters and is no boolean."""
MOST_LINES = 20  # of a call's arguments that are read


def is_agent(tool: str) -> bool:
    """Return whether a tool, by its name, gives a task to another agent."""
    return bool(_AGENT.match(tool))


def read_words(text: str) -> str:
    """Return the output of a call without repeated arguments, and without markup at its ends."""
    if _CALL_REPEATED.match(text) and (answer := _ANSWER.search(text.rpartition(_ANSWERED)[2])):
        return answer[1]
    text = _ERROR_TAGS.sub("", text.partition(_ARGUMENTS)[0])
    head, _, rest = text.partition("\n")
    text = rest if is_markup(head) else text
    body, _, last = text.rstrip().rpartition("\n")
    return body if is_markup(last) else text


def read_outcome(step: Step, check: str, checks: shell.CommandSpan) -> str:
    """Return the outcome of a call. *check* names the *checks* that it runs, if any. If a check or
    work has no exit code of its own, its output decides. A search that finds no error is `ok`."""
    effect, text, outcome = step.effect, step.text, step.outcome
    if not effect.command:  # an exit code in a page or report is not the call's own
        return outcome if step.is_error or step.is_running else "ok"
    if check and not step.is_running and find_nothing_ran(text, check):
        return RAN_NOTHING
    has_own_code = not check or checks.has_own_code(step.exit_code or 0)
    is_known = step.exit_code is not None and has_own_code
    telling = f"{text}\n{find_figures(text)}" if check else text
    is_work = bool(check) or shell.is_work(effect.command)
    if is_work and outcome == "ok" and not is_known and says_failed(step, telling):
        return "failed"
    is_none = step.exit_code == 1 and read_words(text).strip() in ("", "0")
    return "ok" if is_none and greps_errors(checks.rest) else outcome


def read_check(step: Step, outcome: str, checks: shell.CommandSpan) -> str | None:
    """Return the *outcome* of the *checks* in a command; empty if they printed figures, but the
    exit code is another command's; None if a later command may have failed instead."""
    if not outcome.startswith(("exit", STOPPED)) or looks_failed(read_words(step.text)):
        return outcome
    figures = find_figures(step.text)
    if checks.has_own_code(step.exit_code or 0):
        return "" if figures and not checks.is_last else outcome
    return "" if figures else None


def greps_errors(command: str) -> bool:
    """Return whether the rest of a *command* after its checks searches their output for errors, so
    that no match means no error."""
    marks = [mark[0] for mark in iter_marks(command)]
    *_, words = simple_commands(command)
    is_search = marks == ["|"] and name_program(words[0] if words else "") in _SEARCHES
    is_turned = any(word[:1] == "-" and "v" in word for word in words)
    return is_search and not is_turned and any(map(_ERROR_WORDS.search, words))


def find_executed_part(command: str) -> str:
    """Return the part of a command that ran even if the command failed: all before its last line or
    `;`. Empty if the shell stops at the first error."""
    text = expand_inner_commands(command).rstrip(" \n;")
    ends = [mark.start() for mark in iter_marks(text) if mark[0] in {";", "\n"}]
    return "" if _ENDS_AT_ERROR.search(text) or not ends else text[: ends[-1]]


def keep_certain_effects(step: Step, paths: Iterable[str]) -> Step:
    """Return a result step with only its certain file effects: all if its call worked; those before
    the last line or `;` of a command that failed; of an agent that worked, changes of those *paths*
    that it reports as changed."""
    effect, done = step.effect, ""
    if step.has_effect and not is_agent(effect.tool):
        return step
    if step.has_effect:
        files = tuple((path, "modified") for path in _find_reported(step.text, paths))
    else:
        done = find_executed_part(effect.command) if step.exit_code else ""
        files = tuple(shell.file_effects(done, effect.place))
    return step._replace(effect=effect._replace(files=files, command=done))


def _find_reported(text: str, paths: Iterable[str]) -> Iterator[str]:
    changed = filter(CHANGING.is_in, text.splitlines())
    rows = [row for row in changed if not (_NOT_OWN_CHANGE.search(row) or NEGATING.is_in(row))]
    names = {name for name in find_names("\n".join(rows)) if "/" in name}
    yield from (path for path in paths if not names.isdisjoint(iter_ends(path)))


def says_works(request: str) -> bool:
    """Return whether a person says that they tried it and it works."""
    return WORKING.is_in(request[:300])


def find_nothing_ran(text: str, check: str) -> str:
    """Return the line that says that the *check* ran nothing, or that its program is missing; empty
    if there is none, or if some of it ran."""
    ends = text if len(text) <= 2 * NEAR_ENDS else f"{text[:NEAR_ENDS]}\n{text[-NEAR_ENDS:]}"
    if _RAN_SOME.search(ends):
        return ""
    if row := _NOTHING_RAN.search(ends):
        return row[0]
    programs = check.split()[:4]
    rows = (row[0] for row in _NO_PROGRAM.finditer(ends))
    own = (row for row in rows if not set(re.split(r"[\s:：'\"`]+", row)).isdisjoint(programs))
    return next(own, "")


def says_failed(step: Step, text: str) -> bool:
    """Return whether a command's output reports a failure. Lines that the command itself contains
    do not count, nor does output before git's line about a commit or push."""
    done = [match.end() for pattern in (COMMITTED, _PUSHED) for match in pattern.finditer(text)]
    text = read_words(text[max(done, default=0) :])
    line = find_error_line(text) if looks_failed(text) else ""
    return line not in step.command


def has_command(line: str, failed: str) -> bool:
    """Return whether a *line* of commands has the program and subcommand of the last command of
    *failed*, which stopped there: `git pull && git push` has those of `git add . && git push`."""
    *_, wanted = map(_find_head, simple_commands(failed[:MAX_COMMAND]))
    return wanted in map(_find_head, simple_commands(line[:MAX_COMMAND]))


def _find_head(words: Words) -> Words:
    """Return a program's name without path and version, and the next word (two after `run`)."""
    is_longer = not shell.COMMAND_FOLLOWS.isdisjoint(words[1:2])
    program = "".join(words[:1])
    name = name_program(program).rstrip("0123456789.") or program
    return [name, *words[1 : 2 + is_longer]]


def find_outcome_line(text: str, *, failed: bool, printed: bool) -> str:
    """Return the line that tells the outcome of a call: the first fields of JSON, the error of a
    *failed* call, the last line that a command *printed*, else the first line; or empty."""
    value = parse_or_none(text) if text[:1] in "{[" else None
    if isinstance(value, dict | list):
        error = text_at(value, "error") if failed else ""
        fields = iter_json_lines({"error": error} if error else value)
        return next((line.lead + line.text for line in fields), "")
    if failed:
        return find_error_line(read_words(text))
    text = text[-2_000:] if printed else _ASIDE.sub("", text[:4_000])
    lines = (row.strip() for row in text.splitlines())
    rows = [row for row in lines if any(map(str.isalnum, row)) and not is_markup(row)] or [""]
    if printed:
        return "… " * (len(rows) > 1) + rows[-1]
    below = [row for row in rows if not _HEADING.match(row)] or [""]
    return next((row for row in below if row[-1:] not in (":", "：")), below[0])


def has_commit(command: str) -> bool:
    """Return whether a command commits. `git commit` in a string does not count."""
    if not COMMIT.search(command):
        return False
    bare = WORD.sub(
        lambda word: word[0] if word[3] or word[4] else "''", expand_inner_commands(command)
    )
    return bool(COMMIT.search(bare))


def has_committed_nothing(step: Step) -> bool:
    """Return whether git had nothing to commit. Pipelines hide its exit code."""
    has_none = _NO_COMMIT.search(step.text) and not COMMITTED.search(step.text)
    return bool(has_none) and "status" not in step.command


def describe_check(step: Step, name: str, outcome: str, *, is_commit: bool) -> str:
    """Return the outcome of the check or commit *name* as a summary lists it."""
    subject = _MESSAGE.search(step.command[:2_000]) if is_commit else None
    printed = step.text if step.is_later or outcome != RUNNING else ""
    return write_outcome(name, printed, outcome, subject[2] if subject else "")


def write_outcome(command: str, text: str, outcome: str, subject: str = "") -> str:
    """Return the *outcome* of a check with its figures or error line. For a commit that worked
    return branch, hash and subject, or if they are not printed the *subject* from its command."""
    if COMMIT.search(command) and (match := COMMITTED.search(text)):  # a later push may fail
        return f"{match[1]} {one_line(match[2], 100)}"
    if outcome == "ok" and COMMIT.search(command):  # figures in its output are another command's
        return f"ok: {one_line(subject, 100)}" if subject else outcome
    figures, reason = find_figures(text), ""
    if outcome == RAN_NOTHING:
        figures, reason = "", find_nothing_ran(text, command).strip()
    elif outcome != "ok" and not (figures and (looks_failed(figures) or not has_failed(outcome))):
        reason = find_error_line(read_words(text))  # the figures do not say what is wrong
    return ": ".join(filter(None, (outcome, "; ".join(filter(None, (figures, reason))))))


def find_committed(staged: Mapping[str, bool], text: str) -> Iterator[str]:
    """Yield those of the *staged* files that a commit contains, by its output. Git names each new
    or deleted file (True in *staged*) and counts all files. If it counts fewer than are staged,
    only the named ones are certain. Yield all if it prints no count or several."""
    text = text[:MAX_OUTPUT]
    counts, names = _COUNTED.findall(text), [*map(unquote_git, _NAMED.findall(text))]
    if len(counts) != 1:
        yield from staged
        return
    named = {part for name in names for part in (name, *folders_of(name))}
    ends = {end for name in names for end in iter_ends(name)}
    bare = ((path, with_slashes(path).rstrip("/")) for path in staged)
    ours = (path for path, name in bare if name in ends or not named.isdisjoint(iter_ends(name)))
    sure, has_moved = dict.fromkeys(ours), bool(_MOVED.search(text))  # has `rename` lines instead
    unlisted = [path for path, is_listed in staged.items() if has_moved or not is_listed]
    likely = [path for path in unlisted if path not in sure]
    yield from sure
    yield from likely if len(sure) + len(likely) <= int(counts[0]) else ()


# --- completed and failed calls ------------------------------------------------------------------


_MISSING = re.compile(
    r"(?i)no such file|does not exist|file not found|cannot find (?:the )?path|ENOENT"
    r"|no (?:active )?(?:shell|session|task) found|is not running, so |already ended"
)
"""Messages about a missing file, or about a shell, session or task that is missing or over."""
_LOOKED = re.compile(r"(?:ls|cat|head|tail|wc|stat|find|grep|diff|du): ")
"""Start of an error line of programs that only read."""
_NAMES_ERROR = re.compile(r"[^:：]{1,40}[:：]")
"""Start of a line that names its error, unlike a line in a list of symbols."""
_LEADING_ECHOES = re.compile(
    r"\A(?:echo (?:\"[^\"]*+\"|'[^']*+'|[^\s&;|\"']++) ?(?:&&|;) ?){1,9}(?=.)"
)
"""`echo` commands before the first real command."""
_PROGRAM_PATH = re.compile(r"\A(['\"])[^'\"\n]{30,300}[/\\]([^'\"/\\\n]{1,80})\1(?=\s)")
"""A program with a long path, which is reduced to its name."""
_LONG_OPTION = re.compile(r"(?<=\s)(--?[\w-]{1,40}[= ])[^\s'\"]{30,300}[/\\]([^\s'\"/\\]{1,80}\s)")
"""An option with a long path, which is reduced to its name."""
RECENT_FAILURES, WORKAROUND_DISTANCE = 2, 4
"""Number of latest failures, and of messages after each, for which a working call of the same
program counts as a workaround."""
COMPARED_FAILURES = 200
"""Number of latest failures of which those about a file are forgotten when it is edited."""
WORKED = "; then it worked otherwise"
"""Suffix of a failure after which a call of the same program worked."""
WAS_REFUSED = "refused by the user"
"""Reason why a call did not run."""
LONGEST_REFUSAL = 4_000
_REFUSING = re.compile(r"the user said:\n(.+?)(?:\n\nNote: The user's next|\Z)", re.DOTALL)
"""The person's words in such a result (Claude Code)."""
UNSEEN = "started, no end was seen"
"""Outcome of a call that still ran when its turn was over and something else was asked."""


class Action(NamedTuple):
    """Outcome of a call that failed or that affected something other than files."""

    outcome: str
    times: int = 1
    rank: int = 2
    """1 for preparation, short scripts, failed looks, refusals; 0 after a workaround; else 2."""

    program: str = ""
    """Program and subcommand, or tool; empty for a call known from an earlier summary."""
    at: int = -1
    """Index of its message; -1 for a call known from an earlier summary."""

    @property
    def is_running(self) -> bool:
        """Whether its end was not seen."""
        return self.outcome.startswith(RUNNING)


@dataclass(slots=True)
class Actions:
    """Completed and failed calls, ordered by their latest occurrence."""

    done: dict[str, Action] = field(default_factory=dict)
    failed: dict[str, Action] = field(default_factory=dict)
    """Those that have not worked since."""
    noted: int = 1 << 30
    """Calls added to *done* since the latest end of a turn; no limit before the first."""

    def note(self, step: Step, outcome: str, *, is_check: bool) -> None:
        """Record the *outcome* of a call. *is_check*: whether it is a check or a commit, which have
        their own list."""
        if step.effect.tool in IDLE:
            return
        if step.text.startswith(NOT_RUN):
            if step.text.startswith(REFUSED):
                words = _REFUSING.search(step.text[:LONGEST_REFUSAL])
                reason = f", its result says: {one_line(words[1], LONGEST_REPORT)}" if words else ""
                _add(self.failed, _name_failed(step), WAS_REFUSED + reason, step, 1)
            return
        deeds = shell.find_actions(step.command)
        if outcome == "ok" and deeds.rank and _hides_failure(step):
            outcome = "failed"
        if not is_check and (reason := _find_failure(step, outcome, deeds)):
            name = _name_failed(step)
            only_looks = _only_looks(step, deeds)
            if only_looks and _MISSING.search(reason):  # the model looks elsewhere at once
                return
            self.done.pop(name, None)
            _add(self.failed, name, reason, step, 2 - only_looks)
            return
        self.drop_mended(step)
        is_behind = deeds.is_last and not looks_failed(find_figures(step.text))
        if is_check and has_failed(outcome) and not is_behind:
            return  # `test` may have failed in `a && test`, and `a` may not have run in `test && a`
        if not (is_check or step.effect.files) or deeds.rank > 1:
            self._note_deed(step, outcome, deeds)

    def drop_mended(self, step: Step) -> None:
        """Forget the failure of a call that works now. Mark failures that it works around."""
        if not self.failed or read_outcome(step, "", shell.CommandSpan()) != "ok":
            return
        deeds = shell.find_actions(step.effect.command)
        acts = [*islice(reversed(self.failed.values()), COMPARED_FAILURES)]
        edits = {f"{act.program} {path}" for path in step.effect.edited_files for act in acts}
        for call in (_name_failed(step), name_command(deeds.text) * deeds.has_own_error, *edits):
            self.failed.pop(write_title(call), None)
        program, words = _name_program(step), _split_name(_name_failed(step))
        for name, act in [*islice(reversed(self.failed.items()), RECENT_FAILURES)]:
            is_open = act.rank and not act.outcome.startswith(WAS_REFUSED)
            is_near = step.at - act.at <= WORKAROUND_DISTANCE
            is_alike = act.program == program and not words.isdisjoint(_split_name(name))
            if is_alike and is_near and is_open:
                self.failed[name] = act._replace(outcome=act.outcome + WORKED, rank=0)

    def end_turn(self) -> None:
        """Mark running calls as unseen: a person went on without waiting for their end."""
        for name, act in [*islice(reversed(self.done.items()), self.noted)]:
            if act.is_running:
                self.done[name] = act._replace(outcome=UNSEEN)
        self.noted = 0

    def _note_deed(self, step: Step, outcome: str, deeds: shell.CommandSpan) -> None:
        effect = step.effect
        if _only_looks(step, deeds):
            return
        is_known = deeds.has_own_error or outcome in (RUNNING, "failed")
        if not is_known:
            outcome = RAN if outcome == "ok" else f"{RAN}, then {outcome}"
        call = name_command(deeds.text) or _write_call(step)
        is_own = outcome != RUNNING and deeds.is_last
        says_own = is_own and bool(effect.command)  # even if its exit code does not tell
        is_wrong = (says_own or not is_known) and says_failed(step, step.text)
        is_wrong |= is_own and has_failed(outcome)
        tells = is_own or is_wrong or step.text.startswith("{")  # JSON fields name their subject
        line = _find_line(step, failed=is_wrong) if tells else ""
        if is_own and is_agent(effect.tool):
            line = step.text[max(0, step.text.find(line)) :]
        line = one_line(line, LONGEST_REPORT if is_agent(effect.tool) else LONGEST_OUTCOME)
        result = ": ".join(filter(None, ("" if outcome == "ok" else outcome, line)))
        _add(self.done, call, result or outcome, step, deeds.rank or 2)
        self.noted += 1


def write_title(call: str) -> str:
    """Return a call in one line, with long paths of its program and options reduced to names."""
    call = _PROGRAM_PATH.sub(r"\2", call[:MAX_COMMAND])
    return one_line(_LONG_OPTION.sub(r"\1\2", call), LONGEST_COMMAND)


def _add(actions: dict[str, Action], call: str, outcome: str, step: Step, rank: int) -> None:
    name = write_title(call)
    times = actions.pop(name, Action("", 0)).times
    times = max(1, times + (not step.is_later))
    actions[name] = Action(outcome, times, rank, _name_program(step), step.at)


def _find_failure(step: Step, outcome: str, deeds: shell.CommandSpan) -> str:
    """Return how a call failed and the line that says why. Empty if it worked or was stopped, if it
    failed in a last command that only looks, or if the line names no error and the call only looked
    or the exit code belongs to a command after its *deeds*."""
    command, has_worked = step.command, outcome in ("", "ok", RUNNING)
    is_sure = bool(command or step.effect.files or is_look(step.effect))
    if outcome == STOPPED or (has_worked and is_sure):
        return ""
    line = one_line(_find_line(step, failed=True), LONGEST_REASON)
    if has_worked:
        return line if _NAMES_ERROR.match(line) and is_failure(line) else ""
    *_, last = simple_commands(command[:MAX_COMMAND])
    if _LOOKED.match(line) and last[:1] == [line.partition(":")[0]]:  # all commands before it ran
        return ""
    is_own = deeds.has_own_error and not (command and _only_looks(step, deeds))
    if not (is_own or looks_failed(line)):
        return ""
    return ": ".join(filter(None, (outcome, line.removeprefix(f"{outcome}: "))))


def _hides_failure(step: Step) -> bool:
    """Return whether a command failed although its exit code is 0: that is the code of the last
    program of a pipeline, or of a client that printed a server's error."""
    text, marks = step.text, iter_marks(step.command[:MAX_COMMAND])
    is_piped = any(mark[0] == "|" for mark in marks)
    return (is_piped and says_failed(step, text)) or (text.startswith("{") and is_failure(text))


def _only_looks(step: Step, deeds: shell.CommandSpan) -> bool:
    """Return whether a call with these *deeds* was meant to change nothing."""
    effect = step.effect
    if not effect.command:
        return is_look(effect)
    return not (effect.changed_files or deeds.rank)


def _find_line(step: Step, *, failed: bool) -> str:
    return find_outcome_line(step.text, failed=failed, printed=bool(step.command))


def _name_program(step: Step) -> str:
    """Return program and subcommand of a command (`git push`), or the tool of another call."""
    words = next(simple_commands(name_command(step.command)), [])
    return " ".join(_find_head(words)) or step.effect.tool


def _name_failed(step: Step) -> str:
    """Return a key that is equal for retries of a call."""
    effect = step.effect
    paths = " ".join(path for path, _ in effect.files)
    name = _LEADING_ECHOES.sub("", name_command(effect.command)) or (
        f"{effect.tool} {paths}" if paths else _write_call(step)
    )
    return write_title(name)


def _split_name(name: str) -> set[str]:
    """Return the words after the program or tool in a call's name, without options and keys."""
    return {word for word in name.split()[1:] if not (word.startswith("-") or word.endswith(":"))}


def _write_call(step: Step) -> str:
    """Return a tool's name with its first arguments. If these are only numbers (`timeout: 60`), add
    the first line of a text after them, such as a script."""
    value = parse_or_none(step.arguments)
    lines = islice(iter_json_lines(value if isinstance(value, dict) else {}), MOST_LINES)
    rows = [line for line in lines if not IMPORT.match(line.text)]
    fields = next((line.text for line in rows if not line.lead), "")
    text = "" if _NAMES_ANY.search(fields) else next((row.text for row in rows if row.lead), "")
    return f"{step.effect.tool} {', '.join(filter(None, (fields, text)))}".rstrip()
