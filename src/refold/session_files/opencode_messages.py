"""OpenCode's messages as Anthropic blocks, whatever provider the session used.

An answer is split where a new step begins; results stand in a user message right after the calls, as
they were sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.session_files.json_fields import (
    int_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
    texts_at,
)
from refold.session_files.session import Compaction, Entry, Problem, Session

CLIENT = "opencode"
SUMMARY_QUESTION = "What did we do so far?"
"""What the client puts before a summary, in the user's role."""
CLEARED_RESULT = "[Old tool result content cleared]"
"""What it shows in place of a result that it pruned."""
ABORT_ERROR = "MessageAbortedError"
"""How it names the error of an answer that the user broke off."""
KINDS = {"image": "image", "application": "document"}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its parts, each part with its id."""

    id: str
    data: Mapping[str, Any]
    parts: Sequence[Mapping[str, Any]]

    def has_part(self, kind: str) -> bool:
        """Is one of its parts of this kind?"""
        return any(part.get("type") == kind for part in self.parts)


@dataclass(slots=True)
class _Conversation:
    """The conversation as it grows."""

    messages: list[Entry] = field(default_factory=list)
    prunings: list[Compaction] = field(default_factory=list)
    usage: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    """Position of the first entry that a message became."""


def build_session(
    path: Path, row: Row, stored: list[StoredMessage], problems: list[Problem]
) -> Session:
    """Return a session from its row in the database, or the same from a file, and its messages."""
    stored = _before_revert(stored, object_at(row, "revert"))
    conversation, compactions = _Conversation(), list[Compaction]()
    summaries = {
        text_at(message.data, "parentID"): message for message in stored if _is_summary(message)
    }
    for message in stored:
        if message.has_part("compaction"):
            compactions += _compaction(message, summaries.get(message.id), conversation)
        elif message.data.get("summary") is not True:
            _add_message(conversation, message)
    if not conversation.messages:
        problems.append(Problem(0, "the session has no messages"))
    models = texts_at((message.data for message in stored), "modelID")
    return Session(
        path=path,
        client=CLIENT,
        format="anthropic",
        id=text_at(row, "id"),
        messages=conversation.messages,
        body={"model": models[-1]} if models else {},
        compactions=(*compactions, *conversation.prunings),
        usage=tuple(conversation.usage),
        problems=tuple(problems),
        title=text_at(row, "title"),
        cwd=text_at(row, "directory"),
        started=parse_time(row.get("time_created")),
        updated=parse_time(row.get("time_updated")),
    )


def _before_revert(stored: list[StoredMessage], revert: Mapping[str, Any]) -> list[StoredMessage]:
    """Return the messages without what the user took back."""
    at = next(
        (at for at, message in enumerate(stored) if message.id == text_at(revert, "messageID")),
        None,
    )
    if at is None:
        return stored
    first, part = stored[at], text_at(revert, "partID")
    if not part:
        return stored[:at]
    return [
        *stored[:at],
        StoredMessage(
            first.id,
            first.data,
            [message for message in first.parts if text_at(message, "id") < part],
        ),
    ]


def _is_summary(message: StoredMessage) -> bool:
    """A summary that was finished."""
    return (
        message.data.get("summary") is True
        and bool(message.data.get("finish"))
        and not message.data.get("error")
    )


def _compaction(
    request: StoredMessage, summary: StoredMessage | None, conversation: _Conversation
) -> list[Compaction]:
    """The summary for everything before the tail that was kept; none if it was never finished."""
    if summary is None:
        return []
    mark = next(part for part in request.parts if part.get("type") == "compaction")
    now = len(conversation.messages)
    blocks = [
        block for part in summary.parts if part.get("type") == "text" for block in _blocks(part)
    ]
    insert = (
        {"role": "user", "content": [{"type": "text", "text": SUMMARY_QUESTION}]},
        {"role": "assistant", "content": blocks},
    )
    stop = conversation.index.get(text_at(mark, "tail_start_id"), now)
    trigger = "auto" if mark.get("auto") is True else "manual"
    return [Compaction(0, stop, insert, trigger, mark)] if blocks else []


# --- messages --------------------------------------------------------------------------------


def _add_message(conversation: _Conversation, message: StoredMessage) -> None:
    conversation.index[message.id] = len(conversation.messages)
    if text_at(message.data, "role") == "user":
        blocks = [block for part in message.parts for block in _blocks(part)]
        if blocks:
            conversation.messages.append({"role": "user", "content": blocks})
    elif text_at(message.data, "role") == "assistant" and not _is_failed(message):
        _add_answer(conversation, message)


def _is_failed(message: StoredMessage) -> bool:
    """An answer that ended in an error is never sent again, unless the user broke it off half-way."""
    if not message.data.get("error"):
        return False
    halfway = any(
        text_at(part, "type") not in {"step-start", "reasoning"} for part in message.parts
    )
    return not (text_at(message.data, "error", "name") == ABORT_ERROR and halfway)


def _add_answer(conversation: _Conversation, message: StoredMessage) -> None:
    at = len(conversation.messages)
    for step in _steps(message.parts):
        blocks = [block for part in step for block in _blocks(part)]
        if blocks:
            conversation.messages.append({"role": "assistant", "content": blocks})
            at = len(conversation.messages)
        _add_results(conversation, [part for part in step if part.get("type") == "tool"])
    if int_at(message.data, "tokens", "input") >= 0 and at > conversation.index[message.id]:
        conversation.usage.append((at, object_at(message.data, "tokens")))


def _steps(parts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    steps = list[list[Mapping[str, Any]]]([[]])
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        steps[-1].append(part)
    return steps


def _add_results(conversation: _Conversation, tools: Sequence[Mapping[str, Any]]) -> None:
    """The results of a step; calls that never ended have none and stay open."""
    ended = [part for part in tools if text_at(part, "state", "status") in {"completed", "error"}]
    if not ended:
        return
    at = len(conversation.messages)
    conversation.messages.append({"role": "user", "content": [_result(part) for part in ended]})
    pruned = [object_at(part, "state", "time").get("compacted") for part in ended]
    if any(pruned):
        shown = [
            _result(part, bool(is_pruned)) for part, is_pruned in zip(ended, pruned, strict=True)
        ]
        conversation.prunings.append(
            Compaction(at, at + 1, ({"role": "user", "content": shown},), "prune")
        )


def _blocks(part: Mapping[str, Any]) -> Iterator[Entry]:
    """A part as blocks of the message that it belongs to."""
    match text_at(part, "type"):
        case "text" if text_at(part, "text") and part.get("ignored") is not True:
            yield {"type": "text", "text": text_at(part, "text")}
        case "reasoning" if text_at(part, "text") or text_at(
            part, "metadata", "anthropic", "signature"
        ):
            signature = text_at(part, "metadata", "anthropic", "signature")
            yield {"type": "thinking", "thinking": text_at(part, "text"), "signature": signature}
        case "file":
            yield from _file(part)
        case "subtask":
            yield {"type": "text", "text": "The following tool was executed by the user"}
        case "tool":
            named = {"id": text_at(part, "callID"), "name": text_at(part, "tool")}
            yield {"type": "tool_use", **named, "input": dict(object_at(part, "state", "input"))}


def _file(part: Mapping[str, Any]) -> Iterator[Entry]:
    """An attachment. Text files and directories are told in text parts of their own."""
    mime, url = text_at(part, "mime"), text_at(part, "url")
    kind = KINDS.get(mime.partition("/")[0])
    if kind is None or mime == "application/x-directory":
        return
    _, separator, data = url.partition(";base64,")
    source = (
        {"type": "base64", "media_type": mime, "data": data}
        if separator
        else {"type": "url", "url": url}
    )
    yield {"type": kind, "source": source}


def _result(part: Mapping[str, Any], cleared: bool = False) -> Entry:
    state = object_at(part, "state")
    failed = text_at(state, "status") == "error"
    content = (
        CLEARED_RESULT
        if cleared
        else text_at(state, "error")
        if failed
        else text_at(state, "output")
    )
    media = (
        []
        if cleared or failed
        else [
            block for attachment in objects_at(state, "attachments") for block in _file(attachment)
        ]
    )
    return {
        "type": "tool_result",
        "tool_use_id": text_at(part, "callID"),
        "content": [{"type": "text", "text": content}, *media]
        if media and content
        else media or content,
        **({"is_error": True} if failed else {}),
    }
