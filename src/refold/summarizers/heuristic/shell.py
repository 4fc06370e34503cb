"""Find what a shell command does to files, and which parts of it are checks or other work."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile, pairwise, takewhile
from typing import NamedTuple

from refold.summarizers.heuristic.shell_words import (
    APPLIES,
    BEFORE_COMMAND,
    BEFORE_RUN,
    MAX_COMMAND,
    MAX_WORDS,
    PATCH_BEGINS,
    TRIMMED,
    UNKNOWN_SESSION_DIR,
    FileEffect,
    Token,
    Words,
    WorkingDir,
    cut_commands,
    drop_lone_string,
    expand_inner_commands,
    find_program,
    find_remote_command,
    iter_marks,
    iter_redirects,
    only_gets,
    place_commands,
    program_words,
    simple_commands,
    spell_words,
    split_options,
    without_redirects,
)
from refold.text.plain import (
    find_manifest,
    has_extension,
    has_name,
    is_absolute,
    is_file_word,
    is_interpreter,
    is_outside,
    name_program,
    split_path,
)

_GIT_MAKES = frozenset(
    {"apply", "checkout", "clone", "merge", "pull", "reset", "restore", "stash", "switch"}
)
_GIT_CHANGES = frozenset({
    "am", "apply", "bisect", "cherry-pick", "clean", "merge", "pull", "rebase", "revert", "switch",
})  # fmt: skip
_NEW_BRANCH = frozenset({"-b", "-B", "-c", "-C", "--create", "--orphan"})
_OTHER_TEXT = (
    "-p", "--patch", "--ours", "--theirs", "-m", "--merge", "--conflict", "-s", "--source",
)  # fmt: skip
"""Options by which a file gets another content than the committed one."""
_STAGED, _WORKTREE = frozenset({"-S", "--staged"}), frozenset({"-W", "--worktree"})
_STASH = {
    "pop": "unstashed", "apply": "unstashed", "branch": "unstashed",
    "list": "", "show": "", "drop": "", "clear": "", "create": "", "store": "",
}  # fmt: skip
_MAKES = re.compile(r"build|make|compile|install")
_READS = frozenset({
    "cat", "head", "tail", "less", "more", "bat", "nl", "wc", "diff", "od", "xxd", "sed", "awk", "jq", "get-content", "gc",
})  # fmt: skip
_SCRIPT_FIRST = frozenset({"sed", "awk", "jq", "perl", "ruby", "yq"})
_EDITORS = frozenset({"sed", "perl", "ruby", "yq"})
"""Programs that can edit files in place."""
_SCRIPT = re.compile(r"-\w*[ef]")
_WRITES = {
    "touch": "created", "tee": "modified", "write": "created", "truncate": "modified",
    "rm": "deleted", "unlink": "deleted",
}  # fmt: skip
_LOOKING_PROGRAMS = frozenset({
    "cat", "bat", "gc", "head", "tail", "less", "more", "ls", "gci", "gi", "grep", "egrep", "rg", "sls", "select", "measure", "find", "sed", "awk", "echo", "cd", "pwd", "wc", "nl", "tree", "type", "tr", "xxd", "od",
    "which", "where", "dir", "sleep", "true", "date", "whoami", "hostname", "uname", "df", "du", "ps", "env", "id", "jq", "diff", "stat", "file", "sort", "uniq", "cut", "fd", "ag", "printf", "export", "set",
    "test", "[", "[[", "command", "basename", "dirname", "realpath", "readlink", "strings", "md5sum", "sha256sum", "lsof", "ss", "netstat", "pgrep", "ping", "source", ".", "exit", "wait", "return",
    "pushd", "popd", "pop-location", "comm", "column", "paste", "tac", "expr", "free", "uptime", "break", "continue", "function", "param", "tasklist", "findstr", "top", "journalctl", "for", "case", "read", "throw", "done", "fi", "esac", "}",
})  # fmt: skip
_LOOKING_VERBS = frozenset({
    "compare", "convertfrom", "convertto", "find", "foreach", "format", "get", "group", "join", "measure", "out", "resolve", "search", "select", "show", "sort", "split", "test", "where", "write",
})  # fmt: skip
"""Verbs of PowerShell commands that change nothing."""
_ASKS_PROGRAM = frozenset({"--help", "--version", "-V", "-h"})
_HELPS = _ASKS_PROGRAM | {"-v"}
"""Options that ask for information about the program itself when they end a command."""
READ_ONLY_VERBS = frozenset({
    "check", "describe", "diff", "fetch", "find", "get", "glob", "grep", "help", "info", "list", "log", "logs", "look", "lookup",
    "ls", "open", "output", "poll", "ps", "query", "read", "screenshot", "snapshot", "search", "show", "status", "think", "top", "validate", "version", "view", "wait",
    *("enterplanmode", "enter_plan_mode", "exitplanmode", "exit_plan_mode", "killshell", "killbash", "taskstop", "switch_mode", "todoread", "attempt_completion"),
})  # fmt: skip
"""Words in the names of tools and subcommands (`git log`) that change nothing, and names of tools
that change only how the session goes on."""
_GIT_DOES = frozenset({
    "add", "am", "apply", "bisect", "branch", "checkout", "cherry-pick", "clean", "clone", "commit", "config", "gc", "init", "merge", "mv", "pull", "push", "rebase", "remote", "reset", "restore", "revert", "rm", "stash",
    "submodule", "switch", "tag", "worktree",
})  # fmt: skip
"""Git subcommands that change something. All others only look."""
_GIT_LISTS = frozenset({"branch", "config", "remote", "submodule", "tag", "worktree"})
"""Git subcommands that list if they get no more arguments."""
_UNLISTS = frozenset({"-d", "-D", "-m", "-M", "--unset", "--delete"})
_LISTS = re.compile(r"--(?:get|list|show|contains|merged|points).*|-[arvl]+")
_PREPARES = frozenset({"mkdir", "md", "chmod", "new-item", "ni"})
_GETTERS = frozenset({"curl", "wget", "iwr", "irm", "invoke-webrequest", "invoke-restmethod", "gh"})
_ASKS = re.compile(r"\s*+(?:select|show|explain|describe|pragma|with)\s|\\[dl]", re.IGNORECASE)
_CHANGES_ROWS = re.compile(
    r"\b(?:insert|update|delete|drop|alter|create|truncate)\b", re.IGNORECASE
)
_ACTS = re.compile(r"\.(?:post|put|patch|delete|commit|rmtree|unlink|rename|system|Popen)\(")
"""Calls with which a short script changes more than its output."""
_NO_CHECKS = _LOOKING_PROGRAMS | {
    "rm", "mkdir", "rmdir", "cp", "mv", "ln", "touch", "tee", "chmod", "chown", "tar", "zip", "unzip", "git", "gh", "kill", "pkill",
    "curl", "wget", "open", "code", "vim", "nano", "scp", "rsync",
}  # fmt: skip
"""Programs whose arguments are files, hosts or branches, never a command."""
COMMAND_FOLLOWS = frozenset({"run", "exec", "compose", "-m", "--"})
_CHECK = re.compile(
    r"(?:run)?tests?|spec|checks?|lint\w*|build|compile|vet|validate|verify|type-?check|bench|nextest|clippy|credo|dialyzer|"
    r"pytest|unittest|tox|nox|[jv]est|vitest|mocha|ava|cypress|rspec|phpunit|phpstan|ctest|ruff|mypy|pyright|pylint|flake8|"
    r"tsc|eslint|biome|rubocop|golangci-lint|shellcheck|hadolint|make|ninja|gradlew?|mvnw?|xcodebuild|javac|rustc|gcc|g\+\+|clang"
)
_FORMATS = re.compile(r"\w{0,12}(?:fmt|format|imports)|black|isort|fix")
"""Part of a program's or task's name that marks it as a formatter."""
_WRITES_BACK = re.compile(r"--(?:write|fix|in-?place)(?:=.*)?")
_LOOKS_ONLY = re.compile(r"--?check.*|--(?:diff|dry|list|ver).*|-l|\w.*[:_-]check")
_TAKES = re.compile(r"\b\w{1,40}=\$\(")
"""An assignment of a command's output to a variable: `n=$(make test)`."""
_CLOSES = re.compile(r"\A[\s)]*\)")
"""The closing parentheses around a command."""
_ALL = re.compile(r"-[b-z]*a[a-z]*|--all")
MAX_PRINTED = 20_000
"""Number of characters of an output that are searched for complaints of programs."""
MOST_COMPLAINTS = 20
_COMPLAINS = re.compile(
    r"\A\S{1,60}: .{0,300}(?:No such file|cannot |can't |Permission denied|Is a directory|not found)"
    r"|Cannot find path|does not exist|系统找不到|找不到"
)
"""A line in which a program says that it did nothing to a file."""
_OF_WINDOWS = {
    "remove-item": "rm", "ri": "rm", "del": "rm", "erase": "rm", "move-item": "mv", "mi": "mv", "copy-item": "cp", "copy": "cp", "move": "mv", "ren": "mv", "rename-item": "mv",
    "get-content": "cat", "gc": "cat", "type": "cat", "set-content": "write", "out-file": "write", "add-content": "tee", "tee-object": "tee", "new-item": "touch", "ni": "touch",
}  # fmt: skip
_PATH_FOLLOWS = re.compile(
    r"-(?:(?:literal|file|pspath)?path|dest\w*|(?:new)?name|raw|force|recurse|wait|nonewline|append|verbose|passthru)",
    re.IGNORECASE,
)
"""Options of PowerShell commands that a path or no value follows."""
_WINDOWS_PATH = re.compile(r"[^\s$*?<>|\"'`@{}=,;(-][^$*?<>|\"'`@{}\n=,;]{0,300}")
MOST_OPTIONS = 6
"""Number of words, from the name of an interpreter on, among which its script is."""
_PARTS_OF_NAME = re.compile(r"[_:.-]")


