"""What binds, what matters, what was concluded and what somebody prefers, known by words (of each
language in words.toml); and the sentences that say it, for rule summaries, `Emphasis` and
`RuleExtractor`."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from heapq import nlargest
from itertools import chain, compress, dropwhile, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from refold.speakers.carriers import split_place
from refold.speakers.segments import read_typed
from refold.summarizers.heuristic.identifiers import find_names
from refold.text.clip import TOP, Row, RowKind, clip_scanned, iter_rows, one_line, split_line
from refold.text.plain import count_bytes, has_colon, is_question

WORDS_PATH = Path(__file__).with_name("words.toml")
_KANA = re.compile(r"[\u3041-\u30fa]")
_HAN = re.compile(r"[\u4e00-\u9fff]")


@cache
def read_words() -> Mapping[str, Mapping[str, Any]]:
    """Return the words of each language by their kind, as the file has them."""
    return tomllib.loads(WORDS_PATH.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class WordPattern:
    """Words of these *kinds*, of all languages, as two patterns that are compiled at first need."""

    kinds: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        """Is one of the words in *text*?"""
        text = text.lower()  # three times as fast as a pattern that ignores case
        return bool(self._spaced.search(text)) or any(self._iter_dense(text))

    def find_all(self, text: str) -> list[str]:
        """Return the words that are in *text*, in lower case."""
        text = text.lower()
        return [match[0] for match in (*self._spaced.finditer(text), *self._iter_dense(text))]

    def is_opening(self, text: str) -> bool:
        """Does one of the words open *text*, behind a word at most (`please`, `you`, 请)?"""
        text = text.lower()
        spaced, dense = self._spaced.search(text), next(self._iter_dense(text), None)
        is_opened = bool(spaced and text.count(" ", 0, spaced.start()) <= 1)
        return is_opened or bool(dense and dense.start() <= 2)

    def is_closing(self, text: str) -> bool:
        """Does *text* end in one of the words?"""
        text = text.lower()
        matches = (*self._spaced.finditer(text), *self._iter_dense(text))
        return any(match.end() == len(text) for match in matches)

    def _iter_dense(self, text: str) -> Iterator[re.Match[str]]:
        """Yield words of languages that need no spaces around one. Those of Chinese are in Japanese
        parts of words that say something else: 不要 is what is not needed."""
        if text.isascii():
            return iter(())
        head = text[: 2 * MAX_SENTENCE]
        kana = len(_KANA.findall(head))
        is_japanese = kana and 3 * kana >= len(_HAN.findall(head))
        return (self._japanese if is_japanese else self._dense).finditer(text)

    @cached_property
    def _spaced(self) -> re.Pattern[str]:
        words = self._words(name for name, kinds in read_words().items() if "spaced" not in kinds)
        return re.compile(rf"(?<!\w)(?:(?<![/-])|(?<=^-)|(?<=\bdo/))(?:{words})(?!\w)")

    @cached_property
    def _dense(self) -> re.Pattern[str]:
        return re.compile(self._words(("zh", "ko")))

    @cached_property
    def _japanese(self) -> re.Pattern[str]:
        return re.compile(self._words(("ja",)))

    def _words(self, languages: Iterable[str]) -> str:
        lists = (read_words()[name].get(kind, ()) for name in languages for kind in self.kinds)
        # In lower case, but for what stands behind a backslash.
        pattern = "|".join(chain.from_iterable(lists))
        return re.sub(r"(?<!\\)\w", lambda match: match[0].lower(), pattern)


BINDING = WordPattern(("strict", "binds"))
"""Words of standing constraints."""
STRESSING = WordPattern(("strict", "stresses"))
"""Words of emphasis."""
CORRECTING = WordPattern(("corrects",))
"""Words that take back an earlier request."""
NEGATING = WordPattern(("negates",))
"""Words that turn what they stand before."""
TURNING = WordPattern(("strict", "binds", "negates"))
"""Words without which what they stand above may say the opposite, or bind nobody."""
OFFERING = WordPattern(("offers",))
"""Words of what is not decided yet."""
LISTING = WordPattern(("offers", "options"))
"""Words above what is not decided yet."""
SETTLING = WordPattern(("settles",))
"""Words before, or above, what is decided."""
FAULTING = WordPattern(("faults",))
"""Words of what holds no longer once it is mended."""
DECIDING = WordPattern(("decides",))
"""Words that choose a way, or name a cause."""
REASONING = WordPattern(("reasons",))
"""Words that give a reason, of what they name."""
GUESSING = WordPattern(("guesses",))
"""Words of what may be so."""
PLANNING = WordPattern(("plans",))
"""Words of what is done next."""
ANNOUNCING = WordPattern(("plans", "steps"))
"""The same, and how such a sentence may begin."""
HANDING = WordPattern(("hands",))
"""Words with which a model leaves something to a person."""
WORKING = WordPattern(("works",))
"""How a person begins who has tried what was done."""
REFERRING = WordPattern(("refers",))
"""How a sentence begins that may say nothing without the one before it."""
CHANGING = WordPattern(("changes",))
"""Words of a report of what was changed."""
PREFERRING = WordPattern(("prefers",))
"""Words of preferences."""


# --- sentences that bind or conclude --------------------------------------------------------------

LEAST_PROSE = 30
"""Characters of a sentence that tells something without a name; of a letter of Chinese three."""
MAX_SENTENCE = 300
"""Characters of a kept sentence; a longer one is cut."""
MOST_DECIDED = 2
"""Conclusions that are taken of what a model thinks before one call."""
SETTLED = 3.0
"""What it counts for that a sentence is said to be agreed, beside a cue's 1."""
MOST_LABEL = 30
"""Characters of what stands before a colon."""
MIN_SENTENCE = 4
"""Bytes of a sentence that binds: `只读` may, `ok` may not."""
NAMED = re.compile(
    r"(?<![\w-])[\w-]{1,80}+\.[a-z]\w{0,5}\b|\b(?:_*+[a-z\d]++_|_*+[a-z]++[A-Z]|[A-Z]++[a-z]++[A-Z])\w*+"
)
"""A file, or a name of several words."""

