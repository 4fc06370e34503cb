"""`refold hook`: called by Claude Code after each tool run and before it compacts.

The agent waits for this file, so it imports very little, and more only if a result is cut or was
seen before. If anything is unexpected, the client goes on as without the hook.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from refold.text.left_out import (
    SUFFIX,
    LeftOut,
    Seen,
    append,
    find_origin,
    find_seen,
    path_of_origin,
)

LIMIT_VARIABLE = "REFOLD_HOOK_LIMIT"
"""Environment variable with the number of characters of a result that are shown."""
DEFAULT_LIMIT = 16_000
READ_LIMIT = 50_000
"""Minimum number of characters shown of a file, since the model asked for it and edits it."""
MIN_DUPLICATE_CHARACTERS = 200
"""Minimum characters of a result to be deduplicated, as in `DropDuplicates`."""
SEARCHED_BYTES = 4_000_000
"""Bytes at the end of the transcript in which an earlier result is searched."""
KEPT_SECONDS = 90 * 86_400
"""Seconds for which a copy of a session is kept."""


def main(arguments: Sequence[str]) -> int:
    """Answer an event on standard input. Return 0 for every event, even if it fails."""
    answer = EVENTS.get(arguments[0]) if len(arguments) == 1 else None
    if answer is None:  # help or misuse
        command: Callable[[Sequence[str]], int] = import_module("refold.cli.commands").main
        return min(command(["hook", *arguments]), 1)  # exit code 2 would block the client's tool
    try:
        answer(json.load(sys.stdin.buffer))
    except Exception as error:  # noqa: BLE001 - must not stop the client
        reason = " ".join(str(error).split())[:200]
        if not isinstance(error, OSError | ValueError):
            reason = f"the event is not as expected: {type(error).__name__}: {reason}"
        sys.stderr.write(f"refold: nothing is changed: {reason}\n")
    return 0


# --- a tool has run ----------------------------------------------------------------------------


def answer_tool_use(event: Mapping[str, Any]) -> None:
    """Record a long tool result. If it is shortened or replaced, print what the model shall see.
    Raises ValueError for an invalid limit, KeyError, TypeError, OSError."""
    call, tool, result = event["tool_use_id"], event["tool_name"], event["tool_response"]
    slots = list(_find_slots(tool, result))
    length = sum(len(place[key]) for place, key, _ in slots)
    if length < MIN_DUPLICATE_CHARACTERS:
        return
    transcript = _find_transcript(event)
    typed = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_LIMIT)
    limit = int(typed) if typed.strip().isdecimal() else 0
    if limit < MIN_DUPLICATE_CHARACTERS * 2:
        raise ValueError(
            f"{LIMIT_VARIABLE} must be a number from {MIN_DUPLICATE_CHARACTERS * 2} on, and {typed!r} is none"
        )
    if tool == "Read":
        limit = max(limit, READ_LIMIT)
    seen = Seen(call, _hash(tool, event["tool_input"], result))
    earlier = _find_shown(transcript, seen.key, [place[key] for place, key, _ in slots])
    rows = list(_cut(slots, limit, call, earlier))
    if not rows:
        append(transcript, [seen])
        return
    append(transcript, rows)  # first, so that everything left out is kept
    if tool == "Read":
        result["file"]["numLines"] = result["file"]["content"].count("\n") + 1
    shown = {"hookEventName": "PostToolUse", "updatedToolOutput": result}
    sys.stdout.write(json.dumps({"hookSpecificOutput": shown}) + "\n")


def _find_slots(tool: str, result: Any) -> Iterator[tuple[Any, Any, float]]:
    """Yield container, key and head share of each text of a result: the share of a cut text that is
    kept from its start. Yield nothing if the result does not have the tool's shape."""
    match tool, result:
        case "Bash", {"stdout": str(), "stderr": str()}:
            if not (result.get("isImage") or result.get("persistedOutputPath")):
                yield from ((result, name, 0.5) for name in ("stdout", "stderr"))
        case "Read", {"type": "text", "file": {"content": str(), "startLine": int()}}:
            yield result["file"], "content", 1.0  # the client numbers the lines
        case "Grep", {"content": str()}:
            yield result, "content", 0.5
        case "WebFetch", {"result": str()}:
            yield result, "result", 0.5
        case _ if tool.startswith("mcp__") and "refold" not in tool:
            blocks = result.get("content") if isinstance(result, dict) else result
            for block in blocks if isinstance(blocks, list) else ():
                if isinstance(block, dict) and isinstance(block.get("text"), str):
                    yield block, "text", 0.5


