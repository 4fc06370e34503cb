"""The state of the work: what is wanted, by which rules, what was changed, checked and is open."""

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
    describe_check,
    find_committed,
    has_command,
    has_commit,
    has_committed_nothing,
    keep_certain_effects,
    read_check,
    read_outcome,
    read_words,
    says_works,
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
    find_ignored,
    folders_of,
    has_extension,
    is_left_out,
    is_outside,
    path_covers,
    split_path,
)
from refold.text.summary_wrapper import PERSON_PREFIX

STEPS_UNTIL_FAILURE_EXPIRES = 10
"""Number of successful changes and commands after which a failure counts as left behind."""
MOST_COMPARED = 100_000
"""Maximum number of files and checks that are compared with others."""
TALK_ANSWERS = 10
"""Number of answers after which a conversation without any actions counts as talk."""
MOST_QUESTIONS = 3
"""Maximum number of questions shown for one answer."""
MOST_IGNORED = 100
"""Maximum number of lines of a `.gitignore`, and of characters of a line, that are read."""
ANSWERED = 9.0
"""Weight of a person's answer among the decisions."""

_GIT_STATES = frozenset({"restored", "stashed", "unstashed", "changed"})
_OVERWROTE = re.compile(r"\b(?:updated|overw\w+|modified)\b")


@dataclass(slots=True)
class FileState:
    """The state of one file."""

    state: str
    """`read`, `created`, `modified`, `deleted`, or by git `restored` (to a commit) or `stashed`."""
    is_committed: bool = False
    is_checked: bool = False
    """Whether a test or build ran since it was changed."""
    is_staged: bool = False
    """Whether it is in git's index for the next commit."""
    in_commit: str = ""
    """Its state in the last commit, or empty."""
    in_stash: str = ""
    """Its state in git's stash, or empty."""
    is_new: bool = False
    """Whether it was never committed."""

    @property
    def is_changed(self) -> bool:
        """Whether it differs from its content before all work."""
        return self.state in shell.CHANGES


class Request(NamedTuple):
    """What is known about a person's request besides its text."""

    times: int = 1
    """Number of times it was made."""
    media: str = ""
    """Labels of the media beside it the last time: `[image] `."""
    is_template: bool = False
    """Whether a client put the text of a command or skill in its place."""


class Failure(NamedTuple):
    """A failed call, or none, and the progress since then."""

    call: str = ""
    """The command or the tool. Empty if nothing failed."""
    error: str = ""
    """The error output; `read_state` reduces it to its main line in the end."""
    files: frozenset[str] = frozenset()
    """Files that the call was about."""
    since: int = 0
    """Number of successful changes and commands since then."""

    def is_about(self, step: Step) -> bool:
        """Return whether a step retries this call or changes its files."""
        if step.kind != "result":
            return False
        edited = step.effect.edited_files if step.has_effect else ()
        ran = without_setup(step.command) or step.effect.tool
        return has_command(ran, self.call) or not self.files.isdisjoint(edited)


