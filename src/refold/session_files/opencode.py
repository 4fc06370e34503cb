"""OpenCode: `~/.local/share/opencode/opencode.db` (SQLite), opened read-only.

Before version 1.2 the same data is in JSON files below `~/.local/share/opencode/storage`:
`session/<project>/<session>.json`, `message/<session>/<message>.json` and
`part/<message>/<part>.json`. Ids come from the paths. The output of `opencode export`, one object,
is read as well. Assistant messages that ended in an error are left out, unless the user interrupted
them.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from refold.errors import FormatError
from refold.session_files.claude_code import result_block, text_block
from refold.session_files.reader import (
    Compaction,
    Entry,
    Reader,
    Session,
    SessionBuilder,
    StoredSession,
)
from refold.session_files.source import (
    FoundSession,
    OnError,
    Source,
    describe_file,
    files_below,
)
from refold.text.json_values import (
    JsonObject,
    Record,
    first_text,
    int_at,
    object_at,
    objects_at,
    parse_or_none,
    parse_time,
    text_at,
)

CLIENT = "opencode"


# --- sessions -------------------------------------------------------------------------------------


SUMMARY_QUESTION = "What did we do so far?"
"""Text of the user message that the client puts before a summary."""
KNOWN_PARTS = frozenset(
    {
        *("text", "reasoning", "file", "subtask", "tool"),
        *("agent", "compaction", "patch", "retry", "snapshot", "step-finish", "step-start"),
    }
)
"""Known types of parts. Those in the second line have no conversation content."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its parts, each part with its id."""

    id: str
    data: Record
    parts: Sequence[Record]


def build_session(session: SessionBuilder, row: Record, stored: list[StoredMessage]) -> Session:
    """Return a session from its messages and its row in the database, or the same fields of a
    file."""
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
    """Return the messages before the point to which the user reverted; all without such a point."""
    ids = [message.id for message in stored]
    if (id := text_at(revert, "messageID")) not in ids:
        return stored
    at, part = ids.index(id), text_at(revert, "partID")
    if not part:
        return stored[:at]
    parts = [item for item in stored[at].parts if text_at(item, "id") < part]
    return [*stored[:at], replace(stored[at], parts=parts)]


def _is_summary(message: StoredMessage) -> bool:
    """Return whether it is a finished summary."""
    return (
        message.data.get("summary") is True
        and bool(message.data.get("finish"))
        and not message.data.get("error")
    )


def _compaction(
    request: StoredMessage, summary: StoredMessage | None, session: SessionBuilder
) -> list[Compaction]:
    """Return the summary of everything before the kept tail; none if it was not finished."""
    if summary is None:
        return []
    mark = next(part for part in request.parts if part.get("type") == "compaction")
    now = session.position
    blocks = list(_blocks(part for part in summary.parts if part.get("type") == "text"))
    insert = (
        {"role": "user", "content": [text_block(SUMMARY_QUESTION)]},
        {"role": "assistant", "content": blocks},
    )
    stop = session.index.get(text_at(mark, "tail_start_id"), now)
    trigger = "auto" if mark.get("auto") is True else "manual"
    return [Compaction(0, stop, insert, trigger, mark, now)] if blocks else []


# --- messages -------------------------------------------------------------------------------------
# They become Anthropic blocks, whatever provider the session used. An answer is split at each new
# step. Results are in a user message right after the calls, as they were sent.

CLEARED_RESULT = "[Old tool result content cleared]"
"""The client's placeholder for a pruned result."""
ABORT_ERROR = "MessageAbortedError"
"""Name of the error if the user interrupted an assistant message."""
KINDS = {"image": "image", "application": "document"}


def _add_message(session: SessionBuilder, message: StoredMessage) -> None:
    session.index[message.id] = session.position
    if text_at(message.data, "role") == "user":
        if blocks := list(_blocks(message.parts)):
            session.say("user", blocks)
    elif text_at(message.data, "role") == "assistant" and not _is_failed(message):
        _add_answer(session, message)


