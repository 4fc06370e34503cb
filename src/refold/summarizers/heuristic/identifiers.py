"""Identifiers: the words by which later work refers to things, told by their shape, in any script.

In text with spaces between words, a name is a run of letters, digits and `_$@~./-`. Chinese,
Japanese, Korean and Thai text has no space between a name and what is said about it, so such
letters belong to a name only if a `/`, a file extension, a `_` or a quote says so:
`请修改src/订单/服务.py里的函数` holds `src/订单/服务.py`. What no mark tells apart stays together: of `请修改订单.py`
nobody knows without a dictionary where the name begins.

Files have the name that they have in the folder of the session, wherever a command runs; that, and
which words of a command name files, is told by reading it as a shell does.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import dropwhile, pairwise
from typing import NamedTuple

from refold.text.clip import clip_scanned
from refold.text.plain import (
    is_absolute,
    split_path,
    with_slashes,
    without_escapes,
)

NUMBER = 0.4
"""What a plain number counts for, beside a name's 1.0."""
LONGEST = 120
"""Characters of an identifier; what is longer is data."""
SHORTEST = 4
"""Characters of a name."""

_NUMBER = re.compile(r"(?<![\w.])\d[\d.,]*")
_DIGITS = re.compile(r"[\d.,:/_-]+")
_JOINED = re.compile(r"[\w$@][./_:\-][\w$@]")
_HYPHENATED = re.compile(r"[A-Za-z]?[a-z]+(?:-[a-z]+)+")
_TAG = re.compile(r"/\w+")
_HANDLE = re.compile(r"\bedit [0-9a-f]{8}\b")
"""How a stub of Refold's names its edit: a caller may feed what was sent back as history."""


def iter_identifiers(text: str) -> Iterator[tuple[str, float]]:
    """Yield each identifier of *text* once, with what it counts for.

    Paths, dotted names, snake_case, camelCase, hashes and ids are found by their shape alone; a
    plain word is none. In time linear in the length of *text*.
    """
    words = {*candidate_names(text), *_NUMBER.findall(text)}
    telling = [word for word in words if not (word.isalpha() and word[1:].islower())]
    yield from filter(None, map(_weigh_word, sorted(telling)))


@lru_cache(maxsize=10_000)
def _weigh_word(word: str) -> tuple[str, float] | None:
    """Return the identifier in a word with what it counts for; None if there is none."""
    name = word.removeprefix("./").lstrip("-").rstrip(".,-:/@")
    if _DIGITS.fullmatch(name):
        return (name, NUMBER) if 1 < len(name) <= LONGEST else None
    return (name, 1.0) if SHORTEST <= len(name) <= LONGEST and _is_name(name) else None


def find_names(text: str) -> list[str]:
    """Return the identifiers of *text* that are no plain numbers, each once; of a very long one
    those of its two ends."""
    text = _HANDLE.sub("edit", without_escapes(clip_scanned(text)))
    return [name for name, weight in iter_identifiers(text) if weight == 1.0]


def is_in_folder(name: str) -> bool:
    """Does an identifier name a file in a folder?"""
    return "/" in name and "://" not in name and "." in name.rpartition("/")[2]


def _is_name(word: str) -> bool:
    if _HYPHENATED.fullmatch(word) or _TAG.fullmatch(word):
        return False
    return bool(
        _JOINED.search(word)
        or any(before.islower() and after.isupper() for before, after in pairwise(word))
        or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))
    )


# --- words that may be names -------------------------------------------------------------------

MAX_DENSE_HEAD = 16
"""Characters of such a script before the first `/` or the extension; more of them are prose."""
MAX_DENSE_TAIL = 8
"""Characters of such a script behind the last `/` if no extension says that the name ends there."""
EXTENSIONS = (
    "py|pyi|ipynb|jsx?|mjs|cjs|tsx?|vue|svelte|mdx?|jsonl?|ya?ml|toml|txt|rst|rs|go|java|kt|swift|scala|php|rb|lua|[ch]|cc|cpp|hpp|cs|"
    "exs?|sh|bat|ps1|s?css|less|html?|sql|cfg|conf|ini|env|lock|xml|csv|tsv|log|proto|db|sqlite|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|zip|tar|gz"
)