_CODE = re.compile(r"`[^`\n]{1,80}`")
_ENTITY = re.compile(
    r"`[^`\n]{2,80}`|\b\w+[_/.]\w+|\b[a-z]++[A-Z]\w*|\b[A-Z]{2}\w*\d|\d{2,}|「[^」\n]{1,40}」|“[^”\n]{1,40}”"
)
_QUOTATION = re.compile(r"\"[^\"]{20,}+\"?")
"""What another text says."""
_STRESS = re.compile(r"\*\*|__")
_GOES_ON = re.compile(r"[；;]\Z|(?:^|[\s:：])\d{1,2}\.\Z")
"""How a piece of a list in one line ends: before the next number, or with half a stop."""
_COMMENT = re.compile(r"\s{0,40}(?://|/\*|\*/|<!--|#(?:!|\s{0,8}(?:TODO|FIXME|NOTE)\b))")
_NO_RULE = re.compile(
    r"(?i)\A(?:and |but |so )?(?:why|how|who|where)\b(?! (?:you|we)\b)[^:：]*+\Z"
    r"|\A(?:那|可是|但)?(?:为什么|為什麼|为何|為何|怎么|怎麼)[^:：]*+\Z|[吗嗎么麼?？][。！!]?\Z"
    r"|(?:error|exception|failed): |\A\s{0,40}\d{1,6}:\d{1,6}\s"
    r"|\A(?:(?:that|this|it|you|he|she|they) )?must(?: have been|['’]ve) |(?<!言い|いし)(?:ました|でした)[。！…]*\Z"
)
"""A question, of which many leave out the mark; an error that a program reports; a guess at what
was, and in Japanese what was."""
_DATA = re.compile(r"\s{0,40}(?:(?:[\w ]{1,30}: ?)?[\[{]{1,9}\s?\"|\"[\w.$-]{1,40}\" ?:)")
"""How a line of JSON begins, behind a label or by itself; or one member of it."""
_OPTION = re.compile(
    r"(?i)\W{0,6}(?:(?:option|approach|variante?|opci[oó]n|opção|вариант|방안|案|方案|选项|選項)\s?)?"
    r"(?:[A-E]|[1-9](?=[)）])|(?<=[案项項])[1-9一二三四五甲乙丙])\W{0,3}[)）.:：—–]"
)
"""How one of several ways begins: `A) `, `Option B: `, `方案一：`."""
_VOID = re.compile(
    r"(?i)\W{0,4}[✅✔☑]|\W{0,8}(?:(?:(?:\w{1,12},? )?(?:if|unless)|or|falls|wenn|если|si|se|s['’]il)\b|如果|若|假如|要是|或|もし|만약)|"
    r"\W{0,8}(?:(?:all|the|now|\d+)\s{1,4}){0,3}(?:unit |integration )?(?:tests?|checks?|builds?|lint\w{0,12}|suite)\s{1,4}"
    r"(?:(?:are|is|have|has|all|now|still)\s{1,4}){0,3}(?:pass\w{0,12}|green|succe\w{1,12}|ok|clean)(?:\s{1,4}(?:now|again|successfully))?\W{0,8}\Z"
    r"|(?:所有|全部)?(?:测试|測試|检查|檢查|构建|構建)(?:都|均|全部)?(?:已)?(?:通过|通過|成功)\W{0,8}\Z"
    r"|\W{0,8}(?:(?:I|we)(?:['’]ve| have)? |now |also ){0,3}(?:found|identified|located|understand|see|know) the (?:\w{1,12} ){0,2}(?:causes?|problems?|issues?|bugs?)(?: of the \w{1,12})?\W{0,8}\Z"
    r"|\W{0,8}(?:我|已经?|已經)*找到(?:了|根本|真正|问题|問題|根因|原因|的)+\W{0,8}\Z"
)
"""What is ticked off, or would be if something else was; how things stand, which the next run says
anew; and that a cause is known, without a word of it."""
_ASKED = re.compile(r"[?？][*_\s]")
"""A question before what answers it: `**Shall we?** I would.`"""