@dataclass(slots=True)
class State:
    """What a successor needs to know first."""

    requests: dict[str, Request] = field(default_factory=dict)
    """The person's requests, word for word, in the order of their latest occurrence."""
    omitted: int = 0
    """Number of requests that an earlier summary had no room for."""
    requests_from_summary: set[str] = field(default_factory=set)
    """Long requests of an earlier summary. Shown again, they do not count as repeated."""
    is_latest_current: bool = True
    """Whether the latest request is the current one, with nothing newer after the summary."""
    in_sight: frozenset[str] = frozenset()
    """Requests that are shown word for word beside or after the summary."""
    constraints: dict[str, None] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    """Topics of the constraints (`find_topics`)."""
    command_rules: dict[str, None] = field(default_factory=dict)
    """Constraints from a command or skill, which hold while its request is the current one."""
    ended: dict[str, None] = field(default_factory=dict)
    """Constraints from commands and skills that no longer hold."""
    answer: str = ""
    """The model's final answer, if it ended its turn after the latest request."""
    questions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Questions that short requests answer, the latest last."""
    files: dict[str, FileState] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    """Outcome of each test, build or commit, the last run last."""
    actions: Actions = field(default_factory=Actions)
    todos: Todos = ()
    plan_age: int = 0
    """Number of turns since the plan was changed after which something else was asked."""
    failure: Failure = field(default_factory=Failure)
    """The last failure that is not fixed yet."""
    next_step: str = ""
    """The step that the model announced last."""
    decisions: dict[str, float] = field(default_factory=dict)
    """Sentences that decide or explain, with their weights."""
    faults: dict[str, list[str]] = field(default_factory=dict)
    """Sentences that name a fault, by the file or call that they name (`note_decision`)."""
    suspected: list[str] = field(default_factory=list)
    """Sentences that name a fault, said beside calls of this turn since files were last changed."""
    mended: dict[str, None] = field(default_factory=dict)
    """The same, said before files were last changed, so that their faults may be fixed."""
    changed: set[str] = field(default_factory=set)
    """Names of changed files, and names in replaced lines, since the latest request."""
    notes: list[str] = field(default_factory=list)
    """Text of earlier summaries that no message holds: a model's words, or a user's amendments."""
    has_staged: bool = False
    """Whether anything was staged since the last commit."""
    ignored: set[str] = field(default_factory=set)
    """Patterns of files that git ignores."""
    compared: int = 0
    """Number of comparisons of files and checks so far."""


def read_state(steps: Sequence[Step], earlier: State | None = None) -> State:
    """Return the *earlier* state (the same object, changed), or a new one, after *steps*."""
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


def drop_superseded(state: State, after: Sequence[Step], later: State) -> None:
    """Remove from *state* what the steps after the summary, which lead to the state *later*, show
    again: todos, check outcomes, fixed failures, the next step, rules of finished commands."""
    listed = {todo.id for todo in state.todos} - {""}
    if any(step.kind in ("answer", "request") for step in after):
        state.next_step = ""
    for step in (step for step in after if step.kind == "request"):
        state.questions.pop(step.text, None)  # its question stands after the summary
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
    if later.todos is not state.todos:  # changed todos are shown after the summary
        state.todos = tuple(todo for todo in later.todos if todo.id in listed)
        state.plan_age = 0
    if state.failure.call and any(map(state.failure.is_about, after)):
        state.failure = Failure()
    for name, outcome in later.checks.items():
        is_less = not (outcome.startswith("ok") or find_figures(outcome))  # it stopped earlier
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
    times += words not in state.requests_from_summary
    state.requests_from_summary.discard(words)
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
    if corrections and not any(find_constraints(latest)):  # else it takes back a rule
        corrections = [*find_corrections(words, state.topics)]
    for rule in (*corrections, *find_constraints(words)):
        state.topics |= find_topics(rule)
        state.command_rules.pop(rule, None)
        state.constraints.pop(rule, None)
        state.constraints[rule] = None


def _note_replies(state: State, replies: Iterable[PersonAnswer], offered: str) -> None:
    """Note a person's answers in a tool result. A tool might forge them, so no rule is taken from a
    short answer or from the options *offered*."""
    for reply in replies:
        state.decisions.pop(sentence := reply.write(), None)
        state.decisions[sentence] = ANSWERED
        rules = (r for r in find_constraints(reply.words) if count_bytes(r) >= AGREEMENT)
        rules = (rule for rule in rules if rule not in offered)
        state.constraints |= dict.fromkeys(IN_RESULT + rule for rule in rules)


def _note_question(state: State, step: Step) -> None:
    """Note the question that a short request answers, unless it is among the decisions."""
    question = "" if is_fragment(state.answer) else find_question(state.answer, step.text)
    if question and question not in state.decisions:
        asked = dict.fromkeys((*state.questions.get(step.text, ()), question))
        state.questions[step.text] = tuple(asked)[-MOST_QUESTIONS:]


def _lend_rules(state: State, text: str) -> None:
    """Note the rules in the text of a command or skill, except those that a person states."""
    rules = [rule for rule in find_constraints(text) if rule not in state.constraints]
    state.command_rules |= dict.fromkeys(rules)
    state.constraints |= dict.fromkeys(rules)


def _end_turn(state: State, request: str) -> None:
    """End the rules of commands if a *request* follows the end of a turn. If it is long and answers
    nothing, age the plan and drop failures left behind, fixed faults and denied conclusions."""
    if state.answer:
        state.ended |= state.command_rules
        for rule in state.command_rules:
            del state.constraints[rule]
        state.command_rules = {}
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
        sentence = f'"{words}"' if words.startswith(PERSON_PREFIX) else words
        note_decision(state, sentence, weight, on_way=not step.is_final)


def note_decision(state: State, sentence: str, weight: float, *, on_way: bool = False) -> None:
    """Note a sentence that decides or explains, and what it finds fault with. A fault found
    *on_way* to an answer is dropped after the turn if files are changed after it."""
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
    """Drop faults in files that a call changed, or in names in the lines it replaced."""
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
    _note_files(state, keep_certain_effects(step, state.files))
    if effect.command or effect.todos is None:
        state.actions.note(step, outcome, is_check=bool(check) or commits)
    is_seen = text.strip() in effect.command or step.is_error or step.exit_code
    if text.startswith(NOT_RUN) or (is_stub(text) and not is_seen):  # else the outcome is unknown
        return
    if (read := read_check(step, outcome, checks) if check else outcome) is None:
        return
    outcome = read
    is_commit = commits and not has_committed_nothing(step)
    for name in filter(None, (check, "git commit" if is_commit else "")):
        listed = one_line(name, LONGEST_COMMAND)
        state.checks.pop(listed, None)
        state.checks[listed] = describe_check(step, name, outcome, is_commit=name != check)
        if outcome == "ok":  # `pytest` covers `pytest tests/test_a.py`
            names = _limit_comparisons(state, state.checks)
            for part in [part for part in names if part.startswith(f"{listed} ")]:
                if has_failed(state.checks[part]):
                    del state.checks[part]
    if (outcome == "ok" and not has_committed_nothing(step)) or COMMITTED.search(text):
        _note_git(state, step)
    if outcome not in UNTESTED:
        run = state.files if check else shell.find_run(effect.command, effect.place)
        for file in filter(None, map(state.files.get, run)):
            file.is_checked |= file.state != "read"
    is_work = bool(check) or shell.is_work(effect.command)
    if outcome not in ("", "ok", RUNNING) and (is_work or not (effect.command or is_look(effect))):
        # The line of its error is looked for at the end, if it is still open.
        state.failure = Failure(name_step(step), read_words(text), frozenset(dict(effect.files)))
    elif outcome in ("ok", RUNNING) and (failure := state.failure).call:
        since = failure.since + (is_work or bool(effect.changed_files))
        is_over = failure.is_about(step) or since > STEPS_UNTIL_FAILURE_EXPIRES
        state.failure = Failure() if is_over else failure._replace(since=since)
        if is_over and since <= 1 and outcome == "ok":  # it works without a fix
            _drop_decisions(state, state.faults.pop(failure.call, ()))


def _note_files(state: State, step: Step) -> None:
    effect = step.effect
    has_overwritten = not effect.command and bool(_OVERWROTE.search(step.text[:300]))
    undone = set(shell.find_failed_files(effect.command, effect.place, step.text))
    for path in find_opened(effect.command, effect.place):
        if (gone := state.files.get(path)) and gone.state == "deleted":  # it was created again
            gone.state, gone.is_committed = "created" if gone.is_new else "modified", False
    for path, now in effect.files:
        if path in undone:
            continue
        if now in _GIT_STATES:
            _note_git_state(state, path, now)
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
    """Note the patterns that a change of the `.gitignore` at *path* adds and removes."""
    for change in (change for change in step.effect.changes if change.path in (path, "")):
        rows = [row.strip()[:MOST_IGNORED] for row in change.new[:MOST_IGNORED]]
        state.ignored -= {word for line in change.old or () for word in line.split()}
        state.ignored |= {row for row in rows if row.strip("/*") and row[0] not in "#!"}


def _note_git_state(state: State, path: str, now: str) -> None:
    """Note that git restored, stashed or unstashed files. Git leaves new files alone unless they
    are staged or given by path."""
    paths, is_file = _find_files(state, path), has_extension(path)
    if now == "restored" and is_file and not paths and path not in state.files:
        state.files[path] = FileState("restored", is_checked=True)  # an older summary may list it
    for name in paths if len(paths) == 1 or not is_file else ():
        file = state.files[name]
        if now == "unstashed" and file.in_stash:
            file.state, file.in_stash, file.is_checked = file.in_stash, "", False
        if now == "changed" and file.state == "restored":  # its state is unknown
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
    """Return the changed files that git means by the path of a file or folder, or by `ALL`. Files
    outside of repositories count only if there are no others."""
    files = _limit_comparisons(state, state.files)
    changed = [name for name in files if state.files[name].state != "read"]
    inside = [name for name in changed if not is_outside(name)] or changed
    end = "" if "*" in path else split_path(path.rstrip("/"))[1]
    return [name for name in inside if end in name and path_covers(name, path)]


def _limit_comparisons(state: State, texts: Collection[str]) -> Collection[str]:
    """Return *texts* and count them as compared, or nothing once too many were compared."""
    state.compared += len(texts)
    return texts if state.compared <= MOST_COMPARED else ()


def _without_deleted_folders(files: dict[str, FileState]) -> dict[str, FileState]:
    """Return files, the last touched last, without those in a folder deleted later, build output
    that was deleted, output files of background commands, and folders listed by a tool."""
    deleted, remaining = set[str](), list[tuple[str, FileState]]()
    folders, ignored = {f for path in files for f in folders_of(path)}, find_ignored(files)
    for path, file in reversed(files.items()):
        is_none = file.state in {"deleted", "stashed"} and path in ignored and ".env" not in path
        is_output = path.endswith(".output")  # of a background command
        is_none |= file.state == "read" and (is_output or path.rstrip("/") in folders)
        if deleted.isdisjoint(folders_of(path)) and not is_none:
            remaining.append((path, file))
        if file.state == "deleted":
            deleted.add(path.rstrip("/"))
    return dict(reversed(remaining))


def _note_git(state: State, step: Step) -> None:
    """Mark the files that a command stages, unstages or commits. If a commit or unstaging follows
    no staging, all changed files that are not usually ignored count as staged before."""
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
                for file in staged.values():  # not named by git, so never committed
                    file.is_new |= file.state == "deleted" and not file.is_committed
                for file in files.values():
                    file.is_staged = False


def _find_open(state: State, names: Sequence[str]) -> dict[str, FileState]:
    """Return the uncommitted changed files with these names, or all without names."""
    paths = (path for name in names or [shell.ALL] for path in _find_files(state, name))
    files = {path: state.files[path] for path in paths}
    return {path: file for path, file in files.items() if file.is_changed and not file.is_committed}


def _stage(
    state: State, files: Mapping[str, FileState], names: Sequence[str], *, with_new: bool
) -> None:
    """Stage files given by *names*, or without names those that repositories usually contain. Files
    ignored before their first commit are left out."""
    ignored = set[str]() if names else find_ignored(state.files)
    for path, file in files.items():
        is_in = bool(file.in_commit) or not is_left_out(path, state.ignored)
        file.is_staged |= path not in ignored and is_in and (with_new or not file.is_new)
