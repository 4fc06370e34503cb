"""The values that a conversation is made of. They are frozen and have no provider, no id and no
I/O.

A codec makes them from a provider's wire form. The wire form itself stays in the payload
(`refold.codecs.codec`), so an unedited message is never re-encoded.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning. It is not part of a message's identity
    (`refold.transcript.hash_message`)."""

    text: str = ""
    signature: str = ""
    """A signature or encrypted content that the provider needs back unchanged."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str
    """Canonical JSON (sorted keys, no spaces), or the text as sent if it is not JSON."""
    caller: str = ""
    """Id of the provider-side program that makes this call and reads its result; empty if the model
    makes it."""


@dataclass(frozen=True, slots=True)
class Media:
    """An image, sound, video or document. Its bytes stay in the wire form."""

    kind: str
    """`image`, `audio`, `video` or `document`."""
    mime: str = ""
    ref: str = ""
    """A URL or file id, or a hash of the embedded data."""
    width: int = 0
    """Pixels; 0 if unknown."""
    height: int = 0
    size: int = 0
    """Bytes of embedded data; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part of an unknown type. It is carried along and counted, but never edited."""

    kind: str
    json: str
    """Canonical JSON, without fields that clients move from turn to turn."""
    opens: str = ""
    """Id of the call that this part makes, if any (server-side tools)."""
    closes: str = ""
    """Id of the call that this part answers, if any."""


Content = Text | Media | Opaque


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    id: str
    content: tuple[Content, ...] = ()
    error: bool = False
    name: str = ""
    """The tool's name, if the wire form states it."""

    @property
    def text(self) -> str:
        """The texts of the result joined by line ends, without media and unknown parts."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Part = Text | Thinking | ToolCall | ToolResult | Media | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a transcript. Roles: `system`, `user`, `assistant`, `tool`."""

    role: str
    parts: tuple[Part, ...] = ()
    sender: str = field(default="", compare=False)
    """Author among several people, if the wire form names one. It is not part of the identity."""

    @property
    def calls(self) -> tuple[str, ...]:
        """Ids of the calls in this message, in order, server-side calls included."""
        return tuple(
            [
                part.id if isinstance(part, ToolCall) else part.opens
                for part in self.parts
                if isinstance(part, ToolCall) or (isinstance(part, Opaque) and part.opens)
            ]
        )

    @property
    def results(self) -> tuple[str, ...]:
        """Ids of the calls whose results are in this message, in order, server-side calls
        included."""
        return tuple(
            [
                part.id if isinstance(part, ToolResult) else part.closes
                for part in self.parts
                if isinstance(part, ToolResult) or (isinstance(part, Opaque) and part.closes)
            ]
        )

    @property
    def text(self) -> str:
        """The visible texts joined by line ends: no thinking, no tool calls or results."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def is_request(self) -> bool:
        """Whether this is a user message without tool results. `refold.speakers` decides who wrote
        it."""
        return self.role == "user" and not self.results


def user(text: str) -> Message:
    """Return a user message with one text."""
    return Message("user", (Text(text),))


def is_message(value: object) -> bool:
    """Return whether *value* is a message whose fields have the types that are declared, so that it
    can be counted, hashed and stored."""
    return (
        isinstance(value, Message)
        and isinstance(value.role, str)
        and isinstance(value.parts, tuple)
        and all(map(_is_part, value.parts))
    )


_TYPES = {
    kind: [(name, get_origin(hint) or hint) for name, hint in get_type_hints(kind).items()]
    for kind in get_args(Part)
}
"""Names and types of the fields of each part."""


def _is_part(part: object, kinds: Collection[type] = get_args(Part)) -> bool:
    kind = next((kind for kind in kinds if isinstance(part, kind)), None)
    return (
        kind is not None
        and all(isinstance(getattr(part, name), hint) for name, hint in _TYPES[kind])
        and all(_is_part(item, get_args(Content)) for item in getattr(part, "content", ()))
    )
