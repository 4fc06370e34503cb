"""What later calls of a recorded session need of the messages before them."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.replay import STRUCTURED, iter_strings
from refold.messages import Message, Text, ToolCall, ToolResult

LINE_NUMBER = re.compile(r"^\s*\d{1,6}\s*[→|:\t]\s?")
"""Line number that tools print before a line of a file."""
OLD_TEXT = ("old_string", "oldText", "old_str", "old_text", "search")
"""Arguments of editing tools that hold the text to replace."""
LEAST = 3
"""Minimum number of letters and digits of a line that counts."""


@dataclass(frozen=True)
class Name:
    """An identifier that a call uses and that an earlier message introduced."""

    at: int
    text: str
    is_reused: bool
    """Whether an earlier call used it already."""


@dataclass(frozen=True)
class OldLines:
    """The lines that an edit replaces, as far as the transcript held them before."""

    at: int
    lines: tuple[str, ...]


def read_arguments(call: ToolCall) -> object:
    """Return a call's arguments as JSON values, or as text if they are not JSON."""
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments


def text_of(message: Message) -> str:
    """Return the text, call arguments and results of a message, without thinking."""
    return "\n".join(block for block in iter_blocks(message))


def iter_blocks(message: Message) -> Iterator[str]:
    """Yield the text of each part; for a call its name and the strings of its arguments, one per
    line."""
    for part in message.parts:
        match part:
            case Text(text=text):
                yield text
            case ToolCall():
                yield "\n".join((part.name, *iter_strings(read_arguments(part))))
            case ToolResult():
                yield part.text


def find_names(messages: Sequence[Message], system: str = "") -> list[Name]:
    """Return the names that calls use and that results or the user introduced, in order.

    The first use of a name counts, a later use as `is_reused`. Names that the model itself or the
    system prompt introduced are not needed from the history.
    """
    own, brought, used = set(STRUCTURED.findall(system)), set[str](), set[str]()
    needs = []
    for at, message in enumerate(messages):
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        texts = (text for call in calls for text in iter_strings(read_arguments(call)))
        now = dict.fromkeys(name for text in texts for name in STRUCTURED.findall(text))
        needs += [Name(at, name, name in used) for name in now if name in brought]
        used.update(now)
        own.update(name for name in now if name not in brought)
        for part in message.parts:
            is_given = isinstance(part, ToolResult) or (
                isinstance(part, Text) and message.role != "assistant"
            )
            names = STRUCTURED.findall(part.text) if isinstance(part, Text | ToolResult) else []
            (brought if is_given else own).update(
                name for name in names if name not in (own if is_given else brought)
            )
    return needs


def normalize(line: str) -> str:
    """Return a line without indentation and without the line number that a tool prints."""
    return LINE_NUMBER.sub("", line).strip()


def iter_lines(text: str) -> Iterator[str]:
    """Yield the lines of *text* with enough letters and digits, normalized."""
    for line in text.splitlines():
        plain = normalize(line)
        if sum(map(str.isalnum, plain)) >= LEAST:
            yield plain


def find_edits(messages: Iterable[Message]) -> list[OldLines]:
    """Return the old lines of each edit if the transcript held some of them before."""
    held, edits = set[str](), []
    for at, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                old = [
                    line
                    for text in iter_old_texts(read_arguments(part))
                    for line in iter_lines(text)
                ]
                if lines := tuple(dict.fromkeys(line for line in old if line in held)):
                    edits.append(OldLines(at, lines))
        held.update(line for block in iter_blocks(message) for line in iter_lines(block))
    return edits


def iter_old_texts(arguments: object) -> Iterator[str]:
    """Yield the texts that an editing call replaces: named arguments, or lines of a patch."""
    pending = [arguments]
    while pending:
        match pending.pop():
            case dict() as fields:
                for name, value in fields.items():
                    if name in OLD_TEXT and isinstance(value, str):
                        yield value
                    elif isinstance(value, str) and "*** Begin Patch" in value:
                        yield from patch_lines(value)
                    else:
                        pending.append(value)
            case list() as items:
                pending += items
            case str() as text if "*** Begin Patch" in text:
                yield from patch_lines(text)


def patch_lines(patch: str) -> Iterator[str]:
    """Yield the lines of a patch that must exist already."""
    for line in patch.splitlines():
        if line[:1] in {"-", " "} and not line.startswith("---"):
            yield line[1:]
