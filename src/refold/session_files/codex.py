"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, cold ones `.jsonl.zst`.

`response_item` lines are what was sent and received. `event_msg` lines repeat it for the screen and
are used for what stands nowhere else: token counts, rollbacks, and user messages in files that have
them only there. Two older forms are read as well: bare items, one a line, and `{session, items}`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.session_files.json_fields import (
    Record,
    int_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
)
from refold.session_files.session import Compaction, Entry, Problem, Session
from refold.session_files.source import Reader, Source, single

CLIENT = "codex"
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
        "compaction",
        "compaction_summary",
        "context_compaction",
    }
)
"""Items that are part of a request; others (ghost snapshots ...) are the client's own."""
LINES = frozenset({"session_meta", "turn_context", "response_item", "compacted", "event_msg"})
CONTEXT = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<skill>",
)
"""How messages start that the client writes in the user's role."""
KEPT_CHARACTERS = 80_000
"""Characters of user messages that a compaction without a recorded history keeps, newest first
(the client's 20,000 tokens, taken as four characters each)."""


def mismatch(source: Source) -> str:
    """Return why this is no Codex rollout; empty if it is one."""
    if object_at(source.document, "session") and isinstance(source.document.get("items"), list):
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


def read(source: Source) -> Session:
    """Read a rollout."""
    problems, log = list[Problem](), _Log()
    for line, record in _lines(source, problems):
        _add_record(log, line, record, problems)
    messages, compactions, usage = _collect(log.entries)
    return Session(
        path=source.path,
        client=CLIENT,
        format="openai_responses",
        id=text_at(log.meta, "id") or text_at(log.meta, "session_id"),
        messages=messages,
        body=_body(log),
        compactions=tuple(compactions),
        usage=tuple(usage),
        problems=tuple(problems),
        cwd=text_at(log.turn, "cwd") or text_at(log.meta, "cwd"),
        started=parse_time(log.meta.get("timestamp")) or parse_time(log.first),
        updated=parse_time(log.last) or parse_time(log.meta.get("timestamp")),
    )


# --- the lines -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    """An item, or a mark between items."""

    kind: str
    """`item`, `shown` (a user message told to the screen), `compacted` or `usage`."""
    wire: Any
    insert: tuple[Entry, ...] = ()


@dataclass(slots=True)
class _Log:
    entries: list[_Item] = field(default_factory=list)
    meta: Record = field(default_factory=dict)
    turn: Record = field(default_factory=dict)
    first: str = ""
    last: str = ""


def _lines(source: Source, problems: list[Problem]) -> Iterator[tuple[int, Record]]:
    """Every line in today's form."""
    document = source.document
    if object_at(document, "session") and isinstance(document.get("items"), list):
        yield 1, {"type": "session_meta", "payload": document["session"]}
        yield from (
            (1, {"type": "response_item", "payload": item})
            for item in objects_at(document, "items")
        )
        return
    for line, record in source.records(problems):
        if "payload" in record:
            yield line, record
        elif _is_item(record):
            yield line, {"type": "response_item", "payload": record}
        elif "id" in record and "timestamp" in record:
            yield line, {"type": "session_meta", "payload": record}


def _is_item(record: Record) -> bool:
    kind = text_at(record, "type")
    return kind in ITEMS and "payload" not in record and (kind != "message" or "role" in record)


def _add_record(log: _Log, line: int, record: Record, problems: list[Problem]) -> None:
    payload = object_at(record, "payload")
    stamp = text_at(record, "timestamp")
    log.first, log.last = log.first or stamp, stamp or log.last
    match text_at(record, "type"), text_at(payload, "type"):
        case "session_meta", _:
            # A fork's file goes on with the records of its parent; the first one is its own.
            log.meta = log.meta or payload
        case "turn_context", _:
            log.turn = payload
        case "response_item", kind if kind in ITEMS:
            log.entries.append(_Item("item", payload))
        case "compacted", _:
            log.entries.append(_Item("compacted", payload, _replacement(log, payload)))
        case "event_msg", "user_message":
            log.entries.append(_Item("shown", text_at(payload, "message")))
        case "event_msg", "token_count" if usage := object_at(payload, "info", "last_token_usage"):
            log.entries.append(_Item("usage", usage))
        case "event_msg", "thread_rolled_back":
            log.entries = _roll_back(log.entries, int_at(payload, "num_turns"))
        case "response_item", "":
            problems.append(Problem(line, "an item without a type"))


# --- compactions and rollbacks ---------------------------------------------------------------


def _replacement(log: _Log, payload: Record) -> tuple[Entry, ...]:
    """What stands for everything before: as recorded, or the user's messages and the summary."""
    if isinstance(payload.get("replacement_history"), list):
        return tuple(objects_at(payload, "replacement_history"))
    newest, room = list[Entry](), KEPT_CHARACTERS
    for entry in reversed(log.entries):
        words = _item_text(entry.wire) if _is_turn(entry) and entry.kind == "item" else ""
        if words and room > 0:
            newest.append(_message(words[:room]))
            room -= len(words)
    return (*reversed(newest), _message(text_at(payload, "message") or "(no summary available)"))


def _message(words: str) -> Entry:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


def _is_turn(entry: _Item) -> bool:
    """Whether a turn of the user begins here."""
    return entry.kind == "item" and _is_user(entry.wire)


def _is_user(item: Entry) -> bool:
    return text_at(item, "role") == "user" and not _item_text(item).lstrip().startswith(CONTEXT)


def _item_text(item: Entry) -> str:
    content = item.get("content")
    return (
        content
        if isinstance(content, str)
        else "\n".join(text_at(part, "text") for part in objects_at(item, "content"))
    )


def _roll_back(entries: list[_Item], turns: int) -> list[_Item]:
    """The entries without the last *turns* turns of the user; a compaction on the way stays, and
    what it shows loses turns instead.
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


def _collect(
    entries: Iterable[_Item],
) -> tuple[list[Entry], list[Compaction], list[tuple[int, Record]]]:
    """Items, compactions and usage, with positions counted in items."""
    entries = list(entries)
    sent = {
        _item_text(e.wire).strip()
        for e in entries
        if e.kind == "item" and text_at(e.wire, "role") == "user"
    }
    sent |= {
        text_at(p, "text").strip()
        for e in entries
        if e.kind == "item"
        for p in objects_at(e.wire, "content")
    }
    items, compactions, usage = (
        list[Entry](),
        list[Compaction](),
        list[tuple[int, Record]](),
    )
    for entry in entries:
        match entry.kind:
            case "item":
                items.append(entry.wire)
            case "shown" if entry.wire.strip() and entry.wire.strip() not in sent:
                items.append(_message(entry.wire))
            case "compacted":
                compactions.append(
                    Compaction(0, len(items), entry.insert, meta=_compaction_details(entry.wire))
                )
            case "usage":
                usage.append((len(items), entry.wire))
    return items, compactions, usage


def _compaction_details(payload: Record) -> Record:
    return {key: value for key, value in payload.items() if key != "replacement_history"}


def _body(log: _Log) -> dict[str, Any]:
    fields = {
        "model": text_at(log.turn, "model"),
        "instructions": text_at(log.meta, "base_instructions", "text")
        or text_at(log.meta, "instructions"),
    }
    return {key: value for key, value in fields.items() if value}


READER = Reader(CLIENT, mismatch, single(read))
