"""Whether a tool's output says that something went wrong, and where: exit codes, errors,
tracebacks."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from refold.text.clip import Gap, ceiling, clip_scanned, floor, gap, one_line
from refold.text.plain import without_escapes, without_terminal_codes

SCAN = 1_000_000
"""Characters that are looked at, from the end, where errors stand."""
TRIES = 2_000
"""Words that are looked at, so that a text that only says `error` costs no more."""
OPENS = 2_000
"""Characters in which a text opens."""
WIDTH = 160
"""Characters kept of a line that says something went wrong."""

FIGURES = re.compile(
    r"(?<![\w.@/-])(?<![\d.,],)\d[\d,.]*+\s{0,2}(?:\w{1,12}\s{1,2})?(?:pass|fail|test|error|warning|example|assert|spec|check|ok\b|skipped)"
    r"|\b(?:passed|failed|errors?|warnings?|tests?)\s{0,2}[:=]\s{0,2}\d|(?<!\d)0*+[1-9]\d*+\s*+[个項项].{0,8}(?:通过|失败|测试)",
    re.IGNORECASE,
)
"""The figures of a test run."""
_RAN_NONE = re.compile(r"\A(?!.*\b[1-9]\d* (?:pass|fail|error)).*\b0 passed\b")
_DIGIT = re.compile(r"\d")
_FRAME = " =-*~"
"""What runners draw around a line of figures."""
EXIT = re.compile(
    r"(?<!\bto )(?:exit(?:ed)?(?:[ _-]with)?[ _-]?(?:code|status)|return[ _-]?code|退出码|退出代码|返回码|終了コード|종료 코드)"
    r"[^\d\n-]{0,12}(-?[0-9]{1,10})",
    re.IGNORECASE,
)
"""An exit code, as shells, agents and runners write it; `to exit with code 0` is a hint."""
_OPENING_CODE = re.compile(rf"rc=(-?\d{{1,10}})\s|\W{{0,20}}{EXIT.pattern}", re.IGNORECASE)
CODES = ("code", "status", "退出码", "退出代码", "返回码", "終了コード", "종료 코드")
"""One of these is in every exit code: finding a word is a hundred times faster than the pattern."""
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
"""Words of failure in other languages, in lower case."""
_ERRORS_NAMED = (
    r"(?:错误|失败|异常|エラー|오류)[:：](?!\s{0,3}0\b)|致命(?:错误|的な?エラー)|[没沒]有(?:那个文件|此一檔案)|[权權]限不[够夠]|系统找不到|(?:内部或外部|未找到)命令"
    r"|エラー(?: [1-9]|が発生)|そのようなファイル|許可がありません|(?:見つかり|認識されてい)ません(?!でした)|오류(?: [1-9]|가 발생)|치명적[: ]|그런 파일이나|허가 거부|찾을 수 없"
    r"|\b(?:Fehler|Erreur|Erro|[Оо]шибка) ?(?::(?!\s{0,3}0\b)|[1-9])|Schwerwiegend:|[Kk]eine Berechtigung|nicht gefunden|fatal :|introuvable|Aucun fichier"
    r"|non accordée|No existe el|denegado|no encontrad[oa]|inexistente|negada|não encontrad[oa]|Нет такого|Отказано|не найден(?!о)"
)
"""How shells, compilers and git name an error in other languages."""
NONE = re.compile(r"(?:\b0|\bno) $", re.IGNORECASE)
"""What stands before `errors` if there are none."""
TRACE = "Traceback (most recent call last):"
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?>(?:[ \t](?![^\n]*Traceback \(most)[^\n]*+\n|\n)*)(\S[^\n]*)"
)
"""A Python traceback; its last line is the error. Of one within another the inner: no line is read
for both."""
OPENING = re.compile(
    r"""\s*(?:<\w+>\s*)?[{\["']*(?:error|fatal|fail(?:ed|ure)\b|traceback|exception|the tool execution failed|错误|失败|异常|报错|致命|錯誤|(?:エラー|오류|치명적|ошибка|fehler|erreur)(?=\s?[:：]|\s?\d|が発生|가 발생|\s*\Z))"""
    r"""(?![\w-]*["']?\s*[:=]\s*(?:null|none|false|0(?![\dx.])|""|''|\[\s*\]|\{\s*\}))""",
    re.IGNORECASE,
)
"""A text that opens by saying that it is an error; `{"error": null` and `Errors: 0` say that there
is none."""


def is_failure(text: str) -> bool:
    """Does a tool's output report a failure: by an exit code other than 0 at its start or end, a
    traceback, or an error as its first word?"""
    ends = without_escapes(f"{text[:200]}\n{text[-400:]}" if len(text) > 600 else text)
    is_opening = bool(OPENING.match(without_escapes(text[:OPENS])))
    is_error = is_opening or text.find(f"\n{TRACE}", -20_000) >= 0
    return is_error or any(map(int, _find_exit_codes(ends)))


def _find_exit_codes(text: str) -> Sequence[str]:
    return EXIT.findall(text) if any(map(text.lower().__contains__, CODES)) else ()


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
        for at in _backwards(lower, CODES)
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


# --- whether work failed, and by what -------------------------------------------------------------

_ERROR_LINE = re.compile(
    r"^(?:--- )?FAIL\b[^\n]{0,300}|^[^\n]{0,200}?(?:\b\w*(?:Error|Exception|Panic)\b\s*[:(](?!\s{0,3}0\b)|\berror(?:\[\w+\]|\s+TS\d+)?:|\bfatal:|\bFAILED\b|\bpanicked at\b|"
    rf"No such file|not found|[Pp]ermission denied|{_ERRORS_NAMED})[^\n]{{0,300}}"
    r"|^npm (?:error|ERR!) (?:code )?E[A-Z]{3,}\b[^\n]{0,300}"
    r"|^[^\s:][^\n:]{0,80} : [^\n]{1,300}(?:\n[^\n]{1,200}){0,3}?(?=\nAt line:\d)",
    re.MULTILINE,
)
_NAMES_ERROR = re.compile(
    rf"FAIL|Error|error|Exception|Panic|fatal:|panicked|No such|not found|ermission|ERR!|At line|{_ERRORS_NAMED}"
)
"""What is in every line that names an error, which is found sooner."""
_COMPILER_ERROR = re.compile(
    r"^[^\s:(]{1,200}(?:\(\d{1,7},\d{1,7}\)|(?::\d{1,7}){1,2}): (?:fatal )?error\b"
    r"|^[ \t]{2,9}at [^\n]{1,300}:\d{1,7}:\d{1,7}\)?\s*\Z",
    re.MULTILINE,
)
"""What compilers print for each error, `a.ts(5,15): error TS2305`; a stack of calls at the end."""
_FAILURE_COUNT = re.compile(
    r"(?<![\w.])[1-9]\d{0,9} (?:\w{1,20} )?(?:fail(?:ed|ing|ures?)\b|errors?\b(?! \())|\b(?:Errors|Failed): [1-9]|\bERR!|\bError \d|"
    r"(?<!\d)[1-9]\d{0,9} ?[个個项項]?(?:测试|測試|用例)?(?:失败|失敗|错误|錯誤)",
)
"""How test runners and build tools sum up a failure: `1 failed`, `Found 3 errors`, `make: *** [all]
Error 2`."""
_HINT = re.compile(
    r"(?i)\s*+(?:hint:|help:|note:|please try another command|the output of the command was:|warn|npm warn|提示[：:]|at |file \"|[+>$] )"
    r"|.*(?:echo |complete log of this run)|.*?\ufffd[^\ufffd]*\ufffd"
)
"""How a line begins that warns, or says what to do about an error, where it arose or is logged, or
what is run or a script would say; or that nobody can read, its encoding taken for another."""
_ANY_WORD = re.compile(r"\w+")
_TELLS = re.compile(r"(?s).*?\w\W++\w.*[^:]\Z")
"""A line of several words that says more than that others follow."""
_CODE_ONLY = re.compile(
    r"(?:(?:command|process|tool|error) )?(?:(?:completed|finished|ended) with )?(?:exit|return)\w*(?: with)?(?: (?:code|status))?(?<!\d) ?\d+"
    r"|退出(?:码|状态码|代码) ?\d+",
    re.IGNORECASE,
)
"""The words of a line that says an exit code and nothing else, one blank between them."""
_RULE = re.compile(r"([=*~_-])\1{9,}+")
"""What runners draw beside a line of figures, as wide as the terminal."""
END_CHARS = 4_000
"""Characters at either end of a result in which errors are looked for; exit codes in 400."""


def read_exit_code(text: str) -> int | None:
    """Return the exit code that a result states: with its first words, at its end, or else at its
    beginning; None if it states none."""
    if opening := _OPENING_CODE.match(without_escapes(text[:OPENS])):
        return int(opening[1] or opening[2])
    for part in map(without_escapes, (text[-400:], text[:400])):
        if codes := _find_exit_codes(part):
            return int(codes[-1])
    return None


def looks_failed(text: str) -> bool:
    """Does the output of work (a build, a test, a push) say that it failed? For results of which no
    exit code and no API says it."""
    end = _RULE.sub(r"\1", without_escapes(text[-END_CHARS:]))
    return (
        is_failure(text)
        or bool(_FAILURE_COUNT.search(end[-400:]) or find_error_lines(end[-400:]))
        or bool(_COMPILER_ERROR.search(end))
    )


def has_failed(outcome: str) -> bool:
    """Does the outcome of a check say that it failed?"""
    return outcome.startswith(("failed", "error", "exit", "stopped", "nothing ran"))


def find_error_line(text: str) -> str:
    """Return the line that says what went wrong: the last one that names an error, rather one of
    several words, else the last one with more to say than an exit code. A hint is none."""
    end = without_escapes(text[-END_CHARS:])
    errors = find_error_lines(end) or find_error_lines(without_escapes(text[:END_CHARS]))
    rows = [row for row in end.splitlines() if any(map(str.isalnum, row))]
    rows = [row for row in rows if not (is_markup(row) or _HINT.match(row))]
    telling = [row for row in errors if _TELLS.match(row)] or errors
    line = telling[-1] if telling else rows[-1] if rows else ""
    return one_line(line.strip(), 240)


_MARKUP = re.compile(
    r"\s*+(?:</?\w{1,40}>(?:-?\d{1,10}</\w+>)?|Shell cwd was reset to .*|\(Bash completed with no output\)|\[(?:rerun: b|result-id: r)\d+\]"
    r"|\[(?:(?:Command finished|The command completed) with exit code|Python interpreter:|Current working directory:) [^\n]*\]"
    r"|<<<\w+ id=\"\w+\">>>)\s*+"
)


def is_markup(row: str) -> bool:
    """Is this line a tag around an output, or a client's word around it, such as an exit code?"""
    words = " ".join(_ANY_WORD.findall(row[:200]))
    return bool(_MARKUP.fullmatch(row) or _CODE_ONLY.fullmatch(words))


def find_error_lines(text: str) -> list[str]:
    """Return the lines that name an error."""
    rows = _ERROR_LINE.findall(text) if _NAMES_ERROR.search(text) else ()
    return [row for row in rows if not _HINT.match(row)]


def find_figures(text: str) -> str:
    """Return the last line with figures of a test run, if there is one, rather one of tests that
    ran: `cargo test` ends with a word on those of the documentation, of which there are none."""
    numbered = filter(_DIGIT.search, reversed(clip_scanned(text).split("\n")))
    rows = (row.strip().strip(_FRAME) for row in numbered)
    figures = (row for row in rows if len(row) < 300 and FIGURES.search(row))
    last = next(figures, "")
    ran = (row for row in chain((last,), figures) if not _RAN_NONE.search(row))
    return one_line(next(ran, last), 120)
