"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, compressed ones `.jsonl.zst`.

`response_item` lines are what was sent and received. `event_msg` lines repeat it for the screen and
are used only for what no other line has: token counts, rollbacks, and user messages in some files.
Two older forms are read as well: bare items, one per line, and `{session, items}`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.session_files.reader import Compaction, Entry, SessionBuilder, file_reader, join_content
from refold.session_files.source import ClientFiles, Source, cwd_under
from refold.text.json_values import (
    Record,
    int_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
    without_empty,
    without_keys,
)

CLIENT = "codex"
FOLDERS = ("sessions", "archived_sessions")
ROLLOUTS = ("**/rollout-*.jsonl", "**/rollout-*.jsonl.zst", "rollout-*.json")
FILES = ClientFiles(
    CLIENT,
    (".codex",),
    tuple(f"{folder}/{name}" for folder in FOLDERS for name in ROLLOUTS),
    cwd_under("payload", "cwd"),
    ("CODEX_HOME",),
)
ITEMS = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "tool_search_call_output",
        "web_search_call",
        "image_generation_call",
        "additional_tools",
        "agent_message",
        "configuration_update",
        "compaction",
        "compaction_summary",
        "context_compaction",
    }
)
"""Types of items that are part of a request."""
OWN_ITEMS = frozenset({"ghost_snapshot", "compaction_trigger", "other"})
"""Types of items that the client does not send."""
LINES = frozenset({"session_meta", "turn_context", "response_item", "compacted", "event_msg"})
OWN_LINES = frozenset(
    {
        "dynamic_tools_updated",
        "inter_agent_communication_metadata",
        "realtime_item",
        "security_risk_score",
        "token_usage_record",
        "world_state",
    }
)
"""Types of lines without conversation content, as Codex 0.169 names them."""
CONTEXT = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<skill>",
)
"""Beginnings of messages that the client writes in the user role and does not count as turns when
it rolls back or compacts. `refold.speakers` decides who the speaker is."""
KEPT_CHARACTERS = 80_000
"""Characters of user messages, newest first, that a compaction without a recorded history keeps
(the client's 20,000 tokens, at four characters each)."""


def mismatch(source: Source) -> str:
    """Return why this is no Codex rollout; empty if it is one."""
    if _is_document(source.document):
        return ""
    first = source.objects()[:8]
    if any(text_at(record, "type") in LINES and "payload" in record for record in first):
        return ""
    if (
        first
        and {"id", "timestamp"} <= first[0].keys()
        and "type" not in first[0]
        and any(_is_item(record) for record in first[1:])
    ):
        return ""
    return "no line is a " + ", ".join(sorted(LINES))


def read(session: SessionBuilder) -> None:
    """Read a rollout."""
    log = _Log()
    for line, record in _lines(session):
        session.note_time(record.get("timestamp"))
        _add_record(log, line, record, session)
    _add_entries(session, log.entries)
    session.id = text_at(log.meta, "id") or text_at(log.meta, "session_id")
    session.model = text_at(log.turn, "model")
    session.cwd = text_at(log.turn, "cwd") or text_at(log.meta, "cwd")
    base = text_at(log.meta, "base_instructions", "text") or text_at(log.meta, "instructions")
    session.body = without_empty({"instructions": base})
    header_time = parse_time(log.meta.get("timestamp"))
    session.started = header_time or session.started
    session.updated = session.updated or header_time


# --- the lines -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    """An item, or an event between items."""

    kind: str
    """`item`, `shown` (a user message on the screen), `compacted` or `usage`."""
    wire: Any
    insert: tuple[Entry, ...] = ()


@dataclass(slots=True)
class _Log:
    entries: list[_Item] = field(default_factory=list)
    meta: Record = field(default_factory=dict)
    turn: Record = field(default_factory=dict)
    counts: Record = field(default_factory=dict)
    """Latest token counts. The client may repeat them without a new request."""


def _is_document(value: Any) -> bool:
    """Return whether a file has the oldest form, one object with all items."""
    return bool(object_at(value, "session")) and isinstance(value.get("items"), list)


def _lines(session: SessionBuilder) -> Iterator[tuple[int, Record]]:
    """Yield every line, converted to the current form."""
    document = session.source.document
    if _is_document(document):
        yield 1, {"type": "session_meta", "payload": document["session"]}
        for item in objects_at(document, "items"):
            yield 1, {"type": "response_item", "payload": item}
        return
    for line, record in session.records():
        if "payload" in record:
            yield line, record
        elif _is_item(record):
            yield line, {"type": "response_item", "payload": record}
        elif "id" in record and "timestamp" in record:
            yield line, {"type": "session_meta", "payload": record}


