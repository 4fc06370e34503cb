"""pi, and GitHub Copilot CLI.

pi: `~/.pi/agent/sessions/--<directory>--/<time>_<id>.jsonl`. Entries form a tree (a list in the
first version, which has no ids). Messages become Anthropic blocks, whatever provider the session
used. Assistant messages without content (aborted before the first word) cannot be sent and are left
out. Interrupted calls stay open. System messages declare and change the prompt and the tools.

Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`. Events of subagents are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, groupby
from typing import Any

from refold.errors import FormatError
from refold.session_files.claude_code import as_blocks, result_block, text_block
from refold.session_files.reader import Compaction, Entry, SessionBuilder, file_reader
from refold.session_files.source import ClientFiles, Source, Tree, cwd_under, folder_name
from refold.text.json_values import (
    JsonObject,
    Record,
    dig,
    first_text,
    int_at,
    list_at,
    object_at,
    objects_at,
    objects_in,
    parse_time,
    text_at,
    without_empty,
    without_keys,
)

CLIENT = "pi"
FILES = ClientFiles(
    CLIENT, (".pi/agent",), ("sessions/*/*.jsonl",), cwd_under("cwd"), ("PI_CODING_AGENT_DIR",)
)
VERSION = 3
"""Latest version of the format that can be read."""
ENTRIES = frozenset(
    {"branch_summary", "compaction", "context_edit", "custom", "custom_message", "label", "message"}
    | {"model_change", "session_info", "thinking_level_change", "usage"}
)
ROLES = frozenset(
    {"assistant", "bashExecution", "custom", "hookMessage", "system", "toolResult", "user"}
)
PARTS = frozenset({"image", "text", "thinking", "toolCall"})
"""Types of entries, roles of messages and types of message parts."""
SUMMARY_TEXT = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\n{}\n</summary>"
)
"""Text in which pi shows a summary to its model."""
BRANCH_TEXT = (
    "The following is a summary of a branch that this conversation came back from:"
    "\n\n<summary>\n{}</summary>"
)
"""Text in which it shows the summary of an abandoned branch."""


def mismatch(source: Source) -> str:
    """Return why this is no pi session; empty if it is one. Raises `FormatError` for OpenClaw's
    traces, which shorten long content."""
    for record in source.objects():
        if text_at(record, "traceSchema") == "openclaw-trajectory":
            reason = f"{source.path.name} is a shortened trace by OpenClaw; the session can be read"
            raise FormatError(f"{reason}: {text_at(record, 'sessionId')}.jsonl")
        if record.get("type") == "session" and "cwd" in record and text_at(record, "id"):
            return ""
        is_message = record.get("type") == "message" and "uuid" not in record
        if is_message and text_at(record, "message", "role"):
            return "" if "timestamp" in record else "its messages have no timestamp"
    return "no session header with id and cwd, and no message entries"


def read(session: SessionBuilder) -> None:
    """Read a session."""
    header, records = _active_records(session)
    prompt, keys = _SystemPrompt(), list(records)
    for key, record in records.items():
        if record.get("type") == "compaction":
            session.compactions.append(_compaction(record, session, keys))
            if checkpoint := object_at(record, "systemMessage"):
                prompt = _SystemPrompt()
                prompt.change(checkpoint)
        elif text_at(record, "message", "role") == "system":
            prompt.change(object_at(record, "message"))
        if entry := _entry_of_record(record):
            session.add(entry, is_result=text_at(record, "message", "role") == "toolResult")
            session.index[key] = session.position - 1
            usage = object_at(record, "message", "usage")
            if entry["role"] == "assistant" and _has_usage(usage):
                session.add_usage(usage)
        else:
            session.index[key] = session.position
    session.compactions[:0] = _context_edits(records, session.index)  # a summary hides edits
    session.body = prompt.body()
    latest = list(reversed(records.values()))
    infos = (record for record in latest if record.get("type") == "session_info")
    stamps = (record["timestamp"] for record in latest if "timestamp" in record)
    session.id, session.cwd = text_at(header, "id"), text_at(header, "cwd")
    session.title = text_at(next(infos, {}), "name")
    session.model = first_text(latest, "message", "model") or text_at(header, "modelId")
    session.started = parse_time(header.get("timestamp"))
    session.updated = parse_time(next(stamps, None))


def _active_records(session: SessionBuilder) -> tuple[Record, dict[str, Record]]:
    """Return the header, and the active branch's entries by id. The first version has no
    branches."""
    header, tree = JsonObject(), Tree()
    for line, record in session.records():
        if record.get("type") == "session":
            if not header and (version := int_at(record, "version")) > VERSION:
                text = f"version {version} of pi's format; Refold knows those up to {VERSION}"
                session.note(text, line)
            header = header or record
            continue
        session.unknown.update(_unknown_kinds(record))
        parent = text_at(record, "parentId") if "parentId" in record else tree.last
        tree.add(line, text_at(record, "id") or f"line {line}", parent, record)
    branch = session.branch(tree, is_answer=_is_answer)
    return header, {node.id: node.record for node in branch}


def _is_answer(record: Record) -> bool:
    """Return whether a model wrote it. OpenClaw logs deliveries to the user as assistant
    messages."""
    return _has_usage(object_at(record, "message", "usage"))


def _unknown_kinds(record: Record) -> Iterator[str]:
    """Yield the unknown type or role of a record, or the unknown types of its parts."""
    if (kind := text_at(record, "type")) not in ENTRIES:
        yield kind
    elif kind == "message" and (role := text_at(record, "message", "role")) not in ROLES:
        yield role
    elif kind in {"message", "custom_message"}:
        for part in (*objects_at(record, "message", "content"), *objects_at(record, "content")):
            if text_at(part, "type") not in PARTS:
                yield text_at(part, "type")


def _has_usage(usage: Record) -> bool:
    """Return whether the provider reported usage. An aborted message has zeros."""
    return any(int_at(usage, key) > 0 for key in ("input", "cacheRead", "cacheWrite"))


def _compaction(record: Record, session: SessionBuilder, keys: Sequence[str]) -> Compaction:
    """Return the compaction: a summary that replaces everything before the first kept entry."""
    first = text_at(record, "firstKeptEntryId")
    index = int_at(record, "firstKeptEntryIndex")
    if not first and 0 < index <= len(keys):
        # Before entries had ids, they had numbers, and the header was the first.
        first = keys[index - 1]
    text = SUMMARY_TEXT.format(text_at(record, "summary"))
    summary = {"role": "user", "content": [text_block(text)]}
    meta = {key: record[key] for key in record if key in {"tokensBefore", "details", "fromHook"}}
    now = session.position
    stop = min(session.index.get(first, now), now)
    return Compaction(0, stop, (summary,), "compaction", meta, now)


@dataclass(slots=True)
class _SystemPrompt:
    """The system prompt and tools that system messages declare and change."""

    texts: list[str] = field(default_factory=list)
    sections: dict[str, str] = field(default_factory=dict)
    tools: dict[str, JsonObject] = field(default_factory=dict)

    def change(self, message: Record) -> None:
        """Apply a system message: text to add, sections and tools to set or to remove."""
        blocks = _blocks(objects_in(as_blocks(message.get("content"))))
        self.texts += [block["text"] for block in blocks if block["type"] == "text"]
        for name, section in object_at(message, "sections").items():
            if isinstance(section, str):
                self.sections[name] = section
            else:
                self.sections.pop(name, None)
        for tool in objects_at(message, "toolsRemoved"):
            self.tools.pop(text_at(tool, "name"), None)
        for tool in objects_at(message, "toolsAdded"):
            if name := text_at(tool, "name"):
                self.tools[name] = {
                    "name": name,
                    "description": text_at(tool, "description"),
                    "input_schema": dict(object_at(tool, "parameters")),
                }

    def body(self) -> JsonObject:
        """Return both as fields of a request; without those that are empty."""
        system = "\n\n".join(filter(None, (*self.texts, *self.sections.values())))
        return without_empty({"system": system, "tools": list(self.tools.values())})


def _context_edits(records: Mapping[str, Record], index: Mapping[str, int]) -> Iterator[Compaction]:
    """Yield for each message of which pi's model no longer sees a part what it sees instead."""
    edits = {
        text_at(record, "targetId"): record.get("replacement")
        for record in records.values()
        if record.get("type") == "context_edit"
    }
    places = {index[id] for id in edits if id in records}
    parts = defaultdict[int, list[str]](list)
    for id, record in records.items():
        if index[id] in places and _entry_of_record(record):
            parts[index[id]].append(id)
    for at, ids in parts.items():
        if edits.keys().isdisjoint(ids):
            continue
        edited = (
            _apply_context_edit(records[id], edits[id]) if id in edits else records[id]
            for id in ids
        )
        shown = list(filter(None, map(_entry_of_record, edited)))
        content = [block for entry in shown for block in entry["content"]]
        insert = ({**shown[0], "content": content},) if content else ()
        yield Compaction(at, at + 1, insert, "context_edit")


