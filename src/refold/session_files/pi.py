"""pi: `~/.pi/agent/sessions/--<directory>--/<time>_<id>.jsonl`.

Entries form a tree (in the first version, which has no ids, a line). Messages are given as
Anthropic blocks, whatever provider the session used. Answers without any content (aborted before
the first word) are left out, as they cannot be sent; calls that were interrupted stay open.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.session_files.session import Compaction, Problem, Session, Wire, branch
from refold.session_files.shape import dig, mapping, mappings, moment, number, text
from refold.session_files.source import Reader, Source, Stored

CLIENT = "pi"
COMPACTED = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
)
"""How pi shows a summary to its model."""
BRANCHED = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"

Entry = Mapping[str, Any]


def refuses(source: Source) -> str:
    """Why this is no pi session; empty if it is one."""
    for record in source.objects():
        if record.get("type") == "session" and "cwd" in record and text(record, "id"):
            return ""
        if record.get("type") == "message" and text(record, "message", "role") and "uuid" not in record:
            return "" if "timestamp" in record else "its messages have no timestamp"
    return "no session header with id and cwd, and no message entries"


def sessions(source: Source) -> Sequence[Stored]:
    """The one session of a file."""
    return [Stored("", lambda: read(source))]


def read(source: Source) -> Session:
    """Read a session."""
    problems = list[Problem]()
    header, path = _active(source, problems)
    messages, compactions = list[Wire](), list[Compaction]()
    usage, at = list[tuple[int, Mapping[str, Any]]](), dict[str, int]()
    answers = False
    for key, entry in path.items():
        at[key] = len(messages)
        if entry.get("type") == "compaction":
            compactions.append(_compaction(entry, at, list(path), len(messages)))
        wire = _wire(entry)
        if wire is None:
            continue
        result = text(entry, "message", "role") == "toolResult"
        if result and answers:
            at[key] -= 1
            messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *wire["content"]]}
        else:
            messages.append(wire)
        answers = result
        if wire["role"] == "assistant" and _is_used(mapping(entry, "message", "usage")):
            usage.append((len(messages), mapping(entry, "message", "usage")))
    if not messages:
        problems.append(Problem(0, "no messages: the file has only records about the session"))
    return Session(
        path=source.path,
        client=CLIENT,
        format="anthropic",
        id=text(header, "id"),
        messages=messages,
        body=_body(header, path),
        compactions=tuple(compactions),
        usage=tuple(usage),
        problems=tuple(problems),
        title=next((text(e, "name") for e in reversed(list(path.values())) if e.get("type") == "session_info"), ""),
        cwd=text(header, "cwd"),
        started=moment(header.get("timestamp")),
        updated=next((moment(e.get("timestamp")) for e in reversed(list(path.values())) if "timestamp" in e), None),
    )


def _active(source: Source, problems: list[Problem]) -> tuple[Entry, dict[str, Entry]]:
    """The header, and the entries of the active branch by id (a made-up one in the first version)."""
    header, entries, parents, last = dict[str, Any](), dict[str, Entry](), dict[str, str](), ""
    for line, record in source.records(problems):
        if record.get("type") == "session":
            header = header or record
            continue
        key = text(record, "id") or f"line {line}"
        parent = text(record, "parentId") if "parentId" in record else last
        if key not in entries:
            entries[key], parents[key] = record, parent if not parent or parent in entries else last
            last = key
    return header, {key: entries[key] for key in branch(last, parents)}


def _is_used(usage: Mapping[str, Any]) -> bool:
    """Whether the provider reported anything; an aborted answer has zeros."""
    return any(number(usage, key) > 0 for key in ("input", "cacheRead", "cacheWrite"))


def _body(header: Entry, path: Mapping[str, Entry]) -> dict[str, Any]:
    said = (text(entry, "message", "model") for entry in reversed(list(path.values())))
    model = next((one for one in said if one), "") or text(header, "modelId")
    return {"model": model} if model else {}


def _compaction(entry: Entry, at: Mapping[str, int], keys: Sequence[str], now: int) -> Compaction:
    """The summary stands for everything before the first entry that was kept."""
    first = text(entry, "firstKeptEntryId")
    index = number(entry, "firstKeptEntryIndex")
    if not first and 0 < index <= len(keys):
        # Before entries had ids they were counted, the header being the first.
        first = keys[index - 1]
    shown = {"role": "user", "content": [{"type": "text", "text": COMPACTED.format(text(entry, "summary"))}]}
    meta = {key: value for key, value in entry.items() if key in {"tokensBefore", "details", "fromHook"}}
    return Compaction(0, min(at.get(first, now), now), (shown,), "compaction", meta)


# --- messages --------------------------------------------------------------------------------


def _wire(entry: Entry) -> Wire | None:
    """An entry as a message; None for what the model is not shown."""
    match text(entry, "type"):
        case "message":
            return _message(mapping(entry, "message"))
        case "custom_message":
            return _spoken("user", entry.get("content"))
        case "branch_summary" if text(entry, "summary"):
            return _spoken("user", BRANCHED.format(text(entry, "summary")))
    return None


def _message(message: Entry) -> Wire | None:
    match text(message, "role"):
        case "user" | "custom" | "hookMessage":
            return _spoken("user", message.get("content"))
        case "assistant":
            return _spoken("assistant", message.get("content"))
        case "toolResult":
            return {"role": "user", "content": [_result(message)]}
        case "bashExecution" if message.get("excludeFromContext") is not True:
            return _spoken("user", _ran(message))
    return None


def _spoken(role: str, content: Any) -> Wire | None:
    parts = (
        [{"type": "text", "text": content}] if isinstance(content, str) else mappings({"content": content}, "content")
    )
    blocks = [block for part in parts for block in _blocks(part)]
    return {"role": role, "content": blocks} if blocks else None


def _blocks(part: Entry) -> Iterator[Wire]:
    match text(part, "type"):
        case "text" if text(part, "text"):
            yield {"type": "text", "text": text(part, "text")}
        case "thinking" if part.get("redacted") is True:
            yield {"type": "redacted_thinking", "data": text(part, "thinkingSignature")}
        case "thinking" if text(part, "thinking") or text(part, "thinkingSignature"):
            yield {
                "type": "thinking",
                "thinking": text(part, "thinking"),
                "signature": text(part, "thinkingSignature"),
            }
        case "toolCall":
            arguments = part.get("arguments")
            yield {
                "type": "tool_use",
                "id": text(part, "id"),
                "name": text(part, "name"),
                "input": arguments if isinstance(arguments, dict) else {},
            }
        case "image":
            source = {"type": "base64", "media_type": text(part, "mimeType"), "data": text(part, "data")}
            yield {"type": "image", "source": source}


def _result(message: Entry) -> Wire:
    content = message.get("content")
    blocks = [block for part in mappings(message, "content") for block in _blocks(part)]
    return {
        "type": "tool_result",
        "tool_use_id": text(message, "toolCallId"),
        "content": content if isinstance(content, str) else blocks,
        **({"is_error": True} if message.get("isError") is True else {}),
    }


def _ran(message: Entry) -> str:
    """A command that the user ran, in pi's words."""
    output, code = text(message, "output"), dig(message, "exitCode")
    said = f"Ran `{text(message, 'command')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled") is True:
        said += "\n\n(command cancelled)"
    elif isinstance(code, int) and code:
        said += f"\n\nCommand exited with code {code}"
    if message.get("truncated") is True and text(message, "fullOutputPath"):
        said += f"\n\n[Output truncated. Full output: {text(message, 'fullOutputPath')}]"
    return said


READER = Reader(CLIENT, refuses, sessions)
