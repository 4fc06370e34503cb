"""Sessions as they are read, and what readers of session files are made of; `pi.py` is a short one.

A reader says if a file is its client's, lists the sessions in it, and finds the client's files.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from refold.errors import FormatError
from refold.session_files.source import ClientFiles, FoundSession, OnError, Problem, Source
from refold.text.json_values import JsonObject, Record, objects_in, parse_time, text_at

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
"""The request field that holds the conversation, by format."""
SHOWN_KINDS = 4
"""How many unknown kinds a message names."""
NEWER = "A newer version of its client may have written it. Nothing was changed."


@dataclass(frozen=True, slots=True)
class Compaction:
    """The client showed its model *insert* instead of `messages[start:stop]`."""

    start: int
    stop: int
    insert: tuple[Entry, ...]
    trigger: str = ""
    """The trigger in the client's word: `auto`, `manual`, `microcompact`, `prune` ..."""
    meta: Record | None = None
    """What else the client recorded about it, unchanged."""
    at: int | None = None
    """How many messages there were when the client made it; None if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One recorded conversation, in the wire format nearest to what its client sent."""

    path: Path
    """Where it was read from; a bare name for bytes and standard input."""
    client: str
    """`claude_code`, `codex`, `gemini_cli`, `qwen`, `pi`, `opencode`, `plain`, `tau` ..."""
    format: Format
    id: str = ""
    messages: list[Entry]
    """The active branch in order, with no compaction applied."""
    body: Record
    """The rest of the request as far as the file has it: model, system prompt, tools."""
    compactions: tuple[Compaction, ...] = ()
    """Recorded compactions, oldest first."""
    first_sight: tuple[Compaction, ...] = ()
    """Messages that the model never saw as they were, since `refold hook` changed them."""
    usage: tuple[tuple[int, Record], ...] = ()
    """(position, the provider's report) of prompt and answer, together `messages[:position]`."""
    problems: tuple[Problem, ...] = ()
    title: str = ""
    cwd: str = ""
    started: datetime | None = None
    updated: datetime | None = None

    @property
    def payload(self) -> JsonObject:
        """A request body with the full transcript."""
        return {**self.body, FIELDS[self.format]: self.messages}

    @property
    def effective(self) -> list[Entry]:
        """The entries that the client's own model saw last: every compaction applied, of nested
        ones the outer, of two on one span the later."""
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
        """A request body with the effective context."""
        return {**self.body, FIELDS[self.format]: self.effective}


def join_content(content: Any) -> str:
    """Return the text of a content, whatever its form."""
    if isinstance(content, str):
        return content
    return "\n".join(text_at(block, "text") for block in objects_in(content))


# --- a reader ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session inside a file, not yet read."""

    id: str
    load: Callable[[], Session]


Find = Callable[[Path, Mapping[str, str], OnError], Iterable[FoundSession]]
"""Finds a client's sessions; gets the user's home, the environment, and who is told of errors."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The functions that read one client's sessions."""

    client: str
    mismatch: Callable[[Source], str]
    """Returns why a file is not this client's; empty if it is. Raises `FormatError` for what the
    client writes beside its sessions, and names them."""
    sessions: Callable[[Source], Sequence[StoredSession]]
    """Returns what is in the file, the latest last. Raises `FormatError`."""
    find: Find | None = None
    """None if the files are wherever their user puts them."""


def single(
    read: Callable[[Source], Session], find_id: Callable[[Source], str] = lambda _: ""
) -> Callable[[Source], Sequence[StoredSession]]:
    """Return the sessions of a file that always holds one, which *read* reads. *find_id* returns
    its id, if that can be asked for."""
    return lambda source: [StoredSession(find_id(source), partial(read, source))]


@dataclass(slots=True)
class Node:
    """A record in a tree."""

    line: int
    id: str
    parent: str
    """The id of the record before it on its branch."""
    previous: str
    """The id of the record before it in the file that is part of the conversation."""
    record: Record
    """Empty if it only joins others: it is not part of the conversation."""


