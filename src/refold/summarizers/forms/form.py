"""What a form of summaries can do, and how the JSON and the tags that it asks for are read out of
what models answer."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Protocol, TypeVar

Value = TypeVar("Value")


class Form(Protocol[Value]):
    """A shape that a model is asked to summarise in, with typed values behind it
    (docs/summaries.md).

    `parse(render(value)) == value` for every value with something in it. All four functions are
    deterministic, and none of them raises for any text or value.
    """

    @property
    def name(self) -> str:
        """One word for logs and the ledger."""

    @property
    def template(self) -> str:
        """The description of the shape, for a prompt."""

    def parse(self, text: str, /) -> Value | None:
        """Return the value in a model's answer or in a rendered text; None where the text is off
        template or has nothing in it."""

    def render(self, value: Value, /) -> str:
        """Return the value as text for the model that goes on."""

    def merge(self, previous: Value | None, new: Value, /) -> Value | None:
        """Return *previous* brought up to date by *new*; None if *new* cannot be applied to it."""

    def shorten(self, value: Value, /) -> Value | None:
        """Return the value without the one thing that matters least; None where the rest must
        stay."""


def describe_fault(form: Form[Any], text: str) -> str:
    """Say why *text* has no value in *form*; what it lacks, if the form can tell: by a method
    `list_missing`, which takes the text and returns headings."""
    list_missing: Callable[[str], Sequence[str]] | None = getattr(form, "list_missing", None)
    missing = ", ".join(list_missing(text)) if list_missing is not None else ""
    fault = "it does not have the form that was asked for"
    return f"{fault}; missing headings: {missing}" if missing else fault


# --- JSON objects: in fences, in prose, with small faults ---------------------------------------

MAX_TRIES = 50
"""How many opening braces of one text are tried as the beginning of an object."""
MAX_DEPTH = 200
"""How deep an object may be nested: no answer is, and each level is looked at again for every brace
in it."""
_TRAILING = re.compile(r'("(?>(?:[^"\\]|\\.?)*)"?)|,\s*+(?=[}\]])', re.DOTALL)
_STRINGS = re.compile(r'"(?>(?:[^"\\]|\\.?)*)"?|[{}\[\]]', re.DOTALL)
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


# --- tagged text: tags left open, unescaped content, text around it -----------------------------
# No XML parser is used: models' XML is often malformed, and entities are not expanded, so that
# there is nothing to blow up. Only tags of the names asked for are tags; all others are text.

_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_SCRATCHPAD = re.compile(
    r"<(scratchpad|thinking|think|analysis|reasoning)\b[^<>]{0,200}>", re.IGNORECASE
)


def unescape(text: str) -> str:
    """Return the text that was escaped; CDATA sections are taken as they are, unknown entities
    stay."""
    plain = _CDATA.sub(lambda match: escape(match[1], quote=False), text)
    return _ENTITY.sub(_character, plain)


def _character(entity: re.Match[str]) -> str:
    if entity[1]:
        return _NAMED[entity[1]]
    code = int(entity[2]) if entity[2] else int(entity[3], 16)
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else entity[0]


def strip_scratchpads(text: str, before: re.Pattern[str]) -> str:
    """Return *text* without the scratchpads that open before the first match of *before*: a draft
    in them is no answer. Where that would leave no match, the text as it is."""
    lower = text.lower() if len(text.lower()) == len(text) else text
    pieces, at, first = list[str](), 0, before.search(text)
    while first and (aside := _SCRATCHPAD.search(text, at)) and aside.start() < first.start():
        end = lower.find(f"</{aside[1].lower()}", aside.end())
        if end < 0:
            break
        pieces.append(text[at : aside.start()])
        at = text.find(">", end) + 1 or len(text)
        first = first if first.start() >= at else before.search(text, at)
    answer = "".join([*pieces, text[at:]])
    return answer if before.search(answer) else text


def opening_tag(names: Sequence[str]) -> re.Pattern[str]:
    """Return what finds an opening tag of one of *names*: group 1 is the name, group 2 a `/` if it
    is empty."""
    words = "|".join(name.replace("_", "[_ -]?") for name in names)
    return re.compile(rf"<\s{{0,4}}({words})(?:\s[^<>]{{0,200}}?)?\s{{0,4}}(/?)>", re.IGNORECASE)


def closing_tag(name: str) -> re.Pattern[str]:
    """Return what finds a closing tag."""
    return re.compile(
        rf"<\s{{0,4}}/\s{{0,4}}{name.replace('_', '[_ -]?')}\s{{0,4}}>", re.IGNORECASE
    )


def element_content(text: str, name: str) -> str | None:
    """Return what stands between the first opening and the last closing tag, or the end of the
    text; None without an opening tag. So tags of this name inside it are content."""
    first = opening_tag([name]).search(text)
    if first is None:
        return None
    body = text[first.end() :]
    ends = [match.start() for match in closing_tag(name).finditer(body)]
    return body[: ends[-1]] if ends else body


def find_elements(text: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, raw content) of each element of one of *names*, in order.

    Other elements inside one are its content. An element that never closes ends where the next one
    of *names* opens, or with the text.
    """
    opens, bare = opening_tag(names), {name.replace("_", ""): name for name in names}
    closes = {name: closing_tag(name) for name in names}
    match = opens.search(text)
    while match:
        name, start = bare[re.sub(r"[_ -]", "", match[1]).lower()], match.end()
        close = closes[name].search(text, start) if name in closes and not match[2] else None
        following = opens.search(text, close.end() if close else start)
        if not close and not match[2]:
            closes.pop(name, None)  # none of this name closes any more
        end = close.start() if close else following.start() if following else len(text)
        yield name, "" if match[2] else text[start:end]
        match = following
