"""Read a shell command as a shell does: its words, simple commands, working directories and
heredocs.

Files are named relative to the session's folder, wherever a command runs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, pairwise
from typing import NamedTuple

from refold.text.plain import (
    UNKNOWN_FOLDER,
    is_absolute,
    is_file_word,
    is_outside,
    name_program,
    with_slashes,
    without_dots,
)

# --- files ----------------------------------------------------------------------------------------


LONGEST_PATH = 500
"""Maximum number of characters of a directory's path."""
_UNSURE = re.compile(r"[$`*?]|^-$|^(?![A-Za-z]:).*\\$", re.DOTALL)
"""Signs that a directory differs from its spelling: variables, patterns, `cd -`, escaped blanks."""


class WorkingDir(NamedTuple):
    """Where a command runs, and how its files are named."""

    folder: str = ""
    """The session's folder if known. Files inside are named relative to it."""
    here: str = ""
    """The working directory, named like a file. Empty for the session's folder."""
    spellings: Mapping[str, str] = {}
    """The chosen name of each file by its other names."""

    def name(self, path: str) -> str:
        """Return the one name of a file, wherever the command runs."""
        if not is_absolute(path) and not path.startswith("~"):
            path = self.here.rstrip("/\\") + f"/{path}" if self.here else path
            if self.folder and not is_absolute(path) and path[:1] not in {"~", UNKNOWN_FOLDER}:
                path = f"{self.folder}/{path}"
        is_windows = path[1:3] == ":\\"
        path, folder = without_dots(with_slashes(path)), with_slashes(self.folder)
        inside = path.removeprefix(folder)
        if inside != path and inside[:1] in ("", "/"):
            path = inside[1:] or "."
        elif is_windows:
            path = path.replace("/", "\\")
        return self.spell(path)

    def spell(self, path: str) -> str:
        """Return the chosen name of a file."""
        return self.spellings.get(path.rstrip("/"), path)

    def enter(self, path: str) -> "WorkingDir":
        """Return the place after `cd` to *path*."""
        here = self.name(path or "~").rstrip("/") or "/"
        if _UNSURE.search(path) or len(here) > LONGEST_PATH:
            here = UNKNOWN_FOLDER
        return self._replace(here="" if here == "." else here)


UNKNOWN_SESSION_DIR = WorkingDir()

# --- commands --------------------------------------------------------------------------------------


