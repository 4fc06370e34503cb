"""How a transcript is counted and where it may be cut."""

from collections.abc import Callable
from dataclasses import dataclass

from refold.messages import Message
from refold.rules.verdict import Rules
from refold.tokens.count import count_message


def as_estimated(tokens: int) -> int:
    """No calibration: the estimate is the figure."""
    return tokens


@dataclass(frozen=True, slots=True)
class Lens:
    """Everything about a conversation that is not said in it."""

    count: Callable[[Message], int] = count_message
    """Tokens of one message, its framing included."""
    rules: Rules = Rules()
    fixed: int = 0
    """Tokens of the system prompt and the tool definitions, which no edit touches."""
    calibrate: Callable[[int], int] = as_estimated
    """From estimated tokens of a whole request to expected ones (see `refold.tokens.anchor`)."""
    model: str = ""
    """The model that the conversation goes to, where its request names none."""
