"""Plain text of messages and calls, to search and to show, and terms for a full-text index."""

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from refold.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.text.json_values import JsonObject, parse_or_text

PATHS = (
    "file_path", "path", "filePath", "filepath", "absolute_path", "absolutePath", "notebook_path",
    "target_file", "filename", "file", "uri",
)  # fmt: skip
"""Names of the argument with a file's path, in order of preference."""
SUBJECTS = (*PATHS, "command", "cmd", "pattern", "query", "url", "name", "prompt", "description")
"""Names of the argument that best describes a call, in order of preference."""


def readable_text(message: Message) -> str:
    """Return texts, calls with their arguments, results and the JSON of opaque parts.

    Thinking is left out: providers drop it from earlier turns. Media are placeholders.
    """
    return "\n".join(text for part in message.parts if (text := _read_part(part)))


def _read_part(part: Part | Content) -> str:
    match part:
        case Text(text) | Opaque(_, text):
            return text
        case ToolCall(_, name, arguments):
            return f"{name} {_spell_arguments(arguments)}".strip()
        case ToolResult(_, content):
            return "\n".join(map(_read_part, content))
        case Media(kind, _, ref):
            return f"[{kind} {ref}]"
        case Thinking():
            return ""


def _spell_arguments(text: str) -> str:
    """Return arguments as `name: value` lines, without JSON quoting of strings."""
    value = parse_or_text(text)
    return "\n".join(_lines(value)) if isinstance(value, dict) else text


def _lines(value: Any) -> Iterator[str]:
    """Yield the scalars of a JSON value with their names, without recursion."""
    pending = [("", value)]
    while pending:
        name, value = pending.pop()
        match value:
            case dict():
                pending += [(str(key), item) for key, item in reversed(value.items())]
            case list():
                pending += [(name, item) for item in reversed(value)]
            case str():
                yield f"{name}: {value}"
            case _:
                yield f"{name}: {json.dumps(value)}"


def plain_text(message: Message) -> str:
    """Return texts, calls with their raw arguments, and the texts of results, without media, opaque
    parts and thinking."""
    texts = (
        f"{part.name} {part.arguments}" if isinstance(part, ToolCall) else part.text
        for part in message.parts
        if isinstance(part, Text | ToolResult | ToolCall)
    )
    return "\n".join(texts)


# --- calls ---------------------------------------------------------------------------------


def arguments_of(call: ToolCall) -> JsonObject:
    """Return the arguments of a call; empty if they are not a JSON object."""
    arguments = parse_or_text(call.arguments)
    return arguments if isinstance(arguments, dict) else {}


# --- paths ---------------------------------------------------------------------------------

UNKNOWN_FOLDER = "…"
"""An unknown directory, as in `cd $(mktemp -d)`."""

DEEPEST = 100
"""Maximum number of parent folders of a path that are read."""
_SEPARATOR, _DRIVE = re.compile(r"(?<=[\w.~])\\(?=[\w.])"), re.compile(r"\A/([a-zA-Z])/")
_GIT_ESCAPE = re.compile(r'\\([0-3][0-7]{2}|["\\])')
_ABSOLUTE = re.compile(r"/|\\\\|[A-Za-z]:[/\\]")
_OUTSIDE = re.compile(
    r"~|/(?:tmp|var|private)/|/(?:(?:home|Users)/[^/]{1,99}|root)/\."
    r"|(?i:[a-z]:[/\\](?:(?:windows[/\\])?te?mp|users[/\\][^/\\]{1,99}[/\\]appdata[/\\]local[/\\]temp)[/\\])"
)
"""Prefixes of paths outside of any project."""
_EXTENSION = re.compile(r"[^.\d]\.\w{1,12}$|\d\.(?!x$)[A-Za-z]\w{0,11}$")
_VENDORED = re.compile(
    r"(?:^|[/\\])(?:node_modules|site-packages|vendor|dist|build|target|\.venv)[/\\]"
)
_IGNORED = re.compile(
    r"(?:^|[/\\])(?:node_modules|site-packages|\.?venv|__pycache__|\.next|dist|build|target|coverage"
    r"|\.env(?:\.local)?|\.DS_Store|[^/\\]*\.(?:log|pyc))(?:[/\\]|$)"
)
"""Files and folders that are rarely committed."""