MAX_WORDS = 50
"""Number of words of a simple command in which its program is looked for."""
MAX_COMMAND = 20_000
"""Number of characters of a command that are read."""
_HEREDOC = re.compile(
    r"\\.|['\"`)]|\$?\(\(?|(?<![^\s;&|(])#|(?<!<)<<-?(?=\s*(['\"]?)([A-Za-z_]\w*)\1)"
)
"""The mark of a heredoc, or what may open or close a quote, a substitution or a comment."""
_ARRAY = re.compile(r"(?<![^\s;&|])[A-Za-z_]\w{0,39}\+?=\([^()]*+\)")
"""The assignment of an array to a shell variable. No line in it is a command."""
_HOME = re.compile(r"(?:\$(?:HOME|\{HOME\}|env:USERPROFILE)|%USERPROFILE%)(?=[/\\])")
_ENTERS = re.compile(
    r"(?<![\w-])(?:set|push)-location(?:\s{1,9}-(?:literal)?path)?(?=\s)", re.IGNORECASE
)
_EXPANDED = re.compile(r"[$`\\]")
"""Characters that a shell expands in a heredoc with an unquoted delimiter."""
WORD = re.compile(
    r"\"((?>[A-Za-z]:\\(?!\"[^\s;&|])[^\"\n]*|(?:[^\"\\]|\\.?)*))\"?|'([^']*+)'?|(\d?>>?|<+-?|&&|(?<![&<>\d])&(?![&>\d])|\|\|?|;|\n)"
    r"|(?<![^\s;&|(])#[^\n]*+|\\\n|((?>(?:\\[ ](?=\S)|\\\\|(?<!\s[A-Za-z]:)\\[\"']|(?<=\w)\\[<>&;|](?=\w)|(?<=\s)\\[<>]|(?!\\\n)[^\s\"'<>|;&])+))",
    re.DOTALL,
)
"""A quoted word (of a path with a drive `\\` is no escape), an operator, a bare word, or none."""
APPLIES = "apply_patch"
"""The command that applies a patch in Codex's format."""
PATCH_BEGINS = "*** Begin Patch"
PATCH_ENDS = "*** End Patch"
"""First and last line of such a patch."""
_LITERAL = re.compile(
    r"//[^\n]*+"
    r"|(?<!\\)(?:\"((?>(?:[^\"\\]|\\.)*))\"|'((?>(?:[^'\\]|\\.)*))'|`((?>(?:[^`\\]|\\.)*))`)",
    re.DOTALL,
)
_LITERAL_KEY = re.compile(r"\b(?:(cmd|command)|workdir|cwd)[\"']?\s{0,9}:\s{0,9}\Z")
_LITERAL_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}
Words = list[str]
"""The words and operators of a simple command, as a program gets them."""
Token = re.Match[str]
"""A match of `WORD`: a word or operator with its position."""
FileEffect = tuple[str, str]
"""The path of a file, and what happens to it."""
_BREAKS = frozenset({"&&", "&", "||", "|", ";", "\n"})
"""Operators after which another simple command begins."""
_REDIRECT = re.compile(r"(?=[12&-]*[<>])[12&<>-]*")
BEFORE_COMMAND = frozenset({"do", "then", "else", "elif", "if", "while", "until", "{", "!"})
"""Shell keywords before a simple command."""
_BEFORE_PROGRAM = re.compile(r"[A-Z_]+=.*|sudo|time|git")
DEEPEST_SHELL = 3
"""Maximum nesting of shells whose commands are read."""
_SHELLS = frozenset({
    "sh", "bash", "zsh", "dash", "ksh", "fish", "su", "nix-shell", "nix", "pwsh", "powershell", "cmd",
})  # fmt: skip
_ELSEWHERE = frozenset({"docker", "docker-compose", "podman", "kubectl", "ssh", "vagrant"})
INNER_FOLLOWS = re.compile(r"-[a-z]{0,5}c|--run|--?command|/[ck]", re.IGNORECASE)
"""Option of a shell that takes commands."""
_GIVES_INNER = re.compile(r"\s(?:-[a-z]{0,5}c|--run|--?command|/[ck])\s", re.IGNORECASE)
_HOLDS = re.compile(
    r"(?:(?<=[;\n{(])|\A)[ \t]*+(\$?)([A-Za-z]\w{0,39})[ \t]{0,9}=[ \t]{0,9}"
    r"('[^'\n$]{1,300}'|\"[^\"\n$`]{1,300}\"|[^\s'\"$`;|&(){}@,]{1,300})(?=[ \t]*+(?:[;\n]|&&|\Z))"
)
"""The assignment of a literal text to a variable."""
_SPLITS = re.compile(r"(['\"])[\w./ ~-]+\1")
"""A text that a Unix shell splits into words where its variable stands unquoted."""
_VARIABLE = re.compile(r"\$(?:\{(\w{1,40})\}|(\w{1,40})\b(?![ \t]{0,9}=[^=]))")
ESCAPED = re.compile(r"\\([\"\\$`])")
_BARE_ESCAPED = re.compile(r"\\([][() \"'<>&;|])")
_ASSIGNS = re.compile(r"\$[\w:.]+\+?=?")


def find_place(command: str, place: WorkingDir, program: str) -> WorkingDir:
    """Return where a command that begins at *place* first runs a program; *place* if never."""
    placed = place_commands(without_heredocs(command[:MAX_COMMAND]), [place])
    return next((here for words, here in placed if words[:1] == [program]), place)


def place_commands(command: str, places: list[WorkingDir]) -> Iterator[tuple[Words, WorkingDir]]:
    """Yield each simple command with its place. The last of *places* is the current one, the others
    apply again after closing parentheses. In the end the list holds the place after the command."""
    for words in cut_commands(command):
        texts = spell_words(words)
        first, behind = ("".join(word[4] or "" for word in part) for part in (words[:1], words[1:]))
        inner = behind.count("(") - behind.count(")")
        places += [places[-1]] * (first.count("(") + max(0, inner))
        if texts and (texts[0].startswith("(") or texts[0].endswith("(cd")):
            texts[0] = texts[0].rpartition("(")[2]
        if texts and len(places) > 1:  # in parentheses
            texts[-1] = texts[-1].rstrip(")")
        texts = list(dropwhile(BEFORE_COMMAND.__contains__, texts))
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