def _is_failed(message: StoredMessage) -> bool:
    """Return whether an assistant message ended in an error that excludes it from requests."""
    if not message.data.get("error"):
        return False
    halfway = any(
        text_at(part, "type") not in {"step-start", "reasoning"} for part in message.parts
    )
    return not (text_at(message.data, "error", "name") == ABORT_ERROR and halfway)


def _add_answer(session: SessionBuilder, message: StoredMessage) -> None:
    at = session.position
    for step in _steps(message.parts):
        if blocks := list(_blocks(step)):
            session.say("assistant", blocks)
            at = session.position
        _add_results(session, [part for part in step if part.get("type") == "tool"])
    if int_at(message.data, "tokens", "input") >= 0 and at > session.index[message.id]:
        cost = {"cost": {"total": message.data["cost"]}} if "cost" in message.data else {}
        session.usage.append((at, {**object_at(message.data, "tokens"), **cost}))


def _steps(parts: Sequence[Record]) -> list[list[Record]]:
    steps = list[list[Record]]([[]])
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        steps[-1].append(part)
    return steps


def _add_results(session: SessionBuilder, tools: Sequence[Record]) -> None:
    """Add the results of a step. Unfinished calls have none and stay open."""
    ended = [part for part in tools if text_at(part, "state", "status") in {"completed", "error"}]
    if not ended:
        return
    at = session.position
    session.add({"role": "user", "content": [_result(part) for part in ended]})
    pruned = [object_at(part, "state", "time").get("compacted") for part in ended]
    if any(pruned):
        shown = [
            _result(part, bool(is_pruned)) for part, is_pruned in zip(ended, pruned, strict=True)
        ]
        session.compactions.append(
            Compaction(at, at + 1, ({"role": "user", "content": shown},), "prune")
        )


def _blocks(parts: Iterable[Record]) -> Iterator[Entry]:
    """Yield parts as message blocks."""
    for part in parts:
        match text_at(part, "type"):
            case "text" if text_at(part, "text") and part.get("ignored") is not True:
                yield text_block(text_at(part, "text"))
            case "reasoning" if text_at(part, "text") or text_at(
                part, "metadata", "anthropic", "signature"
            ):
                signature = text_at(part, "metadata", "anthropic", "signature")
                yield {
                    "type": "thinking",
                    "thinking": text_at(part, "text"),
                    "signature": signature,
                }
            case "file":
                yield from _file(part)
            case "subtask":
                yield text_block("The following tool was executed by the user")
            case "tool":
                named = {"id": text_at(part, "callID"), "name": text_at(part, "tool")}
                yield {
                    "type": "tool_use",
                    **named,
                    "input": dict(object_at(part, "state", "input")),
                }


def _file(part: Record) -> Iterator[Entry]:
    """Yield an attachment. Text files and directories are skipped: text parts repeat them."""
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


# --- databases ------------------------------------------------------------------------------------


TABLES = frozenset({"session", "message", "part"})
PARTS = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id"
MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
SIZES = "SELECT session_id AS id, sum(octet_length(data)) AS size FROM part GROUP BY session_id"


def database_mismatch(source: Source) -> str:
    """Return why this is no OpenCode database; empty if it is one."""
    if not source.database:
        return "not an SQLite file"
    try:
        with closing(_connect(source)) as base:
            names = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            missing = TABLES - {name for (name,) in names}
    except sqlite3.Error as error:
        return f"an SQLite file that cannot be read: {error}"
    return f"no table {', '.join(sorted(missing))}" if missing else ""


def database_sessions(source: Source) -> Sequence[StoredSession]:
    """Return every session of a database, latest last. Raises `FormatError`."""
    rows = query(source, "SELECT id FROM session ORDER BY time_updated, id")
    return [
        StoredSession(row["id"], partial(read_database, source, row["id"]))
        for row in rows
        if isinstance(row["id"], str)
    ]


def _connect(source: Source) -> sqlite3.Connection:
    """Return a read-only connection. Raises `sqlite3.Error`."""
    if not source.path.is_file():
        return _in_memory(source)
    where = source.path.resolve().as_uri()
    base = sqlite3.connect(f"{where}?mode=ro", uri=True)
    try:
        base.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.Error as error:
        base.close()
        if not isinstance(error, sqlite3.OperationalError) or Path(f"{source.path}-wal").exists():
            raise
        # The database is in WAL mode with an empty log, and its directory cannot be written to.
        return sqlite3.connect(f"{where}?immutable=1", uri=True)
    return base