def is_path(word: str) -> bool:
    """Return whether a word looks like a file's path rather than a number or label."""
    return ("/" in word or "." in word) and not word.replace(".", "").isdigit()


_FILE_WORD = re.compile(
    r"(?:[^\s*?{}$()<>|;&\"'`=,!\\]|(?<![^/])\([\w.-]{1,50}\)(?=/)|(?<=\S) (?=\S)){1,300}"
)


def is_file_word(word: str) -> bool:
    """Return whether this word of a command may name a file. A quoted or escaped one may have
    blanks."""
    return (
        bool(_FILE_WORD.fullmatch(with_slashes(word)))
        and not word.startswith(("/dev/", "&"))
        and not word.isdigit()
        and word.strip("./~-") != ""
    )


def has_name(path: str) -> bool:
    """Return whether a word is a path rather than a pattern, a number or a script."""
    return "/" in path.strip("/") or has_extension(path)


def is_absolute(path: str) -> bool:
    """Return whether a path is absolute, on any operating system."""
    return bool(_ABSOLUTE.match(path))


def is_outside(path: str) -> bool:
    """Return whether a path is in a temporary folder or a hidden one of the home directory, or
    begins with `~`."""
    return bool(_OUTSIDE.match(path))


def has_extension(path: str) -> bool:
    """Return whether a path has a file extension."""
    return bool(_EXTENSION.search(path))


def with_slashes(path: str) -> str:
    r"""Return a path that begins with a drive (`C:\`), or a relative one (`src\a.py`), with
    slashes; other paths unchanged. Escapes (`\*`) in a relative path stay."""
    if path[1:3] == ":\\":
        return path.replace("\\", "/")
    return path if is_absolute(path) else _SEPARATOR.sub("/", path)


def fold_windows_path(path: str) -> str:
    r"""Return a path on a drive (`c:\src`, `/c/src`) as `C:/src`; other paths unchanged."""
    folded = _DRIVE.sub(r"\1:/", with_slashes(path))
    return folded[0].upper() + folded[1:] if folded[1:3] == ":/" else path


def without_dots(path: str) -> str:
    """Return a path with `.` and `..` resolved, as far as their targets are known."""
    if "." not in path.split("/") and ".." not in path.split("/"):
        return path
    parts = list[str]()
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] not in {"..", "~"}:
            del parts[len(parts) - (parts[-1] not in {"", UNKNOWN_FOLDER}) :]
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


def is_left_out(path: str, patterns: Iterable[str]) -> bool:
    """Return whether *patterns* of a `.gitignore` exclude a file. `!` does not include it again."""
    whole = f"/{with_slashes(path).strip('/')}/"
    return any(
        fnmatchcase(whole, f"*/{name}/*")
        if "/" in (name := pattern.strip("/"))
        else any(fnmatchcase(part, name) for part in whole.split("/"))
        for pattern in patterns
    )


def find_vendored(paths: Collection[str]) -> set[str]:
    """Return the paths of third-party and generated files."""
    return _find_rare(_VENDORED, paths)


def _find_rare(pattern: re.Pattern[str], paths: Collection[str]) -> set[str]:
    """Return the paths in which *pattern* occurs, but no absolute ones if most of these match: then
    the project itself is in a folder that is called `build` or the like."""
    matching = {path for path in paths if pattern.search(path)}
    absolute = set(filter(is_absolute, paths))
    return matching - absolute if 2 * len(matching & absolute) > len(absolute) else matching


