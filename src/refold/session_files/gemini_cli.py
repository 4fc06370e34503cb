"""Gemini CLI, and its fork Qwen Code.

Gemini CLI: `~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl`, or one `.json` in older
versions. The file repeats a message, whole, each time it grows: the last copy is used, at the
position of the first. Results of tool calls are stored inside the model's message and become a
message of their own, as they were sent. Newer versions write that message as well. The headings of
thoughts in the file were never sent back to the model and are left out.

Qwen Code: `~/.qwen/projects/<project>/chats/<session>.jsonl`. A tree of lines like Claude Code's,
each with a message in Gemini's format. A compression is recorded with the whole history that
replaced everything before it.
"""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from refold.errors import FormatError
from refold.session_files.reader import NEWER, Compaction, Entry, SessionBuilder, file_reader
from refold.session_files.source import ClientFiles, Source, Tree, cwd_under
from refold.text.json_values import (
    JsonObject,
    Record,
    dig,
    first_text,
    list_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
    without_empty,
)

CLIENT = "gemini_cli"
RECORDS = frozenset({"error", "gemini", "info", "user", "warning"})
FACTS = frozenset(
    {"directories", "kind", "lastUpdated", "memoryScratchpad", "projectHash", "sessionId"}
    | {"startTime", "summary"}
)
"""Fields with facts about a session, not messages."""


def _read_cwd(path: Path) -> str:
    """Read the working directory, which Gemini CLI writes to a file beside its chats."""
    try:
        return (path.parent.parent / ".project_root").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


FILES = ClientFiles(
    CLIENT,
    (".gemini",),
    ("tmp/*/chats/session-*.jsonl", "tmp/*/chats/session-*.json"),
    _read_cwd,
    ("GEMINI_CLI_HOME",),
    subfolder=".gemini",
)


def mismatch(source: Source) -> str:
    """Return why this is no Gemini CLI session; empty if it is one. Raises `FormatError` for
    printed output of the client."""
    for record in source.objects():
        id = text_at(record, "session_id")
        if id and text_at(record, "type") == "init" and "model" in record:
            raise FormatError(
                f"{source.path.name} is what Gemini CLI printed, without the results as its model got"
                f" them; the session can be read: ~/.gemini/tmp/*/chats/session-*-{id[:8]}.jsonl"
            )
        if text_at(record, "sessionId") and ("projectHash" in record or "startTime" in record):
            return ""
    return "no line has sessionId and projectHash or startTime"


def read(session: SessionBuilder) -> None:
    """Read a session. Raises `FormatError` for the file of a newer client."""
    meta, records = _load(session)
    asked = (record for record in records.values() if record.get("type") == "user")
    parts = (part for record in asked for part in objects_at(record, "content"))
    sent = {id for part in parts if (id := text_at(part, "functionResponse", "id"))}
    for record in records.values():
        session.note_time(record.get("timestamp"))
        session.messages += _entries(record, sent)
        if (kind := text_at(record, "type") or "no type") not in RECORDS:
            session.unknown[kind] += 1
        if record.get("type") == "gemini" and (usage := object_at(record, "tokens")):
            results = bool(session.messages) and session.messages[-1]["role"] == "user"
            session.usage.append((session.position - results, usage))
    if not records:
        session.unknown.update(_count_unread(meta))
        path = session.source.path
        if path.suffix == ".json" and "messages" not in meta and not session.unknown:
            raise FormatError(f"{path.name}: it has no field 'messages'. {NEWER}")
    session.id, session.title = text_at(meta, "sessionId"), text_at(meta, "summary")
    session.model = first_text(reversed(records.values()), "model")
    session.cwd = next((path for path in list_at(meta, "directories") if isinstance(path, str)), "")
    session.started = parse_time(meta.get("startTime")) or session.started
    session.updated = parse_time(meta.get("lastUpdated")) or session.updated


# --- the lines -------------------------------------------------------------------------------


def _load(session: SessionBuilder) -> tuple[JsonObject, dict[str, JsonObject]]:
    """Return the facts about the session, and its messages by id."""
    meta, messages = JsonObject(), dict[str, JsonObject]()
    for line, record in session.records():
        if "$rewindTo" in record:  # drop that message and all after it; all if it is unknown
            ids, to = list(messages), text_at(record, "$rewindTo")
            messages = {id: messages[id] for id in ids[: ids.index(to)]} if to in messages else {}
        elif "type" in record and "$set" not in record and "sessionId" not in record:
            messages[text_at(record, "id") or f"line {line}"] = record
        else:
            facts = object_at(record, "$set") if "$set" in record else record
            meta |= facts
            if isinstance(facts.get("messages"), list):  # they replace all before
                messages = {
                    text_at(message, "id") or f"message {at}": message
                    for at, message in enumerate(objects_at(facts, "messages"))
                }
    return meta, messages


