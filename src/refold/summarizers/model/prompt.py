"""Input of a summarizing model: prompts, and messages as a record. Text in the record stands in
tags and cannot open or close any.

The model gets no tool messages, media or thinking (C4-10).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

from refold.messages import Content, Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from refold.speakers import segment_messages
from refold.text.clip import floor, gap

_PLACE = re.compile(r"\{(\w++)\}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text put to a model. The ledger records its `id`."""

    name: str
    text: str

    @property
    def id(self) -> str:
        """Name and the first 8 hex digits of the text's hash: `summary@1f0c2d3e`."""
        return f"{self.name}@{blake2b(self.text.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"

    def __repr__(self) -> str:
        return f"Prompt({self.id})"

    def plus(self, *texts: str) -> "Prompt":
        """Return this prompt followed by other texts, without empty ones."""
        return Prompt(
            self.name, "\n\n".join(text.strip() for text in (self.text, *texts) if text.strip())
        )

    def fill(self, **values: object) -> "Prompt":
        """Return this prompt with each `{name}` in it replaced by its value. Other braces stay."""
        # In one pass, because a value may hold the name of another.
        text = _PLACE.sub(lambda match: str(values.get(match[1], match[0])), self.text)
        return Prompt(self.name, text)


def load_prompt(name: str) -> Prompt:
    """Return a prompt of the package: `summary`, `beside`, `whole`, `part`, `reduce` or `here`
    (files in `refold/summarizers/prompts`). Raises FileNotFoundError for another name."""
    text = (
        files("refold.summarizers").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    )
    return Prompt(name, text.strip())


def as_prompt(given: "Prompt | str") -> Prompt:
    """Return a prompt unchanged, or a text as a prompt named `custom`."""
    return Prompt("custom", given) if isinstance(given, str) else given


# --- the record ---------------------------------------------------------------------------------

TAGS = (
    "conversation",
    "previous-summary",
    "part",
    "user",
    "assistant",
    "system",
    "tool",
    "call",
    "result",
    "request",
)
_TAG = re.compile(rf"<(?=\\*\s{{0,8}}/?\s{{0,8}}(?:{'|'.join(TAGS)})(?![\w-]))", re.IGNORECASE)
_UNSAFE = re.compile(r"[\"<>\s]+")
MAX_NAME = 80
"""Maximum number of characters shown of a tool's name."""


class Detail(NamedTuple):
    """Maximum number of characters shown of tool results and arguments. Longer ones keep both
    ends."""

    results: int
    inputs: int


DETAILS = (
    Detail(10**9, 10**9),
    Detail(8_000, 4_000),
    Detail(2_000, 1_000),
    Detail(600, 300),
    Detail(200, 120),
)
"""From full to minimal detail. Text of people and of the model is shown whole in all of them."""


class Element(NamedTuple):
    """One text, call or result."""

    at: int
    """Index of its message."""
    tag: str
    text: str
    label: str = ""
    """Attributes, ready for the tag."""

    def render(self) -> str:
        """Return the element as text in its tags."""
        return f"<{self.tag}{self.label}>\n{_escape_tags(self.text)}\n</{self.tag}>"


def _escape_tags(text: str) -> str:
    """Return *text* unable to open or close any tag of a record."""
    return _TAG.sub(r"<\\", text)


def in_tags(tag: str, text: str) -> str:
    """Return *text*, escaped, between tags."""
    return f"<{tag}>\n{_escape_tags(text)}\n</{tag}>"


def record_elements(messages: Iterable[tuple[int, Message]], detail: Detail) -> Iterator[Element]:
    """Yield the elements of messages in order, without thinking and empty texts. A part in which
    only tools speak is a result, and one without a person's words is not the user's, whatever its
    role."""
    own = list(messages)
    for (at, message), spoken in zip(own, segment_messages([m for _, m in own]), strict=True):
        voices = defaultdict[int, set[str]](set)
        for segment in spoken:
            voices[segment.part].add(segment.voice)
        for place, part in enumerate(message.parts):
            if voices[place] == {"tool"}:
                role = "result"
            elif voices[place] and "person" not in voices[place]:
                role = "system"
            else:
                role = message.role
            element = _make_element(at, role, part, detail)
            if element and element.text.strip():
                yield element


def _make_element(at: int, role: str, part: Part, detail: Detail) -> Element | None:
    match part:
        case Text(text):
            return Element(at, role if role in TAGS else "system", text)
        case ToolCall(_, name, arguments):
            return Element(
                at, "call", clip_middle(arguments or "{}", detail.inputs), _attributes(tool=name)
            )
        case ToolResult(_, content, error, name):
            text = "\n".join(map(_describe_content, content)) or "(empty)"
            return Element(
                at,
                "result",
                clip_middle(text, detail.results),
                _attributes(tool=name, error="yes" if error else ""),
            )
        case Media() | Opaque():
            return Element(at, role if role in TAGS else "system", _describe_content(part))
        case _:
            return None


def _describe_content(part: Content) -> str:
    match part:
        case Text(text):
            return text
        case Media(kind, mime):
            return f"[{' '.join(filter(None, (kind, mime)))}]"
        case Opaque(kind):
            return f"[{kind}]"


def _attributes(**values: str) -> str:
    return "".join(
        f' {name}="{_UNSAFE.sub(" ", value)[:MAX_NAME]}"' for name, value in values.items() if value
    )


def clip_middle(text: str, limit: int) -> str:
    """Return *text* without its middle, so that about *limit* characters stay."""
    cut = gap(text, limit, head=0.6)
    left_out = cut.stop - cut.start
    if left_out <= 0:
        return text
    return f"{text[: cut.start]}\n[… {left_out:,} characters left out …]\n{text[cut.stop :]}"


def halve(element: Element) -> tuple[Element, Element]:
    """Return an element of two or more characters as two, cut at a line end or else between
    characters. Neither is empty."""
    middle = len(element.text) // 2
    line = element.text.find("\n", middle, min(middle + 400, len(element.text) - 1))
    at = line + 1 if line >= 0 else floor(element.text, middle) or middle
    return element._replace(text=element.text[:at]), element._replace(text=element.text[at:])
