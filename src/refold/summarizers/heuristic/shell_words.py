"""What files are called, and how a shell reads a command: its words, its simple commands and where
they run, its heredocs.

Files have the name that they have in the folder of the session, wherever a command runs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, pairwise
from typing import NamedTuple

from refold.text.plain import is_absolute, with_slashes

# --- files ----------------------------------------------------------------------------------------


UNKNOWN = "…"
"""A directory that nobody names, as in `cd $(mktemp -d)`."""
LONGEST_PATH = 500
"""Characters of a directory's path."""
_UNSURE = re.compile(r"[$`*?]|^-$|\\$")
"""What makes a word another directory than it spells: variables, patterns, `cd -`, blanks."""


class Place(NamedTuple):
    """Where a command runs, and what its files are called there."""

    folder: str = ""
    """The folder of the session, if it is known: the files in it are named from there."""
    here: str = ""
    """The directory, named like a file; empty for that folder."""
    spellings: Mapping[str, str] = {}
    """What files are called that are also called otherwise."""

    def name(self, path: str) -> str:
        """Return the one name that a file has wherever a command runs."""
        if not is_absolute(path) and not path.startswith("~"):
            path = f"{self.here.rstrip('/')}/{path}" if self.here else path
            if self.folder and not is_absolute(path) and path[:1] not in {"~", UNKNOWN}:
                path = f"{self.folder}/{path}"
        is_windows = path[1:3] == ":\\"
        path, folder = _without_dots(with_slashes(path)), with_slashes(self.folder)
        inside = path.removeprefix(folder)
        if inside != path and inside[:1] in ("", "/"):
            path = inside[1:] or "."
        elif is_windows:
            path = path.replace("/", "\\")
        return self.spellings.get(path.rstrip("/"), path)

    def enter(self, path: str) -> "Place":
        """Return where commands run after `cd` to *path*."""
        here = self.name(path or "~").rstrip("/") or "/"
        if _UNSURE.search(path) or len(here) > LONGEST_PATH:
            here = UNKNOWN
        return self._replace(here="" if here == "." else here)


SESSION = Place()
"""The folder of a session that nobody names."""


def _without_dots(path: str) -> str:
    """Return a path without `.` and `..`, as far as these lead to a known place."""
    if "." not in path.split("/") and ".." not in path.split("/"):
        return path
    parts = list[str]()
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] not in {"..", "~"}:
            del parts[len(parts) - (parts[-1] not in {"", UNKNOWN}) :]
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


# --- commands --------------------------------------------------------------------------------------


MAX_WORDS = 50
"""Words of a simple command that may say what it runs."""
MAX_COMMAND = 20_000
"""Characters of a command that are looked at."""
_HEREDOC = re.compile(r"(?<!<)<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_HOME = re.compile(r"\$(?:HOME|\{HOME\}|env:USERPROFILE)(?=[/\\])")
_EXPANDED = re.compile(r"[$`\\]")
"""What a shell replaces in a heredoc whose mark has no quotes."""
WORD = re.compile(
    r"\"((?:[^\"\\]|\\.?)*+)\"?|'([^']*+)'?|(\d?>>?|<+-?|&&|(?<![&<>\d])&(?![&>\d])|\|\|?|;|\n)"
    r"|(?<![^\s;&|(])#[^\n]*+|([^\s\"'<>|;&]+)",
    re.DOTALL,
)
"""A word, a mark or a comment."""
BREAKS = frozenset({"&&", "&", "||", "|", ";", "\n"})
_REDIRECTING = frozenset("<>")
_BEFORE_COMMAND = frozenset({"do", "then", "else", "if", "while", "until", "{", "!"})
"""Words of a shell that a simple command follows."""
_BEFORE_PROGRAM = re.compile(r"[A-Z_]+=.*|sudo|time|git")
DEEPEST_SHELL = 3
"""Shells in shells whose commands are read."""
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "su", "nix-shell", "nix"})
_ELSEWHERE = frozenset({"docker", "docker-compose", "podman", "kubectl", "ssh", "vagrant"})
_INNER_FOLLOWS = re.compile(r"-[a-z]{0,5}c|--run|--command")
_GIVES_INNER = re.compile(r"\s(?:-[a-z]{0,5}c|--run|--command)\s{1,9}['\"]")
_ESCAPED = re.compile(r"\\([\"\\$`])")
_PATH = re.compile(r"[^\s*?{}$()<>|;&\"'`=,!\\]{1,300}")


def find_place(command: str, place: Place, program: str) -> Place:
    """Return where a command that begins at *place* runs a program first."""
    placed = place_commands(without_heredocs(command[:MAX_COMMAND]), [place])
    return next((here for words, here in placed if words[:1] == [program]), place)


def place_commands(command: str, places: list[Place]) -> Iterator[tuple[list[str], Place]]:
    """Yield each simple command with where it runs. The last of *places* is where the shell is, the
    others where it is again behind parentheses; in the end they are those behind the command."""
    for words in cut_commands(command.replace("\\\n", "  ")):
        texts = [word[1] or word[2] or word[3] or word[4] or "" for word in words]
        first, behind = ("".join(word[4] or "" for word in part) for part in (words[:1], words[1:]))
        inner = behind.count("(") - behind.count(")")
        places += [places[-1]] * (first.count("(") + max(0, inner))
        if texts and (texts[0].startswith("(") or texts[0].endswith("(cd")):
            texts[0] = texts[0].rpartition("(")[2]
        if texts and len(places) > 1:  # in parentheses
            texts[-1] = texts[-1].rstrip(")")
        texts = list(dropwhile(_BEFORE_COMMAND.__contains__, texts))
        match texts:
            case ["cd" | "pushd" | "popd", *_]:
                places[-1] = places[-1].enter(_find_target(program_words(texts)))
                yield texts, places[-1]
            case ["git", "-C", target, *rest]:
                yield ["git", *rest], places[-1].enter(target)
            case _:
                yield texts, places[-1]
        closed = min(first.count(")") + max(0, -inner), len(places) - 1)
        del places[len(places) - closed :]


