"""Write a request as a session file with which its client can continue.

The formats are those of Claude Code 2.1, Codex 0.169, pi 1.6 and OpenCode 1.18 (`make clients` has
them continue). Metadata of the original is copied. The original is only read.
"""

import json
import os
import re
import shlex
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from refold.errors import FormatError
from refold.session_files import claude_code, codex
from refold.session_files.claude_code import as_blocks, result_block, text_block
from refold.session_files.opencode import MESSAGES, query, read_row
from refold.session_files.reader import Entry, Session
from refold.session_files.source import NAMES, ClientFiles, Problem, open_path
from refold.stores.sidecar import write_new
from refold.text.json_values import (
    JsonObject,
    Record,
    int_at,
    object_at,
    objects_at,
    parse_or_none,
    parse_or_text,
    text_at,
    without_empty,
)


@dataclass(frozen=True, slots=True)
class Exported:
    """A session file that was written."""

    path: Path
    id: str
    command: str
    """Command that continues the session, run in the session's directory."""
    move_to: Path | None = None
    """Folder to which the file must be moved; None if the client finds it where it is."""


def find_form(session: Session) -> "_Form":
    """Return the export format of a session's client. Raises `FormatError` if there is none."""
    form = _FORMS.get(session.client)
    if form is None:
        names = ", ".join(NAMES.get(client, client) for client in _FORMS)
        client = NAMES.get(session.client, session.client)
        raise FormatError(
            f"{session.path.name}: sessions of {client} are not written, only of {names}"
        )
    return form


