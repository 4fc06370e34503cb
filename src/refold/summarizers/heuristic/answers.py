"""What a person answers when a model asks by a tool: nobody says it anywhere else."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from refold.summarizers.heuristic.excerpts import ASKED, cut_middle
from refold.summarizers.heuristic.source import Step
from refold.text.clip import one_line
from refold.text.json_values import parse_or_none, text_at

LONGEST_QUESTION = 160
"""Characters of a question."""
LONGEST_ANSWER = 600
"""Characters of an answer; of a longer one its ends are shown."""
_ASKS = re.compile(r"(?i)ask|question|user_?input")
"""In the name of a tool that asks, if its arguments hold questions."""
_IS, _NEXT = '"="', '", "'
"""Between a question and its answer, and between these and the next (Claude Code, OpenCode)."""


class PersonAnswer(NamedTuple):
    """What a person answers to one question."""

    question: str
    words: str

    def write(self) -> str:
        """Return both as a sentence of a summary, which says that the words are a person's."""
        words = " ".join(self.words.split())
        if len(words) > LONGEST_ANSWER:
            words = cut_middle(words, LONGEST_ANSWER, {})
        return f"{ASKED}{one_line(self.question, LONGEST_QUESTION)} -> {words}"


def read_answers(step: Step) -> list[PersonAnswer]:
    """Return what a person answers in a result to what its call asks; nothing if it asks nothing.
    Words in a form that no client is known for answer all questions."""
    if step.is_error or not _ASKS.search(step.effect.tool[:100]):
        return []
    questions = dict(_iter_questions(parse_or_none(step.arguments)))
    if not questions or not step.text.strip():
        return []
    known = _read_pairs(step.text) or _read_fields(step.text, questions)
    return known or [PersonAnswer("; ".join(questions.values()), step.text)]


def _iter_questions(arguments: Any) -> Iterator[tuple[str, str]]:
    """Yield the ids of questions, or their places, with the questions."""
    listed = arguments.get("questions") if isinstance(arguments, dict) else None
    for at, row in enumerate(listed if isinstance(listed, list) else [arguments]):
        if question := text_at(row, "question"):
            yield text_at(row, "id") or str(at), question


def _read_pairs(text: str) -> list[PersonAnswer]:
    """Read `"Question?"="Answer", "Another?"="Answer".`"""
    first, *pieces = text.split(_IS)
    question, answers = first.partition('"')[2], list[PersonAnswer]()
    for at, piece in enumerate(pieces, 1):
        words, _, following = piece.rpartition(_NEXT if at < len(pieces) else '"')
        answers.append(PersonAnswer(question, words or piece))
        question = following
    return answers


def _read_fields(text: str, questions: Mapping[str, str]) -> list[PersonAnswer]:
    """Read `{"answers": {"id": {"answers": ["A", "B"]}}}` (Codex), also with texts in their place."""
    value = parse_or_none(text) if text.startswith("{") else None
    fields = value.get("answers") if isinstance(value, dict) else None
    answers = list[PersonAnswer]()
    for id, field in fields.items() if isinstance(fields, dict) else ():
        words = field.get("answers") if isinstance(field, dict) else field
        texts = words if isinstance(words, list) else [words]
        answers.append(PersonAnswer(questions.get(id, id), ", ".join(map(str, texts))))
    return answers
