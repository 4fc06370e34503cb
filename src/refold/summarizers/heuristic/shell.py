"""What a shell command does to files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, pairwise

from refold.summarizers.heuristic.shell_words import (
    BREAKS,
    MAX_COMMAND,
    MAX_WORDS,
    SESSION,
    WORD,
    Place,
    cut_commands,
    is_path,
    iter_redirects,
    place_commands,
    program_words,
    read_inner,
    simple_commands,
    texts_of,
    without_heredocs,
    without_redirects,
)
from refold.text.plain import is_absolute, split_path

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
"""Options by which a file becomes something else than what was committed."""
_STAGED, _WORKTREE = frozenset({"-S", "--staged"}), frozenset({"-W", "--worktree"})
_STASH = {
    "pop": "unstashed", "apply": "unstashed", "branch": "unstashed",
    "list": "", "show": "", "drop": "", "clear": "", "create": "", "store": "",
}  # fmt: skip
_MAKES = re.compile(r"build|make|compile|install")
_FROM = re.compile(r"\+(\d{1,7})")
_PRINTED = re.compile(r"(\d{1,7})(?:,(?:\d{1,7}|\$))?p")
"""The lines that `sed -n` prints."""
_READS = frozenset({
    "cat", "head", "tail", "less", "more", "bat", "nl", "wc", "diff", "od", "xxd", "sed", "awk", "jq", "get-content", "gc",
})  # fmt: skip
_SCRIPT_FIRST = frozenset({"sed", "awk", "jq", "perl", "ruby", "yq"})
_EDITORS = frozenset({"sed", "perl", "ruby", "yq"})
"""Programs that can change files in their place."""
_SCRIPT = re.compile(r"-\w*[ef]")
_WRITES = {
    "touch": "created",
    "tee": "modified",
    "truncate": "modified",
    "rm": "deleted",
    "unlink": "deleted",
}
_EXTENSION = re.compile(r"[^.\d]\.\w{1,12}$|\d\.(?!x$)[A-Za-z]\w{0,11}$")
_TRIMS = re.compile(r"\|&?\s*+(?:tail|head|cat|tee)\b[^|&;]*+")
_TRIMMED = re.compile(r"(?:\s++|2>&1|\|&?\s*+(?:tail|head|cat|tee)\b[^|&;\n]*+)*+")
_BOTH = "2>&1"
_LOOKING_PROGRAMS = frozenset({
    "cat", "head", "tail", "less", "more", "ls", "grep", "rg", "find", "sed", "awk", "echo", "cd", "pwd", "wc", "nl", "tree",
    "which", "dir", "sleep", "true", "date", "whoami", "hostname", "uname", "df", "du", "ps", "env", "id", "jq", "diff", "stat", "file", "sort", "uniq", "cut", "fd", "ag", "printf", "export", "set",
})  # fmt: skip
_BEFORE_CHECK = re.compile(
    r"[A-Z_]+=.*|-.*|\+.*|[\d.]+[smh]?|sudo|time|timeout|nice|nohup|env|npx|bunx|uvx|xargs"
)
_LOOKING_VERBS = frozenset({
    "compare", "find", "format", "get", "measure", "resolve", "search", "select", "show", "sort", "test", "where",
})  # fmt: skip
"""How names of PowerShell's commands begin that change nothing."""
_HELPS = frozenset({"--help", "--version", "-v", "-V", "-h"})
"""Options of which one at a command's end says something of the program."""
LOOKS = frozenset({
    "check", "describe", "diff", "fetch", "find", "get", "glob", "grep", "help", "info", "list", "log", "logs", "look", "lookup",
    "ls", "open", "poll", "ps", "query", "read", "rev-parse", "search", "show", "status", "think", "top", "version", "view",
})  # fmt: skip
"""Words in the names of tools, and of commands of commands (`git log`), that change nothing."""
_NO_CHECKS = _LOOKING_PROGRAMS | {
    "rm", "mkdir", "rmdir", "cp", "mv", "ln", "touch", "tee", "chmod", "chown", "tar", "zip", "unzip", "git", "gh", "kill", "pkill",
    "curl", "wget", "open", "code", "vim", "nano", "scp", "rsync", "test", "[", "read", "source", ".",
}  # fmt: skip
"""Programs whose arguments name files, hosts or branches, none of them a command."""
_COMMAND_FOLLOWS = frozenset({"run", "exec", "compose", "-m", "--"})
_INTERPRETER = re.compile(
    r"(?:python|pypy|ruby|php|perl|node|bun|deno|(?:ba|z|da)?sh|pwsh|Rscript|julia|dart|java)[\d.]*"
)
_CHECK = re.compile(
    r"(?:run)?tests?|spec|checks?|lint\w*|build|compile|vet|validate|verify|type-?check|bench|nextest|clippy|credo|dialyzer|"
    r"pytest|unittest|tox|nox|[jv]est|vitest|mocha|ava|playwright|cypress|rspec|phpunit|phpstan|ctest|ruff|mypy|pyright|pylint|flake8|"
    r"tsc|eslint|biome|rubocop|golangci-lint|shellcheck|hadolint|make|ninja|gradlew?|mvnw?|xcodebuild|javac|rustc|gcc|g\+\+|clang"
)
_FORMATS = re.compile(r"\w{0,12}(?:fmt|format|imports)|black|isort|fix")
"""What says of a program's or a task's name that it changes files into another form."""
_WRITES_BACK = re.compile(r"--(?:write|fix|in-?place)(?:=.*)?")
_LOOKS_ONLY = re.compile(r"--?check.*|--(?:diff|dry|list|ver).*|-l|\w.*[:_-]check")
_ALL = re.compile(r"-[b-z]*a[a-z]*|--all")
_OF_WINDOWS = {
    "remove-item": "rm", "ri": "rm", "del": "rm", "erase": "rm", "move-item": "mv", "mi": "mv", "copy-item": "cp",
}  # fmt: skip
_VALUE_FOLLOWS = frozenset({"-er", "-ea", "-fi", "-in", "-ex"})
_PARTS_OF_NAME = re.compile(r"[_:.-]")
_SETUP = re.compile(
    r"\s*(?:cd\s+[^\s&;|]+\s*(?:&&|;)\s*|source\s+\S+\s*(?:&&|;)\s*|export\s+\S+\s*(?:&&|;)\s*"
    r"|[A-Z_]+=(?:\$\([^()\n]*\)|\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'();&|]*)(?:\s*(?:&&|;)\s*|\s+))"
)


