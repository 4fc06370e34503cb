"""What was said in a chat: which sentences of it tell most for their length.

Of work with tools the other sections keep what matters. Where people and a model only talk, what is asked for later may
be in any sentence, so the room that is left goes to sentences as they were said. `weigh_sentences` is the whole ranking;
docs/summaries.md says how it was chosen and docs/benchmarks.md how well it does.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby
from math import fsum, log
from typing import NamedTuple

from refold.messages import Message, user
from refold.speakers import request_text
from refold.summarizers.heuristic.words import one_line, sentences
from refold.text.terms import terms

_TIMES = re.compile(r" \(×([1-9]\d{0,8})\)\Z")


def add_count(text: str, times: int) -> str:
    """A request and how often it was made: `continue (×400)`. Once is not said, unless *text* itself ends like that."""
    return f"{text} (×{times})" if times > 1 or _TIMES.search(text) else text


def split_count(text: str) -> tuple[str, int]:
    """A request and how often it was made, from what `add_count` makes of it."""
    match = _TIMES.search(text)
    return (text[: match.start()], int(match[1])) if match else (text, 1)


def request_words(text: str) -> str:
    """The user's own words: what a client put beside them is left out (conformance 40, F4; `refold.speakers`).
    Empty when nothing else is in it.
    """
    return request_text(user(text))


MAX_CHAT_LINES = 600
"""Spoken messages that are looked at, the newest; what is older weighs less than a thousandth."""
MAX_ASSISTANT_LINES = 200
"""Messages of the assistant that are looked at where tools are called, the newest."""
HALF_LIFE = 60
"""Messages after which a sentence weighs half."""
MAX_SENTENCE = 300
"""Characters of a sentence; a longer one is cut."""
SENTENCE_SEPARATOR = " / "
"""Between two sentences of a message of which the first has no full stop."""

_STOP = re.compile(r"[.!?。！？；…][\"')\]”」]?$")
_EMPHASIS = re.compile(r"\*\*|__|[`「“《\"]")
_DIGIT = re.compile(r"\d")
_BOX = re.compile(r"\[[ xX~/-]\] ")
"""An item of a plan, which has a section of its own."""
_ITEM = re.compile(r"(?:(\d{1,9}) )?(user|assistant): (.+)", re.DOTALL)


class Line(NamedTuple):
    """What is kept of one message."""

    at: int
    """Its number in the conversation, from 0."""
    role: str
    """`user` or `assistant`."""
    text: str
    """Sentences, on one line."""


class RankedSentence(NamedTuple):
    """A sentence and where it stands among the others."""

    order: int
    line: Line


def chat_lines(messages: Sequence[Message]) -> tuple[Line, ...]:
    """The texts of user and assistant on one line each, the newest `MAX_CHAT_LINES`."""
    return _lines(messages, {"user", "assistant"}, MAX_CHAT_LINES)


def assistant_lines(messages: Sequence[Message]) -> tuple[Line, ...]:
    """The texts of the assistant beside its calls, likewise, the newest `MAX_ASSISTANT_LINES`: what it noted for itself."""
    return _lines(messages, {"assistant"}, MAX_ASSISTANT_LINES)


def _lines(messages: Sequence[Message], roles: Container[str], most: int) -> tuple[Line, ...]:
    lines = list[Line]()
    for at in range(len(messages) - 1, -1, -1):
        role, text = messages[at].role, messages[at].text
        if role in roles and (own := request_words(text) if role == "user" else text.strip()):
            lines.append(Line(at, role, _sentences_on_one_line(own)))
        if len(lines) == most:
            break
    return tuple(lines[::-1])


def _sentences_on_one_line(text: str) -> str:
    return join_sentences(
        one_line(piece, MAX_SENTENCE) for piece in sentences(text) if not _BOX.match(piece)
    )


def join_sentences(pieces: Iterable[str]) -> str:
    """Sentences as one text that `split_sentences` takes apart again."""
    parts = list[str]()
    for piece in pieces:
        parts += (
            (" " if _STOP.search(parts[-1][-2:]) else SENTENCE_SEPARATOR) if parts else "",
            piece,
        )
    return "".join(parts)


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a line."""
    return (
        part for sentence in sentences(text) for part in sentence.split(SENTENCE_SEPARATOR) if part
    )


