"""OpenCode's messages as Anthropic blocks, whatever provider the session used.

An answer is split where a new step begins; results stand in a user message right after the calls, as
they were sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.session_files.json_fields import int_at, object_at, objects_at, parse_time, text_at
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
    path: Path, row: Row, said: list[StoredMessage], problems: list[Problem]
) -> Session:
    """The session that a row of the database, or what says the same, and its messages tell."""
    said = _before_revert(said, object_at(row, "revert"))
    wires, compactions = _Conversation(), list[Compaction]()
    summaries = {text_at(one.data, "parentID"): one for one in said if _is_summary(one)}
    for one in said:
        if one.has_part("compaction"):
            compactions += _compaction(one, summaries.get(one.id), wires)
        elif one.data.get("summary") is not True:
            _add_message(wires, one)
    if not wires.messages:
        problems.append(Problem(0, "the session has no messages"))
    models = [text_at(one.data, "modelID") for one in said if text_at(one.data, "modelID")]
    return Session(
        path=path,
        client=CLIENT,
        format="anthropic",
        id=text_at(row, "id"),
        messages=wires.messages,
        body={"model": models[-1]} if models else {},
        compactions=(*compactions, *wires.prunings),
        usage=tuple(wires.usage),
        problems=tuple(problems),
        title=text_at(row, "title"),
        cwd=text_at(row, "directory"),
        started=parse_time(row.get("time_created")),
        updated=parse_time(row.get("time_updated")),
    )


def _before_revert(said: list[StoredMessage], revert: Mapping[str, Any]) -> list[StoredMessage]:
    """Without what the user took back."""
    at = next((at for at, one in enumerate(said) if one.id == text_at(revert, "messageID")), None)
    if at is None:
        return said
    first, part = said[at], text_at(revert, "partID")
    if not part:
        return said[:at]
    return [
        *said[:at],
        StoredMessage(
            first.id, first.data, [one for one in first.parts if text_at(one, "id") < part]
        ),
    ]


def _is_summary(one: StoredMessage) -> bool:
    """A summary that was finished."""
    return (
        one.data.get("summary") is True
        and bool(one.data.get("finish"))
        and not one.data.get("error")
    )


def _compaction(
    asked: StoredMessage, summary: StoredMessage | None, wires: _Conversation
) -> list[Compaction]:
    """The summary for everything before the tail that was kept; none if it was never finished."""
    if summary is None:
        return []
    mark = next(part for part in asked.parts if part.get("type") == "compaction")
    now = len(wires.messages)
    told = [
        block for part in summary.parts if part.get("type") == "text" for block in _blocks(part)
    ]
    insert = (
        {"role": "user", "content": [{"type": "text", "text": SUMMARY_QUESTION}]},
        {"role": "assistant", "content": told},
    )
    stop = wires.index.get(text_at(mark, "tail_start_id"), now)
    trigger = "auto" if mark.get("auto") is True else "manual"
    return [Compaction(0, stop, insert, trigger, mark)] if told else []


# --- messages --------------------------------------------------------------------------------


def _add_message(wires: _Conversation, one: StoredMessage) -> None:
    wires.index[one.id] = len(wires.messages)
    if text_at(one.data, "role") == "user":
        blocks = [block for part in one.parts for block in _blocks(part)]
        if blocks:
            wires.messages.append({"role": "user", "content": blocks})
    elif text_at(one.data, "role") == "assistant" and not _is_failed(one):
        _add_answer(wires, one)


def _is_failed(one: StoredMessage) -> bool:
    """An answer that ended in an error is never sent again, unless the user broke it off half-way."""
    if not one.data.get("error"):
        return False
    halfway = any(text_at(part, "type") not in {"step-start", "reasoning"} for part in one.parts)
    return not (text_at(one.data, "error", "name") == ABORT_ERROR and halfway)


def _add_answer(wires: _Conversation, one: StoredMessage) -> None:
    at = len(wires.messages)
    for step in _steps(one.parts):
        blocks = [block for part in step for block in _blocks(part)]
        if blocks:
            wires.messages.append({"role": "assistant", "content": blocks})
            at = len(wires.messages)
        _add_results(wires, [part for part in step if part.get("type") == "tool"])
    if int_at(one.data, "tokens", "input") >= 0 and at > wires.index[one.id]:
        wires.usage.append((at, object_at(one.data, "tokens")))


def _steps(parts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    steps = list[list[Mapping[str, Any]]]([[]])
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        steps[-1].append(part)
    return steps


def _add_results(wires: _Conversation, tools: Sequence[Mapping[str, Any]]) -> None:
    """The results of a step; calls that never ended have none and stay open."""
    done = [part for part in tools if text_at(part, "state", "status") in {"completed", "error"}]
    if not done:
        return
    at = len(wires.messages)
    wires.messages.append({"role": "user", "content": [_result(part) for part in done]})
    pruned = [object_at(part, "state", "time").get("compacted") for part in done]
    if any(pruned):
        shown = [_result(part, bool(gone)) for part, gone in zip(done, pruned, strict=True)]
        wires.prunings.append(
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
    _, found, data = url.partition(";base64,")
    source = (
        {"type": "base64", "media_type": mime, "data": data}
        if found
        else {"type": "url", "url": url}
    )
    yield {"type": kind, "source": source}


def _result(part: Mapping[str, Any], cleared: bool = False) -> Entry:
    state = object_at(part, "state")
    failed = text_at(state, "status") == "error"
    said = (
        CLEARED_RESULT
        if cleared
        else text_at(state, "error")
        if failed
        else text_at(state, "output")
    )
    media = (
        []
        if cleared or failed
        else [block for one in objects_at(state, "attachments") for block in _file(one)]
    )
    return {
        "type": "tool_result",
        "tool_use_id": text_at(part, "callID"),
        "content": [{"type": "text", "text": said}, *media] if media and said else media or said,
        **({"is_error": True} if failed else {}),
    }
