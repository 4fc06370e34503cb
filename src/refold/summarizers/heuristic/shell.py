"""What a shell command does to files."""

import re
from collections.abc import Iterator
from itertools import dropwhile, pairwise

MAX_COMMAND = 20_000
"""Characters of a command that are looked at."""

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_WORD = re.compile(
    r"\"((?:[^\"\\]|\\.?)*+)\"?|'([^']*+)'?|(\d?>>?|&&|\|\|?|;|\n)|([^\s\"'>|;&]+)", re.DOTALL
)
_BREAKS = frozenset({"&&", "||", "|", ";", "\n"})
_READS = frozenset(
    {
        "cat",
        "head",
        "tail",
        "less",
        "more",
        "bat",
        "nl",
        "wc",
        "diff",
        "od",
        "xxd",
        "sed",
        "awk",
        "jq",
    }
)
_SCRIPT_FIRST = frozenset({"sed", "awk", "jq", "perl"})
_WRITES = {"touch": "created", "tee": "modified", "rm": "deleted", "unlink": "deleted"}
_PATH = re.compile(r"[^\s*?{}$()<>|;&\"'`=,!\\]{1,300}")
_TRIMS = re.compile(r"\|&?\s*+(?:tail|head|cat|tee)\b[^|&;]*+")
_BOTH = "2>&1"
_LOOKING_PROGRAMS = frozenset({
    "cat", "head", "tail", "less", "more", "ls", "grep", "rg", "find", "sed", "awk", "echo", "cd", "pwd", "wc", "nl", "tree",
    "which", "sleep", "true", "jq", "diff", "stat", "file", "sort", "uniq", "cut", "fd", "ag", "printf", "export", "set",
})  # fmt: skip
_BEFORE_PROGRAM = re.compile(r"[A-Z_]+=.*|sudo|time|git")
_SETUP = re.compile(
    r"\s*(?:cd\s+[^\s&;|]+\s*(?:&&|;)\s*|source\s+\S+\s*(?:&&|;)\s*|export\s+\S+\s*(?:&&|;)\s*|[A-Z_]+=\S+\s+)"
)


def file_effects(command: str) -> Iterator[tuple[str, str]]:
    """Yield what a command reads, creates, modifies or deletes, as (path, state), in order."""
    for words in _simple_commands(_without_heredocs(command[:MAX_COMMAND])):
        yield from _redirects(words)
        yield from _effects_of_program([word for word in _program_words(words) if word])


def is_work(command: str) -> bool:
    """Does a command do more than look around? Tests, builds and commits do; `ls` and `grep` do
    not."""
    words = _without_setup(command).split(None, 1)
    return bool(words) and words[0].rpartition("/")[2] not in _LOOKING_PROGRAMS


def _without_setup(command: str) -> str:
    """Return the command without leading `cd`, `source`, `export` and variables, and without
    heredocs."""
    command = _without_heredocs(command[:MAX_COMMAND]).strip()
    at = 0
    while match := _SETUP.match(command, at):
        at = match.end()
    return command[at:]


def name_command(command: str) -> str:
    """Return the command as it is listed: without set-up, and without what only trims its output at
    its end, such as `2>&1` and `| tail -5`."""
    line = " ".join(_without_setup(command).split())
    stop = _end_without_trimming(line, len(line))
    pipes = [word.start() for word in _WORD.finditer(line) if word[3] == "|"]
    while pipes and _TRIMS.fullmatch(line, pipes[-1], stop):
        stop = _end_without_trimming(line, pipes.pop())
    return line[:stop]


def has_command(line: str, failed: str) -> bool:
    """Does a *line* of commands hold the last one of *failed*, which stopped there? Two words tell
    a command: `git pull && git push` has that of `git add . && git push`."""
    *_, wanted = _simple_commands(failed[:MAX_COMMAND])
    return any(words[:2] == wanted[:2] for words in _simple_commands(line[:MAX_COMMAND]))


def _end_without_trimming(line: str, stop: int) -> int:
    """Return where *line* ends before *stop*, blanks and `2>&1` left out."""
    while True:
        if line.endswith(" ", 0, stop):
            stop -= 1
        elif line.endswith(_BOTH, 0, stop):
            stop -= len(_BOTH)
        else:
            return stop


def _without_heredocs(command: str) -> str:
    """Return the command without the bodies of its heredocs."""
    lines, out, end = command.split("\n"), list[str](), ""
    for line in lines:
        if end:
            end = "" if line.strip() == end else end
            continue
        out.append(line)
        if match := _HEREDOC.search(line):
            end = match[2]
    return "\n".join(out)


def _simple_commands(command: str) -> Iterator[list[str]]:
    words = list[str]()
    for double, single, mark, bare in _WORD.findall(command):
        if mark in _BREAKS:
            yield words
            words = []
        else:
            words.append(double or single or mark or bare)
    yield words


def _redirects(words: list[str]) -> Iterator[tuple[str, str]]:
    for mark, path in pairwise(words):
        if mark.lstrip("1") in {">", ">>"} and is_path(path):
            yield path, "created" if mark.endswith(">") and not mark.endswith(">>") else "modified"


def _program_words(words: list[str]) -> list[str]:
    """Return the words that are neither redirections nor their targets nor variables in front."""
    out, skip = list[str](), False
    for word in words:
        if ">" in word and word.strip("12&>") == "":
            skip = True
        elif not skip:
            out.append(word)
        else:
            skip = False
    return list(dropwhile(_BEFORE_PROGRAM.fullmatch, out))


def _effects_of_program(words: list[str]) -> Iterator[tuple[str, str]]:
    if not words:
        return
    program, *rest = words
    program = program.rpartition("/")[2]
    words = [word for word in rest if not word.startswith("-")]
    paths = [word for word in (words[1:] if program in _SCRIPT_FIRST else words) if is_path(word)]
    if program in {"mv", "cp"} and len(paths) >= 2:
        yield from ((path, "deleted" if program == "mv" else "read") for path in paths[:-1])
        yield paths[-1], "created"
    elif program in _WRITES:
        yield from ((path, _WRITES[program]) for path in paths)
    elif program in {"sed", "perl"} and any(
        word.startswith(("-i", "--in-place", "-pi")) for word in rest
    ):
        yield from ((path, "modified") for path in paths if _has_name(path))
    elif program in _READS:
        yield from ((path, "read") for path in paths if _has_name(path))


def _has_name(path: str) -> bool:
    """Is it a path rather than a pattern, a number or a script?"""
    return "/" in path.strip("/") or bool(re.search(r"[^.\d]\.\w{1,12}$", path))


def is_path(word: str) -> bool:
    """May this word name a file?"""
    return (
        bool(_PATH.fullmatch(word))
        and not word.startswith(("/dev/", "&"))
        and not word.isdigit()
        and word.strip("./~-") != ""
    )