def _find_target(words: Words) -> str:
    """Return the target of `cd`, also of `cd /d C:`; `-` if it is unknown, empty if it has none."""
    flags = {"/d", "/D"} if words[2:] else set[str]()
    program, *targets = [w for w in words if w == "-" or (w[:1] != "-" and w not in flags)]
    return "-" if program == "popd" or len(targets) > 1 else "".join(targets)


def spell_words(words: Sequence[Token]) -> Words:
    """Return words as a program gets them (`~/a/"$name"` is one), and operators."""
    texts, stop = list[str](), -1
    for word in words:
        text = word[1] or word[2] or word[3] or _BARE_ESCAPED.sub(r"\1", word[4] or "")
        text = word[0] if not word[3] and _REDIRECT.fullmatch(text) else text  # it is quoted
        if word.start() == stop and not word[3]:
            texts[-1] += text
        else:
            texts.append(text)
        stop = -1 if word[3] else word.end()
    return texts


def drop_lone_string(words: Sequence[Token]) -> Sequence[Token]:
    """Return no words for a lone quoted text, which PowerShell prints, else the words unchanged."""
    first = max((at for at, word in enumerate(words) if word[0].endswith("{")), default=-1) + 1
    rest = [word[0] for word in words[first : first + 2]]
    is_text = rest[:1] and rest[0][0] in "'\"" and rest[1:2] in ([], ["}"])
    return () if is_text else words


def without_heredocs(command: str) -> str:
    """Return a command without heredoc bodies, with PowerShell's `cd` commands spelled `cd`."""
    lines = (line for line, _ in split_heredocs(command))
    return _ENTERS.sub("cd", "\n".join(lines) if "<<" in command else command)


def iter_written(
    command: str, place: WorkingDir = UNKNOWN_SESSION_DIR
) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each file that a command writes whole (`cat > a.py <<'EOF'`)."""
    places = [place]
    for line, body in split_heredocs(command) if "<<" in command else ():
        commands = [*place_commands(line, places)]
        writing = [pair for pair in commands if pair[0][:1] == ["cat"] and "<<" in pair[0]]
        paths = [here.name(path) for words, here in writing for path, _ in iter_redirects(words)]
        marks, text = _find_heredocs(line, [""]), "\n".join(body[:-1])
        is_fixed = [bool(mark[1]) or not _EXPANDED.search(text) for mark in marks] == [True]
        if body and paths and is_fixed and ">>" not in line:
            yield paths[0], text


def split_heredocs(command: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each line with the heredocs that begin in it, including their closing delimiters."""
    lines, inside = iter(command.split("\n")), [""]
    for line in lines:
        body = list[str]()
        for mark in _find_heredocs(line, inside):
            for row in lines:
                body.append(row)
                if row.strip() == mark[2]:
                    break
        yield line, body


def _find_heredocs(line: str, inside: list[str]) -> list[Token]:
    """Return the marks of the heredocs of a line. *inside* holds the quotes and parentheses
    that are open before the line, the innermost last, and afterwards those behind it."""
    heredocs = list[Token]()
    for mark in _HEREDOC.finditer(line):
        text, where = mark[0], inside[-1]
        if where == "'" or text[0] == "\\":
            del inside[len(inside) - (where == "'" == text[-1]) :]
        elif text == where or (text == ")" and where[:1] == "("):
            inside.pop()
        elif text in {"'", '"', "`"}:
            inside += text if text != "'" or where != '"' else ""
        elif text[-1] == "(" and (text[0] == "$" or where != '"'):
            is_sum = "((" in text or where == "(("
            inside += ["((" if is_sum else "("] * text.count("(")
        elif text == "#" and where != '"':
            break
        elif text[0] == "<" and where not in {'"', "(("}:
            heredocs.append(mark)
    return heredocs


def simple_commands(command: str) -> Iterator[Words]:
    """Return the words of each simple command, including redirections."""
    return map(spell_words, cut_commands(command))


def cut_commands(command: str) -> Iterator[list[Token]]:
    """Yield the tokens of each simple command, without comments and without the branches of `if`
    and `case`, because which of them ran is unknown."""
    depth = 0  # number of open `if` and `case`
    branch = 0  # depth of the one whose branch this is, or 0
    for words in _cut_all(command):
        first = words[0][0] if words else ""
        opens = {word[0] for word in words[: 1 + (first in BEFORE_COMMAND)]} & {"if", "case"}
        branch = branch or depth * (first in ("then", "else"))
        depth += bool(opens)
        if branch == depth and first in ("elif", "fi", "esac"):
            branch = 0
        if not branch:
            yield words
        branch = branch or depth * ("case" in opens)
        depth -= first in ("fi", "esac") and depth > 0


