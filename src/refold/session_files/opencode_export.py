"""A session in the form that `opencode export` prints and `opencode import` reads: one document
with its messages, each with its parts."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from refold.session_files.claude_messages import as_blocks
from refold.session_files.opencode import MESSAGES, query
from refold.session_files.reader import Entry, Session
from refold.session_files.source import open_path
from refold.text.json_values import (
    JsonObject,
    Record,
    object_at,
    objects_at,
    parse_or_none,
    parse_or_text,
    text_at,
)

_ZEROS: Mapping[str, Any] = {
    "cost": 0,
    "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
}
_NAMES = {"projectID": "project_id", "path": "path", "agent": "agent", "model": "model",
          "version": "version", "permission": "permission"}  # fmt: skip
"""What the client's own export has of a session, and the columns of its database."""
_INFO_FACTS = ("agent", "model", "mode", "path", "modelID", "providerID")
"""What a message says of who was asked, and where."""


def read_infos(session: Session) -> list[Record]:
    """Return what the client keeps of a session, then of each of its messages, without what was
    said. Raises `FormatError`."""
    source = open_path(session.path)
    if not source.database:
        infos = [object_at(item, "info") for item in objects_at(source.document, "messages")]
        return [object_at(source.document, "info") or source.document, *infos]
    (row,) = query(source, "SELECT * FROM session WHERE id = ?", session.id)
    infos = [object_at(parse_or_none(row["data"])) for row in query(source, MESSAGES, session.id)]
    columns = {name: row[column] for name, column in _NAMES.items() if column in row}
    values = {name: parse_or_text(value) for name, value in columns.items() if value is not None}
    return [{**values, "version": str(row["version"])}, *infos]


def new_id(now: datetime) -> str:
    """Return an id for a session, by the client's rule: the latest sorts first."""
    count = int(now.timestamp() * 1000) * 0x1000 + 1
    return f"ses_{~count & 0xFFFFFFFFFFFF:012x}{token_hex(7)}"


def opencode_lines(
    id: str, records: Sequence[Record], session: Session, entries: Sequence[Entry], now: datetime
) -> Iterator[Record]:
    """Yield the document of a session with these *entries*."""
    when, folder = int(now.timestamp() * 1000), session.cwd or str(Path.cwd())
    asker, answerer = _read_facts(session, records[1:], folder)
    results = {
        block["tool_use_id"]: block
        for entry in entries
        for block in as_blocks(entry["content"])
        if block["type"] == "tool_result"
    }
    messages, parent = list[Record](), ""
    for at, entry in enumerate(entries, when - len(entries)):
        parts = [
            part for block in as_blocks(entry["content"]) for part in _parts(block, results, at)
        ]
        if not parts:  # results stand beside their calls
            continue
        key = f"{at * 0x1000 + 1 & 0xFFFFFFFFFFFF:012x}"
        own = {"id": f"msg_{key}{token_hex(7)}", "sessionID": id}
        if entry["role"] == "assistant":
            finish = "tool-calls" if any(part["type"] == "tool" for part in parts) else "stop"
            info = {**answerer, **_ZEROS, **own, "role": "assistant", "parentID": parent}
            info |= {"finish": finish, "time": {"created": at, "completed": at}}
            ending = {"type": "step-finish", "reason": finish, **_ZEROS}
            parts = [{"type": "step-start"}, *parts, ending]
        else:
            info = {**asker, **own, "role": "user", "time": {"created": at}}
            parent = own["id"]
        owner = {"sessionID": id, "messageID": own["id"]}
        named = [
            {"id": f"prt_{key}{place:04x}{token_hex(5)}", **owner, **part}
            for place, part in enumerate(parts)
        ]
        messages.append({"info": info, "parts": named})
    about = {name: records[0][name] for name in _NAMES if name in records[0]}
    head = {"slug": f"refold-{token_hex(4)}", "projectID": "global", "version": "1.18.33", **about}
    times = {"time": {"created": when, "updated": when}}
    whole = {"id": id, **head, "directory": folder, "title": session.title, **_ZEROS, **times}
    yield {"info": whole, "messages": messages}


def _read_facts(
    session: Session, infos: Sequence[Record], folder: str
) -> tuple[JsonObject, JsonObject]:
    """Return what the session's latest messages say of who was asked, and where: those of the user,
    and those of the model."""
    facts: dict[str, JsonObject] = {
        "user": {"agent": "build", "model": {"providerID": "", "modelID": ""}},
        "assistant": {
            "mode": "build",
            "agent": "build",
            "modelID": session.body.get("model", ""),
            "providerID": "",
            "path": {"cwd": folder, "root": "/"},
        },
    }
    for info in infos:
        about = {name: info[name] for name in _INFO_FACTS if name in info}
        facts.setdefault(text_at(info, "role"), {}).update(about)
    return facts["user"], facts["assistant"]


def _parts(block: Record, results: Mapping[str, Record], at: int) -> Iterator[Record]:
    """Yield a block as the client's parts; a call with its result."""
    time = {"start": at, "end": at}
    match block["type"]:
        case "text":
            yield {"type": "text", "text": block["text"], "time": time}
        case "thinking":
            signature = block.get("signature")
            signed = {"anthropic": {"signature": signature}} if signature else {}
            yield {"type": "reasoning", "text": block["thinking"], "metadata": signed, "time": time}
        case "image" | "document":
            yield _file(block)
        case "tool_use":
            yield {
                "type": "tool",
                "callID": block["id"],
                "tool": block["name"],
                "state": _state(block, results.get(block["id"]), at),
            }


def _state(call: Record, result: Record | None, at: int) -> Record:
    time = {"start": at, "end": at}
    if result is None:
        error = "The call was interrupted."
        return {"status": "error", "input": call["input"], "error": error, "time": time}
    blocks = as_blocks(result.get("content") or "")
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if result.get("is_error"):
        return {"status": "error", "input": call["input"], "error": text, "time": time}
    files = [_file(block) for block in blocks if block["type"] in {"image", "document"}]
    attached = {"attachments": files} if files else {}
    state = {"status": "completed", "input": call["input"], "output": text, "title": call["name"]}
    return {**state, "metadata": {}, "time": time, **attached}


def _file(block: Record) -> Record:
    source = object_at(block, "source")
    mime = text_at(source, "media_type")
    url = text_at(source, "url") or f"data:{mime};base64,{text_at(source, 'data')}"
    return {"type": "file", "mime": mime or "image/png", "url": url}
