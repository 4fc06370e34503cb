"""Short replies, denials, demands, retractions, answers in tool results, and shortened messages."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from unicodedata import normalize

from refold.speakers.carriers import split_marker
from refold.summarizers.heuristic.identifiers import PIECE, iter_identifiers
from refold.summarizers.heuristic.lexicon import (
    BINDING,
    CORRECTING,
    LEAST_PROSE,
    MAX_SENTENCE,
    NEGATING,
    REVERSING_OR_BINDING,
    find_leads,
    is_binding,
    iter_statements,
)
from refold.summarizers.heuristic.steps import Step
from refold.text.clip import clip_scanned, one_line, without_mark
from refold.text.json_values import list_at, object_at, parse_or_none, text_at
from refold.text.plain import count_bytes, count_columns, is_question
from refold.text.summary_wrapper import PERSON_PREFIX, mark_cut

LONGEST_QUESTION = 160
"""Maximum characters of a question."""
LONGEST_ANSWER = 600
"""Maximum characters of an answer. A longer one loses its middle."""
REPLY = 40
"""Columns below which a reply may not say what it refers to."""
AGREEMENT = 20
"""Columns below which a reply may answer a question without naming anything."""
BARE_ASSENT = 10
"""Columns below which a reply may say no more than yes."""
LAST_WORDS = 6
"""Number of last sentences of a text in which the open question is searched."""
ANSWERS = " (to: "
"""Separator between a reply and its question."""
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_LABELS = [*zip("abcde", "12345", "一二三四五", "甲乙丙丁戊", _ORDINALS, strict=True)]
_AND = "and|y|e|et|und|и"
_LABEL = r"(?:[a-e](?![\w'’])|[1-5](?!\d)|[一二三四五甲乙丙丁戊])"
_REPLY = re.compile(
    r"(?i)(?:(?:(?:i )?(?:choose|take|pick|want|prefer)|go (?:with|for)|let['’]s (?:do|take)|yes|ok|we take|use|[我就]*(?:选|選|用|要)|切到)[ ,，]*)?"
    rf"(?:(?:the )?(first|second|third|fourth|fifth)\b|第([一二三四五1-5])[个個种種]"
    rf"|(?:(?:option|plan|variant\w*|opci[oó]n|opção|вариант|방안|案|方案|选项|選項) ?)?({_LABEL})"
    rf"(?=\W*\Z|[,.，。;；)）:：]|\s*[吧案를로]|(?:\s+(?:please|then|it|is|but|{_AND})\b)))"
)
"""A reply that names one of several options."""
_ANY_LABEL = re.compile(_LABEL, re.IGNORECASE)
_LABELS_ONLY = re.compile(rf"(?i)(?:{_LABEL}[\W_]{{0,3}}(?:(?:{_AND})\s|[和与與跟])?[\W_]{{0,3}})+")
"""A reply that consists of option labels: `1,3`, `A and C`."""
_PAIRS = re.compile(r"(?i)(?:q\w{0,8}\s?)?(\d{1,2})\s?[:=.)：-]\s?([a-e])(?![\w'’])[\s,;，；]{0,3}")
"""Options chosen for several questions: `Q1: A, Q2: C`."""
_YES = re.compile(
    r"(?i)(?:yes|yeah|yep|no|nope|s[ií]|sim|não|oui|non|ja|nein|да|нет|có|vâng|không|ya|tidak|네|예|아니요|はい|いいえ|[好是要不]|对|對|可以)[,，、.。!！\s]"
)
"""Start of a reply that says yes or no."""
_OPTION_LINE = re.compile(
    rf"(?i)[\s>|*_#•(（-]*(?:(?:option|plan|variant\w*|opci[oó]n|opção|вариант|방안|案|方案|选项|選項) ?)?({_LABEL})"
    r"[*_]{0,3}\s{0,9}(?:[)）.、．:：—–|-]|\*\*).*"
)
"""A line that begins an option."""
_ENTRY = re.compile(
    r"(?:\[([a-zA-Z])\]|^[\s>|*_-]{0,9}([a-zA-Z])[*_]{0,3}[.):：])[*_]{0,3}\s{1,3}([^\[\n]{1,160})",
    re.MULTILINE,
)
"""A menu entry with a letter: `[C] Continue`, `**x.** Proceed`."""
_BRACKETED = re.compile(r"(?<!\w)[(\[【](\w)[)\]】]")
_BOLD = re.compile(r"\*\*(\w[^*\n]{0,200})\*\*")
_CLAUSE_ENDS = re.compile(r"[,;:，；：—–(（]")
_CLAUSE = re.compile(r"[^,.!?;:，。！？；：、]+[,.!?;:，。！？；：、]*")
MOST_CLAUSES = 4
"""Number of first clauses of a text that may take something back."""
_THIRD_PERSON = re.compile(r"(?i)\s*(?:(?:I|we|it|he|she|they|that|this|there)\b|[我他她它])")
MOST_ASKED = 20
"""Maximum number of questions of one call whose answers are read."""
_ASKS = re.compile(r"(?i)ask|question|user_?input")
"""Part of the name of a tool that asks, if its arguments hold questions."""
_ASKS_PERSON = re.compile(r"(?i)user|human|follow_?up")
"""Part of the name of a tool that asks a person; others do if they pass `_OFFERS`, too."""
_OFFERS = ("options", "choices")
_TAGS = ("<answer>", "</answer>")
"""Tags around a tool's whole output (Cline)."""
_ANSWER_SEPARATOR, _NEXT = '"="', '", "'
_NOTE_SEPARATOR, _CLOSING = '" user notes: ', ". You can now"
"""Separators before an answer, the next question, a typed note, and the end (Claude Code)."""
_PREVIEW_SEPARATOR = '" selected preview:'
"""Separator before the preview of a choice. A typed note follows the preview."""
SHORTEST_END = 10
"""Characters after a cut that are read with those before it, to find a negation at the cut."""
_LINE = re.compile(r"(?<=\n)[^\n]")
_STOP = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


