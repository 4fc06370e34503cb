"""Messages and calls as plain text: what a model can read in them, to search and to show; and the
words of a text as a full-text index can find them."""

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, filterfalse, pairwise, zip_longest
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
from refold.text.clip import one_line
from refold.text.json_values import JsonObject, parse_or_text

PATHS = (
    "file_path",
    "path",
    "filePath",
    "filepath",
    "absolute_path",
    "absolutePath",
    "notebook_path",
    "target_file",
    "filename",
    "file",
    "uri",
)
"""Names under which tools take the path of a file; a first entry wins."""
SUBJECTS = (*PATHS, "command", "cmd", "pattern", "query", "url", "name", "prompt", "description")
"""Names of the argument that says best what a call is about."""


def readable_text(message: Message) -> str:
    """Return texts, calls with their arguments, and results.

    Thinking is left out: providers drop it from earlier turns. Media and parts of unknown kind are
    named in brackets.
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
    """Return arguments as lines of `name: value`, strings as they are and not as JSON has them."""
    value = parse_or_text(text)
    return "\n".join(_lines(value)) if isinstance(value, dict) else text


def _lines(value: Any) -> Iterator[str]:
    """Yield each string and number in a JSON value with its name, without recursion."""
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
    """Return texts, calls with their arguments as they are, and the texts of results.

    Nothing for media, parts of unknown kind and thinking.
    """
    texts = (
        f"{part.name} {part.arguments}" if isinstance(part, ToolCall) else part.text
        for part in message.parts
        if isinstance(part, Text | ToolResult | ToolCall)
    )
    return "\n".join(texts)


# --- calls ---------------------------------------------------------------------------------


def arguments_of(call: ToolCall) -> JsonObject:
    """Return a call's arguments; none if they are no JSON object."""
    arguments = parse_or_text(call.arguments)
    return arguments if isinstance(arguments, dict) else {}


def path_of(call: ToolCall) -> str:
    """Return the file a call names; empty if it names none."""
    arguments = arguments_of(call)
    return next((arguments[key] for key in PATHS if isinstance(arguments.get(key), str)), "")


def call_gist(call: ToolCall, size: int = 60) -> str:
    """Return what a call is about in one line of at most *size* characters, such as a path.

    Empty if no argument says it.
    """
    return one_line(next(_subjects(call), ""), size)


# --- paths ---------------------------------------------------------------------------------


DEEPEST = 100
"""Folders of a path that are looked at."""
_ABSOLUTE = re.compile(r"/|\\\\|[A-Za-z]:[/\\]")
_OUTSIDE = re.compile(r"~|/(?:tmp|var|private)/|/(?:(?:home|Users)/[^/]{1,99}|root)/\.")
"""How paths begin that are no project's."""
_EXTENSION = re.compile(r"[^.\d]\.\w{1,12}$|\d\.(?!x$)[A-Za-z]\w{0,11}$")
_VENDORED = re.compile(
    r"(?:^|[/\\])(?:node_modules|site-packages|vendor|dist|build|target|\.venv)[/\\]"
)
_IGNORED = re.compile(
    r"(?:^|[/\\])(?:node_modules|site-packages|\.?venv|__pycache__|\.next|dist|build|target|coverage"
    r"|\.env(?:\.local)?|\.DS_Store|[^/\\]*\.(?:log|pyc))(?:[/\\]|$)"
)
"""Files that repositories hardly ever have."""


def is_path(word: str) -> bool:
    """Is a word the path of a file, and no figure or label?"""
    return ("/" in word or "." in word) and not word.replace(".", "").isdigit()


def is_absolute(path: str) -> bool:
    """Does a path begin at a root, of whichever system?"""
    return bool(_ABSOLUTE.match(path))


def is_outside(path: str) -> bool:
    """Is this a path in a temporary folder, or of a program's own files at home?"""
    return bool(_OUTSIDE.match(path))


def has_extension(path: str) -> bool:
    """Is this the path of a file rather than of a folder, by its end?"""
    return bool(_EXTENSION.search(path))


def with_slashes(path: str) -> str:
    """Return an absolute path of Windows with slashes in it; any other as it is."""
    return path.replace("\\", "/") if path[1:3] == ":\\" else path


