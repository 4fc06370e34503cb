"""Restoring calls and edits that a model writes as text for a client without native calls, and
their results, as native parts.

Only text of a model can be a call, and only if no person answers it.
"""

import re
from ast import literal_eval
from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

from refold.errors import FormatError
from refold.messages import Message, Part, Text, ToolCall, ToolResult
from refold.speakers.carriers import (
    ENDING_TOOLS,
    REFUSAL,
    REQUEST_CONTEXT_KINDS,
    TAGS,
    TEMPLATE,
    TOOL,
    UNQUOTED,
    read_ran_command,
)
from refold.speakers.request import OUTPUT_LABEL, Segmented, has_person
from refold.speakers.segments import Segment, Spoken
from refold.text.json_values import canonicalize, dig, object_at, parse_or_none, text_at

# --- calls that are written as text ---------------------------------------------------------------

_OPENS, _CLOSES = ("<<<<<<< SEARCH", "------- SEARCH"), (">>>>>>> REPLACE", "+++++++ REPLACE")
"""First and last lines of an edit (aider and Roo Code, Cline)."""
_MARKS = ("</", "```", "Calling tools:", *_OPENS)
"""Every text with a call or edit contains one of these strings."""
_OUTPUT_MARK = re.compile(
    r"\s{0,9}(?:EXECUTION RESULT of \[(\w{1,80})\]:|OBSERVATION:|Observation:|<tool_response>) ?"
)
"""Beginnings of the text of a result (OpenHands, SWE-agent, smolagents, Qwen-Agent)."""
_BESIDE = REQUEST_CONTEXT_KINDS | UNQUOTED | {TEMPLATE}
"""Kinds of tool texts that are not results of calls."""
_OUTPUT_TAGS = frozenset(("tool_response", "output", "returncode", "error", "system"))
_REPORTS_BESIDE = tuple(
    f"<{tag}" for tag, carrier in TAGS.items() if carrier is TOOL and tag not in _OUTPUT_TAGS
)
"""Beginnings of tool texts about something else: a file that a person attached, an agent's end."""


def restore_calls(
    messages: Sequence[Message], spoken: Segmented
) -> Iterator[tuple[Message, Spoken]]:
    """Yield *messages* and their segments *spoken*, with written calls, edits and results as native
    parts. If a message has native calls, nothing is restored: calls in text are examples then."""
    if any(message.calls for message in messages):
        yield from zip(messages, spoken, strict=False)
        return
    waiting = dict[str, str]()
    for at, (message, own) in enumerate(zip(messages, spoken, strict=False)):
        if message.role == "assistant":
            restored = _restore_written(message, next(iter(spoken[at + 1 : at + 2]), ()), at)
            calls = (part for part in restored.parts if isinstance(part, ToolCall))
            written = (call for call in calls if call.id not in restored.results)  # edits have some
            waiting = {call.id: call.name for call in written if call.name not in ENDING_TOOLS}
            yield restored, own
        else:
            yield _restore_results(message, own, waiting) if waiting else (message, own)


def _restore_written(message: Message, following: Spoken, at: int) -> Message:
    """Return an assistant message with the calls and edits of its text as parts, with ids made from
    *at*; the same object if there are none. They stay text if a person answers them, judged by the
    segments *following* it."""
    if is_refused(following) or not any(mark in message.text for mark in _MARKS):
        return message
    text, edits = split_edits(message.text)
    labels = (OUTPUT_LABEL.match(segment.text) for segment in following)
    is_labeled = any(label and f"<{label[1]}>" in text for label in labels)
    rest, calls = split_calls(text, None if is_labeled else ENDING_TOOLS)
    is_run = any(map(_is_answer, following)) or not has_person(following)
    if not (is_run or all(call.name in ENDING_TOOLS for call in calls)):
        rest, calls = text, []
    if not (edits or calls):
        return message
    written = [ToolCall(f"written {at}.{n}", *call) for n, call in enumerate((*edits, *calls))]
    done = ((call, ToolResult(call.id)) for call in written[: len(edits)])
    parts: list[Part] = [part for part in message.parts if not isinstance(part, Text)]
    parts += [Text(rest.rstrip())] if rest.strip() else []
    parts += chain.from_iterable(done)
    return Message(message.role, (*parts, *written[len(edits) :]))


def is_refused(following: Spoken) -> bool:
    """Return whether a client could use nothing of a model's message, judged by the segments
    *following* it."""
    return any(segment.kind == REFUSAL.kind for segment in following)


