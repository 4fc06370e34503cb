"""Find constraints, conclusions, preferences and other kinds of sentences by the words of each
language in words.toml, for rule summaries, `Emphasis` and `RuleExtractor`."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from heapq import nlargest
from itertools import chain, compress, dropwhile, islice, takewhile, zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from refold.speakers.carriers import split_marker
from refold.speakers.segments import read_typed
from refold.summarizers.heuristic.identifiers import find_names
from refold.text.clip import TOP, Row, RowKind, clip_scanned, iter_rows, one_line, split_line
from refold.text.plain import count_bytes, has_colon, is_question

WORDS_PATH = Path(__file__).with_name("words.toml")
_KANA = re.compile(r"[\u3041-\u30fa]")
_HAN = re.compile(r"[\u4e00-\u9fff]")


@cache
def read_words() -> Mapping[str, Mapping[str, Any]]:
    """Return the words of each language by kind, as in the file."""
    return tomllib.loads(WORDS_PATH.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class WordPattern:
    """Words of these *kinds* in all languages, as regexes that are compiled on first use."""

    kinds: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        """Return whether one of the words is in *text*."""
        text = text.lower()  # three times as fast as a pattern that ignores case
        return bool(self._spaced.search(text)) or any(self._iter_dense(text))

    def find_all(self, text: str) -> list[str]:
        """Return the words found in *text*, in lower case."""
        text = text.lower()
        return [match[0] for match in (*self._spaced.finditer(text), *self._iter_dense(text))]

    def is_opening(self, text: str) -> bool:
        """Return whether *text* opens with one of the words, after at most one other (`please`)."""
        text = text.lower()
        spaced, dense = self._spaced.search(text), next(self._iter_dense(text), None)
        is_opened = bool(spaced and text.count(" ", 0, spaced.start()) <= 1)
        return is_opened or bool(dense and dense.start() <= 2)

    def is_closing(self, text: str) -> bool:
        """Return whether *text* ends with one of the words."""
        text = text.lower()
        matches = (*self._spaced.finditer(text), *self._iter_dense(text))
        return any(match.end() == len(text) for match in matches)

    def _iter_dense(self, text: str) -> Iterator[re.Match[str]]:
        """Yield matches in languages written without spaces. Japanese text is searched for Japanese
        words only, because Chinese words mean something else in it: 不要 is "not needed"."""
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
        # In lower case, except characters after a backslash.
        pattern = "|".join(chain.from_iterable(lists))
        return re.sub(r"(?<!\\)\w", lambda match: match[0].lower(), pattern)


BINDING = WordPattern(("strict", "binds"))
"""Words of standing constraints."""
STRESSING = WordPattern(("strict", "stresses"))
"""Words of emphasis."""
CORRECTING = WordPattern(("corrects",))
"""Words that take back an earlier request."""
NEGATING = WordPattern(("negates",))
"""Words that negate what follows them."""
REVERSING_OR_BINDING = WordPattern(("strict", "binds", "negates"))
"""Words of lines that may reverse the meaning of the lines below them, or make them binding."""
OFFERING = WordPattern(("offers",))
"""Words that leave something undecided."""
OPTION_HEADS = WordPattern(("offers", "options"))
"""Words of lines above options that are not decided yet."""
AGREEMENT_WORDS = WordPattern(("settles",))
"""Words before or above decisions."""
FAULTING = WordPattern(("faults",))
"""Words for faults, which no longer hold once they are fixed."""
DECIDING = WordPattern(("decides",))
"""Words that choose an approach or name a cause."""
REASONING = WordPattern(("reasons",))
"""Words that give a reason for something they name."""
GUESSING = WordPattern(("guesses",))
"""Words of guesses."""
PLANNING = WordPattern(("plans",))
"""Words that announce the next step."""
ANNOUNCING = WordPattern(("plans", "steps"))
"""The same, and words that may begin such a sentence."""
HANDOVER_WORDS = WordPattern(("hands",))
"""Words with which a model leaves something to a person."""
WORKING = WordPattern(("works",))
"""Words at the beginning of a message from a person who tried the result."""
REFERRING = WordPattern(("refers",))
"""Words at the beginning of a sentence that may be unclear without the one before it."""
CHANGING = WordPattern(("changes",))
"""Words that report changes."""
PREFERRING = WordPattern(("prefers",))
"""Words of preferences."""
WISHING = WordPattern(("wishes",))
"""Words of courtesies and invitations."""
TREATING = WordPattern(("treats",))
"""Words that ask to translate or sum up the text below them."""


# --- sentences that bind or conclude --------------------------------------------------------------

LEAST_PROSE = 30
"""Minimum number of UTF-8 bytes of an informative sentence without a name."""
MAX_SENTENCE = 300
"""Maximum number of characters of a kept sentence. Longer ones are cut."""
MOST_DECIDED = 2
"""Maximum number of conclusions taken from a model's text before one call."""
SETTLED = 3.0
"""Weight added to a sentence marked as agreed. A cue adds 1."""
MOST_LABEL = 30
"""Number of characters before a colon that are read as a label."""
MIN_SENTENCE = 4
"""Minimum number of bytes of a binding sentence: `只读` can bind, `ok` cannot."""
NAMED = re.compile(
    r"(?<![\w-])[\w-]{1,80}+\.[a-z]\w{0,5}\b|\b(?:_*+[a-z\d]++_|_*+[a-z]++[A-Z]|[A-Z]++[a-z]++[A-Z])\w*+"
)
"""A file name, or a name of several words."""