def _cut_all(command: str) -> Iterator[list[Token]]:
    words = list[Token]()
    for word in WORD.finditer(command):
        if word[3] in _BREAKS:
            yield words
            words = []
        elif word.lastindex:  # else it is a comment
            words.append(word)
    yield words


def iter_marks(command: str) -> Iterator[Token]:
    """Yield the operators between simple commands: `&&`, `|`, `;`, line ends."""
    return (word for word in WORD.finditer(command) if word[3] in _BREAKS)


def iter_redirects(words: Words) -> Iterator[FileEffect]:
    """Yield the files that a simple command redirects its output to, each with its state."""
    for mark, path in pairwise(words):
        if mark.lstrip("1") in {">", ">>"} and is_file_word(path):
            yield path, "modified" if mark.endswith(">>") else "created"


def program_words(words: Words) -> Words:
    """Return the words of a program that may name files: without redirections, variables, a leading
    `sudo`, and `git`, whose `rm` and `mv` work like the programs."""
    own = filter(None, _find_value(without_redirects(words)))
    return list(dropwhile(_BEFORE_PROGRAM.fullmatch, own))


def _find_value(words: Words) -> Words:
    """Return the assigned value in PowerShell: `Get-Item a` of `$c = Get-Item a`."""
    match words:
        case [name, "=" | "+=", *value] if _ASSIGNS.match(name):
            return value
        case [name, *rest] if (mark := _ASSIGNS.match(name)) and "=" in mark[0]:
            return [name[mark.end() :], *rest] if mark.end() < len(name) else rest
        case _:
            return words


def without_redirects(words: Words) -> Words:
    """Return the words without redirections and their targets."""
    marks = [bool(_REDIRECT.fullmatch(word)) for word in ("", *words)]
    return [word for word, pair in zip(words, pairwise(marks), strict=True) if not any(pair)]


def split_options(words: Words) -> tuple[set[str], Words, Words]:
    """Return options of a git command, its other words before `--`, and the words after that."""
    mark = words.index("--") if "--" in words else len(words)
    options = {word for word in words[:mark] if word.startswith("-") and word != "-"}
    return options, [word for word in words[:mark] if word not in options], words[mark + 1 :]


def expand_inner_commands(command: str) -> str:
    """Return a command without heredocs, arrays and line continuations. Commands passed to a shell
    as one word (`bash -c 'cd a && make'`) are put in parentheses. If they run in a container or on
    another machine, their directory is unknown. The home folder becomes `~`."""
    text = without_heredocs(command[:MAX_COMMAND]).replace("\\\n", "  ")
    text = _HOME.sub("~", _ARRAY.sub("", text))
    for _ in range(DEEPEST_SHELL):
        inner = list(_find_inner(text)) if _GIVES_INNER.search(text) else []
        parts, at = list[str](), 0
        for start, stop, commands in inner:
            parts += text[at:start], f"(\n{without_heredocs(commands)}\n)"
            at = stop
        text = "".join((*parts, text[at:]))
        if not inner:
            break
    return _spell_variables(text)


def _spell_variables(command: str) -> str:
    """Return a command with its variables replaced by their texts, if each is assigned only one:
    `$p` for `$p = 'a b.txt'; Get-Content $p`. Takes time linear in the length."""
    texts = dict[str, str]()
    for dollar, name, value in _HOLDS.findall(command) if "=" in command else ():
        text = value[1:-1] if not dollar and _SPLITS.fullmatch(value) else value
        texts[name] = text if texts.get(name, text) == text else ""

    def spell(match: re.Match[str]) -> str:
        text = texts.get(match[1] or match[2], "")
        start, stop = match.span()
        before, behind = command[max(0, start - 1) : start], command[stop : stop + 1]
        is_word = (not before or before.isspace()) and (not behind or behind in " \t\n;)|&")
        return (text if is_word else text.strip("'\"")) or match[0]

    return _VARIABLE.sub(spell, command) if texts else command