def _in_memory(source: Source) -> sqlite3.Connection:
    """Open a database from bytes, without the write-ahead log that its header may require."""
    with source.open() as stream:
        data = bytearray(stream.read())
    data[18:20] = b"\1\1"
    base = sqlite3.connect(":memory:")
    try:
        base.deserialize(bytes(data))
    except sqlite3.Error:
        base.close()
        raise
    return base


def query(source: Source, sql: str, *values: str) -> list[Record]:
    """Return the rows that *sql* selects from a database. Raises `FormatError`."""
    try:
        with closing(_connect(source)) as base:
            base.row_factory = sqlite3.Row
            base.text_factory = lambda raw: raw.decode("utf-8", "replace")
            return [dict(row) for row in base.execute(sql, values)]
    except (sqlite3.Error, OverflowError) as error:
        raise FormatError(f"{source.path.name}: the database cannot be read: {error}") from error


# --- sessions of a database -----------------------------------------------------------------------


def read_database(source: Source, id: str) -> Session:
    """Read one session of a database. Raises `FormatError`."""
    session = SessionBuilder(source, CLIENT, "anthropic")
    row = read_row(source, id)
    revert = _parse_object(row.get("revert") or "{}", id, session)
    messages = list(_messages(session, id))
    return build_session(session, {**row, "revert": revert}, messages)


def read_row(source: Source, id: str) -> Record:
    """Return the row of a session. Raises `FormatError` if it was deleted after it was listed."""
    if rows := query(source, "SELECT * FROM session WHERE id = ?", id):
        return rows[0]
    raise FormatError(f"{source.path.name}: its session {id} has been deleted")


def _messages(session: SessionBuilder, id: str) -> Iterator[StoredMessage]:
    parts = dict[str, list[Record]]()
    for row in query(session.source, PARTS, id):
        part = _parse_object(row["data"], row["id"], session)
        parts.setdefault(row["message_id"], []).append({**part, "id": row["id"]})
    for row in query(session.source, MESSAGES, id):
        data = _parse_object(row["data"], row["id"], session)
        yield StoredMessage(text_at(row, "id"), data, parts.get(row["id"], []))


def _parse_object(text: Any, name: str, session: SessionBuilder) -> Record:
    """Return a JSON object; an empty one for anything else. Invalid JSON becomes a problem."""
    try:
        return object_at(json.loads(text, strict=False))
    except (TypeError, ValueError, RecursionError) as error:
        session.note(f"{name}: its data are no JSON ({error})")
        return {}


# --- session files and exports --------------------------------------------------------------------


def file_mismatch(source: Source) -> str:
    """Return why this is no session file or export of OpenCode; empty if it is one."""
    if _is_session(source.document):
        return "" if _storage(source.path).is_dir() else "a session without the messages beside it"
    if _is_session(object_at(source.document, "info")) and isinstance(
        source.document.get("messages"), list
    ):
        return ""
    return "no session with an id, a version and times"


def read_file(source: Source) -> Session:
    """Read a session file and the files of its messages, or an export."""
    session = SessionBuilder(source, CLIENT, "anthropic")
    info = object_at(source.document, "info") or source.document
    messages = (
        _export_messages(source.document) if "info" in source.document else _file_messages(session)
    )
    created, updated = (object_at(info, "time").get(key) for key in ("created", "updated"))
    times = {"time_created": created, "time_updated": updated}
    row = {**info, "id": _session_id(source), **times}
    in_order = sorted(
        messages, key=lambda message: (int_at(message.data, "time", "created"), message.id)
    )
    return build_session(session, row, in_order)


def file_sessions(source: Source) -> Sequence[StoredSession]:
    """Return the only session of a file."""
    return [StoredSession(_session_id(source), partial(read_file, source))]