def _apply_context_edit(record: Record, replacement: Any) -> JsonObject:
    """Return a record with the content that a context edit shows. Of an omitted result the call
    needs an empty one."""
    message = object_at(record, "message")
    content = replacement.get("content") if isinstance(replacement, dict) else []
    if text_at(message, "role") == "bashExecution":
        return {**record} if content else {}
    edited = {"message": {**message, "content": content}} if message else {"content": content}
    return {**record, **edited}


# --- messages --------------------------------------------------------------------------------


def _entry_of_record(entry: Record) -> Entry | None:
    """Return an entry as a message; None if the model does not see it."""
    message = object_at(entry, "message")
    match text_at(entry, "type"), text_at(message, "role"):
        case "message", "user" | "custom" | "hookMessage":
            return _entry("user", message.get("content"))
        case "message", "assistant":
            return _entry("assistant", message.get("content"))
        case "message", "toolResult":
            return {"role": "user", "content": [_result(message)]}
        case "message", "bashExecution" if message.get("excludeFromContext") is not True:
            return _entry("user", _command_text(message))
        case "custom_message", _:
            return _entry("user", entry.get("content"))
        case "branch_summary", _ if text_at(entry, "summary"):
            return _entry("user", BRANCH_TEXT.format(text_at(entry, "summary")))
    return None


