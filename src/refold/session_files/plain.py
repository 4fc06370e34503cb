"""Conversations without a client: a list of messages, a request body, or a log of requests.

JSON or JSONL, in any of the four wire formats. In a log each line is a request body, or an object
with one under `body`, `request` or `payload`; the last one is the conversation, and each can be
read by its line. A line with `kind` other than `main` is a side request and comes first.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from refold.session_files.reader import (
    FIELDS,
    Entry,
    Format,
    Reader,
    Session,
    SessionBuilder,
    StoredSession,
)
from refold.session_files.source import Problem, Source
from refold.text.json_values import Record, object_at, objects_at, text_at, without_keys

CLIENT = "plain"
BODY_KEYS = ("body", "request", "payload")
"""Where a log keeps the request body."""
ANTHROPIC_BLOCKS = frozenset(
    {
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "image",
        "document",
        "server_tool_use",
    }
)
"""Kinds of blocks that only Anthropic's format has."""
RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file"})
"""Kinds of parts that only the Responses format has."""


def mismatch(source: Source) -> str:
    """Return why this is no list of messages, request or log of requests; empty if it is one."""
    document = source.document
    if isinstance(document, list):
        return (
            ""
            if not document or any(_is_entry(item) for item in document)
            else "a list, but not of messages"
        )
    if any(_request(record) is not None or _is_entry(record) for record in source.objects()):
        return ""
    return f"no object has a role or one of {', '.join(dict.fromkeys(FIELDS.values()))}"


def sessions(source: Source) -> Sequence[StoredSession]:
    """Return every conversation of the file; in a log the latest main request at the end."""
    problems, entries = list[Problem](), list[Entry]()
    requests = list[tuple[bool, str, Record]]()
    if isinstance(source.document, list):
        entries = source.document
    else:
        for line, record in source.records(problems):
            if (request := _request(record)) is not None:
                requests.append((record.get("kind", "main") == "main", str(line), request))
            elif _is_entry(record):
                entries.append(record)
    if not requests:
        return [StoredSession("", partial(_read, source, "", {}, "", entries, problems))]
    requests.sort(key=lambda request: request[0])
    return [
        StoredSession(line, partial(_read_request, source, line, request, problems))
        for _, line, request in requests
    ]


def _is_entry(value: Any) -> bool:
    """Is this an entry of a conversation, in any format?"""
    return (
        bool(text_at(value, "role"))
        or isinstance(object_at(value).get("parts"), list)
        or "call_id" in object_at(value)
    )


def _request(record: Record) -> Record | None:
    """Return the request body in a line; None if there is no conversation in it."""
    for body in (record, *(object_at(record, holder) for holder in BODY_KEYS)):
        if any(isinstance(body.get(field), list) for field in FIELDS.values()) or isinstance(
            body.get("input"), str
        ):
            return body
    return None


def _read_request(
    source: Source, line: str, request: Record, problems: Sequence[Problem]
) -> Session:
    field = next(name for name in FIELDS.values() if isinstance(request.get(name), list | str))
    value = request[field]
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    id = line if source.document is None else ""
    return _read(source, id, without_keys(request, field), field, items, problems)


def _read(
    source: Source,
    id: str,
    body: Record,
    field: str,
    items: Sequence[Entry],
    problems: Sequence[Problem],
) -> Session:
    entries = [item for item in items if isinstance(item, dict)]
    format = guess_format(body, entries, field)
    session = SessionBuilder(source, CLIENT, format, id, body=body, messages=entries)
    session.problems += problems
    if len(entries) < len(items):
        text = f"{len(items) - len(entries)} entries are no JSON objects"
        session.problems.append(Problem(0, text))
    return session.build()


def guess_format(body: Record, items: Sequence[Entry], field: str = "") -> Format:
    """Return the wire format of a conversation, by its shape."""
    if field == "contents" or any(isinstance(item.get("parts"), list) for item in items):
        return "gemini"
    kinds = {text_at(part, "type") for item in items for part in objects_at(item, "content")}
    if (
        field == "input"
        or kinds & RESPONSES_PARTS
        or any(text_at(item, "call_id") for item in items)
    ):
        return "openai_responses"
    if any(
        text_at(item, "role") in {"tool", "function", "developer"} or "tool_calls" in item
        for item in items
    ):
        return "openai_chat"
    if (
        kinds & ANTHROPIC_BLOCKS
        or "system" in body
        or "anthropic_version" in body
        or _tools_are_anthropic(body)
    ):
        return "anthropic"
    return "openai_chat"


def _tools_are_anthropic(body: Record) -> bool:
    return any("input_schema" in tool for tool in objects_at(body, "tools"))


READER = Reader(CLIENT, mismatch, sessions)