class Statement(NamedTuple):
    """A sentence, or a line of which no part says the same without the lines above it."""

    kind: RowKind
    text: str
    lead: str
    """The lines above it that turn it: `Do NOT: `."""
    is_led: bool
    """Do these bind whatever they introduce?"""
    is_head: bool
    """Does it say nothing but what stands in those that it introduces?"""
    above: tuple[Row, ...] = ()
    line: str = ""
    """All of its line, with its list mark."""
    at: int = 0
    """The position of that."""

    @property
    def words(self) -> str:
        """What it says, wherever it stands."""
        return self.lead + self.text


class _Head(NamedTuple):
    """What a line says of those that it introduces."""

    words: str
    is_turning: bool
    """Would they say something else without it?"""
    is_binding: bool
    """Does it bind whatever they are?"""
    is_bare: bool
    """Does it bind nobody by itself?"""


def _read_head(row: Row) -> _Head:
    *_, last = ("", *split_line(_STRESS.sub("", row.text)))
    words = one_line(last.rstrip(":：.。 "), MAX_SENTENCE)
    is_wide = east_asian_width(words[-1:] or " ") in "WF"
    is_turning = TURNING.is_in(words)  # else none of those words is, of which the others are some
    is_bare = is_turning and BINDING.is_closing(words)
    is_binding = is_bare or (is_turning and row.is_open and BINDING.is_opening(words))
    if row.kind == "columns":  # that of what is required binds nobody
        is_binding = is_binding and NEGATING.is_in(words)
    if row.depth == TOP:  # a title may prefer
        is_turning = is_turning and NEGATING.is_in(words)
    return _Head(words + ("：" if is_wide else ": "), is_turning, is_binding, is_bare)


def find_leads(lines: Sequence[str]) -> dict[int, str]:
    """Return what turns a line, of those above it, by the position of the line."""
    read = cache(_read_head)
    rows = ((row.at, _join_turning(map(read, heads))) for row, heads in iter_rows(lines) if heads)
    return {at: lead for at, lead in rows if lead}


def _join_turning(heads: Iterable[_Head]) -> str:
    return "".join(head.words for head in dropwhile(lambda head: not head.is_turning, heads))


