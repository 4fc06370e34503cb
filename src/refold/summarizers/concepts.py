"""What to look for in a conversation (S3-18, S3-19)."""

import re
from dataclasses import dataclass
from enum import Enum

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
            raise ValueError(f"a concept's keyword is one word of at most 80 characters, not {self.keyword!r}")
