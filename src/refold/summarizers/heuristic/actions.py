"""What came of calls beside changed files: the outcome of each, what was done, how often something
was only looked at, and what failed."""

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
    MAX_COMMAND,
    WORD,
    Words,
    iter_marks,
    name_command,
    name_program,
    read_inner,
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
from refold.text.plain import IMPORT, folders_of, iter_ends, with_slashes

_AGENT = re.compile(
    r"(?i)(?:task|agent|subagent|dispatch|sessions_spawn)(?!_?(?:create|get|list|output|stop|update))"
)
"""The names that tools have by which another agent is given a task; not those of lists of tasks."""
LONGEST_COMMAND = 110
"""Characters of a command."""
LONGEST_OUTCOME = 100
"""Characters of what came of it."""
LONGEST_REPORT = 400
"""The same of another agent: nothing else tells what that did."""
LONGEST_REASON = 160
"""Characters of the line that says why it failed."""
IDLE = frozenset({UNKNOWN_TOOL, "report_intent", "update_topic", "update_plan", "Skill", "skill"})
"""Tools that do nothing: one that nobody names, those that say what comes (Copilot CLI, Gemini
CLI), and those that only give the model a skill's text."""
MAX_OUTPUT = 100_000
"""Characters of what git prints of a commit that are read."""
RAN = "ran"
"""The outcome of a command whose exit code is that of another behind it; if that failed, it
says so."""


# --- the outcome of one call ----------------------------------------------------------------------


COMMIT = re.compile(r"\bgit\s+(?:-\S+\s+\S+\s+)?commit\b")
_NO_COMMIT = re.compile(
    r"(?m)^(?:nothing (?:added )?to commit\b|no changes added to commit\b|无文件要提交|沒有要提交的檔案|コミットするものが|커밋할 사항|nichts zu c|nada (?:para hacer|a submeter)|rien à valider|нечего коммитить)"
)
COMMITTED = re.compile(r"^(\[[^\]\n]{1,100}\s[0-9a-f]{6,40}\])\s(.*)$", re.MULTILINE)
"""What git says of a commit: its branch and hash, and its subject."""
_MESSAGE = re.compile(r"\s-[a-z]{0,5}m\s{0,9}(['\"])((?!\$\()[^\n]*?)\1")
"""A commit's message in its command."""
_COUNTED = re.compile(r"^ (\d{1,6}) files? changed\b", re.MULTILINE)
_NAMED = re.compile(r"^ (?:create|delete) mode \d{6} (\S.{0,400})$", re.MULTILINE)
_MOVED = re.compile(r"^ (?:rename|copy) ", re.MULTILINE)
_PUSHED = re.compile(
    r"^ {1,3}[ +*] ?(?:[0-9a-f]{6,40}\.{2,3}[0-9a-f]{6,40}|\[new \w{1,10}\]) {1,9}\S{1,200} {1,9}-> \S",
    re.MULTILINE,
)
"""What it says of a branch that it has sent or fetched."""
RAN_NOTHING = "nothing ran"
"""The outcome of a check that found nothing to check, or not even its program."""
UNTESTED = frozenset({RUNNING, RAN_NOTHING, "exit 126", "exit 127"})
"""Outcomes of a check that has tested nothing yet."""
_NOTHING_RAN = re.compile(
    r"^(?:[^\n:]{0,200}\bpython[\d.]{0,9}(?:\.exe)?: (?:No module named|can't open file) "
    r"|[^\n]{0,80}\bno (?:tests?|test files?|test modules?|test suites?|specs?|examples?|projects?|packages?)"
    r"\b[^\n]{0,30}?\b(?:found|match\w{0,3}|ran|to (?:run|test)|executed|selected|collected)\b"
    r"|[^\n]{0,80}\bcollected 0 items\b|[^\n]{0,60}\b(?:missing script|script not found)\b"
    r"|[^\n]{0,80}\bran 0 tests\b|make: \*\*\* no rule to make target )[^\n]{0,200}",
    re.MULTILINE | re.IGNORECASE,
)
"""What runners say that have found nothing to run, and interpreters without the module."""
_NO_PROGRAM = re.compile(
    r"^[^\n]{0,200}(?:command not found|is not recognized as |not found: |[未找]?[找不]到(?:命令|指令)|指令找不到|不是[内內]部|コマンドが見つか|内部コマンド|명령어?[를을] 찾을 수 없|(?:Kommando|Befehl) nicht gefunden|(?:orden|comando) n\w+ encontrad|commande introuvable|команда не найдена)[^\n]{0,100}",
    re.MULTILINE,
)
_RAN_SOME = re.compile(
    r"(?<![\w.])[1-9]\d{0,6} (?:\w{1,12} )?(?:pass|fail|succe|ok\b)|^ok\s|\bPASS\b|[✓✔]",
    re.MULTILINE,
)
"""What they say if others have found something."""
NEAR_ENDS = 2_000
"""Characters at either end of an output in which runners say so."""
_CALL_REPEATED = re.compile(r"\AMCP tool '[^'\n]{1,200}' reported tool error for function call: ")
_ANSWERED = " with response: "
"""Between a call that a client repeats with all its arguments, and the error (Gemini CLI)."""
_ARGUMENTS = "\n\nReceived arguments:\n"  # behind the error (pi)
_ANSWER = re.compile(r'"(?:text|error|message)": ?"((?>(?:[^"\\]|\\.){1,1000}))')
"""The words of that error."""
_SEARCHES = frozenset({"grep", "egrep", "rg", "findstr"})
_ERROR_WORDS = re.compile(r"error|fail|warn", re.IGNORECASE)
_DENIES = re.compile(r"(?i)\b(?:should|would|could|must|if|already|was|were)\b")
"""What says of a file in a report, beside words that negate, that somebody else changed it."""
_ENDS_AT_ERROR = re.compile(r"\bset -\w{0,9}e|ErrorActionPreference")
_HEADING = re.compile(r"#{1,6} |- \[ERROR\] |(?P<rule>[=*~_-])(?P=rule){2}")
"""How a line begins that heads what came of a call, or what a page's scripts say beside it."""
_ASIDE = re.compile(rf"^```[^\n]*\n(?:(?!```)[^\n]*\n){{0,200}}```[^\n]*$|{LOGGED}", re.MULTILINE)
"""Text between fences, as tools quote the code that they ran, and what a page's scripts print."""
_NAMES_ANY = re.compile(r"(?::|^|,) (?!true\b|false\b)[^,:]{0,40}?[^\W\d_]")
"""What fields hold of which any is a word."""
MOST_LINES = 20  # of a call's arguments that are looked at
_NONE = frozenset({"", "0", "(no output)", "(Bash completed with no output)"})
"""What a search prints, with its client, that finds nothing."""


