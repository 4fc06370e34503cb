"""Cutting a text: by characters, never inside what is read as one, into sentences, to one
line."""

import re
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import category

LONGEST = 64
"""Characters of the longest cluster that is kept whole; a longer one is no writing."""
JOINER = "\u200d"


class Gap(NamedTuple):
    """The middle of a text that is left out: `text[start:stop]`."""

    start: int
    stop: int


def gap(text: str, size: int, head: float = 0.5) -> Gap:
    """Return what to leave out so that at most *size* characters stay, the share *head* of them at
    the start.

    Cuts at a line's end if one is close by. Characters count, not lines: one line of 170,000
    characters is cut like any other text.
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
    """Return the longest beginning of at most *size* characters that cuts nothing apart."""
    return text if len(text) <= size else text[: floor(text, max(0, size))]


def tail(text: str, size: int) -> str:
    """Return the longest end of at most *size* characters that cuts nothing apart."""
    return text if len(text) <= size else text[ceiling(text, len(text) - max(0, size)) :]


def is_inside_cluster(text: str, at: int) -> bool:
    """Do the characters on both sides of *at* belong together?

    They do in surrogate pairs, with combining marks, in joined emoji, flags, Korean syllables and
    CR LF.
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
    """Return the nearest safe cut at or before *at*."""
    cut = next(
        (n for n in range(at, max(-1, at - LONGEST - 1), -1) if not is_inside_cluster(text, n)), at
    )
    return cut - _splits_pair(text, cut)


def ceiling(text: str, at: int) -> int:
    """Return the nearest safe cut at or after *at*."""
    cut = next(
        (n for n in range(at, min(len(text), at + LONGEST) + 1) if not is_inside_cluster(text, n)),
        at,
    )
    return cut + _splits_pair(text, cut)


def _splits_pair(text: str, at: int) -> bool:
    """Are the characters on both sides of *at* the halves of a surrogate pair?"""
    return (
        0 < at < len(text)
        and "\ud800" <= text[at - 1] <= "\udbff"
        and "\udc00" <= text[at] <= "\udfff"
    )


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    """Count the regional indicators that end at *at*, up to a bound: only odd or even matters."""
    count = 0
    while count < 2 * LONGEST and at - count > 0 and _is_flag(text[at - count - 1]):
        count += 1
    return count


# --- sentences and lines ----------------------------------------------------------------------

MAX_SCANNED = 200_000
"""Characters of one text that are looked at: the first and the last half of that many. A tool
result of 100 MB costs no more than one of 200 kB."""
MAX_WORD = 200
"""Characters of a word that is not cut; a longer one is data."""

_WORD = re.compile(r"[\w$@~./-]")
_LAST_WORD = re.compile(r"(?<![\w$@~./-])[\w$@~./-]++\Z")
_FIRST_WORD = re.compile(r"[\w$@~./-]++(?=[^\w$@~./-])")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\b\w\.\w\.)[\"')\]]?\s+|(?<=[。！？；])")
_CODE = re.compile(r"`[^`]+`")
_MARK = re.compile(r"^\s*(?:[-*+•>#]+|\d{1,3}[.)、])\s+")


def clip_scanned(text: str) -> str:
    """Return *text*; of a very long one its two ends, cut between words if it has any there."""
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


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text without list marks: Western and CJK stops and line ends part
    them, but for stops in `code`."""
    for marked in clip_scanned(text).split("\n"):
        line, start = _MARK.sub("", marked), 0
        masked = _CODE.sub(lambda code: "x" * len(code[0]), line)
        ends = (end.span() for end in _SENTENCE.finditer(masked))
        for stop, behind in (*ends, (len(line), len(line))):
            if sentence := _MARK.sub("", line[start:stop]).strip():
                yield sentence
            start = behind


def one_line(text: str, limit: int) -> str:
    """Return *text* on one line of at most *limit* characters."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