_CODE = re.compile(r"`([^`\n]{1,80})`")
_ENTITY = re.compile(
    r"`[^`\n]{2,80}`|\b\w+[_/.]\w+|\b[a-z]++[A-Z]\w*|\b[A-Z]{2}\w*\d|\d{2,}|「[^」\n]{1,40}」|“[^”\n]{1,40}”"
)
_QUOTATION = re.compile(r"\"[^\"]{20,}+\"?")
"""A quotation of another text."""
_STRESS = re.compile(r"\*\*|__")
_NO_CELL = re.compile(r"(?i)\bno\.? ?(?![^|])")
"""The end of a cell of a table's header that heads numbers: `No.`, `Order No`."""
_GOES_ON = re.compile(r"[；;]\Z|(?:^|[\s:：])\d{1,2}\.\Z")
"""The end of a piece of a list within one line: a semicolon, or the next number."""
_COMMENT = re.compile(r"\s{0,40}(?://|/\*|\*/|<!--|#(?:!|\s{0,8}(?:TODO|FIXME|NOTE)\b))")
_NO_RULE = re.compile(
    r"(?i)\A(?:and |but |so )?(?:why|how|who|where)\b(?! (?:you|we)\b)[^:：]*+\Z"
    r"|(?:error|exception|failed): |\A\s{0,40}\d{1,6}:\d{1,6}\s"
    r"|\A(?:(?:that|this|it|you|he|she|they) )?must(?: have been|['’]ve) |(?<!言い|いし)(?:ました|でした)[。！…]*\Z"
)
"""A question; an error that a program reports; a guess about the past; Japanese past tense."""
_TAG = re.compile(
    r"(?i)[,，、] ?(?:[好行][吗嗎]|可以[吗嗎]|ok(?:ay)?|all ?right|please|いいですか|いいですね|알겠(?:죠|지))[?？]*\Z|[，, ][好行]不[好行][?？]*\Z|\A[你您]?(?:能不能|可不可以|可以)(?=[别別]|不要)"
    r"|(?<=ないで)(?:(?:もらえ|いただけ|くれ|ください)(?:ます|ません)か|(?:ください|ほしい)かな)[。?？]*\Z"
)
"""Words that make a question of a demand."""
_DATA = re.compile(r"\s{0,40}(?:(?:[\w ]{1,30}: ?)?[\[{]{1,9}\s?\"|\"[\w.$-]{1,40}\" ?:)")
"""The beginning of a line of JSON, after a label or alone, or of a member of an object."""
_OPTION = re.compile(
    r"(?i)\W{0,6}(?:(?:option|approach|variante?|opci[oó]n|opção|вариант|방안|案|方案|选项|選項)\s?)?"
    r"(?:[A-E]|[1-9](?=[)）])|(?<=[案项項])[1-9一二三四五甲乙丙])\W{0,3}[)）.:：—–]"
)
"""The beginning of one of several options: `A) `, `Option B: `, `方案一：`."""
_VOID = re.compile(
    r"(?i)\W{0,4}[✅✔☑]|\W{0,8}(?:(?:(?:\w{1,12},? )?(?:if|unless)|or|falls|wenn|если|si|se|s['’]il)\b|如果|若|假如|要是|或|もし|만약)|"
    r"\W{0,8}(?:(?:all|the|now|\d+)\s{1,4}){0,3}(?:unit |integration )?(?:tests?|checks?|builds?|lint\w{0,12}|suite)\s{1,4}"
    r"(?:(?:are|is|have|has|all|now|still)\s{1,4}){0,3}(?:pass\w{0,12}|green|succe\w{1,12}|ok|clean)(?:\s{1,4}(?:now|again|successfully))?\W{0,8}\Z"
    r"|(?:所有|全部)?(?:测试|測試|检查|檢查|构建|構建)(?:都|均|全部)?(?:已)?(?:通过|通過|成功)\W{0,8}\Z"
    r"|\W{0,8}(?:(?:I|we)(?:['’]ve| have)? |now |also ){0,3}(?:found|identified|located|understand|see|know) the (?:\w{1,12} ){0,2}(?:causes?|problems?|issues?|bugs?)(?: of the \w{1,12})?\W{0,8}\Z"
    r"|\W{0,8}(?:我|已经?|已經)*找到(?:了|根本|真正|问题|問題|根因|原因|的)+\W{0,8}\Z"
)
"""Items that are ticked off; conditions; test and build results, which the next run reports again;
and statements that a cause is known without naming it."""
_ASKED = re.compile(r"[?？][*_\s]")
"""A question before its answer: `**Shall we?** I would.`"""