def _find_target(words: list[str]) -> str:
    """Return where `cd` leads; `-` if its words do not say."""
    program, *targets = [word for word in words if word == "-" or not word.startswith("-")]
    return "-" if program == "popd" or len(targets) > 1 else "".join(targets)


def texts_of(words: Sequence[re.Match[str]]) -> list[str]:
    """Return words as a program gets them, without marks."""
    return [word[1] or word[2] or word[4] or "" for word in words if not word[3]]


def without_heredocs(command: str) -> str:
    """Return the command without the bodies of its heredocs."""
    return "\n".join(line for line, _ in split_heredocs(command))


def split_files(command: str, place: Place = SESSION) -> tuple[str, list[tuple[str, str]]]:
    """Return a command at *place* without the texts that it writes into files, and the path and the
    text of each file that it writes as a whole and as it stands (`cat > a.py <<'EOF'`)."""
    rest, files, places = list[str](), list[tuple[str, str]](), [place]
    for line, body in split_heredocs(command):
        paths = [
            here.name(path)
            for words, here in place_commands(line, places)
            for path, _ in (iter_redirects(words) if words[:1] == ["cat"] and "<<" in words else ())
        ]
        rest.append(line)
        mark, text = _HEREDOC.search(line), "\n".join(body[:-1])
        if not paths:
            rest += body
        elif mark and ">>" not in line and (mark[1] or not _EXPANDED.search(text)):
            files.append((paths[0], text))
    return "\n".join(rest), files


def split_heredocs(command: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each line with the heredoc that begins in it, the mark at its end included."""
    lines = iter(command.split("\n"))
    for line in lines:
        body = list[str]()
        if match := _HEREDOC.search(line):
            for row in lines:
                body.append(row)
                if row.strip() == match[2]:
                    break
        yield line, body


def simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, marks of redirections included."""
    for words in cut_commands(command):
        yield [word[1] or word[2] or word[3] or word[4] or "" for word in words]


def cut_commands(command: str) -> Iterator[list[re.Match[str]]]:
    """Yield the words of each simple command where they stand, without comments."""
    words = list[re.Match[str]]()
    for word in WORD.finditer(command):
        if word[3] in BREAKS:
            yield words
            words = []
        elif word.lastindex:  # else it is a comment
            words.append(word)
    yield words


def iter_redirects(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the files that a simple command writes its output to, each with its state."""
    for mark, path in pairwise(words):
        if mark.lstrip("1") in {">", ">>"} and is_path(path):
            yield path, "created" if mark.endswith(">") and not mark.endswith(">>") else "modified"


def program_words(words: list[str]) -> list[str]:
    """Return the words that are neither redirections nor their targets nor variables in front."""
    return list(dropwhile(_BEFORE_PROGRAM.fullmatch, without_redirects(words)))


def without_redirects(words: list[str]) -> list[str]:
    """Return the words that are neither redirections nor their targets."""
    out, skip = list[str](), False
    for word in words:
        if word.strip("12&<>-") == "" and not _REDIRECTING.isdisjoint(word):
            skip = True
        elif not skip:
            out.append(word)
        else:
            skip = False
    return out


def is_path(word: str) -> bool:
    """May this word name a file?"""
    return (
        bool(_PATH.fullmatch(word))
        and not word.startswith(("/dev/", "&"))
        and not word.isdigit()
        and word.strip("./~-") != ""
    )


def read_inner(command: str) -> str:
    """Return a command without heredocs, in which those that it gives to a shell as one word stand
    in parentheses of their own (`bash -c 'cd a && make'`). Where they run in a container or on
    another machine nobody knows. The home folder is `~`."""
    text = _HOME.sub("~", without_heredocs(command[:MAX_COMMAND]))
    for _ in range(DEEPEST_SHELL):
        inner = list(_find_inner(text)) if _GIVES_INNER.search(text) else []
        parts, at = list[str](), 0
        for start, stop, commands in inner:
            parts += text[at:start], f"(\n{commands}\n)"
            at = stop
        text = "".join((*parts, text[at:]))
        if not inner:
            break
    return text


def _find_inner(command: str) -> Iterator[tuple[int, int, str]]:
    """Yield where commands give others to a shell, and these."""
    for words in cut_commands(command):
        programs = {(word[4] or "").rpartition("/")[2] for word in words[:MAX_WORDS]}
        for flag, word in pairwise(words[:MAX_WORDS] if programs & _SHELLS else ()):
            if (word[1] or word[2]) and _INNER_FOLLOWS.fullmatch(flag[0]):
                inner = word[2] or _ESCAPED.sub(r"\1", word[1])
                is_far = not programs.isdisjoint(_ELSEWHERE)
                yield words[0].start(), word.end(), f"cd -\n{inner}" if is_far else inner
                break