def _find_inner(command: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, stop, inner commands) of each command that passes commands to a shell."""
    for words in cut_commands(command):
        programs = {name_program(word[4] or "") for word in words[:MAX_WORDS]}
        for flag, word in pairwise(words[:MAX_WORDS] if programs & _SHELLS else ()):
            if INNER_FOLLOWS.fullmatch(flag[0]):
                inner, stop = word[2] or ESCAPED.sub(r"\1", word[1] or ""), word.end()
                if not inner:  # on Windows it is the rest of the command
                    stop = words[-1].end()
                    inner = command[word.start() : stop]
                is_far = not programs.isdisjoint(_ELSEWHERE)
                yield words[0].start(), stop, f"cd -\n{inner}" if is_far else inner
                break


def spell_code(code: str) -> tuple[str, str]:
    """Return the commands and patches in a script that calls tools (Codex) as one command, and the
    directory of the first, empty if not given."""
    commands, first, here, patch = list[str](), "", "", list[str]()
    for match in _LITERAL.finditer(code):
        text = _LITERAL_ESCAPE.sub(_unescape, match[match.lastindex]) if match.lastindex else ""
        key = _LITERAL_KEY.search(code, max(0, match.start() - 40), match.start())
        if patch or text.startswith(PATCH_BEGINS):
            patch.append(text)
            if PATCH_ENDS in text:
                commands.append("\n".join((f"{APPLIES} <<'PATCH'", *patch, "PATCH")))
                patch = []
        elif key and text.strip() and key[1]:
            commands.append(text)
        elif key and text.strip():
            commands[-1:] = [*([f"cd '{text}'"] if here not in ("", text) else []), *commands[-1:]]
            first, here = first or text, text
    return "\n".join(commands), first


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _UNESCAPED.get(match[2], match[2])


# --- how commands are listed, and what they run ----------------------------------------------------


_FROM = re.compile(r"\+(\d{1,7})")
_PRINTED = re.compile(r"(\d{1,7})(?:,(?:\d{1,7}|\$))?p")
"""Line numbers in a script of `sed -n`."""
_TRIMS = re.compile(r"\|&?\s*+(?:tail|head|cat|tee)\b[^|&;]*+")
TRIMMED = re.compile(r"(?>(?:\s++|2>&1|\|&?\s*+(?:tail|head|cat|tee)\b[^|&;\n]*+)*)")
_LINE_ENDS = re.compile(r"([;&|({]|\b(?:do|then|else)\b)?(?: \0)+")
"""Line ends, with an operator or word after which a shell needs no `;`."""
ARGUMENT = r"(?>(?:\"[^\"\n]*+\"|'[^'\n]*+'|\\ |[^\s&;|\"'])+)"  # a word, perhaps with blanks
_SETUP = re.compile(
    rf"\A(?>(?:\s*(?:(?>cd(?:\s+/[dD])?|pushd|source|\.|export|set(?=\s+[-+]))"
    rf"(?>(?:[^\S\n]+{ARGUMENT})+)[^\S\n]*(?:&&|;|\n)\s*"
    r"|[A-Z_]+=(?:\$\([^()\n]*\)|\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'();&|]*)(?:\s*(?:&&|;)\s*|\s+)))*)"
)
BEFORE_RUN = re.compile(
    r"[A-Z_]+=.*|-.*|\+.*|[\d.]+[smh]?|sudo|time|timeout|nice|nohup|env|npx|bunx|uvx|xargs"
)
_COMPARES = re.compile(
    r"[+*/-]|-[ic]?(?:eq|ne|lt|le|gt|ge|like|match|replace|split|join|in|contains|f|is|as|and|or|not\w+)"
)
"""PowerShell operators that follow a value."""
_PROGRAM = re.compile(
    r"\$[A-Za-z]\w*+|(?=[^A-Za-z]*[A-Za-z])(?!\[[^\]]*\Z)[\w.~/\[][\w.~/\\:+@\[\]${}-]*+"
)
_FAR_OPTIONS = frozenset({"-p", "-i", "-o", "-l", "-F", "-J", "-u", "-e", "-w", "-n", "-c"})
"""Options of `ssh` and `docker exec` that take a value."""
_HAS_EXEC = frozenset({"docker", "docker-compose", "podman", "kubectl"})
_SENDS = re.compile(
    r"-\w{0,5}[dFTo]|-d\S+|-O|--(?:data|form|json|upload|output|remote-name|field|input|raw-field).*"
    r"|-(?:body|infile|outfile|form)",
)
"""Options with which an HTTP client sends data or writes a file."""
_METHODS = frozenset({"-X", "--request", "--method", "-method"})
_NOTHING = frozenset({"-", "/dev/null", "$null", "NUL"})


def find_program(words: Words) -> Words:
    """Return the words of a simple command from its program on, without redirections, variables and
    shell keywords before it; empty if it runs none."""
    opened = max(
        (at for at, word in enumerate(words) if word == "{" or word[-2:] == "){"), default=-1
    )
    words = without_redirects(words[opened + 1 :])
    value = _find_value(words)
    is_text = len(value) < 2 or value[0][:1] == "$" or value[1] == ","
    if not value or value[0].endswith("@{") or (value is not words and is_text):
        return []  # a text, a list or table of texts, or an expression of one
    words = value
    if (words[1:2] and words[1][:1] == "=") or (words[0][:1] == "$" and len(words) < 2):
        return []
    words = [*dropwhile(lambda word: word in BEFORE_COMMAND or word.strip("({}") == "", words)]
    words = [*dropwhile(BEFORE_RUN.fullmatch, [word.strip("()") for word in words])]
    is_program = words and _PROGRAM.fullmatch(words[0])
    return words if is_program and not any(map(_COMPARES.fullmatch, words[1:2])) else []


def find_remote_command(program: str, rest: Words) -> Words | None:
    """Return the command that a program runs on another machine or in a container, empty for an
    interactive session. Return None for other programs."""
    if program in _HAS_EXEC and "exec" in rest[:3]:
        rest = rest[rest.index("exec") + 1 :]
        if "--" in rest:
            return rest[rest.index("--") + 1 :]
    elif program != "ssh":
        return None
    pairs = enumerate(pairwise(("", *rest)))
    at = next((at for at, (a, b) in pairs if b[:1] != "-" and a not in _FAR_OPTIONS), len(rest))
    return rest[at + 1 :]


def only_gets(program: str, rest: Words) -> bool:
    """Return whether an HTTP client neither sends data nor writes a file."""
    if program == "wget":
        return any(word.endswith(("O-", "--spider")) or word == "-" for word in rest)
    pairs = [(a.lower() if len(a) > 2 else a, word) for a, word in pairwise((*rest, ""))]
    methods = [word for flag, word in pairs if flag in _METHODS]
    methods += [word[2:] for word in rest if word.startswith("-X") and len(word) > 3]
    if methods:
        return methods[0].upper() in {"GET", "HEAD", "OPTIONS"}
    is_gh = program == "gh"
    sends = [word for flag, word in pairs if _SENDS.fullmatch(flag) or (is_gh and flag == "-f")]
    return "-G" in rest or all(word in _NOTHING or is_outside(word) for word in sends)


def has_more(command: str) -> bool:
    """Return whether a command has several parts, not counting set-up and pipes."""
    return any(mark[0] != "|" for mark in iter_marks(without_setup(command)))


def find_first_line(command: str) -> int:
    """Return the number of the first line that a command prints of its file (20 for
    `sed -n '20,60p' a.py`), or 0 if it prints anything but consecutive lines."""
    if has_more(command):
        return 0
    programs = map(program_words, simple_commands(without_setup(command)))
    starts = [_find_start(words) for words in programs]
    return sum(starts) - len(starts) + 1 if all(starts) else 0


def _find_start(words: Words) -> int:
    """Return the number of the first line that a program prints; 0 if unknown or not one plain
    run."""
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


def without_setup(command: str) -> str:
    """Return the command without heredocs, comments, and leading set-up (`cd`, `export A=b`)."""
    command = without_heredocs(command[:MAX_COMMAND])
    command = WORD.sub(lambda word: word[0] if word.lastindex else "", command).strip()
    return _SETUP.sub("", command, count=1)


def name_command(command: str) -> str:
    """Return the command as listed: in one line, without set-up and without trailing parts that
    only trim its output, such as `2>&1` and `| tail -5`."""
    own = WORD.sub(lambda word: " \0 " if word[3] == "\n" else word[0], without_setup(command))
    line = _LINE_ENDS.sub(lambda end: end[1] or ";", " ".join(own.split()))
    stop = _end_without_trimming(line, len(line))
    pipes = [mark.start() for mark in iter_marks(line) if mark[0] == "|"]
    while pipes and _TRIMS.fullmatch(line, pipes[-1], stop):
        stop = _end_without_trimming(line, pipes.pop())
    return line[:stop]


def _end_without_trimming(line: str, stop: int) -> int:
    """Return the end of *line* before *stop*, without trailing blanks and `2>&1`."""
    while end := next((end for end in (" ", "2>&1") if line.endswith(end, 0, stop)), ""):
        stop -= len(end)
    return stop
