"""The agent sessions on this machine, found without reading them."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from refold.session_files import opencode
from refold.session_files.json_fields import dig, parse_time, text_at
from refold.session_files.source import Source

OnError = Callable[[OSError], object]
"""Gets the error of each path that could not be looked at."""


def files_below(root: Path, pattern: str, on_error: OnError) -> Iterator[Path]:
    """Yield the files below *root* that match *pattern*, in no order; none if *root* does not exist.

    `*` stands for any part of a name, `**/` at the beginning for any directories (links are not followed).
    """
    deep = pattern.startswith("**/")
    first, _, rest = pattern.removeprefix("**/").partition("/")
    for entry in _entries(root, on_error):
        if deep and entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), pattern, on_error)
        if fnmatchcase(entry.name, first):
            yield from _match_rest(Path(entry.path), rest, on_error)


def _match_rest(path: Path, rest: str, on_error: OnError) -> Iterator[Path]:
    try:
        if rest and path.is_dir():
            yield from files_below(path, rest, on_error)
        elif not rest and path.is_file():
            yield path
    except OSError as error:
        on_error(error)


def _entries(directory: Path, on_error: OnError) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        on_error(error)
        return []


HEAD = 262_144
"""Bytes of a file looked at for its working directory (a Codex header holds all instructions)."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that can be read."""

    client: str
    path: Path
    size_bytes: int
    """Of the file; of a session in a database the size of its messages. -1 if that takes long to find out,
    and if each message is a file."""
    modified: datetime
    id: str = ""
    """Which session of a database, or of many files."""
    cwd: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a client keeps its sessions."""

    client: str
    variable: str
    """The environment variable that names the client's home instead."""
    homes: tuple[str, ...]
    """The client's homes below the user's."""
    folders: tuple[str, ...]
    patterns: tuple[str, ...]
    cwd: tuple[str, ...]
    """The keys of the working directory in a line."""

    def files(self, home: Path, env: Mapping[str, str], on_error: OnError) -> Iterator[Path]:
        """Yield the session files."""
        named = env.get(self.variable)
        for root in [Path(named)] if named else [home / name for name in self.homes]:
            for folder in self.folders:
                for pattern in self.patterns:
                    yield from files_below(root / folder, pattern, on_error)


_ROLLOUTS = ("**/rollout-*.jsonl", "**/rollout-*.jsonl.zst", "rollout-*.json")
_CHATS = ("*/chats/session-*.jsonl", "*/chats/session-*.json")
_CLAUDE_HOMES = (".claude", ".config/claude")
_CODEX_FOLDERS = ("sessions", "archived_sessions")
PLACES = (
    _Place(
        "claude_code", "CLAUDE_CONFIG_DIR", _CLAUDE_HOMES, ("projects",), ("*/*.jsonl",), ("cwd",)
    ),
    _Place("codex", "CODEX_HOME", (".codex",), _CODEX_FOLDERS, _ROLLOUTS, ("payload", "cwd")),
    _Place("gemini_cli", "GEMINI_CLI_HOME", (".gemini",), ("tmp",), _CHATS, ()),
    _Place("qwen", "", (".qwen",), ("projects",), ("*/chats/*.jsonl",), ("cwd",)),
    _Place("pi", "", (".pi/agent",), ("sessions",), ("*/*.jsonl",), ("cwd",)),
)


def discover(home: Path, env: Mapping[str, str], on_error: OnError = str) -> list[FoundSession]:
    """Return the sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi and OpenCode, the latest first.

    *home* is the user's home directory, *env* the environment: CLAUDE_CONFIG_DIR, CODEX_HOME,
    GEMINI_CLI_HOME, XDG_DATA_HOME and OPENCODE_DB count. What cannot be read is left out, and
    *on_error* gets the errors of directories and files that may not be read.
    """
    data = Path(env.get("XDG_DATA_HOME") or home / ".local/share")
    sessions = [
        session
        for place in PLACES
        for path in place.files(home, env, on_error)
        for session in _read_place(place, path, on_error)
    ]
    migrated = set[str]()
    for path in _databases(data, env.get("OPENCODE_DB"), on_error):
        rows = _read_database(path, on_error)
        migrated.update(session.id for session in rows)
        sessions += rows
    for path in files_below(data / "opencode/storage/session", "*/ses*.json", on_error):
        if path.stem not in migrated:  # OpenCode leaves these files when it makes a database
            sessions += _read_file(path, on_error)
    return sorted(
        sessions,
        key=lambda session: (session.modified, str(session.path), session.id),
        reverse=True,
    )