def _is_item(record: Record) -> bool:
    kind = text_at(record, "type")
    return kind in ITEMS and "payload" not in record and (kind != "message" or "role" in record)


def _add_record(log: _Log, line: int, record: Record, session: SessionBuilder) -> None:
    payload = object_at(record, "payload")
    match text_at(record, "type"), text_at(payload, "type"):
        case "session_meta", _:
            # A fork's file also contains the header of its parent; the first one is its own.
            log.meta = log.meta or payload
        case "turn_context", _:
            log.turn = payload
        case "response_item", kind if kind in ITEMS:
            log.entries.append(_Item("item", payload))
        case "compacted", _:
            log.entries.append(_Item("compacted", payload, _replacement(log, payload)))
        case "event_msg", "user_message":
            log.entries.append(_Item("shown", text_at(payload, "message")))
        case "event_msg", "token_count" if (info := object_at(payload, "info")) != log.counts:
            log.counts = info
            if usage := object_at(info, "last_token_usage"):
                log.entries.append(_Item("usage", usage))
        case "event_msg", "thread_rolled_back":
            log.entries = _roll_back(log.entries, int_at(payload, "num_turns"))
        case "response_item", "":
            session.note("an item without a type", line)
        case "response_item", kind if kind not in OWN_ITEMS:
            session.unknown[kind] += 1
        case kind, _ if kind not in LINES and kind not in OWN_LINES:
            session.unknown[kind] += 1


# --- compactions and rollbacks ---------------------------------------------------------------


def _replacement(log: _Log, payload: Record) -> tuple[Entry, ...]:
    """Return what replaces all before: the recorded history, or user messages and the summary."""
    if isinstance(payload.get("replacement_history"), list):
        return tuple(objects_at(payload, "replacement_history"))
    newest, room = list[Entry](), KEPT_CHARACTERS
    for entry in reversed(log.entries):
        words = join_content(entry.wire.get("content")) if _is_turn(entry) else ""
        if words and room > 0:
            newest.append(_message(words[:room]))
            room -= len(words)
    return (*reversed(newest), _message(text_at(payload, "message") or "(no summary available)"))


def _message(words: str) -> Entry:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


def _is_turn(entry: _Item) -> bool:
    return entry.kind == "item" and _is_user(entry.wire)


def _is_user(item: Entry) -> bool:
    words = join_content(item.get("content"))
    return text_at(item, "role") == "user" and not words.lstrip().startswith(CONTEXT)


def _roll_back(entries: list[_Item], turns: int) -> list[_Item]:
    """Drop the last *turns* user turns.

    A compaction among them is kept. Its replacement loses the turns left to drop, if it has as
    many.
    """
    before, marks = list(entries), list[_Item]()
    while before and turns > 0:
        entry = before.pop()
        if _is_turn(entry):
            turns -= 1
        elif entry.kind == "compacted":
            marks.append(_Item("compacted", entry.wire, _drop_turns(entry.insert, turns)))
    return before + marks[::-1]


def _drop_turns(items: Sequence[Entry], turns: int) -> tuple[Entry, ...]:
    starts = [at for at, item in enumerate(items) if _is_user(item)]
    return tuple(items[: starts[-turns]]) if 0 < turns <= len(starts) else tuple(items)


def _add_entries(session: SessionBuilder, entries: Sequence[_Item]) -> None:
    """Add items, compactions and usage. Positions count items."""
    sent = {text for entry in entries if entry.kind == "item" for text in _texts(entry.wire)}
    for entry in entries:
        match entry.kind:
            case "item":
                session.add(entry.wire)
            case "shown" if (words := "".join(entry.wire.split())) and words not in sent:
                session.add(_message(entry.wire))
            case "compacted":
                now, meta = session.position, without_keys(entry.wire, "replacement_history")
                session.compactions.append(Compaction(0, now, entry.insert, meta=meta, at=now))
            case "usage":
                session.add_usage(entry.wire)


def _texts(item: Entry) -> Iterator[str]:
    """Yield the texts of an item without white space: each part, and a user message as a whole."""
    if text_at(item, "role") == "user":
        yield "".join(join_content(item.get("content")).split())
    for part in objects_at(item, "content"):
        yield "".join(text_at(part, "text").split())


READER = file_reader(CLIENT, "openai_responses", mismatch, read, FILES)