def iter_statements(text: str, *, is_rule: bool = False) -> Iterator[Statement]:
    """Yield what a text says, sentence by sentence, with the lines above that turn it; what these
    introduce is not parted, for a sentence in its middle is turned, too. Of a list in which rules
    are looked for (*is_rule*), the line above it comes along whatever it says."""
    lines = clip_scanned(text).split("\n")
    read, rows = cache(_read_head), [*iter_rows(lines)]
    for (row, above), behind in zip_longest(rows, rows[1:]):
        lead = _join_turning(map(read, above)) if above else ""
        is_led = _is_led(row, above, read)
        is_whole = lead and (row.kind != "text" or len(row.text) <= MAX_SENTENCE)
        texts = [row.text] if is_whole else [*_iter_parts(row.text)]
        if is_rule and not lead and row.kind in ("item", "row") and above and above[-1].is_open:
            lead = read(above[-1]).words
        is_head = row.is_open and read(row).is_bare
        if behind and row in behind[1] and behind[0].kind != "code":
            is_head |= _is_led(behind[0], behind[1], read) or (is_led and row.is_open)
        for at, part in enumerate(texts, 1 - len(texts)):
            is_only_head, line = is_head and at == 0, lines[row.at]
            yield Statement(row.kind, part, lead, is_led, is_only_head, above, line, row.at)


def iter_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text but for code, each with the lines above that turn it."""
    for statement in iter_statements(text):
        if statement.kind != "code" and not statement.is_head:
            yield statement.words


def _is_led(row: Row, above: Sequence[Row], read: Callable[[Row], _Head]) -> bool:
    """Do lines *above* a line bind it whatever it says? A heading binds what is listed under it,
    but no list that a text under it introduces: there people go on."""
    for head in reversed(above):
        if read(head).is_binding:
            return row.kind != "text" or head.kind != "heading"
        if head.kind == "text":
            return False
    return False


def _iter_parts(line: str) -> Iterator[str]:
    """Yield the sentences of a line; what it lists behind words that bind stays with them."""
    listed = list[str]()
    for sentence in split_line(line):
        if _GOES_ON.search(sentence[-4:]) and (listed or _begins_list(sentence)):
            listed.append(sentence if sentence.endswith("；") else f"{sentence} ")
        else:
            yield "".join((*listed, sentence))
            listed = []
    if listed:
        yield "".join(listed).rstrip()


def _begins_list(sentence: str) -> bool:
    head = sentence.replace("：", ":").partition(":")[0]
    return head != sentence and (BINDING.is_opening(head) or BINDING.is_closing(head))


def find_constraints(text: str) -> Iterator[str]:
    """Yield the sentences of a user's text that state a standing rule, with what introduces them:
    `Do NOT: touch the database`; one that introduces others, with those that are no rules by
    themselves, or if all are not at all. What was pasted states none."""
    place, typed = split_place(text)
    statements = [*iter_statements(read_typed(_without_hunks(typed)), is_rule=True)]
    rules, listed = [*map(_is_rule, statements)], dict[int, list[str]]()
    for statement, is_rule in zip(statements, rules, strict=True):
        if statement.above and not is_rule:
            words = "" if statement.kind == "code" else statement.text
            listed.setdefault(statement.above[-1].at, []).append(words)
    for statement in compress(statements, rules):
        is_open = has_colon(statement.text)
        if statement.at in listed or statement.is_led or not is_open:
            items = "; ".join(filter(None, listed.get(statement.at, ()))) if is_open else ""
            yield one_line(f"{place}{statement.words} {items}".replace("： ", "："), MAX_SENTENCE)


_SIDES = frozenset(["-", "+", " ", "\\", ""])
"""How a line of a hunk begins; an empty one is an unchanged one without its blank."""
_HUNK = re.compile(r"@@ -\d{1,7}(?:,(\d{1,7}))? \+\d{1,7}(?:,(\d{1,7}))? @@")


def _without_hunks(text: str) -> str:
    """Return a text without the lines of a diff's hunks: who shows one demands nothing by what its
    comments and documents say. A hunk says how many lines it has of either side."""
    rows, old, new = list[str](), 0, 0
    for line in text.split("\n") if "@@ -" in text else ():
        hunk, is_inside = _HUNK.match(line), max(old, new) > 0 and line[:1] in _SIDES
        if hunk:
            old, new = (int(count or 1) for count in hunk.groups())
        elif is_inside:
            old, new = old - (line[:1] in "- "), new - (line[:1] in "+ ")
        else:
            old, new = 0, 0
        rows.append("" if hunk or is_inside else line)
    return "\n".join(rows) if rows else text


def _is_rule(statement: Statement) -> bool:
    own, size = statement.text, count_bytes(statement.words)
    if statement.is_head or statement.kind in ("code", "columns") or _DATA.match(statement.line):
        return False
    if size < MIN_SENTENCE:
        return False
    return statement.is_led or (is_binding(own) and not _NO_RULE.search(own))


_QUOTED_CODE = re.compile(r"`([^`\n]{1,80})`")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]+")


def find_topics(text: str) -> set[str]:
    """Return what a sentence is about, in lower case: what it quotes as code, its identifiers, and
    among words of another script the Latin ones (`lint` of `lint 不用跑了`)."""
    topics = {*_QUOTED_CODE.findall(text), *find_names(text)}
    if sum(map(str.isascii, text)) < len(text) / 2:
        topics.update(_LATIN.findall(text))
    return {topic.lower().rstrip(".-") for topic in topics}


def find_corrections(text: str, topics: AbstractSet[str] | None = None) -> Iterator[str]:
    """Yield the two sentences with which a user's text takes back what was asked, if it does; with
    *topics* those that are about one of these."""
    place, typed = split_place(text)
    opening = list(islice(iter_sentences(read_typed(typed)), 2))
    if opening and CORRECTING.is_in(opening[0][: 2 * MAX_SENTENCE]):
        for sentence in opening:
            is_meant = topics is None or not topics.isdisjoint(find_topics(sentence))
            if is_meant and not is_question(sentence):
                yield one_line(place + sentence, MAX_SENTENCE)


def is_binding(text: str) -> bool:
    """Is a standing rule in it, by its words?"""
    return _is_in_binding(text[: 2 * MAX_SENTENCE])


@lru_cache(maxsize=10_000)
def _is_in_binding(text: str) -> bool:
    """Ask once for each sentence: each summary reads those of all requests several times."""
    return BINDING.is_in(text)


def _iter_prose(text: str) -> Iterator[Statement]:
    """Yield the sentences of a model's text but for code, comments and headings."""
    for statement in iter_statements(text):
        if statement.kind in ("text", "item", "row") and not _COMMENT.match(statement.text):
            yield statement


