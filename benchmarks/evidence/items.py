"""Items that a successor must be told at a point of a recorded session, read from the recording
only.

The parsers are simple on purpose and share no code with what they measure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.evidence.needs import OLD_TEXT, read_arguments
from benchmarks.probes import ENDS
from refold.messages import Message, Text, ToolCall, ToolResult

PATH = ("file_path", "path", "filePath", "notebook_path", "filename", "target_file")
WRITTEN = ("content", "file_text", "contents", "new_source")
COMMAND = ("command", "cmd", "script")
STEP = ("content", "step", "title", "subject", "text", "description")
CLIENT = re.compile(
    r"<(system-reminder|command-\w+|local-command-\w+|task-notification|environment_context|"
    r"user_instructions|user-prompt-submit-hook)\b[^>]*>.*?</\1>",
    re.DOTALL,
)
"""Blocks that clients add to the user's own text."""
INJECTED = (
    "Base directory for this skill:",
    "Caveat: The messages below",
    "This session is being continued",
    "[Request interrupted",
    "Read the output file to retrieve the result:",
    "Please always provide EXACTLY ONE action",
)
"""Prefixes of texts that clients send in the user role."""
BINDS = re.compile(
    r"\b(?:must|never|always|do not|don['’]t|make sure|ensure|avoid|should not|(?:have|has|need|needs) to|"
    r"without asking|from now on)\b|^(?:[-*] )?(?:please |only |use |keep )|必须|不要|不能|不得|禁止|只能|务必|始终|避免|请",
    re.IGNORECASE,
)
"""Words that make a sentence of the user an instruction."""
PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)
NAME = r"([\w@./-]*[\w-]\.\w+)"
REDIRECTED = re.compile(rf"(?<![\d&>])(>>?)\s*[\"']?{NAME}")
IN_PLACE = re.compile(rf"\bsed\s+(?:-\w+\s+)*-i\b[^\n;&|]*?\s{NAME}[\"']?\s*(?:$|[;&|\n])")
REMOVED = re.compile(rf"\brm((?:\s+-\w+)*(?:\s+{NAME})+)")
RESTORED = re.compile(rf"\bgit\s+(?:checkout|restore)\s+(?:--\s+)?{NAME}")
MOVED = re.compile(rf"\b(?:mv|cp)\s+(?:-\w+\s+)*{NAME}\s+{NAME}")
CHECK = re.compile(
    r"\b(?:pytest|unittest|runtests\S*|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|tsc|mypy|ruff|"
    r"eslint|clippy|gradle\w*|mvn|make|(?:npm|pnpm|yarn|bun)(?: run)? (?:test|build|lint|check)\S*|"
    r"(?:go|cargo|dotnet|mix) (?:test|build|vet|check|compile|credo|dialyzer))\b"
)
FIGURES = re.compile(
    r"\d+\s+(?:\w+\s+)?(?:pass|fail|error|warning|skip|test|example|spec|problem|ok\b)"
    r"|(?:pass|fail|error|test)\w*:?\s+\d+|\bRan \d+ tests?",
    re.IGNORECASE,
)
COUNTED = re.compile(r"\b\d+\s+[A-Za-z]{3,}")
LABELLED = re.compile(r"\b[A-Za-z]{3,}:?\s+\d+\b")
ANNOUNCED = re.compile(
    r"(?:now|next|then|let me|let's|i'll|i will|i need to|i'm going to|接下来|现在|下一步|让我|我来)",
    re.IGNORECASE,
)
HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?([^\n]*)\n.*?^\1$", re.DOTALL | re.MULTILINE)
"""A here-document, whose contents are not part of the command."""
MOST_TEXT = 20_000
"""Characters at the end of an output that are searched for figures."""


@dataclass
class Items:
    """The items to hand over at a point, with whitespace collapsed."""

    request: str = ""
    """The latest message of the user."""
    instructions: dict[str, None] = field(default_factory=dict)
    """Sentences of the user that are instructions."""
    files: dict[str, None] = field(default_factory=dict)
    """Paths of files that were changed and still exist."""
    touched: dict[str, None] = field(default_factory=dict)
    """Paths of all files that calls named."""
    check: str = ""
    """The line with the figures of the last test or build."""
    under_way: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    next: str = ""
    """The step that the model announced last."""