class PersonAnswer(NamedTuple):
    """A person's answer to one question."""

    question: str
    words: str
    teller: str = ""
    """MCP tool that reports the answer, empty for tools of the client. It may have asked nobody."""

    def write(self) -> str:
        """Return question and answer, shortened, as a sentence marked as a person's words."""
        words = " ".join(self.words.split())
        if len(words) > LONGEST_ANSWER:
            words = cut_middle(words, LONGEST_ANSWER, {})
        source = f" (so {one_line(self.teller, REPLY)} says)" if self.teller else ""
        return f"{PERSON_PREFIX}{one_line(self.question, LONGEST_QUESTION)} -> {words}{source}"


def read_answers(step: Step) -> list[PersonAnswer]:
    """Return a person's answers in the result of a call that asks; none if it asks nothing. Text of
    unknown format answers all questions, unless it begins with the tool's name."""
    tool = step.effect.tool
    if step.is_error or not _ASKS.search(tool[:100]):
        return []
    arguments = parse_or_none(step.arguments)
    questions = dict(_iter_questions(arguments, is_sure=bool(_ASKS_PERSON.search(tool))))
    if not questions or not step.text.strip():
        return []
    text = step.text.strip().removeprefix(_TAGS[0]).removesuffix(_TAGS[1]).strip()
    answers = (
        _read_pairs(text) or _read_fields(text, questions) or _read_lines(text, questions.values())
    )
    is_own = text.startswith(tool) and not (tool.isalpha() and tool.islower())
    if not (answers or is_own):
        answers = [PersonAnswer("; ".join(questions.values()), text)]
    teller = tool if tool.startswith("mcp_") else ""
    return [answer._replace(teller=teller) for answer in answers if answer.words.strip()]


def _iter_questions(arguments: Any, *, is_sure: bool) -> Iterator[tuple[str, str]]:
    """Yield the id, or else the index, of each question to a person, and the question."""
    for at, row in enumerate(list_at(arguments, "questions") or [arguments]):
        question = text_at(row, "question")
        if question and (is_sure or any(name in row for name in _OFFERS)):
            yield text_at(row, "id") or str(at), question


