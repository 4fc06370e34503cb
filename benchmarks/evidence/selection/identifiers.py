"""Identifiers of a line: the words by which later work refers to it."""

import re
from collections.abc import Iterator

NUMBER = 0.4
"""What a plain number counts for, beside a name's 1.0."""
LONGEST = 120
"""Characters of an identifier; what is longer is data."""
SHORTEST = 3

_WORD = re.compile(r"[\w$@][\w$@./:\-]*+")
_JOINED = re.compile(r"[\w$@][./_:\-][\w$@]")
_HUMP = re.compile(r"[a-z0-9][A-Z]")
_HYPHENATED = re.compile(r"[A-Za-z]?[a-z]+(?:-[a-z]+)+")


def iter_identifiers(line: str) -> Iterator[tuple[str, float]]:
    """Yield each identifier of *line* with what it counts for.

    Paths, dotted names, snake_case, camelCase, hashes and ids are found by their shape alone, in
    any script; a plain word is none. In time linear in the length of *line*.
    """
    for word in _WORD.findall(line):
        name = word.rstrip(".-:/@")
        if not SHORTEST <= len(name) <= LONGEST:
            if name.isdigit() and len(name) > 1:
                yield name, NUMBER
        elif name.replace(".", "").replace(",", "").replace(":", "").replace("-", "").isdigit():
            yield name, NUMBER
        elif _is_name(name):
            yield name, 1.0


def _is_name(word: str) -> bool:
    if _HYPHENATED.fullmatch(word):
        return False
    return bool(
        _JOINED.search(word)
        or _HUMP.search(word)
        or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))
    )