def unquote_git(path: str) -> str:
    """Return a path without the quotes and escapes by which git spells unusual letters."""
    if path[:1] != '"':
        return path
    raw = path[1:].removesuffix('"').encode("utf-8", "replace").decode("latin-1")
    raw = _GIT_ESCAPE.sub(lambda e: chr(int(e[1], 8)) if e[1].isdigit() else e[1], raw)
    return raw.encode("latin-1").decode("utf-8", "replace")


def path_covers(name: str, path: str) -> bool:
    """Return whether the git *path*, also of a folder or a glob, covers the file *name*. If only
    one is absolute, a common suffix is enough."""
    if ":" in (name[1:2], path[1:2]):  # without a drive `/c` is any folder
        name, path = fold_windows_path(name), fold_windows_path(path)
    if "*" in path:
        name = name if is_absolute(path) else "/".join(name.split("/")[-1 - path.count("/") :])
        return name.count("/") == path.count("/") and fnmatchcase(name, path)
    if is_absolute(name) == is_absolute(path):
        return f"{name}/".startswith(f"{path.rstrip('/')}/")
    if is_absolute(name):
        return f"/{path.rstrip('/')}/" in f"{name}/"
    return any(path.endswith(f"/{part}") for part in (name, *folders_of(name)))


def find_ignored(paths: Collection[str]) -> set[str]:
    """Return the paths of files and folders that are rarely committed."""
    return _find_rare(_IGNORED, paths)


def split_path(path: str) -> tuple[str, str]:
    """Return the folder of a path, with its final separator, and the name in it."""
    start = max(path.rfind("/"), path.rfind("\\")) + 1
    return path[:start], path[start:]


def folders_of(path: str) -> Iterator[str]:
    """Yield the parent folders of a path, innermost first, at most `DEEPEST`."""
    mark = "\\" if path[1:3] == ":\\" else "/"
    for _ in range(DEEPEST):
        path = path.rstrip(mark).rpartition(mark)[0]
        if not path:
            return
        yield path


def iter_ends(path: str) -> Iterator[str]:
    """Yield a path and its suffixes without the first folders, at most `DEEPEST`."""
    for _ in range(DEEPEST):
        yield path
        path = path.partition("/")[2]
        if not path:
            return


_HOME = re.compile(r"/(?:home|Users)/[^/]{1,99}(?=/)|/root(?=/)|\w:(\\|/)Users\1[^\\/]{1,99}(?=\1)")
MOST_SPELLINGS = 50
"""Maximum number of absolute paths with the same name that a relative path is compared with."""


def match_paths(absolute: Mapping[str, bool], relative: Iterable[str]) -> dict[str, str]:
    """Map *relative* paths to the absolute paths of files and folders that they stand for.

    Each must be the suffix of exactly one path, and in the folder in which most of them are. That
    folder holds over half of the *absolute* paths, at least one of them changed (value true): files
    that are only read may be another copy of the work. Else none is mapped. Runs in n log n.
    """
    ends = defaultdict[str, set[str]](set)
    for path in {part for name in absolute for part in (name, *folders_of(name))}:
        ends[split_path(path)[1]].add(path)
    matches, votes = dict[str, str](), Counter[str]()
    for path in sorted(relative):
        names = ends.get(split_path(path)[1], set())
        names = names if len(names) <= MOST_SPELLINGS else set()
        meant = [name for name in names if with_slashes(name).endswith(f"/{path}")]
        if len(meant) == 1:
            matches[path] = meant[0]
            votes[meant[0][: -len(path)]] += 1
    most = max(votes.values(), default=0)
    roots = [root for root, count in votes.items() if count == most][:MOST_SPELLINGS]
    insides = {root: [path for path in absolute if path.startswith(root)] for root in roots}
    root, inside = max(insides.items(), key=lambda row: len(row[1]), default=("", []))
    if len(inside) <= len(absolute) // 2 or not any(absolute[path] for path in inside):
        return {}
    return {path: name for path, name in matches.items() if name[: -len(path)] == root}