def _read_pairs(text: str) -> list[PersonAnswer]:
    """Read `"Question?"="Answer", "Another?"="Answer".`"""
    first, *pieces = text.split(_ANSWER_SEPARATOR, MOST_ASKED)
    question, answers = first.partition('"')[2], list[PersonAnswer]()
    for at, piece in enumerate(pieces, 1):
        is_last, mark = (
            at == len(pieces),
            _PREVIEW_SEPARATOR if _PREVIEW_SEPARATOR in piece else _NOTE_SEPARATOR,
        )
        words, _, following = piece.rpartition('"' if is_last else _NEXT)
        chosen, _, beside = piece.partition(mark)
        if beside:
            notes, _, following = beside.rpartition(_CLOSING if is_last else _NEXT[1:])
            typed = notes or beside
            typed = typed.partition(_NOTE_SEPARATOR[1:])[2] if mark == _PREVIEW_SEPARATOR else typed
            words = ": ".join(filter(None, dict.fromkeys((chosen, typed))))
        answers.append(PersonAnswer(question, words or piece))
        question = following
    return answers


def _read_fields(text: str, questions: Mapping[str, str]) -> list[PersonAnswer]:
    """Read `{"answers": {"id": {"answers": ["A", "B"]}}}` (Codex), or plain values in it."""
    answers = list[PersonAnswer]()
    for id, field in object_at(parse_or_none(text), "answers").items():
        words = field.get("answers") if isinstance(field, dict) else field
        texts = words if isinstance(words, list) else [words] * (words is not None)
        answers.append(PersonAnswer(questions.get(id, id), ", ".join(map(str, texts))))
    return answers


def _read_lines(text: str, questions: Iterable[str]) -> list[PersonAnswer]:
    """Read lines of the form `Question? -> Answer`."""
    lines = [line.strip() for line in text[: 4 * LONGEST_ANSWER].split("\n")]
    return [
        PersonAnswer(question, line.removeprefix(question).lstrip(" ->:="))
        for question in islice(questions, MOST_ASKED)
        for line in lines
        if line.startswith(question) and line != question
    ]


# --- short replies -------------------------------------------------------------------------------