class Statement(NamedTuple):
    """A sentence, or a whole line if its parts need the lines above them."""

    kind: RowKind
    text: str
    lead: str
    """The lines above that change its meaning: `Do NOT: `."""
    is_led: bool
    """Whether these lines make everything that they introduce binding."""
    is_head: bool
    """Whether it only introduces other lines."""
    above: tuple[Row, ...] = ()
    line: str = ""
    """The whole line, with its list mark."""
    at: int = 0
    """The index of the line."""

    @property
    def words(self) -> str:
        """The text with its lead, so that it can stand alone."""
        return self.lead + self.text


class _Head(NamedTuple):
    """What a line says about the lines that it introduces."""

    words: str
    is_turning: bool
    """Whether these would mean something else without it."""
    is_binding: bool
    """Whether it makes these binding, whatever they are."""
    is_bare: bool
    """Whether it binds nobody by itself."""


def _read_head(row: Row) -> _Head:
    text, is_table = _STRESS.sub("", row.text), row.kind == "columns"
    *_, last = ("", text) if is_table else ("", *split_line(text))
    words = one_line(last.rstrip(":：.。 "), MAX_SENTENCE)
    is_wide = east_asian_width(words[-1:] or " ") in "WF"
    turning = _NO_CELL.sub("", words) if is_table else words
    # Includes all words that the next lines look for.
    is_turning = REVERSING_OR_BINDING.is_in(turning)
    is_bare = is_turning and BINDING.is_closing(words)
    is_binding = is_bare or (is_turning and row.is_open and BINDING.is_opening(words))
    if is_table:  # a column of required values binds nobody
        is_binding = is_binding and NEGATING.is_in(turning)
    if row.depth == TOP:  # a title may have binding words without being a rule
        is_turning = is_turning and NEGATING.is_in(words)
    return _Head(words + ("：" if is_wide else ": "), is_turning, is_binding, is_bare)