def expand_home(absolute: Iterable[str], paths: Iterable[str]) -> dict[str, str]:
    """Map *paths* in `~/` to absolute ones; none if *absolute* paths name several homes or none."""
    homes = {with_slashes(match[0]) for path in absolute if (match := _HOME.match(path))}
    home = homes.pop() if len(homes) == 1 else ""
    own, slash = [p for p in paths if p[:2] in {"~/", "~\\"}], "\\" if home[1:2] == ":" else "/"
    return {path: (home + path[1:]).replace("/", slash) for path in own if home}


def unify_windows_paths(paths: Collection[str]) -> dict[str, str]:
    """Map Windows paths to their first spelling, if they differ from it in slashes, case, or a
    drive as a folder: `/c/Users` for `C:/Users`."""
    forms = dict[str, str]()
    keys = {path: fold_windows_path(path).lower() for path in paths}
    for path, key in keys.items() if any(path[1:2] == ":" for path in paths) else ():
        if key[1:2] == ":":
            forms.setdefault(key, path)
    return {path: form for path, key in keys.items() if (form := forms.get(key, path)) != path}


_ADDS = re.compile(
    r"(?:(npm|pnpm|yarn|bun)|(uv|poetry)|(cargo)|(go)) (?:(?:un)?install|i|add|remove|rm|get)\s.*\w"
)
_MANIFESTS = ("package.json", "pyproject.toml", "Cargo.toml", "go.mod")


def find_manifest(command: str) -> str:
    """Return the manifest of the packages that a command adds or removes, or an empty string."""
    match = _ADDS.match(command)
    return _MANIFESTS[(match.lastindex or 1) - 1] if match else ""


IMPORT = re.compile(r"\s{0,20}(?:import|from|use|using|require|const \w{1,40} = require)\b")
"""Prefix of a line of code that imports something."""


def name_program(word: str) -> str:
    """Return the name of a program in lower case, without folder and `.exe`."""
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


_INTERPRETER = re.compile(
    r"(?:python|pypy|ruby|php|perl|node|bun|deno|(?:ba|z|da)?sh|pwsh|Rscript|julia|dart|java)[\d.]*"
)


def is_interpreter(word: str) -> bool:
    """Return whether a word names a program that runs scripts."""
    return bool(_INTERPRETER.fullmatch(word.rpartition("/")[2]))


# --- terminals -----------------------------------------------------------------------------

_MOVES = r"\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\\\n]*+(?:\x07|\x1b\\)"
"""Rest of an escape sequence: colours and cursor moves, or titles and links."""
_TERMINAL = re.compile(
    rf"\x1b(?:{_MOVES}|[@-Z\\-_=>]|[()][0-9A-Z])"
    r"|\x9b[0-?]{0,40}[ -/]{0,4}[@-~]"  # 8-bit form of the same
)
_ESCAPES = re.compile(
    rf"{_TERMINAL.pattern}|\\(?:x1[bB]|u001[bB]|0?33|e)(?:{_MOVES})|\[\d{{1,3}}(?:;\d{{1,3}}){{0,9}}m(?!\])"
)


def without_escapes(text: str) -> str:
    r"""Remove the escape sequences of terminals, so that `\x1b[31mError` becomes `Error`.

    Sequences in escaped form (`\u001b[31m`) and without their first character (`[31m`) are removed
    too.
    """
    return _ESCAPES.sub("", text) if "[" in text or "\x1b" in text or "\x9b" in text else text


def without_terminal_codes(text: str) -> str:
    r"""Remove the escape sequences of terminals and carriage returns at line ends. Escaped forms
    stay, since source code contains them.

    Costs no time for a text without any.
    """
    bare = _TERMINAL.sub("", text) if "\x1b" in text or "\x9b" in text else text
    return bare.replace("\r\n", "\n")


# --- words, in any script ---------------------------------------------------------------------
#
# Chinese, Japanese and Korean have no spaces between words, and a dictionary would lose the words
# that it does not have. So a run of such characters is indexed as its pairs and its last character:
# `全文检索` is `全文 文检 检索 索`. A word of two or more characters is then a phrase of pairs, and a
# single character is the prefix of a pair or the last term.