def is_agent(tool: str) -> bool:
    """Is this the tool by which a model gives a task to another agent?"""
    return bool(_AGENT.match(tool))


def read_words(text: str) -> str:
    """Return what a call printed, without what its client says of the exit code ahead of it or
    behind it, and without the call's own arguments."""
    if _CALL_REPEATED.match(text) and (answer := _ANSWER.search(text.rpartition(_ANSWERED)[2])):
        return answer[1]
    text = text.partition(_ARGUMENTS)[0]
    head, _, rest = text.partition("\n")
    text = rest if is_markup(head) else text
    body, _, last = text.rstrip().rpartition("\n")
    return body if is_markup(last) else text


def read_outcome(step: Step, check: str, checks: shell.CommandPart) -> str:
    """Return the outcome of a call; *check* names the *checks* in its command. Its exit code is
    believed if it is its own, and does not say that nothing at all was done."""
    effect, text, outcome = step.effect, step.text, step.outcome
    if not effect.command:  # a code in a page or a report is no outcome of reading it
        return outcome if step.is_error or step.is_running else "ok"
    if check and not step.is_running and find_nothing_ran(text, check):
        return RAN_NOTHING
    has_own_code = not check or checks.has_own_code(step.exit_code or 0)
    is_known = step.exit_code is not None and has_own_code
    telling = f"{text}\n{find_figures(text)}" if check else text
    is_work = bool(check) or shell.is_work(effect.command)
    if is_work and outcome == "ok" and not is_known and says_failed(step, telling):
        return "failed"
    is_none = step.exit_code == 1 and read_words(text).strip() in _NONE
    return "ok" if is_none and seeks_errors(checks.rest) else outcome


