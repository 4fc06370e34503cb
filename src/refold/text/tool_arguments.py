"""What a tool call is about, read from its arguments."""

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from refold.messages import ToolCall
from refold.text.clip import head

PATHS = (
    "path",
    "file_path",
    "filePath",
    "filepath",
    "file",
    "filename",
    "absolute_path",
    "notebook_path",
    "uri",
)
"""Names under which tools take the path of a file; a first entry wins."""
SUBJECTS = (*PATHS, "command", "cmd", "pattern", "query", "url", "name", "prompt", "description")
"""Names of the argument that says best what a call is about."""


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """A call's arguments; empty where they are no JSON object."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def path_of(call: ToolCall) -> str:
    """The file a call names, empty if it names none."""
    arguments = arguments_of(call)
    return next((arguments[key] for key in PATHS if isinstance(arguments.get(key), str)), "")


def call_gist(call: ToolCall, size: int = 60) -> str:
    """What a call is about in one line of at most *size* characters, such as a path or a command;
    empty if no argument says it."""
    line = " ".join(next(_subjects(call), "").split())
    return line if len(line) <= size else head(line, size - 1).rstrip() + "…"


def call_title(call: ToolCall) -> str:
    """Tool and gist in one line: `read src/app.py`."""
    return f"{call.name} {call_gist(call)}".strip() or "call"


def _subjects(call: ToolCall) -> Iterator[str]:
    arguments = arguments_of(call)
    preferred = (arguments[key] for key in SUBJECTS if key in arguments)
    for value in chain(preferred, arguments.values(), () if arguments else (call.arguments,)):
        if isinstance(value, str) and value.strip():
            yield value[:1_000]
        elif isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            yield " ".join(value)[:1_000]


_ESCAPES = re.compile(
    r"(?:\x1b|\\(?:x1[bB]|u001[bB]|0?33|e))"
    r"(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\\\n]*+(?:\x07|\x1b\\))"  # colours and moves; titles and links
    r"|\x9b[0-?]{0,40}[ -/]{0,4}[@-~]"  # the same in a character of its own
    r"|\x1b(?:[@-Z\\-_=>]|[()][0-9A-Z])"
    r"|\[\d{1,3}(?:;\d{1,3}){0,9}m(?!\])"
)


def without_escapes(text: str) -> str:
    r"""*text* without the escape sequences of terminals, so that `\x1b[31mError` says `Error` (F3).

    Those written out (`\u001b[31m`) go as well, and `[31m`, whose first character was lost on the way.
    """
    return _ESCAPES.sub("", text) if "[" in text or "\x1b" in text or "\x9b" in text else text
