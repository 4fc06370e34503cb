"""JSON objects in what models answer: in fences, in prose, with small faults."""

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_TRIES = 50
"""How many opening braces of one text are tried as the beginning of an object."""
MAX_DEPTH = 200
"""How deep an object may be nested: no answer is, and each level is looked at again for every brace
in it."""
_TRAILING = re.compile(r'("(?:[^"\\]|\\.?)*+"?)|,\s*+(?=[}\]])', re.DOTALL)
_STRINGS = re.compile(r'"(?:[^"\\]|\\.?)*+"?|[{}\[\]]', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


def find_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects in *text*, in order. Line ends in strings, commas before a
    closing bracket and brackets left open at the end are forgiven. Never raises."""
    at, tries = text.find("{"), 0
    while at >= 0 and tries < MAX_TRIES:
        value, end = _read_object(text, at)
        if isinstance(value, dict):
            yield value
        at, tries = text.find("{", end), tries + 1


def _read_object(text: str, at: int) -> tuple[Any, int]:
    decoder = json.JSONDecoder(strict=False)
    try:
        return decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        pass
    piece, end = _balance(text, at)
    try:
        return decoder.decode(_TRAILING.sub(lambda match: match[1] or "", piece)), end
    except (ValueError, RecursionError):
        return None, at + 1 if piece else end


def _balance(text: str, at: int) -> tuple[str, int]:
    """Return the object that begins at *at* up to its closing bracket, and where it ends; closed
    here if the text ends before. Nothing, up to where it is nested too deep."""
    stack = list[str]()
    for match in _STRINGS.finditer(text, at):
        mark = match[0]
        if mark in _CLOSES:
            stack.append(_CLOSES[mark])
            if len(stack) > MAX_DEPTH:
                return "", match.end()
        elif mark in "}]":
            if not stack or stack.pop() != mark:
                break
            if not stack:
                return text[at : match.end()], match.end()
        elif len(mark) == 1 or mark[-1] != '"':
            return f'{text[at:]}"{"".join(reversed(stack))}', len(text)
    return text[at:].rstrip().rstrip(",") + "".join(reversed(stack)), len(text)