def _find_transcript(event: Mapping[str, Any]) -> str:
    """Return the transcript file that the result belongs to. A subagent has its own."""
    transcript: str = event["transcript_path"]
    if agent := event.get("agent_id"):
        folder = transcript.removesuffix(".jsonl")
        transcript = f"{folder}/subagents/agent-{agent}.jsonl"
    if not Path(transcript).parent.is_dir():
        raise FileNotFoundError(f"{transcript}: no such session")
    return transcript


def _hash(tool: str, arguments: Mapping[str, Any], result: Any) -> str:
    """Return a key that is equal for results with the same command or file and the same output."""
    subject = arguments.get("command") or arguments.get("file_path") or arguments
    text = json.dumps((tool, subject, result), sort_keys=True)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _cut(slots: Sequence[Any], limit: int, call: str, earlier: str) -> Iterator[LeftOut]:
    """Cut long texts of a result, or replace them all if it is repeated. Yield what is left out."""
    for place, key, head in slots:
        text = place[key]
        if earlier:
            shown = f"[the same result as before (call {earlier}, edit {call})]" if text else text
        elif len(text) > limit:
            cut_middle = import_module("refold.text.failures").cut_middle
            cut = cut_middle(text, limit, head, call, limit // 8 if head < 1 else 0)
            shown = text[: cut[0].start] + cut[1] + text[cut[0].stop :] if cut else text
        else:
            continue
        if len(shown) < len(text):
            place[key] = shown
            yield LeftOut(call, text, shown, place.get("startLine", 0))


def _find_shown(transcript: str, key: str, texts: Sequence[str]) -> str:
    """Return the call of an equal result that the model still sees in full. Return an empty string
    if there is none, or for a failure, since a repeated failure is news."""
    calls = find_seen(transcript, key)
    if not calls or any(map(import_module("refold.text.failures").is_failure, texts)):
        return ""
    with Path(transcript).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED_BYTES))
        data = BytesIO(file.read())
    if data.getbuffer().nbytes == SEARCHED_BYTES:
        data.readline()  # skip the incomplete first line
    session = import_module("refold.session_files").read_bytes(data.read(), transcript)
    sizes = {
        block.get("tool_use_id"): len(json.dumps(block.get("content"), ensure_ascii=False))
        for entry in session.effective
        if isinstance(entry["content"], list)
        for block in entry["content"]
        if not block.get("is_error")
    }
    length = sum(map(len, texts))
    return next((call for call in calls if sizes.get(call, 0) >= length), "")


# --- before a compaction -----------------------------------------------------------------------


def keep_session(event: Mapping[str, Any]) -> None:
    """Copy the session's file, and the results left out of it, to the user's data directory, since
    clients delete theirs after some weeks. Copies unchanged for `KEPT_SECONDS` are deleted."""
    source, places = Path(event["transcript_path"]), import_module("refold.cli.places")
    folder = places.data_directory(Path.home()) / places.SESSIONS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    origins = dict.fromkeys(_find_origins(source))
    results = (path + SUFFIX for path in (str(source), *origins))
    for path in (source, *map(Path, results)):
        if path.is_file():
            draft = folder / f"{path.name}.{os.getpid()}"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with path.open("rb") as file, os.fdopen(descriptor, "wb") as copy:
                shutil.copyfileobj(file, copy)
            draft.replace(folder / path.name)
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - KEPT_SECONDS:
            path.unlink()


def _find_origins(transcript: Path) -> Iterator[str]:
    """Yield the sessions that this one was forked from. A fork does not copy left-out results."""
    with suppress(FileNotFoundError):
        for line in transcript.read_bytes().split(b"\n"):
            if b'"requestSessionId"' in line or b'"forkedFrom"' in line:
                with suppress(ValueError, AttributeError, RecursionError):
                    if origin := find_origin(json.loads(line)):
                        yield path_of_origin(str(transcript), origin)


EVENTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "post-tool-use": answer_tool_use,
    "pre-compact": keep_session,
}
"""Handler of each event of the client."""
