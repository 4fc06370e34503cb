"""Cutting texts without splitting characters, splitting them into sentences, and lines with the
lines that introduce them."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple
from unicodedata import category

LONGEST = 64
"""Maximum characters of a cluster (shown as one character) that is kept whole."""
JOINER = "\u200d"


class Gap(NamedTuple):
    """Middle of a text to leave out: `text[start:stop]`."""

    start: int
    stop: int


def gap(text: str, size: int, head: float = 0.5) -> Gap:
    """Return what to leave out so that at most *size* characters stay, the fraction *head* of them
    at the start; an empty gap if the text fits.

    It cuts at line ends nearby. Sizes are characters, not lines: one line of 170,000 characters is
    cut like any other text.
    """
    if len(text) <= size:
        return Gap(len(text), len(text))
    first = max(0, min(size, int(size * head)))
    start, stop = floor(text, first), ceiling(text, len(text) - (size - first))
    near = min(200, size // 8)
    line_end = text.rfind("\n", max(0, start - near), start)
    next_line = text.find("\n", stop, stop + near)
    return Gap(line_end + 1 if line_end >= 0 else start, next_line + 1 if next_line >= 0 else stop)


def head(text: str, size: int) -> str:
    """Return the longest prefix of at most *size* characters that splits no cluster."""
    return text if len(text) <= size else text[: floor(text, max(0, size))]


def tail(text: str, size: int) -> str:
    """Return the longest suffix of at most *size* characters that splits no cluster."""
    return text if len(text) <= size else text[ceiling(text, len(text) - max(0, size)) :]


def is_inside_cluster(text: str, at: int) -> bool:
    """Return whether the characters on both sides of *at* belong together.

    That is so in surrogate pairs, with combining marks, in joined emoji, flags, Korean syllables
    and CR LF.
    """
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if after < "\u0300":
        return (before == "\r" and after == "\n") or before == JOINER
    return (
        _splits_pair(text, at)
        or after in {JOINER, "\u200c"}
        or before == JOINER
        or category(after) in {"Mn", "Me", "Mc"}
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or "\u1160" <= after <= "\u11ff"
        or (_is_flag(after) and _flags_before(text, at) % 2 == 1)
    )


def floor(text: str, at: int) -> int:
    """Return the last position up to *at* outside a cluster, or near *at* in a very long one."""
    cut = _find_cut(text, range(at, max(-1, at - LONGEST - 1), -1))
    return cut - _splits_pair(text, cut)


def ceiling(text: str, at: int) -> int:
    """Return the first position from *at* on outside a cluster, or near *at* in a very long one."""
    cut = _find_cut(text, range(at, min(len(text), at + LONGEST) + 1))
    return cut + _splits_pair(text, cut)


def _find_cut(text: str, places: range) -> int:
    """Return the first of *places* that is not inside a cluster, else the first of all."""
    return next((at for at in places if not is_inside_cluster(text, at)), places.start)


def _splits_pair(text: str, at: int) -> bool:
    """Return whether *at* is between the halves of a surrogate pair."""
    return (
        0 < at < len(text)
        and "\ud800" <= text[at - 1] <= "\udbff"
        and "\udc00" <= text[at] <= "\udfff"
    )


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    """Count the regional indicators that end at *at*, up to a bound: only the parity matters."""
    count = 0
    while count < 2 * LONGEST and at - count > 0 and _is_flag(text[at - count - 1]):
        count += 1
    return count


# --- sentences and lines ----------------------------------------------------------------------

MAX_SCANNED = 200_000
"""Maximum characters of a text that are read, half from each end: 100 MB cost as much as 200 kB."""
MAX_WORD = 200
"""Maximum characters of a word that is not cut; longer ones are data."""

_WORD = re.compile(r"[\w$@~./-]")
_LAST_WORD = re.compile(r"(?<![\w$@~./-])[\w$@~./-]++\Z")
_FIRST_WORD = re.compile(r"[\w$@~./-]++(?=[^\w$@~./-])")
SENTENCE_END = re.compile(
    r"[.!?。！？；](?:(?<=[。！？；])(?![。！？；”’」』）】》])|(?<!\b\w\.\w\.)(?<!\b(?:vs|cf|Mr|Ms|Dr|St|Hr|Fr|Sr)\.)"
    r"(?<!\b(?:Mrs|Sra)\.)(?<!\bProf\.)(?<!\b[A-Z][a-z]\.(?= \d))(?<!\b[A-Z][a-z]{2}\.(?= \d))[\"')\]]?\s+)"
)
"""End of a sentence with the whitespace after it, but not of an abbreviation: `e.g`, `Dr`. A wide
stop before a closing quote ends only the quoted sentence."""
_CODE = re.compile(r"`[^`]+`")
_MARK = re.compile(r"\s*(?:\\?[-*+•>#]+|\d{1,3}[.)、])\s+")


def clip_scanned(text: str) -> str:
    """Return *text*, or both ends of a very long one in two lines, if possible cut at words."""
    if len(text) <= MAX_SCANNED:
        return text
    start, stop = MAX_SCANNED // 2, len(text) - MAX_SCANNED // 2
    if _is_inside(text, start) and (cut := _LAST_WORD.search(text, start - MAX_WORD, start)):
        start = cut.start()
    if _is_inside(text, stop) and (cut := _FIRST_WORD.match(text, stop, stop + MAX_WORD)):
        stop = cut.end()
    return f"{text[:start]}\n{text[stop:]}"


def _is_inside(text: str, at: int) -> bool:
    return bool(_WORD.match(text[at - 1]) and _WORD.match(text[at]))


def split_line(line: str) -> Iterator[str]:
    """Yield the sentences of a line without its list marks, split at Western and CJK stops outside
    of `code`."""
    masked, start = line, 0
    if "`" in line:
        masked = _CODE.sub(lambda code: "x" * len(code[0]), line)
    stops = ((stop.start() + 1, stop.end()) for stop in SENTENCE_END.finditer(masked))
    for end, behind in (*stops, (len(line), len(line))):
        mark = _MARK.match(line, start, end)
        if sentence := line[mark.end() if mark else start : end].strip():
            yield sentence
        start = behind


def one_line(text: str, limit: int) -> str:
    """Return *text* on one line of at most *limit* characters; a longer one ends with `…`."""
    line = " ".join(text[: limit * 4].split())
    is_whole = len(line) <= limit and not text[limit * 4 :].strip()
    return line if is_whole else head(line, limit - 1).rstrip() + "…"


# --- lines and what introduces them ---------------------------------------------------------------

DEEPEST = 8
"""Maximum number of lines that introduce a line."""

_INDENT = re.compile(r"[\s>]*")
_TITLE = re.compile(r"(#{1,6})\s+")
_BOLD = re.compile(r"(\*\*|__)(?:(?!\1)[^\n]){1,100}\1\s{0,8}[:：]?")
_NUMBER = re.compile(
    r"(?:[(（]?(?:\d{1,3}|[a-zA-Z]|[一二三四五六七八九十]{1,3})[.)、）．]|[①-⑳])(?:\s+|(?=[^\x00-\x7f]))"
)
_BULLET = re.compile(r"\\?[-*+•·◦▪‣●○](?:\s+|(?=[^\x00-\x7f]))|[–—]\s+")
_ENDED = (*".!?;,。！？；，",)
TOP, _INSIDE = -6, 1_000_000
"""Depth of a first-level heading, and of code and table rows."""


RowKind = Literal["heading", "columns", "row", "item", "text", "code"]
"""Kinds of lines. `columns` is the header of a table and `row` one of its rows."""


class Row(NamedTuple):
    """Line that is not blank."""

    at: int
    """Line index."""
    kind: RowKind
    depth: int
    """Nesting depth: a line belongs to a line above with less depth."""
    text: str
    """Text without indent and list mark."""
    is_open: bool = False
    """Whether it introduces what follows: a heading, or a line that ends with a colon."""


def iter_rows(lines: Sequence[str]) -> Iterator[tuple[Row, tuple[Row, ...]]]:
    """Yield each line but blank ones and rulers with the lines that introduce it, outermost first:
    headings, lines that end with a colon or are directly above a list or code, and items with
    nested lines. A heading does not introduce text after the first list under it, which usually
    continues the main text."""
    rows, before = [*_read_rows(lines)], -1
    heads, deepest = list[Row](), list[int]()
    for row, behind in zip_longest(rows, rows[1:]):
        is_apart = row.at > before + 1
        while heads and not _introduces(heads[-1], deepest[-1], row, is_apart=is_apart):
            heads.pop()
            deepest.pop()
        is_section = bool(heads) and heads[-1].kind == "heading" and row.kind == "text"
        yield row, () if is_section and row.depth < deepest[-1] else tuple(heads)
        if heads:
            deepest[-1] = max(deepest[-1], row.depth)
        if behind and _is_head(row, behind) and len(heads) < DEEPEST:
            heads.append(row)
            deepest.append(-_INSIDE)
        before = row.at


def _introduces(head: Row, deepest: int, row: Row, *, is_apart: bool) -> bool:
    """Return whether *head*, with lines as deep as *deepest* under it so far, also introduces
    *row*. An open head introduces even lines of its own depth, up to a blank line."""
    if row.depth != head.depth:
        return row.depth > head.depth
    is_over = deepest > row.depth or (deepest == row.depth and is_apart)
    return head.is_open and not row.is_open and not is_over


def _is_head(row: Row, behind: Row) -> bool:
    """Return whether a line introduces the line *behind* it."""
    is_above = behind.kind in ("item", "row", "code") and not row.text.endswith(_ENDED)
    return row.is_open or (behind.depth > row.depth and (row.kind == "item" or is_above))


def _read_rows(lines: Sequence[str]) -> Iterator[Row]:
    fenced = {at for fence in find_fences(lines) for at in fence}
    is_table = False
    for at, (line, behind) in enumerate(zip_longest(lines, lines[1:], fillvalue="")):
        if at in fenced:
            yield Row(at, "code", _INSIDE, line.strip())
        elif "|" in line and _is_ruler(behind):
            yield Row(at, "columns", 0, line.strip(" \t|"), is_open=True)
            is_table = True
        elif is_table and "|" in line:
            if not _is_ruler(line):
                yield Row(at, "row", _INSIDE, line.strip(" \t|"))
        else:
            is_table = False
            if not _is_underline(line) and (row := _read_row(at, line)):
                is_title = _is_underline(behind) and not row.text.endswith(_ENDED)
                is_title = is_title and row.kind == "text"
                yield row._replace(kind="heading", depth=-1, is_open=True) if is_title else row


def _is_ruler(line: str) -> bool:
    """Return whether a line separates the header of a table from its rows."""
    return "-" in line and "|" in line and set(line.strip()) <= set("|-: ")


def _is_underline(line: str) -> bool:
    """Return whether a line underlines a heading."""
    bare = line.strip()
    return bare[:3] in ("---", "===") and len(set(bare)) == 1


def _read_row(at: int, line: str) -> Row | None:
    match = _INDENT.match(line)
    start = match.end() if match else 0
    text = line[start:].rstrip()
    is_open = text.rstrip("*_ ").endswith((":", "："))
    if not text:
        return None
    if title := _TITLE.match(text):
        return Row(at, "heading", TOP + len(title[1]) - 1, text[title.end() :], is_open=True)
    depth, number = 3 * (len(line[:start].expandtabs(4)) // 2), _NUMBER.match(text)
    if mark := number or _BULLET.match(text):
        return Row(at, "item", depth + (1 if number else 2), text[mark.end() :], is_open)
    is_bold = ">" not in line[:start] and bool(_BOLD.fullmatch(text))
    return Row(at, "heading" if is_bold else "text", depth, text, is_bold or is_open)


def without_mark(line: str) -> str:
    """Return a line without indent and mark of a list or heading; empty for a blank one."""
    return row.text if (row := _read_row(0, line)) else ""


def find_fences(lines: Sequence[str]) -> Iterator[range]:
    """Yield the line indexes of each closed code block, fences included."""
    start, fence = 0, ""
    for at, line in enumerate(lines):
        mark = line.lstrip()[:3]
        if fence and mark == fence:
            yield range(start, at + 1)
            fence = ""
        elif not fence and mark in ("```", "~~~"):
            start, fence = at, mark
