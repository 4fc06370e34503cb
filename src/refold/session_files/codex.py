"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, cold ones `.jsonl.zst`.

`response_item` lines are what was sent and received. `event_msg` lines repeat it for the screen and
are used for what stands nowhere else: token counts, rollbacks, and user messages in files that have
them only there. Two older forms are read as well: bare items, one a line, and `{session, items}`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.session_files.session import Compaction, Problem, Session, Wire
from refold.session_files.shape import mapping, mappings, moment, number, text
from refold.session_files.source import Reader, Source, Stored

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
CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>")
"""How messages start that the client writes in the user's role."""
KEPT = 80_000
"""Characters of user messages that a compaction without a recorded history keeps, newest first
(the client's 20,000 tokens, taken as four characters each)."""


def refuses(source: Source) -> str:
    """Why this is no Codex rollout; empty if it is one."""
    if mapping(source.document, "session") and isinstance(source.document.get("items"), list):
        return ""
    first = source.objects()[:8]
    if any(text(record, "type") in LINES and "payload" in record for record in first):
        return ""
    if (
        first
        and {"id", "timestamp"} <= first[0].keys()
        and "type" not in first[0]
        and any(_is_item(record) for record in first[1:])
    ):
        return ""
    return "no line is a " + ", ".join(sorted(LINES))


def sessions(source: Source) -> Sequence[Stored]:
    """The one session of a file."""
    return [Stored("", lambda: read(source))]


def read(source: Source) -> Session:
    """Read a rollout."""
    problems, log = list[Problem](), _Log()
    for line, record in _lines(source, problems):
        _add(log, line, record, problems)
    messages, compactions, usage = _finish(log.entries)
    if not messages:
        problems.append(Problem(0, "no messages: the file has only records about the session"))
    return Session(
        path=source.path,
        client=CLIENT,
        format="openai_responses",
        id=text(log.meta, "id") or text(log.meta, "session_id"),
        messages=messages,
        body=_body(log),
        compactions=tuple(compactions),
        usage=tuple(usage),
        problems=tuple(problems),
        cwd=text(log.turn, "cwd") or text(log.meta, "cwd"),
        started=moment(log.meta.get("timestamp")) or moment(log.first),
        updated=moment(log.last) or moment(log.meta.get("timestamp")),
    )


# --- the lines -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """An item, or a mark between items."""

    kind: str
    """`item`, `shown` (a user message told to the screen), `compacted` or `usage`."""
    wire: Any
    insert: tuple[Wire, ...] = ()


@dataclass(slots=True)
class _Log:
    entries: list[_Entry] = field(default_factory=list)
    meta: Mapping[str, Any] = field(default_factory=dict)
    turn: Mapping[str, Any] = field(default_factory=dict)
    first: str = ""
    last: str = ""


