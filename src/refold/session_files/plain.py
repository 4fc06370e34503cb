"""Conversations without a client: a list of messages, a request body, or a log of requests. Also
the similar files of Kimi CLI, Kimi Code and Continue.

JSON or JSONL, in any wire format. In a log each line is a request body, or an object with one under
`body`, `request` or `payload`. The last request is the conversation, and each can be read by its
line number. A line with a `kind` other than `main` is a side request and comes before the others.

Kimi CLI: `~/.kimi/sessions/<directory>/<session>/context.jsonl`, the model's context, which the
client starts anew when it compacts. The events in `wire.jsonl` beside it are not read.

Kimi Code: `~/.kimi-code/sessions/<directory>/<session>/agents/main/wire.jsonl`, every event of an
agent. Those whose type begins with `context.` make its context.

Continue: `~/.continue/sessions/<session>.json`, a list of items on the screen. An item holds a
message, and for an assistant message its calls with their output, which was sent as messages.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from refold.errors import FormatError
from refold.session_files.reader import (
    FIELDS,
    Compaction,
    Entry,
    Format,
    Reader,
    Session,
    SessionBuilder,
    StoredSession,
    file_reader,
    join_content,
    normalize_calls,
    write_call,
)
from refold.session_files.source import ClientFiles, Problem, Source, cwd_under, folder_name
from refold.text.json_values import (
    Record,
    int_at,
    list_at,
    object_at,
    objects_at,
    objects_in,
    parse_or_none,
    text_at,
    without_empty,
    without_keys,
)

CLIENT = "plain"
BODY_KEYS = ("body", "request", "payload")
"""Fields in which a log keeps the request body."""
ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "server_tool_use", "tool_result", "thinking", "redacted_thinking"}
    | {"image", "document"}
)
"""Types of blocks that only Anthropic's format has."""
RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file"})
"""Types of parts that only the Responses format has."""


def mismatch(source: Source) -> str:
    """Return why this is no list of messages, request or log of requests; empty if it is one."""
    document = source.document
    if isinstance(document, list):
        is_match = not document or any(map(_is_entry, document))
        return "" if is_match else "a list, but not of messages"
    objects = source.objects()
    entries = sum(map(_is_entry, objects))
    if any(_request(item) is not None for item in objects) or 0 < entries >= len(objects) - entries:
        return ""
    fields = ", ".join(dict.fromkeys(FIELDS.values()))
    return f"no object has one of {fields}, and of {len(objects)} only {entries} are messages"


def sessions(source: Source, format: Format | None = None) -> Sequence[StoredSession]:
    """Return every conversation, in a log the latest main request last; guess *format* if None."""
    problems, entries = list[Problem](), list[Entry]()
    requests, passed = list[tuple[bool, str, Record]](), 0
    if isinstance(source.document, list):
        entries = source.document
    else:
        for line, record in source.records(problems):
            if (request := _request(record)) is not None:
                requests.append((record.get("kind", "main") == "main", str(line), request))
            elif _is_entry(record):
                entries.append(record)
            else:
                passed += 1
        if passed and not requests:
            problems.append(Problem(0, f"left out, as they are no messages: {passed:,} lines"))
    requests = requests or [(True, "", {"messages": entries})]
    requests.sort(key=lambda request: request[0])
    return [
        StoredSession(line, partial(_read, source, line, request, problems, format))
        for _, line, request in requests
    ]


def _is_entry(value: Any) -> bool:
    """Return whether this is an entry of a conversation, in any format."""
    entry = object_at(value)
    has_parts = isinstance(entry.get("parts"), list)
    return bool(text_at(entry, "role")) or has_parts or "call_id" in entry


def _request(record: Record) -> Record | None:
    """Return the request body in a line; None if it has no conversation."""
    for body in (record, *(object_at(record, holder) for holder in BODY_KEYS)):
        is_text = isinstance(body.get("input"), str) and "type" not in body  # not a Responses item
        if is_text or any(isinstance(body.get(field), list) for field in FIELDS.values()):
            return body
    return None


def _read(
    source: Source, line: str, request: Record, problems: Sequence[Problem], format: Format | None
) -> Session:
    field = next(name for name in FIELDS.values() if isinstance(request.get(name), list | str))
    value, body = request[field], without_keys(request, field)
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    entries, id = list(objects_in(items)), line if source.document is None else ""
    format = format or guess_format(body, entries, field)
    session = SessionBuilder(source, CLIENT, format, id, body=body, messages=entries)
    session.problems += problems
    normalize_calls(session)
    if len(entries) < len(items):
        session.note(f"{len(items) - len(entries)} entries are no JSON objects")
    return session.build()