def is_left_out(path: str, patterns: Iterable[str]) -> bool:
    """Do *patterns* of a `.gitignore` leave a file out?"""
    whole = f"/{with_slashes(path).strip('/')}/"
    return any(
        fnmatchcase(whole, f"*/{name}/*")
        if "/" in (name := pattern.strip("/"))
        else any(fnmatchcase(part, name) for part in whole.split("/"))
        for pattern in patterns
    )


def is_vendored(path: str) -> bool:
    """Is this a file, or a command on one, that somebody else wrote or a program made?"""
    return bool(_VENDORED.search(path))


def is_meant(name: str, path: str) -> bool:
    """Does git mean the file of this name by *path*, which may be a folder's or a pattern? If only
    one of both is absolute, they may have a common end."""
    name, path = with_slashes(name), with_slashes(path)
    if "*" in path:
        name = name if is_absolute(path) else "/".join(name.split("/")[-1 - path.count("/") :])
        return name.count("/") == path.count("/") and fnmatchcase(name, path)
    if is_absolute(name) == is_absolute(path):
        return f"{name}/".startswith(f"{path.rstrip('/')}/")
    if is_absolute(name):
        return f"/{path.rstrip('/')}/" in f"{name}/"
    return any(path.endswith(f"/{part}") for part in (name, *folders_of(name)))


def is_ignored(path: str) -> bool:
    """Is this a file or a folder that repositories hardly ever have?"""
    return bool(_IGNORED.search(path))


def split_path(path: str) -> tuple[str, str]:
    """Return the folder of a path, with the separator that ends it, and the name in it."""
    start = max(path.rfind("/"), path.rfind("\\")) + 1
    return path[:start], path[start:]


