"""What a conversation is made of: frozen values with no provider, no identity and no I/O.

A codec makes them from a provider's wire form. The wire form itself stays in the payload
(`refold.codecs.codec`), so an unedited message is never re-encoded.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning, no part of a message's identity (`refold.transcript.hash_message`)."""

    text: str = ""
    signature: str = ""
    """What the provider needs back unchanged: a signature or encrypted content."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str
    """Canonical JSON (sorted keys, no spaces), or the text as sent if it is no JSON."""
    caller: str = ""
    """Id of the provider's call whose program makes this one, and reads its result; empty if the
    model does."""


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
    """A part we do not understand. It is carried, counted and never edited."""

    kind: str
    json: str
    """Canonical JSON, without what clients move from turn to turn."""
    opens: str = ""
    """Id of the call that this part makes, if any (server-side tools)."""
    closes: str = ""
    """Id of the call that this part answers, if any."""


Content = Text | Media | Opaque


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered."""

    id: str
    content: tuple[Content, ...] = ()
    error: bool = False
    name: str = ""
    """The tool's name, if the wire form states it."""

    @property
    def text(self) -> str:
        """All text of the result; media and unknown parts left out."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Part = Text | Thinking | ToolCall | ToolResult | Media | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a transcript. Roles: `system`, `user`, `assistant`, `tool`."""

    role: str
    parts: tuple[Part, ...] = ()
    sender: str = field(default="", compare=False)
    """Who of several people writes it, if the wire form states it; no part of its identity."""

    @property
    def calls(self) -> tuple[str, ...]:
        """Ids of the calls it makes, in order, server-side ones included."""
        return tuple(
            [
                part.id if isinstance(part, ToolCall) else part.opens
                for part in self.parts
                if isinstance(part, ToolCall) or (isinstance(part, Opaque) and part.opens)
            ]
        )

    @property
    def results(self) -> tuple[str, ...]:
        """Ids of the calls it answers, in order, server-side ones included."""
        return tuple(
            [
                part.id if isinstance(part, ToolResult) else part.closes
                for part in self.parts
                if isinstance(part, ToolResult) or (isinstance(part, Opaque) and part.closes)
            ]
        )

    @property
    def text(self) -> str:
        """The text people read: no thinking, no tool traffic."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def is_request(self) -> bool:
        """Does the user's role hold no result here? Who speaks in it, `refold.speakers` tells."""
        return self.role == "user" and not self.results


def user(text: str) -> Message:
    """Return a user message of one text."""
    return Message("user", (Text(text),))
