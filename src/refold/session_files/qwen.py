"""Qwen Code: `~/.qwen/projects/<project>/chats/<session>.jsonl`.

A tree of lines like Claude Code's, each with a message in Gemini's form. A compression is recorded
with the whole history that took the place of everything before it.
"""

from refold.session_files.json_fields import (
    Record,
    object_at,
    objects_at,
    parse_time,
    text_at,
    texts_at,
)
from refold.session_files.session import (
    Compaction,
    Entry,
    Problem,
    Session,
    SessionBuilder,
    branch_to,
)
from refold.session_files.source import Reader, Source, single

CLIENT = "qwen"
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
    session = SessionBuilder()
    path = _active_records(source, session.problems)
    after_result = False
    for record in path:
        if record.get("subtype") == "chat_compression":
            session.compactions += _compaction(record, len(session.messages))
        entry = _entry(record)
        if entry is None:
            continue
        is_result = record.get("type") == "tool_result"
        if is_result and after_result:
            parts = [*session.messages[-1]["parts"], *entry["parts"]]
            session.messages[-1] = {**session.messages[-1], "parts": parts}
        else:
            session.messages.append(entry)
        after_result = is_result
        if usage := object_at(record, "usageMetadata"):
            session.add_usage(usage)
    session.model = next(iter(texts_at(reversed(path), "model")), "")
    stamps = texts_at(path, "timestamp")
    return session.build(
        source.path,
        CLIENT,
        "gemini",
        id=next((text_at(record, "sessionId") for record in reversed(path)), ""),
        cwd=next(iter(texts_at(reversed(path), "cwd")), ""),
        started=parse_time(min(stamps, default="")),
        updated=parse_time(max(stamps, default="")),
    )


def _active_records(source: Source, problems: list[Problem]) -> list[Record]:
    """The lines of the active branch. A line whose parent is missing goes on with the line before."""
    records, parents, last = dict[str, Record](), dict[str, str](), ""
    for _, record in source.records(problems):
        uuid = text_at(record, "uuid")
        if uuid in records and record != records[uuid]:
            records[uuid] = _merge(records[uuid], record)
        elif uuid and uuid not in records:
            parent = text_at(record, "parentUuid")
            parents[uuid] = parent if not parent or parent in records else last
            records[uuid] = record
        last = uuid or last
    return [records[uuid] for uuid in branch_to(last, parents)]


def _merge(record: Record, later: Record) -> Record:
    """A line with what a later line of the same uuid adds: the client makes one message of them."""
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


READER = Reader(CLIENT, mismatch, single(read))
