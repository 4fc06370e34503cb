"""Tokens of messages and parts: text by any counter, framing by constants, media by formula."""

import re
from collections.abc import Callable, Iterable
from functools import partial

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
from refold.tokens.estimate import estimate
from refold.tokens.media import UNKNOWN, media_tokens

Counter = Callable[[Message], int]
"""Tokens of one message, its framing included."""
TextCounter = Callable[[str], int]
"""Tokens of a text: `estimate`, `refold.tokens.exact.exact()`, or any tokenizer's."""
MediaCounter = Callable[[Media], int]

MESSAGE = 4
"""Framing of a message: start, role, separator, end (OpenAI's chat format; 3 and the role)."""
CALL = 8
"""Framing of a tool call besides its name: channel, recipient and constraint in OpenAI's harmony
format. The call's id is not shown to the model."""
RESULT = 4
"""Framing of a tool result besides its content."""
TOOL = 8
"""Framing of a tool definition."""
SIGNED = 6.5
"""Characters of a signature or of encrypted content for each token of the reasoning it holds.
Measured on 467 thinking blocks of Claude Sonnet 4.5 whose whole text is known (6.55 by o200k)."""
BLOB = 512
"""A run of this many base64 characters in a part we do not understand is data, not text."""

_BLOBS = re.compile(r"(?:[A-Za-z0-9+/_-]{60,}+=*+(?:\\[rn])*+)+")


def count_message(message: Message) -> int:
    """Estimate the tokens of one message: within 5 % of o200k on average (docs/models.md)."""
    return _message(estimate, media_tokens, message)


def counter(text: TextCounter, media: MediaCounter = media_tokens) -> Counter:
    """Return a counter of messages that uses a counter of texts.

    >>> count = counter(lambda text: len(text.split()))
    >>> count(Message("user", (Text("three words here"),))) - MESSAGE
    3
    """
    return partial(_message, text, media)


def is_estimator(count: Counter) -> bool:
    """Does *count* estimate texts as `count_message` does?

    If so, `refold.tokens.ratios` holds for its figures.
    """
    return count is count_message or (
        isinstance(count, partial) and count.func is _message and count.args[0] is estimate
    )


def count_fixed(
    system: Iterable[Part],
    tools: Iterable[str],
    text: TextCounter = estimate,
    media: MediaCounter = media_tokens,
) -> int:
    """Count the tokens of a system prompt and of tool definitions (each as JSON)."""
    prompt = sum(part_tokens(part, text, media) for part in system)
    return (prompt + MESSAGE if prompt else 0) + sum(text(tool) + TOOL for tool in tools)


def part_tokens(
    part: Part | Content, text: TextCounter = estimate, media: MediaCounter = media_tokens
) -> int:
    """Count the tokens of one part, its framing included.

    Thinking counts as its text or as what its signature holds, whichever is more: providers send
    a summary, or nothing, beside the signature of the whole and bill the whole. Base64 data
    inside parts we do not understand never counts as text.
    """
    if isinstance(part, Text):  # the two commonest, without the cost of matching
        return text(part.text)
    if isinstance(part, ToolResult):
        return RESULT + sum([part_tokens(item, text, media) for item in part.content])
    match part:
        case Thinking(words, signature):
            return max(text(words), int(len(signature) / SIGNED))
        case ToolCall(_, name, arguments):
            return CALL + text(name) + text(arguments)
        case Media():
            return media(part)
        case Opaque(_, json):
            return _json_tokens(json, text)


def _message(text: TextCounter, media: MediaCounter, message: Message) -> int:
    return MESSAGE + sum([part_tokens(part, text, media) for part in message.parts])


def _json_tokens(json: str, text: TextCounter) -> int:
    """Count the tokens of JSON.

    A long base64 string in it counts as the reasoning it may hold, at most as a medium.
    """
    if len(json) < BLOB:
        return text(json)
    blobs = [match for match in _BLOBS.finditer(json) if match.end() - match.start() >= BLOB]
    pieces, at = list[str](), 0
    for blob in blobs:
        pieces.append(json[at : blob.start()])
        at = blob.end()
    hidden = sum(min(UNKNOWN, int((blob.end() - blob.start()) / SIGNED)) for blob in blobs)
    return text("".join([*pieces, json[at:]])) + hidden