# --- what commands do -----------------------------------------------------------------------------


CHANGES = frozenset({"created", "modified", "deleted"})
ALL = "*"
"""The path that stands for all files."""


def file_effects(command: str, place: WorkingDir = UNKNOWN_SESSION_DIR) -> Iterator[FileEffect]:
    """Yield what a command at *place* does to files, as (path, state), in order. Besides `read` and
    `CHANGES` the states are `restored` (to the commit), `stashed`, `unstashed` and `changed` (in an
    unknown way). With these the path may be a folder or `ALL`."""
    command = command[:MAX_COMMAND]
    placed = list(place_commands(expand_inner_commands(command), [place]))
    last_making = max((at for at, (words, _) in enumerate(placed) if _may_make(words)), default=-1)
    for at, (words, here) in enumerate(placed):
        program, bare = program_words(words), without_redirects(words)
        effects = [*iter_redirects(words), *_effects_of_program(program)]
        removes = program and _spell_program(program[0]) in {"rm", "unlink"}
        if removes and at < last_making:  # folders may be created again
            effects = [pair for pair in effects if has_extension(split_path(pair[0])[1])]
        if words[:2] == ["git", "diff"]:  # branches have names like files
            effects = [effect for effect in effects if has_extension(effect[0])]
        yield from ((here.name(path), state) for path, state in effects)
        rewritten = ((path, "changed") for path in _find_rewritten(bare))
        for path, state in (*rewritten, *_effects_of_git(bare)):
            is_pattern = "*" in path and path != ALL
            yield _name_many(path, here), "changed" if is_pattern else state