def find_conclusions(text: str, *, final: bool, worked: bool = True) -> Iterator[tuple[float, str]]:
    """Yield the sentences of an assistant's text that decide or conclude, each with its weight; in
    a *final* text they weigh 1 more; beside a call half as much if they name nothing. A question is
    none, nor is what is left open or quoted, a report of what was done, or a reason, unless it ends
    a turn in which the model *worked*. What is said to be agreed weighs `SETTLED` more."""
    settles = cache(_settles)
    for statement in _iter_prose(text):
        sentence = statement.words
        is_open = is_question(sentence) or has_colon(sentence)
        if count_bytes(sentence) >= 12 and not is_open:
            is_settled = _is_settled(statement, settles)
            weight = weigh_conclusion(statement.text, lead=statement.lead, worked=worked and final)
            points = max(0.0, weight) + is_settled * SETTLED
            is_offer = points > 0 and not is_settled and _is_offer(statement)
            if points > 0 and not (is_offer or _VOID.match(sentence)):
                share = 1.0 if final or _ENTITY.search(sentence) else 0.5
                yield points * share + final, one_line(sentence, MAX_SENTENCE)


def find_decided(text: str, *, final: bool, worked: bool = True) -> list[tuple[float, str]]:
    """Return the conclusions of an assistant's text; of one beside a call those that decide most,
    in order."""
    weighed = list(find_conclusions(text, final=final, worked=worked))
    heaviest = nlargest(MOST_DECIDED, weighed)
    return weighed if final else [pair for pair in weighed if pair in heaviest]


def finds_fault(sentence: str) -> bool:
    """Does a sentence say what is wrong, rather than what is agreed?"""
    return FAULTING.is_in(sentence) and not SETTLING.is_in(sentence)


def _is_settled(statement: Statement, settles: Callable[[Row], bool | None]) -> bool:
    """Is it said to be agreed, by its first words (`Agreed: …`) or by what introduces it?"""
    label, colon, _ = statement.text[:MOST_LABEL].replace("：", ":").partition(":")
    if colon and SETTLING.is_in(label) and not OFFERING.is_in(label):
        return True
    answers = [is_agreed for is_agreed in map(settles, statement.above) if is_agreed is not None]
    return bool(answers) and answers[-1]


def _settles(head: Row) -> bool | None:
    """Does a line, or a cell of it, begin or end with what says that something is agreed? None if
    it says neither that nor that one may choose."""
    if LISTING.is_in(head.text):
        return False
    text = _STRESS.sub("", head.text).rstrip(":：。. ")
    cells = [cell.strip() for cell in _CODE.sub("", text).split("|")]
    ends = any(SETTLING.is_opening(cell) or SETTLING.is_closing(cell) for cell in cells)
    return (ends and not is_question(text)) or None