# --- what commands do -----------------------------------------------------------------------------


CHANGES = frozenset({"created", "modified", "deleted"})
ALL = "*"
"""The path that stands for all files."""
_OUTSIDE = re.compile(r"~|/(?:tmp|var|private)/|/(?:(?:home|Users)/[^/]{1,99}|root)/\.")
"""How paths begin that are no project's."""


def file_effects(command: str, place: Place = SESSION) -> Iterator[tuple[str, str]]:
    """Yield what a command at *place* does to files, as (path, state), in order. Beside `read` and
    `CHANGES` a file may be `restored` to what was committed, `stashed`, `unstashed`, or `changed`
    in a way that nobody knows; then the path may be a folder or `ALL`."""
    command = command[:MAX_COMMAND]
    placed = list(place_commands(read_inner(command), [place]))
    last_making = max((at for at, (words, _) in enumerate(placed) if _may_make(words)), default=-1)
    for at, (words, here) in enumerate(placed):
        program, bare = list(filter(None, program_words(words))), without_redirects(words)
        effects = [*iter_redirects(words), *_effects_of_program(program)]
        if program[:1] in (["rm"], ["unlink"]) and at < last_making:  # folders may be there again
            effects = [effect for effect in effects if "." in effect[0].rpartition("/")[2]]
        yield from ((here.name(path), state) for path, state in effects)
        rewritten = ((path, "changed") for path in _find_rewritten(bare))
        for path, state in (*rewritten, *_effects_of_git(bare)):
            is_pattern = "*" in path and path != ALL
            yield _name_many(path, here), "changed" if is_pattern else state


def _name_many(path: str, here: Place) -> str:
    """Return the file, the folder or `ALL` that a path may stand for: all of a repository are all
    that is known, but in a temporary one; of a pattern the folder."""
    if path == ALL and not is_outside(here.here):
        return ALL
    name = here.name(path.partition("*")[0].rpartition("/")[0] or "." if "*" in path else path)
    return ALL if name == "." else name