def _entry(role: str, content: Any) -> Entry | None:
    blocks = list(_blocks(objects_in(as_blocks(content))))
    return {"role": role, "content": blocks} if blocks else None


def _blocks(parts: Iterable[Record]) -> Iterator[Entry]:
    for part in parts:
        match text_at(part, "type"):
            case "text" if text_at(part, "text").strip():  # pi sends no blank text
                yield text_block(text_at(part, "text"))
            case "thinking" if part.get("redacted") is True:
                yield {"type": "redacted_thinking", "data": text_at(part, "thinkingSignature")}
            case "thinking" if text_at(part, "thinking") or text_at(part, "thinkingSignature"):
                yield {
                    "type": "thinking",
                    "thinking": text_at(part, "thinking"),
                    "signature": text_at(part, "thinkingSignature"),
                }
            case "toolCall":
                yield {
                    "type": "tool_use",
                    "id": text_at(part, "id"),
                    "name": text_at(part, "name"),
                    "input": dict(object_at(part, "arguments")),
                }
            case "image":
                source = {
                    "type": "base64",
                    "media_type": text_at(part, "mimeType"),
                    "data": text_at(part, "data"),
                }
                yield {"type": "image", "source": source}


def _result(message: Record) -> Entry:
    content = message.get("content")
    blocks = list(_blocks(objects_at(message, "content")))
    shown = content if isinstance(content, str) else blocks
    is_error = message.get("isError") is True
    return result_block(text_at(message, "toolCallId"), shown, is_error=is_error)


def _command_text(message: Record) -> str:
    """Return pi's description of a command that the user ran."""
    output, code = text_at(message, "output"), dig(message, "exitCode")
    lines = f"Ran `{text_at(message, 'command')}`\n" + (
        f"```\n{output}\n```" if output else "(no output)"
    )
    if message.get("cancelled") is True:
        lines += "\n\n(command cancelled)"
    elif isinstance(code, int) and code:
        lines += f"\n\nCommand exited with code {code}"
    if message.get("truncated") is True and text_at(message, "fullOutputPath"):
        lines += f"\n\n[Output truncated. Full output: {text_at(message, 'fullOutputPath')}]"
    return lines


READER = file_reader(CLIENT, "anthropic", mismatch, read, FILES)


# --- Copilot CLI ------------------------------------------------------------------------------


COPILOT = "copilot"
COPILOT_FILES = ClientFiles(
    COPILOT,
    (".copilot",),
    ("session-state/*/events.jsonl",),
    cwd_under("data", "context", "cwd"),
    ("COPILOT_HOME",),
    folder_name,
)
UNREAD = frozenset({"session.truncation", "tool.user_requested"})
"""Events that change the context without recording how."""
TO_MODEL = frozenset(
    {"session.mode_notice_delivered", "skill.context_delivered", "system.notification"}
)
"""Events with a text that the model is sent as a user message, as are requests."""


