"""Lines, sentences and cutting, in any language."""

import re
from collections.abc import Iterator

SCANNED = 200_000
"""Characters of one text that are looked at: the first and the last half of that many. A tool
result of 100 MB costs no more than one of 200 kB."""
LONGEST = 200
"""Characters of a word that is not cut; a longer one is data."""

_WORD = re.compile(r"[\w$@~./-]")
_LAST_WORD = re.compile(r"(?<![\w$@~./-])[\w$@~./-]++\Z")
_FIRST_WORD = re.compile(r"[\w$@~./-]++(?=[^\w$@~./-])")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]?\s+|(?<=[。！？；])|\n+")
_MARK = re.compile(r"^\s*(?:[-*+•>#]+|\d{1,3}[.)、])\s+")


def scanned(text: str) -> str:
    """*text*, or of a very long one its two ends, cut between words where there are some (F3)."""
    if len(text) <= SCANNED:
        return text
    start, stop = SCANNED // 2, len(text) - SCANNED // 2
    if _is_inside(text, start) and (cut := _LAST_WORD.search(text, start - LONGEST, start)):
        start = cut.start()
    if _is_inside(text, stop) and (cut := _FIRST_WORD.match(text, stop, stop + LONGEST)):
        stop = cut.end()
    return f"{text[:start]}\n{text[stop:]}"


def _is_inside(text: str, at: int) -> bool:
    return bool(_WORD.match(text[at - 1]) and _WORD.match(text[at]))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text without list marks: Western and CJK stops and line ends part them."""
    for piece in _SENTENCE.split(scanned(text)):
        if sentence := _MARK.sub("", piece).strip():
            yield sentence


def one_line(text: str, limit: int) -> str:
    """*text* on one line of at most *limit* characters."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def middle_cut(text: str, limit: int) -> str:
    """*text* with its middle left out, so that at most about *limit* characters of it stay."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    end = text[len(text) - tail :] if tail else ""
    return f"{text[:head].rstrip()}\n[… {len(text) - limit} characters left out …]\n{end.lstrip()}"
