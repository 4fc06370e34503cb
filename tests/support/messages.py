"""Messages that many tests make; a user's are made by `refold.messages.user`."""

import json
from typing import Any

from refold.messages import Message, Text, ToolCall, ToolResult, user


def assistant(text: str = "Done.") -> Message:
    """Return an answer of the model that is this text alone."""
    return Message("assistant", (Text(text),))


def call(name: str, result: str = "", *, is_error: bool = False, **arguments: Any) -> list[Message]:
    """Return a call of a tool and the message with its result."""
    return [
        Message("assistant", (ToolCall("c1", name, json.dumps(arguments)),)),
        Message("tool", (ToolResult("c1", (Text(result),), is_error),)),
    ]


def talk(turns: int = 20, words: int = 60) -> list[Message]:
    """Return so many requests, each with an answer of so many words."""
    return [
        message
        for n in range(turns)
        for message in (user(f"Request {n}: fix part {n}."), assistant("word " * words))
    ]