def read_check(step: Step, outcome: str, checks: shell.CommandPart) -> str | None:
    """Return the *outcome* of the *checks* in a command, empty if they printed figures and the exit
    code is another's; None if nobody knows, because what failed may stand behind them."""
    if not outcome.startswith(("exit", STOPPED)) or looks_failed(read_words(step.text)):
        return outcome
    figures = find_figures(step.text)
    if checks.has_own_code(step.exit_code or 0):
        return "" if figures and not checks.is_last else outcome
    return "" if figures else None


def seeks_errors(command: str) -> bool:
    """Does what stands behind checks in a command search what they print for errors, so that it
    says that there are none by finding nothing?"""
    marks = [mark[0] for mark in iter_marks(command)]
    *_, words = simple_commands(command)
    is_search = marks == ["|"] and name_program(words[0] if words else "") in _SEARCHES
    is_turned = any(word[:1] == "-" and "v" in word for word in words)
    return is_search and not is_turned and any(map(_ERROR_WORDS.search, words))


def find_done(command: str) -> str:
    """Return what of a command was done whatever its exit code: all before its last line or `;`, if
    it does not end at the first error."""
    text = read_inner(command).rstrip(" \n;")
    ends = [mark.start() for mark in iter_marks(text) if mark[0] in {";", "\n"}]
    return "" if _ENDS_AT_ERROR.search(text) or not ends else text[: ends[-1]]


def take_done(step: Step, paths: Iterable[str]) -> Step:
    """Return a result with what its call has certainly done to files: all of it if it worked, of a
    command that failed what stands before its last line, of another agent those of *paths* that it
    says it has changed."""
    effect, done = step.effect, ""
    if step.has_effect and not is_agent(effect.tool):
        return step
    if step.has_effect:
        files = tuple((path, "modified") for path in _find_reported(step.text, paths))
    else:
        done = find_done(effect.command) if step.exit_code else ""
        files = tuple(shell.file_effects(done, effect.place))
    return step._replace(effect=effect._replace(files=files, command=done))


def _find_reported(text: str, paths: Iterable[str]) -> Iterator[str]:
    changed = filter(CHANGING.is_in, text.splitlines())
    rows = [row for row in changed if not (_DENIES.search(row) or NEGATING.is_in(row))]
    names = {name for name in find_names("\n".join(rows)) if "/" in name}
    yield from (path for path in paths if not names.isdisjoint(iter_ends(path)))


def says_works(request: str) -> bool:
    """Does a person say that they tried it, and it works?"""
    return WORKING.is_in(request[:300])


def find_nothing_ran(text: str, check: str) -> str:
    """Return the line by which a *check* says that nothing ran, or a shell that it has no such
    program; empty if there is none, or if some of it did run."""
    ends = text if len(text) <= 2 * NEAR_ENDS else f"{text[:NEAR_ENDS]}\n{text[-NEAR_ENDS:]}"
    if _RAN_SOME.search(ends):
        return ""
    if row := _NOTHING_RAN.search(ends):
        return row[0]
    programs = check.split()[:4]
    rows = (row[0] for row in _NO_PROGRAM.finditer(ends))
    return next(
        (row for row in rows if not set(re.split(r"[\s:：'\"`]+", row)).isdisjoint(programs)), ""
    )


def says_failed(step: Step, text: str) -> bool:
    """Does what a command printed say that it failed, in words that it does not hold itself, and
    not ahead of what git says that it has done?"""
    done = [match.end() for pattern in (COMMITTED, _PUSHED) for match in pattern.finditer(text)]
    text = read_words(text[max(done, default=0) :])
    line = find_error_line(text) if looks_failed(text) else ""
    return line not in step.command


def has_command(line: str, failed: str) -> bool:
    """Does a *line* of commands hold the last one of *failed*, which stopped there? Few words tell
    a command: `git pull && git push` has that of `git add . && git push`."""
    *_, wanted = map(_find_head, simple_commands(failed[:MAX_COMMAND]))
    return wanted in map(_find_head, simple_commands(line[:MAX_COMMAND]))


def _find_head(words: Words) -> Words:
    """Return the name of a program, whichever of its versions it is and wherever it stands, and the
    word behind it; one more behind `run` and its like."""
    is_longer = not shell.COMMAND_FOLLOWS.isdisjoint(words[1:2])
    program = "".join(words[:1])
    name = name_program(program).rstrip("0123456789.") or program
    return [name, *words[1 : 2 + is_longer]]