def find_run(command: str, place: WorkingDir) -> Iterator[str]:
    """Yield the programs that a command at *place* runs; of an interpreter also the next words, one
    of which is its script."""
    for words, here in place_commands(command[:MAX_COMMAND], [place]):
        names = words[:MOST_OPTIONS] if words and is_interpreter(words[0]) else words[:1]
        yield from map(here.name, names)


def find_failed_files(command: str, place: WorkingDir, text: str) -> Iterator[str]:
    """Yield the files that a command with the output *text* failed to process: those that its
    programs complain about, and those before a `||` whose alternative was printed."""
    rows = text[:MAX_PRINTED].splitlines() if command else []
    complaints = [row for row in rows if _COMPLAINS.search(row)][:MOST_COMPLAINTS]
    if not (complaints or "||" in command):
        return
    inner, before = expand_inner_commands(command), list[str]()
    printed = {row.strip() for row in rows}
    marks = [words[-1].end() if words else 0 for words in cut_commands(inner)]
    for (words, here), stop in zip(place_commands(inner, [place]), marks, strict=False):
        program = program_words(words)
        paths = [path for path, _ in _effects_of_program(program)]
        blamed = [path for path in paths if any(split_path(path)[1] in row for row in complaints)]
        is_one = program[:1] in (["cp"], ["mv"]) and blamed
        yield from map(here.name, paths if is_one else blamed)
        if before and program[:1] == ["echo"] and " ".join(program[1:]).strip() in printed:
            yield from before
        behind = inner[stop : stop + 9].lstrip(" )")
        before = [*before, *map(here.name, paths)] if behind.startswith("||") else []