def export_session(
    session: Session,
    entries: Sequence[Entry],
    now: datetime,
    home: Path,
) -> Exported:
    """Write the *entries* of a request to a new session file beside *session*'s, in the client's
    format. *home* (see `discover`) and the environment say where the client looks for it. Raises
    `FormatError` for an unsupported client or no entries, OSError."""
    form = find_form(session)
    if not entries:
        raise FormatError(f"{session.path.name}: there is no message to go on with")
    records, id = form.read(session), form.make_id(now)
    path = session.path.parent.resolve() / form.name(id, now)
    lines = [
        json.dumps(line, ensure_ascii=False)
        for line in form.lines(id, records, session, entries, now)
    ]
    # Written atomically: the client would list a partial session, too.
    write_new(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
    command, move_to = form.command.format(id=id, path=shlex.quote(str(path))), None
    if form.files is not None:
        folder, roots = Path(form.folder(session, now)), form.files.list_roots(home, os.environ)
        tops = ((root / folder.parts[0]).resolve() for root in roots)
        if not any(map(path.is_relative_to, tops)):  # the client does not look there
            move_to = roots[0] / folder
    return Exported(path, id, command, move_to)


def _read_records(session: Session) -> list[Record]:
    problems = list[Problem]()
    return [record for _, record in open_path(session.path).records(problems)]


@dataclass(frozen=True, slots=True)
class _Form:
    """The format of one client's session files."""

    command: str
    name: Callable[[str, datetime], str]
    lines: Callable[[str, Sequence[Record], Session, Sequence[Entry], datetime], Iterator[Record]]
    read: Callable[[Session], Sequence[Record]] = _read_records
    make_id: Callable[[datetime], str] = lambda _: str(uuid.uuid4())
    files: ClientFiles | None = None
    """Where the client looks for sessions by id; None if the command names the file."""
    folder: Callable[[Session, datetime], str] = lambda *_: ""
    """Folder, below the client's home, in which it looks for this session."""


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- Claude Code ----------------------------------------------------------------------------------


_CLAUDE_FACTS = ("cwd", "version", "gitBranch", "userType", "entrypoint")
"""Fields of a line that say where Claude Code wrote it."""


def _claude_folder(session: Session, _: datetime) -> str:
    """Return the client's folder for a session's working directory."""
    return "projects/" + re.sub("[^0-9A-Za-z]", "-", session.cwd or str(Path.cwd()))


def _claude_lines(
    id: str, records: Sequence[Record], session: Session, entries: Sequence[Entry], now: datetime
) -> Iterator[Record]:
    facts = JsonObject()
    for record in records:
        facts |= {name: record[name] for name in _CLAUDE_FACTS if record.get(name)}
    parent = None
    for number, entry in enumerate(entries):
        line = {"parentUuid": parent, "isSidechain": False, **facts, "sessionId": id}
        parent = str(uuid.uuid4())
        line |= {"type": entry["role"], "uuid": parent, "timestamp": _stamp(now)}
        if entry["role"] != "assistant":
            yield {**line, "type": "user", "message": {**entry, "role": "user"}}
            continue
        blocks = as_blocks(entry["content"])
        calls = any(block.get("type") == "tool_use" for block in blocks)
        message = {
            "id": f"msg_refold_{number:05}",
            "type": "message",
            "role": "assistant",
            "model": session.body.get("model", ""),
            "content": blocks,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        yield {**line, "message": message}


# --- Codex ----------------------------------------------------------------------------------------


def _codex_lines(
    id: str, records: Sequence[Record], session: Session, entries: Sequence[Entry], now: datetime
) -> Iterator[Record]:
    """Yield all records, under the new *id*, then a compaction to *entries*. Raises
    `FormatError`."""
    if not any(text_at(record, "type") == "session_meta" for record in records):
        raise FormatError(f"{session.path.name}: no line of it is a session_meta of Codex")
    for record in records:
        if text_at(record, "type") == "session_meta":
            ids = {
                name: id for name in ("id", "session_id") if name in object_at(record, "payload")
            }
            record = {**record, "payload": {**object_at(record, "payload"), **ids}}  # noqa: PLW2901
        yield record
    line: JsonObject = {"timestamp": _stamp(now), "type": "compacted"}
    if any("ordinal" in record for record in records):
        line["ordinal"] = 1 + max(int_at(record, "ordinal") for record in records)
    yield {**line, "payload": {"message": "", "replacement_history": list(entries)}}


# --- pi -------------------------------------------------------------------------------------------


_PI_USAGE = {
    **dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0),
    "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0),
}


def _pi_lines(
    id: str, records: Sequence[Record], session: Session, entries: Sequence[Entry], now: datetime
) -> Iterator[Record]:
    header = next((record for record in records if text_at(record, "type") == "session"), {})
    yield {**header, "type": "session", "version": 3, "id": id, "timestamp": _stamp(now)} | {
        "cwd": session.cwd,
        "parentSession": str(session.path.absolute()),
    }
    answers = [
        message
        for record in records
        if text_at(message := object_at(record, "message"), "role") == "assistant"
    ]
    facts = {
        name: answers[-1].get(name, "") if answers else "" for name in ("api", "provider", "model")
    }
    names, parent, number = dict[str, str](), None, 0
    for entry in entries:
        for message in _pi_messages(entry, facts, names):
            number += 1
            key = f"{number:08x}"
            line = {"type": "message", "id": key, "parentId": parent, "timestamp": _stamp(now)}
            yield {**line, "message": {**message, "timestamp": int(now.timestamp() * 1000)}}
            parent = key


def _pi_messages(entry: Entry, facts: Mapping[str, str], names: dict[str, str]) -> Iterator[Record]:
    """Yield an entry as pi's messages. *names* are the names of tools, by call id."""
    blocks = as_blocks(entry["content"])
    if entry["role"] == "assistant":
        names |= {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
        calls = any(block["type"] == "tool_use" for block in blocks)
        parts = list(map(_pi_part, blocks))
        stop = "toolUse" if calls else "stop"
        yield {
            "role": "assistant",
            "content": parts,
            **facts,
            "usage": _PI_USAGE,
            "stopReason": stop,
        }
        return
    for block in blocks:
        if block["type"] == "tool_result":
            call, inner = block["tool_use_id"], block.get("content")
            parts = as_blocks(inner) if inner else []
            yield {
                "role": "toolResult",
                "toolCallId": call,
                "toolName": names.get(call, ""),
                "content": list(map(_pi_part, parts)),
                "isError": block.get("is_error") is True,
            }
    if parts := [_pi_part(block) for block in blocks if block["type"] != "tool_result"]:
        yield {"role": "user", "content": parts}


def _pi_part(block: Record) -> Record:
    match block["type"]:
        case "thinking":
            signature = without_empty({"thinkingSignature": block.get("signature")})
            return {"type": "thinking", "thinking": block["thinking"], **signature}
        case "redacted_thinking":
            return {
                "type": "thinking",
                "thinking": "",
                "redacted": True,
                "thinkingSignature": block["data"],
            }
        case "tool_use":
            return {
                "type": "toolCall",
                "id": block["id"],
                "name": block["name"],
                "arguments": block["input"],
            }
        case "image":
            source = object_at(block, "source")
            return {
                "type": "image",
                "data": source.get("data", ""),
                "mimeType": source.get("media_type", ""),
            }
    return text_block(text_at(block, "text"))


# --- OpenCode -------------------------------------------------------------------------------------
# In the format of `opencode export` and `opencode import`: one document with its messages, each
# with its parts.

_OPENCODE_ZEROS: Mapping[str, Any] = {
    "cost": 0,
    "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
}
_OPENCODE_COLUMNS = {
    "projectID": "project_id",
    "path": "path",
    "agent": "agent",
    "model": "model",
    "version": "version",
    "permission": "permission",
}
"""Fields of the client's export, and their columns in its database."""
_OPENCODE_FACTS = ("agent", "model", "mode", "path", "modelID", "providerID")
"""Fields of a message about agent, model and path."""


def read_infos(session: Session) -> list[Record]:
    """Return the metadata of a session, then of each of its messages. Raises `FormatError`."""
    source = open_path(session.path)
    if not source.database:
        infos = [object_at(item, "info") for item in objects_at(source.document, "messages")]
        return [object_at(source.document, "info") or source.document, *infos]
    row = read_row(source, session.id)
    infos = [object_at(parse_or_none(row["data"])) for row in query(source, MESSAGES, session.id)]
    columns = {name: row[column] for name, column in _OPENCODE_COLUMNS.items() if column in row}
    values = {name: parse_or_text(value) for name, value in columns.items() if value is not None}
    return [{**values, "version": str(row["version"])}, *infos]


def new_id(now: datetime) -> str:
    """Return a new session id in the client's scheme, made of the time and random digits: the
    latest sorts first."""
    count = int(now.timestamp() * 1000) * 0x1000 + 1
    return f"ses_{~count & 0xFFFFFFFFFFFF:012x}{token_hex(7)}"


def opencode_lines(
    id: str, records: Sequence[Record], session: Session, entries: Sequence[Entry], now: datetime
) -> Iterator[Record]:
    """Yield the document of a session with these *entries*."""
    when, folder = int(now.timestamp() * 1000), session.cwd or str(Path.cwd())
    asker, answerer = _opencode_facts(session, records[1:], folder)
    results = {
        block["tool_use_id"]: block
        for entry in entries
        for block in as_blocks(entry["content"])
        if block["type"] == "tool_result"
    }
    messages, parent = list[Record](), ""
    for at, entry in enumerate(entries, when - len(entries)):
        parts = [
            part
            for block in as_blocks(entry["content"])
            for part in _opencode_parts(block, results, {"start": at, "end": at})
        ]
        if not parts:  # results are stored with their calls
            continue
        key = f"{at * 0x1000 + 1 & 0xFFFFFFFFFFFF:012x}"
        own = {"id": f"msg_{key}{token_hex(7)}", "sessionID": id}
        if entry["role"] == "assistant":
            finish = "tool-calls" if any(part["type"] == "tool" for part in parts) else "stop"
            info = {**answerer, **_OPENCODE_ZEROS, **own, "role": "assistant", "parentID": parent}
            info |= {"finish": finish, "time": {"created": at, "completed": at}}
            ending = {"type": "step-finish", "reason": finish, **_OPENCODE_ZEROS}
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
    about = {name: records[0][name] for name in _OPENCODE_COLUMNS if name in records[0]}
    head = {"slug": f"refold-{token_hex(4)}", "projectID": "global", "version": "1.18.33", **about}
    times = {"time": {"created": when, "updated": when}}
    whole = {
        "id": id,
        **head,
        "directory": folder,
        "title": session.title,
        **_OPENCODE_ZEROS,
        **times,
    }
    yield {"info": whole, "messages": messages}


def _opencode_facts(
    session: Session, infos: Sequence[Record], folder: str
) -> tuple[JsonObject, JsonObject]:
    """Return agent, model and path of the session's latest messages, by the user and by the
    model."""
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
        about = {name: info[name] for name in _OPENCODE_FACTS if name in info}
        facts.setdefault(text_at(info, "role"), {}).update(about)
    return facts["user"], facts["assistant"]


def _opencode_parts(block: Record, results: Mapping[str, Record], time: Record) -> Iterator[Record]:
    """Yield a block as the client's parts. A call includes its result."""
    match block["type"]:
        case "text":
            yield {"type": "text", "text": block["text"], "time": time}
        case "thinking":
            signature = block.get("signature")
            signed = {"anthropic": {"signature": signature}} if signature else {}
            yield {"type": "reasoning", "text": block["thinking"], "metadata": signed, "time": time}
        case "image" | "document":
            yield _opencode_file(block)
        case "tool_use":
            yield {
                "type": "tool",
                "callID": block["id"],
                "tool": block["name"],
                "state": _opencode_state(block, results.get(block["id"]), time),
            }


def _opencode_state(call: Record, result: Record | None, time: Record) -> Record:
    if result is None:
        result = result_block(call["id"], "The call was interrupted.", is_error=True)
    blocks = as_blocks(result.get("content") or "")
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if result.get("is_error"):
        return {"status": "error", "input": call["input"], "error": text, "time": time}
    files = [_opencode_file(block) for block in blocks if block["type"] in {"image", "document"}]
    state = {"status": "completed", "input": call["input"], "output": text, "title": call["name"]}
    return {**state, "metadata": {}, "time": time, **without_empty({"attachments": files})}


def _opencode_file(block: Record) -> Record:
    source = object_at(block, "source")
    mime = text_at(source, "media_type")
    url = text_at(source, "url") or f"data:{mime};base64,{text_at(source, 'data')}"
    return {"type": "file", "mime": mime or "image/png", "url": url}


# --- forms of clients -----------------------------------------------------------------------------


CLIENTS = ("claude_code", "codex", "pi", "opencode")
"""Clients whose session files can be written."""
_FORMS: Mapping[str, _Form] = {
    "claude_code": _Form(
        "claude --resume {id}",
        lambda id, _: f"{id}.jsonl",
        _claude_lines,
        files=claude_code.FILES,
        folder=_claude_folder,
    ),
    "codex": _Form(
        "codex resume {id}",
        lambda id, now: f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{id}.jsonl",
        _codex_lines,
        files=codex.FILES,
        folder=lambda _, now: f"sessions/{now:%Y/%m/%d}",
    ),
    "pi": _Form(
        "pi --session {path}",
        lambda id, now: f"{_stamp(now).replace(':', '-').replace('.', '-')}_{id}.jsonl",
        _pi_lines,
    ),
    "opencode": _Form(
        "opencode import {path} && opencode --session {id}",
        lambda id, _: f"{id}.json",
        opencode_lines,
        read_infos,
        new_id,
    ),
}
