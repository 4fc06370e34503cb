"""Qwen Code: `~/.qwen/projects/<project>/chats/<session>.jsonl`.

A tree of lines like Claude Code's, each with a message in Gemini's form. A compression is recorded
with the whole history that took the place of everything before it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.session_files.session import Compaction, Problem, Session, Wire, branch
from refold.session_files.shape import mapping, mappings, moment, text
from refold.session_files.source import Reader, Source, Stored

CLIENT = "qwen"
SAID = frozenset({"user", "assistant", "tool_result"})

Record = Mapping[str, Any]


def refuses(source: Source) -> str:
    """Why this is no Qwen Code session; empty if it is one."""
    for record in source.objects():
        ours = "systemPayload" in record or isinstance(mapping(record, "message").get("parts"), list)
        if ours and text(record, "uuid") and text(record, "sessionId"):
            return ""
    return "no line has a uuid, a sessionId and a message with parts"


def sessions(source: Source) -> Sequence[Stored]:
    """The one session of a file."""
    return [Stored("", lambda: read(source))]


def read(source: Source) -> Session:
    """Read a session."""
    problems = list[Problem]()
    path = _active(source, problems)
    messages, compactions = list[Wire](), list[Compaction]()
    usage = list[tuple[int, Mapping[str, Any]]]()
    open_results = False
    for record in path:
        if record.get("subtype") == "chat_compression":
            compactions += _compaction(record, len(messages))
        wire = _wire(record)
        if wire is None:
            continue
        result = record.get("type") == "tool_result"
        if result and open_results:
            messages[-1] = {**messages[-1], "parts": [*messages[-1]["parts"], *wire["parts"]]}
        else:
            messages.append(wire)
        open_results = result
        if mapping(record, "usageMetadata"):
            usage.append((len(messages), mapping(record, "usageMetadata")))
    if not messages:
        problems.append(Problem(0, "no messages: the file has only records about the session"))
    models = [text(record, "model") for record in path if text(record, "model")]
    stamps = [text(record, "timestamp") for record in path if text(record, "timestamp")]
    return Session(
        path=source.path,
        client=CLIENT,
        format="gemini",
        id=next((text(record, "sessionId") for record in reversed(path)), ""),
        messages=messages,
        body={"model": models[-1]} if models else {},
        compactions=tuple(compactions),
        usage=tuple(usage),
        problems=tuple(problems),
        cwd=next((text(record, "cwd") for record in reversed(path) if text(record, "cwd")), ""),
        started=moment(min(stamps, default="")),
        updated=moment(max(stamps, default="")),
    )


def _active(source: Source, problems: list[Problem]) -> list[Record]:
    """The lines of the active branch. A line whose parent is missing goes on with the line before."""
    records, parents, last = dict[str, Record](), dict[str, str](), ""
    for _, record in source.records(problems):
        uuid = text(record, "uuid")
        if uuid in records and record != records[uuid]:
            records[uuid] = _grown(records[uuid], record)
        elif uuid and uuid not in records:
            parent = text(record, "parentUuid")
            parents[uuid] = parent if not parent or parent in records else last
            records[uuid] = record
        last = uuid or last
    return [records[uuid] for uuid in branch(last, parents)]


def _grown(record: Record, more: Record) -> Record:
    """A line with what a later line of the same uuid adds: the client makes one message of them."""
    parts = [*mappings(record, "message", "parts"), *mappings(more, "message", "parts")]
    role = mapping(record, "message") or mapping(more, "message")
    latest = {key: more[key] for key in ("usageMetadata", "timestamp") if more.get(key)}
    model = text(record, "model") or text(more, "model")
    return {**record, **latest, "message": {**role, "parts": parts}, **({"model": model} if model else {})}


def _wire(record: Record) -> Wire | None:
    parts = list(mappings(record, "message", "parts"))
    if text(record, "type") not in SAID or not parts:
        return None
    return {"role": "model" if record.get("type") == "assistant" else "user", "parts": parts}


def _compaction(record: Record, now: int) -> list[Compaction]:
    history = tuple(mappings(record, "systemPayload", "compressedHistory"))
    info = mapping(record, "systemPayload", "info")
    return [Compaction(0, now, history, "compression", info)] if history else []


READER = Reader(CLIENT, refuses, sessions)
