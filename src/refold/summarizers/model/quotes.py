"""What a summary has the user say, checked against what the user said (conformance 38)."""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

STRUCK = "[struck out: no message of the user says this]"
SHORTEST = 12
"""Characters of a quotation that is checked, CJK ones counted twice: shorter ones are names."""

_USER = re.compile(
    r"\busers?\b|\brequest(?:s|ed)?\b|\basked\b|用户|用戶|使用者|请求|要求|ユーザー|사용자", re.IGNORECASE
)
_STRAIGHT = r"\"([^\"\n]+)\""
_ESCAPED = r"\\\"((?:[^\"\\\n]|\\[^\"])+)\\\""
_CURLY = r"“([^“”]+)”|「([^「」]+)」|『([^『』]+)』|«([^«»]+)»|„([^„“”]+)[“”]|^[ \t]*+(?:[-*][ \t]++)?>[ \t]*+([^\n]+)$"
"""Of marks that open within one another the innermost counts: what never closes is read once (C20)."""
_PLAIN_QUOTE = re.compile(f"{_STRAIGHT}|{_CURLY}", re.MULTILINE)
_JSON_QUOTE = re.compile(f"{_ESCAPED}|{_CURLY}", re.MULTILINE)
_HEAD = re.compile(r"[ \t]*+#{1,6}[ \t]")
_WORDS = re.compile(r"[\W_]+")


class Checked(NamedTuple):
    """A text whose quotations of the user are the user's."""

    text: str
    struck: int
    """How many quotations were struck out."""


def check_quotes(text: str, said: Iterable[str]) -> Checked:
    """Strike out what *text* puts into the user's mouth and none of the user's texts *said* holds.

    A quotation is the user's where its line, or the heading or lead-in above it, speaks of the user
    or of requests. Case, spaces and punctuation do not count; of one with an ellipsis each part must be there.
    """
    quote = _JSON_QUOTE if text.lstrip().startswith(("{", "[")) else _PLAIN_QUOTE
    heard, struck, about, lines = "\n".join(map(_plain, said)), 0, False, list[str]()
    for line in text.split("\n"):
        if _HEAD.match(line) or line.rstrip(" \t").rstrip("*").endswith((":", "：")):
            about = bool(_USER.search(line))
        if about or _USER.search(line):
            checked, count = _strike(line, quote, heard)
            lines.append(checked)
            struck += count
        else:
            lines.append(line)
    return Checked("\n".join(lines), struck)


def _strike(line: str, quote: re.Pattern[str], heard: str) -> tuple[str, int]:
    count = 0

    def kept(found: re.Match[str]) -> str:
        nonlocal count
        words = next(group for group in found.groups() if group is not None)
        if _is_name(words) or all(_plain(part) in heard for part in re.split(r"…|\.{3}", words)):
            return found[0]
        count += 1
        return STRUCK

    return quote.sub(kept, line), count


def _plain(text: str) -> str:
    return _WORDS.sub("", unicodedata.normalize("NFKC", text).casefold())


def _is_name(words: str) -> bool:
    """Is it too short to be a sentence, or one word such as a path?"""
    return _width(words) < SHORTEST or (words.isascii() and not re.search(r"\s", words.strip()))


def _width(text: str) -> int:
    return sum(1 + (char > "\u2e7f") for char in text.strip())