def _name_many(path: str, here: WorkingDir) -> str:
    """Return the file, the folder or `ALL` that a path may stand for. A pattern becomes its folder.
    `ALL` becomes a folder only outside of the work, as in a temporary repository."""
    if path == ALL and not is_outside(here.here):
        return ALL
    name = here.name(path.partition("*")[0].rpartition("/")[0] or "." if "*" in path else path)
    return ALL if name == "." else name


def _may_make(words: Words) -> bool:
    """Return whether a command, not a check or lookup, may create files that it does not name."""
    words = list(dropwhile(BEFORE_RUN.fullmatch, words[:MAX_WORDS]))
    if words[:1] == ["git"]:
        return not _GIT_MAKES.isdisjoint(words[1:2])
    program = words[0].rpartition("/")[2] if words else "rm"
    is_idle = program in _LOOKING_PROGRAMS or program in {"rm", "rmdir", "unlink", "kill", "pkill"}
    return not is_idle and not (_is_check(words) and not _MAKES.search(" ".join(words)))


def is_work(command: str) -> bool:
    """Return whether a command is work: tests, builds and commits are, `ls` and `git show` not."""
    programs = map(find_program, simple_commands(expand_inner_commands(command)))
    return any(not _is_look(name_program(words[0]), words[1:]) for words in programs if words)


class CommandSpan(NamedTuple):
    """The text from the first to the last simple command of one kind."""

    text: str = ""
    rest: str = ""
    """The rest of the command after it."""
    rank: int = 0
    """2 for a command that changes something, 1 for preparation, short printing scripts and checks,
    0 if there is none."""

    @property
    def is_last(self) -> bool:
        """Whether nothing follows it except what trims its output."""
        return bool(TRIMMED.fullmatch(self.rest))

    @property
    def has_own_error(self) -> bool:
        """Whether this part failed if the whole command did."""
        return self.has_own_code(1)

    def has_own_code(self, code: int) -> bool:
        """Return whether the exit *code* of the whole command is that of this part. After a pipe,
        `;` or `&` it is another command's, but one that only trims output hardly ever fails."""
        return bool(code and self.is_last) or {mark[0] for mark in iter_marks(self.rest)} <= {"&&"}


def find_actions(command: str) -> CommandSpan:
    """Find the part of a command that changes something which no file, check or commit reports.
    Preparation counts only if there is nothing else."""
    own = command.partition(PATCH_BEGINS)[0]
    return _find_part(own, lambda words: _rank(spell_words(drop_lone_string(words))))


def _find_part(command: str, rank: Callable[[Sequence[Token]], int]) -> CommandSpan:
    """Find the part of a command with the highest rank above 0."""
    text = expand_inner_commands(command)
    taken = _TAKES.sub(lambda match: " " * len(match[0]), text)
    ranked = [(rank(words[:MAX_WORDS]), words) for words in cut_commands(taken) if words]
    highest = max((own for own, _ in ranked), default=0)
    if not highest:
        return CommandSpan()
    spans = [words for own, words in ranked if own == highest]
    first = next((word for word in spans[0] if word[0] not in BEFORE_COMMAND), spans[0][0])
    start, stop = first.start(), spans[-1][-1].end()
    part = text[start:stop].lstrip("({ \n").rstrip("} \n")
    rest = _CLOSES.sub("", text[stop:]).rstrip(" \n;)}")
    return CommandSpan(part if "(" in part else part.rstrip(")"), rest, highest)