def find_outcome_line(text: str, *, failed: bool, printed: bool) -> str:
    """Return the line that says what came of a call: of JSON its first fields, of what *failed* its
    error, of what a command *printed* the last line, of a tool's answer the first."""
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
    """Does a command commit, rather than name that in a text?"""
    if not COMMIT.search(command):
        return False
    bare = WORD.sub(lambda word: word[0] if word[3] or word[4] else "''", read_inner(command))
    return bool(COMMIT.search(bare))


def has_committed_nothing(step: Step) -> bool:
    """Does git say so? Behind a pipe its code is another's; `git status` says it after commits."""
    has_none = _NO_COMMIT.search(step.text) and not COMMITTED.search(step.text)
    return bool(has_none) and "status" not in step.command


def tell_check(step: Step, name: str, outcome: str, *, is_commit: bool) -> str:
    """Return what came of a check or a commit of this name."""
    subject = _MESSAGE.search(step.command[:2_000]) if is_commit else None
    printed = step.text if step.is_later or outcome != RUNNING else ""
    return write_outcome(name, printed, outcome, subject[2] if subject else "")


def write_outcome(command: str, text: str, outcome: str, subject: str = "") -> str:
    """Return the *outcome* of a check with the line that has its figures; of a commit its branch,
    hash and subject, or if it prints nothing the *subject* that it was given."""
    if COMMIT.search(command) and (match := COMMITTED.search(text)):  # a push behind it may fail
        return f"{match[1]} {one_line(match[2], 100)}"
    if outcome == "ok" and COMMIT.search(command):  # figures in what it printed are another's
        return f"ok: {one_line(subject, 100)}" if subject else outcome
    figures, reason = find_figures(text), ""
    if outcome == RAN_NOTHING:
        figures, reason = "", find_nothing_ran(text, command).strip()
    elif outcome != "ok" and not (figures and (looks_failed(figures) or not has_failed(outcome))):
        reason = find_error_line(read_words(text))  # the figures do not say what is wrong
    return ": ".join(filter(None, (outcome, "; ".join(filter(None, (figures, reason))))))


def find_committed(staged: Mapping[str, bool], text: str) -> Iterator[str]:
    """Yield those of the *staged* files that a commit has by what it prints: it names each that is
    new or deleted, for which *staged* has True, and counts all. If it has fewer than that, nobody
    knows which but those that it names."""
    text = text[:MAX_OUTPUT]
    counts, names = _COUNTED.findall(text), _NAMED.findall(text)
    if len(counts) != 1:
        yield from staged
        return
    named = {part for name in names for part in (name, *folders_of(name))}
    ends = {end for name in names for end in iter_ends(name)}
    bare = ((path, with_slashes(path).rstrip("/")) for path in staged)
    ours = (path for path, name in bare if name in ends or not named.isdisjoint(iter_ends(name)))
    sure, has_moved = dict.fromkeys(ours), bool(_MOVED.search(text))  # that has names of its own
    unlisted = [path for path, is_listed in staged.items() if has_moved or not is_listed]
    likely = [path for path in unlisted if path not in sure]
    yield from sure
    yield from likely if len(sure) + len(likely) <= int(counts[0]) else ()


# --- what is noted of calls ------------------------------------------------------------------------