def find_leads(lines: Sequence[str]) -> dict[int, str]:
    """Return the leads of lines by index: the lines above that change a line's meaning."""
    read = cache(_read_head)
    rows = ((row.at, _join_turning(map(read, heads))) for row, heads in iter_rows(lines) if heads)
    return {at: lead for at, lead in rows if lead}


def _join_turning(heads: Iterable[_Head]) -> str:
    return "".join(head.words for head in dropwhile(lambda head: not head.is_turning, heads))


def iter_statements(text: str, *, is_rule: bool = False) -> Iterator[Statement]:
    """Yield the sentences of a text, each with the lines above that change its meaning. Lines with
    such a lead are not split, since it also holds for sentences in their middle. With *is_rule*,
    items of a list always get the line above the list."""
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
    """Yield the sentences of a text except code, each with its lead (`Statement.lead`)."""
    for statement in iter_statements(text):
        if statement.kind != "code" and not statement.is_head:
            yield statement.words


def _is_led(row: Row, above: Sequence[Row], read: Callable[[Row], _Head]) -> bool:
    """Return whether lines *above* make a line binding whatever it says. A binding heading covers
    list items, but neither a text under it nor a list that such a text introduces."""
    for head in reversed(above):
        if read(head).is_binding:
            return row.kind != "text" or head.kind != "heading"
        if head.kind == "text":
            return False
    return False


def _iter_parts(line: str) -> Iterator[str]:
    """Yield the sentences of a line. Lists in it stay with the binding words before them."""
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
    `Do NOT: touch the database`. A rule that introduces other lines comes with those that are not
    rules themselves, and is left out if all are. Pasted text states none, nor one to translate."""
    place, typed = split_marker(text)
    spoken = [*iter_statements(read_typed(_without_hunks(typed)), is_rule=True)]
    own = takewhile(lambda pair: not _is_treating(*pair), zip_longest(spoken, spoken[1:]))
    rules, listed = [*map(_is_rule, statements := [row for row, _ in own])], dict[int, list[str]]()
    for statement, is_rule in zip(statements, rules, strict=True):
        if statement.above and not is_rule:
            words = "" if statement.kind == "code" else statement.text
            listed.setdefault(statement.above[-1].at, []).append(words)
    for statement in compress(statements, rules):
        is_open = has_colon(statement.text)
        if statement.at in listed or statement.is_led or not is_open:
            items = "; ".join(filter(None, listed.get(statement.at, ()))) if is_open else ""
            yield one_line(f"{place}{statement.words} {items}".replace("： ", "："), MAX_SENTENCE)


def _is_treating(row: Statement, below: Statement | None) -> bool:
    """Return whether *row* asks to translate or sum up the text below it. Items are demands."""
    return has_colon(row.text) and TREATING.is_in(row.text) and (not below or below.kind != "item")


_SIDES = frozenset(["-", "+", " ", "\\", ""])
"""First characters of the lines of a hunk. An empty line is an unchanged one without its blank."""
_HUNK = re.compile(r"@@ -\d{1,7}(?:,(\d{1,7}))? \+\d{1,7}(?:,(\d{1,7}))? @@")


def _without_hunks(text: str) -> str:
    """Return a text without the lines of a diff's hunks, because comments and documents in a diff
    are not demands. Each hunk header says how many lines each side has."""
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
    is_data = statement.kind in ("code", "columns") or _DATA.match(statement.line)
    if statement.is_head or size < MIN_SENTENCE or is_data:
        return False
    asked = _TAG.sub("", own)  # `Don't push, ok?` demands
    binds = is_binding(own) and not (is_question(asked) or _NO_RULE.search(asked))
    return statement.is_led or binds


_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]+")


def find_topics(text: str) -> set[str]:
    """Return the topics of a sentence in lower case: quoted code, identifiers, and Latin words
    within another script (`lint` of `lint 不用跑了`)."""
    topics = {*_CODE.findall(text), *find_names(text)}
    if sum(map(str.isascii, text)) < len(text) / 2:
        topics.update(_LATIN.findall(text))
    return {topic.lower().rstrip(".-") for topic in topics}


def find_corrections(text: str, topics: AbstractSet[str] | None = None) -> Iterator[str]:
    """Yield the first two sentences of a user's text, without questions, if the first takes back a
    request. With *topics*, yield only those about one of them."""
    place, typed = split_marker(text)
    opening = list(islice(iter_sentences(read_typed(typed)), 2))
    if opening and CORRECTING.is_in(opening[0][: 2 * MAX_SENTENCE]):
        for sentence in opening:
            is_meant = topics is None or not topics.isdisjoint(find_topics(sentence))
            if is_meant and not is_question(sentence):
                yield one_line(place + sentence, MAX_SENTENCE)


def is_binding(text: str) -> bool:
    """Return whether a text has words of a standing rule, besides those of courtesies."""
    return _is_in_binding(text[: 2 * MAX_SENTENCE])


@lru_cache(maxsize=10_000)
def _is_in_binding(text: str) -> bool:
    """Cache the result, because each summary reads the sentences of all requests several times."""
    if not BINDING.is_in(text):
        return False
    text, wishes = text.lower(), WISHING.find_all(text)
    for wish in wishes:
        text = text.replace(wish, "")
    return not wishes or BINDING.is_in(text)


def _iter_prose(text: str) -> Iterator[Statement]:
    """Yield the sentences of a model's text except code, comments and headings."""
    for statement in iter_statements(text):
        if statement.kind in ("text", "item", "row") and not _COMMENT.match(statement.text):
            yield statement