def _rank(words: Words) -> int:
    """Return the rank of a simple command: 2, 1 or 0, as in `CommandSpan.rank`."""
    words = find_program(words)
    if not words:
        return 0
    program, rest = name_program(words[0]), words[1:]
    if (far := find_remote_command(program, rest)) is not None:
        text = far[0] if len(far) == 1 else ""
        writes = any(map(any, map(iter_redirects, simple_commands(text))))
        return 2 if writes else find_actions(text).rank if text else _rank(far)
    if program == APPLIES or _is_look(program, rest) or _is_check(words) or _is_file_change(words):
        return 0
    if program == "git" and rest[:1] in (["commit"], ["add"]):
        return int(rest[0] == "add")
    if is_interpreter(program) and not any(map(has_extension, rest[:1])):
        is_inline = not rest or rest[0] in {"-", "-c", "-e", "-E", "<<"}
        is_filter = rest[:1] == ["-n"] or any("stdin" in w or w == "json.tool" for w in rest)
        acts = not (is_inline or is_filter) or any(map(_ACTS.search, rest))
        return 2 if acts else int(not is_filter)
    return 1 if program in _PREPARES else 2


def _is_file_change(words: Words) -> bool:
    """Return whether the file states cover everything that a simple command does."""
    effects, operands = list(_effects_of_program(words)), _find_operands(words)
    changes = [path for path, state in effects if state in CHANGES]
    if words[0] == "git":
        paths = [path for path, state in _effects_of_git(words) if state == "restored"]
        return bool(paths) and all(map(has_extension, paths))
    may_do_more = name_program(words[0]) in {"rm", "unlink", "cp", "mv"}
    return bool(changes) and not (may_do_more and not all(map(is_file_word, operands)))


def _is_look(program: str, rest: Words) -> bool:
    verb, dash, _ = program.partition("-")
    if program in _GETTERS and (program != "gh" or "api" in rest[:1]):
        return only_gets(program, rest)
    if program == "git":
        return _only_lists(rest)
    asks = [word for word in rest if _ASKS.match(word)]
    return (
        program in _LOOKING_PROGRAMS
        or (bool(dash) and verb in _LOOKING_VERBS and program != "out-file")
        or not READ_ONLY_VERBS.isdisjoint([word.lstrip("-").partition("-")[0] for word in rest[:2]])
        or not _HELPS.isdisjoint(rest[:2] if len(rest) <= 2 else ())
        or not _ASKS_PROGRAM.isdisjoint(rest[-1:])
        or bool(asks and not any(map(_CHANGES_ROWS.search, asks)))
    )


def _only_lists(rest: Words) -> bool:
    """Return whether a git command only looks."""
    verb, options = "".join(rest[:1]), rest[1:]
    if verb not in _GIT_DOES or options[:1] in (["list"], ["show"]):
        return True
    is_short = sum(word[:1] != "-" for word in options) < 1 + (verb == "config")
    lists = (is_short or any(map(_LISTS.fullmatch, options))) and _UNLISTS.isdisjoint(options)
    return verb in _GIT_LISTS and lists


def find_checks(command: str) -> CommandSpan:
    """Find the part of a command that runs tests, a build, a linter or a type checker."""
    return _find_part(command, lambda words: _is_check(find_program(spell_words(words))))


def _find_rewritten(words: Words) -> Iterator[str]:
    """Yield the files, folders and patterns that a formatter, or a program told to write back,
    changes, `.` if it names none. Also yield the manifest if a command adds packages."""
    editor = list(dropwhile(lambda word: word.rpartition("/")[2] not in _EDITORS, words))
    if _is_in_place(editor):  # `xargs sed -i`, `find -exec sed -i {}`, `sed -i src/*.py`
        operands = _find_operands(list(filter(None, editor)))
        yield from [] if operands and all(map(is_file_word, operands)) else ["."]
        return
    words = list(dropwhile(BEFORE_RUN.fullmatch, words[:MAX_WORDS]))
    if not words or words[0].rpartition("/")[2] in _NO_CHECKS:
        return
    pairs = [(before, word) for before, word in pairwise(words) if not word.startswith("-")]
    yield from filter(None, [find_manifest(" ".join(words))])
    script = words[:2][-1] if is_interpreter(words[0]) else words[0]
    is_format = any(map(_WRITES_BACK.fullmatch, words)) or _has_task(words, _FORMATS)
    if has_extension(script) or any(map(_LOOKS_ONLY.fullmatch, words)) or not is_format:
        return
    names = [word for flag, word in pairs if flag[:2] != "--" or _WRITES_BACK.fullmatch(flag)]
    paths = [word for word in names if "*" in word or (is_file_word(word) and has_name(word))]
    yield from paths or ["."]


