"""Session files of other tools: read, never changed; an export writes a new one.

`read` recognises a file by its content; `discover` finds the sessions on this machine.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

from refold.errors import FormatError
from refold.session_files import (
    claude_code,
    codex,
    gemini_cli,
    opencode,
    pi,
    plain,
    trajectories,
)
from refold.session_files.reader import (
    FIELDS,
    Compaction,
    Format,
    Reader,
    Session,
    StoredSession,
    with_calls,
)
from refold.session_files.source import (
    FoundSession,
    OnError,
    Problem,
    Source,
    open_bytes,
    open_path,
)
from refold.text.json_values import JsonObject

__all__ = [
    "FIELDS",
    "READERS",
    "Compaction",
    "Format",
    "FoundSession",
    "Problem",
    "Reader",
    "Session",
    "demo_session",
    "discover",
    "has_session",
    "read",
    "read_all",
    "read_bytes",
    "read_value",
    "with_calls",
]

READERS: tuple[Reader, ...] = (
    pi.READER,
    pi.COPILOT_READER,
    gemini_cli.QWEN_READER,
    claude_code.READER,
    codex.READER,
    gemini_cli.READER,
    opencode.DATABASE_READER,
    opencode.FILE_READER,
    trajectories.TAU_READER,
    trajectories.MINI_SWE_READER,
    trajectories.SHAREGPT_READER,
    trajectories.ADP_READER,
    trajectories.ATIF_READER,
    trajectories.OPENHANDS_READER,
    plain.CONTINUE_READER,
    plain.KIMI_READER,
    plain.KIMI_CODE_READER,
    plain.READER,
)
"""Readers, in the order in which they are tried on a file; the first that matches reads it."""


def read(path: Path | str, id: str = "") -> Session:
    """Read the session in a file: of several the latest whose id starts with *id*.

    Raises `FormatError` if no id does or it is no session file (the message names each format that
    was tried and why it does not match), `OSError` if it cannot be opened.
    """
    return _select(open_path(Path(path)), id)


def read_bytes(data: bytes, name: str = "stdin", id: str = "") -> Session:
    """Read the session in the bytes of a file, such as standard input, like `read`. *name* stands
    for its path. Raises `FormatError`."""
    return _select(open_bytes(data, name), id)


def read_all(path: Path | str, format: str = "") -> Iterator[Session]:
    """Yield every session in a file, the latest last. *format* is that of `read_value`. Raises the
    errors of `read`."""
    return _load(open_path(Path(path)), format)


def read_value(value: Any, name: str = "record", format: str = "") -> list[Session]:
    """Read every session in a parsed JSON value, such as a line of a data set.

    *format* is a wire format or the `client` of a reader; if it is empty, the shape of the value
    decides. Raises `FormatError`.
    """
    return list(_load(Source(Path(name), BytesIO, ((1, value),), value), format))


def _load(source: Source, format: str) -> Iterator[Session]:
    """Yield the sessions of a source, read as *format*, or as any format if that is empty."""
    readers = [reader for reader in READERS if format in ("", reader.client)]
    if format in FIELDS:
        wire_format = cast("Format", format)
        readers = [replace(plain.READER, sessions=partial(plain.sessions, format=wire_format))]
    if not readers:
        names = ", ".join((*FIELDS, *(reader.client for reader in READERS)))
        raise FormatError(f"no format is called {format!r}; there are {names}")
    for stored in _list_sessions(source, readers):
        yield stored.load()


def has_session(path: Path, sample: Sequence[tuple[int, Any]]) -> bool:
    """Return whether a file is one session, by its first lines (numbers and values). Raises
    `FormatError` for other files that a client writes."""
    source = Source(path, BytesIO, tuple(sample), sample[0][1] if len(sample) == 1 else None)
    return any(not reader.mismatch(source) for reader in READERS)


def _select(source: Source, id: str) -> Session:
    matches = [stored for stored in _list_sessions(source) if stored.id.startswith(id)]
    if not matches:
        raise FormatError(
            f"{source.path.name} has no session {id!r}"
            if id
            else f"{source.path.name} has no sessions"
        )
    return matches[-1].load()


def _list_sessions(source: Source, readers: Sequence[Reader] = READERS) -> Sequence[StoredSession]:
    reasons = list[str]()
    for reader in readers:
        reason = reader.mismatch(source)
        if not reason:
            return reader.sessions(source)
        reasons.append(f"{reader.client} ({reason})")
    raise FormatError(
        f"{source.path.name} is no session file that Refold knows. Tried: {'; '.join(reasons)}"
    )


def discover(home: Path, env: Mapping[str, str], on_error: OnError = str) -> list[FoundSession]:
    """Find the sessions that clients keep on this machine, latest first, without reading them.

    *home* is the user's home directory. The environment *env* may set CLAUDE_CONFIG_DIR,
    CODEX_HOME, CONTINUE_GLOBAL_DIR, COPILOT_HOME, GEMINI_CLI_HOME, KIMI_CODE_HOME, KIMI_SHARE_DIR,
    OPENCODE_DB, PI_CODING_AGENT_DIR, QWEN_RUNTIME_DIR, QWEN_HOME and XDG_DATA_HOME. Unreadable
    directories and files are left out, and *on_error* is called with their errors.
    """
    finds = [reader.find for reader in READERS if reader.find]
    return sorted(
        (session for find in finds for session in find(home, env, on_error)),
        key=lambda session: (session.modified, str(session.path), session.id),
        reverse=True,
    )


DEMO_FILE = Path(__file__).with_name("demo_session.jsonl.gz")
"""Demo session (170 kB), one entry per line, written by `python -m benchmarks.demo_session`."""


def demo_session(turns: int | None = None) -> list[JsonObject]:
    """Return a long coding task in Anthropic Messages format: 413 messages, about 200,000 tokens.

    *turns* stops it after that many assistant messages. The last entry is then a user message or a
    tool result, as in the next request of a client.
    """
    entries = [json.loads(line) for line in gzip.decompress(DEMO_FILE.read_bytes()).splitlines()]
    if turns is None:
        return entries
    answers = accumulate(entry["role"] == "assistant" for entry in entries)
    return [entry for entry, count in zip(entries, answers, strict=True) if count <= turns]