def copilot_mismatch(source: Source) -> str:
    """Return why these are no events of Copilot CLI; empty if they are."""
    starts = (event for event in source.objects() if event.get("type") == "session.start")
    return "" if first_text(starts, "data", "sessionId") else "no session.start with a sessionId"


def _active_events(session: SessionBuilder) -> Sequence[Record]:
    """Return the latest system prompt, and the other events without those of subagents and those
    that a rewind removed."""
    events, prompt = dict[str, Record](), list[Record]()
    for line, event in session.records():
        if "agentId" in event or text_at(event, "data", "parentToolCallId"):
            continue
        if event.get("type") == "system.message":  # stands behind the first request
            prompt = [event]
            continue
        if event.get("type") == "session.snapshot_rewind":
            first, ids = text_at(event, "data", "upToEventId"), list_at(event, "data", "eventIds")
            for id in ids:
                events.pop(str(id), None)
            while first in events and not ids:
                events.popitem()
        events[text_at(event, "id") or f"line {line}"] = event
    return [*prompt, *events.values()]


def read_copilot(session: SessionBuilder) -> None:
    """Read events. A compaction hides the messages before its start."""
    cut, calls, skills = 0, dict[str, int](), dict[str, str]()
    for event in _active_events(session):
        session.note_time(event.get("timestamp"))
        kind, data = text_at(event, "type"), object_at(event, "data")
        session.id = session.id or text_at(data, "sessionId")
        session.cwd = text_at(data, "context", "cwd") or session.cwd
        session.model = text_at(data, "newModel") or text_at(data, "model") or session.model
        content, id, now = text_at(data, "content"), text_at(data, "toolCallId"), session.position
        head = int(now > 0 and session.messages[0]["role"] == "system")
        match kind:
            case "system.message":
                session.say("system", content)
            case "user.message" if sent := text_at(data, "transformedContent") or content:
                session.say("user", sent)
            case _ if kind in TO_MODEL and content:
                session.say("user", content)
            case "skill.invoked":
                skills[sha256(content.encode(errors="replace")).hexdigest()] = content
            case "skill.context_delivered_ref":
                skill = skills.get(text_at(data, "contentId").removeprefix("sha256:"), "")
                if sent := text_at(data, "prefix") + skill + text_at(data, "suffix"):
                    session.say("user", sent)
            case "assistant.message":
                reasoning, requests = text_at(data, "reasoningText"), []
                for call in objects_at(data, "toolRequests"):
                    name, id = text_at(call, "name"), text_at(call, "toolCallId")
                    requests.append((id, name, call.get("arguments")))
                    calls[id] = len(calls)
                if content or reasoning or requests:  # a fully encrypted part has none of them
                    session.call(content, requests, reasoning)
            case "tool.execution_complete" if id in calls:
                output = text_at(data, "result", "content") or text_at(data, "error", "message")
                session.answer(output, id)
            case "session.compaction_start":
                cut = now
            case "session.compaction_complete" if summary := text_at(data, "summaryContent"):
                meta = without_keys(data, "summaryContent")
                shown = ({"role": "user", "content": summary},)
                trigger = text_at(data, "trigger")
                session.compactions.append(Compaction(head, cut or now, shown, trigger, meta, now))
            case "session.context_cleared" if now > head:
                text = text_at(data, "initialMessage")
                first = [{"role": "user", "content": text}] if text else []
                session.compactions.append(Compaction(head, now, (*first,), kind, data, now))
            case _ if kind in UNREAD:
                session.unknown[kind] += 1
    session.messages = _order_results(session.messages, calls)


def _order_results(messages: Iterable[Entry], calls: Mapping[str, int]) -> list[Entry]:
    """Return the messages with results in the order of *calls*, as they are sent. They are recorded
    as they come in."""
    runs = groupby(messages, key=lambda entry: entry["role"] == "tool")
    ordered = (
        sorted(run, key=lambda entry: calls.get(entry.get("tool_call_id"), 0)) for _, run in runs
    )
    return [*chain.from_iterable(ordered)]


COPILOT_READER = file_reader(COPILOT, "openai_chat", copilot_mismatch, read_copilot, COPILOT_FILES)