def _count_unread(meta: Record) -> dict[str, int]:
    """Return the number of elements in unknown fields, which may be a newer client's messages."""
    return {
        name: len(value)
        for name, value in meta.items()
        if isinstance(value, list | dict) and value and name not in FACTS
    }


# --- messages --------------------------------------------------------------------------------


def _entries(record: Record, sent: Container[str]) -> Iterator[Entry]:
    """Yield a record as contents. Notes to the user (info, error, warning) have none.

    *sent* are the ids of calls whose results are in another record.
    """
    parts = list(_parts(record.get("content")))
    if record.get("type") == "user" and parts:
        yield {"role": "user", "parts": parts}
    if record.get("type") != "gemini":
        return
    calls = list(objects_at(record, "toolCalls"))
    ids = {text_at(part, "functionCall", "id") for part in parts} - {""}
    parts += [
        {"functionCall": {**_name(call), "args": dict(object_at(call, "args"))}}
        for call in calls
        if text_at(call, "id") not in ids
    ]
    if parts:
        yield {"role": "model", "parts": parts}
    results = [part for call in calls if text_at(call, "id") not in sent for part in _result(call)]
    if results:
        yield {"role": "user", "parts": results}


def _parts(content: Any) -> Iterator[Entry]:
    """Yield the parts of a PartListUnion: a text, a part, or a list of both."""
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str) and item:
            yield {"text": item}
        elif isinstance(item, dict) and item:
            yield item


def _name(call: Record) -> dict[str, str]:
    return {**without_empty({"id": text_at(call, "id")}), "name": text_at(call, "name")}


def _result(call: Record) -> Iterable[Entry]:
    """Return the result as it was sent. An interrupted call has none and stays open."""
    result = call.get("result")
    if isinstance(result, str):
        return [{"functionResponse": {**_name(call), "response": {"output": result}}}]
    return list(_parts(result))


READER = file_reader(CLIENT, "gemini", mismatch, read, FILES)


# --- Qwen Code ----------------------------------------------------------------------------------


QWEN = "qwen"
QWEN_FILES = ClientFiles(
    QWEN,
    (".qwen",),
    ("projects/*/chats/*.jsonl",),
    cwd_under("cwd"),
    ("QWEN_RUNTIME_DIR", "QWEN_HOME"),
)
MESSAGE_TYPES = frozenset({"user", "assistant", "tool_result"})


def qwen_mismatch(source: Source) -> str:
    """Return why this is no Qwen Code session; empty if it is one."""
    for record in source.objects():
        ours = "systemPayload" in record or isinstance(dig(record, "message", "parts"), list)
        if ours and text_at(record, "uuid") and text_at(record, "sessionId"):
            return ""
    return "no line has a uuid, a sessionId and a message with parts"


def read_qwen(session: SessionBuilder) -> None:
    """Read a session."""
    records = _active_records(session)
    for record in records:
        session.note_time(record.get("timestamp"))
        kind, now = text_at(record, "type"), session.position
        parts = list(objects_at(record, "message", "parts"))
        history = tuple(objects_at(record, "systemPayload", "compressedHistory"))
        if record.get("subtype") == "chat_compression" and history:
            info = object_at(record, "systemPayload", "info")
            session.compactions.append(Compaction(0, now, history, "compression", info, now))
        if kind in MESSAGE_TYPES and parts:
            role = "model" if kind == "assistant" else "user"
            session.add({"role": role, "parts": parts}, is_result=kind == "tool_result")
            if usage := object_at(record, "usageMetadata"):
                session.add_usage(usage)
        elif kind not in MESSAGE_TYPES and kind != "system":
            session.unknown[kind] += 1
    records.reverse()
    session.id = first_text(records, "sessionId")
    session.model = first_text(records, "model")
    session.cwd = first_text(records, "cwd")


def _active_records(session: SessionBuilder) -> list[Record]:
    tree = Tree()
    for line, record in session.records():
        uuid = text_at(record, "uuid")
        if uuid in tree.nodes:
            node = tree.nodes[uuid]
            node.record, tree.last = _merge(node.record, record), uuid
        elif uuid:
            tree.add(line, uuid, text_at(record, "parentUuid"), record)
    branch = session.branch(tree, is_answer=lambda record: record.get("type") == "assistant")
    return [node.record for node in branch]


def _merge(record: Record, later: Record) -> Record:
    """Merge a line with a later one of the same uuid, as the client does."""
    if record == later:
        return record
    parts = [*objects_at(record, "message", "parts"), *objects_at(later, "message", "parts")]
    role = object_at(record, "message") or object_at(later, "message")
    latest = {key: later[key] for key in ("usageMetadata", "timestamp") if later.get(key)}
    model = text_at(record, "model") or text_at(later, "model")
    return {
        **record,
        **latest,
        "message": {**role, "parts": parts},
        **without_empty({"model": model}),
    }


QWEN_READER = file_reader(QWEN, "gemini", qwen_mismatch, read_qwen, QWEN_FILES)
