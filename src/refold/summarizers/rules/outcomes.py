"""How a call ended: exit codes, and the line that says what went wrong."""

import re

from refold.escapes import without_escapes
from refold.failures import EXIT, is_failure
from refold.summarizers.rules.text import one_line

_ERROR = re.compile(
    r"^[^\n]{0,200}?(?:\b\w*(?:Error|Exception|Panic)\b\s*[:(]|\berror(?:\[\w+\]|\s+TS\d+)?:|\bfatal:|\bFAILED\b|\bpanicked at\b|"
    r"No such file|not found|[Pp]ermission denied|错误[:：]|失败[:：]|异常[:：]|エラー|오류)[^\n]{0,300}",
    re.MULTILINE,
)
_ENDED = re.compile(
    r"(?<![\w.])[1-9]\d{0,9} (?:\w{1,20} )?(?:fail(?:ed|ing|ures?)\b|errors?\b(?! \())|\bERR!|\bError \d|"
    r"(?<!\d)[1-9]\d{0,9} ?[个個项項]?(?:测试|測試|用例)?(?:失败|失敗|错误|錯誤)",
)
"""How test runners and build tools sum up a failure: `1 failed`, `Found 3 errors`, `make: *** [all] Error 2`."""
_WORD = re.compile(r"\w+")
_CODE_ONLY = re.compile(
    r"(?:(?:command|process|tool) )?(?:exit|return)\w*(?: with)?(?: (?:code|status))?(?<!\d) ?\d+", re.IGNORECASE
)
"""The words of a line that tells an exit code and nothing else, one blank between them."""
ENDS = 4_000
"""Characters at either end of a result where errors are looked for; exit codes in the first and last 400."""


def exit_code(text: str) -> int | None:
    """The exit code a result states, at its end or else at its beginning; None if it states none."""
    for part in map(without_escapes, (text[-400:], text[:400])):
        if found := EXIT.findall(part):
            return int(found[-1])
    return None


def outcome(text: str, *, error: bool) -> str:
    """`ok`, `exit N` or `error`."""
    code = exit_code(text)
    if code:
        return f"exit {code}"
    return "error" if error else "ok"


def ends_badly(text: str) -> bool:
    """Does the output of work (a build, a test, a push) say that it failed, where no exit code and no API does (F4)?"""
    end = without_escapes(text[-400:])
    return is_failure(text) or bool(_ENDED.search(end) or _errors(end))


def error_line(text: str) -> str:
    """The line that says what went wrong: the last one that names an error, else the last line with
    more to say than an exit code. A hint (`hint: Updates were rejected ...`) is none (F4).
    """
    end = without_escapes(text[-ENDS:])
    found = _errors(end) or _errors(without_escapes(text[:ENDS]))
    rows = [row for row in end.splitlines() if row.strip() and not _says_code_only(row) and not _is_hint(row)]
    line = found[-1] if found else rows[-1] if rows else ""
    return one_line(line.strip(), 240)


def _says_code_only(row: str) -> bool:
    return bool(_CODE_ONLY.fullmatch(" ".join(_WORD.findall(row))))


def _errors(text: str) -> list[str]:
    return [row for row in _ERROR.findall(text) if not _is_hint(row)]


def _is_hint(row: str) -> bool:
    """Does this line say what to do about an error?"""
    return row.lstrip().lower().startswith(("hint:", "help:", "note:", "提示：", "提示:"))