_MISSING = re.compile(
    r"(?i)no such file|does not exist|file not found|cannot find (?:the )?path|ENOENT"
    r"|no (?:active )?(?:shell|session|task) found"
)
"""What is said of a file, or of what ran, that is not there."""
_LOOKED = re.compile(r"(?:ls|cat|head|tail|wc|stat|find|grep|diff|du): ")
"""How programs begin that looked for what is not there."""
_NAMES_ERROR = re.compile(r"[^:：]{1,40}[:：]")
"""How a line begins that says which error there is, as one of a list of symbols does not."""
_SAYS = re.compile(r"\A(?:echo (?:\"[^\"]*+\"|'[^']*+'|[^\s&;|\"']++) ?(?:&&|;) ?){1,9}(?=.)")
"""What commands print before they do anything."""
_PROGRAM_PATH = re.compile(r"\A(['\"])[^'\"\n]{30,300}[/\\]([^'\"/\\\n]{1,80})\1(?=\s)")
"""A program that is called by a long path, of which its name is enough."""
_LONG_OPTION = re.compile(r"(?<=\s)(--?[\w-]{1,40}[= ])[^\s'\"]{30,300}[/\\]([^\s'\"/\\]{1,80}\s)")
"""An option with a long path, of which the name is enough: what it is of stands behind it."""
SOON, SOON_AFTER = 2, 4
"""So many of the last calls that failed are done otherwise by a call of the same program that works
at most so many messages later."""
WORKED = "; then it worked otherwise"
"""What is said of a failure behind which a call of the same program worked."""
WAS_REFUSED = "refused by the user"
"""Why a call did not run."""
LONGEST_REFUSAL = 4_000
_REFUSING = re.compile(r"the user said:\n(.+?)(?:\n\nNote: The user's next|\Z)", re.DOTALL)
"""What they say then (Claude Code)."""
UNSEEN = "started, no end was seen"
"""The outcome of what ran when a turn had ended and something else was asked."""


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

    def note(self, step: Step, outcome: str, *, is_check: bool) -> None:
        """Note what came of a call; *is_check*: is it a check or a commit, which have a list of
        their own?"""
        if step.effect.tool in IDLE:
            return
        if step.text.startswith(NOT_RUN):
            if step.text.startswith(REFUSED):
                words = _REFUSING.search(step.text[:LONGEST_REFUSAL])
                reason = (
                    f"{WAS_REFUSED}, its result says: {one_line(words[1], LONGEST_REPORT)}"
                    if words
                    else ""
                )
                _add(self.failed, _name_failed(step), reason or WAS_REFUSED, step, 1)
            return
        deeds = shell.find_deeds(step.command)
        if outcome == "ok" and deeds.rank and _hides_failure(step):
            outcome = "failed"
        if not is_check and (reason := _find_failure(step, outcome, deeds)):
            name = _name_failed(step)
            only_looks = _only_looks(step, deeds)
            if only_looks and _MISSING.search(reason):  # it is looked for elsewhere at once
                return
            self.done.pop(name, None)
            _add(self.failed, name, reason, step, 2 - only_looks)
            return
        self.drop_mended(step)
        is_behind = deeds.is_last and not looks_failed(find_figures(step.text))
        if is_check and has_failed(outcome) and not is_behind:
            return  # of `a && test` the test may have failed, and `a` of `test && a` not have run
        if not (is_check or step.effect.files) or deeds.rank > 1:
            self._note_deed(step, outcome, deeds)

    def drop_mended(self, step: Step) -> None:
        """Forget that a call failed which works now; say so of one that works in other words right
        behind it."""
        if not self.failed or read_outcome(step, "", shell.CommandPart()) != "ok":
            return
        deeds, acts = shell.find_deeds(step.effect.command), self.failed.values()
        edits = {f"{act.program} {path}" for path in step.effect.edited_files for act in acts}
        for call in (_name_failed(step), name_command(deeds.text) * deeds.has_own_error, *edits):
            self.failed.pop(write_title(call), None)
        program, words = _name_program(step), _split_name(_name_failed(step))
        for name, act in [*reversed(self.failed.items())][:SOON]:
            is_open = act.rank and not act.outcome.startswith(WAS_REFUSED)
            is_near = step.at - act.at <= SOON_AFTER and not words.isdisjoint(_split_name(name))
            if act.program == program and is_near and is_open:
                self.failed[name] = act._replace(outcome=act.outcome + WORKED, rank=0)

    def end_turn(self) -> None:
        """Say of what still runs that nobody has seen its end: a person went on without it."""
        for name, act in self.done.items():
            if act.is_running:
                self.done[name] = act._replace(outcome=UNSEEN)

    def _note_deed(self, step: Step, outcome: str, deeds: shell.CommandPart) -> None:
        effect = step.effect
        if _only_looks(step, deeds):
            return
        is_known = deeds.has_own_error or outcome in (RUNNING, "failed")
        if not is_known:
            outcome = RAN if outcome == "ok" else f"{RAN}, then {outcome}"
        call = name_command(deeds.text) or _write_call(step)
        is_own = outcome != RUNNING and deeds.is_last
        says_own = is_own and bool(effect.command)  # though its code may say nothing
        is_wrong = (says_own or not is_known) and says_failed(step, step.text)
        is_wrong |= is_own and has_failed(outcome)
        tells = is_own or is_wrong or step.text.startswith("{")  # fields say what they are of
        line = _find_line(step, failed=is_wrong) if tells else ""
        if is_own and is_agent(effect.tool):
            line = step.text[max(0, step.text.find(line)) :]
        line = one_line(line, LONGEST_REPORT if is_agent(effect.tool) else LONGEST_OUTCOME)
        result = ": ".join(filter(None, ("" if outcome == "ok" else outcome, line)))
        _add(self.done, call, result or outcome, step, deeds.rank or 2)


