"""Judge the answers of a summarizing model. Refused answers are never stored (conformance 32 to
34)."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from refold.core.strategy import Answer
from refold.models.responses import is_overflow

ReplyKind = Literal["good", "nobody", "overflow", "failed", "rejected", "cut off", "off template"]

_THOUGHT = r"think|thinking|thought|analysis|reasoning|scratchpad|reflection|antthinking|internal_monologue"
_THOUGHTS = re.compile(
    rf"(?<!`)<({_THOUGHT})\b[^<>]{{0,200}}>.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL
)
_STRAY_END = re.compile(rf"^.*(?<!`)</(?:{_THOUGHT})\s*>", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"```(?:\w+)?\n(.*?)\n?```", re.DOTALL)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.IGNORECASE | re.DOTALL)
_FINISHES = {
    "length": "the answer was cut off by its length",
    "filter": "the answer was filtered",
    "tool": "the model called a tool",
}


class AcceptedReply(NamedTuple):
    """The verdict on an answer."""

    kind: ReplyKind
    text: str = ""
    """The accepted text, or the reason for refusing it."""


def judge_answer(answer: Answer | None) -> AcceptedReply:
    """Return the text of an answer without its reasoning, or why it is refused: nobody answered, or
    it failed, was cut off, was filtered, called a tool, is empty or holds only reasoning."""
    if answer is None:
        return AcceptedReply("nobody", "there is no model to ask")
    if answer.finish == "error":
        return AcceptedReply(
            "overflow" if _is_overflow(answer) else "failed",
            answer.error or "the model did not answer",
        )
    if answer.finish == "length":
        return AcceptedReply("cut off", _FINISHES["length"])
    if answer.finish != "stop":
        return AcceptedReply(
            "rejected",
            _FINISHES.get(
                answer.finish, f"the answer ended for an unknown reason ({answer.finish})"
            ),
        )
    text = without_reasoning(answer.text)
    if not text:
        return AcceptedReply(
            "rejected",
            "the answer holds nothing but reasoning"
            if answer.text.strip()
            else "the answer is empty",
        )
    return AcceptedReply("good", text)


def without_reasoning(text: str) -> str:
    """Return a model's answer without tagged reasoning, and without tags or fences around the
    whole. A tag in backticks is text."""
    text = _STRAY_END.sub("", _THOUGHTS.sub("", text)).strip()
    if match := _SUMMARY.fullmatch(text):
        text = match[1].strip()
    if match := _FENCE.fullmatch(text):
        text = match[1].strip()
    return text


def _is_overflow(answer: Answer) -> bool:
    if answer.failure is not None and answer.failure.kind != "other":
        return answer.failure.kind == "overflow"
    return is_overflow(answer.error)


@dataclass(frozen=True, slots=True)
class Headings:
    """Free text under required Markdown headings: the form of a summary without typed values."""

    titles: tuple[str, ...]

    name = "headings"

    @property
    def template(self) -> str:
        """Description of the shape, for a prompt."""
        if not self.titles:
            return ""
        heads = "\n".join(f"## {title}" for title in self.titles)
        return f"Write Markdown with exactly these headings, in this order; under one that has nothing, write: none.\n\n{heads}"

    def parse(self, text: str, /) -> str | None:
        """Return the text from its first heading on, or None if a heading is missing."""
        if not self.titles:
            return text.strip() or None
        places = [_heading(title).search(text) for title in self.titles]
        starts = [place.start() for place in places if place]
        return (
            text[min(starts) :].strip()
            if len(starts) == len(self.titles) and _has_text_besides(text, self.titles)
            else None
        )

    def list_missing(self, text: str, /) -> list[str]:
        """Return the headings missing in *text*."""
        return [title for title in self.titles if not _heading(title).search(text)]

    def render(self, value: str, /) -> str:
        """Return the text unchanged."""
        return value

    def merge(self, previous: str | None, new: str, /) -> str | None:  # noqa: ARG002 - a form's
        """Return the new text. The model has seen the previous one and updated it."""
        return new

    def shorten(self, value: str, /) -> str | None:  # noqa: ARG002 - a form's
        """Return None, because the importance of its parts is unknown."""
        return None


def _heading(title: str) -> re.Pattern[str]:
    """Return a pattern for a heading as models write it: of any level, or bold without one, perhaps
    numbered or with a colon."""
    number = r"(?:\d+[.)][ \t]*)?"
    return re.compile(
        rf"^[ \t]*(?:#{{1,6}}[ \t]+{number}\**|{number}\*\*){re.escape(title)}(?!\w)",
        re.IGNORECASE | re.MULTILINE,
    )


def _heading_lines(titles: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for heading lines with one of *titles*, and for bold titles without the rest
    of their line."""
    names = "|".join(map(re.escape, titles))
    return re.compile(
        rf"^[ \t]*#{{1,6}}[ \t].*(?:{names}).*$|\*\*(?:{names})\*\*",
        re.IGNORECASE | re.MULTILINE,
    )