LONGEST = 64
"""Maximum characters of a term; longer ones are data and are found by their prefix."""
_CJK = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U000323af"
)
_ASCII_WORD = re.compile(rf"([a-z0-9]{{1,{LONGEST}}})[a-z0-9]*+")
_RUN = re.compile(rf"([{_CJK}]+)|([^\W_{_CJK}]+)")
_ANY_WORD = re.compile(r"[^\W_]+")


class Run(NamedTuple):
    """Sequence of letters and digits."""

    text: str
    dense: bool
    """Whether its script has no spaces between words."""


def count_columns(text: str, most: int) -> int:
    """Return the display width of the first *most* characters; Chinese, Japanese and Korean ones
    are two columns wide."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text[:most])


def fold(text: str) -> str:
    """Return a text with normalised width (NFKC) and case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def runs(text: str) -> Iterator[Run]:
    """Yield the folded runs of letters and digits of a text, without escape sequences."""
    for dense, word in _RUN.findall(fold(without_escapes(text))):
        yield Run(dense, dense=True) if dense else Run(word[:LONGEST], dense=False)


def terms(text: str) -> Iterator[str]:
    """Yield the index terms of a text, in order."""
    if text.isascii():  # same result, much faster
        yield from _ASCII_WORD.findall(without_escapes(text).lower())
        return
    for run in runs(text):
        yield from run_terms(run)


Span = tuple[int, int, str]
"""Start, end and term of a word, or of a pair of letters in a script without spaces."""


def iter_spans(text: str) -> Iterator[Span]:
    """Yield the words of a text, and the pairs of letters in scripts without spaces."""
    folded = fold(text)
    source = folded if len(folded) == len(text) else text
    for match in _ANY_WORD.finditer(source):
        start, word = match.start(), match[0]
        if word.isascii():
            yield start, match.end(), word.lower()
            continue
        for run in runs(word):
            if run.dense and len(run.text) > 1:
                for at in range(len(run.text) - 1):
                    yield start + at, start + at + 2, run.text[at : at + 2]
            else:
                yield start, start + len(run.text), run.text
            start += len(run.text)


def iter_stretches(spans: Sequence[Span]) -> Iterator[tuple[int, str]]:
    """Yield each word with the index of its span. In scripts without spaces, extend each pair of
    letters by the letter before it, and by the letter after it."""
    has_before, before = False, ""
    for at, ((start, _, term), behind) in enumerate(zip_longest(spans, spans[1:])):
        has_behind = behind is not None and behind[0] == start + 1
        if has_before:
            yield at, before + term[-1]
        if has_behind:
            yield at, term + behind[2][-1]
        if not has_before and not has_behind:
            yield at, term
        has_before, before = has_behind, term


def run_terms(run: Run) -> list[str]:
    """Return the index terms of a run: its pairs and last letter, or the word."""
    return [*map("".join, pairwise(run.text)), run.text[-1]] if run.dense else [run.text]


