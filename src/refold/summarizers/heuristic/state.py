"""Where the work stands: what is wanted, by which rules, what was changed, checked and is open."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from refold.speakers.carriers import IN_RESULT, NOT_RUN
from refold.speakers.segments import is_fragment
from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.actions import (
    COMMITTED,
    LONGEST_COMMAND,
    UNTESTED,
    Actions,
    find_committed,
    has_command,
    has_commit,
    has_committed_nothing,
    read_check,
    read_outcome,
    read_words,
    says_works,
    take_done,
    tell_check,
)
from refold.summarizers.heuristic.answers import (
    AGREEMENT,
    PersonAnswer,
    denies,
    find_question,
    is_demand,
    read_answers,
)
from refold.summarizers.heuristic.calls import (
    Todos,
    change_todos,
    find_opened,
    is_look,
    read_boxes,
    state_after,
)
from refold.summarizers.heuristic.lexicon import (
    NAMED,
    find_announced,
    find_constraints,
    find_corrections,
    find_decided,
    find_topics,
    finds_fault,
)
from refold.summarizers.heuristic.shell_words import name_command, without_setup
from refold.summarizers.heuristic.steps import RUNNING, Step, is_stub, name_step
from refold.text.clip import one_line
from refold.text.failures import find_error_line, find_figures, has_failed
from refold.text.plain import (
    count_bytes,
    folders_of,
    has_extension,
    is_ignored,
    is_left_out,
    is_meant,
    is_outside,
    split_path,
)
from refold.text.summary_wrapper import ASKED

LONGEST_FAILURE = 10
"""Changes and commands that worked, after which the work has gone on without mending a failure."""
MOST_COMPARED = 100_000
"""Files and checks that are compared with others; those that come behind them are not."""
TALK_ANSWERS = 10
"""Answers after which a conversation in which nothing was done is talk."""
MOST_QUESTIONS = 3
"""Questions that are shown of those that have the same answer."""
MOST_IGNORED = 100
"""Lines of a `.gitignore`, and characters of one, that are read."""
ANSWERED = 9.0
"""What a person's answer weighs among the decisions."""

_RETURNS = frozenset({"restored", "stashed", "unstashed", "changed"})
_OVERWROTE = re.compile(r"\b(?:updated|overw\w+|modified)\b")


@dataclass(slots=True)
class FileState:
    """What became of one file."""

    state: str
    """`read`, `created`, `modified`, `deleted`; by git `restored` (to a commit) or `stashed`."""
    is_committed: bool = False
    is_checked: bool = False
    """Did a test or build run since it was changed?"""
    is_staged: bool = False
    """Does it wait for the next commit?"""
    in_commit: str = ""
    """Its state in the last commit, if it was in one."""
    in_stash: str = ""
    """Its state in git's stash, if it is there."""
    is_new: bool = False
    """Was it never committed?"""

    @property
    def is_changed(self) -> bool:
        """Does it differ from what it was before all work?"""
        return self.state in shell.CHANGES


class Request(NamedTuple):
    """What is known of something that a person asked, beside the words."""

    times: int = 1
    """How often it was asked."""
    media: str = ""
    """What stood beside the words the last time: `[image] `."""
    is_template: bool = False
    """Did a client put the text of a command or skill in its place?"""


class Failure(NamedTuple):
    """A call that failed, or none, and how the work went on."""

    call: str = ""
    """The command or the tool; empty if none failed."""
    error: str = ""
    """What it said; in the end the line of that which says what is wrong."""
    files: frozenset[str] = frozenset()
    """The files that it was about."""
    since: int = 0
    """Changes and commands since then that worked."""

    def is_about(self, step: Step) -> bool:
        """Does a step do this call anew, or change the files that it was to change?"""
        if step.kind != "result":
            return False
        edited = step.effect.edited_files if step.has_effect else ()
        ran = without_setup(step.command) or step.effect.tool
        return has_command(ran, self.call) or not self.files.isdisjoint(edited)


