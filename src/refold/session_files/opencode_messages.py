"""OpenCode's messages as Anthropic blocks, whatever provider the session used.

An answer is split where a new step begins; results are in a user message right after the calls, as
they were sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from refold.session_files.claude_messages import result_block, text_block
from refold.session_files.reader import Compaction, Entry, Session, SessionBuilder
from refold.text.json_values import (
    Record,
    first_text,
    int_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
)

CLIENT = "opencode"
SUMMARY_QUESTION = "What did we do so far?"
"""What the client puts before a summary, in the user's role."""
CLEARED_RESULT = "[Old tool result content cleared]"
"""What it shows in place of a result that it pruned."""
ABORT_ERROR = "MessageAbortedError"
"""How it names the error of an answer that the user broke off."""
KNOWN_PARTS = frozenset(
    {
        *("text", "reasoning", "file", "subtask", "tool"),
        *("agent", "compaction", "patch", "retry", "snapshot", "step-finish", "step-start"),
    }
)
"""Kinds of parts that are known; the second line has nothing that was said."""
KINDS = {"image": "image", "application": "document"}


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its parts, each part with its id."""

    id: str
    data: Record
    parts: Sequence[Record]


def build_session(session: SessionBuilder, row: Record, stored: list[StoredMessage]) -> Session:
    """Return a session from its row in the database, or the same from a file, and its messages."""
    session.id, session.title = text_at(row, "id"), text_at(row, "title")
    session.cwd = text_at(row, "directory")
    session.started = parse_time(row.get("time_created"))
    session.updated = parse_time(row.get("time_updated"))
    stored = _before_revert(stored, object_at(row, "revert"))
    session.model = first_text((message.data for message in reversed(stored)), "modelID")
    summaries = {
        text_at(message.data, "parentID"): message for message in stored if _is_summary(message)
    }
    compactions = list[Compaction]()
    for message in stored:
        for part in message.parts:
            if (kind := text_at(part, "type")) not in KNOWN_PARTS:
                session.unknown[kind] += 1
        if any(part.get("type") == "compaction" for part in message.parts):
            compactions += _compaction(message, summaries.get(message.id), session)
        elif message.data.get("summary") is not True:
            _add_message(session, message)
    session.compactions[:0] = compactions  # before the pruned results
    return session.build()


def _before_revert(stored: list[StoredMessage], revert: Record) -> list[StoredMessage]:
    """Return the messages without what the user took back."""
    ids = [message.id for message in stored]
    if (id := text_at(revert, "messageID")) not in ids:
        return stored
    at, part = ids.index(id), text_at(revert, "partID")
    if not part:
        return stored[:at]
    parts = [item for item in stored[at].parts if text_at(item, "id") < part]
    return [*stored[:at], replace(stored[at], parts=parts)]


def _is_summary(message: StoredMessage) -> bool:
    """Is it a summary that was finished?"""
    return (
        message.data.get("summary") is True
        and bool(message.data.get("finish"))
        and not message.data.get("error")
    )


def _compaction(
    request: StoredMessage, summary: StoredMessage | None, session: SessionBuilder
) -> list[Compaction]:
    """Return the summary for all before the tail that stays; none if it was never finished."""
    if summary is None:
        return []
    mark = next(part for part in request.parts if part.get("type") == "compaction")
    now = len(session.messages)
    blocks = [
        block for part in summary.parts if part.get("type") == "text" for block in _blocks(part)
    ]
    insert = (
        {"role": "user", "content": [text_block(SUMMARY_QUESTION)]},
        {"role": "assistant", "content": blocks},
    )
    stop = session.index.get(text_at(mark, "tail_start_id"), now)
    trigger = "auto" if mark.get("auto") is True else "manual"
    return [Compaction(0, stop, insert, trigger, mark, now)] if blocks else []


# --- messages --------------------------------------------------------------------------------


def _add_message(session: SessionBuilder, message: StoredMessage) -> None:
    session.index[message.id] = len(session.messages)
    if text_at(message.data, "role") == "user":
        blocks = [block for part in message.parts for block in _blocks(part)]
        if blocks:
            session.messages.append({"role": "user", "content": blocks})
    elif text_at(message.data, "role") == "assistant" and not _is_failed(message):
        _add_answer(session, message)


def _is_failed(message: StoredMessage) -> bool:
    """Did an answer end in an error? It is sent again only if the user broke it off half-way."""
    if not message.data.get("error"):
        return False
    halfway = any(
        text_at(part, "type") not in {"step-start", "reasoning"} for part in message.parts
    )
    return not (text_at(message.data, "error", "name") == ABORT_ERROR and halfway)


def _add_answer(session: SessionBuilder, message: StoredMessage) -> None:
    at = len(session.messages)
    for step in _steps(message.parts):
        blocks = [block for part in step for block in _blocks(part)]
        if blocks:
            session.messages.append({"role": "assistant", "content": blocks})
            at = len(session.messages)
        _add_results(session, [part for part in step if part.get("type") == "tool"])
    if int_at(message.data, "tokens", "input") >= 0 and at > session.index[message.id]:
        session.usage.append((at, object_at(message.data, "tokens")))


def _steps(parts: Sequence[Record]) -> list[list[Record]]:
    steps = list[list[Record]]([[]])
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        steps[-1].append(part)
    return steps


def _add_results(session: SessionBuilder, tools: Sequence[Record]) -> None:
    """Add the results of a step; calls that never ended have none and stay open."""
    ended = [part for part in tools if text_at(part, "state", "status") in {"completed", "error"}]
    if not ended:
        return
    at = len(session.messages)
    session.messages.append({"role": "user", "content": [_result(part) for part in ended]})
    pruned = [object_at(part, "state", "time").get("compacted") for part in ended]
    if any(pruned):
        shown = [
            _result(part, bool(is_pruned)) for part, is_pruned in zip(ended, pruned, strict=True)
        ]
        session.compactions.append(
            Compaction(at, at + 1, ({"role": "user", "content": shown},), "prune")
        )


def _blocks(part: Record) -> Iterator[Entry]:
    """Yield a part as blocks of its message."""
    match text_at(part, "type"):
        case "text" if text_at(part, "text") and part.get("ignored") is not True:
            yield text_block(text_at(part, "text"))
        case "reasoning" if text_at(part, "text") or text_at(
            part, "metadata", "anthropic", "signature"
        ):
            signature = text_at(part, "metadata", "anthropic", "signature")
            yield {"type": "thinking", "thinking": text_at(part, "text"), "signature": signature}
        case "file":
            yield from _file(part)
        case "subtask":
            yield text_block("The following tool was executed by the user")
        case "tool":
            named = {"id": text_at(part, "callID"), "name": text_at(part, "tool")}
            yield {"type": "tool_use", **named, "input": dict(object_at(part, "state", "input"))}


def _file(part: Record) -> Iterator[Entry]:
    """Yield an attachment. Text files and directories are in text parts, too."""
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


def _result(part: Record, cleared: bool = False) -> Entry:
    state = object_at(part, "state")
    failed = text_at(state, "status") == "error"
    content = CLEARED_RESULT if cleared else text_at(state, "error" if failed else "output")
    files = [] if cleared or failed else objects_at(state, "attachments")
    media = [block for file in files for block in _file(file)]
    shown = [text_block(content), *media] if media and content else media or content
    return result_block(text_at(part, "callID"), shown, is_error=failed)