_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17dd\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e"
    "\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_MARKS = "\u0300-\u036f\u064b-\u0652\u0900-\u0963\u0966-\u0dff"
"""Vowels and accents that are letters of their own (decomposed file names, Indic scripts)."""
_ASCII = re.compile(r"https?://[^\s\"'<>`)\]},;|\\]{3,}|[A-Za-z0-9_$@~./-]{4,}")
_URL = re.compile(r"https?://[^\s\"'<>`)\]},;|\\、。，；：！？（）「」『』《》【】“”‘’…]{3,}")
_WIDE = rf"{_URL.pattern}|[\w{_MARKS}{_DENSE}$@~./-]{{4,}}"
_BACKSLASHES = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]:(?:\\{1,2}[\w$@~.-]++)++"  # a path of Windows: they part its names
    r"|\\(?:u[0-9a-fA-F]{4}|[nrt])"  # an escape of JSON: no letter of the word behind it
)
_LETTER = rf"[^\W\d_{_DENSE}]"
_BARE = re.compile(r"[^/._]*")
_IS_DENSE = f"[{_DENSE}]"
_FILE_ENDS = rf"(?i:(\.(?:{EXTENSIONS}))(?=[{_DENSE}]))"
_FILE = rf"(?i:\.(?:{EXTENSIONS})\Z)"
_BEGINS = rf"(?<=[{_DENSE}])(?:(?:{_LETTER}|[~$@])[^{_DENSE}]*|\.\.?)\Z"
_STOPS = rf"[^{_DENSE}]+(?<![_-])(?=[{_DENSE}])"
_JOINT = rf"(?<=[{_DENSE}])(?={_LETTER})|(?<=[^\W_{_DENSE}])(?=[{_DENSE}])"
"""Patterns of wide ranges of letters, from `_WIDE` on, take milliseconds to compile: only text in
such letters pays."""
_PARTICLES = frozenset(
    (
        "里",
        "裡",
        "中",
        "内",
        "內",
        "下",
        "上",
        "的",
        "の",
        "に",
        "を",
        "で",
        "は",
        "에",
        "을",
        "를",
        "의",
    )
)
"""What is said of a folder right behind its `/`: in, under, of."""
_OPENS, _CLOSES = frozenset("`\"'“‘「『《"), frozenset("`\"'”’」』》")


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def candidate_names(text: str) -> set[str]:
    """Return the words of *text* that may be names. Tags (`<exit_code>`), type arguments and what
    stands behind a backslash keep their first letter. In time linear in the length of *text*."""
    if "\\" in text:
        text = _BACKSLASHES.sub(_split_backslashes, text)
    if text.isascii():
        return set(_ASCII.findall(text))
    lines = text.split("\n")
    words = set(_ASCII.findall("\n".join(line for line in lines if line.isascii())))
    for line in {line for line in lines if not line.isascii()}:
        words.update(_names_in_line(line))
    return words


def _split_backslashes(match: re.Match[str]) -> str:
    return " " if match[0].startswith("\\") else match[0].replace("\\", " ")


def _names_in_line(line: str) -> Iterator[str]:
    if not _compile(_IS_DENSE).search(line):
        yield from _compile(_WIDE).findall(line)
        return
    yield from _URL.findall(line)
    line = _URL.sub(" ", line)
    for match in _compile(_WIDE).finditer(line):
        word = match[0]
        if word.isascii() or not _compile(_IS_DENSE).search(word):
            yield word
        elif _BARE.fullmatch(word):
            yield from _ASCII.findall(word)
        elif _is_quoted(line, match) and ("_" in word or _is_file_or_folder(word)):
            yield word
        else:
            yield from _names_in_run(word)


def _is_quoted(line: str, match: re.Match[str]) -> bool:
    """Do quotes say where a word of *line* begins and ends?"""
    before, after = (
        line[max(0, match.start() - 1) : match.start()],
        line[match.end() : match.end() + 1],
    )
    return before in _OPENS and after in _CLOSES


