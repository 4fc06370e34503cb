"""Conversations without a client: a list of messages, a request body, or a log of requests. Also
the similar files of Kimi CLI and Continue, and the ids of records.

JSON or JSONL, in any wire format. In a log each line is a request body, or an object with one under
`body`, `request` or `payload`. The last request is the conversation, and each can be read by its
line number. A line with a `kind` other than `main` is a side request and comes before the others.

Kimi CLI: `~/.kimi/sessions/<directory>/<session>/context.jsonl`, the model's context, which the
client starts anew when it compacts. The events in `wire.jsonl` beside it are not read.

Continue: `~/.continue/sessions/<session>.json`, a list of items on the screen. An item holds a
message, and for an assistant message its calls with their output, which was sent as messages.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from refold.errors import FormatError
from refold.session_files.reader import (
    FIELDS,
    Entry,
    Format,
    Reader,
    Session,
    SessionBuilder,
    StoredSession,
    file_reader,
    normalize_calls,
)
from refold.session_files.source import ClientFiles, Problem, Source, folder_name
from refold.text.json_values import (
    Record,
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


# --- names of records -----------------------------------------------------------------------------

IDS = ("session", "session_id", "trajectory_id", "instance_id", "id", "uuid")
"""Fields that may hold the id of a record, in order of preference."""


def record_id(record: Any) -> str:
    """Return the id of a record; empty if it has none."""
    values = (object_at(record).get(name) for name in IDS)
    named = (str(value) for value in values if isinstance(value, str | int) and value != "")
    return next(named, "")