def find_conclusions(text: str, *, final: bool, worked: bool = True) -> Iterator[tuple[float, str]]:
    """Yield the sentences of an assistant's text that decide or conclude, each with its weight. In
    a *final* text they weigh 1 more. Beside a call they weigh half if they name nothing. Questions,
    open options, quotations and reports of changes are left out, and so are reasons unless the text
    ends a turn in which the model *worked*. Sentences marked as agreed weigh `SETTLED` more."""
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
    """Return the conclusions of an assistant's text in order. Of a text beside a call return only
    the `MOST_DECIDED` with the greatest weight."""
    weighed = list(find_conclusions(text, final=final, worked=worked))
    heaviest = nlargest(MOST_DECIDED, weighed)
    return weighed if final else [pair for pair in weighed if pair in heaviest]


def finds_fault(sentence: str) -> bool:
    """Return whether a sentence names a fault rather than an agreement."""
    return FAULTING.is_in(sentence) and not AGREEMENT_WORDS.is_in(sentence)


def _is_settled(statement: Statement, settles: Callable[[Row], bool | None]) -> bool:
    """Return whether its first words (`Agreed: …`) or the lines above mark it as agreed."""
    label, colon, _ = statement.text[:MOST_LABEL].replace("：", ":").partition(":")
    if colon and AGREEMENT_WORDS.is_in(label) and not OFFERING.is_in(label):
        return True
    answers = [is_agreed for is_agreed in map(settles, statement.above) if is_agreed is not None]
    return bool(answers) and answers[-1]


