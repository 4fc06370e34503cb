"""Identifiers: the words by which later work refers to things, told by their shape, in any script."""

import re
from collections.abc import Iterator
from itertools import pairwise

from refold.summarizers.heuristic.words import Source, candidate_names, clip_scanned
from refold.text.plain import without_escapes

NUMBER = 0.4
"""What a plain number counts for, beside a name's 1.0."""
LONGEST = 120
"""Characters of an identifier; what is longer is data."""
SHORTEST = 4
"""Characters of a name."""

_NUMBER = re.compile(r"(?<![\w.])\d[\d.,]*")
_DIGITS = re.compile(r"[\d.,:/_-]+")
_JOINED = re.compile(r"[\w$@][./_:\-][\w$@]")
_HYPHENATED = re.compile(r"[A-Za-z]?[a-z]+(?:-[a-z]+)+")
_TAG = re.compile(r"/\w+")
_HANDLE = re.compile(r"\bedit [0-9a-f]{8}\b")
"""How a stub of ours names its edit, if a caller feeds what was sent back as history (F18)."""


def iter_identifiers(text: str, source: Source = "said") -> Iterator[tuple[str, float]]:
    """Yield each identifier of *text* once, with what it counts for.

    Paths, dotted names, snake_case, camelCase, hashes and ids are found by their shape alone; a
    plain word is none. In time linear in the length of *text*.
    """
    for word in sorted({*candidate_names(text, source), *_NUMBER.findall(text)}):
        if word.isalpha() and word[1:].islower():  # a plain word: most are
            continue
        name = word.removeprefix("./").lstrip("-").rstrip(".,-:/@")
        if _DIGITS.fullmatch(name):
            if 1 < len(name) <= LONGEST:
                yield name, NUMBER
        elif SHORTEST <= len(name) <= LONGEST and _is_name(name):
            yield name, 1.0


def find_names(text: str, source: Source = "said") -> list[str]:
    """Return the identifiers of *text* that are no plain numbers, each once; of a very long one
    those of its two ends."""
    text = _HANDLE.sub("edit", without_escapes(clip_scanned(text)))
    return [name for name, weight in iter_identifiers(text, source) if weight == 1.0]


def is_path(name: str) -> bool:
    """Does an identifier name a file in a folder?"""
    return "/" in name and "://" not in name and "." in name.rpartition("/")[2]


def _is_name(word: str) -> bool:
    if _HYPHENATED.fullmatch(word) or _TAG.fullmatch(word):
        return False
    return bool(
        _JOINED.search(word)
        or any(before.islower() and after.isupper() for before, after in pairwise(word))
        or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))
    )
