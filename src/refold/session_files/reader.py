"""Recorded sessions, and the parts of readers of session files. `pi.py` is a short reader.

A reader recognises and reads its client's files, and finds them on this machine.
"""

import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import is_not
from pathlib import Path
from typing import Any, Literal

from refold.errors import FormatError
from refold.session_files.source import (
    ClientFiles,
    FoundSession,
    Node,
    OnError,
    Problem,
    Source,
    Tree,
)
from refold.text.json_values import (
    JsonObject,
    Record,
    list_at,
    objects_at,
    objects_in,
    parse_time,
    text_at,
    without_empty,
)

# --- a session: the whole conversation, and its client's compactions ---------------------------

Entry = Any
"""One entry of a request's list of messages, as parsed from JSON."""

Format = Literal["anthropic", "openai_chat", "openai_responses", "gemini", "bedrock"]
"""The name of a wire format."""

FIELDS: Mapping[Format, str] = {
    "anthropic": "messages",
    "openai_chat": "messages",
    "openai_responses": "input",
    "gemini": "contents",
    "bedrock": "messages",
}
"""Request field that holds the conversation, by format."""
SHOWN_KINDS = 4
"""Number of unknown kinds that an error message lists."""
NEWER = "A newer version of its client may have written it. Nothing was changed."


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction of the client: its model saw *insert* instead of `messages[start:stop]`."""

    start: int
    stop: int
    insert: tuple[Entry, ...]
    trigger: str = ""
    """The client's name for the trigger: `auto`, `manual`, `microcompact`, `prune` ..."""
    meta: Record | None = None
    """Other data that the client recorded about it, unchanged."""
    at: int | None = None
    """Number of messages when the client made it; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One recorded conversation, in the wire format nearest to that of the client's requests."""

    path: Path
    """File that it was read from; a bare name for bytes and standard input."""
    client: str
    """`claude_code`, `codex`, `gemini_cli`, `qwen`, `pi`, `opencode`, `plain`, `tau` ..."""
    format: Format
    id: str = ""
    messages: list[Entry]
    """The active branch in order, without any compaction applied."""
    body: Record
    """The rest of the request, if the file has it: model, system prompt, tools."""
    compactions: tuple[Compaction, ...] = ()
    """Recorded compactions, oldest first."""
    first_sight: tuple[Compaction, ...] = ()
    """Tool results that `refold hook` shortened before the model saw them."""
    usage: tuple[tuple[int, Record], ...] = ()
    """(position, the provider's usage report) of each call; `messages[:position]` are its prompt
    and answer."""
    problems: tuple[Problem, ...] = ()
    is_respelled: bool = False
    """Whether calls or results had a form that no API accepts, and were rewritten."""
    title: str = ""
    cwd: str = ""
    started: datetime | None = None
    updated: datetime | None = None

    @property
    def payload(self) -> JsonObject:
        """Request body with the full transcript."""
        return {**self.body, FIELDS[self.format]: self.messages}

    @property
    def effective(self) -> list[Entry]:
        """Entries that the client's model saw last, with every compaction applied. Of nested ones
        the outer applies, of two on one span the later."""
        out, at = list[Entry](), 0
        compactions = (*self.first_sight, *self.compactions)
        by_span = {(shown.start, -shown.stop): shown for shown in compactions}
        for (start, _), shown in sorted(by_span.items()):
            if start >= at:
                out += [*self.messages[at:start], *shown.insert]
                at = shown.stop
        return out + self.messages[at:]

    @property
    def effective_payload(self) -> JsonObject:
        """Request body with the effective context."""
        return {**self.body, FIELDS[self.format]: self.effective}


def join_content(content: Any) -> str:
    """Return the text of a message content: a string, or a list of parts, joined by line breaks;
    empty for anything else."""
    if isinstance(content, str):
        return content
    return "\n".join(text_at(block, "text") for block in objects_in(content))


# --- a reader ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session in a file, not loaded yet."""

    id: str
    load: Callable[[], Session]


Find = Callable[[Path, Mapping[str, str], OnError], Iterable[FoundSession]]
"""Finds a client's sessions, given the user's home, the environment and an error callback."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Functions that read one client's sessions."""

    client: str
    mismatch: Callable[[Source], str]
    """Returns why a file is not this client's; empty if it is. Raises `FormatError`, which names
    the session file, for other files that the client writes."""
    sessions: Callable[[Source], Sequence[StoredSession]]
    """Returns the sessions in the file, latest last. Raises `FormatError`."""
    find: Find | None = None
    """None if the files have no standard place."""