def plain(text: str) -> str:
    """Return *text* with whitespace collapsed."""
    return " ".join(text.split())


def read_items(messages: Sequence[Message]) -> Items:
    """Return the items to hand over after *messages*."""
    items, pending = Items(), dict[str, ToolCall]()
    for message in messages:
        for part in message.parts:
            match part:
                case Text() if message.role == "user":
                    note_request(items, part.text)
                case Text() if message.role == "assistant":
                    note_answer(items, part.text)
                case ToolCall():
                    pending[part.id] = part
                    note_todos(items, read_arguments(part))
                case ToolResult() if part.id in pending:
                    note_result(items, read_arguments(pending.pop(part.id)), part)
                case _:
                    pass
    return items


def note_request(items: Items, text: str) -> None:
    """Note the user's request and the instructions in it."""
    words = CLIENT.sub("", text).strip()
    if not words or words.startswith(INJECTED) or (words.startswith("<") and words.endswith("/>")):
        return
    items.request = plain(words)
    for sentence in map(plain, ENDS.split(words)):
        if BINDS.search(sentence) and 12 <= len(sentence) <= 300:
            items.instructions[sentence] = None


def note_answer(items: Items, text: str) -> None:
    """Note the last sentence that announces a step."""
    sentences = [plain(sentence) for sentence in ENDS.split(text)]
    announced = [s for s in sentences if ANNOUNCED.match(s) and len(s) <= 300]
    items.next = announced[-1].rstrip(":") if announced else ""


def note_todos(items: Items, arguments: object) -> None:
    """Note a list of steps with their states, if the arguments hold one."""
    for value in arguments.values() if isinstance(arguments, dict) else ():
        if not isinstance(value, list) or not value:
            continue
        steps = [step for step in value if isinstance(step, dict) and "status" in step]
        texts = [(next((str(s[k]) for k in STEP if k in s), ""), str(s["status"])) for s in steps]
        if len(texts) == len(value):
            items.under_way = tuple(plain(t) for t, status in texts if "progress" in status)
            items.open = tuple(plain(t) for t, status in texts if status == "pending")


def note_result(items: Items, arguments: object, result: ToolResult) -> None:
    """Note what a successful call did to files, and the figures of a test or build."""
    fields = arguments if isinstance(arguments, dict) else {"input": arguments}
    command = next((str(fields[key]) for key in COMMAND if key in fields), "")
    for path, is_there in iter_changes(fields, command):
        items.touched[path] = None
        if not result.error:
            items.files.pop(path, None)
            if is_there:
                items.files[path] = None
    items.touched.update((str(fields[key]), None) for key in PATH if key in fields)
    if CHECK.search(command.split("<<")[0]):
        rows = result.text[-MOST_TEXT:].splitlines()
        figures = [row for row in rows if len(row) < 300 and FIGURES.search(row)]
        items.check = plain(figures[-1]) if figures else items.check


def iter_changes(fields: Mapping[str, Any], command: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths that a call changes and whether they exist afterwards."""
    path = next((str(fields[key]) for key in PATH if key in fields), "")
    if path and any(key in fields for key in (*OLD_TEXT, *WRITTEN, "edits")):
        yield path, True
    for text in fields.values():
        if isinstance(text, str) and "*** Begin Patch" in text:
            yield from ((match[2], match[1] != "Delete") for match in PATCHED.finditer(text))
    head = HEREDOC.sub(r"\2", command)
    for match in REDIRECTED.finditer(head):
        yield match[2], True
    for match in IN_PLACE.finditer(head):
        yield match[1], True
    for match in REMOVED.finditer(head):
        yield from ((name, False) for name in match[1].split() if not name.startswith("-"))
    for match in RESTORED.finditer(head):
        yield match[1], False
    for match in MOVED.finditer(head):
        if match[0].startswith("mv"):
            yield match[1], False
        yield match[2], True
