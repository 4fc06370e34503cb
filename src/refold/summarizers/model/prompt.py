"""What a summarizing model is given: prompts, and messages as a record, whose text stands in tags
that nothing inside can open or close.

No tool message and no medium goes to that model, and no thinking (C4-10).
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


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text that is put to a model. The ledger records its `id`."""

    name: str
    text: str

    @property
    def id(self) -> str:
        """Name and the first 8 hex digits of the text's hash: `summary@1f0c2d3e`."""
        return f"{self.name}@{blake2b(self.text.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"

    def __repr__(self) -> str:
        return f"Prompt({self.id})"

    def plus(self, *texts: str) -> "Prompt":
        """Return this prompt followed by other texts, those that say nothing left out."""
        return Prompt(
            self.name, "\n\n".join(text.strip() for text in (self.text, *texts) if text.strip())
        )

    def fill(self, **values: object) -> "Prompt":
        """Return this prompt with each of *values* in place of its `{name}`; other braces stay."""
        text = self.text
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return Prompt(self.name, text)


def load_prompt(name: str) -> Prompt:
    """Return a prompt that comes with the package: `summary`, `beside`, `whole`, `part`,
    `reduce` or `here` (files in `refold/summarizers/prompts`). Raises FileNotFoundError."""
    text = (
        files("refold.summarizers").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    )
    return Prompt(name, text.strip())


def as_prompt(given: "Prompt | str") -> Prompt:
    """Return a prompt as it is, a text as a prompt called `custom`."""
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
"""Characters of a tool's name that are shown."""


class Detail(NamedTuple):
    """How many characters are shown of what tools said and were given; of more, both ends."""

    results: int
    inputs: int


DETAILS = (
    Detail(10**9, 10**9),
    Detail(8_000, 4_000),
    Detail(2_000, 1_000),
    Detail(600, 300),
    Detail(200, 120),
)
"""From everything to the least. What people and the model said is shown whole in all of them."""


class Element(NamedTuple):
    """One thing that was said, called or answered."""

    at: int
    """Position of its message."""
    tag: str
    text: str
    label: str = ""
    """Attributes, ready to be written."""

    def render(self) -> str:
        """Return the element as text in its tags."""
        return f"<{self.tag}{self.label}>\n{_escape_tags(self.text)}\n</{self.tag}>"


def _escape_tags(text: str) -> str:
    """Return *text*, unable to open or close any tag of a record."""
    return _TAG.sub(r"<\\", text)


def in_tags(tag: str, text: str) -> str:
    """Return *text*, escaped, between tags."""
    return f"<{tag}>\n{_escape_tags(text)}\n</{tag}>"


def record_elements(messages: Iterable[tuple[int, Message]], detail: Detail) -> Iterator[Element]:
    """Yield what messages say, in order, thinking and empty texts left out. A part in which nobody
    but tools speak is a result, and one in which no person speaks is no user's, whatever role it
    is in."""
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
    """Return *text* with its middle left out, so that about *limit* characters stay."""
    cut = gap(text, limit, head=0.6)
    left_out = cut.stop - cut.start
    if left_out <= 0:
        return text
    return f"{text[: cut.start]}\n[… {left_out:,} characters left out …]\n{text[cut.stop :]}"


def halve(element: Element) -> tuple[Element, Element]:
    """Return an element as two, cut at the end of a line or between characters; neither is
    empty."""
    middle = len(element.text) // 2
    line = element.text.find("\n", middle, min(middle + 400, len(element.text) - 1))
    at = line + 1 if line >= 0 else floor(element.text, middle) or middle
    return element._replace(text=element.text[:at]), element._replace(text=element.text[at:])