def folders_of(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, the innermost first, at most `DEEPEST`."""
    mark = "\\" if path[1:3] == ":\\" else "/"
    for _ in range(DEEPEST):
        path = path.rstrip(mark).rpartition(mark)[0]
        if not path:
            return
        yield path


def iter_ends(path: str) -> Iterator[str]:
    """Yield a path, and what of it stands behind its first folders, at most `DEEPEST`."""
    for _ in range(DEEPEST):
        yield path
        path = path.partition("/")[2]
        if not path:
            return


_HOME = re.compile(r"/(?:home|Users)/[^/]{1,99}(?=/)|/root(?=/)")
MOST_SPELLINGS = 50
"""Absolute paths with one name at their ends that are looked at for what a relative one means."""


def match_paths(absolute: Mapping[str, bool], relative: Iterable[str]) -> dict[str, str]:
    """Return the absolute paths of files and folders that *relative* ones stand for, by these.

    Such a path is the end of exactly one *absolute* path, and stands in the folder in which most of
    them do. That holds most of the absolute paths, and one of those that are changed, as these say:
    what is only read may be another copy of the work. In n log n.
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


def spell_home(absolute: Iterable[str], paths: Iterable[str]) -> dict[str, str]:
    """Return *paths* in `~` as absolute ones, by themselves, if *absolute* paths show one home."""
    homes = {match[0] for path in absolute if (match := _HOME.match(path))}
    home = homes.pop() if len(homes) == 1 else ""
    return {path: home + path[1:] for path in paths if home and path.startswith("~/")}


_DRIVE = re.compile(r"\A/([a-zA-Z])/")


def turn_slashes(paths: Collection[str]) -> dict[str, str]:
    """Return paths of Windows as they are written first, by those that have other slashes or name
    the drive as a folder: `/c/Users` for `C:/Users`."""
    forms = dict[str, str]()
    keys = {path: _DRIVE.sub(r"\1:/", with_slashes(path)).lower() for path in paths}
    for path, key in keys.items() if any(path[1:2] == ":" for path in paths) else ():
        if key[1:2] == ":":
            forms.setdefault(key, path)
    return {path: form for path, key in keys.items() if (form := forms.get(key, path)) != path}


_ADDS = re.compile(
    r"(?:(npm|pnpm|yarn|bun)|(uv|poetry)|(cargo)|(go)) (?:(?:un)?install|i|add|remove|rm|get)\s.*\w"
)
_MANIFESTS = ("package.json", "pyproject.toml", "Cargo.toml", "go.mod")


def find_manifest(command: str) -> str:
    """Return the file that notes which packages a command adds or removes; empty if it does not."""
    match = _ADDS.match(command)
    return _MANIFESTS[(match.lastindex or 1) - 1] if match else ""


def call_title(call: ToolCall) -> str:
    """Return tool and gist in one line: `read src/app.py`."""
    return f"{call.name} {call_gist(call)}".strip() or "call"


IMPORT = re.compile(r"\s{0,20}(?:import|from|use|using|require|const \w{1,40} = require)\b")
"""How a line of code begins that says what it needs, not what it does."""


def _subjects(call: ToolCall) -> Iterator[str]:
    value = parse_or_text(call.arguments)
    arguments, text = (value, ()) if isinstance(value, dict) else ({}, (call.arguments,))
    preferred = (arguments[key] for key in SUBJECTS if key in arguments)
    for value in chain(preferred, arguments.values(), text):
        if isinstance(value, str) and value.strip():
            rows = value[:1_000].split("\n")
            yield "\n".join(filterfalse(IMPORT.match, rows)).strip() or value[:1_000]
        elif isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            yield " ".join(value)[:1_000]


# --- terminals -----------------------------------------------------------------------------

_MOVES = r"\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\\\n]*+(?:\x07|\x1b\\)"
"""Behind what opens a sequence: colours and moves; titles and links."""
_TERMINAL = re.compile(
    rf"\x1b(?:{_MOVES}|[@-Z\\-_=>]|[()][0-9A-Z])"
    r"|\x9b[0-?]{0,40}[ -/]{0,4}[@-~]"  # the same in a character of its own
)
_ESCAPES = re.compile(
    rf"{_TERMINAL.pattern}|\\(?:x1[bB]|u001[bB]|0?33|e)(?:{_MOVES})|\[\d{{1,3}}(?:;\d{{1,3}}){{0,9}}m(?!\])"
)


def without_escapes(text: str) -> str:
    r"""Remove the escape sequences of terminals, so that `\x1b[31mError` says `Error`.

    Those written out (`\u001b[31m`) go as well, and `[31m`, whose first character was lost.
    """
    return _ESCAPES.sub("", text) if "[" in text or "\x1b" in text or "\x9b" in text else text


def without_terminal_codes(text: str) -> str:
    r"""Remove the escape sequences of terminals, except those written out: source code holds them;
    and what a terminal, or a file of Windows, has before the end of a line.

    Takes no time over a text that has none.
    """
    bare = _TERMINAL.sub("", text) if "\x1b" in text or "\x9b" in text else text
    return bare.replace("\r\n", "\n")


# --- words, in any script ---------------------------------------------------------------------
#
# Chinese, Japanese and Korean have no spaces between words, and cutting them into words by a
# dictionary loses those that it does not know. So a run of such characters becomes its pairs and its
# last character: `全文检索` is `全文 文检 检索 索`. A word of two or more characters is then a phrase of
# pairs, and a single character the beginning of a pair or the last term.


LONGEST = 64
"""Characters of a term; what is longer is data, and is found by its beginning."""
ASKED = 2_000
"""Characters of a query that are looked at."""
ALTERNATIVES = 128
"""Words and pairs of a query that are looked for, the first ones."""

_CJK = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U000323af"
)
_ASCII_WORD = re.compile(rf"([a-z0-9]{{1,{LONGEST}}})[a-z0-9]*+")
_RUN = re.compile(rf"([{_CJK}]+)|([^\W_{_CJK}]+)")
_ANY_WORD = re.compile(r"[^\W_]+")


class Run(NamedTuple):
    """Letters and digits in a row."""

    text: str
    dense: bool
    """Of a script without spaces between words."""


def count_columns(text: str, most: int) -> int:
    """Return how wide the first *most* characters of a text are: of Chinese, Japanese and Korean
    each counts twice."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text[:most])


def fold(text: str) -> str:
    """Return *text* in one spelling for full and half width, upper and lower case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def runs(text: str) -> Iterator[Run]:
    """Yield the runs of letters and digits of a text, folded, without escape sequences."""
    for dense, word in _RUN.findall(fold(without_escapes(text))):
        yield Run(dense, dense=True) if dense else Run(word[:LONGEST], dense=False)


def terms(text: str) -> Iterator[str]:
    """Yield the terms under which a text is indexed, in order."""
    if text.isascii():  # the same in a fraction of the time
        yield from _ASCII_WORD.findall(without_escapes(text).lower())
        return
    for run in runs(text):
        yield from _terms(run)


Span = tuple[int, int, str]
"""Where a word, or two letters of a script without spaces, begins and ends, and what it is."""


def iter_spans(text: str) -> Iterator[Span]:
    """Yield the words of a text, and of a script without spaces the pairs of letters."""
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
    """Yield each word with its position; of a script without spaces each pair of letters with the
    letter before it, and with the letter behind."""
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