def rank_sentences(lines: Sequence[Line]) -> tuple[RankedSentence, ...]:
    """Every sentence of *lines*, each once and where it was said last: those that weigh most first."""
    sized = ((line, _size(line.text)) for line in lines)
    latest = {part: (line, size) for line, size in sized for part in split_sentences(line.text)}
    sentences = [(line._replace(text=part), size) for part, (line, size) in latest.items()]
    order = sorted(
        zip(weigh_sentences(sentences), range(len(sentences)), strict=True), reverse=True
    )
    return tuple(RankedSentence(at, sentences[at][0]) for _, at in order)


def weigh_sentences(sized_lines: Sequence[tuple[Line, float]]) -> Iterator[float]:
    """How much each sentence tells, given with the size of the message it is from.

    The sum of how rare its words are among these sentences / (2 + its size)^0.7 / the message's size^0.75
    x 1/2 for each 60 messages of age x 1.5 for emphasis or quotes x 1.25 for digits x 0.7 for a question.
    Sizes are tokens, estimated: who talks at length says less with each sentence.
    """
    held = [frozenset(terms(line.text)) for line, _ in sized_lines]
    many = Counter(term for line_terms in held for term in line_terms)
    rare = {term: log(1 + len(sized_lines) / count) for term, count in many.items()}
    now = max((line.at for line, _ in sized_lines), default=0)
    for (line, size), line_terms in zip(sized_lines, held, strict=True):
        rarity = fsum(rare[term] for term in line_terms)
        yield (
            rarity
            * _emphasis_factor(line.text)
            * 0.5 ** ((now - line.at) / HALF_LIFE)
            / (2 + _size(line.text)) ** 0.7
            / size**0.75
        )


def _emphasis_factor(sentence: str) -> float:
    marked = 1.5 if _EMPHASIS.search(sentence) else 1.0
    figures = 1.25 if _DIGIT.search(sentence) else 1.0
    return marked * figures * (0.7 if sentence.endswith(("?", "？")) else 1.0)


def _size(text: str) -> float:
    return 1 + len(text.encode("utf-8", "replace")) / 4


# --- as text and back --------------------------------------------------------------------------


def select_lines(
    best: Iterable[RankedSentence], room: int, cost: Callable[[str], int], elsewhere: str = ""
) -> list[str]:
    """As many of the sentences, *best* first, as fit, in the order they were said. What stands
    *elsewhere* is not repeated."""
    chosen, started = list[RankedSentence](), set[int]()
    for place in best:
        line = place.line
        price = cost(line.text) + 1 + (0 if line.at in started else cost(_head(line, -1)))
        if price <= room and line.text not in elsewhere:
            room -= price
            started.add(line.at)
            chosen.append(place)
    by_message = groupby(
        sorted(chosen, key=lambda sentence: (sentence.line.at, sentence.order)),
        key=lambda sentence: sentence.line[:2],
    )
    return write_lines(
        Line(at, role, join_sentences(sentence.line.text for sentence in places))
        for (at, role), places in by_message
    )


def write_lines(lines: Iterable[Line]) -> list[str]:
    """Lines as list items: `- 12 user: ...`, and without the number that of the next message."""
    texts, last = list[str](), -1
    for line in lines:
        texts.append(_head(line, last) + line.text)
        last = line.at
    return texts


def _head(line: Line, last: int) -> str:
    return f"- {line.role}: " if line.at == last + 1 else f"- {line.at} {line.role}: "


def read_lines(items: Iterable[str]) -> Iterator[Line]:
    """Lines out of list items; what is none is left out."""
    last = -1
    for item in items:
        if match := _ITEM.fullmatch(item):
            last = int(match[1]) if match[1] else last + 1
            yield Line(last, match[2], " ".join(match[3].split()))
