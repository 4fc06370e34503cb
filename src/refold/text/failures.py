"""Where a tool's output says that something went wrong: exit codes, errors, tracebacks."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from refold.text.clip import Gap, ceiling, floor, gap
from refold.text.plain import without_escapes, without_terminal_codes

SCAN = 1_000_000
"""Characters that are looked at, from the end, where errors stand."""
TRIES = 2_000
"""Words that are looked at, so that a text that only says `error` costs no more."""
OPENS = 2_000
"""Characters in which a text opens."""
WIDTH = 160
"""Characters kept of a line that says something went wrong."""

EXIT = re.compile(
    r"(?:exit(?:ed)?(?:[ _-]with)?[ _-]?(?:code|status)|return[ _-]?code|退出码|退出代码|返回码|終了コード|종료 코드)"
    r"[^\d\n-]{0,12}(-?[0-9]{1,10})",
    re.IGNORECASE,
)
"""An exit code, as shells, agents and test runners write it."""
CODES = ("code", "status")
"""One of these is in every exit code in English: finding a word is a hundred times faster than the
pattern."""
CODES_ELSEWHERE = ("退出码", "退出代码", "返回码", "終了コード", "종료 코드")
"""Those in Chinese, Japanese and Korean."""
ERRORS = (
    "error",
    "exception",
    "fail",
    "fatal",
    "panic",
    "traceback",
    "denied",
    "not found",
    "abort",
    "segfault",
)
ERRORS_ELSEWHERE = (
    "错误",
    "失败",
    "异常",
    "报错",
    "出错",
    "拒绝",
    "錯誤",
    "失敗",
    "エラー",
    "例外",
    "오류",
    "실패",
)
"""Words of failure in Chinese, Japanese and Korean."""
NONE = re.compile(r"(?:\b0|\bno) $", re.IGNORECASE)
"""What stands before `errors` if there are none."""
TRACE = "Traceback (most recent call last):"
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?:[ \t](?![^\n]*Traceback \(most)[^\n]*+\n|\n)*+(\S[^\n]*)"
)
"""A Python traceback; its last line is the error. Of one within another the inner: no line is read
for both."""
OPENING = re.compile(
    r"""\s*(?:<\w+>\s*)?[{\["']*(?:error|fatal|traceback|exception|错误|失败|异常|报错|エラー|오류)"""
    r"""(?![\w-]*["']?\s*[:=]\s*(?:null|none|false|0(?![\dx.])|""|''|\[\s*\]|\{\s*\}))""",
    re.IGNORECASE,
)
"""A text that opens by saying that it is an error; `{"error": null` and `Errors: 0` say that there
is none."""


def is_failure(text: str) -> bool:
    """Does a tool's output report a failure?

    It does with an exit code other than 0 at its start or end, with a traceback, and with an error
    as its first word.
    """
    start = without_escapes(text[:OPENS])
    ends = without_escapes(f"{text[:200]}\n{text[-400:]}" if len(text) > 600 else text)
    lower = ends.lower()
    if any(word in lower for word in _codes(lower)) and any(
        int(match[1]) for match in EXIT.finditer(ends)
    ):
        return True
    return (
        bool(OPENING.match(start))
        or start.startswith(TRACE)
        or text.find(f"\n{TRACE}", -20_000) >= 0
    )


def _codes(text: str) -> Sequence[str]:
    """Return what may announce an exit code in *text*."""
    return CODES if text.isascii() else (*CODES, *CODES_ELSEWHERE)


def failure_lines(text: str, room: int) -> list[str]:
    """Return lines that say what went wrong, in order, together at most *room* characters.

    Exit codes are chosen first, then what tracebacks end with, then other errors, the last before
    those ahead of it. Of a long line the surroundings of the word stay.
    """
    text = text[-SCAN:]
    chosen: dict[int, str] = {}
    for start in _by_weight(text):
        line = _snippet(text, start)
        if line in chosen.values():
            continue
        room -= len(line) + 1
        if room < 0:
            break
        chosen[start] = line
    return [line for _, line in sorted(chosen.items())]


def _by_weight(text: str) -> Iterator[int]:
    """Yield where a text says that something went wrong, weightiest first."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter like İ, which is two in lower case
        lower = text
    words = ERRORS if text.isascii() else (*ERRORS, *ERRORS_ELSEWHERE)
    codes = (
        match.start()
        for at in _backwards(lower, _codes(text))
        if (match := EXIT.search(text, max(0, at - 16), at + 40))
    )
    ends = (
        match.start(1) for at in _backwards(text, (TRACE,)) if (match := TRACEBACK.match(text, at))
    )
    errors = (at for at in _backwards(lower, words) if not NONE.search(text, max(0, at - 4), at))
    return chain(codes, ends, errors)


def _backwards(text: str, words: Sequence[str]) -> Iterator[int]:
    """Yield where one of *words* stands, the last first."""
    last = {word: at for word in words if (at := text.rfind(word)) >= 0}
    for _ in range(TRIES):
        if not last:
            return
        word = max(last, key=last.__getitem__)
        at = last.pop(word)
        yield at
        if (before := text.rfind(word, 0, at)) >= 0:
            last[word] = before


def _snippet(text: str, start: int) -> str:
    """Return the line around *start*, at most about `WIDTH` characters of it."""
    reach = max(0, start - WIDTH // 2)
    line = text.rfind("\n", reach, start)
    begin = line + 1 if line >= 0 else 0 if reach == 0 else ceiling(text, start - WIDTH // 4)
    end = text.find("\n", start, begin + WIDTH)
    stop = end if end >= 0 else floor(text, min(len(text), begin + WIDTH))
    return without_terminal_codes(text[begin:stop]).strip()


# --- the middle of an output, without what went wrong -------------------------------------------

MARK = 100
"""Characters set aside for the mark."""


def cut_middle(text: str, limit: int, head: float, name: str, room: int) -> tuple[Gap, str] | None:
    """Return what to leave out of *text* so that about *limit* characters stay, and the mark that
    stands there instead, with the lines in it that say what went wrong; None if nothing goes.

    *head* is the share taken from the start, *name* that of the edit that brings the rest back,
    *room* how many characters those lines may take.
    """
    size = max(0, limit - MARK)
    cut = gap(text, max(0, size - room), head)
    lines = failure_lines(text[cut.start : cut.stop], room)
    if not lines:
        cut = gap(text, size, head)
    return None if cut.start >= cut.stop else (cut, _mark(text, cut, lines, name))


def _mark(text: str, cut: Gap, lines: list[str], name: str) -> str:
    """Return the line that stands for what is left out, and those lines of it that stay."""
    before = "" if text[: cut.start].endswith("\n") or cut.start == 0 else "\n"
    after = "" if text.startswith("\n", cut.stop) else "\n"
    note = f"{cut.stop - cut.start:,} characters left out (edit {name})"
    body = "\n".join((f"[… {note}, among them:", *lines, "…]")) if lines else f"[… {note} …]"
    return f"{before}{body}{after}"
