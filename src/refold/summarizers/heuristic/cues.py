"""Sentences that bind, and sentences that conclude: found by cue words, weighed by what else they
hold.

The words that bind are those of `refold.summarizers.heuristic.lexicon`, in nine languages.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from refold.summarizers.heuristic.lexicon import BINDING, CORRECTING
from refold.text.clip import clip_scanned, one_line, sentences

LEAST_PROSE = 30
"""Characters of a sentence that tells something without a name; of a letter of Chinese three."""
MAX_SENTENCE = 300
"""Characters of a kept sentence; a longer one is cut."""
WRAPPED = 50
"""Characters from which on a line may have been broken because it was long."""
_STOPS = frozenset(".!?:;。！？：；")
MIN_SENTENCE = 4
"""Bytes of a sentence that binds: `只读` may, `ok` may not."""

_CONCLUDES = re.compile(
    r"\b(?:decid(?:ed|es)|decision|root cause|caused by|because|the (?:issue|problem|bug|reason|fix|solution|culprit) (?:is|was)|"
    r"turns out|found (?:that|the|it)|confirm(?:ed|s)|conclu(?:ded|des|sion)|therefore|instead of|chosen?|chooses|will use|we use|switch\w* to|"
    r"agreed|fix(?:ed|es)|resolved|works? (?:now|because)|fails? (?:because|with)|important|note that|the key|"
    r"implemented|refactored|renamed|moved|replaced|unable to|cannot|not (?:possible|permitted|allowed|supported)|"
    r"is (?:now|defined|located|stored|set|called)|successfully)\b"
    r"|决定|決定|结论|結論|原因|因为|因為|由于|根源|改用|采用|採用|选择|选用|确认|確認|发现|發現|修复|修復|解决|解決|最终|"
    r"注意|关键|關鍵|说明|表明|因此|所以|问题(?:是|在)|已(?:经|將|将)?(?:完成|实现|修改|更新|预订|取消|添加|删除)|无法|不支持|成功|推荐|建议"
    r"|最終|說明|問題(?:是|在)|已(?:經)?(?:完成|實現|修改|更新|預訂|取消|添加|刪除|新增)|無法|建議|推薦|選用",
    re.IGNORECASE,
)
_KANA = re.compile(r"[\u3041-\u30fa]")
"""Only Japanese has these: there the Chinese cues are parts of words that conclude nothing."""
_ENTITY = re.compile(
    r"`[^`\n]{2,80}`|\b\w+[_/.]\w+|\b[a-z]++[A-Z]\w*|\b[A-Z]{2}\w*\d|\d{2,}|「[^」\n]{1,40}」|“[^”\n]{1,40}”"
)
_PLAN = re.compile(
    r"^(?:let me|let's|i'll|i will|i need to|now (?:i|let)|next,? i|让我|我来|接下来)",
    re.IGNORECASE,
)


_HEADING = re.compile(r"\s{0,3}#{1,6}\s|\s{0,3}\*\*[^*\n]{1,100}\*\*\s{0,8}:?\s{0,8}\Z")
_COMMENT = re.compile(r"\s{0,40}(?://|/\*|\*/|<!--|#(?:!|\s{0,8}(?:TODO|FIXME|NOTE)\b))")
_QUESTION = re.compile(
    r"(?:and |but |so )?(?:why|how|who|where)\b(?! (?:you|we)\b)[^:：]*+\Z"
    r"|(?:那|可是|但)?(?:为什么|為什麼|为何|為何|怎么|怎麼)[^:：]*+\Z|.*[吗嗎?？][。！!]?\Z",
    re.IGNORECASE | re.DOTALL,
)
"""Many leave out the mark."""
_FRAGMENT = re.compile(r"/[\w:-]*")
_GUESS = re.compile(
    r"\b(?:maybe|perhaps|probably|possibly|might|may be|could be|I (?:think|guess|suspect|assume)|seems?|likely|my guess)\b"
    r"|可能|也许|也許|大概|似乎|好像|怀疑|懷疑|估计|估計|猜",
    re.IGNORECASE,
)
_STATUS = re.compile(
    r"\W{0,8}(?:(?:all|the|now|\d+)\s{1,4}){0,3}(?:unit |integration )?(?:tests?|checks?|builds?|lint\w{0,12}|suite)\s{1,4}"
    r"(?:(?:are|is|have|has|all|now|still)\s{1,4}){0,3}(?:pass\w{0,12}|green|succe\w{1,12}|ok|clean)(?:\s{1,4}(?:now|again|successfully))?\W{0,8}\Z"
    r"|(?:所有|全部)?(?:测试|測試|检查|檢查|构建|構建)(?:都|均|全部)?(?:已)?(?:通过|通過|成功)\W{0,8}\Z",
    re.IGNORECASE,
)
"""A line that says how things stand: the next run says it anew."""


def without_pasted(text: str) -> str:
    """Return what a user typed rather than pasted: no fenced blocks and no quotes. A style guide or
    another's orders in those are no rule for this work by themselves."""
    return "\n".join(
        line for line in _lines_outside_fences(text) if not line.lstrip().startswith(">")
    )