def _may_make(words: list[str]) -> bool:
    """May a command make files that it does not name? Tests and what looks around do not."""
    words = list(dropwhile(_BEFORE_CHECK.fullmatch, words[:MAX_WORDS]))
    if words[:1] == ["git"]:
        return not _GIT_MAKES.isdisjoint(words[1:2])
    program = words[0].rpartition("/")[2] if words else "rm"
    if program in _LOOKING_PROGRAMS or program in {"rm", "rmdir", "unlink", "kill", "pkill"}:
        return False
    return not _is_check(words) or bool(_MAKES.search(" ".join(words)))


def is_work(command: str) -> bool:
    """Does a command do more than look around? Tests, builds and commits do; `ls` and `grep` do
    not."""
    words = _without_setup(command).split(None, 1)
    return bool(words) and words[0].rpartition("/")[2] not in _LOOKING_PROGRAMS


def is_look(command: str) -> bool:
    """Do all of a command's parts only look, as far as the names of programs, of their commands and
    of PowerShell's verbs say?"""
    return all(map(_is_look, simple_commands(_without_setup(command))))


def _is_look(words: list[str]) -> bool:
    program, *rest = [*dropwhile(_BEFORE_CHECK.fullmatch, words[:MAX_WORDS]), ""]
    program = program.rpartition("/")[2].lower()
    verb, dash, _ = program.partition("-")
    return (
        program in _LOOKING_PROGRAMS
        or (bool(dash) and verb in _LOOKING_VERBS)
        or not LOOKS.isdisjoint([word.lstrip("-") for word in rest[:2]])
        or not _HELPS.isdisjoint(rest[:3] if len(rest) <= 3 else ())
    )


def has_more(command: str) -> bool:
    """Does a command consist of several, but for its set-up and for what goes through a pipe?"""
    return any(word[3] in BREAKS - {"|"} for word in WORD.finditer(_without_setup(command)))


def find_checks(command: str) -> str:
    """Return what of a command runs tests, a build, a linter or a type checker, from the first of
    these to the last; empty if nothing does. A file that is named so is none: `rm test.json`."""
    command = read_inner(command)
    spans = [
        (words[0].start(), words[-1].end())
        for words in cut_commands(command)
        if _is_check(texts_of(words[:MAX_WORDS]))
    ]
    return command[spans[0][0] : spans[-1][1]] if spans else ""


def is_code_of_check(command: str, code: int = 1) -> bool:
    """Is this the exit code of a command's checks? Behind a pipe, `;` or `&` it is another's; but
    what only trims an output hardly ever fails."""
    rest = _after_checks(command)
    if code and _TRIMMED.fullmatch(rest):
        return True
    marks = {word[3] for word in WORD.finditer(rest) if word[3]}
    return not marks & (BREAKS - {"&&"})


def ends_with_check(command: str) -> bool:
    """Does nothing follow a command's last check, but for what trims its output?"""
    return bool(_TRIMMED.fullmatch(_after_checks(command)))


def _after_checks(command: str) -> str:
    """Return what of a command follows its last check; all of it if it has none."""
    check = find_checks(command)
    rest = read_inner(command).rstrip(" \n;")
    return rest.rpartition(check)[2].lstrip(" \n)") if check else rest


def _find_rewritten(words: list[str]) -> Iterator[str]:
    """Yield what a formatter changes, or a program that is told to write back what it reads: files,
    folders and patterns, `.` if it names none."""
    editor = list(dropwhile(lambda word: word.rpartition("/")[2] not in _EDITORS, words))
    if _is_in_place(editor):  # `xargs sed -i`, `find -exec sed -i {}`, `sed -i src/*.py`
        operands = _find_operands(list(filter(None, editor)))
        yield from [] if operands and all(map(is_path, operands)) else ["."]
        return
    words = list(dropwhile(_BEFORE_CHECK.fullmatch, words[:MAX_WORDS]))
    if not words or words[0].rpartition("/")[2] in _NO_CHECKS:
        return
    script = words[:2][-1] if is_interpreter(words[0]) else words[0]
    if has_extension(script) or any(map(_LOOKS_ONLY.fullmatch, words)):
        return
    pairs = [(before, word) for before, word in pairwise(words) if not word.startswith("-")]
    if not (any(map(_WRITES_BACK.fullmatch, words)) or _has_task(words, _FORMATS)):
        return
    names = [word for flag, word in pairs if flag[:2] != "--" or _WRITES_BACK.fullmatch(flag)]
    paths = [word for word in names if "*" in word or (is_path(word) and _has_name(word))]
    yield from paths or ["."]


