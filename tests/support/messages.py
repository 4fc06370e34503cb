"""Messages that many tests use. `refold.messages.user` makes a user's."""

import json
from typing import Any

from refold.messages import Message, Text, ToolCall, ToolResult, user


def assistant(text: str = "Done.") -> Message:
    """Return an assistant message with only this text."""
    return Message("assistant", (Text(text),))


def call(name: str, result: str = "", *, is_error: bool = False, **arguments: Any) -> list[Message]:
    """Return a tool call and the message with its result."""
    return [
        Message("assistant", (ToolCall("c1", name, json.dumps(arguments)),)),
        Message("tool", (ToolResult("c1", (Text(result),), is_error),)),
    ]


def talk(turns: int = 20, words: int = 60) -> list[Message]:
    """Return this many requests, each with an answer of this many words."""
    return [
        message
        for n in range(turns)
        for message in (user(f"Request {n}: fix part {n}."), assistant("word " * words))
    ]