def _effects_of_git(words: Words) -> Iterator[FileEffect]:
    """Yield what a git command does to files."""
    if words[:1] != ["git"] or len(words) < 2:
        return
    _, verb, *rest = words
    options, names, paths = split_options(rest)
    match verb:
        case "checkout" | "switch" if options & _NEW_BRANCH:
            names = names[1:]  # a new branch begins at the current commit unless one is named
        case "checkout":
            is_behind = names[:1] == ["HEAD"]  # only paths may follow a commit
            names = names[is_behind:]
            paths = paths or [
                n for n in names if is_behind or n == "." or n.endswith("/") or has_extension(n)
            ]
            names = [name for name in names if name not in paths]
        case "restore" if not options & _STAGED or options & _WORKTREE:
            sources = {b for a, b in pairwise(rest) if a in {"-s", "--source"}}
            if sources <= {"HEAD"}:
                options -= {"-s", "--source", "--source=HEAD"}
            paths, names = [*(name for name in names if name not in sources), *paths], []
        case "reset" if "--hard" in options:
            yield ALL, "restored"
            names = [name for name in names if name != "HEAD"]
        case "stash":
            has_words = rest[:1] != ["push"] or any(word.startswith("-m") for word in options)
            state = _STASH.get(rest[0] if rest else "push", "stashed")
            paths = paths or names[1 : 1 if has_words else None] or [ALL]
            yield from ((path, state) for path in paths if state)
            return
        case _:
            names, paths = [verb] if verb in _GIT_CHANGES else [], []
    is_known = not (names or any(word.startswith(_OTHER_TEXT) for word in options))
    yield from ((path, "restored" if is_known else "changed") for path in paths)
    yield from ((ALL, "changed") for _ in names[:1] if not paths)