def _settles(head: Row) -> bool | None:
    """Return whether a line, or a cell of it, begins or ends with words of agreement. False means
    that it offers options, None that it says neither."""
    if OPTION_HEADS.is_in(head.text):
        return False
    text = _STRESS.sub("", head.text).rstrip(":：。. ")
    cells = [cell.strip() for cell in _CODE.sub("", text).split("|")]
    edges = (AGREEMENT_WORDS.is_opening, AGREEMENT_WORDS.is_closing)
    ends = any(is_edge(cell) for cell in cells for is_edge in edges)
    return (ends and not is_question(text)) or None


def _is_offer(statement: Statement) -> bool:
    """Return whether it offers an option or asks somebody to decide. Each row of a table that is
    not marked as agreed is one option."""
    heads = (head.text.rstrip(":：*_ ") for head in statement.above)
    return (
        statement.kind == "row"
        or statement.line.lstrip()[:1] == ">"
        or bool(_OPTION.match(statement.line))
        or OFFERING.is_in(statement.text)
        or bool(_ASKED.search(statement.text))
        or (statement.text.endswith(("!", "！")) and not _ENTITY.search(statement.text))
        or any(is_question(head) or OPTION_HEADS.is_in(head) for head in heads)
    )


def find_notes(text: str) -> Iterator[str]:
    """Yield the informative sentences of an assistant's text: no questions and no announcements."""
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
    """Return the last sentence of a text that announces a step, or an empty string."""
    announced = [row for row in iter_sentences(text) if ANNOUNCING.is_in(row[:MAX_SENTENCE])]
    return one_line(announced[-1], 200) if announced else ""


def depends_on_context(sentence: str) -> bool:
    """Return whether a model's sentence announces the next step, refers to the sentence before it,
    or leaves something to a person."""
    head = sentence[:MAX_SENTENCE]
    return any(words.is_in(head) for words in (ANNOUNCING, HANDOVER_WORDS, REFERRING))


def weigh_conclusion(sentence: str, *, lead: str = "", worked: bool = True) -> float:
    """Return how much a sentence concludes: a point for each distinct cue that decides or, if the
    model *worked*, gives a reason for something named, and half a point for each of at most three
    entities (paths, names, numbers, quotes). Announcing the next step costs 2, and so does a guess,
    also in the *lead*. It is 0 without cues. In Japanese text Chinese cues do not count."""
    head = _QUOTATION.sub("", sentence[: 2 * MAX_SENTENCE])
    words = _STRESS.sub("", _CODE.sub("", head))
    decides, reasons = DECIDING.find_all(words), REASONING.find_all(words) if worked else []
    entities = len(_ENTITY.findall(head)) if decides or reasons else 0
    cues = {*decides, *(reasons if entities else ())}
    is_open = cues and (PLANNING.is_in(head) or GUESSING.is_in(lead + head))
    return len(cues) and len(cues) + min(3, entities) / 2 - 2 * bool(is_open)


def cut_words(text: str, size: int) -> str:
    """Return *text*, cut at a word so that it has at most *size* bytes."""
    if count_bytes(text) <= size:
        return text
    cut = text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
    return cut.rpartition(" ")[0] or cut


LOGGED = r"^[ \t]{0,20}- \[(?:(?:VERBOSE|DEBUG|LOG|INFO|WARNING)\] [^\n]*+|ERROR\] [^\n]*\.\.\.)$"
"""Console messages of a web page, which tools list before the page itself. Uncut errors do not
match, since they may concern the work."""
_HANDLES = re.compile(
    rf"(?m) \[(?:ref|cursor)=\w{{1,12}}\]|{LOGGED}|^ {{0,200}}- /url: (?!https?:).*+$"
)
_LONG_RUN = re.compile(r"(?<=[\w/])\?[^\s\"'<>)]{120,}|(?<![\w/+=~%.-])[\w/+=~%.-]{200,}", re.ASCII)


def without_handles(text: str) -> str:
    """Return a text without what changes on every visit: the element references, internal links and
    console messages in a snapshot of a web page, and long runs of letters such as query strings."""
    return _LONG_RUN.sub("…", _HANDLES.sub("", text))