def _is_answer(segment: Segment) -> bool:
    is_beside = segment.text.startswith(_REPORTS_BESIDE) or read_ran_command(segment.text)
    return segment.voice == "tool" and segment.kind not in _BESIDE and not is_beside


def _restore_results(
    message: Message, spoken: Spoken, waiting: dict[str, str]
) -> tuple[Message, Spoken]:
    """Return a message with tool output as results of the *waiting* calls (tool names by id), and
    its remaining segments. Answered calls are removed from *waiting*."""
    queues = defaultdict[str | None, list[str]](list)
    for call, tool in reversed(waiting.items()):
        queues[tool].append(call)
        queues[None].append(call)
    pieces, rest, id, part = defaultdict[str, list[str]](list), list[Segment](), "", -1
    for segment in spoken:
        text, queue = segment.text, queues[None]
        if label := OUTPUT_LABEL.match(text) or _OUTPUT_MARK.match(text):
            queue = queues[label[1]]
        while queue and queue[-1] not in waiting:
            queue.pop()
        if not _is_answer(segment) or not (queue or id):
            rest.append(segment)
            id = ""
        elif queue and (label or not id):
            id = queue[-1]
            del waiting[id]
            pieces[id] = [_without_label(text, label) if label else text]
        else:
            pieces[id] += ["\n" * (segment.part != part and pieces[id] != [""]), text]
        part = segment.part
    results = (ToolResult(id, (Text("".join(texts)),)) for id, texts in pieces.items())
    parts = (*results, *(part for part in message.parts if not isinstance(part, Text)))
    own = tuple(segment._replace(part=at) for at, segment in enumerate(rest, len(parts)))
    return Message(message.role, (*parts, *(Text(segment.text) for segment in own))), own


def _without_label(text: str, label: re.Match[str]) -> str:
    text = text[label.end() :].removeprefix("\n")
    if not label[0].rstrip().endswith(">"):
        return text
    return text.rstrip().removesuffix("</tool_response>").removesuffix("\n")


# --- a text and the calls in it -------------------------------------------------------------------


class WrittenCall(NamedTuple):
    """Call or edit that a model writes as text."""

    name: str
    arguments: str
    """Arguments as JSON."""


Split = tuple[str, list[WrittenCall]]
"""Text without its calls, and the calls."""
_TAG = re.compile(r"<(/?)([A-Za-z]\w{0,63})(?:=([\w.-]{1,100}))?>")
_Ends = Mapping[tuple[str, str], Sequence[int]]
"""Indexes of closing tags by name and the next tag: "" for any opening tag, else a closing tag's
name."""
MOST_ARGUMENTS = 50
_COUNTS = re.compile(r"(?:\w+_)?line|offset|limit")
"""Arguments that are numbers in JSON calls."""
_JSON_CALL = re.compile(r"<tool_call>\s*(\{(?:(?!</?tool_call>).)*\})\s*</tool_call>", re.DOTALL)
"""Call in the format of Hermes and Qwen-Agent."""
_AROUND = re.compile(r"</?tool_call>\n?")
"""Tags that may surround an element that is a call (Qwen3-Coder)."""
_CALL_LIST = re.compile(r"^Calling tools:\n(\[.*)", re.MULTILINE | re.DOTALL)
"""Calls as repeated by smolagents."""
LONGEST_LIST = 100_000
_BLOCK = re.compile(r"```(?:bash|sh|shell|mswea_bash_command)\n(.*?)\n?```", re.DOTALL)
"""Shell command (mini-swe-agent)."""
_WHERE = re.compile(r"\A(?::\w+_line:[^\n]*\n)*-{7}\n")
"""Prefix of the lines that an edit replaces, in Roo Code."""


def split_calls(text: str, tools: Collection[str] | None) -> Split:
    """Return *text* without its calls, and the calls. They are elements that name a function or one
    of *tools* (any name with an underscore if None), else JSON, else the last block of shell
    commands. Runs in n log n."""
    readers = (partial(_split_elements, tools=tools), _split_json, _split_list, _split_block)
    splits = (read(text) for read in readers)
    return next((split for split in splits if split[1]), (text, []))