def write_title(call: str) -> str:
    """Return a call in one line, without the folders of its program and of what options name."""
    call = _PROGRAM_PATH.sub(r"\2", call[:MAX_COMMAND])
    return one_line(_LONG_OPTION.sub(r"\1\2", call), LONGEST_COMMAND)


def _add(actions: dict[str, Action], call: str, outcome: str, step: Step, rank: int) -> None:
    name = write_title(call)
    times = actions.pop(name, Action("", 0)).times
    times = max(1, times + (not step.is_later))
    actions[name] = Action(outcome, times, rank, _name_program(step), step.at)


def _find_failure(step: Step, outcome: str, deeds: shell.CommandPart) -> str:
    """Return how a call failed and the line that says why; empty if it did not fail or was not run,
    and if it does not say what is wrong but only looked, or the code is of what stands behind its
    *deeds*."""
    command, has_worked = step.command, outcome in ("", "ok", RUNNING)
    if outcome == STOPPED or (
        has_worked and (command or step.effect.files or is_look(step.effect))
    ):
        return ""
    line = one_line(_find_line(step, failed=True), LONGEST_REASON)
    if has_worked:
        return line if _NAMES_ERROR.match(line) and is_failure(line) else ""
    *_, last = simple_commands(command[:MAX_COMMAND])
    if _LOOKED.match(line) and last[:1] == [line.partition(":")[0]]:  # all before it was done
        return ""
    is_own = deeds.has_own_error and not (command and _only_looks(step, deeds))
    if not (is_own or looks_failed(line)):
        return ""
    return ": ".join(filter(None, (outcome, line.removeprefix(f"{outcome}: "))))


def _hides_failure(step: Step) -> bool:
    """Does a command fail whose exit code does not say so: that of the last one behind a pipe, or
    of a client to which a server answers with an error?"""
    text, marks = step.text, iter_marks(step.command[:MAX_COMMAND])
    is_piped = any(mark[0] == "|" for mark in marks)
    return (is_piped and says_failed(step, text)) or (text.startswith("{") and is_failure(text))


def _only_looks(step: Step, deeds: shell.CommandPart) -> bool:
    """Was a call, whose command has these *deeds*, to change nothing?"""
    effect = step.effect
    if not effect.command:
        return is_look(effect)
    return not (effect.changed_files or deeds.rank)


def _find_line(step: Step, *, failed: bool) -> str:
    return find_outcome_line(step.text, failed=failed, printed=bool(step.command))


def _name_program(step: Step) -> str:
    """Return the first words of a command (`git push`), or the tool of another call."""
    return " ".join(_find_head(name_command(step.command).split(" "))) or step.effect.tool


def _name_failed(step: Step) -> str:
    """Name a call such that it has the same name when it is tried again."""
    effect = step.effect
    paths = " ".join(path for path, _ in effect.files)
    name = _SAYS.sub("", name_command(effect.command)) or (
        f"{effect.tool} {paths}" if paths else _write_call(step)
    )
    return write_title(name)


def _split_name(name: str) -> set[str]:
    """Return the words of a call's name behind its program or tool, without options."""
    return {word for word in name.split()[1:] if not (word.startswith("-") or word.endswith(":"))}


def _write_call(step: Step) -> str:
    """Return a tool's name with its first arguments; if these are figures alone, with the line that
    a text behind them begins with: `timeout: 60` tells nothing of a script."""
    value = parse_or_none(step.arguments)
    lines = islice(iter_json_lines(value if isinstance(value, dict) else {}), MOST_LINES)
    rows = [line for line in lines if not IMPORT.match(line.text)]
    fields = next((line.text for line in rows if not line.lead), "")
    text = "" if _NAMES_ANY.search(fields) else next((row.text for row in rows if row.lead), "")
    return f"{step.effect.tool} {', '.join(filter(None, (fields, text)))}".rstrip()