@dataclass(slots=True)
class SessionBuilder:
    """A session under construction."""

    source: Source
    client: str
    format: Format
    id: str = ""
    title: str = ""
    cwd: str = ""
    model: str = ""
    body: JsonObject = field(default_factory=dict)
    """Rest of the request, without the model."""
    messages: list[Entry] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    first_sight: list[Compaction] = field(default_factory=list)
    usage: list[tuple[int, Record]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    is_respelled: bool = False
    started: datetime | None = None
    updated: datetime | None = None
    index: dict[str, int] = field(default_factory=dict)
    """Position of the message that a record of the file belongs to, by record id."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Number of records left out, by kind that Refold does not know."""
    is_after_result: bool = False
    open: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Ids of chat calls without a result so far, oldest first."""

    def __post_init__(self) -> None:
        self.problems += self.source.notes

    def records(self) -> Iterator[tuple[int, JsonObject]]:
        """Yield line number and record of every line. Other lines become problems."""
        return self.source.records(self.problems)

    @property
    def position(self) -> int:
        """Position of the next message: the number of messages."""
        return len(self.messages)

    def note(self, text: str, line: int = 0) -> None:
        """Add a problem of a line, or of the file as a whole."""
        self.problems.append(Problem(line, text))

    def add(self, entry: Entry, *, is_result: bool = False) -> None:
        """Add an entry. A result right after another is merged into its entry, as they are sent."""
        if is_result and self.is_after_result:
            parts, last = "parts" if self.format == "gemini" else "content", self.messages[-1]
            self.messages[-1] = {**last, parts: [*last[parts], *entry[parts]]}
        else:
            self.messages.append(entry)
        self.is_after_result = is_result

    def say(self, role: str, content: Any, **fields: Any) -> None:
        """Add a message. Falsy *fields* are left out."""
        self.add({"role": role, "content": content, **without_empty(fields)})

    def call(
        self, content: Any, calls: Iterable[tuple[str, str, Any]], reasoning: str = ""
    ) -> None:
        """Add an assistant message with *calls*: id (generated if empty), name, arguments."""
        self.say("assistant", content or None, reasoning_content=reasoning)
        self.open.clear()
        for call in calls:
            self.add_call(*call)

    def add_call(self, id: str, name: str, arguments: Any) -> None:
        """Add a call to the latest assistant message."""
        answer = next(entry for entry in reversed(self.messages) if entry["role"] == "assistant")
        calls = answer.setdefault("tool_calls", [])
        id = id or f"call_{self.position - 1}_{len(calls)}"
        self.open[id] = None
        calls.append(write_call(id, name, arguments))

    def answer(self, content: Any, id: str = "") -> None:
        """Add the result of a call, by default the oldest open one; without any, add a user
        message."""
        if not id and not self.open:
            self.say("user", content)
            return
        id = id or next(iter(self.open))
        self.open.pop(id, None)
        self.add({"role": "tool", "tool_call_id": id, "content": content})

    def add_usage(self, usage: Record) -> None:
        """Add the provider's usage report for the messages so far."""
        self.usage.append((self.position, usage))

    def note_time(self, value: Any) -> None:
        """Extend the session's time span to a record's time. What is no time is ignored."""
        if when := parse_time(value):
            self.started = min(when, self.started or when)
            self.updated = max(when, self.updated or when)

    def branch(
        self, tree: Tree, leaf: str = "", is_answer: Callable[[Record], bool] | None = None
    ) -> list[Node]:
        """Return the branch that ends with *leaf*, or with the latest record.

        Broken links become problems, and so do assistant messages on other branches.
        """
        branch = tree.branch(leaf or tree.last)
        self.problems += tree.breaks(branch)
        if is_answer is not None:
            ids = tree.nodes.keys() - {node.id for node in branch}
            self.note_other_branches(sum(is_answer(tree.nodes[id].record) for id in ids))
        return branch

    def note_other_branches(self, answers: int) -> None:
        """Report how many assistant messages of the file are not on the active branch."""
        if answers:
            self.note(f"left out, as it is on other branches: answers of the model ({answers:,})")

    def build(self) -> Session:
        """Return the session. Raises `FormatError` if it has no messages, but unknown kinds of
        records."""
        self.unknown.pop("", None)
        if self.unknown:
            shown = [f"{kind[:40]!r} ({n:,})" for kind, n in self.unknown.most_common(SHOWN_KINDS)]
            rest = len(self.unknown) - len(shown)
            kinds = ", ".join(shown) + f" and {rest} more" * bool(rest)
            if not self.messages:
                raise FormatError(
                    f"{self.source.path.name}: no message in it has a form that Refold knows; it has"
                    f" {kinds}. {NEWER}"
                )
            self.note(f"left out, as Refold does not know it: {kinds}")
        if not self.messages:
            self.note("the session has no messages")
        return Session(
            path=self.source.path,
            client=self.client,
            format=self.format,
            id=self.id,
            messages=self.messages,
            body={**without_empty({"model": self.model}), **self.body},
            compactions=tuple(self.compactions),
            first_sight=tuple(self.first_sight),
            usage=tuple(self.usage),
            problems=tuple(self.problems),
            is_respelled=self.is_respelled,
            title=self.title,
            cwd=self.cwd,
            started=self.started,
            updated=self.updated,
        )


def write_call(id: str, name: str, arguments: Any) -> Entry:
    """Return a tool call in Chat Completions format. Arguments that are no string become JSON, and
    None becomes `{}`."""
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def file_reader(
    client: str,
    format: Format,
    mismatch: Callable[[Source], str],
    read: Callable[[SessionBuilder], object],
    files: ClientFiles | None = None,
) -> Reader:
    """Return a reader for *files* with one session each: *read* fills in the session."""

    def load(source: Source) -> Session:
        session = SessionBuilder(source, client, format)
        read(session)
        return session.build()

    def list_sessions(source: Source) -> list[StoredSession]:
        return [StoredSession(files.find_id(source.path) if files else "", partial(load, source))]

    return Reader(client, mismatch, list_sessions, files.find if files else None)


# --- calls and results in a form that no API takes ------------------------------------------------
# LangChain's calls have `name` and `args` where Chat Completions has a `function`, and some logs
# repeat calls and their output as content parts.
#
# Cline keeps calls as blocks, but their output as user text under a label: `[read_file for 'a.py']
# Result:`. A person may write such a text, too. So it counts as a result only right after a call
# without one, if it names that call or the call is the only one. A person's answer to a call that
# ends a turn is in an XML element after the label and remains user text.

CALL, OUTPUT = "tool_call", "tool_output"
"""Types of content parts that hold a call and its output."""
_ARGUMENTS = ("args", "arguments", "input")
_LABEL = re.compile(r"\s{0,9}(?:Tool )?\[(\w[\w.-]{0,80})")
_LABEL_END = "] Result:"
LONGEST_LABEL = 20_000
"""Maximum characters of a label, which may contain a question or a command."""
_NOT_RUN = re.compile(r"Tool \[[\w.-]{1,80}\] was not executed\b")
"""Beginning of a text that says that a call was skipped."""
_ENDING = frozenset({"attempt_completion", "plan_mode_respond"})
_WORDS = re.compile(r"(?m)^<(?:feedback|user_message)>")
"""Beginning of the person's own text after the label of such a call."""


def normalize_calls(session: SessionBuilder) -> None:
    """Rewrite the calls and results of a session in its wire format, and note how many changed."""
    entries = session.messages
    match session.format:
        case "openai_chat":
            session.messages = list(map(_respell_chat, entries))
        case "anthropic":
            session.messages = list(_join_results(entries))
    if changed := sum(map(is_not, session.messages, entries)):
        session.note(f"{changed:,} messages have calls or results in a form that no API takes")
        session.is_respelled = True


def _respell_chat(entry: Entry) -> Entry:
    if "tool_calls" not in entry and not _kinds(entry) & {CALL, OUTPUT}:
        return entry
    calls = list_at(entry, "tool_calls")
    ids = {text_at(call, "id") for call in calls}
    parts = list_at(entry, "content")
    calls = [*calls, *(part for part in parts if _is_call(part) and text_at(part, "id") not in ids)]
    out = dict(entry)
    if calls:
        out["tool_calls"] = list(map(_write_call, calls))
    if parts:
        out["content"] = [_write_part(part) for part in parts if not _is_call(part)]
    return entry if out == entry else out


def _kinds(entry: Entry) -> set[str]:
    return {text_at(part, "type") for part in objects_at(entry, "content")}


def _is_call(part: Any) -> bool:
    return text_at(part, "type") == CALL and bool(text_at(part, "name"))


def _write_call(call: Any) -> Any:
    """Convert a call that has name and arguments at its top level; return others unchanged."""
    name = text_at(call, "name")
    if not name or "function" in call or "custom" in call:
        return call
    arguments = next((call[key] for key in _ARGUMENTS if key in call), None)
    return write_call(text_at(call, "id"), name, arguments)


def _write_part(part: Any) -> Any:
    if text_at(part, "type") != OUTPUT or "output" not in part:
        return part
    output = part["output"]
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return {"type": "text", "text": text}


def _join_results(entries: Iterable[Entry]) -> Iterator[Entry]:
    calls = list[Record]()
    for entry in entries:
        if entry.get("role") == "assistant":
            calls += (b for b in objects_at(entry, "content") if text_at(b, "type") == "tool_use")
            yield entry
            continue
        content = entry.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        is_open = calls and isinstance(blocks, list) and "tool_result" not in _kinds(entry)
        results, rest = _split_results(blocks, calls) if is_open else ([], [])
        yield {**entry, "content": [*results, *rest]} if results else entry
        calls = []


def _split_results(blocks: Sequence[Any], calls: Sequence[Record]) -> tuple[list[Any], list[Any]]:
    """Return the *blocks* that answer *calls*, as tool results, and the other blocks."""
    results, rest, unanswered = list[Any](), list[Any](), list(calls)
    labels = [_read_label(text_at(block, "text")) for block in blocks]
    is_named = any(name == text_at(call, "name") for name, _ in labels for call in calls)
    for block, (name, begins) in zip(blocks, labels, strict=True):
        fitting = (call for call in unanswered if text_at(call, "name") == name)
        only = unanswered[0] if name and len(calls) == 1 and unanswered and not is_named else None
        call = next(fitting, only)
        if call is None:
            rest.append(block)
            continue
        unanswered.remove(call)
        text = text_at(block, "text")[begins:].removeprefix("\n")
        words = _WORDS.search(text) if text_at(call, "name") in _ENDING else None
        if words:
            rest.append({"type": "text", "text": text[words.start() :]})
            text = text[: words.start()]
        result = {"type": "tool_result", "tool_use_id": text_at(call, "id"), "content": text}
        results.append(result if begins else {**result, "is_error": True})
    return results, rest


def _read_label(text: str) -> tuple[str, int]:
    """Return the name in a text's label and the label's end, which is 0 if the text says that the
    call was skipped. Without a label, return an empty name and 0."""
    label = _LABEL.match(text)
    if label is None:
        return "", 0
    end = text.find(_LABEL_END, label.end(), LONGEST_LABEL)
    if end < 0 and not _NOT_RUN.match(text):
        return "", 0
    return label[1], end + len(_LABEL_END) if end >= 0 else 0


# --- actions in the text --------------------------------------------------------------------------


_OPENING = re.compile(r"```(?:bash|sh|mswea_bash_command)[ \t]*+\n")
_CLOSING = "\n```"


def with_calls(session: Session) -> Session:
    """Return *session* with text actions as tool calls, for strategies for tool results.

    An assistant message with exactly one block of shell commands becomes a call of the tool `bash`,
    and the next user message its result. Positions stay. This form was never sent; `read` gives
    what was. Sessions in another format than `openai_chat`, or with any tool call, come back
    unchanged: there a block is only text.
    """
    has_calls = any(entry.get("tool_calls") for entry in session.messages)
    if session.format != "openai_chat" or has_calls:
        return session
    return replace(session, messages=list(_convert_actions(session.messages)))


def _convert_actions(messages: Sequence[Entry]) -> Iterator[Entry]:
    call_id = ""
    for at, message in enumerate(messages):
        follower = messages[at + 1] if at + 1 < len(messages) else {"role": "user"}
        action = _find_action(message) if text_at(follower, "role") == "user" else None
        if call_id:
            yield {"role": "tool", "tool_call_id": call_id, "content": message.get("content")}
        elif action:
            text, command = action
            call = write_call(f"call_{at}", "bash", {"command": command})
            yield {**message, "content": text, "tool_calls": [call]}
        else:
            yield message
        call_id = f"call_{at}" if action else ""


def _find_action(message: Entry) -> tuple[str, str] | None:
    """Return an assistant message's text without its only block of shell commands, and the
    commands. None if it has no such block or several."""
    if text_at(message, "role") != "assistant" or message.get("tool_calls"):
        return None
    before, command, after = _split_block(text_at(message, "content"))
    if command is None or _split_block(after)[1] is not None:
        return None
    return (before + after).rstrip(), command


def _split_block(text: str) -> tuple[str, str | None, str]:
    """Return the text before the first block, its commands, and the text after it; without a block,
    the whole text, None and an empty string."""
    if opening := _OPENING.search(text):
        command, closing, rest = text[opening.end() :].partition(_CLOSING)
        if closing:
            return text[: opening.start()], command, rest
    return text, None, ""