def _effects_of_git(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what git does to files on its own."""
    if words[:1] != ["git"] or len(words) < 2:
        return
    _, verb, *rest = words
    mark = rest.index("--") if "--" in rest else len(rest)
    options = {word for word in rest[:mark] if word.startswith("-") and word != "-"}
    names, paths = [word for word in rest[:mark] if word not in options], rest[mark + 1 :]
    match verb:
        case "checkout" | "switch" if options & _NEW_BRANCH:
            names = names[1:]  # it begins where the files stand if no other place is named
        case "checkout":
            is_behind = names[:1] == ["HEAD"]  # a path is all that may stand behind a commit
            names = names[is_behind:]
            paths = paths or [
                n for n in names if is_behind or n == "." or n.endswith("/") or has_extension(n)
            ]
            names = [name for name in names if name not in paths]
        case "restore" if not options & _STAGED or options & _WORKTREE:
            paths, names = [*names, *paths], []
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


def git_steps(command: str, place: Place = SESSION) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what a command at *place* does to git's index, as (step, paths), none for all: `add`,
    `update` (what git knows already), `unstage`, `commit`, and `amend` for a commit that may have
    no files of its own. A path may be a pattern."""
    for words, here in place_commands(read_inner(command), [place]):
        bare = without_redirects(words)
        if bare[:1] != ["git"] or len(bare) < 2:
            continue
        verb, rest = bare[1], bare[2:]
        mark = rest.index("--") if "--" in rest else len(rest)
        options = {word for word in rest[:mark] if word.startswith("-")}
        paths = [word for word in rest[:mark] if word not in options] + rest[mark + 1 :]
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
                yield step, [here.name(path) for path in rest[mark + 1 :]]
            case _:
                pass


def state_after(before: str | None, now: str) -> str:
    """Return the state of a file that was *before* and to which *now* happened."""
    match before, now:
        case "created" | "modified" | "restored" | "stashed", "read":
            return str(before)
        case "created", "modified" | "created":
            return "created"
        case "read" | "modified" | "restored" | "stashed", "created":
            return "modified"
        case _:
            return now


def find_first_line(command: str) -> int:
    """Return the number of the first line that a command prints of its file: 20 for `sed -n
    '20,60p' a.py`; 0 if it prints anything but lines in a row."""
    if has_more(command):
        return 0
    first = 1
    for words in simple_commands(_without_setup(command)):
        program = [word for word in program_words(words) if word]
        start = 0 if any(iter_redirects(words)) else _find_start(program)
        if not start:
            return 0
        first += start - 1
    return first


def _find_start(words: list[str]) -> int:
    """Return the first line that one program passes on; 0 if it changes lines or leaves out some
    between them."""
    match words:
        case ["cat", *rest] if not any(word.startswith("-") for word in rest):
            return 1
        case ["head", *rest] if not any(word.startswith(("-c", "--bytes")) for word in rest):
            return 1
        case ["sed", "-n", script, *_] if match := _PRINTED.fullmatch(script):
            return int(match[1])
        case ["tail", "-n", number, *_] if match := _FROM.fullmatch(number):
            return int(match[1])
        case _:
            return 0


def _is_check(words: list[str]) -> bool:
    """Is this simple command a test, a build, a linter or a type checker?"""
    words = list(dropwhile(_BEFORE_CHECK.fullmatch, words))
    if not words or words[0].rpartition("/")[2] in _NO_CHECKS:
        return False
    return _has_task(words, _CHECK) or any(
        word.startswith(("--check", "-check")) for word in words[1:]
    )


def _has_task(words: list[str], names: re.Pattern[str]) -> bool:
    """Is a program, or the task that it is given, one of these?"""
    words = list(dropwhile(_BEFORE_CHECK.fullmatch, words))
    if not words:
        return False
    program, *rest = words
    program = program.rpartition("/")[2]
    if program in _NO_CHECKS:
        return False
    if _has_part(program, names):
        return True
    for at, word in enumerate(rest[:8]):
        if word in _COMMAND_FOLLOWS:
            return _has_task(rest[at + 1 :], names)
    arguments = [
        word for before, word in pairwise(words) if word[:1] not in "-+" and before[:1] != "-"
    ] or [word for word in rest if word[:1] not in "-+"]
    if not arguments:
        return False
    if is_interpreter(program):
        return _has_task(arguments, names)
    return "." not in arguments[0] and "/" not in arguments[0] and _has_part(arguments[0], names)


def _has_part(name: str, names: re.Pattern[str]) -> bool:
    """Does one of the words that a program's or a task's name is made of say so?"""
    return any(map(names.fullmatch, (name, *_PARTS_OF_NAME.split(name))))


def _without_setup(command: str) -> str:
    """Return the command without leading `cd`, `source`, `export` and variables, and without
    heredocs and comments."""
    command = without_heredocs(command[:MAX_COMMAND])
    command = WORD.sub(lambda word: word[0] if word.lastindex else "", command).strip()
    at = 0
    while match := _SETUP.match(command, at):
        at = match.end()
    return command[at:]


def name_command(command: str) -> str:
    """Return the command as it is listed: without set-up, and without what only trims its output at
    its end, such as `2>&1` and `| tail -5`."""
    line = " ".join(_without_setup(command).split())
    stop = _end_without_trimming(line, len(line))
    pipes = [word.start() for word in WORD.finditer(line) if word[3] == "|"]
    while pipes and _TRIMS.fullmatch(line, pipes[-1], stop):
        stop = _end_without_trimming(line, pipes.pop())
    return line[:stop]


def has_command(line: str, failed: str) -> bool:
    """Does a *line* of commands hold the last one of *failed*, which stopped there? Two words tell
    a command: `git pull && git push` has that of `git add . && git push`."""
    *_, wanted = simple_commands(failed[:MAX_COMMAND])
    return any(words[:2] == wanted[:2] for words in simple_commands(line[:MAX_COMMAND]))


def _end_without_trimming(line: str, stop: int) -> int:
    """Return where *line* ends before *stop*, blanks and `2>&1` left out."""
    while True:
        if line.endswith(" ", 0, stop):
            stop -= 1
        elif line.endswith(_BOTH, 0, stop):
            stop -= len(_BOTH)
        else:
            return stop


def _effects_of_program(words: list[str]) -> Iterator[tuple[str, str]]:
    if not words:
        return
    program, *rest = words
    program = program.rpartition("/")[2]
    operands = _find_operands(words)
    paths = list(filter(is_path, operands))
    if program.lower() in _OF_WINDOWS:
        operands = [
            word
            for flag, word in pairwise(words)
            if flag[:3].lower() not in _VALUE_FOLLOWS and word[:1] != "-"
        ]
        program = _OF_WINDOWS[program.lower()]
        operands = [word if is_absolute(word) else word.replace("\\", "/") for word in operands]
        paths = [word for word in operands if is_path(word.replace("\\", "/"))]
    if program in {"mv", "cp"} and len(paths) >= 2:
        *sources, target = paths
        yield from ((path, "deleted" if program == "mv" else "read") for path in sources)
        is_folder = target.endswith("/") or len(sources) > 1
        names = [split_path(path.rstrip("/"))[1] for path in sources] if is_folder else [""]
        yield from (
            (f"{target.rstrip('/')}/{name}" if name else target, "created") for name in names
        )
    elif program in _WRITES and "--cached" not in rest:
        yield from ((path, _WRITES[program]) for path in paths)
    elif program in _EDITORS and _is_in_place(rest):
        yield from ((path, "modified") for path in paths if _has_name(path))
    elif program.lower() in _READS:
        yield from ((path, "read") for path in paths if _has_name(path))


def _find_operands(words: list[str]) -> list[str]:
    """Return the words behind a program that are no options, and no scripts for it."""
    operands = [word for word in words[1:] if not word.startswith("-")]
    if words[0].rpartition("/")[2] not in _SCRIPT_FIRST:
        return operands
    scripts = [word for flag, word in pairwise(words) if _SCRIPT.fullmatch(flag)] or operands[:1]
    return [word for word in operands if word not in scripts]


def _is_in_place(words: Iterable[str]) -> bool:
    return any(word.startswith(("-i", "--in-place", "-pi")) for word in words)


def _has_name(path: str) -> bool:
    """Is it a path rather than a pattern, a number or a script?"""
    return "/" in path.strip("/") or has_extension(path)


def is_interpreter(word: str) -> bool:
    """Does a word name a program that runs scripts?"""
    return bool(_INTERPRETER.fullmatch(word.rpartition("/")[2]))


def is_outside(path: str) -> bool:
    """Is this a path in a temporary folder, or of a program's own files at home?"""
    return bool(_OUTSIDE.match(path))


def has_extension(path: str) -> bool:
    """Is this the path of a file rather than of a folder, by its end?"""
    return bool(_EXTENSION.search(path))
