"""What a model can read in a message, as text to search and to show."""

import json
from collections.abc import Iterator
from typing import Any

from refold.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)


def readable_text(message: Message) -> str:
    """Texts, calls with their arguments, results. Thinking is left out: providers drop it from earlier turns.
    Media and parts of unknown kind are named in brackets."""
    return "\n".join(text for part in message.parts if (text := _part(part)))


def _part(part: Part | Content) -> str:
    match part:
        case Text(text):
            return text
        case ToolCall(_, name, arguments):
            return f"{name} {_arguments(arguments)}".strip()
        case ToolResult(_, content):
            return "\n".join(map(_part, content))
        case Media(kind, _, ref):
            return f"[{kind} {ref}]"
        case Opaque(_, text):
            return text
        case Thinking():
            return ""


def _arguments(text: str) -> str:
    """A call's arguments as lines of `name: value`, strings as they are and not as JSON spells them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_lines("", value)) if isinstance(value, dict) else text


def _lines(name: str, value: Any) -> Iterator[str]:
    """Each string and number in a JSON value with its name, without recursion."""
    pending = [(name, value)]
    while pending:
        name, value = pending.pop()
        match value:
            case dict():
                pending += [(str(key), item) for key, item in reversed(value.items())]
            case list():
                pending += [(name, item) for item in reversed(value)]
            case str():
                yield f"{name}: {value}"
            case _:
                yield f"{name}: {json.dumps(value)}"


def plain_text(message: Message) -> str:
    """Texts, calls with their arguments as they are, and the texts of results: nothing for media, parts of
    unknown kind and thinking."""
    return "\n".join(_plain(message))


def _plain(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text() | ToolResult():
                yield part.text
            case ToolCall():
                yield f"{part.name} {part.arguments}"
            case _:
                pass