def phrase_query(text: str) -> str:
    """Return an FTS5 query for all terms of *text*, one after another; empty if it has none.

    No character of *text* reaches the syntax of the query: terms are letters and digits, in quotes.
    """
    *first, last = [*runs(text[:ASKED])] or [Run("", dense=False)]
    single = last.dense and len(last.text) == 1
    ending = _terms(last)[:-1] if last.dense and not single else [last.text]
    wanted = " ".join([*(term for run in first for term in _terms(run)), *ending])
    return f'"{wanted}"' + "*" * single if wanted else ""


def any_word_query(text: str) -> str:
    """Return an FTS5 query for any word of *text*.

    Its words as phrases, what they consist of, and what of them touches (`5月6日`: `5月`, `月6`,
    `6日`).
    """
    words = text[:ASKED].split()
    inner = (term for word in words for run in runs(word) for term in _inner(run))
    touching = (_touching(a, b) for w in words for a, b in pairwise(runs(w)))
    queries = dict.fromkeys(map(phrase_query, (*words, *inner, *touching)))
    return " OR ".join([query for query in queries if query][:ALTERNATIVES])


def _touching(before: Run, after: Run) -> str:
    if before.dense == after.dense:
        return ""
    return (before.text[-1:] if before.dense else before.text) + (
        after.text[:1] if after.dense else after.text
    )


def _inner(run: Run) -> list[str]:
    return _terms(run)[:-1] or [run.text] if run.dense else [run.text]


def _terms(run: Run) -> list[str]:
    return [*map("".join, pairwise(run.text)), run.text[-1]] if run.dense else [run.text]


_ASKS = re.compile(
    r"(?:[吗嗎]|(?:です|ます|でした|ました|ません|でしょう|ましょう)か|(?:습니까|입니까|까요|나요|[는은인]가요))"
    r"[。.！!～~]?\Z"
)
"""How questions end in Chinese, Japanese and Korean, where many leave out the mark."""


def is_question(text: str) -> bool:
    """Does a text end with a question mark, in bold or not, or as one that needs none?"""
    end = text.rstrip("*_ ")[-6:]
    return end.endswith(("?", "？")) or (not end.isascii() and bool(_ASKS.search(end)))


def has_colon(text: str) -> bool:
    """Does it end with a colon?"""
    return text.rstrip("*_ ").endswith((":", "："))


def count_bytes(text: str) -> int:
    """Count the bytes of a text, of which a letter of Chinese has three: it says as much more."""
    return len(text.encode("utf-8", "replace"))


def spell_bare(text: str) -> str:
    """Return the letters and figures of a text alone."""
    return "".join(filter(str.isalnum, text))


def find_opening(text: str) -> str:
    """Return the first line that is no heading, fence or mark in brackets, else the first."""
    rows = [row for line in text.split("\n") if (row := line.strip())]
    return next((row for row in rows if row[0] not in "#`["), rows[0] if rows else "")


_DOTTED = re.compile(r"^(\d{1,7})\.(?: |$)", re.MULTILINE)
"""A number before a line of a file, as Copilot CLI writes it."""


def spell_numbers(text: str) -> str:
    """Return the text of a file with a tab behind the number of each line, if a tool writes `1. `
    there. A list has no empty items: where there are none, it may be one, and stays."""
    if not _DOTTED.match(text):
        return text
    matches = [_DOTTED.match(row) for row in text.split("\n")]
    numbers = [int(match[1]) for match in matches if match]
    is_whole = numbers == list(range(numbers[0], numbers[0] + len(matches)))
    has_empty = any(match and not match.string[match.end() :].strip() for match in matches)
    return _DOTTED.sub("\\1\t", text) if is_whole and has_empty else text


_REPLYING, _REPLIED = '[Replying to: "', '"]\n'
"""Around what a message answers, behind the name of who writes it, if anything (OpenClaw)."""


def shorten_quoted(text: str) -> str:
    """Return a message that quotes what it answers with the beginning of that in a quote's line:
    another said it, and it was long."""
    start = text.find(_REPLYING, 0, 100)
    if start < 0 or (end := text.find(_REPLIED, start)) < 0:
        return text
    quoted = " ".join(text[start + len(_REPLYING) : min(end, start + 200)].split())[:60]
    return f"> {quoted}…\n{text[:start]}{text[end + len(_REPLIED) :].lstrip()}"