# --- files -----------------------------------------------------------------------------------


def _read_place(place: _Place, path: Path, on_error: OnError) -> Iterator[FoundSession]:
    try:
        state = path.stat()
        modified = datetime.fromtimestamp(state.st_mtime, UTC)
        cwd = _find_cwd(path, place.cwd) if place.cwd else _gemini_cwd(path)
    except OSError as error:
        on_error(error)
    except (ValueError, OverflowError):
        return
    else:
        yield FoundSession(place.client, path, state.st_size, modified, cwd=cwd)


def _find_cwd(path: Path, keys: tuple[str, ...]) -> str:
    """The first working directory that the first lines state."""
    with path.open("rb") as stream:
        lines = stream.read(HEAD).split(b"\n")
    return next(
        (cwd for line in islice(lines, 64) if (cwd := text_at(_parse_line(line), *keys))), ""
    )


def _parse_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _gemini_cwd(path: Path) -> str:
    """Gemini CLI writes the working directory beside its chats."""
    try:
        return (path.parent.parent / ".project_root").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


# --- OpenCode --------------------------------------------------------------------------------


def _databases(data: Path, named: str | None, on_error: OnError) -> Iterator[Path]:
    if named:
        yield Path(named)
        return
    yield from files_below(data / "opencode", "opencode*.db", on_error)
    yield from files_below(data / "kilo", "kilo.db", on_error)


def _read_file(path: Path, on_error: OnError) -> Iterator[FoundSession]:
    try:
        info, touched = (
            _parse_line(path.read_bytes()),
            datetime.fromtimestamp(path.stat().st_mtime, UTC),
        )
    except OSError as error:
        on_error(error)
        return
    except (ValueError, OverflowError):
        return
    if text_at(info, "id"):
        named = {
            "id": path.stem,
            "cwd": text_at(info, "directory"),
            "title": text_at(info, "title"),
        }
        yield FoundSession(
            "opencode", path, -1, parse_time(dig(info, "time", "updated")) or touched, **named
        )


def _read_database(path: Path, on_error: OnError) -> list[FoundSession]:
    try:
        if not path.is_file():
            return []
        path.open("rb").close()  # says why not, where it may not be read
        source = Source(path, lambda: path.open("rb"), database=True)
        with closing(opencode.connect(source)) as base:
            rows = base.execute("SELECT id, directory, title, time_updated FROM session").fetchall()
            sizes = _sizes(base)
        touched = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return [_session_of_row(path, row, sizes, touched) for row in rows]
    except OSError as error:
        on_error(error)
        return []
    except (sqlite3.Error, ValueError, OverflowError):
        return []


def _sizes(base: sqlite3.Connection) -> dict[Any, int]:
    """Bytes of each session. Only SQLite 3.43 and later can tell without reading them all."""
    if sqlite3.sqlite_version_info < (3, 43):
        return {}
    return dict(
        base.execute(
            "SELECT session_id, sum(octet_length(data)) FROM part GROUP BY session_id"
        ).fetchall()
    )


def _session_of_row(
    path: Path, row: tuple[Any, ...], sizes: Mapping[Any, int], touched: datetime
) -> FoundSession:
    named = dict(zip(("id", "cwd", "title"), row, strict=False))
    return FoundSession(
        client="opencode",
        path=path,
        size_bytes=sizes.get(row[0], -1),
        modified=parse_time(row[3]) or touched,
        id=text_at(named, "id"),
        cwd=text_at(named, "cwd"),
        title=text_at(named, "title"),
    )
