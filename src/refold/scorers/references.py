"""What later messages refer to is in use."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.arguments import path_of
from refold.messages import Message, Text, ToolCall, ToolResult
from refold.summarizers.rules.names import Tally, note
from refold.view import View


@dataclass(frozen=True)
class References:
    """How much of a tool result is used by later messages: each later call or text that names one of
    its identifiers or paths, or the file that it was about, is a reference.

    A reference goes to the latest result that holds the name, and weighs less with age: 1.0 now,
    half after *half* messages. The score is r / (r + *enough*) for references of weight r, so 0.0
    for what nobody refers to. Raises ValueError for figures that are not positive.
    """

    half: float = 60.0
    enough: float = 3.0

    def __post_init__(self) -> None:
        if min(self.half, self.enough) <= 0:
            raise ValueError("half and enough must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        said = view.transcript.messages
        weights = [0.0] * len(said)
        holder: dict[str, int] = {}
        words = Tally()
        about: dict[str, str] = {}
        for at, message in enumerate(said):
            age = len(said) - 1 - at
            for name in _names(words, _used(message)):
                if name in holder:
                    weights[holder[name]] += 1 / (1 + age / self.half)
            about.update((part.id, path_of(part)) for part in message.parts if isinstance(part, ToolCall))
            for part in message.parts:
                if isinstance(part, ToolResult):
                    held = _names(words, [part.text, about.get(part.id, "")])
                    holder.update((name, at) for name in held)
        return [weight / (weight + self.enough) for weight in weights]


def _used(message: Message) -> list[str]:
    """What a message itself says: texts, and the arguments of its calls."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return texts + [part.arguments for part in message.parts if isinstance(part, ToolCall)]


def _names(words: Tally, texts: list[str]) -> list[str]:
    """The identifiers of texts, each once; *words* remembers what each word was found to be."""
    found = Tally(names=words.names, kinds=words.kinds)
    for text in texts:
        note(found, text, 0)
    return list(found.last)