def git_steps(
    command: str, place: WorkingDir = UNKNOWN_SESSION_DIR
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what a command at *place* does to git's index, as (step, paths), where no paths mean
    all. Steps are `add`, `update` (tracked files), `unstage`, `commit`, and `amend` for a commit
    that may have no files of its own. A path may be a pattern."""
    for words, here in place_commands(expand_inner_commands(command), [place]):
        bare = without_redirects(words)
        if bare[:1] != ["git"] or len(bare) < 2:
            continue
        verb = bare[1]
        options, before, behind = split_options(bare[2:])
        paths = before + behind
        names = [here.name(path).rstrip("/") for path in paths]
        names = [] if "." in names or (paths == ["."] and is_absolute(here.here)) else names
        match verb:
            case "add":
                yield ("update" if options & {"-u", "--update"} else "add"), names
            case "mv" | "rm" if "--cached" not in options:
                yield "add", names
            case "restore" if options & _STAGED:
                yield "unstage", names
            case "reset" if not options & {"--hard", "--soft", "--keep", "--merge"}:
                yield "unstage", [here.name(path) for path in paths if path != "HEAD"]
            case "rm":
                yield "unstage", names
            case "commit" if "--dry-run" not in options:
                if any(map(_ALL.fullmatch, options)):
                    yield "update", ()
                is_made_of_none = not options.isdisjoint({"--amend", "--allow-empty"})
                step = "amend" if is_made_of_none else "commit"
                yield step, [here.name(path) for path in behind]


def _is_check(words: Words) -> bool:
    """Return whether a simple command is a check, read from its program on."""
    if not words or words[0].rpartition("/")[2] in _NO_CHECKS or words[-1] in _ASKS_PROGRAM:
        return False
    return _has_task(words, _CHECK) or any(
        word.startswith(("--check", "-check")) for word in words[1:]
    )


def _has_task(words: Words, names: re.Pattern[str]) -> bool:
    """Return whether a program, or the task it is given, has one of these names."""
    words = list(dropwhile(BEFORE_RUN.fullmatch, words))
    if not words:
        return False
    program, *rest = words
    program = program.rpartition("/")[2]
    if program in _NO_CHECKS:
        return False
    if _has_part(program, names):
        return True
    own = takewhile(lambda word: word[:1] == "-" or not has_name(word), rest)  # before a script
    if program == "node" and "".join(rest)[:1] == "-" and "--test" in own:
        return bool(names.fullmatch("test"))
    for at, word in enumerate(rest[:8]):
        if word in COMMAND_FOLLOWS:
            follows = rest[at + 1 :]
            is_task = word == "run" and follows[:1] == ["test"]  # of a project, not the shell's
            return (is_task and bool(names.fullmatch("test"))) or _has_task(follows, names)
    arguments = [
        word for before, word in pairwise(words) if word[:1] not in "-+" and before[:1] != "-"
    ] or [word for word in rest if word[:1] not in "-+"]
    if not arguments:
        return False
    if is_interpreter(program) and arguments[0] != "test":  # `bun test` is not the shell's
        return _has_task(arguments, names)
    return {".", "/", "\\"}.isdisjoint(arguments[0]) and _has_part(arguments[0], names)


def _has_part(name: str, names: re.Pattern[str]) -> bool:
    """Return whether the name of a program or task, or a part of it, matches. The part `check` in a
    script's name does not count, since such scripts check other things than the work."""
    parts = _PARTS_OF_NAME.split(name)
    if has_extension(name) and len(parts) > 2:
        parts = [part for part in parts if not part.startswith("check")]
    return any(map(names.fullmatch, (name, *parts)))


def _effects_of_program(words: Words) -> Iterator[FileEffect]:
    if not words:
        return
    program, rest = _spell_program(words[0]), words[1:]
    operands = _find_operands(words)
    paths = [*filter(is_file_word, operands)]
    if words[0].lower() in _OF_WINDOWS:
        operands = _find_windows_paths(words)
        operands = operands[:1] if program in {"write", "tee"} else operands
        paths = operands if program != "touch" or "directory" not in map(str.lower, rest) else []
    if program in {"mv", "cp"} and len(paths) >= 2:
        *sources, target = paths
        if words[0].lower() in {"ren", "rename-item"} and (folder := split_path(sources[0])[0]):
            target = folder + target
        yield from ((path, "deleted" if program == "mv" else "read") for path in sources)
        names = [target]
        if (folder := target.rstrip("/\\")) != target or len(sources) > 1:
            names = [f"{folder}/{split_path(path.rstrip('/'))[1]}" for path in sources]
        yield from ((name, "created") for name in names)
    elif program in _WRITES and "--cached" not in rest:
        yield from ((path, _WRITES[program]) for path in paths)
    elif program in _EDITORS and _is_in_place(rest):
        yield from ((path, "modified") for path in paths if has_name(path))
    elif program.lower() in _READS:
        yield from ((path, "read") for path in paths if has_name(path))


def _spell_program(word: str) -> str:
    """Return the Unix name of a program."""
    return _OF_WINDOWS.get(word.lower(), word.rpartition("/")[2])


def _find_operands(words: Words) -> Words:
    """Return the arguments of a program without options and scripts."""
    operands = [word for word in words[1:] if not word.startswith("-")]
    if words[0].rpartition("/")[2] not in _SCRIPT_FIRST:
        return operands
    scripts = [word for flag, word in pairwise(words) if _SCRIPT.fullmatch(flag)] or operands[:1]
    return [word for word in operands if word not in scripts]


def _find_windows_paths(words: Words) -> Words:
    """Return the paths in the arguments of a PowerShell or `cmd` command, without parentheses."""
    words = [word if "(" in word else word.partition(")")[0] for word in words]
    paths = [
        word
        for flag, word in pairwise(words)
        if word[:1] != "-"
        and (flag[:1] != "-" or _PATH_FOLLOWS.fullmatch(flag))
        and _WINDOWS_PATH.fullmatch(word)
    ]
    return [word if is_absolute(word) else word.replace("\\", "/") for word in paths]


def _is_in_place(words: Iterable[str]) -> bool:
    return any(word.startswith(("-i", "--in-place", "-pi")) for word in words)