def _prose_of(text: str) -> str:
    """Return a model's text without fenced code, comments and headings."""
    return "\n".join(
        line
        for line in _lines_outside_fences(text)
        if not _HEADING.match(line) and not _COMMENT.match(line)
    )


def _lines_outside_fences(text: str) -> Iterator[str]:
    """Yield the lines outside of fences; one that never closes fences nothing."""
    inside = list[str]()
    fence = ""
    for line in text.splitlines():
        mark = line.lstrip()[:3]
        if fence:
            inside.append(line)
            if mark == fence:
                fence, inside = "", []
        elif mark in ("```", "~~~"):
            fence, inside = mark, [line]
        else:
            yield line
    yield from inside


def _unwrap_lines(text: str) -> str:
    """Put a line behind the one before if that is long and ends in mid-sentence: a rule does not
    end where somebody's editor broke the line."""
    pieces, is_open = list[str](), False
    for line in text.splitlines():
        begins = line.lstrip()[:1]
        pieces.append(f" {line.strip()}" if is_open and begins.islower() else f"\n{line.rstrip()}")
        is_open = len(line) >= WRAPPED and line.rstrip()[-1:] not in _STOPS
    return "".join(pieces)


def find_constraints(text: str) -> Iterator[str]:
    """Yield the sentences of a user's text that state a standing rule."""
    for sentence in sentences(_unwrap_lines(text)):
        if (
            len(sentence.encode("utf-8", "replace")) >= MIN_SENTENCE
            and not _QUESTION.match(sentence)
            and BINDING.is_in(sentence[: 2 * MAX_SENTENCE])
        ):
            yield one_line(sentence, MAX_SENTENCE)


def is_fragment(text: str) -> bool:
    """Is this nothing but a client's command, or its beginning (`/the`)? Nobody asks anything by
    it."""
    return bool(_FRAGMENT.fullmatch(text))


def find_corrections(text: str) -> Iterator[str]:
    """Yield the two sentences with which a user's text takes back what was asked before it, if it
    does: what was asked must not stand without them."""
    opening = list(islice(sentences(_unwrap_lines(without_pasted(text))), 2))
    if opening and CORRECTING.is_in(opening[0][: 2 * MAX_SENTENCE]):
        yield from (one_line(s, MAX_SENTENCE) for s in opening if not s.endswith(("?", "？")))


def find_conclusions(text: str, *, final: bool) -> Iterator[tuple[float, str]]:
    """Yield the sentences of an assistant's text that decide or conclude, each with its weight; in
    a *final* text, one that ends a turn, they weigh 1 more; beside a call half as much if
    they name nothing: most of these think aloud. A question is none."""
    for sentence in sentences(_prose_of(clip_scanned(text))):
        if len(sentence.encode("utf-8", "replace")) >= 12 and not sentence.endswith(
            ("?", "？", ":", "：")
        ):
            points = 0.0 if _STATUS.match(sentence) else weigh_conclusion(sentence)
            if points > 0:
                share = 1.0 if final or _ENTITY.search(sentence) else 0.5
                yield points * share + final, one_line(sentence, MAX_SENTENCE)


def find_notes(text: str) -> Iterator[str]:
    """Yield the sentences of an assistant's text that tell something, rather than ask or announce
    what comes next."""
    for sentence in sentences(_prose_of(clip_scanned(text))):
        if sentence.endswith(("?", "？", ":", "：")) or _PLAN.match(sentence):
            continue
        words = _ENTITY.sub("", sentence)
        is_about_name = words != sentence and any(map(str.isalpha, words))
        if is_about_name or len(sentence.encode("utf-8", "replace")) >= LEAST_PROSE:
            yield one_line(sentence, MAX_SENTENCE)


def weigh_conclusion(sentence: str) -> float:
    """Return how much a sentence decides: a point for each different cue, half a point for each of
    at most three entities (paths, names, numbers, quotes), less 2 if it only announces the next
    step or guesses. Without a cue 0."""
    head = sentence[: 2 * MAX_SENTENCE]
    is_japanese = bool(_KANA.search(head))
    cues = len({c.lower() for c in _CONCLUDES.findall(head) if c.isascii() or not is_japanese})
    return cues and cues + min(3, len(_ENTITY.findall(head))) / 2 - 2 * bool(
        _PLAN.match(head) or _GUESS.search(head)
    )


def strongest(weighed: Iterable[tuple[float, str]], most: int) -> tuple[str, ...]:
    """Return the *most* weightiest sentences, each once, in the order in which they were said."""
    best: dict[str, tuple[float, int]] = {}
    for at, (weight, sentence) in enumerate(weighed):
        best[sentence] = max(best.get(sentence, (weight, at)), (weight, at))
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], -item[1][1]))[:most]
    return tuple(sentence for sentence, _ in sorted(ranked, key=lambda item: item[1][1]))
