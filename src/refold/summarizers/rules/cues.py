"""Sentences that bind, and sentences that conclude: found by cue words, weighed by what else they hold.

The words that bind are those of `wording`, in nine languages."""

import re
from collections.abc import Iterable, Iterator

from refold.summarizers.rules.text import one_line, sentences
from refold.summarizers.rules.wording import BINDING

LONGEST = 300
"""Characters of a kept sentence; a longer one is cut."""
SHORTEST = 4
"""Bytes of a sentence that binds: `只读` may, `ok` may not."""

_CONCLUDES = re.compile(
    r"\b(?:decid\w+|decision|root cause|caused by|because|the (?:issue|problem|bug|reason|fix|solution|culprit) (?:is|was)|"
    r"turns out|found (?:that|the|it)|confirm\w*|conclu\w+|therefore|instead of|chose|choos\w+|will use|we use|switch\w* to|"
    r"agreed|fix(?:ed|es)|resolved|works? (?:now|because)|fails? (?:because|with)|important|note that|the key|"
    r"implemented|refactored|renamed|moved|replaced|all tests pass\w*|unable to|cannot|not (?:possible|permitted|allowed|supported)|"
    r"is (?:now|defined|located|stored|set|called)|successfully)\b"
    r"|决定|決定|结论|結論|原因|因为|因為|由于|根源|改用|采用|採用|选择|选用|确认|確認|发现|發現|修复|修復|解决|解決|最终|"
    r"注意|关键|關鍵|说明|表明|因此|所以|问题(?:是|在)|已(?:经|將|将)?(?:完成|实现|修改|更新|预订|取消|添加|删除)|无法|不支持|成功|推荐|建议"
    r"|最終|說明|問題(?:是|在)|已(?:經)?(?:完成|實現|修改|更新|預訂|取消|添加|刪除|新增)|無法|建議|推薦|選用",
    re.IGNORECASE,
)
_ENTITY = re.compile(
    r"`[^`\n]{2,80}`|\b\w+[_/.]\w+|\b[a-z]++[A-Z]\w*|\b[A-Z]{2}\w*\d|\d{2,}|「[^」\n]{1,40}」|“[^”\n]{1,40}”"
)
_PLAN = re.compile(r"^(?:let me|let's|i'll|i will|i need to|now (?:i|let)|next,? i|让我|我来|接下来)", re.IGNORECASE)


def constraints(text: str) -> Iterator[str]:
    """Sentences of a user's text that state a standing rule."""
    for sentence in sentences(text):
        long_enough = len(sentence.encode("utf-8", "replace")) >= SHORTEST
        if long_enough and not sentence.endswith(("?", "？")) and BINDING.within(sentence[: 2 * LONGEST]):
            yield one_line(sentence, LONGEST)


def conclusions(text: str, *, final: bool) -> Iterator[tuple[float, str]]:
    """Sentences of an assistant's text that decide or conclude, each with its weight; in a *final*
    text, one that ends a turn, they weigh 1 more. A question is none.
    """
    for sentence in sentences(text):
        if len(sentence.encode("utf-8", "replace")) >= 12 and not sentence.endswith(("?", "？", ":", "：")):
            found = weight(sentence)
            if found > 0:
                yield found + final, one_line(sentence, LONGEST)


def weight(sentence: str) -> float:
    """How much a sentence decides: its different cues, plus half a point for each of at most three
    entities (paths, names, numbers, quotes), less 2 where it only announces the next step. Without
    a cue 0.
    """
    head = sentence[: 2 * LONGEST]
    cues = len({cue.lower() for cue in _CONCLUDES.findall(head)})
    return cues and cues + min(3, len(_ENTITY.findall(head))) / 2 - 2 * bool(_PLAN.match(head))


def strongest(weighed: Iterable[tuple[float, str]], most: int) -> tuple[str, ...]:
    """The *most* weightiest sentences, each once, in the order in which they were said."""
    best: dict[str, tuple[float, int]] = {}
    for at, (weight, sentence) in enumerate(weighed):
        best[sentence] = max(best.get(sentence, (weight, at)), (weight, at))
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], -item[1][1]))[:most]
    return tuple(sentence for sentence, _ in sorted(ranked, key=lambda item: item[1][1]))
