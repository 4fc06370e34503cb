"""What was said, and the name of every prefix of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from refold.edits import Edit
from refold.log import Log
from refold.messages import Content, Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class Transcript:
    """Messages, and `tips`: `tips[i]` is the hash of `messages[:i]` and of nothing else.

    It only ever grows, so a position in it never moves. System prompt and tools are not in it.
    """

    messages: Log[Message]
    tips: Log[str]

    @classmethod
    def of(cls, messages: Iterable[Message] = (), salt: str = "") -> "Transcript":
        """Start a transcript. *salt* keeps the tips of different tenants apart."""
        first = blake2b(salt.encode(), digest_size=16).hexdigest() if salt else ""
        return cls(Log(), Log([first])).extend(messages)

    def extend(self, messages: Iterable[Message]) -> "Transcript":
        """This transcript followed by *messages*, in the time of what is added."""
        new = list(messages)
        tips = list(accumulate(new, _link, initial=self.tips[-1]))[1:]
        return Transcript(self.messages.extend(new), self.tips.extend(tips))

    def __len__(self) -> int:
        return len(self.messages)

    def holds(self, edit: Edit) -> bool:
        """Was this edit made for this history?"""
        return 0 <= edit.start < edit.stop < len(self.tips) and self.tips[edit.stop] == edit.tip

    def calls(self) -> dict[str, ToolCall]:
        """Every tool call by its id; of two with one id the later."""
        return {part.id: part for message in self.messages for part in message.parts if isinstance(part, ToolCall)}


def _link(tip: str, message: Message) -> str:
    return blake2b(tip.encode() + digest(message), digest_size=16).hexdigest()


def digest(message: Message) -> bytes:
    """Hash of a message's identity: role and parts. Thinking is no part of it, since clients drop,
    re-encode and restore signatures and encrypted reasoning (docs/identity.md)."""
    said = [message.role.encode("utf-8", "surrogatepass")]
    for part in message.parts:
        for field in _fields(part):
            data = field.encode("utf-8", "surrogatepass")
            said += (b"%d:" % len(data), data)
    return blake2b(b"".join(said), digest_size=16).digest()


def _fields(part: Part | Content) -> tuple[str, ...]:
    if isinstance(part, Text):  # the commonest, without the cost of matching
        return ("text", part.text)
    match part:
        case Thinking():
            return ()
        case ToolCall(id, name, arguments):
            return ("call", id, name, arguments)
        case ToolResult(id, content, error):
            return ("result", id, str(error), str(len(content)), *(f for item in content for f in _fields(item)))
        case Media(kind, mime, ref):
            return ("media", kind, mime, ref)
        case Opaque(kind, json):
            return ("opaque", kind, json)