def _split_elements(text: str, tools: Collection[str] | None) -> Split:
    """Split off elements: `<function=view><parameter=path>a.py</parameter></function>` (SWE-agent,
    OpenHands), `<read_file><path>a.py</path></read_file>` (Cline, Roo Code)."""
    tags, ends = list(_TAG.finditer(text)), defaultdict[tuple[str, str], list[int]](list)
    for at, (tag, following) in enumerate(pairwise(tags)):
        if tag[1] and not text[tag.end() : following.start()].strip():
            ends[tag[2], following[2] if following[1] else ""].append(at)
    rest, calls, behind = list[str](), list[WrittenCall](), 0
    for at, tag in enumerate(tags):
        is_tool = "_" in tag[2] if tools is None else tag[2] in tools
        if tag[1] or tag.start() < behind or not (is_tool or (tag[2] == "function" and tag[3])):
            continue
        arguments, end = _read_element(text, tags, ends, at)
        if end:
            calls.append(WrittenCall(tag[3] or tag[2], canonicalize(arguments)))
            rest.append(text[behind : tag.start()])
            behind = end
    return _AROUND.sub("", "".join((*rest, text[behind:]))), calls


def _read_element(
    text: str, tags: Sequence[re.Match[str]], ends: _Ends, at: int
) -> tuple[dict[str, Any], int]:
    """Return the arguments of the call that the tag *at* opens, and its end; 0 if it contains
    anything else. A value ends where the next argument begins, or the call ends, directly after
    it."""
    arguments, name = dict[str, Any](), tags[at][2]
    for _ in range(MOST_ARGUMENTS):
        end, tag = tags[at].end(), tags[min(at + 1, len(tags) - 1)]
        if text[end : tag.start()].strip() or (tag[1] and tag[2] != name):
            break
        if tag[1]:
            return arguments, tag.end()
        rows = (ends.get((tag[2], following), ()) for following in ("", name))
        places = [row[place] for row in rows if (place := bisect(row, at + 1)) < len(row)]
        if not places:
            break
        at = min(places)
        key, value = tag[3] or tag[2], text[tag.end() : tags[at].start()]
        if key == "args" and name != "file":  # of several files (Roo Code)
            _, files = _split_elements(value, ("file",))
            arguments["files"] = [parse_or_none(file.arguments) for file in files]
        elif _COUNTS.fullmatch(key) and value.isdecimal() and len(value) < 10:
            arguments[key] = int(value)
        else:
            arguments[key] = value.removeprefix("\n").removesuffix("\n")
    return {}, 0


def _split_json(text: str) -> Split:
    calls = _make_calls(map(parse_or_none, _JSON_CALL.findall(text)))
    return _JSON_CALL.sub("", text), list(calls)


def _split_list(text: str) -> Split:
    """Split off a Python list of calls."""
    if (listed := _CALL_LIST.search(text)) and len(listed[1]) <= LONGEST_LIST:
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return text[: listed.start()], list(_make_calls(literal_eval(listed[1])))
    return text, []


def _make_calls(values: Iterable[Any]) -> Iterator[WrittenCall]:
    for value in values:
        call = object_at(value, "function") or value
        if name := text_at(call, "name"):
            with suppress(FormatError):
                yield WrittenCall(name, canonicalize(dig(call, "arguments")))


def _split_block(text: str) -> Split:
    blocks = _BLOCK.findall(text)[-1:]  # the last is run
    calls = [WrittenCall("shell", canonicalize({"command": block})) for block in blocks]
    return _BLOCK.sub("", text), calls


def split_edits(text: str, file: str = "") -> Split:
    """Return *text* without its edits, and the edits. An edit has the lines `<<<<<<< SEARCH`,
    `=======` and `>>>>>>> REPLACE`, and is of *file*, or (aider) follows a line with a file's path
    and a fence. One without a file or an end stays text. Runs in linear time."""
    if not any(mark in text for mark in _OPENS):
        return text, []
    rest, edits, parts = list[str](), list[WrittenCall](), list[list[str]]()
    path, begins, has_ended = file, 0, False
    for line in text.split("\n"):
        is_fence = line.startswith("```")
        if len(parts) == 2 and line.startswith(_CLOSES):
            old, new = map("\n".join, parts)
            old = _WHERE.sub("", old)
            fields = {"old_string": old, "new_string": new} if old else {"content": new}
            arguments = canonicalize({"path": path, **fields})
            edits.append(WrittenCall("edit" if old else "create", arguments))
            del rest[begins:]
            parts, has_ended = [], True
            continue
        if has_ended and is_fence:  # the closing fence
            has_ended = False
            continue
        if len(parts) == 1 and line.startswith("======="):
            parts.append([])
        elif parts:
            parts[-1].append(line)
        elif path and line.startswith(_OPENS):
            parts, begins = [[]], min(begins, len(rest))
        elif line.strip() and not is_fence:
            words = line.strip("`*#: ").split()
            path = file or (words[0] if len(words) == 1 and "." in words[0] else "")
            begins, has_ended = len(rest), False
        rest.append(line)
    return "\n".join(rest), edits