def _is_offer(statement: Statement) -> bool:
    """Does it say what one may choose, or what somebody shall decide? Of a table that tells of
    nothing decided each row is one way of several."""
    heads = (head.text.rstrip(":：*_ ") for head in statement.above)
    return (
        statement.kind == "row"
        or statement.line.lstrip()[:1] == ">"
        or bool(_OPTION.match(statement.line))
        or OFFERING.is_in(statement.text)
        or bool(_ASKED.search(statement.text))
        or (statement.text.endswith(("!", "！")) and not _ENTITY.search(statement.text))
        or any(is_question(head) or LISTING.is_in(head) for head in heads)
    )


def find_notes(text: str) -> Iterator[str]:
    """Yield the sentences of an assistant's text that tell something, neither ask nor announce."""
    for statement in _iter_prose(text):
        sentence = statement.words
        is_plan = PLANNING.is_in(sentence[: 2 * MAX_SENTENCE])
        if is_question(sentence) or has_colon(sentence) or is_plan:
            continue
        words = _ENTITY.sub("", sentence)
        is_about_name = words != sentence and any(map(str.isalpha, words))
        if is_about_name or count_bytes(sentence) >= LEAST_PROSE:
            yield one_line(sentence, MAX_SENTENCE)


def find_announced(text: str) -> str:
    """Return what a model announced last, beside a call; empty if it announced nothing."""
    announced = [row for row in iter_sentences(text) if ANNOUNCING.is_in(row[:MAX_SENTENCE])]
    return one_line(announced[-1], 200) if announced else ""


def leans_on(sentence: str) -> bool:
    """Does a sentence of the model announce what comes, refer to the one before it, or leave
    something to a person?"""
    head = sentence[:MAX_SENTENCE]
    return any(words.is_in(head) for words in (ANNOUNCING, HANDING, REFERRING))


def weigh_conclusion(sentence: str, *, lead: str = "", worked: bool = True) -> float:
    """Return how much a sentence concludes: a point for each different cue that decides, or, where
    the model *worked*, gives a reason for what it names; half a point for each of at most three
    entities (paths, names, numbers, quotes), less 2 if it only announces the next step or, with the
    *lead* above it, guesses. Without a cue 0. In Japanese the Chinese cues conclude nothing."""
    head = _QUOTATION.sub("", sentence[: 2 * MAX_SENTENCE])
    words = _STRESS.sub("", _CODE.sub("", head))
    decides, reasons = DECIDING.find_all(words), REASONING.find_all(words) if worked else []
    entities = len(_ENTITY.findall(head)) if decides or reasons else 0
    matches = decides + (reasons if entities else [])
    cues = set(matches)
    is_open = cues and (PLANNING.is_in(head) or GUESSING.is_in(lead + head))
    return len(cues) and len(cues) + min(3, entities) / 2 - 2 * bool(is_open)


def cut_words(text: str, size: int) -> str:
    """Return *text*, or of one of more than *size* bytes the words at its beginning."""
    if count_bytes(text) <= size:
        return text
    cut = text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
    return cut.rpartition(" ")[0] or cut


LOGGED = r"^[ \t]{0,20}- \[(?:(?:VERBOSE|DEBUG|LOG|INFO|WARNING)\] [^\n]*+|ERROR\] [^\n]*\.\.\.)$"
"""What the scripts of a web page print, in the list that tools show before the page itself; its
errors may be of the work, if the tool did not cut them."""
_HANDLES = re.compile(
    rf" \[(?:ref|cursor)=\w{{1,12}}\]|{LOGGED}|^ {{0,200}}- /url: (?!https?:).*+$", re.MULTILINE
)
_LONG_RUN = re.compile(r"(?<=[\w/])\?[^\s\"'<>)]{120,}|(?<![\w/+=~%.-])[\w/+=~%.-]{200,}", re.ASCII)


def without_handles(text: str) -> str:
    """Return a text without what no later one has: of a snapshot of a web page the names of its
    elements, where its links lead on its own site, and what its scripts print; and without long
    runs of letters, such as what an address carries of a visit."""
    return _LONG_RUN.sub("…", _HANDLES.sub("", text))