def guess_format(body: Record, items: Sequence[Entry], field: str = "") -> Format:
    """Return the wire format of a conversation, by its shape. `refold.codecs.detect` is more
    precise, but takes too long to load for `refold hook`."""
    if field == "contents" or any(isinstance(item.get("parts"), list) for item in items):
        return "gemini"
    kinds = {text_at(part, "type") for item in items for part in objects_at(item, "content")}
    if kinds == {""}:
        return "bedrock"
    if (
        field == "input"
        or kinds & RESPONSES_PARTS
        or any(text_at(item, "call_id") for item in items)
    ):
        return "openai_responses"
    is_chat = any(
        text_at(item, "role") in {"tool", "function", "developer"} or "tool_calls" in item
        for item in items
    )
    if not is_chat and (
        kinds & ANTHROPIC_BLOCKS
        or "system" in body
        or "anthropic_version" in body
        or any("input_schema" in tool for tool in objects_at(body, "tools"))
    ):
        return "anthropic"
    return "openai_chat"


READER = Reader(CLIENT, mismatch, sessions)


# --- Kimi CLI ---------------------------------------------------------------------------------


KIMI = "kimi"
_NOTES = frozenset({"_checkpoint", "_system_prompt", "_usage"})
"""Roles of lines that are no messages. The system prompt is converted."""


def _find_folder(path: Path) -> str:
    """Return the working directory whose hash is the folder name of its sessions."""
    with suppress(OSError):
        index = parse_or_none((path.parents[3] / "kimi.json").read_bytes())
        for folder in (text_at(place, "path") for place in objects_at(index, "work_dirs")):
            name = hashlib.md5(folder.encode(), usedforsecurity=False).hexdigest()
            if name == path.parents[1].name:
                return folder
    return ""


KIMI_FILES = ClientFiles(
    KIMI,
    (".kimi",),
    ("sessions/*/*/context.jsonl",),
    _find_folder,
    ("KIMI_SHARE_DIR",),
    folder_name,
)


def kimi_mismatch(source: Source) -> str:
    """Return why this is no context of Kimi CLI; empty if it is one. Raises `FormatError` for its
    events."""
    if any(text_at(record, "role") in _NOTES for record in source.objects()):
        return ""
    if any(text_at(record, "message", "type") == "TurnBegin" for record in source.objects()):
        raise FormatError(f"{source.path.name} has events; context.jsonl beside them can be read")
    return "no line has a role of " + ", ".join(sorted(_NOTES))


def read_kimi(session: SessionBuilder) -> None:
    """Read a context. Thoughts are sent back to the model in a separate field."""
    session.id = KIMI_FILES.find_id(session.source.path)
    for _, record in session.records():
        role, content = text_at(record, "role"), record.get("content")
        if role == "_system_prompt":
            session.say("system", content)
        elif role == "assistant" and isinstance(content, list):
            words, thought = (
                "".join(text_at(part, key) for part in objects_at(record, "content"))
                for key in ("text", "think")
            )
            thinking = without_empty({"reasoning_content": thought})
            session.add({**record, "content": words, **thinking})
        elif role not in _NOTES:
            session.add(record)


KIMI_READER = file_reader(KIMI, "openai_chat", kimi_mismatch, read_kimi, KIMI_FILES)


# --- Kimi Code ----------------------------------------------------------------------------------


KIMI_CODE = "kimi_code"
KIMI_CODE_FILES = ClientFiles(
    KIMI_CODE,
    (".kimi-code",),
    ("sessions/*/*/agents/main/wire.jsonl",),
    cwd_under("environmentDisclosure", "cwd"),
    ("KIMI_CODE_HOME",),
    lambda path: path.absolute().parts[-4:][0],
)


def kimi_code_mismatch(source: Source) -> str:
    """Return why these are no events of an agent of Kimi Code; empty if they are."""
    kinds = (text_at(record, "type") for record in source.objects() if "agentId" in record)
    has_context = any(kind.startswith(("profile.", "context.")) for kind in kinds)
    return "" if has_context else "no event of an agent's profile or context"