@dataclass(slots=True)
class Tree:
    """Records that name the one before them: a session with every branch that its user left."""

    nodes: dict[str, Node] = field(default_factory=dict)
    last: str = ""
    """The latest record of the conversation."""

    def add(self, line: int, id: str, parent: str, record: Record) -> None:
        """Add a record; of several with one id the first counts."""
        if id in self.nodes:
            return
        self.nodes[id] = Node(line, id, parent, self.last, record)
        if record:
            self.last = id

    def branch(self, leaf: str) -> list[Node]:
        """Return the nodes from the root down to *leaf*.

        Where parents go in a circle, the walk goes on with the record before in the file.
        """
        path, skips = dict[str, Node](), dict[str, str]()
        while leaf in self.nodes:
            path[leaf] = self.nodes[leaf]
            above = self._parent(path[leaf])
            if above in path:
                passed, above = [leaf], path[leaf].previous
                while above in path:
                    passed.append(above)
                    above = skips.get(above, path[above].previous)
                skips.update(dict.fromkeys(passed, above))  # long circles are walked once
            leaf = above
        return list(path.values())[::-1]

    def breaks(self, branch: Sequence[Node]) -> Iterator[Problem]:
        """Yield where a branch goes on with the record before in the file."""
        for above, node in zip(["", *(node.id for node in branch)], branch, strict=False):
            parent = self._parent(node)
            if parent != above:
                yield Problem(node.line, "its parents go in a circle; joined to the line before")
            if node.parent and parent and node.parent != parent:
                text = f"its parent {node.parent} is not in the file; joined to the line before"
                yield Problem(node.line, text)

    def _parent(self, node: Node) -> str:
        """Return the parent; of one on a broken line or in another file, the record before."""
        return node.parent if node.parent in self.nodes or not node.parent else node.previous


@dataclass(slots=True)
class SessionBuilder:
    """A session while it is read."""

    source: Source
    client: str
    format: Format
    id: str = ""
    title: str = ""
    cwd: str = ""
    model: str = ""
    body: JsonObject = field(default_factory=dict)
    """The rest of the request, without the model."""
    messages: list[Entry] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    first_sight: list[Compaction] = field(default_factory=list)
    usage: list[tuple[int, Record]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    started: datetime | None = None
    updated: datetime | None = None
    index: dict[str, int] = field(default_factory=dict)
    """Position of the message that a record of the file is part of."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Kinds that Refold does not know, and how much of each is left out."""
    is_after_result: bool = False
    open: list[str] = field(default_factory=list)
    """Calls of a chat that were not answered yet, oldest first."""

    def __post_init__(self) -> None:
        self.problems += self.source.notes

    def records(self) -> Iterator[tuple[int, JsonObject]]:
        """Yield line number and record of every line; what is none becomes a problem."""
        return self.source.records(self.problems)

    @property
    def position(self) -> int:
        """The position of the next message: how many there are."""
        return len(self.messages)

    def note(self, text: str, line: int = 0) -> None:
        """Note a problem of a line, or of the file as a whole."""
        self.problems.append(Problem(line, text))

    def add(self, entry: Entry, *, is_result: bool = False) -> None:
        """Add an entry; results that follow one another become one entry, as they are sent."""
        if is_result and self.is_after_result:
            parts, last = "parts" if self.format == "gemini" else "content", self.messages[-1]
            self.messages[-1] = {**last, parts: [*last[parts], *entry[parts]]}
        else:
            self.messages.append(entry)
        self.is_after_result = is_result

    def say(self, role: str, content: Any, **fields: Any) -> None:
        """Add a message."""
        present = {key: value for key, value in fields.items() if value}
        self.add({"role": role, "content": content, **present})

    def call(
        self, content: Any, calls: Iterable[tuple[str, str, Any]], reasoning: str = ""
    ) -> None:
        """Add an answer that makes *calls*: id (empty: one is made), name, arguments."""
        self.say("assistant", content or None, reasoning_content=reasoning)
        self.open = []
        for call in calls:
            self.add_call(*call)

    def add_call(self, id: str, name: str, arguments: Any) -> None:
        """Add a call to the latest answer."""
        answer = next(entry for entry in reversed(self.messages) if entry["role"] == "assistant")
        calls = answer.setdefault("tool_calls", [])
        self.open.append(id or f"call_{self.position - 1}_{len(calls)}")
        calls.append(write_call(self.open[-1], name, arguments))

    def answer(self, content: Any, id: str = "") -> None:
        """Add the result of a call, without an id of the oldest open one; what answers none is the
        user's."""
        if not id and not self.open:
            self.say("user", content)
            return
        id = id or self.open[0]
        self.open = [each for each in self.open if each != id]
        self.add({"role": "tool", "tool_call_id": id, "content": content})

    def add_usage(self, usage: Record) -> None:
        """Add what the provider reported for the messages so far."""
        self.usage.append((self.position, usage))

    def note_time(self, value: Any) -> None:
        """Extend the time of the session by a record's; anything that is no time is passed over."""
        if when := parse_time(value):
            self.started = min(when, self.started or when)
            self.updated = max(when, self.updated or when)

    def branch(
        self, tree: Tree, leaf: str = "", is_answer: Callable[[Record], bool] | None = None
    ) -> list[Node]:
        """Return the branch that ends with *leaf* or what was said last.

        A break is a problem, and so are answers of the model on other branches.
        """
        branch = tree.branch(leaf or tree.last)
        self.problems += tree.breaks(branch)
        if is_answer is not None:
            ids = tree.nodes.keys() - {node.id for node in branch}
            self.note_other_branches(sum(is_answer(tree.nodes[id].record) for id in ids))
        return branch

    def note_other_branches(self, answers: int) -> None:
        """Say how many answers of the model are in the file, but not on the active branch."""
        if answers:
            self.note(f"left out, as it is on other branches: answers of the model ({answers:,})")

    def build(self) -> Session:
        """Return the session. Raises `FormatError` if its client wrote all of it in new kinds."""
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
            body={**({"model": self.model} if self.model else {}), **self.body},
            compactions=tuple(self.compactions),
            first_sight=tuple(self.first_sight),
            usage=tuple(self.usage),
            problems=tuple(self.problems),
            title=self.title,
            cwd=self.cwd,
            started=self.started,
            updated=self.updated,
        )