def _is_file_or_folder(word: str) -> bool:
    return bool(_compile(_FILE).search(word)) or (
        not _compile(_FILE_ENDS).search(word) and _is_folder(word)
    )


def _is_folder(word: str) -> bool:
    """Is it a path without extension, rather than two words with a slash between them (`输入/输出`,
    `iOS/安卓`)?"""
    parts = word.split("/")
    rooted = parts[0] in {"", ".", "..", "~"}
    spelled = any(
        part.strip(".~") and not _compile(_IS_DENSE).search(part) and re.search(_LETTER, part)
        for part in parts
    )
    return (len(parts) > 2 and (spelled or rooted)) or (
        len(parts) == 2 and spelled and (rooted or not parts[-1])
    )


def _names_in_run(run: str) -> Iterator[str]:
    """Yield the names in letters of a script without spaces, and what of ASCII is among them."""
    for chunk in _compile(_FILE_ENDS).sub(r"\1\n", run).split("\n"):
        name = _trailing_path(chunk) if "/" in chunk or _compile(_FILE).search(chunk) else ""
        if name:
            yield name
            chunk = chunk.replace(name, "\n")  # noqa: PLW2901 - what is left of it
        for token in _compile(_JOINT).split(chunk) if "_" in chunk else [chunk]:
            if (
                "_" in token
                and len(token) <= 2 * MAX_DENSE_HEAD
                and "/" not in token
                and not token.isascii()
            ):
                yield token
            else:
                yield from _ASCII.findall(token)


def _trailing_path(chunk: str) -> str:
    """Return the path or file at the end of *chunk*; empty if there is none."""
    head, slash, rest = chunk.partition("/")
    begins = _compile(_BEGINS).search(head)
    head = begins[0] if begins else head
    if len(head) > MAX_DENSE_HEAD and not head.isascii():
        return ""
    name = head + slash + rest
    if _compile(_FILE).search(name):
        return name
    folder, _, last = name.rpartition("/")
    stops = _compile(_STOPS).match(last)
    last = stops[0] if stops else "" if last in _PARTICLES else last
    name = f"{folder}/{last if len(last) <= MAX_DENSE_TAIL or last.isascii() else ''}"
    return name if _is_folder(name) else ""


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


REMOVED = "removed"
"""What is done to the files that a pattern stands for, `**/` for any folders."""
MOST_COMPARED = 100_000
"""Names that are compared with patterns."""


@dataclass(slots=True)
class Names:
    """What the files of a session are called, in the order in which calls name them."""

    spellings: Mapping[str, str]
    """What files are called that are also called otherwise."""
    named: dict[str, None] = field(default_factory=dict)
    compared: int = 0

    def name(self, files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield files, each by its one name, with what is done to them; in place of a pattern of
        which files are removed those that it stands for, or may stand for."""
        for path, state in files:
            if state == REMOVED:
                self.compared += len(self.named)
                names = list(self.named) if self.compared <= MOST_COMPARED else ()
                end = split_path(path)[1]
                for name in (name for name in names if fnmatchcase(split_path(name)[1], end)):
                    if is_absolute(name) != is_absolute(path):
                        yield name, "changed"
                    elif _is_matched(name, path):
                        yield name, "deleted"
            else:
                name = self.spellings.get(path.rstrip("/"), path)
                self.named[name] = None
                yield name, state


def _is_matched(name: str, pattern: str) -> bool:
    folder, is_deep, _ = pattern.partition("**/")
    if is_deep:
        return name.startswith(folder)
    return name.count("/") == pattern.count("/") and fnmatchcase(name, pattern)


# --- commands --------------------------------------------------------------------------------------
# How a shell reads a command: its words, its simple commands and where they run, its heredocs.


MAX_WORDS = 50
"""Words of a simple command that may say what it runs."""
MAX_COMMAND = 20_000
"""Characters of a command that are looked at."""
_HEREDOC = re.compile(r"(?<!<)<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
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
    another machine nobody knows."""
    text = without_heredocs(command[:MAX_COMMAND])
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