def _lines(source: Source, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every line in today's form."""
    document = source.document
    if mapping(document, "session") and isinstance(document.get("items"), list):
        yield 1, {"type": "session_meta", "payload": document["session"]}
        yield from ((1, {"type": "response_item", "payload": item}) for item in mappings(document, "items"))
        return
    for line, record in source.records(problems):
        if "payload" in record:
            yield line, record
        elif _is_item(record):
            yield line, {"type": "response_item", "payload": record}
        elif "id" in record and "timestamp" in record:
            yield line, {"type": "session_meta", "payload": record}


def _is_item(record: Mapping[str, Any]) -> bool:
    kind = text(record, "type")
    return kind in ITEMS and "payload" not in record and (kind != "message" or "role" in record)


def _add(log: _Log, line: int, record: Mapping[str, Any], problems: list[Problem]) -> None:
    payload = mapping(record, "payload")
    stamp = text(record, "timestamp")
    log.first, log.last = log.first or stamp, stamp or log.last
    match text(record, "type"), text(payload, "type"):
        case "session_meta", _:
            # A fork's file goes on with the records of its parent; the first one is its own.
            log.meta = log.meta or payload
        case "turn_context", _:
            log.turn = payload
        case "response_item", kind if kind in ITEMS:
            log.entries.append(_Entry("item", payload))
        case "compacted", _:
            log.entries.append(_Entry("compacted", payload, _replacement(log, payload)))
        case "event_msg", "user_message":
            log.entries.append(_Entry("shown", text(payload, "message")))
        case "event_msg", "token_count" if usage := mapping(payload, "info", "last_token_usage"):
            log.entries.append(_Entry("usage", usage))
        case "event_msg", "thread_rolled_back":
            log.entries = _rolled_back(log.entries, number(payload, "num_turns"))
        case "response_item", "":
            problems.append(Problem(line, "an item without a type"))


# --- compactions and rollbacks ---------------------------------------------------------------


def _replacement(log: _Log, payload: Mapping[str, Any]) -> tuple[Wire, ...]:
    """What stands for everything before: as recorded, or the user's messages and the summary."""
    if isinstance(payload.get("replacement_history"), list):
        return tuple(mappings(payload, "replacement_history"))
    kept, left = list[Wire](), KEPT
    for entry in reversed(log.entries):
        said = _said(entry.wire) if _is_turn(entry) and entry.kind == "item" else ""
        if said and left > 0:
            kept.append(_message(said[:left]))
            left -= len(said)
    return (*reversed(kept), _message(text(payload, "message") or "(no summary available)"))


def _message(said: str) -> Wire:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}


def _is_turn(entry: _Entry) -> bool:
    """Whether a turn of the user begins here."""
    return entry.kind == "item" and _is_user(entry.wire)


def _is_user(item: Wire) -> bool:
    return text(item, "role") == "user" and not _said(item).lstrip().startswith(CONTEXT)


def _said(item: Wire) -> str:
    content = item.get("content")
    return content if isinstance(content, str) else "\n".join(text(part, "text") for part in mappings(item, "content"))


def _rolled_back(entries: list[_Entry], turns: int) -> list[_Entry]:
    """The entries without the last *turns* turns of the user; a compaction on the way stays, and
    what it shows loses turns instead.
    """
    kept, late = list(entries), list[_Entry]()
    while kept and turns > 0:
        entry = kept.pop()
        if _is_turn(entry):
            turns -= 1
        elif entry.kind == "compacted":
            late.append(_Entry("compacted", entry.wire, _fewer(entry.insert, turns)))
    return kept + late[::-1]


def _fewer(items: Sequence[Wire], turns: int) -> tuple[Wire, ...]:
    starts = [at for at, item in enumerate(items) if _is_user(item)]
    return tuple(items[: starts[-turns]]) if 0 < turns <= len(starts) else tuple(items)


def _finish(
    entries: Iterable[_Entry],
) -> tuple[list[Wire], list[Compaction], list[tuple[int, Mapping[str, Any]]]]:
    """Items, compactions and usage, with positions counted in items."""
    entries = list(entries)
    sent = {_said(e.wire).strip() for e in entries if e.kind == "item" and text(e.wire, "role") == "user"}
    sent |= {text(p, "text").strip() for e in entries if e.kind == "item" for p in mappings(e.wire, "content")}
    items, compactions, usage = list[Wire](), list[Compaction](), list[tuple[int, Mapping[str, Any]]]()
    for entry in entries:
        match entry.kind:
            case "item":
                items.append(entry.wire)
            case "shown" if entry.wire.strip() and entry.wire.strip() not in sent:
                items.append(_message(entry.wire))
            case "compacted":
                compactions.append(Compaction(0, len(items), entry.insert, meta=_meta(entry.wire)))
            case "usage":
                usage.append((len(items), entry.wire))
    return items, compactions, usage


def _meta(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in payload.items() if key != "replacement_history"}


def _body(log: _Log) -> dict[str, Any]:
    known = {
        "model": text(log.turn, "model"),
        "instructions": text(log.meta, "base_instructions", "text") or text(log.meta, "instructions"),
    }
    return {key: value for key, value in known.items() if value}


READER = Reader(CLIENT, refuses, sessions)
