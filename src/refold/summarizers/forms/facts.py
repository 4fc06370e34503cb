"""Facts by concept: asked for as JSON, shown as Markdown (S3-17 to S3-20)."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from refold.summarizers.forms.form import find_objects
from refold.summarizers.forms.sections import (
    Sections,
    bullet_list,
    clean_items,
    drop_oldest,
    list_items,
    merge_items,
)

_KEYWORD = re.compile(r"[\w./:-]{1,80}")


class FactType(Enum):
    """How many facts a concept has."""

    SINGLE = "single"
    """One: a later answer takes the place of an earlier one."""
    MULTIPLE = "multiple"
    """Any number: later ones are added."""


@dataclass(frozen=True, slots=True)
class Concept:
    """One thing to look for. Raises ValueError for a keyword that is no single word."""

    keyword: str
    """Short name, one word, in any language."""
    description: str
    """What belongs to it, or the question that it answers."""
    fact_type: FactType = FactType.MULTIPLE

    def __post_init__(self) -> None:
        if not _KEYWORD.fullmatch(self.keyword):
            raise ValueError(
                f"a concept's keyword is one word of at most 80 characters, not {self.keyword!r}"
            )


_SENTINEL = re.compile(
    r"[\[(]?\s*no\s(?:relevant\s)?(?:facts?|information)\b[^.\n]{0,40}[.\])]*|未找到.{0,10}|没有(?:相关)?(?:事实|信息)。?",
    re.IGNORECASE,
)
NO_FACTS = "No facts found"
"""What a model says of a concept that it finds nothing on."""


@dataclass(frozen=True, slots=True)
class FactsForm:
    """Facts under concepts, as a form. The value is `Sections`, its titles the concepts' keywords.

    A model answers all concepts in one JSON object. Raises ValueError without concepts, or for two
    of one keyword.
    """

    concepts: tuple[Concept, ...]

    name = "facts"

    def __post_init__(self) -> None:
        if not self.concepts or len(
            {concept.keyword.casefold() for concept in self.concepts}
        ) < len(self.concepts):
            raise ValueError(
                "facts are asked for by at least one concept, each with a keyword of its own"
            )

    @property
    def template(self) -> str:
        """The concepts, and the JSON to answer in."""
        counts = {FactType.SINGLE: "one fact", FactType.MULTIPLE: "any number of facts"}
        wanted = "\n".join(
            f"- {c.keyword} ({counts[c.fact_type]}): {c.description}" for c in self.concepts
        )
        shape = {
            c.keyword: ["fact", "fact"] if c.fact_type is FactType.MULTIPLE else "fact"
            for c in self.concepts
        }
        return (
            f"Look for these concepts:\n{wanted}\n\nAnswer with one JSON object of this shape and nothing else:\n"
            f"{json.dumps(shape, ensure_ascii=False)}\n"
            f'For a concept on which there is nothing, write "{NO_FACTS}".'
        )

    def parse(self, text: str) -> Sections | None:
        """Return the facts in a rendered text or an answer; None where the text is neither. An
        answer that found nothing is `Sections()`."""
        rendered = self._sections(dict(self._lists(text)))
        if rendered.entries:
            return rendered
        by_keyword = {concept.keyword.casefold(): concept for concept in self.concepts}
        answers = [
            value
            for value in find_objects(text)
            if any(key.casefold() in by_keyword for key in value)
        ]
        if not answers:
            return None
        named = ((by_keyword.get(key.casefold()), value) for key, value in answers[-1].items())
        return self._sections(
            {
                c.keyword: tuple(_read_facts(value, single=c.fact_type is FactType.SINGLE))
                for c, value in named
                if c
            }
        )

    def read_rendered(self, text: str, *other_titles: str) -> Sections | None:
        """Return the facts in a text that this form rendered, with sections of *other_titles*
        behind them; None for every other text, one with facts on other concepts too."""
        titles = {title.strip() for title in re.findall(r"^## (.*)$", text, re.MULTILINE)}
        if not text.startswith("## ") or not titles <= {
            *other_titles,
            *(concept.keyword for concept in self.concepts),
        }:
            return None
        return self._sections(dict(self._lists(text)))

    def render(self, value: Sections) -> str:
        """Return a heading for each concept with facts, and a list under it."""
        return "\n".join(
            f"## {c.keyword}\n{bullet_list(value[c.keyword])}"
            for c in self.concepts
            if value[c.keyword]
        )

    def merge(self, previous: Sections | None, new: Sections) -> Sections:
        """Return the facts of both; of a single one the newer."""
        if previous is None:
            return new
        return self._sections(
            {
                c.keyword: merge_items(previous[c.keyword], new[c.keyword])
                if c.fact_type is FactType.MULTIPLE
                else new[c.keyword] or previous[c.keyword]
                for c in self.concepts
            }
        )

    def shorten(self, value: Sections) -> Sections | None:
        """Return the facts without the oldest of the concept that has most; None if each has one at
        most."""
        return drop_oldest(value, [concept.keyword for concept in self.concepts], least=1)

    def _sections(self, facts: dict[str, Iterable[str]]) -> Sections:
        return Sections(
            tuple((c.keyword, _fit_concept(c, facts.get(c.keyword, ()))) for c in self.concepts)
        )

    def _lists(self, text: str) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield (keyword, facts) of each heading of a concept in a rendered text; other headings
        end a list."""
        keywords = {concept.keyword for concept in self.concepts}
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            title, _, body = section.partition("\n")
            if title.strip() in keywords:
                yield title.strip(), tuple(list_items("\n" + body))


def _fit_concept(concept: Concept, texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that say something; of a single fact the first."""
    facts = tuple(text for text in clean_items(texts) if not _SENTINEL.fullmatch(text))
    return facts[:1] if concept.fact_type is FactType.SINGLE else facts


def _read_facts(value: Any, *, single: bool = False) -> Iterator[str]:
    """Yield the texts in what an answer gives for one concept; a text of several lines is a
    list."""
    match value:
        case str():
            yield from (value,) if single else list_items("\n" + value)
        case bool():
            yield "yes" if value else "no"
        case int() | float():
            yield str(value)
        case list():
            yield from (
                fact for item in value if not isinstance(item, list) for fact in _read_fact(item)
            )
        case dict():
            yield from _read_fact(value)


def _read_fact(item: Any) -> Iterator[str]:
    """Yield a list's item: a text as it is, or an object that holds one."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, dict):
        yield from (
            text for key in ("fact", "text", "value") if isinstance(text := item.get(key), str)
        )
    else:
        yield from _read_facts(item)