def write_call(id: str, name: str, arguments: Any) -> Entry:
    """Return a call as a chat message holds it; arguments that are no text become JSON."""
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
    """Return the reader of *files* that hold one session each: *read* fills in what it is of."""

    def load(source: Source) -> Session:
        session = SessionBuilder(source, client, format)
        read(session)
        return session.build()

    if files is None:
        return Reader(client, mismatch, single(load))
    find_id = files.find_id
    return Reader(client, mismatch, single(load, lambda source: find_id(source.path)), files.find)


# --- actions in the text --------------------------------------------------------------------------


_OPENING = re.compile(r"```(?:bash|sh|mswea_bash_command)[ \t]*+\n")
_CLOSING = "\n```"


def with_calls(session: Session) -> Session:
    """Return *session* with text actions as tool calls, for strategies for tool results.

    An assistant's message with exactly one block of shell commands makes a call of the tool `bash`,
    and the user's message after it is the result. Positions stay. `read` gives the messages as they
    were sent; this form was never sent. Sessions in another format than `openai_chat` come back as
    they are, and so do those with any tool call: there a block is what the model shows.
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
    """Return an assistant's text without the one block of shell commands in it, and these; None if
    there is none, or more than one. The next message of the user is their output."""
    if text_at(message, "role") != "assistant" or message.get("tool_calls"):
        return None
    before, command, after = _split_block(text_at(message, "content"))
    if command is None or _split_block(after)[1] is not None:
        return None
    return (before + after).rstrip(), command


def _split_block(text: str) -> tuple[str, str | None, str]:
    """Return what stands before the first block, its commands, and what stands behind it."""
    if opening := _OPENING.search(text):
        command, closing, rest = text[opening.end() :].partition(_CLOSING)
        if closing:
            return text[: opening.start()], command, rest
    return text, None, ""
