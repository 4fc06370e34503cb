"""What a wire format must offer. A codec is a module (or any object) with these names."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, cast

from refold.messages import Message, Part
from refold.rules.rule import Rules

Wire = Any
"""One entry of a request's list of messages, as parsed from JSON."""


class Codec(Protocol):
    """One wire format. All functions are pure and leave their arguments alone."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """`anthropic`, `openai_chat`, `openai_responses`, `gemini`, `bedrock`."""

    @property
    def FIELD(self) -> str:  # noqa: N802 - a module constant
        """The body's field that holds the conversation, such as `messages`, `input`, `contents`."""

    def rules(self, body: Mapping[str, Any]) -> Rules:
        """Return what this API refuses, for the model that *body* names (`{}` for a bare list)."""

    def fits(self, body: Mapping[str, Any], items: Sequence[Wire]) -> int:
        """Rate how surely a payload is of this format: 0 not at all, 1 possible, more is surer."""

    def is_system(self, item: Wire) -> bool:
        """May this leading entry stand in the head (system prompt), outside the transcript?"""

    def system(self, body: Mapping[str, Any]) -> tuple[Part, ...]:
        """Return the system prompt that stands in fields of its own, beside the head."""

    def tools(self, body: Mapping[str, Any]) -> Iterable[Any]:
        """Return each tool definition, as parsed from JSON."""

    def decode(self, item: Wire, prior: Sequence[Message]) -> Message:
        """Decode one entry; *prior* is what was decoded before it.

        Raises `FormatError` when *item* is not even of the right JSON type.
        """

    def encode(self, message: Message) -> Wire:
        """Encode a message that came from no entry, such as a summary."""

    def patch(self, item: Wire, message: Message) -> Wire:
        """Change *item* as little as needed to say what *message* says; unknown fields stay."""

    def merge(self, first: Wire, second: Wire) -> Wire:
        """Join two neighbours of one role to one entry."""


def with_rules(codec: Codec, rules: Callable[[Mapping[str, Any]], Rules]) -> Codec:
    """Return *codec* with other *rules*: of an account, of a milder server, or your own.

    Call it once and keep the result: two of them are two formats.
    """
    names = [name for name in vars(Codec) if not name.startswith("_")]
    return cast(
        "Codec",
        SimpleNamespace(**{name: getattr(codec, name) for name in names} | {"rules": rules}),
    )
