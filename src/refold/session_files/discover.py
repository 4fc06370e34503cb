"""Finding the sessions that are on this machine, without reading them."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""Is told of what could not be looked at; the error names it."""


def files_below(root: Path, pattern: str, refused: OnError) -> Iterator[Path]:
    """The files whose path below *root* is as *pattern* says, in no order: `*` for any name, and `**/` at its
    beginning for any directories (without following links into them). What is not there has no files."""
    deep = pattern.startswith("**/")
    first, _, rest = pattern.removeprefix("**/").partition("/")
    for entry in _entries(root, refused):
        if deep and entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), pattern, refused)
        if fnmatchcase(entry.name, first):
            yield from _match_rest(Path(entry.path), rest, refused)


def _match_rest(path: Path, rest: str, refused: OnError) -> Iterator[Path]:
    try:
        if rest and path.is_dir():
            yield from files_below(path, rest, refused)
        elif not rest and path.is_file():
            yield path
    except OSError as error:
        refused(error)


def _entries(directory: Path, refused: OnError) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        refused(error)
        return []


HEAD = 262_144
"""Bytes of a file looked at for its working directory (a Codex header holds all instructions)."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that is there to be read."""

    client: str
    path: Path
    size_bytes: int
    """Of the file; of a session in a database what its messages take, -1 where that is not cheap to
    tell, nor where each message is a file."""
    modified: datetime
    id: str = ""
    """Which session of a database, or of many files."""
    cwd: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a client keeps its sessions."""

    client: str
    roots: Callable[[Path, Mapping[str, str]], Iterable[Path]]
    patterns: tuple[str, ...]
    cwd: tuple[str, ...]
    """Where a line says the working directory."""


def discover(home: Path, env: Mapping[str, str], refused: OnError = str) -> list[FoundSession]:
    """The sessions of Claude Code, Codex, Gemini CLI, Qwen Code, pi and OpenCode, the latest first.

    *home* is the user's home directory, *env* the environment: CLAUDE_CONFIG_DIR, CODEX_HOME,
    GEMINI_CLI_HOME, XDG_DATA_HOME and OPENCODE_DB are heeded. What cannot be read is passed over,
    and *refused* is told of directories and files that may not be.
    """
    files = (session for place in PLACES for session in _files(place, home, env, refused))
    databases = [
        session
        for path in _databases(home, env, refused)
        for session in _read_database(path, refused)
    ]
    migrated = {session.id for session in databases}
    single_files = (
        session
        for path in _session_files(home, env, refused)
        if path.stem not in migrated
        for session in _read_file(path, refused)
    )
    return sorted(
        [*files, *databases, *single_files],
        key=lambda session: (session.modified, str(session.path), session.id),
        reverse=True,
    )


def _claude(home: Path, env: Mapping[str, str]) -> Iterable[Path]:
    named = env.get("CLAUDE_CONFIG_DIR")
    return (
        [Path(named) / "projects"]
        if named
        else [home / ".claude/projects", home / ".config/claude/projects"]
    )


def _codex(home: Path, env: Mapping[str, str]) -> Iterable[Path]:
    root = Path(env.get("CODEX_HOME") or home / ".codex")
    return [root / "sessions", root / "archived_sessions"]


def _gemini(home: Path, env: Mapping[str, str]) -> Iterable[Path]:
    return [Path(env.get("GEMINI_CLI_HOME") or home / ".gemini") / "tmp"]


def _qwen(home: Path, env: Mapping[str, str]) -> Iterable[Path]:  # noqa: ARG001 - one signature for all
    return [home / ".qwen/projects"]


def _pi(home: Path, env: Mapping[str, str]) -> Iterable[Path]:  # noqa: ARG001 - one signature for all
    return [home / ".pi/agent/sessions"]


PLACES = (
    _Place("claude_code", _claude, ("*/*.jsonl",), ("cwd",)),
    _Place(
        "codex",
        _codex,
        ("**/rollout-*.jsonl", "**/rollout-*.jsonl.zst", "rollout-*.json"),
        ("payload", "cwd"),
    ),
    _Place("gemini_cli", _gemini, ("*/chats/session-*.jsonl", "*/chats/session-*.json"), ()),
    _Place("qwen", _qwen, ("*/chats/*.jsonl",), ("cwd",)),
    _Place("pi", _pi, ("*/*.jsonl",), ("cwd",)),
)


# --- files -----------------------------------------------------------------------------------


def _files(
    place: _Place, home: Path, env: Mapping[str, str], refused: OnError
) -> Iterator[FoundSession]:
    for root in place.roots(home, env):
        for path in _below(root, place.patterns, refused):
            try:
                state = path.stat()
                cwd = _find_cwd(path, place.cwd) if place.cwd else _gemini_cwd(path)
                yield FoundSession(
                    place.client,
                    path,
                    state.st_size,
                    datetime.fromtimestamp(state.st_mtime, UTC),
                    cwd=cwd,
                )
            except OSError as error:
                refused(error)
            except (ValueError, OverflowError):
                continue


def _below(root: Path, patterns: Iterable[str], refused: OnError) -> Iterator[Path]:
    for pattern in patterns:
        yield from files_below(root, pattern, refused)


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


# --- databases -------------------------------------------------------------------------------


def _databases(home: Path, env: Mapping[str, str], refused: OnError) -> Iterator[Path]:
    if named := env.get("OPENCODE_DB"):
        yield Path(named)
        return
    data = _data_home(home, env)
    yield from files_below(data / "opencode", "opencode*.db", refused)
    yield from files_below(data / "kilo", "kilo.db", refused)


def _session_files(home: Path, env: Mapping[str, str], refused: OnError) -> Iterator[Path]:
    """OpenCode's session files from before it had a database, which it leaves where they were."""
    return files_below(_data_home(home, env) / "opencode/storage/session", "*/ses*.json", refused)


def _data_home(home: Path, env: Mapping[str, str]) -> Path:
    return Path(env.get("XDG_DATA_HOME") or home / ".local/share")


def _read_file(path: Path, refused: OnError) -> Iterator[FoundSession]:
    try:
        info, touched = (
            _parse_line(path.read_bytes()),
            datetime.fromtimestamp(path.stat().st_mtime, UTC),
        )
    except OSError as error:
        refused(error)
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


def _read_database(path: Path, refused: OnError) -> list[FoundSession]:
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
        refused(error)
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