FAILED = "<system>ERROR: Tool execution failed.</system>"
"""Text that the client sends before the output of a call that failed."""
MOST_KEPT = 1_000
"""Maximum number of requests that a compaction keeps; the client keeps 20,000 tokens of them."""


@dataclass(slots=True)
class _KimiContext:
    """State of an agent's context while its events are read."""

    session: SessionBuilder
    requests: list[int] = field(default_factory=list)
    """Positions of what a person wrote."""
    waiting: list[Entry] = field(default_factory=list)
    """Messages that came before the results of open calls; they are sent after these."""
    step: str | None = None
    """Id of the model's step that the latest answer belongs to; None if there is none to add to."""
    answer_end: int = 0

    def add_message(self, message: Record) -> None:
        """Add a message of a user or the client, behind the results of open calls."""
        if self.session.open:
            self.waiting.append(message)
            return
        if text_at(message, "origin", "kind") == "user":
            self.requests.append(self.session.position)
        self.session.say(text_at(message, "role"), _kimi_content(message.get("content")))

    def add_event(self, event: Record) -> None:
        """Add an event of the model's loop."""
        session, part = self.session, object_at(event, "part")
        match kind := text_at(event, "type"):
            case "content.part" | "tool.call":
                answer = self._find_answer(text_at(event, "stepUuid"))
                for target, key in ("content", "text"), ("reasoning_content", "think"):
                    if words := text_at(part, key):
                        answer[target] = (answer.get(target) or "") + words
                if kind == "tool.call":
                    id, name = text_at(event, "toolCallId"), text_at(event, "name")
                    answer.setdefault("tool_calls", []).append(
                        write_call(id, name, event.get("args"))
                    )
                    session.open[id] = None
            case "tool.result":
                result = object_at(event, "result")
                failed = FAILED * bool(result.get("isError"))
                notes = [
                    {"type": "text", "text": text} for text in (failed, text_at(result, "note"))
                ]
                output = result.get("output")
                parts = [{"type": "text", "text": output}] if isinstance(output, str) else output
                shown = [*notes[:1], *objects_in(parts), *notes[1:]]
                session.answer(_kimi_content(shown), text_at(event, "toolCallId"))
                if not session.open:
                    self.end_calls()
            case "step.end" if usage := object_at(event, "usage"):
                session.usage.append((self.answer_end, _kimi_usage(usage)))

    def end_calls(self) -> None:
        """Add what waits for results, of which some may be missing."""
        waiting, self.waiting = self.waiting, []
        self.session.open.clear()
        for message in waiting:
            self.add_message(message)

    def _find_answer(self, step: str) -> Entry:
        """Return the answer of this step, added if it is new."""
        if self.step != step:
            self.end_calls()
            self.session.call(None, ())
            self.step, self.answer_end = step, self.session.position
        return self.session.messages[self.answer_end - 1]

    def compact(self, record: Record) -> None:
        """Add a compaction: the model sees the latest requests and a summary."""
        session, count = self.session, int_at(record, "keptUserMessageCount")
        count = max(0, min(count, len(self.requests), MOST_KEPT))
        requests = [session.messages[at] for at in self.requests[len(self.requests) - count :]]
        words = text_at(record, "contextSummary") or text_at(record, "summary")
        summary = [{"role": "user", "content": words}] if words else []
        now, meta = session.position, without_keys(record, "summary", "contextSummary")
        start = sum(entry["role"] == "system" for entry in session.messages[:1])
        session.compactions.append(Compaction(start, now, (*requests, *summary), meta=meta, at=now))

    def undo(self, count: int) -> None:
        """Drop the last *count* requests and what came after them."""
        if not 0 < count <= len(self.requests):
            return
        session, place = self.session, self.requests[-count]
        del session.messages[place:], self.requests[-count:]
        while session.compactions and session.compactions[-1].stop > place:
            session.compactions.pop()
        while session.usage and session.usage[-1][0] > place:
            session.usage.pop()
        session.open.clear()
        self.waiting, self.step = [], None


def _kimi_content(content: Any) -> Any:
    """Return the text of a message's parts, or if it has others, such as images, the parts in the
    form of Chat Completions."""
    parts = [part for part in objects_in(content) if part.get("text") != ""]
    if all(text_at(part, "type") == "text" for part in parts):
        return join_content(parts)
    return [
        {"type": "image_url", "image_url": part["imageUrl"]} if "imageUrl" in part else part
        for part in parts
    ]


