"""Qwen Code: `~/.qwen/projects/<project>/chats/<session>.jsonl`.

A tree of lines like Claude Code's, each with a message in Gemini's form. A compression is recorded
with the whole history that took the place of everything before it.
"""

from refold.session_files.client_files import ClientFiles, cwd_under
from refold.session_files.reader import (
    Compaction,
    Entry,
    Reader,
    Session,
    SessionBuilder,
    Tree,
    single,
)
from refold.session_files.source import Source
from refold.text.json_values import Record, first_text, object_at, objects_at, text_at

CLIENT = "qwen"
FILES = ClientFiles(CLIENT, (".qwen",), ("projects/*/chats/*.jsonl",), cwd_under("cwd"))
MESSAGE_TYPES = frozenset({"user", "assistant", "tool_result"})


def mismatch(source: Source) -> str:
    """Return why this is no Qwen Code session; empty if it is one."""
    for record in source.objects():
        ours = "systemPayload" in record or isinstance(
            object_at(record, "message").get("parts"), list
        )
        if ours and text_at(record, "uuid") and text_at(record, "sessionId"):
            return ""
    return "no line has a uuid, a sessionId and a message with parts"


def read(source: Source) -> Session:
    """Read a session."""
    session = SessionBuilder(source, CLIENT, "gemini")
    records = _active_records(session)
    for record in records:
        session.note_time(record.get("timestamp"))
        if record.get("subtype") == "chat_compression":
            session.compactions += _compaction(record, len(session.messages))
        if entry := _entry(record):
            session.add(entry, is_result=record.get("type") == "tool_result")
            if usage := object_at(record, "usageMetadata"):
                session.add_usage(usage)
    records.reverse()
    session.id = first_text(records, "sessionId")
    session.model = first_text(records, "model")
    session.cwd = first_text(records, "cwd")
    return session.build()


def _active_records(session: SessionBuilder) -> list[Record]:
    """Return the lines of the active branch."""
    tree = Tree()
    for line, record in session.records():
        uuid = text_at(record, "uuid")
        if uuid in tree.nodes:
            node = tree.nodes[uuid]
            node.record, tree.last = _merge(node.record or {}, record), uuid
        elif uuid:
            tree.add(line, uuid, text_at(record, "parentUuid"), record)
    return [node.record for node in session.branch(tree) if node.record]


def _merge(record: Record, later: Record) -> Record:
    """Add to a line what a later one of the same uuid says: the client merges them, too."""
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
        **({"model": model} if model else {}),
    }


def _entry(record: Record) -> Entry | None:
    parts = list(objects_at(record, "message", "parts"))
    if text_at(record, "type") not in MESSAGE_TYPES or not parts:
        return None
    return {"role": "model" if record.get("type") == "assistant" else "user", "parts": parts}


def _compaction(record: Record, now: int) -> list[Compaction]:
    history = tuple(objects_at(record, "systemPayload", "compressedHistory"))
    info = object_at(record, "systemPayload", "info")
    return [Compaction(0, now, history, "compression", info)] if history else []


READER = Reader(CLIENT, mismatch, single(read), FILES.find)