def _is_session(value: Any) -> bool:
    return (
        text_at(value, "id").startswith("ses")
        and int_at(value, "time", "created") >= 0
        and "version" in value
    )


def _storage(path: Path) -> Path:
    """Return the folder `message` beside the folder `session` that *path* is in."""
    return path.resolve().parent.parent.parent / "message"


def _session_id(source: Source) -> str:
    return (
        source.path.stem if _is_session(source.document) else text_at(source.document, "info", "id")
    )


def _export_messages(document: Record) -> Iterator[StoredMessage]:
    for item in objects_at(document, "messages"):
        info = object_at(item, "info")
        yield StoredMessage(text_at(info, "id"), info, _sort_parts(objects_at(item, "parts")))


def _file_messages(session: SessionBuilder) -> Iterator[StoredMessage]:
    place = session.source.path
    folder = _storage(place)
    for path, data in _read_objects(folder / place.stem, session):
        parts = _read_objects(folder.parent / "part" / path.stem, session)
        yield StoredMessage(
            path.stem, data, _sort_parts({**part, "id": at.stem} for at, part in parts)
        )


def _sort_parts(parts: Iterator[JsonObject]) -> list[JsonObject]:
    return sorted(parts, key=lambda part: text_at(part, "id"))


def _read_objects(folder: Path, session: SessionBuilder) -> Iterator[tuple[Path, JsonObject]]:
    """Yield the JSON objects in the files of a folder. Other content becomes a problem."""
    for path in sorted(folder.glob("*.json")):
        try:
            value = json.loads(path.read_bytes().decode("utf-8", "replace"), strict=False)
        except (OSError, ValueError, RecursionError) as error:
            session.note(f"{path.name}: {error}")
            continue
        if isinstance(value, dict):
            yield path, value
        else:
            session.note(f"{path.name}: a JSON object was expected")


# --- places of sessions ---------------------------------------------------------------------------


def find(home: Path, env: Mapping[str, str], on_error: OnError) -> Iterator[FoundSession]:
    """Find the sessions in databases, and in files that were not migrated to one."""
    data = Path(env.get("XDG_DATA_HOME") or home / ".local/share")
    if named := env.get("OPENCODE_DB"):
        databases = [data / "opencode" / named]  # a relative path is below its data
    else:
        databases = [
            *files_below(data / "opencode", "opencode*.db", on_error),
            *files_below(data / "kilo", "kilo.db", on_error),
        ]
    migrated = set[str]()
    for path in databases:
        for session in describe_file(path, _sessions_in_database, on_error):
            migrated.add(session.id)
            yield session
    for path in files_below(data / "opencode/storage/session", "*/ses*.json", on_error):
        if path.stem not in migrated:  # OpenCode keeps these files after the migration
            yield from describe_file(path, _session_in_file, on_error)


def _session_in_file(path: Path) -> Iterator[FoundSession]:
    info = parse_or_none(path.read_bytes())
    if text_at(info, "id"):
        modified = parse_time(object_at(info, "time").get("updated")) or _modification_time(path)
        cwd, title = text_at(info, "directory"), text_at(info, "title")
        yield FoundSession(CLIENT, path, -1, modified, path.stem, cwd, title)


def _sessions_in_database(path: Path) -> Iterator[FoundSession]:
    if not path.is_file():
        return
    path.open("rb").close()  # raises OSError if it may not be read
    source = Source(path, lambda: path.open("rb"), database=True)
    rows = query(source, "SELECT id, directory, title, time_updated FROM session")
    # Only SQLite 3.43 and later can get sizes without reading everything.
    can_size = sqlite3.sqlite_version_info >= (3, 43)
    sizes = {row["id"]: row["size"] for row in query(source, SIZES)} if can_size else {}
    for row in rows:
        modified = parse_time(row["time_updated"]) or _modification_time(path)
        texts = (text_at(row, key) for key in ("id", "directory", "title"))
        yield FoundSession(CLIENT, path, sizes.get(row["id"], -1), modified, *texts)


def _modification_time(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


DATABASE_READER = Reader(CLIENT, database_mismatch, database_sessions, find)
FILE_READER = Reader(CLIENT, file_mismatch, file_sessions)