def _has_text_besides(text: str, titles: Sequence[str]) -> bool:
    """Return whether the text has content besides its headings."""
    bare = _heading_lines(titles).sub("", text)
    return bool(re.sub(r"\W|\bnone\b|无", "", bare, flags=re.IGNORECASE))


STRUCK_OUT = "[struck out: no message of the user says this]"
NOT_THE_USERS = "[not the user's words]"
"""Mark after a quotation of somebody else's words, such as a tool's error."""
MAX_LOOKED_UP = 50
"""Maximum number of quotations that are not the user's, and of paths, looked up in all messages."""
MIN_QUOTATION = 12
"""Minimum number of characters of a checked quotation, CJK ones counted twice."""

_USER = re.compile(
    r"\busers?\b|\brequest(?:s|ed)?\b|\basked\b|用户|用戶|使用者|请求|要求|ユーザー|사용자",
    re.IGNORECASE,
)
_STRAIGHT = r"\"([^\"\n]+)\""
_ESCAPED = r"\\\"((?:[^\"\\\n]|\\[^\"])+)\\\""
_CURLY = r"“([^“”]+)”|「([^「」]+)」|『([^『』]+)』|«([^«»]+)»|„([^„“”]+)[“”]|^[ \t]*+(?:[-*][ \t]++)?>[ \t]*+([^\n]+)$"
"""Nested quotation marks match innermost, so that unclosed ones are read only once."""
_PLAIN_QUOTE = re.compile(f"{_STRAIGHT}|{_CURLY}", re.MULTILINE)
_JSON_QUOTE = re.compile(f"{_ESCAPED}|{_CURLY}", re.MULTILINE)
_HEAD = re.compile(r"[ \t]*+#{1,6}[ \t]")
_WORDS = re.compile(r"[\W_]+")


class CheckedText(NamedTuple):
    """A text with its quotations of the user checked."""

    text: str
    struck_count: int
    """Number of quotations that were struck out."""


def check_quotes(
    text: str, user_texts: Iterable[str], all_texts: Iterable[str] = ()
) -> CheckedText:
    """Strike out quotations of the user in *text* that none of *user_texts* has. If one of
    *all_texts* has the words, the quotation stays and is marked as not the user's.

    A quotation is the user's if its line, or the heading or lead-in above it, mentions the user or
    a request. Case, spaces and punctuation do not count. Each part around an ellipsis must be
    found.
    """
    quote = _JSON_QUOTE if text.lstrip().startswith(("{", "[")) else _PLAIN_QUOTE
    struck, about, lines = 0, False, list[str]()
    users, everybody = _Spoken(user_texts), _Spoken(all_texts, MAX_LOOKED_UP)
    for line in text.split("\n"):
        if _HEAD.match(line) or line.rstrip(" \t").rstrip("*").endswith((":", "：")):
            about = bool(_USER.search(line))
        is_checked = about or _USER.search(line)
        checked, count = _strike(line, quote, users, everybody) if is_checked else (line, 0)
        lines.append(checked)
        struck += count
    return CheckedText("\n".join(lines), struck)