@dataclass(slots=True)
class State:
    """What a successor needs to know before anything else."""

    requests: dict[str, Request] = field(default_factory=dict)
    """What the person asked, word for word, in the order of the latest time."""
    omitted: int = 0
    """How many more an earlier summary had no room for."""
    retold: set[str] = field(default_factory=set)
    """Long ones of an earlier summary: if one is shown again, it was not made again."""
    is_latest_current: bool = True
    """Is the latest of them what the model works on, nothing newer asked behind it?"""
    in_sight: frozenset[str] = frozenset()
    """Requests that stand word for word beside the summary, or behind it."""
    constraints: dict[str, None] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    """What these are about (`find_topics`)."""
    lent: dict[str, None] = field(default_factory=dict)
    """Those of a command or skill alone, which hold while its request is the current one."""
    ended: dict[str, None] = field(default_factory=dict)
    """Those of commands and skills that hold no longer."""
    answer: str = ""
    """What the model said at the end of its turn, if it has ended that since the latest request."""
    questions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What the short ones of the requests answer, the latest last."""
    files: dict[str, FileState] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    """The outcome of each test, build or commit, the last run last."""
    actions: Actions = field(default_factory=Actions)
    todos: Todos = ()
    plan_age: int = 0
    """How often a turn has ended, and something else was asked, since this plan was changed."""
    failure: Failure = field(default_factory=Failure)
    """The last one that nothing mended yet."""
    next_step: str = ""
    """What the model announced last."""
    decisions: dict[str, float] = field(default_factory=dict)
    """Sentences that decide or explain, with their weights."""
    faults: dict[str, list[str]] = field(default_factory=dict)
    """Those that say what is wrong, by what they are about (`note_decision`)."""
    suspected: list[str] = field(default_factory=list)
    mended: dict[str, None] = field(default_factory=dict)
    """Those said beside calls: since files were changed last, and before that in this turn."""
    changed: set[str] = field(default_factory=set)
    """Names of files, and in replaced lines, that were changed since the latest request."""
    notes: list[str] = field(default_factory=list)
    """Words of earlier summaries that no message holds: a model's, or a user's amendments."""
    has_staged: bool = False
    """Was anything staged since the last commit?"""
    ignored: set[str] = field(default_factory=set)
    """Patterns of files that git leaves out."""
    compared: int = 0
    """Files and checks that others were compared with."""


def read_state(steps: Sequence[Step], earlier: State | None = None) -> State:
    """Read where the work stands after *steps*, in one pass, from where it stood *earlier* on."""
    state, announcing, is_done, worked = earlier or State(), "", False, False
    answers = state.omitted + len(state.requests)  # in talk each request has one
    state.topics.update(*map(find_topics, state.constraints))
    is_talk = not (state.files or state.checks or state.actions.done or state.actions.failed)
    for step in steps:
        match step.kind:
            case "request":
                _note_request(state, step)
                announcing, worked, state.next_step = "", False, ""
            case "call" if step.effect.todos is not None:
                state.todos, state.plan_age = step.effect.todos, 0
            case "result" if step.is_template:
                _lend_rules(state, step.text)
            case "result" if replies := read_answers(step):
                _note_replies(state, replies, step.arguments)
            case "result" if step.effect.changed_todos is not None and not step.is_error:
                changed = change_todos(state.todos, step.effect, step.text)
                state.todos, state.plan_age = changed, 0
            case "result":
                _note_result(state, step)
                _drop_mended(state, step)
                edited = step.effect.edited_files if step.has_effect else ()
                is_done |= any(not (is_outside(p) or p.endswith(".log")) for p in edited)
                worked |= not is_look(step.effect)
            case "answer":
                _note_answer(state, step, worked=worked or not step.is_final)
                announcing, state.answer = ("", step.text) if step.is_final else (step.text, "")
                is_done, answers, state.next_step = False, answers + 1, ""
    if is_talk and answers >= TALK_ANSWERS and all(step.kind != "result" for step in steps):
        state.constraints = dict.fromkeys(filter(is_demand, state.constraints))
    state.files = _without_deleted_folders(state.files)
    state.failure = state.failure._replace(error=find_error_line(state.failure.error))
    state.next_step = "" if is_done else find_announced(announcing) or state.next_step
    return state


def drop_superseded(state: State, after: Sequence[Step]) -> None:
    """Take out of *state* what steps that stay behind the summary tell anew: the todos, the outcome
    of a check, a failure that is mended, the next step; rules of commands that are done."""
    later, listed = read_state(after, State(todos=state.todos)), {t.id for t in state.todos} - {""}
    if any(step.kind in ("answer", "request") for step in after):
        state.next_step = ""
    for step in (step for step in after if step.kind == "request"):
        state.questions.pop(step.text, None)  # what this one answers stands behind the summary
    if after and after[0].kind == "request":
        _note_question(state, after[0])
    for step in after:
        if step.kind == "request":
            _end_turn(state, step.text)
        elif step.kind == "answer":
            state.answer = step.text if step.is_final else ""
        elif step.kind == "result":
            _drop_mended(state, step)
            state.actions.drop_mended(step)
    if later.todos is not state.todos:  # others stand behind the summary
        state.todos = tuple(todo for todo in later.todos if todo.id in listed)
        state.plan_age = 0
    if state.failure.call and any(map(state.failure.is_about, after)):
        state.failure = Failure()
    for name, outcome in later.checks.items():
        is_less = not (outcome.startswith("ok") or find_figures(outcome))  # it did not get that far
        if not (is_less and find_figures(state.checks.get(name, ""))):
            state.checks.pop(name, None)
    for path, file in state.files.items():
        latest = later.files.get(path)
        file.is_checked |= latest.is_checked if latest and latest.is_changed else bool(later.checks)


def _note_request(state: State, step: Step) -> None:
    words, latest = step.text, next(reversed(state.requests), "")
    if is_fragment(latest):
        del state.requests[latest]
    times, _, was_template = state.requests.pop(words, Request(0))
    times += words not in state.retold
    state.retold.discard(words)
    state.requests[words] = Request(times, step.media, was_template or step.is_template)
    state.changed = set()
    for file in state.files.values() if state.files and says_works(words) else ():
        file.is_checked |= file.state != "read"
    _note_question(state, step)
    _end_turn(state, words)
    if step.is_template:
        _lend_rules(state, words)
        return
    corrections = [*find_corrections(words)]
    if corrections and not any(find_constraints(latest)):  # else what it takes back is a rule
        corrections = [*find_corrections(words, state.topics)]
    for rule in (*corrections, *find_constraints(words)):
        state.topics |= find_topics(rule)
        state.lent.pop(rule, None)
        state.constraints.pop(rule, None)
        state.constraints[rule] = None


def _note_replies(state: State, replies: Iterable[PersonAnswer], offered: str) -> None:
    """Note what a person answers by a tool's result, which it might forge; no rule of a word, nor
    of what the model *offered*."""
    for reply in replies:
        state.decisions.pop(sentence := reply.write(), None)
        state.decisions[sentence] = ANSWERED
        rules = (r for r in find_constraints(reply.words) if count_bytes(r) >= AGREEMENT)
        rules = (rule for rule in rules if rule not in offered)
        state.constraints |= dict.fromkeys(IN_RESULT + rule for rule in rules)


def _note_question(state: State, step: Step) -> None:
    """Note what a short request answers, if that does not stand among the decisions."""
    question = "" if is_fragment(state.answer) else find_question(state.answer, step.text)
    if question and question not in state.decisions:
        asked = dict.fromkeys((*state.questions.get(step.text, ()), question))
        state.questions[step.text] = tuple(asked)[-MOST_QUESTIONS:]


def _lend_rules(state: State, text: str) -> None:
    """Note the rules of a command's or skill's text but for those that a person states."""
    rules = [rule for rule in find_constraints(text) if rule not in state.constraints]
    state.lent |= dict.fromkeys(rules)
    state.constraints |= dict.fromkeys(rules)


def _end_turn(state: State, request: str) -> None:
    """Note what a turn that has ended leaves when a *request* follows: no rules of commands, and,
    if that answers nothing, a plan older by one, no failure behind which work went on, nothing that
    was mended on the way to the answer, and nothing that the request denies."""
    if state.answer:
        state.ended |= state.lent
        for rule in state.lent:
            del state.constraints[rule]
        state.lent = {}
    is_short = count_bytes(request) < AGREEMENT
    if state.answer and not (is_short or find_question(state.answer, request)):
        state.plan_age += 1
        state.actions.end_turn()
        state.failure = Failure() if state.failure.since else state.failure._replace(since=1)
        _drop_decisions(state, state.mended)
        state.suspected, state.mended = [], {}
        if denies(request):
            _drop_decisions(state, (text for _, text in find_decided(state.answer, final=True)))
    state.answer = ""


def _note_answer(state: State, step: Step, *, worked: bool) -> None:
    if not any(todo.id for todo in state.todos) and (boxes := read_boxes(step.text)):
        state.todos, state.plan_age = boxes, 0
    for weight, words in find_decided(step.text, final=step.is_final, worked=worked):
        sentence = f'"{words}"' if words.startswith(ASKED) else words
        note_decision(state, sentence, weight, on_way=not step.is_final)


def note_decision(state: State, sentence: str, weight: float, *, on_way: bool = False) -> None:
    """Note a sentence that decides or explains, and if it finds fault, with what. What is found
    *on_way* to an answer goes with the turn if files are changed behind it."""
    state.decisions.pop(sentence, None)
    state.mended.pop(sentence, None)
    state.decisions[sentence] = weight
    if (is_fault := finds_fault(sentence)) and on_way:
        state.suspected.append(sentence)
    for name in {*NAMED.findall(sentence), state.failure.call} - {""} if is_fault else ():
        is_new = "." in name and name not in state.changed
        if is_new or not state.changed or name == state.failure.call:
            state.faults.setdefault(name, []).append(sentence)


def _drop_mended(state: State, step: Step) -> None:
    """Take out what was found wrong in files, or of names in lines, that a call changed since."""
    paths = step.effect.edited_files
    if not paths or not step.has_effect:
        return
    state.mended |= dict.fromkeys(state.suspected)
    state.suspected = []
    replaced = "\n".join(line for change in step.effect.changes for line in change.old or ())
    names = {split_path(path)[1] for path in paths} | set(NAMED.findall(replaced))
    _drop_decisions(state, (text for name in names for text in state.faults.pop(name, ())))
    state.changed |= names


def _drop_decisions(state: State, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        state.decisions.pop(sentence, None)


def _note_result(state: State, step: Step) -> None:
    effect, text = step.effect, step.text
    checks, commits = shell.find_checks(effect.command), has_commit(effect.command)
    check = name_command(checks.text)
    outcome = read_outcome(step, check, checks)
    _note_files(state, take_done(step, state.files))
    if effect.command or effect.todos is None:
        state.actions.note(step, outcome, is_check=bool(check) or commits)
    if is_stub(text) and not (text.strip() in effect.command or step.is_error or step.exit_code):
        return  # nobody says what came of it
    if (read := read_check(step, outcome, checks) if check else outcome) is None:
        return
    outcome = read
    is_commit = commits and not has_committed_nothing(step)
    for name in filter(None, (check, "git commit" if is_commit else "")):
        listed = one_line(name, LONGEST_COMMAND)
        state.checks.pop(listed, None)
        state.checks[listed] = tell_check(step, name, outcome, is_commit=name != check)
        if outcome == "ok":  # `pytest` tells of `pytest tests/test_a.py` too
            names = _take_compared(state, state.checks)
            for part in [part for part in names if part.startswith(f"{listed} ")]:
                if has_failed(state.checks[part]):
                    del state.checks[part]
    if (outcome == "ok" and not has_committed_nothing(step)) or COMMITTED.search(text):
        _note_git(state, step)
    if outcome not in UNTESTED:
        run = state.files if check else shell.find_run(effect.command, effect.place)
        for file in filter(None, map(state.files.get, run)):
            file.is_checked |= file.state != "read"
    is_error = outcome not in ("", "ok", RUNNING) and not text.startswith(NOT_RUN)
    is_work = bool(check) or shell.is_work(effect.command)
    if is_error and (is_work or not (effect.command or is_look(effect))):
        # The line of its error is looked for if it stays.
        state.failure = Failure(name_step(step), read_words(text), frozenset(dict(effect.files)))
    elif outcome in ("ok", RUNNING) and (failure := state.failure).call:
        since = failure.since + (is_work or bool(effect.changed_files))
        is_over = failure.is_about(step) or since > LONGEST_FAILURE
        state.failure = Failure() if is_over else failure._replace(since=since)
        if is_over and since <= 1 and outcome == "ok":  # it works though nothing was mended
            _drop_decisions(state, state.faults.pop(failure.call, ()))


def _note_files(state: State, step: Step) -> None:
    effect = step.effect
    has_overwritten = not effect.command and bool(_OVERWROTE.search(step.text[:300]))
    undone = set(shell.find_undone(effect.command, effect.place, step.text))
    for path in find_opened(effect.command, effect.place):
        if (gone := state.files.get(path)) and gone.state == "deleted":  # it was made anew
            gone.state, gone.is_committed = "created" if gone.is_new else "modified", False
    for path, now in effect.files:
        if path in undone:
            continue
        if now in _RETURNS:
            _note_return(state, path, now)
        if now not in {"read", *shell.CHANGES}:
            continue
        before = state.files.pop(path, None)
        after = state_after(before.state if before else "read" if has_overwritten else None, now)
        file = state.files[path] = before or FileState(after, is_new=after == "created")
        file.state = after
        if now != "read":
            file.is_committed = file.is_checked = file.is_staged = False
        if path.endswith(".gitignore"):
            _note_ignored(state, step, path)


def _note_ignored(state: State, step: Step, path: str) -> None:
    """Note the patterns that a change of the `.gitignore` at *path* adds and takes away."""
    for change in (change for change in step.effect.changes if change.path in (path, "")):
        rows = [row.strip()[:MOST_IGNORED] for row in change.new[:MOST_IGNORED]]
        state.ignored -= {word for line in change.old or () for word in line.split()}
        state.ignored |= {row for row in rows if row.strip("/*") and row[0] not in "#!"}


def _note_return(state: State, path: str, now: str) -> None:
    """Note that git restored files, put them into its stash or took them out of it. New files that
    nobody staged it leaves alone if it is not given their path."""
    paths, is_file = _find_files(state, path), has_extension(path)
    if now == "restored" and is_file and not paths and path not in state.files:
        state.files[path] = FileState("restored", is_checked=True)  # an older summary may know it
    for name in paths if len(paths) == 1 or not is_file else ():
        file = state.files[name]
        if now == "unstashed" and file.in_stash:
            file.state, file.in_stash, file.is_checked = file.in_stash, "", False
        if now == "changed" and file.state == "restored":  # nobody knows any more
            del state.files[name]
        if now in {"unstashed", "changed"} or not file.is_changed or file.is_committed:
            continue
        if file.is_new and not (file.is_staged or is_file):
            continue
        file.in_stash = file.state if now == "stashed" else file.in_stash
        file.state = now if now == "stashed" else file.in_commit or now
        file.is_committed = file.state == file.in_commit
        file.is_checked, file.is_staged = True, False


def _find_files(state: State, path: str) -> list[str]:
    """Return the changed files that git means by the path of a file or a folder, or by `ALL`: those
    outside of repositories only if there are no others."""
    files = _take_compared(state, state.files)
    changed = [name for name in files if state.files[name].state != "read"]
    inside = [name for name in changed if not is_outside(name)] or changed
    end = "" if "*" in path else split_path(path.rstrip("/"))[1]
    return [name for name in inside if end in name and is_meant(name, path)]


def _take_compared(state: State, texts: Collection[str]) -> Collection[str]:
    """Return what is compared with something else, none if too much was."""
    state.compared += len(texts)
    return texts if state.compared <= MOST_COMPARED else ()


def _without_deleted_folders(files: dict[str, FileState]) -> dict[str, FileState]:
    """Return files, the last touched last, without those in a folder that was deleted later, those
    that each build deletes, and folders of others that a tool read, which lists them."""
    deleted, remaining = set[str](), list[tuple[str, FileState]]()
    folders = {folder for path in files for folder in folders_of(path)}
    for path, file in reversed(files.items()):
        is_none = file.state in {"deleted", "stashed"} and is_ignored(path) and ".env" not in path
        is_output = path.endswith(".output")  # of what ran in the background
        is_none |= file.state == "read" and (is_output or path.rstrip("/") in folders)
        if deleted.isdisjoint(folders_of(path)) and not is_none:
            remaining.append((path, file))
        if file.state == "deleted":
            deleted.add(path.rstrip("/"))
    return dict(reversed(remaining))


def _note_git(state: State, step: Step) -> None:
    """Mark the changed files that a command stages, and those that it commits: all if nothing was
    staged since the last commit, but for those that are usually ignored."""
    git_steps = list(shell.git_steps(step.command, step.effect.place))
    is_single = sum(verb in {"commit", "amend"} for verb, _ in git_steps) == 1
    for verb, names in git_steps:
        if verb in {"unstage", "commit"} and not state.has_staged:
            _stage(state, _find_open(state, ()), (), with_new=True)
        files = _find_open(state, names)
        state.has_staged = verb not in {"commit", "amend"}
        match verb:
            case "add" | "update":
                _stage(state, files, names, with_new=verb == "add")
            case "unstage":
                for file in files.values():
                    file.is_staged = False
            case _:
                staged = {path: file for path, file in files.items() if file.is_staged or names}
                listed = {p: f.is_new or f.state == "deleted" for p, f in staged.items()}
                for path in find_committed(listed, step.text if is_single else ""):
                    staged[path].is_committed, staged[path].is_new = True, False
                    staged[path].in_commit = staged[path].state.replace("deleted", "")
                for file in staged.values():  # git never had what it does not name
                    file.is_new |= file.state == "deleted" and not file.is_committed
                for file in files.values():
                    file.is_staged = False


def _find_open(state: State, names: Sequence[str]) -> dict[str, FileState]:
    """Return the files by these names, all if there are none, that the next commit waits for."""
    paths = (path for name in names or [shell.ALL] for path in _find_files(state, name))
    files = {path: state.files[path] for path in paths}
    return {path: file for path, file in files.items() if file.is_changed and not file.is_committed}


def _stage(
    state: State, files: Mapping[str, FileState], names: Sequence[str], *, with_new: bool
) -> None:
    """Stage files that are given by *names*, else those that repositories usually have; none that
    git was told to leave out before it knew it."""
    for path, file in files.items():
        is_usual = bool(names) or not is_ignored(path)
        is_in = bool(file.in_commit) or not is_left_out(path, state.ignored)
        file.is_staged |= is_usual and is_in and (with_new or not file.is_new)