def find_question(text: str, reply: str) -> str:
    """Return what a *reply* below `REPLY` columns refers to in a model's *text*: options that it
    names, else a question near the end, if the reply is short or starts with yes or no, else the
    last statement, if the reply is a word or two. Empty if there is none, or if the reply is longer
    or a question."""
    reply = _BRACKETED.sub(r"\1", normalize("NFKC", reply))
    width = count_columns(reply, REPLY)
    if not text or width >= REPLY or "\n" in reply or is_question(reply) or reply.endswith("呢"):
        return ""
    lines = clip_scanned(text).split("\n")
    ways = [way for line in lines if (way := _OPTION_LINE.match(line))]
    labels = _ANY_LABEL.findall(reply) if _LABELS_ONLY.fullmatch(reply) else []
    if not labels and (named := _REPLY.match(reply)):
        labels = [named[named.lastindex or 0]]
    pairs = [] if _PAIRS.sub("", reply) else _PAIRS.findall(reply)
    choices = pairs or [("0", label) for label in labels]
    chosen = (_find_option(ways, label.lower(), int(place)) for place, label in choices)
    if options := [*filter(None, chosen)]:
        return "; ".join(_quote_question(way, LONGEST_QUESTION // len(options)) for way in options)
    if len(reply) == 1 and reply.isascii() and reply.isalpha():
        entries = {(a or b).lower(): words for a, b, words in _ENTRY.findall(clip_scanned(text))}
        entry = entries.get(reply.lower(), "")
        if entry or reply.lower() not in "yn":
            return _quote_question(f"{reply}: {entry}") if entry else ""
    spoken = [s for s in iter_statements(text) if s.kind != "code" and PIECE.search(s.text)]
    ends = [at for at, statement in enumerate(spoken) if statement.kind == "text"]
    first = ends[-LAST_WORDS] if len(ends) >= LAST_WORDS else 0  # lists may follow the question
    asking = [n for n, s in enumerate(spoken) if is_question(s.text)]
    if asking and asking[-1] >= first and (width < AGREEMENT or _YES.match(reply)):
        before, words = spoken[max(0, asking[-1] - 1)], spoken[asking[-1]].text
        is_bare = count_columns(words, REPLY) < LEAST_PROSE and not any(iter_identifiers(words))
        is_beside = asking[-1] and before.at == spoken[asking[-1]].at
        if is_beside and (is_bare or is_question(before.text)):
            words = f"{one_line(before.text, LONGEST_QUESTION // 2)} {words}"
        return _quote_question(words)
    end = spoken[-1].text if spoken and width < BARE_ASSENT else ""
    return _quote_question(end) if count_bytes(end) >= LEAST_PROSE else ""


def _find_option(ways: Sequence[re.Match[str]], label: str, place: int) -> str:
    """Return the option among *ways* that a label names, by its own label or else one of equal rank
    (`C` or `3`). *place* tells which question's options (from 1; 0 is the last)."""
    row = next((row for row in _LABELS if label in row), ())
    same = [way.string for way in ways if way[1].lower() == label]
    rows = same or [way.string for way in ways if way[1].lower() in row]
    return rows[place - 1] if len(rows) >= max(1, place) else ""


def _quote_question(text: str, size: int = LONGEST_QUESTION) -> str:
    words = one_line(_BOLD.sub(r"\1", text).strip(" \t>|*_#-").replace("|", "/"), size)
    return words.replace(ANSWERS, " (to ")


def is_demand(rule: str) -> bool:
    """Return whether a rule is kept in talk: not if it is short and from a group, nor if it has
    binding words but no clause opens with them."""
    place, words = split_marker(rule)
    if place and count_columns(words, REPLY) < REPLY:
        return False  # small talk in a group
    clauses = _CLAUSE_ENDS.split(words)
    to_you = (BINDING.is_opening(text) and not _THIRD_PERSON.match(text) for text in clauses)
    return not is_binding(rule) or any(to_you)


def denies(text: str) -> bool:
    """Return whether a person's text begins by denying a fact, not by forbidding something."""
    head = _CLAUSE_ENDS.split(text.lstrip()[:MAX_SENTENCE].partition("\n")[0])[0]
    return (NEGATING.is_in(head) or CORRECTING.is_in(head)) and not is_binding(head)


def find_retraction(text: str) -> str:
    """Return the words by which a person takes back the message before: the start of the text, up
    to the first stop after enough words; empty if they take nothing back."""
    line = text[: 2 * MAX_SENTENCE].partition("\n")[0]
    ends = (stop.start() for stop in _STOP.finditer(line))
    head = line[: next((at for at in ends if count_bytes(line[:at]) >= LEAST_PROSE), len(line))]
    clauses = [clause.strip() for clause in _CLAUSE.findall(head)[:MOST_CLAUSES]]
    numbered = (clause for clause in clauses if any(map(str.isdigit, clause)))  # `121, not 112`
    takes_back = any(map(CORRECTING.is_in, (head, *clauses))) or NEGATING.is_opening(head)
    takes_back |= any(map(NEGATING.is_in, numbered))
    return head if takes_back and not is_question(head) else ""


def cut_middle(text: str, size: int, leads: Mapping[int, str]) -> str:
    """Return the first two thirds of about *size* characters of a longer text, a mark, and the last
    third, if possible from the start of a line or sentence. Lines after the mark are prefixed with
    leads that were cut off; *leads* are those of the whole text (`find_leads`)."""
    head, start = text[: size * 2 // 3], _find_start(text, size, leads)
    first, lines = text.count("\n", 0, start), text[start:].split("\n")
    own = find_leads(lines)
    for at, line in enumerate(lines):
        lead = leads.get(first + at, "")
        lines[at] = lead + without_mark(line) if line and lead != own.get(at, "") else line
    return f"{head} {mark_cut(text[len(head) : start])} " + ("\n".join(lines) or "…")


def _find_start(text: str, size: int, leads: Mapping[int, str]) -> int:
    """Return the index at which the last third of *size* characters begins: at a line, else at a
    sentence of the last line. An end that a lead or earlier words may negate is kept from the start
    of its line or dropped (`len(text)`)."""
    start = len(text) - size // 3
    if line := _LINE.search(text, start):
        return line.start()
    last = text.rfind("\n", 0, start) + 1
    if text.count("\n") in leads:
        return last if len(text) - last <= size // 2 else len(text)
    for begin in (start, len(text) - size // 2):
        if (stop := _STOP.search(text, max(last, begin))) and stop.end() < len(text):
            return stop.end()
    is_turned = REVERSING_OR_BINDING.is_in(text[max(last, start - size) : start + SHORTEST_END])
    return len(text) if is_turned else start