def _kimi_usage(usage: Record) -> Record:
    """Return a step's usage in the words of the Messages API."""
    names = {
        "inputOther": "input_tokens",
        "output": "output_tokens",
        "inputCacheRead": "cache_read_input_tokens",
        "inputCacheCreation": "cache_creation_input_tokens",
    }
    return {name: usage[key] for key, name in names.items() if key in usage}


def read_kimi_code(session: SessionBuilder) -> None:
    """Read the events of an agent."""
    session.id, context = KIMI_CODE_FILES.find_id(session.source.path), _KimiContext(session)
    for _, record in session.records():
        session.note_time(record.get("time"))
        match kind := text_at(record, "type"):
            case "profile.bind" | "config.update":
                session.cwd = text_at(record, "environmentDisclosure", "cwd") or session.cwd
                session.model = text_at(record, "modelAlias") or session.model
                if (words := text_at(record, "systemPrompt")) and not session.messages:
                    session.say("system", words)
            case "llm.tools_snapshot":
                tools = objects_at(record, "tools")
                session.body["tools"] = [{"type": "function", "function": tool} for tool in tools]
            case "context.append_message":
                context.add_message(object_at(record, "message"))
            case "context.append_loop_event":
                context.add_event(object_at(record, "event"))
            case "context.apply_compaction" | "context.clear":
                context.compact(record)
            case "context.undo":
                context.undo(int_at(record, "count"))
            case _ if kind.startswith("context."):
                session.unknown[kind] += 1
    context.end_calls()


KIMI_CODE_READER = file_reader(
    KIMI_CODE, "openai_chat", kimi_code_mismatch, read_kimi_code, KIMI_CODE_FILES
)


# --- Continue ---------------------------------------------------------------------------------


CONTINUE = "continue"


def _read_folder(path: Path) -> str:
    """Read the working directory from the start of a document, which may be long."""
    with path.open("rb") as stream:
        _, _, rest = (
            stream.read(8_192).decode("utf-8", "replace").partition('"workspaceDirectory":')
        )
    return str(json.JSONDecoder().raw_decode(rest.lstrip())[0]) if rest else ""


CONTINUE_FILES = ClientFiles(
    CONTINUE, (".continue",), ("sessions/*-*.json",), _read_folder, ("CONTINUE_GLOBAL_DIR",)
)


def continue_mismatch(source: Source) -> str:
    """Return why this is no session of Continue; empty if it is one."""
    items = list_at(source.document, "history")
    is_session = text_at(source.document, "sessionId") and items
    if is_session and all(text_at(item, "message", "role") for item in items):
        return ""
    return "no sessionId with a history of messages"


def read_continue(session: SessionBuilder) -> None:
    """Read a session."""
    document = session.source.document
    for item in objects_at(document, "history"):
        place = session.position + 1
        session.messages += _item_entries(item, object_at(item, "message"))
        if usage := object_at(item, "message", "usage"):
            session.usage.append((place, usage))
            session.model = text_at(usage, "model") or session.model
    session.id, session.title, session.cwd = (
        text_at(document, key) for key in ("sessionId", "title", "workspaceDirectory")
    )


def _item_entries(item: Record, message: Record) -> Iterator[Entry]:
    """Yield a message, then the output of its calls. An unfinished call stays open."""
    role, content = text_at(message, "role"), message.get("content") or ""
    if role == "tool":
        id = text_at(message, "toolCallId")
        yield {"role": "tool", "tool_call_id": id, "content": content}
    elif role == "user" and isinstance(content, str):
        shown = [text_at(context, "content") for context in objects_at(item, "contextItems")]
        yield {"role": role, "content": "\n\n".join((*filter(None, shown), content))}
    elif role == "assistant":
        calls = without_empty({"tool_calls": list(objects_at(message, "toolCalls"))})
        yield {"role": role, "content": content, **calls}
        for state in objects_at(item, "toolCallStates"):
            if "output" in state:
                text = "\n\n".join(text_at(part, "content") for part in objects_at(state, "output"))
                id = text_at(state, "toolCallId")
                yield {"role": "tool", "tool_call_id": id, "content": text}
    elif role != "thinking":
        yield {"role": role, "content": content}


CONTINUE_READER = file_reader(
    CONTINUE, "openai_chat", continue_mismatch, read_continue, CONTINUE_FILES
)