_ASKS = re.compile(
    r"(?:[吗嗎]|(?<![什怎这這那多])[么麼]|[对對是]吧|[你您](?:[觉覺]得)?呢|(?<![看下道认認查试試])(?:行不行|好不好|[对對]不[对對]|可不可以)|かな|かしら|っけ|(?:です|ます|でした|ました|ません|でしょう|ましょう|だろう)か|[습입합됩갑십]니까|(?<!니)까요?|나요|[되맞있없었았했겠]나|[는은인한]가요?)\Z"
)
"""Endings of questions in Chinese, Japanese and Korean, which often omit the question mark."""
_LAST = frozenset("吗嗎么麼吧呢行好对對以ならけか까요나가")  # last letters of these
_ASKS_FIRST = re.compile(
    r"[\s*_]{0,4}(?:[那这這您你我他她它们們个個样樣里裡请請问問但可所以到底究竟还還现現在是]{0,5}(?:(?:[为為][什何啥]|能不能|可不可以|是不是|要不要|有[没沒]有|[会會]不[会會]|[该該]不[该該]|需不需要|想不想|用不用|是否)(?!.*(?:因[为為]|由|都(?:[一行别別]|不[要能可准]|可以)))|(?:怎[么麼样樣]|如何|什[么麼]|哪(?!怕)|[谁誰]|几(?:[号號时時]|[点點](?![建说說注要意想补補]))|多[少久](?!有))(?!.{0,12}[都也见見]))[^，。,：:\u3041-\u30fa]{0,40}"
    r"|(?:なぜ|(?!.*[てで]も)(?:どう(?:して|すれば|したら|やって|なって)|何(?=[がをでにのだ])|どこ|いつ|誰|どれ|どっち|どちら|いくら))(?!か(?!ら)|(?:まで|[でに])?も)(?:(?!か(?!ら)[^。])[^、。]){0,30}"
    r"|(?:왜(?!냐)|(?!.{0,12}[가-힣](?:도|든지?)(?: |\Z))(?:어떻게|언제(?![나라])|어디(?!나|까지나| 보자)|누[가구](?!나)|뭐(?=[가야예지])|무[엇슨](?!보다)|얼마(?! ?[안전])|어느(?!새| 정도)))(?:(?!지 )[^,.]){0,40})[。.！!～~]?\Z"
)
"""Questions that begin with their word. It may also begin a part of a sentence: `why it fails`."""


def is_question(text: str) -> bool:
    """Return whether a text ends as a question, with or without bold marks, or is a short one in
    Chinese, Japanese or Korean without its mark."""
    end = text.rstrip("*_ 。.！!～~")[-8:]
    if (is_marked := end.endswith(("?", "？"))) or text.isascii():
        return is_marked
    return bool((end[-1:] in _LAST and _ASKS.search(end)) or _ASKS_FIRST.match(text))


def has_colon(text: str) -> bool:
    """Return whether a text ends with a colon."""
    return text.rstrip("*_ ").endswith((":", "："))


def count_bytes(text: str) -> int:
    """Return the number of bytes in UTF-8. A Chinese character has three: it says more."""
    return len(text.encode("utf-8", "replace"))


def letters_and_digits(text: str) -> str:
    """Return only the letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def first_content_line(text: str) -> str:
    """Return the first line that is not blank, a heading, fence, tag or bracketed mark, else the
    first that is not blank, or an empty string."""
    rows = [row for line in text.split("\n") if (row := line.strip())]
    return next((row for row in rows if row[0] not in "#`[<"), rows[0] if rows else "")


_DOTTED = re.compile(r"^(\d{1,7})\.(?: |$)", re.MULTILINE)
"""Line number in a file as Copilot CLI prints it."""


def tab_line_numbers(text: str) -> str:
    """Return a file's text with a tab after each line number, if a tool writes `1. ` before every
    line. The text stays if no line is empty: it may be a list, which has no empty items."""
    if not _DOTTED.match(text):
        return text
    matches = [_DOTTED.match(row) for row in text.rstrip("\n").split("\n")]
    numbers = [int(match[1]) for match in matches if match]
    is_whole = numbers == list(range(numbers[0], numbers[0] + len(matches)))
    has_empty = any(match and not match.string[match.end() :].strip() for match in matches)
    return _DOTTED.sub("\\1\t", text) if is_whole and has_empty else text


_REPLYING, _REPLIED = '[Replying to: "', '"]\n'
"""Delimiters of the quoted message, after the author's name if given (OpenClaw)."""


def shorten_quoted(text: str) -> str:
    """Return a message with the other one that it quotes cut to one short line."""
    start = text.find(_REPLYING, 0, 100)
    if start < 0 or (end := text.find(_REPLIED, start)) < 0:
        return text
    quoted = " ".join(text[start + len(_REPLYING) : min(end, start + 200)].split())[:60]
    return f"> {quoted}…\n{text[:start]}{text[end + len(_REPLIED) :].lstrip()}"
