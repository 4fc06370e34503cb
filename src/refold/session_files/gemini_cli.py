"""Gemini CLI: `~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl`, older ones one `.json`.

A message is written again, whole, each time it grows: the last one counts, in the first one's
place. The results of tool calls stand inside the model's message and become a message of their own,
as they were sent. The headings of thoughts that the file keeps were never sent back to the model
and are left out.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from refold.session_files.json_fields import (
    Record,
    list_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
    texts_at,
)
from refold.session_files.session import Entry, Problem, Session, SessionBuilder
from refold.session_files.source import Reader, Source, single

CLIENT = "gemini_cli"


def mismatch(source: Source) -> str:
    """Return why this is no Gemini CLI session; empty if it is one."""
    for record in source.objects():
        if text_at(record, "sessionId") and ("projectHash" in record or "startTime" in record):
            return ""
    return "no line has sessionId and projectHash or startTime"


def read(source: Source) -> Session:
    """Read a session."""
    session = SessionBuilder()
    meta, records = _load(source, session.problems)
    for record in records.values():
        session.messages += _entries(record)
        if record.get("type") == "gemini" and (usage := object_at(record, "tokens")):
            results = bool(session.messages) and session.messages[-1]["role"] == "user"
            session.usage.append((len(session.messages) - results, usage))
    session.model = next(iter(texts_at(reversed(records.values()), "model")), "")
    stamps = texts_at(records.values(), "timestamp")
    return session.build(
        source.path,
        CLIENT,
        "gemini",
        id=text_at(meta, "sessionId"),
        title=text_at(meta, "summary"),
        cwd=next((path for path in list_at(meta, "directories") if isinstance(path, str)), ""),
        started=parse_time(meta.get("startTime")) or parse_time(min(stamps, default="")),
        updated=parse_time(meta.get("lastUpdated")) or parse_time(max(stamps, default="")),
    )


# --- the lines -------------------------------------------------------------------------------


def _load(
    source: Source, problems: list[Problem]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What is known of the session, and its messages by id."""
    meta, messages = dict[str, Any](), dict[str, dict[str, Any]]()
    for line, record in source.records(problems):
        if "$rewindTo" in record:
            messages = _rewind(messages, text_at(record, "$rewindTo"))
        elif "$set" in record:
            meta |= object_at(record, "$set")
            messages = _replace_messages(record["$set"], messages)
        elif "type" in record and "sessionId" not in record:
            messages[text_at(record, "id") or f"line {line}"] = record
        else:
            meta |= record
            messages = _replace_messages(record, messages)
    return meta, messages


def _replace_messages(
    record: Any, messages: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """A list of messages takes the place of all that was there."""
    if not isinstance(object_at(record).get("messages"), list):
        return messages
    return {
        text_at(message, "id") or f"message {at}": message
        for at, message in enumerate(objects_at(record, "messages"))
    }


def _rewind(messages: dict[str, dict[str, Any]], to: str) -> dict[str, dict[str, Any]]:
    """Without the message *to* and all that follow; without any when it is unknown."""
    ids = list(messages)
    return {id: messages[id] for id in ids[: ids.index(to)]} if to in messages else {}


# --- messages --------------------------------------------------------------------------------


def _entries(record: Record) -> Iterator[Entry]:
    """A record as contents: notes to the user (info, error, warning) are none."""
    parts = list(_parts(record.get("content")))
    if record.get("type") == "user" and parts:
        yield {"role": "user", "parts": parts}
    if record.get("type") == "gemini":
        yield from _answer_entries(parts, list(objects_at(record, "toolCalls")))


def _answer_entries(parts: list[Entry], calls: Sequence[Record]) -> Iterator[Entry]:
    ids = {text_at(part, "functionCall", "id") for part in parts if "functionCall" in part}
    parts += [
        _call(call) for call in calls if not (text_at(call, "id") and text_at(call, "id") in ids)
    ]
    if parts:
        yield {"role": "model", "parts": parts}
    results = [part for call in calls for part in _result(call)]
    if results:
        yield {"role": "user", "parts": results}


def _parts(content: Any) -> Iterator[Entry]:
    """A PartListUnion: a text, a part, or a list of both."""
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str) and item:
            yield {"text": item}
        elif isinstance(item, dict) and item:
            yield item


def _call(call: Record) -> Entry:
    return {"functionCall": {**_name(call), "args": dict(object_at(call, "args"))}}


def _name(call: Record) -> dict[str, str]:
    """Return what identifies a call."""
    id = {"id": text_at(call, "id")} if text_at(call, "id") else {}
    return {**id, "name": text_at(call, "name")}


def _result(call: Record) -> Iterable[Entry]:
    """The result as it was sent; a call that was interrupted has none and stays open."""
    result = call.get("result")
    if isinstance(result, str):
        return [{"functionResponse": {**_name(call), "response": {"output": result}}}]
    return list(_parts(result))


READER = Reader(CLIENT, mismatch, single(read))
