"""OpenCode's messages as Anthropic blocks, whatever provider the session used.

An answer is split where a new step begins; results stand in a user message right after the calls, as
they were sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.session_files.session import Compaction, Problem, Session, Wire
from refold.session_files.shape import mapping, mappings, moment, number, text

CLIENT = "opencode"
ASKED = "What did we do so far?"
"""What the client puts before a summary, in the user's role."""
CLEARED = "[Old tool result content cleared]"
"""What it shows in place of a result that it pruned."""
ABORTED = "MessageAbortedError"
"""How it names the error of an answer that the user broke off."""
KINDS = {"image": "image", "application": "document"}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """A message with its parts, each part with its id."""

    id: str
    data: Mapping[str, Any]
    parts: Sequence[Mapping[str, Any]]

    def has(self, kind: str) -> bool:
        """Is one of its parts of this kind?"""
        return any(part.get("type") == kind for part in self.parts)


@dataclass(slots=True)
class _Wires:
    """The conversation as it grows."""

    messages: list[Wire] = field(default_factory=list)
    cleared: list[Compaction] = field(default_factory=list)
    usage: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    """Position of the first entry that a message became."""


def told(path: Path, row: Row, said: list[Said], problems: list[Problem]) -> Session:
    """The session that a row of the database, or what says the same, and its messages tell."""
    said = _kept(said, mapping(row, "revert"))
    wires, compactions = _Wires(), list[Compaction]()
    summaries = {text(one.data, "parentID"): one for one in said if _is_summary(one)}
    for one in said:
        if one.has("compaction"):
            compactions += _compaction(one, summaries.get(one.id), wires)
        elif one.data.get("summary") is not True:
            _add(wires, one)
    if not wires.messages:
        problems.append(Problem(0, "the session has no messages"))
    models = [text(one.data, "modelID") for one in said if text(one.data, "modelID")]
    return Session(
        path=path,
        client=CLIENT,
        format="anthropic",
        id=text(row, "id"),
        messages=wires.messages,
        body={"model": models[-1]} if models else {},
        compactions=(*compactions, *wires.cleared),
        usage=tuple(wires.usage),
        problems=tuple(problems),
        title=text(row, "title"),
        cwd=text(row, "directory"),
        started=moment(row.get("time_created")),
        updated=moment(row.get("time_updated")),
    )


def _kept(said: list[Said], revert: Mapping[str, Any]) -> list[Said]:
    """Without what the user took back."""
    at = next((at for at, one in enumerate(said) if one.id == text(revert, "messageID")), None)
    if at is None:
        return said
    first, part = said[at], text(revert, "partID")
    if not part:
        return said[:at]
    return [*said[:at], Said(first.id, first.data, [one for one in first.parts if text(one, "id") < part])]


def _is_summary(one: Said) -> bool:
    """A summary that was finished."""
    return one.data.get("summary") is True and bool(one.data.get("finish")) and not one.data.get("error")


def _compaction(asked: Said, summary: Said | None, wires: _Wires) -> list[Compaction]:
    """The summary for everything before the tail that was kept; none if it was never finished."""
    if summary is None:
        return []
    mark = next(part for part in asked.parts if part.get("type") == "compaction")
    now = len(wires.messages)
    told = [block for part in summary.parts if part.get("type") == "text" for block in _spoken(part)]
    insert = ({"role": "user", "content": [{"type": "text", "text": ASKED}]}, {"role": "assistant", "content": told})
    stop = wires.index.get(text(mark, "tail_start_id"), now)
    trigger = "auto" if mark.get("auto") is True else "manual"
    return [Compaction(0, stop, insert, trigger, mark)] if told else []


# --- messages --------------------------------------------------------------------------------


def _add(wires: _Wires, one: Said) -> None:
    wires.index[one.id] = len(wires.messages)
    if text(one.data, "role") == "user":
        blocks = [block for part in one.parts for block in _spoken(part)]
        if blocks:
            wires.messages.append({"role": "user", "content": blocks})
    elif text(one.data, "role") == "assistant" and not _is_failed(one):
        _add_answer(wires, one)


def _is_failed(one: Said) -> bool:
    """An answer that ended in an error is never sent again, unless the user broke it off half-way."""
    if not one.data.get("error"):
        return False
    halfway = any(text(part, "type") not in {"step-start", "reasoning"} for part in one.parts)
    return not (text(one.data, "error", "name") == ABORTED and halfway)


def _add_answer(wires: _Wires, one: Said) -> None:
    at = len(wires.messages)
    for step in _steps(one.parts):
        blocks = [block for part in step for block in _spoken(part)]
        if blocks:
            wires.messages.append({"role": "assistant", "content": blocks})
            at = len(wires.messages)
        _add_results(wires, [part for part in step if part.get("type") == "tool"])
    if number(one.data, "tokens", "input") >= 0 and at > wires.index[one.id]:
        wires.usage.append((at, mapping(one.data, "tokens")))


def _steps(parts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    steps = list[list[Mapping[str, Any]]]([[]])
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        steps[-1].append(part)
    return steps


def _add_results(wires: _Wires, tools: Sequence[Mapping[str, Any]]) -> None:
    """The results of a step; calls that never ended have none and stay open."""
    done = [part for part in tools if text(part, "state", "status") in {"completed", "error"}]
    if not done:
        return
    at = len(wires.messages)
    wires.messages.append({"role": "user", "content": [_result(part) for part in done]})
    pruned = [mapping(part, "state", "time").get("compacted") for part in done]
    if any(pruned):
        shown = [_result(part, bool(gone)) for part, gone in zip(done, pruned, strict=True)]
        wires.cleared.append(Compaction(at, at + 1, ({"role": "user", "content": shown},), "prune"))


def _spoken(part: Mapping[str, Any]) -> Iterator[Wire]:
    """A part as blocks of the message that it belongs to."""
    match text(part, "type"):
        case "text" if text(part, "text") and part.get("ignored") is not True:
            yield {"type": "text", "text": text(part, "text")}
        case "reasoning" if text(part, "text") or text(part, "metadata", "anthropic", "signature"):
            signature = text(part, "metadata", "anthropic", "signature")
            yield {"type": "thinking", "thinking": text(part, "text"), "signature": signature}
        case "file":
            yield from _file(part)
        case "subtask":
            yield {"type": "text", "text": "The following tool was executed by the user"}
        case "tool":
            named = {"id": text(part, "callID"), "name": text(part, "tool")}
            yield {"type": "tool_use", **named, "input": dict(mapping(part, "state", "input"))}


def _file(part: Mapping[str, Any]) -> Iterator[Wire]:
    """An attachment. Text files and directories are told in text parts of their own."""
    mime, url = text(part, "mime"), text(part, "url")
    kind = KINDS.get(mime.partition("/")[0])
    if kind is None or mime == "application/x-directory":
        return
    _, found, data = url.partition(";base64,")
    source = {"type": "base64", "media_type": mime, "data": data} if found else {"type": "url", "url": url}
    yield {"type": kind, "source": source}


def _result(part: Mapping[str, Any], cleared: bool = False) -> Wire:
    state = mapping(part, "state")
    failed = text(state, "status") == "error"
    said = CLEARED if cleared else text(state, "error") if failed else text(state, "output")
    media = [] if cleared or failed else [block for one in mappings(state, "attachments") for block in _file(one)]
    return {
        "type": "tool_result",
        "tool_use_id": text(part, "callID"),
        "content": [{"type": "text", "text": said}, *media] if media and said else media or said,
        **({"is_error": True} if failed else {}),
    }
