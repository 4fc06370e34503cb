"""The protocol of a summary form, and how JSON and tags are read from models' answers."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Protocol, TypeVar

Value = TypeVar("Value")


class Form(Protocol[Value]):
    """A shape in which a model is asked to summarise, with typed values (docs/summaries.md).

    `parse(render(value)) == value` for every value with content. All four functions are
    deterministic and never raise for any text or value.
    """

    @property
    def name(self) -> str:
        """One word for logs and the ledger."""

    @property
    def template(self) -> str:
        """Description of the shape, for a prompt."""

    def parse(self, text: str, /) -> Value | None:
        """Return the value in a model's answer or a rendered text. Return None if the text does not
        have this form or no content."""

    def render(self, value: Value, /) -> str:
        """Return the value as text for the next model."""

    def merge(self, previous: Value | None, new: Value, /) -> Value | None:
        """Return *previous* updated by *new*, or None if *new* cannot be applied to it."""

    def shorten(self, value: Value, /) -> Value | None:
        """Return the value without its least important item, or None if no more can be left out."""


def describe_fault(form: Form[Any], text: str) -> str:
    """Say why *text* has no value in *form*. Missing headings are named if the form has a method
    `list_missing`, from a text to headings."""
    list_missing: Callable[[str], Sequence[str]] | None = getattr(form, "list_missing", None)
    missing = ", ".join(list_missing(text)) if list_missing is not None else ""
    fault = "it does not have the form that was asked for"
    return f"{fault}; missing headings: {missing}" if missing else fault


# --- JSON objects: in fences, in prose, with small faults ---------------------------------------

MAX_TRIES = 50
"""Maximum number of opening braces in a text that are tried as the beginning of an object."""
MAX_DEPTH = 200
"""Maximum nesting of an object. No answer is deeper, and each level is read again for every brace
in it."""
_TRAILING = re.compile(r'("(?>(?:[^"\\]|\\.?)*)"?)|,\s*+(?=[}\]])', re.DOTALL)
_STRINGS = re.compile(r'"(?>(?:[^"\\]|\\.?)*)"?|[{}\[\]]', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


def find_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects in *text*, in order. Line breaks in strings, commas before a
    closing bracket and unclosed brackets at the end are accepted. Never raises."""
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
    """Return the object that begins at *at*, with missing brackets added at the end of the text,
    and its end. Return an empty text if it is nested too deep."""
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
# No XML parser is used, because models' XML is often malformed. Entities are not expanded, so none
# can grow without bound. Tags of other names than those asked for are text.

_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_SCRATCHPAD = re.compile(
    r"<(scratchpad|thinking|think|analysis|reasoning)\b[^<>]{0,200}>", re.IGNORECASE
)


def unescape(text: str) -> str:
    """Return the unescaped text. CDATA sections are taken literally and unknown entities stay."""
    plain = _CDATA.sub(lambda match: escape(match[1], quote=False), text)
    return _ENTITY.sub(_character, plain)


def _character(entity: re.Match[str]) -> str:
    if entity[1]:
        return _NAMED[entity[1]]
    code = int(entity[2]) if entity[2] else int(entity[3], 16)
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else entity[0]


def strip_scratchpads(text: str, before: re.Pattern[str]) -> str:
    """Return *text* without the scratchpads that open before the first match of *before*, since a
    draft is no answer. If that removes every match, return the text unchanged."""
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
    """Return a pattern for an opening tag with one of *names*. Group 1 is the name, group 2 a `/`
    in an empty element."""
    words = "|".join(name.replace("_", "[_ -]?") for name in names)
    # ASCII for the name: otherwise `ſ`, `ı` and `İ` match letters that they are no other case of.
    return re.compile(
        rf"<\s{{0,4}}((?a:{words}))(?:\s[^<>]{{0,200}}?)?\s{{0,4}}(/?)>", re.IGNORECASE
    )


def closing_tag(name: str) -> re.Pattern[str]:
    """Return a pattern for a closing tag."""
    return re.compile(
        rf"<\s{{0,4}}/\s{{0,4}}(?a:{name.replace('_', '[_ -]?')})\s{{0,4}}>", re.IGNORECASE
    )


def element_content(text: str, name: str) -> str | None:
    """Return the content from the first opening tag to the last closing tag (or the end of the
    text), so that inner tags of this name are content. Return None without an opening tag."""
    first = opening_tag([name]).search(text)
    if first is None:
        return None
    body = text[first.end() :]
    ends = [match.start() for match in closing_tag(name).finditer(body)]
    return body[: ends[-1]] if ends else body


def find_elements(text: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, raw content) of each element with one of *names*, in order.

    Other elements inside are content. An unclosed element ends where the next of *names* opens, or
    at the end of the text.
    """
    opens, bare = opening_tag(names), {name.replace("_", ""): name for name in names}
    closes = {name: closing_tag(name) for name in names}
    match = opens.search(text)
    while match:
        name, start = bare[re.sub(r"[_ -]", "", match[1]).lower()], match.end()
        close = closes[name].search(text, start) if name in closes and not match[2] else None
        following = opens.search(text, close.end() if close else start)
        if not close and not match[2]:
            closes.pop(name, None)  # there are no more closing tags of this name
        end = close.start() if close else following.start() if following else len(text)
        yield name, "" if match[2] else text[start:end]
        match = following
