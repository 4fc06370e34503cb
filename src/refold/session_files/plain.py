"""Conversations with no client around them: a list of messages, a request body, or a log of requests.

JSON or JSONL, in any of the four wire formats. In a log each line is a request body, or an object
with one under `body`, `request` or `payload`; the last one is the conversation, and each of them can
be had. A line with `kind` other than `main` is a side request and comes before all others.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from refold.session_files.json_fields import Record, object_at, objects_at, text_at, without_keys
from refold.session_files.session import FIELDS, Entry, Format, Problem, Session
from refold.session_files.source import Reader, Source, StoredSession

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
    if isinstance(source.document, list):
        return [StoredSession("", lambda: _session(source, source.document, source.notes, {}, ""))]
    problems, entries = list[Problem](), list[Entry]()
    requests = list[tuple[bool, str, Record]]()
    for line, record in source.records(problems):
        request = _request(record)
        if request is not None:
            requests.append((record.get("kind", "main") == "main", str(line), request))
        elif _is_entry(record):
            entries.append(record)
    if not requests:
        return [StoredSession("", lambda: _session(source, entries, problems, {}, ""))]
    requests.sort(key=lambda request: request[0])
    return [
        StoredSession(line, partial(_request_session, source, line, request, problems))
        for _, line, request in requests
    ]


def _is_entry(value: Any) -> bool:
    """Whether this is one entry of a conversation, in any format."""
    return (
        bool(text_at(value, "role"))
        or isinstance(object_at(value).get("parts"), list)
        or "call_id" in object_at(value)
    )


def _request(record: Record) -> Record | None:
    """The request body in a line; None where there is no conversation in it."""
    for body in (record, *(object_at(record, holder) for holder in BODY_KEYS)):
        if any(isinstance(body.get(field), list) for field in FIELDS.values()) or isinstance(
            body.get("input"), str
        ):
            return body
    return None


def _request_session(
    source: Source, id: str, request: Record, problems: Sequence[Problem]
) -> Session:
    field = next(name for name in FIELDS.values() if isinstance(request.get(name), list | str))
    value = request[field]
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    name = "" if source.document is not None else id
    return replace(_session(source, items, problems, without_keys(request, field), field), id=name)


def _session(
    source: Source,
    items: Sequence[Entry],
    problems: Sequence[Problem],
    body: Record,
    field: str,
) -> Session:
    entries = [item for item in items if isinstance(item, dict)]
    notes = (
        [Problem(0, f"{len(items) - len(entries)} entries are no JSON objects")]
        if len(entries) < len(items)
        else []
    )
    empty = [] if entries else [Problem(0, "the conversation is empty")]
    return Session(
        path=source.path,
        client=CLIENT,
        format=guess_format(body, entries, field),
        messages=entries,
        body=body,
        problems=(*problems, *notes, *empty),
    )


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