class _Spoken:
    """Texts in which quotations are looked up. They are read on first use."""

    def __init__(self, texts: Iterable[str], most: float = inf) -> None:
        self._texts, self._words, self._left = texts, "", most

    def has(self, words: str) -> bool:
        """Return whether all parts around an ellipsis were said, in the first *most* calls."""
        self._left -= 1
        if self._left < 0:
            return False
        self._words = self._words or "\n".join(map(_normalize, self._texts))
        return all(_normalize(part) in self._words for part in re.split(r"…|\.{3}", words))


def _strike(
    line: str, quote: re.Pattern[str], users: _Spoken, everybody: _Spoken
) -> tuple[str, int]:
    count = 0

    def check(match: re.Match[str]) -> str:
        nonlocal count
        words = next(group for group in match.groups() if group is not None)
        is_marked = line.startswith(f" {NOT_THE_USERS}", match.end())
        if _is_name(words) or is_marked or users.has(words):
            return match[0]
        if everybody.has(words):
            return f"{match[0]} {NOT_THE_USERS}"
        count += 1
        return STRUCK_OUT

    return quote.sub(check, line), count


def _normalize(text: str) -> str:
    return _WORDS.sub("", unicodedata.normalize("NFKC", text).casefold())


def _is_name(words: str) -> bool:
    """Return whether words are too short for a sentence, or a single word such as a path."""
    width = sum(1 + (char > "\u2e7f") for char in words.strip())
    return width < MIN_QUOTATION or (words.isascii() and not re.search(r"\s", words.strip()))


IN_NO_MESSAGE = "[in no message]"
"""Mark after a path or figure that is in no message."""
_PATH = r"(?<![\w./@+-])(?:[\w.@+-]*+/)+(?:[\w@+-]++\.)+[A-Za-z]\w{0,7}(?![\w/])`?"
_FIGURE = r"(?<![\w.,:/#+-])\d++(?:,\d{3})*(?:\.\d++)?(?![.,:/-]?\w)"  # of no name, date, version
_CHECKED = re.compile(f"{_PATH}|{_FIGURE}", re.ASCII)


def mark_ungrounded(text: str, messages: Iterable[str]) -> str:
    """Mark the paths and figures of *text* that are in none of *messages*.

    A path is found if they have its last folder and name, or its name but never after a folder, as
    after `cd`. A figure of three digits or more is found if it rounds one of theirs (`1,500` for
    1487, `3.48` for 3.482). Takes n log n time. Only the first of very many paths are looked up.
    """
    whole = "\n".join(messages).casefold().replace("\\", "/")
    digits = re.findall(r"[0-9]++(?:,[0-9]{3})*(?:\.[0-9]++)?", whole)
    numbers = sorted(float(number.replace(",", "")) for number in digits)
    names = dict.fromkeys(match[0].rstrip("`") for match in _CHECKED.finditer(text))
    paths = [name for name in names if "/" in name][:MAX_LOOKED_UP]
    ungrounded = {path for path in paths if not _holds_path(whole, path)}

    def mark(match: re.Match[str]) -> str:
        name = match[0].rstrip("`")
        is_grounded = name not in ungrounded if "/" in name else _holds_figure(numbers, name)
        is_marked = is_grounded or text.startswith(f" {IN_NO_MESSAGE}", match.end())
        return match[0] if is_marked else f"{match[0]} {IN_NO_MESSAGE}"

    return _CHECKED.sub(mark, text)


def _holds_path(whole: str, path: str) -> bool:
    folder, name = path.casefold().split("/")[-2:]
    is_bare = name in whole and (f"/{name}" not in whole or not folder.strip("."))
    return is_bare or f"{folder}/{name}" in whole


def _holds_figure(numbers: Sequence[float], figure: str) -> bool:
    whole, _, decimals = figure.replace(",", "").partition(".")
    zeros = 0 if decimals else len(whole) - len(whole.rstrip("0"))
    number, reach = float(f"{whole}.{decimals}"), 10.0 ** min(zeros or -len(decimals), 9) / 2
    at = bisect_left(numbers, number - reach)
    return len(whole + decimals) < 3 or (at < len(numbers) and numbers[at] <= number + reach)
