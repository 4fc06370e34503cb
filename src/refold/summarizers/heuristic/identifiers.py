"""Identifiers: the words by which later work refers to things, found by their shape in any script.

In text with spaces between words, a name is a run of letters, digits and `_$@~./-`. Chinese,
Japanese, Korean and Thai text has no space between a name and the words around it. Letters of these
scripts belong to a name only if a `/`, a file extension, a `_` or quotes mark it:
`请修改src/订单/服务.py里的函数` holds `src/订单/服务.py`. `请修改订单.py` stays whole: only a dictionary knows where
its name begins.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise

from refold.text.clip import MAX_WORD, clip_scanned
from refold.text.json_values import parse_or_none
from refold.text.plain import split_path, without_escapes

NUMBER = 0.4
"""Weight of a plain number. A name weighs 1.0."""
LONGEST = 120
"""Maximum number of characters of an identifier. Anything longer is data."""
SHORTEST = 4
"""Minimum number of characters of a name."""

_CUT = "..."
"""Suffix of a name that a tool has cut off."""
_NUMBER = re.compile(r"\d(?<![\w.]\d)[\d.,]*")
_DIGITS = re.compile(r"[\d.,:/_-]+")
_JOINED = re.compile(r"[\w$@][./_:\-][\w$@]")
_HYPHENATED = re.compile(r"[A-Za-z]?[a-z]+(?:-[a-z]+)+")
_TAG = re.compile(r"/\w+")
PIECE = re.compile(r"[A-Z][a-z]{2,}|[a-z]{3,}|[A-Z]{3,}|[^\W\d_a-zA-Z]{2,}")
"""A word, or a word inside a compound name."""
_HANDLE = re.compile(r"\bedit [0-9a-f]{8}\b")
"""The reference to an edit in a stub of Refold. Callers may send stubs back as history."""
DEFINITION = re.compile(
    r"(?:export |async |public |private |static |pub |final |abstract ){0,4}"
    r"(?:def|class|function|func|fn|interface|type|struct|enum|trait|impl|defp|defmodule|module|const|describe|test)\b"
)
"""The beginning of a line that defines a name, after its indentation."""


def iter_identifiers(text: str) -> Iterator[tuple[str, float]]:
    """Yield each identifier of *text* once, with its weight.

    Paths, dotted names, snake_case, camelCase, hashes and ids are found by their shape alone. Plain
    words are left out. Takes time linear in the length of *text*.
    """
    words = {*candidate_names(text), *_NUMBER.findall(text)}
    telling = [word for word in words if not (word.isalpha() and word[1:].islower())]
    short = [word for word in telling if len(word) <= MAX_WORD]  # others would fill the cache
    yield from filter(None, map(_weigh_word, sorted(short)))


@lru_cache(maxsize=10_000)
def _weigh_word(word: str) -> tuple[str, float] | None:
    """Return the identifier in a word with its weight, or None."""
    if word.endswith(_CUT):
        return None
    name = word.removeprefix("./").lstrip("-").rstrip(".,-:/@")
    if _DIGITS.fullmatch(name):
        return (name, NUMBER) if 1 < len(name) <= LONGEST else None
    return (name, 1.0) if SHORTEST <= len(name) <= LONGEST and _is_name(name) else None


def split_words(text: str) -> set[str]:
    """Return the words of a text in lower case, with compound names split. Digits and very short
    words are left out."""
    return {word.lower() for word in PIECE.findall(text)}


def find_names(text: str) -> list[str]:
    """Return the identifiers of *text* that are not plain numbers, each once. Of a very long text
    only both ends are read."""
    text = _HANDLE.sub("edit", without_escapes(clip_scanned(text)))
    return [name for name, weight in iter_identifiers(text) if weight == 1.0]


def is_in_folder(name: str) -> bool:
    """Return whether an identifier names a file in a folder."""
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
"""Maximum number of `_DENSE` characters before the first `/` or extension. More are prose."""
MAX_DENSE_TAIL = 8
"""Maximum number of such characters after the last `/` if no extension ends the name."""
EXTENSIONS = (
    "py|pyi|ipynb|jsx?|mjs|cjs|tsx?|vue|svelte|mdx?|jsonl?|ya?ml|toml|txt|rst|rs|go|java|kt|swift|scala|php|rb|lua|[ch]|cc|cpp|hpp|cs|"
    "exs?|sh|bat|ps1|s?css|less|html?|sql|cfg|conf|ini|env|lock|xml|csv|tsv|log|proto|db|sqlite|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|zip|tar|gz"
)

_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17dd\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e"
    "\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_MARKS = "\u0300-\u036f\u064b-\u0652\u0900-\u0963\u0966-\u0dff"
"""Vowel signs and accents that are separate characters (decomposed file names, Indic scripts)."""
_ASCII = re.compile(
    r"(?:https?://|/[A-Za-z0-9_.~/-]*+\?)[^\s\"'<>`)\]},;|\\]{3,}|[A-Za-z0-9_$@~./-]{4,}"
)
"""A URL or a request path with its query, or a word."""
_URL = re.compile(r"https?://[^\s\"'<>`)\]},;|\\、。，；：！？（）「」『』《》【】“”‘’…]{3,}")
_WIDE = rf"{_URL.pattern}|[\w{_MARKS}{_DENSE}$@~./-]{{4,}}"
_BACKSLASHES = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]:(?>(?:\\{1,2}[\w$@~.-]++)+)"  # a Windows path with backslashes
    r"|\\(?:u[0-9a-fA-F]{4}|[nrt])"  # a JSON escape, not a letter of the next word
)
_LETTER = rf"[^\W\d_{_DENSE}]"
_BARE = re.compile(r"[^/._]*")
_IS_DENSE = f"[{_DENSE}]"
_FILE_ENDS = rf"(?i:(\.(?:{EXTENSIONS}))(?=[{_DENSE}]))"
_FILE = rf"(?i:\.(?:{EXTENSIONS})\Z)"
_BEGINS = rf"(?<=[{_DENSE}])(?:(?:{_LETTER}|[~$@])[^{_DENSE}]*|\.\.?)\Z"
_STOPS = rf"[^{_DENSE}]+(?<![_-])(?=[{_DENSE}])"
_JOINT = rf"(?<=[{_DENSE}])(?={_LETTER})|(?<=[^\W_{_DENSE}])(?=[{_DENSE}])"
"""Patterns from `_WIDE` on have wide character ranges and take milliseconds to compile. They are
compiled only when a text has such characters."""
_PARTICLES = frozenset("里裡中内內下上的のにをでは에을를의")
"""Words that may follow the `/` of a folder: in, under, of."""
_OPENS, _CLOSES = frozenset("`\"'“‘「『《"), frozenset("`\"'”’」』》")


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def candidate_names(text: str) -> set[str]:
    """Return the words of *text* that may be names, without the brackets, quotes and JSON escapes
    around them; of a Windows path its folders and file. Takes linear time."""
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
    """Return whether a word of *line* stands between quotes."""
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
    """Return whether a word is a path without extension, rather than two words with a slash between
    them (`输入/输出`, `iOS/安卓`)."""
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
    """Yield the names in a run of characters without spaces, and its ASCII words."""
    for chunk in _compile(_FILE_ENDS).sub(r"\1\n", run).split("\n"):
        name = _trailing_path(chunk) if "/" in chunk or _compile(_FILE).search(chunk) else ""
        if name:
            yield name
            chunk = chunk.replace(name, "\n")  # noqa: PLW2901 - the rest is read next
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
    """Return the path or file at the end of *chunk*, or an empty string."""
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


# --- lists of paths ------------------------------------------------------------------------------

LONGEST_FOLDER = 1_000
"""Maximum number of characters of the folder names repeated for the members of a group."""
_PLAIN_PATH = re.compile(r"(?:[A-Za-z]:(?=[/\\]))?[^\s\"'{},:]+")
_QUOTED = r"\"(?>(?:[^\"\\]|\\.?)*)\"?"
"""A JSON string. An unclosed one extends to the end, so that no character is read twice."""
_GROUP = r"([^\s\"{}]*+)\{([^\s\"{}]*+)\}(?:/(?:\{([^\s\"{}]*+)\}|([^\s\"{}]++)))?"
"""`folder/{a,b}`, `parent/{a,b}/{x,y}` or `parent/{a,b}/x`."""
_PATH = re.compile(rf"{_QUOTED}|{_GROUP}|[^\s\"]+", re.DOTALL)


def group_paths(paths: Sequence[str]) -> Iterator[str]:
    """Yield paths, grouped by folder as `folder/{a,b}`. Sibling folders that hold the same names
    become `parent/{a,b}/{x,y}`. Paths with unusual characters become JSON strings."""
    plain = [path for path in paths if _PLAIN_PATH.fullmatch(path)]
    odd = (path for path in paths if not _PLAIN_PATH.fullmatch(path))
    yield from (json.dumps(path, ensure_ascii=not path.isprintable()) for path in odd)
    folders: dict[str, list[str]] = {}
    for folder, name in map(split_path, plain):
        folders.setdefault(folder, []).append(name)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for folder, names in folders.items():
        if not folder or not all(names):
            yield from (folder + name for name in names)
            continue
        parent, _, last = folder[:-1].rpartition("/")
        written = sum(map(len, alike.get((parent, key := tuple(sorted(names))), ())))
        is_short = written + len(folder) <= LONGEST_FOLDER
        is_beside = parent and last and folder[-1] == "/" and is_short
        alike.setdefault((parent, key) if is_beside else (folder, key), []).append(folder)
    for (parent, shared), beside in alike.items():
        lasts = [folder.removeprefix(f"{parent}/")[:-1] for folder in beside]
        prefix = beside[0] if len(beside) == 1 else f"{parent}/{_group(lasts)}/"
        yield prefix + _group(shared)


def _group(names: Sequence[str]) -> str:
    return f"{{{','.join(names)}}}" if len(names) > 1 else names[0]


def read_paths(line: str) -> Iterator[str]:
    """Yield the paths of a line, with groups expanded."""
    for match in _PATH.finditer(line):
        folder, beside, names, name = match.groups()
        if match[0].startswith('"'):
            value = parse_or_none(match[0])
            yield value if isinstance(value, str) else match[0].strip('"')
        elif folder is None or len(folder) > LONGEST_FOLDER:
            yield match[0]
        elif not (names or name):
            yield from (folder + path for path in beside.split(","))
        elif len(beside) + len(folder) * beside.count(",") > LONGEST_FOLDER:
            yield match[0]
        else:
            paths = (names or name).split(",")
            yield from (f"{folder}{last}/{path}" for last in beside.split(",") for path in paths)
