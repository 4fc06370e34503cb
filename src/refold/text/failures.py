"""Detection of failures in tool output: exit codes, error lines, tracebacks."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from refold.text.clip import Gap, ceiling, clip_scanned, floor, gap, one_line
from refold.text.plain import without_escapes, without_terminal_codes

SCAN = 1_000_000
"""Maximum characters that are scanned, from the end, where errors usually are."""
TRIES = 2_000
"""Maximum number of words that are checked, so that a text full of `error` costs no more."""
OPENING_CHARS = 2_000
"""Length of the opening of a text in characters."""
WIDTH = 160
"""Maximum characters kept of an error line."""

TEST_COUNTS = re.compile(
    r"(?<![\w.@/-])(?<![\d.,],)\d[\d,.]*+\s{0,2}(?:\w{1,12}\s{1,2})?(?:pass|fail|test|error|warning|example|assert|spec|check|ok\b|skipped)"
    r"|\b(?:passed|failed|errors?|warnings?|tests?)\s{0,2}[:=]\s{0,2}\d|(?<!\d)0*+[1-9]\d*+\s*+[个項项].{0,8}(?:通过|失败|测试)",
    re.IGNORECASE,
)
"""Counts of a test run."""
_RAN_NONE = re.compile(
    r"\A(?:(?!.*\b[1-9]\d* (?:pass|fail|error)).*\b0 passed\b|running \d+ tests?\Z)"
)
"""A line of `cargo test` about tests that did not run or have yet to."""
_DIGIT = re.compile(r"\d")
_FRAME = " =-*~"
"""Characters that test runners draw around a line of counts."""
EXIT = re.compile(
    r"(?<!\bto )(?:exit(?:ed)?(?:[ _-]with)?[ _-]?(?:code|status)|return[ _-]?code|退出码|退出代码|返回码|終了コード|종료 코드)"
    r"[^\d\n-]{0,12}(-?[0-9]{1,10})",
    re.IGNORECASE,
)
"""Exit code as shells, agents and runners write it; `to exit with code 0` is a hint."""
_OPENING_CODE = re.compile(rf"rc=(-?\d{{1,10}})\s|\W{{0,20}}{EXIT.pattern}", re.IGNORECASE)
CODES = ("code", "status", "退出码", "退出代码", "返回码", "終了コード", "종료 코드")
"""Each exit code contains one of these words. Searching them is a hundred times faster than the
pattern."""
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
    "错误", "失败", "异常", "报错", "出错", "拒绝", "致命", "錯誤", "失敗", "エラー", "例外", "오류", "실패", "치명",
    "ошибка", "отказано", "fehler", "schwerwiegend", "erreur", "denegado", "negada",
)  # fmt: skip
"""Words for failures in other languages, in lower case."""
_ERRORS_NAMED = (
    r"(?:错误|失败|异常|エラー|오류)[:：](?!\s{0,3}0\b)|致命(?:错误|的な?エラー)|[没沒]有(?:那个文件|此一檔案)|[权權]限不[够夠]|系统找不到|(?:内部或外部|未找到)命令"
    r"|エラー(?: [1-9]|が発生)|そのようなファイル|許可がありません|(?:見つかり|認識されてい)ません(?!でした)|오류(?: [1-9]|가 발생)|치명적[: ]|그런 파일이나|허가 거부|찾을 수 없"
    r"|\b(?:Fehler|Erreur|Erro|[Оо]шибка) ?(?::(?!\s{0,3}0\b)|[1-9])|Schwerwiegend:|[Kk]eine Berechtigung|nicht gefunden|fatal :|introuvable|Aucun fichier"
    r"|non accordée|No existe el|denegado|no encontrad[oa]|inexistente|negada|não encontrad[oa]|Нет такого|Отказано|не найден(?!о)"
)
"""Errors as shells, compilers and git report them in other languages."""
NONE = re.compile(r"(?:\b0|\bno) $", re.IGNORECASE)
"""Text before `errors` if there are none."""
TRACE = "Traceback (most recent call last):"
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?>(?:[ \t](?![^\n]*Traceback \(most)[^\n]*+\n|\n)*)(\S[^\n]*)"
)
"""Python traceback; its last line is the error. Of nested tracebacks it is the inner one, so that
no line is read twice."""
OPENING = re.compile(
    r"""\s*(?:<\w+>\s*)?[{\["']*(?:error|fatal|fail(?:ed|ure)\b|traceback|exception|the tool execution failed|错误|失败|异常|报错|致命|錯誤|(?:エラー|오류|치명적|ошибка|fehler|erreur)(?=\s?[:：]|\s?\d|が発生|가 발생|\s*\Z))"""
    r"""(?![\w-]*["']?\s*[:=]\s*(?:null|none|false|0(?![\dx.])|""|''|\[\s*\]|\{\s*\}))""",
    re.IGNORECASE,
)
"""Text that begins by reporting an error; `{"error": null` and `Errors: 0` report none."""


def is_failure(text: str) -> bool:
    """Return whether tool output reports a failure: by a non-zero exit code at its start or end, a
    traceback, or an error as its first word."""
    ends = without_escapes(f"{text[:200]}\n{text[-400:]}" if len(text) > 600 else text)
    is_opening = bool(OPENING.match(without_escapes(text[:OPENING_CHARS])))
    is_error = is_opening or text.find(f"\n{TRACE}", -20_000) >= 0
    return is_error or any(map(int, _find_exit_codes(ends)))


def _find_exit_codes(text: str) -> Sequence[str]:
    return EXIT.findall(text) if any(map(text.lower().__contains__, CODES)) else ()


def failure_lines(text: str, room: int) -> list[str]:
    """Return error lines in order, with at most *room* characters in total.

    Exit codes are chosen first, then the last lines of tracebacks, then other errors, later ones
    first. Long lines are cut around the word.
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
    """Yield the positions of errors, most important first."""
    lower = text.lower()
    if len(lower) != len(text):  # some letters, such as İ, become two in lower case
        lower = text
    words = ERRORS if text.isascii() else (*ERRORS, *ERRORS_ELSEWHERE)
    codes = (
        match.start()
        for at in _backwards(lower, CODES)
        if (match := EXIT.search(text, max(0, at - 16), at + 40))
    )
    ends = (
        match.start(1) for at in _backwards(text, (TRACE,)) if (match := TRACEBACK.match(text, at))
    )
    errors = (at for at in _backwards(lower, words) if not NONE.search(text, max(0, at - 4), at))
    return chain(codes, ends, errors)


def _backwards(text: str, words: Sequence[str]) -> Iterator[int]:
    """Yield the positions of *words*, last first."""
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


# --- the middle of an output without its errors --------------------------------------------------

MARK = 100
"""Characters reserved for the marker."""


def cut_middle(text: str, limit: int, head: float, name: str, room: int) -> tuple[Gap, str] | None:
    """Return what to cut from *text* so that about *limit* characters stay, and the marker for it
    with the error lines of the cut part; None if nothing is cut.

    *head* is the fraction kept at the start, *name* names the edit that restores the rest, and
    *room* is the maximum characters of the error lines.
    """
    size = max(0, limit - MARK)
    cut = gap(text, max(0, size - room), head)
    lines = failure_lines(text[cut.start : cut.stop], room)
    if not lines:
        cut = gap(text, size, head)
    return None if cut.start >= cut.stop else (cut, _mark(text, cut, lines, name))


def _mark(text: str, cut: Gap, lines: list[str], name: str) -> str:
    """Return the marker for the part that is cut, with its error lines."""
    before = "" if text[: cut.start].endswith("\n") or cut.start == 0 else "\n"
    after = "" if text.startswith("\n", cut.stop) else "\n"
    note = f"{cut.stop - cut.start:,} characters left out (edit {name})"
    body = "\n".join((f"[… {note}, among them:", *lines, "…]")) if lines else f"[… {note} …]"
    return f"{before}{body}{after}"


# --- whether a command failed, and why -----------------------------------------------------------

_ERROR_LINE = re.compile(
    r"^(?:--- )?FAIL\b[^\n]{0,300}|^[^\n]{0,200}?(?:\b\w*(?:Error|Exception|Panic)\b\s*[:(](?!\s{0,3}0\b)|\berror(?:\[\w+\]|\s+TS\d+)?:|\bfatal:|\bFAILED\b|\bpanicked at\b|"
    rf"No such file|not found|[Pp]ermission denied|{_ERRORS_NAMED})[^\n]{{0,300}}"
    r"|^npm (?:error|ERR!) (?:code )?E[A-Z]{3,}\b[^\n]{0,300}|^\[(?:ERROR|FATAL)\] [\w/][^\n]{0,300}"
    r"|^[^\s:][^\n:]{0,80} : [^\n]{1,300}(?:\n[^\n]{1,200}){0,3}?(?=\nAt line:\d)",
    re.MULTILINE,
)
_NAMES_ERROR = re.compile(
    rf"FAIL|Error|error|ERROR\]|FATAL\]|Exception|Panic|fatal:|panicked|No such|not found|ermission|ERR!|At line|{_ERRORS_NAMED}"
)
"""Text in every error line, which is faster to find."""
_COMPILER_ERROR = re.compile(
    r"^[^\s:(]{1,200}(?:\(\d{1,7},\d{1,7}\)|(?::\d{1,7}){1,2}): (?:fatal )?error\b"
    r"|^[ \t]{2,9}at [^\n]{1,300}:\d{1,7}:\d{1,7}\)?\s*\Z",
    re.MULTILINE,
)
"""Compiler errors, `a.ts(5,15): error TS2305`; a stack trace at the end."""
_FAILURE_COUNT = re.compile(
    r"(?<![\w.])[1-9]\d{0,9} (?:\w{1,20} )?(?:fail(?:ed|ing|ures?)\b|errors?\b(?! \())|\b(?:Errors|Failed): [1-9]|\bERR!|\bError \d|"
    r"(?<!\d)[1-9]\d{0,9} ?[个個项項]?(?:测试|測試|用例)?(?:失败|失敗|错误|錯誤)",
)
"""Failure counts of test runners and build tools: `1 failed`, `Found 3 errors`,
`make: *** [all] Error 2`."""
_HINT = re.compile(
    r"(?i)\s*+(?:(?:\[error\] )?(?:to see |re-run |for (?:more|further) information|after correcting )|hint:|help:|note:|please try another command|the output of the command was:|warn|npm warn|提示[：:]|at |file \"|[+>$] )"
    r"|.*(?:echo |complete log of this run)|.*?\ufffd[^\ufffd]*\ufffd"
)
"""Prefix of a line that is not an error itself: warnings, advice, the location or log of an error,
commands, code of scripts; or a line in the wrong encoding."""
_ANY_WORD = re.compile(r"\w+")
_TELLS = re.compile(r"(?s).*?\w\W++\w.*[^:]\Z")
"""Line of several words that does not just announce others."""
_CODE_ONLY = re.compile(
    r"(?:(?:command|process|tool|error|shellid \d+) )?(?:(?:completed|finished|ended) with )?(?:exit|return)\w*(?: with)?(?: (?:code|status))?(?<!\d) ?\d+"
    r"|退出(?:码|状态码|代码) ?\d+",
    re.IGNORECASE,
)
"""Words of a line with only an exit code, separated by single spaces."""
_RULE = re.compile(r"([=*~_-])\1{9,}+")
"""Rule that runners draw beside a line of counts, as wide as the terminal."""
END_CHARS = 4_000
"""Characters at each end of a result that are searched for errors; 400 for exit codes."""


def read_exit_code(text: str) -> int | None:
    """Return the exit code in a result: in its first words, at its end, or at its start; None if it
    has none."""
    if opening := _OPENING_CODE.match(without_escapes(text[:OPENING_CHARS])):
        return int(opening[1] or opening[2])
    for part in map(without_escapes, (text[-400:], text[:400])):
        if codes := _find_exit_codes(part):
            return int(codes[-1])
    return None


def looks_failed(text: str) -> bool:
    """Return whether the output of a build, test or push reports a failure, for results without an
    exit code or a failure flag of the API."""
    end = _RULE.sub(r"\1", without_escapes(text[-END_CHARS:]))
    return (
        is_failure(text)
        or bool(_FAILURE_COUNT.search(end[-400:]) or find_error_lines(end[-400:]))
        or bool(_COMPILER_ERROR.search(end))
    )


def has_failed(outcome: str) -> bool:
    """Return whether the outcome of a check is a failure."""
    return outcome.startswith(("failed", "error", "exit", "stopped", "nothing ran"))


def find_error_line(text: str) -> str:
    """Return the last line that names an error, preferably with several words, else the last line
    with more than an exit code; empty if there is neither. Hints are skipped."""
    end = without_escapes(text[-END_CHARS:])
    errors = find_error_lines(end) or find_error_lines(without_escapes(text[:END_CHARS]))
    rows = [row for row in end.splitlines() if any(map(str.isalnum, row))]
    rows = [row for row in rows if not (is_markup(row) or _HINT.match(row))]
    telling = [row for row in errors if _TELLS.match(row)] or errors
    line = telling[-1] if telling else rows[-1] if rows else ""
    return one_line(line.strip(), 240)


_MARKUP = re.compile(
    r"\s*+(?:</?\w{1,40}>(?:-?\d{1,10}</\w+>)?|Shell cwd was reset to .*|\((?:empty|(?:bash completed with )?no output)\)|\[(?:rerun: b|result-id: r)\d+\]"
    r"|\[(?:(?:Command finished|The command completed) with exit code|Python interpreter:|Current working directory:) [^\n]*\]"
    r"|<<<\w+ id=\"\w+\">>>)\s*+",
    re.IGNORECASE,
)


def is_markup(row: str) -> bool:
    """Return whether a line is a tag around output, or added by a client, such as an exit code."""
    words = " ".join(_ANY_WORD.findall(row[:200]))
    return bool(_MARKUP.fullmatch(row) or _CODE_ONLY.fullmatch(words))


def find_error_lines(text: str) -> list[str]:
    """Return the lines that name an error, without hints."""
    rows = _ERROR_LINE.findall(text) if _NAMES_ERROR.search(text) else ()
    return [row for row in rows if not _HINT.match(row)]


def find_figures(text: str) -> str:
    """Return the last line with counts of a test run, preferably of tests that ran: `cargo test`
    ends with the documentation tests, which may be none. Empty without counts."""
    numbered = filter(_DIGIT.search, reversed(clip_scanned(text).split("\n")))
    rows = (row.strip().strip(_FRAME) for row in numbered)
    figures = (row for row in rows if len(row) < 300 and TEST_COUNTS.search(row))
    last = next(figures, "")
    ran = (row for row in chain((last,), figures) if not _RAN_NONE.search(row))
    return one_line(next(ran, last), 120)
